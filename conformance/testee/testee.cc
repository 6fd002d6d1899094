#include "conformance/testee/testee.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "conformance/evidence/reader_answers.h"
#include "conformance/faults/injection.h"
#include "conformance/observe/recording.h"
#include "conformance/testee/protocol.h"
#include "conformance/testee/thread_states.h"
#include "conformance/testee/watch_reports.h"
#include "conformance/text/json_limits.h"
#include "conformance/text/json_line.h"
#include "conformance/version.h"
#include "sys/fd.h"
#include "sys/process.h"
#include "sys/trampoline.h"
#include "sys/trampoline_file.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kErrorsKept = std::size_t{8} << 10U;  // the tail of stderr
constexpr std::size_t kMostRead = std::size_t{1} << 20U;    // per read
constexpr std::size_t kReplyKept = 6 * kLongestLine;        // each byte may become an escape
static_assert(kReplyKept + std::string_view("...").size() == kLongestKeptLine);
constexpr milliseconds kLooking{2000};
constexpr unsigned kStepsPerRead = 16;
constexpr milliseconds kFirstStop{1000};
constexpr std::size_t kMessageKept = 200;    // of a quoted error message
constexpr std::size_t kMostLinesAhead = 16;  // protocol messages

// Both ends close on exec; ours does not block.
struct Channel {
  sys::Fd ours;
  sys::Fd theirs;
};

std::optional<std::array<Channel, 3>> stdio_pipes() {
  std::array<Channel, 3> out;
  for (int i = 0; i < 3; ++i) {
    std::array<int, 2> fds{};
    if (pipe2(fds.data(), O_CLOEXEC) != 0) return std::nullopt;
    out[i].ours = sys::Fd(fds[i == 0 ? 1 : 0]);
    out[i].theirs = sys::Fd(fds[i == 0 ? 0 : 1]);
    if (fcntl(out[i].ours.get(), F_SETFL, O_NONBLOCK) != 0) return std::nullopt;
  }
  return out;
}

std::optional<Channel> socket_pair() {
  std::array<int, 2> fds{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) return std::nullopt;
  Channel out{sys::Fd(fds[0]), sys::Fd(fds[1])};
  if (fcntl(fds[0], F_SETFL, O_NONBLOCK) != 0) return std::nullopt;
  return out;
}

// What the adapter's descriptors are connected to.
struct Connections {
  std::array<Channel, 3> stdio;
  std::optional<Channel> channel;  // with --channel fd3
};

// https://www.gnu.org/software/libc/manual/html_node/Memory-Allocation-Tunables.html
// Switches the thread cache off, because its freed memory is not overwritten.
std::string poisoning_tunables() {
  std::string out =
      fmt::format("GLIBC_TUNABLES=glibc.malloc.perturb={}:glibc.malloc.tcache_count=0", kFreedByte);
  const char* const others = std::getenv("GLIBC_TUNABLES");
  if (others != nullptr && *others != '\0') out += ":" + std::string(others);
  return out;
}

// A protocol message.
struct Said {
  LineKind kind = LineKind::kNoise;
  Json value;
};

}  // namespace

struct Testee::State {
  State(TesteeOptions o, Timeline& t) : options(std::move(o)), timeline(t) {
    session.root.session = static_cast<std::uint32_t>(t.sessions.size() + 1);
  }

  const TesteeOptions options;
  Timeline& timeline;
  Session session;
  std::optional<Recording> recording;
  sys::Fd in;  // for requests; with --channel fd3 `out` is used
  sys::Fd out;
  sys::Fd errors;
  sys::Fd noise;  // stdout with --channel fd3
  LineBuffer lines;
  std::deque<Said> said;  // messages that were not taken yet
  WatchReports reports;   // of a reader
  std::string to_send;
  std::string tail;  // of stderr
  std::string last_noise;
  std::uint64_t noise_before = 0;  // noise lines when the last request was sent
  Json caps = Json::object();
  pid_t pid = 0;
  std::int64_t next_id = 1;
  bool out_ended = false;
  bool nothing_left = false;  // no process is left, known or not
  unsigned single_steps = 0;
  bool ended = false;  // session and processes are in the timeline
  bool bye_answered = false;
  bool interrupted = false;
  bool injecting = false;
  bool racing = false;
  bool gave_up = false;      // Stop::kGaveUp
  bool is_replaced = false;  // by a program that does not answer
  rlim_t file_size = RLIM_INFINITY;
  std::optional<std::size_t> unexplained;  // a check whose text needs the testee's ending
  std::string adapter_fault;
  std::string harness_fault;
  int start_error = 0;

  Clock::duration scaled(milliseconds d) const {
    return std::chrono::duration_cast<Clock::duration>(d * options.recording.timeout_scale);
  }
  // This clock stops while job control stops this process; all deadlines use it. `late()` is known
  // at the end of a step.
  Clock::time_point now() const {
    return Clock::now() - (recording ? recording->late() : Clock::duration::zero());
  }
  int descriptor_in() const { return in.is_open() ? in.get() : out.get(); }

  Stop blame(std::string what) {
    if (adapter_fault.empty()) adapter_fault = std::move(what);
    return Stop::kAdapterFault;
  }
  Stop own_fault(std::string what) {
    if (harness_fault.empty()) harness_fault = std::move(what);
    return Stop::kHarnessFault;
  }

  void note_noise(const std::string& line) {
    last_noise = line.empty() ? "an empty line, or one of more than 1 MiB" : cut(line, kNoiseKept);
    if (session.noise_lines++ == 0) session.noise = last_noise;
  }

  Answer<Connections> make_connections() {
    auto stdio = stdio_pipes();
    if (!stdio) return std::unexpected(own_fault("pipe: " + std::string(std::strerror(errno))));
    Connections made{.stdio = std::move(*stdio), .channel = {}};
    if (!options.descriptor3) return made;
    made.channel = socket_pair();
    if (made.channel) return made;
    return std::unexpected(own_fault("socketpair: " + std::string(std::strerror(errno))));
  }

  Answer<void> start_recording(Connections& connections) {
    WrapOptions wrap = options.recording;
    wrap.argv = options.argv;
    wrap.keep_all = true;
    wrap.inject_at_once = false;
    wrap.session = session.root.session;
    auto started = Recording::start(wrap, launch_with(connections), timeline);
    if (!started) {
      ended = true;
      start_error = started.error().err;
      return std::unexpected(blame("cannot be started: " + sys::to_string(started.error())));
    }
    recording.emplace(std::move(*started));
    return keep_our_ends(connections);
  }

  sys::Launch launch_with(const Connections& connections) const {
    sys::Launch launch;
    launch.own_group = true;
    if (options.without_ptrace_right && geteuid() == 0) launch.without_capability = CAP_SYS_PTRACE;
    for (int i = 0; i < 3; ++i) launch.stdio[i] = connections.stdio[i].theirs.get();
    if (connections.channel) {
      launch.third = connections.channel->theirs.get();
      launch.extra_env.emplace_back("CTXCONF_CHANNEL=fd3");
    }
    launch.extra_env.emplace_back("CTXCONF=1");
    launch.extra_env.emplace_back("CTXCONF_PROTOCOL=1");
    launch.extra_env.push_back("CTXCONF_TEST=" + session.group);
    launch.extra_env.push_back("CTXCONF_SEED=" + options.seed);
    if (options.poisons_memory) launch.extra_env.push_back(poisoning_tunables());
    return launch;
  }

  // Also listens to what the adapter writes.
  Answer<void> keep_our_ends(Connections& connections) {
    auto& [in_pipe, out_pipe, error_pipe] = connections.stdio;
    for (auto& pipe : connections.stdio) pipe.theirs.reset();
    errors = std::move(error_pipe.ours);
    if (connections.channel) {
      connections.channel->theirs.reset();
      out = std::move(connections.channel->ours);
      noise = std::move(out_pipe.ours);
    } else {
      in = std::move(in_pipe.ours);
      out = std::move(out_pipe.ours);
    }
    for (const auto* fd : {&out, &errors, &noise}) {
      if (!fd->is_open()) continue;
      if (const auto woken = recording->wake_for(fd->get(), POLLIN); !woken) {
        return std::unexpected(own_fault(sys::to_string(woken.error())));
      }
    }
    return {};
  }

  // False at the end of the file.
  template <class F>
  bool read_from(const sys::Fd& fd, F take) {
    std::array<char, 65536> buffer;
    for (std::size_t done = 0; done < kMostRead;) {
      const ssize_t n = read(fd.get(), buffer.data(), buffer.size());
      if (n > 0) {
        take(std::string_view(buffer.data(), static_cast<std::size_t>(n)));
        done += static_cast<std::size_t>(n);
        continue;
      }
      if (n < 0 && errno == EINTR) continue;
      return n < 0 && errno == EAGAIN;
    }
    return true;
  }

  void stop_reading(sys::Fd& fd) {
    if (!fd.is_open()) return;
    if (recording) (void)recording->wake_for(fd.get(), 0);
    fd.reset();
  }

  // What a reader saw; the harness takes it later.
  void see(const Json& event) {
    if (!adapter_fault.empty()) return;
    std::string problem;
    if (const auto broken = problem_of(event, Definition::kEvent)) {
      problem = "sent an event that breaks the protocol (" + *broken + ")";
    } else {
      problem = reports.add(event);
    }
    if (!problem.empty()) blame(problem + ": " + cut(dumped(event), 200));
  }

  // Noise is dropped at once, so a flood of it uses no memory.
  void hear(std::string_view bytes) {
    lines.add(bytes);
    while (const auto line = lines.next()) {
      Said next;
      next.kind = classify_line(*line, next.value);
      if (next.kind == LineKind::kNoise) {
        note_noise(*line);
      } else if (options.reader && next.kind == LineKind::kEvent && next.value["ev"] == "saw") {
        see(next.value);
      } else if (said.size() < kMostLinesAhead) {
        said.push_back(std::move(next));
      } else {
        blame("sent a message without a request: " + cut(dumped(next.value), 200));
      }
    }
  }

  std::optional<Said> take_said() {
    if (said.empty()) return std::nullopt;
    Said next = std::move(said.front());
    said.pop_front();
    return next;
  }

  void pump_descriptors() {
    if (out.is_open() && !out_ended && !read_from(out, [&](std::string_view b) { hear(b); })) {
      out_ended = true;
      (void)recording->wake_for(out.get(), 0);
    }
    const auto keep_tail = [&](std::string_view b) {
      tail += b;
      if (tail.size() > 2 * kErrorsKept) tail.erase(0, tail.size() - kErrorsKept);
    };
    if (errors.is_open() && !read_from(errors, keep_tail)) stop_reading(errors);
    const auto count = [&](std::string_view b) {
      if (!b.empty() && session.noise_lines == 0)
        note_noise(std::string(b.substr(0, b.find('\n'))));
    };
    if (noise.is_open() && !read_from(noise, count)) stop_reading(noise);
    while (!to_send.empty() && descriptor_in() >= 0) {
      const ssize_t n = in.is_open()
                            ? write(in.get(), to_send.data(), to_send.size())
                            : send(out.get(), to_send.data(), to_send.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        // The reader is gone; its end is noticed elsewhere.
        if (errno != EAGAIN) to_send.clear();
        break;
      }
      to_send.erase(0, static_cast<std::size_t>(n));
    }
    wait_for_room();
  }

  void wait_for_room() {
    if (in.is_open()) {
      (void)recording->wake_for(in.get(), to_send.empty() ? 0 : POLLOUT);
    } else if (out.is_open() && !out_ended) {
      (void)recording->wake_for(out.get(),
                                static_cast<short>(to_send.empty() ? POLLIN : POLLIN | POLLOUT));
    }
  }

  bool is_alive(pid_t process) const {
    const auto alive = recording->processes();
    return std::ranges::find(alive, process) != alive.end();
  }

  // Makes progress everywhere. An error ends all waiting.
  Answer<void> step(Clock::time_point until) {
    const auto stepped = recording->step(until + recording->late());
    if (!stepped) return std::unexpected(own_fault(sys::to_string(stepped.error())));
    nothing_left = !*stepped;
    if (!recording->runaway().empty()) return std::unexpected(Stop::kCrashed);
    // Reading at each instruction would take a tenth of the time of a step trace.
    if (!recording->has_single_stepped() || ++single_steps % kStepsPerRead == 0) pump_descriptors();
    if (recording->interrupted()) return std::unexpected(Stop::kInterrupted);
    return {};
  }

  // The next protocol message, or nothing after `until`.
  Answer<std::optional<Said>> next_line(Clock::time_point until) {
    const pid_t watched = pid != 0 ? pid : recording->root();
    bool drained = false;
    while (true) {
      if (auto next = take_said()) return next;
      if (!adapter_fault.empty()) return std::unexpected(Stop::kAdapterFault);
      if (!is_alive(watched)) {
        if (drained) return std::unexpected(Stop::kCrashed);
        pump_descriptors();  // messages sent before the end count
        drained = true;
        continue;
      }
      // It is alive but cannot answer.
      if (out_ended) until = std::min(until, now() + scaled(milliseconds(500)));
      if (now() >= until) return std::nullopt;
      if (auto stepped = step(until); !stepped) return std::unexpected(stepped.error());
    }
  }

  Answer<std::optional<Json>> await_reply(std::int64_t id, Clock::time_point until) {
    auto line = next_line(until);
    if (!line) return std::unexpected(line.error());
    if (!*line) return std::nullopt;
    Json& value = (*line)->value;
    if ((*line)->kind == LineKind::kEvent) {
      return std::unexpected(blame("sent an event without a request: " + cut(dumped(value), 200)));
    }
    if (const auto problem = problem_of(value, Definition::kReply)) {
      return std::unexpected(blame("sent a reply that breaks the protocol (" + *problem +
                                   "): " + cut(dumped(value), 200)));
    }
    if (value["id"] != id) {
      return std::unexpected(blame(fmt::format("sent a reply to request {} instead of {}: {}",
                                               value["id"].dump(), id, cut(dumped(value), 200))));
    }
    return std::move(value);
  }

  // No message may have arrived since the last reply.
  Answer<void> expect_silence() {
    pump_descriptors();
    if (const auto line = take_said()) {
      return std::unexpected(
          blame("sent a message without a request: " + cut(dumped(line->value), 200)));
    }
    return {};
  }

  // The thread that the last reply names.
  pid_t last_thread() const {
    const Json reply = Json::parse(session.operations.back().reply, nullptr, false);
    if (!reply.is_object() || !reply.contains("tid") || !reply["tid"].is_number_integer())
      return pid;
    const auto tid = reply["tid"].get<std::int64_t>();
    return std::in_range<pid_t>(tid) ? static_cast<pid_t>(tid) : pid;
  }

  void look() {
    Operation& operation = session.operations.back();
    if (options.reader) {
      if (operation.answered_ns == 0) operation.answered_ns = sys::boottime_now_ns();
      return;
    }
    operation.after = recording->look(SnapshotDepth::kThorough, Clock::now() + scaled(kLooking));
    if (operation.answered_ns == 0) operation.answered_ns = sys::boottime_now_ns();
    if (pid != 0) recording->watch_thread(pid, last_thread(), Clock::now() + scaled(kLooking));
  }

  // Requests an exec and waits for the new image. A reply means that the exec failed.
  Answer<std::optional<Json>> exec(const std::string& op, Json members) {
    const auto before = recording->image_of(pid);
    const auto id = say(op, std::move(members));
    if (!id) return std::unexpected(id.error());
    const auto until = now() + scaled(options.reply_within);
    while (true) {
      const auto image = recording->image_of(pid);
      if (image && image != before) return std::nullopt;
      if (!is_alive(pid)) return std::unexpected(Stop::kCrashed);
      if (now() >= until) return std::unexpected(hang(op));
      if (auto stepped = step(until); !stepped) return std::unexpected(stepped.error());
      if (said.empty()) continue;
      auto reply = await_reply(*id, until);
      if (!reply) return std::unexpected(reply.error());
      if (!*reply) continue;
      session.operations.back().answered_ns = sys::boottime_now_ns();
      session.operations.back().reply = cut(dumped(**reply), kReplyKept);
      return reply;
    }
  }

  Stop refused_exec(const Json& reply) {
    session.checks.back().text = "declares process.exec but answered: " + cut(dumped(reply), 200);
    return Stop::kRefused;
  }

  template <class Condition>
  Answer<void> leave_alone(Clock::time_point until, Condition is_done,
                           Clock::duration checked = Clock::duration::max()) {
    if (auto silent = expect_silence(); !silent) return std::unexpected(silent.error());
    auto& operation = session.operations.emplace_back();
    operation.check = static_cast<std::uint32_t>(session.checks.size() - 1);
    operation.sent_ns = sys::boottime_now_ns();
    recording->begin_wait();
    auto check_at = now();
    while (now() < until && !is_done()) {
      if (!adapter_fault.empty()) return std::unexpected(Stop::kAdapterFault);
      if (!is_alive(pid)) return std::unexpected(Stop::kCrashed);
      if (now() >= check_at) check_at = now() + std::min(checked, until - now());
      if (auto stepped = step(check_at); !stepped) return std::unexpected(stepped.error());
    }
    look();
    return {};
  }

  Answer<std::int64_t> say(const std::string& op, Json members) {
    const std::int64_t id = next_id++;
    keep_settable_keys(caps, members);
    members["id"] = id;
    members["op"] = op;
    if (const auto problem = problem_of(members, Definition::kRequest)) {
      return std::unexpected(own_fault("a request of ctxconf breaks the protocol: " + *problem +
                                       ": " + cut(dumped(members), 400)));
    }
    if (auto silent = expect_silence(); !silent) return std::unexpected(silent.error());
    // The line is not escaped, because some adapters do not read escapes.
    std::string line = members.dump();
    auto& operation = session.operations.emplace_back();
    operation.check = static_cast<std::uint32_t>(session.checks.size() - 1);
    operation.request = line;
    noise_before = session.noise_lines;
    operation.sent_ns = sys::boottime_now_ns();
    recording->begin_wait();
    if (op == "reader.watch") reports.ask_about(members["pid"].get<pid_t>());
    to_send += line + "\n";
    pump_descriptors();
    return id;
  }

  Answer<Json> exchange(const std::string& op, Json members, milliseconds within) {
    auto id = say(op, std::move(members));
    if (!id) return std::unexpected(id.error());
    return take_reply(op, *id, within);
  }

  // The thread that waits at its gate; 0: the adapter refused, and the refusal is the next message.
  Answer<pid_t> await_armed(const std::string& op, std::int64_t id, milliseconds within) {
    auto line = next_line(now() + scaled(within));
    if (!line) return std::unexpected(line.error());
    if (!*line) return std::unexpected(hang(op));
    if ((*line)->kind != LineKind::kEvent) {
      said.push_front(std::move(**line));
      return 0;
    }
    const Json& value = (*line)->value;
    const auto problem = problem_of(value, Definition::kEvent);
    if (problem || value["id"] != id) {
      return std::unexpected(blame("sent an event without a request: " + cut(dumped(value), 200)));
    }
    return value["tid"].get<pid_t>();
  }

  // Calls `pass` with the armed thread before that may continue.
  template <class F>
  Answer<Json> exchange_gated(const std::string& op, Json members, F pass) {
    members["gate"] = true;
    const auto id = say(op, std::move(members));
    if (!id) return std::unexpected(id.error());
    const auto armed = await_armed(op, *id, options.reply_within);
    if (!armed) return std::unexpected(armed.error());
    if (*armed != 0) {
      pass(*armed);
      say_go(*id);
    }
    return take_reply(op, *id, options.reply_within);
  }

  void say_go(std::int64_t id) {
    to_send += Json{{"op", "go"}, {"id", id}}.dump() + "\n";
    pump_descriptors();
  }

  void inject(bool on) {
    injecting = on;
    if (!options.file_size_limit) return recording->inject(on);
    rlimit limit{};
    if (pid == 0 || prlimit(pid, RLIMIT_FSIZE, nullptr, &limit) != 0) return;
    if (on) file_size = limit.rlim_cur;
    limit.rlim_cur = on ? 0 : file_size;
    const bool limited = prlimit(pid, RLIMIT_FSIZE, &limit, nullptr) == 0;
    if (on && limited && session.faults.empty()) session.faults.emplace_back(kFileSizeLimit);
  }

  bool memory_was_refused() const {
    return std::ranges::any_of(timeline.injections, has_refused_memory);
  }

  Answer<Json> take_reply(const std::string& op, std::int64_t id, milliseconds within) {
    auto reply = await_reply(id, now() + scaled(within / 2));
    if (reply && !*reply) {
      if (injecting) inject(false);
      reply = await_reply(id, now() + scaled(within / 2));
    }
    if (!reply) return std::unexpected(reply.error());
    if (!*reply) return std::unexpected(hang(op));
    Json& value = **reply;
    session.operations.back().answered_ns = sys::boottime_now_ns();
    session.operations.back().reply = cut(dumped(value), kReplyKept);
    if (value["ok"] == true) {
      if (const auto problem = problem_of(value, definition_of_reply(op))) {
        return std::unexpected(blame("sent a reply to " + op + " that breaks the protocol (" +
                                     *problem + "): " + cut(dumped(value), 200)));
      }
    }
    return std::move(value);
  }

  Answer<Json> hello() {
    Json spec = Json::object();
    for (const auto& [otep, revision] : options.spec.revisions) {
      spec[std::to_string(otep)] = revision;
    }
    return exchange("hello", {{"v", 1}, {"suite", kVersionText}, {"spec", spec}},
                    options.hello_within);
  }

  std::optional<std::string> problem_of_hello(const Json& reply) const {
    if (reply["ok"] != true) return "refused hello: " + cut(dumped(reply), 400);
    if (reply["v"] != 1) {
      return "speaks version " + cut(reply["v"].dump(), 40) +
             " of the protocol; ctxconf speaks version 1";
    }
    if (options.reader && geteuid() != 0 && ReaderTraits(reply["caps"]).says("needs_root")) {
      return "says that its reader needs root: run ctxconf as root";
    }
    return std::nullopt;
  }

  // The image of the process that hello names.
  Answer<ImageKey> image_of_hello(std::int64_t named) {
    const auto known = [&] {
      const auto process = recording->process_of(named);
      return process ? recording->image_of(*process) : std::nullopt;
    };
    auto image = known();
    // A parent may name its new child before the child's first stop.
    for (const auto until = now() + scaled(kFirstStop); !image && !nothing_left && now() < until;) {
      if (auto stepped = step(until); !stepped) return std::unexpected(stepped.error());
      image = known();
    }
    if (!image && options.reader && (kill(static_cast<pid_t>(named), 0) == 0 || errno == EPERM)) {
      // A process that was there before reads for it, perhaps that of another user.
      image = recording->image_of(recording->root());
    }
    if (image) return *image;
    return std::unexpected(
        blame(fmt::format("says that its process is {}, but neither the adapter nor a process "
                          "that it started has this id",
                          cut(std::to_string(named), 40))));
  }

  Stop hang(const std::string& op) {
    auto& check = session.checks.back();
    check.text = out_ended ? "closed its end of the channel but still runs, in " + op
                           : "no reply to " + op + " in time";
    check.details = thread_states(pid != 0 ? pid : recording->root());
    if (session.noise_lines > noise_before) {
      check.details.push_back("instead it wrote a line that is not a protocol message: " +
                              last_noise);
    }
    if (lines.pending() > 0) {
      check.details.push_back(fmt::format("{} bytes arrived without a line feed", lines.pending()));
    }
    for (auto& line : tail_lines()) check.details.push_back(std::move(line));
    return Stop::kHung;
  }

  std::string last_operation() const {
    if (session.operations.empty()) return "before the first operation";
    if (session.operations.back().request.empty()) return "while it got no request";
    const Json request = Json::parse(session.operations.back().request, nullptr, false);
    return "in " + request.value("op", std::string("?"));
  }

  // How a process ended, after the timeline has it.
  AdapterEnding ending_of(pid_t process) const {
    const auto it = std::find_if(
        timeline.processes.rbegin(), timeline.processes.rend(),
        [&](const Process& p) { return p.pid == process && p.session == session.root.session; });
    if (it == timeline.processes.rend()) return {};
    return adapter_ending_of(*it);
  }

  std::vector<std::string> tail_lines() const {
    std::vector<std::string> shown_lines;
    std::string_view rest = tail;
    if (rest.size() > kErrorsKept) rest.remove_prefix(rest.size() - kErrorsKept);
    while (!rest.empty()) {
      const auto end = rest.find('\n');
      shown_lines.push_back("stderr: " + cut(std::string(rest.substr(0, end)), 500));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    constexpr std::size_t kLines = 20;
    if (shown_lines.size() > kLines)
      shown_lines.erase(shown_lines.begin(), shown_lines.end() - kLines);
    return shown_lines;
  }

  // A process that ended before bye is treated as one that ends during bye.
  void say_bye() {
    const std::size_t bye = session.checks.size() - 1;
    const auto id = say("bye", Json::object());
    if (!id) return;
    auto reply = await_reply(*id, now() + scaled(options.reply_within));
    if (reply && *reply) {
      session.operations.back().answered_ns = sys::boottime_now_ns();
      session.operations.back().reply = cut(dumped(**reply), kReplyKept);
      bye_answered = true;
      wait_for_end(now() + scaled(options.end_within));
    } else if (reply) {
      (void)hang("bye");
      session.checks[bye].ending = CheckEnding::kTimeout;
    } else if (reply.error() == Stop::kCrashed) {
      session.checks[bye].ending = CheckEnding::kCrash;
      unexplained = bye;
    }
  }

  // After bye the input is closed, so the process ends, and its children with it.
  void wait_for_end(Clock::time_point until) {
    pump_descriptors();
    if (in.is_open()) {
      (void)recording->wake_for(in.get(), 0);
      in.reset();
    }
    if (out.is_open()) shutdown(out.get(), SHUT_WR);  // only for a socket; a pipe is one-way
    const pid_t root = recording->root();
    while ((is_alive(pid) || is_alive(root)) && now() < until) {
      if (!step(until)) break;
    }
    // Children that ctxconf asked for end with their parent after a moment. It also takes a moment
    // until a new child is known.
    while (!nothing_left && !is_alive(pid) && now() < until) {
      if (!step(until)) break;
    }
    (void)expect_silence();
    if (is_alive(pid) || is_alive(root) || recording->interrupted()) return;
    for (const pid_t process : recording->processes()) {
      const auto facts = sys::process_facts(process);
      session.left_behind.push_back(
          fmt::format("{} {}", process, facts ? facts->executable : std::string("?")));
    }
  }

  void finish() {
    if (ended) return;
    ended = true;
    if (!recording) return;
    pump_descriptors();
    stop_reading(out);
    stop_reading(errors);
    stop_reading(noise);
    if (in.is_open()) (void)recording->wake_for(in.get(), 0);
    in.reset();
    recording->terminate(/*politely=*/false);
    const pid_t root = recording->root();
    const std::string runaway = recording->runaway();
    if (const auto finished = recording->finish(); !finished) {
      own_fault(sys::to_string(finished.error()));
    }
    interrupted = recording->interrupted();
    recording.reset();
    session.ending = ending_of(pid != 0 ? pid : root);
    if (interrupted && !session.checks.empty() && session.checks.back().name == "bye" &&
        session.checks.back().ending == CheckEnding::kDone && session.ending.was_killed()) {
      session.checks.back().ending =
          CheckEnding::kNotRun;  // it is unknown whether it would have ended
    }
    if (!runaway.empty()) {
      session.ending = {AdapterEnding::How::kRunaway, "ended as a runaway: " + runaway};
    }
    const bool was_killed = session.ending.how == AdapterEnding::How::kKilled;
    if (bye_answered && was_killed) {
      session.checks.back().ending = CheckEnding::kCrash;
      unexplained = session.checks.size() - 1;
    }
    if (gave_up && was_killed && !memory_was_refused() && !options.file_size_limit) {
      session.checks.back().ending = CheckEnding::kCrash;
      unexplained = session.checks.size() - 1;
    }
    if (unexplained) {
      auto& check = session.checks[*unexplained];
      check.text = session.ending.text + " " + last_operation();
      check.details = tail_lines();
      if (options.poisons_memory) {
        check.details.emplace_back(
            "in this group memory that is freed to glibc's malloc is overwritten");
      }
    }
    timeline.sessions.push_back(std::move(session));
  }
};

Testee::Testee(TesteeOptions options, std::string group, Timeline& timeline)
    : state_(std::make_unique<State>(std::move(options), timeline)) {
  state_->session.group = std::move(group);
  state_->session.repeat = state_->options.repeat;
  for (const auto& spec : state_->options.recording.injections) {
    state_->session.faults.push_back(spec.text);
  }
}

Testee::~Testee() {
  try {
    end();
  } catch (const std::exception&) {
    std::fputs("ctxconf: a testee could not be ended properly\n", stderr);
  }
}

Testee::Answer<void> Testee::start() {
  auto& s = *state_;
  // Lives until hello is answered: with --channel fd3 it keeps the adapter's stdin open until then.
  auto connections = s.make_connections();
  if (!connections) return std::unexpected(connections.error());
  if (auto started = s.start_recording(*connections); !started) return started;
  begin_check("hello", {});
  const auto reply = s.hello();
  if (!reply) return std::unexpected(no_hello(reply.error()));
  if (auto problem = s.problem_of_hello(*reply)) return std::unexpected(s.blame(*problem));
  const auto image = s.image_of_hello((*reply)["pid"].get<std::int64_t>());
  if (!image) return std::unexpected(image.error());
  s.pid = image->pid;
  s.session.root = *image;
  s.session.hello = s.session.operations.back().reply;
  s.caps = (*reply)["caps"];
  s.look();
  return {};
}

Stop Testee::no_hello(Stop stop) {
  auto& s = *state_;
  std::string what;
  std::vector<std::string> details;
  if (stop == Stop::kCrashed) {
    s.unexplained = s.session.checks.size() - 1;
    end();
    what = "ended before it answered hello: " + s.timeline.sessions.back().ending.text;
    details = s.tail_lines();
  } else if (stop == Stop::kHung) {
    what = "did not say hello: " + s.session.checks.back().text;
    details = s.session.checks.back().details;
  } else {
    return stop;
  }
  for (const auto& line : details) what += "\n" + line;
  return s.blame(std::move(what));
}

bool Testee::can(std::string_view capability) const {
  return is_declared(state_->caps, capability);
}
const Json& Testee::capabilities() const { return state_->caps; }
pid_t Testee::pid() const { return state_->pid; }
bool Testee::has_asked(std::string_view op) const {
  return std::ranges::any_of(state_->session.operations, [&](const Operation& o) {
    const Json request = Json::parse(o.request, nullptr, false);
    return request.is_object() && request.value("op", std::string()) == op;
  });
}
const std::string& Testee::adapter_fault() const { return state_->adapter_fault; }
const std::string& Testee::harness_fault() const { return state_->harness_fault; }
int Testee::start_error() const { return state_->start_error; }
bool Testee::interrupted() const { return state_->interrupted; }

void Testee::begin_check(std::string name, std::vector<std::string> requirements) {
  auto& check = state_->session.checks.emplace_back();
  check.name = std::move(name);
  check.requirements = std::move(requirements);
}

void Testee::end_check(Stop stop) {
  auto& s = *state_;
  auto& check = s.session.checks.back();
  switch (stop) {
    case Stop::kRefused:
      check.ending = CheckEnding::kRefused;
      break;
    case Stop::kCrashed:
      check.ending = CheckEnding::kCrash;
      s.unexplained = s.session.checks.size() - 1;
      break;
    case Stop::kHung:
      check.ending = CheckEnding::kTimeout;
      break;
    case Stop::kGaveUp:
    case Stop::kAdapterFault:
    case Stop::kInterrupted:
    case Stop::kHarnessFault:
      break;
  }
}

Testee::Answer<Json> Testee::ask(const std::string& op, Json members) {
  auto& s = *state_;
  const bool steps = s.options.recording.steps || s.options.recording.slot_steps;
  if (steps) s.recording->step_changes(true);
  if (s.options.recording.forks) s.recording->probe_forks(true);
  const bool from_gate = s.options.recording.steps && op == "process.update" && can("gate");
  auto reply = from_gate ? s.exchange_gated(
                               op, std::move(members),
                               [&](pid_t thread) { s.recording->step_from_gate(s.pid, thread); })
                         : s.exchange(op, std::move(members), s.options.reply_within);
  if (steps && s.recording) s.recording->step_changes(false);
  if (s.options.recording.forks && s.recording) s.recording->probe_forks(false);
  if (!reply && reply.error() == Stop::kCrashed && s.recording->is_held_up(s.pid)) {
    return std::unexpected(gives_up());
  }
  if (!reply) return std::unexpected(reply.error());
  if (s.racing) return reply;
  s.look();
  // Another process of the adapter may have answered.
  if (s.injecting && !s.is_alive(s.pid)) return std::unexpected(Stop::kCrashed);
  return reply;
}

Testee::Answer<Json> Testee::request(const std::string& op, Json members) {
  auto reply = ask(op, std::move(members));
  if (!reply || (*reply)["ok"] == true) return reply;
  return refused(op, *reply);
}

std::unexpected<Stop> Testee::refused(const std::string& op, const Json& reply) {
  const Json& error = reply["error"];
  state_->session.checks.back().text =
      "declares " + std::string(capability_of(op)) + " but answered " + op + " with \"" +
      error.value("kind", std::string("failed")) +
      "\": " + cut(error.value("message", std::string("no message")), kMessageKept);
  return std::unexpected(Stop::kRefused);
}

Testee::Answer<Json> Testee::offer(const std::string& op, Json members) {
  auto reply = ask(op, std::move(members));
  if (!reply || (*reply)["ok"] == true) return reply;
  const std::string kind = (*reply)["error"].value("kind", std::string("failed"));
  if (kind == "rejected" || kind == "unsupported") return reply;
  return refused(op, *reply);
}

Testee::Answer<void> Testee::race(const std::function<Answer<void>(std::uint64_t)>& ask) {
  auto& s = *state_;
  auto& operations = s.session.operations;
  const auto before = static_cast<std::ptrdiff_t>(operations.size());
  s.recording->begin_race(s.pid);
  s.racing = true;
  const auto until = s.now() + s.options.race_for;
  Answer<void> asked;
  for (std::uint64_t i = 0; asked && s.now() < until; ++i) {
    operations.erase(operations.begin() + before, operations.end());
    asked = ask(i);
  }
  s.racing = false;
  s.recording->end_race();
  if (asked) s.look();
  return asked;
}

Testee::Answer<void> Testee::exec_self() {
  auto& s = *state_;
  const auto refusal = s.exec("process.exec_self", Json::object());
  if (!refusal) return std::unexpected(refusal.error());
  if (*refusal) return std::unexpected(s.refused_exec(**refusal));
  s.look();
  const auto hello = s.hello();
  if (!hello) return std::unexpected(hello.error());
  if ((*hello)["ok"] != true || (*hello)["pid"] != s.pid) {
    return std::unexpected(s.blame("sent another pid in hello after process.exec_self"));
  }
  s.look();
  return {};
}

Testee::Answer<void> Testee::exec_idle() {
  auto& s = *state_;
  const Json argv = {sys::trampoline_for_others(), sys::kIdleTrampoline};
  const auto refusal = s.exec("process.exec", {{"argv", argv}, {"env", Json::object()}});
  if (!refusal) return std::unexpected(refusal.error());
  // "failed" is acceptable: in another file system, or as another user, the adapter may not find
  // the program.
  if (*refusal && ((**refusal)["ok"] == true || (**refusal)["error"]["kind"] != "failed")) {
    return std::unexpected(s.refused_exec(**refusal));
  }
  s.is_replaced = !*refusal;
  s.look();
  return {};
}

void Testee::inject(bool on) { state_->inject(on); }

Stop Testee::gives_up() {
  state_->gave_up = true;
  return Stop::kGaveUp;
}

bool Testee::has_injected() const {
  if (state_->options.file_size_limit) return !state_->session.faults.empty();
  return std::ranges::any_of(state_->timeline.injections,
                             [](const Injection& i) { return i.times > 0; });
}

Testee::Answer<Json> Testee::ask_with_failures(const std::string& op, Json members) {
  auto& s = *state_;
  auto reply = s.exchange_gated(op, std::move(members), [&](pid_t thread) {
    s.recording->begins_to_publish(s.pid, thread);
    inject(true);
  });
  inject(false);
  if (!reply && reply.error() == Stop::kCrashed && has_injected()) {
    return std::unexpected(gives_up());
  }
  if (!reply) return std::unexpected(reply.error());
  s.look();
  return reply;
}

Testee::Answer<void> Testee::wait(milliseconds duration) {
  return state_->leave_alone(state_->now() + state_->scaled(duration), [] { return false; });
}

Testee::Answer<void> Testee::wait_stopped(milliseconds stopped, milliseconds running) {
  const auto& s = *state_;
  if (!s.is_alive(s.pid)) return std::unexpected(Stop::kCrashed);
  if (kill(s.pid, SIGSTOP) != 0) {
    if (errno == ESRCH) return std::unexpected(Stop::kCrashed);
    return {};  // EPERM: it changed its user
  }
  auto waited = wait(stopped);
  // After its end, another process may have its pid.
  if (s.is_alive(s.pid)) kill(s.pid, SIGCONT);
  if (!waited) return waited;
  return wait(running);
}

Testee::Answer<void> Testee::wait_for_context(milliseconds most) {
  auto& s = *state_;
  const auto is_there = [&] { return s.recording->published().has_value(); };
  if (is_there()) return {};
  return s.leave_alone(s.now() + s.scaled(most), is_there);
}

Testee::Answer<void> Testee::wait_for_change(const Json& reply, milliseconds most) {
  auto& s = *state_;
  const auto& operations = s.session.operations;
  const auto shown = [&](std::size_t index) -> std::optional<std::size_t> {
    for (const ImageView& v : operations[index].after) {
      if (v.image.pid == s.pid) return v.snapshot;
    }
    return std::nullopt;
  };
  if (reply["ok"] != true || operations.size() < 2) return {};
  const auto before = shown(operations.size() - 2);
  const auto is_changed = [&] { return shown(operations.size() - 1) != before; };
  constexpr int kLooks = 5;
  for (int i = 0; i < kLooks && !is_changed(); ++i) {
    auto waited = wait(most / kLooks);
    if (!waited) return waited;
  }
  return {};
}

Testee::Answer<void> Testee::pump(Clock::time_point until) { return state_->step(until); }
Testee::Answer<void> Testee::wait_until(milliseconds most, const std::function<bool()>& is_done,
                                        milliseconds checked) {
  return state_->leave_alone(state_->now() + state_->scaled(most), is_done, checked);
}
sys::Result<> Testee::wake_for(int fd, short events) {
  if (!state_->recording) return {};
  return state_->recording->wake_for(fd, events);
}
Operation* Testee::last_operation() {
  auto& operations = state_->session.operations;
  return operations.empty() ? nullptr : &operations.back();
}
std::vector<Json> Testee::take_events() { return state_->reports.take(); }
std::vector<pid_t> Testee::processes() const {
  return state_->recording ? state_->recording->processes() : std::vector<pid_t>();
}
CheckRun& Testee::check() { return state_->session.checks.back(); }

void Testee::end() {
  auto& s = *state_;
  if (s.ended) return;
  const auto last =
      s.session.checks.empty() ? CheckEnding::kNotRun : s.session.checks.back().ending;
  const bool in_order = last == CheckEnding::kDone || last == CheckEnding::kRefused;
  if (in_order && !s.gave_up && !s.is_replaced && s.recording && s.pid != 0 &&
      s.adapter_fault.empty() && s.harness_fault.empty() && !s.recording->interrupted()) {
    begin_check("bye", {});
    s.say_bye();
  }
  s.finish();
}

}  // namespace ctxconf::conformance
