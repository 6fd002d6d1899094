// What the instructions of one processor do to memory.
#pragma once

#include <capstone/capstone.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "sys/remote_addr.h"

namespace ctxconf::conformance {

// The first instruction of some bytes.
struct DecodedInstruction {
  csh handle;
  const cs_insn* insn;  // null: capstone does not know it
  std::span<const std::byte> code;
  std::uint64_t pc;
};

struct InstructionSet {
  cs_arch arch;
  cs_mode mode;
  // As in Instruction and InstructionDecoder; left_alone() needs capstone's operands.
  std::string (*barrier)(const DecodedInstruction& i);
  bool (*may_store)(const DecodedInstruction& i);
  bool (*loads_exclusively)(const DecodedInstruction& i);
  bool (*stores_exclusively)(const DecodedInstruction& i);
  bool (*left_alone)(const DecodedInstruction& i, std::span<const std::uint64_t> registers,
                     sys::RemoteRange bytes);
};

extern const InstructionSet kX86Instructions;
extern const InstructionSet kAarch64Instructions;

// The instruction in assembler syntax.
std::string text_of(const cs_insn& insn);

// Whether some of `size` bytes at `from` are among `bytes`.
bool overlaps(sys::RemoteRange bytes, std::uint64_t from, std::uint64_t size);

}  // namespace ctxconf::conformance
