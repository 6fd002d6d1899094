#include "conformance/observe/memory_block.h"

#include <algorithm>
#include <cerrno>
#include <vector>

namespace ctxconf::conformance {

std::uint64_t fnv1a(std::uint64_t hash, std::span<const std::byte> bytes) {
  // Without optimisation, iterators would take most of the time for a payload of 64 MiB.
  const auto* const data = reinterpret_cast<const unsigned char*>(bytes.data());
  const std::size_t size = bytes.size();
  for (std::size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 0x100000001b3U;
  return hash;
}

bool has_memory(const sys::MemoryReader& memory) {
  std::byte byte{};
  const auto there = memory.read_some(sys::RemoteAddr(0), std::span(&byte, 1));
  return there || there.error().err != ESRCH;
}

MemoryBlock read_block(const sys::MemoryReader& memory, sys::RemoteAddr at, std::uint64_t wanted,
                       std::uint64_t keep, std::uint64_t read) {
  constexpr std::uint64_t kPiece = 1U << 16U;
  MemoryBlock block{.at = at, .wanted = wanted, .readable = 0, .bytes = {}, .hash = kFnvBasis};
  std::vector<std::byte> piece(std::min({kPiece, std::max(wanted, std::uint64_t{1})}));
  while (block.readable < std::min(wanted, read)) {
    const auto from = at.plus(block.readable);
    if (!from) break;
    const auto ask = std::min<std::uint64_t>(piece.size(), std::min(wanted, read) - block.readable);
    const auto got = memory.read_some(*from, std::span(piece).first(ask));
    if (!got || *got == 0) break;
    const auto bytes = std::span(piece).first(*got);
    block.hash = fnv1a(block.hash, bytes);
    if (block.bytes.size() < keep) {
      const auto n = std::min<std::uint64_t>(keep - block.bytes.size(), bytes.size());
      block.bytes.insert(block.bytes.end(), bytes.begin(),
                         bytes.begin() + static_cast<std::ptrdiff_t>(n));
    }
    block.readable += *got;
    if (*got < ask) break;
  }
  return block;
}

}  // namespace ctxconf::conformance
