// A program under ptrace, with all it forks and execs, moved one event at a
// time. These types are the only callers of ptrace and waitpid, so nobody else
// can eat a stop.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sys/remote_addr.h"
#include "sys/result.h"
#include "sys/seccomp_filter.h"

namespace ctxconf::sys {

// The program gets our descriptors 0 to 2 and no others but `third`, and the signal mask and
// ignored signals that this process was started with.
struct Launch {
  std::vector<std::string> argv;                 // argv[0] is looked up in PATH
  std::vector<std::string> extra_env;            // "KEY=VALUE", on top of ours
  std::optional<std::uint64_t> file_size_limit;  // RLIMIT_FSIZE of the program
  // Not zero: in a time namespace of its own, whose CLOCK_BOOTTIME is ahead by so much. Needs
  // CAP_SYS_ADMIN; an older kernel moves only what the program forks.
  std::chrono::seconds boottime_offset{0};
  bool discard_output = false;              // stdin, stdout and stderr are /dev/null
  std::array<int, 3> stdio = {-1, -1, -1};  // instead of ours, where not -1
  int third = -1;                           // becomes descriptor 3 of the program
  bool own_group = false;                   // in a process group of its own
  // Process 1 of a pid namespace of its own, and may make such namespaces; its numbers here are
  // ours. Needs kHostPidNamespaces.
  bool pid_namespace = false;
  // In a session of its own. The kernel wakes what stands still in this one when we end: SIGHUP and
  // SIGCONT for a stopped group that becomes an orphan.
  bool own_session = false;
  // A SyscallEntry comes before each call that trace_filter() (sys/seccomp_filter.h) names and
  // before no other. Needs kHostSeccompTrace; without it (`no_filter`) there are no SyscallEntry
  // events at all.
  bool no_filter = false;
  ExtraCalls extra_calls;
};

// Every event but Gone leaves its thread stopped until it is resumed. Group
// stops (SIGSTOP and the like) are kept and are no events.
struct NewTask {               // a thread or process was made; it has not run yet
  pid_t tid = 0;               // of the new one
  pid_t process = 0;           // its thread group; == tid for a process
  pid_t maker = 0;             // the process that made it; 0 when it had ended before
  bool shares_memory = false;  // a vfork child, until it execs
  // Of a process: the thread that made it and the kernel's word for how, "fork", "vfork" or
  // "clone", whichever call it was; 0 and "" when the maker ended before it could say.
  pid_t maker_tid = 0;
  const char* how = "";
};
struct SyscallEntry {
  pid_t tid = 0;
  pid_t process = 0;
  long nr = 0;  // of the native table, also for a 32-bit caller; -1 without a counterpart
  std::array<std::uint64_t, 6> args{};
  bool short_time = false;  // clock_gettime: its time is two numbers of four bytes each
};
struct SyscallExit {  // only after resume_to_exit; an exec that works is an Execed instead
  pid_t tid = 0;
  pid_t process = 0;
  std::int64_t result = 0;  // -errno on failure
};
constexpr bool is_error_result(std::int64_t result) { return result < 0 && result >= -4095; }
struct Execed {  // the new image has not run yet; other threads of the process are gone
  pid_t process = 0;
  pid_t former_tid = 0;  // which thread called exec
};
// The thread is about to end and the memory of the process is still there
// (unless a SIGKILL came after the stop: nothing can hold it then).
struct Exiting {
  pid_t tid = 0;
  pid_t process = 0;
  int wait_status = 0;         // as waitpid will report it
  bool whole_process = false;  // the leader, or the last thread
};
struct SignalStop {  // resume(tid, signo) delivers it
  pid_t tid = 0;
  pid_t process = 0;
  int signo = 0;
};
struct Interrupted {  // only after interrupt(); once a group stop that keeps the thread is over
  pid_t tid = 0;
  pid_t process = 0;
};
inline constexpr std::size_t kWordBytes = 8;  // of one that is watched
using WatchedWords = std::array<RemoteAddr, 4>;

// After a store to a word under watch(); no signal is delivered to the program for it.
struct WatchpointHit {
  pid_t tid = 0;
  pid_t process = 0;
  std::uint8_t words = 0;  // bit i: the store touched the word i of them: of 32 bytes 8i to 8i+7
  std::uint64_t pc = 0;    // of the next instruction, or of the store itself: see is_under_way()
};
// After step(): the thread has executed one instruction, one round of a `rep` instruction, or one
// system call; or it stands at the first instruction of a signal handler. No signal is delivered to
// the program for it.
struct Stepped {
  pid_t tid = 0;
  pid_t process = 0;
  std::uint8_t words = 0;  // of watch(), as in a WatchpointHit
  std::uint64_t pc = 0;    // of the next instruction
};
struct Gone {  // a process has ended and was reaped; threads end without a Gone
  pid_t process = 0;
  std::optional<int> exit_code;
  std::optional<int> killed_by;
};
using TraceEvent = std::variant<NewTask, SyscallEntry, SyscallExit, Execed, Exiting, SignalStop,
                                Interrupted, WatchpointHit, Stepped, Gone>;

class Tracee {
 public:
  // Starts the program, traced from its first instruction. The error is that of
  // the exec (ENOENT, EACCES, ENOEXEC, ...) with argv[0] as detail, or of ptrace.
  // `trampoline` is the path of ctxconf-trampoline; see find_trampoline().
  // The first event is the Execed of the program. One Tracee at a time (EBUSY),
  // used by the thread that launched it; SIGCHLD, SIGINT, SIGTERM and SIGHUP
  // are blocked in this thread until it is destroyed.
  static Result<Tracee> launch(const Launch& launch, const std::string& trampoline);

  Tracee(Tracee&&) noexcept;
  Tracee& operator=(Tracee&&) noexcept;
  ~Tracee();  // kills and reaps everything that is left

  pid_t root() const;  // the process that was launched

  // The next event, or nothing when the deadline passed, a wake-up signal (SIGINT, SIGTERM, SIGHUP
  // to ourselves) came: ask interrupted(); or a descriptor of wake_for() is ready. An error
  // (ECHILD) when nothing is left.
  Result<std::optional<TraceEvent>> next(std::chrono::steady_clock::time_point deadline);
  bool interrupted() const;

  // Makes next() return nothing while `fd`, a pipe or socket, has one of `events` (POLLIN, POLLOUT)
  // or was hung up; 0: no longer, to be said before it is closed.
  Result<> wake_for(int fd, short events);

  // ESRCH is not an error: the thread was killed meanwhile and its events follow.
  // EINVAL: the thread is not stopped, or a signal without a SignalStop.
  Result<> resume(pid_t tid, int signo = 0);
  Result<> resume_to_exit(pid_t tid);  // from a SyscallEntry: SyscallExit comes next
  // As resume(), for one instruction: a Stepped follows, or the event of what came in between. As
  // for watch(), a thread that blocks or ignores SIGTRAP loses that, and one that is about to run
  // its own handler of SIGTRAP (SignalStop) blocks it.
  Result<> step(pid_t tid, int signo = 0);

  // At a SyscallEntry: the kernel does not make the call, and its caller gets `result` (-errno for
  // a failure). The thread is still to be resumed; resume_to_exit() shows the result as well.
  // ESRCH is not an error; ENOTSUP for a 32-bit thread on aarch64.
  Result<> answer(pid_t tid, std::int64_t result);
  // Copies into the memory of a stopped thread, where its process may write: EFAULT elsewhere.
  Result<> write(pid_t tid, RemoteAddr to, std::span<const std::byte> bytes);
  // At an Execed: the new image is not told where the vDSO is, so that each reading of a clock
  // becomes a system call. Who finds it in another way, by PR_GET_AUXV or in maps, finds a
  // clock_gettime that makes the call; not so in a 32-bit program of a 64-bit kernel. False when
  // there was none.
  Result<bool> hide_vdso(pid_t process);

  // A stopped thread that was killed meanwhile: it ends once it is resumed, and an exec of another
  // thread waits for that.
  bool is_ending(pid_t tid) const;

  // Stops a running thread soon: an Interrupted follows, unless it ends first. A call that
  // sleeps may return EINTR for it (signal(7)); ESRCH is not an error.
  Result<> interrupt(pid_t tid);

  // Watches the 32 bytes at `first` (aligned to 8) for stores by a stopped thread: by this thread
  // only, and never for those that the kernel makes in its name. A further call moves the watch.
  // exec ends it; new threads and processes begin without one. Where a thread blocks or ignores
  // SIGTRAP, its first hit unblocks the signal and resets its disposition for the process.
  // ENOTSUP: not on this architecture; ENOSPC: others hold the registers; ESRCH is not an error.
  Result<> watch(pid_t tid, RemoteAddr first);
  // The same of four words, each aligned to 8, wherever they are; one may be there several times.
  Result<> watch(pid_t tid, const WatchedWords& words);
  Result<> unwatch(pid_t tid);

  // Where the TLS of a stopped thread is: fs_base on x86-64, tpidr_el0 on aarch64; 0: none yet.
  // ENOTSUP for a 32-bit thread.
  Result<RemoteAddr> thread_pointer(pid_t tid) const;

  // Lets a stopped thread fork, hands the copy of its process to `look` and ends it. The copy runs
  // nothing of the program and is a child of the process's parent, which has to be this process
  // (EPERM): the program neither gets a child nor a signal. The thread then stands where it stood.
  // EINVAL: it is not stopped, or at a signal or an exit; ENOENT: no SyscallEntry of the image came
  // before; EAGAIN and the like: the kernel made none; ETIMEDOUT: nor did it say so,
  // and the process was killed; ENOTSUP: not on this architecture, nor for
  // 32-bit code.
  Result<> with_copy(pid_t tid, const std::function<void(pid_t copy)>& look);

  // The call in progress of a stopped thread (PTRACE_GET_SYSCALL_INFO or registers).
  Result<SyscallEntry> syscall_of(pid_t tid) const;

  std::uint64_t stops() const;           // of all threads until now
  std::vector<pid_t> processes() const;  // alive, in order of birth
  std::size_t tasks() const;             // alive threads of all of them

  // Leaves a process to others: all of its threads stand still, by SIGSTOP, nobody traces them or
  // watches what they store, and it lives on when this ends. A thread in a system call stands
  // behind it. No event of it follows; a signal that one of its threads was about to get is lost.
  // ETIMEDOUT: a thread did not stop in time; ESRCH: none of ours, or it has ended.
  Result<> release(pid_t process);

  // Sends a signal to every process; SIGKILL also to stopped ones. No task that
  // appears later is resumed after a kill.
  void signal_all(int signo);
  // SIGKILL, then reaps until nothing is left; ETIMEDOUT when no thread has stopped or ended for
  // two seconds, or after a minute. Untraced descendants that became our children are killed too.
  Result<> end();

 private:
  struct State;
  explicit Tracee(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether a hit whose thread is still stopped was made by a string instruction that has more to do.
// `code`: the eight bytes at its pc, 0 when they could not be copied.
bool is_under_way(const WatchpointHit& hit, std::uint64_t code);

// Beside the running program or in ../libexec/ctxconf.
Result<std::string> find_trampoline();

}  // namespace ctxconf::sys
