// Levels static and snapshot of thread context: the ELF files of one image that concern the slot
// variable, and what each thread's slot points to while it cannot run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/evidence/state_judge.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/instrument.h"
#include "conformance/observe/snapshot.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"
#include "sys/thread_stop.h"
#include "sys/tls_variable.h"

namespace ctxconf::conformance {

// Files that were read, shared by all images of an observation.
class ModuleCache {
 public:
  sys::ElfCache files;
  // Nothing for a file without the variable, unless it is the executable.
  std::optional<ModuleFacts> facts_of(const sys::Module& module);
  // As Image::libc.
  std::string libc_of(const sys::Modules& modules);

 private:
  sys::Result<std::string> library_in(const sys::ElfImage& image);

  std::map<sys::FileIdentity, std::string> libraries_;
  std::map<std::pair<sys::FileIdentity, bool>, std::optional<ModuleFacts>> facts_;
};

struct ThreadLimits {
  std::size_t samples = 4096;                     // distinct ones of one image
  std::uint64_t bytes = std::uint64_t{4} << 20U;  // of records, stored
  std::size_t modules = 256;                      // files with the variable
  // Later samples that break a requirement in a new way are kept anyway: this many, with a quarter
  // of the memory of the others. 0: none is judged.
  std::size_t broken = 64;
  std::size_t judged = 100'000;                            // later ones, at most
  std::uint64_t judged_bytes = std::uint64_t{256} << 20U;  // ... of all of them
  std::size_t judged_together = 64;
};

class ThreadRecorder : public Instrument {
 public:
  // `context`: of the same image; must outlive this. Samples beyond the limits are judged together
  // with its contents before they are dropped.
  ThreadRecorder(pid_t pid, ModuleCache& cache, const SnapshotRecorder& context,
                 ThreadLimits limits = {});

  // Reads the modules again when the mappings of files have changed.
  // Reads the GOT each time, so that a stopped thread does not wait for that.
  void look_at_modules();
  // The first thread of a forked process, which is stopped and has not run: its records are those
  // of its parent. Takes over what is known of the files of `parent` (null: it has ended).
  void look_at_birth(const ThreadRecorder* parent, sys::RemoteAddr thread_pointer);
  bool knows_modules() const { return mappings_hash_ != 0; }
  const SnapshotRecorder& context() const { return *context_; }
  // Whether there is a variable to examine.
  bool wants_threads() const { return !definitions_.empty() || !hidden_.empty(); }

  // Looks at a stopped tracee: one view for each definition of the variable.
  std::vector<ThreadView> sample(pid_t tid, sys::RemoteAddr thread_pointer);
  // The same for a thread that sleeps in the kernel all the time; nothing: it did not.
  std::optional<std::vector<ThreadView>> sample_if_asleep(pid_t tid,
                                                          sys::RemoteAddr thread_pointer);
  struct Slot {
    sys::RemoteAddr at;
    sys::RemoteAddr value;
  };
  // The variable of a thread at its last look, if it was not null.
  std::optional<Slot> slot_of(pid_t tid) const;
  // The address of the variable of a stopped thread; nothing: it has none yet.
  std::optional<sys::RemoteAddr> variable_of(pid_t tid, sys::RemoteAddr thread_pointer) const;
  // Call this at its exit event; this is not a sample of a running thread.
  void sample_at_exit(pid_t tid, sys::RemoteAddr thread_pointer);
  // A thread could not be examined; keeps the first reason.
  void unread(const std::string& why);

  void add_to(Image& image, bool saw_context) override;
  std::uint64_t stored_bytes() const override { return bytes_ + kept_beyond_bytes_; }

 private:
  struct Slept {
    sys::ThreadActivity activity;   // at the last look
    std::vector<ThreadView> views;  // what the last look showed
  };
  void find_definitions();
  void find_locations();
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
  std::vector<sys::Result<sys::TlsLocation>> locations_;         // of each definition
  std::vector<sys::TlsDefinition> hidden_;                       // in no .dynsym
  std::vector<sys::Result<sys::TlsLocation>> hidden_locations_;  // of each of these
  std::vector<ThreadSample> hidden_seen_;             // the first sample of each one in use
  std::map<std::size_t, std::uint32_t> facts_index_;  // module in modules_: index into facts_
  std::vector<ModuleFacts> facts_;
  std::string libc_;
  bool little_endian_ = true;
  std::vector<ThreadSample> samples_;
  std::vector<ThreadSample> exits_;
  std::map<std::pair<pid_t, std::uint32_t>, std::size_t> last_;  // by thread and module
  std::map<pid_t, Slept> slept_;
  std::vector<std::uint32_t> defined_together_;
  std::uint64_t bytes_ = 0;
  // These are about samples beyond the limits.
  struct Beyond {
    std::uint64_t slot = 0;
    std::uint64_t value = 0;
    std::uint64_t hash = 0;  // of the record
    std::uint64_t times = 0;
  };
  std::map<std::pair<pid_t, std::uint32_t>, Beyond> last_beyond_;  // by thread and module
  std::vector<ThreadSample> beyond_;                               // to be judged
  std::vector<ThreadSample> kept_beyond_;
  std::uint64_t kept_beyond_bytes_ = 0;
  ShownAsBroken broken_;
  std::vector<std::string> requirements_dropped_;
  JudgedSoFar judged_;
  std::uint64_t unjudged_ = 0;
  std::uint64_t dropped_ = 0;
  bool looked_ = false;
  std::uint64_t unread_times_ = 0;
  std::string unread_;
};

}  // namespace ctxconf::conformance
