#include "reader_ref/thread_sample.h"

#include <utility>

#include "abi/thread_record.h"

namespace ctxconf::reader {

using sys::Result;

namespace {

// Of a thread that stands still.
Result<ThreadSample> sample_at(sys::RemoteAddr tp, const ThreadVariable& variable,
                               const sys::MemoryReader& memory, Attributes attributes) {
  ThreadSample sample;
  if (tp.raw() == 0) {
    sample.why = "the thread has no thread pointer";
    return sample;
  }
  for (const auto& location : variable.locations) {
    const auto slot = sys::tls_address(location, tp, memory);
    if (!slot) {
      if (sample.why.empty()) sample.why = sys::to_string(slot.error());
      continue;
    }
    RecordCopy copy;  // kNoBlock
    if (*slot) {
      CTX_ASSIGN_OR_RETURN(copied, copy_record(memory, **slot, attributes));
      copy = std::move(copied);
    }
    const bool valid = copy.state == RecordState::kValid;
    // If none is valid, the first that could be followed says why.
    if (valid || !sample.record || sample.record->state == RecordState::kNoBlock) {
      sample.record = std::move(copy);
    }
    if (valid) break;
  }
  return sample;
}

}  // namespace

Result<ThreadVariable> find_thread_variable(pid_t pid, std::string_view maps,
                                            sys::ElfCache& files) {
  CTX_ASSIGN_OR_RETURN(modules, sys::modules_of(pid, maps, files));
  CTX_ASSIGN_OR_RETURN(definitions, sys::find_tls_variable(modules, abi::kThreadSlotSymbol));
  ThreadVariable variable{pid, std::move(modules), std::move(definitions), {}};
  find_locations(variable, sys::ProcessMemory(pid));
  return variable;
}

void find_locations(ThreadVariable& variable, const sys::MemoryReader& memory) {
  variable.locations.clear();
  for (const sys::TlsDefinition& definition : variable.definitions) {
    variable.locations.push_back(sys::tls_location(variable.modules, definition, memory));
  }
}

std::vector<Result<ThreadSample>> sample_threads(
    sys::ThreadsStopper& stopper, std::span<const pid_t> tids, const ThreadVariable& variable,
    const sys::MemoryReader& memory, Attributes attributes, const sys::StopLimits& limits) {
  std::vector<Result<ThreadSample>> samples(tids.size());
  stopper.visit_each(
      variable.pid, tids, limits, [&](std::size_t i, const Result<sys::RemoteAddr>& tp) {
        samples[i] =
            tp ? sample_at(*tp, variable, memory, attributes) : std::unexpected(tp.error());
      });
  return samples;
}

}  // namespace ctxconf::reader
