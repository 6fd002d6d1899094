// The program that scripts/fuzz-bench measures: does the work of record_fuzzer, or nothing, and
// reports the sizes of the inputs that the engine generated.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>

#include "fuzz/record_oracle.h"

namespace {

struct Inputs {
  std::size_t count = 0;
  std::size_t bytes = 0;
  ~Inputs() {
    if (count != 0) std::fprintf(stderr, "mean input size %zu\n", bytes / count);
  }
} inputs;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ++inputs.count;
  inputs.bytes += size;
  if (CTXCONF_BENCH_RECORD) ctxconf::fuzz::check_record(std::as_bytes(std::span(data, size)));
  return 0;
}
