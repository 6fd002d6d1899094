#include "fuzz/record_oracle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "abi/thread_record.h"
#include "fuzz/check.h"
#include "fuzz/guarded_buffer.h"
#include "fuzz/record_walk.h"
#include "fuzz/slow_record.h"

namespace ctxconf::fuzz {
namespace {

using Bytes = std::span<const std::byte>;

std::size_t to_size(std::ptrdiff_t n) { return static_cast<std::size_t>(n); }

std::uint64_t word(const std::byte* at) {
  std::uint64_t w = 0;
  std::memcpy(&w, at, sizeof w);
  return w;
}

void check_head(Bytes record, SlowHead slow) {
  const auto head = abi::decode_thread_record(record);
  FUZZ_CHECK(head.has_value() == slow.present);
  if (!head) return;
  const auto trace_id = std::bit_cast<std::array<std::uint64_t, 2>>(head->trace_id);
  FUZZ_CHECK(trace_id[0] == word(record.data()));
  FUZZ_CHECK(trace_id[1] == word(record.data() + 8));
  FUZZ_CHECK(std::bit_cast<std::uint64_t>(head->span_id) == word(record.data() + 16));
  FUZZ_CHECK(head->valid == slow.valid);
  FUZZ_CHECK(head->trace_flags == slow.trace_flags);
  FUZZ_CHECK(head->attrs_data_size == slow.size);
  FUZZ_CHECK(abi::has_trace_id(*head) == slow.trace_id_set);
  FUZZ_CHECK(abi::has_span_id(*head) == slow.span_id_set);
}

void check_last_occurrence(Bytes area, std::size_t number) {
  const std::ptrdiff_t numbered = slow_numbered(area, number);
  const auto key = static_cast<std::uint8_t>(
      numbered < 0 ? number : static_cast<std::size_t>(slow_step(area, to_size(numbered)).key));
  const std::ptrdiff_t last = slow_last(area, key);
  const auto found = abi::last_occurrence(area, key);
  FUZZ_CHECK(found.has_value() == (last >= 0));
  if (!found) return;
  FUZZ_CHECK(found->key == key);
  FUZZ_CHECK(found->offset == to_size(last));
  FUZZ_CHECK(found->value.size() == to_size(slow_step(area, to_size(last)).length));
  FUZZ_CHECK(found->value.data() == area.data() + last + 2);
}

void check_behind_the_end(Bytes area, std::size_t end) {
  abi::AttributeCursor cursor(area);
  while (cursor.next()) {
  }
  FUZZ_CHECK(!cursor.next());
  FUZZ_CHECK(cursor.offset() == end);
}

}  // namespace

void check_record(Bytes input) {
  static GuardedBuffer buffer;
  if (input.empty()) return;
  const auto choice = std::to_integer<std::size_t>(input[0]);
  input = input.subspan(1);
  const SlowHead head = slow_head(input);
  // Omits what follows the entries, so that they end at the guard.
  if (head.present)
    input = input.first(kFixedPart + std::min<std::size_t>(head.size, input.size() - kFixedPart));
  const Bytes record = buffer.copy(input);
  check_head(record, head);
  if (!head.present) return;
  const Bytes area = record.subspan(kFixedPart);
  const std::size_t end = check_entries(area);
  switch (static_cast<RecordMode>(choice % 3)) {
    case RecordMode::kExact:
      FUZZ_CHECK(abi::walks_exactly(area) == (end == area.size()));
      break;
    case RecordMode::kLastOccurrence:
      check_last_occurrence(area, choice / 3);
      break;
    case RecordMode::kBehindTheEnd:
      check_behind_the_end(area, end);
      break;
  }
}

}  // namespace ctxconf::fuzz
