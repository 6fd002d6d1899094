// The cases of a program, and its command line.
#pragma once

#include <initializer_list>
#include <span>

namespace ctxconf::testees {

constexpr int kUsualHoldMs = 350;

struct Case {
  const char* name;
  const char* about;  // what it does, for --list
  void (*run)();
  int hold_ms = kUsualHoldMs;
};

// The cases of one topic. A broken one is named after the requirement that it breaks, with a suffix
// for a second way. `mutants.py` reads the tables, so a line of them begins with the name of its
// case.
struct Topic {
  std::span<const Case> bad;
  std::span<const Case> good;
};

// The whole of main().
int run_cases(int argc, char** argv, std::initializer_list<Topic> topics);

}  // namespace ctxconf::testees
