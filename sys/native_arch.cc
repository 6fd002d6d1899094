#include "sys/native_arch.h"

#include "sys/arch/native.h"

namespace ctxconf::sys {

const std::uint16_t kNativeMachine = arch::native::kMachine;

std::optional<ThreadPointerCall> thread_pointer_call() {
  const auto& call = arch::native::kSyscalls.set_thread_pointer;
  if (!call) return std::nullopt;
  return ThreadPointerCall{call->nr, call->code};
}

}  // namespace ctxconf::sys
