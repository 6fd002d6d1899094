// What it costs to sample the threads of a process, compared with a loop that stops each thread,
// copies the same bytes and resumes it, and does nothing else (`bare`). All ways run in turn within
// each iteration, each for several passes; the ratio is that of the median times of a pass.
//
// `loop` is sample_while(), where one pass follows the other in the tracing thread, and `sample` is
// sample_threads(), where each pass is handed over to it and waited for. `handed` is `bare` in
// another thread, handed over in the same way. `read` and `read_loop` are all of
// ProcessReader::read() and read_while() in a process that has not changed, with the list of
// threads and the parsed records.
//
// `cpu`: where the process and the reader run. 0: where the scheduler likes; 1: both on one
// processor; 2: on two.
#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "reader_ref/process_reader.h"
#include "sys/process.h"
#include "sys/thread_stop.h"
#include "sys/tracing_thread.h"

// Exported by this program, as a publisher does.
extern "C" {
[[gnu::visibility("default")]] thread_local const void* otel_thread_ctx_v1 = nullptr;
}

namespace ctxconf::reader {
namespace {

using Clock = std::chrono::steady_clock;
// On a busy machine a running thread stops when its turn comes.
constexpr std::chrono::seconds kDeadline{30};
constexpr std::chrono::hours kNeverAgain{1};
constexpr std::size_t kSmallStack = 64U << 10U;

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

// All threads publish it.
Record record;

// Field 2 says that there are thread contexts, with 20 names.
void publish_context() {
  opentelemetry::proto::processcontext::v1development::ProcessContext message;
  auto* schema = message.add_attributes();
  schema->set_key(std::string(abi::kSchemaVersionKey));
  schema->mutable_value()->set_string_value(std::string(abi::kThreadSchemaVersions[0]));
  auto* names = message.add_attributes();
  names->set_key(std::string(abi::kAttributeKeyMapKey));
  for (int i = 0; i < 20; ++i) {
    names->mutable_value()->mutable_array_value()->add_values()->set_string_value(
        "key." + std::to_string(i));
  }
  static const std::string payload = message.SerializeAsString();
  const int fd = memfd_create(abi::kMemfdName.data(), MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, 4096) != 0) _exit(1);
  void* const at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (at == MAP_FAILED) _exit(1);
  const abi::ProcessHeader header{abi::kSignature, abi::kVersion,
                                  static_cast<std::uint32_t>(payload.size()), 1,
                                  reinterpret_cast<std::uintptr_t>(payload.data())};
  std::memcpy(at, &header, sizeof header);
}

void* live(void* spins) {
  otel_thread_ctx_v1 = &record;
  while (true) {
    if (spins == nullptr) pause();
    benchmark::ClobberMemory();
  }
}

enum class Cpu : std::uint8_t { kAny, kSame, kOther };

// This thread, and what it starts, runs on one of the processors that it may use: the first or the
// last.
class OnProcessor {
 public:
  explicit OnProcessor(bool first) {
    CPU_ZERO(&before_);
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) abort();
    int at = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &before_) && (at < 0 || !first)) at = cpu;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(at, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) abort();
  }
  OnProcessor(const OnProcessor&) = delete;
  OnProcessor& operator=(const OnProcessor&) = delete;
  ~OnProcessor() { sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

// A child that publishes a context. All its threads have a record; they sleep or run.
class Target {
 public:
  Target(std::size_t threads, bool spins, std::size_t entries) {
    std::array<int, 2> ready{};
    if (pipe(ready.data()) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      fill(record, entries);
      publish_context();
      pthread_attr_t small;
      pthread_attr_init(&small);
      pthread_attr_setstacksize(&small, kSmallStack);
      for (std::size_t i = 1; i < threads; ++i) {
        pthread_t thread;
        if (pthread_create(&thread, &small, live, spins ? this : nullptr) != 0) _exit(1);
      }
      if (write(ready[1], "r", 1) != 1) _exit(1);
      live(spins ? this : nullptr);
    }
    close(ready[1]);
    char c = 0;
    if (read(ready[0], &c, 1) != 1) abort();
    close(ready[0]);
    threads_ = sys::thread_list(pid_).value();
    while (!all_are_ready()) usleep(1000);
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  ~Target() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  const std::vector<pid_t>& threads() const { return threads_; }

 private:
  bool all_are_ready() const {
    ReaderTools tools;
    ReaderOptions options;
    options.stop_deadline = kDeadline;
    options.stop_budget = 2 * kDeadline;
    const auto report = ProcessReader(pid_, options, tools).read();
    return report && std::ranges::all_of(report->threads, [](const ThreadReport& t) {
             return t.context.has_value();
           });
  }

  pid_t pid_ = 0;
  std::vector<pid_t> threads_;
};

// Times of passes one after the other.
class Times {
 public:
  void begin() { last_ = Clock::now(); }
  // Since the last call, or since begin().
  void add() {
    const auto now = Clock::now();
    microseconds_.push_back(std::chrono::duration<double, std::micro>(now - last_).count());
    last_ = now;
  }
  double last() const { return microseconds_.back(); }
  double median() {
    const auto middle =
        microseconds_.begin() + static_cast<std::ptrdiff_t>(microseconds_.size() / 2);
    std::nth_element(microseconds_.begin(), middle, microseconds_.end());
    return *middle;
  }

 private:
  Clock::time_point last_;
  std::vector<double> microseconds_;
};

bool copy(pid_t pid, const void* from, std::size_t size) {
  static std::array<std::byte, sizeof(Record)> to;
  const iovec ours{to.data(), size};
  const iovec theirs{const_cast<void*>(from), size};
  return process_vm_readv(pid, &ours, 1, &theirs, 1, 0) == static_cast<ssize_t>(size);
}

// The minimum: what a tracer has to call that waits for each stop. The thread pointer tells where
// the slot is; the address here is another one, which costs the same.
bool stop_read_and_resume(pid_t pid, const std::vector<pid_t>& threads, std::size_t attributes) {
  for (const pid_t tid : threads) {
    int status = 0;
    const bool stopped = ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) == 0 &&
                         ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr) == 0 &&
                         waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status) &&
                         sys::stopped_thread_pointer(tid);
    const bool copied = stopped && copy(pid, &record, sizeof(std::uint64_t)) &&
                        copy(pid, &record, sizeof record.head) &&
                        (attributes == 0 || copy(pid, &record.area, attributes));
    if (!copied || ptrace(PTRACE_DETACH, tid, nullptr, nullptr) != 0) return false;
  }
  return true;
}

// A thread that waits for work, does it and says so.
class OtherThread {
 public:
  explicit OtherThread(std::function<bool()> work) : work_(std::move(work)) {
    const auto run = [this] {
      for (begin_.wait(); !ends_; begin_.wait()) {
        good_ = work_();
        done_.happen();
      }
    };
    if (thread_.start(kOtherStack, run) != 0) abort();
  }
  OtherThread(const OtherThread&) = delete;
  OtherThread& operator=(const OtherThread&) = delete;
  ~OtherThread() {
    ends_ = true;
    begin_.happen();
  }
  bool work() {
    begin_.happen();
    return done_.wait_for(kDeadline) && good_;
  }

 private:
  static constexpr std::size_t kOtherStack = 256U << 10U;
  std::function<bool()> work_;
  sys::Event begin_;
  sys::Event done_;
  bool ends_ = false;
  bool good_ = false;
  sys::TracingThread thread_;
};

// Repeated in turn; the first is what the others are compared with.
struct Way {
  const char* name;
  std::function<bool(Times&)> run;  // the passes of one iteration
  Times times = {};
};

// Counters: the time of each way for each thread, and the ratio of the others to the first.
void compare(benchmark::State& state, std::vector<Way> ways, std::size_t threads) {
  bool good = true;
  std::size_t first = 0;
  for ([[maybe_unused]] auto _ : state) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      Way& way = ways[(first + i) % ways.size()];
      way.times.begin();
      good = way.run(way.times) && good;
    }
    ++first;
    state.SetIterationTime(ways[1].times.last() / 1e6);
  }
  if (!good) return state.SkipWithError("a sample failed");
  const double base = ways[0].times.median();
  for (Way& way : ways) {
    const double time = way.times.median();
    state.counters[std::string(way.name) + "_us"] = time / static_cast<double>(threads);
    if (&way != ways.data()) state.counters[std::string(way.name) + "_ratio"] = time / base;
  }
}

// Makes `passes` passes, as long as they succeed.
std::function<bool(Times&)> repeated(std::size_t passes, std::function<bool()> pass) {
  return [passes, pass = std::move(pass)](Times& times) {
    for (std::size_t i = 0; i < passes; ++i) {
      if (!pass()) return false;
      times.add();
    }
    return true;
  };
}

bool are_good(const Samples& samples, std::size_t entries) {
  return std::ranges::all_of(samples, [&](const auto& s) {
    return s && s->record && s->record->state == RecordState::kValid &&
           s->record->area.size() == entries * 30;
  });
}

bool is_good(const sys::Result<ProcessReport>& report, std::size_t threads, std::size_t entries) {
  return report && report->threads.size() == threads &&
         std::ranges::all_of(report->threads, [&](const ThreadReport& t) {
           return t.context && t.context->attributes.size() == entries;
         });
}

void BM_Threads(benchmark::State& state) {
  const auto threads = static_cast<std::size_t>(state.range(0));
  const auto entries = static_cast<std::size_t>(state.range(2));
  const auto cpu = static_cast<Cpu>(state.range(3));
  const auto passes = static_cast<std::size_t>(state.range(4));
  const bool pinned = cpu != Cpu::kAny;
  auto there = pinned ? std::make_optional<OnProcessor>(/*first=*/true) : std::nullopt;
  const Target target(threads, state.range(1) != 0, entries);
  there.reset();
  const auto here = pinned ? std::make_optional<OnProcessor>(cpu == Cpu::kSame) : std::nullopt;
  ReaderTools tools;
  const auto maps = sys::read_maps_text(target.pid());
  const auto variable = find_thread_variable(target.pid(), maps.value_or(""), tools.files);
  if (!variable || variable->definitions.empty()) {
    return state.SkipWithError("the variable was not found");
  }
  const sys::ProcessMemory memory(target.pid());
  const SamplePass pass{.variable = &*variable,
                        .memory = &memory,
                        .tids = target.threads(),
                        .limits = {.deadline = kDeadline}};
  const auto loop = [&](Times& times) {
    bool good = true;
    std::size_t asked = 0;
    sample_while(tools.stopper, [&](const Samples& last) -> std::optional<SamplePass> {
      good = good && are_good(last, entries);
      if (asked > 0) times.add();
      return good && asked++ < passes ? std::make_optional(pass) : std::nullopt;
    });
    return good;
  };
  const auto sample = [&] { return are_good(sample_threads(tools.stopper, pass), entries); };
  ReaderOptions options;
  options.relist = kNeverAgain;
  options.stop_deadline = kDeadline;
  options.stop_budget = 2 * kDeadline;
  ProcessReader reader(target.pid(), options, tools);
  const auto read = [&] { return is_good(reader.read(), threads, entries); };
  const auto read_loop = [&](Times& times) {
    bool good = true;
    std::size_t left = passes;
    reader.read_while([&](const auto& report) {
      good = good && is_good(report, threads, entries);
      times.add();
      return good && --left > 0;
    });
    return good;
  };
  const auto bare = [&] {
    return stop_read_and_resume(target.pid(), target.threads(), entries * 30);
  };
  OtherThread other([&] {
    sys::ignore_stop_signals();
    return bare();
  });
  if (!read()) return state.SkipWithError("the first read failed");
  compare(state,
          {{"bare", repeated(passes, bare)},
           {"loop", loop},
           {"sample", repeated(passes, sample)},
           {"handed", repeated(passes, [&] { return other.work(); })},
           {"read_loop", read_loop},
           {"read", repeated(passes, read)}},
          threads);
}

// Without the threads: `read` is ProcessReader::read_context() of a process that has not changed,
// compared with one copy of a header.
void BM_UnchangedContext(benchmark::State& state) {
  const Target target(static_cast<std::size_t>(state.range(0)), false, 0);
  ReaderTools tools;
  ReaderOptions options;
  options.relist = kNeverAgain;
  ProcessReader reader(target.pid(), options, tools);
  const auto bare = [&] { return copy(target.pid(), &record, abi::kHeaderBytes); };
  const auto read = [&] {
    const auto report = reader.read_context();
    return report && report->context;
  };
  compare(state, {{"bare", repeated(1, bare)}, {"read", repeated(1, read)}}, 1);
}

[[maybe_unused]] const bool kRegistered = [] {
  struct Case {
    std::int64_t threads, running, entries, passes, iterations;
    std::vector<Cpu> cpus;
  };
  const std::vector<Cpu> same = {Cpu::kSame};
  const std::vector<Cpu> same_and_other = {Cpu::kSame, Cpu::kOther};
  const Case cases[] = {
      {1, 0, 0, 20, 201, same},           {1, 0, 20, 20, 201, same_and_other},
      {1, 1, 20, 20, 51, same_and_other}, {10, 0, 20, 10, 51, same_and_other},
      {100, 0, 20, 1, 101, same},         {1000, 0, 20, 1, 31, same},
      {10000, 0, 20, 1, 7, same},         {1000, 0, 20, 1, 31, {Cpu::kAny}},
      {20, 1, 20, 1, 5, {Cpu::kAny}},
  };
  for (const Case& c : cases) {
    for (const Cpu cpu : c.cpus) {
      benchmark::RegisterBenchmark("BM_Threads", BM_Threads)
          ->ArgNames({"threads", "running", "entries", "cpu", "passes"})
          ->Args({c.threads, c.running, c.entries, static_cast<std::int64_t>(cpu), c.passes})
          ->Iterations(c.iterations)
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
    }
  }
  for (const std::int64_t threads : {1, 10000}) {
    benchmark::RegisterBenchmark("BM_UnchangedContext", BM_UnchangedContext)
        ->ArgName("threads")
        ->Arg(threads)
        ->Iterations(2001)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

// Only parsing, from memory of this process.
void BM_Parse(benchmark::State& state) {
  Record own;
  RecordCopy copied;
  fill(own, 20);
  copied.head = own.head;
  copied.area.assign(own.area.begin(), own.area.begin() + own.head.attrs_data_size);
  KeyMap keys;
  for (int i = 0; i < 20; ++i) keys.push_back("key." + std::to_string(i));
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(parse_record(copied, keys));
}
BENCHMARK(BM_Parse);

}  // namespace
}  // namespace ctxconf::reader

BENCHMARK_MAIN();
