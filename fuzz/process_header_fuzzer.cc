#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/process_header_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  ctxconf::fuzz::check_process_header(input);
#ifdef CTXCONF_FUZZ_PROTOBUF
  ctxconf::fuzz::check_process_sample(input);
#endif
  return 0;
}
