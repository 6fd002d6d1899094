// The registers and the stack of a thread, and the ELF file that it ran in, whose call frame
// information gives the callers. Reads the file in a separate process, so this target is slow.
//
// Input: 17 registers; 2 bytes, the size of the stack; the stack; the file.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "fuzz/check.h"
#include "fuzz/input_file.h"
#include "sys/code_stack.h"

namespace {

using namespace ctxconf;

constexpr std::uint64_t kCodeAt = 0x7f0000000000;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sys::StackCopy stack;
  const std::size_t head = sizeof stack.registers + 2;
  if (size < head) return 0;
  std::memcpy(stack.registers.data(), data, sizeof stack.registers);
  const auto rest = std::as_bytes(std::span(data, size)).subspan(head);
  const std::size_t stack_size =
      std::min<std::size_t>(data[head - 2] | data[head - 1] << 8U, rest.size());
  stack.bytes.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(stack_size));
  const auto bytes = rest.subspan(stack_size);
  const sys::HeldFile file = fuzz::input_file(bytes);
  const std::array code = {sys::CodeMapping{&file, "/nowhere/file", kCodeAt, 0}};
  const std::array stacks = {stack, stack};
  sys::CodeLookUpLimits limits;
  limits.time = std::chrono::milliseconds(2000);
  const auto began = std::chrono::steady_clock::now();
  const sys::Callers callers = sys::find_callers(code, stacks, limits);
  // See code_location_fuzzer.
  FUZZ_CHECK(std::chrono::steady_clock::now() - began < std::chrono::minutes(1));
  FUZZ_CHECK(callers.found.size() == stacks.size());
  for (const auto& found : callers.found) FUZZ_CHECK(found.size() <= sys::kMostCallers);
  // Both are the same thread.
  if (callers.problem.empty()) FUZZ_CHECK(callers.found[0] == callers.found[1]);
  return 0;
}
