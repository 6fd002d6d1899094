// The program for tests of turns: threads change their context continuously until something is in
// the file that is named last. The variable is in the library that is named first, and does not
// exist in threads that never use it.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "conformance/observe/target_record.h"

namespace {

using Exchange = void* (*)(void*);
std::atomic<bool> done = false;

// Enough work between two changes to keep them apart, and a rest: a single-stepped thread waits for
// a processor before each instruction.
void rest() {
  for (int i = 0; i < 2000; ++i) __asm__ volatile("" ::: "memory");
  usleep(1000);
}

void change_all_the_time(Exchange exchange, std::barrier<>& all_have_it) {
  alignas(8) std::array<Record, 2> records = {
      Record{{1}, {1}, 1, 0, 0, {}},
      Record{{2}, {2}, 1, 0, 0, {}},
  };
  exchange(nullptr);
  all_have_it.arrive_and_wait();
  for (unsigned i = 0; !done; ++i) {
    exchange(&records[i % 2]);
    rest();
  }
  exchange(nullptr);
}

void never_use_it() {
  while (!done) usleep(10'000);
}

bool is_empty(const char* path) {
  struct stat s = {};
  return stat(path, &s) == 0 && s.st_size == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) return 3;
  const auto exchange = reinterpret_cast<Exchange>(dlsym(library, "slot_exchange"));
  if (exchange == nullptr) return 4;
  alarm(110);
  const int busy = std::atoi(argv[3]);
  std::barrier<> all_have_it(busy);
  std::vector<std::thread> threads;
  for (int i = std::atoi(argv[2]); i > 0; --i) threads.emplace_back(never_use_it);
  for (int i = 0; i < busy; ++i)
    threads.emplace_back(change_all_the_time, exchange, std::ref(all_have_it));
  while (is_empty(argv[4])) usleep(10'000);
  done = true;
  for (auto& t : threads) t.join();
  return 0;
}
