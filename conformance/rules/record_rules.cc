#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "abi/thread_layouts.h"
#include "conformance/payload/payload_walk.h"
#include "conformance/rules/driven_threads.h"
#include "conformance/rules/thread_rules.h"
#include "conformance/rules/vector_bytes.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kValidAt = offsetof(abi::ThreadRecordHead, valid);
constexpr std::uint64_t kFlagsAt = offsetof(abi::ThreadRecordHead, trace_flags);
constexpr std::uint64_t kSizeAt = offsetof(abi::ThreadRecordHead, attrs_data_size);

Finding against(const Record& r, std::string saw, std::string signature,
                std::vector<Hexdump::Mark> marks) {
  Finding f = failed(std::move(saw), std::move(signature));
  f.evidence = record_lines(r);
  f.hexdumps = {record_dump(r, std::move(marks))};
  return f;
}

// The same with what a golden vector has there; for requirements about the fixed part.
Finding against_layout(const ImageEvidence& e, const Record& r, std::string saw,
                       std::string signature, std::vector<Hexdump::Mark> marks,
                       const std::vector<KnownBytes>& known = {}) {
  Finding f = against(r, std::move(saw), std::move(signature), std::move(marks));
  Hexdump& dump = f.hexdumps.front();
  if (e.image->little_endian && dump.address == r.sample->value) put_beside_record(dump, known);
  return f;
}

// "offset 28: index 0, length 3, "GET"", as far as entries are whole.
void add_plain_entries(Finding& f, const Record& r) {
  abi::AttributeCursor cursor(r.attributes);
  for (std::size_t i = 0; i < kMaxListed; ++i) {
    const auto entry = cursor.next();
    if (!entry) return;
    f.evidence.push_back(
        fmt::format("offset {}: index {}, length {}, {}", abi::kRecordHeadBytes + entry->offset,
                    entry->key, entry->value.size(), conformance::quoted(text_of(*entry), 32)));
  }
}

template <class Visit>  // visit(entry) -> go on?
void for_each_entry(const Record& r, const Visit& visit) {
  abi::AttributeCursor cursor(r.attributes);
  while (const auto entry = cursor.next()) {
    if (!visit(*entry)) return;
  }
}

// The verdict where no record breaks a requirement: it takes at least one that shows the point.
template <class Shows>
Finding kept(const ImageEvidence& e, const std::vector<JudgedRecord>& records, const Shows& shows,
             const char* wanted) {
  const auto sound = [](const JudgedRecord& j) { return j.fault == RecordFault::kNone; };
  const auto count =
      std::ranges::count_if(records, [&](const auto& j) { return sound(j) && shows(j); });
  if (count > 0) return passed(fmt::format("{} record{}", count, count == 1 ? "" : "s"));
  if (records.empty()) return no_record(e);
  if (std::ranges::none_of(records, sound)) {
    return unobservable(
        "the records do not have the documented layout; another requirement reports that",
        "a record whose entries fill its area");
  }
  return unobservable(fmt::format("no record with {} was seen", wanted),
                      fmt::format("a record with {}", wanted));
}

bool any(const JudgedRecord&) { return true; }
bool with_entry(const JudgedRecord& j) { return j.entries > 0; }

// The first record with one of these faults.
const JudgedRecord* find_fault(const std::vector<JudgedRecord>& records,
                               std::initializer_list<RecordFault> faults) {
  for (const auto& j : records) {
    if (std::ranges::find(faults, j.fault) != faults.end()) return &j;
  }
  return nullptr;
}

std::string merged_reading(const JudgedRecord& j) {
  return fmt::format("merged layout: {} entries over {} of {} bytes", j.entries, j.end,
                     j.record->head.attrs_data_size);
}

// "T0 scores 7: valid 1 at 32, 3 entries from 34 on": what speaks for each layout.
void add_scores(Finding& f, const ImageEvidence& e, const Record& r) {
  const auto times = draft_times(e);
  const auto recognition = abi::recognise_record({.symbol = abi::SlotSymbol::kCurrent,
                                                  .bytes = r.bytes,
                                                  .has_max_record_size = times.max_record_size,
                                                  .key_map_is_pairs = times.key_map_pairs});
  for (const auto& s : recognition.scores) {
    const auto& fields = abi::fields_of(s.layout);
    std::string line =
        fmt::format("{}{} scores {}: valid {} at {}, {} entries from {} on", fields.id,
                    s.other_byte_order ? " in the other byte order" : "", s.score, s.fields.valid,
                    fields.valid, s.fields.entries, fields.fixed_bytes);
    if (!s.fields.problem.empty()) line += fmt::format("; {}", s.fields.problem);
    f.evidence.push_back(std::move(line));
  }
}

// How many bytes the first `count` entries after the fixed part take.
std::size_t bytes_of_entries(const Record& r, std::size_t count) {
  abi::AttributeCursor cursor(r.bytes.subspan(abi::kRecordHeadBytes));
  for (std::size_t i = 0; i < count && cursor.next(); ++i) {
  }
  return cursor.offset();
}

// The size and entries of a draft's record as the merged layout has them.
std::vector<KnownBytes> merged_record(const Record& r, const abi::RecordFields& draft) {
  const auto after = r.bytes.subspan(draft.fixed_bytes);
  const auto count = std::to_integer<std::size_t>(r.bytes[static_cast<std::size_t>(draft.count)]);
  abi::AttributeCursor cursor(after);
  for (std::size_t i = 0; i < count && cursor.next(); ++i) {
  }
  KnownBytes entries{abi::kRecordHeadBytes, {}};
  for (const std::byte b : after.first(cursor.offset())) {
    entries.bytes.push_back(std::to_integer<std::uint8_t>(b));
  }
  return {known_number(kSizeAt, cursor.offset(), 2), std::move(entries)};
}

Finding record_layout(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  if (const auto* j = find_fault(records, {RecordFault::kOlderLayout})) {
    const auto& draft = abi::fields_of(abi::RecordLayout::kT0);
    const auto at = [](int offset) { return static_cast<std::uint64_t>(offset); };
    Finding f = against_layout(e, *j->record,
                               fmt::format("{}; {}", abi::describe(draft.layout), j->reading),
                               fmt::format("layout {}", draft.id),
                               {{at(draft.root_span_id), 8, "root span id"},
                                {at(draft.valid), 1, "valid"},
                                {at(draft.count), 1, "entries"}},
                               merged_record(*j->record, draft));
    add_scores(f, e, *j->record);
    return f;
  }
  return kept(e, records, any, "a valid byte of 1");
}

Finding byte_order(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  if (const auto* j = find_fault(records, {RecordFault::kForeignByteOrder})) {
    const std::uint16_t size = j->record->head.attrs_data_size;
    Finding f = against_layout(
        e, *j->record,
        fmt::format("the size is {}; the entries fill {}, its value in the other byte order", size,
                    std::byteswap(size)),
        "size in the other byte order", {{kSizeAt, 2, fmt::format("size: {}", size)}},
        {known_number(kSizeAt, std::byteswap(size), 2)});
    f.evidence.push_back("other byte order: " + j->reading);
    f.evidence.push_back("own byte order: " + merged_reading(*j));
    return f;
  }
  return kept(e, records, with_entry, "an attribute");
}

bool is_readable_head(const JudgedRecord& j) {
  return j.fault != RecordFault::kOlderLayout && j.record->valid();
}

Finding ids_both_or_neither(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  std::size_t judged = 0;
  for (const auto& j : records) {
    if (!is_readable_head(j)) continue;
    ++judged;
    const auto& h = j.record->head;
    if (abi::has_trace_id(h) == abi::has_span_id(h)) continue;
    return against_layout(
        e, *j.record,
        fmt::format("trace id {}, span id {}", trace_id_of(*j.record), span_id_of(*j.record)),
        abi::has_trace_id(h) ? "trace id without span id" : "span id without trace id",
        {abi::has_trace_id(h) ? Hexdump::Mark{16, 8, "span id: zero"}
                              : Hexdump::Mark{0, 16, "trace id: zero"}});
  }
  if (judged > 0) return passed(fmt::format("{} records", judged));
  return kept(e, records, any, "a valid byte of 1");
}

Finding trace_flags_without_ids(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  std::size_t judged = 0;
  for (const auto& j : records) {
    if (!is_readable_head(j)) continue;
    const auto& h = j.record->head;
    if (abi::has_trace_id(h) || abi::has_span_id(h)) continue;
    ++judged;
    if (h.trace_flags == 0) continue;
    return against_layout(e, *j.record,
                          fmt::format("no ids, and the trace flags are {:#04x}", h.trace_flags),
                          "trace flags without ids",
                          {{kFlagsAt, 1, fmt::format("trace flags: {:#04x}", h.trace_flags)}},
                          {known_number(kFlagsAt, 0, 1)});
  }
  if (judged > 0) return passed(fmt::format("{} records without ids", judged));
  if (records.empty()) return no_record(e);
  return unobservable("no record without ids was seen", "a record with attributes only");
}

// Values of byte 24, with records of a draft left out: they have it elsewhere.
struct ValidBytes {
  std::set<std::uint8_t> values;
  const Record* odd = nullptr;  // the first that is neither 0 nor 1
  std::size_t odd_count = 0;
};
ValidBytes valid_bytes(const ImageEvidence& e) {
  std::set<const Record*> drafts;
  for (const auto& j : judged_records(e)) {
    if (j.fault == RecordFault::kOlderLayout) drafts.insert(j.record);
  }
  ValidBytes out;
  for (const Record& r : e.records) {
    if (drafts.contains(&r)) continue;
    out.values.insert(r.head.valid);
    if (r.head.valid <= abi::kRecordValid) continue;
    ++out.odd_count;
    if (out.odd == nullptr) out.odd = &r;
  }
  return out;
}

std::string listed(const std::set<std::uint8_t>& values) {
  std::string out;
  for (const auto v : values) out += fmt::format("{}{}", out.empty() ? "" : ", ", v);
  return out;
}

// From outside nobody can tell whether a context is attached. A program that never stores 1
// and stores something else than 0 has another idea of true.
Finding valid_is_one(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const ValidBytes seen = valid_bytes(e);
  if (seen.values.contains(abi::kRecordValid)) {
    return passed("byte 24 had the values " + listed(seen.values));
  }
  if (seen.odd == nullptr) return no_record(e);
  const std::string counted = fmt::format("byte 24 is {}, and 1 in no record ({} seen)",
                                          seen.odd->head.valid, seen.odd_count);
  if (e.timeline->mode == Mode::kAttach) {
    return unobservable(counted, "wrap mode, which sees the program from its start");
  }
  return against_layout(e, *seen.odd, counted, "valid is not 1",
                        {{kValidAt, 1, fmt::format("valid: {}, want 1", seen.odd->head.valid)}});
}

Finding valid_reserved_values(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const ValidBytes seen = valid_bytes(e);
  if (seen.values.empty()) return no_record(e);
  if (seen.odd == nullptr) return passed("byte 24 had the values " + listed(seen.values));
  if (e.timeline->mode != Mode::kAttach && !seen.values.contains(abi::kRecordValid)) {
    return unobservable("byte 24 is never 1; tctx.record.valid-is-one reports that",
                        "a program that stores 1 for valid");
  }
  return against_layout(e, *seen.odd, "byte 24 had the values " + listed(seen.values),
                        "reserved value of valid",
                        {{kValidAt, 1, fmt::format("valid: {}", seen.odd->head.valid)}});
}

Finding attrs_data_size(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  const auto* j = find_fault(records, {RecordFault::kSizeIsCount, RecordFault::kSizeWithHead});
  if (j == nullptr) return kept(e, records, any, "a valid byte of 1");
  const bool count = j->fault == RecordFault::kSizeIsCount;
  const auto size = j->record->head.attrs_data_size;
  Finding f = against_layout(
      e, *j->record,
      fmt::format("the size is {}, which {}: {}", size,
                  count ? "counts entries" : "counts the fixed part too", j->reading),
      count ? "size counts entries" : "size counts the fixed part",
      {{kSizeAt, 2, fmt::format("size: {}", size)}},
      {known_number(kSizeAt,
                    count ? bytes_of_entries(*j->record, size) : size - abi::kRecordHeadBytes, 2)});
  f.evidence.push_back(merged_reading(*j));
  return f;
}

Finding aligned(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  std::size_t judged = 0;
  for (const Record& r : e.records) {
    ++judged;
    if (r.sample->value % alignof(abi::ThreadRecordHead) == 0) continue;
    return against_layout(e, r,
                          fmt::format("the record is at {:#x}, an odd address", r.sample->value),
                          "record at an odd address", {});
  }
  if (judged == 0) return no_record(e);
  return passed(fmt::format("{} records", judged));
}

// A variable of another size is not a pointer: tctx.tls.is-pointer reports it.
bool is_pointer_sized(const ImageEvidence& e, const ThreadSample& s) {
  if (s.module >= e.image->modules.size()) return true;
  const ModuleFacts& m = e.image->modules[s.module];
  return std::ranges::none_of(m.dynamic_symbols, [&](const sys::ElfSymbol& symbol) {
    return symbol.defined() && symbol.size != 0 && symbol.size != (m.elf64 ? 8 : 4);
  });
}

Finding contiguous(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  if (const auto* j = find_fault(records, {RecordFault::kElsewhere})) {
    const Record& r = *j->record;
    if (j->at_address) {
      return against_layout(e, r, "the entries are not after the fixed part: " + j->reading,
                            "pointer instead of entries",
                            {{abi::kRecordHeadBytes, 8, "an address"}});
    }
    return against_layout(e, r, j->reading, "record is not one block",
                          {{kSizeAt, 2, fmt::format("size: {}", r.head.attrs_data_size)}});
  }
  const ThreadSample* once = nullptr;
  for (const ThreadSample* s : e.unreadable) {
    if (!is_pointer_sized(e, *s)) continue;
    // A thread that ends may leave its slot non-null for a moment.
    if (s->times < 2) {
      once = s;
      continue;
    }
    Finding f =
        failed(fmt::format("the slot of thread {} holds {:#x}, where no 28 bytes can be copied",
                           s->tid, s->value),
               "record cannot be copied");
    f.evidence = {
        fmt::format("slot {:#x}, seen {} times", s->slot, s->times),
        s->mapping ? "maps: " + to_maps_line(*s->mapping) : "no mapping holds this address"};
    return f;
  }
  if (records.empty() && once != nullptr) {
    return unobservable(
        fmt::format("thread {} had a record that could not be copied, once", once->tid),
        "a context that stays attached for at least 200 ms");
  }
  return kept(e, records, any, "a valid byte of 1");
}

Finding recommended_size(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  std::uint64_t largest = 0;
  for (const auto& j : records) {
    if (j.fault != RecordFault::kNone && j.fault != RecordFault::kCutEntry &&
        j.fault != RecordFault::kPaddedEntries && j.fault != RecordFault::kVarintLengths) {
      continue;
    }
    const std::uint64_t size = abi::kRecordHeadBytes + j.record->head.attrs_data_size;
    largest = std::max(largest, size);
    if (size <= abi::kRecommendedRecordBytes) continue;
    return against_layout(e, *j.record, fmt::format("a record of {} bytes", size),
                          "record above 640 bytes",
                          {{kSizeAt, 2, fmt::format("size: {}", j.record->head.attrs_data_size)}});
  }
  if (largest > 0) return passed(fmt::format("the largest record has {} bytes", largest));
  return kept(e, records, any, "a valid byte of 1");
}

Finding entry_format(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  if (const auto* j = find_fault(records, {RecordFault::kVarintLengths})) {
    Finding f = against(*j->record, "lengths are varints: " + j->reading, "varint lengths",
                        {{abi::kRecordHeadBytes + j->end, 3, "entry"}});
    f.evidence.push_back(merged_reading(*j));
    add_plain_entries(f, *j->record);
    return f;
  }
  return kept(e, records, with_entry, "an attribute");
}

Finding packed(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  if (const auto* j = find_fault(records, {RecordFault::kPaddedEntries})) {
    Finding f = against(*j->record, "entries are padded: " + j->reading, "padding between entries",
                        {{abi::kRecordHeadBytes, 2, "first entry"}});
    f.evidence.push_back(merged_reading(*j));
    add_plain_entries(f, *j->record);
    return f;
  }
  const auto tells = [](const JudgedRecord& j) {
    bool odd = false;
    bool next = false;
    for_each_entry(*j.record, [&](const abi::AttributeEntry& entry) {
      next = odd;
      odd = entry.value.size() % 2 == 1;
      return !next;
    });
    return next;
  };
  return kept(e, records, tells, "an entry after a value of odd length");
}

Finding ends_on_boundary(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  if (const auto* j = find_fault(records, {RecordFault::kCutEntry})) {
    const auto size = j->record->head.attrs_data_size;
    Finding f = against(*j->record,
                        fmt::format("{} entries end at {} of {} bytes; {} are left over",
                                    j->entries, j->end, size, size - j->end),
                        "area ends inside an entry",
                        {{abi::kRecordHeadBytes + j->end, size - j->end, "no whole entry"}});
    add_plain_entries(f, *j->record);
    return f;
  }
  return kept(e, records, with_entry, "an attribute");
}

Finding key_in_map(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  bool no_map = false;
  bool unpublished = false;
  std::size_t judged = 0;
  for (const auto& j : records) {
    if (j.fault != RecordFault::kNone || j.entries == 0 || is_inherited(e, *j.record)) continue;
    const auto keys = key_count(*j.record);
    no_map = no_map || !keys;
    if (!keys) continue;
    ++judged;
    std::optional<abi::AttributeEntry> bad;
    bool never_published = false;
    for_each_entry(*j.record, [&](const abi::AttributeEntry& entry) {
      if (entry.key < *keys) return true;
      if (never_named(e, *j.record, entry)) {
        never_published = true;
      } else {
        bad = entry;
      }
      return !bad;
    });
    if (!bad && never_published) {
      --judged;
      unpublished = true;
    }
    if (!bad) continue;
    return against(
        *j.record,
        fmt::format("index {} in a record, and {} elements in the key map", bad->key, *keys),
        "index outside the key map",
        {{abi::kRecordHeadBytes + bad->offset, 1, fmt::format("index {}", bad->key)}});
  }
  if (judged > 0) return passed(fmt::format("{} records with attributes", judged));
  if (unpublished) {
    return unobservable(
        "an index whose name was never published; tctx.keymap.append-updates-context reports that",
        "a program that publishes the names that it uses");
  }
  if (no_map) {
    return unobservable("no key map was seen; tctx.refdata.key-map-present reports that",
                        "a process context with a key map");
  }
  return kept(e, records, with_entry, "an attribute");
}

// Is what begins at `bad` a character that the end of the value cuts?
bool is_cut_character(std::string_view value, const BadBytes& bad) {
  const auto lead = static_cast<unsigned char>(value[bad.at]);
  return value.size() == abi::kMaxValueBytes && bad.at + bad.count == value.size() &&
         lead >= 0xc2 && lead <= 0xf4;
}

Finding values_are_utf8(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto records = judged_records(e);
  for (const auto& j : records) {
    if (j.fault != RecordFault::kNone) continue;
    std::optional<Finding> bad;
    for_each_entry(*j.record, [&](const abi::AttributeEntry& entry) {
      const std::string value = text_of(entry);
      const auto wrong = first_bad_utf8(value);
      if (!wrong) return true;
      const std::uint64_t at =
          abi::kRecordHeadBytes + entry.offset + abi::kEntryHeadBytes + wrong->at;
      if (is_cut_character(value, *wrong)) {
        bad = against(
            *j.record,
            fmt::format("the value of index {} is cut at 255 bytes inside a character", entry.key),
            "character cut at the limit", {{at, wrong->count, "cut"}});
      } else {
        bad = against(*j.record,
                      fmt::format("the value of index {} is not UTF-8: {}", entry.key,
                                  conformance::quoted(
                                      value.substr(wrong->at > 16 ? wrong->at - 16 : 0, 40), 80)),
                      "value is not UTF-8", {{at, wrong->count, "not UTF-8"}});
      }
      return false;
    });
    if (bad) return *bad;
  }
  return kept(e, records, with_entry, "an attribute");
}

constexpr auto kRecordRules = std::to_array<RequirementRule>({
    {"tctx.record.layout", record_layout, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.record.byte-order", byte_order, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.record.ids-both-or-neither", ids_both_or_neither, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.record.valid-is-one", valid_is_one, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.record.valid-reserved-values", valid_reserved_values, AskedOf::kImages,
     RestsOn::kSamples, UnderFaults::kJudged},
    {"tctx.record.trace-flags-without-ids", trace_flags_without_ids, AskedOf::kImages,
     RestsOn::kSamples, UnderFaults::kJudged},
    {"tctx.record.attrs-data-size", attrs_data_size, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.record.aligned", aligned, AskedOf::kImages, RestsOn::kSamples, UnderFaults::kJudged},
    {"tctx.record.contiguous", contiguous, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.record.recommended-size", recommended_size, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.attrs.entry-format", entry_format, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.attrs.packed", packed, AskedOf::kImages, RestsOn::kSamples, UnderFaults::kJudged},
    {"tctx.attrs.ends-on-boundary", ends_on_boundary, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.attrs.key-in-map", key_in_map, AskedOf::kImages, RestsOn::kSamples,
     UnderFaults::kJudged},
    {"tctx.attrs.utf8", values_are_utf8, AskedOf::kImages, RestsOn::kSamples, UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> record_rules() { return kRecordRules; }

}  // namespace ctxconf::conformance
