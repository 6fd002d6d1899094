// result.json: the whole of a run, from which every other report can be made again. Its shape is
// result.schema.json; texts are in the form of json_text(), so also bytes that are no UTF-8
// survive.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "conformance/report/run_result.h"
#include "sys/result.h"

namespace ctxconf::conformance {

inline constexpr int kResultVersion = 1;

// A longer file is refused, and none that to_result_json makes is as long.
inline constexpr std::size_t kLongestResultJson = std::size_t{64} << 20;

// ASCII only and without `<`, `>` and `&`, so that it may stand in a page as it is. Long texts,
// lists and dumps are cut and the members `*_omitted` count what is missing; of each requirement
// at least the worst finding stays.
std::string to_result_json(const RunResult& run);

// The inverse. Refuses another format or version, wrong types, ids or revisions that the
// catalogue lacks; the error names the member. Members it does not know are ignored.
// Requirements point into `catalogue`.
sys::Result<RunResult> result_from_json(std::string_view json, const Catalogue& catalogue);

}  // namespace ctxconf::conformance
