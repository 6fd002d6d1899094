#include <CLI/CLI.hpp>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/print.h"
#include "conformance/requirements/render.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

int explain(const std::string& id) {
  const auto text = explain(Catalogue::builtin(), id);
  if (!text) return complain(kExitUsage, text.error().detail, "`ctxconf list` shows the ids");
  return print(*text, kExitClean);
}

struct ExplainCommand {
  std::string id;
};

}  // namespace

Command explain_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<ExplainCommand>();
  CLI::App* sub = app.add_subcommand(
      "explain", "explain one requirement: why it matters and how it is observed");
  sub->add_option("ID", o->id, "like pctx.fork.dontfork")->required();
  sub->footer(
      "Exit codes: 0 the requirement was printed, 2 usage, or an unknown ID, 3 stdout could not "
      "be\n"
      "written, 70 a bug in ctxconf.");
  return {.app = sub,
          .run = [o](const Words& /*program*/) { return explain(o->id); },
          .takes = nullptr};
}

}  // namespace ctxconf::conformance
