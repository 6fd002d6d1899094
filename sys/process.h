// Facts about one process from /proc: what a report prints and a rule needs to know.
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
  std::uint64_t start_ticks = 0;          // field 22 of stat: tells a reused pid
  std::string executable;                 // the link /proc/PID/exe; hostile
  std::vector<std::string> command_line;  // at most 64 KiB of it; hostile
  bool elf64 = true;                      // EI_CLASS of the executable, read through /proc/PID/exe
  bool little_endian = true;              // EI_DATA
  std::uint32_t personality = 0;          // READ_IMPLIES_EXEC and others; 0 when unreadable
  std::int64_t boottime_offset_ns = 0;    // its time namespace against ours: theirs - ours
  char state = '?';                       // 'Z' for one that has ended, or has lost its memory
};
// ESRCH when there is no such process, EACCES/EPERM when it may not be looked at.
Result<ProcessFacts> process_facts(pid_t pid);
// What the program was started with, if that is among the first 256 KiB; hostile. A change that
// it made itself does not show.
std::optional<std::string> environment_variable(pid_t pid, std::string_view name);

// Where the leader of a process has ended and other threads live on, all functions here
// look through one of those threads; by the leader's id the kernel shows no memory.

// All of /proc/PID/maps, read to the end. 256 MiB at most (E2BIG beyond). Empty for a zombie
// and a kernel thread; ESRCH, never half a text, when the process ends meanwhile.
Result<std::string> read_maps_text(pid_t pid);
// The mapping that holds the address; nothing: none does, or they cannot be read.
std::optional<MapEntry> mapping_at(pid_t pid, RemoteAddr at);

// The file-backed, readable and writable entries whose name begins with one of `prefixes`, by
// address. This finds a memfd in any naming, not [anon:...] nor a mapping made read-only:
// find_all_mappings does. Both ways give the same:
//  * kQuery: PROCMAP_QUERY (Linux 6.11), filtered by the kernel; kText where there is none
//  * kText: reads maps in large pieces and parses only the lines that match
enum class MapSearch { kQuery, kText };
Result<std::vector<MapEntry>> find_memfd_mappings(pid_t pid,
                                                  const std::vector<std::string>& prefixes,
                                                  MapSearch how);
// Every mapping that matches, anonymous ones included, by the faster complete scan (text).
Result<std::vector<MapEntry>> find_all_mappings(pid_t pid,
                                                const std::vector<std::string>& prefixes);

// The `VmFlags:` line of each entry, in the order of `entries`; nullopt where smaps has no such
// entry or no such line. "rd wr mr mw me dc ac"
Result<std::vector<std::optional<std::string>>> vm_flags(pid_t pid,
                                                         const std::vector<MapEntry>& entries);
// The same from text, pure.
std::vector<std::optional<std::string>> parse_vm_flags(std::string_view smaps_text,
                                                       const std::vector<MapEntry>& entries);

// The parts of a range that a process has touched: pages that are present or swapped out
// (/proc/PID/pagemap). All others of private anonymous memory read as zero.
Result<std::vector<RemoteRange>> filled_pages(pid_t pid, RemoteRange range);

struct FdLink {
  int fd = -1;
  std::string link;
};
// Descriptors whose /proc/PID/fd link begins with `prefix`. At most 65536 are looked at.
Result<std::vector<FdLink>> descriptors_to(pid_t pid, std::string_view prefix);

// What one descriptor of a process or thread is: "/memfd:NAME (deleted)". ENOENT: it is not open.
Result<std::string> descriptor_link(pid_t pid, int fd);

// How many seccomp filters a thread runs under (Linux 5.9; ENOTSUP before).
Result<unsigned> seccomp_filters(pid_t tid);

// Whether the process of a thread neither ignores a signal nor handles it.
Result<bool> has_default_action(pid_t tid, int signo);

// Thread ids, ascending; at most 65536.
Result<std::vector<pid_t>> thread_list(pid_t pid);
// How many there are, of the process of a thread: a tenth of the time of the list.
Result<std::size_t> thread_count(pid_t tid);
// All process ids in /proc, ascending.
Result<std::vector<pid_t>> process_list();

// The number of a process in its own pid namespace. ENOTSUP before Linux 4.1.
Result<pid_t> own_number(pid_t pid);

// CLOCK_BOOTTIME and CLOCK_REALTIME now, in ns.
std::uint64_t boottime_now_ns();
std::uint64_t realtime_now_ns();

}  // namespace ctxconf::sys
