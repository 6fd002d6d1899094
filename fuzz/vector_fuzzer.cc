// Files of golden/: a generated vector of some kind, or a source of vectors.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/agree.h"
#include "golden/hexdump.h"
#include "golden/members.h"
#include "golden/source.h"
#include "golden/vector.h"

namespace {

using namespace ctxconf::golden;
using namespace ctxconf::fuzz;

constexpr std::string_view kVectorFile = "golden/some/vector.json";

void check_vector(const Vector& vector) {
  FUZZ_CHECK(vector.id.starts_with(id_prefix(vector.kind)));
  FUZZ_CHECK(!vector.name().empty() && vector.name().find('/') == std::string_view::npos);
  const bool content = !vector.process_context.expect.empty() ||
                       !vector.thread_record.expect.empty() || !vector.maps.expect.empty();
  FUZZ_CHECK(content == vector.allows(Result::kAccept));
  const auto again = parse_vector(to_json(vector), kVectorFile, vector.kind);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(*again == vector);
  for (const MemoryPiece& piece : memory_of(vector.process_context)) {
    FUZZ_CHECK(piece.address <= UINT64_MAX - piece.bytes.size());
  }
}

// Both encoders agree if the second one printed the same, and do not after a change.
void check_compared(const std::vector<Vector>& ours, Kind kind, std::string_view text) {
  FUZZ_CHECK(source_file_of(kind).parent_path() == "src");
  nlohmann::json theirs;
  for (const Vector& v : ours) {
    const auto& context = v.process_context;
    if (kind == Kind::kProcessContext) {
      theirs[v.id] = {{"header", hex_of(context.header)}, {"payload", hex_of(context.payload)}};
    } else if (kind == Kind::kThreadRecord) {
      theirs[v.id] = {{"record", hex_of(v.thread_record.record)}};
    } else {
      theirs[v.id] = {{"maps", v.maps.maps}};
    }
  }
  FUZZ_CHECK(compare_encodings(ours, theirs.dump()).has_value());
  const std::string first = ours.front().id;
  for (const nlohmann::json& other :
       {nlohmann::json(std::string(text)), nlohmann::json(nullptr), nlohmann::json::object()}) {
    auto changed = theirs;
    changed[first] = other;
    FUZZ_CHECK(!compare_encodings(ours, changed.dump()).error().empty());
  }
  auto& encoding = *theirs[first].begin();
  encoding = encoding.get<std::string>() + "0";
  FUZZ_CHECK(!compare_encodings(ours, theirs.dump()).error().empty());
  theirs.erase(first);
  FUZZ_CHECK(!compare_encodings(ours, theirs.dump()).error().empty());
  FUZZ_CHECK(!compare_encodings(ours, text).error().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  const auto said = kind_in(text, kVectorFile);
  if (!said) FUZZ_CHECK(!said.error().empty());
  for (const Kind kind : kKinds) {
    const auto vector = parse_vector(text, kVectorFile, kind);
    if (vector) {
      FUZZ_CHECK(said && *said == kind);
      check_vector(*vector);
    } else {
      FUZZ_CHECK(!vector.error().empty());
    }
    const auto source = encode_source(text, kVectorFile, kind);
    if (!source) {
      FUZZ_CHECK(!source.error().empty());
      continue;
    }
    for (const Vector& encoded : *source) check_vector(encoded);
    check_compared(*source, kind, text);
  }
  return 0;
}
