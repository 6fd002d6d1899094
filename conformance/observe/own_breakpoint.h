// For programs that tests record.
#pragma once

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

// Makes one debug register of this thread its own: it counts the stores to `watched`, and the
// descriptor reads the count. Negative: not allowed.
inline int own_breakpoint(volatile std::uint64_t& watched) {
  perf_event_attr attr{};
  attr.type = PERF_TYPE_BREAKPOINT;
  attr.size = sizeof attr;
  attr.bp_type = HW_BREAKPOINT_W;
  attr.bp_addr = reinterpret_cast<std::uint64_t>(&watched);
  attr.bp_len = sizeof watched;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  return static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}
