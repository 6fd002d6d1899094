// The rules about records and reference data against literal evidence.
#include "conformance/rules/thread_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "conformance/rules/literal_evidence.h"

namespace ctxconf::conformance {
namespace {

using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;
using Ids = std::vector<std::string>;

MapEntry unnamed_entry(std::uint64_t at, std::uint64_t size, std::uint64_t inode) {
  MapEntry e;
  e.range = *RemoteRange::from_size(RemoteAddr(at), size);
  e.readable = e.writable = true;
  e.inode = inode;
  return e;
}

ThreadlocalEntry threadlocal(const std::string& name, ValueKind kind, const std::string& text) {
  ThreadlocalEntry out;
  out.key = "threadlocal." + name;
  out.kind = kind;
  out.text = text;
  return out;
}
ThreadlocalEntry schema(const std::string& value) {
  return threadlocal("schema_version", ValueKind::kString, value);
}
ThreadlocalEntry key_map(const std::vector<std::string>& names) {
  ThreadlocalEntry out = threadlocal("attribute_key_map", ValueKind::kArray, "");
  for (const auto& n : names) out.elements.push_back({ValueKind::kString, n});
  out.element_count = names.size();
  return out;
}
const std::vector<std::string> kNames = {"http.route", "http.request.method", "user.id"};

std::string text_of(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::string text_of(int count, char c) { return std::string(static_cast<std::size_t>(count), c); }

// A legal record whose parts a test changes.
struct LegalRecord {
  std::string trace = text_of(16, 'T');
  std::string span = text_of(8, 'S');
  int valid = 1;
  int flags = 1;
  int size = -1;  // negative: of `area`
  std::string area =
      record_attribute(0, "/cart") + record_attribute(1, "GET") + record_attribute(2, "42");
  std::string behind = text_of(1024, '\xa5');
  std::uint64_t at = kHeap + 0x100;
  std::uint64_t unreadable = 0;  // bytes that are missing at the end of the area
  std::string raw;               // not empty: instead of all of the above

  std::string all() const {
    if (!raw.empty()) return raw + behind;
    const auto announced =
        static_cast<std::uint16_t>(size < 0 ? static_cast<int>(area.size()) : size);
    std::string out = trace + span + static_cast<char>(valid) + static_cast<char>(flags);
    out.append(reinterpret_cast<const char*>(&announced), sizeof announced);
    return out + area + behind;
  }
};

struct State {
  std::vector<ThreadlocalEntry> entries;
  double at = 1;
  std::uint64_t inode = 7;
};

// One process as the rules see it.
struct RecordWorld {
  Timeline timeline;
  std::vector<LegalRecord> records = {LegalRecord{}};
  std::vector<State> states = {{{schema("tls_v1"), key_map(kNames)}, 1}};
  std::vector<ModuleFacts> modules{1};
  bool defines = true;
  bool uses_threads = true;
  double seen_from = 2;
  double seen_to = 3;
  std::vector<ThreadSample> unreadable;
  std::vector<ThreadSample> born_with;  // listed after the records
  std::uint32_t image_index = 0;
  std::int32_t parent = 0;
  std::string traceparent;

  Finding judge(std::string_view id) const {
    const RequirementRule* rule = rule_of(id);
    EXPECT_NE(rule, nullptr) << id;
    Timeline t = timeline;
    Process process;
    process.pid = 12;
    process.parent = parent;
    Image image;
    image.key = {12, image_index};
    image.modules = modules;
    image.traceparent = traceparent;
    for (const State& s : states) {
      Snapshot snapshot;
      snapshot.first_seen_ns = snapshot.last_seen_ns = static_cast<std::uint64_t>(s.at * 1e9);
      Candidate c;
      c.entries = {unnamed_entry(kMapping, 4096, s.inode)};
      snapshot.candidates = {c};
      image.snapshots.push_back(snapshot);
    }
    for (const LegalRecord& r : records) image.threads.push_back(sample(r));
    image.threads.insert(image.threads.end(), born_with.begin(), born_with.end());
    process.images.push_back(std::move(image));
    t.processes.push_back(std::move(process));
    const Process& p = t.processes.back();

    ImageEvidence e;
    e.timeline = &t;
    e.process = &p;
    e.image = &p.images.front();
    e.uses_threads = uses_threads;
    if (defines) e.definers = {e.image->modules.data()};
    e.contexts.resize(states.size());
    for (std::size_t i = 0; i < states.size(); ++i) {
      Context c;
      c.snapshot = &e.image->snapshots[i];
      c.candidate = c.snapshot->candidates.data();
      c.state = HeaderState::kValid;
      auto payload = std::make_shared<Payload>();
      payload->threadlocal = states[i].entries;
      c.payload = payload;
      e.contexts[i].push_back(std::move(c));
      e.has_named = e.has_usable = true;
    }
    for (const auto& list : e.contexts) e.first_sights.push_back(list.data());
    const ThreadlocalEntry* last_map = nullptr;
    const ThreadlocalEntry* first_map = nullptr;
    for (const Context* c : e.first_sights) {
      for (const auto& x : c->payload->threadlocal) {
        if (x.key == "threadlocal.schema_version" && x.kind == ValueKind::kString) {
          e.schema = x.text;
        }
        if (x.key != "threadlocal.attribute_key_map") continue;
        last_map = &x;
        if (first_map == nullptr) first_map = &x;
      }
    }
    for (std::size_t i = 0; i < records.size(); ++i) {
      Record r;
      r.sample = &e.image->threads[i];
      r.storage = r.sample->record->bytes;
      const std::size_t area = r.sample->record->wanted - sizeof r.head;
      r.whole = r.sample->record->readable == r.sample->record->wanted;
      if (r.sample->after) {
        const auto& more = r.sample->after->bytes;
        r.storage.insert(r.storage.end(), more.begin(), more.end());
      }
      r.head = *abi::decode_thread_record(r.storage);
      r.key_map = first_map;
      r.last_key_map = last_map;
      e.records.push_back(std::move(r));
      auto& kept = e.records.back();
      kept.bytes = kept.storage;
      kept.attributes = kept.bytes.subspan(sizeof kept.head);
      kept.attributes = kept.attributes.first(std::min(area, kept.attributes.size()));
    }
    for (const auto& s : unreadable) e.unreadable.push_back(&s);
    return rule->rule(e);
  }

  ThreadSample sample(const LegalRecord& r) const {
    ThreadSample s;
    s.tid = 12;
    s.first_seen_ns = static_cast<std::uint64_t>(seen_from * 1e9);
    s.last_seen_ns = static_cast<std::uint64_t>(seen_to * 1e9);
    s.times = 5;
    s.slot = 0x7f1100000010;
    s.value = r.at;
    s.mapping = unnamed_entry(kHeap, 0x2000, 0);
    const std::string all = r.all();
    std::uint16_t announced = 0;
    std::memcpy(&announced, all.data() + 26, sizeof announced);
    MemoryBlock block;
    block.at = RemoteAddr(r.at);
    block.wanted = 28U + announced;
    block.readable = std::min<std::uint64_t>(block.wanted, all.size()) - r.unreadable;
    block.bytes = bytes_of(all.substr(0, block.readable));
    s.record = block;
    if (block.readable == block.wanted && all.size() > block.wanted) {
      MemoryBlock rest;
      rest.at = RemoteAddr(r.at + block.wanted);
      rest.bytes = bytes_of(all.substr(block.wanted, 1024));
      rest.wanted = rest.readable = rest.bytes.size();
      s.after = rest;
    }
    return s;
  }
};

// What contradicts the evidence, of both groups.
Ids failures(const RecordWorld& w) {
  Ids out;
  for (const auto group : {reference_data_rules(), record_rules()}) {
    for (const auto& r : group) {
      const Outcome o = w.judge(r.id).outcome;
      if (o == Outcome::kFail || o == Outcome::kInfo) out.emplace_back(r.id);
    }
  }
  return out;
}

RecordWorld world_of(const LegalRecord& r) {
  RecordWorld w;
  w.records = {r};
  return w;
}
RecordWorld world_of(std::vector<ThreadlocalEntry> entries) {
  RecordWorld w;
  w.states = {{std::move(entries), 1}};
  return w;
}

// What lies after the record must not matter.
void expect_for_all_surroundings(LegalRecord r, const Ids& ids) {
  r.behind = text_of(1024, '\0');
  EXPECT_EQ(failures(world_of(r)), ids) << "zeros behind";
  r.behind = text_of(1024, '\xa5');
  EXPECT_EQ(failures(world_of(r)), ids) << "0xa5 behind";
  r.behind.clear();
  for (int i = 0; i < 20; ++i) r.behind += record_attribute(i % 3, "leftovers of a longer record");
  EXPECT_EQ(failures(world_of(r)), ids) << "entries behind";
}

TEST(ThreadRules, ALegalRecordContradictsNothing) {
  expect_for_all_surroundings(LegalRecord{}, {});
  const RecordWorld w;
  for (const auto group : {reference_data_rules(), record_rules()}) {
    for (const auto& r : group) {
      const Finding f = w.judge(r.id);
      const bool quiet = r.id.starts_with("tctx.altschema.") ||
                         r.id.starts_with("tctx.keymap.never-") ||
                         r.id == "tctx.record.trace-flags-without-ids";
      EXPECT_EQ(f.outcome == Outcome::kPass, !quiet) << r.id << ": " << f.saw;
    }
  }
}

TEST(ThreadRules, NothingAppliesWithoutThreadContext) {
  RecordWorld w;
  w.uses_threads = false;
  w.records.clear();
  w.states = {{{}, 1}};
  for (const auto group : {reference_data_rules(), record_rules()}) {
    for (const auto& r : group) {
      EXPECT_EQ(w.judge(r.id).outcome, Outcome::kNa) << r.id;
    }
  }
}

TEST(ThreadRules, NoRecordIsNoVerdict) {
  RecordWorld w;
  w.records.clear();
  EXPECT_EQ(failures(w), Ids{});
  for (const auto& r : record_rules()) {
    const Finding f = w.judge(r.id);
    EXPECT_EQ(f.outcome, Outcome::kUnobservable) << r.id;
    EXPECT_FALSE(f.remedy.empty());
  }
}

TEST(ThreadRules, AnotherSchemaWithoutRecordsDoesNotApply) {
  RecordWorld w;
  w.records.clear();
  w.states = {{{schema("somebody_elses_v3")}, 1}};
  EXPECT_EQ(failures(w), Ids{});
  EXPECT_EQ(w.judge("tctx.record.layout").outcome, Outcome::kNa);
  EXPECT_EQ(w.judge("tctx.refdata.key-map-present").outcome, Outcome::kNa);
}

TEST(RecordRules, AHiddenRecordIsNeverJudgedOnItsContent) {
  LegalRecord r;
  r.valid = 0;
  r.trace = text_of(16, '\0');
  r.area = record_attribute(77, "\xff\xfe") + "x";
  RecordWorld w = world_of(r);
  EXPECT_EQ(failures(w), Ids{});
  EXPECT_EQ(w.judge("tctx.record.valid-reserved-values").outcome, Outcome::kPass);
  EXPECT_EQ(w.judge("tctx.record.valid-is-one").outcome, Outcome::kUnobservable);
  w.states.clear();
  EXPECT_EQ(failures(w), Ids{});
}

TEST(RecordRules, ARootSpanIdBetweenSpanIdAndValid) {
  LegalRecord r;
  r.raw = text_of(16, 'T') + text_of(8, 'S') + text_of(8, 'R') + '\1' + '\3' +
          record_attribute(0, "/cart") + record_attribute(1, "GET") + record_attribute(2, "42");
  expect_for_all_surroundings(r, {"tctx.record.layout"});
  r.raw[24] = '\1';  // as a valid byte would be
  expect_for_all_surroundings(r, {"tctx.record.layout"});
  const Finding f = world_of(r).judge("tctx.record.layout");
  EXPECT_EQ(f.signature, "layout T0");
  // The same entries where the merged layout has them.
  ASSERT_TRUE(f.hexdumps.at(0).expected);
  const auto& expected = *f.hexdumps[0].expected;
  EXPECT_EQ(expected.vector, "rec/layout");
  const std::string area =
      record_attribute(0, "/cart") + record_attribute(1, "GET") + record_attribute(2, "42");
  EXPECT_EQ(text_of(expected.bytes).substr(24, 1), "\1");
  EXPECT_EQ(text_of(expected.bytes).substr(26),
            text_of(1, static_cast<char>(area.size())) + text_of(1, '\0') + area);
  Ids masked;
  for (const auto& m : expected.masks) masked.push_back(m.name);
  EXPECT_EQ(masked, (Ids{"trace_id", "span_id", "trace_flags"}));
}

TEST(RecordRules, AnotherValidByteIsNotARootSpanId) {
  LegalRecord r;
  r.valid = 0xff;
  r.area = record_attribute(2, "") + record_attribute(2, std::string("\1\2\0x", 4));
  r.behind = text_of(1024, '\0');
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.valid-is-one"});
}

TEST(RecordRules, ShowWhatAVectorHasInstead) {
  const auto expected = [](const LegalRecord& r, std::string_view id) {
    return world_of(r).judge(id).hexdumps.at(0).expected.value();
  };
  LegalRecord r;
  const auto size = static_cast<int>(r.area.size());
  const auto masks_entries = [&](const Hexdump::Expected& e) {
    return !e.masks.empty() && e.masks.back().offset == 28 &&
           e.masks.back().length == e.bytes.size() - 28;
  };
  r.size = 3;
  EXPECT_EQ(expected(r, "tctx.record.attrs-data-size").bytes.at(26), size);
  r.size = size + 28;
  r.behind = text_of(1024, '\xa5');
  EXPECT_EQ(expected(r, "tctx.record.attrs-data-size").bytes.at(26), size);
  r = {};
  r.size = std::byteswap(static_cast<std::uint16_t>(size));
  EXPECT_EQ(expected(r, "tctx.record.byte-order").bytes.at(26), size);
  EXPECT_EQ(expected(r, "tctx.record.byte-order").bytes.at(27), 0);
  EXPECT_TRUE(masks_entries(expected(r, "tctx.record.byte-order")));
  r = {};
  r.trace = text_of(16, '\0');
  EXPECT_TRUE(masks_entries(expected(r, "tctx.record.ids-both-or-neither")));
  r.span = text_of(8, '\0');
  EXPECT_EQ(expected(r, "tctx.record.trace-flags-without-ids").bytes.at(25), 0);
  r = {};
  r.valid = 7;
  const auto dump = world_of(r).judge("tctx.record.valid-is-one").hexdumps.at(0);
  EXPECT_EQ(dump.expected.value().bytes.at(24), 1);
  EXPECT_EQ(dump.marks.size(), 1U) << "the byte that differs is marked already";
  // Requirements that are not about the layout have none.
  r = {};
  r.area = record_attribute(0, "/cart") + record_attribute(200, "GET");
  EXPECT_FALSE(world_of(r).judge("tctx.attrs.key-in-map").hexdumps.at(0).expected);
}

TEST(RecordRules, ADraftRecordWithoutAttributesNeedsDraftReferenceData) {
  LegalRecord r;
  r.raw = text_of(16, 'T') + text_of(8, 'S') + text_of(8, 'R') + '\1' + '\0';
  RecordWorld w = world_of(r);
  EXPECT_EQ(w.judge("tctx.record.layout").outcome, Outcome::kUnobservable);
  w.states.front().entries.push_back(threadlocal("max_record_size", ValueKind::kInt, "640"));
  EXPECT_EQ(failures(w), Ids{"tctx.record.layout"});
}

TEST(RecordRules, ASizeInTheOtherByteOrder) {
  LegalRecord r;
  r.size = std::byteswap(static_cast<std::uint16_t>(r.area.size()));
  expect_for_all_surroundings(r, {"tctx.record.byte-order"});
  r.behind =
      text_of(4000, '\0') + LegalRecord{}.all();  // entries without values, then another record
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.byte-order"});
  r.behind = text_of(8000, '\0');  // ... up to the wrong size
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.byte-order"});
  r.unreadable = 4000;
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.byte-order"});
}

TEST(RecordRules, ASizeThatCountsEntries) {
  LegalRecord r;
  r.size = 3;
  expect_for_all_surroundings(r, {"tctx.record.attrs-data-size"});
}

TEST(RecordRules, ASizeThatCountsTheFixedPart) {
  LegalRecord r;
  r.size = static_cast<int>(r.area.size()) + 28;
  for (const char behind : {'\0', '\xa5'}) {
    r.behind = text_of(1024, behind);
    EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.attrs-data-size"});
  }
}

TEST(RecordRules, VarintLengths) {
  LegalRecord r;
  r.area = record_attribute(0, "/cart") + "\1" + "\xc8\x01" + text_of(200, 'v') +
           record_attribute(2, "42");
  expect_for_all_surroundings(r, {"tctx.attrs.entry-format"});
}

TEST(RecordRules, PaddedEntries) {
  LegalRecord r;
  r.area = record_attribute(0, "/cart") + '\0' + record_attribute(1, "GET") + '\0' +
           record_attribute(2, "42");
  expect_for_all_surroundings(r, {"tctx.attrs.packed"});
  // One entry alone has its padding at the end: what the others show explains it.
  LegalRecord alone;
  alone.area = record_attribute(0, "/cart") + '\0';
  EXPECT_EQ(failures(world_of(alone)), Ids{"tctx.attrs.ends-on-boundary"});
  RecordWorld both = world_of(r);
  both.records.push_back(alone);
  EXPECT_EQ(failures(both), Ids{"tctx.attrs.packed"});
}

TEST(RecordRules, WhatPaddingExplainsByChance) {
  // The second entry lies where the third would have seven bytes of padding before it.
  LegalRecord cut;
  cut.area = record_attribute(0, text_of(17, 'a')) + record_attribute(1, "dxp") +
             record_attribute(2, text_of(7, 'b')) + "b";
  expect_for_all_surroundings(cut, {"tctx.attrs.ends-on-boundary"});
  LegalRecord varint;
  varint.area = record_attribute(0, "ptxewns") + record_attribute(1, "nugil") + "\2" + "\x87\x01" +
                text_of(135, 'v');
  expect_for_all_surroundings(varint, {"tctx.attrs.entry-format"});
  // Without padding two entries end 28 bytes before the end.
  LegalRecord padded;
  padded.area = record_attribute(0, text_of(13, 'a')) + '\0' +
                record_attribute(1, text_of(17, 'b')) + '\0' +
                record_attribute(2, text_of(7, 'c')) + '\0';
  expect_for_all_surroundings(padded, {"tctx.attrs.packed"});
}

TEST(RecordRules, AnAreaThatIsCut) {
  LegalRecord r;
  r.area.clear();
  for (int i = 0; i < 4; ++i) r.area += record_attribute(i % 3, text_of(200, 'a'));
  r.behind = r.area.substr(612);
  r.area.resize(612);
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.attrs.ends-on-boundary"});
  expect_for_all_surroundings(r, {"tctx.attrs.ends-on-boundary"});
  const Finding f = world_of(r).judge("tctx.attrs.ends-on-boundary");
  EXPECT_EQ(f.saw, "3 entries end at 606 of 612 bytes; 6 are left over");
  LegalRecord small;
  small.size = static_cast<int>(small.area.size()) - 1;
  EXPECT_EQ(failures(world_of(small)), Ids{"tctx.attrs.ends-on-boundary"});
}

TEST(RecordRules, AnyCutIsACutWhateverLiesAround) {
  LegalRecord whole;
  whole.area = record_attribute(0, "/cart/items") + record_attribute(1, "OPTIONS") +
               record_attribute(2, "0123456789abcdef");
  // Smaller ones might as well count entries.
  for (int size = 4; size < static_cast<int>(whole.area.size()); ++size) {
    LegalRecord r = whole;
    r.size = size;
    const bool at_boundary = size == 13 || size == 22;
    expect_for_all_surroundings(r, at_boundary ? Ids{} : Ids{"tctx.attrs.ends-on-boundary"});
  }
}

TEST(RecordRules, APointerInsteadOfEntries) {
  LegalRecord r;
  const std::uint64_t elsewhere = kHeap + 0x9fe;
  r.area = std::string(reinterpret_cast<const char*>(&elsewhere), sizeof elsewhere);
  r.size = 34;
  r.behind = text_of(1024, '\0');
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.contiguous"});
  // Its bytes may read as entries, with an index that no key has.
  const auto length = static_cast<unsigned char>(r.area[1]);
  r.area.resize(8 + 200, '\0');
  r.size = 2 + length + 2;
  r.area.resize(static_cast<std::size_t>(r.size));
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.contiguous"});
}

TEST(RecordRules, ARecordThatEndsTooEarly) {
  LegalRecord r;
  r.unreadable = 3;
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.contiguous"});
}

TEST(RecordRules, ASlotThatPointsNowhere) {
  RecordWorld w;
  ThreadSample s;
  s.tid = 13;
  s.value = 0x1000;
  s.times = 2;
  w.unreadable = {s};
  EXPECT_EQ(failures(w), Ids{"tctx.record.contiguous"});
  w.unreadable.front().times = 1;  // the thread may have been about to end
  EXPECT_EQ(failures(w), Ids{});
  w.records.clear();
  EXPECT_EQ(w.judge("tctx.record.contiguous").outcome, Outcome::kUnobservable);
}

TEST(RecordRules, AVariableThatIsNotAPointerIsForOtherRequirements) {
  RecordWorld w;
  w.records.clear();
  ThreadSample s;
  s.value = 0x4141414141414141;
  s.times = 5;
  w.unreadable = {s};
  sys::ElfSymbol symbol;
  symbol.section = 20;
  symbol.size = 640;
  w.modules.front().dynamic_symbols = {symbol};
  EXPECT_EQ(failures(w), Ids{});
}

TEST(RecordRules, HalfIds) {
  LegalRecord r;
  r.trace = text_of(16, '\0');
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.ids-both-or-neither"});
  r.trace = text_of(16, 'T');
  r.span = text_of(8, '\0');
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.ids-both-or-neither"});
}

TEST(RecordRules, FlagsWithoutIds) {
  LegalRecord r;
  r.trace = text_of(16, '\0');
  r.span = text_of(8, '\0');
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.trace-flags-without-ids"});
  r.flags = 0;
  EXPECT_EQ(failures(world_of(r)), Ids{});
  EXPECT_EQ(world_of(r).judge("tctx.record.trace-flags-without-ids").outcome, Outcome::kPass);
}

TEST(RecordRules, AnotherIdeaOfTrue) {
  LegalRecord r;
  r.valid = 0xff;
  RecordWorld w = world_of(r);
  w.timeline.mode = Mode::kWrap;
  EXPECT_EQ(failures(w), Ids{"tctx.record.valid-is-one"});
  w.timeline.mode = Mode::kAttach;
  EXPECT_EQ(failures(w), Ids{"tctx.record.valid-reserved-values"});
  EXPECT_EQ(w.judge("tctx.record.valid-is-one").outcome, Outcome::kUnobservable);
}

TEST(RecordRules, AReservedValueNextToTheRightOne) {
  LegalRecord r;
  r.valid = 2;
  RecordWorld w = world_of(r);
  w.records.emplace_back();
  EXPECT_EQ(failures(w), Ids{"tctx.record.valid-reserved-values"});
  EXPECT_EQ(w.judge("tctx.record.valid-reserved-values").saw, "byte 24 had the values 1, 2");
}

TEST(RecordRules, AnOddAddress) {
  LegalRecord r;
  r.at += 1;
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.aligned"});
}

TEST(RecordRules, TheRecommendedSize) {
  LegalRecord r;
  r.area = record_attribute(0, text_of(255, 'a')) + record_attribute(1, text_of(255, 'b')) +
           record_attribute(2, text_of(96, 'c'));
  ASSERT_EQ(28 + r.area.size(), 640U);
  EXPECT_EQ(failures(world_of(r)), Ids{});
  r.area += record_attribute(2, "");
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.record.recommended-size"});
}

TEST(RecordRules, AnIndexWithoutAName) {
  LegalRecord r;
  r.area = record_attribute(1, "/cart") + record_attribute(2, "GET") + record_attribute(3, "42");
  RecordWorld w = world_of(r);
  EXPECT_EQ(failures(w), Ids{"tctx.attrs.key-in-map"});
  const Finding f = w.judge("tctx.attrs.key-in-map");
  EXPECT_EQ(f.saw, "index 3 in a record, and 3 elements in the key map");
  ASSERT_EQ(f.hexdumps.size(), 1U);
  ASSERT_EQ(f.hexdumps[0].marks.size(), 1U);
  EXPECT_EQ(f.hexdumps[0].marks[0].offset, 28U + 7 + 5);
  // Published a moment later.
  auto names = kNames;
  names.emplace_back("late");
  w.states.push_back({{schema("tls_v1"), key_map(names)}, 2.5});
  EXPECT_EQ(failures(w), Ids{});
}

TEST(RecordRules, Utf8) {
  LegalRecord r;
  r.area = record_attribute(0, "caf\xe9 noir");
  EXPECT_EQ(failures(world_of(r)), Ids{"tctx.attrs.utf8"});
  EXPECT_EQ(world_of(r).judge("tctx.attrs.utf8").outcome, Outcome::kFail);
  r.area = record_attribute(0, text_of(254, 'a') + "\xc3");
  EXPECT_EQ(world_of(r).judge("tctx.attrs.utf8").signature, "character cut at the limit");
  EXPECT_EQ(world_of(r).judge("tctx.attrs.utf8").outcome, Outcome::kFail);
  r.area = record_attribute(0, text_of(253, 'a') + "\xc3");
  EXPECT_EQ(world_of(r).judge("tctx.attrs.utf8").outcome, Outcome::kFail);
  r.area = record_attribute(0, text_of(254, 'a') + "\xff");
  EXPECT_EQ(world_of(r).judge("tctx.attrs.utf8").outcome, Outcome::kFail);
}

TEST(RecordRules, AWorldWithoutAKeyMapJudgesEntriesAllTheSame) {
  LegalRecord r;
  r.area = record_attribute(0, "/cart") + '\0' + record_attribute(1, "GET") + '\0' +
           record_attribute(2, "42");
  RecordWorld w = world_of(r);
  w.states = {{{schema("tls_v1")}, 1}};
  EXPECT_EQ(failures(w), (Ids{"tctx.refdata.key-map-present", "tctx.attrs.packed"}));
}

TEST(ReferenceData, InTheResource) {
  auto entries = std::vector{schema("tls_v1"), key_map(kNames)};
  for (auto& e : entries) e.in_resource = true;
  EXPECT_EQ(failures(world_of(entries)), Ids{"tctx.refdata.in-attributes"});
}

TEST(ReferenceData, Missing) {
  EXPECT_EQ(failures(world_of({key_map(kNames)})), Ids{"tctx.refdata.schema-version-present"});
  EXPECT_EQ(failures(world_of({schema("tls_v1")})), Ids{"tctx.refdata.key-map-present"});
  EXPECT_EQ(failures(world_of(std::vector<ThreadlocalEntry>{})),
            Ids{"tctx.refdata.schema-version-present"});
}

TEST(ReferenceData, NoProcessContext) {
  RecordWorld w;
  w.states.clear();
  w.timeline.mode = Mode::kWrap;
  EXPECT_EQ(failures(w), Ids{"tctx.refdata.schema-version-present"});
  w.timeline.mode = Mode::kAttach;  // it may come later
  EXPECT_EQ(failures(w), Ids{});
}

TEST(ReferenceData, AForkedChildNeedsNoneForItsParentsRecord) {
  RecordWorld w;
  w.states.clear();
  w.timeline.mode = Mode::kWrap;
  ThreadSample at_birth = w.sample(w.records.front());
  at_birth.inherited = true;
  w.born_with = {at_birth};
  EXPECT_EQ(failures(w), Ids{});
  EXPECT_EQ(w.judge("tctx.refdata.schema-version-present").outcome, Outcome::kUnobservable);
  w.states = {{{schema("tls_v1"), key_map({"own.key"})}, 1}};
  EXPECT_EQ(failures(w), Ids{});
  // What it attaches itself is another matter.
  w.records.front().area = record_attribute(1, "own");
  EXPECT_EQ(failures(w), Ids{"tctx.attrs.key-in-map"});
  w.states.clear();
  EXPECT_EQ(failures(w), Ids{"tctx.refdata.schema-version-present"});
}

TEST(ReferenceData, AForkedChildMayGoBackToWhatItsAncestorsHad) {
  constexpr const char* kId = "tctx.refdata.schema-version-present";
  RecordWorld w;
  w.states.clear();
  w.timeline.mode = Mode::kWrap;
  Process parent;
  parent.pid = 11;
  parent.parent = 10;
  parent.images.emplace_back().key = {11, 0};
  Process grandparent;
  grandparent.pid = 10;
  grandparent.parent = 11;  // a number that was there before
  grandparent.images.emplace_back().key = {10, 0};
  w.parent = 11;
  w.timeline.processes = {grandparent, parent};
  EXPECT_EQ(w.judge(kId).outcome, Outcome::kFail);
  Snapshot published;
  published.candidates.emplace_back();
  for (const std::size_t ancestor : {0, 1}) {
    RecordWorld shown = w;
    shown.timeline.processes[ancestor].images[0].threads.emplace_back();
    EXPECT_EQ(shown.judge(kId).outcome, Outcome::kUnobservable);
    RecordWorld with_context = w;
    with_context.timeline.processes[ancestor].images[0].snapshots.push_back(published);
    EXPECT_EQ(with_context.judge(kId).outcome, Outcome::kUnobservable);
    RecordWorld unread = w;
    unread.timeline.processes[ancestor].images[0].threads_unread = "no right to";
    EXPECT_EQ(unread.judge(kId).outcome, Outcome::kUnobservable);
  }
}

TEST(ReferenceData, NoKeyMapIsNeededWithoutAttributes) {
  RecordWorld w = world_of({schema("tls_v1")});
  w.records.front().area.clear();
  EXPECT_EQ(w.judge("tctx.refdata.key-map-present").outcome, Outcome::kInfo);
  EXPECT_EQ(w.judge("tctx.attrs.key-in-map").outcome, Outcome::kUnobservable);
}

TEST(ReferenceData, Late) {
  RecordWorld w;
  w.states.insert(w.states.begin(), State{{}, 0.5});
  EXPECT_EQ(failures(w), Ids{});
}

TEST(ReferenceData, AnIntegerAsSchemaVersion) {
  ThreadlocalEntry version = schema("1");
  version.kind = ValueKind::kInt;
  EXPECT_EQ(failures(world_of({version, key_map(kNames)})),
            Ids{"tctx.refdata.schema-version-string"});
}

TEST(ReferenceData, AnUnknownSchemaVersion) {
  RecordWorld w = world_of({schema("tlsdesc"), key_map(kNames)});
  EXPECT_EQ(failures(w), Ids{"tctx.refdata.schema-version-value"});
  w.records.clear();
  EXPECT_EQ(failures(w), Ids{});
  EXPECT_EQ(failures(world_of({schema("tlsdesc_v1_dev"), key_map(kNames)})), Ids{});
}

TEST(ReferenceData, KeyMapKinds) {
  ThreadlocalEntry list = key_map({});
  list.kind = ValueKind::kKvlist;
  EXPECT_EQ(failures(world_of({schema("tls_v1"), list})), Ids{"tctx.refdata.key-map-array"});
  ThreadlocalEntry hole = key_map(kNames);
  hole.elements[1] = {};
  EXPECT_EQ(failures(world_of({schema("tls_v1"), hole})), Ids{"tctx.refdata.key-map-strings"});
  RecordWorld empty = world_of({schema("tls_v1"), key_map({})});
  empty.records.front().area.clear();
  EXPECT_EQ(failures(empty), Ids{});
}

TEST(ReferenceData, NamesUsable) {
  EXPECT_EQ(failures(world_of({schema("tls_v1"), key_map({"a", "b", "c", "a"})})),
            Ids{"tctx.refdata.key-map-names-usable"});
  EXPECT_EQ(failures(world_of({schema("tls_v1"), key_map({"a", "b", "c", ""})})),
            Ids{"tctx.refdata.key-map-names-usable"});
}

TEST(ReferenceData, AtMost256) {
  std::vector<std::string> names;
  for (int i = 0; i < 256; ++i) names.push_back("key." + std::to_string(i));
  EXPECT_EQ(failures(world_of({schema("tls_v1"), key_map(names)})), Ids{});
  names.emplace_back("one.too.many");
  EXPECT_EQ(failures(world_of({schema("tls_v1"), key_map(names)})), Ids{"tctx.keymap.at-most-256"});
}

RecordWorld updated(const std::vector<std::string>& before, const std::vector<std::string>& after) {
  RecordWorld w;
  w.states = {{{schema("tls_v1"), key_map(before)}, 1}, {{schema("tls_v1"), key_map(after)}, 1.5}};
  return w;
}

TEST(KeyMap, AppendOnly) {
  EXPECT_EQ(failures(updated({"b", "a", "c"}, {"b", "a", "c", "d"})), Ids{});
  EXPECT_EQ(updated({"b", "a", "c"}, {"b", "a", "c"}).judge("tctx.keymap.never-removed").outcome,
            Outcome::kPass);
  EXPECT_EQ(failures(updated({"b", "a", "c", "d"}, {"b", "c", "d"})),
            Ids{"tctx.keymap.never-removed"});
  EXPECT_EQ(failures(updated({"b", "a", "c"}, {"a", "b", "c", "d"})),
            Ids{"tctx.keymap.never-reordered"});
  EXPECT_EQ(RecordWorld{}.judge("tctx.keymap.never-removed").outcome, Outcome::kUnobservable);
}

TEST(KeyMap, RemovedAltogether) {
  RecordWorld w = updated(kNames, {});
  w.states.back().entries.clear();
  EXPECT_EQ(failures(w), Ids{"tctx.keymap.never-removed"});
  EXPECT_EQ(w.judge("tctx.keymap.never-removed").outcome, Outcome::kFail);
  w.seen_to = 1.2;
  w.seen_from = 1.1;
  EXPECT_EQ(w.judge("tctx.keymap.never-removed").outcome, Outcome::kInfo);
}

TEST(KeyMap, WhatWasTakenBackHidesNoLaterRemoval) {
  RecordWorld w = updated(kNames, {});
  w.states.back().entries.clear();
  w.states.push_back({{schema("tls_v1"), key_map({"a", "b"})}, 1.6});
  w.seen_to = 1.2;
  w.seen_from = 1.1;
  EXPECT_EQ(w.judge("tctx.keymap.never-removed").outcome, Outcome::kInfo);
  w.states.push_back({{schema("tls_v1"), key_map({"a"})}, 1.7});
  EXPECT_EQ(w.judge("tctx.keymap.never-removed").outcome, Outcome::kFail);
}

TEST(KeyMap, AnotherMappingStartsAnew) {
  RecordWorld w = updated({"x", "y", "z"}, kNames);
  w.states.back().inode = 8;
  EXPECT_EQ(failures(w), Ids{});
}

TEST(AltSchema, Go) {
  RecordWorld w = world_of({schema("tlsdesc_v1_dev")});
  w.records.clear();
  w.defines = false;
  w.modules.front().executable = w.modules.front().go = true;
  EXPECT_EQ(failures(w), Ids{"tctx.altschema.go-value"});
  w.defines = true;
  EXPECT_EQ(w.judge("tctx.altschema.go-value").outcome, Outcome::kInfo);
  w.defines = false;
  w.states = {{{schema("go_pprof_labels_v1")}, 1}};
  EXPECT_EQ(failures(w), Ids{});
  EXPECT_EQ(w.judge("tctx.altschema.go-no-key-map").outcome, Outcome::kPass);
  w.states = {{{schema("go_pprof_labels_v1"), key_map({})}, 1}};
  EXPECT_EQ(failures(w), Ids{});
  w.states = {{{schema("go_pprof_labels_v1"), key_map({"a", "b"})}, 1}};
  EXPECT_EQ(failures(w), Ids{"tctx.altschema.go-no-key-map"});
}

TEST(AltSchema, ANativeComponentInAGoProgram) {
  RecordWorld w = world_of({schema("go_pprof_labels_v1"), key_map(kNames)});
  w.modules.front().executable = w.modules.front().go = true;
  EXPECT_EQ(w.judge("tctx.refdata.schema-version-value").outcome, Outcome::kInfo);
  EXPECT_EQ(w.judge("tctx.altschema.go-no-key-map").outcome, Outcome::kInfo);
}

TEST(AltSchema, ANativeComponentInANodeProgram) {
  const RecordWorld w = world_of({schema("nodejs_v1_dev")});
  EXPECT_EQ(w.judge("tctx.refdata.schema-version-value").outcome, Outcome::kInfo);
  EXPECT_EQ(w.judge("tctx.refdata.key-map-present").outcome, Outcome::kInfo);
  RecordWorld later = w;
  later.states.push_back({{schema("tlsdesc")}, 1.5});
  EXPECT_EQ(later.judge("tctx.refdata.schema-version-value").outcome, Outcome::kFail);
}

// ---- ids that the program was told, or prints

constexpr const char* kTraceIdRequirement = "tctx.record.trace-id";
constexpr const char* kSpanIdRequirement = "tctx.record.span-id";
const std::string kParent = "00-" + kTrace + "-" + kSpan + "-01";

std::string of_hex(const std::string& hex) {
  std::string out;
  for (std::size_t at = 0; at < hex.size(); at += 2) {
    out += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
  }
  return out;
}
std::string reversed(std::string bytes, std::size_t word) {
  for (std::size_t at = 0; at < bytes.size(); at += word) {
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at + word));
  }
  return bytes;
}
RecordWorld with_ids(const std::string& trace, const std::string& span) {
  RecordWorld w;
  w.records.front().trace = trace;
  w.records.front().span = span;
  return w;
}

TEST(ToldIds, NothingIsKnown) {
  const RecordWorld w = with_ids(of_hex(kTrace), of_hex(kSpan));
  for (const char* requirement : {kTraceIdRequirement, kSpanIdRequirement}) {
    EXPECT_EQ(w.judge(requirement).outcome, Outcome::kUnobservable);
    EXPECT_NE(w.judge(requirement).remedy.find("--ids-from-output"), std::string::npos);
  }
  RecordWorld none = w;
  none.uses_threads = false;
  none.timeline.expected_trace_ids = {kTrace};
  EXPECT_EQ(none.judge(kTraceIdRequirement).outcome, Outcome::kNa);
}

TEST(ToldIds, Expected) {
  RecordWorld w = with_ids(of_hex(kTrace), of_hex(kSpan));
  w.timeline.expected_trace_ids = {"1af7651916cd43dd8448eb211c80319c", kTrace};
  w.timeline.expected_span_ids = {kSpan};
  EXPECT_EQ(w.judge(kTraceIdRequirement).outcome, Outcome::kPass);
  EXPECT_EQ(w.judge(kSpanIdRequirement).outcome, Outcome::kPass);
  w.records.emplace_back();
  EXPECT_EQ(w.judge(kTraceIdRequirement).signature, "unexpected trace id");
  EXPECT_EQ(w.judge(kSpanIdRequirement).signature, "unexpected span id");
  EXPECT_EQ(w.judge(kSpanIdRequirement).outcome, Outcome::kFail);
  w.records.back().trace = text_of(16, '\0');  // attributes alone
  w.records.back().span = text_of(8, '\0');
  EXPECT_EQ(w.judge(kTraceIdRequirement).outcome, Outcome::kPass);
  w.records.erase(w.records.begin());
  EXPECT_EQ(w.judge(kTraceIdRequirement).outcome, Outcome::kUnobservable);
}

TEST(ToldIds, InAnotherByteOrder) {
  const std::string trace = of_hex(kTrace);
  const std::vector<std::string> orders = {reversed(trace, 16), reversed(trace, 8),
                                           trace.substr(8) + trace.substr(0, 8)};
  for (const std::string& shown : orders) {
    RecordWorld w = with_ids(shown, of_hex(kSpan));
    w.timeline.printed_trace_ids = {kTrace};
    w.timeline.printed_span_ids = {kSpan};
    EXPECT_EQ(w.judge(kTraceIdRequirement).signature, "trace id in another byte order");
    EXPECT_EQ(w.judge(kTraceIdRequirement).hexdumps.at(0).marks.at(0).length, 16U);
    EXPECT_EQ(w.judge(kSpanIdRequirement).outcome, Outcome::kPass);
    w.timeline.printed_trace_ids.clear();
    w.traceparent = kParent;
    EXPECT_EQ(w.judge(kTraceIdRequirement).outcome, Outcome::kFail);
  }
  RecordWorld w = with_ids(trace, reversed(of_hex(kSpan), 8));
  w.traceparent = kParent;
  EXPECT_EQ(w.judge(kTraceIdRequirement).outcome, Outcome::kPass);
  EXPECT_EQ(w.judge(kSpanIdRequirement).signature, "span id in another byte order");
  EXPECT_EQ(w.judge(kSpanIdRequirement).saw,
            "the span id is 31332069716badb7, and b7ad6b7169203331 is in its TRACEPARENT, in "
            "reverse order");
}

// What a program was told is its parent's, and what it prints need not be its own.
TEST(ToldIds, OthersThanTheProgramHas) {
  RecordWorld w = with_ids(of_hex(kTrace), of_hex(kSpan));
  w.traceparent = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01";
  w.timeline.printed_trace_ids = {"2af7651916cd43dd8448eb211c80319c"};
  EXPECT_EQ(w.judge(kTraceIdRequirement).outcome, Outcome::kUnobservable);
  EXPECT_EQ(w.judge(kSpanIdRequirement).outcome, Outcome::kUnobservable);
}

TEST(ToldIds, PrintedBothWays) {
  const std::string swapped = "dd43cd161965f70a9c31801c21eb4884";
  RecordWorld w = with_ids(of_hex(kTrace), of_hex(kSpan));
  w.timeline.printed_trace_ids = {kTrace, swapped};
  EXPECT_EQ(w.judge(kTraceIdRequirement).outcome, Outcome::kPass);
}

// 1 and 2 to the power of 120 may both be ids.
TEST(ToldIds, Numbers) {
  RecordWorld w = with_ids('\1' + text_of(15, '\0'), '\1' + text_of(7, '\0'));
  w.timeline.printed_trace_ids = {std::string(31, '0') + "1"};
  w.timeline.printed_span_ids = {std::string(15, '0') + "1"};
  EXPECT_EQ(w.judge(kTraceIdRequirement).outcome, Outcome::kUnobservable);
  EXPECT_EQ(w.judge(kSpanIdRequirement).outcome, Outcome::kUnobservable);
}

}  // namespace
}  // namespace ctxconf::conformance
