#include "conformance/rules/record_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstring>

#include "abi/thread_layouts.h"

namespace ctxconf::conformance {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kAnyKey = abi::kMaxKeys;

// A separate buffer of attributes is not further from its record; text is.
constexpr std::uint64_t kNearby = std::uint64_t{64} << 20U;

enum class Fit { kRuledOut, kPossible, kProven };

struct Style {
  bool varint = false;
  std::size_t alignment = 1;
  std::size_t most = SIZE_MAX;  // entries
};

struct Walk {
  std::size_t entries = 0;
  std::size_t end = 0;           // of the last whole entry, with its padding
  std::size_t gaps = 0;          // padding with an entry after it
  bool gaps_used = false;        // ... that is not all zero
  std::size_t long_lengths = 0;  // of two bytes
  bool known_keys = true;        // every index is in the key map
  bool repeated_key = false;
  bool blank_run = false;  // two entries in a row of index 0 without a value: zeroed memory
  std::size_t in_use = 0;  // end of the last entry that is not zeroed memory
};

std::optional<std::size_t> length_at(Bytes area, std::size_t& at, bool varint) {
  const auto byte = std::to_integer<std::size_t>(area[at++]);
  if (!varint || byte < 0x80) return byte;
  if (at == area.size()) return std::nullopt;
  const auto high = std::to_integer<std::size_t>(area[at++]);
  if (high == 0 || high >= 0x80) return std::nullopt;  // never so long, or longer than any record
  return (byte & 0x7fU) | high << 7U;
}

Walk walk(Bytes area, std::size_t keys, const Style& style = {}) {
  Walk w;
  std::bitset<abi::kMaxKeys> seen;
  bool padded = false;
  bool padding_used = false;
  bool blank = false;
  while (w.entries < style.most && area.size() - w.end >= abi::kEntryHeadBytes) {
    std::size_t at = w.end;
    const auto key = std::to_integer<std::size_t>(area[at++]);
    const auto length = length_at(area, at, style.varint);
    if (!length || *length > area.size() - at) break;
    const bool wide = at - w.end > abi::kEntryHeadBytes;
    const bool zero = key == 0 && *length == 0;
    at += *length;
    if (padded) ++w.gaps;
    w.gaps_used = w.gaps_used || (padded && padding_used);
    if (wide) ++w.long_lengths;
    w.blank_run = w.blank_run || (zero && blank);
    blank = zero;
    w.known_keys = w.known_keys && key < keys;
    w.repeated_key = w.repeated_key || seen[key];
    seen.set(key);
    ++w.entries;
    const std::size_t aligned =
        std::min(area.size(), (at + style.alignment - 1) / style.alignment * style.alignment);
    padded = aligned != at;
    padding_used = !all_zero(area.subspan(at, aligned - at));
    w.end = aligned;
    if (!zero) w.in_use = aligned;
  }
  return w;
}

std::uint64_t number_at(Bytes bytes, std::size_t at, bool little_endian) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return little_endian == (std::endian::native == std::endian::little) ? value
                                                                       : std::byteswap(value);
}

// One record as its bytes are read in the merged layout, and the ways to read it otherwise.
class Examination {
 public:
  Examination(const ImageEvidence& e, const Record& r, bool draft_times)
      : image_(*e.image), record_(r), draft_times_(draft_times) {
    keys_ = key_count(r).value_or(kAnyKey);
    size_ = r.head.attrs_data_size;
    behind_ =
        r.bytes.size() > abi::kRecordHeadBytes ? r.bytes.subspan(abi::kRecordHeadBytes) : Bytes{};
    whole_ = r.whole && behind_.size() >= size_;
    area_ = behind_.first(std::min(size_, behind_.size()));
    as_is_ = walk(area_, keys_);
    exact_ = whole_ && as_is_.end == area_.size();
  }

  JudgedRecord judge() const {
    JudgedRecord out;
    out.record = &record_;
    out.end = as_is_.end;
    out.entries = as_is_.entries;
    out.at_address = whole_;
    if (!record_.valid()) {
      out.fault = RecordFault::kOlderLayout;
      (void)fits(out.fault, out.reading);
      return out;
    }
    for (const auto fault :
         {RecordFault::kForeignByteOrder, RecordFault::kSizeIsCount, RecordFault::kPaddedEntries,
          RecordFault::kSizeWithHead, RecordFault::kVarintLengths, RecordFault::kOlderLayout,
          RecordFault::kElsewhere}) {
      out.fault = fault;
      if (fits(fault, out.reading) == Fit::kProven) return out;
    }
    out.reading.clear();
    out.fault = exact_ ? RecordFault::kNone : RecordFault::kCutEntry;
    return out;
  }

  Fit fits(RecordFault fault, std::string& reading) const {
    switch (fault) {
      case RecordFault::kForeignByteOrder:
        return foreign_byte_order(reading);
      case RecordFault::kSizeIsCount:
        return size_is_count(reading);
      case RecordFault::kSizeWithHead:
        return size_with_head(reading);
      case RecordFault::kVarintLengths:
        return varint_lengths(reading);
      case RecordFault::kPaddedEntries:
        return padded_entries(reading);
      case RecordFault::kElsewhere:
        return elsewhere(reading);
      case RecordFault::kOlderLayout:
        return older_layout(reading);
      default:
        return Fit::kRuledOut;
    }
  }

 private:
  Fit foreign_byte_order(std::string& reading) const {
    const std::size_t swapped = std::byteswap(record_.head.attrs_data_size);
    if (swapped == 0 || swapped == size_ || swapped > behind_.size()) return Fit::kRuledOut;
    const Walk w = walk(behind_.first(swapped), keys_);
    if (w.end != swapped || !w.known_keys || w.blank_run) return Fit::kRuledOut;
    const bool beyond = swapped < size_;
    // What lies after the entries may be any memory: read as entries it names no known keys, or
    // says nothing over and over.
    const bool senseless = beyond && abi::kRecordHeadBytes + size_ > abi::kRecommendedRecordBytes &&
                           (!as_is_.known_keys || as_is_.blank_run);
    const bool in_use = as_is_.in_use > swapped && as_is_.in_use >= size_ / 4 * 3;
    if (!senseless && (exact_ || (beyond && in_use))) return Fit::kRuledOut;
    reading = fmt::format("{} entries over {} bytes with the size in the other byte order",
                          w.entries, swapped);
    return Fit::kProven;
  }

  Fit size_is_count(std::string& reading) const {
    if (exact_ || size_ == 0 || size_ > abi::kMaxKeys) return Fit::kRuledOut;
    const Walk w = walk(behind_, keys_, {.most = size_});
    if (w.entries != size_ || w.end <= size_ || !w.known_keys) return Fit::kRuledOut;
    if (w.repeated_key) return Fit::kPossible;  // leftovers after an area that is cut
    reading = fmt::format("{} entries over {} bytes", w.entries, w.end);
    return Fit::kProven;
  }

  Fit size_with_head(std::string& reading) const {
    if (size_ < abi::kRecordHeadBytes || size_ - abi::kRecordHeadBytes > behind_.size())
      return Fit::kRuledOut;
    const std::size_t without = size_ - abi::kRecordHeadBytes;
    const Walk w = walk(behind_.first(without), keys_);
    if (w.end != without || !w.known_keys || w.blank_run) return Fit::kRuledOut;
    reading = fmt::format("{} entries over {} bytes, which with the fixed part are {}", w.entries,
                          without, size_);
    const bool zeros = whole_ && all_zero(area_.subspan(without));
    if (exact_) {
      return zeros && w.entries > 0 && w.in_use == without ? Fit::kProven : Fit::kRuledOut;
    }
    // The 28 bytes in excess may also be the beginning of an entry that is cut.
    const bool entry_begins =
        without < area_.size() && std::to_integer<std::size_t>(area_[without]) < keys_;
    return w.entries > 0 && !entry_begins ? Fit::kProven : Fit::kPossible;
  }

  Fit padded_entries(std::string& reading) const {
    if (exact_ && as_is_.known_keys) return Fit::kRuledOut;
    if (!whole_) return Fit::kRuledOut;
    Fit best = Fit::kRuledOut;
    for (const std::size_t alignment : {2U, 4U, 8U}) {
      const Walk w = walk(area_, keys_, {.alignment = alignment});
      if (w.end != size_ || !w.known_keys) continue;
      reading = fmt::format("{} entries, each at a multiple of {} bytes", w.entries, alignment);
      // What looks like a wider gap may hold entries.
      const bool gaps = w.gaps > 0 && (alignment == 2 || !w.gaps_used);
      if (gaps && !w.blank_run) return Fit::kProven;
      best = Fit::kPossible;
    }
    return best;
  }

  Fit varint_lengths(std::string& reading) const {
    if (!whole_ || (exact_ && as_is_.known_keys)) return Fit::kRuledOut;
    const Walk w = walk(area_, keys_, {.varint = true});
    if (w.end != size_ || w.long_lengths == 0 || !w.known_keys) return Fit::kRuledOut;
    reading = fmt::format("{} entries, {} with a length of two bytes", w.entries, w.long_lengths);
    return Fit::kProven;
  }

  Fit elsewhere(std::string& reading) const {
    if (!whole_) {
      reading = fmt::format("{} of {} bytes can be copied", record_.bytes.size(),
                            abi::kRecordHeadBytes + size_);
      return Fit::kProven;
    }
    const bool readable = exact_ && as_is_.known_keys;
    if (readable || behind_.size() < sizeof(std::uint64_t)) return Fit::kRuledOut;
    const std::uint64_t pointer = number_at(behind_, 0, image_.little_endian);
    const std::uint64_t at = record_.sample->value;
    if (std::max(pointer, at) - std::min(pointer, at) > kNearby) return Fit::kRuledOut;
    reading = fmt::format("{:#x}, an address, where the entries should begin", pointer);
    return Fit::kProven;
  }

  Fit older_layout(std::string& reading) const {
    const bool readable = as_is_.entries > 0 && as_is_.known_keys;
    if (exact_ && (record_.valid() || readable)) return Fit::kRuledOut;
    const auto& draft = abi::fields_of(abi::RecordLayout::kT0);
    const auto fields = abi::decode_record_as(draft, record_.bytes);
    if (!fields.problem.empty() || fields.valid != 1) return Fit::kRuledOut;
    const auto count =
        std::to_integer<std::size_t>(record_.bytes[static_cast<std::size_t>(draft.count)]);
    const Walk w = walk(record_.bytes.subspan(draft.fixed_bytes), keys_, {.most = count});
    if (w.entries != count || !w.known_keys || w.blank_run) return Fit::kRuledOut;
    reading = fmt::format("{} entries from {} on, as byte {} says", count, draft.fixed_bytes,
                          draft.count);
    return count > 0 || draft_times_ ? Fit::kProven : Fit::kPossible;
  }

  const Image& image_;
  const Record& record_;
  bool draft_times_;
  std::size_t keys_ = kAnyKey;
  std::size_t size_ = 0;
  bool whole_ = false;
  bool exact_ = false;
  Bytes behind_;  // all that follows the fixed part
  Bytes area_;
  Walk as_is_;
};

}  // namespace

DraftTimes draft_times(const ImageEvidence& e) {
  DraftTimes out;
  for (const Context* c : e.first_sights) {
    if (c->payload == nullptr) continue;
    for (const auto& t : c->payload->threadlocal) {
      if (t.key == "threadlocal.max_record_size") out.max_record_size = true;
      if (t.key == abi::kAttributeKeyMapKey && t.kind == ValueKind::kKvlist) {
        out.key_map_pairs = true;
      }
    }
  }
  return out;
}

std::optional<std::size_t> key_count(const Record& record) {
  std::optional<std::size_t> count;
  for (const auto* map : {record.key_map, record.last_key_map}) {
    if (map == nullptr || map->kind != ValueKind::kArray) continue;
    count = std::max<std::size_t>(count.value_or(0), map->element_count);
  }
  return count;
}

const Process* parent_of(const Timeline& t, const Process& child) {
  const auto parent = std::ranges::find_if(t.processes, [&](const Process& p) {
    return p.pid == child.parent && p.session == child.session && &p != &child;
  });
  return parent == t.processes.end() ? nullptr : &*parent;
}

const Process* forked_from(const ImageEvidence& e) {
  if (e.image != &e.process->images.front()) return nullptr;  // it has executed another program
  return parent_of(*e.timeline, *e.process);
}

bool may_have_contexts_of_ancestors(const ImageEvidence& e) {
  const auto has_used_any = [](const Image& i) {
    return i.snapshots_dropped + i.looks_skipped > 0 || i.threads_dropped > 0 ||
           !i.threads_unread.empty() || !i.threads.empty() || !i.hidden_slots.empty() ||
           std::ranges::any_of(i.snapshots,
                               [](const Snapshot& s) { return !s.candidates.empty(); });
  };
  const Process* ancestor = forked_from(e);
  // Numbers may come again, and make a circle.
  for (std::size_t i = 0; ancestor != nullptr && i < e.timeline->processes.size(); ++i) {
    const auto& images = ancestor->images;
    if (images.empty() || std::ranges::any_of(images, has_used_any)) return true;
    ancestor = parent_of(*e.timeline, *ancestor);
  }
  return false;
}

bool is_inherited(const ImageEvidence& e, const Record& record) {
  const auto same = [&](const ThreadSample& s) {
    return s.value == record.sample->value && s.record &&
           s.record->bytes == record.sample->record->bytes;
  };
  const auto at_birth = [&](const ThreadSample& s) { return s.inherited && same(s); };
  if (std::ranges::any_of(e.image->threads, at_birth)) return true;
  // It may go back to a record under the one that was current when it was forked.
  const Process* parent = forked_from(e);
  return parent != nullptr && std::ranges::any_of(parent->images, [&](const Image& i) {
           return std::ranges::any_of(i.threads, same);
         });
}

std::vector<JudgedRecord> judged_records(const ImageEvidence& e) {
  const auto times = draft_times(e);
  const bool draft = times.max_record_size || times.key_map_pairs;
  std::vector<JudgedRecord> out;
  std::vector<Examination> examined;
  for (const Record& r : e.records) {
    if (r.head.valid == 0) continue;
    const Examination x(e, r, draft);
    std::string reading;
    if (!r.valid() && x.fits(RecordFault::kOlderLayout, reading) != Fit::kProven) continue;
    out.push_back(x.judge());
    examined.push_back(x);
  }
  // What is proven for one record of a program explains another that fits it less clearly.
  std::vector<RecordFault> proven;
  for (const JudgedRecord& j : out) {
    if (j.fault == RecordFault::kNone || j.fault == RecordFault::kCutEntry) continue;
    if (std::ranges::find(proven, j.fault) == proven.end()) proven.push_back(j.fault);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].fault != RecordFault::kCutEntry) continue;
    for (const RecordFault fault : proven) {
      std::string reading;
      if (examined[i].fits(fault, reading) == Fit::kRuledOut) continue;
      out[i].fault = fault;
      out[i].reading = std::move(reading);
      break;
    }
  }
  return out;
}

}  // namespace ctxconf::conformance
