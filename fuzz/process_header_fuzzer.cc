#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/process_header_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ctxconf::fuzz::check_process_header(std::as_bytes(std::span(data, size)));
  return 0;
}
