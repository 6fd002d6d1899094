// The processor that this program was compiled for, for code that only needs its names.
#pragma once

#include <cstdint>
#include <optional>

namespace ctxconf::sys {

extern const std::uint16_t kNativeMachine;  // EM_* of <elf.h>

// A system call that sets the thread pointer to its second argument.
struct ThreadPointerCall {
  std::uint64_t nr;
  std::uint64_t code;  // its first argument
};
// Nothing: the processor needs no call for that.
std::optional<ThreadPointerCall> thread_pointer_call();

}  // namespace ctxconf::sys
