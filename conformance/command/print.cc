#include "conformance/command/print.h"

#include <fmt/format.h>
#include <stdio_ext.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "conformance/report/escape.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {

namespace {

int not_printed(int code) {
  const int err = errno;
  // Otherwise it would be tried and told once more at the end.
  __fpurge(stdout);
  std::clearerr(stdout);
  if (err == EPIPE) return code;
  const std::string why = err == 0 ? "" : std::string(": ") + std::strerror(err);
  complain(kExitUnreachable, "cannot write to stdout" + why);
  return unwritten_code(code);
}

}  // namespace

int print(const std::string& text, int code) {
  errno = 0;
  const bool printed =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return printed ? code : not_printed(code);
}

int finish_printing(int code) {
  errno = 0;
  const bool printed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return printed ? code : not_printed(code);
}

int complain(int code, const std::string& text, const std::string& what_to_do) {
  std::string out = "ctxconf: " + escape(text, Escape::kTerminal) + "\n";
  if (!what_to_do.empty()) out += "         " + escape(what_to_do, Escape::kTerminal) + "\n";
  tell(out);
  return code;
}

void tell(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

int complain_ended(const std::string& command, int signo) {
  return complain(128 + signo, fmt::format("{}: ended by signal {}", command, signo));
}

}  // namespace ctxconf::conformance
