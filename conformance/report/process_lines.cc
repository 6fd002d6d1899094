#include "conformance/report/process_lines.h"

#include <nlohmann/json.hpp>

#include "conformance/report/escape.h"
#include "conformance/text/json_line.h"

namespace ctxconf::conformance {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMostReason = 512;

OrderedJson counts_of(const Totals& t) {
  return {{"pass", t.pass}, {"fail", t.fail}, {"warn", t.warn},
          {"info", t.info}, {"na", t.na},     {"unobservable", t.unobservable}};
}

OrderedJson broken_of(const ProcessVerdict& p, Outcome outcome) {
  OrderedJson out = OrderedJson::array();
  for (const BrokenVerdict& b : p.broken) {
    if (b.outcome != outcome) continue;
    out.push_back({{"id", b.requirement->id}, {"saw", json_text(b.saw, kMostReason)}});
  }
  return out;
}

OrderedJson outcomes_of(const ProcessVerdict& p) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [requirement, outcome] : p.outcomes) out[requirement->id] = to_string(outcome);
  return out;
}

OrderedJson resource_of(const ProcessVerdict& p) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [key, value] : p.resource) out[json_text(key)] = json_text(value);
  return out;
}

void add_if_any(OrderedJson& out, const char* name, const std::string& text) {
  if (!text.empty()) out[name] = json_text(text);
}

OrderedJson process_json(const ProcessVerdict& p) {
  OrderedJson out = {{"kind", "process"}, {"pid", p.pid}};
  if (p.parent != 0) out["parent"] = p.parent;
  out["state"] = to_string(p.state);
  add_if_any(out, "executable", p.executable);
  add_if_any(out, "command", p.command);
  add_if_any(out, "unread", p.unread);
  add_if_any(out, "incomplete", p.incomplete);
  if (p.totals.selected == 0) return out;
  out["resource"] = resource_of(p);
  out["counts"] = counts_of(p.totals);
  out["outcomes"] = outcomes_of(p);
  out["failed"] = broken_of(p, Outcome::kFail);
  out["warned"] = broken_of(p, Outcome::kWarn);
  return out;
}

OrderedJson run_json(const RunResult& run, const ProcessVerdicts& verdicts) {
  OrderedJson processes = OrderedJson::object();
  const StateCounts counts = count(verdicts);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    processes[std::string(to_string(kProcessStates[i]))] = counts[i];
  }
  OrderedJson out = {{"kind", "run"},
                     {"version", run.suite_version},
                     {"started_at", run.started_at},
                     {"seconds", run.seconds},
                     {"processes", std::move(processes)}};
  if (verdicts.unread_omitted > 0) out["unread_omitted"] = verdicts.unread_omitted;
  out["exit_code"] = run.exit_code;
  out["exit_reason"] = json_text(run.exit_reason);
  return out;
}

}  // namespace

std::string to_process_lines(const RunResult& run, const ProcessVerdicts& verdicts) {
  std::string out;
  for (const ProcessVerdict& p : verdicts.processes) out += dumped(process_json(p)) + "\n";
  return out + dumped(run_json(run, verdicts)) + "\n";
}

}  // namespace ctxconf::conformance
