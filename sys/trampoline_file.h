// The program ctxconf-trampoline as a file that can be executed.
#pragma once

#include <array>
#include <string>

#include "sys/result.h"

namespace ctxconf::sys {

// Where the programs are that ctxconf starts and does not carry: the folder of /proc/self/exe, then
// ../libexec/ctxconf. Both end with '/'.
Result<std::array<std::string, 2>> program_folders();

// A path of the trampoline that this process and its children may execute. ctxconf carries the
// trampoline, so this is a file in memory (memfd_create(2)), which exists as long as this process.
// If the host refuses that (vm.memfd_noexec=2), the path of ctxconf-trampoline in
// program_folders(). If it is not there, the error of the file in memory.
Result<std::string> find_trampoline();

// A path of the trampoline for a process that is not our child: that in program_folders() if it is
// there, else /proc/PID/fd/N, which takes the right to read our memory.
std::string trampoline_for_others();

}  // namespace ctxconf::sys
