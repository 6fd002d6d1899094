// The commands of `ctxconf`. Each has its own file, with its options.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ctxconf::conformance {

using Words = std::vector<std::string>;

struct Command {
  CLI::App* app = nullptr;  // its name and options
  // Runs the command after its options were parsed; returns the exit code. `program` is the words
  // after `--`.
  std::function<int(const Words& program)> run;
  const char* takes = nullptr;  // what follows `--`: "adapter"; null: nothing may
};

// Each adds a command to `app`. `command_line` is ctxconf's own, for the report.
Command adapter_lint_command(CLI::App& app, const Words& command_line);
Command attach_command(CLI::App& app, const Words& command_line);
Command decode_command(CLI::App& app, const Words& command_line);
Command doctor_command(CLI::App& app, const Words& command_line);
Command drift_command(CLI::App& app, const Words& command_line);
Command elf_command(CLI::App& app, const Words& command_line);
Command expect_command(CLI::App& app, const Words& command_line);
Command explain_command(CLI::App& app, const Words& command_line);
Command golden_command(CLI::App& app, const Words& command_line);
Command list_command(CLI::App& app, const Words& command_line);
Command puppet_command(CLI::App& app, const Words& command_line);
Command reader_command(CLI::App& app, const Words& command_line);
Command repl_command(CLI::App& app, const Words& command_line);
Command replay_command(CLI::App& app, const Words& command_line);
Command report_command(CLI::App& app, const Words& command_line);
Command run_command(CLI::App& app, const Words& command_line);
Command selftest_command(CLI::App& app, const Words& command_line);
Command wrap_command(CLI::App& app, const Words& command_line);

}  // namespace ctxconf::conformance
