#include "reader_ref/thread_sample.h"

#include <utility>

#include "abi/thread_record.h"

namespace ctxconf::reader {

using sys::Result;

namespace {

// The thread must stand still.
Result<ThreadSample> sample_at(sys::RemoteAddr tp, const SamplePass& pass) {
  ThreadSample sample;
  if (tp.raw() == 0) {
    sample.why = "the thread has no thread pointer";
    return sample;
  }
  for (const auto& location : pass.variable->locations) {
    const auto slot = sys::tls_address(location, tp, *pass.memory);
    if (!slot) {
      if (sample.why.empty()) sample.why = sys::to_string(slot.error());
      continue;
    }
    RecordCopy copy;  // kNoBlock
    if (*slot) {
      CTX_ASSIGN_OR_RETURN(copied, copy_record(*pass.memory, **slot, pass.attributes));
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

Result<ThreadSample> sample_of(const Result<sys::RemoteAddr>& tp, const SamplePass& pass) {
  if (!tp) return std::unexpected(tp.error());
  return sample_at(*tp, pass);
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

Samples sample_threads(sys::ThreadsStopper& stopper, const SamplePass& pass) {
  Samples samples(pass.tids.size());
  stopper.visit_each(
      pass.variable->pid, pass.tids, pass.limits,
      [&](std::size_t i, const Result<sys::RemoteAddr>& tp) { samples[i] = sample_of(tp, pass); });
  return samples;
}

void sample_while(sys::ThreadsStopper& stopper, const NextSamples& next) {
  SamplePass pass;
  Samples samples;
  const auto next_pass = [&]() -> std::optional<sys::StopPass> {
    const auto given = next(std::exchange(samples, {}));
    if (!given) return std::nullopt;
    pass = *given;
    samples.resize(pass.tids.size());
    return sys::StopPass{pass.variable->pid, pass.tids, pass.limits};
  };
  stopper.visit_while(next_pass, [&](std::size_t i, const Result<sys::RemoteAddr>& tp) {
    samples[i] = sample_of(tp, pass);
  });
}

}  // namespace ctxconf::reader
