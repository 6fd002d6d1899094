#include "fuzz/slow_record.h"

#include "fuzz/check.h"

namespace ctxconf::fuzz {
namespace {

std::size_t byte(std::span<const std::byte> bytes, std::size_t at) {
  FUZZ_CHECK(at < bytes.size());
  return static_cast<std::size_t>(bytes.data()[at]);
}

bool any_set(std::span<const std::byte> bytes, std::size_t from, std::size_t count) {
  for (std::size_t i = from; i < from + count; ++i) {
    if (byte(bytes, i) != 0) return true;
  }
  return false;
}

}  // namespace

SlowStep slow_step(std::span<const std::byte> area, std::size_t at) {
  if (at > area.size() || area.size() - at < 2) return {};
  const std::size_t length = byte(area, at + 1);
  if (area.size() - at < 2 + length) return {};
  return {static_cast<int>(byte(area, at)), static_cast<int>(length)};
}

std::ptrdiff_t slow_numbered(std::span<const std::byte> area, std::size_t number) {
  std::size_t at = 0;
  for (std::size_t i = 0;; ++i) {
    const SlowStep step = slow_step(area, at);
    if (step.length < 0) return -1;
    if (i == number) return static_cast<std::ptrdiff_t>(at);
    at += 2 + static_cast<std::size_t>(step.length);
  }
}

std::ptrdiff_t slow_last(std::span<const std::byte> area, std::uint8_t key) {
  std::ptrdiff_t last = -1;
  std::size_t at = 0;
  for (;;) {
    const SlowStep step = slow_step(area, at);
    if (step.length < 0) return last;
    if (step.key == key) last = static_cast<std::ptrdiff_t>(at);
    at += 2 + static_cast<std::size_t>(step.length);
  }
}

void slow_entries(std::span<const std::byte> area, SlowEntries& out, std::size_t limit) {
  FUZZ_CHECK(area.size() <= 65535);
  for (int& last : out.last) last = -1;
  out.count = 0;
  out.end = 0;
  while (out.count < limit) {
    const SlowStep step = slow_step(area, out.end);
    if (step.length < 0) return;
    const auto key = static_cast<std::size_t>(step.key);
    const auto length = static_cast<std::size_t>(step.length);
    out.last[key] = static_cast<int>(out.count);
    out.list[out.count++] = {key, out.end, length};
    out.end += 2 + length;
  }
}

SlowHead slow_head(std::span<const std::byte> record) {
  SlowHead h;
  if (record.size() < 28) return h;
  h.present = true;
  h.trace_id_set = any_set(record, 0, 16);
  h.span_id_set = any_set(record, 16, 8);
  h.valid = static_cast<std::uint8_t>(byte(record, 24));
  h.trace_flags = static_cast<std::uint8_t>(byte(record, 25));
  h.size = static_cast<std::uint16_t>(byte(record, 26) + 256 * byte(record, 27));
  return h;
}

SlowDraft slow_t0(std::span<const std::byte> record, SlowEntries& scratch) {
  SlowDraft d;
  if (record.size() < 34) return d;
  d.valid = static_cast<std::uint8_t>(byte(record, 32));
  const std::size_t count = byte(record, 33);
  auto after = record.subspan(34);
  if (after.size() > 65535) after = after.first(65535);
  slow_entries(after, scratch, count);
  d.entries = scratch.count;
  d.attribute_bytes = scratch.end;
  d.fit = count == 0 ? SlowFit::kEmpty : d.entries == count ? SlowFit::kExact : SlowFit::kCut;
  return d;
}

SlowDraft slow_sized(std::span<const std::byte> record, bool other_byte_order,
                     SlowEntries& scratch) {
  SlowDraft d;
  if (record.size() < 28) return d;
  d.valid = static_cast<std::uint8_t>(byte(record, 24));
  const std::size_t low = byte(record, other_byte_order ? 27 : 26);
  const std::size_t high = byte(record, other_byte_order ? 26 : 27);
  d.attribute_bytes = low + 256 * high;
  const auto after = record.subspan(28);
  const bool cut = after.size() < d.attribute_bytes;
  const auto area = cut ? after : after.first(d.attribute_bytes);
  slow_entries(area, scratch);
  d.entries = scratch.count;
  if (d.attribute_bytes == 0) {
    d.fit = SlowFit::kEmpty;
  } else if (!cut) {
    d.fit = scratch.end == area.size() ? SlowFit::kExact : SlowFit::kImpossible;
  } else {
    // The length of a truncated entry may be visible, and then its intended end.
    std::size_t end = scratch.end + 2;
    if (area.size() - scratch.end >= 2) end += byte(area, scratch.end + 1);
    d.fit = end <= d.attribute_bytes ? SlowFit::kCut : SlowFit::kImpossible;
  }
  return d;
}

}  // namespace ctxconf::fuzz
