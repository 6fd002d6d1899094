// Which instructions order the stores before them with those after them, told from their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace ctxconf::conformance {

// For the machine that this was built for.
class BarrierDecoder {
 public:
  BarrierDecoder();
  ~BarrierDecoder();
  BarrierDecoder(const BarrierDecoder&) = delete;
  BarrierDecoder& operator=(const BarrierDecoder&) = delete;

  static constexpr std::size_t kLongest = 16;  // bytes of an instruction

  // The text of the instruction that `code` begins with, if it is a barrier: x86-64: mfence,
  // sfence, a locked instruction, xchg with memory; aarch64: dmb, dsb, a store-release or an atomic
  // with release.
  std::optional<std::string> barrier(std::span<const std::byte> code, std::uint64_t pc) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ctxconf::conformance
