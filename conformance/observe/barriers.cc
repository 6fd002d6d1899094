#include "conformance/observe/barriers.h"

#include <capstone/capstone.h>

#include <algorithm>
#include <array>
#include <string_view>

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
#endif

}  // namespace

struct BarrierDecoder::State {
  csh handle = 0;
  cs_insn* insn = nullptr;
};

BarrierDecoder::BarrierDecoder() : state_(std::make_unique<State>()) {
  if (cs_open(kArch, kMode, &state_->handle) != CS_ERR_OK) return;
  state_->insn = cs_malloc(state_->handle);
}

BarrierDecoder::~BarrierDecoder() {
  if (state_->insn != nullptr) cs_free(state_->insn, 1);
  if (state_->handle != 0) cs_close(&state_->handle);
}

std::optional<std::string> BarrierDecoder::barrier(std::span<const std::byte> code,
                                                   std::uint64_t pc) const {
  if (state_->insn == nullptr) return std::nullopt;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(code.data());
  std::size_t size = code.size();
  if (!cs_disasm_iter(state_->handle, &bytes, &size, &pc, state_->insn)) return std::nullopt;
  if (!is_barrier(*state_->insn)) return std::nullopt;
  std::string text = state_->insn->mnemonic;
  if (state_->insn->op_str[0] != '\0') text += std::string(" ") + state_->insn->op_str;
  return text;
}

}  // namespace ctxconf::conformance
