// Files of golden/: a generated vector of some kind, or a source of vectors.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/agree.h"
#include "golden/hexdump.h"
#include "golden/source.h"
#include "golden/vector.h"

namespace {

using namespace ctxconf::golden;
using namespace ctxconf::fuzz;

constexpr std::string_view kFile = "golden/some/vector.json";

void check_vector(const Vector& vector) {
  FUZZ_CHECK(vector.id.starts_with(id_prefix(vector.kind)));
  FUZZ_CHECK(!vector.name().empty() && vector.name().find('/') == std::string_view::npos);
  const bool content = !vector.process_context.expect.empty() ||
                       !vector.thread_record.expect.empty() || !vector.maps.expect.empty();
  FUZZ_CHECK(content == vector.allows(Result::kAccept));
  const auto again = parse_vector(to_json(vector), kFile, vector.kind);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(*again == vector);
  for (const MemoryPiece& piece : memory_of(vector.process_context)) {
    FUZZ_CHECK(piece.address <= UINT64_MAX - piece.bytes.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = text_of(data, size);
  const auto said = kind_in(text, kFile);
  if (!said) FUZZ_CHECK(!said.error().empty());
  for (const Kind kind : kKinds) {
    const auto vector = parse_vector(text, kFile, kind);
    if (vector) {
      FUZZ_CHECK(said && *said == kind);
      check_vector(*vector);
    } else {
      FUZZ_CHECK(!vector.error().empty());
    }
    const auto source = encode_source(text, kFile, kind);
    if (!source) {
      FUZZ_CHECK(!source.error().empty());
      continue;
    }
    for (const Vector& encoded : *source) check_vector(encoded);
  }
  return 0;
}
