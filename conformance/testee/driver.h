// Asks a testee for one group of checks after another, each in a fresh process, and continues
// whatever the testee does.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/testee/checks.h"
#include "conformance/testee/testee.h"

namespace ctxconf::conformance {

// Per group; the rest of the group is then not run.
inline constexpr int kMostCrashes = 3;

// The result of driving one group.
struct GroupRun {
  // Only sessions, processes, skipped checks, injections, notes and stops.
  Timeline part;
  std::string adapter_fault;  // as in Testee; hostile
  std::string harness_fault;
  bool interrupted = false;
  int start_error = 0;    // with adapter_fault: errno if the adapter cannot be started
  std::size_t asked = 0;  // checks that were asked, with any result
  // False: this adapter cannot be asked anything more.
  bool goes_on() const { return adapter_fault.empty() && harness_fault.empty() && !interrupted; }
};

// Adds the recording of a group. Skipped checks, notes and injections that an earlier repeat of the
// group added are not added again.
void append(Timeline part, Timeline& to);

// Callbacks while checks are asked; empty ones are not called.
struct DriveCalls {
  // Called before each check, and after it with how it ended; nothing if it could not be ended.
  std::function<void(std::string_view group, std::string_view check)> begin;
  std::function<void(std::string_view group, std::string_view check,
                     std::optional<CheckEnding> ending)>
      end;
  // As WrapOptions::stepping.
  std::function<void(std::string_view group, std::uint64_t steps, double seconds)> stepping;
};

class Driver {
 public:
  // `options` must outlive this. Checks without a requirement in `selected` are left out. Where
  // options.deepest is less than what a group does, that group is asked only for requirements that
  // no other group decides.
  Driver(const TesteeOptions& options, std::vector<const Requirement*> selected);

  void tell(DriveCalls calls) { calls_ = std::move(calls); }

  // Starts the adapter once to learn its capabilities; call it before drive(). The result's part is
  // empty.
  GroupRun learn_capabilities();
  const nlohmann::json& capabilities() const { return capabilities_; }  // hostile

  // The number of checks of a group that are asked if the adapter survives them.
  std::size_t checks_of(const Group& group) const;
  GroupRun drive(const Group& group, std::uint32_t repeat = 0);

 private:
  bool is_left_out(const Group& group) const;
  bool is_wanted(const Group& group, const Check& check) const;
  std::string_view missing(const Check& check) const;  // a capability; empty: none
  std::vector<const Check*> checks_to_ask(const Group& group, Timeline& part) const;
  TesteeOptions options_for(const Group& group, std::uint32_t repeat, GroupRun& out) const;

  const TesteeOptions& options_;
  std::vector<const Requirement*> selected_;
  DriveCalls calls_;
  nlohmann::json capabilities_ = nlohmann::json::object();
};

}  // namespace ctxconf::conformance
