// Starts a program and records it with all it forks and execs: the system calls of its
// publications, the stores to their headers, and a snapshot before each exec, at each end, before
// and after each naming call and every 100 ms in between.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/observe/injection.h"
#include "conformance/observe/snapshot.h"
#include "conformance/timeline.h"
#include "sys/result.h"

namespace ctxconf::conformance {

struct KnownFiles;

// Where a program is to be left standing: behind an event of an image that another run of it had.
struct PausePoint {
  std::string executable;
  std::uint32_t image = 0;  // as in ImageKey
  std::uint64_t order = 0;  // in the image's order of events
};

struct WrapOptions {
  std::vector<std::string> argv;
  std::string trampoline;  // path of ctxconf-trampoline
  // How long the program may run; nothing: until it ends, or 10 s after the last
  // publication, but no more than 120 s in all, or 30 s when nothing is published.
  std::optional<std::chrono::milliseconds> run_for;
  double timeout_scale = 1;
  bool no_filter = false;      // no system call is recorded, nor slowed down
  bool stores = false;         // level stores: needs kHostWatchpoints and the filter
  bool watch_lifetime = true;  // --watch lifetime; false: publication
  bool steps = false;          // level steps: with `stores`
  bool steps_at_once = true;   // false: from Recording::step_changes() on
  std::string no_calls = "this host has no system call filter for tracers";  // why, with no_filter
  std::string no_stores = "no selected requirement needs them";  // why, without `stores`
  std::vector<InjectionSpec> injections;
  bool inject_at_once = true;               // false: from Recording::inject() on
  bool hide_vdso = false;                   // readings of clocks are system calls, and recorded
  std::chrono::seconds boottime_offset{0};  // sys::Launch's
  // What it prints on descriptors 1 and 2 is passed on to ours, and ids in it are recorded. Not
  // beside keeps_output.
  bool ids_from_output = false;
  bool keeps_output = false;  // its stdin is /dev/null, and of what it prints the end is kept
  // With Recording::watch_slot(): changes to a thread's variable and record are walked through. Not
  // beside stores.
  bool slot_steps = false;
  bool picks_slots = false;  // with slot_steps: of one thread after the other, without watch_slot()
  std::string no_slot_steps;   // why, where they were asked for and `slot_steps` is false
  bool record_stores = false;  // instead of stores to the header: those to a thread's record
  // Children that a thread would have, from Recording::probe_forks() on: with `stores`, of the
  // process that was started.
  bool forks = false;
  bool pid_namespace = false;   // it is process 1 of one of its own; Process::own_pid is recorded
  bool keep_all = false;        // also snapshots of images that showed no context
  bool looks_by_itself = true;  // false: no look but those around calls, at ends and look_around()
  std::uint32_t session = 0;    // ImageKey::session of all images
  // Outlives the recording, and is used by one at a time; null: nothing is known of any file.
  std::shared_ptr<KnownFiles> known_files;
  SnapshotLimits limits;
  // Alive at once; beyond, the program is a runaway.
  std::size_t max_tasks = 4096;
  std::size_t max_alive = 512;                          // of these, processes
  std::size_t max_processes = 20000;                    // in all
  std::size_t max_recorded = 512;                       // processes whose evidence is kept
  std::uint64_t max_stored = std::uint64_t{96} << 20U;  // bytes of memory in all images
  // A page that does not come for so long (sys/access_watchdog.h) cannot be waited for, nor can the
  // program be ended by the thread that waits: called in another thread, to end this process.
  std::chrono::milliseconds memory_deadline{10000};
  std::function<void(pid_t)> unreachable;
  // Once there the recording ends: the process stands still, in a session of its own, and is not
  // ended with the others. `paused` is told of it when it may be looked at by others.
  std::optional<PausePoint> pause_at;
  std::function<void(pid_t process, pid_t thread)> paused;
  // Called about ten times a second while a thread is moved by single instructions (level steps):
  // how many of this walk so far, and for how long; with 0 when it is over.
  std::function<void(std::uint64_t steps, double seconds)> walked;
  // Called about ten times a second: seconds so far, processes alive, contexts seen.
  std::function<void(double seconds, std::size_t processes, std::size_t contexts)> progress;
};

// `op` of an error after the program was started: our own fault.
inline constexpr const char* kFollowing = "follow the program";

struct Wrapped {
  bool interrupted = false;  // by a signal to ourselves
  bool timed_out = false;    // it ran for as long as it may, and was ended
  std::string output;        // keeps_output: the end of it; hostile
};

// Appends processes, injections, notes and `hang` to `timeline`. The error is that of starting
// the program (ENOENT, EACCES, ENOEXEC, ...), with its name as detail, or has
// kFollowing as its op.
sys::Result<Wrapped> record_wrap(const WrapOptions& options, Timeline& timeline);

// One run under RLIMIT_FSIZE=0, its output discarded.
sys::Result<FaultRun> run_with_file_size_limit(const WrapOptions& options);

}  // namespace ctxconf::conformance
