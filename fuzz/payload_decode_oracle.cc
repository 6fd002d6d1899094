#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <vector>

#include "conformance/payload/payload.h"
#include "conformance/payload/payload_walk.h"
#include "fuzz/check.h"
#include "fuzz/guarded_buffer.h"
#include "fuzz/payload_oracle.h"
#include "fuzz/slow_payload.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"
#include "reader_ref/process_context.h"

namespace ctxconf::fuzz {
namespace {

using conformance::Attribute;
using conformance::Payload;
using conformance::PayloadProblem;
using opentelemetry::proto::common::v1::AnyValue;
using Pairs = google::protobuf::RepeatedPtrField<opentelemetry::proto::common::v1::KeyValue>;

void check_pairs(const Pairs& got, const std::vector<SlowPair>& slow);

void check_value(const AnyValue& got, const SlowValue& slow) {
  FUZZ_CHECK(static_cast<std::uint32_t>(got.value_case()) == slow.which);
  FUZZ_CHECK(static_cast<std::size_t>(got.array_value().values_size()) == slow.items.size());
  for (std::size_t i = 0; i < slow.items.size(); ++i) {
    check_value(got.array_value().values(static_cast<int>(i)), slow.items[i]);
  }
  check_pairs(got.kvlist_value().values(), slow.pairs);
  if (slow.which == 1) FUZZ_CHECK(got.string_value() == slow.text);
  if (slow.which == 2) FUZZ_CHECK(got.bool_value() == (slow.number != 0));
  if (slow.which == 3) FUZZ_CHECK(std::bit_cast<std::uint64_t>(got.int_value()) == slow.number);
  if (slow.which == 7) FUZZ_CHECK(got.bytes_value() == slow.text);
}

void check_pairs(const Pairs& got, const std::vector<SlowPair>& slow) {
  FUZZ_CHECK(static_cast<std::size_t>(got.size()) == slow.size());
  for (std::size_t i = 0; i < slow.size(); ++i) {
    const auto& pair = got.Get(static_cast<int>(i));
    FUZZ_CHECK(pair.key() == slow[i].key);
    FUZZ_CHECK(pair.has_value() == slow[i].has_value);
    check_value(pair.value(), slow[i].value);
  }
}

const SlowPair* last_of(const std::vector<SlowPair>& pairs, std::string_view key) {
  const SlowPair* found = nullptr;
  for (const SlowPair& pair : pairs) {
    if (pair.key == key) found = &pair;
  }
  return found;
}

// The reader accepts what a decoder accepts, and finds the same in it.
void check_reader(std::span<const std::byte> payload, const SlowPayload& slow) {
  const auto context = reader::decode_payload(payload);
  if (slow.verdict == SlowVerdict::kBroken) FUZZ_CHECK(!context);
  if (slow.verdict != SlowVerdict::kGood) return;
  FUZZ_CHECK(context.has_value() == slow.utf8);
  if (!context) return;
  const reader::ProcessContext& got = **context;
  check_pairs(got.message.resource().attributes(), slow.resource);
  check_pairs(got.message.attributes(), slow.attributes);

  const SlowPair* schema = last_of(slow.attributes, "threadlocal.schema_version");
  FUZZ_CHECK(got.has_schema == (schema != nullptr));
  if (schema != nullptr) {
    FUZZ_CHECK(got.schema == (schema->value.which == 1 ? schema->value.text : ""));
  }
  const SlowPair* keys = last_of(slow.attributes, "threadlocal.attribute_key_map");
  const std::size_t count =
      keys == nullptr ? 0 : std::min<std::size_t>(keys->value.items.size(), 256);
  FUZZ_CHECK(got.keys.size() == count);
  for (std::size_t i = 0; i < count; ++i) {
    const SlowValue& name = keys->value.items[i];
    FUZZ_CHECK(got.keys[i] == (name.which == 1 ? name.text : ""));
  }
}

void check_list(const std::vector<Attribute>& got, const std::vector<SlowPair>& slow, bool utf8) {
  FUZZ_CHECK(got.size() == slow.size());
  for (std::size_t i = 0; i < slow.size(); ++i) {
    FUZZ_CHECK(got[i].offset == slow[i].offset);
    if (!utf8) continue;
    FUZZ_CHECK(got[i].key == slow[i].key);
    if (slow[i].value.which == 1) FUZZ_CHECK(got[i].value == slow[i].value.text);
  }
}

// A pair whose only key is an index has no name that could be repeated.
bool has_repeats(const std::vector<SlowPair>& pairs) {
  std::set<std::string> keys;
  return std::ranges::any_of(pairs, [&](const SlowPair& pair) {
    const bool named = !pair.key_is_index || !pair.key.empty();
    return named && !keys.insert(pair.key).second;
  });
}

void check_judge(std::span<const std::byte> payload, const SlowPayload& slow) {
  const Payload got = conformance::analyse_payload(payload);
  // The walk refuses everything that protobuf would refuse.
  FUZZ_CHECK(got.detail != "protobuf does not decode it");
  FUZZ_CHECK(got.problem_offset <= payload.size());
  const bool good = slow.verdict == SlowVerdict::kGood;
  if (got.problem == PayloadProblem::kNone) FUZZ_CHECK(good);
  if (good && slow.unknown == 0 && slow.attributes.empty()) {
    FUZZ_CHECK(got.problem == PayloadProblem::kNone);
  }
  for (const std::string& line : conformance::describe(got)) {
    FUZZ_CHECK(conformance::is_plain_text(line));
  }
  if (got.problem != PayloadProblem::kNone || !got.incomplete.empty()) return;
  FUZZ_CHECK(got.top_level.size() == slow.top_level);
  FUZZ_CHECK(got.unknown.size() == slow.unknown);
  FUZZ_CHECK(got.bad_utf8.empty() == slow.utf8);
  FUZZ_CHECK(got.dictionary_uses.size() == slow.indexes);
  check_list(got.resource, slow.resource, slow.utf8);
  check_list(got.attributes, slow.attributes, slow.utf8);
  if (!slow.utf8) return;
  FUZZ_CHECK(got.resource_key_repeats.empty() != has_repeats(slow.resource));
  FUZZ_CHECK(got.attribute_key_repeats.empty() != has_repeats(slow.attributes));
}

}  // namespace

void check_payload_decoders(std::span<const std::byte> input) {
  static GuardedBuffer buffer;
  const auto payload = buffer.copy(input);
  const std::string bytes(reinterpret_cast<const char*>(payload.data()), payload.size());
  const SlowPayload slow = slow_payload(bytes);
  check_reader(payload, slow);
  check_judge(payload, slow);
}

}  // namespace ctxconf::fuzz
