// What the broken and legal programs have in common: how they pause, hold still and end.
//
// Nothing in this folder is shared with the judge or with the reference library, so that a
// misreading there does not hide here.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>

namespace ctxconf::testees {

extern const char* const kProgram;  // each program defines its name

struct Options {
  int hold_ms = -1;  // how long the last wait takes; negative: as long as the case asks for
  bool hold_to_eof = false;
  int pause_ms = 350;  // between the steps of a case: three looks at 100 ms each
  bool pause_for_byte = false;
  bool quiet = false;
  char** arguments = nullptr;
  char** case_name = nullptr;  // the argument that names a legal case
};
extern Options options;

std::uint64_t file_size_limit();

// Flushes. Writes nothing when a file may not grow, which standard output may be.
[[gnu::format(printf, 2, 3)]] void say(FILE* to, const char* format, ...);

// A failing system call ends the program: 77 where the host cannot show the case, 1 otherwise.
[[noreturn]] void die(const char* step);
[[noreturn]] void cannot_be_shown(const char* why);

void sleep_ms(int ms);
void pause();
void wait_for_the_end();

// Waits for a child, which has to end well.
void reap(pid_t child);

}  // namespace ctxconf::testees
