#include "writer_ref/linux_kernel.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41  // Linux 5.17
#define PR_SET_VMA_ANON_NAME 0
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18  // Linux 4.14
#endif

namespace ctxconf::writer {
namespace {

long result_of(long r) { return r < 0 ? -errno : r; }

}  // namespace

std::size_t LinuxKernel::page_size() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

long LinuxKernel::memfd_create(const char* name, unsigned flags) {
  return result_of(syscall(SYS_memfd_create, name, flags));
}

long LinuxKernel::resize(int fd, std::size_t size) {
  // Beyond RLIMIT_FSIZE the kernel sends SIGXFSZ to this thread and returns EFBIG.
  sigset_t file_size;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&file_size);
  sigaddset(&file_size, SIGXFSZ);
  if (const int err = pthread_sigmask(SIG_BLOCK, &file_size, &before); err != 0) return -err;
  sigemptyset(&pending);
  sigpending(&pending);
  const bool others = sigismember(&pending, SIGXFSZ) == 1;

  const long r = result_of(ftruncate(fd, static_cast<off_t>(size)));

  if (r == -EFBIG && !others) {
    const timespec at_once{};
    while (sigtimedwait(&file_size, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return r;
}

long LinuxKernel::map(std::size_t size, int fd, void** at) {
  const int flags = MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0);
  void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (mapped == MAP_FAILED) return -errno;
  *at = mapped;
  return 0;
}

long LinuxKernel::unmap(void* at, std::size_t size) { return result_of(munmap(at, size)); }

// libc's close is a cancellation point; a thread cancelled here would keep the lock.
long LinuxKernel::close(int fd) { return result_of(syscall(SYS_close, fd)); }

long LinuxKernel::dont_fork(void* at, std::size_t size) {
  return result_of(madvise(at, size, MADV_DONTFORK));
}

long LinuxKernel::wipe_on_fork(void* at, std::size_t size) {
  return result_of(madvise(at, size, MADV_WIPEONFORK));
}

long LinuxKernel::name(void* at, std::size_t size, const char* name) {
  return result_of(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, size, name));
}

long LinuxKernel::boot_time(std::uint64_t* ns) {
  timespec now;
  const long r = result_of(clock_gettime(CLOCK_BOOTTIME, &now));
  if (r == 0) {
    *ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
          static_cast<std::uint64_t>(now.tv_nsec);
  }
  return r;
}

// Does not call libc's getpid, which before glibc 2.25 cached its answer across a bare clone.
pid_t LinuxKernel::process_id() { return static_cast<pid_t>(syscall(SYS_getpid)); }

long LinuxKernel::at_fork(void (*in_child)()) {
  return -pthread_atfork(nullptr, nullptr, in_child);
}

void LinuxKernel::yield() { sched_yield(); }

}  // namespace ctxconf::writer
