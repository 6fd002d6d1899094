#include "conformance/report/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "conformance/report/console.h"
#include "conformance/report/escape.h"
#include "conformance/report/fault_table.h"
#include "conformance/report/wording.h"
#include "conformance/text/counts.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostSummaryRequirements = 50;
constexpr std::size_t kMostSummaryExpectationProblems = 20;
constexpr std::size_t kMostSummaryNotes = 5;
constexpr std::size_t kSawLimit = 300;
constexpr std::size_t kSummaryCommandLimit = 1000;
constexpr std::size_t kMostInFull = 20;
constexpr std::size_t kInFullLimit = std::size_t{256} << 10;  // bytes of all of them

constexpr std::array kOrder = {Outcome::kCrash, Outcome::kTimeout, Outcome::kHarnessError,
                               Outcome::kFail, Outcome::kWarn};

// `inert` text as a code span that is also safe inside a table.
std::string span_of(std::string_view inert) {
  std::string out = "`";
  for (const char c : inert) {
    if (c == '`') {
      out += "\\x60";
    } else if (c == '|') {
      out += "\\x7c";
    } else {
      out += c;
    }
  }
  // An empty span would end at the next backtick.
  return inert.empty() ? std::string() : out + '`';
}
std::string span(std::string_view text, std::size_t limit = kSawLimit) {
  return span_of(inert(text, limit));
}

// Inert lines as a block with a fence that none of them can end.
std::string block(std::string_view language, std::string_view lines) {
  std::size_t longest = 2;
  std::size_t run = 0;
  for (const char c : lines) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{}{}\n{}{}{}\n\n", fence, language, lines, lines.ends_with('\n') ? "" : "\n",
                     fence);
}

std::string_view verdict(int exit_code) {
  switch (exit_code) {
    case 0:
      return "passed";
    case 1:
      return "failed";
    case 2:
      return "was given bad input";
    case 3:
      return "did not reach the program";
    case 4:
      return "could not judge";
    case 5:
      return "found the expectations file stale";
    default:
      return "has a bug";
  }
}

std::vector<const RequirementResult*> problems_of(const RunResult& run) {
  std::vector<const RequirementResult*> out;
  for (const Outcome outcome : kOrder) {
    for (const RequirementResult& result : run.results) {
      if (result.outcome == outcome && result.expected != Expected::kAsExpected) {
        out.push_back(&result);
      }
    }
  }
  return out;
}

std::string saw_of(const RequirementResult& result) {
  return result.findings.empty() ? std::string() : span(result.findings.front().saw);
}

std::string table(const RunResult& run, std::span<const RequirementResult* const> problems) {
  const std::size_t all = run.problems.size() + problems.size();
  if (all == 0) return {};
  std::string out = "| | requirement | saw |\n|---|---|---|\n";
  std::size_t shown = 0;
  for (const RunProblem& problem : run.problems) {
    if (shown == kMostSummaryRequirements) break;
    out +=
        fmt::format("| **{}** | the run | {} |\n", label_of(problem.outcome), span(problem.text));
    ++shown;
  }
  for (const RequirementResult* result : problems) {
    if (shown == kMostSummaryRequirements) break;
    out += fmt::format("| **{}** | {} | {} |\n", label_of(result->outcome),
                       span_of(result->requirement->id), saw_of(*result));
    ++shown;
  }
  if (shown < all) out += fmt::format("\n… and {} more, in the other reports.\n", all - shown);
  return out + "\n";
}

std::string fault_matrix(const RunResult& run) {
  std::string lines;
  for (const auto& text : fault_matrix_lines(run.faults)) lines += text + "\n";
  return lines.empty() ? lines : block("text", lines);
}

std::string again(const RunResult& run, std::span<const RequirementResult* const> problems) {
  std::string lines;
  const auto add = [&lines](const std::string& command) {
    // A truncated command would not help.
    if (!command.empty() && command.size() <= kSummaryCommandLimit) lines += command + "\n";
  };
  if (!run.problems.empty()) add(inert(shell_command(run.command_line), kTextLimit));
  for (const RequirementResult* result :
       problems.first(std::min(problems.size(), kMostSummaryRequirements))) {
    add(again_for(run, *result));
  }
  return lines.empty() ? std::string() : "To run it again:\n\n" + block("sh", lines);
}

std::string in_full(const RunResult& run, std::span<const RequirementResult* const> problems) {
  std::string out;
  std::size_t shown = 0;
  for (const RequirementResult* result : problems) {
    if (shown == kMostInFull || result->findings.empty()) break;
    const std::string text =
        fmt::format("<details><summary>{} {}</summary>\n\n{}</details>\n\n",
                    label_of(result->outcome), result->requirement->id,
                    block("text", finding_text(run, *result, result->findings.front())));
    if (out.size() + text.size() > kInFullLimit) break;
    out += text;
    ++shown;
  }
  return out;
}

std::string expectations(const RunResult& run) {
  const auto& all = run.expectation_problems;
  if (all.empty()) return {};
  std::string out = "### The expectations file\n\n";
  const std::size_t most = std::min(all.size(), kMostSummaryExpectationProblems);
  for (const ExpectationProblem& problem : std::span(all).first(most)) {
    out += fmt::format("{}{}: {}\n\n", problem.exit_code == 0 ? "Warning" : "**Error**",
                       problem.line > 0 ? fmt::format(", line {}", problem.line) : std::string(),
                       span(problem.text));
    if (!problem.mend.empty()) out += block("sh", inert(problem.mend, kSummaryCommandLimit));
  }
  if (all.size() > most) out += and_more(all.size() - most, "problem") + ".\n\n";
  return out;
}

std::string below_floor(const RunResult& run) {
  const auto& all = run.floor;
  if (all.empty()) return {};
  std::string out = "### Required but not judged\n\n";
  const std::size_t most = std::min(all.size(), kMostSummaryExpectationProblems);
  for (const FloorProblem& problem : std::span(all).first(most)) {
    out += fmt::format("**Error**: {}: {}; now {}", span(problem.requirement), span(problem.why),
                       span(problem.now));
    if (!problem.remedy.empty()) out += fmt::format("; to see it: {}", span(problem.remedy));
    out += "\n\n";
  }
  if (all.size() > most) out += fmt::format("… and {} more.\n\n", all.size() - most);
  return out;
}

}  // namespace

std::string to_markdown(const RunResult& run) {
  const auto problems = problems_of(run);
  std::string out = fmt::format("## ctxconf {}\n\n", verdict(run.exit_code));
  out += fmt::format("**{}**\n\n", totals_line(run.totals));
  out += fmt::format("exit {}: {}\n\n", run.exit_code, or_else(span(run.exit_reason), "no reason"));
  out += fmt::format("{} of {}", run.mode.empty() ? "run" : span(run.mode, 40),
                     or_else(span(shell_command(run.target)), "nothing"));
  out += fmt::format("; {}", span_of(spec_label(run.spec)));
  out += "; " + reading_label(run.reading);
  out += fmt::format("; kernel {}", span(fmt::format("{} {}", run.kernel, run.arch)));
  if (!run.libc.empty()) out += "; program " + span_of(libc_label(run.libc));
  out += run.suite_libc.empty() ? "\n\n" : fmt::format("; ctxconf {}\n\n", span(run.suite_libc));
  out += table(run, problems);
  out += fault_matrix(run);
  out += again(run, problems);
  out += in_full(run, problems);
  out += expectations(run);
  out += below_floor(run);
  const std::size_t notes = std::min(run.notes.size(), kMostSummaryNotes);
  for (const std::string& note : std::span(run.notes).first(notes)) {
    out += fmt::format("Note: {}\n\n", span(note));
  }
  if (run.notes.size() > notes) {
    out += and_more(run.notes.size() - notes, "note") + ".\n\n";
  }
  return out;
}

}  // namespace ctxconf::conformance
