// `ctxconf adapter-lint`: checks that an adapter follows the testee protocol. It does not judge the
// SDK.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/process_layouts.h"
#include "abi/thread_record.h"
#include "conformance/command/by_hand.h"
#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/print.h"
#include "conformance/report/escape.h"
#include "conformance/testee/line_session.h"
#include "conformance/testee/protocol.h"
#include "conformance/text/json_line.h"
#include "conformance/verdict/exit_code.h"
#include "sys/ending_signals.h"
#include "sys/fd.h"
#include "sys/proc_text.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using Clock = LineSession::Clock;
using std::chrono::milliseconds;

constexpr std::size_t kQuoted = 200;
constexpr std::string_view kSeed = "5eed";
constexpr std::size_t kStatusSize = 65536;
constexpr pid_t kNoProcess = 4'194'304;  // ids are smaller
// What `ctxconf reader` asks with; one is enough.
constexpr std::string_view kReads = "reader.process|reader.thread|reader.record|reader.watch";
constexpr milliseconds kNextToPolling{500};
constexpr milliseconds kWatchedFor{3000};  // at most

Json resource() {
  const Json name = {{"key", "service.name"}, {"value", {{"stringValue", "ctxconf-lint"}}}};
  return {{"attributes", Json::array({name})}};
}
Json attributes() {
  return Json::array({{{"key", "example.key"}, {"value", {{"stringValue", "example"}}}}});
}

struct Trial {
  std::string_view capability;
  Json request;
};

// The simplest operation of every capability, in an order in which each can work.
std::vector<Trial> trials() {
  const Json number = {{"key", "example.number"}, {"value", {{"intValue", 42}}}};
  return {
      {"process.publish", {{"op", "process.publish"}, {"resource", resource()}}},
      {"process.update", {{"op", "process.update"}, {"resource", resource()}}},
      {"process.attributes",
       {{"op", "process.publish"},
        {"resource", resource()},
        {"attributes", Json::array({number})}}},
      {"process.second_resource", {{"op", "process.second_resource"}, {"resource", resource()}}},
      {"process.no_resource", {{"op", "process.publish"}, {"attributes", attributes()}}},
      {"process.parallel",
       {{"op", "parallel"},
        {"requests", Json::array({{{"op", "process.publish"}, {"resource", resource()}}})}}},
      {"process.second_sdk", {{"op", "sdk.load"}}},
      {"process.second_sdk", {{"op", "sdk.unload"}}},
      {"churn", {{"op", "process.churn"}, {"iterations", 2}, {"seed", kSeed}}},
      {"thread", {{"op", "thread.spawn"}, {"thread", "t1"}}},
      {"thread.attach",
       {{"op", "thread.attach"},
        {"thread", "main"},
        {"ctx", "A"},
        {"trace_id", "0af7651916cd43dd8448eb211c80319c"},
        {"span_id", "b7ad6b7169203331"},
        {"flags", 1},
        {"attributes", attributes()}}},
      {"thread.append",
       {{"op", "thread.append"}, {"thread", "main"}, {"attributes", attributes()}}},
      {"thread.shrink", {{"op", "thread.shrink"}, {"thread", "main"}, {"keep", 0}}},
      {"diag.tls_address", {{"op", "diag.tls_address"}, {"thread", "main"}}},
      {"thread.detach", {{"op", "thread.detach"}, {"thread", "main"}}},
      {"thread", {{"op", "thread.block"}, {"thread", "t1"}, {"how", "sleep"}, {"ms", 1}}},
      {"thread", {{"op", "thread.exit"}, {"thread", "t1"}}},
      {"thread.churn",
       {{"op", "thread.churn"}, {"threads", 1}, {"iterations", 2}, {"seed", kSeed}}},
      {"process.drop", {{"op", "process.drop"}}},
  };
}

class Lint {
 public:
  explicit Lint(const AdapterCommand& command)
      : interrupt_(signals_.descriptor()),
        options_{command.adapter, std::string(kSeed), command.channel == "fd3", interrupt_.get()},
        timeout_scale_(command.timeout_scale) {}

  // False if the adapter cannot be started; error() says why.
  bool run() {
    if (!drive()) return false;
    if (!declared_.is_object()) return true;  // without hello nothing more can be said
    for (const bool after_hello : {true, false}) {
      if (interrupted_by() == 0) end_of_file(after_hello);
    }
    return true;
  }

  const std::string& error() const { return error_; }
  std::string report() const {
    std::string out;
    for (const auto& f : findings_) out += "FINDING  " + escape(f, Escape::kTerminal) + "\n";
    for (const auto& n : notes_) out += "note     " + escape(n, Escape::kTerminal) + "\n";
    return out + fmt::format("{} of {} operations answered correctly, {} {}\n", right_, asked_,
                             findings_.size(), findings_.size() == 1 ? "finding" : "findings");
  }
  bool is_clean() const { return findings_.empty(); }
  // The signal that asked this process to end, or 0.
  int interrupted_by() const { return signals_.pending(); }

 private:
  void find(std::string what) {
    if (std::ranges::find(findings_, what) == findings_.end()) findings_.push_back(std::move(what));
  }
  void note(std::string what) {
    if (std::ranges::find(notes_, what) == notes_.end()) notes_.push_back(std::move(what));
  }
  static std::string quoted(const Json& value) { return cut(dumped(value), kQuoted); }

  std::optional<LineSession> begin() {
    auto session = LineSession::start(options_);
    if (session) return std::move(*session);
    error_ = sys::to_string(session.error());
    return std::nullopt;
  }

  // The next line that is not about a watched process.
  std::optional<Json> receive(LineSession& session, Clock::time_point until) {
    auto line = session.receive(until);
    while (watches_ && line && line->value("ev", Json()) == "saw") {
      see(*line);
      line = session.receive(until);
    }
    return line;
  }

  void see(const Json& event) {
    if (const auto problem = problem_of(event, Definition::kEvent)) {
      find("reader.watch: an event that breaks the protocol (" + *problem + "): " + quoted(event));
    } else if (event["pid"] != getpid()) {
      find("reports process " + quoted(event["pid"]) + ", which it was not told to watch");
    } else {
      find_without_content("an event after reader.watch",
                           event.contains("tid") ? "record" : "context", event);
    }
  }

  // An answer about a context or a record that is there has to show it.
  void find_without_content(const std::string& what, const std::string& content,
                            const Json& answer) {
    if (answer.value("result", Json()) != "accept" || answer.contains(content)) return;
    find(what + " says \"accept\" and has no " + content + ": " + quoted(answer));
  }

  // The reply, if it arrived and follows the protocol.
  std::optional<Json> ask(LineSession& session, const Json& request,
                          milliseconds within = kReplyWithin) {
    const std::string op = request.at("op");
    const auto id = session.send(request);
    ++asked_;
    const auto until = Clock::now() + scaled(within);
    auto reply = receive(session, until);
    if (reply && request.contains("gate") && reply->contains("ev")) {
      if (const auto problem = problem_of(*reply, Definition::kEvent)) {
        find(op + " with a gate: an event that breaks the protocol: " + *problem);
      }
      session.send({{"op", "go"}, {"id", id}});
      reply = receive(session, until);
    }
    if (!reply) {
      find(op +
           (Clock::now() < until ? " was not answered, and its output has ended"
                                 : " was not answered in time") +
           (session.noise_lines() == 0
                ? std::string()
                : "; the last line that is not a protocol message: " + session.noise()));
      return std::nullopt;
    }
    const auto definition = (*reply)["ok"] == true ? definition_of_reply(op) : Definition::kReply;
    if (const auto problem = problem_of(*reply, definition)) {
      find(op + " got a reply that breaks the protocol (" + *problem + "): " + quoted(*reply));
      return std::nullopt;
    }
    if ((*reply)["id"] != id) {
      find(fmt::format("{} has id {}, but its reply has another id: {}", op, id, quoted(*reply)));
      return std::nullopt;
    }
    return reply;
  }

  bool ask_declared(LineSession& session, const Trial& trial, Json* reply_out = nullptr) {
    if (!declared_.contains(std::string(trial.capability))) return true;
    auto reply = ask(session, trial.request);
    if (!reply) return false;
    const std::string op = trial.request.at("op");
    if ((*reply)["ok"] != true) {
      find(fmt::format("declares {} but refuses {}: {}", trial.capability, op,
                       quoted((*reply)["error"])));
      return true;
    }
    ++right_;
    if (reply_out != nullptr) *reply_out = *reply;
    return true;
  }

  bool hello(LineSession& session) {
    Json request = hello_request();
    request["example.unknown"] = {{"to", "be ignored"}};
    const auto reply = ask(session, request, kHelloWithin);
    if (!reply) return false;
    if ((*reply)["ok"] != true || (*reply)["v"] != 1) {
      find("refuses hello, or speaks another version: " + quoted(*reply));
      return false;
    }
    ++right_;
    declared_ = (*reply)["caps"];
    check_process(session, (*reply)["pid"].get<std::int64_t>());
    return true;
  }

  // The process that publishes or reads. That of a reader may have been there before.
  void check_process(LineSession& session, std::int64_t pid) {
    const auto process = std::in_range<pid_t>(pid) ? static_cast<pid_t>(pid) : 0;
    const auto status = read_file("/proc/" + std::to_string(process) + "/status", kStatusSize);
    const pid_t tracer =
        status ? sys::status_number<pid_t>(*status, "TracerPid").value_or(0) : pid_t{0};
    if (session.has_started(process)) {
      if (tracer == 0) return;
      find(fmt::format(
          "process {} traces process {} of the adapter, but ctxconf must trace that process",
          tracer, process));
    } else if (status && only_reads()) {
      note(fmt::format(
          "its process {} existed before the adapter started: ctxconf reader does not see its "
          "system calls, so some requirements are unobservable",
          process));
    } else {
      find(
          fmt::format("says that its process is {}, but neither the adapter nor a process that it "
                      "started has this id",
                      pid));
    }
  }

  bool is_reader() const { return is_declared(declared_, kReads); }
  bool only_reads() const {
    return is_reader() && std::ranges::none_of(declared_.items(), [](const auto& capability) {
             return capability.key().starts_with("process.") ||
                    capability.key().starts_with("thread");
           });
  }

  void forks(LineSession& session) {
    Json reply;
    const Trial fork = {"process.fork", {{"op", "process.fork"}, {"child", {{"do", "idle"}}}}};
    if (!declared_.contains("process.fork") || !ask_declared(session, fork, &reply)) return;
    if (!reply.is_object()) return;
    const Trial reap = {"process.fork",
                        {{"op", "process.reap"}, {"child_pid", reply["child_pid"]}}};
    Json reaped;
    if (ask_declared(session, reap, &reaped) && reaped.is_object() && reaped["status"] != SIGKILL) {
      find("process.reap reports status " + quoted(reaped["status"]) +
           ", but the status of a child that SIGKILL ended is 9");
    }
  }

  void ask_reader(LineSession& session, const std::string& op, Json members,
                  const std::string& content) {
    members["op"] = op;
    Json reply;
    if (ask_declared(session, {op, std::move(members)}, &reply) && reply.is_object()) {
      find_without_content(op, content, reply);
    }
  }

  void readers(LineSession& session) {
    for (const pid_t pid : {getpid(), kNoProcess}) {
      ask_reader(session, "reader.process", {{"pid", pid}}, "context");
      ask_reader(session, "reader.thread", {{"pid", pid}, {"tid", pid}}, "record");
    }
    const std::string record = "0af7651916cd43dd8448eb211c80319cb7ad6b716920333101000000";
    for (const std::string& hex : {record, std::string()}) {
      ask_reader(session, "reader.record", {{"hex", hex}, {"key_map", Json::array()}}, "record");
    }
    watches_ = declared_.contains("reader.watch");
    ask_declared(session, {"reader.watch", {{"op", "reader.watch"}, {"pid", getpid()}}});
    if (watches_) {
      const milliseconds poll(declared_["reader.watch"].value("poll_ms", 1000));
      const auto until = Clock::now() + scaled(std::min(poll + kNextToPolling, kWatchedFor));
      if (const auto line = receive(session, until)) {
        find("sends a line without a request: " + quoted(*line));
      }
    }
    ask_declared(session, {"reader.forget", {{"op", "reader.forget"}, {"pid", getpid()}}});
    note_capabilities();
  }

  // What `ctxconf reader` makes of the capabilities, where that may surprise.
  void note_capabilities() {
    const auto has = [&](const char* name) { return declared_.contains(name); };
    if ((has("reader") || has("reader.forget")) && !is_reader()) {
      note(
          "ctxconf reader has nothing to ask: declare at least one of reader.process, "
          "reader.thread, reader.record and reader.watch");
    }
    if (has("reader.watch") && has("reader.process")) {
      note("ctxconf reader asks by reader.process, and does not use reader.watch for that");
    }
    if (has("reader.watch") && !declared_["reader.watch"].contains("poll_ms")) {
      note("reader.watch declares no poll_ms: ctxconf reader assumes 1000 ms");
    }
    if (has("reader.watch_threads") && !has("reader.watch")) {
      note("reader.watch_threads means nothing without reader.watch");
    }
    if ((has("reader.thread") || has("reader.watch_threads")) && !reads_records()) {
      note(
          "formats has no schema version of records: ctxconf reader asks about no record in a "
          "thread");
    }
    note_formats();
    for (const auto& [name, value] : declared_.items()) {
      if (name.starts_with("reader") && !is_known(name)) {
        note(fmt::format("there is no capability {}", cut_name(name)));
      }
    }
  }

  // A reader may be ahead of ctxconf.
  void note_formats() {
    if (!declared_.contains("reader")) return;
    for (const Json& format : declared_["reader"].value("formats", Json::array())) {
      const auto name = format.get<std::string>();
      if (!abi::is_thread_schema(name) && !is_draft(name)) {
        note(fmt::format("ctxconf reader shows nothing of the format {}", cut_name(name)));
      }
    }
  }

  static bool is_draft(std::string_view name) {
    return std::ranges::any_of(abi::header_layouts(), [&](const abi::LayoutFields& f) {
      return f.id == name && f.layout != abi::HeaderLayout::kH5;
    });
  }

  bool reads_records() const {
    return std::ranges::any_of(abi::kThreadSchemaVersions, [&](std::string_view schema) {
      return is_declared(declared_, fmt::format("reader.formats:{}", schema));
    });
  }

  static bool is_known(const std::string& name) {
    constexpr std::array<std::string_view, 7> kNames = {
        "reader",       "reader.process",       "reader.thread", "reader.record",
        "reader.watch", "reader.watch_threads", "reader.forget"};
    return std::ranges::find(kNames, name) != kNames.end();
  }
  static std::string cut_name(const std::string& name) { return name.substr(0, kQuoted); }

  void unknown_operation(LineSession& session) {
    const auto reply = ask(session, {{"op", "example.no-such-operation"}});
    if (!reply) return;
    if ((*reply)["ok"] == false && (*reply)["error"].value("kind", "") == "unsupported") {
      ++right_;
    } else {
      find("an unknown operation must be answered `unsupported`, not " + quoted(*reply));
    }
  }

  bool drive() {
    auto session = begin();
    if (!session) return false;
    bool talks = hello(*session);
    for (const Trial& trial : trials()) {
      if (talks) talks = ask_declared(*session, trial);
    }
    if (talks && declared_.contains("gate") && declared_.contains("process.publish")) {
      const Trial gated = {"gate",
                           {{"op", "process.publish"}, {"resource", resource()}, {"gate", true}}};
      talks = ask_declared(*session, gated);
    }
    if (talks) forks(*session);
    if (talks) readers(*session);
    if (talks) unknown_operation(*session);
    if (talks) {
      const auto bye = ask(*session, {{"op", "bye"}});
      if (bye && (*bye)["ok"] == true) ++right_;
      if (bye && (*bye)["ok"] != true) find("refuses bye: " + quoted(*bye));
    }
    finish(*session, "after bye", talks);
    return true;
  }

  void end_of_file(bool after_hello) {
    auto session = begin();
    if (!session) return;
    if (after_hello && !hello(*session)) return;
    finish(*session,
           after_hello ? "at the end of its input" : "at the end of its input before hello", true);
  }

  void finish(LineSession& session, const std::string& when, bool judged) {
    // The adapter's children end with it, after a moment.
    const auto ended = session.end(scaled(kEndWithin));
    if (ended && judged) {
      if (ended->timed_out)
        find(fmt::format("does not exit within {:g} s {}",
                         std::chrono::duration<double>(scaled(kEndWithin)).count(), when));
      if (!ended->timed_out && ended->exit_code != 0) {
        find(when + (ended->exit_code
                         ? fmt::format(" it exits {}", *ended->exit_code)
                         : fmt::format(" it dies of signal {}", ended->killed_by.value_or(0))));
      }
    }
    if (ended && !judged) note_end(*ended);
    auto left = session.left();
    for (const auto until = Clock::now() + scaled(milliseconds(500));
         !left.empty() && Clock::now() < until && interrupted_by() == 0;) {
      usleep(10'000);
      left = session.left();
    }
    if (!left.empty()) {
      find(fmt::format("{} {} left {}, the first: {}", left.size(),
                       left.size() == 1 ? "process is" : "processes are", when, left.front()));
    }
    if (const auto stay = session.end_left(); !stay.empty()) {
      find(fmt::format("{} of these cannot be ended, the first: {}", stay.size(), stay.front()));
    }
    if (session.noise_lines() > 0 && !noisy_) {
      noisy_ = true;
      notes_.push_back(fmt::format(
          "{} lines on its {} are not protocol messages, which does no harm; the last: {}",
          session.noise_lines(), options_.descriptor3 ? "descriptor 3" : "standard output",
          session.noise()));
    }
  }

  void note_end(const sys::ChildResult& ended) {
    if (ended.exit_code) notes_.push_back(fmt::format("it exited {}", *ended.exit_code));
    if (ended.killed_by && !ended.timed_out) {
      notes_.push_back(fmt::format("it died of signal {}", *ended.killed_by));
    }
    const auto& text = ended.errors;
    if (!text.empty()) {
      notes_.push_back("stderr ends: " + text.substr(text.size() - std::min(text.size(), kQuoted)));
    }
  }

  milliseconds scaled(milliseconds limit) const {
    return std::chrono::duration_cast<milliseconds>(limit * timeout_scale_);
  }

  const sys::EndingSignals signals_;
  const sys::Fd interrupt_;  // readable after a signal
  const LineOptions options_;
  const double timeout_scale_;
  Json declared_;  // `caps` of hello; null without a valid hello
  std::vector<std::string> findings_;
  std::vector<std::string> notes_;
  std::string error_;
  int asked_ = 0;
  int right_ = 0;
  bool noisy_ = false;
  bool watches_ = false;  // reader.watch was asked for
};

int lint(const AdapterCommand& command) {
  if (command.adapter.empty()) {
    return complain(kExitUsage, "adapter-lint: no adapter",
                    "ctxconf adapter-lint [options] -- ADAPTER [ARGS]");
  }
  Lint lint(command);
  const bool started = lint.run();
  if (!started && lint.interrupted_by() == 0) {
    return complain(kExitUsage, "adapter-lint: cannot start the adapter: " + lint.error(),
                    "name a program that exists and is executable");
  }
  if (const int signo = lint.interrupted_by(); signo != 0) {
    return complain_ended("adapter-lint", signo);
  }
  return print(lint.report(), lint.is_clean() ? kExitClean : kExitFailed);
}

}  // namespace

Command adapter_lint_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<AdapterCommand>();
  CLI::App* sub =
      app.add_subcommand("adapter-lint", "check that an adapter follows the testee protocol");
  sub->footer(
      "Exit codes: 0 clean, 1 a finding, 2 usage, or the adapter cannot be started, 3 /proc is\n"
      "not mounted, no process can be started, or stdout could not be written, 70 a bug in\n"
      "ctxconf.");
  return command_by_hand(sub, o, lint);
}

}  // namespace ctxconf::conformance
