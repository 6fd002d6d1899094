// The program for tests of level stores: a publication in one unusual situation per first argument.
// Exits with 0 if everything happened as without ctxconf.
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/observe/own_breakpoint.h"

namespace {

constexpr std::size_t kPage = 4096;
constexpr const char* kSelf = "/proc/self/exe";

struct Header {
  volatile std::uint64_t signature;
  volatile std::uint32_t version;
  volatile std::uint32_t size;
  volatile std::uint64_t timestamp;
  volatile std::uint64_t payload;
};

std::uint64_t signature() {
  std::uint64_t out = 0;
  memcpy(&out, "OTEL_CTX", sizeof out);
  return out;
}

std::uint64_t now() {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

void name(void* at) { syscall(SYS_prctl, 0x53564d41, 0, at, kPage, "OTEL_CTX"); }

Header* map_memfd() {
  const int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kPage) != 0) _exit(90);
  void* at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  close(fd);
  if (at == MAP_FAILED) _exit(91);
  madvise(at, kPage, MADV_DONTFORK);
  return static_cast<Header*>(at);
}

void* map_anonymous(std::size_t size = kPage) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) _exit(92);
  return at;
}

// A message with one unknown field, of `n` bytes; never the same twice.
std::uint64_t message(std::size_t n) {
  static char fill = 'a';
  auto* bytes = static_cast<char*>(malloc(n));
  memset(bytes, fill++, n);
  bytes[0] = 0x7a;
  bytes[1] = static_cast<char>(n - 2);
  return reinterpret_cast<std::uint64_t>(bytes);
}

constexpr std::uint32_t kMessage = 40;

// Five stores.
void fill(Header* h) {
  const auto payload = message(kMessage);
  h->signature = signature();
  h->version = 2;
  h->size = kMessage;
  h->payload = payload;
  h->timestamp = now();
}

// Four stores.
void update(Header* h) {
  const auto payload = message(kMessage);
  h->timestamp = 0;
  h->size = kMessage;
  h->payload = payload;
  h->timestamp = now();
}

Header* publish() {
  Header* h = map_memfd();
  fill(h);
  name(h);
  return h;
}

volatile sig_atomic_t traps = 0;
void count_trap(int) { traps = traps + 1; }

int updates(int count) {
  Header* h = publish();
  for (int i = 0; i < count; ++i) {
    update(h);
    name(h);
  }
  return 0;
}

volatile char* payload_of(const Header* h) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what the field holds
  return reinterpret_cast<volatile char*>(h->payload);
}

// The last byte of the payload changes after its timestamp was stored.
[[gnu::noinline]] int late_payload() {
  Header* h = publish();
  update(h);
  payload_of(h)[kMessage - 1] = '!';
  return 0;
}

int barriers() {
  Header* h = publish();
  h->timestamp = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
#if defined(__x86_64__)
  __asm__ volatile("mfence" ::: "memory");
#endif
  std::atomic_ref(*const_cast<std::uint64_t*>(&h->timestamp)).exchange(now());
  return 0;
}

[[gnu::noinline]] int rep_payload() {
  Header* h = publish();
  update(h);
#if defined(__x86_64__)
  const char* from = "overlaid";
  volatile char* to = payload_of(h) + 4;
  long n = 8;
  __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(n) : : "memory");
#else
  for (int i = 4; i < 12; ++i) payload_of(h)[i] = '!';
#endif
  return 0;
}

void spin(int rounds) {
  for (int i = 0; i < rounds; ++i) __asm__ volatile("" ::: "memory");
}

// Another thread holds it for a while.
void wait_for_a_lock() {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static std::atomic<bool> locked = false;
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        pthread_mutex_lock(&lock);
        locked = true;
        usleep(20'000);
        pthread_mutex_unlock(&lock);
        return nullptr;
      },
      nullptr);
  while (!locked) sched_yield();
  pthread_mutex_lock(&lock);
  pthread_mutex_unlock(&lock);
  pthread_join(thread, nullptr);
}

// The signal comes so often that a single-stepping observer never leaves its handler.
void storm(bool on) {
  signal(SIGALRM, count_trap);
  const itimerval often{{0, on ? 100 : 0}, {0, on ? 100 : 0}};
  setitimer(ITIMER_REAL, &often, nullptr);
}

// What can happen between the stores of an update.
int in_zero(const std::string& what) {
  Header* h = publish();
  h->timestamp = 0;
  if (what == "signals-in-zero") {
    signal(SIGUSR1, count_trap);
    for (int i = 0; i < 10; ++i) raise(SIGUSR1);
    if (traps != 10) return 1;
  } else if (what == "fork-in-zero") {
    const pid_t pid = fork();
    if (pid == 0) _exit(3);
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 3) return 1;
  } else if (what == "thread-in-zero") {
    pthread_t thread;
    pthread_create(&thread, nullptr, [](void*) -> void* { return nullptr; }, nullptr);
    pthread_join(thread, nullptr);
  } else if (what == "sleep-in-zero") {
    const timespec pause{0, 50'000'000};
    nanosleep(&pause, nullptr);
  } else if (what == "lock-in-zero") {
    wait_for_a_lock();
  } else if (what == "storm-in-zero") {
    storm(true);
    spin(100'000);
    storm(false);
  } else if (what == "trap-in-zero") {
    signal(SIGTRAP, count_trap);
    raise(SIGTRAP);
    if (traps != 1) return 1;
  } else if (what == "exec-in-zero") {
    execl(kSelf, "store_target", "updates", "1", static_cast<char*>(nullptr));
    return 1;
  } else if (what == "killed-in-zero") {
    raise(SIGKILL);
  } else {
    spin(1'000'000);
  }
  h->timestamp = now();
  spin(5000);
  return 0;
}

// Tells the observer that it waits, and waits for permission to continue.
void gate() {
  const pid_t tid = gettid();
  char c = 0;
  if (write(1, &tid, sizeof tid) != static_cast<ssize_t>(sizeof tid) || read(0, &c, 1) != 1) {
    _exit(95);
  }
}

void named_update(Header* h) {
  update(h);
  name(h);
}

// A byte of the payload changes and changes back before the update begins.
[[gnu::noinline]] int gated() {
  Header* h = publish();
  signal(SIGUSR1, count_trap);
  gate();
  raise(SIGUSR1);
  usleep(20'000);
  spin(2000);
  volatile char& last = payload_of(h)[kMessage - 1];
  const char same = last;
  last = '!';
  last = same;
  spin(2000);
  named_update(h);
  spin(5000);
  return traps == 1 ? 0 : 1;
}

// Does much work before its first update.
int gated_long() {
  Header* h = publish();
  gate();
  spin(100'000);
  named_update(h);
  spin(5000);
  gate();
  named_update(h);
  spin(5000);
  return 0;
}

// Another thread makes the update.
int gated_other() {
  Header* h = publish();
  gate();
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void* header) -> void* {
        named_update(static_cast<Header*>(header));
        spin(5000);
        return nullptr;
      },
      h);
  pthread_join(thread, nullptr);
  return 0;
}

// The update is a publication elsewhere.
int gated_elsewhere() {
  Header* h = publish();
  gate();
  Header* next = map_memfd();
  munmap(h, kPage);
  fill(next);
  name(next);
  return 0;
}

int unmap() {
  Header* h = publish();
  munmap(h, kPage);
  void* again =
      mmap(h, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (again != h) return 1;
  for (std::size_t i = 0; i < 4; ++i) static_cast<volatile std::uint64_t*>(again)[i] = 7;
  publish();
  return 0;
}

int map_before_size() {
  const int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  void* at = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED || ftruncate(fd, kPage) != 0) return 1;
  close(fd);
  madvise(at, kPage, MADV_DONTFORK);
  fill(static_cast<Header*>(at));
  name(at);
  return 0;
}

int remap() {
  Header* h = publish();
  void* location = map_anonymous();
  auto* moved =
      static_cast<Header*>(mremap(h, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, location));
  if (moved != location) return 1;
  update(moved);
  name(moved);
  return 0;
}

// Two threads store at the same time, each to words of its own.
int both_at_once(int count) {
  static Header* h = nullptr;
  static int rounds = 0;
  static std::atomic<int> ready = 0;
  h = publish();
  rounds = count;
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        for (int i = 1; i <= rounds; ++i) {
          for (++ready; ready < 2 * i;) sched_yield();
          h->payload = h->payload + 1;
        }
        return nullptr;
      },
      nullptr);
  for (int i = 1; i <= rounds; ++i) {
    for (++ready; ready < 2 * i;) sched_yield();
    h->size = h->size + 1;
  }
  pthread_join(thread, nullptr);
  return 0;
}

// A separate thread, created for that, stores each field.
int relay() {
  static Header* h = nullptr;
  static std::uint64_t payload = 0;
  h = map_memfd();
  payload = message(kMessage);
  const std::array<void* (*)(void*), 5> steps{
      [](void*) -> void* { return h->signature = signature(), nullptr; },
      [](void*) -> void* { return h->version = 2, nullptr; },
      [](void*) -> void* { return h->size = kMessage, nullptr; },
      [](void*) -> void* { return h->payload = payload, nullptr; },
      [](void*) -> void* { return h->timestamp = now(), nullptr; }};
  for (auto* const step : steps) {
    pthread_t thread;
    pthread_create(&thread, nullptr, step, nullptr);
    pthread_join(thread, nullptr);
  }
  name(h);
  return 0;
}

// Threads that sleep, then a publication; the last thread updates it.
int crowd(int count) {
  static Header* h = nullptr;
  static pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
  static int to_come = 0;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  std::vector<pthread_t> threads(static_cast<std::size_t>(count));
  to_come = count;
  pthread_mutex_lock(&hold);
  for (auto& t : threads) {
    const int made = pthread_create(
        &t, &small,
        [](void*) -> void* {
          pthread_mutex_lock(&hold);
          if (--to_come == 0) update(h);
          pthread_mutex_unlock(&hold);
          return nullptr;
        },
        nullptr);
    if (made != 0) return 93;
  }
  h = publish();
  pthread_mutex_unlock(&hold);
  for (auto& t : threads) pthread_join(t, nullptr);
  name(h);
  return 0;
}

int with_own_traps() {
  struct sigaction action{};
  action.sa_handler = count_trap;
  sigaction(SIGTRAP, &action, nullptr);
  Header* h = publish();
  raise(SIGTRAP);
  update(h);
  name(h);
  return traps == 1 ? 0 : 1;
}

int with_blocked_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  return updates(1);
}

// The child stops and continues in the middle of an update.
int stopped_and_continued() {
  const pid_t child = fork();
  if (child == 0) {
    Header* h = publish();
    const auto payload = message(kMessage);
    h->timestamp = 0;
    raise(SIGSTOP);
    h->payload = payload;
    h->timestamp = now();
    name(h);
    _exit(9);
  }
  int status = 0;
  if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) return 1;
  kill(child, SIGCONT);
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 2;
  return WEXITSTATUS(status) == 9 ? 0 : 3;
}

// The kernel stores `size` bytes.
bool store_by(const std::string& call, volatile void* to, const void* from, std::size_t size) {
  void* const buffer = const_cast<void*>(to);
  const auto wanted = static_cast<ssize_t>(size);
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return false;
  const int file = memfd_create("data", MFD_CLOEXEC);
  if (write(ends[1], from, size) != wanted || write(file, from, size) != wanted) return false;
  iovec part{buffer, size};
  const ssize_t got = call == "read"       ? read(ends[0], buffer, size)
                      : call == "pread64"  ? pread(file, buffer, size, 0)
                      : call == "recvfrom" ? recv(ends[0], buffer, size, 0)
                      : call == "longer"   ? read(ends[0], buffer, 2 * size)
                                           : readv(ends[0], &part, 1);
  for (const int fd : {ends[0], ends[1], file}) close(fd);
  return got == wanted;
}

int by_the_kernel(const std::string& call) {
  Header* h = publish();
  const std::uint64_t later = now();
  h->timestamp = 0;
  if (!store_by(call, &h->timestamp, &later, sizeof later)) return 1;
  name(h);
  return 0;
}

// The whole update is made of calls.
int gated_kernel() {
  Header* h = publish();
  const std::uint64_t zero = 0;
  const std::uint64_t later = now();
  gate();
  if (!store_by("read", &h->timestamp, &zero, sizeof zero)) return 1;
  if (!store_by("read", &h->timestamp, &later, sizeof later)) return 2;
  name(h);
  spin(5000);
  return 0;
}

int by_a_child_that_shares_memory() {
  Header* h = publish();
  const pid_t child = vfork();  // NOLINT(bugprone-unsafe-functions)
  if (child == 0) {
    h->timestamp = 0;
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  h->timestamp = now();
  name(h);
  return 0;
}

// A thread that waits for its vfork child cannot be stopped.
int beside_vfork() {
  static std::array<int, 2> ready{};
  static std::array<int, 2> go_on{};
  if (pipe(ready.data()) != 0 || pipe(go_on.data()) != 0) return 95;
  pthread_t parent;
  const int made = pthread_create(
      &parent, nullptr,
      [](void*) -> void* {
        const pid_t child = vfork();  // NOLINT(bugprone-unsafe-functions)
        if (child == 0) {
          char byte = 0;
          close(go_on[1]);
          const bool ok = write(ready[1], &byte, 1) == 1 && read(go_on[0], &byte, 1) == 0;
          _exit(ok ? 0 : 1);
        }
        waitpid(child, nullptr, 0);
        return nullptr;
      },
      nullptr);
  if (made != 0) return 93;
  char byte = 0;
  if (read(ready[0], &byte, 1) != 1) return 95;
  for (int n = 0; n < 2; ++n) {
    Header* h = publish();
    if (n == 0) munmap(h, kPage);
  }
  close(go_on[1]);
  pthread_join(parent, nullptr);
  return 0;
}

// The child has a copy of the header, without MADV_DONTFORK.
int forked() {
  Header* h = publish();
  madvise(h, kPage, MADV_DOFORK);
  const pid_t child = fork();
  if (child == 0) {
    update(h);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  update(h);
  name(h);
  return 0;
}

int anonymous() {
  // Unrelated memory of a runtime, before and after.
  auto* other = static_cast<volatile std::uint64_t*>(map_anonymous());
  madvise(const_cast<std::uint64_t*>(other), kPage, MADV_DONTFORK);
  other[0] = 0x1234;
  auto* h = static_cast<Header*>(map_anonymous());
  madvise(h, kPage, MADV_DONTFORK);
  h->version = 2;
  h->size = kMessage;
  h->payload = message(kMessage);
  h->signature = signature();
  auto* third = static_cast<volatile std::uint64_t*>(map_anonymous());
  madvise(const_cast<std::uint64_t*>(third), kPage, MADV_DONTFORK);
  third[0] = 0x1234;
  h->timestamp = now();
  name(h);
  return 0;
}

// The message has a page of its own, which gets the same advice after the header.
int anonymous_with_payload() {
  auto* h = static_cast<Header*>(map_anonymous());
  madvise(h, kPage, MADV_DONTFORK);
  auto* payload = static_cast<volatile char*>(map_anonymous());
  madvise(const_cast<char*>(payload), kPage, MADV_DONTFORK);
  for (std::size_t i = 0; i < kMessage; ++i) payload[i] = i == 1 ? kMessage - 2 : 0x7a;
  h->signature = signature();
  h->version = 2;
  h->size = kMessage;
  h->payload = reinterpret_cast<std::uint64_t>(payload);
  h->timestamp = now();
  name(h);
  return 0;
}

// Uses one debug register of the thread; exits with 77 if that is not allowed.
int with_own_breakpoint() {
  static volatile std::uint64_t watched = 0;
  const int fd = own_breakpoint(watched);
  if (fd < 0) return 77;
  updates(1);
  watched = 1;
  std::uint64_t count = 0;
  const auto n = read(fd, &count, sizeof count);
  return n == static_cast<ssize_t>(sizeof count) && count == 1 ? 0 : 1;
}

int only_named() {
  auto* h = static_cast<Header*>(map_anonymous());
  fill(h);
  name(h);
  update(h);
  name(h);
  return 0;
}

int advises_only() {
  for (int i = 0; i < 200; ++i) {
    auto* page = static_cast<volatile std::uint64_t*>(map_anonymous());
    madvise(const_cast<std::uint64_t*>(page), kPage, MADV_DONTFORK);
    page[0] = 0x1234567812345678;
    page[1] = 1;
  }
  return 0;
}

int republished() {
  Header* first = publish();
  Header* second = publish();
  first->timestamp = 0;
  update(second);
  name(second);
  return 0;
}

// The thread sleeps, ends or computes while the timestamp is zero.
int zero_for_a_while(const std::string& how) {
  Header* h = publish();
  const auto zero = [h] { h->timestamp = 0; };
  if (how == "ends") {
    std::thread(zero).join();
  } else {
    zero();
  }
  const auto begin = std::chrono::steady_clock::now();
  if (how == "sleeps") std::this_thread::sleep_for(std::chrono::milliseconds(600));
  while (how == "computes" &&
         std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(600)) {
  }
  h->timestamp = now();
  name(h);
  return 0;
}

// Builds the message after the zero, in memory that is mapped after it; or before it, in memory
// that was never touched; or copies it from elsewhere.
int prepared_late(const std::string& where) {
  Header* h = publish();
  std::uint64_t payload = 0;
  const auto prepare = [&](void* at) {
    memset(at, 'x', kMessage);
    static_cast<char*>(at)[0] = 0x7a;
    static_cast<char*>(at)[1] = kMessage - 2;
    payload = reinterpret_cast<std::uint64_t>(at);
  };
  void* untouched = map_anonymous();
  if (where == "early") prepare(untouched);
  static const char constant[kMessage + 1] = "z&a message that is part of the program.";
  // What is copied after the zero.
  std::vector<std::pair<const void*, std::size_t>> sources;
  if (where == "constant") sources.emplace_back(constant, kMessage);
  if (where == "shared" || where == "pieces") {
    char* other = static_cast<char*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
             MAP_ANONYMOUS | (where == "shared" ? MAP_SHARED : MAP_PRIVATE), -1, 0));
    prepare(other);
    payload = 0;
    memmove(other + 1024, other + kMessage - 4, 4);
    sources.emplace_back(other, kMessage - 4);
    sources.emplace_back(other + 1024, 4);
    memset(other + kMessage - 4, 0, 4);
  }
  h->timestamp = 0;
  if (where == "untouched") prepare(untouched);
  if (where == "unmapped") prepare(map_anonymous());
  if (payload == 0) payload = reinterpret_cast<std::uint64_t>(untouched);
  for (const auto& [from, size] : sources) {
    memcpy(untouched, from, size);
    untouched = static_cast<char*>(untouched) + size;
  }
  h->payload = payload;
  h->timestamp = now();
  name(h);
  return 0;
}

// A message in a page that nobody fills.
int withheld() {
  void* page = map_anonymous();
  const auto fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  uffdio_register range{.range = {.start = reinterpret_cast<std::uint64_t>(page), .len = kPage},
                        .mode = UFFDIO_REGISTER_MODE_MISSING,
                        .ioctls = 0};
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0) {
    return 77;
  }
  Header* h = map_memfd();
  fill(h);
  h->payload = reinterpret_cast<std::uint64_t>(page);
  name(h);
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const std::string text = argc > 2 ? argv[2] : "";
  const int number = atoi(text.c_str());
  if (mode == "updates") return updates(number);
  if (mode == "exit-in-zero") return publish()->timestamp = 0, 0;
  if (mode == "late-payload") return late_payload();
  if (mode == "barriers") return barriers();
  if (mode == "rep-payload") return rep_payload();
  if (mode.ends_with("-zero")) return in_zero(mode);
  if (mode == "gated") return gated();
  if (mode == "gated-long") return gated_long();
  if (mode == "gated-other") return gated_other();
  if (mode == "gated-elsewhere") return gated_elsewhere();
  if (mode == "gated-kernel") return gated_kernel();
  if (mode == "unmap") return unmap();
  if (mode == "map-before-size") return map_before_size();
  if (mode == "remap") return remap();
  if (mode == "both-at-once") return both_at_once(number);
  if (mode == "relay") return relay();
  if (mode == "crowd") return crowd(number);
  if (mode == "own-traps") return with_own_traps();
  if (mode == "blocked") return with_blocked_signals();
  if (mode == "stopped") return stopped_and_continued();
  if (mode == "kernel") return by_the_kernel(text);
  if (mode == "vfork") return by_a_child_that_shares_memory();
  if (mode == "beside-vfork") return beside_vfork();
  if (mode == "fork") return forked();
  if (mode == "anonymous") return anonymous();
  if (mode == "anonymous-with-payload") return anonymous_with_payload();
  if (mode == "own-breakpoint") return with_own_breakpoint();
  if (mode == "only-named") return only_named();
  if (mode == "advises-only") return advises_only();
  if (mode == "republished") return republished();
  if (mode == "withheld") return withheld();
  if (mode == "prepared") return prepared_late(text);
  if (mode == "zero") return zero_for_a_while(text);
  if (mode == "exec") {
    publish();
    execl(kSelf, "store_target", "updates", "0", static_cast<char*>(nullptr));
    return 94;
  }
  return 98;
}
