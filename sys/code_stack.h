// Finds the functions that called the one in which a thread is stopped. Copies its registers and
// the top of its stack while it is stopped; unwinds them later, with the call frame information of
// its files, when no thread waits for that.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sys/arch/native.h"
#include "sys/code_location.h"
#include "sys/memory_reader.h"
#include "sys/result.h"

namespace ctxconf::sys {

struct StackCopy {
  static constexpr std::size_t kStackPointer = arch::native::kUnwindStackPointer;
  static constexpr std::size_t kProgramCounter = arch::native::kUnwindProgramCounter;
  arch::native::UnwindRegisters registers{};  // by DWARF number
  std::vector<std::byte> bytes;  // from the stack pointer on; shorter at the end of the stack

  std::uint64_t sp() const { return registers[kStackPointer]; }
  std::uint64_t pc() const { return registers[kProgramCounter]; }
};

// The registers of a stopped thread that the caller traces. ENOTSUP: a 32-bit thread. ESRCH: not
// traced or not stopped.
Result<StackCopy> copy_registers(pid_t tid);
// Fills in at most `size` bytes.
void copy_stack(const MemoryReader& memory, std::size_t size, StackCopy& stack);

// A part of a file that is mapped as code.
struct CodeMapping {
  const HeldFile* file = nullptr;
  std::string path;
  std::uint64_t begin = 0;
  std::uint64_t offset = 0;
};

inline constexpr std::size_t kMostCallers = 12;

struct Callers {
  // For each stack: addresses inside the call instructions that led there, the innermost first.
  std::vector<std::vector<std::uint64_t>> found;
  std::string problem;  // as in CodeLocations
};

// libdw does not bound what a file may make it do, so it runs in a process of its own.
Callers find_callers(std::span<const CodeMapping> code, std::span<const StackCopy> stacks,
                     const CodeLookUpLimits& limits = {});

}  // namespace ctxconf::sys
