#include "conformance/observe/instructions.h"

#include <capstone/capstone.h>

#include <algorithm>
#include <array>
#include <string_view>

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
#endif

}  // namespace

struct InstructionDecoder::State {
  csh handle = 0;
  cs_insn* insn = nullptr;
};

InstructionDecoder::InstructionDecoder() : state_(std::make_unique<State>()) {
  if (cs_open(kArch, kMode, &state_->handle) != CS_ERR_OK) return;
  state_->insn = cs_malloc(state_->handle);
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
