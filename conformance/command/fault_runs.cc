#include "conformance/command/fault_runs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "conformance/command/print.h"
#include "conformance/faults/fault_cells.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/testee/jobs.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

using std::chrono::milliseconds;

constexpr unsigned kAtOnce = 2;
constexpr milliseconds kShortest{5000};  // shortest limit of a program that ends by itself
constexpr milliseconds kAfterLastCall{1000};

// A program that ends by itself may take much longer under a fault before it counts as hung.
milliseconds limit_for(double seconds) {
  return std::max(kShortest, milliseconds(static_cast<long long>(seconds * 4000) + 2000));
}

// For a program that runs until it is ended: the time until its last publication or update, and a
// moment.
milliseconds time_to_publish(const Timeline& recorded) {
  std::uint64_t first = UINT64_MAX;
  std::uint64_t last = 0;
  for (const Process& p : recorded.processes) {
    for (const Image& i : p.images) {
      first = std::min(first, i.started_ns);
      for (const SystemCall& c : i.calls) last = std::max(last, c.entered_ns);
    }
  }
  const auto span = last > first ? std::chrono::nanoseconds(last - first) : milliseconds(0);
  return std::chrono::duration_cast<milliseconds>(2 * span) + kAfterLastCall;
}

bool was_moved(const Timeline& recorded) {
  return std::ranges::any_of(recorded.processes, [](const Process& p) {
    return std::ranges::any_of(p.images, [](const Image& i) { return i.boottime_offset_ns != 0; });
  });
}

class Cells {
 public:
  Cells(const WrapOptions& wrap, const Wrapped& wrapped, double seconds, Timeline& timeline)
      : base_(wrap), ends_(!wrapped.timed_out), seconds_(seconds), timeline_(timeline) {
    base_.keeps_output = true;
    base_.progress = nullptr;
    base_.slot_steps = base_.picks_slots = false;
    base_.run_for = ends_ ? limit_for(seconds) : time_to_publish(timeline);
    if (!ends_ && wrap.run_for) base_.run_for = std::min(*base_.run_for, *wrap.run_for);
  }

  FaultsEnding run(std::vector<CellPlan> plans, bool shows_progress);

 private:
  GroupRun record(std::size_t index) const;
  FaultCell cell_of(std::size_t index) const;
  void record_limited(const WrapOptions& options, FaultCell& cell, GroupRun& out) const;
  void take(Timeline part);
  JobsEnding do_these(const std::vector<std::size_t>& indexes, bool shows_progress);

  WrapOptions base_;
  bool ends_;  // by itself, without a fault
  double seconds_;
  Timeline& timeline_;
  std::vector<CellPlan> plans_;
  std::string problem_;
};

FaultCell Cells::cell_of(std::size_t index) const {
  FaultCell cell;
  cell.session = static_cast<std::uint32_t>(index) + 1;
  cell.step = plans_[index].step;
  cell.fault = plans_[index].fault;
  for (const InjectionSpec& spec : plans_[index].injections) {
    cell.injections.push_back(to_injection(spec));
  }
  cell.clock_calls = plans_[index].clock_calls;
  return cell;
}

void Cells::record_limited(const WrapOptions& options, FaultCell& cell, GroupRun& out) const {
  auto fault = run_with_file_size_limit(options);
  if (fault) {
    out.part.faults.push_back(std::move(*fault));
  } else {
    cell.left_out = sys::to_string(fault.error());
  }
}

GroupRun Cells::record(std::size_t index) const {
  const CellPlan& plan = plans_[index];
  FaultCell cell = cell_of(index);
  GroupRun out;
  WrapOptions options = base_;
  options.session = cell.session;
  options.injections = plan.injections;
  options.hide_vdso = plan.clock_calls;
  if (plan.time_namespace) options.boottime_offset = kNamespaceOffset;
  if (plan.file_size_limit) {
    record_limited(options, cell, out);
    out.part.cells.push_back(std::move(cell));
    return out;
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto wrapped = record_wrap(options, out.part);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  if (!wrapped) {
    cell.left_out = sys::to_string(wrapped.error());
    if (wrapped.error().was_started) out.harness_fault = cell.left_out;
  } else {
    out.interrupted = wrapped->interrupted;
    cell.output = wrapped->output;
    if (wrapped->timed_out && ends_) {
      cell.hang = fmt::format(
          "it still ran after {:.1f} s and was ended; without a fault it ended "
          "after {:.1f} s",
          took.count(), seconds_);
    }
  }
  if (plan.time_namespace && cell.left_out.empty() && !was_moved(out.part)) {
    cell.left_out = "this kernel does not move the program to another time namespace";
  }
  if (!out.part.hang.empty()) cell.hang = "it was ended as a runaway: " + out.part.hang;
  cell.injections = std::move(out.part.injections);
  out.part.cells.push_back(std::move(cell));
  return out;
}

void Cells::take(Timeline part) {
  for (Process& p : part.processes) timeline_.processes.push_back(std::move(p));
  for (FaultRun& f : part.faults) timeline_.faults.push_back(std::move(f));
  for (FaultCell& c : part.cells) timeline_.cells.push_back(std::move(c));
  timeline_.stops += part.stops;
  if (timeline_.incomplete.empty()) timeline_.incomplete = std::move(part.incomplete);
}

JobsEnding Cells::do_these(const std::vector<std::size_t>& indexes, bool shows_progress) {
  Jobs jobs;
  jobs.names.reserve(indexes.size());
  for (const std::size_t i : indexes) jobs.names.push_back(plans_[i].name());
  jobs.drive = [&](std::size_t unit, const DriveCalls&) { return record(indexes[unit]); };
  jobs.take = [&](std::size_t unit, GroupRun run) {
    const bool goes_on = run.goes_on();
    if (!run.harness_fault.empty()) problem_ = run.harness_fault;
    if (goes_on) take(std::move(run.part));
    if (shows_progress) {
      tell(
          fmt::format("\r\033[K{} of {} faults, {}\r", unit + 1, indexes.size(), jobs.names[unit]));
    }
    return goes_on;
  };
  return do_all(jobs, kAtOnce, base_.timeout_scale);
}

FaultsEnding Cells::run(std::vector<CellPlan> plans, bool shows_progress) {
  plans_ = std::move(plans);
  std::vector<std::size_t> rest;
  std::vector<Process> shown;  // record every call that can be made to fail
  JobsEnding ending;
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].step != kClockCallsStep) {
      rest.push_back(i);
      continue;
    }
    ending = do_these({i}, shows_progress);
    for (const Process& p : timeline_.processes) {
      if (p.session == i + 1 || p.session == 0) shown.push_back(p);
    }
  }
  if (!shown.empty()) {
    std::erase_if(rest, [&](std::size_t i) {
      if (is_reached(plans_[i], shown)) return false;
      FaultCell& cell = timeline_.cells.emplace_back(cell_of(i));
      cell.left_out = "no such call was seen";
      cell.no_such_call = true;
      return true;
    });
  }
  if (!ending.interrupted && problem_.empty()) ending = do_these(rest, shows_progress);
  if (shows_progress) tell("\r\033[K");
  std::ranges::sort(timeline_.cells, {}, &FaultCell::session);
  FaultsEnding out;
  out.interrupted = ending.interrupted;
  out.harness_fault = problem_.empty() ? ending.harness_fault : problem_;
  if (ending.unreachable) {
    out.unreachable = "the program cannot be observed: a page of it could not be read in time";
  }
  return out;
}

std::vector<CellPlan> cells_named(const std::string& glob, bool names_memory) {
  auto plans = fault_cells(names_memory);
  std::erase_if(plans, [&](const CellPlan& p) { return !glob_matches(glob, p.name()); });
  return plans;
}

}  // namespace

bool names_fault(const std::string& glob) {
  return !cells_named(glob, /*names_memory=*/true).empty();
}

FaultsEnding run_faults(const JudgeOptions& options, const WrapOptions& wrap,
                        const Wrapped& wrapped, double seconds, Timeline& timeline) {
  FaultsEnding ending;
  ending.interrupted = wrapped.interrupted;
  if (wrapped.interrupted || timeline.processes.empty()) return ending;
  const Process& root = timeline.processes.front();
  if (root.killed_by && !root.ended_by_us) {
    timeline.notes.push_back("the program " + ending_of(root) +
                             " without any fault: the fault matrix was not run");
    return ending;
  }
  const auto names = std::ranges::find(timeline.host, sys::kHostAnonVmaName, &sys::HostFact::name);
  auto plans = cells_named(*options.faults, names != timeline.host.end() && names->available);
  const bool shows_progress = isatty(STDERR_FILENO) != 0 && !options.console.quiet;
  return Cells(wrap, wrapped, seconds, timeline).run(std::move(plans), shows_progress);
}

}  // namespace ctxconf::conformance
