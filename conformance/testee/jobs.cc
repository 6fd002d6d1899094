#include "conformance/testee/jobs.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/text/json_text.h"
#include "conformance/verdict/exit_code.h"
#include "sys/ending_signals.h"
#include "sys/fd.h"
#include "sys/process.h"
#include "sys/started.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using OrderedJson = nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr milliseconds kTick{100};
// The first two count ticks, so that time during which job control stopped this process is one
// tick.
constexpr int kMostSilent = 6000;       // more than all requests of a check may take together
constexpr int kEndingTicks = 200;       // after a job was told to end
constexpr unsigned kMostStops = 50;     // of a job in one unit; it is continued after each
constexpr milliseconds kReaping{5000};  // for killed processes
// Units whose recordings may wait for an earlier one; at least one per job.
constexpr std::size_t kMostUnitsAhead = 16;
constexpr std::size_t kMostFrameRead = std::size_t{1} << 16U;

// A message of a job: a head, and as many bytes as it announces.
enum class Frame : std::uint32_t {
  kBegin,     // the name of a check
  kEnd,       // how it ended, a space, its name
  kStepping,  // a Stepping
  kTimeline,  // the unit's timeline, as JSON
  kDone,      // the rest of its GroupRun, as JSON: the unit is over
};
struct FrameHead {
  Frame frame;
  std::uint32_t size;
};
struct Stepping {
  std::uint64_t steps;
  double seconds;
};
constexpr std::string_view kStopped = "stopped";  // a check that could not be ended

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool read_all(int fd, void* to, std::size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = recv(fd, at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool say(int fd, Frame frame, std::string_view text) {
  const FrameHead head{frame, static_cast<std::uint32_t>(text.size())};
  return write_all(fd, {reinterpret_cast<const char*>(&head), sizeof head}) && write_all(fd, text);
}

std::optional<CheckEnding> ending_from(std::string_view word) {
  using enum CheckEnding;
  for (const CheckEnding e : {kDone, kRefused, kCrash, kTimeout, kNotRun}) {
    if (to_string(e) == word) return e;
  }
  return std::nullopt;
}

// Runs in a child process: drives the units whose indexes it reads, until there are no more. Never
// returns, so that nothing of the parent's is destroyed or flushed here.
[[noreturn]] void work(const Jobs& jobs, int channel) {
  DriveCalls calls;
  calls.begin = [&](std::string_view, std::string_view check) {
    (void)say(channel, Frame::kBegin, check);
  };
  calls.end = [&](std::string_view, std::string_view check, std::optional<CheckEnding> ending) {
    const auto word = ending ? to_string(*ending) : kStopped;
    (void)say(channel, Frame::kEnd, fmt::format("{} {}", word, check));
  };
  if (jobs.calls.stepping) {
    calls.stepping = [&](std::string_view, std::uint64_t steps, double seconds) {
      const Stepping stepping{steps, seconds};
      (void)say(channel, Frame::kStepping,
                {reinterpret_cast<const char*>(&stepping), sizeof stepping});
    };
  }
  std::uint32_t index = 0;
  while (read_all(channel, &index, sizeof index)) {
    GroupRun run;
    std::optional<std::string> timeline;
    try {
      run = jobs.drive(index, calls);
      timeline = to_json(run.part, kLongestTimeline);
      if (!timeline) {
        run.harness_fault =
            "the recording of " + jobs.names[index] + " is too large for the parent";
      }
    } catch (const std::exception& e) {
      run.harness_fault = e.what();
    }
    const OrderedJson rest = {{"adapter_fault", text(run.adapter_fault)},
                              {"harness_fault", text(run.harness_fault)},
                              {"interrupted", run.interrupted},
                              {"asked", run.asked}};
    if (timeline && !say(channel, Frame::kTimeline, *timeline)) break;
    if (!say(channel, Frame::kDone, rest.dump())) break;
  }
  _exit(kExitClean);
}

struct Worker {
  pid_t pid = 0;
  sys::Fd channel;
  std::string heard;
  std::optional<std::size_t> unit;  // index of its unit
  GroupRun run;                     // of the unit, as far as received
  int silent = 0;                   // ticks
  bool gave_up = false;             // silent too long; it was killed
  unsigned stops = 0;               // during this unit
  std::optional<Clock::time_point> stopped;
  bool is_reaped = false;
  bool ended = false;  // it sends nothing more
  int status = 0;
};

class Workers {
 public:
  Workers(const Jobs& jobs, double timeout_scale)
      : jobs_(jobs), patience_(std::max(1.0, timeout_scale)), last_(jobs.names.size()) {}

  JobsEnding run(unsigned count) {
    const sys::EndingSignals signals;
    signals_ = signals.descriptor();
    if (!signals_.is_open()) own_fault(fmt::format("signalfd: {}", std::strerror(errno)));
    for (unsigned i = 0; i < count && ending_.harness_fault.empty(); ++i) start();
    for (Worker& job : workers_) hand_out(job);
    while (is_anything_driven()) wait();
    end_all();
    return std::move(ending_);
  }

 private:
  bool is_over() const {
    return ending_.interrupted || ending_.unreachable || !ending_.harness_fault.empty();
  }
  bool is_anything_driven() const {
    return std::ranges::any_of(workers_,
                               [](const Worker& j) { return !j.ended && j.unit.has_value(); });
  }
  int scaled(int ticks) const { return static_cast<int>(ticks * patience_); }

  void own_fault(std::string what) {
    if (ending_.harness_fault.empty()) ending_.harness_fault = std::move(what);
  }

  void start() {
    std::array<int, 2> fds{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
      return own_fault(fmt::format("socketpair: {}", std::strerror(errno)));
    }
    sys::Fd ours(fds[0]);
    const sys::Fd theirs(fds[1]);
    std::fflush(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    // A limit of processes may allow fewer jobs.
    if (pid < 0 && !workers_.empty()) return;
    if (pid < 0) return own_fault(fmt::format("fork: {}", std::strerror(errno)));
    if (pid == 0) {
      // When it dies, all its tracees die.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(kExitHarnessError);
      for (Worker& job : workers_) job.channel.reset();
      ours.reset();
      signals_.reset();
      work(jobs_, theirs.get());
    }
    Worker& job = workers_.emplace_back();
    job.pid = pid;
    job.channel = std::move(ours);
  }

  void hand_out(Worker& job) {
    if (job.ended || job.unit || is_over()) return;
    if (next_ >= std::min(last_, taken_ + std::max(kMostUnitsAhead, workers_.size()))) return;
    job.silent = 0;
    job.stops = 0;
    job.run = {};
    job.unit = next_++;
    const auto index = static_cast<std::uint32_t>(*job.unit);
    // If the job no longer reads, its end is noticed soon.
    (void)write_all(job.channel.get(), {reinterpret_cast<const char*>(&index), sizeof index});
  }

  // No unit after this one is needed.
  void stop_after(std::size_t unit) { last_ = std::min(last_, unit + 1); }

  void finish(std::size_t unit, GroupRun run) {
    // With one job, later units would not have been driven.
    if (!run.goes_on()) stop_after(unit);
    done_.emplace(unit, std::move(run));
    while (!done_.empty() && done_.begin()->first == taken_ && taken_ < last_) take_first();
    if (taken_ == last_) end_driven();
  }

  void take_first() {
    const auto first = done_.begin();
    const std::size_t unit = first->first;
    GroupRun run = std::move(first->second);
    done_.erase(first);
    taken_ = unit + 1;
    if (!jobs_.take(unit, std::move(run))) stop_after(unit);
  }

  void end_driven() {
    for (Worker& job : workers_) {
      if (job.ended || !job.unit || is_ending_) continue;
      kill(job.pid, SIGTERM);
      job.silent = 0;
    }
    is_ending_ = true;
  }

  void wait() {
    std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
    std::vector<Worker*> listed;
    for (Worker& job : workers_) {
      if (job.ended) continue;
      fds.push_back({job.channel.get(), POLLIN, 0});
      listed.push_back(&job);
    }
    const int ready = poll(fds.data(), fds.size(), static_cast<int>(kTick.count()));
    if (ready < 0 && errno != EINTR) {
      own_fault(fmt::format("poll: {}", std::strerror(errno)));
      end_driven();
    }
    if (fds[0].revents != 0) {
      signalfd_siginfo signal{};
      if (read(signals_.get(), &signal, sizeof signal) > 0) {
        ending_.interrupted = true;
        end_driven();
      }
    }
    for (std::size_t i = 0; i < listed.size(); ++i) {
      if (fds[i + 1].revents != 0) hear(*listed[i]);
    }
    for (Worker* job : listed) {
      if (!job->ended) (void)has_ended(*job);
    }
    if (ready == 0) {
      for (Worker* job : listed) be_patient(*job);
    }
  }

  void be_patient(Worker& job) {
    if (!job.unit || ++job.silent <= scaled(is_ending_ ? kEndingTicks : kMostSilent)) return;
    job.gave_up = true;
    kill(job.pid, SIGKILL);  // reported when its channel ends
  }

  // Whether the job is reaped. A stopped job, perhaps stopped by the program that it drives, is
  // continued, but not at once: job control stops all of us, and the job must then wait for us.
  bool has_ended(Worker& job) {
    if (job.is_reaped) return true;
    int status = 0;
    const pid_t got = waitpid(job.pid, &status, WNOHANG | WUNTRACED);
    if (got == job.pid && WIFSTOPPED(status)) {
      ++ending_.stops;
      ++job.stops;
      job.stopped = Clock::now();
    } else if (got == job.pid) {
      job.status = status;
    }
    if (job.stopped && Clock::now() >= *job.stopped + kTick) {
      job.stopped.reset();
      kill(job.pid, job.stops < kMostStops ? SIGCONT : SIGKILL);
    }
    job.is_reaped = (got == job.pid && !WIFSTOPPED(status)) || (got < 0 && errno != EINTR);
    return job.is_reaped;
  }

  void hear(Worker& job) {
    std::array<char, kMostFrameRead> buffer;
    const ssize_t n = recv(job.channel.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) return lose(job);
    job.silent = 0;
    job.heard.append(buffer.data(), static_cast<std::size_t>(n));
    FrameHead head{};
    std::size_t at = 0;
    while (!job.ended && job.heard.size() - at >= sizeof head) {
      std::memcpy(&head, job.heard.data() + at, sizeof head);
      if (job.heard.size() - at - sizeof head < head.size) break;
      const std::string_view said(job.heard.data() + at + sizeof head, head.size);
      at += sizeof head + head.size;
      if (job.unit) understand(job, head.frame, said);
    }
    job.heard.erase(0, at);
  }

  void understand(Worker& job, Frame frame, std::string_view said) {
    const std::string& name = jobs_.names[*job.unit];
    switch (frame) {
      case Frame::kBegin:
        if (jobs_.calls.begin) jobs_.calls.begin(name, said);
        break;
      case Frame::kEnd: {
        const auto space = said.find(' ');
        if (jobs_.calls.end) {
          jobs_.calls.end(name, said.substr(space + 1), ending_from(said.substr(0, space)));
        }
        break;
      }
      case Frame::kStepping:
        if (Stepping stepping{}; said.size() == sizeof stepping) {
          std::memcpy(&stepping, said.data(), sizeof stepping);
          jobs_.calls.stepping(name, stepping.steps, stepping.seconds);
        }
        break;
      case Frame::kTimeline:
        if (auto part = timeline_from_json(said)) {
          job.run.part = std::move(*part);
        } else {
          job.run.harness_fault =
              fmt::format("the recording of {} cannot be parsed: {}", name, part.error().detail);
        }
        break;
      case Frame::kDone: {
        std::string problem;
        const OrderedJson value = OrderedJson::parse(said, nullptr, /*allow_exceptions=*/false);
        const JsonReader in(value, "", &problem);
        job.run.adapter_fault = in.string("adapter_fault");
        if (job.run.harness_fault.empty()) job.run.harness_fault = in.string("harness_fault");
        job.run.interrupted = in.boolean("interrupted");
        job.run.asked = in.number<std::size_t>("asked");
        if (!problem.empty()) job.run.harness_fault = problem;
        // A job that was only told to end is not interrupted.
        if (job.run.interrupted && !is_ending_) {
          ending_.interrupted = true;
          end_driven();
        }
        const std::size_t unit = *std::exchange(job.unit, std::nullopt);
        finish(unit, std::move(job.run));
        for (Worker& idle : workers_) hand_out(idle);
        break;
      }
    }
  }

  // The channel of the job has ended; the process has ended or will be ended.
  void lose(Worker& job) {
    reap(job);
    const auto unit = std::exchange(job.unit, std::nullopt);
    if (WIFEXITED(job.status) && WEXITSTATUS(job.status) == kExitUnreachable) {
      ending_.unreachable = true;
      return end_driven();
    }
    if (!unit || is_ending_) return;
    GroupRun run;
    if (job.stops >= kMostStops) {
      run.adapter_fault =
          "cannot be driven: the process that drives it was stopped again and again";
      finish(*unit, std::move(run));
      return;
    }
    std::string how = job.gave_up ? "said nothing for too long and was killed"
                      : WIFSIGNALED(job.status)
                          ? "was killed by " + signal_name(WTERMSIG(job.status))
                          : fmt::format("exited {}", WEXITSTATUS(job.status));
    run.harness_fault = fmt::format("the process that drove {} {}", jobs_.names[*unit], how);
    finish(*unit, std::move(run));
    for (Worker& idle : workers_) hand_out(idle);
  }

  void reap(Worker& job) {
    job.channel.reset();
    const auto kill_at = Clock::now() + milliseconds(kTick * scaled(kEndingTicks));
    const auto give_up = kill_at + kReaping;
    bool killed = false;
    while (!job.ended && !has_ended(job)) {
      const auto now = Clock::now();
      if (now >= give_up) {
        own_fault("a process of ctxconf could not be ended");
        break;
      }
      if (now >= kill_at && !std::exchange(killed, true)) kill(job.pid, SIGKILL);
      std::this_thread::sleep_for(milliseconds(1));
    }
    job.ended = true;
  }

  // Ends the children of a job that died; they are now ours.
  void end_orphans() {
    if (!started_.end(kReaping).empty())
      own_fault("a process that ctxconf started could not be ended");
  }

  void end_all() {
    for (Worker& job : workers_) job.channel.reset();
    for (Worker& job : workers_) reap(job);
    end_orphans();
    // The units of a run that was ended are kept, with gaps.
    if (ending_.interrupted || ending_.unreachable) {
      while (!done_.empty()) take_first();
    }
  }

  const Jobs& jobs_;
  const double patience_;
  sys::Fd signals_;
  const sys::Started started_;
  std::vector<Worker> workers_;
  std::size_t next_ = 0;   // next unit to hand out
  std::size_t taken_ = 0;  // all units before this one were taken
  std::size_t last_;       // units from this one on are not needed
  std::map<std::size_t, GroupRun> done_;
  bool is_ending_ = false;
  JobsEnding ending_;
};

}  // namespace

JobsEnding do_all(const Jobs& jobs, unsigned count, double timeout_scale) {
  const auto size = jobs.names.size();
  const auto workers = static_cast<unsigned>(std::min<std::size_t>(count, size));
  if (workers > 1) return Workers(jobs, timeout_scale).run(workers);
  JobsEnding ending;
  const sys::EndingSignals signals;
  for (std::size_t unit = 0; unit < size; ++unit) {
    GroupRun run = jobs.drive(unit, jobs.calls);
    run.interrupted = run.interrupted || signals.take();
    ending.interrupted = run.interrupted;
    const bool goes_on = run.goes_on();
    if (!jobs.take(unit, std::move(run)) || !goes_on) break;
  }
  return ending;
}

JobsEnding drive_all(Driver& driver, std::span<const Unit> units, unsigned jobs,
                     double timeout_scale, const JobCalls& calls) {
  Jobs all;
  all.names.reserve(units.size());
  for (const Unit& unit : units) all.names.emplace_back(unit.group->name);
  all.drive = [&](std::size_t unit, const DriveCalls& told) {
    driver.tell(told);
    return driver.drive(*units[unit].group, units[unit].repeat);
  };
  all.calls = calls.drive;
  all.take = [&](std::size_t unit, GroupRun run) {
    return calls.take(units[unit], std::move(run));
  };
  JobsEnding ending = do_all(all, jobs, timeout_scale);
  driver.tell({});  // the receivers may be gone at its next use
  return ending;
}

}  // namespace ctxconf::conformance
