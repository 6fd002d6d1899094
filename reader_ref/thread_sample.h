// Samples of threads: stops each, finds its slot, copies the record, resumes it.
#pragma once

#include <sys/types.h>

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

// One sample of each thread, by its index in `tids`. Each is made within one stop of the thread,
// which runs again before the others are done. With several definitions, the first with a valid
// record counts. The errors are those of ThreadsStopper (ESRCH: the thread has ended) and of the
// process.
std::vector<sys::Result<ThreadSample>> sample_threads(
    sys::ThreadsStopper& stopper, std::span<const pid_t> tids, const ThreadVariable& variable,
    const sys::MemoryReader& memory, Attributes attributes, const sys::StopLimits& limits);

}  // namespace ctxconf::reader
