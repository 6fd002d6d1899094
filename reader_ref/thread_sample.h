// One sample of one thread: stop it, find its slot, copy the record, let it go.
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

// The loaded files of a process and where the variable is defined in them.
struct ThreadVariable {
  pid_t pid = 0;
  sys::Modules modules;
  std::vector<sys::TlsDefinition> definitions;
  std::vector<sys::Result<sys::TlsPlace>> places;  // of each definition
};
sys::Result<ThreadVariable> find_thread_variable(pid_t pid, sys::ElfCache& files);
// Looks again where the variable is, as far as that is the same for all threads: before threads
// are sampled, as the loader may have been at work.
void find_places(ThreadVariable& variable, const sys::MemoryReader& memory);

struct ThreadSample {
  std::optional<RecordCopy> record;
  std::string why;  // without a record: the reason
};

// Everything is read within one stop; the thread runs again when this returns. Of several
// definitions the first with a valid record counts. The errors are those of ThreadStop::stop
// (ESRCH: the thread has ended) and of the process.
sys::Result<ThreadSample> sample_thread(pid_t tid, const ThreadVariable& variable,
                                        const sys::MemoryReader& memory, Attributes attributes,
                                        std::chrono::milliseconds deadline);

}  // namespace ctxconf::reader
