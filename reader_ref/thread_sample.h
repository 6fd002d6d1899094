// Samples of threads: stops each, finds its slot, copies the record, resumes it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reader_ref/thread_context.h"
#include "sys/memory_reader.h"
#include "sys/result.h"
#include "sys/threads_stopper.h"
#include "sys/tls_variable.h"

namespace ctxconf::reader {

// The loaded files of a process and where they define the variable.
struct ThreadVariable {
  pid_t pid = 0;
  sys::Modules modules;
  std::vector<sys::TlsDefinition> definitions;
  std::vector<sys::Result<sys::TlsLocation>> locations;  // of each definition
};
// `maps` is the text of /proc/PID/maps.
sys::Result<ThreadVariable> find_thread_variable(pid_t pid, std::string_view maps,
                                                 sys::ElfCache& files);
// Updates the facts about the variable that are the same for all threads. Call this before sampling
// threads, because the loader may have been active.
void find_locations(ThreadVariable& variable, const sys::MemoryReader& memory);

struct ThreadSample {
  std::optional<RecordCopy> record;
  std::string why;  // without a record: the reason
};

// One pass over threads of a process. All that it points to must live until the pass is over.
struct SamplePass {
  const ThreadVariable* variable = nullptr;
  const sys::MemoryReader* memory = nullptr;
  Attributes attributes = Attributes::kRead;
  std::span<const pid_t> tids;
  sys::StopLimits limits;
};

// One sample of each thread, by its index in `tids`. Each is made within one stop of the thread,
// which runs again before the others are done. With several definitions, the first with a valid
// record counts. The errors are those of ThreadsStopper (ESRCH: the thread has ended) and of the
// process.
using Samples = std::vector<sys::Result<ThreadSample>>;
Samples sample_threads(sys::ThreadsStopper& stopper, const SamplePass& pass);

// Gets the samples of the pass before, at first none, and gives the next pass; nothing ends it.
using NextSamples = std::function<std::optional<SamplePass>(Samples last)>;

// The same for one pass after the other, without a hand-over to the tracing thread for each: see
// ThreadsStopper::visit_while() about where `next` runs.
void sample_while(sys::ThreadsStopper& stopper, const NextSamples& next);

}  // namespace ctxconf::reader
