#include "conformance/testees/writer/memory.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

Buffer copy_to(char* where, const Bytes& bytes) {
  bytes.copy(where, bytes.size());
  return {where, bytes.size()};
}

Buffer on_heap(const Bytes& bytes, std::size_t room) {
  auto* p = static_cast<char*>(std::malloc(std::max(bytes.size(), room)));
  if (p == nullptr) die("malloc");
  return copy_to(p, bytes);
}

void overwrite_and_free(const Buffer& buffer, int byte) {
  std::memset(buffer.at, byte, buffer.size);
  asm volatile("" : : "r"(buffer.at) : "memory");
  std::free(buffer.at);
}

char* map_anonymous(std::size_t size, int protection) {
  void* p = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) die("mmap");
  return static_cast<char*>(p);
}

int create_memfd(const char* name, unsigned flags) {
  return static_cast<int>(syscall(SYS_memfd_create, name, flags));
}

int ask_for_memfd(const char* name, unsigned flags) {
  const int fd = create_memfd(name, flags);
  return fd >= 0 ? fd : create_memfd(name, flags & ~MFD_NOEXEC_SEAL);
}

bool name_memory(const char* at, std::size_t size, const char* name) {
  return prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, size, name) == 0;
}

}  // namespace ctxconf::testees
