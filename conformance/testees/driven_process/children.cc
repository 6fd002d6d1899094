#include "conformance/testees/driven_process/children.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>

namespace ctxconf::testees {

using adapter::refuse;

namespace {

constexpr Choice kBadChildren[] = {
    {"pctx.publish.singleton:fork", "forgets its context when it forks"},
    {"pctx.fork.child-has-none", "gives a child a copy of the context"},
    {"pctx.fork.child-publishes-own", "writes to the memory of the parent's context in a child"},
    {"pctx.fork.child-publishes-own:parent", "publishes the parent's Resource in a child"},
    {"pctx.fork.child-publishes-own:merged", "adds to a child what only its parent was given"},
    {"pctx.fork.child-publishes-own:pairs", "publishes the extra pairs of the parent in a child"},
    {"pctx.fork.child-publishes-own:field-2", "puts the Resource of a child into field 2"},
    {"pctx.fork.child-publishes-own:drop", "ignores withdrawals in a child"},
    {"pctx.fork.parent-untouched", "publishes the child's Resource in the parent"},
    {"pctx.fork.parent-untouched:drop", "withdraws in the parent when the child does"},
    {"pctx.fork.parent-untouched:update", "publishes the child's update in the parent"},
    {"pctx.fork.same-pid-namespace", "takes a child with the same pid for its parent"},
    {"pctx.fork.same-pid-namespace:silent", "publishes nothing in a child with the same pid"},
    {"pctx.exec.memfd-not-leaked", "hands a memfd to its next image"},
    {"pctx.exec.memfd-not-leaked:another", "hands a memfd to another program"},
};

constexpr Choice kGoodChildren[] = {
    {"no-nested-namespaces", "refuses children in a pid namespace"},
    {"vfork-child", "has an idle child that shares its memory"},
    {"child-of-its-own", "publishes another Resource in each child"},
    {"finds-no-program", "does not find the program that it is to execute"},
    {"child-publishes-again", "publishes the same Resource in each child"},
};

}  // namespace

const Choices kChildrenChoices{kBadChildren, kGoodChildren};

Reply Children::fork_child(const json& request) {
  const json& child = request.at("child");
  if (is_good("vfork-child") && child.at("do") == "idle") return share_memory();
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return refuse("failed", "pipe", errno);
  const bool nested = request.value("namespace", "") == "pid";
  if (nested && is_good("no-nested-namespaces")) {
    return refuse("rejected", "the child of process 1 is never process 1");
  }
  const pid_t parent = nested ? 0 : getpid();  // the parent of process 1 is in another namespace
  if (nested && unshare(CLONE_NEWPID) != 0) return refuse("failed", "unshare", errno);
  sdk_.before_fork();
  const pid_t pid = fork();
  sdk_.after_fork(child.at("do") == "publish");
  if (pid == 0) be_child(parent, ends, child);
  const int err = errno;
  close(ends[1]);
  pid_t last = 0;
  const bool told = pid > 0 && read(ends[0], &last, sizeof last) == sizeof last;
  close(ends[0]);
  if (pid < 0) return refuse("failed", "fork", err);
  children_.insert(pid);
  if (!told) return refuse("failed", "the child has ended");
  sdk_.child_is_ready();
  json reply = {{"child_pid", pid}};
  const bool deeper = child.at("do") == "fork";
  if (deeper) reply["grandchild_pid"] = last;
  auto taken = with_taken(deeper ? child.at("child") : child, json::object());
  if (taken) reply.update(*taken);
  return reply;
}

void Children::be_child(pid_t parent, const std::array<int, 2>& ends, const json& child) const {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  loop_.leave_channel();
  const pid_t self = getpid();
  if (child.at("do") == "fork") {
    const pid_t pid = fork();
    if (pid == 0) be_child(self, ends, child.at("child"));
    if (pid < 0) _exit(1);
  } else {
    sdk_.in_child(child);
    if (write(ends[1], &self, sizeof self) != sizeof self) _exit(1);
  }
  close(ends[0]);
  close(ends[1]);
  for (;;) ::pause();
}

Reply Children::share_memory() {
  constexpr std::size_t kStack = std::size_t{64} << 10U;
  stacks_.emplace_back(kStack);
  const auto idle = [](void*) -> int {
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    for (;;) syscall(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
  };
  const pid_t pid = clone(idle, stacks_.back().data() + kStack, CLONE_VM | SIGCHLD, nullptr);
  if (pid < 0) return refuse("failed", "clone", errno);
  children_.insert(pid);
  return json{{"child_pid", pid}};
}

}  // namespace ctxconf::testees
