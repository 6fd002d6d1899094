// What the stores to a watched header did: its publication and its updates, from the first
// store of each to the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "conformance/rules/evidence.h"

namespace ctxconf::conformance {

// Decodes 32 bytes or more of the program into the byte order of this machine.
std::optional<abi::ProcessHeader> header_of(const Image& image, std::span<const std::byte> bytes);

// A store with the header around it, in the byte order of this machine.
struct HeaderStore {
  const Store* store = nullptr;
  abi::ProcessHeader before{};
  abi::ProcessHeader after{};

  bool changes_identity() const {
    return before.signature != after.signature || before.version != after.version;
  }
  bool changes_location() const {
    return before.payload_size != after.payload_size || before.payload != after.payload;
  }
  bool changes_timestamp() const {
    return before.monotonic_published_at_ns != after.monotonic_published_at_ns;
  }
  bool changes_another_field() const { return changes_identity() || changes_location(); }
  // Whether the timestamp and other fields may have been stored in any order: by nobody who was
  // watched, or in one system call, to or from zero. The order in which the kernel copies is not
  // known; but a timestamp between two fields that change is neither the first nor the last.
  bool is_unordered() const {
    if (!changes_timestamp() || !changes_another_field()) return false;
    const bool pointer_changes = before.payload != after.payload;
    const bool is_between =
        pointer_changes && (changes_identity() || before.payload_size != after.payload_size);
    const bool has_zero =
        before.monotonic_published_at_ns == 0 || after.monotonic_published_at_ns == 0;
    return store->tid == 0 || (!store->call.empty() && has_zero && !is_between);
  }
};

// The indexes are those of `stores`; kNone: there is none.
struct HeaderOperation {
  static constexpr std::size_t kNone = SIZE_MAX;

  enum class Kind { kPublication, kUpdate };
  Kind kind = Kind::kPublication;
  const Watch* watch = nullptr;
  // The first is what the writer stored before it touched the timestamp, the last what it stored
  // after the new timestamp and before the naming call.
  std::vector<HeaderStore> stores;
  // For an update: the stores that took the timestamp to zero, more than one when it was taken away
  // in pieces; none when it was replaced, or when the watch began later.
  std::size_t zero_first = kNone;
  std::size_t zero = kNone;
  // The stores that gave it its new value, more than one when that came in pieces; none: a change
  // of other fields without one.
  std::size_t announce_first = kNone;
  std::size_t announce = kNone;
  std::uint64_t until_ns = UINT64_MAX;  // the first store of the next operation
  // For an update: its zero may have withdrawn the context, and its other stores may have published
  // another.
  bool may_be_publication = false;
  bool is_asked_for = true;  // false: it is only history of others

  bool was_zeroed() const { return zero != kNone; }
  bool is_announced() const { return announce != kNone; }
  const HeaderStore& announcing() const { return stores[announce]; }
  const HeaderStore& zeroing() const { return stores[zero]; }
  // The stores from `first` to `last` that changed the timestamp.
  std::vector<const HeaderStore*> pieces(std::size_t first, std::size_t last) const;
};

struct HeaderHistory {
  std::vector<HeaderOperation> operations;  // in order; only of headers that readers could use
  std::size_t unknown = 0;                  // stores whose bytes are missing or contradict the last
  bool late = false;                        // a watch began when the header was announced already
};

// The first store that shows a second writer in the update: by a thread that comes back after
// another one stored, or that takes the timestamp to zero again. A single writer may move to
// another kernel thread, as goroutines do, but then it does not come back. Null: there is none.
const HeaderStore* store_of_another_writer(const HeaderOperation& update);

// Bounded by the recording: each store is in one operation at most. A withdrawal is not an
// operation, nor is an update that the program did not live to finish.
HeaderHistory header_history_of(const ImageEvidence& evidence);

}  // namespace ctxconf::conformance
