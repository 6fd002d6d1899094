#include "sys/memory_reader.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

namespace ctxconf::sys {
namespace {

std::string hex(std::uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, 16).ptr;
  return "0x" + std::string(digits, end);
}

}  // namespace

Result<> MemoryReader::read_exact(RemoteAddr from, std::span<std::byte> out) const {
  CTX_ASSIGN_OR_RETURN(copied, read_some(from, out));
  if (copied == out.size()) return {};
  return fail("read memory", EFAULT, hex(from.raw() + copied));
}

Result<std::array<std::size_t, 2>> MemoryReader::read_two(const Part& first,
                                                          const Part& second) const {
  CTX_ASSIGN_OR_RETURN(of_first, read_some(first.from, first.out));
  return std::array{of_first, read_some(second.from, second.out).value_or(0)};
}

void SnapshotMemory::put(RemoteAddr at, std::span<const std::byte> bytes) {
  bytes = bytes.first(at.addressable(bytes.size()));
  if (bytes.empty()) return;
  const std::uint64_t begin = at.raw();
  const std::uint64_t end = begin + bytes.size();

  auto block = blocks_.upper_bound(begin);
  if (block != blocks_.begin()) --block;
  while (block != blocks_.end() && block->first < end) {
    const std::uint64_t old_begin = block->first;
    std::vector<std::byte>& old = block->second;
    const std::uint64_t old_end = old_begin + old.size();
    if (old_end <= begin) {
      ++block;
      continue;
    }
    if (old_end > end) {
      const auto kept = old.begin() + static_cast<std::ptrdiff_t>(end - old_begin);
      blocks_.emplace(end, std::vector(kept, old.end()));
    }
    if (old_begin < begin) {
      old.resize(begin - old_begin);
      ++block;
    } else {
      block = blocks_.erase(block);
    }
  }
  blocks_.emplace(begin, std::vector(bytes.begin(), bytes.end()));
}

Result<std::size_t> SnapshotMemory::read_some(RemoteAddr from, std::span<std::byte> out) const {
  out = out.first(from.addressable(out.size()));
  std::size_t done = 0;
  auto block = blocks_.upper_bound(from.raw());
  if (block == blocks_.begin()) return done;
  for (--block; done < out.size() && block != blocks_.end(); ++block) {
    const std::uint64_t at = from.raw() + done;
    if (block->first > at || at - block->first >= block->second.size()) break;
    const std::size_t skip = at - block->first;
    const std::size_t length = std::min(block->second.size() - skip, out.size() - done);
    std::memcpy(out.data() + done, block->second.data() + skip, length);
    done += length;
  }
  return done;
}

Result<std::size_t> InterruptedMemory::read_some(RemoteAddr from, std::span<std::byte> out) const {
  CTX_RETURN_IF_ERROR(before_(++reads_, from));
  return below_->read_some(from, out);
}

}  // namespace ctxconf::sys
