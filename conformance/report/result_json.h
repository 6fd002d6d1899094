// result.json: the whole run; every other report can be made from it. Its schema is
// result.schema.json. Texts have the form of json_text(), so that bytes that are not UTF-8 survive.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "conformance/verdict/run_result.h"
#include "sys/result.h"

namespace ctxconf::conformance {

inline constexpr int kResultVersion = 1;

// A longer file is refused. to_result_json() never makes one.
inline constexpr std::size_t kLongestResultJson = std::size_t{64} << 20;

// ASCII without `<`, `>` and `&`, so that a page may contain it unchanged. Long texts, lists and
// dumps are cut, and members `*_omitted` count what is missing; at least the worst finding of each
// requirement stays.
std::string to_result_json(const RunResult& run);

// The inverse. Refuses another format or version, wrong types, and ids or revisions that the
// catalogue lacks; the error names the member. Ignores unknown members. Requirements point into
// `catalogue`.
sys::Result<RunResult> result_from_json(std::string_view json, const Catalogue& catalogue);

}  // namespace ctxconf::conformance
