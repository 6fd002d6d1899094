// A copy of some bytes that ends at the end of memory: reading one more byte is a fault, in every
// build, even if AddressSanitizer does not check it.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

class GuardedBuffer {
 public:
  GuardedBuffer() = default;
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  ~GuardedBuffer();

  // The next call invalidates the copy. Aborts if there is no memory.
  std::span<const std::byte> copy(std::span<const std::byte> bytes);

 private:
  void reserve(std::size_t size);

  std::byte* begin_ = nullptr;
  std::size_t capacity_ = 0;  // whole pages; an inaccessible page follows
};

}  // namespace ctxconf::fuzz
