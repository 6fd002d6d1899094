// Which functions called the one that a stopped thread is in. Its registers and the top of its
// stack are copied while it stands; they are unwound by the call frame information of its files
// when nobody waits for that.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sys/code_place.h"
#include "sys/memory_reader.h"
#include "sys/result.h"

namespace ctxconf::sys {

struct StackCopy {
  // x86-64, by DWARF number: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15, rip.
  static constexpr std::size_t kStackPointer = 7;
  static constexpr std::size_t kProgramCounter = 16;
  std::array<std::uint64_t, 17> registers{};
  std::vector<std::byte> bytes;  // from the stack pointer on; less at its end

  std::uint64_t sp() const { return registers[kStackPointer]; }
  std::uint64_t pc() const { return registers[kProgramCounter]; }
};

// The registers of a thread that the caller traces and that is stopped. ENOTSUP: on another
// architecture, or of a 32-bit thread; ESRCH: neither of both.
Result<StackCopy> copy_registers(pid_t tid);
// Fills in at most `size` bytes.
void copy_stack(const MemoryReader& memory, std::size_t size, StackCopy& stack);

// A piece of a file that is mapped as code.
struct CodeMapping {
  const HeldFile* file = nullptr;
  std::string path;
  std::uint64_t begin = 0;
  std::uint64_t offset = 0;
};

inline constexpr std::size_t kMostCallers = 12;

struct Callers {
  // Of each stack: inside the call instructions that led there, the innermost first.
  std::vector<std::vector<std::uint64_t>> found;
  std::string problem;  // as of CodeLocations
};

// libdw bounds nothing that a file may ask of it, so it works in a process of its own.
Callers find_callers(std::span<const CodeMapping> code, std::span<const StackCopy> stacks,
                     const CodeLookUpLimits& limits = {});

}  // namespace ctxconf::sys
