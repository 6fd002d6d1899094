// A program under ptrace, with everything that it forks and execs, moved one event at a time. Only
// these types call ptrace and waitpid, so nobody else can take a stop.
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

#include "sys/arch/watch_registers.h"
#include "sys/remote_addr.h"
#include "sys/result.h"
#include "sys/seccomp_filter.h"

namespace ctxconf::sys {

// The program gets our descriptors 0 to 2 and no others except `third`, and the signal mask and
// ignored signals with which this process was started.
struct Launch {
  std::vector<std::string> argv;                 // argv[0] is looked up in PATH
  std::vector<std::string> extra_env;            // "KEY=VALUE", added to our environment
  std::optional<std::uint64_t> file_size_limit;  // RLIMIT_FSIZE of the program
  // If not zero: runs it in a time namespace of its own, whose CLOCK_BOOTTIME is ahead by this.
  // Needs CAP_SYS_ADMIN; on an older kernel this affects only what the program forks.
  std::chrono::seconds boottime_offset{0};
  bool discard_output = false;              // stdin, stdout and stderr are /dev/null
  std::array<int, 3> stdio = {-1, -1, -1};  // instead of ours, where not -1
  int third = -1;                           // becomes descriptor 3 of the program
  bool own_group = false;                   // in a process group of its own
  // Makes it process 1 of a new PID namespace, in which it may create such namespaces; pids here
  // are ours. Needs kHostPidNamespaces.
  bool pid_namespace = false;
  // In a session of its own. When this process ends, the kernel wakes stopped processes of its
  // session: SIGHUP and SIGCONT go to a stopped group that becomes an orphan.
  bool own_session = false;
  // A SyscallEntry comes before each call that trace_filter() (sys/seccomp_filter.h) selects, and
  // before no other call. Needs kHostSeccompTrace; without it (`no_filter`) there are no
  // SyscallEntry events.
  bool no_filter = false;
  ExtraCalls extra_calls;
  // The calls that reader_filter() selects instead: the program reads others.
  bool reader_calls = false;
  // Cannot get this capability (CAP_SYS_PTRACE and the like), nor can what it starts. Needs
  // CAP_SETPCAP. -1: none.
  int without_capability = -1;
};

// The four words from `first` on.
WatchedWords words_from(RemoteAddr first);

// Every event but Gone leaves its thread stopped until it is resumed. Group stops (SIGSTOP and the
// like) are kept and are not events.
struct NewTask {               // a thread or process was made; it has not run yet
  pid_t tid = 0;               // of the new one
  pid_t process = 0;           // its thread group; == tid for a process
  pid_t maker = 0;             // the process that made it; 0 when it had ended before
  bool shares_memory = false;  // a vfork child, until it execs
  // For a process: the thread that made it and how, in the kernel's terms ("fork", "vfork" or
  // "clone", whatever the system call); 0 and "" when the maker ended before it could report it.
  pid_t maker_tid = 0;
  const char* how = "";
};
struct SyscallEntry {
  pid_t tid = 0;
  pid_t process = 0;
  long nr = 0;  // native number, also for a 32-bit caller; -1 without a counterpart
  std::array<std::uint64_t, 6> args{};
  bool short_time = false;  // clock_gettime: its time is two 4-byte numbers
};
struct SyscallExit {  // only after resume_to_exit; an exec that succeeds gives an Execed instead
  pid_t tid = 0;
  pid_t process = 0;
  std::int64_t result = 0;  // -errno on failure
  std::uint64_t pc = 0;     // of the next instruction
};
constexpr bool is_error_result(std::int64_t result) { return result < 0 && result >= -4095; }
struct Execed {  // the new image has not run yet; other threads of the process are gone
  pid_t process = 0;
  pid_t former_tid = 0;  // the thread that called exec
};
// The thread is about to end, and the memory of the process still exists (unless a SIGKILL came
// after the stop: nothing can hold the process then).
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
struct Interrupted {  // only after interrupt(); in a group stop, only when that is over
  pid_t tid = 0;
  pid_t process = 0;
};
// After a store to a word under watch(); the program does not get a signal for it.
struct WatchpointHit {
  pid_t tid = 0;
  pid_t process = 0;
  // Bit i: the store touched word i; for 32 bytes that is bytes 8i to 8i+7. Of an instruction of
  // aarch64 whose size is not in its code (SVE, `cpy`, `set`): the store changed word i.
  std::uint8_t words = 0;
  std::uint64_t pc = 0;  // of the next instruction, or of the store itself: see is_under_way()
};
// After step(): the thread has executed one instruction, one round of a `rep` instruction, one
// attempt to store by load-exclusive and store-exclusive, or one system call; or it is at the first
// instruction of a signal handler. The program does not get a signal for it.
struct Stepped {
  pid_t tid = 0;
  pid_t process = 0;
  std::uint8_t words = 0;  // words under watch(), as in WatchpointHit
  std::uint64_t pc = 0;    // of the next instruction
};
struct Gone {  // a process has ended and was reaped; threads end without a Gone
  pid_t process = 0;
  std::optional<int> exit_code;
  std::optional<int> killed_by;
};
using TraceEvent = std::variant<NewTask, SyscallEntry, SyscallExit, Execed, Exiting, SignalStop,
                                Interrupted, WatchpointHit, Stepped, Gone>;

class Tracer {
 public:
  // Starts the program, traced from its first instruction. The error is that of the exec (ENOENT,
  // EACCES, ENOEXEC, ...) with argv[0] as detail, or of ptrace. `trampoline` is the path of
  // ctxconf-trampoline; see sys/trampoline_file.h. The first event is the Execed of the program.
  // Only one Tracer at a time (EBUSY), used by the thread that launched it; SIGCHLD and the signals
  // of EndingSignals are blocked in this thread until it is destroyed.
  static Result<Tracer> launch(const Launch& launch, const std::string& trampoline);

  Tracer(Tracer&&) noexcept;
  Tracer& operator=(Tracer&&) noexcept;
  ~Tracer();  // kills and reaps everything that is left

  pid_t root() const;  // the process that was launched

  // The next event. Nothing if the deadline passed, a wake-up signal came (one of
  // EndingSignals to this process: see interrupted()), or a descriptor of wake_for() is ready. An
  // error (ECHILD) when nothing is left.
  Result<std::optional<TraceEvent>> next(std::chrono::steady_clock::time_point deadline);
  bool interrupted() const;

  // Makes next() return nothing while `fd`, a pipe or socket, has one of `events` (POLLIN, POLLOUT)
  // or was hung up. 0 removes `fd`; do this before you close it.
  Result<> wake_for(int fd, short events);

  // ESRCH is not an error: the thread was killed meanwhile and its events follow. EINVAL: the
  // thread is not stopped, or a signal was given without a SignalStop.
  Result<> resume(pid_t tid, int signo = 0);
  Result<> resume_to_exit(pid_t tid);  // from a SyscallEntry: SyscallExit comes next
  // Like resume(), for one instruction: a Stepped follows, or the event that came first. As with
  // watch(), a thread that blocks or ignores SIGTRAP loses that setting, and a thread that is about
  // to run its own handler of SIGTRAP (SignalStop) blocks it.
  Result<> step(pid_t tid, int signo = 0);

  // At a SyscallEntry: the kernel does not make the call, and its caller gets `result` (-errno for
  // a failure). You still have to resume the thread; resume_to_exit() shows the result as well.
  // ESRCH is not an error; ENOTSUP for a 32-bit thread on aarch64.
  Result<> answer(pid_t tid, std::int64_t result);
  // Copies into the memory of a stopped thread, where its process may write; EFAULT elsewhere.
  Result<> write(pid_t tid, RemoteAddr to, std::span<const std::byte> bytes);
  // At an Execed: hides the vDSO's address from the new image, so that each reading of a clock
  // becomes a system call. A program that finds the vDSO in another way, by PR_GET_AUXV or in maps,
  // finds a clock_gettime that makes the call; this does not hold for a 32-bit program on a 64-bit
  // kernel. False if there was no vDSO.
  Result<bool> hide_vdso(pid_t process);

  // Whether a stopped thread was killed meanwhile: it ends once it is resumed, and an exec of
  // another thread waits for that.
  bool is_ending(pid_t tid) const;

  // Stops a running thread soon: an Interrupted follows, unless the thread ends first. A call in
  // which the thread sleeps may return EINTR for it (signal(7)); ESRCH is not an error.
  Result<> interrupt(pid_t tid);

  // Watches the 32 bytes at `first` (aligned to 8) for stores by a stopped thread: only by this
  // thread, and never by the kernel on its behalf. Another call moves the watch. exec ends it; new
  // threads and processes start without one. If a thread blocks or ignores SIGTRAP, its first hit
  // unblocks the signal and resets its disposition for the process. ENOSPC: others hold the
  // registers, or there are fewer than four; ESRCH is not an error.
  Result<> watch(pid_t tid, RemoteAddr first);
  // The same for four words, each aligned to 8, at any addresses; a word may be given several
  // times.
  Result<> watch(pid_t tid, const WatchedWords& words);
  Result<> unwatch(pid_t tid);

  // The TLS address of a stopped thread: fs_base on x86-64, tpidr_el0 on aarch64; 0: none yet.
  // ENOTSUP for a 32-bit thread.
  Result<RemoteAddr> thread_pointer(pid_t tid) const;

  // Makes a stopped thread fork, passes the copy of its process to `look`, and ends it. The copy
  // runs no code of the program and is a child of the process's parent, which must be this process
  // (EPERM): the program gets neither a child nor a signal. The thread is then back where it was.
  // EINVAL: it is not stopped, or is at a signal or an exit. ENOENT: the image has had no
  // SyscallEntry yet. EAGAIN and the like: the kernel made no copy. ETIMEDOUT: the kernel did not
  // report a result either, and the process was killed. ENOTSUP: 32-bit code.
  Result<> with_copy(pid_t tid, const std::function<void(pid_t copy)>& look);

  // The call in progress of a stopped thread (PTRACE_GET_SYSCALL_INFO or registers).
  Result<SyscallEntry> syscall_of(pid_t tid) const;

  std::uint64_t stops() const;           // of all threads so far
  std::vector<pid_t> processes() const;  // alive, in order of birth
  std::size_t tasks() const;             // living threads of all processes

  // Hands a process over to others: SIGSTOP stops all its threads, nobody traces them or watches
  // their stores, and the process outlives the tracer. A thread in a system call stops after it. No
  // event of the process follows; a signal that one of its threads was about to get is lost.
  // ETIMEDOUT: a thread did not stop in time. ESRCH: not our process, or it has ended.
  Result<> release(pid_t process);

  // Sends a signal to every process; SIGKILL also to stopped ones. A task that appears after a kill
  // is not resumed.
  void signal_all(int signo);
  // Sends SIGKILL, then reaps until nothing is left. ETIMEDOUT when no thread has stopped or ended
  // for two seconds, or after a minute. Also kills untraced descendants that became our children.
  Result<> end();

 private:
  struct State;
  explicit Tracer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Whether a string instruction that is not finished caused the hit; its thread is still stopped.
// `code`: the eight bytes at its pc, 0 when they could not be copied.
bool is_under_way(const WatchpointHit& hit, std::uint64_t code);

}  // namespace ctxconf::sys
