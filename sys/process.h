// Facts about one process from /proc, for reports and rules.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sys/map_table.h"
#include "sys/result.h"

namespace ctxconf::sys {

struct ProcessFacts {
  pid_t pid = 0;
  pid_t parent = 0;
  std::uint64_t start_ticks = 0;          // field 22 of stat: distinguishes a reused pid
  std::string executable;                 // the link /proc/PID/exe; hostile
  std::vector<std::string> command_line;  // at most its first 64 KiB; hostile
  bool elf64 = true;                      // EI_CLASS of the executable, read through /proc/PID/exe
  bool little_endian = true;              // EI_DATA
  std::uint32_t personality = 0;          // READ_IMPLIES_EXEC and others; 0 when unreadable
  std::int64_t boottime_offset_ns = 0;    // its time namespace relative to ours: theirs - ours
  char state = '?';                       // 'Z' for one that has ended, or has lost its memory
};
// ESRCH: no such process. EACCES/EPERM: no permission to inspect it.
Result<ProcessFacts> process_facts(pid_t pid);
// The name of its main thread, at most 15 bytes; hostile; empty if it cannot be read. Every user
// may read it.
std::string command_name(pid_t pid);
// The same as ProcessFacts::personality, without the rest; 0 if it cannot be read.
std::uint32_t personality_of(pid_t pid);
// Returns the state that /proc/TID/stat gives a thread, '?' if it cannot be read. A leader that has
// ended is 'Z', although other threads may live on.
char thread_state(pid_t tid);
// The value with which the program was started, if it is in the first 256 KiB of the environment;
// hostile. Does not show changes that the program made itself.
std::optional<std::string> environment_variable(pid_t pid, std::string_view name);

// If the leader of a process has ended and other threads live on, all functions here look through
// one of those threads; under the leader's id the kernel shows no memory.

// All of /proc/PID/maps, read to the end; at most 256 MiB (then E2BIG). Empty for a zombie and a
// kernel thread. ESRCH, never partial text, when the process ends meanwhile.
Result<std::string> read_maps_text(pid_t pid);
// The mapping that contains the address; nothing if there is none or they cannot be read.
std::optional<MapEntry> mapping_at(pid_t pid, RemoteAddr at);

// The file-backed, readable and writable entries whose name begins with one of `prefixes`, by
// address. This finds a memfd under any naming, but not [anon:...] and not a mapping made
// read-only: find_all_mappings finds those. Both ways give the same result:
//  * kQuery: PROCMAP_QUERY (Linux 6.11), filtered by the kernel; falls back to kText
//  * kText: reads maps in large pieces and parses only the lines that match
enum class MapSearch { kQuery, kText };
Result<std::vector<MapEntry>> find_memfd_mappings(pid_t pid,
                                                  const std::vector<std::string>& prefixes,
                                                  MapSearch how);
// Every mapping that matches, including anonymous ones, by the faster complete scan (text).
Result<std::vector<MapEntry>> find_all_mappings(pid_t pid,
                                                const std::vector<std::string>& prefixes);

// The `VmFlags:` line of each entry, in the order of `entries`: "rd wr mr mw me dc ac". nullopt if
// smaps has no such entry or line.
Result<std::vector<std::optional<std::string>>> vm_flags(pid_t pid,
                                                         const std::vector<MapEntry>& entries);
// The same from text; pure.
std::vector<std::optional<std::string>> parse_vm_flags(std::string_view smaps_text,
                                                       const std::vector<MapEntry>& entries);

// The parts of a range that a process has touched: pages that are present or swapped out
// (/proc/PID/pagemap). All other pages of private anonymous memory read as zero.
Result<std::vector<RemoteRange>> filled_pages(pid_t pid, RemoteRange range);

struct FdLink {
  int fd = -1;
  std::string link;
};
// Descriptors whose /proc/PID/fd link begins with `prefix`. Looks at 65536 descriptors at most.
Result<std::vector<FdLink>> descriptors_to(pid_t pid, std::string_view prefix);

// The link of one descriptor of a process or thread: "/memfd:NAME (deleted)". ENOENT: it is not
// open.
Result<std::string> descriptor_link(pid_t pid, int fd);

// How many seccomp filters a thread runs under (Linux 5.9; ENOTSUP before).
Result<unsigned> seccomp_filters(pid_t tid);

// Whether the process of a thread has the default action for a signal: neither ignored nor handled.
Result<bool> has_default_action(pid_t tid, int signo);

// Thread ids, ascending; at most 65536.
Result<std::vector<pid_t>> thread_list(pid_t pid);
// The number of threads of a thread's process; takes a tenth of the time of the list.
Result<std::size_t> thread_count(pid_t tid);
// All process ids in /proc, ascending.
Result<std::vector<pid_t>> process_list();

// The pid of a process in its own PID namespace. ENOTSUP before Linux 4.1.
Result<pid_t> own_number(pid_t pid);

// CLOCK_BOOTTIME and CLOCK_REALTIME now, in ns.
std::uint64_t boottime_now_ns();
std::uint64_t realtime_now_ns();

}  // namespace ctxconf::sys
