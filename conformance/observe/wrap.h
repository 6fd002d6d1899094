// Starts a program and records it with everything that it forks and execs: the system calls of its
// publications, the stores to their headers, and a snapshot before each exec, at each end, before
// and after each naming call, and every 100 ms in between.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/faults/injection.h"
#include "conformance/observe/snapshot.h"
#include "conformance/observe/step_limits.h"
#include "sys/result.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

struct KnownFiles;

// Where to pause a program: after an event of an image in another run of it.
struct PausePoint {
  std::string executable;
  std::uint32_t image = 0;  // as in ImageKey
  std::uint64_t order = 0;  // in the image's order of events
};

// Told of the calls with which a program reads another one (sys::reader_filter()), and of its opens
// and signals. The thread stands still meanwhile.
class CallObserver {
 public:
  CallObserver() = default;
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;
  virtual ~CallObserver() = default;
  virtual bool entered(const sys::SyscallEntry& e) = 0;  // true: left() follows, unless it ends
  virtual void left(const sys::SyscallExit& e) = 0;
};

struct WrapOptions {
  std::vector<std::string> argv;
  std::string trampoline;  // path of ctxconf-trampoline
  // How long the program may run. Nothing: until it ends, or 10 s after the last publication, but
  // at most 120 s in total, or 30 s if nothing is published.
  std::optional<std::chrono::milliseconds> run_for;
  double timeout_scale = 1;
  bool no_filter = false;      // records no system calls, and does not slow them down
  bool stores = false;         // level stores: needs kHostWatchpoints and the filter
  bool watch_lifetime = true;  // --watch lifetime; false: publication
  bool steps = false;          // level steps: with `stores`
  bool steps_at_once = true;   // false: from Recording::step_changes() on
  StepLimits step_limits;
  std::string no_calls = "this host has no system call filter for tracers";  // why, with no_filter
  std::string no_stores = "no selected requirement needs them";  // why, without `stores`
  std::vector<InjectionSpec> injections;
  bool inject_at_once = true;  // false: from Recording::inject() on
  // Its calls are recorded instead of those of a publication.
  std::shared_ptr<CallObserver> observer;
  bool hide_vdso = false;                   // clock readings become system calls, and are recorded
  std::chrono::seconds boottime_offset{0};  // sys::Launch's
  // Passes its output on descriptors 1 and 2 on to ours, and records ids in it. Not together with
  // keeps_output.
  bool ids_from_output = false;
  bool keeps_output = false;  // its stdin is /dev/null, and the end of its output is kept
  // With Recording::watch_thread(): single-steps through changes to a thread's variable and record.
  // Not together with stores.
  bool slot_steps = false;
  bool picks_slots = false;    // with slot_steps: threads take turns, without watch_thread()
  std::string no_slot_steps;   // why, if they were requested and `slot_steps` is false
  bool record_stores = false;  // stores to a thread's record instead of stores to the header
  // Children that a thread would have, from Recording::probe_forks() on: with `stores`, in the
  // process that was started.
  bool forks = false;
  bool pid_namespace = false;   // makes it process 1 of a new namespace; records Process::own_pid
  bool keep_all = false;        // also keeps snapshots of images without a context
  bool looks_by_itself = true;  // false: looks only around calls, at ends and in look_around()
  std::uint32_t session = 0;    // ImageKey::session of all images
  // Must outlive the recording; used by one at a time. Null: no file is known.
  std::shared_ptr<KnownFiles> known_files;
  SnapshotLimits limits;
  // Limit of living threads; with more, the program is a runaway.
  std::size_t max_tasks = 4096;
  std::size_t max_alive = 512;                          // living processes
  std::size_t max_processes = 20000;                    // in total
  std::size_t max_recorded = 512;                       // processes whose evidence is kept
  std::uint64_t max_stored = std::uint64_t{96} << 20U;  // bytes of memory in all images
  // If a page does not arrive within this time (sys/access_watchdog.h), nobody can wait for it, and
  // the waiting thread cannot end the program: then this is called in another thread, to end this
  // process.
  std::chrono::milliseconds memory_deadline{10000};
  std::function<void(pid_t)> unreachable;
  // The recording ends there: the process stays stopped, in a session of its own, and is not ended
  // with the others. Calls `paused` when others may inspect it.
  std::optional<PausePoint> pause_at;
  std::function<void(pid_t process, pid_t thread)> paused;
  // Called about ten times a second while a thread is single-stepped (level steps): the number of
  // steps of this step trace so far, and its duration; with 0 when it is over.
  std::function<void(std::uint64_t steps, double seconds)> stepping;
  // Called about ten times a second: seconds so far, living processes, contexts seen.
  std::function<void(double seconds, std::size_t processes, std::size_t contexts)> progress;
};

struct Wrapped {
  bool interrupted = false;  // by a signal to ourselves
  bool timed_out = false;    // it reached its time limit and was ended
  std::string output;        // keeps_output: the end of it; hostile
};

// was_started: false if the program could not be started (ENOENT, EACCES, ENOEXEC, ...; its name is
// the detail); true for ctxconf's own fault.
struct WrapError : sys::Error {
  // NOLINTNEXTLINE(google-explicit-constructor): so that the errors of sys/ are passed on
  WrapError(sys::Error error) : sys::Error(std::move(error)) {}
  bool was_started = false;
};

// Appends processes, injections, notes and `hang` to `timeline`.
std::expected<Wrapped, WrapError> record_wrap(const WrapOptions& options, Timeline& timeline);

// One run under RLIMIT_FSIZE=0 that discards its output.
sys::Result<FaultRun> run_with_file_size_limit(const WrapOptions& options);

}  // namespace ctxconf::conformance
