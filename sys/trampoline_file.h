// The programs that ctxconf starts: ctxconf-trampoline as a file that can be executed, and the
// folder of others.
#pragma once

#include <initializer_list>
#include <string>

#include "sys/result.h"

namespace ctxconf::sys {

// Where the programs are that ctxconf starts and does not carry: the folder of /proc/self/exe, or
// ../libexec/ctxconf from there, whichever has all these files that `mode` (of access(2)) asks for.
// Without '/' at the end. If neither has, the error of the first file that is missing.
Result<std::string> program_folder_with(std::initializer_list<const char*> files, int mode);

// A path of the trampoline that this process and its children may execute. ctxconf carries the
// trampoline, so this is a file in memory (memfd_create(2)), which exists as long as this process.
// If the host refuses that (vm.memfd_noexec=2), the path of ctxconf-trampoline in
// program_folder_with(). If it is not there, the error of the file in memory.
Result<std::string> find_trampoline();

// A path of the trampoline for a process that is not our child: the installed one if there is one,
// else /proc/PID/fd/N, which takes the right to read our memory.
std::string trampoline_for_others();

}  // namespace ctxconf::sys
