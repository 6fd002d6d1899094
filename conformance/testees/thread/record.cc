// Cases about records that do not change, and their entries.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "conformance/testees/thread/scene.h"
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/thread/usual.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

void good_default() { play({}); }
void good_busy() { play({.second = Stay::kBusy}); }

std::vector<Bytes> with_root_span() {
  std::vector<Bytes> records;
  for (const auto& r : usual_records()) {
    const Bytes root("\xb7\x5d\x02\x6b\x16\x92\x03\x13", 8);
    records.push_back(r.trace + r.span + root + '\1' + static_cast<char>(r.entries.size()) +
                      r.area());
  }
  return records;
}

void bad_layout() { play_records(with_root_span()); }
void bad_layout_busy() { play({.records = with_root_span(), .second = Stay::kBusy}); }

void bad_byte_order() {
  std::vector<Bytes> records;
  for (const auto& r : usual_records()) {
    const auto size = static_cast<std::uint16_t>(r.area().size());
    records.push_back(r.with(__builtin_bswap16(size), r.area()));
  }
  play_records(records);
}

void bad_ids_both_or_neither() {
  auto records = usual_records();
  records[1].trace.assign(16, '\0');
  play_records(bytes_of(records));
}

void bad_valid_is_one() {
  play_records(usual_with([](Record& r) { r.valid = '\xff'; }));
}

void bad_valid_reserved_values() {
  auto records = usual_records();
  records[1].valid = 2;
  play_records(bytes_of(records));
}

void bad_trace_flags_without_ids() {
  auto records = usual_records();
  records[2].trace.assign(16, '\0');
  records[2].span.assign(8, '\0');
  records[2].flags = 1;
  play_records(bytes_of(records));
}

void bad_attrs_data_size() {
  std::vector<Bytes> records;
  for (const auto& r : usual_records()) records.push_back(r.with(r.entries.size(), r.area()));
  play_records(records);
}

void bad_attrs_data_size_with_head() {
  std::vector<Bytes> records;
  for (const auto& r : usual_records())
    records.push_back(r.with(kHead + r.area().size(), r.area()));
  play_records(records);
}

// Records come one after the other in one array, whatever their lengths.
char* in_array(const Bytes& record) {
  static char* next = in_block({});
  char* at = next;
  record.copy(at, record.size());
  next += record.size();
  return at;
}

void bad_aligned() {
  auto records = usual_records();
  records[0].entries = {entry(0, "/cart")};  // 35 bytes
  records[1].entries = {entry(0, "/checkout/payment"), entry(1, "POST")};
  play({.records = bytes_of(records), .place = in_array});
}

// Returns the last bytes before a page that nobody can read.
char* before_guard(std::size_t size) {
  char* p = map_anonymous(2 * page());
  if (mprotect(p + page(), page(), PROT_NONE) != 0) die("mprotect");
  return p + page() - size;
}

Bytes pointer_to(const char* at) {
  const auto value = reinterpret_cast<std::uintptr_t>(at);
  return Bytes(reinterpret_cast<const char*>(&value), sizeof value);
}

// A record has 36 bytes: the fixed part and the address of a buffer with the attributes.
void bad_contiguous() {
  const Record r = usual_records()[0];
  const Bytes area = r.area();
  play({.records = {r.with(area.size(), pointer_to(in_block(area)))},
        .place = [](const Bytes& bytes) {
          char* at = before_guard(bytes.size());
          bytes.copy(at, bytes.size());
          return at;
        }});
}

// There is readable memory after it. The low bytes of the address must not be an entry: they are
// index 2 and a length beyond the end.
void bad_contiguous_readable() {
  constexpr std::uintptr_t kStep = 0x10000;
  char* p = map_anonymous(3 * kStep);
  char* base = p + (kStep - reinterpret_cast<std::uintptr_t>(p) % kStep);
  const Record r = usual_records()[0];
  char* buffer = base + 0xfe02;
  const Bytes area = r.area();
  area.copy(buffer, area.size());
  static char* at = base;
  play({.records = {r.with(area.size(), pointer_to(buffer))}, .place = [](const Bytes& bytes) {
          bytes.copy(at, bytes.size());
          return at;
        }});
}

void bad_recommended_size() {
  auto records = usual_records();
  for (int i = 0; i < 8; ++i) records[1].entries.push_back(entry(i % 4, Bytes(240, 'x')));
  play_records(bytes_of(records));
}

void bad_entry_format() {
  auto records = usual_records();
  const Bytes value(200, 'v');
  records[0].entries[1] = Bytes(1, '\1') + varint(value.size()) + value;
  play_records(bytes_of(records));
}

void bad_packed() {
  play_records(usual_with([](Record& r) {
    for (auto& e : r.entries) e.resize((e.size() + 1) / 2 * 2);
  }));
}

void bad_ends_on_boundary() {
  auto records = usual_records();
  records[0].entries.clear();
  for (int i = 0; i < 4; ++i) records[0].entries.push_back(entry(i, Bytes(200, 'v')));
  const Bytes area = records[0].area().substr(0, 612);
  auto bytes = bytes_of(records);
  bytes[0] = records[0].with(area.size(), area);
  play_records(bytes);
}

void bad_key_in_map() {
  play_records(usual_with([](Record& r) {
    for (auto& e : r.entries) ++e[0];
  }));
}

void bad_utf8() {
  auto records = usual_records();
  records[1].entries = {entry(0, "/caf\xe9/men\xfc")};
  play_records(bytes_of(records));
}

struct Private {
  std::uint64_t generation = 7;
  void* next = nullptr;
  char record[1024] = {};
  std::uint64_t checksum = 0x0123456789abcdef;
};

void good_inside_a_structure() {
  play({.place = [](const Bytes& bytes) {
    auto* p = new Private;
    bytes.copy(p->record, bytes.size());
    return p->record;
  }});
}

void good_unused_capacity() {
  play({.place = [](const Bytes& bytes) {
    char* at = in_block(bytes);
    std::memset(at + bytes.size(), 0xa5, 640 - bytes.size());
    return at;
  }});
}

// The rest of a longer record follows.
void good_leftover_entries() {
  play({.place = [](const Bytes& bytes) {
    char* at = in_block(bytes);
    const Bytes rest = entry(3, "of another request").substr(5) + entry(0, "/old/route");
    rest.copy(at + bytes.size(), rest.size());
    return at;
  }});
}

void good_crosses_a_page() {
  play({.place = [](const Bytes& bytes) {
    char* at = map_anonymous(2 * page()) + page() - 30;
    bytes.copy(at, bytes.size());
    return at;
  }});
}

void good_at_the_end_of_memory() {
  play({.place = [](const Bytes& bytes) {
    char* at = before_guard((bytes.size() + 1) / 2 * 2);
    bytes.copy(at, bytes.size());
    return at;
  }});
}

void good_exactly_640() {
  auto records = usual_records();
  records[0].entries = {entry(0, Bytes(255, 'a')), entry(1, Bytes(255, 'b')),
                        entry(2, Bytes(96, 'c'))};
  play_records(bytes_of(records));
}

void good_long_values() {
  auto records = usual_records();
  records[0].entries = {entry(0, Bytes(255, 'a')), entry(3, Bytes(128, 'b')), entry(1, "")};
  records[1].entries = {entry(2, Bytes(127, 'c')), entry(0, "x"), entry(3, Bytes(200, 'd'))};
  play_records(bytes_of(records));
}

void good_utf8_cut_at_the_limit() {
  auto records = usual_records();
  records[1].entries = {entry(3, Bytes(254, 'a') + "\xc3")};
  play_records(bytes_of(records));
}

void good_utf8() {
  auto records = usual_records();
  records[1].entries = {entry(0, "/\xc3\xa9t\xc3\xa9/\xe2\x82\xac/\xf0\x9f\x90\xb1")};
  play_records(bytes_of(records));
}

void good_no_attributes() {
  auto records = usual_records();
  records[0].entries.clear();
  play_records(bytes_of(records));
}

void good_attributes_without_trace() {
  play_records(usual_with([](Record& r) {
    r.trace.assign(16, '\0');
    r.span.assign(8, '\0');
    r.flags = 0;
  }));
}

void good_repeated_index() {
  auto records = usual_records();
  records[1].entries.push_back(entry(0, "/checkout/done"));
  play_records(bytes_of(records));
}

void good_all_flags() {
  play_records(usual_with([](Record& r) { r.flags = '\xff'; }));
}

// The records of all threads say nothing: they are not valid, and contain arbitrary bytes.
void good_hidden_records() {
  play_records(usual_with([](Record& r) {
    r.trace.assign(16, '\0');
    r.valid = 0;
    r.entries = {entry(200, "\xff\xfe"), "\x01"};
  }));
}

// No slot points to this memory.
void good_unreachable_record() {
  play({.meanwhile = [](const Region&) {
    Record r = usual_records()[1];
    r.valid = 0x7e;
    (void)in_block(r.bytes());
  }});
}

void good_detached() {
  play({.records = {}, .meanwhile = [](const Region&) {
          Record r = usual_records()[0];
          attach(in_block(r.bytes()));
          detach();
        }});
}

constexpr Case kBadRecord[] = {
    {"tctx.record.layout", "stores a root span id before the valid byte", bad_layout},
    {"tctx.record.layout:busy", "does so in a thread that runs all the time too", bad_layout_busy},
    {"tctx.record.byte-order", "stores the size in the other byte order", bad_byte_order},
    {"tctx.record.ids-both-or-neither", "has a span id without a trace id",
     bad_ids_both_or_neither},
    {"tctx.record.valid-is-one", "stores 0xff for true", bad_valid_is_one},
    {"tctx.record.valid-reserved-values", "stores 2 for a record with an extension",
     bad_valid_reserved_values},
    {"tctx.record.trace-flags-without-ids", "clears the ids but not the flags",
     bad_trace_flags_without_ids},
    {"tctx.record.attrs-data-size", "counts entries", bad_attrs_data_size},
    {"tctx.record.attrs-data-size:with-head", "counts the fixed part too",
     bad_attrs_data_size_with_head},
    {"tctx.record.aligned", "puts records of odd length one after the other", bad_aligned},
    {"tctx.record.contiguous", "has a pointer instead of entries, at the end of a mapping",
     bad_contiguous},
    {"tctx.record.contiguous:readable", "does the same with memory after it",
     bad_contiguous_readable},
    {"tctx.record.recommended-size", "has a record of 2000 bytes", bad_recommended_size},
    {"tctx.attrs.entry-format", "stores lengths as varints", bad_entry_format},
    {"tctx.attrs.packed", "puts entries at even addresses", bad_packed},
    {"tctx.attrs.ends-on-boundary", "cuts the entries at 612 bytes", bad_ends_on_boundary},
    {"tctx.attrs.key-in-map", "counts indexes from 1", bad_key_in_map},
    {"tctx.attrs.utf8", "writes Latin-1", bad_utf8},
};

constexpr Case kGoodRecord[] = {
    {"default", "has three records that do not change", good_default},
    {"busy", "has a thread that runs all the time", good_busy},
    {"inside-a-structure", "has records that are members of something larger",
     good_inside_a_structure},
    {"unused-capacity", "has arbitrary bytes after the attributes", good_unused_capacity},
    {"leftover-entries", "has the rest of a longer record after the attributes",
     good_leftover_entries},
    {"crosses-a-page", "has the fixed part on one page and the attributes on two",
     good_crosses_a_page},
    {"at-the-end-of-memory", "has nothing readable after the record", good_at_the_end_of_memory},
    {"exactly-640", "has a record that is as large as recommended", good_exactly_640},
    {"long-values", "has values of 0, 1, 127, 128, 200 and 255 bytes", good_long_values},
    {"utf8", "has characters of two, three and four bytes", good_utf8},
    {"utf8-cut-at-the-limit", "cuts a character at byte 255", good_utf8_cut_at_the_limit},
    {"no-attributes", "has one record without attributes", good_no_attributes},
    {"attributes-without-trace", "has attributes and no ids", good_attributes_without_trace},
    {"repeated-index", "has an index twice; the last one counts", good_repeated_index},
    {"all-flags", "sets bits to which no document gives a meaning", good_all_flags},
    {"hidden-records", "has records that are not valid", good_hidden_records},
    {"unreachable-record", "has a reserved value where nobody looks", good_unreachable_record},
    {"detached", "has null slots", good_detached},
};

}  // namespace

const Topic kRecordCases{kBadRecord, kGoodRecord};

}  // namespace ctxconf::testees
