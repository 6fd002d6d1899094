// The system calls that a publisher makes; each returns -errno on failure. Publisher is a template
// over this class, so that tests can make every call fail.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace ctxconf::writer {

class LinuxKernel {
 public:
  std::size_t page_size();

  // The raw call: libc may have no wrapper.
  long memfd_create(const char* name, unsigned flags);

  // An ftruncate that cannot kill the process: it consumes the SIGXFSZ that it causes.
  long resize(int fd, std::size_t size);

  // Maps the memfd, or anonymous memory if `fd` is -1: private, readable and writable.
  long map(std::size_t size, int fd, void** at);
  long unmap(void* at, std::size_t size);
  long close(int fd);
  long dont_fork(void* at, std::size_t size);
  long wipe_on_fork(void* at, std::size_t size);
  long name(void* at, std::size_t size, const char* name);

  // CLOCK_BOOTTIME.
  long boot_time(std::uint64_t* ns);

  pid_t process_id();
  long at_fork(void (*in_child)());
  void yield();
};

}  // namespace ctxconf::writer
