// A recording: the text of timeline.json.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "conformance/judge.h"
#include "conformance/report/result_json.h"
#include "conformance/timeline.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;

const std::vector<const Requirement*>& all_rows() {
  static const auto rows = select(Catalogue::builtin(), Selection{});
  return *rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [timeline, again] = check_read_again(text_of(data, size), timeline_from_json,
                                                  [](const Timeline& t) { return to_json(t); });
  if (!timeline) {
    FUZZ_CHECK(!timeline.error().detail.empty());
    return 0;
  }
  // Whatever it holds can be judged, twice alike, and a report of that be read.
  const std::string result = to_result_json(judge(*timeline, all_rows()));
  FUZZ_CHECK(result_from_json(result, Catalogue::builtin()).has_value());
  FUZZ_CHECK(to_result_json(judge(*again, all_rows())) == result);
  return 0;
}
