// `ctxconf expect init|update|lint|prune`: text in, text out. The caller reads and writes the file;
// at init it refuses to overwrite one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/verdict/expectations.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// A new file: one line for each requirement that failed, hung or crashed, and with `strict` for
// each that warned. The issues are placeholders that every later reading refuses, so that nobody
// forgets to replace them. Then one line for each id of `judged`: it must be judged.
std::string init_expectations(std::span<const Observed> all, std::span<const std::string> judged,
                              bool strict);

struct Edited {
  std::string text;                // unchanged if there was nothing to do
  std::vector<int> removed;        // prune: lines of the old text
  std::vector<int> kept;           // prune: lines that may be stale, but the run is incomplete
  std::vector<std::string> added;  // update: the new lines
  // Why nothing was changed: mistakes in the file that must be fixed first.
  std::vector<ExpectationProblem> problems;
};

// Adds lines for failures that no line covers, and for `judged`; changes no other byte.
Edited update_expectations(std::string_view text, std::string_view file, const Catalogue& catalogue,
                           std::span<const Observed> all, std::span<const std::string> judged,
                           bool strict);

// Removes lines whose requirement does not exist or did not fail. Comments, blank lines and lines
// that the run says nothing about stay. `partial`: the run is incomplete (RunResult::partial), so
// it cannot show that something did not fail.
Edited prune_expectations(std::string_view text, std::string_view file, const Catalogue& catalogue,
                          std::span<const Observed> all, bool partial);

// All problems that can be found without a run.
std::vector<ExpectationProblem> lint_expectations(std::string_view text, std::string_view file,
                                                  const Catalogue& catalogue, Date today);

}  // namespace ctxconf::conformance
