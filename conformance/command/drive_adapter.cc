#include "conformance/command/drive_adapter.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "conformance/command/files.h"
#include "conformance/command/judging.h"
#include "conformance/command/on_fail.h"
#include "conformance/command/output_folder.h"
#include "conformance/command/print.h"
#include "conformance/command/repeats.h"
#include "conformance/command/run_progress.h"
#include "conformance/testee/driver.h"
#include "conformance/testee/jobs.h"
#include "conformance/text/json_line.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"
#include "sys/ending_signals.h"
#include "sys/fd.h"

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

// A command line, as a sentence shows it.
std::string shown_words(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 200;
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + word;
  if (out.size() > kMost) out = out.substr(0, kMost) + "...";
  return "`" + out + "`";
}

// Writes a line of events.jsonl for each event, at once.
class Events {
 public:
  sys::Result<> open(const OutputFolder& out) {
    CTX_ASSIGN_OR_RETURN(file, out.create(kName));
    file_ = std::move(file);
    return {};
  }
  void write(nlohmann::ordered_json event) {
    if (!file_.is_open()) return;
    event["at_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::steady_clock::now() - begin_)
                         .count();
    if (const int err = sys::write_all(file_.get(), dumped(event) + "\n");
        err != 0 && problem_.empty()) {
      problem_ = sys::to_string({"write", err, kName});
      file_.reset();
    }
  }
  // Why events.jsonl lacks something, or empty.
  const std::string& problem() const { return problem_; }

 private:
  static constexpr const char* kName = "events.jsonl";
  sys::Fd file_;
  std::string problem_;
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

// The ids of the selected requirements; empty if all are selected.
std::vector<std::string> ids_where_not_all(const Prepared& prepared, Role role) {
  std::vector<std::string> out;
  Selection selection;
  selection.role = role;
  selection.spec = prepared.spec;
  const auto all = select(Catalogue::builtin(), selection);
  if (!all || all->size() == prepared.selected.size()) return out;
  out.reserve(prepared.selected.size());
  for (const Requirement* r : prepared.selected) out.push_back(r->id);
  return out;
}

// Why a run stopped early; all empty if it did not.
struct Ending {
  std::string adapter_fault;
  std::string harness_fault;
  bool interrupted = false;
};

std::vector<Unit> units_of(std::span<const Group* const> groups, std::uint32_t repeats) {
  std::vector<Unit> out;
  for (std::uint32_t repeat = 0; repeat < repeats; ++repeat) {
    for (const Group* group : groups) out.push_back({group, repeat});
  }
  return out;
}

Ending drive(Driver& driver, const AdapterRun& command, const JudgeOptions& options,
             Prepared& prepared, Timeline& timeline, Events& events) {
  const auto units = units_of(command.groups, command.repeat);
  std::size_t checks = 0;
  for (const Unit& unit : units) checks += driver.checks_of(*unit.group);
  RunProgress progress(options.console.quiet, checks, command.repeat);
  const Timeline empty = timeline;
  Repeats repeats(prepared.selected, units.size() / command.repeat, timeline);
  Ending ending;
  JobCalls calls;
  calls.drive.begin = [&](std::string_view group, std::string_view check) {
    progress.begin(group, check);
    events.write({{"event", "check"}, {"group", group}, {"check", check}});
  };
  calls.drive.end = [&](std::string_view group, std::string_view check,
                        std::optional<CheckEnding> how) {
    progress.end();
    events.write({{"event", "checked"},
                  {"group", group},
                  {"check", check},
                  {"ending", how ? to_string(*how) : "stopped"}});
  };
  if (progress.shows_stepping()) {
    calls.drive.stepping = [&](std::string_view group, std::uint64_t steps, double seconds) {
      progress.stepping(group, steps, seconds);
    };
  }
  calls.take = [&](const Unit& unit, GroupRun run) {
    const auto number = static_cast<std::size_t>(&unit - units.data());
    progress.end_group(unit.group->name, driver.checks_of(*unit.group), run.asked);
    bool failed = false;
    if (ends_at_failure(options)) {
      Timeline alone = empty;
      append(run.part, alone);
      failed = shows_failure(options, prepared, alone);
    }
    repeats.add(number, std::move(run.part), run.goes_on());
    if (!run.goes_on()) {
      if (ending.adapter_fault.empty()) ending.adapter_fault = std::move(run.adapter_fault);
      if (ending.harness_fault.empty()) ending.harness_fault = std::move(run.harness_fault);
      ending.interrupted = ending.interrupted || run.interrupted;
      return false;
    }
    if (failed && number + 1 < units.size()) {
      prepared.incomplete = "it was ended at its first failure";
      prepared.partial = true;
      timeline.notes.emplace_back("ended at the first failure: later checks were not asked");
      return false;
    }
    if (command.repeat == 1 || !repeats.is_full()) return true;
    progress.end_repeat(unit.repeat);
    if (repeats.end(unit.repeat) || number + 1 == units.size()) return true;
    prepared.incomplete =
        fmt::format("it was repeated {} times instead of {}: {} repeats differ from all others",
                    unit.repeat + 1, command.repeat, kMostDiffering);
    prepared.partial = true;
    return false;
  };
  JobsEnding jobs = drive_all(driver, units, command.jobs, options.timeout_scale, calls);
  repeats.finish();
  ending.interrupted = ending.interrupted || jobs.interrupted;
  if (ending.harness_fault.empty()) ending.harness_fault = std::move(jobs.harness_fault);
  if (jobs.stops > 0) {
    timeline.notes.push_back(
        fmt::format("processes of ctxconf were stopped {} times by another process, and continued",
                    jobs.stops));
  }
  if (jobs.unreachable && ending.adapter_fault.empty()) {
    ending.adapter_fault = "cannot be observed: a page of its memory could not be read in time";
  }
  return ending;
}

}  // namespace

int drive_adapter(const JudgeOptions& options, const AdapterRun& command) {
  if (command.adapter.empty()) {
    return complain(kExitUsage, command.name + ": no adapter",
                    "ctxconf " + command.name + " [options] -- ADAPTER [ARGS]");
  }
  const auto seed = settled_seed(command.seed);
  if (!seed) {
    return complain(kExitUsage, "--seed: " + command.seed + " is not a seed",
                    "up to 16 digits of lower-case hex, as a report prints it");
  }
  if (const int code = check_on_fail(options); code != 0) return code;
  Prepared prepared = prepare(options, command.role);
  if (prepared.exit_code != 0) return prepared.exit_code;
  prepared.seed = *seed;
  Timeline timeline = begin_timeline(options, command.mode, command.adapter);
  timeline.asked_for = ids_where_not_all(prepared, command.role);
  TesteeOptions testee;
  testee.argv = command.adapter;
  testee.descriptor3 = command.channel == "fd3";
  testee.seed = *seed;
  testee.spec = prepared.spec;
  testee.deepest = prepared.deepest;
  testee.mode = command.mode;
  command.configure(testee);
  if (const int code =
          prepare_recording(options, prepared, command.name, testee.recording, timeline);
      code != 0) {
    return code;
  }
  timeline.watches_lifetime = testee.recording.stores;
  const auto names = std::ranges::find(timeline.host, sys::kHostAnonVmaName, &sys::HostFact::name);
  testee.names_memory = names != timeline.host.end() && names->available;
  const auto begin = std::chrono::steady_clock::now();
  Driver driver(testee, prepared.selected);
  Events events;
  if (prepared.out) {
    if (const auto opened = events.open(*prepared.out); !opened) {
      return complain(kExitUsage, "--out: " + sys::to_string(opened.error()));
    }
  }
  events.write({{"event", "begin"}, {"target", command.adapter}, {"seed", *seed}});
  testee.recording.unreachable = [&events, self = getpid()](pid_t pid) {
    // The parent reports for its jobs. Nothing else runs here any more.
    if (getpid() == self) events.write({{"event", "end"}, {"exit", kExitUnreachable}});
    give_up_on(pid);
  };
  std::optional<sys::EndingSignals> signals(std::in_place);
  const GroupRun asked = driver.learn_capabilities();
  Ending ending{asked.adapter_fault, asked.harness_fault, asked.interrupted};
  if (asked.goes_on()) {
    require_capabilities(command.require_caps, driver.capabilities(), prepared);
    ending = drive(driver, command, options, prepared, timeline, events);
  }
  signals.reset();
  timeline.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  timeline.notes.push_back("seed " + *seed);
  if (ending.interrupted) {
    timeline.notes.emplace_back("the run was interrupted");
    prepared.incomplete = "the run was interrupted";
    prepared.partial = true;
  }
  timeline.harness_fault = ending.harness_fault;
  // Its first line says what is wrong; the other lines are evidence.
  std::string unreachable;
  if (const std::string& fault = ending.adapter_fault; !fault.empty()) {
    unreachable =
        "the adapter " + shown_words(command.adapter) + " " + fault.substr(0, fault.find('\n'));
    std::istringstream lines(fault);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) timeline.notes.push_back(line);
  }
  if (asked.start_error != 0) {
    complain(kExitUnreachable, unreachable,
             advice_for_start(asked.start_error, command.adapter.front(), command.name));
    prepared.is_told = true;
  }
  RunResult run;
  if (prepared.incomplete.empty()) prepared.incomplete = unreachable;
  prepared.unwritten = events.problem();
  const int code = conclude_run(options, prepared, timeline, command.name, unreachable, &run);
  events.write({{"event", "end"}, {"exit", code}});
  if (prepared.unwritten.empty() && !events.problem().empty()) {
    return complain(unwritten_code(code), events.problem());
  }
  return stand_at_failure(options, run, timeline, code,
                          [&](const PausePoint& at, const std::string& group, auto paused) {
                            Timeline again = begin_timeline(options, command.mode, command.adapter);
                            testee.recording.pause_at = at;
                            testee.recording.paused = std::move(paused);
                            const sys::EndingSignals second;
                            for (const Unit& unit : units_of(command.groups, 1)) {
                              if (unit.group->name == group)
                                append(driver.drive(*unit.group).part, again);
                            }
                            return again;
                          });
}

void add_adapter_options(CLI::App& app, CommonOptions& common, AdapterRun& run) {
  add_channel(app, run.channel, common.judge.timeout_scale);
  app.add_option(
      "--seed", run.seed,
      "seed of the values that the adapter is given, in hexadecimal; default: a new one,\n"
      "which is printed");
  app.add_option("--repeat", run.repeat,
                 "run everything N times; the outcome of a requirement is its worst")
      ->check(CLI::Range(1, 1000));
  app.add_option("--jobs", run.jobs,
                 "run N groups of checks at once, each in its own process; default: 1")
      ->check(CLI::Range(1U, kMostJobs));
  app.add_option(
         "--require-caps", run.require_caps,
         "exit 4 unless the adapter declares the capabilities that this glob matches (repeatable)")
      ->allow_extra_args(false);
}

}  // namespace ctxconf::conformance
