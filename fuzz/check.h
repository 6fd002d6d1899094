// A condition of an oracle. Checked in every build type: fuzzer and replay must see the abort.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace ctxconf::fuzz {

[[noreturn, gnu::noinline]] inline void check_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, what);
  std::abort();
}

}  // namespace ctxconf::fuzz

#define FUZZ_CHECK(condition)                                        \
  do {                                                               \
    if (!(condition)) [[unlikely]]                                   \
      ::ctxconf::fuzz::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
