// The processor that this program is compiled for.
#pragma once

#if defined(__x86_64__)
#include "sys/arch/x86_64.h"
namespace ctxconf::sys::arch {
namespace native = x86_64;
}
#elif defined(__aarch64__)
#include "sys/arch/aarch64.h"
namespace ctxconf::sys::arch {
namespace native = aarch64;
}
#else
#error "sys/arch does not support this processor"
#endif
