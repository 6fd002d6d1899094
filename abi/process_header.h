// The 32-byte header of OTEP 4719 (process context), and related names and limits. Revision
// 2026-04-07; every offset is from the document.
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

// "header-structure". Native byte order.
struct ProcessHeader {
  std::array<char, 8> signature;            // "OTEL_CTX", no terminator
  std::uint32_t version;                    // 2; 1 is for development
  std::uint32_t payload_size;               // bytes of the encoded payload
  std::uint64_t monotonic_published_at_ns;  // CLOCK_BOOTTIME; 0 during an update
  std::uint64_t payload;                    // an address in the writer process

  friend constexpr bool operator==(const ProcessHeader&, const ProcessHeader&) = default;
};
static_assert(sizeof(ProcessHeader) == 32);
static_assert(offsetof(ProcessHeader, signature) == 0);
static_assert(offsetof(ProcessHeader, version) == 8);
static_assert(offsetof(ProcessHeader, payload_size) == 12);
static_assert(offsetof(ProcessHeader, monotonic_published_at_ns) == 16);
static_assert(offsetof(ProcessHeader, payload) == 24);
static_assert(std::has_unique_object_representations_v<ProcessHeader>, "no padding");

inline constexpr std::size_t kHeaderBytes = sizeof(ProcessHeader);
inline constexpr std::array<char, 8> kSignature = {'O', 'T', 'E', 'L', '_', 'C', 'T', 'X'};
inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::uint32_t kDevelopmentVersion = 1;

inline constexpr std::string_view kMemfdName = "OTEL_CTX";
inline constexpr std::string_view kMemfdFile = "/memfd:OTEL_CTX";  // as /proc shows it

// "reading-protocol": a maps name that begins with one of these is a candidate.
inline constexpr std::array<std::string_view, 3> kMappingNamePrefixes = {
    "[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", kMemfdFile};

constexpr bool is_candidate_name(std::string_view maps_name) {
  for (const auto prefix : kMappingNamePrefixes) {
    if (maps_name.starts_with(prefix)) return true;
  }
  return false;
}

// The header at the start of `bytes`; nothing if there are fewer than 32.
inline std::optional<ProcessHeader> decode_process_header(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(ProcessHeader)) return std::nullopt;
  ProcessHeader h;
  std::memcpy(&h, bytes.data(), sizeof h);
  return h;
}

// The same header with every number in the other byte order.
constexpr ProcessHeader byte_swapped(ProcessHeader h) {
  h.version = std::byteswap(h.version);
  h.payload_size = std::byteswap(h.payload_size);
  h.monotonic_published_at_ns = std::byteswap(h.monotonic_published_at_ns);
  h.payload = std::byteswap(h.payload);
  return h;
}

// Whether a reader accepts it: signature, version 2, timestamp not zero.
constexpr bool is_valid(const ProcessHeader& h) {
  return h.signature == kSignature && h.version == kVersion && h.monotonic_published_at_ns != 0;
}

// Valid but for its timestamp, which is zero: an update is under way, or was not finished.
constexpr bool is_zeroed(const ProcessHeader& h) {
  return h.signature == kSignature && h.version == kVersion && h.monotonic_published_at_ns == 0;
}

// Attribute keys in field 2 that belong to the thread context (OTEP 4947).
inline constexpr std::string_view kSchemaVersionKey = "threadlocal.schema_version";
inline constexpr std::string_view kAttributeKeyMapKey = "threadlocal.attribute_key_map";

// Larger sizes are legal but reported as info (the catalogue's pctx.publish.footprint).
inline constexpr std::uint64_t kUsualMappingPages = 16;
inline constexpr std::uint64_t kUsualPayloadBytes = std::uint64_t{64} * 1024;

}  // namespace ctxconf::abi
