// A profiler's view of one process: its context and the context of each of its threads, read
// repeatedly. Caches the decoded context while its header stays the same, and the loaded files
// while the mappings stay the same.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reader_ref/process_context.h"
#include "reader_ref/thread_context.h"
#include "reader_ref/thread_sample.h"
#include "sys/result.h"
#include "sys/tls_variable.h"

namespace ctxconf::reader {

struct ReaderOptions {
  bool threads = true;
  Attributes attributes = Attributes::kRead;
  Patience patience;
  Sleep sleep;  // empty: really sleeps
  // A thread that does not stop costs this much. All threads of a process together have the second
  // limit, in wall time; the remaining threads are not read.
  std::chrono::milliseconds stop_deadline{500};
  std::chrono::milliseconds stop_budget{10'000};
};

// The result for one thread; `why` is text for people.
struct ThreadReport {
  pid_t tid = 0;
  std::string name;  // hostile
  std::optional<ThreadContext> context;
  std::string why;  // if there is no context: the reason
};

// A definition of the variable and how it is accessed.
struct VariableReport {
  std::string module;               // hostile
  std::vector<std::string> models;  // "TLSDESC"; each once
};

struct ProcessReport {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;
  std::string executable;                         // hostile
  std::shared_ptr<const ProcessContext> context;  // null: no usable context
  bool busy = false;               // a context exists but was being changed all the time
  std::vector<std::string> notes;  // hostile
  bool threads_read = false;
  std::string threads_why;  // if threads were not read: the reason; empty if nobody requested them
  std::vector<VariableReport> variables;
  std::vector<ThreadReport> threads;  // by thread id; without those that vanished
};

class ProcessReader {
 public:
  // `files` is shared by the readers of many processes and must outlive them.
  ProcessReader(pid_t pid, ReaderOptions options, sys::ElfCache& files);

  // ESRCH: no such process, or it ended meanwhile. EPERM, EACCES: it may not be read. EAGAIN: its
  // context or its program was replaced while it was read, and once more. Stops each thread for the
  // moment in which its record is copied.
  sys::Result<ProcessReport> read();

 private:
  struct Loaded {
    std::uint64_t mappings = 0;  // the mappings in which it was found
    std::uint64_t context_timestamp = 0;
    ThreadVariable variable;
  };
  struct Sampled {
    ThreadReport thread;
    std::optional<RecordCopy> record;  // a valid one
  };

  using Clock = std::chrono::steady_clock;

  sys::Result<ProcessReport> read_once();
  sys::Result<bool> still_holds(const ProcessReport& report);
  sys::Result<ContextSample> sample_context();
  sys::Result<> find_variable();
  void read_threads(ProcessReport& report);
  void refresh_names(ProcessReport& report, std::vector<Sampled>& samples);
  std::optional<Sampled> sample(pid_t tid, Clock::time_point end);

  pid_t pid_;
  ReaderOptions options_;
  sys::ElfCache* files_;
  sys::ProcessMemory memory_;
  std::uint64_t start_ticks_ = 0;
  std::shared_ptr<const ProcessContext> known_;
  std::optional<Loaded> loaded_;
};

}  // namespace ctxconf::reader
