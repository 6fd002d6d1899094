// How much work the ELF files of one process may make. Which files it maps and what is in
// them is its own choice, so that limits for each file bound nothing.
#pragma once

#include <chrono>
#include <cstdint>

namespace ctxconf::sys {

struct ElfLimits {
  std::chrono::milliseconds time{5000};  // from the making of the budget
  std::uint64_t files = 16384;
  std::uint64_t bytes = std::uint64_t{1} << 30U;        // read
  std::uint64_t relocations = std::uint64_t{1} << 20U;  // about TLS; each time one is looked at
  std::uint64_t mappings = std::uint64_t{1} << 22U;     // compared with segments
};

// Once one of them is used up, nothing is left of any.
class ElfBudget {
 public:
  explicit ElfBudget(const ElfLimits& limits = {})
      : left_(limits), end_(Clock::now() + left_.time) {}

  bool take_file() { return take(left_.files, 1, "files"); }
  bool take_bytes(std::uint64_t n) { return take(left_.bytes, n, "bytes"); }
  bool take_relocations(std::uint64_t n) { return take(left_.relocations, n, "relocations"); }
  bool take_mappings(std::uint64_t n) { return take(left_.mappings, n, "mappings"); }
  // What ran out: "files", "time", ...; null: there is some of everything.
  const char* exhausted() const { return exhausted_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool take(std::uint64_t& left, std::uint64_t n, const char* name) {
    if (exhausted_ != nullptr) return false;
    if (n > left) {
      exhausted_ = name;
    } else if (Clock::now() >= end_) {
      exhausted_ = "time";
    } else {
      left -= n;
    }
    return exhausted_ == nullptr;
  }

  ElfLimits left_;
  Clock::time_point end_;
  const char* exhausted_ = nullptr;
};

}  // namespace ctxconf::sys
