#include "sys/pid_namespace.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ctxconf::sys {

namespace {

bool write_file(const char* path, const char* text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto size = static_cast<ssize_t>(strlen(text));
  const bool ok = write(fd, text, static_cast<size_t>(size)) == size;
  const int err = errno;
  close(fd);
  errno = err;
  return ok;
}

bool keep_number(const char* path, unsigned number) {
  std::array<char, 48> line{};
  snprintf(line.data(), line.size(), "%u %u 1", number, number);
  return write_file(path, line.data());
}

// Keeps the capabilities after exec too, for a user who is not root.
bool keep_right() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> rights{};
  if (syscall(SYS_capget, &header, rights.data()) != 0) return false;
  rights[CAP_TO_INDEX(CAP_SYS_ADMIN)].inheritable |= CAP_TO_MASK(CAP_SYS_ADMIN);
  return syscall(SYS_capset, &header, rights.data()) == 0 &&
         prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0) == 0;
}

}  // namespace

int unshare_pid_namespace() {
  const unsigned user = geteuid();
  const unsigned group = getegid();
  if (unshare(CLONE_NEWPID) == 0) return 0;
  const bool ok = unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0 &&
                  write_file("/proc/self/setgroups", "deny") &&
                  keep_number("/proc/self/uid_map", user) &&
                  keep_number("/proc/self/gid_map", group) && keep_right();
  return ok ? 0 : errno;
}

}  // namespace ctxconf::sys
