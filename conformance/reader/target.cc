#include "conformance/reader/target.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "sys/fd.h"
#include "sys/process.h"
#include "sys/spawn.h"

namespace ctxconf::conformance::reader {
namespace {

using Clock = puppet::PlayerHost::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kEnding{1000};
constexpr milliseconds kPause{1};

// The fields of /proc/PID/stat after the name, from the state on.
std::vector<std::string> stat_fields(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto end = line.rfind(')');
  std::vector<std::string> out;
  if (end == std::string::npos) return out;
  std::istringstream rest(line.substr(end + 1));
  for (std::string word; rest >> word;) out.push_back(word);
  return out;
}

class FreeHost : public puppet::PlayerHost {
 public:
  FreeHost(pid_t root, const TargetOptions& options) : root_(root), options_(options) {}

  pid_t root() const override { return root_; }
  bool lives(pid_t pid) const override {
    const char state = sys::thread_state(pid);
    return state != '?' && state != 'Z' && state != 'X';
  }
  std::vector<pid_t> processes() const override { return {root_}; }
  std::size_t threads() const override { return sys::thread_count(root_).value_or(0); }
  // An exec moves the stack (field 28), or changes the program.
  std::optional<std::uint32_t> image_of(pid_t pid) const override {
    constexpr std::size_t kStack = 28 - 3;
    const auto fields = stat_fields(pid);
    const auto facts = sys::process_facts(pid);
    if (fields.size() <= kStack || !facts) return std::nullopt;
    return static_cast<std::uint32_t>(std::hash<std::string>()(fields[kStack] + facts->executable));
  }
  sys::Result<bool> step(Clock::time_point until) override {
    // A process that ends closes its channel, but may share that with a child; one that becomes
    // another program keeps it.
    constexpr milliseconds kMost{50};
    if (!held_ && options_.meanwhile) {
      interrupted_ = !options_.meanwhile(std::min(until, Clock::now() + kMost));
      return true;
    }
    std::vector<pollfd> polled;
    polled.reserve(woken_for_.size());
    for (const auto& [fd, events] : woken_for_) {
      polled.push_back({.fd = fd, .events = events, .revents = 0});
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const auto wait = std::clamp(left, milliseconds(0), kMost);
    (void)poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
    return true;
  }
  sys::Result<> wake_for(int fd, short events) override {
    if (events == 0) {
      woken_for_.erase(fd);
    } else {
      woken_for_[fd] = events;
    }
    return options_.wake_for ? options_.wake_for(fd, events) : sys::Result<>();
  }
  bool interrupted() const override { return interrupted_; }
  void hold(bool on) { held_ = on; }
  // Nothing wakes for its channels any more.
  void close() {
    while (!woken_for_.empty()) (void)wake_for(woken_for_.begin()->first, 0);
  }

 private:
  pid_t root_;
  const TargetOptions& options_;
  std::map<int, short> woken_for_;
  bool held_ = false;
  bool interrupted_ = false;
};

// Ended processes that the reader has not let go of; they can be reaped once it has ended.
std::vector<pid_t>& unreaped() {
  static std::vector<pid_t> pids;
  return pids;
}

void reap_others() {
  std::erase_if(unreaped(), [](pid_t pid) {
    if (!sys::reap_child(pid)) return false;
    sys::forget_child(pid);
    return true;
  });
}

puppet::PlayerOptions player_options(const TargetOptions& options) {
  puppet::PlayerOptions out;
  out.programs = options.programs;
  out.timeout_scale = options.timeout_scale;
  return out;
}

}  // namespace

struct Target::State {
  State(const puppet::Script& s, TargetOptions o, pid_t pid)
      : script(s),
        options(std::move(o)),
        host(pid, options),
        player(script, player_options(options), host) {}

  const puppet::Script& script;
  const TargetOptions options;
  FreeHost host;
  puppet::Player player;
  std::size_t played = 0;
};

Target::Target(std::unique_ptr<State> state) : state_(std::move(state)) {}

Target::~Target() {
  const pid_t pid = state_->host.root();
  // Its children share its group, and its end is theirs.
  kill(-pid, SIGKILL);
  kill(pid, SIGKILL);
  state_->host.close();
  state_->host.hold(false);
  // A thread that the reader traces is reported to the reader first, which has to run for that.
  const auto until = Clock::now() + kEnding;
  while (!sys::reap_child(pid) && Clock::now() < until) {
    const auto soon = Clock::now() + kPause;
    if (!state_->options.meanwhile || !state_->options.meanwhile(soon)) {
      std::this_thread::sleep_until(soon);
    }
  }
  unreaped().push_back(pid);
  reap_others();
}

sys::Result<std::unique_ptr<Target>> Target::start(const puppet::Script& script,
                                                   const TargetOptions& options) {
  CTX_ASSIGN_OR_RETURN(channel, puppet::new_channel());
  const sys::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.is_open()) return sys::fail("open", errno, "/dev/null");
  sys::Spawn spawn;
  spawn.path = options.programs + "/" + std::string(puppet::file_of(script.program));
  spawn.extra_env = puppet::environment_of(script, options.programs);
  spawn.argv = {spawn.path};
  spawn.stdio = {null.get(), null.get(), null.get()};
  spawn.third = channel.theirs.get();
  spawn.own_group = true;
  spawn.dies_with_us = true;
  CTX_ASSIGN_OR_RETURN(pid, sys::spawn(spawn));
  sys::register_child(pid);
  channel.theirs.reset();
  std::unique_ptr<Target> out(new Target(std::make_unique<State>(script, options, pid)));
  CTX_RETURN_IF_ERROR(out->state_->player.start(std::move(channel.ours)));
  return out;
}

pid_t Target::pid() const { return state_->host.root(); }

sys::Result<bool> Target::play(std::size_t from, std::size_t to) {
  for (std::size_t i = from; i < to; ++i) {
    CTX_ASSIGN_OR_RETURN(goes_on, state_->player.play(i));
    if (!goes_on) return false;
    state_->played = i + 1;
  }
  return true;
}

std::size_t Target::played() const { return state_->played; }

void Target::hold(bool on) { state_->host.hold(on); }

std::optional<std::uint64_t> Target::value_of(const puppet::Value& value) const {
  return state_->player.value_of(value);
}

std::string Target::problem() const {
  const auto& played = state_->player.played();
  return played.problem ? played.problem->text : std::string();
}

}  // namespace ctxconf::conformance::reader
