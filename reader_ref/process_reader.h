// A profiler's view of one process: its context and the context of each of its threads, read
// repeatedly. Keeps the decoded context while its header stays the same, and the loaded files while
// the mappings stay the same. An unchanged process costs one remote read, and one stop per thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reader_ref/process_context.h"
#include "reader_ref/thread_context.h"
#include "reader_ref/thread_sample.h"
#include "sys/process_handle.h"
#include "sys/result.h"
#include "sys/threads_stopper.h"
#include "sys/tls_variable.h"

namespace ctxconf::reader {

struct ReaderOptions {
  bool threads = true;
  Attributes attributes = Attributes::kRead;
  Patience patience;
  Sleep sleep;  // empty: really sleeps
  // How often the mappings are listed again, and names of threads and the executable are read
  // again. 0: each time. A change of the known context is noticed each time in any case
  // (docs/reader.md).
  std::chrono::milliseconds relist{0};
  // How long to wait for a thread to stop; others are read meanwhile. All threads of a process
  // together have the second limit, in wall time; the remaining threads are not read.
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

// What the readers of many processes share. For one thread.
struct ReaderTools {
  sys::ElfCache files;
  sys::ThreadsStopper stopper;
};

class ProcessReader {
 public:
  // `tools` must outlive this.
  ProcessReader(pid_t pid, ReaderOptions options, ReaderTools& tools);

  // ESRCH: no such process, or it ended meanwhile. EPERM, EACCES: it may not be read. EAGAIN: its
  // context or its program was replaced while it was read, and once more. Stops each thread for the
  // moment in which its record is copied.
  //
  // If the id belongs to another process than at the last call, that one is read, and nothing of
  // the former is used: start_ticks differs.
  sys::Result<ProcessReport> read() { return read({.threads = options_.threads, .only = {}}); }
  // These read no thread, or only one, which is left out if there is no such thread.
  sys::Result<ProcessReport> read_context() { return read({.threads = false, .only = {}}); }
  sys::Result<ProcessReport> read_thread(pid_t tid) { return read({.threads = true, .only = tid}); }

  // Reads again and again, as long as `goes_on` says so of each result. In between the tracing
  // thread goes on, and nothing is handed over to it, which read() does each time. So `goes_on` and
  // options.sleep may run in another thread: see ThreadsStopper::visit_while(). Use neither this
  // reader nor `tools` there.
  using GoesOn = std::function<bool(sys::Result<ProcessReport>)>;
  void read_while(const GoesOn& goes_on);

  // The next read lists the mappings.
  void relist() { listing_.reset(); }
  bool knows_context() const { return known_.context != nullptr; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Wanted {
    bool threads = true;
    std::optional<pid_t> only;
  };
  // The state of one read, before and after the samples of the threads.
  struct Reading {
    explicit Reading(const Wanted& what) : wanted(what) {}

    Wanted wanted;
    int tries = 0;
    bool needs_samples = false;
    ProcessReport report;
    std::vector<pid_t> tids;
  };
  struct Listing {
    std::vector<sys::MapEntry> candidates;
    // Changes when a file is mapped or unmapped; nothing if it was not needed.
    std::optional<std::uint64_t> files;
    Clock::time_point at;
  };
  struct Loaded {
    std::uint64_t files = 0;  // as in Listing, when the variable was looked for
    std::uint64_t context_timestamp = 0;
    ThreadVariable variable;
  };

  sys::Result<> open_process();
  sys::Result<ProcessReport> read(const Wanted& wanted);
  std::optional<sys::Result<ProcessReport>> go_on(Reading& reading, Samples samples);
  sys::Result<> begin(Reading& reading);
  SamplePass pass_of(const Reading& reading) const;
  sys::Result<bool> still_holds(const ProcessReport& report);
  sys::Result<bool> is_listed(const sys::MapEntry& mapping);
  sys::Result<> sample_context();
  sys::Result<ContextSample> sample_candidates();
  sys::Result<> list_mappings();
  bool wants_variable() const;
  sys::Result<> find_variable();
  void prepare_threads(Reading& reading);
  void add_threads(Reading& reading, Samples samples);
  void refresh_names(ProcessReport& report, const std::vector<std::optional<RecordCopy>>& records);
  const std::string& name_of(pid_t tid);

  pid_t pid_;
  ReaderOptions options_;
  ReaderTools* tools_;
  sys::ProcessMemory memory_;
  std::optional<sys::ProcessHandle> process_;
  std::optional<std::string> executable_;
  std::optional<Listing> listing_;
  bool is_fresh_ = false;  // something was listed in this read()
  ContextSample known_;    // the last one
  std::optional<Loaded> loaded_;
  std::map<pid_t, std::string> names_;
};

}  // namespace ctxconf::reader
