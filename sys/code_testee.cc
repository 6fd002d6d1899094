// Code with known functions and lines: each function is on one line.
#include <atomic>

namespace code_testee {
volatile unsigned long word;
__attribute__((noinline)) void store(unsigned long value) { word = value; }
}  // namespace code_testee

std::atomic<unsigned long> atomic_word;

// clang-format off
extern "C" __attribute__((noinline)) void code_store(unsigned long value) { code_testee::word = value; }
extern "C" __attribute__((noinline)) void i(unsigned long value) { code_testee::word = value; }
static inline void code_atomic_set(unsigned long value) { atomic_word.store(value, std::memory_order_release); }
extern "C" __attribute__((noinline)) void code_atomic(unsigned long value) { code_atomic_set(value); }
static __attribute__((noinline, used)) void code_hidden(unsigned long value) { code_testee::word = value; }
// clang-format on

int main() {
  code_testee::store(1);
  code_store(2);
  code_hidden(3);
  i(4);
  code_atomic(5);
  return 0;
}
