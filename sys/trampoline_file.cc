#include "sys/trampoline_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

// `process`: a pid, or "self".
std::string path_of(const Fd& file, const std::string& process) {
  return "/proc/" + process + "/fd/" + std::to_string(file.get());
}

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
  const std::string path = path_of(file, "self");
  if (access(path.c_str(), X_OK) != 0) return fail("access", errno, path);
  return file;
}

// Made once, and open as long as this process exists.
const Result<Fd>& file_in_memory() {
  static const Result<Fd> file = trampoline_in_memory();
  return file;
}

Result<std::string> installed_trampoline() {
  CTX_ASSIGN_OR_RETURN(folder, program_folder_with({kName}, X_OK));
  return folder + "/" + kName;
}

}  // namespace

Result<std::string> program_folder_with(std::initializer_list<const char*> files, int mode) {
  std::array<char, PATH_MAX> link{};
  const auto n = readlink("/proc/self/exe", link.data(), link.size());
  if (n <= 0) return fail("readlink", n < 0 ? errno : ENOENT, "/proc/self/exe");
  const std::string self(link.data(), static_cast<std::size_t>(n));
  const std::string own = self.substr(0, self.rfind('/'));
  std::optional<Error> why;
  for (const std::string& folder : {own, own + "/../libexec/ctxconf"}) {
    const auto missing = std::ranges::find_if(
        files, [&](const char* file) { return access((folder + "/" + file).c_str(), mode) != 0; });
    if (missing == files.end()) return folder;
    const int error = errno;
    if (!why || error != ENOENT) why = Error{"find programs", error, folder + "/" + *missing};
  }
  return std::unexpected(*why);
}

Result<std::string> find_trampoline() {
  const auto& file = file_in_memory();
  if (file) return path_of(*file, "self");
  if (auto installed = installed_trampoline()) return installed;
  return std::unexpected(file.error());
}

std::string trampoline_for_others() {
  if (const auto installed = installed_trampoline()) return *installed;
  const auto& file = file_in_memory();
  return file ? path_of(*file, std::to_string(getpid())) : "";
}

}  // namespace ctxconf::sys
