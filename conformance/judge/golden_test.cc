// The judge against every golden vector: how it decodes what it finds is what the vector says, and
// which writer's requirements it finds broken in the bytes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/thread_layouts.h"
#include "conformance/observe/memory_block.h"
#include "conformance/rules/evidence.h"
#include "conformance/rules/record_faults.h"
#include "conformance/rules/rule.h"
#include "golden/test_vectors.h"

namespace ctxconf::conformance {
namespace {

using golden::Kind;
using golden::Result;
using nlohmann::json;
using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;
using sys::SnapshotMemory;
using Ids = std::set<std::string>;

constexpr std::uint64_t kRecordAt = 0x550000001000;

MapEntry entry(std::uint64_t at, std::uint64_t size, const std::string& name) {
  MapEntry e;
  e.range = *RemoteRange::from_size(RemoteAddr(at), size);
  e.readable = e.writable = true;
  e.name = name;
  return e;
}

MemoryBlock block(const sys::MemoryReader& memory, std::uint64_t at, std::uint64_t size) {
  constexpr std::uint64_t kEnough = 1U << 20U;
  return read_block(memory, RemoteAddr(at), size, kEnough, kEnough);
}

Timeline timeline_of(Snapshot snapshot, std::uint64_t boottime_ns) {
  Timeline t;
  t.realtime_minus_boottime_ns = 1'760'000'000'000'000'000;
  Process process;
  process.pid = 12;
  Image image;
  image.key = {12, 0};
  snapshot.first_seen_ns = snapshot.last_seen_ns = boottime_ns;
  snapshot.moments = {snapshot.moment};
  image.snapshots.push_back(std::move(snapshot));
  process.images.push_back(std::move(image));
  t.processes.push_back(std::move(process));
  return t;
}

// What a snapshot would have copied of the vector's memory.
Timeline timeline_of(const golden::ProcessContextVector& v) {
  SnapshotMemory memory;
  Candidate c;
  for (const auto& piece : golden::memory_of(v)) {
    memory.put(RemoteAddr(piece.address), std::as_bytes(std::span(piece.bytes)));
    if (piece.address != v.mapping_address && !piece.bytes.empty()) {
      c.neighbours.push_back(entry(piece.address, piece.bytes.size(), "[heap]"));
    }
  }
  c.entries = {entry(v.mapping_address, v.mapping_size, "/memfd:OTEL_CTX (deleted)")};
  c.neighbours.push_back(c.entries.front());
  c.memory = {block(memory, v.mapping_address, std::min<std::uint64_t>(32, v.mapping_size))};
  const auto add = [&](std::uint64_t address, std::uint64_t size) {
    if (address != 0 && size != 0) c.memory.push_back(block(memory, address, size));
  };
  const std::vector<std::byte> head = c.memory.front().bytes;
  for (const auto& layout : abi::header_layouts()) {
    const auto fields = abi::decode_as(layout, head);
    if (layout.size >= 0) add(fields.pointer, fields.size);
  }
  Snapshot s;
  s.candidates = {std::move(c)};
  return timeline_of(std::move(s), v.boottime_ns);
}

// An attribute value as the judge shows it.
std::string shown(const json& value, bool inside = false) {
  if (value.empty()) return inside ? "null" : "";
  const std::string kind = value.begin().key();
  const json& v = value.begin().value();
  const auto text = [&](const std::string& s) { return inside ? json(s).dump() : s; };
  if (kind == "string") return text(v.get<std::string>());
  if (kind == "bytes") return text(v.get<std::string>());
  if (kind == "array") {
    std::string out;
    for (const auto& item : v) out += (out.empty() ? "" : ",") + shown(item, true);
    return "[" + out + "]";
  }
  if (kind == "kvlist") {
    std::string out;
    for (const auto& pair : v) {
      out += (out.empty() ? "" : ",") + pair.at(0).dump() + ":" +
             shown(pair.at(1).is_null() ? json::object() : pair.at(1), true);
    }
    return "{" + out + "}";
  }
  if (kind == "double" && v.is_number()) return fmt::format("{}", v.get<double>());
  return v.is_string() ? v.get<std::string>() : v.dump();  // NaN is a word
}

using Shown = std::map<std::string, std::string>;
Shown shown(const golden::Attributes& attributes) {
  Shown out;
  for (const auto& [key, value] : attributes) out[key] = shown(json::parse(value));
  return out;
}
Shown shown(const std::vector<Attribute>& attributes) {
  Shown out;
  for (const auto& a : attributes) {
    // The judge shows the index that a reader has no use for.
    out[a.key] = a.value.starts_with("{\"string_value_strindex\"") ? "" : a.value;
  }
  return out;
}

// What a reader would have that uses the judge's decoding.
Result result_of(const Context& c) {
  switch (c.state) {
    case HeaderState::kValid:
      return c.payload && c.payload->problem == PayloadProblem::kNone ? Result::kAccept
                                                                      : Result::kReject;
    case HeaderState::kBlank:
      return Result::kRetry;
    default:
      return Result::kAbsent;
  }
}

bool is_right(const golden::Vector& v, Result result) {
  if (v.allows(result)) return true;
  const bool none = result == Result::kAbsent || result == Result::kReject;
  return none && golden::allows_none(v);
}

TEST(GoldenVectors, ProcessContextsAreDecodedAsTheySay) {
  const auto all = golden::vectors_of(Kind::kProcessContext);
  ASSERT_GE(all.size(), 25U);
  for (const auto& v : all) {
    SCOPED_TRACE(v.id + ": " + v.comment);
    const Timeline t = timeline_of(v.process_context);
    const auto evidence = evidence_of(t);
    ASSERT_EQ(evidence.size(), 1U);
    const Context& c = evidence.front().contexts.at(0).at(0);
    const Result result = result_of(c);
    // Readers skip a field of another wire type; the judge reports it as the writer's mistake.
    const bool stricter = v.id == "pctx/field-one-is-a-number";
    EXPECT_TRUE(stricter ? result == Result::kReject : is_right(v, result))
        << golden::to_string(result) << ", state " << static_cast<int>(c.state);
    if (result == Result::kAccept) {
      const bool expected = std::ranges::any_of(v.process_context.expect, [&](const auto& content) {
        return shown(content.resource) == shown(c.payload->resource) &&
               shown(content.attributes) == shown(c.payload->attributes);
      });
      EXPECT_TRUE(expected) << testing::PrintToString(shown(c.payload->resource)) << " and "
                            << testing::PrintToString(shown(c.payload->attributes));
    }
    if (v.process_context.layout != abi::HeaderLayout::kH5) {
      EXPECT_EQ(c.recognition.best, v.process_context.layout);
      EXPECT_NE(c.state, HeaderState::kValid);
    }
  }
}

// --- records

Timeline timeline_of(const golden::ThreadRecordVector& v) {
  golden::ProcessContextVector context;
  context.mapping_address = 0x7f0000000000;
  context.mapping_size = 65536;
  context.payload = golden::reference_data_of(v).SerializeAsString();
  context.payload_at = context.mapping_address + sizeof(abi::ProcessHeader);
  const abi::ProcessHeader header{abi::kSignature, abi::kVersion,
                                  static_cast<std::uint32_t>(context.payload.size()), 1'000'000,
                                  context.payload_at};
  context.header.assign(reinterpret_cast<const char*>(&header), sizeof header);
  context.boottime_ns = 2'000'000;
  Timeline t = timeline_of(context);

  SnapshotMemory memory;
  memory.put(RemoteAddr(kRecordAt), std::as_bytes(std::span(v.record)));
  ThreadSample s;
  s.tid = 12;
  s.first_seen_ns = 1'500'000;
  s.last_seen_ns = 3'000'000'000;
  s.times = 5;
  s.slot = 0x7f1100000010;
  s.value = kRecordAt;
  s.mapping = entry(kRecordAt, 0x20000, "[heap]");
  constexpr std::size_t kHead = sizeof(abi::ThreadRecordHead);
  std::uint64_t wanted = kHead;
  if (const auto head = abi::decode_thread_record(std::as_bytes(std::span(v.record)))) {
    wanted += head->attrs_data_size;
  }
  s.record = block(memory, kRecordAt, wanted);
  if (s.record->readable == wanted) s.after = block(memory, kRecordAt + wanted, 1024);
  Image& image = t.processes.front().images.front();
  image.threads = {std::move(s)};
  image.modules.resize(1);
  return t;
}

golden::RecordContent content_of(const Record& r, const std::vector<std::string>& names) {
  golden::RecordContent out{std::string(32, '0'), std::string(16, '0'), 0, {}};
  if (abi::has_trace_id(r.head) && abi::has_span_id(r.head)) {
    out = {golden::hex(r.head.trace_id), golden::hex(r.head.span_id), r.head.trace_flags, {}};
  }
  abi::AttributeCursor cursor(r.attributes);
  while (const auto e = cursor.next()) {
    if (e->key >= names.size()) continue;
    out.attributes[names[e->key]].assign(reinterpret_cast<const char*>(e->value.data()),
                                         e->value.size());
  }
  return out;
}

// The writer's requirements that the bytes of each vector break. Vectors that are not named here
// must break none.
const std::map<std::string, Ids> kBroken = {
    {"rec/draft-t0", {"tctx.record.layout"}},
    {"rec/draft-t0-root-one", {"tctx.record.layout"}},
    {"rec/first-entry-too-long", {"tctx.attrs.ends-on-boundary"}},
    {"rec/index-255-unknown", {"tctx.attrs.key-in-map"}},
    {"rec/index-unknown", {"tctx.attrs.key-in-map"}},
    {"rec/key-map-empty", {"tctx.attrs.key-in-map"}},
    {"rec/key-map-short", {"tctx.attrs.key-in-map"}},
    {"rec/no-trace-flags", {"tctx.record.trace-flags-without-ids"}},
    {"rec/nothing-after-a-short-entry", {"tctx.attrs.ends-on-boundary"}},
    {"rec/one-byte-left", {"tctx.attrs.ends-on-boundary"}},
    {"rec/one-byte-missing", {"tctx.attrs.ends-on-boundary"}},
    {"rec/readable-27", {"tctx.record.contiguous"}},
    {"rec/readable-end-after-head", {"tctx.record.contiguous"}},
    {"rec/readable-end-in-value", {"tctx.record.contiguous"}},
    {"rec/readable-none", {"tctx.record.contiguous"}},
    {"rec/repeated-key-last-cut", {"tctx.attrs.ends-on-boundary"}},
    {"rec/size-613", {"tctx.record.recommended-size"}},
    {"rec/size-65535", {"tctx.record.recommended-size"}},
    {"rec/size-65535-of-40", {"tctx.record.contiguous"}},
    {"rec/size-big-endian", {"tctx.record.byte-order"}},
    {"rec/size-one", {"tctx.attrs.ends-on-boundary"}},
    {"rec/span-without-trace", {"tctx.record.ids-both-or-neither"}},
    {"rec/trace-without-span", {"tctx.record.ids-both-or-neither"}},
    {"rec/truncated-entry", {"tctx.attrs.ends-on-boundary"}},
    {"rec/valid-128", {"tctx.record.valid-is-one"}},
    {"rec/valid-2", {"tctx.record.valid-is-one"}},
    {"rec/valid-254", {"tctx.record.valid-is-one"}},
    {"rec/valid-255", {"tctx.record.valid-is-one"}},
    {"rec/valid-3", {"tctx.record.valid-is-one"}},
    {"rec/value-cut-character", {"tctx.attrs.utf8"}},
    {"rec/value-not-utf8", {"tctx.attrs.utf8"}},
};

TEST(GoldenVectors, ThreadRecordsAreDecodedAsTheySay) {
  const auto all = golden::vectors_of(Kind::kThreadRecord);
  ASSERT_GE(all.size(), 40U);
  std::set<std::string> broken;
  for (const auto& v : all) {
    SCOPED_TRACE(v.id + ": " + v.comment);
    const Timeline t = timeline_of(v.thread_record);
    const auto evidence = evidence_of(t);
    ASSERT_EQ(evidence.size(), 1U);
    const auto& e = evidence.front();
    EXPECT_EQ(e.schema, v.thread_record.schema);
    Ids found;
    for (const auto& rule : record_rules()) {
      const Outcome o = rule.rule(e).outcome;
      if (o == Outcome::kFail || o == Outcome::kInfo) found.emplace(rule.id);
    }
    const auto listed = kBroken.find(v.id);
    EXPECT_EQ(found, listed == kBroken.end() ? Ids() : listed->second);
    EXPECT_THAT(v.requirements, ::testing::IsSupersetOf(found));
    if (!found.empty()) broken.insert(v.id);

    if (e.records.empty()) {
      EXPECT_EQ(e.unreadable.size(), 1U);
      EXPECT_TRUE(is_right(v, Result::kReject));
      continue;
    }
    const Record& r = e.records.front();
    const auto judged = judged_records(e);
    if (!r.valid()) {
      EXPECT_TRUE(is_right(v, Result::kAbsent));
      EXPECT_EQ(judged.size(), v.thread_record.layout == "T0" ? 1U : 0U);
    } else {
      ASSERT_EQ(judged.size(), 1U);
      // The judge finds a fault exactly where whole entries do not fill the area.
      EXPECT_EQ(judged.front().fault == RecordFault::kNone,
                r.whole && abi::walks_exactly(r.attributes));
      if (abi::is_thread_schema(v.thread_record.schema)) {
        EXPECT_TRUE(v.allows(Result::kAccept));
        const auto content = content_of(r, v.thread_record.key_map);
        EXPECT_NE(std::ranges::find(v.thread_record.expect, content), v.thread_record.expect.end());
      }
    }
    if (v.thread_record.layout == "T0") {
      ASSERT_EQ(judged.size(), 1U);
      EXPECT_EQ(judged.front().fault, RecordFault::kOlderLayout);
    }
  }
  for (const auto& [id, ids] : kBroken) EXPECT_TRUE(broken.contains(id)) << id << " is no vector";
}

TEST(GoldenVectors, DraftsOfTheRecordAreRecognised) {
  std::set<std::string> seen;
  for (const auto& v : golden::vectors_of(Kind::kThreadRecord)) {
    const std::string& layout = v.thread_record.layout;
    const auto bytes = std::as_bytes(std::span(v.thread_record.record));
    if (layout == "T3") {
      const auto head = abi::decode_thread_record(bytes);
      if (!head || head->valid > 1 || bytes.size() - sizeof *head < head->attrs_data_size) continue;
      if (!abi::walks_exactly(bytes.subspan(sizeof *head, head->attrs_data_size))) continue;
      if (bytes.size() > 640) continue;
    }
    SCOPED_TRACE(v.id);
    seen.insert(layout);
    const bool draft = layout == "T0" || layout == "T1";
    const auto found = abi::recognise_record(
        {.symbol = draft ? abi::SlotSymbol::kDraft : abi::SlotSymbol::kCurrent,
         .bytes = bytes,
         .has_max_record_size = layout == "T0"});
    EXPECT_EQ(abi::to_string(found.best), layout == "T2" ? "T3" : layout);
    EXPECT_FALSE(found.other_byte_order);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"T0", "T1", "T2", "T3"}));
}

}  // namespace
}  // namespace ctxconf::conformance
