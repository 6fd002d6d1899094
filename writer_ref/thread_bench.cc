// The cost of a thread context, in nanoseconds and instructions per call, for each way to access
// the slot. Counts instructions by single-stepping a child, because virtual machines often have no
// counter for them.
#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "writer_ref/thread_bench_kernel.h"

namespace ctxconf::writer {
namespace {

struct Build {
  const char* name;
  const Kernel* kernel;
};

const Kernel* load(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fprintf(stderr, "thread_bench: %s\n", dlerror());
    return nullptr;
  }
  return reinterpret_cast<decltype(&thread_kernel)>(dlsym(handle, "thread_kernel"))();
}

double nanoseconds(Operation operation, const KernelInput& input) {
  constexpr int calls = 200'000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) {
    operation(input);
    asm volatile("" ::: "memory");
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / calls;
}

// Instructions between two stops of the child; raising the second stop costs the same in each case.
long steps(Operation operation, const KernelInput& input) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    operation(input);  // the first access of a thread may set up its block
    raise(SIGSTOP);
    operation(input);
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  long count = 0;
  waitpid(child, &status, 0);
  do {
    ++count;
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0) break;
    waitpid(child, &status, 0);
  } while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return count;
}

int run() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(std::max(sched_getcpu(), 0)), &one);
  sched_setaffinity(0, sizeof one, &one);

  const std::array<Build, 5> builds = {{{"local-exec", thread_kernel()},
                                        {"initial-exec", load(CTXCONF_KERNEL_IE)},
                                        {"TLSDESC", load(CTXCONF_KERNEL_DESC)},
                                        {"general-dyn", load(CTXCONF_KERNEL_GD)},
                                        {"calls", load(CTXCONF_KERNEL_CALLS)}}};
  otel_thread_ctx_record record;
  const KernelInput input{&record, {1, 2, 3}, {4, 5}, {"GET", "/cart"}, {3, 5}};
  otel_thread_ctx_begin_inline(&record, input.trace_id.data(), input.span_id.data(), 1);

  printf("ns per call in a loop (instructions beyond those of the empty call)\n");
  printf("%-24s", "");
  for (const auto& build : builds) printf(" %16s", build.name);
  printf("\n");
  std::array<std::array<double, builds.size()>, kOperations.size()> ns;
  for (auto& row : ns) row.fill(std::numeric_limits<double>::infinity());
  for (int round = 0; round < 40; ++round) {
    for (std::size_t op = 0; op < kOperations.size(); ++op) {
      for (std::size_t b = 0; b < builds.size(); ++b) {
        if (builds[b].kernel == nullptr) return 1;
        ns[op][b] = std::min(ns[op][b], nanoseconds((*builds[b].kernel)[op], input));
      }
    }
  }
  for (std::size_t op = 0; op < kOperations.size(); ++op) {
    printf("%-24s", kOperations[op]);
    for (std::size_t b = 0; b < builds.size(); ++b) {
      const auto& kernel = *builds[b].kernel;
      const long instructions = op == 0 ? 0 : steps(kernel[op], input) - steps(kernel[0], input);
      printf("  %8.2f (%4ld)", ns[op][b], instructions);
    }
    printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace ctxconf::writer

int main() { return ctxconf::writer::run(); }
