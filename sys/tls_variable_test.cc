#include "sys/tls_variable.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "sys/child.h"
#include "sys/process.h"
#include "sys/thread_stop.h"

namespace ctxconf::sys {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kSlot = "ctx_test_slot";
constexpr auto kLong = 20s;

std::string built(const std::string& name) { return CTXCONF_BIN_DIR "/" + name; }

struct Thread {
  pid_t tid = 0;
  std::uint64_t address = 0;  // as it says itself; 0 for one that never looked
};

// A program that has told where its threads have the variable.
struct Testee {
  Child child;
  Thread main, thread, untouched;

  pid_t pid() const { return child.pid(); }
};

Result<Testee> start(const std::vector<std::string>& argv, const std::string& preload = {}) {
  ChildOptions options;
  options.argv = argv;
  if (!preload.empty()) options.extra_env.push_back("LD_PRELOAD=" + preload);
  CTX_TRY(child, Child::start(options));
  Testee testee{std::move(child), {}, {}, {}};
  while (true) {
    CTX_TRY(line, testee.child.read_line(kLong));
    std::istringstream words(line);
    std::string what;
    Thread thread;
    words >> what >> thread.tid >> std::hex >> thread.address;
    if (what == "ready") return testee;
    (what == "main" ? testee.main : what == "thread" ? testee.thread : testee.untouched) = thread;
  }
}

RemoteAddr thread_pointer(pid_t tid) {
  const auto stopped = ThreadStop::stop(tid, kLong);
  if (!stopped) {
    ADD_FAILURE() << to_string(stopped.error());
    return {};
  }
  return stopped->thread_pointer().value();
}

struct Found {
  Modules modules;
  std::vector<TlsDefinition> definitions;

  const Module& definer(std::size_t i) const { return modules.modules[definitions[i].module]; }
};

Found find_in(pid_t pid) {
  ElfCache cache;
  auto modules = modules_of(pid, cache);
  if (!modules) {
    ADD_FAILURE() << to_string(modules.error());
    return {};
  }
  for (const std::string& note : modules->notes) ADD_FAILURE() << note;
  auto definitions = find_tls_variable(*modules, kSlot);
  if (!definitions) {
    ADD_FAILURE() << to_string(definitions.error());
    return {};
  }
  return {std::move(*modules), std::move(*definitions)};
}

Result<std::optional<RemoteAddr>> address_for(const Found& found, std::size_t definition, pid_t pid,
                                              pid_t tid) {
  return tls_address(found.modules, found.definitions[definition], thread_pointer(tid),
                     ProcessMemory(pid));
}

// What the loader does with a thread that never touched the variable.
enum class Untouched { kHasBlock, kHasNone };

struct Case {
  const char* name;
  const char* program;
  const char* preload;  // loaded with the program
  const char* late;     // loaded when the threads are there
  TlsModel model;
  bool named;
  Untouched untouched;
};

class Models : public testing::TestWithParam<Case> {};

TEST_P(Models, GiveTheAddressThatTheThreadPrints) {
  const Case& c = GetParam();
  std::vector<std::string> argv = {built(c.program)};
  if (*c.late != 0) argv.push_back(built(c.late));
  const auto testee = start(argv, *c.preload == 0 ? "" : built(c.preload));
  ASSERT_TRUE(testee) << to_string(testee.error());
  const Found found = find_in(testee->pid());
  ASSERT_EQ(found.definitions.size(), 1U);
  ASSERT_FALSE(found.definitions[0].accesses.empty());
  const TlsAccess& access = found.definitions[0].accesses.front();
  EXPECT_EQ(to_string(access.model), to_string(c.model));
  EXPECT_EQ(access.named, c.named);
  for (const Thread& thread : {testee->main, testee->thread}) {
    const auto address = address_for(found, 0, testee->pid(), thread.tid);
    ASSERT_TRUE(address) << to_string(address.error());
    ASSERT_TRUE(*address);
    EXPECT_EQ((*address)->raw(), thread.address);
  }
  const auto untouched = address_for(found, 0, testee->pid(), testee->untouched.tid);
  ASSERT_TRUE(untouched) << to_string(untouched.error());
  EXPECT_EQ(untouched->has_value(), c.untouched == Untouched::kHasBlock);
}

using enum TlsModel;
using enum Untouched;
INSTANTIATE_TEST_SUITE_P(
    Of, Models,
    testing::Values(
        Case{"desc", "tls_testee", "tls_desc.so", "", kTlsdesc, true, kHasBlock},
        Case{"gd", "tls_testee", "tls_gd.so", "", kGeneralDynamic, true, kHasBlock},
        Case{"ie", "tls_testee", "tls_ie.so", "", kInitialExec, true, kHasBlock},
        Case{"desc_symbolic", "tls_testee", "tls_desc_symbolic.so", "", kTlsdesc, false, kHasBlock},
        Case{"desc_protected", "tls_testee", "tls_desc_protected.so", "", kTlsdesc, false,
             kHasBlock},
        Case{"gd_symbolic", "tls_testee", "tls_gd_symbolic.so", "", kGeneralDynamic, true,
             kHasBlock},
        Case{"ie_protected", "tls_testee", "tls_ie_protected.so", "", kInitialExec, false,
             kHasBlock},
        // The loader keeps room in the static block for small late ones.
        Case{"late_desc", "tls_testee", "", "tls_desc.so", kTlsdesc, true, kHasBlock},
        Case{"late_ie", "tls_testee", "", "tls_ie.so", kInitialExec, true, kHasBlock},
        Case{"late_large_desc", "tls_testee", "", "tls_desc_large.so", kTlsdesc, true, kHasNone},
        Case{"late_large_desc_symbolic", "tls_testee", "", "tls_desc_large_symbolic.so", kTlsdesc,
             false, kHasNone},
        Case{"late_gd", "tls_testee", "", "tls_gd.so", kGeneralDynamic, true, kHasNone},
        Case{"late_gd_symbolic", "tls_testee", "", "tls_gd_symbolic.so", kGeneralDynamic, true,
             kHasNone},
        Case{"only_from_the_program", "tls_foreign", "", "", kInitialExec, true, kHasBlock},
        Case{"own", "tls_own", "", "", kLocalExec, true, kHasBlock},
        Case{"own_no_pie", "tls_own_no_pie", "", "", kLocalExec, true, kHasBlock},
        Case{"own_aligned", "tls_own_aligned", "", "", kLocalExec, true, kHasBlock},
        Case{"own_static", "tls_own_static", "", "", kLocalExec, true, kHasBlock}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ctxconf::sys
