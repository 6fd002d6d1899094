#include "conformance/observe/wrap.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "abi/process_header.h"
#include "conformance/evidence/trace_ids.h"
#include "conformance/observe/recording.h"
#include "sys/access_watchdog.h"
#include "sys/fd.h"
#include "sys/process.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAfterPublication{10000};
constexpr milliseconds kWithoutPublication{30000};
constexpr milliseconds kInAll{120000};  // for a program that keeps publishing
constexpr milliseconds kTermGrace{2000};
constexpr milliseconds kOutputPace{10};

Clock::duration scaled(const WrapOptions& options, milliseconds d) {
  return std::chrono::duration_cast<Clock::duration>(d * options.timeout_scale);
}

Clock::time_point deadline_of(const WrapOptions& options, const Recording& recording) {
  if (options.run_for) return recording.begun() + scaled(options, *options.run_for);
  if (const auto published = recording.published()) {
    return std::min(*published + scaled(options, kAfterPublication),
                    recording.begun() + scaled(options, kInAll));
  }
  return recording.begun() + scaled(options, kWithoutPublication);
}

// The output of a program; keeps only its end.
class Output {
 public:
  sys::Result<> open(sys::Launch& launch) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return sys::fail("pipe", errno, "output");
    ours_ = sys::Fd(ends[0]);
    theirs_ = sys::Fd(ends[1]);
    null_ = sys::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null_.is_open() || fcntl(ours_.get(), F_SETFL, O_NONBLOCK) != 0) {
      return sys::fail("open", errno, "/dev/null");
    }
    launch.stdio = {null_.get(), theirs_.get(), theirs_.get()};
    return {};
  }
  sys::Result<> begin(Recording& recording) {
    theirs_.reset();
    return ours_.is_open() ? recording.wake_for(ours_.get(), POLLIN) : sys::Result<>();
  }
  void take(Recording& recording) {
    if (!ours_.is_open()) return;
    std::array<char, std::size_t{1} << 16U> bytes;  // all that a pipe holds
    const ssize_t n = read(ours_.get(), bytes.data(), bytes.size());
    if (n > 0) {
      text_.append(bytes.data(), static_cast<std::size_t>(n));
      if (text_.size() > kKept) text_.erase(0, text_.size() - kKept);
    } else if (n == 0) {
      (void)recording.wake_for(ours_.get(), 0);
      ours_.reset();
    }
  }
  std::string text() && { return std::move(text_); }

 private:
  static constexpr std::size_t kKept = 2000;
  sys::Fd ours_;
  sys::Fd theirs_;
  sys::Fd null_;
  std::string text_;
};

// The output of a program on one descriptor, passed on to our descriptor with that number.
class PassedOn {
 public:
  sys::Result<> open(int fd, sys::Launch& launch) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return sys::fail("pipe", errno, "output");
    to_ = fd;
    ours_ = sys::Fd(ends[0]);
    theirs_ = sys::Fd(ends[1]);
    if (fcntl(ours_.get(), F_SETFL, O_NONBLOCK) != 0) return sys::fail("fcntl", errno, "output");
    launch.stdio.at(static_cast<std::size_t>(fd)) = theirs_.get();
    return {};
  }
  sys::Result<> begin(Recording& recording) {
    theirs_.reset();
    return ours_.is_open() ? recording.wake_for(ours_.get(), POLLIN) : sys::Result<>();
  }
  // False: nothing more is available now.
  bool take(Recording& recording) {
    if (!ours_.is_open()) return false;
    const bool was_held_up = !pending_.empty();
    if (!write_pending()) return close(recording);
    if (!pending_.empty()) return false;
    if (was_held_up) (void)recording.wake_for(ours_.get(), POLLIN);
    std::array<char, std::size_t{1} << 16U> bytes;  // all that a pipe holds
    const ssize_t n = read(ours_.get(), bytes.data(), bytes.size());
    if (n < 0) return false;
    pending_.assign(bytes.data(), static_cast<std::size_t>(n));
    ids_.take(pending_);
    // If nobody reads our output any more, the program finds its own pipe closed too.
    if (n == 0 || !write_pending()) return close(recording);
    // Only the program waits for our reader.
    if (!pending_.empty()) (void)recording.wake_for(ours_.get(), 0);
    return pending_.empty();
  }
  // Bounded: a pipe may be large, processes left running may keep writing, and our reader may have
  // stopped.
  void take_rest(Recording& recording) {
    constexpr int kWaitMs = 1000;
    for (int i = 0; i < 64 && ours_.is_open(); ++i) {
      if (take(recording)) continue;
      if (pending_.empty() || !is_ready(kWaitMs)) break;
    }
  }
  void add_to(Timeline& timeline) {
    ids_.end();
    const auto add = [](const auto& ids, std::vector<std::string>& to) {
      std::set<std::string> all(to.begin(), to.end());
      all.insert(ids.begin(), ids.end());
      to.assign(all.begin(), all.end());
    };
    add(ids_.trace_ids(), timeline.printed_trace_ids);
    add(ids_.span_ids(), timeline.printed_span_ids);
  }

 private:
  bool close(Recording& recording) {
    ids_.end();
    (void)recording.wake_for(ours_.get(), 0);
    ours_.reset();
    return false;
  }
  bool is_ready(int within_ms) const {
    pollfd ready{.fd = to_, .events = POLLOUT, .revents = 0};
    return poll(&ready, 1, within_ms) > 0;
  }
  // Writes as much as fits. False: nobody reads it.
  bool write_pending() {
    constexpr std::size_t kPiece = 256;  // a terminal that is ready has room for this much
    std::size_t written = 0;
    bool open = true;
    while (written < pending_.size() && is_ready(0)) {
      const std::size_t size = std::min(kPiece, pending_.size() - written);
      const ssize_t n = write(to_, pending_.data() + written, size);
      if (n > 0) {
        written += static_cast<std::size_t>(n);
      } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
        open = false;
        break;
      }
    }
    pending_.erase(0, written);
    return open;
  }

  int to_ = -1;
  sys::Fd ours_;
  sys::Fd theirs_;
  IdScanner ids_;
  std::string pending_;  // read but not written yet
};

// Runs until the program has ended by itself or at its deadline.
sys::Result<Wrapped> follow(const WrapOptions& options, Recording& recording, Output& output,
                            std::array<PassedOn, 2>& passed_on, Timeline& timeline) {
  const auto take_output = [&] {
    output.take(recording);
    for (PassedOn& p : passed_on) (void)p.take(recording);
  };
  Wrapped out;
  std::optional<Clock::time_point> end_by;  // without the time used by job control
  Clock::time_point taken;
  while (true) {
    if (recording.paused()) break;
    const auto now = Clock::now();
    // A ready descriptor wakes us only when nothing else happens. During a busy series of events,
    // like single-steps, checking the descriptors each time would cost as much as the events.
    if (recording.was_idle() || now - taken >= kOutputPace) {
      take_output();
      taken = now;
    }
    const auto deadline = deadline_of(options, recording);
    if (!recording.runaway().empty()) {
      timeline.hang = recording.runaway();
      if (!end_by) recording.last_look();
      recording.terminate(/*politely=*/false);
      break;
    }
    if (!end_by && (now >= deadline || recording.interrupted())) {
      out.interrupted = recording.interrupted();
      out.timed_out = !out.interrupted;
      if (out.interrupted) {
        timeline.notes.emplace_back("the observation was interrupted");
      } else {
        const auto ran = std::chrono::duration_cast<milliseconds>(now - recording.begun()).count();
        const std::string after =
            std::to_string(ran / 1000) + "." + std::to_string(ran % 1000 / 100) + " s";
        timeline.notes.push_back("the program still ran after " + after + " and was ended");
        if (!options.run_for && deadline == recording.begun() + scaled(options, kInAll)) {
          timeline.incomplete = "the program was ended after " + after +
                                " while it kept publishing: use --for to set how long it "
                                "may run";
        }
      }
      recording.last_look();
      recording.terminate(/*politely=*/true);
      end_by = Clock::now() - recording.late() + scaled(options, kTermGrace);
    }
    const auto until = end_by ? *end_by + recording.late() : deadline;
    if (end_by && now >= until) break;
    CTX_ASSIGN_OR_RETURN(more, recording.step(until));
    if (!more) break;
  }
  take_output();
  for (PassedOn& p : passed_on) p.take_rest(recording);
  CTX_RETURN_IF_ERROR(recording.finish());
  for (PassedOn& p : passed_on) p.add_to(timeline);
  out.output = std::move(output).text();
  return out;
}

}  // namespace

std::expected<Wrapped, WrapError> record_wrap(const WrapOptions& options, Timeline& timeline) {
  timeline.watches_lifetime = options.stores && options.watch_lifetime;
  timeline.clock_calls = options.hide_vdso;
  for (const auto& spec : options.injections) timeline.injections.push_back(to_injection(spec));
  sys::Launch launch;
  Output output;
  std::array<PassedOn, 2> passed_on;
  if (options.keeps_output) {
    CTX_RETURN_IF_ERROR(output.open(launch));
  } else if (options.ids_from_output) {
    CTX_RETURN_IF_ERROR(passed_on[0].open(STDOUT_FILENO, launch));
    CTX_RETURN_IF_ERROR(passed_on[1].open(STDERR_FILENO, launch));
  }
  CTX_ASSIGN_OR_RETURN(recording, Recording::start(options, launch, timeline));
  CTX_RETURN_IF_ERROR(output.begin(recording));
  for (PassedOn& p : passed_on) CTX_RETURN_IF_ERROR(p.begin(recording));
  auto followed = follow(options, recording, output, passed_on, timeline);
  if (followed) return *std::move(followed);
  WrapError error(std::move(followed).error());
  error.op = "follow the program";
  error.was_started = true;
  return std::unexpected(std::move(error));
}

sys::Result<FaultRun> run_with_file_size_limit(const WrapOptions& options) {
  sys::Launch launch;
  launch.argv = options.argv;
  launch.no_filter = options.no_filter;
  launch.file_size_limit = 0;
  launch.discard_output = true;
  CTX_ASSIGN_OR_RETURN(tracer, sys::Tracer::launch(launch, options.trampoline));

  const auto dog = watchdog(options);
  FaultRun run;
  run.fault = kFileSizeLimit;
  const pid_t root = tracer.root();
  // The program may be a launcher, so the death of any of its processes counts.
  const auto limit = options.run_for.value_or(kAfterPublication);
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(limit * options.timeout_scale);
  std::map<pid_t, std::pair<std::string, std::string>> struck;  // process: call, file
  bool ended_by_us = false;
  const auto look = [&](pid_t pid) {
    SnapshotRecorder r(ImageKey{pid, 0}, options.limits);
    r.take(Moment::kExit, SnapshotDepth::kQuick);
    run.published = run.published || r.last_publication_ns() != 0;
  };
  std::size_t started = 0;
  while (true) {
    auto event = tracer.next(deadline);
    if (!event) {
      if (event.error().err == ECHILD) break;
      return std::unexpected(std::move(event).error());
    }
    if (!*event || tracer.tasks() > options.max_tasks ||
        tracer.processes().size() > options.max_alive || started > options.max_processes) {
      ended_by_us = true;
      break;
    }
    std::visit(
        [&](const auto& e) {
          using E = std::decay_t<decltype(e)>;
          if constexpr (std::is_same_v<E, sys::SignalStop>) {
            if (e.signo == SIGXFSZ) {
              if (const auto call = tracer.syscall_of(e.tid)) {
                const bool sizes = call->nr == SYS_ftruncate || call->nr == SYS_fallocate;
                std::string file;
                if (auto links = sys::descriptors_to(e.process, "")) {
                  for (const auto& l : *links) {
                    if (std::cmp_equal(l.fd, call->args[0])) file = l.link;
                  }
                }
                struck[e.process] = {
                    sizes ? "ftruncate" : "system call " + std::to_string(call->nr), file};
              }
            }
            (void)tracer.resume(e.tid, e.signo);
          } else if constexpr (std::is_same_v<E, sys::Exiting>) {
            if (e.whole_process) look(e.process);
            (void)tracer.resume(e.tid);
          } else if constexpr (std::is_same_v<E, sys::Gone>) {
            const bool hit = e.killed_by == SIGXFSZ && struck.contains(e.process) &&
                             struck[e.process].second.starts_with(abi::kMemfdFile);
            if (e.process == root || hit) {
              if (run.killed_by != SIGXFSZ || hit) {
                run.exit_code = e.exit_code;
                run.killed_by = e.killed_by;
                if (struck.contains(e.process)) {
                  std::tie(run.last_syscall, run.last_file) = struck[e.process];
                }
              }
            }
          } else if constexpr (std::is_same_v<E, sys::Execed>) {
            (void)tracer.resume(e.process);
          } else {
            if constexpr (std::is_same_v<E, sys::NewTask>) ++started;
            (void)tracer.resume(e.tid);
          }
        },
        **event);
  }
  for (const pid_t pid : tracer.processes()) look(pid);
  CTX_RETURN_IF_ERROR(tracer.end());
  run.ended_by_us = ended_by_us && !run.exit_code && !run.killed_by;
  return run;
}

}  // namespace ctxconf::conformance
