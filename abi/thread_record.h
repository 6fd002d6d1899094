// The thread context of OTEP 4947: the record, its attribute entries, and related names. Revision
// 2026-07-17; every offset is from the document.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace ctxconf::abi {

// The TLS variable, a pointer to the record of its thread; null: no context.
inline constexpr std::string_view kThreadSlotSymbol = "otel_thread_ctx_v1";

// The fixed part of a record. Native byte order, at an even address.
struct ThreadRecordHead {
  std::array<std::uint8_t, 16> trace_id;  // all zero: none; set together with span_id
  std::array<std::uint8_t, 8> span_id;
  std::uint8_t valid;             // 1: may be used; every other value: ignore the record
  std::uint8_t trace_flags;       // 0 when the ids are not set
  std::uint16_t attrs_data_size;  // bytes of entries after the fixed part

  friend constexpr bool operator==(const ThreadRecordHead&, const ThreadRecordHead&) = default;
};
static_assert(sizeof(ThreadRecordHead) == 28);
static_assert(alignof(ThreadRecordHead) == 2);
static_assert(offsetof(ThreadRecordHead, trace_id) == 0);
static_assert(offsetof(ThreadRecordHead, span_id) == 16);
static_assert(offsetof(ThreadRecordHead, valid) == 24);
static_assert(offsetof(ThreadRecordHead, trace_flags) == 25);
static_assert(offsetof(ThreadRecordHead, attrs_data_size) == 26);
static_assert(std::has_unique_object_representations_v<ThreadRecordHead>, "no padding");

inline constexpr std::size_t kRecordHeadBytes = sizeof(ThreadRecordHead);
inline constexpr std::uint8_t kRecordValid = 1;
inline constexpr std::size_t kRecommendedRecordBytes = 640;  // fixed part and entries
inline constexpr std::size_t kMaxKeys = 256;                 // an index is one byte
inline constexpr std::size_t kMaxValueBytes = 255;           // a length is one byte, too
inline constexpr std::size_t kEntryHeadBytes = 2;

// threadlocal.schema_version: the values for this record, for Go, and for Node.js.
inline constexpr std::array<std::string_view, 2> kThreadSchemaVersions = {"tlsdesc_v1_dev",
                                                                          "tls_v1"};
inline constexpr std::string_view kGoSchemaVersion = "go_pprof_labels_v1";
inline constexpr std::array<std::string_view, 2> kNodeSchemaVersions = {"nodejs_v1_dev",
                                                                        "nodejs_v1"};
constexpr bool is_thread_schema(std::string_view v) {
  return v == kThreadSchemaVersions[0] || v == kThreadSchemaVersions[1];
}

// The fixed part at the start of `bytes`; nothing if there are fewer than 28.
inline std::optional<ThreadRecordHead> decode_thread_record(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(ThreadRecordHead)) return std::nullopt;
  ThreadRecordHead h;
  std::memcpy(&h, bytes.data(), sizeof h);
  return h;
}

constexpr bool has_trace_id(const ThreadRecordHead& h) {
  const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(h.trace_id);
  return (words[0] | words[1]) != 0;
}
constexpr bool has_span_id(const ThreadRecordHead& h) {
  return std::bit_cast<std::uint64_t>(h.span_id) != 0;
}

struct AttributeEntry {
  std::uint8_t key = 0;              // index into threadlocal.attribute_key_map
  std::span<const std::byte> value;  // at most 255 bytes, UTF-8 by rule; hostile
  std::size_t offset = 0;            // of the entry in the area
};

// Walks an attribute area: {u8 key, u8 length, value[length]}, packed. Stops at the first entry
// that does not fit, as readers must.
class AttributeCursor {
 public:
  constexpr explicit AttributeCursor(std::span<const std::byte> area) : area_(area) {}
  constexpr std::optional<AttributeEntry> next() {
    const auto left = area_.subspan(at_);
    if (left.size() < kEntryHeadBytes) return std::nullopt;
    const auto length = std::to_integer<std::size_t>(left[1]);
    if (left.size() - kEntryHeadBytes < length) return std::nullopt;
    const AttributeEntry entry{std::to_integer<std::uint8_t>(left[0]),
                               left.subspan(kEntryHeadBytes, length), at_};
    at_ += kEntryHeadBytes + length;
    return entry;
  }
  // Bytes consumed; after the last next() what remains is a fragment.
  constexpr std::size_t offset() const { return at_; }
  constexpr std::size_t left() const { return area_.size() - at_; }

 private:
  std::span<const std::byte> area_;
  std::size_t at_ = 0;
};

// Whether whole entries fill the area exactly. True for an empty area.
constexpr bool walks_exactly(std::span<const std::byte> area) {
  AttributeCursor cursor(area);
  while (cursor.next()) {
  }
  return cursor.left() == 0;
}

// The last complete entry of `key`: the one that counts.
constexpr std::optional<AttributeEntry> last_occurrence(std::span<const std::byte> area,
                                                        std::uint8_t key) {
  std::optional<AttributeEntry> found;
  AttributeCursor cursor(area);
  while (const auto entry = cursor.next()) {
    if (entry->key == key) found = entry;
  }
  return found;
}

// Writes entries one after the other into a caller's buffer.
class AttributeEncoder {
 public:
  constexpr explicit AttributeEncoder(std::span<std::byte> area) : area_(area) {}
  // False, without writing anything, if the entry does not fit or the value has more than 255
  // bytes.
  constexpr bool append(std::uint8_t key, std::span<const std::byte> value) {
    if (value.size() > kMaxValueBytes) return false;
    if (area_.size() - size_ < kEntryHeadBytes + value.size()) return false;
    area_[size_] = std::byte{key};
    area_[size_ + 1] = static_cast<std::byte>(value.size());
    for (std::size_t i = 0; i < value.size(); ++i) area_[size_ + kEntryHeadBytes + i] = value[i];
    size_ += kEntryHeadBytes + value.size();
    return true;
  }
  constexpr std::size_t size() const { return size_; }

 private:
  std::span<std::byte> area_;
  std::size_t size_ = 0;
};

}  // namespace ctxconf::abi
