// The program for tests of level steps of thread context: changes the context of a thread after a
// gate, in one unusual situation per first argument. Exits with 0 if everything happened as without
// ctxconf.
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <thread>

#include "conformance/observe/own_breakpoint.h"
#include "conformance/observe/target_record.h"

extern "C" {
__attribute__((visibility("default"))) __thread Record* volatile otel_thread_ctx_v1 = nullptr;
}

namespace {

alignas(8) Record first = {{1}, {1}, 1, 0, 0, {}};
alignas(8) Record second = {{2}, {2}, 1, 0, 0, {0, 1, 'x'}};

// Tells the observer that it waits, and waits for permission to continue.
void gate() {
  const pid_t tid = gettid();
  char c = 0;
  if (write(1, &tid, sizeof tid) != static_cast<ssize_t>(sizeof tid) || read(0, &c, 1) != 1) {
    _exit(95);
  }
}

void spin(int rounds) {
  for (int i = 0; i < rounds; ++i) __asm__ volatile("" ::: "memory");
}

volatile sig_atomic_t traps = 0;
void count_trap(int) { traps = traps + 1; }

void show(Record* record) { otel_thread_ctx_v1 = record; }

// A switch, an append and a detach, each after a gate.
[[gnu::noinline]] int changes() {
  gate();
  show(&first);
  gate();
  show(&second);
  gate();
  second.size = 3;
  gate();
  show(nullptr);
  gate();
  return 0;
}

// The second follows long after the first.
int apart() {
  gate();
  show(&first);
  spin(5000);
  show(&second);
  gate();
  return 0;
}

int twice() {
  gate();
  show(&first);
  gate();
  show(nullptr);
  gate();
  return 0;
}

// Stores to the flags of the record of this thread, which waits in a system call.
[[gnu::noinline]] int changed_elsewhere() {
  std::array<int, 2> go{};
  std::array<int, 2> done{};
  if (pipe(go.data()) != 0 || pipe(done.data()) != 0) return 1;
  std::thread([&] {
    char c = 0;
    if (read(go[0], &c, 1) != 1) _exit(96);
    *const_cast<volatile unsigned char*>(&first.flags) = 1;
    if (write(done[1], &c, 1) != 1) _exit(97);
  }).detach();
  gate();
  show(&first);
  *const_cast<volatile unsigned char*>(&first.flags) = 2;
  char c = 0;
  if (write(go[1], &c, 1) != 1 || read(done[0], &c, 1) != 1) return 2;
  gate();
  return 0;
}

int in_a_thread_that_ends() {
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        gate();
        show(&first);
        return nullptr;
      },
      nullptr);
  pthread_join(thread, nullptr);
  return 0;
}

// Uses one debug register of the thread; exits with 77 if that is not allowed.
int with_own_breakpoint() {
  static volatile std::uint64_t watched = 0;
  if (own_breakpoint(watched) < 0) return 77;
  gate();
  show(&first);
  gate();
  return 0;
}

int with_own_traps() {
  signal(SIGTRAP, count_trap);
  gate();
  show(&first);
  raise(SIGTRAP);
  gate();
  return traps == 1 ? 0 : 1;
}

// What happens between the store and the end of the change.
int behind_a_store(const std::string& what) {
  // Functions are resolved at their first call.
  signal(SIGTRAP, SIG_DFL);
  raise(0);
  syscall(SYS_getpid);
  gate();
  show(&first);
  if (what == "trap-behind") {
    signal(SIGTRAP, count_trap);
    raise(SIGTRAP);
    if (traps != 1) return 1;
  } else if (what == "exec-behind") {
    // Avoids what a sanitizer does before its execl().
    const char* const words[] = {"slot_target", "apart", nullptr};
    syscall(SYS_execve, "/proc/self/exe", words, environ);
    return 94;
  } else if (what == "killed-behind") {
    raise(SIGKILL);
  }
  gate();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "changes") return changes();
  if (mode == "apart") return apart();
  if (mode == "twice") return twice();
  if (mode == "changed-elsewhere") return changed_elsewhere();
  if (mode == "thread-ends") return in_a_thread_that_ends();
  if (mode == "own-breakpoint") return with_own_breakpoint();
  if (mode == "own-traps") return with_own_traps();
  if (mode.ends_with("-behind")) return behind_a_store(mode);
  return 98;
}
