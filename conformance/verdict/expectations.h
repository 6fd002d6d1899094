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

#include "conformance/requirements/catalogue.h"
#include "conformance/verdict/finding.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

using Date = std::chrono::year_month_day;

enum class ExpectVerb { kFail, kCrash, kFlaky, kNaOk };
std::string_view to_string(ExpectVerb v);  // "na-ok"

// Removes leading and trailing blanks and tabs.
std::string_view trimmed(std::string_view s);

// Written by `expect init` for an issue that somebody must still name; counts as no issue.
inline constexpr std::string_view kIssuePlaceholder = "TODO";

inline constexpr std::size_t kMaxExpectationBytes = 1U << 20;
inline constexpr int kMaxExpectationLines = 4096;

struct Expectation {
  int line = 0;  // 1-based
  ExpectVerb verb = ExpectVerb::kFail;
  std::string pattern;                // an id; a glob only for na-ok
  std::optional<std::string> image;   // glob over Finding::image_name
  std::optional<std::string> saw;     // glob over Finding::signature
  std::optional<std::string> issue;   // never a placeholder
  std::optional<std::string> reason;  //
  std::optional<Date> until;          // the last valid day of the line

  bool names(std::string_view id) const;
  bool covers_image(std::string_view image_name) const;
};

// A shell command that comments out a line of the file.
std::string comment_out(std::string_view file, int line, std::string_view what = "");

// `judged PATTERN`: matching requirements must be judged if they are selected (verdict/floor.h).
struct JudgedLine {
  int line = 0;  // 1-based
  std::string pattern;
};

// A file with mistakes still yields its good lines.
struct Expectations {
  std::string file;  // for the commands that edit it
  std::vector<Expectation> lines;
  std::vector<JudgedLine> judged;
  const JudgedLine* judged_line(
      std::string_view id) const;  // the first line that names it; may be null
  // Syntax, duplicates, contradictions (exit code 2), unknown ids (5).
  std::vector<ExpectationProblem> problems;
  // Lines without an issue or a reason (2). Such a line is also in `lines`.
  std::vector<ExpectationProblem> unexplained;

  // The first problem that prevents a run, or null.
  const ExpectationProblem* usage_error() const;
};
Expectations parse_expectations(std::string_view text, std::string_view file,
                                const Catalogue& catalogue);

// Lines whose day has passed, in a file without other problems.
std::vector<ExpectationProblem> expired(const Expectations& expectations, Date today);

// What a run saw of one requirement in one image.
struct Observed {
  std::string id;
  std::string image;  // Finding::image_name
  Outcome outcome = Outcome::kUnobservable;
  std::string signature;
};
// A quoted value for `saw` or `image` that matches `text`: characters that a line cannot hold
// become `?`, and a long value ends in `*`.
std::string quoted_glob(std::string_view text);

// One per image; a result without findings counts as one.
std::vector<Observed> observed(const RequirementResult& result);
std::vector<Observed> observed(const RunResult& run);

// What the run says about one line.
enum class Fate {
  kNotRun,         // its requirement was not selected, or not every requirement of its pattern
  kNoImage,        // the image that it names was not seen
  kHolds,          // it failed as listed; or the line is flaky and it passed
  kPassed,         // it did not fail; or the line is na-ok and it applies
  kDiffers,        // it failed in another way
  kUnobservable,   // it could not be observed, so the line says nothing
  kNotApplicable,  // na
  kHarnessError,   // a fault of ctxconf, so the line says nothing
};
struct LineFate {
  Fate fate = Fate::kNotRun;
  const Observed* because = nullptr;  // the first with that fate, in `all`
};
LineFate fate_of(const Expectation& line, std::span<const Observed> all);

struct ApplyOptions {
  bool strict = false;  // warnings fail
  // Globs over requirements that must be observable: Floor::observable.
  // NOLINTNEXTLINE(readability-redundant-member-init): g++ warns without it
  std::vector<std::string> require_observable = {};
  // The run is incomplete: something that it did not show may still exist.
  bool partial = false;
  // Used in the commands that edit the file: ctxconf as it was called, and the result.json that the
  // run writes, if any.
  std::string program = "ctxconf";
  std::optional<std::string> result = std::nullopt;
};

// Fills RequirementResult::expected and expectation_note, and appends to
// RunResult::expectation_problems, problems of the file first.
void apply(const Expectations& expectations, Date today, const ApplyOptions& options,
           RunResult& run);

}  // namespace ctxconf::conformance
