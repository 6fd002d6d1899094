# Whether 32-bit programs can be built here (gcc-multilib, g++-multilib).
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_FLAGS -m32)
check_cxx_source_compiles("#include <string>
#include <unistd.h>
int main(int, char** v) { return std::string(v[0]).empty() ? pause() : 0; }" CTXCONF_HAVE_M32)
unset(CMAKE_REQUIRED_FLAGS)
