// The program reader_ref: shows the contexts that running processes publish.
#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reader_ref/printable.h"
#include "reader_ref/process_reader.h"
#include "reader_ref/report.h"
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

struct Command {
  std::string pid_text;
  pid_t pid = 0;
  bool all = false;
  bool json = false;
  bool verbose = false;
  bool no_threads = false;
  std::string interval_text = "1s";
  std::string for_text;
  milliseconds interval{0};
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

bool is_forbidden(const sys::Error& e) { return e.err == EPERM || e.err == EACCES; }

int complain_about(pid_t pid, bool was_there, const sys::Error& e) {
  if (e.err == ESRCH && was_there) {
    return complain(kExitUnreachable, fmt::format("process {} has ended", pid));
  }
  if (e.err == ESRCH) return complain(kExitUnreachable, fmt::format("there is no process {}", pid));
  if (is_forbidden(e)) {
    return complain(kExitUnreachable,
                    fmt::format("process {} may not be looked at ({}); that takes the same user "
                                "and kernel.yama.ptrace_scope 0, or CAP_SYS_PTRACE",
                                pid, sys::to_string(e)));
  }
  return complain(kExitUnreachable, sys::to_string(e));
}

bool exists(pid_t pid) { return kill(pid, 0) == 0 || errno == EPERM; }

ReaderOptions options_of(const Command& command) {
  ReaderOptions options;
  options.threads = !command.no_threads;
  return options;
}

void print(const Command& command, const ProcessReport& report) {
  const std::string text =
      command.json ? to_line(to_json(report)) + '\n' : to_text(report, command.verbose);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

// Standard output has taken everything.
int finish(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  return complain(kExitInternal, "standard output cannot be written");
}

int dump_one(const Command& command) {
  sys::ElfCache files;
  const bool was_there = exists(command.pid);
  ProcessReader reader(command.pid, options_of(command), files);
  const auto report = reader.read();
  if (!report) return complain_about(command.pid, was_there, report.error());
  if (report->context || command.json) print(command, *report);
  if (report->context) return finish(kExitFound);
  complain(kExitNoContext, fmt::format("process {} publishes no context{}", command.pid,
                                       report->notes.empty() ? "" : " that can be used"));
  for (const std::string& note : report->notes) complain(kExitNoContext, note);
  return finish(kExitNoContext);
}

// One look at each process; those whose context is being changed are waited for together, so
// that no number of them holds up the others.
int dump_all(const Command& command) {
  const auto pids = sys::process_list();
  if (!pids) return complain(kExitUnreachable, sys::to_string(pids.error()));
  sys::ElfCache files;
  auto options = options_of(command);
  const Patience patience = std::exchange(options.patience, Patience{.looks = 1});
  std::size_t found = 0;
  std::set<pid_t> hidden;
  std::vector<ProcessReport> busy;
  const auto look_at = [&](const std::vector<pid_t>& some) {
    busy.clear();
    for (const pid_t pid : some) {
      auto report = ProcessReader(pid, options, files).read();
      if (!report && is_forbidden(report.error())) hidden.insert(pid);
      if (!report && !is_forbidden(report.error()) && report.error().err != ESRCH) {
        complain(kExitUnreachable,
                 fmt::format("process {}: {}", pid, sys::to_string(report.error())));
      }
      if (!report) continue;
      if (report->context) {
        print(command, *report);
        ++found;
      } else if (report->busy) {
        busy.push_back(std::move(*report));
      } else {
        for (const std::string& note : report->notes) {
          complain(kExitNoContext, fmt::format("process {}: {}", pid, note));
        }
      }
    }
  };
  look_at(*pids);
  for (int round = 1; round < patience.looks && !busy.empty(); ++round) {
    std::fflush(stdout);
    usleep(static_cast<useconds_t>(1000 * delay_after(round, patience).count()));
    std::vector<pid_t> again;
    again.reserve(busy.size());
    for (const ProcessReport& report : busy) again.push_back(report.pid);
    look_at(again);
  }
  for (const ProcessReport& report : busy) {
    complain(kExitNoContext, fmt::format("process {}: {}", report.pid, report.notes.back()));
  }
  if (!hidden.empty()) {
    complain(kExitFound, fmt::format("{} process{} may not be looked at", hidden.size(),
                                     hidden.size() == 1 ? "" : "es"));
  }
  return finish(found > 0 ? kExitFound : kExitNoContext);
}

// Sleeping that SIGINT and SIGTERM end; they are blocked otherwise, so that none is lost.
class Interruptible {
 public:
  Interruptible() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
  }
  // False: interrupted, now or earlier.
  bool sleep(milliseconds delay) {
    const timespec time{delay.count() / 1000, delay.count() % 1000 * 1'000'000};
    // EINTR: stopped and continued. A shorter sleep does no harm.
    interrupted_ = interrupted_ || sigtimedwait(&signals_, nullptr, &time) > 0;
    return !interrupted_;
  }
  bool interrupted() const { return interrupted_; }

 private:
  sigset_t signals_{};
  bool interrupted_ = false;
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
  Interruptible interruptible;
  auto options = options_of(command);
  options.sleep = [&](milliseconds delay) { return interruptible.sleep(delay); };
  sys::ElfCache files;
  ProcessReader reader(command.pid, options, files);
  ChangePrinter printer(command);
  const auto begin = Clock::now();
  const bool was_there = exists(command.pid);
  bool found = false;
  for (bool first = true;; first = false) {
    const auto report = reader.read();
    if (!report && (first || report.error().err != ESRCH)) {
      return complain_about(command.pid, was_there, report.error());
    }
    if (!report) {
      printer.ended();
      break;
    }
    found = found || report->context;
    // What was read before an update goes on to count until the update is complete.
    if (!report->busy || !found) printer.show(*report);
    auto pause = command.interval;
    if (command.run_for) {
      const auto left =
          *command.run_for - std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
      if (left <= milliseconds(0)) break;
      pause = std::min(pause, left);
    }
    if (!interruptible.sleep(pause)) break;
    if (std::ferror(stdout) != 0) break;
  }
  return finish(found ? kExitFound : kExitNoContext);
}

// What is wrong with the command line, or nothing.
std::optional<std::string> settle(Command& command, bool watching) {
  if (command.all && !command.pid_text.empty()) return "--all and a PID exclude each other";
  if (!command.all) {
    if (command.pid_text.empty()) return watching ? "which PID?" : "a PID or --all?";
    const auto pid = parse_pid(command.pid_text);
    if (!pid) return command.pid_text + " is no process id";
    command.pid = *pid;
  }
  const auto interval = parse_duration(command.interval_text);
  if (!interval || *interval < kShortestInterval) {
    return "--interval: " + command.interval_text +
           " is no duration of 10ms or more, like 500ms, 2s";
  }
  command.interval = *interval;
  if (command.for_text.empty()) return std::nullopt;
  command.run_for = parse_duration(command.for_text);
  if (!command.run_for)
    return "--for: " + command.for_text + " is no duration, like 500ms, 10s, 2m";
  return std::nullopt;
}

int run(int argc, char** argv) {
  CLI::App app("Shows the OpenTelemetry contexts that running processes publish in their memory.",
               "reader_ref");
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 a context was read, 2 usage, 3 no such process, or it may not be looked at,\n"
      "4 no context is published that can be used, 70 a bug in reader_ref.");
  Command command;
  const auto add_common = [&](CLI::App* sub) {
    sub->add_option("PID", command.pid_text, "process id");
    sub->add_flag("--json", command.json, "one JSON object a line (docs/reader.md)");
    sub->add_flag("--no-threads", command.no_threads,
                  "the context of the process only; no thread is stopped");
    sub->add_flag("-v,--verbose", command.verbose,
                  "threads without a context and why, mappings passed over, the variable");
  };
  auto* dump = app.add_subcommand("dump", "read once; stops each thread for a moment");
  add_common(dump);
  dump->add_flag("--all", command.all, "every process that publishes a context");
  auto* watching = app.add_subcommand("watch", "read again and again, print what changes");
  add_common(watching);
  watching->add_option("--interval", command.interval_text, "between two looks; default 1s");
  watching->add_option("--for", command.for_text, "end after this time; default: at SIGINT");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    return complain(kExitUsage, std::string(e.what()) + "; see reader_ref --help");
  }
  const bool is_watch = watching->parsed();
  if (const auto wrong = settle(command, is_watch)) return complain(kExitUsage, *wrong);
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
