#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "conformance/observe/instruction_set.h"
#include "sys/aarch64_instruction.h"

// Uses the encodings of the Arm ARM, C4.1: capstone 4 does not know the atomics of ARMv8.1.
namespace ctxconf::conformance {
namespace aarch64 {
namespace {

using sys::arch::aarch64::bit;
using sys::arch::aarch64::bits;
using sys::arch::aarch64::is_compare_and_swap;
using sys::arch::aarch64::is_data_processing;
using sys::arch::aarch64::is_exclusive_or_ordered;
using sys::arch::aarch64::is_ordered_unscaled;
using sys::arch::aarch64::is_structure;
using sys::arch::aarch64::is_sys;
using sys::arch::aarch64::is_system;
using sys::arch::aarch64::kInstructionLength;
using sys::arch::aarch64::signed_bits;

constexpr std::size_t kProgramCounter = 32;  // of a sys::StackCopy
constexpr unsigned kNoRegister = 31;
constexpr std::uint64_t kWidestPair = 32;

std::optional<std::uint32_t> word_of(std::span<const std::byte> code) {
  std::uint32_t word = 0;
  if (code.size() < sizeof word) return std::nullopt;
  std::memcpy(&word, code.data(), sizeof word);  // code is little-endian, whatever the data is
  return word;
}

// The group of the encoding: op0, bits 28 to 25.
bool is_load_or_store(std::uint32_t w) { return (bits(w, 28, 25) & 0b0101U) == 0b0100U; }
bool is_branch_or_system(std::uint32_t w) { return bits(w, 28, 26) == 0b101; }
bool is_exception(std::uint32_t w) { return bits(w, 31, 24) == 0xd4; }
bool is_svc(std::uint32_t w) {
  return is_exception(w) && bits(w, 23, 21) == 0 && bits(w, 4, 0) == 1;
}
bool is_branch(std::uint32_t w) {
  return is_branch_or_system(w) && !is_exception(w) && !is_system(w);
}

// Loads and stores, by bits 29 to 27.
bool is_literal(std::uint32_t w) { return bits(w, 29, 27) == 0b011 && bits(w, 25, 24) == 0; }
bool is_pair(std::uint32_t w) { return bits(w, 29, 27) == 0b101; }
bool is_single(std::uint32_t w) { return bits(w, 29, 27) == 0b111; }
bool has_scaled_offset(std::uint32_t w) { return is_single(w) && bits(w, 25, 24) == 0b01; }
bool has_offset(std::uint32_t w) { return is_single(w) && bits(w, 25, 24) == 0 && !bit(w, 21); }
bool has_register_offset(std::uint32_t w) {
  return is_single(w) && bits(w, 25, 24) == 0 && bit(w, 21) && bits(w, 11, 10) == 0b10;
}
bool is_authenticated(std::uint32_t w) {
  return is_single(w) && bits(w, 25, 24) == 0 && bit(w, 21) && bit(w, 10);
}
bool is_atomic(std::uint32_t w) {
  return is_single(w) && !bit(w, 26) && bits(w, 25, 24) == 0 && bit(w, 21) && bits(w, 11, 10) == 0;
}
bool is_ldapr(std::uint32_t w) { return is_atomic(w) && bit(w, 15) && bits(w, 14, 12) == 0b100; }

// Whether this is known to be a load; a prefetch is one.
bool only_loads(std::uint32_t w) {
  if (is_structure(w)) return bit(w, 22);
  if (is_exclusive_or_ordered(w)) return bit(w, 22) && !is_compare_and_swap(w);
  if (is_ordered_unscaled(w)) return bits(w, 23, 22) != 0;
  if (is_literal(w)) return true;
  if (is_pair(w)) return bit(w, 22);
  if (has_scaled_offset(w) || has_offset(w) || has_register_offset(w)) {
    const bool vector = bit(w, 26);
    return vector ? bit(w, 22) : bits(w, 23, 22) != 0;
  }
  return is_authenticated(w) || is_ldapr(w);
}

bool stores(std::uint32_t w) {
  if (is_load_or_store(w)) return !only_loads(w);
  if (is_branch_or_system(w)) return is_exception(w) || is_sys(w);
  return !is_data_processing(w);
}

// The suffix in the name of an atomic.
std::string order_and_size(bool acquires, std::uint32_t w) {
  constexpr std::array<std::string_view, 4> kSizes = {"b", "h", "", ""};
  return std::string(acquires ? "al" : "l") + std::string(kSizes[bits(w, 31, 30)]);
}

std::string releasing_atomic(std::uint32_t w) {
  constexpr std::array<std::string_view, 8> kOperations = {"ldadd",  "ldclr",  "ldeor",  "ldset",
                                                           "ldsmax", "ldsmin", "ldumax", "ldumin"};
  if (is_compare_and_swap(w)) {
    if (!bit(w, 15)) return {};
    const bool acquires = bit(w, 22);
    return bit(w, 23) ? "cas" + order_and_size(acquires, w) : acquires ? "caspal" : "caspl";
  }
  if (!is_atomic(w) || !bit(w, 22)) return {};
  const bool swaps = bit(w, 15);
  if (swaps && bits(w, 14, 12) != 0) return {};
  return std::string(swaps ? "swp" : kOperations[bits(w, 14, 12)]) + order_and_size(bit(w, 23), w);
}

std::string barrier(const DecodedInstruction& i) {
  const auto w = word_of(i.code);
  if (!w) return {};
  if (auto atomic = releasing_atomic(*w); !atomic.empty()) return atomic;
  if (i.insn == nullptr) return {};
  const std::string_view mnemonic(i.insn->mnemonic);
  const bool is_one = mnemonic == "dmb" || mnemonic == "dsb" || mnemonic.starts_with("stl");
  return is_one ? text_of(*i.insn) : std::string();
}

bool may_store(const DecodedInstruction& i) {
  const auto w = word_of(i.code);
  return !w || stores(*w);
}

bool loads_exclusively(const DecodedInstruction& i) {
  const auto w = word_of(i.code);
  return w && sys::arch::aarch64::loads_exclusively(*w);
}

bool stores_exclusively(const DecodedInstruction& i) {
  const auto w = word_of(i.code);
  return w && sys::arch::aarch64::stores_exclusively(*w);
}

struct Stored {
  std::uint64_t from;
  std::uint64_t size;
};

// What the instruction stored, by the registers after it; nothing: they do not tell.
std::optional<Stored> stored_by(std::uint32_t w, std::span<const std::uint64_t> registers) {
  constexpr std::uint64_t kWidest = 16;
  const unsigned base_register = bits(w, 9, 5);
  const std::uint64_t base = registers[base_register];  // 31, the stack pointer, has the same index
  const bool vector = bit(w, 26);
  const unsigned scale = vector && bit(w, 23) ? 4 : bits(w, 31, 30);
  if (has_scaled_offset(w))
    return Stored{base + (std::uint64_t{bits(w, 21, 10)} << scale), kWidest};
  if (has_offset(w)) {
    constexpr std::uint32_t kPost = 0b01;
    constexpr std::uint32_t kPre = 0b11;
    const auto mode = bits(w, 11, 10);
    const auto offset = signed_bits(w, 20, 12);
    if (mode == kPost) return Stored{base - offset, kWidest};
    return Stored{mode == kPre ? base : base + offset, kWidest};
  }
  if (has_register_offset(w)) {
    const unsigned index_register = bits(w, 20, 16);
    std::uint64_t index = index_register == kNoRegister ? 0 : registers[index_register];
    const auto extend = bits(w, 15, 13);
    if (extend == 0b010) index = static_cast<std::uint32_t>(index);
    if (extend == 0b110) index = static_cast<std::uint64_t>(static_cast<std::int32_t>(index));
    return Stored{base + (bit(w, 12) ? index << scale : index), kWidest};
  }
  if (is_pair(w)) {
    constexpr std::uint32_t kPost = 0b01;
    constexpr std::uint32_t kPre = 0b11;
    // A pair with tags has another scale than other pairs.
    if (!vector && bits(w, 31, 30) == 0b01) return std::nullopt;
    const unsigned pair_scale = vector ? 2 + bits(w, 31, 30) : bit(w, 31) ? 3 : 2;
    const auto offset = signed_bits(w, 21, 15) << pair_scale;
    const auto mode = bits(w, 24, 23);
    if (mode == kPost) return Stored{base - offset, kWidestPair};
    return Stored{mode == kPre ? base : base + offset, kWidestPair};
  }
  // The base register may now hold what the others load, or whether they stored.
  const unsigned loaded = is_atomic(w) ? bits(w, 4, 0) : bits(w, 20, 16);
  const bool is_simple = is_exclusive_or_ordered(w) || is_atomic(w);
  if (!is_simple || (loaded != kNoRegister && loaded == base_register)) return std::nullopt;
  // casp loads two.
  if (is_compare_and_swap(w) && !bit(w, 23) && loaded + 1 == base_register) return std::nullopt;
  return Stored{base, kWidest};
}

bool left_alone(const DecodedInstruction& i, std::span<const std::uint64_t> registers,
                sys::RemoteRange bytes) {
  const auto w = word_of(i.code);
  if (!w || registers.size() <= kProgramCounter) return false;
  if (loads_exclusively(i)) return false;  // its store was stepped too
  // Between a system call and the next stop there may be one more instruction, or none.
  if (!is_branch(*w) && registers[kProgramCounter] != i.pc + kInstructionLength) return false;
  // The kernel stores only where it is asked to, and nobody asks it to store into a record.
  if (is_svc(*w) || !stores(*w)) return true;
  if (!is_load_or_store(*w)) return false;
  const auto stored = stored_by(*w, registers);
  return stored && !overlaps(bytes, stored->from, stored->size);
}

}  // namespace
}  // namespace aarch64

const InstructionSet kAarch64Instructions = {.arch = CS_ARCH_ARM64,
                                             .mode = CS_MODE_LITTLE_ENDIAN,
                                             .barrier = aarch64::barrier,
                                             .may_store = aarch64::may_store,
                                             .loads_exclusively = aarch64::loads_exclusively,
                                             .stores_exclusively = aarch64::stores_exclusively,
                                             .left_alone = aarch64::left_alone};

}  // namespace ctxconf::conformance
