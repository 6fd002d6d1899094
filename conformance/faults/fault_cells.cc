#include "conformance/faults/fault_cells.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "conformance/evidence/session.h"

namespace ctxconf::conformance {
namespace {

// A call, and the errnos that kernels, security modules and seccomp filters give for it.
struct Step {
  std::string_view name;
  std::string_view call;  // as in a spec
  std::vector<std::string_view> errors;
  const char* when = "";
  bool is_replaced = false;  // named anonymous memory may replace the memfd
};

const std::vector<Step>& steps() {
  static const std::vector<Step> kSteps = {
      {.name = "memfd_create",
       .call = "memfd_create",
       .errors = {"EPERM", "EACCES", "ENOSYS", "EINVAL", "EMFILE", "ENFILE", "ENOMEM"},
       .is_replaced = true},
      {.name = "memfd_create(MFD_NOEXEC_SEAL)",
       .call = "memfd_create(MFD_NOEXEC_SEAL)",
       .errors = {"EINVAL"},
       .is_replaced = true},
      {.name = "ftruncate",
       .call = "ftruncate",
       .errors = {"EPERM", "EINVAL", "ENOMEM", "EBADF", "ENOSPC"},
       .is_replaced = true},
      {.name = "mmap",
       .call = "mmap",
       .errors = {"EPERM", "EACCES", "EINVAL", "ENOMEM", "EBADF"},
       .is_replaced = true},
      {.name = "mmap(MAP_ANONYMOUS)", .call = "mmap(MAP_ANONYMOUS)", .errors = {"ENOMEM"}},
      {.name = "madvise", .call = "madvise", .errors = {"EPERM", "ENOSYS", "EINVAL", "ENOMEM"}},
      {.name = "clock_gettime", .call = "clock_gettime", .errors = {"EPERM", "ENOSYS", "EINVAL"}},
      {.name = "prctl",
       .call = "prctl(PR_SET_VMA)",
       .errors = {"EPERM", "EACCES", "ENOSYS", "EINVAL", "ENOMEM", "EBADF"}},
      {.name = "update:mremap", .call = "mremap", .errors = {"EPERM", "EINVAL", "ENOMEM"}},
      {.name = "update:clock_gettime",
       .call = "clock_gettime",
       .errors = {"EPERM", "EINVAL"},
       .when = ":when=update"},
      {.name = "update:prctl",
       .call = "prctl(PR_SET_VMA)",
       .errors = {"EPERM", "EINVAL", "ENOMEM", "EBADF"},
       .when = ":when=update"},
  };
  return kSteps;
}

// Several faults at once, and results that are not failures.
struct Combination {
  std::string_view step;
  std::string_view fault;
  std::vector<std::string_view> specs;
  bool needs_names = false;  // without names, kSeemsNamed would make it another cell
};

const std::vector<Combination>& combinations() {
  static const std::vector<Combination> kCombinations = {
      {.step = "memfd_create+mmap(MAP_ANONYMOUS)",
       .fault = "ENOMEM",
       .specs = {"memfd_create:error=ENOMEM", "mmap(MAP_ANONYMOUS):error=ENOMEM"}},
      {.step = "memfd_create+prctl",
       .fault = "EINVAL",
       .specs = {"memfd_create:error=EINVAL", "prctl(PR_SET_VMA):error=EINVAL"}},
      {.step = "memfd_create+madvise+prctl",
       .fault = "EPERM",
       .specs = {"memfd_create:error=EPERM", "madvise:error=EPERM",
                 "prctl(PR_SET_VMA):error=EPERM"}},
      {.step = "memory-seems-named",
       .fault = "",
       .specs = {"memfd_create:error=EPERM", kSeemsNamed},
       .needs_names = true},
      {.step = "clock", .fault = "frozen", .specs = {"clock_gettime:value=frozen"}},
      {.step = "clock", .fault = "back", .specs = {"clock_gettime:value=back"}},
      {.step = "clock", .fault = "zero", .specs = {"clock_gettime:value=0:when=update"}},
      {.step = "clock", .fault = "coarse", .specs = {"clock_gettime:value=coarse"}},
  };
  return kCombinations;
}

// Every spec in the table is valid: a test parses them all.
void add(CellPlan& plan, const std::string& spec) {
  if (auto parsed = parse_injection(spec)) {
    plan.clock_calls = plan.clock_calls || parsed->call == "clock_gettime";
    plan.injections.push_back(std::move(*parsed));
  }
}

}  // namespace

std::vector<CellPlan> fault_cells(bool names_memory) {
  std::vector<CellPlan> out;
  CellPlan& clock = out.emplace_back();
  clock.step = kClockCallsStep;
  clock.clock_calls = true;
  for (const Step& step : steps()) {
    for (const auto error : step.errors) {
      CellPlan& plan = out.emplace_back();
      plan.step = step.name;
      plan.fault = error;
      add(plan, std::string(step.call) + ":error=" + std::string(error) + step.when);
      if (step.is_replaced && !names_memory) add(plan, kSeemsNamed);
    }
  }
  for (const Combination& c : combinations()) {
    if (c.needs_names && !names_memory) continue;
    CellPlan& plan = out.emplace_back();
    plan.step = c.step;
    plan.fault = c.fault;
    for (const auto spec : c.specs) add(plan, std::string(spec));
  }
  CellPlan& limit = out.emplace_back();
  limit.step = kFileSizeLimit;
  limit.file_size_limit = true;
  CellPlan& time = out.emplace_back();
  time.step = kTimeNamespaceStep;
  time.time_namespace = true;
  return out;
}

bool is_reached(const CellPlan& plan, const std::vector<Process>& recorded) {
  // Anonymous memory is recorded only if it has to fail.
  if (plan.injections.empty() || plan.injections.front().anonymous) return true;
  // Only clock readings next to other calls are recorded.
  if (plan.injections.front().call == "clock_gettime") return true;
  const std::vector<InjectionSpec> first = {plan.injections.front()};
  for (const Process& process : recorded) {
    for (const Image& image : process.images) {
      struct Event {
        std::uint64_t order;
        const SystemCall* call;
        bool leaves;
      };
      std::vector<Event> events;
      for (const SystemCall& call : image.calls) {
        events.push_back({call.entered_order, &call, false});
        if (call.result) events.push_back({call.left_order, &call, true});
      }
      std::ranges::sort(events, {}, &Event::order);
      Injector injector(first);
      for (const Event& e : events) {
        if (e.leaves) {
          injector.left(e.call->tid, *e.call->result, e.call->clock_ns);
        } else if (injector.entered(*e.call)) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace ctxconf::conformance
