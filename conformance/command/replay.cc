#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/judging.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

int replay(const JudgeOptions& options, const std::string& file) {
  if (const int code = check_told_values(options); code != kExitClean) return code;
  const auto text = read_file(file, kLongestTimeline);
  if (!text) return complain(kExitUsage, "replay: " + sys::to_string(text.error()));
  auto timeline = timeline_from_json(*text);
  if (!timeline) {
    return complain(kExitUsage, "replay: " + file + ": " + timeline.error().detail);
  }
  const Role role = timeline->mode == Mode::kReader ? Role::kReader : Role::kWriter;
  Prepared prepared = prepare(options, role);
  if (prepared.exit_code != 0) return prepared.exit_code;
  const bool expects = !options.expect_resource.empty() || !options.expect_trace_id.empty() ||
                       !options.expect_span_id.empty();
  if (expects && timeline->mode == Mode::kReader) {
    return complain(kExitUsage,
                    "--expect-resource, --expect-trace-id and --expect-span-id are about programs "
                    "that publish; this is a recording of a reader",
                    "leave them out");
  }
  if (!options.expect_resource.empty()) timeline->expected_resource = options.expect_resource;
  add_told_ids(options, *timeline);
  if (const auto reading = reading_from(options.reading)) timeline->reading = *reading;
  // The run recorded only what these requirements need.
  prepared.partial = std::ranges::any_of(prepared.selected, [&](const Requirement* r) {
    const auto& asked_for = timeline->asked_for;
    return !asked_for.empty() && r->has_mode(timeline->mode) &&
           std::ranges::find(asked_for, r->id) == asked_for.end();
  });
  return conclude_run(options, prepared, *timeline, "replay");
}

struct ReplayCommand {
  CommonOptions common;
  std::string file;
};

}  // namespace

Command replay_command(CLI::App& app, const Words& command_line) {
  const auto o = std::make_shared<ReplayCommand>();
  CLI::App* sub = app.add_subcommand("replay", "judge a recorded run again, without the program");
  add_common(*sub, o->common);
  add_expected_resource(*sub, o->common);
  add_expected_ids(*sub, o->common);
  sub->add_option("TIMELINE", o->file, "timeline.json, which a run with --out writes")->required();
  sub->footer(
      "Exit codes: 0 clean, 1 a requirement is broken, or the program crashed or hung, 2 usage, "
      "or\n"
      "TIMELINE cannot be read or is not a recording, 3 output could not be written, 4 nothing\n"
      "could be judged, or less than was asked for, 5 the expectations file is stale, 70 a bug in\n"
      "ctxconf.");

  return {.app = sub,
          .run =
              [o, command_line](const Words& /*program*/) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                return replay(o->common.judge, o->file);
              },
          .takes = nullptr};
}

}  // namespace ctxconf::conformance
