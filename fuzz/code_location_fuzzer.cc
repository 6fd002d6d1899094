// An ELF file with debug information, and queries for some places in it. Reads the file in a
// separate process, so this target is slow.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fuzz/check.h"
#include "fuzz/input_file.h"
#include "sys/code_location.h"

namespace {

using namespace ctxconf;

constexpr std::size_t kLongestSymbol = 1024;
constexpr std::size_t kLongestPath = 4096;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const sys::HeldFile file = fuzz::input_file(std::as_bytes(std::span(data, size)));
  FUZZ_CHECK(file.identity().size == size);
  const std::array<std::uint64_t, 4> locations = {0, size / 2, size, UINT64_MAX};
  sys::CodeLookUpLimits limits;
  limits.time = std::chrono::milliseconds(2000);
  const auto began = std::chrono::steady_clock::now();
  const sys::CodeLocations found = sys::locate_code(file, "/nowhere/file", locations, limits);
  // A file never makes anyone wait; a minute is far more than a busy machine needs to end a child.
  FUZZ_CHECK(std::chrono::steady_clock::now() - began < std::chrono::minutes(1));
  FUZZ_CHECK(found.found.size() == locations.size());
  for (const sys::CodeLocation& location : found.found) {
    FUZZ_CHECK(location.symbol.size() <= kLongestSymbol);
    FUZZ_CHECK(location.source_file.size() <= kLongestPath);
    FUZZ_CHECK(!location.source_file.empty() || location.source_line == 0);
    FUZZ_CHECK(!location.symbol.empty() || location.symbol_offset == 0);
    (void)sys::is_library_code(location, "/usr/lib/libstdc++.so.6");
  }
  return 0;
}
