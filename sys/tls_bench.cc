// Finds a thread-local variable in a process with many libraries, with new files and with files
// seen before, compared with only reading its maps; and stops one thread for a moment, compared
// with the bare ptrace calls.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "sys/bench_target.h"
#include "sys/thread_stop.h"
#include "sys/tls_variable.h"

namespace ctxconf::sys {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kSlot = "ctx_test_slot";

// The path of a file next to this program.
std::string built(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

// Makes `count` copies of a library under different names.
class Libraries {
 public:
  Libraries(const std::string& library, std::size_t count) {
    std::string name = (std::filesystem::temp_directory_path() / "ctxconf-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    folder_ = name;
    for (std::size_t i = 0; i < count; ++i) {
      paths_.push_back((folder_ / ("library" + std::to_string(i) + ".so")).string());
      std::filesystem::copy_file(built(library), paths_.back());
    }
  }
  Libraries(const Libraries&) = delete;
  Libraries& operator=(const Libraries&) = delete;
  ~Libraries() { std::filesystem::remove_all(folder_); }
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::filesystem::path folder_;
  std::vector<std::string> paths_;
};

bool load(const std::vector<std::string>& libraries) {
  return std::ranges::all_of(libraries, [](const std::string& library) {
    return dlopen(library.c_str(), RTLD_NOW) != nullptr;
  });
}

bool bare_maps(pid_t pid) {
  const int fd = open(("/proc/" + std::to_string(pid) + "/maps").c_str(), O_RDONLY | O_CLOEXEC);
  static std::array<char, 65536> piece;
  std::size_t lines = 0;
  for (ssize_t n = 0; (n = read(fd, piece.data(), piece.size())) > 0;) {
    lines += static_cast<std::size_t>(std::count(piece.data(), piece.data() + n, '\n'));
  }
  close(fd);
  return lines > 0;
}

bool resolve(pid_t pid, ElfCache& cache, std::size_t definitions) {
  auto modules = modules_of(pid, cache);
  if (!modules || !modules->notes.empty()) return false;
  const auto found = find_tls_variable(*modules, kSlot);
  return found && found->size() == std::min<std::size_t>(definitions, 64);
}

// A piece of work that returns whether it succeeded.
struct Way {
  const char* name;
  std::function<bool()> run;
};

// Runs all ways in turn within each iteration; the first is the baseline for the others.
void compare(benchmark::State& state, const std::vector<Way>& ways) {
  std::vector<std::vector<double>> times(ways.size());
  std::size_t first = 0;
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const std::size_t which = (first + i) % ways.size();
      const auto begin = Clock::now();
      const bool good = ways[which].run();
      times[which].push_back(
          std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      if (!good) {
        state.SkipWithError(ways[which].name);
        return;
      }
    }
    ++first;
    state.SetIterationTime(times.back().back() / 1e6);
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    state.counters[std::string(ways[i].name) + "_us"] = median(times[i]);
  }
}

void compare_resolution(benchmark::State& state, const std::string& library, bool defines) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const Libraries libraries(library, count);
  const auto load_all = [&] { return load(libraries.paths()); };
  const BenchTarget first(load_all);
  const BenchTarget second(load_all);
  if (!first.is_prepared() || !second.is_prepared()) {
    state.SkipWithError("the libraries cannot be loaded");
    return;
  }
  const std::size_t definitions = defines ? count : 0;
  ElfCache cache;
  compare(state, {{"maps", [&] { return bare_maps(first.pid()); }},
                  {"cold",
                   [&] {
                     cache = {};
                     return resolve(first.pid(), cache, definitions);
                   }},
                  {"warm", [&] { return resolve(second.pid(), cache, definitions); }}});
}

// Libraries without TLS, as most are.
void BM_PlainLibraries(benchmark::State& state) {
  compare_resolution(state, "tls_plain.so", false);
}
// Each library defines the variable, the most work there can be. 64 are kept.
void BM_DefiningLibraries(benchmark::State& state) {
  compare_resolution(state, "tls_desc.so", true);
}

bool bare_stop(pid_t pid) {
  if (ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) != 0) return false;
  if (ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr) != 0) return false;
  int status = 0;
  if (waitpid(pid, &status, __WALL) != pid) return false;
  return ptrace(PTRACE_DETACH, pid, nullptr, nullptr) == 0;
}

bool our_stop(pid_t pid) {
  const auto stopped = ThreadStop::stop(pid, std::chrono::seconds(5));
  return stopped && stopped->thread_pointer();
}

void BM_StopThread(benchmark::State& state) {
  const BenchTarget target([] { return true; });
  compare(state, {{"bare", [&] { return bare_stop(target.pid()); }},
                  {"ours", [&] { return our_stop(target.pid()); }}});
}

BENCHMARK(BM_PlainLibraries)->Arg(500)->Iterations(51)->UseManualTime();
BENCHMARK(BM_DefiningLibraries)->Arg(500)->Iterations(51)->UseManualTime();
BENCHMARK(BM_StopThread)->Iterations(2001)->UseManualTime();

}  // namespace
}  // namespace ctxconf::sys

BENCHMARK_MAIN();
