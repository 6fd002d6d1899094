#include "golden/vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <span>

#include "abi/process_header.h"
#include "golden/diff.h"
#include "golden/hexdump.h"
#include "golden/source.h"
#include "golden/test_vectors.h"

namespace ctxconf::golden {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A source with one vector of these members, between an id and a result.
std::string source(Kind kind, const std::string& id, const std::string& members,
                   const std::string& result = R"("result": "reject")") {
  return R"({"kind": ")" + std::string(to_string(kind)) + R"(", "revision": ")" +
         std::string(revision_of(kind)) + R"(", "vectors": [{"id": ")" + id +
         R"(", "requirements": ["r"], "comment": "c", )" + members + (members.empty() ? "" : ", ") +
         result + "}]}";
}

Vector encoded(Kind kind, const std::string& id, const std::string& members,
               const std::string& result = R"("result": "reject")") {
  auto vectors = encode_source(source(kind, id, members, result), "s.json", kind);
  EXPECT_TRUE(vectors) << vectors.error();
  return vectors ? vectors->front() : Vector{};
}

std::string changed(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

// --- the folder in this tree

TEST(GoldenVectors, AreAsManyAsPromised) {
  EXPECT_GE(vectors_of(Kind::kProcessContext).size(), 25U);
  EXPECT_GE(vectors_of(Kind::kThreadRecord).size(), 40U);
  EXPECT_GE(vectors_of(Kind::kMaps).size(), 15U);
}

TEST(GoldenVectors, AreWhatTheirTextSays) {
  for (const Kind kind : kKinds) {
    for (const Vector& v : vectors_of(kind)) {
      const auto again = parse_vector(to_json(v), v.id, kind);
      ASSERT_TRUE(again) << again.error();
      EXPECT_EQ(*again, v) << v.id;
    }
  }
}

TEST(GoldenVectors, HaveEveryDraftAndEveryResult) {
  std::set<std::string_view> layouts;
  std::set<Result> results;
  std::set<std::string> ids;
  for (const Vector& v : vectors_of(Kind::kProcessContext)) {
    ids.insert(v.id);
    layouts.insert(abi::fields_of(v.process_context.layout).id);
    results.insert(v.results.begin(), v.results.end());
  }
  EXPECT_EQ(layouts, (std::set<std::string_view>{"H0", "H1", "H2", "H3", "H5"}));
  EXPECT_EQ(results.size(), 4U);
  // Drafts of the payload and of its reference data have no distinguishing mark.
  for (const char* draft : {"h0-p0", "h1-p1", "h2-p2", "h3-p3", "h4-p4", "tls-key-table",
                            "schema-type", "key-map-in-resource"}) {
    EXPECT_TRUE(ids.contains(std::string("pctx/draft-") + draft)) << draft;
  }
}

// The bytes at [address, address + size), if all of them are there.
std::optional<Bytes> bytes_at(const std::vector<MemoryPiece>& memory, std::uint64_t address,
                              std::uint64_t size) {
  for (const auto& piece : memory) {
    if (address < piece.address || address - piece.address > piece.bytes.size()) continue;
    const auto at = address - piece.address;
    if (size <= piece.bytes.size() - at) return piece.bytes.substr(at, size);
  }
  return std::nullopt;
}

// A minimal reader: takes what is in memory and lets protobuf decode it.
Result read(const ProcessContextVector& v, ProcessContextMessage& message) {
  const auto memory = memory_of(v);
  const auto head = bytes_at(memory, v.mapping_address, sizeof(abi::ProcessHeader));
  if (!head) return Result::kAbsent;
  const auto header = abi::decode_process_header(std::as_bytes(std::span(*head)));
  if (header->signature != abi::kSignature || header->version != abi::kVersion) {
    return Result::kAbsent;
  }
  if (header->monotonic_published_at_ns == 0) return Result::kRetry;
  const auto payload = bytes_at(memory, header->payload, header->payload_size);
  return payload && message.ParseFromString(*payload) ? Result::kAccept : Result::kReject;
}

TEST(GoldenVectors, AreWhatProtobufMakesOfTheirMemory) {
  for (const Vector& v : vectors_of(Kind::kProcessContext)) {
    ProcessContextMessage message;
    const Result result = read(v.process_context, message);
    EXPECT_TRUE(v.allows(result)) << v.id << ": " << to_string(result);
    if (result != Result::kAccept) continue;
    EXPECT_THAT(v.process_context.expect, ::testing::Contains(content_of(message))) << v.id;
  }
}

// --- sources and their bytes

// The example of requirements/layouts.md.
TEST(Encoder, MakesTheHeaderOfADraft) {
  const Vector v = encoded(Kind::kProcessContext, "pctx/h3",
                           R"("layout": "H3", "header": {"timestamp": 1764606693650819083,
                              "payload_size": 336, "payload": "0x5f6a7e6d82a0"})");
  EXPECT_EQ(hex(v.process_context.header),
            "4f54454c5f435458020000000b685547"
            "70247d1850010000a0826d7e6a5f0000");
  EXPECT_THAT(v.process_context.masks, IsEmpty());
}

TEST(Encoder, MasksWhatTheSourceLeavesOpen) {
  const Vector v = encoded(Kind::kProcessContext, "pctx/x", R"("header": {"timestamp": 7})");
  const auto& p = v.process_context;
  ASSERT_EQ(p.masks.size(), 2U);
  EXPECT_EQ(p.masks[0].name, "payload_size");
  EXPECT_EQ(p.masks[0].offset, 12U);
  EXPECT_EQ(p.masks[1].name, "payload");
  EXPECT_EQ(p.masks[1].offset, 24U);
}

TEST(Encoder, SwapsAndCutsHeaders) {
  const Vector v = encoded(Kind::kProcessContext, "pctx/x",
                           R"("byte_order": "big", "cut": 14, "header": {"payload_size": 258})");
  EXPECT_EQ(hex(v.process_context.header), "4f54454c5f435458000000020000");
  const auto memory = memory_of(v.process_context);
  ASSERT_EQ(memory.size(), 1U);
  EXPECT_EQ(memory[0].bytes.size(), 4096U);
}

TEST(Encoder, PutsThePayloadWhereItIsSaidToBe) {
  const std::string payload = R"("payload": {"hex": "0a00"})";
  const Vector inside = encoded(Kind::kProcessContext, "pctx/x", payload);
  EXPECT_EQ(inside.process_context.payload_at, 0x7f5e10000020U);
  EXPECT_EQ(memory_of(inside.process_context).at(0).bytes.substr(32, 3), std::string("\n\0\0", 3));
  const Vector outside =
      encoded(Kind::kProcessContext, "pctx/x", payload + R"(, "payload_at": "0x1000")");
  const auto memory = memory_of(outside.process_context);
  ASSERT_EQ(memory.size(), 2U);
  EXPECT_EQ(memory[1].address, 0x1000U);
  EXPECT_EQ(memory[1].bytes, std::string("\n\0", 2));
}

TEST(Encoder, WritesSingleFields) {
  const Vector v = encoded(Kind::kProcessContext, "pctx/x", R"("payload": {"wire": [
      {"field": 1, "varint": 300, "varint_bytes": 4, "tag_bytes": 2},
      {"field": 2, "text": "ab", "length": 9},
      {"field": 3, "message": [{"field": 4, "fixed32": "01020304"}], "length_bytes": 3},
      {"field": 16, "group": [{"field": 5, "fixed64": "0102030405060708"}]}]})");
  EXPECT_EQ(hex(v.process_context.payload),
            "8800ac828000"
            "12096162"
            "1a8580002501020304"
            "8301290102030405060708"
            "8401");
}

// The example of the design.
TEST(Encoder, MakesRecords) {
  const Vector v = encoded(Kind::kThreadRecord, "rec/x",
                           R"("trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
      "span_id": "00f067aa0ba902b7", "flags": 1, "key_map": [],
      "entries": [{"key": 0, "text": "/cart"}, {"key": 1, "text": "PO", "length": 9}])");
  EXPECT_EQ(hex(v.thread_record.record),
            "4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b701010b0000052f636172740109504f");
}

TEST(Encoder, RepeatsAndCutsRecords) {
  const Vector v =
      encoded(Kind::kThreadRecord, "rec/x",
              R"("key_map": [], "entries": [{"key": 2, "hex": "ff", "times": 2, "copies": 2}],
         "tail": "aabb", "cut": 37)");
  EXPECT_EQ(hex(v.thread_record.record.substr(24)), "010008000202ffff0202ffffaa");
}

TEST(Encoder, WritesLines) {
  const Vector v = encoded(Kind::kMaps, "maps/x",
                           R"("lines": ["a", {"text": "b", "then": "c", "times": 2, "copies": 2}],
                              "final_newline": false)");
  EXPECT_EQ(v.maps.maps, "a\nbcc\nbcc");
}

struct BadSource {
  Kind kind;
  std::string members;
  std::string complaint;
};

TEST(Encoder, SaysWhatIsWrongWithASource) {
  const auto p = Kind::kProcessContext;
  const auto r = Kind::kThreadRecord;
  for (const auto& [kind, members, complaint] : std::vector<BadSource>{
           {p, R"("colour": 1)", "vectors[0].colour: is not a known member"},
           {p, R"("layout": "H9")", "layout: must be H0"},
           {p, R"("layout": "H0", "header": {"timestamp": 1})",
            "header.timestamp: is not a known member"},
           {p, R"("header": {"version": 4294967296})", "header.version: must be a whole number"},
           {p, R"("header": {"version": -1})", "header.version: must be a whole number"},
           {p, R"("header": {"signature": "short"})", "header.signature: must be 8"},
           {p, R"("header": {"payload": "20"})", "header.payload: must be an address"},
           {p, R"("mapping": {"size": 1e3})", "mapping.size: must be a whole number"},
           {p, R"("mapping": {"size": 65537})", "mapping.size: must be a whole number"},
           {p, R"("mapping": {"size": 31})", "mapping.size: is less than the header"},
           {p, R"("mapping": {"address": "0xfffffffffffffff0"})", "mapping.address: leaves no"},
           {p,
            R"("mapping": {"size": 32}, "payload": {"hex": "00"}, "payload_at": "0x7f5e1000001f")",
            "payload_at: the payload is neither"},
           {p, R"("payload": {"hex": "0A"})", "payload.hex: must be pairs"},
           {p, R"("payload": {"resource": [["k"]]})", "payload.resource[0]: must be a pair"},
           {p, R"("payload": {"resource": [["k", {"int": 9223372036854775808}]]})",
            "is not a value"},
           {p, R"("payload": {"resource": [["k", {"int": 1, "bool": true}]]})", "with one member"},
           {p, R"("payload": {"wire": [{"field": 1, "varint": 1, "text": ""}]})", "needs one of"},
           {p, R"("payload": {"wire": [{"field": 1, "fixed32": "00"}]})", "wrong number of bytes"},
           {p, R"("byte_order": "middle")", "byte_order: must be"},
           {p, R"("expect": {"resource": {}, "attributes": {}})", "only an accepted vector"},
           {r, R"("entries": [{"key": 256, "text": ""}], "key_map": [])", "entries[0].key: must"},
           {r, R"("entries": [{"key": 1, "text": "x", "times": 256}], "key_map": [])", "255 bytes"},
           {r, R"("entries": [{"key": 1}], "key_map": [])", "needs either text or hex"},
           {r,
            R"("entries": [{"key": 1, "text": "xxx", "length": 3, "times": 65536}], "key_map": [])",
            "entries[0].times: makes more"},
           {r, R"("entries": [{"key": 1, "text": "", "copies": 65537}], "key_map": [])",
            "entries[0].copies: must be"},
           {r, R"("entries": [{"key": 1, "text": "x", "copies": 65536}], "key_map": [])",
            "entries[0].copies: makes more"},
           {r, R"("entries": [], "key_map": [1])", "key_map: must be"},
           {r, R"("span_id": "00", "key_map": [])", "span_id: must be 16"},
           {r, R"("layout": "T7", "key_map": [])", "layout: must be T0"},
           {Kind::kMaps, R"("lines": [1])", "vectors[0].lines[0]: must be an object"},
           {Kind::kMaps, R"("lines": [{"text": "0123", "copies": 65536}])",
            "lines[0].copies: makes more"},
       }) {
    const auto id = std::string(id_prefix(kind)) + "x";
    const auto vectors = encode_source(source(kind, id, members), "s.json", kind);
    ASSERT_FALSE(vectors) << members;
    EXPECT_THAT(vectors.error(), HasSubstr("s.json: " + id + ": ")) << members;
    EXPECT_THAT(vectors.error(), HasSubstr(complaint)) << members;
  }
}

TEST(Encoder, RefusesSourcesOfAnotherKindOrRevision) {
  const std::string good = source(Kind::kMaps, "maps/x", R"("maps": "")");
  const auto error_of = [](const std::string& text) {
    const auto vectors = encode_source(text, "s.json", Kind::kMaps);
    return vectors ? "none" : vectors.error();
  };
  EXPECT_EQ(error_of(good), "none");
  EXPECT_THAT(error_of(changed(good, "\"maps\"", "\"elf\"")), HasSubstr("kind: is \"elf\""));
  EXPECT_THAT(error_of(changed(good, "2026-04-07", "2025-01-01")),
              HasSubstr("revision: is \"2025-01-01\"; this version of ctxconf knows 2026-04-07"));
  EXPECT_THAT(error_of(changed(good, "maps/x", "maps/X")), HasSubstr("id: must be maps/NAME"));
  EXPECT_THAT(error_of(changed(good, "\"r\"", "\"r\", \"r\"")), HasSubstr("appears twice"));
  EXPECT_THAT(error_of(changed(good, "\"reject\"", "[\"reject\"]")), HasSubstr("two results"));
  EXPECT_THAT(error_of(changed(good, "\"reject\"", "\"either\"")), HasSubstr("result: must be"));
  EXPECT_THAT(error_of(good.substr(0, good.size() - 1)), HasSubstr("is not JSON"));
  const std::string twice = good.substr(good.find("[{") + 1, good.rfind(']') - good.find("[{") - 1);
  EXPECT_THAT(error_of(changed(good, twice, twice + "," + twice)),
              HasSubstr("maps/x: appears twice"));
  EXPECT_THAT(error_of(changed(good, R"("comment")", R"("id": "maps/y", "comment")")),
              HasSubstr("the member \"id\" twice"));
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(error_of("\xef\xbb\xbf" + good), HasSubstr("begins with a byte order mark"));
  EXPECT_THAT(error_of(std::string(64, '[')), HasSubstr("is not JSON"));
  EXPECT_THAT(error_of(std::string(65, '[')), HasSubstr("nested deeper than 64 levels"));
}

// It would take an hour if the time grew with the square of the elements.
TEST(Encoder, ReadsASourceWithVeryManyObjects) {
  std::string many = "[";
  for (int i = 0; i < 1'000'000; ++i) many += "{},";
  const auto vectors = encode_source(many + "{}]", "s.json", Kind::kMaps);
  ASSERT_FALSE(vectors);
  EXPECT_THAT(vectors.error(), HasSubstr("must be an object"));
}

TEST(Encoder, WantsCandidatesWhereAMapsTextIsAccepted) {
  const auto error_of = [](const std::string& candidates) {
    const auto vectors = encode_source(
        source(Kind::kMaps, "maps/x", R"("maps": "", "expect": {"candidates": )" + candidates + "}",
               R"("result": "accept")"),
        "s.json", Kind::kMaps);
    return vectors ? "none" : vectors.error();
  };
  EXPECT_EQ(error_of(R"(["0x1000"])"), "none");
  EXPECT_THAT(error_of("[]"), HasSubstr("expect.candidates: is empty"));
  EXPECT_THAT(error_of("1"), HasSubstr("expect.candidates: must be a list"));
}

TEST(CompareEncodings, NamesTheVectorAndThePlace) {
  const std::vector<Vector> ours = {encoded(Kind::kMaps, "maps/x", R"("maps": "abc")")};
  EXPECT_TRUE(compare_encodings(ours, R"({"maps/x": {"maps": "abc"}})"));
  const auto error_of = [&](std::string_view theirs) {
    const auto same = compare_encodings(ours, theirs);
    return same ? "none" : same.error();
  };
  EXPECT_EQ(error_of(R"({"maps/x": {"maps": "abd"}})"),
            "maps/x: the encodings of maps differ at character 2 of 3 and 3: ours c, theirs d");
  EXPECT_THAT(error_of(R"({"maps/x": {"maps": "ab"}})"), HasSubstr("theirs (end)"));
  EXPECT_THAT(error_of(R"({"maps/y": {"maps": "abc"}})"), HasSubstr("maps/x"));
  EXPECT_THAT(error_of(R"({"maps/x": {}})"), HasSubstr("gave no maps"));
  EXPECT_THAT(error_of("{}"), HasSubstr("made 0 vectors of 1"));
  EXPECT_THAT(error_of("Traceback"), HasSubstr("is not JSON"));
}

// --- generated files

TEST(ParseVector, IsStrict) {
  const auto vectors = vectors_of(Kind::kProcessContext);
  const auto inline_one = std::ranges::find(vectors, "pctx/inline-one-page", &Vector::id);
  ASSERT_NE(inline_one, vectors.end());
  const std::string good = to_json(*inline_one);
  const auto error_of = [](const std::string& text) {
    const auto v = parse_vector(text, "f.json", Kind::kProcessContext);
    return v ? "none" : v.error();
  };
  EXPECT_EQ(error_of(good), "none");
  for (const auto& [from, to, complaint] : std::vector<std::array<std::string, 3>>{
           {R"("revision": "2026-04-07")", R"("revision": "2027-04-07")", "revision: is"},
           {R"("kind": "process-context")", R"("kind": "snapshot")", "kind: is"},
           {R"("payload_at")", R"("payload_where")", "payload_at: is missing"},
           {R"("layout")", R"("extra": 1, "layout")", "extra: is not a known member"},
           {R"("offset": 24)", R"("offset": 25)", "masks[2].length: ends after"},
           {R"("result": "accept")", R"("result": "reject")", "only an accepted"},
           {R"("result": "accept")", R"("result": ["accept", "accept"])", "result: must be"},
           {R"("size": 4096)", R"("size": 16)", "mapping.size: is less"},
           {R"("header": "4f)", R"("header": "4)", "header: must be pairs"},
           {R"("string": "checkout")", R"("text": "checkout")", "is not a value"},
       }) {
    const auto error = error_of(changed(good, from, to));
    EXPECT_THAT(error, HasSubstr("f.json: ")) << to;
    EXPECT_THAT(error, HasSubstr(complaint)) << to;
    EXPECT_THAT(error, HasSubstr("golden regenerate")) << to;
  }
  EXPECT_THAT(error_of("[]"), HasSubstr("the file: must be an object"));
}

TEST(LoadVectors, NamesTheFile) {
  std::string name = ::testing::TempDir() + "/golden_load_vectors_XXXXXX";
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const fs::path folder = name;
  EXPECT_THAT(load_vectors(folder, Kind::kMaps).error(), HasSubstr(folder.string()));
  fs::create_directories(folder / "maps");
  EXPECT_THAT(load_vectors(folder, Kind::kMaps).error(), HasSubstr("contains no vectors"));
  std::ofstream(folder / "maps" / "y.json")
      << to_json(encoded(Kind::kMaps, "maps/x", R"("maps": "")"));
  EXPECT_THAT(load_vectors(folder, Kind::kMaps).error(), HasSubstr("y.json: contains maps/x"));
  fs::rename(folder / "maps" / "y.json", folder / "maps" / "x.json");
  EXPECT_EQ(load_vectors(folder, Kind::kMaps).value().size(), 1U);
  std::ofstream(folder / "maps" / "z.json") << std::string(kLongestVectorFile + 1, ' ');
  EXPECT_THAT(load_vectors(folder, Kind::kMaps).error(), HasSubstr("z.json: is larger than"));
  fs::remove_all(folder);
}

// --- values

TEST(ContentOf, TakesTheFirstOrTheLastOfEqualKeys) {
  ProcessContextMessage message;
  for (const char* text : {"a", "b"}) {
    auto* pair = message.mutable_resource()->add_attributes();
    pair->set_key("k");
    pair->mutable_value()->set_string_value(text);
  }
  EXPECT_EQ(content_of(message).resource.at("k"), R"({"string":"b"})");
  EXPECT_EQ(content_of(message, Repeats::kFirst).resource.at("k"), R"({"string":"a"})");
  EXPECT_THAT(content_of(message).attributes, IsEmpty());
}

TEST(ValueText, ReplacesWhatIsNoText) {
  AnyValue value;
  value.set_string_value("a\xff");
  EXPECT_EQ(value_text(value), "{\"string\":\"a\xef\xbf\xbd\"}");
  EXPECT_EQ(value_text(AnyValue()), "{}");
}

// --- for people

TEST(Hexdump, ShowsMaskedBytesAsDots) {
  const Vector v = encoded(Kind::kProcessContext, "pctx/x",
                           R"("header": {"timestamp": 7}, "payload": {"wire": [
                              {"field": 1, "message": []}, {"field": 9, "text": "a\"\u0001"}]})");
  EXPECT_EQ(hexdump(v),
            R"(pctx/x: reject
c

header (H5) at 0x7f5e10000000, in a mapping of 4096 bytes
000000  4f 54 45 4c 5f 43 54 58                          signature = "OTEL_CTX"
000008  02 00 00 00                                      version = 2
00000c  .. .. .. ..                                      payload_size: u32 == length of the encoded message
000010  07 00 00 00 00 00 00 00                          monotonic_published_at_ns = 7
000018  .. .. .. .. .. .. .. ..                          payload: u64 == address of payload_size readable bytes of the publisher

payload at 0x7f5e10000020, 7 bytes
000000  0a 00                                            resource, 0 bytes
000002  4a 03 61 22 01                                   field 9, wire type 2 = "a\"\x01"
)");
}

TEST(Hexdump, CoversEveryByteOfEveryVector) {
  for (const Kind kind : {Kind::kProcessContext, Kind::kThreadRecord}) {
    for (const Vector& v : vectors_of(kind)) {
      const auto& p = v.process_context;
      const auto& r = v.thread_record;
      const auto annotations = kind == Kind::kProcessContext
                                   ? annotate_payload(p.payload)
                                   : annotate_record(r.record, r.masks, r.layout);
      std::size_t at = 0;
      for (const Annotation& a : annotations) {
        EXPECT_EQ(a.offset, at) << v.id;
        at += a.length;
      }
      EXPECT_EQ(at, kind == Kind::kProcessContext ? p.payload.size() : r.record.size()) << v.id;
    }
  }
}

TEST(CompareLines, MarksWhatDiffersOutsideTheMasks) {
  const std::vector<Annotation> fields = {
      {0, 2, "a = 1", false, 0}, {2, 1, "b: any", true, 0}, {3, 2, "c = 2", false, 0}};
  const auto lines = compare_lines("\x01\x02\x03\x04\x05", "\x01\x09\x08\x04", fields, {}, 20);
  EXPECT_THAT(
      lines, ::testing::ElementsAre(
                 "000000  01 02                                            a = 1", " found  01 09",
                 "           ^^", "000002  ..                                               b: any",
                 "000003  04 05                                            c = 2", " found  04",
                 "           ^^"));
  EXPECT_EQ(compare_lines("\x01\x02\x03\x04\x05", "", fields, {}, 4).back(),
            "        more bytes differ");
}

TEST(CompareLines, MarksMaskedBytesAtFault) {
  const std::vector<Annotation> fields = {{0, 2, "a: any", true, 0}, {2, 3, "b: any", true, 0}};
  const std::string_view bytes = "\x01\x02\x03\x04\x05";
  EXPECT_THAT(
      compare_lines(bytes, bytes, fields, {{3, 2}}, 20),
      ::testing::ElementsAre("000000  .. ..                                            a: any",
                             "000002  .. .. ..                                         b: any",
                             " found  03 04 05", "           ^^ ^^"));
}

TEST(Diff, ShowsFields) {
  const Vector a = encoded(Kind::kProcessContext, "pctx/a",
                           R"("payload": {"resource": [["k", {"string": "v"}]]})");
  Vector b = encoded(Kind::kProcessContext, "pctx/b",
                     R"("payload": {"resource": [["k", {"string": "w"}], ["l", {}]]})",
                     R"("result": "retry")");
  EXPECT_THAT(diff(a, a), IsEmpty());
  EXPECT_THAT(diff(a, b),
              ::testing::ElementsAre(
                  "- header.payload_size = 12", "+ header.payload_size = 19",
                  "- payload.resource.attributes.value.string_value = \"v\"",
                  "+ payload.resource.attributes.value.string_value = \"w\"",
                  "+ payload.resource.attributes", "+ payload.resource.attributes.key = \"l\"",
                  "+ payload.resource.attributes.value", "- result = reject", "+ result = retry"));
}

}  // namespace
}  // namespace ctxconf::golden
