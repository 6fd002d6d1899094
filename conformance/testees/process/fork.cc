// Cases about fork, exec and tracing.
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

void bad_dontfork_before_header() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region({.advice = MADV_NORMAL});
  fill(r, payload);
  if (madvise(r.at, r.size, MADV_DONTFORK) != 0) die("madvise");
  name_and_hold(r);
}

void bad_dontfork() {
  // The kernel refuses this for a memfd, and nobody looks.
  publish_and_hold(usual_message(), {.advice = MADV_WIPEONFORK});
}

void bad_dontfork_partial() {
  const Region r = make_region({.size = 2 * page(), .advice = MADV_NORMAL});
  if (madvise(r.at + page(), page(), MADV_DONTFORK) != 0) die("madvise");
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

// Until it ends, its parent waits. They do not share memory: CLONE_VM is not among the flags.
pid_t fork_and_wait() {
  const long child = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child < 0) die("clone");
  return static_cast<pid_t>(child);
}

void bad_version_of_a_child() {
  const Region r = publish();
  const pid_t child = fork_and_wait();
  if (child == 0) {
    publish_version(3);
    return pause();
  }
  hold(r);
  reap(child);
}

void good_fork_child_keeps_parent_waiting() {
  const Region r = publish();
  const pid_t child = fork_and_wait();
  if (child == 0) {
    publish(message_with({pair("ctxconf.child", boolean(true))}));
    return pause();
  }
  pause();
  update(r, numbered_payload(1));
  hold(r);
  reap(child);
}

void good_dontfork_header_page() {
  const Region r = make_region({.size = 2 * page(), .advice = MADV_NORMAL});
  if (madvise(r.at, page(), MADV_DONTFORK) != 0) die("madvise");
  const Bytes bytes = message_with({pair("ctxconf.long", text(Bytes(page(), 'x')))});
  const Buffer payload{r.at + kHeaderSize, bytes.size()};
  copy_to(payload.at, bytes);
  publish_in(r, payload);
  hold(r);
}

void good_fields_before_dontfork() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region({.advice = MADV_NORMAL});
  set_fields(r, address_of(payload.at), payload.size);
  if (madvise(r.at, r.size, MADV_DONTFORK) != 0) die("madvise");
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void good_fork_idle_child() {
  const Region r = publish();
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) return wait_for_the_end();
  hold(r);
  reap(child);
}

void good_fork_child_publishes() {
  const Region r = publish();
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) return publish_and_hold(message_with({pair("ctxconf.child", boolean(true))}));
  hold(r);
  reap(child);
}

void good_traces_itself() {
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  publish_and_hold(usual_message());
}

void good_not_dumpable() {
  if (prctl(PR_SET_DUMPABLE, 0) != 0) die("prctl");
  errno = EACCES;
  if (geteuid() != 0) cannot_be_shown("reading what is not dumpable");
  publish_and_hold(usual_message());
}

void good_exec_self() {
  publish();
  pause();
  static char plain[] = "default";
  *options.case_name = plain;
  execv("/proc/self/exe", options.arguments);
  die("execv");
}

void good_launcher() {
  const Region r = publish();
  announce(r);
  pause();
  if (options.hold_to_eof) {
    execlp("cat", "cat", nullptr);
  } else {
    const auto seconds = std::to_string(options.hold_ms / 1000.0);
    execlp("sleep", "sleep", seconds.c_str(), nullptr);
  }
  die("execlp");
}

constexpr Case kBadFork[] = {
    {"pctx.fork.dontfork-before-header", "fills in the header, then gives the advice MADV_DONTFORK",
     bad_dontfork_before_header},
    {"pctx.fork.dontfork", "gives the advice MADV_WIPEONFORK instead", bad_dontfork},
    {"pctx.fork.dontfork:partial", "gives MADV_DONTFORK for the second of two pages",
     bad_dontfork_partial},
    {"pctx.header.version:clone-vfork",
     "a child with its own memory, for which its parent waits, publishes version 3",
     bad_version_of_a_child},
};

constexpr Case kGoodFork[] = {
    {"dontfork-header-page", "has a payload that goes on after the page with MADV_DONTFORK",
     good_dontfork_header_page},
    {"fields-before-dontfork", "stores all fields but the timestamp, then gives MADV_DONTFORK",
     good_fields_before_dontfork},
    {"fork-idle-child", "forks a child that does nothing", good_fork_idle_child},
    {"fork-child-publishes", "forks a child that publishes its own context",
     good_fork_child_publishes},
    {"fork-child-keeps-parent-waiting",
     "waits for a child with its own memory that publishes its own context",
     good_fork_child_keeps_parent_waiting},
    {"traces-itself", "asks to be traced, to find out whether it is", good_traces_itself},
    {"not-dumpable", "makes itself not dumpable", good_not_dumpable},
    {"exec-self", "publishes, executes itself, publishes again", good_exec_self},
    {"launcher", "publishes, then executes another program", good_launcher},
};

}  // namespace

const Topic kForkCases{kBadFork, kGoodFork};

}  // namespace ctxconf::testees
