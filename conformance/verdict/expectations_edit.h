// `ctxconf expect init|update|lint|prune`: the expectations file as text in and
// text out. The caller reads and writes files, and refuses to overwrite one at init.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/report/run_result.h"
#include "conformance/verdict/expectations.h"

namespace ctxconf::conformance {

// A new file: one line for each requirement that failed, hung or crashed, and
// with `strict` for each that warned. The issues are placeholders that every
// later reading refuses, so that nobody forgets to name them. Then a line for each id of `judged`:
// it must be judged.
std::string init_expectations(std::span<const Observed> all, std::span<const std::string> judged,
                              bool strict);

struct Edited {
  std::string text;                // the same as before when there was nothing to do
  std::vector<int> removed;        // prune: lines of the old text
  std::vector<int> kept;           // prune: lines that might be stale, of a run that is not whole
  std::vector<std::string> added;  // update: the new lines
  // Why nothing was done: mistakes of the file that must be mended first.
  std::vector<ExpectationProblem> problems;
};

// Adds lines for failures that no line covers, and for `judged`; leaves all other bytes alone.
Edited update_expectations(std::string_view text, std::string_view file, const Catalogue& catalogue,
                           std::span<const Observed> all, std::span<const std::string> judged,
                           bool strict);

// Removes lines whose requirement does not exist or did not fail; comments,
// blank lines and lines that the run cannot speak about stay. `partial`: not all of the run is
// there (RunResult::partial), so that it cannot say that something did not fail.
Edited prune_expectations(std::string_view text, std::string_view file, const Catalogue& catalogue,
                          std::span<const Observed> all, bool partial);

// All that can be said without a run.
std::vector<ExpectationProblem> lint_expectations(std::string_view text, std::string_view file,
                                                  const Catalogue& catalogue, Date today);

}  // namespace ctxconf::conformance
