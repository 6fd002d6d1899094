// A second parser of the thread record, written from the tables of OTEP 4947
// ("thread-local-context-record-format") and of the drafts before it: one byte after the other,
// nothing shared with abi/, nothing allocated. For oracles on little-endian hosts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ctxconf::fuzz {

inline constexpr std::size_t kFixedPart = 28;  // of a record

struct SlowEntry {
  std::size_t key = 0;
  std::size_t offset = 0;  // of the entry in the area
  std::size_t length = 0;  // of the value, which begins two bytes later
};

// The entry that begins at `at`. Small enough to be returned in a register.
struct SlowStep {
  int key = 0;
  int length = -1;  // of the value; -1: there is no whole entry
};
SlowStep slow_step(std::span<const std::byte> area, std::size_t at);

// The start of the entry with this number, counted from 0; -1 if there are fewer.
std::ptrdiff_t slow_numbered(std::span<const std::byte> area, std::size_t number);
// The start of the last whole entry of a key, or -1.
std::ptrdiff_t slow_last(std::span<const std::byte> area, std::uint8_t key);

struct SlowEntries {
  std::array<SlowEntry, 32768> list;  // 65535 bytes have no more
  std::size_t count = 0;
  std::size_t end = 0;          // the first byte that no whole entry covers
  std::array<int, 256> last{};  // index in `list` of the last entry of a key, or -1
};
// The whole entries of `area` up to the first incomplete one, at most `limit` of them. `area` has
// at most 65535 bytes.
void slow_entries(std::span<const std::byte> area, SlowEntries& out, std::size_t limit = 32768);

struct SlowHead {
  bool present = false;  // there are all 28 bytes
  bool trace_id_set = false;
  bool span_id_set = false;
  std::uint8_t valid = 0;
  std::uint8_t trace_flags = 0;
  std::uint16_t size = 0;
};
SlowHead slow_head(std::span<const std::byte> record);

// A record read with a draft's layout.
enum class SlowFit { kNotThere, kImpossible, kCut, kEmpty, kExact };
struct SlowDraft {
  SlowFit fit = SlowFit::kNotThere;
  std::uint8_t valid = 0;
  std::size_t entries = 0;
  std::size_t attribute_bytes = 0;
};
// T0: valid at 32, count at 33, entries from 34. T1 and T3: size at 26, entries from 28.
SlowDraft slow_t0(std::span<const std::byte> record, SlowEntries& scratch);
SlowDraft slow_sized(std::span<const std::byte> record, bool other_byte_order,
                     SlowEntries& scratch);

}  // namespace ctxconf::fuzz
