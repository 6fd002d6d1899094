// The living threads of a recording.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>

#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

// A system call in which the kernel may store to a watched header.
struct StoringCall {
  const char* name = "";
  sys::RemoteAddr buffer;
  std::uint64_t size = 0;
};

struct WatchedThread {
  pid_t process = 0;
  std::optional<sys::RemoteAddr> pointer;    // its TLS, when known
  std::optional<sys::WatchedWords> watches;  // the words in its debug registers
  std::optional<StoringCall> call;           // that it is making
};
using WatchedThreads = std::map<pid_t, WatchedThread>;

}  // namespace ctxconf::conformance
