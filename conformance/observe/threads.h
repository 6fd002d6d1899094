// Levels static and snapshot of thread context: the ELF files of one image that have to do
// with the slot variable, and what each thread's slot points at while it cannot run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/observe/snapshot.h"
#include "conformance/rules/state_rules.h"
#include "conformance/timeline.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"
#include "sys/thread_stop.h"
#include "sys/tls_variable.h"

namespace ctxconf::conformance {

// Files that were read, shared by all images of one observation.
class ModuleCache {
 public:
  sys::ElfCache files;
  // Nothing for a file without the variable, unless it is the executable.
  std::optional<ModuleFacts> facts_of(const sys::Module& module);

 private:
  std::map<std::pair<sys::FileIdentity, bool>, std::optional<ModuleFacts>> facts_;
};

struct ThreadLimits {
  std::size_t samples = 4096;                     // distinct ones of one image
  std::uint64_t bytes = std::uint64_t{4} << 20U;  // of records, stored
  std::size_t modules = 256;                      // files with the variable
  // Later samples that break a row, in a way that others do not, are kept all the same: so many,
  // with a quarter of the memory of the others. 0: none is judged.
  std::size_t broken = 64;
  std::size_t judged = 100'000;                            // later ones, at most
  std::uint64_t judged_bytes = std::uint64_t{256} << 20U;  // ... of all of them
  std::size_t judged_together = 64;
};

class ThreadRecorder {
 public:
  // `context`: of the same image, as long as it lives. Samples beyond the limits are judged beside
  // what it holds, before they go.
  ThreadRecorder(pid_t pid, ModuleCache& cache, const SnapshotRecorder& context,
                 ThreadLimits limits = {});

  // Reads the modules again when the mappings of files have changed.
  // The GOT each time, so that a stopped thread need not wait for it.
  void look_at_modules();
  // The first thread of a forked process, which is stopped and has not run: its records are
  // those of its parent. What was found of the files of `parent` (null: it has ended) is
  // taken over.
  void look_at_birth(const ThreadRecorder* parent, sys::RemoteAddr thread_pointer);
  bool knows_modules() const { return mappings_hash_ != 0; }
  // Is there a variable to look at?
  bool wants_threads() const { return !definitions_.empty() || !hidden_.empty(); }

  // Looks at a thread that its tracer has stopped: a view for each definition of the variable.
  std::vector<ThreadView> sample(pid_t tid, sys::RemoteAddr thread_pointer);
  // The same for a thread that sleeps in the kernel all the while; nothing: it did not.
  std::optional<std::vector<ThreadView>> sample_if_asleep(pid_t tid,
                                                          sys::RemoteAddr thread_pointer);
  struct Slot {
    sys::RemoteAddr at;
    sys::RemoteAddr value;
  };
  // The variable of a thread when it was looked at last, where it was not null.
  std::optional<Slot> slot_of(pid_t tid) const;
  // The address of the variable of a stopped thread; nothing: it has none yet.
  std::optional<sys::RemoteAddr> variable_of(pid_t tid, sys::RemoteAddr thread_pointer) const;
  // At its exit event; no sample of a thread that runs.
  void sample_at_exit(pid_t tid, sys::RemoteAddr thread_pointer);
  // A thread could not be looked at; the first reason is kept.
  void unread(const std::string& why);

  void add_to(Image& image) &&;
  std::uint64_t stored_bytes() const { return bytes_ + kept_beyond_bytes_; }

 private:
  struct Slept {
    sys::ThreadActivity activity;   // when it was looked at last
    std::vector<ThreadView> views;  // what that look showed
  };
  void find_definitions();
  void find_places();
  std::vector<ThreadSample> look(pid_t tid, sys::RemoteAddr thread_pointer);
  void look_at_hidden(pid_t tid, sys::RemoteAddr thread_pointer, const sys::MemoryReader& memory);
  std::vector<ThreadView> keep(std::vector<ThreadSample> samples);
  void find_mapping(ThreadSample& sample) const;
  void keep_beyond(ThreadSample sample);
  void judge_beyond(const Image& context);
  void set_modules(sys::Modules modules);

  pid_t pid_;
  ModuleCache* cache_;
  const SnapshotRecorder* context_;
  ThreadLimits limits_;
  std::uint64_t mappings_hash_ = 0;
  sys::Modules modules_;
  std::vector<sys::TlsDefinition> definitions_;
  std::vector<sys::Result<sys::TlsPlace>> places_;         // of each definition
  std::vector<sys::TlsDefinition> hidden_;                 // that no .dynsym has
  std::vector<sys::Result<sys::TlsPlace>> hidden_places_;  // of each of these
  std::vector<ThreadSample> hidden_seen_;                  // the first sight of each in use
  std::map<std::size_t, std::uint32_t> facts_index_;       // module of modules_: index into facts_
  std::vector<ModuleFacts> facts_;
  bool little_endian_ = true;
  std::vector<ThreadSample> samples_;
  std::vector<ThreadSample> exits_;
  std::map<std::pair<pid_t, std::uint32_t>, std::size_t> last_;  // of a thread and module
  std::map<pid_t, Slept> slept_;
  std::vector<std::uint32_t> defined_together_;
  std::uint64_t bytes_ = 0;
  // Of samples beyond the limits.
  struct Beyond {
    std::uint64_t slot = 0;
    std::uint64_t value = 0;
    std::uint64_t hash = 0;  // of the record
    std::uint64_t times = 0;
  };
  std::map<std::pair<pid_t, std::uint32_t>, Beyond> last_beyond_;  // of a thread and module
  std::vector<ThreadSample> beyond_;                               // to be judged
  std::vector<ThreadSample> kept_beyond_;
  std::uint64_t kept_beyond_bytes_ = 0;
  BrokenRows broken_;
  std::vector<std::string> rows_dropped_;
  std::uint64_t judged_ = 0;
  std::uint64_t judged_bytes_ = 0;
  bool judges_no_more_ = false;
  std::uint64_t unjudged_ = 0;
  std::uint64_t dropped_ = 0;
  bool looked_ = false;
  std::uint64_t unread_times_ = 0;
  std::string unread_;
};

}  // namespace ctxconf::conformance
