// The program reader_ref: shows the contexts that running processes publish.
#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "reader_ref/printable.h"
#include "reader_ref/process_reader.h"
#include "reader_ref/reading_child.h"
#include "reader_ref/report.h"
#include "reader_ref/serve.h"
#include "sys/process.h"

namespace ctxconf::reader {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

enum ExitCode {
  kExitFound = 0,
  kExitUsage = 2,
  kExitUnreachable = 3,
  kExitNoContext = 4,
  kExitInternal = 70,
};

constexpr milliseconds kShortestInterval{10};
constexpr milliseconds kLongestPoll{600'000};  // poll_ms in the schema of the testee protocol
// How long a read that is in progress may go on when a signal comes, or when the time of --for is
// over.
constexpr milliseconds kGrace{500};
constexpr milliseconds kLastLook{30'000};

struct Command {
  std::string pid_text;
  pid_t pid = 0;
  bool all = false;
  bool json = false;
  bool verbose = false;
  bool no_threads = false;
  std::string interval_text = "1s";
  std::string relist_text = "1s";
  std::string for_text;
  std::string timeout_text = "30s";
  milliseconds interval{0};
  milliseconds relist{0};
  milliseconds timeout{0};
  std::optional<milliseconds> run_for;
};

int complain(int code, const std::string& text) {
  fmt::print(stderr, "reader_ref: {}\n", printable(text));
  return code;
}

// "500ms", "2s", "1.5m"; a bare number is seconds.
std::optional<milliseconds> parse_duration(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || value > 1e6) return std::nullopt;
  const std::string_view unit(end, text.data() + text.size());
  const double factor = unit == "ms"                  ? 1
                        : unit == "s" || unit.empty() ? 1000
                        : unit == "m"                 ? 60'000
                                                      : -1;
  if (factor < 0) return std::nullopt;
  return milliseconds(static_cast<long long>(value * factor));
}

std::optional<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size() || pid <= 0) return std::nullopt;
  return pid;
}

// The result of reading a process, ready to print: the answer of a ReadingChild.
struct Answer {
  int err = 0;
  std::string error;  // empty: it could be read
  bool found = false;
  bool busy = false;
  std::string report;
  std::vector<std::string> notes;
};

std::string encode(const Answer& a) {
  std::string out;
  ordered_json::to_cbor({a.err, a.error, a.found, a.busy, a.report, a.notes}, out);
  return out;
}

Answer decode(const std::string& bytes) {
  Answer a;
  const auto values = ordered_json::from_cbor(bytes);
  values.at(0).get_to(a.err);
  values.at(1).get_to(a.error);
  values.at(2).get_to(a.found);
  values.at(3).get_to(a.busy);
  values.at(4).get_to(a.report);
  values.at(5).get_to(a.notes);
  return a;
}

bool is_forbidden(int err) { return err == EPERM || err == EACCES; }

int complain_about(pid_t pid, bool was_there, int err, const std::string& error) {
  if (err == ESRCH && was_there) {
    return complain(kExitUnreachable, fmt::format("process {} has ended", pid));
  }
  if (err == ESRCH) return complain(kExitUnreachable, fmt::format("there is no process {}", pid));
  if (is_forbidden(err)) {
    return complain(kExitUnreachable,
                    fmt::format("process {} may not be read ({}); that needs the same user "
                                "and kernel.yama.ptrace_scope 0, or CAP_SYS_PTRACE",
                                pid, error));
  }
  return complain(kExitUnreachable, error);
}

// The process of a thread that is not its leader; 0 otherwise.
pid_t process_of_thread(pid_t tid) {
  std::ifstream status("/proc/" + std::to_string(tid) + "/status");
  constexpr std::string_view key = "Tgid:\t";
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(key)) continue;
    const auto process = parse_pid(std::string_view(line).substr(key.size()));
    return process && *process != tid ? *process : 0;
  }
  return 0;
}

bool exists(pid_t pid) { return kill(pid, 0) == 0 || errno == EPERM; }

ReaderOptions options_of(const Command& command) {
  ReaderOptions options;
  options.threads = !command.no_threads;
  return options;
}

Answer read_process(const Command& command, const ReaderOptions& options, pid_t pid,
                    ReaderTools& tools) {
  Answer answer;
  const auto report = ProcessReader(pid, options, tools).read();
  if (!report) {
    answer.err = report.error().err;
    answer.error = sys::to_string(report.error());
    return answer;
  }
  answer.found = report->context != nullptr;
  answer.busy = report->busy;
  answer.report =
      command.json ? to_line(to_json(*report)) + '\n' : to_text(*report, command.verbose);
  answer.notes = report->notes;
  return answer;
}

// Asks children to read, and reports processes that could not be read.
class Asker {
 public:
  Asker(const Command& command, ReaderOptions options)
      : timeout_(command.timeout),
        child_([&command, options = std::move(options), tools = std::make_shared<ReaderTools>()](
                   pid_t pid) { return encode(read_process(command, options, pid, *tools)); },
               command.timeout) {}

  Answer ask(pid_t pid) {
    const auto bytes = child_.ask(pid);
    if (bytes) return decode(*bytes);
    Answer answer;
    answer.err = bytes.error().err;
    answer.error = sys::to_string(bytes.error());
    if (answer.err == ETIMEDOUT) {
      answer.error = fmt::format("process {} did not answer within {} ms", pid, timeout_.count());
    }
    return answer;
  }

 private:
  milliseconds timeout_;
  ReadingChild child_;
};

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// Checks that standard output has accepted everything.
int finish(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return complain(kExitInternal, "standard output cannot be written");
}

int dump_one(const Command& command) {
  const bool was_there = exists(command.pid);
  const Answer answer = Asker(command, options_of(command)).ask(command.pid);
  if (!answer.error.empty()) {
    return complain_about(command.pid, was_there, answer.err, answer.error);
  }
  if (answer.found || command.json) print(answer.report);
  if (answer.found) return finish(kExitFound);
  complain(kExitNoContext, fmt::format("process {} publishes no context{}", command.pid,
                                       answer.notes.empty() ? "" : " that can be used"));
  for (const std::string& note : answer.notes) complain(kExitNoContext, note);
  return finish(kExitNoContext);
}

// Reads each process once. Waits for all contexts that are being changed together, so that many of
// them cost no more than one.
int dump_all(const Command& command) {
  const auto pids = sys::process_list();
  if (!pids) return complain(kExitUnreachable, sys::to_string(pids.error()));
  auto options = options_of(command);
  const Patience patience = std::exchange(options.patience, Patience{.samples = 1});
  Asker asker(command, options);
  std::size_t found = 0;
  std::set<pid_t> hidden;
  std::map<pid_t, std::string> busy;  // pid and reason
  const auto sample_all = [&](const std::vector<pid_t>& some) {
    busy.clear();
    for (const pid_t pid : some) {
      const Answer answer = asker.ask(pid);
      if (answer.found) {
        print(answer.report);
        ++found;
      } else if (is_forbidden(answer.err)) {
        hidden.insert(pid);
      } else if (answer.err == ETIMEDOUT) {
        complain(kExitUnreachable, answer.error);
      } else if (!answer.error.empty() && answer.err != ESRCH) {
        complain(kExitUnreachable, fmt::format("process {}: {}", pid, answer.error));
      } else if (answer.busy) {
        busy[pid] = answer.notes.back();
      } else {
        for (const std::string& note : answer.notes) {
          complain(kExitNoContext, fmt::format("process {}: {}", pid, note));
        }
      }
    }
  };
  sample_all(*pids);
  for (int round = 1; round < patience.samples && !busy.empty(); ++round) {
    std::fflush(stdout);
    usleep(static_cast<useconds_t>(1000 * delay_after(round, patience).count()));
    std::vector<pid_t> again;
    again.reserve(busy.size());
    for (const auto& [pid, why] : busy) again.push_back(pid);
    sample_all(again);
  }
  for (const auto& [pid, why] : busy) {
    complain(kExitNoContext, fmt::format("process {}: {}", pid, why));
  }
  if (!hidden.empty()) {
    complain(kExitFound, fmt::format("{} process{} may not be read", hidden.size(),
                                     hidden.size() == 1 ? "" : "es"));
  }
  return finish(found > 0 ? kExitFound : kExitNoContext);
}

// SIGINT, SIGTERM and --for end the sleep, and a little later the program, even while a read does
// not return. A handler could not do that: such a read can be killed, but not interrupted.
class Ending {
 public:
  explicit Ending(std::optional<milliseconds> run_for) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
    guard_ = std::thread([this, run_for] { keep_guard(run_for); });
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() {
    {
      const std::lock_guard lock(lock_);
      done_ = true;
    }
    changed_.notify_all();
    pthread_kill(guard_.native_handle(), SIGINT);
    guard_.join();
  }

  // False: it is time to end.
  bool sleep(milliseconds delay) {
    std::unique_lock lock(lock_);
    return !changed_.wait_for(lock, delay, [this] { return ending_; });
  }
  void found() { code_ = kExitFound; }
  int code() const { return code_; }

 private:
  void keep_guard(std::optional<milliseconds> run_for) {
    const bool signalled = wait_for_signal(run_for);
    end_sleep();
    if (!signalled) wait_for_signal(kLastLook);
    std::unique_lock lock(lock_);
    if (!changed_.wait_for(lock, kGrace, [this] { return done_; })) _exit(code_);
  }

  void end_sleep() {
    {
      const std::lock_guard lock(lock_);
      ending_ = true;
    }
    changed_.notify_all();
  }

  // False: the time has passed without one.
  bool wait_for_signal(std::optional<milliseconds> limit) const {
    const auto begin = Clock::now();
    while (limit) {
      const auto left = std::chrono::nanoseconds(*limit - (Clock::now() - begin)).count();
      if (left <= 0) return false;
      const timespec time{left / 1'000'000'000, left % 1'000'000'000};
      if (sigtimedwait(&signals_, nullptr, &time) > 0) return true;
    }
    while (sigwaitinfo(&signals_, nullptr) < 0) {  // EINTR: stopped and continued
    }
    return true;
  }

  sigset_t signals_{};
  std::atomic<int> code_ = kExitNoContext;
  std::mutex lock_;
  std::condition_variable changed_;  // protects what follows
  bool ending_ = false;
  bool done_ = false;
  std::thread guard_;
};

std::string time_of_day() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:03}", local.tm_hour, local.tm_min, local.tm_sec,
                     now.tv_nsec / 1'000'000);
}

// Prints what differs from what it printed before.
class ChangePrinter {
 public:
  explicit ChangePrinter(const Command& command) : command_(&command) {}

  void show(const ProcessReport& report) {
    ordered_json object = to_json(report);
    std::string context = to_line(object["context"]) + to_line(object["notes"]);
    std::string threads = to_line(object["thread_contexts"]);
    const bool context_changed = !shown_ || context != context_;
    const bool threads_changed = !shown_ || threads != threads_;
    if (context_changed || threads_changed) {
      if (command_->json) {
        print_json(std::move(object), context_changed, threads_changed);
      } else {
        print_text(report, context_changed);
      }
    }
    shown_ = true;
    context_ = std::move(context);
    threads_ = std::move(threads);
  }

  void ended() {
    if (command_->json) {
      ordered_json object;
      object["format"] = 1;
      object["pid"] = command_->pid;
      object["time_ns"] = sys::realtime_now_ns();
      object["changed"] = {"ended"};
      fmt::print("{}\n", to_line(object));
    } else {
      fmt::print("{} process {} has ended\n", time_of_day(), command_->pid);
    }
    std::fflush(stdout);
  }

 private:
  void print_json(ordered_json object, bool context_changed, bool threads_changed) {
    object["time_ns"] = sys::realtime_now_ns();
    object["changed"] = ordered_json::array();
    if (context_changed) object["changed"].push_back("context");
    if (threads_changed) object["changed"].push_back("threads");
    fmt::print("{}\n", to_line(object));
    std::fflush(stdout);
  }

  void print_text(const ProcessReport& report, bool context_changed) {
    std::map<pid_t, std::string> lines;
    for (const ThreadReport& t : report.threads) {
      if (t.context || command_->verbose) lines[t.tid] = to_text(t);
    }
    if (context_changed || report.threads_why != threads_why_) {
      fmt::print("{} {}{}", time_of_day(),
                 report.context ? "" : "no context: ", to_text(report, command_->verbose));
    } else {
      for (const auto& [tid, line] : lines) {
        const auto before = lines_.find(tid);
        if (before == lines_.end() || before->second != line) {
          fmt::print("{}{}\n", time_of_day(), line);
        }
      }
      for (const auto& [tid, line] : lines_) {
        if (!lines.contains(tid)) {
          fmt::print("{}    {:>7}  no context any more\n", time_of_day(), tid);
        }
      }
    }
    std::fflush(stdout);
    lines_ = std::move(lines);
    threads_why_ = report.threads_why;
  }

  const Command* command_;
  bool shown_ = false;
  std::string context_;
  std::string threads_;
  std::string threads_why_;
  std::map<pid_t, std::string> lines_;
};

int watch(const Command& command) {
  Ending ending(command.run_for);
  auto options = options_of(command);
  options.sleep = [&](milliseconds delay) { return ending.sleep(delay); };
  options.relist = command.relist;
  ReaderTools tools;
  ProcessReader reader(command.pid, options, tools);
  ChangePrinter printer(command);
  const bool was_there = exists(command.pid);
  bool found = false;
  std::optional<std::uint64_t> start_ticks;
  for (bool first = true;; first = false) {
    const auto report = reader.read();
    if (report && start_ticks.value_or(report->start_ticks) != report->start_ticks) {
      printer.ended();  // another process has its id
      break;
    }
    if (report) {
      start_ticks = report->start_ticks;
      found = found || report->context;
      if (found) ending.found();
      // A context read before an update stays in use until the update is complete.
      if (!report->busy || !found) printer.show(*report);
    } else if (report.error().err == ESRCH && !first) {
      printer.ended();
      break;
    } else if (report.error().err != EAGAIN) {
      return complain_about(command.pid, was_there, report.error().err,
                            sys::to_string(report.error()));
    }
    if (!ending.sleep(command.interval)) break;
    if (std::ferror(stdout) != 0) break;
  }
  return finish(ending.code());
}

// What is wrong with the times of the command line, or nothing.
std::optional<std::string> settle_times(Command& command) {
  const auto interval = parse_duration(command.interval_text);
  if (!interval || *interval < kShortestInterval) {
    return "--interval: " + command.interval_text +
           " is not a duration of at least 10ms, such as 500ms or 2s";
  }
  command.interval = *interval;
  const auto relist = parse_duration(command.relist_text);
  if (!relist) {
    return "--relist: " + command.relist_text + " is not a duration, such as 0, 500ms or 10s";
  }
  command.relist = *relist;
  const auto timeout = parse_duration(command.timeout_text);
  if (!timeout || *timeout <= milliseconds(0)) {
    return "--timeout: " + command.timeout_text + " is not a duration, such as 500ms or 30s";
  }
  command.timeout = *timeout;
  if (command.for_text.empty()) return std::nullopt;
  command.run_for = parse_duration(command.for_text);
  if (!command.run_for)
    return "--for: " + command.for_text + " is not a duration, such as 500ms, 10s or 2m";
  return std::nullopt;
}

// What is wrong with the command line, or nothing.
std::optional<std::string> settle(Command& command, bool watching) {
  if (command.all && !command.pid_text.empty()) return "--all and a PID cannot be used together";
  if (!command.all) {
    if (command.pid_text.empty()) return watching ? "give a PID" : "give a PID or --all";
    const auto pid = parse_pid(command.pid_text);
    if (!pid) return command.pid_text + " is not a process id";
    command.pid = *pid;
  }
  return settle_times(command);
}

int serve_requests(Command& command) {
  if (const auto wrong = settle_times(command)) return complain(kExitUsage, *wrong);
  if (std::max(command.interval, command.relist) > kLongestPoll) {
    return complain(
        kExitUsage,
        "--interval and --relist of serve may be 10m at most, as in the testee protocol");
  }
  ServeOptions options;
  options.watch = {command.interval, command.relist};
  if (serve(std::cin, std::cout, options)) return kExitFound;
  return complain(kExitInternal, "standard output cannot be written");
}

int run(int argc, char** argv) {
  CLI::App app("Shows the OpenTelemetry contexts that running processes publish in their memory.",
               "reader_ref");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 a context was read, 2 usage, 3 no such process, or it may not be read,\n"
      "4 no usable context is published, 70 a bug in reader_ref.");
  Command command;
  const auto add_common = [&](CLI::App* sub) {
    sub->add_option("PID", command.pid_text, "process id");
    sub->add_flag("--json", command.json, "one JSON object per line (docs/reader.md)");
    sub->add_flag("--no-threads", command.no_threads,
                  "only the context of the process; stops no thread");
    sub->add_flag("-v,--verbose", command.verbose,
                  "also threads without a context and why, ignored mappings, the variable");
  };
  auto* dump = app.add_subcommand("dump", "read once; stops each thread for a moment");
  add_common(dump);
  dump->add_flag("--all", command.all, "every process that publishes a context");
  dump->add_option("--timeout", command.timeout_text,
                   "give up on a process that cannot be read in this time; default 30s");
  auto* watching = app.add_subcommand("watch", "read repeatedly and print what changes");
  add_common(watching);
  watching->add_option("--interval", command.interval_text, "time between two reads; default 1s");
  watching->add_option("--relist", command.relist_text,
                       "how often the mappings are listed again; 0: at each read; default 1s");
  watching->add_option("--for", command.for_text, "end after this time; default: at SIGINT");
  auto* serving = app.add_subcommand(
      "serve", "answer the requests of `ctxconf reader -- reader_ref serve` on standard input");
  std::string serve_interval = "100ms";
  serving->add_option("--interval", serve_interval,
                      "time between two looks at a process that is watched; default 100ms");
  serving->add_option("--relist", command.relist_text,
                      "how often its mappings are listed again; 0: at each look; default 1s");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    return complain(kExitUsage, std::string(e.what()) + "; see reader_ref --help");
  }
  if (serving->parsed()) {
    command.interval_text = serve_interval;
    return serve_requests(command);
  }
  const bool is_watch = watching->parsed();
  if (const auto wrong = settle(command, is_watch)) return complain(kExitUsage, *wrong);
  if (const pid_t process = command.all ? 0 : process_of_thread(command.pid); process != 0) {
    return complain(kExitUnreachable, fmt::format("{} is a thread of process {}: name the process",
                                                  command.pid, process));
  }
  if (is_watch) return watch(command);
  return command.all ? dump_all(command) : dump_one(command);
}

}  // namespace
}  // namespace ctxconf::reader

int main(int argc, char** argv) {
  try {
    return ctxconf::reader::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "reader_ref: a bug in reader_ref, please report it: {}\n", e.what());
    return ctxconf::reader::kExitInternal;
  }
}
