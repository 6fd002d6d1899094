// Plays a script: makes the operations in a scripted process, one after the other, and waits for
// their answers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/puppet/script.h"
#include "sys/fd.h"
#include "sys/result.h"

namespace ctxconf::conformance::puppet {

enum class StepOutcome : std::uint8_t {
  kDone,
  kRefused,     // `result` has the kernel's error
  kSkipped,     // because of its `if` or `unless`, or because a result that may fail is missing
  kBegun,       // its answer comes later
  kLost,        // the process or thread ended before it answered
  kUnanswered,  // no answer in time
};

struct Step {
  std::size_t operation = 0;  // index into Script::operations
  StepOutcome outcome = StepOutcome::kDone;
  std::int64_t result = 0;  // -errno if refused
  Bytes bytes;              // of `read`
  friend bool operator==(const Step&, const Step&) = default;
};
// "= 0x7f12a0000000", "= -1 EINVAL (Invalid argument)", "the process ended"
std::string to_string(const Step& step);

struct Played {
  std::vector<Step> steps;  // a step with a late answer is there once, with the answer
  // Why the script stopped: an operation was refused although it may not fail, had no answer, or
  // belongs to a thread that has ended. What was played until then is valid.
  std::optional<ScriptProblem> problem;
  bool interrupted = false;  // by a signal to this process
};

// The processes of a script, and what happens while an answer is awaited.
class PlayerHost {
 public:
  using Clock = std::chrono::steady_clock;
  PlayerHost() = default;
  PlayerHost(const PlayerHost&) = delete;
  PlayerHost& operator=(const PlayerHost&) = delete;
  virtual ~PlayerHost() = default;

  virtual pid_t root() const = 0;  // the first process
  virtual bool lives(pid_t pid) const = 0;
  virtual std::vector<pid_t> processes() const = 0;  // living
  virtual std::size_t threads() const = 0;           // of all of them
  // Another number after each exec of the process; nothing: unknown.
  virtual std::optional<std::uint32_t> image_of(pid_t pid) const = 0;
  // Returns after an event, at `until`, or when a descriptor of wake_for() is ready. False: no
  // process is left.
  virtual sys::Result<bool> step(Clock::time_point until) = 0;
  // Until events are 0, step() returns when the socket has one of them (POLLIN).
  virtual sys::Result<> wake_for(int fd, short events) = 0;
  // Takes a snapshot of the processes, if somebody records them.
  virtual void look_around(Clock::time_point /*deadline*/) {}
  virtual bool interrupted() const = 0;                // by a signal to this process
  virtual std::string runaway() const { return {}; }   // not empty: too many processes
  virtual void begin_wait() {}                         // a deadline begins that moves by late()
  virtual Clock::duration late() const { return {}; }  // time for which this process stood still
};

// The environment that makes a script's program load its `preload`; `programs` as in PlayerOptions.
std::vector<std::string> environment_of(const Script& script, const std::string& programs);

struct PlayerOptions {
  std::string programs;  // the folder of ctxconf-puppet and ctxconf-puppet-slot
  double timeout_scale = 1;
  std::chrono::milliseconds operation_within{5000};  // twelve times that: mappings, many threads
  // How long a program that the script started with `exec` may run after the end of the script.
  std::chrono::milliseconds others_within{5000};
  std::function<void(const Step&)> told;  // called for each step, and again for a late answer
};

// The ends of a channel to a thread of a scripted process. Ours also gets who has written.
struct ChannelEnds {
  sys::Fd ours;
  sys::Fd theirs;
};
sys::Result<ChannelEnds> new_channel();

// Errors are those of the harness. `script` and `host` must outlive it.
class Player {
 public:
  Player(const Script& script, PlayerOptions options, PlayerHost& host);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Waits for the first message of the first process, whose channel this is.
  sys::Result<> start(sys::Fd channel);
  // Makes one operation of the script. False: the script stops, and played() says why.
  sys::Result<bool> play(std::size_t index);
  // Waits until programs that the script started with `exec` have ended.
  sys::Result<> wait_for_others();

  const Played& played() const;
  // Nothing if it needs the result of an operation that was refused, or not made yet.
  std::optional<std::uint64_t> value_of(const Value& value) const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace ctxconf::conformance::puppet
