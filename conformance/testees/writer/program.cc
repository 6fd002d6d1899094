#include "conformance/testees/writer/program.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace ctxconf::testees {
namespace {

constexpr int kCannotBeShownHere = 77;

// False at the end of standard input.
bool read_a_byte() {
  char byte;
  ssize_t got;
  do got = read(STDIN_FILENO, &byte, 1);
  while (got < 0 && errno == EINTR);
  return got > 0;
}

}  // namespace

Options options;

std::uint64_t file_size_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

void say(FILE* to, const char* format, ...) {
  // Standard output may be a file, and a write beyond the limit is deadly too.
  if (file_size_limit() < 4096) return;
  va_list values;
  va_start(values, format);
  std::vfprintf(to, format, values);
  va_end(values);
  std::fflush(to);
}

void die(const char* step) {
  say(stderr, "%s: %s: %s\n", kProgram, step, std::strerror(errno));
  std::exit(1);
}

void cannot_be_shown(const char* why) {
  say(stderr, "%s: cannot be shown here: %s: %s\n", kProgram, why, std::strerror(errno));
  std::exit(kCannotBeShownHere);
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

void pause() {
  if (!options.pause_for_byte) return sleep_ms(options.pause_ms);
  (void)read_a_byte();
}

void wait_for_the_end() {
  if (!options.hold_to_eof) return sleep_ms(options.hold_ms);
  while (read_a_byte()) {
  }
}

void reap(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) die("waitpid");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) std::exit(1);
}

}  // namespace ctxconf::testees
