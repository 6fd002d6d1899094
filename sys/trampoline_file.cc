#include "sys/trampoline_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "sys/fd.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U  // Linux 6.3
#endif

// CTXCONF_TRAMPOLINE: the file, at build time.
asm(R"(
  .pushsection .rodata
  .balign 16
  .globl kTrampolineBegin, kTrampolineEnd
kTrampolineBegin:
  .incbin ")" CTXCONF_TRAMPOLINE R"("
kTrampolineEnd:
  .popsection
)");
extern "C" {
[[gnu::visibility("hidden")]] extern const char kTrampolineBegin;
[[gnu::visibility("hidden")]] extern const char kTrampolineEnd;
}

namespace ctxconf::sys {
namespace {

constexpr const char* kName = "ctxconf-trampoline";

std::string path_of(const Fd& file) { return "/proc/self/fd/" + std::to_string(file.get()); }

Result<Fd> trampoline_in_memory() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Fd low(memfd_create(kName, kFlags | MFD_EXEC));
  if (!low.is_open() && errno == EINVAL) low = Fd(memfd_create(kName, kFlags));
  if (!low.is_open()) return fail("memfd_create", errno, kName);
  Fd file(fcntl(low.get(), F_DUPFD_CLOEXEC, 4));  // Numbers below 4 may be the program's.
  if (!file.is_open()) return fail("fcntl", errno, kName);
  const std::string_view bytes(&kTrampolineBegin, &kTrampolineEnd);
  if (const int error = write_all(file.get(), bytes); error != 0)
    return fail("write", error, kName);
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) !=
      0) {
    return fail("fcntl", errno, kName);
  }
  // A security module may allow no program in memory.
  if (access(path_of(file).c_str(), X_OK) != 0) return fail("access", errno, path_of(file));
  return file;
}

}  // namespace

Result<std::array<std::string, 2>> program_folders() {
  std::array<char, PATH_MAX> link{};
  const auto n = readlink("/proc/self/exe", link.data(), link.size());
  if (n <= 0) return fail("readlink", n < 0 ? errno : ENOENT, "/proc/self/exe");
  const std::string self(link.data(), static_cast<std::size_t>(n));
  const std::string own = self.substr(0, self.rfind('/') + 1);
  return std::array{own, own + "../libexec/ctxconf/"};
}

namespace {

std::optional<std::string> installed_trampoline() {
  const auto folders = program_folders();
  if (!folders) return std::nullopt;
  for (const auto& folder : *folders) {
    if (access((folder + kName).c_str(), X_OK) == 0) return folder + kName;
  }
  return std::nullopt;
}

}  // namespace

Result<std::string> find_trampoline() {
  static const Result<Fd> file = trampoline_in_memory();
  if (file) return path_of(*file);
  if (const auto installed = installed_trampoline()) return *installed;
  return std::unexpected(file.error());
}

std::string trampoline_for_others() {
  if (const auto installed = installed_trampoline()) return *installed;
  constexpr std::string_view kOurs = "/proc/self/";
  std::string path = find_trampoline().value_or("");
  if (path.starts_with(kOurs))
    path.replace(0, kOurs.size(), "/proc/" + std::to_string(getpid()) + "/");
  return path;
}

}  // namespace ctxconf::sys
