#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/has_check.h"
#include "conformance/command/host_facts.h"
#include "conformance/command/print.h"
#include "conformance/requirements/render.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"

namespace ctxconf::conformance {
namespace {

int list(const std::string& what, const std::string& spec, bool json, bool markdown) {
  const Catalogue& catalogue = Catalogue::builtin();
  if (what == "--capabilities") {
    return print(facts_text(sys::Capabilities::of_this_host().facts()), kExitClean);
  }
  if (markdown) {
    return print(requirements_markdown(catalogue), kExitClean);
  }
  SpecSelection selection = all_specs(catalogue);
  if (!spec.empty()) {
    auto parsed = parse_spec(catalogue, spec);
    if (!parsed) return complain(kExitUsage, "--spec: " + parsed.error().detail);
    selection = std::move(*parsed);
  }
  auto requirements = requirements_of(catalogue, selection);
  if (what == "--checks") {
    std::erase_if(requirements, [](const Requirement* r) { return !has_check(*r); });
  }
  return print(json ? list_json(requirements) : list_text(requirements), kExitClean);
}

struct ListCommand {
  std::string what = "--requirements";
  std::string spec;
  bool json = false;
  bool markdown = false;
};

}  // namespace

Command list_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<ListCommand>();
  CLI::App* sub =
      app.add_subcommand("list", "list the requirements, the checks or the host's capabilities");
  sub->add_flag_callback(
      "--requirements", [o] { o->what = "--requirements"; }, "every requirement (default)");
  sub->add_flag_callback(
      "--checks", [o] { o->what = "--checks"; }, "the requirements that this version judges");
  sub->add_flag_callback(
      "--capabilities", [o] { o->what = "--capabilities"; }, "what this host allows");
  sub->add_option("--spec", o->spec, "only these revisions: 4719=2026-04-07");
  sub->add_flag("--json", o->json, "as JSON");
  sub->add_flag("--markdown", o->markdown, "as Markdown: docs/requirements.md");
  sub->footer(
      "Exit codes: 0 the list was printed, 2 usage, 3 stdout could not be written, 70 a bug in\n"
      "ctxconf.");

  return {
      .app = sub,
      .run = [o](const Words& /*program*/) { return list(o->what, o->spec, o->json, o->markdown); },
      .takes = nullptr};
}

}  // namespace ctxconf::conformance
