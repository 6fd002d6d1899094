// `ctxconf run`: asks a program under test for one group of checks after the other, and judges what
// was recorded.
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "conformance/command_judge.h"
#include "conformance/commands.h"
#include "conformance/testee/checks.h"
#include "conformance/testee/driver.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

std::optional<std::string> settled_seed(const std::string& given) {
  if (given.empty()) {
    std::uint32_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) return std::nullopt;
    return fmt::format("{:08x}", seed);
  }
  const bool hex =
      given.size() <= 16 && given.find_first_not_of("0123456789abcdef") == std::string::npos;
  return hex ? std::optional(given) : std::nullopt;
}

// A command line in a sentence.
std::string shown(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 200;
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + word;
  if (out.size() > kMost) out = out.substr(0, kMost) + "...";
  return "`" + out + "`";
}

// A line for each thing that happens, while it happens.
class Events {
 public:
  bool open(const std::string& path) {
    file_.open(path, std::ios::trunc);
    return file_.is_open();
  }
  void write(nlohmann::ordered_json event) {
    if (!file_.is_open()) return;
    event["at_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::steady_clock::now() - begin_)
                         .count();
    file_ << event.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace)
          << '\n'
          << std::flush;
  }

 private:
  std::ofstream file_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void require_capabilities(const std::vector<std::string>& globs, const nlohmann::json& declared,
                          Prepared& prepared) {
  for (const auto& glob : globs) {
    bool found = false;
    for (const auto& [name, value] : declared.items()) found = found || glob_matches(glob, name);
    if (found) continue;
    prepared.incomplete =
        "the adapter does not declare " + glob + ", which --require-caps asks for";
  }
}

}  // namespace

int command_run(const JudgeOptions& options, const RunCommand& command) {
  if (command.adapter.empty()) {
    return complain(kExitUsage, "run: no adapter", "ctxconf run [options] -- ADAPTER [ARGS]");
  }
  const auto seed = settled_seed(command.seed);
  if (!seed) {
    return complain(kExitUsage, "--seed: " + command.seed + " is no seed",
                    "up to 16 digits of lower-case hex, as a report prints it");
  }
  Prepared prepared = prepare(options);
  if (prepared.exit_code != 0) return prepared.exit_code;
  Timeline timeline = begin_timeline(options, Mode::kRun, command.adapter);
  TesteeOptions testee;
  testee.argv = command.adapter;
  testee.descriptor3 = command.channel == "fd3";
  testee.seed = *seed;
  testee.spec = prepared.spec;
  testee.recording.stores = true;
  if (const int code = prepare_recording(options, "run", testee.recording, timeline); code != 0) {
    return code;
  }
  timeline.watches_lifetime = testee.recording.stores;
  const bool show_progress = isatty(STDERR_FILENO) != 0 && !options.console.quiet;
  const auto begin = std::chrono::steady_clock::now();
  Driver run(testee, prepared.selected, timeline);
  Events events;
  if (!options.out.empty() && !events.open(options.out + "/events.jsonl")) {
    return complain(kExitUsage, "--out: cannot write " + options.out + "/events.jsonl");
  }
  events.write({{"event", "begin"}, {"target", command.adapter}, {"seed", *seed}});
  run.on_check(
      [&](std::string_view group, std::string_view check) {
        if (show_progress) fmt::print(stderr, "\r\033[K{}/{}\r", group, check);
        events.write({{"event", "check"}, {"group", group}, {"check", check}});
      },
      [&](std::string_view group, std::string_view check, std::optional<CheckEnding> ending) {
        events.write({{"event", "checked"},
                      {"group", group},
                      {"check", check},
                      {"ending", ending ? to_string(*ending) : "stopped"}});
      });
  bool goes_on = run.learn_capabilities();
  if (goes_on) require_capabilities(command.require_caps, run.capabilities(), prepared);
  for (std::uint32_t repeat = 0; goes_on && repeat < command.repeat; ++repeat) {
    goes_on = run.drive(process_groups(), repeat) && run.drive(thread_groups(), repeat) &&
              run.drive(record_groups(), repeat);
  }
  if (show_progress) fmt::print(stderr, "\r\033[K");
  timeline.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  timeline.notes.push_back("seed " + *seed);
  if (run.interrupted()) {
    timeline.notes.emplace_back("the run was interrupted");
    prepared.incomplete = "the run was interrupted";
  }
  timeline.harness_fault = run.harness_fault();
  // Its first line says what is wrong, the others are evidence.
  std::string unreachable;
  if (const std::string& fault = run.adapter_fault(); !fault.empty()) {
    unreachable = "the adapter " + shown(command.adapter) + " " + fault.substr(0, fault.find('\n'));
    std::istringstream lines(fault);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) timeline.notes.push_back(line);
  }
  const int code = conclude_run(options, prepared, timeline, "run", unreachable);
  events.write({{"event", "end"}, {"exit", code}});
  return code;
}

}  // namespace ctxconf::conformance
