// Discovery of one memfd among many mappings, compared with the simplest loop that could find it.
// Both run in turn within each iteration; the result is the ratio of their medians.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "sys/bench_target.h"
#include "sys/process.h"

namespace ctxconf::sys {
namespace {

constexpr const char* kMapCountFile = "/proc/sys/vm/max_map_count";
const std::vector<std::string> kPrefixes = {"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]",
                                            "/memfd:OTEL_CTX"};

std::int64_t max_map_count() {
  std::int64_t count = 0;
  std::ifstream(kMapCountFile) >> count;
  return count;
}

// Raises the limit of mappings while it exists, if it may.
class RaisedLimit {
 public:
  explicit RaisedLimit(std::int64_t needed) : before_(max_map_count()) {
    if (needed > before_) std::ofstream(kMapCountFile) << needed;
  }
  RaisedLimit(const RaisedLimit&) = delete;
  RaisedLimit& operator=(const RaisedLimit&) = delete;
  ~RaisedLimit() {
    if (max_map_count() != before_) std::ofstream(kMapCountFile) << before_;
  }

 private:
  std::int64_t before_;
};

// Makes `count` mappings with alternating permissions and a memfd in the middle.
bool make_mappings(std::size_t count) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* area = static_cast<char*>(mmap(nullptr, count * page, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (area == MAP_FAILED) return false;
  for (std::size_t i = 0; i < count; i += 2) {
    if (mprotect(area + i * page, page, PROT_READ) != 0) return false;
  }
  const int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  char* at = area + count / 2 * page;
  return fd >= 0 && ftruncate(fd, static_cast<off_t>(page)) == 0 &&
         mmap(at, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) == at;
}

struct Query {  // struct procmap_query of Linux 6.11
  std::uint64_t size, flags, at, begin, end, vma_flags, page_size, offset, inode;
  std::uint32_t dev_major, dev_minor, name_size, build_id_size;
  std::uint64_t name_at, build_id_at;
};

int open_maps(pid_t pid) {
  return open(("/proc/" + std::to_string(pid) + "/maps").c_str(), O_RDONLY | O_CLOEXEC);
}

std::size_t bare_query(pid_t pid, std::uint64_t flags) {
  const int fd = open_maps(pid);
  std::array<char, 4096> name;
  std::size_t hits = 0;
  Query q{};
  for (std::uint64_t next = 0;; next = q.end) {
    q = Query{};
    q.size = sizeof q;
    q.flags = flags;
    q.at = next;
    q.name_size = name.size();
    q.name_at = reinterpret_cast<std::uintptr_t>(name.data());
    if (ioctl(fd, _IOWR('f', 17, Query), &q) != 0) break;
    if (q.name_size > 15 && std::memcmp(name.data(), "/memfd:OTEL_CTX", 15) == 0) ++hits;
  }
  close(fd);
  return hits;
}

std::size_t bare_filtered_query(pid_t pid) {
  constexpr std::uint64_t flags =
      0x01 | 0x02 | 0x20 | 0x10;  // readable, writable, file-backed; or the next
  return bare_query(pid, flags);
}

std::size_t bare_complete_query(pid_t pid) {
  constexpr std::uint64_t flags = 0x10;  // covering or the next
  return bare_query(pid, flags);
}

// Misses a name that is split between two pieces: this is a lower bound, not a reader.
std::size_t bare_text(pid_t pid) {
  const int fd = open_maps(pid);
  static std::array<char, 65536> piece;
  std::size_t hits = 0;
  for (ssize_t n = 0; (n = read(fd, piece.data(), piece.size())) > 0;) {
    if (memmem(piece.data(), static_cast<std::size_t>(n), ":OTEL_CTX", 9) != nullptr) ++hits;
  }
  close(fd);
  return hits;
}

std::size_t ours_query(pid_t pid) {
  return find_memfd_mappings(pid, kPrefixes, MapSearch::kQuery).value().size();
}
std::size_t ours_text(pid_t pid) {
  return find_memfd_mappings(pid, kPrefixes, MapSearch::kText).value().size();
}
std::size_t ours_all(pid_t pid) { return find_all_mappings(pid, kPrefixes).value().size(); }

using Way = std::size_t (*)(pid_t);
using Clock = std::chrono::steady_clock;

double milliseconds(Way way, pid_t pid, bool& good) {
  const auto begin = Clock::now();
  good = way(pid) == 1 && good;
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void compare(benchmark::State& state, Way ours, const std::vector<Way>& floors) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const RaisedLimit limit(state.range(0) + 1000);
  const BenchTarget target([&] { return make_mappings(count); });
  if (!target.is_prepared()) {
    state.SkipWithError("vm.max_map_count forbids that many mappings");
    return;
  }
  std::vector<Way> ways = floors;
  ways.push_back(ours);
  std::vector<std::vector<double>> times(ways.size());
  bool good = true;
  std::size_t first = 0;
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const std::size_t which = (first + i) % ways.size();
      times[which].push_back(milliseconds(ways[which], target.pid(), good));
    }
    ++first;
    state.SetIterationTime(times.back().back() / 1000);
  }
  if (!good) {
    state.SkipWithError("the memfd was not found once");
    return;
  }
  double floor = 0;
  for (std::size_t i = 0; i < floors.size(); ++i) {
    const double ms = median(times[i]);
    floor = i == 0 ? ms : std::min(floor, ms);
    state.counters["floor" + std::to_string(i) + "_ms"] = ms;
  }
  state.counters["ours_ms"] = median(times.back());
  state.counters["ratio"] = median(times.back()) / floor;
}

void BM_MemfdByQuery(benchmark::State& state) { compare(state, ours_query, {bare_filtered_query}); }
void BM_MemfdByText(benchmark::State& state) {
  compare(state, ours_text, {bare_text, bare_complete_query});
}
void BM_AllMappings(benchmark::State& state) {
  compare(state, ours_all, {bare_text, bare_complete_query});
}

// Enough rounds for a median; the largest takes seconds.
void with(benchmark::internal::Benchmark* b, int mappings, int rounds) {
  b->Arg(mappings)->Iterations(rounds)->UseManualTime()->Unit(benchmark::kMillisecond);
}
void few(benchmark::internal::Benchmark* b) { with(b, 1'000, 301); }
void many(benchmark::internal::Benchmark* b) { with(b, 60'000, 51); }
void most(benchmark::internal::Benchmark* b) { with(b, 990'000, 15); }

BENCHMARK(BM_MemfdByQuery)->Apply(few);
BENCHMARK(BM_MemfdByQuery)->Apply(many);
BENCHMARK(BM_MemfdByQuery)->Apply(most);
BENCHMARK(BM_MemfdByText)->Apply(few);
BENCHMARK(BM_MemfdByText)->Apply(many);
BENCHMARK(BM_MemfdByText)->Apply(most);
BENCHMARK(BM_AllMappings)->Apply(few);
BENCHMARK(BM_AllMappings)->Apply(many);
BENCHMARK(BM_AllMappings)->Apply(most);

}  // namespace
}  // namespace ctxconf::sys

BENCHMARK_MAIN();
