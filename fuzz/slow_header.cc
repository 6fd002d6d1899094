#include "fuzz/slow_header.h"

namespace ctxconf::fuzz {
namespace {

// Little-endian, `width` bytes from `at`; nothing if some are missing.
std::optional<std::uint64_t> number(std::span<const std::byte> bytes, std::size_t at,
                                    std::size_t width) {
  if (at + width > bytes.size()) return std::nullopt;
  std::uint64_t out = 0;
  for (std::size_t i = width; i > 0; --i) {
    out = out * 256 + std::to_integer<std::uint64_t>(bytes[at + i - 1]);
  }
  return out;
}

std::string text(std::span<const std::byte> bytes, std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size && i < bytes.size(); ++i) {
    out += static_cast<char>(std::to_integer<unsigned char>(bytes[i]));
  }
  return out;
}

// A field of a layout that may reach beyond the bytes; then it counts as zero.
std::uint64_t field(std::span<const std::byte> head, std::size_t at, std::size_t width) {
  return number(head, at, width).value_or(0);
}

bool is_mapped(const SlowSurroundings& around, std::uint64_t address, std::uint64_t size) {
  if (address == 0 || address < around.payload_at) return false;
  const std::uint64_t skip = address - around.payload_at;
  const std::uint64_t needed = size == 0 ? 1 : size;
  return skip <= around.payload_size && needed <= around.payload_size - skip;
}

bool plausible(std::uint64_t timestamp, const SlowSurroundings& around) {
  if (timestamp == 0) return true;
  if (timestamp > 1'700'000'000'000'000'000) {
    return around.realtime == 0 || timestamp <= around.realtime;
  }
  if (timestamp > 1'600'000'000'000'000'000) return false;
  return around.boottime == 0 || timestamp <= around.boottime;
}

int score(std::uint64_t size, std::optional<std::uint64_t> timestamp, std::uint64_t pointer,
          const SlowSurroundings& around) {
  int points = 0;
  if (is_mapped(around, pointer, size)) {
    points += 2;
    if (size > 0 && pointer == around.payload_at && around.is_a_payload(size)) points += 2;
  }
  if (size >= 1 && size <= 65536) points += 1;
  if (timestamp && plausible(*timestamp, around)) points += 1;
  if (size > 16777216) points -= 2;
  return points;
}

}  // namespace

std::optional<SlowHeader> slow_header(std::span<const std::byte> bytes) {
  if (bytes.size() < 32) return std::nullopt;
  SlowHeader h;
  h.signature = text(bytes, 8);
  h.version = *number(bytes, 8, 4);
  h.payload_size = *number(bytes, 12, 4);
  h.timestamp = *number(bytes, 16, 8);
  h.payload = *number(bytes, 24, 8);
  h.valid = h.signature == "OTEL_CTX" && h.version == 2 && h.timestamp != 0;
  return h;
}

std::string slow_layout(std::span<const std::byte> head, const SlowSurroundings& around) {
  const std::string signature = text(head, 8);
  const std::uint64_t version = field(head, 8, 4);
  if (signature == "OTL-PROC") return "H0";
  if (signature != "OTEL_CTX") {
    const bool empty = signature == std::string(8, '\0');
    const bool started = field(head, 12, 4) != 0 || field(head, 16, 8) != 0;
    return empty && version == 2 && started ? "in progress" : "";
  }
  const std::uint64_t at_16 = field(head, 16, 8);
  const std::uint64_t at_24 = field(head, 24, 8);
  const std::uint64_t size_at_12 = field(head, 12, 4);
  if (version == 1) {
    const bool h1 = is_mapped(around, at_16, size_at_12);
    return !h1 && is_mapped(around, at_24, size_at_12) ? "H5" : "H1";
  }
  if (version != 2) return "";
  const int h2 = score(size_at_12, std::nullopt, at_16, around);
  const int h3 = score(field(head, 20, 4), field(head, 12, 8), at_24, around);
  const int h5 = score(size_at_12, at_16, at_24, around);
  const bool may_be_h2 = at_16 != 0 && at_16 >> 56 == 0 && at_24 == 0;
  if (may_be_h2 && h2 > h5) return h2 >= h3 ? "H2" : "H3";
  return h3 > h5 ? "H3" : "H5";
}

std::string slow_clear_format(std::span<const std::byte> payload) {
  // Tag, one length byte, and so on inwards.
  const auto at = [&](std::size_t i) {
    return i < payload.size() ? std::to_integer<unsigned>(payload[i]) : 0x80U;
  };
  const auto letter = [&](std::size_t i) { return at(i) >= 'a' && at(i) <= 'z'; };
  if (at(0) != 0x0a || at(1) >= 0x80 || at(2) != 0x0a || at(3) >= 0x80) return {};
  const bool nested = at(4) == 0x0a && at(5) == 1 && letter(6);
  if (nested && at(3) >= 3 && at(1) >= at(3) + 2) return "P4";
  // A value whose first tag is not text cannot be the string of an older map.
  const bool pair = at(3) == 1 && letter(4) && at(5) == 0x12 && at(6) >= 2 && at(7) == 0x0a;
  if (pair && at(1) >= 7) return "P3";
  return {};
}

}  // namespace ctxconf::fuzz
