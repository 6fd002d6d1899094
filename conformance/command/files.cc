#include "conformance/command/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "conformance/command/print.h"
#include "conformance/report/html.h"
#include "conformance/report/junit.h"
#include "conformance/report/markdown.h"
#include "conformance/report/result_json.h"
#include "conformance/report/sarif.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

constexpr std::array kReports = {"result.json", "junit.xml", "report.html", "summary.md",
                                 "results.sarif"};

}  // namespace

sys::Result<std::string> read_file(const std::string& path, std::size_t limit) {
  const bool is_stdin = path == "-";
  const int fd = is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return sys::fail("read", errno, path);
  std::string out;
  std::array<char, 65536> piece{};
  int err = 0;
  while (true) {
    const ssize_t n = read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) err = errno;
    if (n <= 0) break;
    out.append(piece.data(), static_cast<std::size_t>(n));
    if (out.size() > limit) {
      err = EFBIG;
      break;
    }
  }
  if (!is_stdin) close(fd);
  if (err != 0) return sys::fail("read", err, path);
  return out;
}

sys::Result<> write_file(const std::string& path, const std::string& text) {
  const auto slash = path.rfind('/');
  const bool here = slash == std::string::npos;
  const auto folder = OutputFolder::open(here ? "." : path.substr(0, slash + 1));
  auto written = folder ? folder->write(here ? path : path.substr(slash + 1), text)
                        : sys::fail("write", folder.error().err, "");
  if (!written) written.error().detail = path;
  return written;
}

sys::Result<> write_reports(const OutputFolder& folder, const RunResult& run, bool strict) {
  const auto write = [&]() -> sys::Result<> {
    CTX_RETURN_IF_ERROR(folder.write("junit.xml", to_junit(run, {strict})));
    CTX_RETURN_IF_ERROR(folder.write("report.html", to_html(run)));
    CTX_RETURN_IF_ERROR(folder.write("summary.md", to_markdown(run)));
    CTX_RETURN_IF_ERROR(folder.write("results.sarif", to_sarif(run)));
    return folder.write("result.json", to_result_json(run));
  };
  auto written = write();
  for (const char* name : kReports) {
    if (!written) (void)folder.remove(name);
  }
  return written;
}

int remove_reports(const std::string& out) {
  if (out.empty()) return 0;
  const auto folder = OutputFolder::open(out);
  if (!folder) return 0;
  for (const char* name : kReports) {
    if (const auto removed = folder->remove(name); !removed) {
      return complain(kExitUsage, "--out: " + sys::to_string(removed.error()),
                      "name a directory that you may write to");
    }
  }
  return 0;
}

}  // namespace ctxconf::conformance
