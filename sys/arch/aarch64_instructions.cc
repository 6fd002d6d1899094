// Instructions of aarch64 as the Arm ARM, C4.1, encodes them.
#include "sys/arch/aarch64.h"

namespace ctxconf::sys::arch::aarch64 {
namespace {

constexpr unsigned kStackPointer = 31;  // as a base register; otherwise register 31 is zero

// Bits `high` to `low` of an instruction.
constexpr std::uint32_t field(std::uint32_t code, unsigned high, unsigned low) {
  return code >> low & ((1U << (high - low + 1)) - 1);
}
constexpr bool flag(std::uint32_t code, unsigned at) { return field(code, at, at) != 0; }
constexpr std::uint64_t signed_field(std::uint32_t code, unsigned high, unsigned low) {
  const std::uint64_t value = field(code, high, low);
  return flag(code, high) ? value - (std::uint64_t{1} << (high - low + 1)) : value;
}

bool is_exclusive_group(std::uint32_t code) { return field(code, 29, 24) == 0b001000; }
bool is_zero_of_block(std::uint32_t code) { return field(code, 31, 5) == 0xd50b7420U >> 5U; }

std::uint64_t x_register(unsigned number, const GeneralRegisters& r) {
  return number == kStackPointer ? 0 : r.x[number];
}
std::uint64_t base_register(std::uint32_t code, const GeneralRegisters& r) {
  const unsigned number = field(code, 9, 5);
  return number == kStackPointer ? r.sp : r.x[number];
}

// An offset that is used before the access, or added to the base register after it.
std::uint64_t addressed(std::uint64_t base, std::uint64_t offset, bool afterwards) {
  return afterwards ? base : base + offset;
}

std::optional<StoredBytes> stored_exclusively_or_ordered(std::uint32_t code, std::uint64_t base) {
  const std::uint64_t size = 1U << field(code, 31, 30);
  const bool ordered_or_swap = flag(code, 23);
  const bool pair_or_swap = flag(code, 21);
  const bool loads = flag(code, 22);
  if (pair_or_swap && (ordered_or_swap || !flag(code, 31))) {  // cas, casp
    return StoredBytes{base, ordered_or_swap ? size : 8U << field(code, 30, 30)};
  }
  if (loads) return std::nullopt;
  return StoredBytes{base, pair_or_swap ? 8U << field(code, 30, 30) : size};
}

std::optional<StoredBytes> stored_pair(std::uint32_t code, std::uint64_t base) {
  constexpr std::uint32_t kPost = 0b01;
  if (flag(code, 22)) return std::nullopt;
  const std::uint32_t form = field(code, 31, 30);
  const bool vector = flag(code, 26);
  const bool tagged = !vector && form == 0b01;  // stgp stores two registers of 8 bytes, and a tag
  const unsigned scale = vector ? 2 + form : form == 0b00 ? 2 : 3;
  const auto offset = signed_field(code, 21, 15) << (tagged ? 4U : scale);
  return StoredBytes{addressed(base, offset, field(code, 24, 23) == kPost),
                     std::uint64_t{2} << scale};
}

std::optional<StoredBytes> stored_single(std::uint32_t code, std::uint64_t base,
                                         const GeneralRegisters& r) {
  const bool vector = flag(code, 26);
  const unsigned scale = vector && flag(code, 23) ? 4 : field(code, 31, 30);
  const std::uint64_t size = std::uint64_t{1} << scale;
  const bool scaled_offset = field(code, 25, 24) == 0b01;
  const auto form = field(code, 11, 10);
  if (!scaled_offset && flag(code, 21) && form == 0b00) {  // an atomic, ldapr, st64b
    const bool is_swap = flag(code, 15) && field(code, 14, 12) == 0;
    if (vector || (flag(code, 15) && !is_swap)) return std::nullopt;
    return StoredBytes{base, size};
  }
  const bool stores = vector ? !flag(code, 22) : field(code, 23, 22) == 0;
  if (!stores) return std::nullopt;
  if (scaled_offset) return StoredBytes{base + (std::uint64_t{field(code, 21, 10)} << scale), size};
  if (!flag(code, 21)) {
    constexpr std::uint32_t kPost = 0b01;
    return StoredBytes{addressed(base, signed_field(code, 20, 12), form == kPost), size};
  }
  if (form != 0b10) return std::nullopt;
  std::uint64_t index = x_register(field(code, 20, 16), r);
  const auto extend = field(code, 15, 13);
  if (extend == 0b010) index = static_cast<std::uint32_t>(index);
  if (extend == 0b110) {
    index =
        static_cast<std::uint64_t>(static_cast<std::int32_t>(static_cast<std::uint32_t>(index)));
  }
  return StoredBytes{base + (flag(code, 12) ? index << scale : index), size};
}

// st1 to st4.
std::optional<StoredBytes> stored_structure(std::uint32_t code, std::uint64_t base) {
  if (flag(code, 22)) return std::nullopt;
  if (flag(code, 24)) {  // one element of each register
    const std::uint64_t registers = (field(code, 13, 13) << 1U | field(code, 21, 21)) + 1;
    const auto kind = field(code, 15, 14);
    const unsigned scale = kind == 0b10 && field(code, 11, 10) == 0b01 ? 3 : kind;
    return StoredBytes{base, registers << scale};
  }
  std::uint64_t registers = 0;
  switch (field(code, 15, 12)) {
    case 0b0000:
    case 0b0010:
      registers = 4;
      break;
    case 0b0100:
    case 0b0110:
      registers = 3;
      break;
    case 0b1000:
    case 0b1010:
      registers = 2;
      break;
    case 0b0111:
      registers = 1;
      break;
    default:
      return std::nullopt;
  }
  return StoredBytes{base, registers * (flag(code, 30) ? 16U : 8U)};
}

}  // namespace

std::optional<StoredBytes> stored_by(std::uint32_t code, const GeneralRegisters& before,
                                     std::uint64_t zeroed) {
  const std::uint64_t base = base_register(code, before);
  if (is_zero_of_block(code)) {
    if (zeroed == 0) return std::nullopt;
    return StoredBytes{x_register(field(code, 4, 0), before) & ~(zeroed - 1), zeroed};
  }
  if (is_exclusive_group(code)) return stored_exclusively_or_ordered(code, base);
  if (field(code, 29, 24) == 0b011001 && !flag(code, 21) && field(code, 11, 10) == 0) {  // stlur
    if (field(code, 23, 22) != 0) return std::nullopt;
    return StoredBytes{base + signed_field(code, 20, 12), std::uint64_t{1} << field(code, 31, 30)};
  }
  if (!flag(code, 31) && field(code, 29, 25) == 0b00110) return stored_structure(code, base);
  if (field(code, 29, 27) == 0b101 && !flag(code, 25)) return stored_pair(code, base);
  if (field(code, 29, 27) == 0b111 && !flag(code, 25)) return stored_single(code, base, before);
  return std::nullopt;
}

}  // namespace ctxconf::sys::arch::aarch64
