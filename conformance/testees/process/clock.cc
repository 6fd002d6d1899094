// Cases about the clocks of timestamps.
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

void good_wall_clock() {
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), now_ns(CLOCK_REALTIME));
  hold(r);
}

void good_time_namespace() {
  if (unshare(CLONE_NEWTIME) != 0) cannot_be_shown("unshare(CLONE_NEWTIME)");
  const int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
  constexpr std::string_view one_day = "boottime 86400 0\n";
  if (fd < 0 || write(fd, one_day.data(), one_day.size()) != std::ssize(one_day)) {
    cannot_be_shown("/proc/self/timens_offsets");
  }
  close(fd);
  // The new namespace is for children.
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    publish_and_hold(usual_message());
    return;
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) die("waitpid");
  std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

void good_monotonic_clock() {
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), now_ns(CLOCK_MONOTONIC));
  hold(r);
}

void bad_timestamp_later() {
  std::uint64_t last = 0;
  const auto next = [&last] {
    const std::uint64_t now = boot_ns();
    return last = now == last ? last + 1 : now;
  };
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), next());
  for (int i = 1; i <= 2; ++i) {
    pause();
    update(r, numbered_payload(i), next());
  }
  hold(r);
}

constexpr Case kBadClock[] = {
    {"pctx.header.timestamp-clock", "reads the wall clock", good_wall_clock},
    {"pctx.update.timestamp-later", "adds one only to an equal reading", bad_timestamp_later},
};

constexpr Case kGoodClock[] = {
    {"wall-clock", "takes the timestamp from the wall clock", good_wall_clock},
    {"monotonic-clock", "takes the timestamp from CLOCK_MONOTONIC", good_monotonic_clock},
    {"time-namespace", "publishes in a child in another time namespace", good_time_namespace},
};

}  // namespace

const Topic kClockCases{kBadClock, kGoodClock};

}  // namespace ctxconf::testees
