#include "conformance/command/print.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "conformance/report/escape.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {

int print(const std::string& text, int code) {
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written || errno == EPIPE) return code;
  complain(kExitUnreachable, std::string("cannot write to stdout: ") + std::strerror(errno));
  return unwritten_code(code);
}

int complain(int code, const std::string& text, const std::string& what_to_do) {
  std::string out = "ctxconf: " + escape(text, Escape::kTerminal) + "\n";
  if (!what_to_do.empty()) out += "         " + escape(what_to_do, Escape::kTerminal) + "\n";
  std::fwrite(out.data(), 1, out.size(), stderr);
  return code;
}

int complain_ended(const std::string& command, int signo) {
  return complain(128 + signo, fmt::format("{}: ended by signal {}", command, signo));
}

}  // namespace ctxconf::conformance
