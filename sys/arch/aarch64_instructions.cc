// Instructions of aarch64 as the Arm ARM, C4.1, encodes them.
#include <algorithm>

#include "sys/aarch64_instruction.h"
#include "sys/arch/aarch64.h"

namespace ctxconf::sys::arch::aarch64 {
namespace {

constexpr unsigned kStackPointer = 31;  // as a base register; otherwise register 31 is zero

bool is_zero_of_block(std::uint32_t code) { return bits(code, 31, 5) == 0xd50b7420U >> 5U; }

std::uint64_t x_register(unsigned number, const GeneralRegisters& r) {
  return number == kStackPointer ? 0 : r.x[number];
}
std::uint64_t base_register(std::uint32_t code, const GeneralRegisters& r) {
  const unsigned number = bits(code, 9, 5);
  return number == kStackPointer ? r.sp : r.x[number];
}

// An offset that is used before the access, or added to the base register after it.
std::uint64_t addressed(std::uint64_t base, std::uint64_t offset, bool afterwards) {
  return afterwards ? base : base + offset;
}

std::optional<StoredBytes> stored_exclusively_or_ordered(std::uint32_t code, std::uint64_t base) {
  const std::uint64_t size = 1U << bits(code, 31, 30);
  const std::uint64_t size_of_pair = 8U << bits(code, 30, 30);
  if (is_compare_and_swap(code)) return StoredBytes{base, bit(code, 23) ? size : size_of_pair};
  if (bit(code, 22)) return std::nullopt;  // it loads
  return StoredBytes{base, bit(code, 21) ? size_of_pair : size};
}

std::optional<StoredBytes> stored_pair(std::uint32_t code, std::uint64_t base) {
  constexpr std::uint32_t kPost = 0b01;
  if (bit(code, 22)) return std::nullopt;
  const std::uint32_t form = bits(code, 31, 30);
  const bool vector = bit(code, 26);
  const bool tagged = !vector && form == 0b01;  // stgp stores two registers of 8 bytes, and a tag
  const unsigned scale = vector ? 2 + form : form == 0b00 ? 2 : 3;
  const auto offset = signed_bits(code, 21, 15) << (tagged ? 4U : scale);
  return StoredBytes{addressed(base, offset, bits(code, 24, 23) == kPost),
                     std::uint64_t{2} << scale};
}

std::optional<StoredBytes> stored_single(std::uint32_t code, std::uint64_t base,
                                         const GeneralRegisters& r) {
  const bool vector = bit(code, 26);
  const unsigned scale = vector && bit(code, 23) ? 4 : bits(code, 31, 30);
  const std::uint64_t size = std::uint64_t{1} << scale;
  const bool scaled_offset = bits(code, 25, 24) == 0b01;
  const auto form = bits(code, 11, 10);
  if (!scaled_offset && bit(code, 21) && form == 0b00) {  // an atomic, ldapr, st64b
    const bool is_swap = bit(code, 15) && bits(code, 14, 12) == 0;
    if (vector || (bit(code, 15) && !is_swap)) return std::nullopt;
    return StoredBytes{base, size};
  }
  const bool stores = vector ? !bit(code, 22) : bits(code, 23, 22) == 0;
  if (!stores) return std::nullopt;
  if (scaled_offset) return StoredBytes{base + (std::uint64_t{bits(code, 21, 10)} << scale), size};
  if (!bit(code, 21)) {
    constexpr std::uint32_t kPost = 0b01;
    return StoredBytes{addressed(base, signed_bits(code, 20, 12), form == kPost), size};
  }
  if (form != 0b10) return std::nullopt;
  std::uint64_t index = x_register(bits(code, 20, 16), r);
  const auto extend = bits(code, 15, 13);
  if (extend == 0b010) index = static_cast<std::uint32_t>(index);
  if (extend == 0b110) {
    index =
        static_cast<std::uint64_t>(static_cast<std::int32_t>(static_cast<std::uint32_t>(index)));
  }
  return StoredBytes{base + (bit(code, 12) ? index << scale : index), size};
}

// st1 to st4.
std::optional<StoredBytes> stored_structure(std::uint32_t code, std::uint64_t base) {
  if (bit(code, 22)) return std::nullopt;
  if (bit(code, 24)) {  // one element of each register
    const std::uint64_t registers = (bits(code, 13, 13) << 1U | bits(code, 21, 21)) + 1;
    const auto kind = bits(code, 15, 14);
    const unsigned scale = kind == 0b10 && bits(code, 11, 10) == 0b01 ? 3 : kind;
    return StoredBytes{base, registers << scale};
  }
  std::uint64_t registers = 0;
  switch (bits(code, 15, 12)) {
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
  return StoredBytes{base, registers * (bit(code, 30) ? 16U : 8U)};
}

// Does not access memory and goes on with the next instruction, or is a barrier or a hint.
bool is_plain(std::uint32_t code) {
  return is_data_processing(code) || (is_system(code) && !is_sys(code));
}

std::optional<std::uint64_t> conditional_target(std::uint64_t pc, std::uint32_t code) {
  if (bits(code, 31, 24) == 0x54 || bits(code, 30, 25) == 0b011010) {  // b.cond, cbz, cbnz
    return pc + (signed_bits(code, 23, 5) << 2U);
  }
  if (bits(code, 30, 25) == 0b011011) return pc + (signed_bits(code, 18, 5) << 2U);  // tbz, tbnz
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
    return StoredBytes{x_register(bits(code, 4, 0), before) & ~(zeroed - 1), zeroed};
  }
  if (is_exclusive_or_ordered(code)) return stored_exclusively_or_ordered(code, base);
  if (is_ordered_unscaled(code)) {
    if (bits(code, 23, 22) != 0) return std::nullopt;
    return StoredBytes{base + signed_bits(code, 20, 12), std::uint64_t{1} << bits(code, 31, 30)};
  }
  if (is_structure(code)) return stored_structure(code, base);
  if (bits(code, 29, 27) == 0b101 && !bit(code, 25)) return stored_pair(code, base);
  if (bits(code, 29, 27) == 0b111 && !bit(code, 25)) return stored_single(code, base, before);
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
  out.store = pc + kInstructionLength * length;
  out.code = *store;
  add_exit(out, out.store + kInstructionLength);
  for (std::size_t i = 1; i < length; ++i) {
    const auto target = conditional_target(pc + kInstructionLength * i, code[i]);
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
  auto out = attempt_from(pc + kInstructionLength * at, code.subspan(at));
  if (out && out->store != pc + kInstructionLength * (code.size() - 1)) out.reset();
  return out;
}

bool has_stored(std::uint32_t code, const GeneralRegisters& after) {
  return static_cast<std::uint32_t>(x_register(bits(code, 20, 16), after)) == 0;
}

}  // namespace ctxconf::sys::arch::aarch64
