// How much work the ELF files of one process may cause. A process chooses which files it maps and
// what they contain, so limits per file bound nothing.
#pragma once

#include <chrono>
#include <cstdint>

namespace ctxconf::sys {

struct ElfLimits {
  std::chrono::milliseconds time{5000};  // from the creation of the budget
  std::uint64_t files = 16384;
  std::uint64_t bytes = std::uint64_t{1} << 30U;        // read
  std::uint64_t relocations = std::uint64_t{1} << 20U;  // about TLS; each time one is looked at
  std::uint64_t mappings = std::uint64_t{1} << 22U;     // compared with segments
};

// When one of them is used up, all count as used up.
class ElfBudget {
 public:
  explicit ElfBudget(const ElfLimits& limits = {})
      : left_(limits), end_(Clock::now() + left_.time) {}

  bool take_file() { return take(left_.files, 1, "files"); }
  bool take_bytes(std::uint64_t n) { return take(left_.bytes, n, "bytes"); }
  bool take_relocations(std::uint64_t n) { return take(left_.relocations, n, "relocations"); }
  bool take_mappings(std::uint64_t n) { return take(left_.mappings, n, "mappings"); }
  // What ran out: "files", "time", ...; null: nothing yet.
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
