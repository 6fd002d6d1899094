// What the engine costs by itself; scripts/fuzz-bench measures record_fuzzer against it.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }
