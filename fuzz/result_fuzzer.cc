// The result of an earlier run, as `report` and --baseline read it: the text of result.json.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "conformance/report/console.h"
#include "conformance/report/html.h"
#include "conformance/report/junit.h"
#include "conformance/report/markdown.h"
#include "conformance/report/redact.h"
#include "conformance/report/result_json.h"
#include "conformance/verdict/floor.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;

bool was_cut(std::string_view json) {
  return json.find("_omitted\"") != json.npos || json.find(" byte more)") != json.npos ||
         json.find(" bytes more)") != json.npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Catalogue& catalogue = Catalogue::builtin();
  auto run = result_from_json(text_of(data, size), catalogue);
  if (!run) {
    FUZZ_CHECK(!run.error().detail.empty());
    return 0;
  }
  const std::string written = to_result_json(*run);
  const auto again = result_from_json(written, catalogue);
  FUZZ_CHECK(again.has_value());
  if (!was_cut(written)) FUZZ_CHECK(to_result_json(*again) == written);

  // A run is never below its own judgement.
  Floor floor;
  floor.baseline_file = "result.json";
  floor.baseline = judged_in(*run);
  apply_floor(floor, nullptr, *run);
  FUZZ_CHECK(run->floor.empty());

  const std::string console = to_console(*run, {.verbosity = 2});
  for (const char c : console) FUZZ_CHECK(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
  FUZZ_CHECK(to_junit(*run, {}).ends_with("</testsuites>\n"));
  FUZZ_CHECK(to_html(*run).ends_with("</html>\n"));
  FUZZ_CHECK(!to_markdown(*run).empty());
  // Without the words of the program it can still be read.
  const std::string hidden = to_result_json(redacted(*run, RedactionKey{}));
  FUZZ_CHECK(result_from_json(hidden, catalogue).has_value());
  return 0;
}
