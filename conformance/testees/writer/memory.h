// The memory of a process context: mappings, memfds, names, buffers.
#pragma once

#include <linux/prctl.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "conformance/testees/writer/protobuf.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

namespace ctxconf::testees {

std::size_t page();
inline std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// Never freed unless a case says so: a published payload has to stay.
struct Buffer {
  char* at = nullptr;
  std::size_t size = 0;
};

Buffer copy_to(char* where, const Bytes& bytes);
// `room`: the smallest size of the buffer.
Buffer on_heap(const Bytes& bytes, std::size_t room = 1);

// The compiler must not leave out the stores because the memory is freed.
void overwrite_and_free(const Buffer& buffer, int byte);

char* map_anonymous(std::size_t size, int protection = PROT_READ | PROT_WRITE);

// Negative: there is none.
int create_memfd(const char* name, unsigned flags);
constexpr unsigned kMemfdFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
// Asks with a seal where `flags` has one, then without.
int ask_for_memfd(const char* name = "OTEL_CTX", unsigned flags = kMemfdFlags | MFD_NOEXEC_SEAL);

// The naming call; false: the kernel refuses it.
bool name_memory(const char* at, std::size_t size, const char* name);

}  // namespace ctxconf::testees
