// Registers of a stopped thread that the caller traces.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "sys/arch/native.h"
#include "sys/remote_addr.h"
#include "sys/result.h"

namespace ctxconf::sys::arch {

Result<CallRegisters> call_registers(pid_t tid);
// ENOTSUP, here and below: it is a 32-bit thread.
Result<native::Registers> registers(pid_t tid);
Result<> set_registers(pid_t tid, const native::Registers& registers);
// At the entry of a system call: the kernel does not make the call, does not restart it for a
// signal, and keeps the result. Also works for a 32-bit thread, except on aarch64.
Result<> answer_call(pid_t tid, std::int64_t result);
Result<RemoteAddr> thread_pointer(pid_t tid);

}  // namespace ctxconf::sys::arch
