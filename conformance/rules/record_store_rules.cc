// Level stores of OTEP 4947: in which order the record of a thread changes while a reader could
// see it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/slot_step_rules.h"
#include "conformance/rules/store_evidence.h"
#include "conformance/rules/thread_rules.h"

namespace ctxconf::conformance {
namespace {

using RecordBytes = std::vector<std::byte>;

constexpr std::size_t kValid = 24;
constexpr std::size_t kShownStores = 6;

abi::ThreadRecordHead record_head(const RecordBytes& record) {
  return abi::decode_thread_record(record).value_or(abi::ThreadRecordHead{});
}
bool is_valid(const RecordBytes& record) { return record_head(record).valid == abi::kRecordValid; }
std::size_t size_of(const RecordBytes& record) { return record_head(record).attrs_data_size; }

bool same_bytes(const RecordBytes& a, const RecordBytes& b, std::size_t from, std::size_t to) {
  to = std::min({to, a.size(), b.size()});
  return from >= to || std::equal(a.begin() + from, a.begin() + to, b.begin() + from);
}

// The entries within `size` bytes end where the last of them ends.
bool ends_on_boundary(const RecordBytes& record, std::size_t size) {
  if (record.size() < abi::kRecordHeadBytes + size) return false;
  return abi::walks_exactly(std::span(record).subspan(abi::kRecordHeadBytes, size));
}

// One store, and what a reader of the owner's slot could see before and after it.
struct RecordChange {
  const RecordStore* store = nullptr;
  RecordBytes before;  // as they were at the last store or, where that is later, at the last look
  bool seen_before = false;
  bool seen_after = false;
  std::size_t operation = 0;  // index into SessionEvidence::operations
  // Bytes of entries that were announced all through the operation until this store.
  std::size_t stable = 0;
};

// Everything about one watched record.
struct WatchedRecord {
  const RecordWatch* watch = nullptr;
  std::vector<RecordChange> changes;
};

// What the thread's variable held at the look after an operation.
std::optional<std::uint64_t> slot_after(const ImageEvidence& e, std::size_t operation,
                                        std::int32_t tid) {
  const auto* view = e.session->operations[operation].view;
  if (view == nullptr || view->image != e.image->key) return std::nullopt;
  for (const ThreadView& t : view->threads) {
    if (t.tid != tid) continue;
    if (t.null) return 0;
    if (t.sample && *t.sample < e.image->threads.size()) return e.image->threads[*t.sample].value;
  }
  return std::nullopt;
}

// What the owner's slot held, and the record there, at the look after an operation.
const Record* record_after(const ImageEvidence& e, std::size_t operation, std::int32_t owner) {
  const auto& operations = e.session->operations;
  if (operation >= operations.size() || operations[operation].view == nullptr) return nullptr;
  const Slot slot = slot_at(e, *operations[operation].view, owner);
  return slot.state == SlotState::kRecord ? slot.record : nullptr;
}

std::vector<WatchedRecord> watched(const ImageEvidence& e) {
  std::vector<WatchedRecord> out;
  for (const RecordWatch& w : e.image->record_watches) {
    auto& record = out.emplace_back();
    record.watch = &w;
    std::uint64_t slot = w.record;  // before the store
    std::uint16_t least = UINT16_MAX;
    std::optional<std::size_t> operation;
    for (const RecordStore& s : e.image->record_stores) {
      if (s.order < w.armed_order || (w.ended_order && s.order > *w.ended_order)) continue;
      RecordChange c;
      c.store = &s;
      c.operation = operation_of(e, s.order);
      // A program that ends frees its memory.
      if (c.operation == e.session->operations.size()) break;
      c.before = s.before;
      if (operation != c.operation && c.operation > 0) {
        slot = slot_after(e, c.operation - 1, w.owner).value_or(slot);
        const Record* seen = record_after(e, c.operation - 1, w.owner);
        if (seen != nullptr && seen->sample->value == s.record) {
          c.before.assign(seen->bytes.begin(), seen->bytes.end());
        }
      }
      if (operation != c.operation) least = record_head(c.before).attrs_data_size;
      operation = c.operation;
      // A slot that has changed since the last store may have done so before this one.
      c.seen_before = slot == s.record && s.slot == s.record && is_valid(c.before);
      c.seen_after = s.slot == s.record && is_valid(s.after);
      c.stable = least = std::min(least, record_head(c.before).attrs_data_size);
      slot = s.slot;
      record.changes.push_back(c);
    }
  }
  return out;
}

std::string changed_fields(const RecordChange& c) {
  std::string out;
  const auto add = [&](std::size_t from, std::size_t to, const char* name) {
    if (same_bytes(c.before, c.store->after, from, to)) return;
    out += (out.empty() ? "" : ", ") + std::string(name);
  };
  add(0, 16, "trace id");
  add(16, 24, "span id");
  if (!same_bytes(c.before, c.store->after, kValid, kValid + 1)) {
    out += fmt::format("{}valid {} -> {}", out.empty() ? "" : ", ", record_head(c.before).valid,
                       record_head(c.store->after).valid);
  }
  add(25, 26, "trace flags");
  if (size_of(c.before) != size_of(c.store->after)) {
    out += fmt::format("{}size {} -> {}", out.empty() ? "" : ", ", size_of(c.before),
                       size_of(c.store->after));
  }
  add(abi::kRecordHeadBytes, SIZE_MAX, "entries");
  return out.empty() ? "nothing" : out;
}

// "store 3 by thread 42: valid 1 -> 0"
void add_log(Finding& f, const ImageEvidence& e, const WatchedRecord& record,
             const RecordChange& at) {
  std::vector<const RecordChange*> of_operation;
  for (const RecordChange& c : record.changes) {
    if (c.operation == at.operation) of_operation.push_back(&c);
  }
  const auto found = std::ranges::find(of_operation, &at);
  const auto index = static_cast<std::size_t>(found - of_operation.begin());
  const std::size_t from = index > kShownStores / 2 ? index - kShownStores / 2 : 0;
  if (at.operation < e.session->operations.size()) {
    f.evidence.push_back(request_line(e.session->operations[at.operation]));
  }
  f.evidence.push_back(
      fmt::format("record at {}, thread {}", hex_text(record.watch->record), record.watch->owner));
  for (std::size_t i = from; i < std::min(of_operation.size(), from + kShownStores); ++i) {
    const RecordChange& c = *of_operation[i];
    f.evidence.push_back(fmt::format("{}store {} by thread {}: {}; {}", &c == &at ? "> " : "  ",
                                     i + 1, c.store->tid, changed_fields(c),
                                     c.seen_after ? "visible" : "hidden"));
  }
  if (at.store->location && *at.store->location < e.image->locations.size()) {
    f.at = fmt::format("{}, thread {}", location_text(e.image->locations[*at.store->location]),
                       at.store->tid);
    name_code(*e.image, at.store->location, f);
  }
  f.level = "stores";
}

Finding said_of_stores(Finding f) {
  f.level = "stores";
  return f;
}

Finding not_watched(const ImageEvidence& e) {
  if (!e.image->stores_unseen.empty() && e.image->record_watches.empty() &&
      !e.session->can("thread.attach")) {
    return unobservable("no context was attached", "an adapter that declares thread.attach");
  }
  return unobservable("no stores to a record were recorded in this session",
                      "a host with watchpoints, and an adapter that declares thread.attach");
}

// Ids or flags changed: more than the tail rules allow.
bool replaces(const RecordChange& c) {
  return !same_bytes(c.before, c.store->after, 0, kValid) ||
         !same_bytes(c.before, c.store->after, 25, 26);
}

// Bytes changed, of those before `end`, that the instruction itself did not store to.
bool changed_elsewhere(const RecordChange& c, std::size_t end) {
  const RecordStore& s = *c.store;
  end = std::min({end, c.before.size(), s.after.size()});
  for (std::size_t i = 0; i < end; ++i) {
    const std::size_t word = (s.record % 8 + i) / 8;
    const bool stored = word < 4 && (s.words >> word & 1U) != 0;
    if (!stored && c.before[i] != s.after[i]) return true;
  }
  return false;
}

// A writer that hides records by their valid byte has done so once.
bool uses_valid_byte(const std::vector<WatchedRecord>& records) {
  for (const auto& r : records) {
    for (const RecordChange& c : r.changes) {
      if (c.seen_before && !is_valid(c.store->after)) return true;
      if (!is_valid(c.before) && c.seen_after) return true;
    }
  }
  return false;
}

Finding switches_pointer() {
  return not_applicable(NaReason::kCapability,
                        "the record was not hidden by its valid byte: this writer switches the "
                        "pointer");
}

// The flags of a record that stays visible until the end of the operation, with nothing else: a
// sampler may decide late (open.tctx.late-flags).
bool is_late_flags(const WatchedRecord& r, const RecordChange& c) {
  if (!same_bytes(c.before, c.store->after, 0, kValid + 1)) return false;
  if (same_bytes(c.before, c.store->after, 25, 26)) return false;
  return std::ranges::none_of(r.changes, [&](const RecordChange& later) {
    return later.operation == c.operation && later.store->order >= c.store->order &&
           (!later.seen_before || !is_valid(later.store->after) ||
            !same_bytes(c.before, later.store->after, 0, kValid));
  });
}

Finding late_flags(const ImageEvidence& e, const WatchedRecord& r, const RecordChange& c) {
  Finding f =
      failed("the flags were stored while the record was visible", "flags stored while visible");
  add_log(f, e, r, c);
  f.outcome = Outcome::kWarn;
  return f;
}

Finding valid_cleared_first(const ImageEvidence& e) {
  if (e.session == nullptr) return valid_cleared_first_by_steps(e);
  const auto records = watched(e);
  std::size_t cleared = 0;
  std::optional<Finding> late;
  for (const auto& r : records) {
    for (const RecordChange& c : r.changes) {
      if (!c.seen_before) continue;
      const bool clears = !is_valid(c.store->after);
      if (clears) ++cleared;
      // All 32 bytes at once are one step for who stops the thread.
      const bool wrong = clears ? changed_elsewhere(c, abi::kRecordHeadBytes + size_of(c.before))
                                : replaces(c) && c.store->words != 15;
      if (!wrong) continue;
      if (!clears && is_late_flags(r, c)) {
        if (!late) late = late_flags(e, r, c);
        continue;
      }
      Finding f = failed(
          fmt::format(
              "{} changed while the record was visible and valid",
              same_bytes(c.before, c.store->after, 0, 16)
                  ? (same_bytes(c.before, c.store->after, 16, 24) ? "its content" : "the span id")
                  : "the trace id"),
          "changed before the valid byte was cleared");
      add_log(f, e, r, c);
      return f;
    }
  }
  if (records.empty()) return not_watched(e);
  if (!uses_valid_byte(records)) return switches_pointer();
  if (late) return *std::move(late);
  if (cleared == 0)
    return unobservable("no operation hid a record by clearing its valid byte", "detach");
  return said_of_stores(passed(fmt::format("the valid byte was cleared first, {} times", cleared)));
}

Finding valid_set_last(const ImageEvidence& e) {
  if (e.session == nullptr) return valid_set_last_by_steps(e);
  const auto records = watched(e);
  std::size_t set = 0;
  std::optional<Finding> late;
  for (const auto& r : records) {
    for (std::size_t i = 0; i < r.changes.size(); ++i) {
      const RecordChange& c = r.changes[i];
      if (is_valid(c.before) || !c.seen_after) continue;
      ++set;
      const RecordBytes& then = c.store->after;
      // Follows the record until it is hidden again, or the operation is over.
      RecordBytes last = then;
      const RecordChange* at = &c;
      bool hidden = false;
      for (std::size_t j = i + 1; j < r.changes.size(); ++j) {
        const RecordChange& later = r.changes[j];
        if (later.operation != c.operation || !later.seen_before) break;
        if (is_late_flags(r, later)) {
          if (!late) late = late_flags(e, r, later);
          last = later.store->after;
          continue;
        }
        if (!same_bytes(last, later.store->after, 0, kValid) ||
            !same_bytes(last, later.store->after, 25, 26) ||
            !same_bytes(then, later.store->after, abi::kRecordHeadBytes,
                        abi::kRecordHeadBytes + size_of(then))) {
          at = &later;
          break;
        }
        if (!is_valid(later.store->after)) {
          hidden = true;
          break;
        }
        last = later.store->after;
      }
      // With another size, the entries are not those that were written.
      bool wrong = at != &c || !ends_on_boundary(then, size_of(then));
      // What no watchpoint covers shows at the look.
      const Record* seen = record_after(e, c.operation, r.watch->owner);
      if (!wrong && !hidden && seen != nullptr && seen->sample->value == r.watch->record &&
          at == &c && &c == &r.changes.back()) {
        const RecordBytes final_bytes(seen->bytes.begin(), seen->bytes.end());
        wrong = !same_bytes(then, final_bytes, 0, kValid) ||
                !same_bytes(then, final_bytes, abi::kRecordHeadBytes,
                            abi::kRecordHeadBytes + size_of(then));
      }
      if (!wrong) continue;
      Finding f = failed("the record changed after its valid byte was set again",
                         "valid before everything else was final");
      add_log(f, e, r, *at);
      return f;
    }
  }
  if (records.empty()) return not_watched(e);
  if (!uses_valid_byte(records)) return switches_pointer();
  if (late) return *std::move(late);
  if (set == 0) {
    return unobservable("no record was shown again by its valid byte", "an attach after a detach");
  }
  return said_of_stores(passed(fmt::format("the valid byte was set last, {} times", set)));
}

// Changes of the slot and of a reachable valid byte in each operation.
struct Switches {
  bool by_pointer = false;
  bool by_valid = false;
  const RecordChange* valid_store = nullptr;
  const WatchedRecord* record = nullptr;
};

Finding one_switch(const ImageEvidence& e) {
  const auto records = watched(e);
  if (records.empty()) return not_watched(e);
  const auto& operations = e.session->operations;
  std::map<std::size_t, Switches> of_operation;
  std::set<std::int32_t> owners;
  for (const auto& r : records) {
    owners.insert(r.watch->owner);
    for (const RecordChange& c : r.changes) {
      if (is_valid(c.before) == is_valid(c.store->after)) continue;
      // Reachable before and after it.
      if (c.store->slot != r.watch->record) continue;
      auto& s = of_operation[c.operation];
      if (s.by_valid) continue;
      s.by_valid = true;
      s.valid_store = &c;
      s.record = &r;
    }
  }
  // The slot at the looks before and after each operation.
  std::map<std::int32_t, std::uint64_t> slots;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const auto* view = operations[i].view;
    if (view == nullptr || view->image != e.image->key) continue;
    for (const ThreadView& t : view->threads) {
      if (!owners.contains(t.tid) || (!t.null && !t.sample)) continue;
      const std::uint64_t value = slot_after(e, i, t.tid).value_or(0);
      const auto [it, first] = slots.emplace(t.tid, value);
      // Null before the first attach of a thread is how each begins.
      if (!first && it->second != value && it->second != 0) of_operation[i].by_pointer = true;
      it->second = value;
    }
  }
  bool any_pointer = false;
  bool any_valid = false;
  for (const auto& [index, s] : of_operation) {
    any_pointer = any_pointer || s.by_pointer;
    any_valid = any_valid || s.by_valid;
    if (!s.by_pointer || !s.by_valid) continue;
    Finding f = failed(
        "one operation changed the valid byte of a record that the slot led to, and the slot",
        "pointer and valid byte in one operation");
    add_log(f, e, *s.record, *s.valid_store);
    return f;
  }
  if (!any_pointer && !any_valid) {
    return unobservable("no context was shown or hidden while its record was watched",
                        "an adapter that declares thread.attach and thread.detach");
  }
  if (any_pointer && any_valid) {
    return said_of_stores(info("some operations switch the pointer, others the valid byte",
                               "pointer and valid byte in different operations"));
  }
  return said_of_stores(passed(any_pointer ? "contexts are switched by the pointer"
                                           : "contexts are switched by the valid byte"));
}

Finding same_thread_writes(const ImageEvidence& e) {
  const auto records = watched(e);
  if (records.empty()) return not_watched(e);
  std::size_t own = 0;
  for (const auto& r : records) {
    for (const RecordChange& c : r.changes) {
      if (c.store->tid == r.watch->owner) {
        ++own;
        continue;
      }
      if (!c.seen_before && !c.seen_after) continue;
      Finding f = failed(fmt::format("thread {} stored to the record that is attached to "
                                     "thread {}",
                                     c.store->tid, r.watch->owner),
                         "another thread changes an attached record");
      add_log(f, e, r, c);
      return f;
    }
  }
  if (own == 0) {
    return unobservable("nobody stored to an attached record",
                        "an adapter that declares thread.append, or attaches twice");
  }
  return said_of_stores(passed(fmt::format("{} stores, all by the thread itself", own)));
}

Finding size_last(const ImageEvidence& e) {
  const auto records = watched(e);
  if (records.empty()) return not_watched(e);
  std::size_t grown = 0;
  for (const auto& r : records) {
    for (std::size_t i = 0; i < r.changes.size(); ++i) {
      const RecordChange& c = r.changes[i];
      const std::size_t size = size_of(c.store->after);
      if (!c.seen_before || !c.seen_after || size <= size_of(c.before)) continue;
      ++grown;
      bool wrong = c.store->after.size() >= abi::kRecordHeadBytes + size &&
                   !ends_on_boundary(c.store->after, size);
      // What it has when the operation is over, unless it was hidden or shrunk in between.
      RecordBytes last = c.store->after;
      bool comparable = true;
      for (std::size_t j = i + 1; j < r.changes.size(); ++j) {
        const RecordChange& later = r.changes[j];
        if (later.operation != c.operation) break;
        comparable = comparable && later.seen_before && later.seen_after &&
                     size_of(later.store->after) >= size;
        last = later.store->after;
      }
      const Record* seen = record_after(e, c.operation, r.watch->owner);
      if (comparable && seen != nullptr && seen->sample->value == r.watch->record &&
          seen->head.attrs_data_size >= size) {
        last.assign(seen->bytes.begin(), seen->bytes.end());
      }
      wrong = wrong || (comparable && !same_bytes(c.store->after, last, abi::kRecordHeadBytes,
                                                  abi::kRecordHeadBytes + size));
      if (!wrong) continue;
      Finding f =
          failed(fmt::format("the size became {} before the entries in it were there", size),
                 "size before entries");
      add_log(f, e, r, c);
      return f;
    }
  }
  if (grown == 0) {
    return unobservable("no visible record grew in place",
                        "an adapter that declares thread.append and appends in place");
  }
  return said_of_stores(passed(fmt::format("the size grew last, {} times", grown)));
}

Finding size_single_store(const ImageEvidence& e) {
  const auto records = watched(e);
  if (records.empty()) return not_watched(e);
  std::size_t grown = 0;
  for (const auto& r : records) {
    for (std::size_t i = 0; i < r.changes.size(); ++i) {
      const RecordChange& c = r.changes[i];
      if (!c.seen_before || !c.seen_after) continue;
      const std::size_t size = size_of(c.store->after);
      if (size == size_of(c.before)) continue;
      ++grown;
      // The next change of the size in the same operation: between them nothing ends at this size.
      for (std::size_t j = i + 1; j < r.changes.size(); ++j) {
        const RecordChange& later = r.changes[j];
        if (later.operation != c.operation || !later.seen_after) break;
        const std::size_t then = size_of(later.store->after);
        if (then == size) continue;
        // Each of two one-byte stores leaves the other byte as it was.
        const bool halves =
            (size & 0xff) == (size_of(c.before) & 0xff) || size >> 8U == size_of(c.before) >> 8U;
        const bool completes = (size & 0xff) == (then & 0xff) || size >> 8U == then >> 8U;
        if (!halves || !completes || ends_on_boundary(later.store->after, size)) break;
        Finding f = failed(
            fmt::format("the size went from {} over {} to {}", size_of(c.before), size, then),
            "size in two stores");
        add_log(f, e, r, c);
        return f;
      }
    }
  }
  if (grown == 0) {
    return unobservable("the size of no visible record changed",
                        "an adapter that declares thread.append and appends in place");
  }
  return said_of_stores(passed(fmt::format("{} changes of the size, each one store", grown)));
}

Finding shrink_size_before_tail(const ImageEvidence& e) {
  const auto records = watched(e);
  if (records.empty()) return not_watched(e);
  std::size_t shrunk = 0;
  for (const auto& r : records) {
    for (const RecordChange& c : r.changes) {
      if (!c.seen_before) continue;
      const std::size_t size = c.stable;
      if (c.seen_after && size_of(c.store->after) < size_of(c.before)) ++shrunk;
      // If this store hides the record, the bytes may have changed after it.
      if (!c.seen_after ||
          same_bytes(c.before, c.store->after, abi::kRecordHeadBytes, abi::kRecordHeadBytes + size))
        continue;
      Finding f = failed(
          fmt::format("bytes within the {} of the entries changed while the record was visible",
                      size),
          "entries changed before the size");
      add_log(f, e, r, c);
      return f;
    }
  }
  if (shrunk == 0) {
    return unobservable("no visible record shrank in place",
                        "an adapter that declares thread.shrink and shrinks in place");
  }
  return said_of_stores(passed(fmt::format("the size was lowered first, {} times", shrunk)));
}

constexpr auto kRecordStoreRules = std::to_array<RequirementRule>({
    {"tctx.attach.valid-cleared-first", valid_cleared_first, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.attach.valid-set-last", valid_set_last, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.attach.one-switch", one_switch, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.attach.same-thread-writes", same_thread_writes, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.append.size-last", size_last, AskedOf::kTestee, RestsOn::kEvents, UnderFaults::kJudged},
    {"tctx.append.size-single-store", size_single_store, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.shrink.size-before-tail", shrink_size_before_tail, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> record_store_rules() { return kRecordStoreRules; }

}  // namespace ctxconf::conformance
