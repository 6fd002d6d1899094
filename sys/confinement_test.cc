#include "sys/confinement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "sys/confined_child.h"

namespace ctxconf::sys {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kInContainer =
    "Name:\tctxconf\nTracerPid:\t0\nUid:\t1000\t65532\t65532\t65532\n"
    "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
    "NoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n";
constexpr std::string_view kAsRoot =
    "Name:\tctxconf\nTracerPid:\t77\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n";

Confinement in_container(std::string_view yama = "", std::string_view apparmor = "") {
  return Confinement::from(kInContainer, yama, apparmor, "pid:[4026532001]", "user:[4026531837]");
}
Confinement as_root(std::string_view yama = "") {
  return Confinement::from(kAsRoot, yama, "", "pid:[4026531836]", "user:[4026531837]");
}

TEST(Confinement, ReadsWhatTheKernelSays) {
  const Confinement c = in_container("1\n", "docker-default (enforce)\n");
  EXPECT_EQ(c.user, 65532);
  EXPECT_FALSE(c.traces_any_user);
  EXPECT_FALSE(c.is_traced);
  EXPECT_EQ(c.seccomp_filters, 1);
  EXPECT_EQ(c.yama_scope, 1);
  EXPECT_EQ(c.apparmor, "docker-default (enforce)");
  EXPECT_TRUE(c.own_pid_namespace);
  EXPECT_FALSE(c.own_user_namespace);
  const Confinement root = as_root();
  EXPECT_EQ(root.user, 0);
  EXPECT_TRUE(root.traces_any_user);
  EXPECT_TRUE(root.is_traced);
  EXPECT_EQ(root.seccomp_filters, 0);
  EXPECT_EQ(root.yama_scope, -1);
  EXPECT_FALSE(root.own_pid_namespace);
}

TEST(Confinement, EachCapabilityIsItsOwnBit) {
  const auto traces = [](const std::string& mask) {
    return Confinement::from("\nCapEff:\t" + mask + "\n", "", "", "", "").traces_any_user;
  };
  EXPECT_TRUE(traces("0000000000080000"));   // 19 is CAP_SYS_PTRACE
  EXPECT_FALSE(traces("00000000a80425fb"));  // of root in Docker
  EXPECT_FALSE(traces("fffffffffff7ffff"));
}

TEST(Confinement, WhatCannotBeReadConfinesNobody) {
  const Confinement c = Confinement::from("", "", "", "", "");
  EXPECT_EQ(c.user, -1);
  EXPECT_FALSE(c.traces_any_user);
  EXPECT_EQ(c.seccomp_filters, 0);
  EXPECT_EQ(c.yama_scope, -1);
  EXPECT_FALSE(c.own_pid_namespace);
  const Confinement odd = Confinement::from("\nUid:\nSeccomp:\tx\nCapEff:", "?", "unconfined\n",
                                            "pid:[1]", std::string("user:[2]"));
  EXPECT_EQ(odd.user, -1);
  EXPECT_EQ(odd.apparmor, "");
  EXPECT_TRUE(odd.own_user_namespace);
  // A kernel that does not count filters still says that there is one.
  EXPECT_EQ(Confinement::from("\nSeccomp:\t2\n", "", "", "", "").seccomp_filters, 1);
}

TEST(Confinement, NamesWhatRefusesAChild) {
  EXPECT_THAT(remedy_for_tracing_a_child(in_container("2\n")),
              testing::AllOf(HasSubstr("ptrace_scope is 2"), HasSubstr("--security-opt seccomp="),
                             HasSubstr("--user 0 --cap-add=SYS_PTRACE")));
  EXPECT_THAT(remedy_for_tracing_a_child(in_container("1\n")), Not(HasSubstr("ptrace_scope")));
  EXPECT_THAT(remedy_for_tracing_a_child(as_root()), HasSubstr("debugger"));
  EXPECT_THAT(remedy_for_tracing_a_child(as_root()), Not(HasSubstr("docker")));
  EXPECT_FALSE(remedy_for_tracing_a_child({}).empty());
}

TEST(Confinement, NamesWhatRefusesAnother) {
  EXPECT_THAT(remedy_for_tracing_another(in_container("1\n", "docker-default (enforce)")),
              testing::AllOf(HasSubstr("ptrace_scope is 1: set it to 0"),
                             HasSubstr("AppArmor profile docker-default (enforce)"),
                             HasSubstr("--security-opt apparmor=unconfined"),
                             HasSubstr("--security-opt seccomp=")));
  EXPECT_THAT(remedy_for_tracing_another(as_root("1")), Not(HasSubstr("ptrace_scope")));
  EXPECT_THAT(remedy_for_tracing_another(as_root("3")), HasSubstr("until the next boot"));
  EXPECT_FALSE(remedy_for_tracing_another({}).empty());
}

TEST(Confinement, NamesWhatRefusesTheMemoryOfAnother) {
  EXPECT_THAT(remedy_for_reading_another({}),
              testing::AllOf(HasSubstr("as root"), Not(HasSubstr("seccomp"))));
  EXPECT_THAT(remedy_for_reading_another(in_container("0")),
              testing::AllOf(HasSubstr("as root"), HasSubstr("securityContext.seccompProfile")));
  EXPECT_THAT(remedy_for_reading_another(as_root()), Not(HasSubstr("as root")));
}

TEST(Reach, SaysWhatOpensEachWay) {
  const auto closed = reach_of(in_container("1", "docker-default (enforce)"), EPERM, EPERM);
  ASSERT_EQ(closed.size(), 3U);
  for (const auto& f : closed) EXPECT_FALSE(f.available) << f.name;
  EXPECT_THAT(closed[0].detail, HasSubstr("Operation not permitted"));
  EXPECT_THAT(closed[1].detail, HasSubstr("user 65532 without CAP_SYS_PTRACE"));
  EXPECT_THAT(closed[1].remedy, HasSubstr("--user 0 --cap-add=SYS_PTRACE"));
  EXPECT_THAT(closed[2].remedy, HasSubstr("--pid=host"));
  EXPECT_THAT(closed[2].remedy, HasSubstr("apparmor=unconfined"));
  const auto open = reach_of(as_root(), 0, 0);
  for (const auto& f : open) {
    EXPECT_TRUE(f.available) << f.name;
    EXPECT_EQ(f.remedy, "") << f.name;
  }
  EXPECT_FALSE(reach_of(as_root(), 0, ENOSYS)[0].available);
  EXPECT_FALSE(reach_of(as_root(), EPERM, 0)[0].available);
}

TEST(Reach, AnEngineWithoutRootReachesOnlyItsOwn) {
  const auto facts =
      reach_of(Confinement::from(kAsRoot, "", "", "pid:[1]", "user:[4026532000]"), 0, 0);
  EXPECT_FALSE(facts[1].available);
  EXPECT_THAT(facts[1].detail, HasSubstr("user namespace of its own"));
  EXPECT_THAT(facts[1].remedy, HasSubstr("rootless"));
}

// probe_reach() in a separate process, which first runs `confine`.
template <class Body>
std::vector<std::string> probe_in_child(const Body& confine) {
  const std::string text = text_of_child(confine, [] {
    std::string told;
    for (const auto& f : probe_reach()) {
      told += (f.available ? "yes " : "no ") + f.name + " " + f.detail + " " + f.remedy + "\n";
    }
    return told;
  });
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  EXPECT_EQ(lines.size(), 3U) << text;
  lines.resize(3);
  return lines;
}

TEST(ProbeReach, ARefusedCallIsSeenAndTheFilterNamed) {
  const auto ptrace = probe_in_child([] { return refuse(SYS_ptrace); });
  EXPECT_THAT(ptrace[0], testing::StartsWith("no same-user"));
  EXPECT_THAT(ptrace[0], HasSubstr("PTRACE_SEIZE: Operation not permitted"));
  EXPECT_THAT(ptrace[0], HasSubstr("--security-opt seccomp="));
  const auto memory = probe_in_child([] { return refuse(SYS_process_vm_readv); });
  EXPECT_THAT(memory[0], testing::StartsWith("no same-user"));
  EXPECT_THAT(memory[0], HasSubstr("process_vm_readv: Operation not permitted"));
}

TEST(ProbeReach, APlainUserHasNoCapability) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  const auto facts = probe_in_child([] {
    const bool changed = setgid(65532) == 0 && setuid(65532) == 0;
    return changed && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;  // setuid cleared it
  });
  EXPECT_THAT(facts[1], testing::StartsWith("no any-user user 65532 without CAP_SYS_PTRACE"));
  // Yama's scope decides, if Yama is present.
  const int scope = Confinement::of_this_process().yama_scope;
  EXPECT_THAT(facts[0], testing::StartsWith(scope <= 0 ? "yes same-user" : "no same-user"));
}

TEST(ProbeReach, ChildrenThatCannotBeMadeAreAnAnswer) {
  const auto facts = probe_in_child([] { return refuse(SYS_clone); });
  EXPECT_THAT(facts[0], testing::StartsWith("no same-user"));
  EXPECT_THAT(facts[0], HasSubstr("Operation not permitted"));
}

TEST(ProbeReach, ASecondChildThatCannotBeMadeIsAnAnswer) {
  const auto facts = probe_in_child([] {
    // A limit lets this process create one child and no more.
    return pthread_atfork(nullptr, [] { refuse(SYS_clone); }, nullptr) == 0;
  });
  EXPECT_THAT(facts[0], testing::StartsWith("no same-user"));
  EXPECT_THAT(facts[0], HasSubstr("PTRACE_SEIZE: Operation not permitted"));
}

}  // namespace
}  // namespace ctxconf::sys
