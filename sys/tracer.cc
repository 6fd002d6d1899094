#include "sys/tracer.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "sys/access_watchdog.h"
#include "sys/arch/exclusive.h"
#include "sys/arch/native.h"
#include "sys/arch/registers.h"
#include "sys/arch/watch_registers.h"
#include "sys/ending_signals.h"
#include "sys/fd.h"
#include "sys/memory_reader.h"
#include "sys/proc_text.h"
#include "sys/process.h"
#include "sys/seccomp_filter.h"
#include "sys/shaking.h"
#include "sys/spawn.h"
#include "sys/thread_stop.h"
#include "sys/trampoline.h"

namespace ctxconf::sys {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr long kOptions = PTRACE_O_EXITKILL | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                          PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT |
                          PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD;
constexpr auto kLaunchDeadline = std::chrono::seconds(10);
constexpr auto kEndDeadline = std::chrono::seconds(10);
constexpr auto kEndLimit = std::chrono::seconds(60);
// A copy may wait for whoever handles the process's userfaultfd.
constexpr auto kCopyLimit = std::chrono::seconds(5);
// Another thread that does not block SIGCHLD may take it, so no wait relies on it alone.
constexpr auto kLongestSleep = milliseconds(20);
// The next stop often follows soon, and waking up costs as much as spinning this long.
constexpr auto kSpin = std::chrono::microseconds(40);
// A sched_yield() that takes longer than kSlowYield gave our processor to something else. For kBusy
// after it we sleep instead of yielding.
constexpr auto kSlowYield = std::chrono::microseconds(300);
constexpr auto kBusy = milliseconds(100);
// How long await_step() sleeps for a trap. If the thread waits in a system call, the trap comes
// later, and next() waits for it.
constexpr auto kStepPatience = milliseconds(1);
// A thread that runs through an exclusive attempt for longer waits in it, for another thread. After
// so many of these it is stepped, so that it reaches the limits of its user.
constexpr auto kAttemptPatience = milliseconds(50);
constexpr unsigned kLongAttempts = 20;
// How often to check for pending wake-up signals: not at every store of a program.
constexpr auto kWakeUpsAsked = milliseconds(1);
// After this many steps of one thread, the other threads get their turn.
constexpr unsigned kStepsInARow = 64;
// How rare the pauses of shake() are: a program is stepped through many thousand instructions.
constexpr std::uint32_t kShakenSteps = 4096;
constexpr std::uint32_t kShakenStops = 32;
// A new task whose maker was killed before it could report it is announced after this time.
constexpr auto kMakerPatience = milliseconds(200);

constexpr const arch::SyscallAbi& kNative = arch::native::kSyscalls;

std::atomic<bool> tracee_exists = false;

std::string pid_text(pid_t pid) { return std::to_string(pid); }

int event_of(int status) { return status >> 16; }
bool has_ended(int status) { return WIFEXITED(status) || WIFSIGNALED(status); }

bool is_group_stop(int status) {
  if (event_of(status) != PTRACE_EVENT_STOP) return false;
  const int signo = WSTOPSIG(status);
  return signo == SIGSTOP || signo == SIGTSTP || signo == SIGTTIN || signo == SIGTTOU;
}

struct Kinship {
  pid_t process = 0;
  pid_t parent = 0;
};
// Nothing if it has been reaped.
std::optional<Kinship> kinship_of(pid_t tid) {
  const Fd fd(open(("/proc/" + pid_text(tid) + "/status").c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return std::nullopt;
  std::array<char, 1024> text;
  const auto n = read(fd.get(), text.data(), text.size());
  if (n <= 0) return std::nullopt;
  const auto field = [&](std::string_view key) {
    return status_number<pid_t>({text.data(), static_cast<std::size_t>(n)}, key).value_or(0);
  };
  const Kinship kinship{field("Tgid"), field("PPid")};
  if (kinship.process == 0 || field("TracerPid") == 0) return std::nullopt;
  return kinship;
}

// Signal 0 takes a hundredth of the time of /proc.
bool is_other_thread_of(pid_t process, pid_t tid) {
  return process != tid && (syscall(SYS_tgkill, process, tid, 0) == 0 || errno == EPERM);
}

// The message of the event stop that `status` describes. A SIGKILL may have moved the task to its
// exit stop, whose message is something else.
std::optional<unsigned long> event_message(pid_t tid, int status) {
  unsigned long message = 0;
  siginfo_t info{};
  if (ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &message) != 0) return std::nullopt;
  if (ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) != 0) return std::nullopt;
  if (info.si_code != (status >> 8)) return std::nullopt;
  return message;
}

using arch::answer_call;
using arch::call_registers;
using arch::CallRegisters;

// The words that exec puts on the stack, in order.
class InitialStack {
 public:
  InitialStack(pid_t tid, const CallRegisters& registers)
      : memory_(tid), at_(registers.stack), size_(registers.compat ? 4 : 8) {}

  std::size_t word_size() const { return size_; }
  RemoteAddr position() const { return RemoteAddr(at_); }
  Result<std::uint64_t> next() {
    if (++words_ > kMostWords) return fail("initial stack", E2BIG, "words");
    if (used_ == kept_) {
      CTX_ASSIGN_OR_RETURN(got, memory_.read_some(RemoteAddr(at_), buffer_));
      kept_ = got / size_ * size_;
      used_ = 0;
      if (kept_ == 0) return fail("initial stack", EFAULT, "");
    }
    std::uint64_t word = 0;
    std::memcpy(&word, buffer_.data() + used_,
                size_);  // little-endian, like every processor supported here
    used_ += size_;
    at_ += size_;
    return word;
  }

 private:
  static constexpr std::size_t kMostWords = std::size_t{1} << 20U;

  ProcessMemory memory_;
  std::uint64_t at_;
  std::size_t size_;
  std::array<std::byte, 4096> buffer_{};
  std::size_t kept_ = 0;
  std::size_t used_ = 0;
  std::size_t words_ = 0;
};

// Linux 5.3; unlike the registers it recognizes a 32-bit call made by 64-bit code.
std::optional<__ptrace_syscall_info> syscall_info(pid_t tid) {
  __ptrace_syscall_info info{};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) <= 0) return std::nullopt;
  return info;
}

Result<CallRegisters> call_in_progress(pid_t tid) {
  const auto info = syscall_info(tid);
  if (info && info->op == PTRACE_SYSCALL_INFO_SECCOMP) {
    CallRegisters out{info->arch, info->seccomp.nr, {}, 0};
    out.pc = info->instruction_pointer;
    std::copy(std::begin(info->seccomp.args), std::end(info->seccomp.args), out.args.begin());
    return out;
  }
  return call_registers(tid);
}

bool shares_memory_with_maker(pid_t maker_tid) {
  const auto call = call_in_progress(maker_tid);
  if (!call) return false;
  const long nr = native_number(call->audit_arch, call->nr);
#ifdef SYS_vfork
  if (nr == SYS_vfork) return true;
#endif
  std::uint64_t flags = 0;
  if (nr == SYS_clone) {
    flags = call->args[0];
  } else if (nr == SYS_clone3) {
    const ProcessAccess access(maker_tid);
    errno = 0;
    flags = static_cast<std::uint64_t>(ptrace(PTRACE_PEEKDATA, maker_tid, call->args[0], nullptr));
    if (errno != 0) return false;
  }
  return (flags & CLONE_VM) != 0;
}

using WordValues = std::array<std::uint64_t, std::tuple_size_v<WatchedWords>>;

// Of a stopped thread; 0 where nothing is mapped.
WordValues values_of(pid_t tid, const WatchedWords& words) {
  const ProcessAccess access(tid);
  WordValues out{};
  for (std::size_t i = 0; i < words.size(); ++i) {
    errno = 0;
    const auto value =
        static_cast<std::uint64_t>(ptrace(PTRACE_PEEKDATA, tid, words[i].raw(), nullptr));
    if (errno == 0) out[i] = value;
  }
  return out;
}

// Bit i: word i.
std::uint8_t changed_words(const WordValues& before, const WordValues& after) {
  std::uint8_t out = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] != after[i]) out = static_cast<std::uint8_t>(out | 1U << i);
  }
  return out;
}

struct StepEnd {
  arch::StepTrap trap;
  std::uint64_t pc;
};

// Nothing if the SIGTRAP has another cause.
std::optional<StepEnd> step_end(pid_t tid, const siginfo_t& info, std::uint64_t call_ended_at) {
  using arch::StepTrap;
  const arch::TrapCause cause{.code = info.si_code, .sender = info.si_pid, .user = info.si_uid};
  if (arch::native::step_trap(cause, false) == StepTrap::kNone) return std::nullopt;
  auto pc = reinterpret_cast<std::uint64_t>(info.si_addr);
  // The kernel gives no address at the beginning of a signal handler.
  if (info.si_code != TRAP_TRACE && info.si_code != TRAP_BRKPT) {
    const auto registers = call_registers(tid);
    if (!registers) return std::nullopt;
    pc = registers->pc;
  }
  return StepEnd{arch::native::step_trap(cause, call_ended_at == pc), pc};
}

// SIGCHLD and the wake-up signals are blocked in this thread and taken one by one.
class TakenSignals {
 public:
  TakenSignals() : all_(wake_ups_.set()) {
    sigemptyset(&sigchld_);
    sigaddset(&sigchld_, SIGCHLD);
    sigaddset(&all_, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &sigchld_, &mask_before_);
    // With SIG_IGN or SA_NOCLDWAIT children vanish without a status; with SA_NOCLDSTOP no stop
    // sends SIGCHLD.
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &plain, &sigchld_before_);
  }
  ~TakenSignals() {
    const timespec none{};
    while (sigtimedwait(&sigchld_, nullptr, &none) > 0) {
    }
    sigaction(SIGCHLD, &sigchld_before_, nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  TakenSignals(const TakenSignals&) = delete;
  TakenSignals& operator=(const TakenSignals&) = delete;

  // True if a wake-up signal was pending.
  bool take_wake_up() const { return wake_ups_.take(); }
  // Sleeps until SIGCHLD or a wake-up signal (true), `until`, or for a short time.
  bool sleep(Clock::time_point until) const { return sleep(until, all_); }
  // The same, but leaves wake-up signals pending.
  void sleep_for_children(Clock::time_point until) const { sleep(until, sigchld_); }

 private:
  static bool sleep(Clock::time_point until, const sigset_t& set) {
    const auto left = std::clamp<std::chrono::nanoseconds>(
        until - Clock::now(), std::chrono::nanoseconds(0), kLongestSleep);
    const timespec timeout{0, static_cast<long>(left.count())};
    const int signo = sigtimedwait(&set, nullptr, &timeout);
    return signo > 0 && signo != SIGCHLD;
  }

  EndingSignals wake_ups_;
  sigset_t sigchld_{};
  sigset_t all_;
  sigset_t mask_before_{};
  struct sigaction sigchld_before_{};
};

const char* step_name(TrampolineStep step) {
  switch (step) {
    case TrampolineStep::kSettings:
      return "trampoline settings";
    case TrampolineStep::kLimit:
      return "setrlimit";
    case TrampolineStep::kTime:
      return "time namespace";
    case TrampolineStep::kOutput:
      return "open /dev/null";
    case TrampolineStep::kFilter:
      return "seccomp";
    case TrampolineStep::kExec:
      return "exec";
    case TrampolineStep::kCapability:
      return "drop a capability";
    case TrampolineStep::kNamespace:
      return "pid namespace";
  }
  return "trampoline";
}

// The process that sent the byte: with SO_PASSCRED the kernel says who wrote.
Result<pid_t> await_trampoline(int channel, const std::string& name) {
  const timeval deadline{kLaunchDeadline.count(), 0};
  if (setsockopt(channel, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline) != 0) {
    return fail("setsockopt", errno, name);
  }
  TrampolineFailure said;
  iovec area{&said, sizeof said};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_iov = &area;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof said)) return fail(step_name(said.step), said.err, name);
  const cmsghdr* const about = got == 1 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (about != nullptr && about->cmsg_type == SCM_CREDENTIALS) {
    ucred from{};
    std::memcpy(&from, CMSG_DATA(about), sizeof from);
    if (from.pid > 0) return from.pid;
  }
  return fail("trampoline", got < 0 ? errno : 0, name + ": it did not start");
}

void kill_and_reap(pid_t pid) {
  kill(pid, SIGKILL);
  const auto deadline = Clock::now() + kEndDeadline;
  int status = 0;
  while (Clock::now() < deadline) {
    const pid_t got = waitpid(pid, &status, WNOHANG | __WALL);
    if (got < 0 && errno != EINTR) return;
    if (got == pid && has_ended(status)) return;
    // An exit stop does not end by itself.
    if (got == pid) ptrace(PTRACE_CONT, pid, nullptr, nullptr);
    if (got == 0) {
      const timespec pause{0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
}

}  // namespace

struct Tracer::State {
  enum class At { kStarting, kRunning, kListening, kStopped };
  enum class Stop { kOther, kEntry, kSignal };

  struct Task {
    pid_t process = 0;
    At at = At::kRunning;
    Stop stop = Stop::kOther;
    bool handed_out = false;  // the user has, or will get, an event to answer with resume
    bool in_group_stop = false;
    bool to_exit = false;
    bool stepping = false;
    bool step_owed = false;           // it was single-stepped, and the trap of that may still come
    std::uint64_t call_ended_at = 0;  // the step over a system call has ended here; see trapped()
    bool exiting = false;
    bool interrupting = false;  // the user has asked for an Interrupted
    bool watched = false;       // it has, or had, armed watchpoints in this image
    bool armed = false;         // it has them, although they may be disabled until its next stop
    bool stale_hit = false;     // a pending trap is about the words that it watched before
    // For a trap before its store: the words that the store will touch. The thread is stepped over
    // the store with its watchpoints disabled.
    std::uint8_t to_touch = 0;
    std::uint64_t store_at = 0;  // the address of that store; 0: the thread has stopped since
    WatchedWords watches{};      // of the latest watch
    // What they held before a store that may touch more of them than the trap told.
    std::optional<WordValues> before_store;
    void touch(std::uint8_t words, std::uint64_t store) {
      to_touch = static_cast<std::uint8_t>(to_touch | words);
      store_at = store;
    }
    void forget_store() {
      to_touch = 0;
      store_at = 0;
      before_store.reset();
    }
    // It runs through these instructions to a breakpoint after them, with its watchpoints
    // disabled.
    std::optional<arch::ExclusiveAttempt> attempt;
    Clock::time_point attempt_began;
    bool attempt_is_over = false;  // it took too long, and the thread was interrupted
    unsigned long_attempts = 0;    // since it was resumed without a step
    // A breakpoint at a load-exclusive: the next attempt there will store to a watched word.
    std::uint64_t next_attempt = 0;
    bool silent = false;      // appeared after a kill: gets no events and is not resumed
    std::optional<int> held;  // a stop that came before the user's answer to the last one
    // These are used until it is announced:
    pid_t maker = 0;
    bool shares_memory = false;
    pid_t maker_tid = 0;
    const char* how = "";
  };
  // What arrived while the thread was not at the place where it should stop for it.
  struct Late {
    bool interrupt = false;
    bool stop_signal = false;
    void note(int status) {
      if (event_of(status) == PTRACE_EVENT_STOP) interrupt = true;
      if (event_of(status) == 0 && WSTOPSIG(status) == SIGSTOP) stop_signal = true;
    }
  };
  static bool moves_by_step(const Task& task) {
    return task.stepping || task.to_touch != 0 || task.store_at != 0;
  }
  struct FirstStop {
    int status = 0;
    Clock::time_point since;
  };

  TakenSignals signals;
  pid_t root = 0;
  bool killed = false;
  bool interrupted = false;
  std::vector<pollfd> wakers;
  std::uint64_t stops = 0;
  Clock::time_point last_raw;    // when the last status arrived
  Clock::time_point last_asked;  // when we last checked for a wake-up signal
  Clock::time_point busy_until;  // until then, sleep instead of yielding
  bool just_resumed = false;     // no time has passed in which anything could stop
  pid_t just_stepped = 0;        // will stop again in a moment
  unsigned steps_in_a_row = 0;
  std::map<pid_t, Task> tasks;
  std::vector<pid_t> births;              // announced processes
  std::map<pid_t, FirstStop> unclaimed;   // new tasks whose maker has not reported them yet
  std::deque<std::pair<pid_t, int>> raw;  // statuses in the order of waitpid
  std::deque<TraceEvent> events;
  std::set<pid_t> earlier_children;  // children of this process that we must not end
  std::map<pid_t, std::uint64_t>
      behind_call;  // by process: the address after a `syscall` of native code

  State() {
    for (const pid_t pid : children_of_this_process()) earlier_children.insert(pid);
  }
  ~State() { tracee_exists = false; }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<> start(const Launch& launch, const std::string& trampoline);
  Result<> await_exec(pid_t pid, int channel, const std::string& name);

  bool drain();  // false if this process has no children at all
  void dispatch(pid_t pid, int status);
  void stopped(pid_t tid, Task& task, int status);
  using Attempt = std::optional<arch::ExclusiveAttempt>;
  void stepped_over(pid_t tid, Task& task, const Attempt& attempt);
  bool trapped(pid_t tid, Task& task, const Attempt& ended);
  bool begin_attempt(pid_t tid, Task& task, const Attempt& attempt);
  bool reached_breakpoint(pid_t tid, Task& task, const siginfo_t& info, const Attempt& ended);
  void begin_attempt_here(pid_t tid, Task& task);
  void interrupt_attempts();
  void made(pid_t maker_tid, Task& maker, int status);
  void execed(pid_t pid, Task& task, int status);
  void ended(pid_t pid, int status);
  void first_stop(pid_t tid, int status);
  void announce(pid_t tid, Task& task, int status);
  void announce_overdue();
  void adopt_silently(pid_t tid);
  void restart(pid_t tid, Task& task, int signo);
  bool yield();
  void await_step();
  std::optional<int> next_status(pid_t tid);
  Result<pid_t> make_copy(pid_t tid, Task& task, Late& late);
  Result<> with_copy(pid_t tid, Task& task, const std::function<void(pid_t)>& look);
  Result<> go_on(pid_t tid, int signo, bool stepping);
  void hand_out(Task& task, const TraceEvent& event) {
    task.handed_out = true;
    events.push_back(event);
  }
  bool is_waker_ready() { return !wakers.empty() && poll(wakers.data(), wakers.size(), 0) > 0; }
  std::set<pid_t> all_processes() const;  // including those not announced yet
  void kill_all();
  void end_stop(pid_t tid);
  bool end_leftovers();
  Result<> release(pid_t process);
  // What is still there after the deadline cannot be killed. True if nothing is left.
  bool end_all();
};

Result<> Tracer::State::start(const Launch& launch, const std::string& trampoline) {
  if (launch.argv.empty()) return fail("launch", EINVAL, "no arguments");
  CTX_ASSIGN_OR_RETURN(path, find_program(launch.argv[0], launch.extra_env));
  if (access(trampoline.c_str(), X_OK) != 0) return fail("trampoline", errno, trampoline);

  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return fail("socketpair", errno, "");
  }
  // This must be set before the trampoline writes.
  constexpr int kOn = 1;
  if (setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) != 0) {
    return fail("setsockopt", errno, "");
  }
  // Numbers below 3 belong to the program.
  const Fd low_ours(pair[0]);
  Fd low_theirs(pair[1]);
  const Fd ours(fcntl(pair[0], F_DUPFD_CLOEXEC, 3));
  Fd theirs(fcntl(pair[1], F_DUPFD_CLOEXEC, 4));  // 3 may be the program's
  if (!ours.is_open() || !theirs.is_open()) return fail("fcntl", errno, "");

  Spawn what;
  what.path = trampoline;
  what.argv = {"ctxconf-trampoline", std::to_string(theirs.get()),
               launch.pid_namespace ? kNewPidNamespace : kSameNamespace, path};
  what.argv.insert(what.argv.end(), launch.argv.begin(), launch.argv.end());
  what.extra_env = launch.extra_env;
  what.kept = theirs.get();
  what.stdio = launch.stdio;
  what.third = launch.third;
  what.own_group = launch.own_group;
  what.own_session = launch.own_session;
  CTX_ASSIGN_OR_RETURN(spawned, spawn(what));
  pid_t pid = spawned;
  theirs.reset();
  low_theirs.reset();

  auto result = [&]() -> Result<> {
    CTX_ASSIGN_OR_RETURN(running, await_trampoline(ours.get(), launch.argv[0]));
    pid = running;
    if (pid != spawned) kill_and_reap(spawned);
    if (ptrace(PTRACE_SEIZE, pid, nullptr, kOptions) != 0) {
      return fail("ptrace", errno, launch.argv[0]);
    }
    TrampolineSettings settings;
    settings.file_size_limit = launch.file_size_limit.value_or(UINT64_MAX);
    settings.boottime_offset_s = launch.boottime_offset.count();
    settings.discard_output = launch.discard_output ? 1 : 0;
    settings.without_capability = launch.without_capability;
    if (!launch.no_filter) {
      const auto filter = launch.reader_calls ? reader_filter() : trace_filter(launch.extra_calls);
      if (filter.size() > settings.filter.size()) return fail("seccomp", E2BIG, "filter");
      settings.filter_length = static_cast<std::uint32_t>(filter.size());
      std::copy(filter.begin(), filter.end(), settings.filter.begin());
    }
    // Smaller than any socket buffer, so it is written as a whole.
    if (send(ours.get(), &settings, sizeof settings, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof settings)) {
      return fail("trampoline settings", errno, launch.argv[0]);
    }
    return {};
  }();
  if (result) result = await_exec(pid, ours.get(), launch.argv[0]);
  if (!result) {
    kill_and_reap(pid);
    return result;
  }
  root = pid;
  births.push_back(pid);
  auto& task = tasks[pid];
  task.process = pid;
  task.at = At::kStopped;
  hand_out(task, Execed{pid, pid});
  return {};
}

// The exec of the program itself also passes the filter: those stops are ours.
Result<> Tracer::State::await_exec(pid_t pid, int channel, const std::string& name) {
  const auto deadline = Clock::now() + kLaunchDeadline;
  while (true) {
    int status = 0;
    const pid_t got = waitpid(pid, &status, WNOHANG | __WALL);
    if (got < 0 && errno != EINTR) return fail("waitpid", errno, name);
    if (got <= 0) {
      if (Clock::now() >= deadline) return fail("exec", ETIMEDOUT, name);
      signals.sleep_for_children(deadline);
      continue;
    }
    if (has_ended(status)) {
      TrampolineFailure failure;
      if (recv(channel, &failure, sizeof failure, MSG_DONTWAIT) ==
          static_cast<ssize_t>(sizeof failure)) {
        return fail(step_name(failure.step), failure.err, name);
      }
      return fail("exec", 0, name + ": killed before it started");
    }
    const int event = event_of(status);
    if (event == PTRACE_EVENT_EXEC) return {};
    if (is_group_stop(status)) {
      ptrace(PTRACE_LISTEN, pid, nullptr, nullptr);
    } else {
      const long signo = event == 0 ? WSTOPSIG(status) : 0;
      ptrace(PTRACE_CONT, pid, nullptr, signo);
    }
  }
}

// Takes all pending statuses: waitpid prefers old tasks, and one that keeps causing events must not
// starve the others.
bool Tracer::State::drain() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG | __WALL);
    if (pid > 0) {
      raw.emplace_back(pid, status);
      // The only task is stopped now.
      if (tasks.size() == 1 && tasks.contains(pid) && !has_ended(status)) return true;
      continue;
    }
    if (pid < 0 && errno == EINTR) continue;
    return pid == 0 || !raw.empty();
  }
}

void Tracer::State::dispatch(pid_t pid, int status) {
  if (has_ended(status)) return ended(pid, status);
  ++stops;
  const auto it = tasks.find(pid);
  if (it == tasks.end()) return first_stop(pid, status);
  auto& task = it->second;
  if (task.silent) return end_stop(pid);
  if (task.at == At::kStarting) return announce(pid, task, status);
  if (task.handed_out) {
    task.held = status;
    return;
  }
  task.at = At::kStopped;
  task.stop = Stop::kOther;
  task.in_group_stop = false;
  stopped(pid, task, status);
}

// Of a thread that ran with its watchpoints disabled: enables them, and notes what it touched.
void Tracer::State::stepped_over(pid_t tid, Task& task, const Attempt& attempt) {
  if (attempt) {
    arch::clear_breakpoints(tid);
    if (task.armed) arch::enable_watches(tid);
    if (task.armed) task.touch(arch::result_of(tid, *attempt).words, 0);
  } else if (const auto store = std::exchange(task.store_at, 0); store != 0) {
    if (task.armed) arch::enable_watches(tid);
    const auto before = std::exchange(task.before_store, std::nullopt);
    const auto registers = call_registers(tid);
    // Another event came first: the store has not happened yet, and traps again.
    if (registers && registers->pc == store) task.to_touch = 0;
    // `cpy` and `set` can be interrupted half-way.
    if (before) task.touch(changed_words(*before, values_of(tid, task.watches)), 0);
  }
}

void Tracer::State::stopped(pid_t tid, Task& task, int status) {
  const int signo = WSTOPSIG(status);
  const auto attempt = std::exchange(task.attempt, std::nullopt);
  const bool attempt_is_over = std::exchange(task.attempt_is_over, false);
  stepped_over(tid, task, attempt);
  switch (event_of(status)) {
    case PTRACE_EVENT_STOP:
      task.in_group_stop = is_group_stop(status);
      if (!task.in_group_stop && std::exchange(task.interrupting, false)) {
        return hand_out(task, Interrupted{tid, task.process});
      }
      if (attempt && attempt_is_over) {
        const auto registers = call_registers(tid);
        if (registers && task.stepping) {
          ++task.long_attempts;
          const auto words = std::exchange(task.to_touch, 0);
          return hand_out(task, Stepped{tid, task.process, words, registers->pc});
        }
      }
      return restart(tid, task, 0);
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE:
      return made(tid, task, status);
    case PTRACE_EVENT_EXEC:
      return execed(tid, task, status);
    case PTRACE_EVENT_EXIT: {
      unsigned long message = 0;
      ptrace(PTRACE_GETEVENTMSG, tid, nullptr, &message);
      task.exiting = true;
      const bool last = std::none_of(tasks.begin(), tasks.end(), [&](const auto& other) {
        return other.second.process == task.process && !other.second.exiting;
      });
      return hand_out(
          task, Exiting{tid, task.process, static_cast<int>(message), tid == task.process || last});
    }
    case PTRACE_EVENT_SECCOMP: {
      const auto call = call_in_progress(tid);
      // Killed meanwhile.
      if (!call) return restart(tid, task, 0);
      task.stop = Stop::kEntry;
      if (call->audit_arch == kNative.audit_arch) behind_call[task.process] = call->pc;
      return hand_out(task,
                      SyscallEntry{tid, task.process, native_number(call->audit_arch, call->nr),
                                   call->args, has_short_time(call->audit_arch, call->nr)});
    }
    case 0:
      break;
    default:
      return restart(tid, task, 0);
  }
  const bool may_be_ours = task.watched || task.stepping || task.step_owed;
  if (signo == SIGTRAP && may_be_ours && trapped(tid, task, attempt)) return;
  if (signo != (SIGTRAP | 0x80)) {
    task.stop = Stop::kSignal;
    return hand_out(task, SignalStop{tid, task.process, signo});
  }
  if (!task.to_exit) return restart(tid, task, 0);
  const auto info = syscall_info(tid);
  if (info && info->op == PTRACE_SYSCALL_INFO_EXIT) {
    task.to_exit = false;
    return hand_out(task,
                    SyscallExit{tid, task.process, info->exit.rval, info->instruction_pointer});
  }
  const auto registers = call_registers(tid);
  if (info || !registers) return restart(tid, task, 0);
  task.to_exit = false;
  hand_out(task, SyscallExit{tid, task.process, registers->result, registers->pc});
}

// Whether the SIGTRAP is ours: from a single-step or a watchpoint.
bool Tracer::State::trapped(pid_t tid, Task& task, const Attempt& ended) {
  siginfo_t info{};
  if (ptrace(PTRACE_GETSIGINFO, tid, nullptr, &info) != 0) return false;
  if (reached_breakpoint(tid, task, info, ended)) return true;
  if (task.stepping || task.step_owed) {
    if (const auto end = step_end(tid, info, task.call_ended_at)) {
      task.step_owed = false;
      task.call_ended_at = end->trap == arch::StepTrap::kEndOfCall ? end->pc : 0;
      if (end->trap == arch::StepTrap::kEmptyStep && task.stepping) {
        restart(tid, task, 0);
        return true;
      }
      // If a step touches a watched word, one trap reports both.
      const bool stale = std::exchange(task.stale_hit, false);
      const auto hit = task.watched ? arch::take_touched(tid, info) : std::nullopt;
      const auto touched = static_cast<std::uint8_t>((hit && !stale ? hit->words : 0) |
                                                     std::exchange(task.to_touch, 0));
      if (task.stepping) {
        hand_out(task, Stepped{tid, task.process, touched, end->pc});
      } else if (touched != 0) {
        hand_out(task, WatchpointHit{tid, task.process, touched, end->pc});
      } else {
        // From a call that was interrupted during a step: the trap comes after that stop, although
        // the thread was resumed without a step.
        restart(tid, task, 0);
      }
      return true;
    }
  }
  if (info.si_code != TRAP_HWBKPT || !task.watched) return false;
  const bool stale = std::exchange(task.stale_hit, false);
  // A program can forge such a signal: then no word is touched.
  const auto hit = arch::take_touched(tid, info);
  if (!hit) {
    // If traps come before the store, one may also be about words that are no longer watched.
    const bool is_late = stale || arch::native::kTrapsBeforeStore;
    if (is_late) restart(tid, task, 0);
    return is_late;
  }
  if (arch::native::kTrapsBeforeStore) {
    const auto registers = call_registers(tid);
    if (registers && !registers->compat &&
        begin_attempt(tid, task, arch::attempt_to(tid, registers->pc))) {
      // After this trap the store fails, and the breakpoint after it tells so.
    } else if (registers && arch::disable_watches(tid)) {
      task.touch(hit->words, registers->pc);
      if (!hit->in_full) task.before_store = values_of(tid, task.watches);
    }
    restart(tid, task, 0);
    return true;
  }
  // si_addr is the program counter.
  hand_out(task, WatchpointHit{tid, task.process, hit->words,
                               reinterpret_cast<std::uint64_t>(info.si_addr)});
  return true;
}

// Makes the thread run, when it is resumed, until the attempt is over.
bool Tracer::State::begin_attempt(pid_t tid, Task& task, const Attempt& attempt) {
  if (!attempt) return false;
  if (task.armed && !arch::disable_watches(tid)) return false;
  if (!arch::set_breakpoints(tid, std::span(attempt->exits).first(attempt->exit_count))) {
    arch::clear_breakpoints(tid);
    if (task.armed) arch::enable_watches(tid);
    return false;
  }
  task.attempt = attempt;
  task.attempt_began = Clock::now();
  task.next_attempt = 0;
  return true;
}

// The same, for a thread that is to be stepped.
void Tracer::State::begin_attempt_here(pid_t tid, Task& task) {
  if (!arch::native::kHasExclusives || task.long_attempts >= kLongAttempts) return;
  const auto registers = call_registers(tid);
  if (!registers || registers->compat) return;
  begin_attempt(tid, task, arch::attempt_from(tid, registers->pc));
}

// Whether the SIGTRAP is that of a breakpoint at the end of an attempt, or at its next one.
bool Tracer::State::reached_breakpoint(pid_t tid, Task& task, const siginfo_t& info,
                                       const Attempt& ended) {
  if (info.si_code != TRAP_HWBKPT || (!ended && task.next_attempt == 0)) return false;
  const auto registers = call_registers(tid);
  if (!registers || registers->pc != reinterpret_cast<std::uint64_t>(info.si_addr)) return false;
  const std::uint64_t pc = registers->pc;
  if (ended) {
    const auto exits = std::span(ended->exits).first(ended->exit_count);
    if (std::ranges::find(exits, pc) == exits.end()) return false;
    const auto words = std::exchange(task.to_touch, 0);
    if (task.stepping) {
      hand_out(task, Stepped{tid, task.process, words, pc});
      return true;
    }
    if (words != 0) {
      hand_out(task, WatchpointHit{tid, task.process, words, pc});
      return true;
    }
    const bool failed = arch::result_of(tid, *ended).outcome == arch::Attempted::kFailed;
    if (failed && arch::set_breakpoints(tid, std::array{ended->load})) {
      task.next_attempt = ended->load;
    }
  } else if (pc == task.next_attempt) {
    arch::clear_breakpoints(tid);
    task.next_attempt = 0;
    if (!task.stepping) begin_attempt(tid, task, arch::attempt_from(tid, pc));
  } else {
    return false;
  }
  restart(tid, task, 0);
  return true;
}

// A spin lock's attempt goes on until another thread releases it.
void Tracer::State::interrupt_attempts() {
  if (!arch::native::kHasExclusives) return;
  const auto now = Clock::now();
  for (auto& [tid, task] : tasks) {
    if (!task.attempt || task.attempt_is_over || task.at != At::kRunning) continue;
    if (now - task.attempt_began < kAttemptPatience) continue;
    task.attempt_is_over = true;
    ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  }
}

void Tracer::State::made(pid_t maker_tid, Task& maker, int status) {
  const auto message = event_message(maker_tid, status);
  if (message && *message > 0 && *message <= INT_MAX) {
    const auto tid = static_cast<pid_t>(*message);
    const bool thread = is_other_thread_of(maker.process, tid);
    const auto kinship = thread ? Kinship{.process = maker.process} : kinship_of(tid);
    const auto first = unclaimed.find(tid);
    if (const auto known = tasks.find(tid); known != tasks.end()) {
      // Already announced because this event came late.
    } else if (killed && kinship) {
      adopt_silently(tid);
      if (first != unclaimed.end()) unclaimed.erase(first);
    } else if (kinship) {
      auto& task = tasks[tid];
      task.process = kinship->process;
      task.at = At::kStarting;
      task.maker = maker.process;
      if (kinship->process == tid) {
        task.shares_memory = shares_memory_with_maker(maker_tid);
        task.maker_tid = maker_tid;
        task.how = event_of(status) == PTRACE_EVENT_VFORK  ? "vfork"
                   : event_of(status) == PTRACE_EVENT_FORK ? "fork"
                                                           : "clone";
      }
      if (first != unclaimed.end()) {
        const int first_status = first->second.status;
        unclaimed.erase(first);
        announce(tid, task, first_status);
      }
    }
  }
  restart(maker_tid, maker, 0);
}

void Tracer::State::announce(pid_t tid, Task& task, int status) {
  task.at = At::kStopped;
  if (event_of(status) == PTRACE_EVENT_STOP) {
    task.in_group_stop = is_group_stop(status);
  } else {
    task.held = status;  // killed before it could stop
  }
  if (task.process == tid) births.push_back(tid);
  hand_out(task,
           NewTask{tid, task.process, task.maker, task.shares_memory, task.maker_tid, task.how});
}

void Tracer::State::first_stop(pid_t tid, int status) {
  if (killed) return adopt_silently(tid);
  unclaimed[tid] = {status, Clock::now()};
}

// A maker that is killed between its clone and the stop for it reports nothing.
void Tracer::State::announce_overdue() {
  const auto now = Clock::now();
  for (auto it = unclaimed.begin(); it != unclaimed.end();) {
    const pid_t tid = it->first;
    const auto kinship = kinship_of(tid);
    if (!kinship) {  // its end follows
      it = unclaimed.erase(it);
      continue;
    }
    const pid_t maker = kinship->process == tid ? kinship->parent : kinship->process;
    const bool maker_lives = tasks.contains(maker);
    if (maker_lives && now - it->second.since < kMakerPatience) {
      ++it;
      continue;
    }
    const int status = it->second.status;
    it = unclaimed.erase(it);
    auto& task = tasks[tid];
    task.process = kinship->process;
    task.maker = maker_lives ? maker : 0;
    announce(tid, task, status);
  }
}

void Tracer::State::adopt_silently(pid_t tid) {
  auto& task = tasks[tid];
  task.silent = true;
  const auto kinship = kinship_of(tid);
  task.process = kinship ? kinship->process : tid;
  end_stop(tid);
}

// SIGKILL ends every stop except the exit stop.
void Tracer::State::end_stop(pid_t tid) {
  const auto it = tasks.find(tid);
  kill(it == tasks.end() ? tid : it->second.process, SIGKILL);
  ptrace(PTRACE_CONT, tid, nullptr, nullptr);
}

void Tracer::State::execed(pid_t pid, Task& task, int status) {
  const auto message = event_message(pid, status);
  std::erase_if(
      tasks, [&](const auto& other) { return other.second.process == pid && other.first != pid; });
  behind_call.erase(pid);
  task.exiting = false;
  task.to_exit = false;
  task.stepping = false;
  task.step_owed = false;
  task.call_ended_at = 0;
  task.watched = false;
  task.armed = false;
  task.stale_hit = false;
  task.forget_store();
  task.long_attempts = 0;
  task.next_attempt = 0;
  hand_out(task, Execed{pid, message ? static_cast<pid_t>(*message) : pid});
}

void Tracer::State::ended(pid_t pid, int status) {
  unclaimed.erase(pid);
  const auto it = tasks.find(pid);
  if (it == tasks.end()) {
    // A child of ours that is not traced, or a task that ended before it was announced.
    deposit_status(pid, status);
    return;
  }
  const Task task = it->second;
  if (task.process != pid) {
    tasks.erase(it);
    return;
  }
  std::erase_if(tasks, [&](const auto& other) { return other.second.process == pid; });
  behind_call.erase(pid);
  const bool announced = std::erase(births, pid) != 0;
  if (!announced) return;
  Gone gone{pid, std::nullopt, std::nullopt};
  if (WIFEXITED(status)) {
    gone.exit_code = WEXITSTATUS(status);
  } else {
    gone.killed_by = WTERMSIG(status);
  }
  events.emplace_back(gone);
}

void Tracer::State::restart(pid_t tid, Task& task, int signo) {
  const bool steps = !task.in_group_stop && !task.to_exit && moves_by_step(task);
  if (steps && !task.attempt && task.to_touch == 0 && task.store_at == 0 && signo == 0)
    begin_attempt_here(tid, task);
  const auto request = task.in_group_stop       ? PTRACE_LISTEN
                       : task.to_exit           ? PTRACE_SYSCALL
                       : steps && !task.attempt ? PTRACE_SINGLESTEP
                                                : PTRACE_CONT;
  task.at = task.in_group_stop ? At::kListening : At::kRunning;
  task.stop = Stop::kOther;
  // If waitpid has not returned this stop yet (after a SIGKILL), we must not resume the task. For a
  // step we skip the check: it costs a tenth of the step, and a SIGKILL within a step is very rare.
  int status = 0;
  if (request != PTRACE_SINGLESTEP && waitpid(tid, &status, WNOHANG | __WALL) == tid) {
    raw.emplace_back(tid, status);
    return;
  }
  // SIGKILL ends this stop by itself, and we must not resume the exit stop that follows.
  if (killed && !task.exiting) return;
  // A stop of any kind cancels an earlier interrupt request.
  if (task.interrupting && !task.in_group_stop) ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  shake(request == PTRACE_SINGLESTEP ? kShakenSteps : kShakenStops);
  // ESRCH: killed, and its events follow.
  const long signal_to_deliver = signo;
  ptrace(request, tid, nullptr, signal_to_deliver);
  task.step_owed = task.step_owed || request == PTRACE_SINGLESTEP;
  if (request != PTRACE_SINGLESTEP || signo != 0) task.call_ended_at = 0;
  just_resumed = true;
  just_stepped = steps ? tid : 0;
}

// The quickest way to let a tracee run. But while others want the processor, the kernel gives it
// back only after milliseconds to a thread that yields, and at once to one that slept. False: sleep
// instead.
bool Tracer::State::yield() {
  const auto begin = Clock::now();
  if (begin < busy_until) return false;
  sched_yield();
  const auto end = Clock::now();
  if (end - begin > kSlowYield) busy_until = end + kBusy;
  return true;
}

// A full round through tasks and clocks would take as long as the step itself.
void Tracer::State::await_step() {
  const pid_t tid = std::exchange(just_stepped, 0);
  if (tid == 0 || !raw.empty() || ++steps_in_a_row % kStepsInARow == 0) return;
  constexpr int kYields = 200;
  constexpr int kSleeps = 2;  // SIGCHLD may be pending, for a stop that was taken
  int sleeps = 0;
  for (int yields = 0; yields < kYields && sleeps < kSleeps; ++yields) {
    if (!yield()) {
      signals.sleep_for_children(Clock::now() + kStepPatience);
      ++sleeps;
    }
    int status = 0;
    if (waitpid(tid, &status, WNOHANG | __WALL) == tid) {
      raw.emplace_back(tid, status);
      return;
    }
  }
}

std::set<pid_t> Tracer::State::all_processes() const {
  std::set<pid_t> out;
  for (const auto& [tid, task] : tasks) out.insert(task.process);
  for (const auto& [tid, first] : unclaimed) {
    if (const auto kinship = kinship_of(tid)) out.insert(kinship->process);
  }
  return out;
}

void Tracer::State::kill_all() {
  killed = true;
  for (auto& [tid, task] : tasks) {
    if (task.at == At::kStarting) task.silent = true;
  }
  for (const pid_t pid : all_processes()) kill(pid, SIGKILL);
  const auto waiting = std::move(unclaimed);
  unclaimed.clear();
  for (const auto& [tid, first] : waiting) adopt_silently(tid);
}

// Descendants that are not tasks (CLONE_UNTRACED, or forked by a task that was killed at that
// moment) become children of this process when their parents end. True if none is left.
bool Tracer::State::end_leftovers() {
  bool none = true;
  for (const pid_t pid : children_of_this_process()) {
    if (earlier_children.contains(pid) || is_registered_child(pid)) continue;
    none = false;
    kill(pid, SIGKILL);
    int status = 0;
    // If it is traced (forked by a task that was killed at that moment), it stops once more at its
    // exit.
    if (waitpid(pid, &status, WNOHANG | __WALL) == pid && !has_ended(status)) end_stop(pid);
  }
  return none;
}

bool Tracer::State::end_all() {
  const auto limit = Clock::now() + kEndLimit;
  auto deadline = Clock::now() + kEndDeadline;
  kill_all();
  for (auto& [tid, task] : tasks) {
    task.silent = true;
    if (task.at == At::kStopped) end_stop(tid);
  }
  births.clear();
  while (true) {
    // Taken before the check: time that we then wait for a processor is not the tasks' fault.
    const auto now = Clock::now();
    // One by one: waitpid goes through all tasks that have not ended, the youngest first.
    pid_t pid = 0;
    int status = 0;
    bool children = true;
    if (!raw.empty()) {
      std::tie(pid, status) = raw.front();
      raw.pop_front();
    } else {
      pid = waitpid(-1, &status, WNOHANG | __WALL);
      children = pid >= 0 || errno == EINTR;
    }
    // Thousands of tasks take long on a busy machine, but each has only a stop or two left. A
    // process that is not a task may keep forking, so it does not extend the deadline.
    if (tasks.contains(pid)) deadline = now + kEndDeadline;
    if (pid > 0) dispatch(pid, status);
    events.clear();
    if ((!children || tasks.empty()) && end_leftovers()) break;
    if (now >= std::min(deadline, limit)) return false;
    if (pid <= 0) signals.sleep_for_children(deadline);
  }
  tasks.clear();
  return true;
}

Result<> Tracer::State::release(pid_t process) {
  if (!tasks.contains(process)) return fail("release", ESRCH, pid_text(process));
  const auto deadline = Clock::now() + kEndDeadline;
  std::set<pid_t> stopped;
  // Threads that are created meanwhile stop before they run.
  for (bool more = true; more;) {
    more = false;
    CTX_ASSIGN_OR_RETURN(threads, thread_list(process));
    for (const pid_t tid : threads) {
      // A leader that has ended before the other threads stays a zombie.
      const auto task = tasks.find(tid);
      const bool left = task != tasks.end() && task->second.exiting && !task->second.handed_out;
      if (left || stopped.contains(tid)) continue;
      more = true;
      int status = 0;
      if (!call_registers(tid)) {  // it is running
        ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
        waitpid(tid, &status, WNOHANG | __WALL);
      }
      if (!call_registers(tid)) continue;
      arch::disable_watches(tid);
      if (arch::native::kHasExclusives) arch::clear_breakpoints(tid);
      stopped.insert(tid);
    }
    if (more && Clock::now() >= deadline) return fail("release", ETIMEDOUT, pid_text(process));
    if (more) signals.sleep_for_children(Clock::now() + milliseconds(1));
  }
  // The signal is pending, so each thread stops before its next instruction.
  if (kill(process, SIGSTOP) != 0) return fail("release", errno, pid_text(process));
  for (const pid_t tid : stopped) ptrace(PTRACE_DETACH, tid, nullptr, nullptr);
  std::erase_if(tasks, [&](const auto& task) { return task.second.process == process; });
  std::erase_if(raw, [&](const auto& status) { return stopped.contains(status.first); });
  for (const pid_t tid : stopped) unclaimed.erase(tid);
  std::erase(births, process);
  earlier_children.insert(process);
  return {};
}

Tracer::Tracer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tracer::Tracer(Tracer&&) noexcept = default;
Tracer& Tracer::operator=(Tracer&& other) noexcept {
  if (this != &other) {
    if (state_) state_->end_all();
    state_ = std::move(other.state_);
  }
  return *this;
}
Tracer::~Tracer() {
  if (state_) state_->end_all();
}

Result<Tracer> Tracer::launch(const Launch& launch, const std::string& trampoline) {
  if (tracee_exists.exchange(true)) return fail("launch", EBUSY, "another program is traced");
  auto state = std::make_unique<State>();
  CTX_RETURN_IF_ERROR(state->start(launch, trampoline));
  return Tracer(std::move(state));
}

pid_t Tracer::root() const { return state_->root; }
bool Tracer::interrupted() const { return state_->interrupted; }

Result<std::optional<TraceEvent>> Tracer::next(Clock::time_point deadline) {
  auto& s = *state_;
  // Covers a busy series of events; the sleep below checks by itself.
  if (const auto now = Clock::now(); now - s.last_asked >= kWakeUpsAsked) {
    if (s.signals.take_wake_up()) {
      s.interrupted = true;
      return std::nullopt;
    }
    s.last_asked = now;
  }
  while (true) {
    if (!s.events.empty()) {
      const auto event = s.events.front();
      s.events.pop_front();
      if (!std::holds_alternative<Stepped>(event)) shake();
      return event;
    }
    // The only task has just been resumed: it first needs the processor, perhaps this one.
    s.await_step();
    if (std::exchange(s.just_resumed, false) && s.tasks.size() == 1 && s.raw.empty()) s.yield();
    bool children = true;
    if (s.raw.empty()) children = s.drain();
    if (!s.raw.empty()) {
      const auto [pid, status] = s.raw.front();
      s.raw.pop_front();
      s.dispatch(pid, status);
      s.last_raw = Clock::now();
      continue;
    }
    if (!children || (s.tasks.empty() && s.unclaimed.empty())) {
      // After a kill, a process that was forked at that moment may not have made its first stop
      // yet.
      if (!s.killed || s.end_leftovers()) return fail("wait", ECHILD, "nothing is left");
      if (Clock::now() >= deadline) return std::nullopt;
      s.signals.sleep_for_children(deadline);
      continue;
    }
    s.announce_overdue();
    s.interrupt_attempts();
    if (!s.events.empty()) continue;
    const auto now = Clock::now();
    if (now >= deadline || s.is_waker_ready()) return std::nullopt;
    if (now - s.last_raw < kSpin && s.yield()) continue;
    if (s.signals.sleep(deadline)) {
      s.interrupted = true;
      return std::nullopt;
    }
  }
}

Result<> Tracer::wake_for(int fd, short events) {
  auto& wakers = state_->wakers;
  const auto it = std::ranges::find(wakers, fd, &pollfd::fd);
  if (it != wakers.end()) {
    if (events == 0) {
      const int flags = fcntl(fd, F_GETFL);
      if (flags >= 0) fcntl(fd, F_SETFL, flags & ~O_ASYNC);
      wakers.erase(it);
    } else {
      it->events = events;
    }
    return {};
  }
  if (events == 0) return {};
  // As SIGCHLD, for which this thread waits anyway and which is ignored everywhere else.
  const f_owner_ex owner{F_OWNER_TID, gettid()};
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETOWN_EX, &owner) != 0 || fcntl(fd, F_SETSIG, SIGCHLD) != 0 ||
      fcntl(fd, F_SETFL, flags | O_ASYNC) != 0) {
    return fail("fcntl", errno, "");
  }
  wakers.push_back({.fd = fd, .events = events, .revents = 0});
  return {};
}

Result<> Tracer::resume(pid_t tid, int signo) { return state_->go_on(tid, signo, false); }
Result<> Tracer::step(pid_t tid, int signo) { return state_->go_on(tid, signo, true); }

Result<> Tracer::State::go_on(pid_t tid, int signo, bool stepping) {
  const auto it = tasks.find(tid);
  if (it == tasks.end()) return {};
  auto& task = it->second;
  if (!task.handed_out) return fail("resume", EINVAL, pid_text(tid) + " is not stopped");
  if (signo != 0 && task.stop != Stop::kSignal) {
    return fail("resume", EINVAL, pid_text(tid) + " is not at a signal");
  }
  task.handed_out = false;
  task.stepping = stepping;
  if (!stepping) task.long_attempts = 0;
  if (task.held) {
    raw.emplace_front(tid, *task.held);
    task.held.reset();
    return {};
  }
  restart(tid, task, signo);
  return {};
}

Result<> Tracer::resume_to_exit(pid_t tid) {
  auto& s = *state_;
  const auto it = s.tasks.find(tid);
  if (it == s.tasks.end()) return {};
  if (!it->second.handed_out || it->second.stop != State::Stop::kEntry) {
    return fail("resume to exit", EINVAL, pid_text(tid) + " is not at a system call");
  }
  it->second.to_exit = true;
  return resume(tid);
}

bool Tracer::is_ending(pid_t tid) const {
  const auto it = state_->tasks.find(tid);
  if (it == state_->tasks.end()) return true;
  const auto& held = it->second.held;
  return held && (has_ended(*held) || event_of(*held) == PTRACE_EVENT_EXIT);
}

Result<> Tracer::interrupt(pid_t tid) {
  const auto it = state_->tasks.find(tid);
  if (it == state_->tasks.end() || it->second.silent || it->second.exiting) return {};
  if (ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) != 0) {
    if (errno == ESRCH) return {};
    return fail("interrupt", errno, pid_text(tid));
  }
  it->second.interrupting = true;
  return {};
}

WatchedWords words_from(RemoteAddr first) {
  WatchedWords words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = RemoteAddr(first.raw() + i * kWordBytes);
  }
  return words;
}

Result<> Tracer::watch(pid_t tid, RemoteAddr first) { return watch(tid, words_from(first)); }

Result<> Tracer::watch(pid_t tid, const WatchedWords& words) {
  const auto it = state_->tasks.find(tid);
  if (it == state_->tasks.end()) return {};
  if (!it->second.handed_out) return fail("watch", EINVAL, pid_text(tid) + " is not stopped");
  const auto is_aligned = [](RemoteAddr a) { return a.raw() % kWordBytes == 0; };
  if (!std::ranges::all_of(words, is_aligned)) {
    return fail("watch", EINVAL, "the address is not aligned to 8");
  }
  // The trap of a store can still be pending after this stop.
  if (it->second.watched && arch::take_touched(tid) != 0) it->second.stale_hit = true;
  it->second.forget_store();
  it->second.watches = words;
  it->second.armed = false;
  if (arch::set_watches(tid, words)) {
    it->second.watched = true;
    it->second.armed = true;
    return {};
  }
  const int err = errno;
  if (err == ESRCH) return {};
  arch::disable_watches(tid);
  return fail(
      "debug registers", err,
      err == ENOSPC || err == EBUSY ? "perf or a kernel debugger holds them" : pid_text(tid));
}

Result<> Tracer::unwatch(pid_t tid) {
  const auto it = state_->tasks.find(tid);
  if (it == state_->tasks.end() || !it->second.watched) return {};
  if (!it->second.handed_out) return fail("unwatch", EINVAL, pid_text(tid) + " is not stopped");
  if (arch::disable_watches(tid)) {
    it->second.armed = false;
    if (std::exchange(it->second.next_attempt, 0) != 0) arch::clear_breakpoints(tid);
    it->second.watched = arch::may_be_due(tid);
    return {};
  }
  if (errno == ESRCH) return {};
  return fail("debug registers", errno, pid_text(tid));
}

// The next stop of a resumed thread, or its end; nothing if none came in time.
std::optional<int> Tracer::State::next_status(pid_t tid) {
  const auto deadline = Clock::now() + kCopyLimit;
  const auto spin_until = Clock::now() + kSpin;
  while (true) {
    int status = 0;
    const pid_t got = waitpid(tid, &status, WNOHANG | __WALL);
    if (got == tid) return status;
    const auto now = Clock::now();
    if ((got < 0 && errno != EINTR) || now >= deadline) return std::nullopt;
    if (now >= spin_until || !yield()) signals.sleep_for_children(deadline);
  }
}

// Resumes a thread that is about to clone until that call returns; the copy has stopped by then.
Result<pid_t> Tracer::State::make_copy(pid_t tid, Task& task, Late& late) {
  pid_t copy = 0;
  while (true) {
    ptrace(PTRACE_SYSCALL, tid, nullptr, nullptr);
    const auto status = next_status(tid);
    if (!status || has_ended(*status) || event_of(*status) == PTRACE_EVENT_EXIT) {
      if (copy != 0) kill_and_reap(copy);
      if (!status) return fail("clone", ETIMEDOUT, pid_text(tid));
      task.held = status;
      return fail("clone", ESRCH, pid_text(tid));
    }
    if (event_of(*status) == PTRACE_EVENT_CLONE) {
      if (const auto message = event_message(tid, *status)) copy = static_cast<pid_t>(*message);
      if (copy != 0 && !next_status(copy)) {
        kill_and_reap(copy);
        return fail("clone", ETIMEDOUT, pid_text(copy));
      }
    } else if (WSTOPSIG(*status) == (SIGTRAP | 0x80)) {
      const auto info = syscall_info(tid);
      if (!info || info->op != PTRACE_SYSCALL_INFO_EXIT) continue;
      if (copy != 0) return copy;
      // If a stop was requested meanwhile, the kernel would restart the call.
      constexpr int kFirstRestart = 512;
      const auto err = static_cast<int>(-info->exit.rval);
      return fail("clone", err < kFirstRestart ? err : EINTR, pid_text(tid));
    } else {
      late.note(*status);  // all other signals are blocked
    }
  }
}

Result<> Tracer::State::with_copy(pid_t tid, Task& task, const std::function<void(pid_t)>& look) {
  const auto site = behind_call.find(task.process);
  if (site == behind_call.end()) return fail("clone", ENOENT, "no system call was seen");
  const auto kinship = kinship_of(task.process);
  if (!kinship || kinship->parent != getpid()) {
    return fail("clone", EPERM, "not a child of this process");
  }
  std::uint64_t mask = 0;
  const std::uint64_t all = ~std::uint64_t{0};
  const auto before = arch::registers(tid);
  if (!before && before.error().err != ENOTSUP) return std::unexpected(before.error());
  if (ptrace(PTRACE_GETSIGMASK, tid, sizeof mask, &mask) != 0) {
    return fail("ptrace registers", errno, pid_text(tid));
  }
  const std::uint64_t at = site->second - arch::native::kSyscallLength;
  errno = 0;
  const auto code = static_cast<std::uint32_t>(ptrace(PTRACE_PEEKTEXT, tid, at, nullptr));
  const bool at_entry = task.stop == Stop::kEntry;
  if (!before || errno != 0 || (code & arch::native::kSyscallMask) != arch::native::kSyscallCode ||
      (at_entry && decode(*before).pc != site->second)) {
    return fail("clone", ENOTSUP, "no system call instruction of 64-bit code");
  }
  // No exit signal, and not a child of the program.
  constexpr std::array<std::uint64_t, 5> kArguments = {CLONE_PARENT};
  if (ptrace(PTRACE_SETSIGMASK, tid, sizeof all, &all) != 0) {
    return fail("ptrace registers", errno, pid_text(tid));
  }
  CTX_RETURN_IF_ERROR(
      arch::set_registers(tid, with_call(*before, at_entry, at, SYS_clone, kArguments)));
  Late late;
  const auto copy = make_copy(tid, task, late);
  if (!copy && task.held) return {};  // it is ending
  if (!copy && copy.error().err == ETIMEDOUT) {
    kill(task.process, SIGKILL);
    return std::unexpected(copy.error());
  }
  if (copy) {
    look(*copy);
    kill_and_reap(*copy);
  }
  (void)arch::set_registers(tid, at_entry ? before_call(*before) : *before);
  while (at_entry) {
    ptrace(PTRACE_CONT, tid, nullptr, nullptr);
    const auto status = next_status(tid);
    if (!status) {
      kill(task.process, SIGKILL);
      return fail("clone", ETIMEDOUT, pid_text(tid));
    }
    if (has_ended(*status) || event_of(*status) == PTRACE_EVENT_EXIT) {
      task.held = status;
      return {};
    }
    if (event_of(*status) == PTRACE_EVENT_SECCOMP) break;
    late.note(*status);
  }
  ptrace(PTRACE_SETSIGMASK, tid, sizeof mask, &mask);
  if (late.interrupt) ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
  if (late.stop_signal) kill(task.process, SIGSTOP);
  if (!copy) return std::unexpected(copy.error());
  return {};
}

Result<> Tracer::with_copy(pid_t tid, const std::function<void(pid_t)>& look) {
  const auto it = state_->tasks.find(tid);
  if (it == state_->tasks.end()) return {};
  auto& task = it->second;
  if (!task.handed_out || task.held || task.exiting || task.stop == State::Stop::kSignal) {
    return fail("clone", EINVAL, pid_text(tid) + " is not stopped");
  }
  return state_->with_copy(tid, task, look);
}

Result<RemoteAddr> Tracer::thread_pointer(pid_t tid) const { return stopped_thread_pointer(tid); }

Result<SyscallEntry> Tracer::syscall_of(pid_t tid) const {
  const auto it = state_->tasks.find(tid);
  if (it == state_->tasks.end()) return fail("system call", ESRCH, pid_text(tid));
  CTX_ASSIGN_OR_RETURN(call, call_in_progress(tid));
  return SyscallEntry{tid, it->second.process, native_number(call.audit_arch, call.nr), call.args,
                      has_short_time(call.audit_arch, call.nr)};
}

Result<> Tracer::answer(pid_t tid, std::int64_t result) {
  const auto it = state_->tasks.find(tid);
  if (it == state_->tasks.end()) return {};
  const auto& task = it->second;
  if (!task.handed_out || task.stop != State::Stop::kEntry) {
    return fail("answer", EINVAL, pid_text(tid) + " is not at a system call");
  }
  auto answered = answer_call(tid, result);
  if (!answered && answered.error().err == ESRCH) return {};
  return answered;
}

Result<> Tracer::write(pid_t tid, RemoteAddr to, std::span<const std::byte> bytes) {
  const auto it = state_->tasks.find(tid);
  if (it == state_->tasks.end() || !it->second.handed_out) {
    return fail("write", EINVAL, pid_text(tid) + " is not stopped");
  }
  return write_memory(tid, to, bytes);
}

namespace {

using arch::native::kClockCall;
using arch::native::kVdsoClock;

// Makes the vDSO's clock_gettime at `base` a system call, in the process's own copy of that page.
// All programs of this width have the same vDSO as this one.
Result<> make_clock_calls(pid_t process, std::uint64_t base) {
  const auto own = static_cast<std::uint64_t>(getauxval(AT_SYSINFO_EHDR));
  void* const handle = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
  const void* const function = handle == nullptr ? nullptr : dlsym(handle, kVdsoClock);
  if (own == 0 || function == nullptr) return fail("hide vDSO", ENOENT, kVdsoClock);
  const std::uint64_t at = base + (reinterpret_cast<std::uintptr_t>(function) - own);
  for (std::size_t i = 0; i < kClockCall.size(); i += sizeof(long)) {
    long was = 0;
    long word = 0;
    std::memcpy(&was, static_cast<const std::byte*>(function) + i, sizeof was);
    std::memcpy(&word, kClockCall.data() + i, sizeof word);
    errno = 0;
    const long found = ptrace(PTRACE_PEEKTEXT, process, at + i, nullptr);
    if (found == -1 && errno != 0) return fail("PTRACE_PEEKTEXT", errno, pid_text(process));
    if (found != was) return fail("hide vDSO", ENOEXEC, pid_text(process));
    if (ptrace(PTRACE_POKETEXT, process, at + i, word) != 0) {
      return fail("PTRACE_POKETEXT", errno, pid_text(process));
    }
  }
  return {};
}

}  // namespace

Result<bool> Tracer::hide_vdso(pid_t process) {
  CTX_ASSIGN_OR_RETURN(registers, call_registers(process));
  InitialStack stack(process, registers);
  CTX_ASSIGN_OR_RETURN(arguments, stack.next());
  for (std::uint64_t i = 0; i <= arguments; ++i) CTX_RETURN_IF_ERROR(stack.next());
  while (true) {
    CTX_ASSIGN_OR_RETURN(variable, stack.next());
    if (variable == 0) break;
  }
  bool found = false;
  while (true) {
    const RemoteAddr at = stack.position();
    CTX_ASSIGN_OR_RETURN(type, stack.next());
    CTX_ASSIGN_OR_RETURN(value, stack.next());
    if (type == AT_NULL) return found;
    // 32-bit programs on x86 also use AT_SYSINFO to make system calls through it.
    if (type != AT_SYSINFO_EHDR && type != AT_SYSINFO) continue;
    const std::uint64_t ignore = AT_IGNORE;
    CTX_RETURN_IF_ERROR(
        write(process, at, std::as_bytes(std::span(&ignore, 1)).first(stack.word_size())));
    found = true;
    if (type == AT_SYSINFO_EHDR && stack.word_size() == sizeof(long)) {
      CTX_RETURN_IF_ERROR(make_clock_calls(process, value));
    }
  }
}

std::uint64_t Tracer::stops() const { return state_->stops; }

std::vector<pid_t> Tracer::processes() const { return state_->births; }

std::size_t Tracer::tasks() const {
  return static_cast<std::size_t>(
      std::count_if(state_->tasks.begin(), state_->tasks.end(), [](const auto& entry) {
        const auto& task = entry.second;
        return !task.silent && task.at != State::At::kStarting &&
               !(task.exiting && !task.handed_out);
      }));
}

Result<> Tracer::release(pid_t process) { return state_->release(process); }

void Tracer::signal_all(int signo) {
  if (signo == SIGKILL) return state_->kill_all();
  for (const pid_t pid : state_->all_processes()) kill(pid, signo);
}

Result<> Tracer::end() {
  if (state_->end_all()) return {};
  return fail("end", ETIMEDOUT, std::to_string(state_->tasks.size()) + " tasks are left");
}

bool is_under_way(const WatchpointHit& hit, std::uint64_t code) {
  return arch::stores_on(hit.tid, hit.pc, hit.words, code);
}

}  // namespace ctxconf::sys
