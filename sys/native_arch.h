// The architecture that this program was compiled for, as seccomp and ptrace name it.
#pragma once

#include <linux/audit.h>

#include <cstdint>

namespace ctxconf::sys {

#if defined(__x86_64__)
inline constexpr std::uint32_t kNativeArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
inline constexpr std::uint32_t kNativeArch = AUDIT_ARCH_AARCH64;
#endif

}  // namespace ctxconf::sys
