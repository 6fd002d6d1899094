// An update, compared with what the protocol requires of every update: the boot-time clock and one
// naming call.
#include <benchmark/benchmark.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <string>

#include "writer_ref/otel_ctx.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

namespace {

void BM_ClockAndName(benchmark::State& state) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const char empty_resource[] = {0x0a, 0x00};
  otel_ctx_info info{};
  if (otel_ctx_publish(empty_resource, sizeof empty_resource, nullptr) == OTEL_CTX_OK) {
    otel_ctx_get_info(&info);  // the naming call costs what it costs for a mapping of this kind
  }
  void* const at = std::bit_cast<void*>(info.header);
  if (at == nullptr) state.SkipWithError("cannot publish");
  for (auto _ : state) {
    timespec now{};
    benchmark::DoNotOptimize(clock_gettime(CLOCK_BOOTTIME, &now));
    benchmark::DoNotOptimize(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, page, "OTEL_CTX"));
  }
  otel_ctx_drop(nullptr);
}
BENCHMARK(BM_ClockAndName);

void BM_Update(benchmark::State& state) {
  const std::string payload(static_cast<std::size_t>(state.range(0)), 'x');
  if (otel_ctx_publish(payload.data(), payload.size(), nullptr) != OTEL_CTX_OK) {
    state.SkipWithError("cannot publish");
  }
  for (auto _ : state) {
    if (otel_ctx_update(payload.data(), payload.size(), nullptr) != OTEL_CTX_OK) {
      state.SkipWithError("cannot update");
    }
  }
  otel_ctx_drop(nullptr);
}
BENCHMARK(BM_Update)->Arg(64)->Arg(512)->Arg(4096)->Arg(65536)->Arg(1 << 20);

}  // namespace

BENCHMARK_MAIN();
