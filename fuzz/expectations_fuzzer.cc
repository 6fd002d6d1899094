// A file of expectations: reads it, judges with it, and edits it.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/verdict/expectations.h"
#include "conformance/verdict/expectations_edit.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;

constexpr std::string_view kFile = "known failures.txt";
constexpr Date kToday{std::chrono::year(2026), std::chrono::month(6), std::chrono::day(15)};

const Catalogue& catalogue() { return Catalogue::builtin(); }

Expectations parsed(std::string_view text) { return parse_expectations(text, kFile, catalogue()); }

const std::vector<Observed>& seen() {
  static const std::vector<Observed> all = {
      {"pctx.header.version", "12 /bin/app", Outcome::kFail, "version 1"},
      {"pctx.header.version", "13 /bin/\"other\"", Outcome::kPass, ""},
      {"pctx.header.signature", "12 /bin/app", Outcome::kPass, ""},
      {"pctx.update.zero-timestamp-first", "12 /bin/app", Outcome::kCrash, "SIGSEGV\x01\\"},
      {"tctx.record.valid-is-one", "12 /bin/app", Outcome::kNa, ""},
      {"tctx.attach.slot-always-sound", "12 /bin/app", Outcome::kUnobservable, ""},
  };
  return all;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size() - 1) + 1;
    out.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

void check_problems(const std::vector<ExpectationProblem>& problems) {
  for (const ExpectationProblem& p : problems) {
    FUZZ_CHECK(!p.text.empty());
    FUZZ_CHECK(p.line >= 0 && p.exit_code >= 0 && p.exit_code <= 5);
  }
}

void check_lines(const Expectations& e) {
  check_problems(e.problems);
  check_problems(e.unexplained);
  int before = 0;
  for (const Expectation& line : e.lines) {
    FUZZ_CHECK(line.line > before && line.line <= kMaxExpectationLines);
    before = line.line;
    FUZZ_CHECK(!line.until || line.until->ok());
    FUZZ_CHECK(catalogue().has_match(line.pattern));
    // A value can be written again as it was read.
    for (const auto& value : {line.saw, line.image}) {
      if (value)
        FUZZ_CHECK(glob_matches(*value, *value) || value->find_first_of("*?") != value->npos);
    }
    const Fate fate = fate_of(line, seen()).fate;
    if (line.verb == ExpectVerb::kFlaky) FUZZ_CHECK(fate != Fate::kPassed);
  }
  check_problems(expired(e, kToday));
}

// It only appends lines, and a second call adds nothing.
void check_update(std::string_view text) {
  const std::vector<std::string> judged = {"pctx.header.version"};
  const Edited edited = update_expectations(text, kFile, catalogue(), seen(), judged, true);
  check_problems(edited.problems);
  FUZZ_CHECK(edited.text.starts_with(text));
  if (!edited.problems.empty()) {
    FUZZ_CHECK(edited.text == text);
    return;
  }
  for (const std::string& line : edited.added) {
    FUZZ_CHECK(edited.text.find(line + "\n", text.size()) != edited.text.npos);
  }
  const Edited again = update_expectations(edited.text, kFile, catalogue(), seen(), judged, true);
  FUZZ_CHECK(again.problems.empty());
  FUZZ_CHECK(again.added.empty() && again.text == edited.text);
}

// It removes only the whole lines that it names, once. If the run is incomplete, it keeps some.
void check_prune(std::string_view text) {
  const Edited edited = prune_expectations(text, kFile, catalogue(), seen(), false);
  const Edited partial = prune_expectations(text, kFile, catalogue(), seen(), true);
  std::vector<int> named = partial.removed;
  named.insert(named.end(), partial.kept.begin(), partial.kept.end());
  std::ranges::sort(named);
  FUZZ_CHECK(named == edited.removed);
  check_problems(edited.problems);
  const auto lines = lines_of(text);
  std::string left;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (std::ranges::find(edited.removed, static_cast<int>(i) + 1) == edited.removed.end()) {
      left += lines[i];
    }
  }
  FUZZ_CHECK(edited.text == left);
  const Edited again = prune_expectations(edited.text, kFile, catalogue(), seen(), false);
  FUZZ_CHECK(again.removed.empty() && again.text == edited.text);
}

// A run whose images and signatures are the lines of the text.
std::vector<Observed> seen_in(std::string_view text) {
  constexpr std::string_view kIds[] = {"pctx.header.version", "tctx.record.valid-is-one",
                                       "pctx.header.signature"};
  constexpr std::size_t kMost = 12;
  std::vector<Observed> out;
  std::string before;
  for (const std::string_view line : lines_of(text)) {
    if (out.size() == kMost) break;
    const auto outcome = static_cast<Outcome>(static_cast<unsigned char>(line.front()) %
                                              (static_cast<unsigned>(Outcome::kCrash) + 1));
    out.push_back({std::string(kIds[line.size() % std::size(kIds)]),
                   std::string(line.substr(0, line.size() - 1)), outcome, before});
    before = line;
  }
  return out;
}

// What it writes can be read, covers every failure and says nothing that the run denies.
void check_init(std::string_view text) {
  const std::vector<Observed> all = seen_in(text);
  const std::vector<std::string> judged = {"pctx.header.version"};
  for (const bool strict : {false, true}) {
    const std::string fresh = init_expectations(all, judged, strict);
    const Expectations written = parsed(fresh);
    FUZZ_CHECK(written.problems.empty());
    FUZZ_CHECK(written.unexplained.size() == written.lines.size());
    const Edited updated = update_expectations(fresh, kFile, catalogue(), all, judged, strict);
    FUZZ_CHECK(updated.problems.empty() && updated.text == fresh);
    const Edited pruned = prune_expectations(fresh, kFile, catalogue(), all, false);
    FUZZ_CHECK(pruned.problems.empty() && pruned.text == fresh);
    for (const Expectation& line : written.lines) {
      const Fate fate = fate_of(line, all).fate;
      FUZZ_CHECK(fate == Fate::kHolds || fate == Fate::kDiffers);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  const Expectations expectations = parsed(text);
  check_lines(expectations);
  check_update(text);
  check_prune(text);
  check_init(text);
  check_problems(lint_expectations(text, kFile, catalogue(), kToday));

  RunResult run;
  for (const Observed& o : seen()) {
    const Requirement* row = catalogue().find(o.id);
    if (row == nullptr || (!run.results.empty() && run.results.back().requirement == row)) continue;
    run.results.emplace_back();
    run.results.back().requirement = row;
    run.results.back().outcome = o.outcome;
  }
  apply(expectations, kToday, {.strict = true}, run);
  check_problems(run.expectation_problems);
  return 0;
}
