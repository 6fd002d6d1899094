// The program ctxconf-trampoline as a file that can be executed.
#pragma once

#include <array>
#include <string>

#include "sys/result.h"

namespace ctxconf::sys {

// The folders where the programs are that ctxconf starts and does not carry: the folder of the
// running program, and
// ../libexec/ctxconf from there, both with a '/' at the end. Of /proc/self/exe.
Result<std::array<std::string, 2>> program_folders();

// A path of the trampoline that this process and its children may execute. ctxconf carries the
// trampoline, so this names a file in memory (memfd_create(2)), which exists as long as this
// process. A host may refuse that (vm.memfd_noexec=2): then one of program_folders(). The error is
// of memfd_create if it is not there either.
Result<std::string> find_trampoline();

// The same file for a process that is not a child: /proc/PID/fd/N. It needs the right to read our
// memory.
std::string path_for_others(const std::string& path);

}  // namespace ctxconf::sys
