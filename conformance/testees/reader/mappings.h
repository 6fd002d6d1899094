// What /proc says of a process: its mappings, and those that may hold a process context.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kMappingsChoices;

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t offset = 0;
  bool readable = false;
  bool writable = false;
  std::uint64_t inode = 0;
  std::string name;  // the last column
  friend bool operator==(const Mapping&, const Mapping&) = default;
};
using Mappings = std::vector<Mapping>;

// The error is an errno.
std::expected<Mappings, int> mappings_of(pid_t pid);
// Those whose name is that of a process context.
Mappings candidates_of(const Mappings& all);

// Read from /proc/PID/stat; 0: there is no such process.
std::uint64_t start_ticks_of(pid_t pid);
pid_t parent_of(pid_t pid);
char state_of(pid_t pid);
std::string name_of(pid_t pid);
bool is_32_bit(pid_t pid);
bool has_thread(pid_t pid, pid_t tid);
std::vector<pid_t> threads_of(pid_t pid);
std::vector<pid_t> processes();
// A thread of the process waits in futex().
bool waits_for_lock(pid_t pid);
// The address of the program headers of its executable; 0: not known.
std::uint64_t program_headers_of(pid_t pid);

}  // namespace ctxconf::testees
