#include "sys/capabilities.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "sys/confined_child.h"

namespace ctxconf::sys {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// of_this_host() in a separate process, because it probes only once. The `refused` system calls
// fail there with EPERM.
std::vector<HostFact> probe_in_child(const std::vector<long>& refused = {}) {
  const auto confine = [&] { return std::ranges::all_of(refused, refuse); };
  const std::string text = text_of_child(confine, [] {
    std::string lines;
    for (const auto& f : Capabilities::of_this_host().facts()) {
      lines += f.name + "\t" + (f.available ? "1" : "0") + "\t" + f.detail + "\t" + f.remedy + "\n";
    }
    return lines;
  });
  std::vector<HostFact> facts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    HostFact f;
    std::string available;
    std::getline(fields, f.name, '\t');
    std::getline(fields, available, '\t');
    std::getline(fields, f.detail, '\t');
    std::getline(fields, f.remedy, '\t');
    f.available = available == "1";
    facts.push_back(f);
  }
  return facts;
}

HostFact fact_named(const std::vector<HostFact>& facts, std::string_view name) {
  for (const auto& f : facts) {
    if (f.name == name) return f;
  }
  ADD_FAILURE() << "not probed: " << name;
  return {};
}

std::vector<std::string> names_of(const std::vector<HostFact>& facts) {
  std::vector<std::string> out;
  for (const auto& f : facts) out.push_back(f.name);
  return out;
}

TEST(Capabilities, ProbesEveryNameAndSaysWhatIsMissing) {
  const auto facts = probe_in_child();
  EXPECT_THAT(names_of(facts),
              ElementsAre(kHostPtrace, kHostSeccompTrace, kHostWatchpoints, kHostProcessVmReadv,
                          kHostProcmapQuery, kHostSmapsVmFlags, kHostAnonVmaName, kHostShmemVmaName,
                          kHostMemfd, kHostMemfdNoexecSeal, kHostTimeNamespaces, kHostPidNamespaces,
                          kHost32Bit));
  for (const auto& f : facts) {
    EXPECT_FALSE(f.detail.empty()) << f.name;
    EXPECT_EQ(f.remedy.empty(), f.available) << f.name;
  }
}

TEST(Capabilities, AgreesWithTheFilesOfThisHost) {
  const auto facts = probe_in_child();
  EXPECT_EQ(fact_named(facts, kHostTimeNamespaces).available,
            access("/proc/self/ns/time", F_OK) == 0);
  // The tests themselves need these.
  EXPECT_TRUE(fact_named(facts, kHostPtrace).available);
  EXPECT_TRUE(fact_named(facts, kHostSeccompTrace).available);
  EXPECT_TRUE(fact_named(facts, kHostProcessVmReadv).available);
  EXPECT_TRUE(fact_named(facts, kHostMemfd).available);
}

TEST(Capabilities, ReportsARefusedPtrace) {
  const auto facts = probe_in_child({SYS_ptrace});
  const auto f = fact_named(facts, kHostPtrace);
  EXPECT_FALSE(f.available);
  EXPECT_THAT(f.detail, HasSubstr("Operation not permitted"));
  EXPECT_THAT(f.remedy, HasSubstr("ptrace"));
  EXPECT_FALSE(fact_named(facts, kHostSeccompTrace).available);
  EXPECT_FALSE(fact_named(facts, kHostWatchpoints).available);
  EXPECT_TRUE(fact_named(facts, kHostMemfd).available);
}

TEST(Capabilities, ReportsARefusedFilter) {
  const auto f = fact_named(probe_in_child({SYS_seccomp}), kHostSeccompTrace);
  EXPECT_FALSE(f.available);
  EXPECT_THAT(f.detail, HasSubstr("refused the filter"));
}

TEST(Capabilities, ReportsRefusedMemory) {
  const auto facts = probe_in_child(
      {SYS_process_vm_readv, SYS_memfd_create, SYS_ioctl, SYS_prctl, SYS_readlink, SYS_readlinkat});
  for (const auto name : {kHostProcessVmReadv, kHostMemfd, kHostMemfdNoexecSeal, kHostShmemVmaName,
                          kHostAnonVmaName, kHostProcmapQuery, kHostTimeNamespaces, kHost32Bit}) {
    const auto f = fact_named(facts, name);
    EXPECT_FALSE(f.available) << name;
    EXPECT_THAT(f.detail, HasSubstr("Operation not permitted")) << name;
  }
}

TEST(Capabilities, ReportsUnreadableProc) {
  const auto facts = probe_in_child({SYS_openat, SYS_open});
  EXPECT_FALSE(fact_named(facts, kHostSmapsVmFlags).available);
  EXPECT_THAT(fact_named(facts, kHostSmapsVmFlags).detail, HasSubstr("cannot be read"));
  EXPECT_FALSE(fact_named(facts, kHostProcmapQuery).available);
}

TEST(Capabilities, HasOnlyWhatIsThereAndAvailable) {
  const Capabilities c({{"yes", true, "", ""}, {"no", false, "", "remedy"}});
  EXPECT_TRUE(c.has("yes"));
  EXPECT_FALSE(c.has("no"));
  EXPECT_FALSE(c.has("unknown"));
}

}  // namespace
}  // namespace ctxconf::sys
