#include "conformance/command/output_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "sys/ending_signals.h"

namespace ctxconf::conformance {
namespace {

constexpr int kNewFile = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

}  // namespace

sys::Result<OutputFolder> OutputFolder::open(const std::string& path) {
  sys::Fd directory(::open(path.c_str(), kDirectory));
  if (!directory.is_open()) return sys::fail("open", errno, path);
  return OutputFolder(std::move(directory), path.ends_with('/') ? path : path + "/");
}

sys::Result<OutputFolder> OutputFolder::make(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return sys::fail("make", error.value(), path);
  return open(path);
}

sys::Result<OutputFolder> OutputFolder::make_folder(const std::string& name) const {
  if (mkdirat(directory_.get(), name.c_str(), 0777) != 0 && errno != EEXIST) {
    return sys::fail("make", errno, prefix_ + name);
  }
  sys::Fd directory(openat(directory_.get(), name.c_str(), kDirectory | O_NOFOLLOW));
  if (!directory.is_open()) return sys::fail("open", errno, prefix_ + name);
  return OutputFolder(std::move(directory), prefix_ + name + "/");
}

bool OutputFolder::is_writable() const {
  return faccessat(directory_.get(), ".", W_OK | X_OK, 0) == 0;
}

bool OutputFolder::has(const std::string& name) const {
  struct stat status{};
  return fstatat(directory_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

bool OutputFolder::is_folder(const std::string& name) const {
  struct stat status{};
  return fstatat(directory_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(status.st_mode);
}

std::vector<std::string> OutputFolder::regular_files() const {
  std::vector<std::string> out;
  const int fd = openat(directory_.get(), ".", kDirectory);
  if (fd < 0) return out;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(fdopendir(fd), closedir);
  if (!list) {
    close(fd);
    return out;
  }
  while (const dirent* entry = readdir(list.get())) {
    struct stat status{};
    if (fstatat(fd, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode)) {
      out.emplace_back(entry->d_name);
    }
  }
  return out;
}

sys::Result<> OutputFolder::write(const std::string& name, std::string_view text,
                                  std::optional<mode_t> mode) const {
  const sys::EndingSignals held_back;
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != sizeof random) {
    return sys::fail("write", errno, prefix_ + name);
  }
  const std::string temporary = fmt::format(".{}.{:016x}.tmp", name, random);
  const int fd = openat(directory_.get(), temporary.c_str(), kNewFile, 0666);
  if (fd < 0) return sys::fail("write", errno, prefix_ + name);
  int err = sys::write_all(fd, text);
  if (err == 0 && mode && fchmod(fd, *mode) != 0) err = errno;
  // A network file system may report only now that it is full.
  if (close(fd) != 0 && err == 0) err = errno;
  if (err == 0 &&
      renameat(directory_.get(), temporary.c_str(), directory_.get(), name.c_str()) != 0) {
    err = errno;
  }
  if (err == 0) return {};
  unlinkat(directory_.get(), temporary.c_str(), 0);
  return sys::fail("write", err, prefix_ + name);
}

sys::Result<sys::Fd> OutputFolder::create(const std::string& name) const {
  CTX_RETURN_IF_ERROR(remove(name));
  sys::Fd file(openat(directory_.get(), name.c_str(), kNewFile, 0666));
  if (!file.is_open()) return sys::fail("write", errno, prefix_ + name);
  return file;
}

sys::Result<> OutputFolder::remove(const std::string& name) const {
  if (unlinkat(directory_.get(), name.c_str(), 0) == 0 || errno == ENOENT || is_folder(name)) {
    return {};
  }
  return sys::fail("remove", errno, prefix_ + name);
}

}  // namespace ctxconf::conformance
