// Instructions of aarch64 as the Arm ARM, C4.1, encodes them.
#include <algorithm>

#include "sys/arch/aarch64.h"

namespace ctxconf::sys::arch::aarch64 {
namespace {

constexpr std::uint64_t kLength = 4;    // of an instruction
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
// One register, or a pair; else it is an atomic compare and swap of a pair.
bool is_exclusive(std::uint32_t code) {
  return is_exclusive_group(code) && !flag(code, 23) && (!flag(code, 21) || flag(code, 31));
}
bool loads_exclusively(std::uint32_t code) { return is_exclusive(code) && flag(code, 22); }
bool stores_exclusively(std::uint32_t code) { return is_exclusive(code) && !flag(code, 22); }
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

// Does not access memory and goes on with the next instruction, or is a barrier or a hint.
bool is_plain(std::uint32_t code) {
  const bool data_processing =
      field(code, 28, 26) == 0b100 || field(code, 27, 25) == 0b101 || field(code, 27, 25) == 0b111;
  const bool system = field(code, 31, 22) == 0x354 && field(code, 31, 19) != 0x1aa1;
  return data_processing || system;
}

std::optional<std::uint64_t> conditional_target(std::uint64_t pc, std::uint32_t code) {
  if (field(code, 31, 24) == 0x54 || field(code, 30, 25) == 0b011010) {  // b.cond, cbz, cbnz
    return pc + (signed_field(code, 23, 5) << 2U);
  }
  if (field(code, 30, 25) == 0b011011) return pc + (signed_field(code, 18, 5) << 2U);  // tbz, tbnz
  return std::nullopt;
}

bool add_exit(ExclusiveAttempt& attempt, std::uint64_t to) {
  const auto end = attempt.exits.begin() + static_cast<std::ptrdiff_t>(attempt.exit_count);
  if (std::find(attempt.exits.begin(), end, to) != end) return true;
  if (attempt.exit_count == attempt.exits.size()) return false;
  attempt.exits[attempt.exit_count++] = to;
  return true;
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

bool is_load_exclusive(std::span<const std::uint32_t> code) {
  return !code.empty() && loads_exclusively(code[0]);
}

bool is_store_exclusive(std::span<const std::uint32_t> code) {
  return !code.empty() && stores_exclusively(code[0]);
}

std::optional<ExclusiveAttempt> attempt_from(std::uint64_t pc,
                                             std::span<const std::uint32_t> code) {
  if (!is_load_exclusive(code)) return std::nullopt;
  code = code.first(std::min(code.size(), kLongestAttempt));
  const auto store = std::find_if(code.begin() + 1, code.end(), stores_exclusively);
  if (store == code.end()) return std::nullopt;
  const auto length = static_cast<std::size_t>(store - code.begin());
  ExclusiveAttempt out;
  out.load = pc;
  out.store = pc + kLength * length;
  out.code = *store;
  add_exit(out, out.store + kLength);
  for (std::size_t i = 1; i < length; ++i) {
    const auto target = conditional_target(pc + kLength * i, code[i]);
    if (!target && !is_plain(code[i])) return std::nullopt;
    const bool within = target && *target >= out.load && *target <= out.store;
    if (target && !within && !add_exit(out, *target)) return std::nullopt;
  }
  return out;
}

std::optional<ExclusiveAttempt> attempt_to(std::uint64_t pc, std::span<const std::uint32_t> code) {
  if (code.empty() || !stores_exclusively(code.back())) return std::nullopt;
  const auto load = std::find_if(code.rbegin() + 1, code.rend(), loads_exclusively);
  if (load == code.rend()) return std::nullopt;
  const auto at = static_cast<std::size_t>(code.rend() - load) - 1;
  auto out = attempt_from(pc + kLength * at, code.subspan(at));
  if (out && out->store != pc + kLength * (code.size() - 1)) out.reset();
  return out;
}

bool has_stored(std::uint32_t code, const GeneralRegisters& after) {
  return static_cast<std::uint32_t>(x_register(field(code, 20, 16), after)) == 0;
}

}  // namespace ctxconf::sys::arch::aarch64
