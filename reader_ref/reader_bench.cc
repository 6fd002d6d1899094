// One sample of one thread (stop, slot, record, attributes, resume) compared with the system calls
// that stop a thread and resume it. Both run in turn within each iteration; the result is the
// difference of their medians.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "abi/thread_record.h"
#include "reader_ref/thread_sample.h"

// Exported by this program, as a publisher does.
extern "C" {
[[gnu::visibility("default")]] thread_local const void* otel_thread_ctx_v1 = nullptr;
}

namespace ctxconf::reader {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kDeadline{1000};

struct Record {
  abi::ThreadRecordHead head{};
  std::array<std::byte, abi::kRecommendedRecordBytes - sizeof(abi::ThreadRecordHead)> area{};
};

void fill(Record& record, std::size_t entries) {
  record.head.trace_id.fill(1);
  record.head.span_id.fill(2);
  record.head.valid = abi::kRecordValid;
  abi::AttributeEncoder encoder(record.area);
  const std::array<std::byte, 28> value{};
  for (std::size_t i = 0; i < entries; ++i) encoder.append(static_cast<std::uint8_t>(i), value);
  record.head.attrs_data_size = static_cast<std::uint16_t>(encoder.size());
}

// A child with one thread and a record.
class Target {
 public:
  Target(bool spins, std::size_t entries) {
    std::array<int, 2> ready{};
    if (pipe(ready.data()) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      static Record record;
      fill(record, entries);
      otel_thread_ctx_v1 = &record;
      if (write(ready[1], "r", 1) != 1) _exit(1);
      while (true) {
        if (!spins) pause();
        benchmark::ClobberMemory();
      }
    }
    close(ready[1]);
    char c = 0;
    if (read(ready[0], &c, 1) != 1) abort();
    close(ready[0]);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class F>
double microseconds(F work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// The minimum: a tracer that waits for the stop.
bool stop_and_let_go(pid_t tid) {
  int status = 0;
  return ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) == 0 &&
         ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) == 0 &&
         waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status) &&
         ptrace(PTRACE_DETACH, tid, nullptr, nullptr) == 0;
}

void BM_Sample(benchmark::State& state) {
  const auto entries = static_cast<std::size_t>(state.range(1));
  const Target target(state.range(0) != 0, entries);
  sys::ElfCache files;
  const auto variable = find_thread_variable(target.pid(), files);
  if (!variable || variable->definitions.empty()) {
    state.SkipWithError("the variable was not found");
    return;
  }
  const sys::ProcessMemory memory(target.pid());
  bool good = true;
  const auto bare = [&] { good = stop_and_let_go(target.pid()) && good; };
  const auto sample = [&] {
    const auto taken = sample_thread(target.pid(), *variable, memory, Attributes::kRead, kDeadline);
    good = good && taken && taken->record && taken->record->state == RecordState::kValid &&
           taken->record->area.size() == entries * 30;
  };
  std::vector<double> bare_times;
  std::vector<double> sample_times;
  for ([[maybe_unused]] auto _ : state) {
    const bool swapped = bare_times.size() % 2 == 1;
    if (swapped) sample_times.push_back(microseconds(sample));
    bare_times.push_back(microseconds(bare));
    if (!swapped) sample_times.push_back(microseconds(sample));
    state.SetIterationTime(sample_times.back() / 1e6);
  }
  if (!good) {
    state.SkipWithError("a sample failed");
    return;
  }
  state.counters["bare_us"] = median(bare_times);
  state.counters["sample_us"] = median(sample_times);
  state.counters["ratio"] = state.counters["sample_us"] / state.counters["bare_us"];
}

// Asleep or running; without attributes and with 600 bytes of them.
BENCHMARK(BM_Sample)
    ->ArgNames({"running", "entries"})
    ->ArgsProduct({{0, 1}, {0, 20}})
    ->Iterations(2001)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// Only copying and parsing, from memory of this process.
void BM_Parse(benchmark::State& state) {
  RecordCopy copy;
  Record record;
  fill(record, 20);
  copy.head = record.head;
  copy.area.assign(record.area.begin(), record.area.begin() + record.head.attrs_data_size);
  KeyMap keys;
  for (int i = 0; i < 20; ++i) keys.push_back("key." + std::to_string(i));
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(parse_record(copy, keys));
}
BENCHMARK(BM_Parse);

}  // namespace
}  // namespace ctxconf::reader

BENCHMARK_MAIN();
