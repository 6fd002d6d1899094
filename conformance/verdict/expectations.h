// Known failures: a text file that says which requirements a program breaks, and
// the checks that keep such a list honest. Pure: text and findings in, problems out.
//
//   # ctxconf-expect 1
//   fail  pctx.update.zero-timestamp-first  issue=URL until=2027-03-01 saw="size before *"
//   judged pctx.header.*
//   na-ok tctx.*                            reason="publishes go_pprof_labels_v1"
//
// The grammar and the meaning of each word are in docs/expectations.md.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/report/run_result.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

using Date = std::chrono::year_month_day;

enum class ExpectVerb { kFail, kCrash, kFlaky, kNaOk };
// Without the blanks and tabs around it.
std::string_view trimmed(std::string_view s);
std::string_view to_string(ExpectVerb v);  // "na-ok"

// What `expect init` writes for an issue that somebody has yet to name; counts as none.
inline constexpr std::string_view kIssuePlaceholder = "TODO";

inline constexpr std::size_t kMaxExpectationBytes = 1U << 20;
inline constexpr int kMaxExpectationLines = 4096;

struct Expectation {
  int line = 0;  // 1-based
  ExpectVerb verb = ExpectVerb::kFail;
  std::string pattern;                // an id; a glob only for na-ok
  std::optional<std::string> image;   // glob over Finding::image_name
  std::optional<std::string> saw;     // glob over Finding::signature
  std::optional<std::string> issue;   // not for a placeholder
  std::optional<std::string> reason;  //
  std::optional<Date> until;          // the last day on which the line is good

  bool names(std::string_view id) const;
  bool covers_image(std::string_view image_name) const;
};

// `judged PATTERN`: what it names must be judged, if it is selected (verdict/floor.h).
struct JudgedLine {
  int line = 0;  // 1-based
  std::string pattern;
};

// A file with mistakes still yields its good lines.
struct Expectations {
  std::string file;  // for the commands that mend it
  std::vector<Expectation> lines;
  std::vector<JudgedLine> judged;
  const JudgedLine* judged_line(std::string_view id) const;  // the first that names it; may be null
  // Syntax, duplicates, contradictions (exit code 2), unknown ids (5).
  std::vector<ExpectationProblem> problems;
  // Lines without an issue or a reason (2); such a line is in `lines` all the same.
  std::vector<ExpectationProblem> unexplained;

  // The first problem with which a run must not begin, or null.
  const ExpectationProblem* usage_error() const;
};
Expectations parse_expectations(std::string_view text, std::string_view file,
                                const Catalogue& catalogue);

// Lines that are past their day, in a file that is otherwise right.
std::vector<ExpectationProblem> expired(const Expectations& expectations, Date today);

// What was seen of one requirement in one image, as far as a line can tell.
struct Observed {
  std::string id;
  std::string image;  // Finding::image_name
  Outcome outcome = Outcome::kUnobservable;
  std::string signature;
};
// A value of `saw` or `image` in quotes that matches `text`: what a line cannot hold becomes `?`,
// and what is too long ends in `*`.
std::string quoted_glob(std::string_view text);

// One an image; a result without findings stands for itself.
std::vector<Observed> observed(const RequirementResult& result);
std::vector<Observed> observed(const RunResult& run);

// What the run makes of one line.
enum class Fate {
  kNotRun,         // its requirement was not selected, or not all that its pattern names
  kNoImage,        // the image that it names was not seen
  kHolds,          // it failed as the line says, or flaky and passed
  kPassed,         // it did not fail, or na-ok and it applies
  kDiffers,        // it failed in another way
  kUnobservable,   // it could not be seen, so the line says nothing
  kNotApplicable,  // na
  kHarnessError,   // our own fault, so the line says nothing
};
struct LineFate {
  Fate fate = Fate::kNotRun;
  const Observed* because = nullptr;  // the first one with that fate, in `all`
};
LineFate fate_of(const Expectation& line, std::span<const Observed> all);

struct ApplyOptions {
  bool strict = false;  // warnings fail
  // Globs over what fails where it cannot be seen: Floor::observable.
  // NOLINTNEXTLINE(readability-redundant-member-init): g++ wants one beside designated others
  std::vector<std::string> require_observable = {};
  // The run has not come to its end: what it did not show may be there all the same.
  bool partial = false;
  // For the commands that mend the file: ctxconf as it was called, and the result.json that the
  // run writes, if it writes one.
  std::string program = "ctxconf";
  std::optional<std::string> result = std::nullopt;
};

// Fills RequirementResult::expected and expectation_note, and appends to
// RunResult::expectation_problems (those of the file first).
void apply(const Expectations& expectations, Date today, const ApplyOptions& options,
           RunResult& run);

}  // namespace ctxconf::conformance
