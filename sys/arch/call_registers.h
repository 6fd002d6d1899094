// The program counter of a thread and the registers of its system call, for every processor.
#pragma once

#include <array>
#include <cstdint>

namespace ctxconf::sys::arch {

struct CallRegisters {
  std::uint32_t audit_arch = 0;  // AUDIT_ARCH_* of <linux/audit.h>
  std::uint64_t nr = 0;
  std::array<std::uint64_t, 6> args{};
  std::int64_t result = 0;
  std::uint64_t stack = 0;
  bool compat = false;  // 32-bit code
  std::uint64_t pc = 0;
};

}  // namespace ctxconf::sys::arch
