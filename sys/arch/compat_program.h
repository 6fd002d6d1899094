// A 32-bit program that only exits.
#pragma once

#include <array>
#include <cstdint>

namespace ctxconf::sys::arch {

struct CompatProgram {
  std::uint16_t machine;  // EM_*
  std::uint32_t flags;    // e_flags
  std::array<unsigned char, 12> code;
};

}  // namespace ctxconf::sys::arch
