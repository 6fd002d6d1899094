#include <algorithm>
#include <string>
#include <vector>

#include "conformance/payload/payload_walk.h"
#include "fuzz/check.h"
#include "fuzz/guarded_buffer.h"
#include "fuzz/payload_oracle.h"
#include "fuzz/slow_payload.h"

namespace ctxconf::fuzz {
namespace {

using namespace conformance;

struct Walked {
  bool good = true;
  std::vector<PairNode> resource;
  std::vector<PairNode> attributes;
  std::uint64_t fields = 0;
};

// The payload's own fields; then its Resources one after the other.
Walked walk_all(PayloadWalk& walk, std::size_t size) {
  static constexpr Crumb kRoot{};
  Walked out;
  Region top{0, kOpenEnd};
  WireField f;
  while (walk.more(top)) {
    const std::uint64_t before = top.at;
    out.good = walk.next(top, 0, kRoot, f);
    if (!out.good) return out;
    FUZZ_CHECK(f.offset == before && top.at > before);
    FUZZ_CHECK(f.value.at >= before && f.value.at <= size && f.value.end == top.at);
    ++out.fields;
    if (f.number <= 2) {
      ResourceNode node;
      PairNode spare;
      out.good = f.wire_type == kDelimited;
      if (f.number == 1 && out.good) {
        out.good = walk.resource(f.value, 1, {nullptr, "resource", {}}, node);
        for (auto& pair : node.attributes) out.resource.push_back(std::move(pair));
      } else if (out.good) {
        PairNode& pair = walk.append(out.attributes, spare);
        pair.offset = f.offset;
        out.good = walk.pair(f.value, 1, {nullptr, "attributes", {}}, pair);
      }
    }
    out.good = out.good && f.value.end <= size;
    if (!out.good) return out;
  }
  return out;
}

void check_pairs(const std::vector<PairNode>& got, const std::vector<SlowPair>& slow);

void check_value(const ValueNode& got, const SlowValue& slow) {
  FUZZ_CHECK(got.which == slow.which);
  FUZZ_CHECK(got.items.size() == slow.items.size());
  for (std::size_t i = 0; i < slow.items.size(); ++i) check_value(got.items[i], slow.items[i]);
  check_pairs(got.pairs, slow.pairs);
}

void check_pairs(const std::vector<PairNode>& got, const std::vector<SlowPair>& slow) {
  FUZZ_CHECK(got.size() == slow.size());
  for (std::size_t i = 0; i < slow.size(); ++i) {
    FUZZ_CHECK(got[i].offset == slow[i].offset);
    FUZZ_CHECK(got[i].key == slow[i].key);
    FUZZ_CHECK(got[i].key_is_index == slow[i].key_is_index);
    FUZZ_CHECK(got[i].has_value == slow[i].has_value);
    check_value(got[i].value, slow[i].value);
  }
}

void check_texts(const std::string& bytes) {
  const auto bad = first_bad_utf8(bytes);
  FUZZ_CHECK(bad.has_value() != slow_utf8(bytes));
  if (bad) {
    FUZZ_CHECK(bad->count > 0 && bad->count < 4 && bad->count <= bytes.size() - bad->at);
    FUZZ_CHECK(slow_utf8(bytes.substr(0, bad->at)));
  }
  constexpr std::size_t limit = 24;
  for (const std::string& shown : {printable(bytes, limit), quoted(bytes, limit)}) {
    FUZZ_CHECK(slow_utf8(shown));
    FUZZ_CHECK(is_plain_text(shown) || shown.empty());
    FUZZ_CHECK(shown.size() <= limit + 40);
  }
  if (is_plain_text(bytes)) {
    FUZZ_CHECK(!bad && !bytes.empty());
    FUZZ_CHECK(printable(bytes, bytes.size()) == bytes);
  }
}

}  // namespace

void check_payload_walk(std::span<const std::byte> input) {
  static GuardedBuffer buffer;
  const auto payload = buffer.copy(input);
  const std::string bytes(reinterpret_cast<const char*>(payload.data()), payload.size());
  check_texts(bytes);

  const SlowPayload slow = slow_payload(bytes);
  PayloadWalk walk(payload);
  const Walked got = walk_all(walk, payload.size());
  FUZZ_CHECK(got.good == (slow.verdict == SlowVerdict::kGood));
  if (!got.good) {
    if (walk.stop.kind == StopKind::kNone) return;  // a top-level field, which this walk judged
    FUZZ_CHECK(!walk.stop.what.empty());
    FUZZ_CHECK(walk.stop.offset <= payload.size());
    FUZZ_CHECK(walk.stop.depth >= 0 && walk.stop.depth <= kMaxPayloadDepth + 1);
    return;
  }
  FUZZ_CHECK(walk.stop.kind == StopKind::kNone);
  FUZZ_CHECK(got.fields == slow.top_level);
  FUZZ_CHECK(walk.bad_utf8.empty() == slow.utf8);
  FUZZ_CHECK(walk.clean.empty() == slow.utf8);
  if (!slow.utf8) {
    FUZZ_CHECK(walk.clean.size() == bytes.size());
    FUZZ_CHECK(slow_payload(walk.clean).utf8);
  }
  FUZZ_CHECK(walk.dictionary_uses.size() ==
             std::min<std::uint64_t>(slow.indexes, kMaxPayloadListed));
  if (walk.too_many_items) return;
  check_pairs(got.resource, slow.resource);
  check_pairs(got.attributes, slow.attributes);
}

}  // namespace ctxconf::fuzz
