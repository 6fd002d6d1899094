// What the tests of Child and Tracer run: the first argument selects a behaviour. Exits with 0 (or
// the documented code) if everything happened as without a tracer.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>

namespace {

constexpr const char* kSelf = "/proc/self/exe";

[[noreturn]] void exec_self(const char* mode, const char* argument) {
  execl(kSelf, "trace_target", mode, argument, static_cast<char*>(nullptr));
  _exit(99);
}

int exit_code_of(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

int exec_chain(int left) {
  if (left > 0) exec_self("exec-chain", std::to_string(left - 1).c_str());
  return 5;
}

int fork_exec(int count) {
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) exec_self("exit", "3");
    if (exit_code_of(pid) != 3) return 1;
  }
  return 0;
}

// The kernel reports this as it reports vfork.
int wait_for_a_copy() {
  const long pid = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) _exit(3);
  return exit_code_of(static_cast<pid_t>(pid)) == 3 ? 0 : 1;
}

// A vfork child that only execs; the C++ compiler must not see more of it.
int vfork_exec() {
  const pid_t pid = vfork();  // NOLINT(bugprone-unsafe-functions)
  if (pid == 0) {
    execl(kSelf, "trace_target", "exit", "3", static_cast<char*>(nullptr));
    _exit(99);
  }
  return exit_code_of(pid) == 3 ? 0 : 1;
}

int threads(int count) {
  std::atomic<int> sum = 0;
  for (int done = 0; done < count;) {
    pthread_t made[8];
    int n = 0;
    for (; n < 8 && done + n < count; ++n) {
      pthread_create(
          &made[n], nullptr,
          [](void* p) -> void* {
            ++*static_cast<std::atomic<int>*>(p);
            return nullptr;
          },
          &sum);
    }
    for (int i = 0; i < n; ++i) pthread_join(made[i], nullptr);
    done += n;
  }
  return sum == count ? 0 : 1;
}

int exec_in_thread() {
  pthread_t thread;
  for (int i = 0; i < 3; ++i) {
    pthread_create(&thread, nullptr, [](void*) -> void* { return pause(), nullptr; }, nullptr);
  }
  pthread_create(&thread, nullptr, [](void*) -> void* { exec_self("exit", "6"); }, nullptr);
  while (true) pause();
}

// One thread forks as fast as it can while another one execs.
int exec_against_fork(int left) {
  pthread_t thread;
  static std::atomic<bool> forked = false;
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        while (true) {
          const pid_t pid = fork();
          if (pid == 0) _exit(0);
          forked = true;
          waitpid(pid, nullptr, 0);
        }
      },
      nullptr);
  while (!forked) sched_yield();
  if (left > 0) exec_self("exec-against-fork", std::to_string(left - 1).c_str());
  exec_self("exit", "7");
}

int stop_and_continue() {
  const pid_t pid = fork();
  if (pid == 0) {
    raise(SIGSTOP);
    _exit(9);
  }
  int status = 0;
  if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) return 1;
  if (WSTOPSIG(status) != SIGSTOP) return 2;
  // It must stay stopped: nothing may have resumed it unnoticed.
  const timespec pause{0, 50'000'000};
  nanosleep(&pause, nullptr);
  if (waitpid(pid, &status, WNOHANG) != 0) return 3;
  kill(pid, SIGCONT);
  if (waitpid(pid, &status, WCONTINUED) != pid) return 4;
  if (WIFCONTINUED(status) && waitpid(pid, &status, 0) != pid) return 5;
  return WIFEXITED(status) && WEXITSTATUS(status) == 9 ? 0 : 6;
}

volatile sig_atomic_t seen_signals = 0;
void count_signal(int) { seen_signals = seen_signals + 1; }

void handle(int signo) {
  struct sigaction action{};
  action.sa_handler = count_signal;
  action.sa_flags = SA_RESTART;
  sigaction(signo, &action, nullptr);
}

int own_sigtrap() {
  handle(SIGTRAP);
  raise(SIGTRAP);
#if defined(__x86_64__)
  __asm__ volatile("int3");
  return seen_signals == 2 ? 0 : 1;
#else
  return seen_signals == 1 ? 0 : 1;
#endif
}

// Real-time signals are queued: each must arrive exactly once.
int signal_storm(int count) {
  handle(SIGRTMIN);
  const pid_t target = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; i < count; ++i) {
      while (sigqueue(target, SIGRTMIN, {}) != 0 && errno == EAGAIN) sched_yield();
    }
    _exit(3);
  }
  if (exit_code_of(pid) != 3) return 1;
  while (seen_signals < count) usleep(1000);
  return seen_signals == count ? 0 : 2;
}

// Exits with the result of the call (0 or errno). argument: other prctl calls first.
int name_memory(int others) {
  for (int i = 0; i < others; ++i) prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // The upper half of the first argument is ignored.
  const long r = syscall(SYS_prctl, 0x153564d41, 0, page, 4096, "CTXCONF_TEST");
  return r == 0 ? 0 : errno;
}

using Words = volatile unsigned long;

void store_words(Words* w) {
  for (int i = 0; i < 4; ++i) w[i] = 1;
}

#if defined(__x86_64__)
bool has_vectors() { return __builtin_cpu_supports("avx") != 0; }

void store_vector(Words* w) {
  const unsigned long bytes[4] = {1, 2, 3, 4};
  __asm__ volatile("vmovdqu (%0), %%ymm0\n\tvmovdqu %%ymm0, (%1)\n\tvzeroupper"
                   :
                   : "r"(bytes), "r"(w)
                   : "xmm0", "memory");
}

void store_with_rep(Words* w) {
  const unsigned long bytes[4] = {1, 2, 3, 4};
  const void* from = bytes;
  void* to = const_cast<unsigned long*>(w);
  long n = 32;
  __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(n) : : "memory");
}

// The value differs from the expected one, so nothing is stored.
void fail_to_exchange(Words* w) {
  unsigned long expected = 5;
  __asm__ volatile("lock cmpxchgq %2, %1" : "+a"(expected), "+m"(w[1]) : "r"(9UL) : "memory");
}

#else
bool has_vectors() { return true; }

void store_vector(Words* w) {
  const unsigned long bytes[4] = {1, 2, 3, 4};
  __asm__ volatile("ldp q0, q1, [%0]\n\tstp q0, q1, [%1]"
                   :
                   : "r"(bytes), "r"(w)
                   : "v0", "v1", "memory");
}

// Of 32 bytes or more.
bool has_scalable_vectors() {
  return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0 &&
         (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) >= 32;
}

// How many bytes it stores is in the predicate, not in the instruction.
void store_scalable_vector(Words* w, int all) {
  const unsigned long values[4] = {1, 2, 3, 4};
  __asm__ volatile(
      ".arch_extension sve\n\tptrue p0.d, vl4\n\tld1d {z0.d}, p0/z, [%0]\n\t"
      "cbnz %w2, 1f\n\tptrue p0.d, vl2\n\t1: st1d {z0.d}, p0, [%1]"
      :
      : "r"(values), "r"(w), "r"(all)
      : "v0", "p0", "memory");
}

void add_exclusively(Words* at) {
  unsigned long value = 0;
  unsigned failed = 0;
  __asm__ volatile("1: ldaxr %0, [%2]\n\tadd %0, %0, #1\n\tstlxr %w1, %0, [%2]\n\tcbnz %w1, 1b"
                   : "=&r"(value), "=&r"(failed)
                   : "r"(at)
                   : "memory");
}

// The value differs from the expected one, so nothing is stored.
void fail_to_exchange_exclusively(Words* at) {
  unsigned long value = 0;
  unsigned failed = 0;
  __asm__ volatile(
      "1: ldaxr %0, [%2]\n\tcmp %0, #5\n\tb.ne 2f\n\tstlxr %w1, xzr, [%2]\n\tcbnz %w1, 1b\n\t"
      "2: clrex"
      : "=&r"(value), "=&r"(failed)
      : "r"(at)
      : "cc", "memory");
}

// Waits until another sets it to 0.
void lock(Words* at) {
  unsigned long value = 0;
  unsigned failed = 0;
  __asm__ volatile("1: ldaxr %0, [%2]\n\tcbnz %0, 1b\n\tstxr %w1, %3, [%2]\n\tcbnz %w1, 1b"
                   : "=&r"(value), "=&r"(failed)
                   : "r"(at), "r"(1UL)
                   : "memory");
}
#endif

void* store_in_thread(void* words) {
  store_words(static_cast<unsigned long*>(words));
  return nullptr;
}

bool is_blocked(int signo) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signo) == 1;
}

int store_between_own_traps(Words* w) {
  w[0] = 1;
  raise(SIGTRAP);
  w[1] = 1;
#if defined(__x86_64__)
  __asm__ volatile("int3");
  siginfo_t made_up{};
  made_up.si_code = 4;  // TRAP_HWBKPT
  syscall(SYS_rt_tgsigqueueinfo, getpid(), getpid(), SIGTRAP, &made_up);
  return seen_signals == 3 ? 0 : 1;
#else
  return seen_signals == 1 ? 0 : 1;
#endif
}

// With instructions that only this processor has. Returns the exit code; nothing if `how` names
// another way.
std::optional<int> store_natively(const std::string& how, Words* w) {
#if defined(__x86_64__)
  if (how == "rep") {
    store_with_rep(w);
    return 0;
  }
  if (how == "failed-exchange") {
    fail_to_exchange(w);
    return 0;
  }
#else
  if (how == "scalable-vector") {
    if (!has_scalable_vectors()) return 77;
    store_scalable_vector(w, 0);
    store_scalable_vector(w, 1);
    return 0;
  }
  if (how == "exclusive") {
    for (int i = 0; i < 3; ++i) add_exclusively(&w[1]);
    fail_to_exchange_exclusively(&w[2]);
    add_exclusively(&w[4]);
    return w[1] == 3 && w[4] == 1 ? 0 : 1;
  }
  if (how == "locked") {
    w[5] = 1;
    lock(&w[5]);
    return 0;
  }
#endif
  return std::nullopt;
}

// Announces 32 bytes with a prctl that names them, then stores to them in one way.
int stores(const std::string& how) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* w = static_cast<Words*>(page);
  pthread_t thread;
  if (how == "by-an-old-thread") {
    static std::atomic<bool> go = false;
    pthread_create(
        &thread, nullptr,
        [](void* words) -> void* {
          while (!go) sched_yield();
          return store_in_thread(words);
        },
        page);
    syscall(SYS_prctl, 0x53564d41, 0, page, 4096, "CTXCONF_TEST");
    go = true;
    pthread_join(thread, nullptr);
    return 0;
  }
  if (how == "without-end") {
    syscall(SYS_prctl, 0x53564d41, 0, page, 4096, "CTXCONF_TEST");
    while (true) store_words(w);
  }
  if (how == "own-sigtrap") handle(SIGTRAP);
  if (how == "ignored") signal(SIGTRAP, SIG_IGN);
  if (how == "blocked") {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
  }
  syscall(SYS_prctl, 0x53564d41, 0, page, 4096, "CTXCONF_TEST");
  if (how == "words") store_words(w);
  if (how == "vector") {
    if (!has_vectors()) return 77;
    store_vector(w);
  }
  if (how == "byte") *reinterpret_cast<volatile char*>(&w[2]) = 1;
  if (how == "beside") w[4] = 1;
  if (const auto code = store_natively(how, w)) return *code;
  if (how == "memcpy") {
    const unsigned long bytes[4] = {1, 2, 3, 4};
    memcpy(page, bytes, sizeof bytes);
  }
  if (how == "by-a-new-thread") {
    pthread_create(&thread, nullptr, store_in_thread, page);
    pthread_join(thread, nullptr);
  }
  if (how == "by-fork") {
    const pid_t pid = fork();
    if (pid == 0) {
      store_words(w);
      _exit(3);
    }
    return exit_code_of(pid) == 3 ? 0 : 1;
  }
  if (how == "by-vfork") {
    const pid_t pid = vfork();  // NOLINT(bugprone-unsafe-functions)
    if (pid == 0) {
      w[0] = 1;
      _exit(3);
    }
    return exit_code_of(pid) == 3 && w[0] == 1 ? 0 : 1;
  }
  if (how == "by-the-kernel") {
    int ends[2];
    if (pipe(ends) != 0 || write(ends[1], "12345678", 8) != 8 || read(ends[0], page, 8) != 8) {
      return 1;
    }
  }
  if (how == "exec") {
    w[0] = 1;
    exec_self("stores", "words");
  }
  if (how == "own-sigtrap") return store_between_own_traps(w);
  if (how == "blocked") {
    w[0] = 1;
    return is_blocked(SIGTRAP) ? 0 : is_blocked(SIGUSR1) ? 1 : 2;
  }
  if (how == "ignored") {
    w[0] = 1;
    return signal(SIGTRAP, SIG_DFL) == SIG_IGN ? 0 : 1;
  }
  return 0;
}

// Exits with the result of the call (a descriptor or errno).
int make_memfd() {
  const long r = syscall(SYS_memfd_create, "ctxconf", 0);
  return static_cast<int>(r >= 0 ? r : errno);
}

// Makes `count` memfds while signals keep arriving; 0 if it never had a child.
int childless(int count) {
  struct sigaction action{};
  action.sa_handler = count_signal;
  sigaction(SIGALRM, &action, nullptr);
  static volatile sig_atomic_t of_children = 0;
  signal(SIGCHLD, [](int) { of_children = 1; });
  const itimerval often{{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < count; ++i) {
    const long fd = syscall(SYS_memfd_create, "ctxconf", 0);
    if (fd != 3 || syscall(SYS_close, fd) != 0) return 1;
    if (waitpid(-1, nullptr, WNOHANG | __WALL) != -1 || errno != ECHILD) return 2;
  }
  while (seen_signals == 0) usleep(1000);
  return of_children != 0 ? 3 : 0;
}

// While signals keep interrupting it, each of `count` calls must fail with EACCES.
int refused_memfds(int count) {
  struct sigaction action{};
  action.sa_handler = count_signal;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 500}, {0, 500}};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int i = 0; i < count; ++i) {
    if (syscall(SYS_memfd_create, "ctxconf", 0) != -1 || errno != EACCES) return 1;
  }
  while (seen_signals == 0) usleep(1000);
  return 0;
}

// The whole seconds that the clock shows.
int seconds_since_boot() {
  timespec now{};
  if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) return errno;
  return static_cast<int>(now.tv_sec % 256);
}

// Calls the vDSO's function, found through the kernel's own copy of the auxiliary vector.
int seconds_by_vdso() {
  constexpr int kGetAuxv = 0x41555856;  // PR_GET_AUXV, Linux 6.4
  ElfW(auxv_t) variables[64] = {};
  if (prctl(kGetAuxv, variables, sizeof variables - sizeof variables[0], 0, 0) < 0) {
    const int fd = open("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
    const auto n = read(fd, variables, sizeof variables - sizeof variables[0]);
    close(fd);
    if (n <= 0) return 255;
  }
  const char* base = nullptr;
  for (const auto& v : variables) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the vector holds a number
    if (v.a_type == AT_SYSINFO_EHDR) base = reinterpret_cast<const char*>(v.a_un.a_val);
  }
  if (base == nullptr) return 254;
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(base);
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff);
  const ElfW(Dyn)* dynamic = nullptr;
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_DYNAMIC) continue;
    dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + segments[i].p_offset);
  }
  const ElfW(Sym)* symbols = nullptr;
  const char* names = nullptr;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_SYMTAB) {
      symbols = reinterpret_cast<const ElfW(Sym)*>(base + dynamic->d_un.d_ptr);
    }
    if (dynamic->d_tag == DT_STRTAB) names = base + dynamic->d_un.d_ptr;
  }
  if (symbols == nullptr || names == nullptr) return 253;
  // The names follow the symbols.
  for (const auto* s = symbols; reinterpret_cast<const char*>(s) < names; ++s) {
    const char* name = names + s->st_name;
    if (strcmp(name, "__vdso_clock_gettime") != 0 && strcmp(name, "__kernel_clock_gettime") != 0) {
      continue;
    }
    // NOLINTNEXTLINE(performance-no-int-to-ptr): code, and reached without its symbol
    const auto read_clock = reinterpret_cast<int (*)(clockid_t, timespec*)>(
        reinterpret_cast<std::uintptr_t>(base) + s->st_value);
    timespec now{};
    return read_clock(CLOCK_BOOTTIME, &now) == 0 ? static_cast<int>(now.tv_sec % 256) : 252;
  }
  return 251;
}

int failing_exec() {
  execl("/nonexistent/program", "x", static_cast<char*>(nullptr));
  return errno == ENOENT ? 0 : 1;
}

int main_exits_first() {
  pthread_t thread;
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        // Waits until the leader is a zombie.
        while (true) {
          char state = 0;
          if (FILE* f = fopen("/proc/self/stat", "r")) {
            if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
            fclose(f);
          }
          if (state == 'Z') exit(8);
          usleep(1000);
        }
      },
      nullptr);
  pthread_exit(nullptr);
}

// Every process forks until there were `limit` forks in total; then they all wait.
int bomb(int limit) {
  auto* made = static_cast<std::atomic<int>*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  while (made->fetch_add(1) < limit) {
    if (fork() < 0) sched_yield();
  }
  while (true) pause();
}

// Leaves a sleeping grandchild, in our process group or not.
int orphan(bool own_session, unsigned long clone_flags) {
  const long pid = syscall(SYS_clone, clone_flags | SIGCHLD, 0, 0, 0, 0);
  if (pid == 0) {
    if (own_session) setsid();
    while (true) pause();
  }
  printf("%ld\n", pid);
  fflush(stdout);
  return 0;
}

// What a program inherits besides environment and arguments.
int inheritance(const char* path) {
  FILE* out = fopen(path, "we");
  FILE* status = fopen("/proc/self/status", "re");
  DIR* fds = opendir("/proc/self/fd");
  if (out == nullptr || status == nullptr || fds == nullptr) _exit(1);
  char line[256];
  while (fgets(line, sizeof line, status) != nullptr) {
    if (strncmp(line, "Sig", 3) == 0 || strncmp(line, "NoNewPrivs", 10) == 0) fputs(line, out);
  }
  fclose(status);
  while (const dirent* entry = readdir(fds)) {
    const int fd = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(fds) && fd != fileno(out)) {
      char link[256] = {};
      if (readlinkat(dirfd(fds), entry->d_name, link, sizeof link - 1) < 0) _exit(1);
      fprintf(out, "fd %d%s\n", fd, strcmp(link, "/dev/null") == 0 ? " null" : "");
    }
  }
  fprintf(out, "PATH=%s\nEXTRA=%s\n", getenv("PATH"), getenv("CTXCONF_TEST_EXTRA"));
  fclose(out);
  return 0;
}

int big_file(const char* path) {
  const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  const std::string block(65536, 'x');
  for (int i = 0; i < 16; ++i) {
    if (write(fd, block.data(), block.size()) < 0) return 1;
  }
  return 0;
}

int chatter(int bytes) {
  const std::string line(1023, 'o');
  for (int i = 0; i < bytes / 1024; ++i) {
    puts(line.c_str());
    fprintf(stderr, "%s\n", line.c_str());
  }
  return 0;
}

int echo() {
  char line[4096];
  while (fgets(line, sizeof line, stdin) != nullptr) {
    fputs(line, stdout);
    fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const char* text = argc > 2 ? argv[2] : "";
  const int number = atoi(text);
  if (mode == "exit") return number;
  if (mode == "exec-chain") return exec_chain(number);
  if (mode == "fork-exec") return fork_exec(number);
  if (mode == "vfork") return vfork_exec();
  if (mode == "vfork-copy") return wait_for_a_copy();
  if (mode == "threads") return threads(number);
  if (mode == "exec-in-thread") return exec_in_thread();
  if (mode == "exec-against-fork") return exec_against_fork(number);
  if (mode == "kill-self") return raise(number), 1;
  if (mode == "stop-and-continue") return stop_and_continue();
  if (mode == "own-sigtrap") return own_sigtrap();
  if (mode == "signal-storm") return signal_storm(number);
  if (mode == "name-memory") return name_memory(number);
  if (mode == "stores") return stores(text);
  if (mode == "memfd") return make_memfd();
  if (mode == "childless") return childless(number);
  if (mode == "own-number") return getpid() == 1 && getppid() == 0 ? 0 : 1;
  if (mode == "refused-memfds") return refused_memfds(number);
  if (mode == "seconds") return seconds_since_boot();
  if (mode == "seconds-by-vdso") return seconds_by_vdso();
  if (mode == "failing-exec") return failing_exec();
  if (mode == "main-exits-first") return main_exits_first();
  if (mode == "bomb") return bomb(number);
  if (mode == "orphan") return orphan(false, 0);
  if (mode == "untraced-orphan") return orphan(true, CLONE_UNTRACED);
  if (mode == "inheritance") return inheritance(text);
  if (mode == "big-file") return big_file(text);
  if (mode == "chatter") return chatter(number);
  if (mode == "echo") return echo();
  if (mode == "sleep") {
    puts("ready");
    fflush(stdout);
    while (true) pause();
  }
  return 98;
}
