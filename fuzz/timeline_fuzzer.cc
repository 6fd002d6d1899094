// A recording: the text of timeline.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "conformance/evidence/timeline.h"
#include "conformance/judge/judge.h"
#include "conformance/report/result_json.h"
#include "fuzz/agree.h"
#include "fuzz/all_rows.h"

using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [timeline, again] = check_read_again(text_of(data, size), timeline_from_json,
                                                  [](const Timeline& t) { return to_json(t); });
  if (!timeline) {
    FUZZ_CHECK(!timeline.error().detail.empty());
    return 0;
  }
  // Every valid recording can be judged, twice with the same result, and a report of that can be
  // read.
  const auto& rows = all_rows(timeline->mode);
  const std::string result = to_result_json(judge(*timeline, rows));
  FUZZ_CHECK(result_from_json(result, Catalogue::builtin()).has_value());
  FUZZ_CHECK(to_result_json(judge(*again, rows)) == result);
  return 0;
}
