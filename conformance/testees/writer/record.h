// The record of a thread: its layout, its entries and its stores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {

constexpr std::size_t kHead = 28;
constexpr std::size_t kSpanAt = 16;
constexpr std::size_t kValidAt = 24;
constexpr std::size_t kFlagsAt = 25;
constexpr std::size_t kAttributesSizeAt = 26;

inline Bytes entry(int key, const Bytes& value) {
  return Bytes(1, static_cast<char>(key)) + Bytes(1, static_cast<char>(value.size())) + value;
}

// No compiler moves a store across it; another processor may.
inline void compiler_fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

inline void set_valid(char* record, char value) {
  compiler_fence();
  store<char>(record + kValidAt, value);
  compiler_fence();
}
inline void set_size(char* record, std::size_t size) {
  compiler_fence();
  store<std::uint16_t>(record + kAttributesSizeAt, static_cast<std::uint16_t>(size));
  compiler_fence();
}
// One store, after those that fill the record.
inline void set_slot(void** slot, char* record) {
  compiler_fence();
  __atomic_store_n(slot, static_cast<void*>(record), __ATOMIC_RELAXED);
  compiler_fence();
}

}  // namespace ctxconf::testees
