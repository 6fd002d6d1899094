// Fields of an instruction of aarch64, and the groups of its encoding (Arm ARM, C4.1), whichever
// processor this program was compiled for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ctxconf::sys::arch::aarch64 {

inline constexpr std::uint64_t kInstructionLength = 4;

// The Arm ARM (B2.12.5) recommends at most 128 bytes from a load-exclusive to its store-exclusive.
inline constexpr std::size_t kLongestAttempt = 32;  // instructions

// Bits `high` to `low`.
constexpr std::uint32_t bits(std::uint32_t code, unsigned high, unsigned low) {
  return code >> low & ((1U << (high - low + 1)) - 1);
}
constexpr bool bit(std::uint32_t code, unsigned at) { return bits(code, at, at) != 0; }
// To be added to an address.
constexpr std::uint64_t signed_bits(std::uint32_t code, unsigned high, unsigned low) {
  const std::uint64_t value = bits(code, high, low);
  return bit(code, high) ? value - (std::uint64_t{1} << (high - low + 1)) : value;
}

constexpr bool is_data_processing(std::uint32_t code) {
  return bits(code, 28, 26) == 0b100 || bits(code, 27, 25) == 0b101 || bits(code, 27, 25) == 0b111;
}
// Barriers, hints and system registers, and SYS instructions, of which `dc zva` is one.
constexpr bool is_system(std::uint32_t code) { return bits(code, 31, 22) == 0x354; }
constexpr bool is_sys(std::uint32_t code) { return bits(code, 31, 19) == 0x1aa1; }

constexpr bool is_structure(std::uint32_t code) {
  return !bit(code, 31) && bits(code, 29, 25) == 0b00110;
}
constexpr bool is_exclusive_or_ordered(std::uint32_t code) {
  return bits(code, 29, 24) == 0b001000;
}
// Of one register, or of a pair.
constexpr bool is_compare_and_swap(std::uint32_t code) {
  return is_exclusive_or_ordered(code) && bit(code, 21) && (bit(code, 23) || !bit(code, 31));
}
constexpr bool is_exclusive(std::uint32_t code) {
  return is_exclusive_or_ordered(code) && !bit(code, 23) && !is_compare_and_swap(code);
}
constexpr bool loads_exclusively(std::uint32_t code) { return is_exclusive(code) && bit(code, 22); }
constexpr bool stores_exclusively(std::uint32_t code) {
  return is_exclusive(code) && !bit(code, 22);
}
// ldapur, stlur
constexpr bool is_ordered_unscaled(std::uint32_t code) {
  return bits(code, 29, 24) == 0b011001 && !bit(code, 21) && bits(code, 11, 10) == 0;
}

}  // namespace ctxconf::sys::arch::aarch64
