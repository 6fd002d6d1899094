// The cost of observation for the program. A program that publishes a context and then works
// measures each figure, alone and under record_wrap, in turns.
//   wrap_bench [ROUNDS]        medians of ROUNDS (default 11) and their ratio to alone
//   wrap_bench rate [ROUNDS]   only the stores per second
// Both programs stay on one CPU to measure stores per second; otherwise on any.
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "abi/process_header.h"
#include "conformance/observe/stores.h"
#include "conformance/observe/wrap.h"
#include "sys/spawn.h"
#include "sys/tracer.h"
#include "sys/trampoline_file.h"

namespace ctxconf::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kUpdates = 2000;
constexpr std::uint64_t kStoresOfAnUpdate = 4;
constexpr std::uint64_t kSearchedUpdates = StoreLimits{}.copies;
static_assert((kUpdates + kSearchedUpdates) * kStoresOfAnUpdate < kMaxStores);

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(1);
}

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

void stay_on_one_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
}

// ---- the observed program

// The header, in a page with no other data.
volatile std::uint64_t* publish() {
  static const std::array<std::uint8_t, 12> payload = {0x0a, 0};
  const int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, 4096) != 0) die("memfd");
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (page == MAP_FAILED) die("mmap");
  close(fd);
  if (madvise(page, 4096, MADV_DONTFORK) != 0) die("madvise");
  auto* words = static_cast<volatile std::uint64_t*>(page);
  abi::ProcessHeader header{};
  header.signature = abi::kSignature;
  header.version = abi::kVersion;
  header.payload_size = 2;
  std::array<std::uint64_t, 4> image{};
  static_assert(sizeof image == sizeof header);
  std::memcpy(image.data(), &header, sizeof header);
  words[0] = image[0];
  words[1] = image[1];
  words[3] = reinterpret_cast<std::uint64_t>(payload.data());
  words[2] = 1;
  prctl(0x53564d41, 0, page, 4096, "OTEL_CTX");
  return words;
}

double arithmetic() {
  constexpr int kTimes = 20'000'000;
  std::uint64_t value = 1;
  const auto begin = Clock::now();
  for (int i = 0; i < kTimes; ++i) {
    value = value * 6364136223846793005U + 1442695040888963407U;
    asm volatile("" : "+r"(value));
  }
  return ns_since(begin) / kTimes;
}

double stores_beside(volatile std::uint64_t* header) {
  constexpr int kTimes = 20'000'000;
  const auto begin = Clock::now();
  for (int i = 0; i < kTimes; ++i) header[4] = static_cast<std::uint64_t>(i);
  return ns_since(begin) / kTimes;
}

double copy_16k() {
  constexpr int kTimes = 20'000;
  static std::array<char, 16384> from;
  static std::array<char, 16384> to;
  const auto begin = Clock::now();
  for (int i = 0; i < kTimes; ++i) {
    std::memcpy(to.data(), from.data(), to.size());
    asm volatile("" ::"r"(to.data()) : "memory");
  }
  return ns_since(begin) / kTimes;
}

// A round trip between two threads on one CPU is two switches.
double context_switch() {
  constexpr int kTimes = 5'000;
  std::array<int, 2> there{};
  std::array<int, 2> back{};
  if (pipe(there.data()) != 0 || pipe(back.data()) != 0) die("pipe");
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  stay_on_one_cpu();
  std::thread other([&] {
    char byte = 0;
    while (read(there[0], &byte, 1) == 1) {
      if (write(back[1], &byte, 1) != 1) return;
    }
  });
  char byte = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < kTimes; ++i) {
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) die("ping");
  }
  const double ns = ns_since(begin) / (2.0 * kTimes);
  close(there[1]);
  other.join();
  for (const int fd : {there[0], back[0], back[1]}) close(fd);
  sched_setaffinity(0, sizeof before, &before);
  return ns;
}

double thread_creation() {
  constexpr int kTimes = 300;
  const auto begin = Clock::now();
  for (int i = 0; i < kTimes; ++i) std::thread([] {}).join();
  return ns_since(begin) / kTimes;
}

int work(const char* path) {
  volatile std::uint64_t* header = publish();
  std::ofstream out(path);
  out << "arithmetic " << arithmetic() << "\nstores-beside-the-header " << stores_beside(header)
      << "\nmemcpy-16-KiB " << copy_16k() << "\ncontext-switch " << context_switch()
      << "\nthread-create-and-join " << thread_creation() << "\n";
  return 0;
}

void update(volatile std::uint64_t* header, std::uint64_t times) {
  const std::uint64_t payload = header[3];
  for (std::uint64_t i = 0; i < times; ++i) {
    header[2] = 0;
    header[1] = header[1];
    header[3] = payload;
    header[2] = i + 2;
  }
}

// For the first updates, ctxconf also searches where their message was prepared.
int updates(const char* path) {
  stay_on_one_cpu();
  volatile std::uint64_t* header = publish();
  const auto begin = Clock::now();
  update(header, kSearchedUpdates);
  const double searched = ns_since(begin) / static_cast<double>(kSearchedUpdates);
  const auto then = Clock::now();
  update(header, kUpdates);
  std::ofstream(path) << "store "
                      << ns_since(then) / static_cast<double>(kUpdates * kStoresOfAnUpdate)
                      << "\nsearched-update " << searched << "\n";
  return 0;
}

// ---- around it

using Figures = std::map<std::string, double>;

Figures read_figures(const std::string& path) {
  Figures out;
  std::ifstream in(path);
  std::string name;
  double ns = 0;
  while (in >> name >> ns) out[name] = ns;
  if (out.empty()) {
    std::fprintf(stderr, "wrap_bench: the program printed no figures\n");
    std::exit(1);
  }
  return out;
}

struct How {
  const char* name;
  bool wrapped;
  bool stores;
  bool lifetime;
};
constexpr std::array<How, 4> kHows = {{{"alone", false, false, false},
                                       {"syscalls", true, false, false},
                                       {"publication", true, true, false},
                                       {"lifetime", true, true, true}}};

Figures run(const std::string& self, const How& how, const char* what, const std::string& path) {
  std::remove(path.c_str());
  const std::vector<std::string> argv = {self, what, path};
  if (!how.wrapped) {
    const pid_t pid = fork();
    if (pid == 0) {
      execl(self.c_str(), self.c_str(), what, path.c_str(), nullptr);
      _exit(127);
    }
    waitpid(pid, nullptr, 0);
    return read_figures(path);
  }
  const auto trampoline = sys::find_trampoline();
  if (!trampoline) die("trampoline");
  WrapOptions options;
  options.argv = argv;
  options.trampoline = *trampoline;
  options.stores = how.stores;
  options.watch_lifetime = how.lifetime;
  Timeline timeline;
  if (const auto done = record_wrap(options, timeline); !done) {
    std::fprintf(stderr, "wrap_bench: %s\n", sys::to_string(done.error()).c_str());
    std::exit(1);
  }
  return read_figures(path);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void costs(const std::string& self, const std::string& path, int rounds) {
  std::map<std::string, std::array<std::vector<double>, kHows.size()>> all;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t h = 0; h < kHows.size(); ++h) {
      for (const auto& [name, ns] : run(self, kHows[h], "work", path)) all[name][h].push_back(ns);
    }
  }
  fmt::print("{:<28}{:>12}", "ns, and times alone", "alone");
  for (std::size_t h = 1; h < kHows.size(); ++h) fmt::print("{:>20}", kHows[h].name);
  fmt::print("\n");
  for (const auto& [name, by_how] : all) {
    const double alone = median(by_how[0]);
    fmt::print("{:<28}{:>12.2f}", name, alone);
    for (std::size_t h = 1; h < kHows.size(); ++h) {
      // Compares neighbours in time: the speed of the machine changes.
      std::vector<double> ratios;
      for (std::size_t i = 0; i < by_how[h].size(); ++i) {
        ratios.push_back(by_how[h][i] / by_how[0][i]);
      }
      fmt::print("{:>12.2f} ({:>4.2f}x)", median(by_how[h]), median(ratios));
    }
    fmt::print("\n");
  }
}

// The least that a tracer can do at each store: read which register hit, and the 32 bytes.
double bare_loop() {
  const pid_t pid = fork();
  if (pid < 0) die("fork");
  static std::array<volatile std::uint64_t, 4> header;
  if (pid == 0) {
    stay_on_one_cpu();
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    for (std::uint64_t i = 0; i < kUpdates; ++i) {
      header[2] = 0;
      header[1] = header[1];
      header[3] = i;
      header[2] = i + 2;
    }
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  for (unsigned i = 0; i < 4; ++i) {
    const auto offset = offsetof(user, u_debugreg) + i * sizeof(long);
    if (ptrace(PTRACE_POKEUSER, pid, offset, &header[i]) != 0) die("POKEUSER");
  }
  // Four eight-byte write watchpoints, each enabled for the thread.
  unsigned long control = 0;
  for (unsigned i = 0; i < 4; ++i) control |= 1UL << (2 * i) | 0b1001UL << (16 + 4 * i);
  const auto debug_control = offsetof(user, u_debugreg) + 7 * sizeof(long);
  if (ptrace(PTRACE_POKEUSER, pid, debug_control, control) != 0) die("POKEUSER");
  const auto begin = Clock::now();
  std::uint64_t stops = 0;
  while (ptrace(PTRACE_CONT, pid, nullptr, nullptr) == 0 && waitpid(pid, &status, 0) == pid &&
         WIFSTOPPED(status)) {
    ++stops;
    const auto hit = ptrace(PTRACE_PEEKUSER, pid, offsetof(user, u_debugreg) + 6 * sizeof(long), 0);
    if ((hit & 15) == 0) die("a stop without a hit");
    std::array<std::uint64_t, 4> bytes{};
    iovec here{bytes.data(), sizeof bytes};
    iovec there{const_cast<std::uint64_t*>(header.data()), sizeof bytes};
    if (process_vm_readv(pid, &here, 1, &there, 1, 0) != sizeof bytes) die("process_vm_readv");
  }
  if (stops != kUpdates * kStoresOfAnUpdate) die("stops were lost");
  return ns_since(begin) / static_cast<double>(stops);
}

void rate(const std::string& self, const std::string& path, int rounds) {
  stay_on_one_cpu();
  std::vector<double> bare;
  std::vector<double> recorded;
  std::vector<double> ratios;
  std::vector<double> searched;
  for (int round = 0; round < rounds; ++round) {
    bare.push_back(1e9 / bare_loop());
    auto figures = run(self, kHows[3], "update", path);
    recorded.push_back(1e9 / figures["store"]);
    searched.push_back(figures["searched-update"] / 1000);
    ratios.push_back(recorded.back() / bare.back());
  }
  fmt::print("stores a second, on one CPU: bare loop {:.0f}, recorded {:.0f}; {:.2f} of the bare\n",
             median(bare), median(recorded), median(ratios));
  fmt::print("each of the first {} updates, searched for its message: {:.0f} us\n",
             kSearchedUpdates, median(searched));
}

}  // namespace
}  // namespace ctxconf::conformance

int main(int argc, char** argv) {
  using namespace ctxconf::conformance;
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "work" && argc == 3) return work(argv[2]);
  if (mode == "update" && argc == 3) return updates(argv[2]);
  const bool only_rate = mode == "rate";
  const int at = only_rate ? 2 : 1;
  const int rounds = argc > at ? std::atoi(argv[at]) : 11;
  if (rounds <= 0) {
    std::fprintf(stderr, "usage: wrap_bench [rate] [ROUNDS]\n");
    return 2;
  }
  std::array<char, 4096> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) <= 0) return 1;
  std::string path = "/tmp/wrap_bench_XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) return 1;
  close(fd);
  if (!only_rate) costs(self.data(), path, rounds);
  rate(self.data(), path, rounds);
  std::remove(path.c_str());
  return 0;
}
