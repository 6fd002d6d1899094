// Asks a program under test for one group of checks after the other, each in a fresh process, and
// goes on after whatever it does.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/requirements/catalogue.h"
#include "conformance/testee/checks.h"
#include "conformance/testee/testee.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

// Of a group; then the rest of it is not run.
inline constexpr int kMostCrashes = 3;

// What driving one group gave.
struct GroupRun {
  // Sessions, processes, skipped checks, injections, notes and stops, and nothing else.
  Timeline part;
  std::string adapter_fault;  // as Testee's; hostile
  std::string harness_fault;
  bool interrupted = false;
  int start_error = 0;    // with adapter_fault: errno, where the adapter cannot be started
  std::size_t asked = 0;  // checks that were asked, whatever became of them
  // False: nothing more can be asked of this adapter.
  bool goes_on() const { return adapter_fault.empty() && harness_fault.empty() && !interrupted; }
};

// Adds what was recorded of a group. Skipped checks, notes and injections of a group that is there
// already, from an earlier repeat, are not told again.
void append(Timeline part, Timeline& to);

// What is told while checks are asked; empty ones are not called.
struct DriveCalls {
  // Before each check, and after it with how it ended; nothing: it could not be ended.
  std::function<void(std::string_view group, std::string_view check)> begin;
  std::function<void(std::string_view group, std::string_view check,
                     std::optional<CheckEnding> ending)>
      end;
  // As WrapOptions::walked.
  std::function<void(std::string_view group, std::uint64_t steps, double seconds)> walk;
};

class Driver {
 public:
  // `options` outlive it. Checks for none of `selected` are left out.
  Driver(const TesteeOptions& options, std::vector<const Requirement*> selected);

  void tell(DriveCalls calls) { calls_ = std::move(calls); }

  // Starts the adapter once to learn what it declares; asked before anything is driven. Its part is
  // empty.
  GroupRun learn_capabilities();
  const nlohmann::json& capabilities() const { return capabilities_; }  // hostile

  // How many checks of a group are asked, where it lives through them.
  std::size_t checks_of(const Group& group) const;
  GroupRun drive(const Group& group, std::uint32_t repeat = 0);

 private:
  bool is_left_out(const Group& group) const;
  bool is_wanted(const Check& check) const;
  std::string_view missing(const Check& check) const;  // a capability; empty: none
  std::vector<const Check*> checks_to_ask(const Group& group, Timeline& part) const;
  TesteeOptions options_for(const Group& group, std::uint32_t repeat, GroupRun& out) const;

  const TesteeOptions& options_;
  std::vector<const Requirement*> selected_;
  DriveCalls calls_;
  nlohmann::json capabilities_ = nlohmann::json::object();
};

}  // namespace ctxconf::conformance
