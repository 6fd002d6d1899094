// Asks a program under test for one group of checks after the other, each in a fresh process, and
// goes on after whatever it does.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
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

class Driver {
 public:
  // Both outlive it. Checks for none of `selected` are left out.
  Driver(const TesteeOptions& options, std::vector<const Requirement*> selected,
         Timeline& timeline);

  // Called before each check, and after it with how it ended; nothing: it could not be ended.
  using Call = std::function<void(std::string_view group, std::string_view check)>;
  using EndCall = std::function<void(std::string_view group, std::string_view check,
                                     std::optional<CheckEnding> ending)>;
  void on_check(Call begin, EndCall end) {
    on_check_ = std::move(begin);
    on_check_end_ = std::move(end);
  }

  // Starts the adapter once to learn what it declares; asked before anything is driven. False, here
  // and below: nothing more can be asked, and faults or interrupted() say why.
  bool learn_capabilities();
  bool drive(std::span<const Group> groups, std::uint32_t repeat = 0);

  const nlohmann::json& capabilities() const { return capabilities_; }  // hostile
  const std::string& adapter_fault() const { return adapter_fault_; }   // as Testee's
  const std::string& harness_fault() const { return harness_fault_; }
  bool interrupted() const { return interrupted_; }

 private:
  bool is_wanted(const Check& check) const;
  bool has_all(const Check& check);
  TesteeOptions options_for(const Group& group, std::uint32_t repeat);
  bool take_faults(const Testee& testee);
  bool drive(const Group& group, std::uint32_t repeat);

  const TesteeOptions& options_;
  std::vector<const Requirement*> selected_;
  Timeline& timeline_;
  Call on_check_;
  EndCall on_check_end_;
  nlohmann::json capabilities_ = nlohmann::json::object();
  std::string adapter_fault_;
  std::string harness_fault_;
  bool interrupted_ = false;
};

}  // namespace ctxconf::conformance
