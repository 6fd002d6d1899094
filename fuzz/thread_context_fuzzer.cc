#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/thread_context_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ctxconf::fuzz::check_thread_context(std::as_bytes(std::span(data, size)));
  return 0;
}
