#include "conformance/observe/instructions.h"

#include <capstone/capstone.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "sys/code_stack.h"
#include "sys/memory_reader.h"

namespace ctxconf::conformance {
namespace {

#if defined(__x86_64__)
constexpr cs_arch kArch = CS_ARCH_X86;
constexpr cs_mode kMode = CS_MODE_64;

bool is_barrier(const cs_insn& insn) {
  const std::string_view mnemonic(insn.mnemonic);
  const std::string_view operands(insn.op_str);
  // xchg with memory locks without the prefix.
  return mnemonic == "mfence" || mnemonic == "sfence" || mnemonic.starts_with("lock ") ||
         (mnemonic == "xchg" && operands.find('[') != std::string_view::npos);
}

// Those that store where no operand says so; by Intel's manual, volume 2.
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
  // What is stored to stands first, but of those that exchange.
  const auto first = operands.substr(0, operands.find(','));
  return first.find(kBracket) != std::string_view::npos || mnemonic == "xchg" ||
         mnemonic == "xadd" || stores_by_itself(mnemonic);
}

// What it stores, or where, its operands do not tell.
bool is_beyond_its_operands(std::string_view mnemonic) {
  constexpr std::array<std::string_view, 5> kParts = {"save", "stenv", "scatter", "enqcmd", "rep"};
  if (mnemonic == "push" || mnemonic == "call") return false;
  return stores_by_itself(mnemonic) || std::ranges::any_of(kParts, [&](std::string_view part) {
           return mnemonic.find(part) != std::string_view::npos;
         });
}

// Of a sys::StackCopy; nothing: it has not all of this register.
std::optional<std::uint64_t> value_of(x86_reg reg, std::span<const std::uint64_t> registers) {
  constexpr std::array kOrder = {X86_REG_RAX, X86_REG_RDX, X86_REG_RCX, X86_REG_RBX, X86_REG_RSI,
                                 X86_REG_RDI, X86_REG_RBP, X86_REG_RSP, X86_REG_R8,  X86_REG_R9,
                                 X86_REG_R10, X86_REG_R11, X86_REG_R12, X86_REG_R13, X86_REG_R14,
                                 X86_REG_R15, X86_REG_RIP};
  if (reg == X86_REG_INVALID) return 0;
  const auto at = static_cast<std::size_t>(std::ranges::find(kOrder, reg) - kOrder.begin());
  return at < registers.size() ? std::optional(registers[at]) : std::nullopt;
}

bool overlaps(sys::RemoteRange bytes, std::uint64_t from, std::uint64_t size) {
  const std::uint64_t begin = bytes.begin().raw();
  return from < begin ? begin - from < size : from - begin < bytes.size();
}

// An operand of an instruction that leaves the registers of addresses as they are.
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
  const auto behind = value_of(X86_REG_RIP, registers);
  const bool jumps = cs_insn_group(handle, &insn, X86_GRP_JUMP) ||
                     cs_insn_group(handle, &insn, X86_GRP_CALL) ||
                     cs_insn_group(handle, &insn, X86_GRP_RET);
  // Between a system call and the next stop there may be one more, or none.
  if (!behind || (!jumps && *behind != insn.address + insn.size)) return false;
  // The kernel stores where it is asked to, and nobody asks it to store into a record.
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
    // What these store is on the stack.
    return pushes || leaves_alone(o, registers, bytes);
  });
}

#else
constexpr cs_arch kArch = CS_ARCH_ARM64;
constexpr cs_mode kMode = CS_MODE_LITTLE_ENDIAN;

// An atomic of ARMv8.1 whose name says release: swpl, casal, ldaddalb.
bool is_atomic_release(std::string_view mnemonic) {
  constexpr std::array<std::string_view, 10> kAtomics = {
      "swp", "cas", "ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin"};
  const auto atomic = std::ranges::find_if(
      kAtomics, [&](std::string_view name) { return mnemonic.starts_with(name); });
  if (atomic == kAtomics.end()) return false;
  const auto suffix = mnemonic.substr(atomic->size());
  return suffix.starts_with("l") || suffix.starts_with("al");
}

bool is_barrier(const cs_insn& insn) {
  const std::string_view mnemonic(insn.mnemonic);
  return mnemonic == "dmb" || mnemonic == "dsb" || mnemonic.starts_with("stl") ||
         is_atomic_release(mnemonic);
}

bool may_store(const cs_insn&) { return true; }

bool left_alone_by(csh, const cs_insn&, std::span<const std::uint64_t>, sys::RemoteRange) {
  return false;
}
#endif

}  // namespace

struct InstructionDecoder::State {
  csh handle = 0;
  cs_insn* insn = nullptr;
};

InstructionDecoder::InstructionDecoder() : state_(std::make_unique<State>()) {
  if (cs_open(kArch, kMode, &state_->handle) != CS_ERR_OK) return;
  // cs_malloc() makes room for operands where they are wanted at that moment.
  cs_option(state_->handle, CS_OPT_DETAIL, CS_OPT_ON);
  state_->insn = cs_malloc(state_->handle);
  cs_option(state_->handle, CS_OPT_DETAIL, CS_OPT_OFF);
}

InstructionDecoder::~InstructionDecoder() {
  if (state_->insn != nullptr) cs_free(state_->insn, 1);
  if (state_->handle != 0) cs_close(&state_->handle);
}

Instruction InstructionDecoder::decode(std::span<const std::byte> code, std::uint64_t pc) const {
  if (state_->insn == nullptr) return {};
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(code.data());
  std::size_t size = code.size();
  if (!cs_disasm_iter(state_->handle, &bytes, &size, &pc, state_->insn)) return {};
  Instruction out{.barrier = {}, .may_store = may_store(*state_->insn)};
  if (!is_barrier(*state_->insn)) return out;
  out.barrier = state_->insn->mnemonic;
  if (state_->insn->op_str[0] != '\0') out.barrier += std::string(" ") + state_->insn->op_str;
  return out;
}

bool InstructionDecoder::left_alone(std::span<const std::byte> code, std::uint64_t pc,
                                    std::span<const std::uint64_t> registers,
                                    sys::RemoteRange bytes) const {
  if (state_->insn == nullptr) return false;
  // Operands cost time that is spent nowhere else.
  if (cs_option(state_->handle, CS_OPT_DETAIL, CS_OPT_ON) != CS_ERR_OK) return false;
  const auto* at = reinterpret_cast<const std::uint8_t*>(code.data());
  std::size_t size = code.size();
  const bool out = cs_disasm_iter(state_->handle, &at, &size, &pc, state_->insn) &&
                   left_alone_by(state_->handle, *state_->insn, registers, bytes);
  cs_option(state_->handle, CS_OPT_DETAIL, CS_OPT_OFF);
  return out;
}

bool KnownInstructions::left_alone(pid_t tid, std::uint64_t pc, sys::RemoteRange bytes) const {
  std::array<std::byte, InstructionDecoder::kLongest> code{};
  const auto got = sys::ProcessMemory(tid).read_some(sys::RemoteAddr(pc), code);
  const auto stack = sys::copy_registers(tid);
  if (!got || !stack) return false;
  return decoder_.left_alone(std::span(code).first(*got), pc, stack->registers, bytes);
}

const Instruction& KnownInstructions::at(pid_t tid, std::uint64_t pc) {
  constexpr std::size_t kMost = std::size_t{1} << 16U;
  const auto known = known_.find(pc);
  if (known != known_.end()) return known->second;
  if (known_.size() >= kMost) return unknown_;
  std::array<std::byte, InstructionDecoder::kLongest> code{};
  const auto got = sys::ProcessMemory(tid).read_some(sys::RemoteAddr(pc), code);
  return known_.emplace(pc, decoder_.decode(std::span(code).first(got.value_or(0)), pc))
      .first->second;
}

}  // namespace ctxconf::conformance
