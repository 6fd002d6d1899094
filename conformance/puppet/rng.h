// Shared by the grammars of programs: random numbers, and the choices that a text allows.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

namespace ctxconf::conformance::puppet {

// Gives the same numbers on every host and with every library.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {  // splitmix64
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : next() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  std::uint64_t state_;
};

// One choice that the text allows, and the place of that text.
struct Production {
  std::string_view id;
  std::string_view sentence;  // the id of a requirement, or a section
};
using Used = std::set<std::string_view>;

}  // namespace ctxconf::conformance::puppet
