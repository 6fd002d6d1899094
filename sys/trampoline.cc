// The program between Boost.Process and a traced program: it waits until it is traced, prepares
// itself as told, and executes the program. It is linked statically so that LD_PRELOAD and the like
// affect only the program.
#include "sys/trampoline.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "sys/pid_namespace.h"

namespace {

using ctxconf::sys::TrampolineFailure;
using ctxconf::sys::TrampolineSettings;
using ctxconf::sys::TrampolineStep;

[[noreturn]] void give_up(int channel, TrampolineStep step) {
  const TrampolineFailure failure{step, errno};
  const char* bytes = reinterpret_cast<const char*>(&failure);
  for (size_t done = 0; done < sizeof failure;) {
    const ssize_t n = write(channel, bytes + done, sizeof failure - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  _exit(127);
}

bool read_all(int channel, void* out, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = read(channel, static_cast<char*>(out) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

bool limit_file_size(uint64_t limit) {
  struct rlimit current{};
  if (getrlimit(RLIMIT_FSIZE, &current) != 0) return false;
  if (current.rlim_max != RLIM_INFINITY && current.rlim_max < limit) limit = current.rlim_max;
  const struct rlimit wanted{limit, limit};
  return setrlimit(RLIMIT_FSIZE, &wanted) == 0;
}

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

bool enter_time_namespace(int64_t boottime_offset_s) {
  if (unshare(CLONE_NEWTIME) != 0) return false;
  const int file = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  char line[64];
  const int size =
      snprintf(line, sizeof line, "boottime %lld 0\n", static_cast<long long>(boottime_offset_s));
  const bool done = write(file, line, static_cast<size_t>(size)) == size;
  close(file);
  return done;
}

bool use_dev_null() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return false;
  for (int fd = 0; fd < 3; ++fd) {
    // dup2 onto itself would keep close-on-exec set.
    if (fd == null ? fcntl(fd, F_SETFD, 0) != 0 : dup2(null, fd) < 0) return false;
  }
  return true;
}

bool install(const sock_fprog& program) {
  // Before Linux 5.16 a filter also turns on a mitigation that slows the program down, unless the
  // program opts out.
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0)
    return true;
  return errno == EINVAL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

// Returns in process 1.
bool become_process_1() {
  const int err = ctxconf::sys::unshare_pid_namespace();
  const pid_t pid = err == 0 ? fork() : -1;
  if (pid > 0) _exit(0);
  if (err != 0) errno = err;
  return pid == 0;
}

}  // namespace

int main(int argc, char** argv) {
  while (argc == 2 && strcmp(argv[1], ctxconf::sys::kIdleTrampoline) == 0) pause();
  if (argc < 5) return 2;
  const int channel = atoi(argv[1]);
  if (fcntl(channel, F_SETFD, FD_CLOEXEC) != 0) return 2;
  if (strcmp(argv[2], ctxconf::sys::kNewPidNamespace) == 0 && !become_process_1()) {
    give_up(channel, TrampolineStep::kNamespace);
  }
  if (write(channel, &ctxconf::sys::kTrampolineRuns, 1) != 1) return 2;
  static TrampolineSettings settings;
  // If this fails, the tracer is gone.
  if (!read_all(channel, &settings, sizeof settings)) _exit(127);

  if (settings.filter_length > settings.filter.size()) {
    errno = E2BIG;
    give_up(channel, TrampolineStep::kSettings);
  }
  if (settings.file_size_limit != UINT64_MAX && !limit_file_size(settings.file_size_limit))
    give_up(channel, TrampolineStep::kLimit);
  if (settings.boottime_offset_s != 0 && !enter_time_namespace(settings.boottime_offset_s))
    give_up(channel, TrampolineStep::kTime);
  if (settings.without_capability >= 0 &&
      prctl(PR_CAPBSET_DROP, settings.without_capability, 0, 0, 0) != 0) {
    give_up(channel, TrampolineStep::kCapability);
  }
  if (settings.discard_output != 0 && !use_dev_null()) give_up(channel, TrampolineStep::kOutput);
  if (settings.filter_length != 0) {
    const sock_fprog program{static_cast<unsigned short>(settings.filter_length),
                             settings.filter.data()};
    bool installed = install(program);
    if (!installed && errno == EACCES) {
      installed = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && install(program);
    }
    if (!installed) give_up(channel, TrampolineStep::kFilter);
  }
  execve(argv[3], argv + 4, environ);
  give_up(channel, TrampolineStep::kExec);
}
