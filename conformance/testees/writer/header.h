// The header of a process context: its layout, its stores, and how it is published.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "conformance/testees/writer/clock.h"
#include "conformance/testees/writer/memory.h"

namespace ctxconf::testees {

constexpr std::size_t kSignatureAt = 0;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kSizeAt = 12;
constexpr std::size_t kTimestampAt = 16;
constexpr std::size_t kPointerAt = 24;
constexpr std::size_t kHeaderSize = 32;

constexpr std::string_view kSignature = "OTEL_CTX";

// One store, which no compiler joins, splits or leaves out.
template <class T>
void store(char* at, T value) {
  typedef T Aligned __attribute__((aligned(sizeof(T))));  // also where eight bytes need only four
  __atomic_store_n(reinterpret_cast<Aligned*>(at), value, __ATOMIC_RELAXED);
}

// How the header gets its memory; the defaults are legal.
struct Plan {
  std::size_t size = page();
  const char* memfd_name = "OTEL_CTX";
  const char* label = "OTEL_CTX";  // what prctl is told
  int protection = PROT_READ | PROT_WRITE;
  int flags = MAP_PRIVATE;
  int advice = MADV_DONTFORK;
  unsigned memfd_flags = kMemfdFlags | MFD_NOEXEC_SEAL;  // of the first attempt
  bool may_use_memfd = true;
  bool close_memfd = true;
  bool heed_file_size_limit = true;
};

struct Region {
  char* at = nullptr;
  std::size_t size = 0;
  const char* label = nullptr;
  int fd = -1;  // while it is open
  bool anonymous = false;
};

// Zeroed memory that holds no context yet.
Region make_region(const Plan& plan = {});

inline void set_payload(const Region& r, std::uint64_t address, std::size_t size) {
  store<std::uint32_t>(r.at + kSizeAt, static_cast<std::uint32_t>(size));
  store<std::uint64_t>(r.at + kPointerAt, address);
}
// Everything but the timestamp.
inline void set_fields(const Region& r, std::uint64_t address, std::size_t size,
                       std::uint32_t version = 2) {
  std::memcpy(r.at + kSignatureAt, kSignature.data(), kSignature.size());
  store<std::uint32_t>(r.at + kVersionAt, version);
  set_payload(r, address, size);
}
// The timestamp is the lock: fences on both sides keep it apart from the other fields.
inline void set_timestamp(const Region& r, std::uint64_t value) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  store<std::uint64_t>(r.at + kTimestampAt, value);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
// The name is needed only where there is no memfd. The call is always made: it also tells watchers
// that something has changed.
void set_name(const Region& r);

// Header and timestamp, and no naming call.
void fill(const Region& r, const Buffer& payload);
void publish_in(const Region& r, const Buffer& payload, std::uint64_t timestamp = next_timestamp());
// An update without a naming call, and with one.
void change(const Region& r, const Buffer& payload);
void update(const Region& r, const Buffer& payload, std::uint64_t timestamp = next_timestamp());

Region publish(const Bytes& bytes, const Plan& plan = {});

// "published pid=... header=..."
void announce(const Region& r);

}  // namespace ctxconf::testees
