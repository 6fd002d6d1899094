// Steps per second while a change is single-stepped, compared with a loop that only steps; both and
// their programs run on one processor. Seconds are CPU time, so that other work on the machine does
// not count; with `busy`, they are seconds of the clock, and a busy loop runs on the same
// processor.
//   step_bench [ROUNDS] [busy]
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "conformance/observe/wrap.h"

namespace {

using ctxconf::conformance::Timeline;
using ctxconf::conformance::WrapOptions;

// What this process and the programs that it has waited for have used.
double processor_seconds() {
  double out = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage used{};
    getrusage(who, &used);
    for (const timeval& t : {used.ru_utime, used.ru_stime}) {
      out += static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    }
  }
  return out;
}

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Seconds = double (*)();

class BusyLoop {
 public:
  BusyLoop() : pid_(fork()) {
    while (pid_ == 0) __asm__ volatile("" ::: "memory");
  }
  ~BusyLoop() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  BusyLoop(const BusyLoop&) = delete;
  BusyLoop& operator=(const BusyLoop&) = delete;

 private:
  pid_t pid_;
};

double bare(std::uint64_t steps, Seconds seconds) {
  const double begin = seconds();
  const pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    while (true) __asm__ volatile("" ::: "memory");
  }
  int status = 0;
  waitpid(pid, &status, 0);
  for (std::uint64_t i = 0; i < steps; ++i) {
    ptrace(PTRACE_SINGLESTEP, pid, nullptr, nullptr);
    waitpid(pid, &status, 0);
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return static_cast<double>(steps) / (seconds() - begin);
}

double recorded(bool steps, Seconds seconds, std::uint64_t& stepped) {
  WrapOptions o;
  o.argv = {std::string(CTXCONF_BIN_DIR) + "/store_target", "long-zero"};
  o.trampoline = std::string(CTXCONF_BIN_DIR) + "/ctxconf-trampoline";
  o.stores = true;
  o.steps = steps;
  Timeline timeline;
  const double begin = seconds();
  if (const auto r = record_wrap(o, timeline); !r) {
    fmt::print(stderr, "{}\n", ctxconf::sys::to_string(r.error()));
    std::exit(1);
  }
  const double out = seconds() - begin;
  stepped = 0;
  for (const auto& trace : timeline.processes.at(0).images.at(0).step_traces)
    stepped += trace.steps;
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  const bool busy = argc > 2 && std::string_view(argv[2]) == "busy";
  const Seconds seconds = busy ? clock_seconds : processor_seconds;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
  std::optional<BusyLoop> loop;
  if (busy) loop.emplace();
  std::vector<double> ratios;
  for (int i = 0; i < rounds; ++i) {
    std::uint64_t stepped = 0;
    std::uint64_t none = 0;
    const double without = recorded(false, seconds, none);
    const double with = recorded(true, seconds, stepped);
    const double ours = static_cast<double>(stepped) / (with - without);
    const double theirs = bare(stepped, seconds);
    ratios.push_back(ours / theirs);
    fmt::print("recorded {:.0f}/s, bare {:.0f}/s: {:.2f}\n", ours, theirs, ratios.back());
  }
  std::ranges::sort(ratios);
  fmt::print("median {:.2f}\n", ratios[ratios.size() / 2]);
  return 0;
}
