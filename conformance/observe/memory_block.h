// Copies memory of a process into a recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "conformance/evidence/timeline.h"
#include "sys/memory_reader.h"
#include "sys/remote_addr.h"

namespace ctxconf::conformance {

// FNV-1a, 64 bits.
inline constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325U;
std::uint64_t fnv1a(std::uint64_t hash, std::span<const std::byte> bytes);

// False for a zombie and for a kernel thread. Only a read tells.
bool has_memory(const sys::MemoryReader& memory);

// Copies a range in pieces: stores bytes up to `keep`, hashes bytes up to `read`.
MemoryBlock read_block(const sys::MemoryReader& memory, sys::RemoteAddr at, std::uint64_t wanted,
                       std::uint64_t keep, std::uint64_t read);

}  // namespace ctxconf::conformance
