// What a SIGTRAP tells about a single-step, for every processor.
#pragma once

#include <sys/types.h>

namespace ctxconf::sys::arch {

struct TrapCause {  // of siginfo_t
  int code = 0;
  pid_t sender = 0;
  uid_t user = 0;
};

enum class StepTrap {
  kNone,       // the signal has another cause
  kStep,       // an instruction, or the way into a signal handler
  kEndOfCall,  // a system call; the next trap may be a kEmptyStep
  kEmptyStep,  // nothing was executed
};

}  // namespace ctxconf::sys::arch
