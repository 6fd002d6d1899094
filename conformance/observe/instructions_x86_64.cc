#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "conformance/observe/instruction_set.h"

namespace ctxconf::conformance {
namespace x86_64 {
namespace {

bool is_barrier(const cs_insn& insn) {
  const std::string_view mnemonic(insn.mnemonic);
  const std::string_view operands(insn.op_str);
  // xchg with memory locks without the prefix.
  return mnemonic == "mfence" || mnemonic == "sfence" || mnemonic.starts_with("lock ") ||
         (mnemonic == "xchg" && operands.find('[') != std::string_view::npos);
}

// Instructions that store without an operand that says so; Intel SDM, volume 2.
bool stores_by_itself(std::string_view mnemonic) {
  constexpr std::array<std::string_view, 9> kStoring = {
      "push", "call", "enter", "int", "sys", "maskmov", "vmaskmov", "clzero", "movdir"};
  return std::ranges::any_of(kStoring,
                             [&](std::string_view name) { return mnemonic.starts_with(name); });
}

bool may_store(const cs_insn& insn) {
  constexpr std::string_view kBracket = "[";
  const std::string_view mnemonic(insn.mnemonic);
  const std::string_view operands(insn.op_str);
  if (operands.find(kBracket) == std::string_view::npos) return stores_by_itself(mnemonic);
  if (mnemonic == "cmp" || mnemonic == "test" || mnemonic == "nop") return false;
  // The destination comes first, except for instructions that exchange.
  const auto first = operands.substr(0, operands.find(','));
  return first.find(kBracket) != std::string_view::npos || mnemonic == "xchg" ||
         mnemonic == "xadd" || stores_by_itself(mnemonic);
}

// Its operands do not tell whether or where it stores.
bool is_beyond_its_operands(std::string_view mnemonic) {
  constexpr std::array<std::string_view, 5> kParts = {"save", "stenv", "scatter", "enqcmd", "rep"};
  if (mnemonic == "push" || mnemonic == "call") return false;
  return stores_by_itself(mnemonic) || std::ranges::any_of(kParts, [&](std::string_view part) {
           return mnemonic.find(part) != std::string_view::npos;
         });
}

// Reads from a sys::StackCopy; nothing: it does not have all of this register.
std::optional<std::uint64_t> value_of(x86_reg reg, std::span<const std::uint64_t> registers) {
  constexpr std::array kOrder = {X86_REG_RAX, X86_REG_RDX, X86_REG_RCX, X86_REG_RBX, X86_REG_RSI,
                                 X86_REG_RDI, X86_REG_RBP, X86_REG_RSP, X86_REG_R8,  X86_REG_R9,
                                 X86_REG_R10, X86_REG_R11, X86_REG_R12, X86_REG_R13, X86_REG_R14,
                                 X86_REG_R15, X86_REG_RIP};
  if (reg == X86_REG_INVALID) return 0;
  const auto at = static_cast<std::size_t>(std::ranges::find(kOrder, reg) - kOrder.begin());
  return at < registers.size() ? std::optional(registers[at]) : std::nullopt;
}

// An operand of an instruction that does not change the registers of its addresses.
bool leaves_alone(const cs_x86_op& operand, std::span<const std::uint64_t> registers,
                  sys::RemoteRange bytes) {
  constexpr std::uint64_t kWidest = 64;
  if (operand.type != X86_OP_MEM) return true;
  const x86_op_mem& mem = operand.mem;
  const auto base = value_of(mem.base, registers);
  const auto index = value_of(mem.index, registers);
  if (mem.segment != X86_REG_INVALID || !base || !index) return false;
  const std::uint64_t from =
      *base + *index * static_cast<std::uint64_t>(mem.scale) + static_cast<std::uint64_t>(mem.disp);
  return !overlaps(bytes, from, kWidest);
}

bool left_alone_by(csh handle, const cs_insn& insn, std::span<const std::uint64_t> registers,
                   sys::RemoteRange bytes) {
  constexpr std::uint64_t kWord = sizeof(std::uint64_t);
  const std::string_view mnemonic(insn.mnemonic);
  const auto after = value_of(X86_REG_RIP, registers);
  const bool jumps = cs_insn_group(handle, &insn, X86_GRP_JUMP) ||
                     cs_insn_group(handle, &insn, X86_GRP_CALL) ||
                     cs_insn_group(handle, &insn, X86_GRP_RET);
  // Between a system call and the next stop there may be one more instruction, or none.
  if (!after || (!jumps && *after != insn.address + insn.size)) return false;
  // The kernel stores only where it is asked to, and nobody asks it to store into a record.
  if (mnemonic == "syscall" || !may_store(insn)) return true;
  if (is_beyond_its_operands(mnemonic)) return false;
  const bool pushes = mnemonic == "push" || mnemonic == "call";
  cs_regs read{};
  cs_regs written{};
  std::uint8_t reads = 0;
  std::uint8_t writes = 0;
  if (cs_regs_access(handle, &insn, read, &reads, written, &writes) != CS_ERR_OK) return false;
  for (const std::uint16_t reg : std::span(written).first(writes)) {
    const bool is_usual = reg == X86_REG_EFLAGS || reg == X86_REG_RIP || reg == X86_REG_EIP;
    const bool is_stack = pushes && (reg == X86_REG_RSP || reg == X86_REG_ESP);
    if (!is_usual && !is_stack) return false;
  }
  if (pushes && overlaps(bytes, value_of(X86_REG_RSP, registers).value_or(0), kWord)) return false;
  const cs_x86& x86 = insn.detail->x86;
  return std::ranges::all_of(std::span(x86.operands).first(x86.op_count), [&](const cs_x86_op& o) {
    // These store only to the stack.
    return pushes || leaves_alone(o, registers, bytes);
  });
}

}  // namespace
}  // namespace x86_64

const InstructionSet kX86Instructions = {
    .arch = CS_ARCH_X86,
    .mode = CS_MODE_64,
    .barrier =
        [](const DecodedInstruction& i) {
          return i.insn != nullptr && x86_64::is_barrier(*i.insn) ? text_of(*i.insn)
                                                                  : std::string();
        },
    .may_store =
        [](const DecodedInstruction& i) { return i.insn == nullptr || x86_64::may_store(*i.insn); },
    .loads_exclusively = [](const DecodedInstruction&) { return false; },
    .stores_exclusively = [](const DecodedInstruction&) { return false; },
    .left_alone =
        [](const DecodedInstruction& i, std::span<const std::uint64_t> registers,
           sys::RemoteRange bytes) {
          return i.insn != nullptr && x86_64::left_alone_by(i.handle, *i.insn, registers, bytes);
        }};

}  // namespace ctxconf::conformance
