// Steps of a writer whose order is partly free.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/puppet/rng.h"

namespace ctxconf::conformance::puppet {

// How a deviation changes steps; empty in a legal program.
struct StepChanges {
  std::set<std::pair<std::string, std::string>> reversed;  // pairs in reverse order
  std::set<std::string> left_out;
};

// Steps of which some must come before others; the rest of their order is free.
class Steps {
 public:
  Steps() = default;
  explicit Steps(const StepChanges& changes) : changes_(changes) {}

  void add(std::string name, std::function<void()> make) {
    if (changes_.left_out.contains(name)) return;
    steps_.push_back({std::move(name), std::move(make)});
  }
  // Ignores steps that do not exist.
  void order(std::string_view first, std::string_view then) {
    const bool other_way = changes_.reversed.contains({std::string(first), std::string(then)});
    orders_.emplace_back(other_way ? then : first, other_way ? first : then);
  }
  // Runs one of the possible orders; calls `before` before each step.
  void make(Rng& rng, const std::function<void()>& before) {
    std::vector<const Step*> left;
    left.reserve(steps_.size());
    for (const auto& step : steps_) left.push_back(&step);
    while (!left.empty()) {
      std::vector<std::size_t> ready;
      for (std::size_t i = 0; i < left.size(); ++i) {
        const bool waits = std::ranges::any_of(orders_, [&](const auto& order) {
          return order.second == left[i]->name && std::ranges::any_of(left, [&](const Step* other) {
                   return other->name == order.first;
                 });
        });
        if (!waits) ready.push_back(i);
      }
      if (ready.empty()) std::abort();  // the steps wait for each other
      const auto now = static_cast<std::ptrdiff_t>(rng.pick(ready));
      const Step* step = left[static_cast<std::size_t>(now)];
      left.erase(left.begin() + now);
      before();
      step->make();
    }
  }

 private:
  struct Step {
    std::string name;
    std::function<void()> make;
  };
  StepChanges changes_;
  std::vector<Step> steps_;
  std::vector<std::pair<std::string, std::string>> orders_;
};

}  // namespace ctxconf::conformance::puppet
