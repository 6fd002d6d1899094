#include "conformance/report/fault_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "conformance/report/escape.h"
#include "conformance/report/wording.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostCells = 400;
constexpr std::size_t kMostName = 60;
constexpr std::size_t kMostOutputLines = 5;
// The usual errnos in their usual order; others follow.
constexpr std::array<std::string_view, 9> kErrnos = {
    "EPERM", "EACCES", "ENOSYS", "EINVAL", "EMFILE", "ENFILE", "ENOMEM", "EBADF", "ENOSPC"};

struct Meaning {
  Outcome outcome;
  std::string_view text;
};
constexpr std::array<Meaning, 8> kMeanings = {{
    {Outcome::kPass, "breaks nothing"},
    {Outcome::kFail, "breaks a requirement"},
    {Outcome::kWarn, "breaks a requirement of severity warning"},
    {Outcome::kInfo, "worth knowing"},
    {Outcome::kCrash, "died"},
    {Outcome::kTimeout, "had to be ended"},
    {Outcome::kNa, "no such call was seen"},
    {Outcome::kUnobservable, "nothing could be judged"},
}};

// The outcome's label, or a sign if nothing was judged.
std::string_view mark_of(Outcome outcome) {
  if (outcome == Outcome::kNa) return "-";
  if (outcome == Outcome::kUnobservable || outcome == Outcome::kHarnessError) return "?";
  return label_of(outcome);
}

std::string legend_of(std::span<const FaultOutcome> faults) {
  std::string out;
  for (const auto& [outcome, text] : kMeanings) {
    if (std::ranges::find(faults, outcome, &FaultOutcome::outcome) == faults.end()) continue;
    const auto mark = mark_of(outcome);
    const auto label = label_of(outcome);
    out += fmt::format("{}{}{} {}", out.empty() ? "" : "; ", mark,
                       mark == label ? "" : fmt::format(" {}:", label), text);
  }
  return out;
}

std::string label_of(const FaultOutcome& f) { return inert(f.name(), kMostName); }

bool is_errno(std::string_view fault) { return std::ranges::find(kErrnos, fault) != kErrnos.end(); }

std::string padded(std::string_view text, std::size_t width) {
  return fmt::format("{:<{}}", text, width);
}

std::string without_padding(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// What is wrong under some faults of a step, and the end of the program's output under the first of
// them.
struct Explanation {
  std::string step;
  Outcome outcome = Outcome::kUnobservable;
  std::string text;
  std::string faults;
  std::string_view output;
  std::string alone;  // options that repeat the first of them
};

std::string explanation_of(const FaultOutcome& f) {
  constexpr std::size_t kMostIds = 6;
  std::string out;
  for (std::size_t i = 0; i < std::min(kMostIds, f.requirements.size()); ++i) {
    out += (i == 0 ? "" : ", ") + inert(f.requirements[i], 100);
  }
  if (f.requirements.size() > kMostIds) {
    out += fmt::format(", {} more", f.requirements.size() - kMostIds);
  }
  return out.empty() ? inert(f.text, 300) : out;
}

std::vector<Explanation> explanations_of(std::span<const FaultOutcome> faults) {
  std::vector<Explanation> out;
  for (const FaultOutcome& f : faults) {
    // For these the mark says everything.
    if (f.outcome == Outcome::kPass || f.outcome == Outcome::kNa) continue;
    const std::string step = inert(f.step, kMostName);
    std::string text = explanation_of(f);
    auto same = std::ranges::find_if(out, [&](const Explanation& e) {
      return e.step == step && e.outcome == f.outcome && e.text == text;
    });
    if (same == out.end()) {
      const bool is_wrong = f.outcome != Outcome::kInfo && f.outcome != Outcome::kUnobservable;
      out.push_back({step,
                     f.outcome,
                     std::move(text),
                     {},
                     f.output,
                     is_wrong ? inert(shell_command(f.options), 300) : ""});
      same = out.end() - 1;
    }
    if (f.fault.empty()) continue;
    same->faults += (same->faults.empty() ? "" : ", ") + inert(f.fault, kMostName);
  }
  return out;
}

void add_output(std::string_view output, std::vector<std::string>& out) {
  std::vector<std::string_view> lines;
  while (!output.empty()) {
    const auto end = output.find('\n');
    if (end != 0) lines.push_back(output.substr(0, end));
    output = end == output.npos ? std::string_view() : output.substr(end + 1);
  }
  const std::size_t from = lines.size() - std::min(lines.size(), kMostOutputLines);
  for (std::size_t i = from; i < lines.size(); ++i) out.push_back("    | " + inert(lines[i], 200));
}

}  // namespace

std::vector<std::string> fault_matrix_lines(std::span<const FaultOutcome> faults) {
  std::vector<std::string> out;
  if (faults.empty()) return out;
  faults = faults.first(std::min(faults.size(), kMostCells));
  const auto ran = std::ranges::count_if(faults, [](const FaultOutcome& f) {
    return f.outcome != Outcome::kNa && f.outcome != Outcome::kUnobservable;
  });
  const auto clean = std::ranges::count(faults, Outcome::kPass, &FaultOutcome::outcome);
  out.push_back(fmt::format("fault matrix: {} of {} faults occurred, and {} broke nothing", ran,
                            faults.size(), clean));

  std::vector<std::string_view> columns;
  for (const auto name : kErrnos) {
    if (std::ranges::find(faults, name, &FaultOutcome::fault) != faults.end()) {
      columns.push_back(name);
    }
  }
  std::vector<std::string> steps;  // in order of first mention
  std::vector<const FaultOutcome*> others;
  std::map<std::string, std::map<std::string_view, const FaultOutcome*>> table;
  std::size_t width = 0;
  for (const FaultOutcome& f : faults) {
    if (!is_errno(f.fault)) {
      others.push_back(&f);
      width = std::max(width, label_of(f).size());
      continue;
    }
    const std::string step = inert(f.step, kMostName);
    if (!table.contains(step)) steps.push_back(step);
    table[step].emplace(f.fault, &f);
    width = std::max(width, step.size());
  }
  constexpr std::size_t kColumn = 8;
  if (!columns.empty()) {
    std::string head = "  " + padded("", width + 2);
    for (const auto c : columns) head += padded(c, kColumn);
    out.push_back(without_padding(head));
  }
  for (const auto& step : steps) {
    std::string row = "  " + padded(step, width + 2);
    for (const auto c : columns) {
      const auto cell = table[step].find(c);
      row += padded(cell == table[step].end() ? "" : mark_of(cell->second->outcome), kColumn);
    }
    out.push_back(without_padding(row));
  }
  if (!columns.empty() && !others.empty()) out.emplace_back();
  for (const FaultOutcome* f : others) {
    out.push_back("  " + padded(label_of(*f), width + 2) + std::string(mark_of(f->outcome)));
  }
  out.push_back("  " + legend_of(faults));
  for (const Explanation& e : explanations_of(faults)) {
    out.push_back(fmt::format("  {} {}{}: {}", mark_of(e.outcome), e.step,
                              e.faults.empty() ? "" : " (" + e.faults + ")", e.text));
    if (!e.alone.empty()) out.push_back("    alone: " + e.alone);
    add_output(e.output, out);
  }
  return out;
}

}  // namespace ctxconf::conformance
