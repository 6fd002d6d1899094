// One sample of one thread: stops it, finds its slot, copies the record, resumes it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "reader_ref/thread_context.h"
#include "sys/memory_reader.h"
#include "sys/result.h"
#include "sys/tls_variable.h"

namespace ctxconf::reader {

// The loaded files of a process and where they define the variable.
struct ThreadVariable {
  pid_t pid = 0;
  sys::Modules modules;
  std::vector<sys::TlsDefinition> definitions;
  std::vector<sys::Result<sys::TlsLocation>> locations;  // of each definition
};
sys::Result<ThreadVariable> find_thread_variable(pid_t pid, sys::ElfCache& files);
// Updates the facts about the variable that are the same for all threads. Call this before sampling
// threads, because the loader may have been active.
void find_locations(ThreadVariable& variable, const sys::MemoryReader& memory);

struct ThreadSample {
  std::optional<RecordCopy> record;
  std::string why;  // without a record: the reason
};

// Reads everything within one stop; the thread runs again when this returns. With several
// definitions, the first with a valid record counts. The errors are those of ThreadStop::stop
// (ESRCH: the thread has ended) and of the process.
sys::Result<ThreadSample> sample_thread(pid_t tid, const ThreadVariable& variable,
                                        const sys::MemoryReader& memory, Attributes attributes,
                                        std::chrono::milliseconds deadline);

}  // namespace ctxconf::reader
