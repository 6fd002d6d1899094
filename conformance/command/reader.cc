// `ctxconf reader`: shows scripted processes to a reader under test, asks what it makes of them,
// and judges its answers and its reads.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/drive_adapter.h"
#include "conformance/command/judging.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/puppet/record_script.h"
#include "conformance/reader/play_scene.h"
#include "conformance/reader/scenes.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kMostGenerated = 10'000;
constexpr const char* kUsualSeed = "4719";  // the same in each run of CI

struct ReaderCommand {
  CommonOptions common;
  AdapterRun run;
  std::string show;  // the scene whose script is printed; empty: none
  std::uint64_t generated = 0;
};

using Scenes = std::deque<reader::SceneGroup>;

int show_scene(const Scenes& scenes, const std::string& name) {
  for (const reader::SceneGroup& group : scenes) {
    for (const reader::Scene& scene : group.scenes) {
      if (scene.name != name) continue;
      return print(script_with_acts(scene), kExitClean);
    }
  }
  return complain(kExitUsage, "--show: no scene " + name, "--show=list prints the names");
}

int list_scenes(const Scenes& scenes) {
  std::string out;
  for (const reader::SceneGroup& group : scenes) {
    for (const reader::Scene& scene : group.scenes) {
      out += scene.name + "\t" + scene.about + "\n";
    }
  }
  return print(out, kExitClean);
}

int judge_reader(ReaderCommand& o) {
  const auto& host = sys::Capabilities::of_this_host();
  Scenes scenes = reader::scene_groups();
  if (o.generated > 0) {
    if (o.run.seed.empty()) o.run.seed = kUsualSeed;
    const auto seed = hex_number(o.run.seed);
    if (!seed) {
      return complain(kExitUsage, "--seed is not a 64-bit hexadecimal number", "--seed 4719");
    }
    scenes.push_back(reader::generated_scenes(o.generated, *seed, host.has(sys::kHostAnonVmaName)));
  }
  if (o.show == "list") return list_scenes(scenes);
  if (!o.show.empty()) return show_scene(scenes, o.show);
  if (const int code = check_children("reader"); code != 0) return code;
  const auto programs = puppet::find_puppets();
  if (!programs) {
    return complain(kExitUnreachable, sys::to_string(programs.error()),
                    puppet::kHowToInstallPuppets);
  }
  reader::StageOptions stage;
  stage.programs = *programs;
  stage.timeout_scale = o.common.judge.timeout_scale;
  stage.calls = std::make_shared<reader::ReaderCallRecorder>();
  stage.names_memory = host.has(sys::kHostAnonVmaName);
  stage.names_shmem = host.has(sys::kHostShmemVmaName);
  stage.early = std::make_shared<std::map<std::string, std::unique_ptr<reader::Target>>>();
  const auto groups = reader::groups_of(scenes, stage);
  o.run.name = "reader";
  o.run.mode = Mode::kReader;
  o.run.role = Role::kReader;
  for (const Group& group : groups) o.run.groups.push_back(&group);
  o.run.configure = [&stage](TesteeOptions& testee) {
    testee.reader = true;
    testee.recording.observer = stage.calls;
    testee.recording.looks_by_itself = false;
    testee.recording.no_stores = "a reader's own memory is not observed";
  };
  return drive_adapter(o.common.judge, o.run);
}

}  // namespace

Command reader_command(CLI::App& app, const Words& command_line) {
  const auto o = std::make_shared<ReaderCommand>();
  CLI::App* sub = app.add_subcommand(
      "reader", "show scripted processes to a reader over the testee protocol and judge it");
  add_common(*sub, o->common);
  add_adapter_options(*sub, o->common, o->run);
  auto* generate =
      sub->add_option("--generate", o->generated,
                      "show N generated legal programs as well, and ask between their acts")
          ->type_name("N")
          ->check(CLI::Range(std::uint64_t{1}, kMostGenerated));
  sub->get_option("--seed")
      ->description("seed of the generated programs, in hexadecimal; default: 4719")
      ->needs(generate);
  sub->add_option("--show", o->show,
                  "print the script of a scene, with the questions as comments, and "
                  "stop;\n--show=list prints all names");

  return {.app = sub,
          .run =
              [o, command_line](const Words& program) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                o->run.adapter = program;
                return judge_reader(*o);
              },
          .takes = "adapter"};
}

}  // namespace ctxconf::conformance
