// The slot of programs that have none and load a library with one.
#pragma once

#include <dlfcn.h>

namespace ctxconf::testees {

// `file` is in the folder of the program.
void* open_library(const char* file, int flags = RTLD_LOCAL);

// From now on slot() returns that of this library.
void take_slot_of(const char* file);

}  // namespace ctxconf::testees
