#include "conformance/puppet/player.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <variant>

#include "conformance/puppet/channel.h"
#include "sys/seccomp_filter.h"

namespace ctxconf::conformance::puppet {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kAtOnce = 4096;                      // bytes in one command
constexpr std::size_t kMostRead = std::size_t{1} << 20U;   // bytes of one operation
constexpr std::size_t kMostKept = std::size_t{64} << 20U;  // for all operations; the rest is cut

struct Command {
  PuppetCommand head{};
  Bytes bytes;
  int channel = -1;       // sent with it
  bool by_first = false;  // its first argument is the result of the first command
};

using Commands = std::deque<Command>;

// The commands of one operation of a thread, and its progress.
struct Work {
  std::size_t operation = 0;
  Commands left;  // the first one was sent
  std::optional<std::int64_t> first;
  Bytes bytes;
  bool begun = false;  // if it reports its start
};

// A thread and its channel.
struct Actor {
  sys::Fd channel;
  pid_t process = 0;  // its pid here
  std::string child;  // the name of its process in `fork`; empty: the first process
  std::string name;   // empty: the first thread of its process
  bool greeted = false;
  bool ended = false;  // or it runs another program
  std::optional<Work> work;
  std::vector<std::optional<Work>> interrupted;  // by its current handlers, innermost last
  std::optional<Step> finished;                  // its latest step
};

Command system_call(long number, std::initializer_list<std::uint64_t> args) {
  Command out;
  out.head.call = kPuppetSyscall;
  out.head.number = static_cast<std::uint32_t>(number);
  std::ranges::copy(args, out.head.args);
  return out;
}

Command own_call(PuppetCall call, std::initializer_list<std::uint64_t> args) {
  Command out;
  out.head.call = call;
  std::ranges::copy(args, out.head.args);
  return out;
}

// The argument becomes the address of a copy of these bytes in the process.
void point_at(Command& command, unsigned argument, const void* bytes, std::size_t size) {
  while (command.bytes.size() % alignof(std::uint64_t) != 0) command.bytes.push_back({});
  command.head.args[argument] = command.bytes.size();
  command.head.pointers |= 1U << argument;
  const auto* from = static_cast<const std::byte*>(bytes);
  command.bytes.insert(command.bytes.end(), from, from + size);
}
void point_at(Command& command, unsigned argument, const std::string& text) {
  point_at(command, argument, text.c_str(), text.size() + 1);
}

Step step_of(std::size_t operation, StepOutcome outcome = StepOutcome::kDone,
             std::int64_t result = 0) {
  return {.operation = operation, .outcome = outcome, .result = result, .bytes = {}};
}

bool is_error(std::uint32_t call, std::int64_t result) {
  if (call == kPuppetLoad || call == kPuppetClock) {
    return result < 0 && call == kPuppetClock && result > -4096;
  }
  return result < 0 && result > -4096;
}

void add_text(Command& command, const std::string& text) {
  const Bytes bytes = bytes_of(text);
  command.bytes.insert(command.bytes.end(), bytes.begin(), bytes.end());
  command.bytes.push_back(std::byte{0});
}

std::string process_name(const Actor& a) {
  return a.child.empty() ? "the process" : "the child \"" + a.child + "\"";
}

Commands one(Command command) {
  Commands out;
  out.push_back(std::move(command));
  return out;
}

std::uint64_t word(auto e) { return static_cast<std::uint64_t>(e); }

// The commands of an operation, with the numbers that its values have now.
class CommandsOf {
 public:
  CommandsOf(std::function<std::uint64_t(const Value&)> number, const std::string& programs)
      : number_(std::move(number)), programs_(programs) {}

  Commands operator()(const Memfd& w) const {
    Command c = system_call(SYS_memfd_create, {0, w.flags});
    point_at(c, 0, w.name);
    return one(std::move(c));
  }
  Commands operator()(const SecretMemfd& w) const { return one(system_call(447, {w.flags})); }
  Commands operator()(const Open& w) const {
    Command c = system_call(SYS_openat, {word(AT_FDCWD), 0, w.flags, w.mode});
    point_at(c, 1, w.path);
    return one(std::move(c));
  }
  Commands operator()(const Close& w) const { return one(system_call(SYS_close, {n(w.fd)})); }
  Commands operator()(const Truncate& w) const {
    return one(system_call(SYS_ftruncate, {n(w.fd), n(w.size)}));
  }
  Commands operator()(const Seal& w) const {
    return one(system_call(SYS_fcntl, {n(w.fd), F_ADD_SEALS, w.seals}));
  }
  Commands operator()(const Map& w) const {
    constexpr std::uint64_t kAnonymous = 0x20;
    return one(system_call(SYS_mmap, {n(w.at), n(w.size), w.prot, w.flags | (w.fd ? 0 : kAnonymous),
                                      w.fd ? n(*w.fd) : UINT64_MAX, n(w.offset)}));
  }
  Commands operator()(const Unmap& w) const {
    return one(system_call(SYS_munmap, {n(w.at), n(w.size)}));
  }
  Commands operator()(const Protect& w) const {
    return one(system_call(SYS_mprotect, {n(w.at), n(w.size), w.prot}));
  }
  Commands operator()(const Advise& w) const {
    return one(system_call(SYS_madvise, {n(w.at), n(w.size), w.advice}));
  }
  Commands operator()(const Remap& w) const {
    return one(system_call(SYS_mremap, {n(w.at), n(w.old_size), n(w.size), w.flags, n(w.to)}));
  }
  Commands operator()(const NameMapping& w) const {
    Command c = system_call(SYS_prctl, {sys::kPrSetVma, 0, n(w.at), n(w.size), 0});
    if (w.name) point_at(c, 4, *w.name);
    return one(std::move(c));
  }
  Commands operator()(const Withhold& w) const {
    Commands out;
    out.push_back(system_call(SYS_userfaultfd, {O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY}));
    Command api = system_call(SYS_ioctl, {0, UFFDIO_API});
    const uffdio_api version{.api = UFFD_API, .features = 0, .ioctls = 0};
    point_at(api, 2, &version, sizeof version);
    api.by_first = true;
    out.push_back(std::move(api));
    Command held = system_call(SYS_ioctl, {0, UFFDIO_REGISTER});
    const uffdio_register range{.range = {.start = n(w.at), .len = n(w.size)},
                                .mode = UFFDIO_REGISTER_MODE_MISSING,
                                .ioctls = 0};
    point_at(held, 2, &range, sizeof range);
    held.by_first = true;
    out.push_back(std::move(held));
    return out;
  }
  Commands operator()(const Give& w) const {
    Command c = system_call(SYS_ioctl, {n(w.fd), UFFDIO_ZEROPAGE});
    const uffdio_zeropage range{
        .range = {.start = n(w.at), .len = n(w.size)}, .mode = 0, .zeropage = 0};
    point_at(c, 2, &range, sizeof range);
    return one(std::move(c));
  }
  Commands operator()(const Store& w) const {
    Command c = own_call(kPuppetStore, {n(w.at), w.width, word(w.order)});
    c.bytes = w.bytes;
    if (c.bytes.empty()) {
      const std::uint64_t value = n(w.value);
      c.bytes.resize(std::max<std::size_t>(w.width, sizeof value));
      std::memcpy(c.bytes.data(), &value, sizeof value);
    }
    c.bytes.resize(32);
    return one(std::move(c));
  }
  Commands operator()(const Write& w) const {
    Commands out;
    const std::uint64_t at = n(w.at);
    for (std::size_t i = 0; i < w.bytes.size() || i == 0; i += kAtOnce) {
      Command c = own_call(kPuppetWrite, {at + i, word(w.how)});
      const auto size = std::min(kAtOnce, w.bytes.size() - i);
      c.bytes.assign(w.bytes.begin() + static_cast<std::ptrdiff_t>(i),
                     w.bytes.begin() + static_cast<std::ptrdiff_t>(i + size));
      out.push_back(std::move(c));
    }
    return out;
  }
  Commands operator()(const Fill& w) const {
    Command c = own_call(kPuppetFill, {n(w.at), word(w.how), n(w.size)});
    c.bytes = w.pattern;
    if (c.bytes.size() > kAtOnce) c.bytes.resize(kAtOnce);
    return one(std::move(c));
  }
  Commands operator()(const Copy& w) const {
    return one(own_call(kPuppetCopy, {n(w.to), word(w.how), n(w.size), n(w.from)}));
  }
  Commands operator()(const Repeat& w) const {
    Command c = own_call(kPuppetRepeat, {n(w.times), w.stores.size() / 4, n(w.spins)});
    for (const Value& v : w.stores) {
      const std::uint64_t each = n(v);
      const auto* const bytes = reinterpret_cast<const std::byte*>(&each);
      c.bytes.insert(c.bytes.end(), bytes, bytes + sizeof each);
    }
    return one(std::move(c));
  }
  Commands operator()(const Split& w) const {
    return one(own_call(kPuppetSplit, {n(w.at), n(w.size)}));
  }
  Commands operator()(const Crowd& w) const {
    return one(
        own_call(kPuppetCrowd, {n(w.count), n(w.records), n(w.stride), n(w.tids), n(w.stacks)}));
  }
  Commands operator()(const Alternate& w) const {
    return one(own_call(kPuppetAlternate,
                        {n(w.to), word(w.how), n(w.size), n(w.first), n(w.second), n(w.times)}));
  }
  Commands operator()(const Fence& w) const { return one(own_call(kPuppetFence, {word(w.kind)})); }
  Commands operator()(const Load& w) const {
    return one(own_call(kPuppetLoad, {n(w.at), w.width}));
  }
  Commands operator()(const ReadBack& w) const {
    Commands out;
    const std::uint64_t at = n(w.at);
    const std::uint64_t size = std::min<std::uint64_t>(n(w.size), kMostRead);
    for (std::uint64_t i = 0; i < size || i == 0; i += kAtOnce) {
      out.push_back(own_call(kPuppetRead, {at + i, std::min<std::uint64_t>(kAtOnce, size - i)}));
    }
    return out;
  }
  Commands operator()(const ReadClock& w) const { return one(own_call(kPuppetClock, {w.clock})); }
  Commands operator()(const Sleep& w) const {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    Command c = system_call(SYS_nanosleep, {0, 0});
    const std::uint64_t ns = n(w.ns);
    const timespec time{.tv_sec = static_cast<time_t>(ns / kSecond),
                        .tv_nsec = static_cast<long>(ns % kSecond)};
    point_at(c, 0, &time, sizeof time);
    return one(std::move(c));
  }
  Commands operator()(const Spin& w) const { return one(own_call(kPuppetSpin, {n(w.times)})); }
  Commands operator()(const Await& w) const {
    const std::uint64_t mask = w.width >= 8 ? UINT64_MAX : (1ULL << (8 * w.width)) - 1;
    return one(own_call(kPuppetAwait, {n(w.at), w.width, n(w.value) & mask}));
  }
  Commands operator()(const Signal& w) const {
    return one(system_call(w.process ? SYS_kill : SYS_tkill, {n(w.to), w.signal}));
  }
  Commands operator()(const Handle& w) const {
    return one(own_call(kPuppetHandle, {w.signal, word(w.action)}));
  }
  Commands operator()(const Mask& w) const {
    const std::uint64_t set = w.signal >= 1 && w.signal <= 64 ? 1ULL << (w.signal - 1) : 0;
    Command c = system_call(SYS_rt_sigprocmask,
                            {word(w.block ? SIG_BLOCK : SIG_UNBLOCK), 0, 0, sizeof set});
    point_at(c, 1, &set, sizeof set);
    return one(std::move(c));
  }
  Commands operator()(const Return& /*operation*/) const {
    return one(own_call(kPuppetReturn, {}));
  }
  Commands operator()(const WaitChild& w) const {
    Command c = system_call(SYS_wait4, {n(w.child), 0, 0, 0});
    const int status = 0;
    point_at(c, 1, &status, sizeof status);
    c.head.returned = sizeof status;
    return one(std::move(c));
  }
  Commands operator()(const Unshare& w) const { return one(system_call(SYS_unshare, {w.flags})); }
  Commands operator()(const SetSlot& w) const {
    return one(own_call(kPuppetSlot, {n(w.value), word(w.order), n(w.library)}));
  }
  Commands operator()(const SlotAddress& w) const {
    return one(own_call(kPuppetSlotAddress, {n(w.library)}));
  }
  Commands operator()(const ThreadPointer& /*operation*/) const {
    return one(own_call(kPuppetThreadPointer, {}));
  }
  Commands operator()(const LoadLibrary& w) const {
    Command c = own_call(kPuppetLoadLibrary, {word(w.copy)});
    const bool ours = !w.path.contains('/');
    add_text(c, ours ? programs_ + "/" + w.path : w.path);
    add_text(c, w.to);
    return one(std::move(c));
  }
  Commands operator()(const UnloadLibrary& w) const {
    return one(own_call(kPuppetUnload, {n(w.library)}));
  }
  Commands operator()(const Print& w) const {
    Commands out;
    for (std::size_t i = 0; i < w.text.size() || i == 0; i += kAtOnce) {
      const std::string piece = w.text.substr(i, kAtOnce);
      Command c = system_call(SYS_write, {STDOUT_FILENO, 0, piece.size()});
      point_at(c, 1, piece.data(), piece.size());
      out.push_back(std::move(c));
    }
    return out;
  }
  Commands operator()(const SystemCall& w) const {
    Command c = system_call(static_cast<long>(w.number), {});
    for (std::size_t i = 0; i < std::min<std::size_t>(w.args.size(), 6); ++i) {
      c.head.args[i] = n(w.args[i]);
    }
    return one(std::move(c));
  }
  // The others need more than commands.
  Commands operator()(const auto& /*operation*/) const { return {}; }

 private:
  std::uint64_t n(const Value& v) const { return number_(v); }

  std::function<std::uint64_t(const Value&)> number_;
  const std::string& programs_;
};

}  // namespace

class Player::State {
 public:
  State(const Script& script, PlayerOptions options, PlayerHost& host)
      : script_(script), options_(std::move(options)), host_(host) {}

  sys::Result<> start(sys::Fd channel);
  sys::Result<bool> play(std::size_t index);
  sys::Result<> wait_for_others();
  const Played& played() const { return out_; }
  std::optional<std::uint64_t> value_of(const Value& v) const;

 private:
  bool make(std::size_t index);  // false: the script stops
  bool wants(const Operation& o) const;
  bool stop(std::size_t index, const std::string& why);
  bool say(Step step);  // false: see play()
  bool lost(std::size_t index, const Actor& actor);
  bool refused(std::size_t index, int err);

  std::uint64_t number(const Value& v);
  Actor* find(const Operation& o);
  std::optional<Actor> new_actor(Command& command, sys::Fd& theirs);

  void begin(std::size_t index, Actor& actor, Commands commands);
  void send_next(Actor& actor);
  void take_answers();
  void take_answer(Actor& actor);
  void finish(Actor& actor, std::int64_t result, bool is_refused);
  template <class Condition>
  bool wait(Condition is_done, milliseconds within);
  bool lives(pid_t process) const { return host_.lives(process); }
  bool is_over(const Actor& actor) const {
    return !actor.work || actor.ended || !lives(actor.process);
  }

  bool make_thread(std::size_t index, Actor& maker, const NewThread& thread);
  bool make_child(std::size_t index, Actor& maker, const Fork& fork);
  bool exec(std::size_t index, Actor& actor, const Exec& exec);
  bool exit(std::size_t index, Actor& actor, const Exit& exit);
  bool exit_thread(std::size_t index, Actor& actor);
  bool join(std::size_t index, Actor& actor);
  bool await(std::size_t index, Actor& actor);

  const Script& script_;
  const PlayerOptions options_;
  PlayerHost& host_;
  Played out_;
  std::map<std::string, std::uint64_t, std::less<>> results_ = {
      {"page", static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))}};
  std::deque<Actor> actors_;
  std::uint64_t areas_ = 1;
  std::size_t kept_ = 0;  // bytes read
  bool missing_ = false;  // a requested value does not exist
  bool all_ended_ = false;
  std::optional<sys::Error> fault_;
};

std::optional<std::uint64_t> Player::State::value_of(const Value& v) const {
  std::uint64_t out = v.constant();
  for (const auto& term : v.terms()) {
    const auto it = results_.find(term.name);
    if (it == results_.end()) return std::nullopt;
    out = term.minus ? out - it->second : out + it->second;
  }
  return out;
}

std::uint64_t Player::State::number(const Value& v) {
  const auto known = value_of(v);
  missing_ = missing_ || !known;
  return known.value_or(0);
}

Actor* Player::State::find(const Operation& o) {
  for (Actor& a : actors_) {
    if (a.ended) continue;
    if (o.on.empty() ? (a.name.empty() && a.child == o.in) : a.name == o.on) return &a;
  }
  return nullptr;
}

bool Player::State::stop(std::size_t index, const std::string& why) {
  if (!out_.problem) {
    out_.problem = {.line = index,
                    .text = std::string(script_.operations[index].name()) + ": " + why};
  }
  return false;
}

bool Player::State::say(Step step) {
  const Operation& o = script_.operations[step.operation];
  const bool has_result = step.outcome == StepOutcome::kDone;
  if (has_result && !o.as.empty()) results_[o.as] = static_cast<std::uint64_t>(step.result);
  if (!has_result && step.outcome != StepOutcome::kSkipped && step.outcome != StepOutcome::kBegun &&
      !o.as.empty()) {
    results_.erase(o.as);
  }
  if (options_.told) options_.told(step);
  const auto earlier = std::ranges::find(out_.steps, step.operation, &Step::operation);
  if (earlier == out_.steps.end()) {
    out_.steps.push_back(std::move(step));
  } else {
    *earlier = std::move(step);
  }
  return true;
}

bool Player::State::lost(std::size_t index, const Actor& actor) {
  const Operation& o = script_.operations[index];
  say(step_of(index, StepOutcome::kLost));
  if (o.may_fail) return true;
  return stop(index, process_name(actor) + " ended before it answered");
}

bool Player::State::refused(std::size_t index, int err) {
  if (script_.operations[index].may_fail) return true;
  return stop(index, std::string(std::strerror(err)) +
                         "; if the program continues anyway, add \"may_fail\":true");
}

// Handles events of the recording until the condition holds; false: not in time.
template <class Condition>
bool Player::State::wait(Condition is_done, milliseconds within) {
  host_.begin_wait();
  const auto scaled = std::chrono::duration_cast<Clock::duration>(within * options_.timeout_scale);
  const auto deadline = Clock::now() + scaled;
  const auto late = host_.late();
  while (true) {
    take_answers();
    if (is_done()) return true;
    if (all_ended_ || fault_) return false;
    if (host_.interrupted()) {
      out_.interrupted = true;
      return false;
    }
    const auto until = deadline + (host_.late() - late);
    if (!host_.runaway().empty() || Clock::now() >= until) return false;
    const auto more = host_.step(until);
    if (!more) {
      fault_ = more.error();
      return false;
    }
    all_ended_ = !*more;
  }
}

void Player::State::take_answers() {
  std::vector<pollfd> channels;
  for (const Actor& a : actors_) {
    if (a.channel.is_open())
      channels.push_back({.fd = a.channel.get(), .events = POLLIN, .revents = 0});
  }
  if (poll(channels.data(), channels.size(), 0) <= 0) return;
  for (const pollfd& c : channels) {
    if (c.revents == 0) continue;
    for (Actor& a : actors_) {
      if (a.channel.get() == c.fd) take_answer(a);
    }
  }
}

void Player::State::take_answer(Actor& actor) {
  PuppetAnswer head{};
  Bytes bytes(kPuppetBytes);
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred))> control{};
  std::array<iovec, 2> parts = {iovec{&head, sizeof head}, iovec{bytes.data(), bytes.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(actor.channel.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < static_cast<ssize_t>(sizeof head)) {
    // The other end is closed everywhere.
    (void)host_.wake_for(actor.channel.get(), 0);
    actor.channel.reset();
    return;
  }
  bytes.resize(static_cast<std::size_t>(got) - sizeof head);
  if (head.result == PUPPET_HELLO) {
    const cmsghdr* const about = CMSG_FIRSTHDR(&message);
    if (about != nullptr && about->cmsg_type == SCM_CREDENTIALS) {
      ucred from{};
      std::memcpy(&from, CMSG_DATA(about), sizeof from);
      actor.process = from.pid;
    }
    actor.greeted = true;
    return;
  }
  if (head.result == PUPPET_HANDLER || head.result == PUPPET_HANDLER_IDLE) {
    // A script may nest handlers without end, but our memory is limited.
    if (actor.interrupted.size() > 1000) return;
    // An operation that was sent to an idle thread runs in the handler.
    const bool idle = head.result == PUPPET_HANDLER_IDLE;
    actor.interrupted.push_back(idle ? std::nullopt : std::exchange(actor.work, std::nullopt));
    return;
  }
  if (!actor.work || actor.work->left.empty()) return;  // the script forged this message
  if (head.result == PUPPET_BEGINS) {
    actor.work->begun = true;
    return;
  }
  Work& work = *actor.work;
  const Command sent = std::move(work.left.front());
  work.left.pop_front();
  work.bytes.insert(work.bytes.end(), bytes.begin(), bytes.end());
  const bool is_refused = is_error(sent.head.call, head.result);
  if (!work.first) work.first = head.result;
  if (!is_refused && !work.left.empty()) {
    if (work.left.front().by_first) {
      work.left.front().head.args[0] = static_cast<std::uint64_t>(*work.first);
    }
    return send_next(actor);
  }
  finish(actor, is_refused ? head.result : *work.first, is_refused);
}

void Player::State::finish(Actor& actor, std::int64_t result, bool is_refused) {
  const Work work = *std::exchange(actor.work, std::nullopt);
  Step step =
      step_of(work.operation, is_refused ? StepOutcome::kRefused : StepOutcome::kDone, result);
  const Operation& o = script_.operations[work.operation];
  if (std::holds_alternative<ReadBack>(o.what)) {
    step.bytes = work.bytes;
    step.bytes.resize(std::min(step.bytes.size(), kMostKept - kept_));
    kept_ += step.bytes.size();
  }
  if (std::holds_alternative<WaitChild>(o.what) && work.bytes.size() >= sizeof(int) &&
      !is_refused) {
    int status = 0;
    std::memcpy(&status, work.bytes.data(), sizeof status);
    step.result = status;
  }
  actor.finished = step;
  say(step);
  if (is_refused && o.later) refused(work.operation, static_cast<int>(-result));
  if (std::holds_alternative<Return>(o.what) && !actor.interrupted.empty()) {
    actor.work = std::move(actor.interrupted.back());
    actor.interrupted.pop_back();
  }
}

void Player::State::send_next(Actor& actor) {
  Command& command = actor.work->left.front();
  command.head.bytes = static_cast<std::uint32_t>(command.bytes.size());
  std::array<iovec, 2> parts = {iovec{&command.head, sizeof command.head},
                                iovec{command.bytes.data(), command.bytes.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (command.channel >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const about = CMSG_FIRSTHDR(&message);
    about->cmsg_level = SOL_SOCKET;
    about->cmsg_type = SCM_RIGHTS;
    about->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(about), &command.channel, sizeof command.channel);
  }
  // The channel is full or closed: no answer comes, and the step will say that.
  (void)sendmsg(actor.channel.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Player::State::begin(std::size_t index, Actor& actor, Commands commands) {
  actor.finished.reset();
  actor.work = Work{.operation = index, .left = std::move(commands), .first = {}, .bytes = {}};
  send_next(actor);
}

// `theirs`: the other end of its channel, which is sent with the command.
std::optional<Actor> Player::State::new_actor(Command& command, sys::Fd& theirs) {
  auto channel = new_channel();
  if (!channel) {
    fault_ = channel.error();
    return std::nullopt;
  }
  theirs = std::move(channel->theirs);
  command.channel = theirs.get();
  Actor out;
  out.channel = std::move(channel->ours);
  if (auto woken = host_.wake_for(out.channel.get(), POLLIN); !woken) fault_ = woken.error();
  return out;
}

// Waits for the answer to the operation; false: the script stops.
bool Player::State::await(std::size_t index, Actor& actor) {
  // 65,000 mappings or 2,000 threads take seconds where many programs want a processor.
  const auto& what = script_.operations[index].what;
  const bool is_large = std::holds_alternative<Split>(what) || std::holds_alternative<Crowd>(what);
  const auto limit = options_.operation_within * (is_large ? 12 : 1);
  if (wait([&] { return is_over(actor); }, limit)) {
    if (actor.finished && actor.finished->operation == index) {
      const Step& step = *actor.finished;
      if (step.outcome != StepOutcome::kRefused) return true;
      return refused(index, static_cast<int>(-step.result));
    }
    if (!actor.work) return true;  // a handler replaced it
    actor.ended = true;
    return lost(index, actor);
  }
  if (all_ended_) return lost(index, actor);
  if (out_.interrupted || fault_) return false;
  say(step_of(index, StepOutcome::kUnanswered));
  const auto within = std::chrono::duration_cast<milliseconds>(limit * options_.timeout_scale);
  return stop(index, host_.runaway().empty()
                         ? "no answer in " + std::to_string(within.count()) + " ms"
                         : host_.runaway());
}

bool Player::State::make_thread(std::size_t index, Actor& maker, const NewThread& thread) {
  Command command = own_call(kPuppetThread, {areas_, thread.tls ? 1U : 0U});
  if (areas_ >= kPuppetAreas) return stop(index, "a script has at most 63 threads and vforks");
  ++areas_;
  sys::Fd theirs;
  auto actor = new_actor(command, theirs);
  if (!actor) return false;
  actor->process = maker.process;
  actor->child = maker.child;
  actor->name = script_.operations[index].as;
  Actor& made = actors_.emplace_back(*std::move(actor));
  begin(index, maker, {std::move(command)});
  if (!await(index, maker)) return false;
  if (!maker.finished || maker.finished->outcome != StepOutcome::kDone) {
    made.ended = true;
    return true;
  }
  if (wait([&] { return made.greeted || !lives(made.process); }, options_.operation_within) &&
      made.greeted) {
    return true;
  }
  if (out_.interrupted || fault_) return false;
  return stop(index, "the thread did not start");
}

bool Player::State::make_child(std::size_t index, Actor& maker, const Fork& fork) {
  constexpr std::uint64_t kVm = 0x100;
  constexpr std::uint64_t kVfork = 0x4000;
  std::uint64_t flags = fork.how == ForkHow::kClone ? fork.flags : 0;
  if (fork.how == ForkHow::kVfork) flags = kVm | kVfork;
  missing_ = false;
  Command command = own_call(kPuppetFork, {flags, 0, number(fork.pid)});
  if (missing_) return stop(index, "it needs the result of an operation that has none");
  if ((flags & kVm) != 0) {
    if (areas_ >= kPuppetAreas) return stop(index, "a script has at most 63 threads and vforks");
    command.head.args[1] = areas_++;
  }
  sys::Fd theirs;
  auto actor = new_actor(command, theirs);
  if (!actor) return false;
  actor->child = script_.operations[index].as;
  Actor& made = actors_.emplace_back(*std::move(actor));
  begin(index, maker, {std::move(command)});
  const auto is_made = [&] { return made.greeted; };
  const auto is_stable = [&] {
    // The child of a vfork comes first; its maker waits for it.
    return (is_made() && (!maker.work || (flags & kVfork) != 0)) ||
           (maker.finished && maker.finished->outcome == StepOutcome::kRefused) ||
           (maker.work && !lives(maker.process));
  };
  if (!wait(is_stable, options_.operation_within) || !is_made()) {
    made.ended = true;
    if (maker.finished && maker.finished->outcome == StepOutcome::kDone) {
      return stop(index, "the child did not start");
    }
    return await(index, maker);
  }
  if (maker.work) {
    results_[made.child] = static_cast<std::uint64_t>(made.process);
    say(step_of(index, StepOutcome::kBegun, made.process));
  }
  return true;
}

bool Player::State::exec(std::size_t index, Actor& actor, const Exec& exec) {
  const auto program = program_named(exec.program);
  const bool again = program.has_value();
  const std::string path =
      again ? options_.programs + "/" + std::string(file_of(*program)) : exec.program;
  Command command = own_call(kPuppetExec, {});
  add_text(command, path);
  add_text(command, path);
  for (const auto& a : exec.args) add_text(command, a);
  command.head.args[0] = 1 + exec.args.size();
  if (command.bytes.size() > kPuppetBytes / 2) return stop(index, "the arguments are too long");
  const auto before = host_.image_of(actor.process);
  actor.greeted = false;
  // The new image finds its channel through argv[1]; only the process knows where that is.
  command.head.number = again ? 1 : 0;
  begin(index, actor, {std::move(command)});
  const auto is_stable = [&] {
    if (!actor.work || !lives(actor.process)) return true;
    if (again) return actor.greeted;
    const auto now = host_.image_of(actor.process);
    return now && (!before || *now != *before);
  };
  if (!wait(is_stable, options_.operation_within) || !actor.work || !lives(actor.process)) {
    return await(index, actor);
  }
  for (Actor& other : actors_) {
    if (&other != &actor && other.process == actor.process) other.ended = true;
  }
  actor.work.reset();
  actor.interrupted.clear();
  actor.name.clear();
  actor.ended = !again;
  return say(step_of(index));
}

bool Player::State::exit(std::size_t index, Actor& actor, const Exit& exit) {
  begin(index, actor, {system_call(SYS_exit_group, {exit.code})});
  if (!wait([&] { return !lives(actor.process); }, options_.operation_within) && !all_ended_) {
    return await(index, actor);
  }
  for (Actor& other : actors_) {
    if (other.process == actor.process) other.ended = true;
  }
  actor.work.reset();
  return say(step_of(index));
}

bool Player::State::exit_thread(std::size_t index, Actor& actor) {
  const std::size_t before = host_.threads();
  begin(index, actor, {own_call(kPuppetExitThread, {})});
  if (!await(index, actor)) return false;
  actor.ended = true;
  (void)wait([&] { return host_.threads() < before || !lives(actor.process); },
             options_.operation_within);
  return !out_.interrupted && !fault_;
}

bool Player::State::join(std::size_t index, Actor& actor) {
  if (actor.work) {
    const std::size_t earlier = actor.work->operation;
    if (!await(earlier, actor)) return false;
  }
  return say(step_of(index));
}

bool Player::State::wants(const Operation& o) const {
  if (!o.if_set.empty() && !results_.contains(o.if_set)) return false;
  return o.unless_set.empty() || !results_.contains(o.unless_set);
}

bool Player::State::make(std::size_t index) {
  const Operation& o = script_.operations[index];
  if (!wants(o)) return say(step_of(index, StepOutcome::kSkipped));
  if (std::holds_alternative<SampleNow>(o.what)) {
    host_.look_around(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                         options_.operation_within * options_.timeout_scale));
    return say(step_of(index));
  }
  Actor* const actor = find(o);
  const bool gone = actor == nullptr || !lives(actor->process);
  if (gone && o.may_fail) return say(step_of(index, StepOutcome::kSkipped));
  if (gone) {
    return stop(index, o.actor().empty() ? "the process has ended, or runs another program"
                                         : "\"" + o.actor() + "\" has ended or was not made");
  }
  if (std::holds_alternative<Join>(o.what)) return join(index, *actor);
  // One at a time: an earlier command comes first.
  if (actor->work && !await(actor->work->operation, *actor)) return false;
  missing_ = false;
  const auto number_now = [this](const Value& v) { return number(v); };
  auto commands = std::visit(CommandsOf(number_now, options_.programs), o.what);
  if (missing_) {
    if (o.may_fail) return say(step_of(index, StepOutcome::kSkipped));
    return stop(index, "it needs the result of an operation that has none");
  }
  if (const auto* w = std::get_if<NewThread>(&o.what)) return make_thread(index, *actor, *w);
  if (const auto* w = std::get_if<Fork>(&o.what)) return make_child(index, *actor, *w);
  if (const auto* w = std::get_if<Exec>(&o.what)) return exec(index, *actor, *w);
  if (const auto* w = std::get_if<Exit>(&o.what)) return exit(index, *actor, *w);
  if (std::holds_alternative<ExitThread>(o.what)) return exit_thread(index, *actor);
  if (!o.later) {
    begin(index, *actor, std::move(commands));
    return await(index, *actor);
  }
  if (!commands.empty()) commands.front().head.tells = 1;
  begin(index, *actor, std::move(commands));
  if (!say(step_of(index, StepOutcome::kBegun))) return false;
  // A stopped or ended one does not begin.
  (void)wait([&] { return !actor->work || actor->work->begun || is_over(*actor); },
             options_.operation_within);
  return !out_.interrupted && !fault_;
}

// Programs without a script continue for a while.
sys::Result<> Player::State::wait_for_others() {
  const auto is_moved = [&](pid_t process) {
    return std::ranges::any_of(
        actors_, [&](const Actor& a) { return a.process == process && a.greeted && !a.ended; });
  };
  (void)wait([&] { return std::ranges::all_of(host_.processes(), is_moved); },
             options_.others_within);
  if (fault_) return std::unexpected(*fault_);
  return {};
}

sys::Result<> Player::State::start(sys::Fd channel) {
  Actor& first = actors_.emplace_back();
  first.channel = std::move(channel);
  first.process = host_.root();
  CTX_RETURN_IF_ERROR(host_.wake_for(first.channel.get(), POLLIN));
  (void)wait([&] { return first.greeted || !lives(first.process); }, milliseconds(30'000));
  if (fault_) return std::unexpected(*fault_);
  if (!first.greeted && !out_.interrupted) {
    return sys::fail("puppet", ETIMEDOUT, "it did not start");
  }
  return {};
}

sys::Result<bool> Player::State::play(std::size_t index) {
  const bool goes_on = !out_.interrupted && !out_.problem && make(index);
  if (fault_) return std::unexpected(*fault_);
  return goes_on && !out_.interrupted && !out_.problem;
}

Player::Player(const Script& script, PlayerOptions options, PlayerHost& host)
    : state_(std::make_unique<State>(script, std::move(options), host)) {}
Player::~Player() = default;
sys::Result<> Player::start(sys::Fd channel) { return state_->start(std::move(channel)); }
sys::Result<bool> Player::play(std::size_t index) { return state_->play(index); }
sys::Result<> Player::wait_for_others() { return state_->wait_for_others(); }
const Played& Player::played() const { return state_->played(); }
std::optional<std::uint64_t> Player::value_of(const Value& value) const {
  return state_->value_of(value);
}

sys::Result<ChannelEnds> new_channel() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return sys::fail("socketpair", errno, "");
  }
  ChannelEnds out{sys::Fd(ends[0]), sys::Fd(ends[1])};
  constexpr int kOn = 1;
  if (setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) != 0) {
    return sys::fail("setsockopt", errno, "");
  }
  return out;
}

std::vector<std::string> environment_of(const Script& script, const std::string& programs) {
  if (script.preload.empty()) return {};
  // The path of a folder may contain a space, at which LD_PRELOAD ends an item.
  std::string list;
  for (const auto& library : script.preload) list += (list.empty() ? "" : " ") + library;
  return {"LD_PRELOAD=" + list, "LD_LIBRARY_PATH=" + programs};
}

std::string to_string(const Step& step) {
  switch (step.outcome) {
    case StepOutcome::kDone:
      break;
    case StepOutcome::kRefused:
      return std::string("= -1 ") + strerrorname_np(static_cast<int>(-step.result)) + " (" +
             std::strerror(static_cast<int>(-step.result)) + ")";
    case StepOutcome::kSkipped:
      return "left out";
    case StepOutcome::kBegun:
      return "begun";
    case StepOutcome::kLost:
      return "ended before it answered";
    case StepOutcome::kUnanswered:
      return "no answer";
  }
  std::array<char, 32> text{};
  const auto result = static_cast<std::uint64_t>(step.result);
  (void)std::snprintf(text.data(), text.size(), result < 65536 ? "= %llu" : "= %#llx",
                      static_cast<unsigned long long>(result));
  return text.data();
}

}  // namespace ctxconf::conformance::puppet
