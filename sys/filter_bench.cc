// The cost of a system call that the filter of a traced program allows: without a filter, with a
// filter that allows everything, and with ours. Each case runs in its own thread, because a filter
// cannot be removed. Then, if strace is installed, the same call without our filter in a program
// that strace watches for the calls of a publication: with strace's own filter (--seccomp-bpf) and
// without.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "sys/seccomp_filter.h"

namespace ctxconf::sys {
namespace {

enum class Under { kNothing, kAllowAll, kOurs };

void install(Under what) {
  if (what == Under::kNothing) return;
  std::vector<sock_filter> filter = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  if (what == Under::kOurs) filter = trace_filter({.reads_to_header = true});
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) !=
          0) {
    std::perror("seccomp");
    std::abort();
  }
}

// Never traced by the filter; its number alone decides.
void get_parent(benchmark::State& state, Under what) {
  std::thread([&] {
    install(what);
    for (auto _ : state) benchmark::DoNotOptimize(syscall(SYS_getppid));
  }).join();
}

// Its arguments decide, so the filter has to check them.
void give_advice(benchmark::State& state, Under what) {
  std::thread([&] {
    install(what);
    for (auto _ : state) benchmark::DoNotOptimize(madvise(nullptr, 0, MADV_NORMAL));
  }).join();
}

// The same, into a buffer where no header begins.
void read_byte(benchmark::State& state, Under what) {
  std::thread([&] {
    alignas(4096) static char page[4096];
    const int file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    install(what);
    for (auto _ : state) benchmark::DoNotOptimize(read(file, page + kHeaderOffsets, 1));
    close(file);
  }).join();
}

BENCHMARK_CAPTURE(get_parent, alone, Under::kNothing);
BENCHMARK_CAPTURE(get_parent, allow_all, Under::kAllowAll);
BENCHMARK_CAPTURE(get_parent, ours, Under::kOurs);
BENCHMARK_CAPTURE(give_advice, alone, Under::kNothing);
BENCHMARK_CAPTURE(give_advice, allow_all, Under::kAllowAll);
BENCHMARK_CAPTURE(give_advice, ours, Under::kOurs);
BENCHMARK_CAPTURE(read_byte, alone, Under::kNothing);
BENCHMARK_CAPTURE(read_byte, allow_all, Under::kAllowAll);
BENCHMARK_CAPTURE(read_byte, ours, Under::kOurs);

}  // namespace
}  // namespace ctxconf::sys

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const bool watched = std::getenv("UNDER_STRACE") != nullptr;
  benchmark::RunSpecifiedBenchmarks();
  if (watched || std::system("command -v strace >/dev/null") != 0) return 0;
  for (const char* how : {"-f --seccomp-bpf", "-f"}) {
    std::printf("\nunder strace %s\n", how);
    std::fflush(stdout);
    const std::string command = std::string("UNDER_STRACE=1 strace -o /dev/null -e ") +
                                "trace=memfd_create,ftruncate,mmap,mremap,madvise,prctl,execve " +
                                how + " " + argv[0] +
                                " --benchmark_filter=get_parent/alone 2>/dev/null | tail -1";
    if (std::system(command.c_str()) != 0) return 1;
  }
  return 0;
}
