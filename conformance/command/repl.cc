// `ctxconf repl`: sends typed operations to an adapter and shows what a reader sees after each.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <expected>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "conformance/command/by_hand.h"
#include "conformance/command/command.h"
#include "conformance/command/judging.h"
#include "conformance/command/print.h"
#include "conformance/observe/attach.h"
#include "conformance/report/escape.h"
#include "conformance/rules/evidence.h"
#include "conformance/testee/line_session.h"
#include "conformance/testee/protocol.h"
#include "conformance/text/counts.h"
#include "conformance/verdict/exit_code.h"
#include "sys/ending_signals.h"
#include "sys/fd.h"
#include "sys/kept_terminal.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using Clock = LineSession::Clock;
using std::chrono::milliseconds;

constexpr std::size_t kShown = 512;  // bytes of a block
constexpr std::size_t kBytesOfALine = 16;
constexpr std::size_t kLineShown = 20'000;

constexpr std::string_view kGrammar =
    "an operation as JSON, or: OP [NAME=VALUE] [@RESOURCE_ATTRIBUTE=TEXT] [+ATTRIBUTE=TEXT]\n"
    "  process.publish @service.name=shop\n"
    "  thread.attach thread=main ctx=A flags=1 +http_route=/cart\n"
    "quit, or the end of the input, sends bye\n";

// The request in a line, or what is wrong with the line.
std::expected<Json, std::string> request_of(const std::string& line) {
  if (line.front() == '{') {
    Json value = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!value.is_object() || !value.contains("op") || !value["op"].is_string()) {
      return std::unexpected("not a JSON object with a string `op`");
    }
    return value;
  }
  std::istringstream words(line);
  std::string word;
  words >> word;
  Json request = {{"op", word}};
  while (words >> word) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      return std::unexpected("not NAME=VALUE: " + word);
    }
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (name.front() == '@') {
      request["resource"]["attributes"].push_back(text_attribute(name.substr(1), value));
    } else if (name.front() == '+') {
      request["attributes"].push_back(text_attribute(name.substr(1), value));
    } else {
      const Json parsed = Json::parse(value, nullptr, false);
      request[name] = parsed.is_discarded() ? Json(value) : parsed;
    }
  }
  return request;
}

std::string hex_of(const MemoryBlock& block) {
  std::string out;
  const std::size_t shown = std::min(block.bytes.size(), kShown);
  for (std::size_t i = 0; i < shown; i += kBytesOfALine) {
    std::string bytes;
    std::string text;
    for (std::size_t k = i; k < std::min(shown, i + kBytesOfALine); ++k) {
      const auto b = std::to_integer<unsigned char>(block.bytes[k]);
      bytes += fmt::format("{:02x} ", b);
      text += b >= 0x20 && b < 0x7f ? static_cast<char>(b) : '.';
    }
    out += fmt::format("    {:012x}  {:<48} |{}|\n", block.at.raw() + i, bytes, text);
  }
  if (block.bytes.size() > shown) {
    out += fmt::format("    and {}\n", counted(block.bytes.size() - shown, "more byte"));
  }
  return out;
}

std::string candidate_text(const Candidate& candidate) {
  if (candidate.memory.empty()) return "  a mapping that cannot be read\n";
  const MemoryBlock& start = candidate.memory.front();
  std::string out = fmt::format("  header at {:#x}\n{}", start.at.raw(), hex_of(start));
  const auto header = abi::decode_process_header(start.bytes);
  if (!header) return out;
  for (const MemoryBlock& block : candidate.memory) {
    if (block.at.raw() != header->payload || block.wanted != header->payload_size) continue;
    return out + fmt::format("  payload, {} bytes\n{}", block.wanted, hex_of(block));
  }
  return out + "  its payload cannot be read\n";
}

// The header, payload and threads of the process now. Calls `unreachable` before it gives up on the
// process.
std::string view_of(pid_t pid, const std::function<void()>& unreachable) {
  Timeline timeline;
  timeline.mode = Mode::kAttach;
  AttachOptions attach;
  attach.pids = {pid};
  attach.watch_for = milliseconds(1);
  attach.unreachable = [&](pid_t process) {
    unreachable();
    give_up_on(process);
  };
  if (const auto recorded = record_attach(attach, timeline); !recorded) {
    return "  it cannot be observed: " +
           escape(sys::to_string(recorded.error()), Escape::kTerminal) + "\n";
  }
  std::string out;
  for (const ImageEvidence& e : evidence_of(timeline)) {
    if (!e.image->snapshots.empty()) {
      for (const Candidate& candidate : e.image->snapshots.back().candidates) {
        out += candidate_text(candidate);
      }
    }
    out += e.published() ? "  a reader sees " + escape(summary_of(e), Escape::kTerminal) + "\n"
                         : std::string("  a reader sees no process context\n");
    if (const auto threads = threads_of(e); !threads.empty()) {
      out += "  " + escape(threads, Escape::kTerminal) + "\n";
    }
  }
  return out;
}

std::string shown(const Json& line) {
  return escape(line.dump(-1, ' ', false, Json::error_handler_t::replace), Escape::kTerminal,
                kLineShown);
}

// Sends a request and prints the reply. False if none arrived.
bool exchange(LineSession& session, const Json& request, milliseconds within, Json& reply) {
  session.send(request);
  auto line = session.receive(Clock::now() + within);
  if (line && line->contains("ev")) {  // armed: the reply comes after a `go`
    fmt::print("{}\n", shown(*line));
    Json go = {{"op", "go"}, {"id", (*line)["id"]}};
    session.send(std::move(go));
    line = session.receive(Clock::now() + within);
  }
  if (!line) return false;
  fmt::print("{}\n", shown(*line));
  const std::string op = request.at("op");
  const auto definition =
      line->value("ok", Json()) == true ? definition_of_reply(op) : Definition::kReply;
  if (const auto problem = problem_of(*line, definition)) {
    fmt::print("  breaks the protocol: {}\n", escape(*problem, Escape::kTerminal));
  }
  reply = std::move(*line);
  return true;
}

int no_reply(LineSession& session, milliseconds within) {
  const auto ended = session.end(within);
  std::string how = "it did not answer in time";
  if (ended && ended->exit_code) how = fmt::format("it exited {}", *ended->exit_code);
  if (ended && ended->killed_by && !ended->timed_out) {
    how = fmt::format("it died of signal {}", *ended->killed_by);
  }
  std::string errors = ended ? ended->errors : std::string();
  if (errors.size() > kTextLimit) errors.erase(0, errors.size() - kTextLimit);
  if (!session.noise().empty()) how += "; it wrote " + escape(session.noise(), Escape::kTerminal);
  return complain(kExitUnreachable, "repl: " + how,
                  errors.empty() ? "" : "its standard error: " + escape(errors, Escape::kTerminal));
}

// The lines of standard input, until it ends or a signal asks this process to end.
class InputLines {
 public:
  explicit InputLines(int interrupt) : interrupt_(interrupt) {}

  std::optional<std::string> next() {
    std::size_t end = 0;
    while ((end = text_.find('\n')) == std::string::npos) {
      if (!read_more()) return rest();
    }
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }

 private:
  bool read_more() {
    sys::KeptTerminal::retake_foreground();
    std::array<pollfd, 2> fds = {{{STDIN_FILENO, POLLIN, 0}, {interrupt_, POLLIN, 0}}};
    if (poll(fds.data(), fds.size(), -1) < 0) return errno == EINTR;
    if (fds[1].revents != 0) {
      text_.clear();
      return false;
    }
    std::array<char, 4096> bytes{};
    const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    text_.append(bytes.data(), static_cast<std::size_t>(n));
    return n > 0;
  }
  // The last line may lack a newline.
  std::optional<std::string> rest() {
    if (text_.empty()) return std::nullopt;
    return std::exchange(text_, {});
  }

  int interrupt_;
  std::string text_;
};

int repl(const AdapterCommand& command) {
  if (command.adapter.empty()) {
    return complain(kExitUsage, "repl: no adapter", "ctxconf repl [options] -- ADAPTER [ARGS]");
  }
  // Order of destruction: the adapter ends first, then the terminal is restored, then a signal
  // takes effect.
  const sys::EndingSignals signals;
  const sys::Fd interrupt = signals.descriptor();
  const sys::KeptTerminal terminal;
  auto session =
      LineSession::start({command.adapter, "5eed", command.channel == "fd3", interrupt.get()});
  const auto scaled = [&](milliseconds limit) {
    return std::chrono::duration_cast<milliseconds>(limit * command.timeout_scale);
  };
  if (!session) {
    return complain(kExitUnreachable,
                    "repl: cannot start the adapter: " + sys::to_string(session.error()),
                    "name a program that exists and is executable");
  }
  const bool prompts = isatty(STDIN_FILENO) != 0;
  if (prompts) fmt::print("{}", kGrammar);
  const auto leave_nothing = [&] {
    (void)session->end(milliseconds(0));
    (void)session->end_left();
    sys::KeptTerminal::restore();
  };
  const auto ended_by_signal = [&] {
    leave_nothing();
    return complain_ended("repl", signals.pending());
  };
  const auto not_answered = [&] {
    return signals.pending() != 0 ? ended_by_signal() : no_reply(*session, scaled(kEndWithin));
  };
  Json reply;
  if (!exchange(*session, hello_request(), scaled(kHelloWithin), reply)) return not_answered();
  pid_t pid = 0;
  if (reply.contains("pid") && reply["pid"].is_number_integer()) {
    const auto said = reply["pid"].get<std::int64_t>();
    // Only its own processes: an adapter must not show the memory of others.
    if (std::in_range<pid_t>(said) && session->has_started(static_cast<pid_t>(said))) {
      pid = static_cast<pid_t>(said);
    }
  }
  InputLines input(interrupt.get());
  while (true) {
    if (prompts) fmt::print("> ");
    std::fflush(stdout);
    const auto given = input.next();
    if (signals.pending() != 0) return ended_by_signal();
    if (!given || *given == "quit") break;
    const std::string& line = *given;
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const auto request = request_of(line);
    if (!request) {
      fmt::print("{}\n{}", escape(request.error(), Escape::kTerminal), kGrammar);
      continue;
    }
    if ((*request)["op"] == "bye") break;
    if (!exchange(*session, *request, scaled(kReplyWithin), reply)) return not_answered();
    if (pid != 0) fmt::print("{}", view_of(pid, leave_nothing));
  }
  if (!exchange(*session, {{"op", "bye"}}, scaled(kReplyWithin), reply)) return not_answered();
  (void)session->end(scaled(kEndWithin));
  if (const auto left = session->end_left(); !left.empty()) {
    complain(kExitClean, fmt::format("repl: process {} could not be ended", left.front()));
  }
  return kExitClean;
}

}  // namespace

Command repl_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<AdapterCommand>();
  CLI::App* sub = app.add_subcommand(
      "repl", "type operations for an adapter by hand, and see its memory after each");
  sub->footer(
      "Exit codes: 0 the conversation ended by quit, bye or the end of the input, 2 usage,\n"
      "3 the adapter cannot be started or did not answer, /proc is not mounted, no process can be\n"
      "started, or stdout could not be written, 70 a bug in ctxconf.");
  return command_by_hand(sub, o, repl);
}

}  // namespace ctxconf::conformance
