#include "fuzz/guarded_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/check.h"

namespace ctxconf::fuzz {
namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

GuardedBuffer::~GuardedBuffer() {
  if (begin_ != nullptr) munmap(begin_, capacity_ + page_size());
}

void GuardedBuffer::reserve(std::size_t size) {
  if (begin_ != nullptr && size <= capacity_) return;
  if (begin_ != nullptr) munmap(begin_, capacity_ + page_size());
  capacity_ = (size / page_size() + 1) * page_size();
  void* at = mmap(nullptr, capacity_ + page_size(), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FUZZ_CHECK(at != MAP_FAILED);
  begin_ = static_cast<std::byte*>(at);
  FUZZ_CHECK(mprotect(begin_ + capacity_, page_size(), PROT_NONE) == 0);
}

std::span<const std::byte> GuardedBuffer::copy(std::span<const std::byte> bytes) {
  reserve(bytes.size());
  std::byte* at = begin_ + (capacity_ - bytes.size());
  // No memcpy(): with a sanitizer it takes longer than all the copying.
  for (std::size_t i = 0; i < bytes.size(); ++i) at[i] = bytes.data()[i];
  return {at, bytes.size()};
}

}  // namespace ctxconf::fuzz
