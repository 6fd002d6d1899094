#include "conformance/command/repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "conformance/judge/judge.h"
#include "conformance/testee/driver.h"

namespace ctxconf::conformance {
namespace {

// Makes "4243 died" and "517 died" equal.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) out += c;
    if (digit && (out.empty() || out.back() != '0')) out += '0';
  }
  return out;
}

// A text that differs if two repeats differ. It has no addresses and no numbers that vary.
std::string gist_of(const Timeline& recorded, const std::vector<const Requirement*>& selected) {
  std::string out;
  const RunResult run = judge(recorded, selected);
  for (const RequirementResult& r : run.results) {
    std::set<std::string> findings;
    for (const Finding& f : r.findings) {
      findings.insert(std::string(to_string(f.outcome)) + " " + f.signature);
    }
    out += r.requirement->id + "\n";
    for (const auto& f : findings) out += " " + f + "\n";
  }
  for (const RunProblem& p : run.problems) {
    out += std::string(to_string(p.outcome)) + " " + without_numbers(p.text) + "\n";
  }
  std::set<Oddities> odd;
  for (const Session& s : recorded.sessions) odd.insert(oddities_of(s));
  for (const Oddities& o : odd) {
    out += fmt::format("{:d} {:d} {:d} {}\n", o.noise, o.left_behind, o.stayed, o.exit_code);
  }
  return out;
}

}  // namespace

Repeats::Repeats(std::vector<const Requirement*> selected, std::size_t units, Timeline& kept)
    : selected_(std::move(selected)), units_(units), kept_(kept), empty_(kept), current_(kept) {}

void Repeats::add(std::size_t unit, Timeline part, bool whole) {
  without_gap_ = without_gap_ && whole && unit == next_;
  next_ = unit + 1;
  append(std::move(part), current_);
}

bool Repeats::end(std::uint32_t repeat) {
  const auto [same, is_new] = seen_.emplace(gist_of(current_, selected_), repeat);
  if (!is_new) {
    const auto count = std::ranges::find(kept_.repeats, same->second, &RepeatCount::repeat);
    if (count == kept_.repeats.end()) {
      kept_.repeats.push_back({same->second, 2});
    } else {
      ++count->times;
    }
    current_.sessions.clear();
    current_.processes.clear();
  }
  finish();
  return seen_.size() < kMostDiffering;
}

void Repeats::finish() { append(std::exchange(current_, empty_), kept_); }

}  // namespace ctxconf::conformance
