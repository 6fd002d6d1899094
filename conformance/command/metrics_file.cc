#include "conformance/command/metrics_file.h"

#include <cerrno>
#include <filesystem>

#include "conformance/report/escape.h"

namespace ctxconf::conformance {

sys::Result<MetricsFile> MetricsFile::at(const std::string& path) {
  const std::filesystem::path file(path);
  const std::string name = file.filename();
  std::error_code error;
  const auto status = std::filesystem::symlink_status(file, error);
  const bool is_other = std::filesystem::exists(status) && !is_regular_file(status);
  if (name.empty() || name == "." || name == ".." || is_other) {
    return sys::fail("write", EINVAL, shell_word(path) + " is not a regular file");
  }
  const std::string parent = file.parent_path();
  auto folder = OutputFolder::open(parent.empty() ? "." : parent);
  if (!folder) return sys::fail("write", folder.error().err, path);
  if (!folder->is_writable()) return sys::fail("write", errno, path);
  return MetricsFile(*std::move(folder), name);
}

sys::Result<> MetricsFile::write(std::string_view text) const {
  constexpr mode_t kForAll = 0644;
  return folder_.write(name_, text, kForAll);
}

}  // namespace ctxconf::conformance
