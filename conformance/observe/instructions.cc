#include "conformance/observe/instructions.h"

#include <capstone/capstone.h>
#include <elf.h>

#include <array>

#include "conformance/observe/instruction_set.h"
#include "sys/code_stack.h"
#include "sys/memory_reader.h"
#include "sys/native_arch.h"

namespace ctxconf::conformance {
namespace {

const InstructionSet* instruction_set(std::uint16_t machine) {
  if (machine == EM_X86_64) return &kX86Instructions;
  return machine == EM_AARCH64 ? &kAarch64Instructions : nullptr;
}

}  // namespace

bool overlaps(sys::RemoteRange bytes, std::uint64_t from, std::uint64_t size) {
  const std::uint64_t begin = bytes.begin().raw();
  return from < begin ? begin - from < size : from - begin < bytes.size();
}

std::string text_of(const cs_insn& insn) {
  std::string text = insn.mnemonic;
  if (insn.op_str[0] != '\0') text += std::string(" ") + insn.op_str;
  return text;
}

struct InstructionDecoder::State {
  const InstructionSet* set = nullptr;
  csh handle = 0;
  cs_insn* insn = nullptr;

  DecodedInstruction decode(std::span<const std::byte> code, std::uint64_t pc) const {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(code.data());
    std::size_t size = code.size();
    std::uint64_t address = pc;
    const bool known = cs_disasm_iter(handle, &bytes, &size, &address, insn);
    return {handle, known ? insn : nullptr, code, pc};
  }
};

InstructionDecoder::InstructionDecoder() : InstructionDecoder(sys::kNativeMachine) {}

InstructionDecoder::InstructionDecoder(std::uint16_t machine) : state_(std::make_unique<State>()) {
  state_->set = instruction_set(machine);
  if (state_->set == nullptr) return;
  if (cs_open(state_->set->arch, state_->set->mode, &state_->handle) != CS_ERR_OK) return;
  // cs_malloc() allocates space for operands only if details are enabled at that moment.
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
  const auto decoded = state_->decode(code, pc);
  const InstructionSet& set = *state_->set;
  const bool loads_exclusively = set.loads_exclusively(decoded);
  return {.barrier = set.barrier(decoded),
          .may_store = loads_exclusively || set.may_store(decoded),
          .loads_exclusively = loads_exclusively,
          .stores_exclusively = set.stores_exclusively(decoded)};
}

bool InstructionDecoder::left_alone(std::span<const std::byte> code, std::uint64_t pc,
                                    std::span<const std::uint64_t> registers,
                                    sys::RemoteRange bytes) const {
  if (state_->insn == nullptr) return false;
  // Only this function needs operands, which cost time.
  if (cs_option(state_->handle, CS_OPT_DETAIL, CS_OPT_ON) != CS_ERR_OK) return false;
  const bool out = state_->set->left_alone(state_->decode(code, pc), registers, bytes);
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
