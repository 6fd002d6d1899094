// A file of the catalogue of requirements.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/requirements/catalogue.h"
#include "conformance/requirements/render.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;

// Matches a character or any character; shares nothing with glob_matches().
bool slow_glob(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern.front() == '*') {
    return slow_glob(pattern.substr(1), text) ||
           (!text.empty() && slow_glob(pattern, text.substr(1)));
  }
  return !text.empty() && (pattern.front() == '?' || pattern.front() == text.front()) &&
         slow_glob(pattern.substr(1), text.substr(1));
}

void check_row(const Requirement& row, const Specification& specification) {
  FUZZ_CHECK(row.otep == specification.otep && row.revision == specification.revision);
  FUZZ_CHECK(!row.id.empty() && row.id.find_first_of("*? /\\") == row.id.npos);
  FUZZ_CHECK(row.lines[0] > 0 && row.lines[0] <= row.lines[1]);
  FUZZ_CHECK(severity_in(row, Reading::kReaderVisible) == row.severity);
  FUZZ_CHECK(row.excluded || row.role != Role::kWriter || !row.modes.empty());
}

void check_globs(const Catalogue& catalogue, std::string_view id) {
  for (const std::string& glob :
       {std::string(id), std::string(id.substr(0, 6)) + "*",
        "*" + std::string(id.substr(id.size() / 2)), "?" + std::string(id.substr(1))}) {
    if (glob.size() > 40) continue;
    FUZZ_CHECK(glob_matches(glob, id));
    FUZZ_CHECK(slow_glob(glob, id));
    FUZZ_CHECK(catalogue.has_match(glob));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto specification = parse_specification(text_of(data, size), "catalogue.json");
  if (!specification) {
    FUZZ_CHECK(!specification.error().detail.empty());
    return 0;
  }
  for (const Requirement& row : specification->requirements) check_row(row, *specification);
  const auto catalogue = Catalogue::from({*specification});
  if (!catalogue) {
    FUZZ_CHECK(!catalogue.error().detail.empty());
    return 0;
  }
  for (const Requirement& row : specification->requirements) {
    FUZZ_CHECK(catalogue->find(row.id)->id == row.id);
    check_globs(*catalogue, row.id);
    FUZZ_CHECK(!catalogue->nearest(row.id + "x").empty());
  }
  std::vector<const Requirement*> rows;
  for (const Requirement& row : specification->requirements) rows.push_back(&row);
  const auto listed = nlohmann::json::parse(list_json(rows));
  FUZZ_CHECK(listed.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) FUZZ_CHECK(listed[i]["id"] == rows[i]->id);
  // Together with another revision of its OTEP, each id occurs twice.
  if (!specification->requirements.empty()) {
    FUZZ_CHECK(!Catalogue::from({*specification, *specification}));
  }
  return 0;
}
