#include "conformance/report/exposition.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/report/escape.h"

namespace ctxconf::conformance {
namespace {

std::string quoted_label(std::string_view name, std::string_view value,
                         std::size_t limit = kTextLimit) {
  return fmt::format("{}=\"{}\"", name, escape(value, Escape::kLabel, limit));
}

// One metric with its samples.
class Metric {
 public:
  Metric(std::string& out, std::string_view name, std::string_view help) : out_(out), name_(name) {
    out_ += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n", name, help);
  }
  template <class Value>
  void add(std::string_view labels, Value value) {
    out_ += labels.empty() ? fmt::format("{} {}\n", name_, value)
                           : fmt::format("{}{{{}}} {}\n", name_, labels, value);
  }

 private:
  std::string& out_;
  std::string name_;
};

std::string labels_of(const ProcessVerdict& p) {
  std::string out =
      fmt::format("pid=\"{}\",{}", p.pid, quoted_label("exe", p.name(), kMostExecutableLabel));
  const auto service = p.resource.find("service.name");
  const std::string_view name = service == p.resource.end() ? std::string_view() : service->second;
  return out + "," + quoted_label("service", name, kMostServiceLabel);
}

std::string labels_of(const BrokenVerdict& b) {
  return quoted_label("requirement", b.requirement->id) + "," +
         quoted_label("outcome", to_string(b.outcome));
}

void add_run(const ExpositionRun& run, std::string& out) {
  Metric(out, "ctxconf_build_info", "The ctxconf that wrote this file.")
      .add(quoted_label("version", run.version) + "," + quoted_label("commit", run.commit), 1);
  Metric(out, "ctxconf_run_timestamp_seconds", "When the run ended, in seconds since 1970.")
      .add("", run.ended_at);
  Metric(out, "ctxconf_run_duration_seconds", "How long the processes were observed.")
      .add("", fmt::format("{:.3f}", run.seconds));
}

void add_states(const ProcessVerdicts& verdicts, std::string& out) {
  Metric metric(out, "ctxconf_processes", "Processes of this host by their state.");
  const StateCounts counts = count(verdicts);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    metric.add(quoted_label("state", to_string(kProcessStates[i])), counts[i]);
  }
}

void add_outcomes(const ProcessVerdicts& verdicts, std::string& out) {
  Totals sum;
  for (const ProcessVerdict& p : verdicts.processes) sum += p.totals;
  Metric metric(out, "ctxconf_verdicts", "Verdicts about all processes by their outcome.");
  for (const auto& [outcome, number] :
       {std::pair(Outcome::kPass, sum.pass), std::pair(Outcome::kFail, sum.fail),
        std::pair(Outcome::kWarn, sum.warn), std::pair(Outcome::kInfo, sum.info),
        std::pair(Outcome::kUnobservable, sum.unobservable),
        std::pair(Outcome::kTimeout, sum.timeout), std::pair(Outcome::kCrash, sum.crash),
        std::pair(Outcome::kHarnessError, sum.harness_error)}) {
    metric.add(quoted_label("outcome", to_string(outcome)), number);
  }
}

void add_broken_requirements(const ProcessVerdicts& verdicts, std::string& out) {
  std::map<std::string, std::size_t> processes;
  for (const ProcessVerdict& p : verdicts.processes) {
    for (const BrokenVerdict& b : p.broken) ++processes[labels_of(b)];
  }
  Metric metric(out, "ctxconf_requirement_broken_processes",
                "Processes that break a requirement, all of them.");
  for (const auto& [labels, number] : processes) metric.add(labels, number);
}

bool is_named_by_its_state(const ProcessVerdict& p) {
  return p.state != ProcessState::kClean && p.state != ProcessState::kNoContext;
}

// The processes that have series of their own: the first ones of each state.
struct Labelled {
  std::vector<const ProcessVerdict*> processes;
  StateCounts omitted{};
};

Labelled labelled(const ProcessVerdicts& verdicts) {
  Labelled out;
  for (std::size_t i = 0; i < kProcessStates.size(); ++i) {
    std::size_t found = 0;
    for (const ProcessVerdict& p : verdicts.processes) {
      const bool has_series = is_named_by_its_state(p) || !p.broken.empty();
      if (p.state != kProcessStates[i] || !has_series) continue;
      if (++found <= kMostLabelledProcesses) out.processes.push_back(&p);
    }
    out.omitted[i] = found - std::min(found, kMostLabelledProcesses);
    if (kProcessStates[i] == ProcessState::kUnread) out.omitted[i] += verdicts.unread_omitted;
  }
  return out;
}

void add_process_states(const Labelled& own, std::string& out) {
  Metric metric(out, "ctxconf_process_state",
                "1 for each process that is broken, not judged or unread.");
  for (const ProcessVerdict* p : own.processes) {
    if (!is_named_by_its_state(*p)) continue;
    metric.add(labels_of(*p) + "," + quoted_label("state", to_string(p->state)), 1);
  }
}

void add_broken_processes(const Labelled& own, std::string& out) {
  Metric metric(out, "ctxconf_process_requirement_broken",
                "1 for each requirement that a process breaks.");
  for (const ProcessVerdict* p : own.processes) {
    for (const BrokenVerdict& b : p->broken) metric.add(labels_of(*p) + "," + labels_of(b), 1);
  }
}

void add_omitted(const Labelled& own, std::string& out) {
  Metric metric(out, "ctxconf_processes_omitted",
                "Processes that have no series of their own, because they are too many.");
  for (std::size_t i = 0; i < own.omitted.size(); ++i) {
    if (kProcessStates[i] == ProcessState::kNoContext) continue;
    metric.add(quoted_label("state", to_string(kProcessStates[i])), own.omitted[i]);
  }
}

}  // namespace

std::string to_exposition(const ExpositionRun& run, const ProcessVerdicts& verdicts) {
  std::string out;
  add_run(run, out);
  add_states(verdicts, out);
  add_outcomes(verdicts, out);
  add_broken_requirements(verdicts, out);
  const Labelled own = labelled(verdicts);
  add_process_states(own, out);
  add_broken_processes(own, out);
  add_omitted(own, out);
  return out;
}

}  // namespace ctxconf::conformance
