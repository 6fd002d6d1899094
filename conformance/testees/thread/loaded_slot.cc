#include "conformance/testees/thread/loaded_slot.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "conformance/testees/thread/slot.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

void* (*slot_function)() = nullptr;
void* library = nullptr;
bool by_name = false;

}  // namespace

void** slot() {
  void* at = by_name ? dlsym(library, "otel_thread_ctx_v1") : slot_function();
  if (at == nullptr) {
    std::fprintf(stderr, "%s: no slot: %s\n", kProgram, dlerror());
    std::exit(1);
  }
  return static_cast<void**>(at);
}

void* open_library(const char* file, int flags) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size < 0 || size == sizeof path) die("readlink");
  const std::string self(path, static_cast<std::size_t>(size));
  void* handle = dlopen((self.substr(0, self.rfind('/') + 1) + file).c_str(), RTLD_NOW | flags);
  if (handle == nullptr) {
    errno = ENOENT;
    cannot_be_shown(dlerror());
  }
  return handle;
}

void take_slot_of(const char* file) {
  library = open_library(file);
  slot_function = reinterpret_cast<void* (*)()>(dlsym(library, "slot_place"));
  by_name = slot_function == nullptr;
}

}  // namespace ctxconf::testees
