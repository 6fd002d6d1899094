// The living threads of a recording.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>

#include "sys/remote_addr.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

struct WatchedThread {
  pid_t process = 0;
  std::optional<sys::RemoteAddr> pointer;    // its TLS, when known
  std::optional<sys::WatchedWords> watches;  // the words in its debug registers
};
using WatchedThreads = std::map<pid_t, WatchedThread>;

}  // namespace ctxconf::conformance
