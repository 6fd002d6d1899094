// What an instruction does to memory, according to its bytes: whether it may store, and whether it
// orders the stores before it with those after it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "sys/aarch64_instruction.h"
#include "sys/remote_addr.h"

namespace ctxconf::conformance {

struct Instruction {
  // Its text, if it is a barrier: x86-64: mfence, sfence, a locked instruction, xchg with memory;
  // aarch64: dmb, dsb, a store-release or an atomic with release.
  std::string barrier;
  // False only for instructions that are known not to store.
  bool may_store = true;
  // A thread is stepped from a load-exclusive over its store-exclusive at once (sys::Stepped).
  // So the former may store.
  bool loads_exclusively = false;
  bool stores_exclusively = false;
};

class InstructionDecoder {
 public:
  InstructionDecoder();                                // for the machine that this was built for
  explicit InstructionDecoder(std::uint16_t machine);  // EM_X86_64 or EM_AARCH64
  ~InstructionDecoder();
  InstructionDecoder(const InstructionDecoder&) = delete;
  InstructionDecoder& operator=(const InstructionDecoder&) = delete;

  static constexpr std::size_t kLongest = 16;  // bytes of an instruction
  // Bytes of a load-exclusive, and of all instructions from it to its store-exclusive.
  static constexpr std::size_t kExclusive = sys::arch::aarch64::kInstructionLength;
  static constexpr std::size_t kLongestAttemptBytes =
      sys::arch::aarch64::kLongestAttempt * kExclusive;

  // The instruction at the start of `code`.
  Instruction decode(std::span<const std::byte> code, std::uint64_t pc) const;
  // Whether exactly this instruction was executed and stored to none of these bytes. False also if
  // that is not certain. `registers`: those after it, as in a sys::StackCopy.
  bool left_alone(std::span<const std::byte> code, std::uint64_t pc,
                  std::span<const std::uint64_t> registers, sys::RemoteRange bytes) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The instructions of one image, each read from memory once.
class KnownInstructions {
 public:
  // The instruction at `pc` of a stopped thread. The reference is valid until the next call.
  const Instruction& at(pid_t tid, std::uint64_t pc);
  // The thread has just executed the instruction at `pc`: see InstructionDecoder::left_alone().
  bool left_alone(pid_t tid, std::uint64_t pc, sys::RemoteRange bytes) const;

 private:
  InstructionDecoder decoder_;
  std::unordered_map<std::uint64_t, Instruction> known_;  // by address
  Instruction unknown_;
};

}  // namespace ctxconf::conformance
