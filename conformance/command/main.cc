#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/print.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/version.h"
#include "sys/shaking.h"

namespace ctxconf::conformance {
namespace {

constexpr std::array kCommands = {
    wrap_command,   run_command,    reader_command,  adapter_lint_command, repl_command,
    attach_command, replay_command, puppet_command,  elf_command,          decode_command,
    doctor_command, list_command,   explain_command, expect_command,       drift_command,
    report_command, golden_command, selftest_command};

// The words after `--`, as a usage line shows them. `takes` is that of a command.
std::string words_of(std::string_view takes) {
  return takes == "adapter" ? "ADAPTER [ARGS...]" : "CMD [ARGS...]";
}

// The usage line ends with `--` and the program.
class UsageWithProgram final : public CLI::Formatter {
 public:
  explicit UsageWithProgram(std::string program) : program_(std::move(program)) {}

  std::string make_usage(const CLI::App* app, std::string name) const override {
    std::string line = CLI::Formatter::make_usage(app, std::move(name));
    line.pop_back();  // the newline
    return line + " -- " + program_ + "\n";
  }

 private:
  std::string program_;
};

// `@FILE` stands for the words in a file, separated by white space; `#` begins a comment. A word
// whose file cannot be read stays, and `problem` says why.
Words expand(const Words& words, std::string& problem) {
  Words out;
  for (const auto& word : words) {
    if (word.size() < 2 || word.front() != '@') {
      out.push_back(word);
      continue;
    }
    const auto text = read_file(word.substr(1), 1U << 20U);
    if (!text) {
      if (problem.empty()) problem = sys::to_string(text.error());
      out.push_back(word);
      continue;
    }
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream in(line.substr(0, line.find('#')));
      for (std::string w; in >> w;) out.push_back(w);
    }
  }
  return out;
}

// The command that the words name, whether they can be parsed or not; null: none.
const CLI::App* command_in(const Words& words, const std::vector<Command>& commands) {
  for (const auto& word : words) {
    for (const auto& command : commands) {
      if (command.app->get_name() == word) return command.app;
    }
  }
  return nullptr;
}

// What the words give for an option. The parser does not tell: it stops at an error.
Words values_of(std::string_view name, const Words& words, const CLI::App& command) {
  Words out;
  if (command.get_option_no_throw(std::string(name)) == nullptr) return out;
  const std::string joined = std::string(name) + "=";
  auto at = std::ranges::find(words, command.get_name());
  for (; at != words.end() && *at != "--"; ++at) {
    if (at->starts_with(joined)) out.push_back(at->substr(joined.size()));
    if (!at->starts_with('-')) continue;
    const auto* option = command.get_option_no_throw(*at);
    if (option == nullptr || option->get_items_expected_min() == 0) continue;
    const bool is_it = *at == name;
    if (++at == words.end()) break;  // the value of the option
    if (is_it) out.push_back(*at);
  }
  return out;
}

// Complains of words that no command will look at, and removes the reports of an earlier run in its
// place.
int refuse(const Words& words, const std::vector<Command>& commands, const std::string& text,
           const std::string& what_to_do = {}) {
  complain(kExitUsage, text, what_to_do);
  const auto* command = command_in(words, commands);
  if (command == nullptr) return kExitUsage;
  const Words baselines = values_of("--baseline", words, *command);
  for (const auto& folder : values_of("--out", words, *command)) {
    const auto is_in_it = [&](const std::string& baseline) {
      std::error_code none;
      return std::filesystem::equivalent(folder,
                                         std::filesystem::path(baseline).parent_path() / ".", none);
    };
    // The next command needs that.
    if (std::ranges::none_of(baselines, is_in_it)) (void)remove_reports(folder);
  }
  return kExitUsage;
}

int run_command_line(int argc, char** argv) {
  const Words command_line(argv, argv + argc);
  // Only the words before `--` are for ctxconf.
  Words words(command_line.begin() + 1, command_line.end());
  Words program;
  const auto dashes = std::ranges::find(words, "--");
  const bool has_dashes = dashes != words.end();
  if (has_dashes) program.assign(dashes + 1, words.end());
  words.erase(dashes, words.end());
  std::string unread;
  words = expand(words, unread);

  CLI::App app("Judges programs that share OpenTelemetry context through process memory.",
               "ctxconf");
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("ctxconf {} ({})", kVersionText, kCommitText));
  // Commands with other exit codes have their own footer.
  const std::string exit_codes =
      "Exit codes: 0 clean, 1 a requirement is broken, or the program crashed or hung, 2 usage,\n"
      "3 the target cannot be started or reached, or output cannot be written, 4 nothing could be\n"
      "judged, or less than was asked for, 5 the expectations file is stale, 70 a bug in ctxconf.";
  app.footer(exit_codes);
  std::optional<std::uint64_t> shaken;
  std::vector<Command> commands;
  commands.reserve(std::size(kCommands));
  for (const auto& add : kCommands) {
    commands.push_back(add(app, command_line));
    CLI::App* command = commands.back().app;
    if (const char* takes = commands.back().takes; takes != nullptr) {
      command->formatter(std::make_shared<UsageWithProgram>(words_of(takes)));
    }
    if (command->get_option_no_throw("--shake") != nullptr) continue;
    command->add_option("--shake", shaken)->group("");  // for selftest --shake
  }
  app.footer(
      "wrap, run, reader, adapter-lint and repl take a program after --:\n"
      "ctxconf wrap [OPTIONS] -- CMD [ARGS...]\n\n" +
      exit_codes + "\nSome commands have other exit codes: ctxconf COMMAND --help shows them.");
  const auto named = [&] {
    return std::ranges::find_if(commands, [](const Command& c) { return c.app->parsed(); });
  };

  if (!unread.empty()) return refuse(words, commands, unread);

  std::vector<std::string> reversed(words.rbegin(), words.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {  // --help, --version
      std::ostringstream out;
      const int code = app.exit(e, out, out);
      return print(out.str(), code);
    }
    const auto command = named();
    if (command == commands.end()) {
      if (!words.empty() && !words.front().starts_with('-')) {
        return refuse(words, commands, "no command " + words.front(), "ctxconf --help shows them");
      }
      return refuse(words, commands, e.what(), "ctxconf --help shows the options");
    }
    const std::string& name = command->app->get_name();
    if (!has_dashes && command->takes != nullptr) {
      return refuse(words, commands, e.what(),
                    fmt::format("put -- before the {}: ctxconf {} -- {}", command->takes, name,
                                words_of(command->takes)));
    }
    return refuse(words, commands, e.what(), "ctxconf " + name + " --help shows the options");
  }
  const auto command = named();
  if (has_dashes && command->takes == nullptr) {
    return refuse(words, commands,
                  "only run, wrap, reader, adapter-lint and repl take a program after --");
  }
  if (shaken) sys::begin_shaking(*shaken);
  return command->run(program);
}

}  // namespace
}  // namespace ctxconf::conformance

int main(int argc, char** argv) {
  // If the reader of our output goes away, ctxconf must still end the processes that it started.
  std::signal(SIGPIPE, SIG_IGN);
  // A file size limit must give an error that can be reported.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    const int code = ctxconf::conformance::run_command_line(argc, argv);
    return ctxconf::conformance::finish_printing(code);
  } catch (const std::exception& e) {
    if (std::ferror(stdout) != 0) {
      std::fprintf(stderr, "ctxconf: cannot write to stdout: %s\n", e.what());
      return ctxconf::conformance::kExitUnreachable;
    }
    std::fprintf(stderr, "ctxconf: a bug in ctxconf, please report it: %s\n", e.what());
    return ctxconf::conformance::kExitHarnessError;
  }
}
