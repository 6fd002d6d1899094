// A copy of some bytes that ends where memory ends: reading one byte more is a fault, in every
// build and also where AddressSanitizer does not look.
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

  // The copy is gone with the next one. Aborts where there is no memory.
  std::span<const std::byte> copy(std::span<const std::byte> bytes);

 private:
  void reserve(std::size_t size);

  std::byte* begin_ = nullptr;
  std::size_t capacity_ = 0;  // whole pages; an inaccessible one follows
};

}  // namespace ctxconf::fuzz
