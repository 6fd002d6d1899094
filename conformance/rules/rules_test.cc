// Every rule against literal evidence: what keeps it, what breaks it, and silence.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/conventions.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;

constexpr std::uint64_t kStart = 5000 * kSecond;  // of the image, boot-time clock
constexpr std::uint64_t kRealtimeMinusBoottime = 1'790'000'000 * kSecond;

std::string key_value(const std::string& key, const std::string& value) {
  return field(1, key) + field(2, field(1, value));
}
std::string context_message(const std::string& name = "checkout") {
  return field(1, field(1, key_value("service.name", name))) + field(2, key_value("own.key", "1"));
}

std::string text_of(const std::vector<std::uint8_t>& bytes, std::size_t from, std::size_t size) {
  return std::string(bytes.begin(), bytes.end()).substr(from, size);
}
template <class T>
std::string raw(T number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

MapEntry entry(std::uint64_t at, std::uint64_t size, const std::string& name) {
  MapEntry e;
  e.range = *RemoteRange::from_size(RemoteAddr(at), size);
  e.readable = e.writable = true;
  e.inode = name.empty() ? 0 : 7;
  e.name = name;
  return e;
}

// A legal context whose parts a test changes before it is put into a snapshot.
struct Writer {
  abi::ProcessHeader header{abi::kSignature, abi::kVersion, 0, kStart + kSecond, kHeap};
  std::string payload = context_message();
  std::uint64_t mapping = kMapping;
  bool size_from_payload = true;

  Candidate candidate() const {
    Candidate c;
    auto h = header;
    if (size_from_payload) h.payload_size = static_cast<std::uint32_t>(payload.size());
    c.entries = {entry(mapping, 4096, "/memfd:OTEL_CTX (deleted)")};
    c.vm_flags = {"rd wr mr mw me dc ac"};
    c.memory = {memory_block(mapping, std::string(reinterpret_cast<const char*>(&h), sizeof h))};
    if (h.payload != 0 && h.payload_size != 0) {
      MemoryBlock b = memory_block(h.payload, payload);
      b.wanted = h.payload_size;
      c.memory.push_back(std::move(b));
    }
    c.neighbours = {entry(mapping, 4096, "/memfd:OTEL_CTX (deleted)"),
                    entry(kHeap, 8192, "[heap]")};
    return c;
  }
};

struct World {
  Timeline t;
  World() {
    t.realtime_minus_boottime_ns = kRealtimeMinusBoottime;
    Process p;
    p.pid = 12;
    Image i;
    i.key = {12, 0};
    i.executable = "/bin/app";
    i.started_ns = kStart;
    p.images.push_back(std::move(i));
    t.processes.push_back(std::move(p));
  }
  Image& image() { return t.processes.front().images.front(); }
  Snapshot& see(std::vector<Candidate> candidates, double at_seconds = 2,
                Moment moment = Moment::kPeriodic, double until_seconds = 0) {
    Snapshot s;
    s.moment = moment;
    s.moments = {moment};
    s.first_seen_ns = kStart + static_cast<std::uint64_t>(at_seconds * 1e9);
    s.last_seen_ns =
        std::max(s.first_seen_ns, kStart + static_cast<std::uint64_t>(until_seconds * 1e9));
    s.times = until_seconds > at_seconds ? 5 : 1;
    s.candidates = std::move(candidates);
    image().snapshots.push_back(std::move(s));
    return image().snapshots.back();
  }
  Finding judge(std::string_view id) const {
    const auto all = evidence_of(t);
    EXPECT_EQ(all.size(), 1U);
    const RequirementRule* rule = rule_of(id);
    EXPECT_NE(rule, nullptr) << id;
    if (all.empty() || rule == nullptr) return {};
    return rule->rule(all.front());
  }
};

// The ids that contradict the evidence, of all rules.
std::vector<std::string> failures(const World& w) {
  std::vector<std::string> out;
  for (const auto group : {header_rules(), payload_rules(), publish_rules(), update_rules()}) {
    for (const auto& r : group) {
      const Outcome o = w.judge(r.id).outcome;
      if (o == Outcome::kFail || o == Outcome::kInfo) out.emplace_back(r.id);
    }
  }
  return out;
}

using Ids = std::vector<std::string>;

World world_of(const Writer& writer) {
  World w;
  w.see({writer.candidate()}, 2, Moment::kNamed, 3);
  w.see({writer.candidate()}, 4, Moment::kExit);
  return w;
}

std::vector<std::string_view> ids_with(bool RequirementRule::* flag) {
  std::vector<std::string_view> out;
  for (const RequirementRule& r : all_rules()) {
    if (r.*flag) out.push_back(r.id);
  }
  std::ranges::sort(out);
  return out;
}

TEST(Rules, WhatDependsOnARequirementIsSaidInTheRecordOfItsRule) {
  using List = std::vector<std::string_view>;
  EXPECT_EQ(ids_with(&RequirementRule::rests_on_naming_calls), List{"pctx.fork.child-has-none"});
  EXPECT_EQ(ids_with(&RequirementRule::rests_on_other_calls),
            (List{"pctx.publish.existing-becomes-update", "pctx.update.old-payload-until-zero",
                  "pctx.update.same-mapping"}));
  EXPECT_EQ(ids_with(&RequirementRule::holds_without_context),
            (List{"pctx.publish.survives-file-size-limit", "pctx.publish.survives-total-denial"}));
  EXPECT_EQ(ids_with(&RequirementRule::is_of_file_size_limit),
            List{"pctx.publish.survives-file-size-limit"});
  ASSERT_EQ(ids_with(&RequirementRule::reports_refused_contexts), List{"tctx.attach.visible"});
  EXPECT_EQ(rule_of_refused_contexts().id, "tctx.attach.visible");
  EXPECT_EQ(ids_with(&RequirementRule::leaves_variable_findable),
            (List{"tctx.tls.is-pointer", "tctx.tls.symbol-type"}));
}

TEST(Rules, ALegalContextContradictsNothing) {
  const World w = world_of(Writer{});
  EXPECT_EQ(failures(w), Ids{});
  for (const char* id :
       {"pctx.header.signature", "pctx.header.version", "pctx.header.layout",
        "pctx.header.payload-size", "pctx.header.payload-pointer", "pctx.header.at-mapping-start",
        "pctx.header.timestamp-nanoseconds", "pctx.header.timestamp-nonzero-at-rest",
        "pctx.payload.process-context-message", "pctx.payload.field-numbers", "pctx.payload.utf8",
        "pctx.payload.readable", "pctx.payload.stays-alive", "pctx.publish.mapping-private",
        "pctx.publish.discoverable", "pctx.publish.singleton", "pctx.publish.memfd-closed",
        "pctx.update.no-silent-change", "pctx.fork.dontfork"}) {
    EXPECT_EQ(w.judge(id).outcome, Outcome::kPass) << id << ": " << w.judge(id).saw;
  }
}

TEST(Rules, ABlankHeaderIsJudgedByNone) {
  Writer writer;
  writer.header = {};
  writer.size_from_payload = false;
  const World w = world_of(writer);
  EXPECT_EQ(failures(w), Ids{});
  EXPECT_EQ(w.judge("pctx.header.signature").outcome, Outcome::kUnobservable);
  EXPECT_EQ(w.judge("pctx.payload.utf8").outcome, Outcome::kUnobservable);
  EXPECT_FALSE(w.judge("pctx.payload.utf8").remedy.empty());
}

TEST(HeaderRules, OneWrongLetter) {
  Writer writer;
  writer.header.signature[4] = '-';
  const World w = world_of(writer);
  EXPECT_EQ(failures(w), Ids{"pctx.header.signature"});
  const Finding f = w.judge("pctx.header.signature");
  ASSERT_EQ(f.hexdumps.size(), 1U);
  ASSERT_EQ(f.hexdumps[0].marks.size(), 1U);
  EXPECT_EQ(f.hexdumps[0].marks[0].offset, 4U);
  // A vector is next to it, and masks what depends on the publication.
  ASSERT_TRUE(f.hexdumps[0].expected);
  const auto& expected = *f.hexdumps[0].expected;
  EXPECT_EQ(expected.vector, "pctx/inline-one-page");
  EXPECT_EQ(text_of(expected.bytes, 0, 12), std::string("OTEL_CTX\2\0\0\0", 12));
  ASSERT_EQ(expected.masks.size(), 3U);
  EXPECT_EQ(expected.masks[0].offset, 12U);
  EXPECT_EQ(expected.masks[2].name, "payload");
}

TEST(HeaderRules, AForeignSignatureNextToAValidContextIsLegal) {
  Writer second;
  second.mapping = kMapping + 0x10000;
  second.header.signature = {'S', 'O', 'M', 'E', 'T', 'H', 'I', 'N'};
  World w;
  w.see({Writer{}.candidate(), second.candidate()}, 2, Moment::kNamed, 3);
  w.see({Writer{}.candidate(), second.candidate()}, 4);
  EXPECT_EQ(failures(w), Ids{});
}

TEST(HeaderRules, AVersionThatIsNeither) {
  Writer writer;
  writer.header.version = 0;
  EXPECT_EQ(failures(world_of(writer)), Ids{"pctx.header.version"});
}

TEST(HeaderRules, TheDevelopmentVersionHasARequirementOfItsOwn) {
  Writer writer;
  writer.header.version = 1;
  const World w = world_of(writer);
  EXPECT_EQ(failures(w), Ids{"pctx.header.version-development"});
  EXPECT_EQ(w.judge("pctx.header.version").outcome, Outcome::kNa);
}

TEST(HeaderRules, TheOtherByteOrderExplainsTheVersion) {
  Writer writer;
  writer.header.payload_size = static_cast<std::uint32_t>(writer.payload.size());
  writer.header = abi::byte_swapped(writer.header);
  writer.size_from_payload = false;
  const World w = world_of(writer);
  EXPECT_EQ(failures(w), (Ids{"pctx.header.version", "pctx.header.native-byte-order"}));
  const auto expected = w.judge("pctx.header.native-byte-order").hexdumps.at(0).expected.value();
  const auto own = abi::byte_swapped(writer.header);
  EXPECT_EQ(text_of(expected.bytes, 12, 20),
            raw(own.payload_size) + raw(own.monotonic_published_at_ns) + raw(own.payload));
  EXPECT_TRUE(expected.masks.empty());
}

TEST(HeaderRules, ADraftOfAutumn2025) {
  Writer writer;
  const std::string payload = context_message();
  std::array<char, 32> raw_header{};
  std::memcpy(raw_header.data(), abi::kSignature.data(), 8);
  const std::uint32_t version = 2;
  const auto size = static_cast<std::uint32_t>(payload.size());
  const std::uint64_t wall = 1'764'606'693'000'000'000;
  std::memcpy(raw_header.data() + 8, &version, 4);
  std::memcpy(raw_header.data() + 12, &wall, 8);
  std::memcpy(raw_header.data() + 20, &size, 4);
  std::memcpy(raw_header.data() + 24, &kHeap, 8);
  std::memcpy(&writer.header, raw_header.data(), raw_header.size());
  writer.size_from_payload = false;
  Candidate c = writer.candidate();
  c.memory.resize(1);
  c.memory.push_back(memory_block(kHeap, payload));
  World w;
  w.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.header.layout"});
  const Finding f = w.judge("pctx.header.layout");
  EXPECT_EQ(f.signature, "layout H3");
  // The draft's numbers are where the merged layout has them.
  ASSERT_TRUE(f.hexdumps.at(0).expected);
  EXPECT_EQ(text_of(f.hexdumps[0].expected->bytes, 0, 32),
            std::string(raw_header.data(), 8) + raw(version) + raw(size) + raw(wall) + raw(kHeap));
  EXPECT_TRUE(f.hexdumps[0].expected->masks.empty());
  EXPECT_EQ(w.judge("pctx.header.payload-size").outcome, Outcome::kUnobservable);
}

TEST(HeaderRules, AHeaderFurtherIn) {
  Writer writer;
  writer.header = {};
  writer.size_from_payload = false;
  Candidate c = writer.candidate();
  c.found_at = 64;
  World w;
  w.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.header.at-mapping-start"});
  const auto dump = w.judge("pctx.header.at-mapping-start").hexdumps.at(0);
  ASSERT_EQ(dump.marks.size(), 2U);  // the signature, and what differs after it
  EXPECT_EQ(dump.marks[1].offset, 8U);
  EXPECT_EQ(dump.marks[1].label, "differs from the vector");
}

TEST(HeaderRules, AnOffsetInsteadOfAnAddress) {
  Writer writer;
  writer.header.payload = 32;
  Candidate c = writer.candidate();
  c.memory[1].readable = 0;
  c.memory[1].bytes.clear();
  World w;
  w.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.header.payload-pointer"});
}

TEST(HeaderRules, ASizeThatCountsATerminator) {
  Writer writer;
  writer.payload += '\0';
  EXPECT_EQ(failures(world_of(writer)), Ids{"pctx.header.payload-size"});
}

TEST(HeaderRules, ASizeBeyondTheMapping) {
  Writer writer;
  writer.size_from_payload = false;
  writer.header.payload_size = 0xffffffff;
  Candidate c = writer.candidate();
  c.memory[1].wanted = 0xffffffff;
  c.memory[1].readable = 8192;
  World w;
  w.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), (Ids{"pctx.header.payload-size", "pctx.publish.footprint"}));
}

TEST(HeaderRules, FourBytesOfPointerInA32BitProcess) {
  Writer writer;
  writer.header.payload = 0x0a0b0c0df7001000;
  World w = world_of(writer);
  w.image().elf64 = false;
  EXPECT_EQ(failures(w), Ids{"pctx.header.wide-fields-on-32-bit"});
}

TEST(HeaderRules, ASignExtendedAddressIsOnlyAnInfo) {
  Writer writer;
  writer.header.payload = 0xfffffffff7001000;
  World w = world_of(writer);
  w.image().elf64 = false;
  EXPECT_EQ(w.judge("pctx.header.wide-fields-on-32-bit").outcome, Outcome::kInfo);
  w.image().elf64 = true;
  EXPECT_EQ(w.judge("pctx.header.wide-fields-on-32-bit").outcome, Outcome::kNa);
}

TEST(HeaderRules, TimestampsInOtherUnits) {
  for (const std::uint64_t unit : {1'000U, 1'000'000U}) {
    Writer writer;
    writer.header.monotonic_published_at_ns = (kStart + kSecond) / unit;
    EXPECT_EQ(failures(world_of(writer)), Ids{"pctx.header.timestamp-nanoseconds"}) << unit;
    writer.header.monotonic_published_at_ns = (kStart + kSecond + kRealtimeMinusBoottime) / unit;
    EXPECT_EQ(failures(world_of(writer)), Ids{"pctx.header.timestamp-nanoseconds"}) << unit;
  }
}

TEST(HeaderRules, AnotherClockOrACounterIsLeftToAnotherRequirement) {
  for (const std::uint64_t ts : {kStart + kSecond + kRealtimeMinusBoottime, std::uint64_t{1},
                                 std::uint64_t{17}, kStart - kSecond}) {
    Writer writer;
    writer.header.monotonic_published_at_ns = ts;
    const World w = world_of(writer);
    EXPECT_EQ(failures(w), Ids{}) << ts;
    EXPECT_EQ(w.judge("pctx.header.timestamp-nanoseconds").outcome, Outcome::kUnobservable) << ts;
  }
}

TEST(HeaderRules, ATimeNamespaceIsAddedBeforeComparing) {
  Writer writer;
  writer.header.monotonic_published_at_ns = kStart + kSecond + 3600 * kSecond;
  World w = world_of(writer);
  w.image().boottime_offset_ns = static_cast<std::int64_t>(3600 * kSecond);
  EXPECT_EQ(w.judge("pctx.header.timestamp-nanoseconds").outcome, Outcome::kPass);
  writer.header.monotonic_published_at_ns = kStart + kSecond - 3600 * kSecond;
  w = world_of(writer);
  w.image().boottime_offset_ns = -static_cast<std::int64_t>(3600 * kSecond);
  EXPECT_EQ(w.judge("pctx.header.timestamp-nanoseconds").outcome, Outcome::kPass);
}

TEST(HeaderRules, AZeroThatTheNamingCallSaw) {
  Writer zero;
  zero.header.monotonic_published_at_ns = 0;
  World w;
  w.see({Writer{}.candidate()}, 1, Moment::kNamed);
  w.see({zero.candidate()}, 2, Moment::kNamed, 4.5);
  EXPECT_EQ(failures(w), Ids{"pctx.header.timestamp-nonzero-at-rest"});
  World early;
  early.see({zero.candidate()}, 2, Moment::kNamed, 4.5);
  EXPECT_EQ(early.judge("pctx.header.timestamp-nonzero-at-rest").outcome, Outcome::kUnobservable);
}

TEST(HeaderRules, AZeroThatMayBeAWithdrawalOrAnUpdateIsNotJudged) {
  Writer zero;
  zero.header.monotonic_published_at_ns = 0;
  World withdrawn;
  withdrawn.see({Writer{}.candidate()}, 1, Moment::kNamed);
  withdrawn.see({zero.candidate()}, 2, Moment::kPeriodic, 9);
  EXPECT_EQ(withdrawn.judge("pctx.header.timestamp-nonzero-at-rest").outcome,
            Outcome::kUnobservable);
  withdrawn.see({}, 10, Moment::kExit);
  EXPECT_EQ(withdrawn.judge("pctx.header.timestamp-nonzero-at-rest").outcome, Outcome::kPass);
  World slow;
  slow.see({zero.candidate()}, 2, Moment::kNamed, 9);
  slow.see({Writer{}.candidate()}, 10, Moment::kPeriodic, 11);
  EXPECT_EQ(slow.judge("pctx.header.timestamp-nonzero-at-rest").outcome, Outcome::kPass);
  Writer elsewhere;
  elsewhere.mapping = kMapping + 0x10000;
  World republished;
  republished.see({Writer{}.candidate()}, 1, Moment::kNamed);
  republished.see({zero.candidate(), elsewhere.candidate()}, 2, Moment::kNamed, 9);
  EXPECT_NE(republished.judge("pctx.header.timestamp-nonzero-at-rest").outcome, Outcome::kFail);
  World brief;
  brief.see({zero.candidate()}, 2, Moment::kNamed, 2.5);
  EXPECT_EQ(brief.judge("pctx.header.timestamp-nonzero-at-rest").outcome, Outcome::kUnobservable);
}

TEST(PayloadRules, EachFaultIsReportedByOneRequirement) {
  const auto resource = [](const std::string& attributes) { return field(1, attributes); };
  const auto one = field(1, key_value("service.name", "a"));
  struct Case {
    std::string payload;
    Ids requirements;
  };
  const std::vector<Case> cases = {
      {one + one, {"pctx.payload.process-context-message"}},  // a bare Resource
      {field(2, one) + field(1, key_value("k", "v")), {"pctx.payload.field-numbers"}},
      {resource(one + one), {"pctx.payload.resource-keys-unique"}},
      {resource(one) + field(2, key_value("a", "1")) + field(2, key_value("a", "2")),
       {"pctx.payload.attribute-keys-unique"}},
      {resource(one) +
           field(2, field(1, "l") + field(2, field(6, field(1, key_value("a", "1")) +
                                                          field(1, key_value("a", "2"))))),
       {"pctx.payload.nested-keys-unique"}},
      {resource(field(1, key_value("service.name", "\xc3"))), {"pctx.payload.utf8"}},
      {resource(field(1, key_value("service.name", "a") + std::string("\x18\x05"))),
       {"pctx.payload.no-dictionary-references"}},
      {resource(field(1, key_value("serviceName", "a"))), {"pctx.payload.semantic-conventions"}},
      // info: perhaps a name of the user's own
      {resource(field(1, key_value("service.nmae", "a"))), {"pctx.payload.semantic-conventions"}},
      {resource(one) + field(2, key_value("service.name", "a")),
       {"pctx.payload.resource-keys-unique"}},  // info: the key is in both lists
  };
  for (const auto& c : cases) {
    Writer writer;
    writer.payload = c.payload;
    EXPECT_EQ(failures(world_of(writer)), c.requirements) << c.requirements.front();
  }
  Writer both;
  both.payload = cases.back().payload;
  EXPECT_EQ(world_of(both).judge("pctx.payload.resource-keys-unique").outcome, Outcome::kInfo);
}

TEST(PayloadRules, WhatTheSdkWasToldMustBeFound) {
  World w = world_of(Writer{});
  EXPECT_EQ(w.judge("pctx.payload.resource-matches-sdk").outcome, Outcome::kUnobservable);
  w.t.expected_resource = {"service.name=checkout"};
  EXPECT_EQ(w.judge("pctx.payload.resource-matches-sdk").outcome, Outcome::kPass);
  for (const char* wrong : {"service.name=checkou", "service.version=1"}) {
    w.t.expected_resource = {"service.name=checkout", wrong};
    EXPECT_EQ(w.judge("pctx.payload.resource-matches-sdk").outcome, Outcome::kFail) << wrong;
  }
}

TEST(PayloadRules, WhatTheSdkWasToldIsInTheResource) {
  World w = world_of(Writer{});
  w.t.expected_resource = {"own.key=1"};
  const Finding f = w.judge("pctx.payload.resource-matches-sdk");
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_NE(f.saw.find("field 2"), std::string::npos) << f.saw;
}

TEST(PayloadRules, WhatTheSdkWasToldIsInTheLastPublication) {
  Writer writer;
  World w = world_of(writer);
  writer.payload = context_message("other");
  writer.header.monotonic_published_at_ns += kSecond;
  w.see({writer.candidate()}, 5);
  w.see({}, 6);
  w.t.expected_resource = {"service.name=checkout"};
  EXPECT_EQ(w.judge("pctx.payload.resource-matches-sdk").outcome, Outcome::kFail);
  w.t.expected_resource = {"service.name=other"};
  EXPECT_EQ(w.judge("pctx.payload.resource-matches-sdk").outcome, Outcome::kPass);
}

std::string entity(const std::string& fields) { return field(1, field(3, fields)); }

TEST(PayloadRules, EntityReferences) {
  const auto one = field(1, field(1, key_value("host.id", "a")));
  const auto type = field(2, "host");
  const auto id = field(3, "host.id");
  const auto judged = [&](const std::string& fields) {
    Writer writer;
    writer.payload = one + entity(fields);
    return failures(world_of(writer));
  };
  EXPECT_EQ(judged(type + id + field(4, "host.id")), Ids{});
  EXPECT_EQ(judged(type + id + field(4, "host.name")), Ids{"pctx.payload.entity-keys-exist"});
  EXPECT_EQ(judged(type + field(3, "host.name")), Ids{"pctx.payload.entity-keys-exist"});
  EXPECT_EQ(judged(id), Ids{"pctx.payload.entity-type"});
  EXPECT_EQ(judged(type), Ids{"pctx.payload.entity-id-keys"});
  const World none = world_of(Writer{});
  EXPECT_EQ(none.judge("pctx.payload.entity-type").outcome, Outcome::kNa);
}

TEST(PayloadRules, APayloadThatIsKeptApart) {
  Writer writer;
  writer.payload = field(1, field(1, key_value("service.name", "\xc3")));
  Candidate c = writer.candidate();
  MemoryBlock& block = c.memory[1];
  World w;
  w.image().payloads = {
      {.hash = block.hash, .bytes = std::make_shared<const std::vector<std::byte>>(block.bytes)}};
  block.bytes.resize(4);
  w.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.payload.utf8"});
  const auto again = timeline_from_json(to_json(w.t));
  ASSERT_TRUE(again) << sys::to_string(again.error());
  const Image& image = again->processes[0].images[0];
  ASSERT_EQ(image.payloads.size(), 1U);
  EXPECT_EQ(*image.payloads[0].bytes, *w.image().payloads[0].bytes);
  w.image().payloads.clear();
  EXPECT_EQ(w.judge("pctx.payload.utf8").outcome, Outcome::kUnobservable);
}

TEST(PayloadRules, WhatIsBeyondTheLimitIsNotJudged) {
  Candidate c = Writer{}.candidate();
  constexpr std::uint32_t kBytes = (64U << 20U) + 1;
  std::memcpy(c.memory[0].bytes.data() + offsetof(abi::ProcessHeader, payload_size), &kBytes,
              sizeof kBytes);
  MemoryBlock& block = c.memory[1];
  block.wanted = kBytes;
  block.readable = kMostPayload;
  c.neighbours = {entry(block.at.raw(), std::uint64_t{65} << 20U, "")};
  World w;
  w.see({c}, 2, Moment::kNamed, 3);
  for (const char* requirement : {"pctx.payload.utf8", "pctx.payload.readable"}) {
    const Finding f = w.judge(requirement);
    EXPECT_EQ(f.outcome, Outcome::kUnobservable) << requirement;
    EXPECT_NE(f.saw.find("67108865"), f.saw.npos) << f.saw;
    EXPECT_EQ(f.remedy, "a payload of at most 64 MiB") << requirement;
  }
}

TEST(PayloadRules, AMappedRangeThatCannotBeCopied) {
  Candidate c = Writer{}.candidate();
  c.memory[1].readable = 0;
  c.memory[1].bytes.clear();
  World w;
  w.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.payload.readable"});
}

TEST(PayloadRules, APayloadThatTurnsIntoSomethingElse) {
  Writer garbage;
  garbage.payload.assign(garbage.payload.size(), '\xff');
  World w;
  w.see({Writer{}.candidate()}, 2, Moment::kNamed);
  w.see({garbage.candidate()}, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.payload.stays-alive"});

  Candidate gone = Writer{}.candidate();
  gone.memory[1].readable = 0;
  gone.memory[1].bytes.clear();
  World unmapped;
  unmapped.see({Writer{}.candidate()}, 2, Moment::kNamed);
  unmapped.see({gone}, 3);
  EXPECT_EQ(failures(unmapped), Ids{"pctx.payload.stays-alive"});
}

TEST(PayloadRules, ASnapshotThatWasDueMayFollowTheOneAtExit) {
  Candidate gone = Writer{}.candidate();
  gone.memory[1].readable = 0;
  gone.memory[1].bytes.clear();
  World w;
  w.see({Writer{}.candidate()}, 2, Moment::kNamed);
  w.see({gone}, 3, Moment::kExit).moments.push_back(Moment::kPeriodic);
  EXPECT_EQ(w.judge("pctx.payload.stays-alive").outcome, Outcome::kInfo);
  w.image().snapshots.back().moments = {Moment::kPeriodic, Moment::kExit};
  EXPECT_EQ(w.judge("pctx.payload.stays-alive").outcome, Outcome::kFail);
}

TEST(PublishRules, PermissionsOfTheMapping) {
  Candidate shared = Writer{}.candidate();
  shared.entries[0].shared = true;
  World w;
  w.see({shared}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.publish.mapping-private"});

  Candidate executable = Writer{}.candidate();
  executable.entries[0].executable = true;
  w = World();
  w.see({executable}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.publish.mapping-protection"});
  w.image().personality = 0x0400000;
  EXPECT_EQ(failures(w), Ids{});

  Candidate read_only = Writer{}.candidate();
  read_only.entries[0].writable = false;
  w = World();
  w.see({read_only}, 2, Moment::kNamed, 3);
  EXPECT_EQ(w.judge("pctx.publish.mapping-protection").outcome, Outcome::kInfo);
}

TEST(PublishRules, AMemfdThatStaysOpen) {
  World w = world_of(Writer{});
  for (auto& s : w.image().snapshots) s.descriptors = {{5, "/memfd:OTEL_CTX (deleted)"}};
  EXPECT_EQ(failures(w), Ids{"pctx.publish.memfd-closed"});
  // Open for a moment, closed at the next snapshot.
  w.image().snapshots.back().descriptors.clear();
  EXPECT_EQ(w.judge("pctx.publish.memfd-closed").outcome, Outcome::kPass);
  // Seen once, in the middle of the publication.
  World once;
  once.see({Writer{}.candidate()}).descriptors = {{5, "/memfd:OTEL_CTX (deleted)"}};
  EXPECT_EQ(once.judge("pctx.publish.memfd-closed").outcome, Outcome::kUnobservable);
}

TEST(PublishRules, AHeaderUnderAnotherName) {
  Candidate hidden = Writer{}.candidate();
  hidden.named = false;
  hidden.entries[0].name = "/memfd:otel (deleted)";
  World w;
  w.see({hidden}, 2, Moment::kExit);
  EXPECT_EQ(failures(w), Ids{"pctx.publish.discoverable"});
  hidden.entries[0].name.clear();
  World nameless;
  nameless.see({hidden}, 2, Moment::kExit);
  EXPECT_EQ(failures(nameless), Ids{});
  EXPECT_EQ(nameless.judge("pctx.publish.discoverable").outcome, Outcome::kUnobservable);
  Candidate beside = Writer{}.candidate();
  beside.named = false;
  beside.entries[0].name = "/memfd:otel (deleted)";
  World both;
  both.see({hidden, beside}, 2, Moment::kExit);
  EXPECT_EQ(both.judge("pctx.publish.discoverable").outcome, Outcome::kFail);
}

TEST(PublishRules, AHeaderUnderAnotherNameAfterOneThatIsFound) {
  Candidate hidden = Writer{}.candidate();
  hidden.named = false;
  hidden.entries[0].name = "/memfd:otel (deleted)";
  const auto world = [&](std::int64_t result_of_mark) {
    World w;
    w.see({Writer{}.candidate()}, 2, Moment::kNamed, 3);
    w.see({hidden}, 4, Moment::kExit);
    SystemCall mark;
    mark.name = "madvise";
    mark.args = {hidden.entries[0].range.begin().raw(), 4096, 10};
    mark.result = result_of_mark;
    w.image().calls = {mark};
    return w;
  };
  // The context that was found, after its name was taken away.
  EXPECT_EQ(world(0).judge("pctx.publish.discoverable").outcome, Outcome::kPass);
  ++hidden.entries[0].inode;
  EXPECT_EQ(world(0).judge("pctx.publish.discoverable").outcome, Outcome::kFail);
  EXPECT_EQ(world(-22).judge("pctx.publish.discoverable").outcome, Outcome::kPass);
  hidden.entries[0].name.clear();
  EXPECT_EQ(world(0).judge("pctx.publish.discoverable").outcome, Outcome::kUnobservable);
  EXPECT_EQ(world(-22).judge("pctx.publish.discoverable").outcome, Outcome::kPass);
}

TEST(PublishRules, NothingToSayInZeroBytes) {
  Writer writer;
  writer.payload.clear();
  writer.header.payload = 0;
  EXPECT_EQ(failures(world_of(writer)), Ids{"pctx.publish.fields-nonzero"});
}

TEST(PublishRules, TwoActiveContexts) {
  Writer second;
  second.mapping = kMapping + 0x10000;
  World w;
  w.see({Writer{}.candidate(), second.candidate()}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.publish.singleton"});
  second.header.monotonic_published_at_ns = 0;
  World inactive;
  inactive.see({Writer{}.candidate(), second.candidate()}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(inactive), Ids{});
}

TEST(PublishRules, AGigabyteForAHeader) {
  Candidate large = Writer{}.candidate();
  large.entries[0] = entry(kMapping, 1U << 30U, large.entries[0].name);
  World w;
  w.see({large}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.publish.footprint"});
}

TEST(PublishRules, TheRunUnderAFileSizeLimit) {
  World w = world_of(Writer{});
  const char* id = "pctx.publish.survives-file-size-limit";
  EXPECT_EQ(w.judge(id).outcome, Outcome::kUnobservable);
  FaultRun run;
  run.fault = "RLIMIT_FSIZE=0";
  run.exit_code = 0;
  w.t.faults = {run};
  EXPECT_EQ(w.judge(id).outcome, Outcome::kPass);
  w.t.faults[0].exit_code.reset();
  w.t.faults[0].killed_by = 25;
  w.t.faults[0].last_syscall = "ftruncate";
  w.t.faults[0].last_file = "/memfd:OTEL_CTX (deleted)";
  EXPECT_EQ(w.judge(id).outcome, Outcome::kFail);
  w.t.faults[0].last_file = "/tmp/own.log";
  EXPECT_EQ(w.judge(id).outcome, Outcome::kUnobservable);
  w.t.faults[0].killed_by = 11;
  EXPECT_EQ(w.judge(id).outcome, Outcome::kUnobservable);
}

TEST(UpdateRules, TheSameTimestampTwice) {
  Writer updated;
  updated.header.payload = kHeap + 512;
  World w;
  w.see({Writer{}.candidate()}, 2, Moment::kNamed);
  w.see({updated.candidate()}, 3, Moment::kNamed);
  EXPECT_EQ(failures(w), Ids{"pctx.update.timestamp-distinct"});
  updated.header.monotonic_published_at_ns += 1;
  World distinct;
  distinct.see({Writer{}.candidate()}, 2, Moment::kNamed);
  distinct.see({updated.candidate()}, 3, Moment::kNamed);
  EXPECT_EQ(distinct.judge("pctx.update.timestamp-distinct").outcome, Outcome::kPass);
  EXPECT_EQ(world_of(Writer{}).judge("pctx.update.timestamp-distinct").outcome,
            Outcome::kUnobservable);
}

TEST(UpdateRules, APayloadThatChangesInSilence) {
  Writer patched;
  patched.payload = context_message("checkouT");
  World w;
  w.see({Writer{}.candidate()}, 2, Moment::kNamed);
  w.see({patched.candidate()}, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.update.no-silent-change"});
  // Inside the window, with a new timestamp, it is an update.
  patched.header.monotonic_published_at_ns += 9;
  World updated;
  updated.see({Writer{}.candidate()}, 2, Moment::kNamed);
  updated.see({patched.candidate()}, 3);
  EXPECT_EQ(failures(updated), Ids{});
}

TEST(UpdateRules, AnUnsettledCopyProvesNothing) {
  Writer patched;
  patched.payload = context_message("checkouT");
  Candidate torn = patched.candidate();
  torn.stable = false;
  World w;
  w.see({Writer{}.candidate()}, 2, Moment::kNamed, 2.5);
  w.see({torn}, 3);
  EXPECT_EQ(failures(w), Ids{});
}

TEST(ForkRules, DontforkOnEveryPart) {
  Candidate c = Writer{}.candidate();
  c.vm_flags = {"rd wr mr mw me wf ac"};
  World w;
  w.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(failures(w), Ids{"pctx.fork.dontfork"});
  c = Writer{}.candidate();
  c.entries.push_back(entry(kMapping + 4096, 4096, c.entries[0].name));
  c.vm_flags = {"rd wr dc", "rd wr"};
  World split;
  split.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(split.judge("pctx.fork.dontfork").outcome, Outcome::kWarn);
  c.vm_flags = {"rd wr", "rd wr dc"};
  World header;
  header.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(header.judge("pctx.fork.dontfork").outcome, Outcome::kFail);
  c.vm_flags = {std::nullopt, std::nullopt};
  World unknown;
  unknown.see({c}, 2, Moment::kNamed, 3);
  EXPECT_EQ(unknown.judge("pctx.fork.dontfork").outcome, Outcome::kUnobservable);
}

// When it came is for pctx.fork.dontfork-before-header.
TEST(ForkRules, DontforkThatComesLate) {
  const auto outcome = [](const Candidate& first, const Candidate& second) {
    World w;
    w.see({first}, 2, Moment::kPeriodic, 2.1);
    w.see({second}, 3, Moment::kNamed, 4);
    return w.judge("pctx.fork.dontfork").outcome;
  };
  Candidate unmarked = Writer{}.candidate();
  unmarked.vm_flags = {"rd wr mr mw me ac"};
  const Candidate marked = Writer{}.candidate();
  EXPECT_EQ(outcome(unmarked, marked), Outcome::kPass);
  EXPECT_EQ(outcome(marked, unmarked), Outcome::kFail);
  Candidate in_two = Writer{}.candidate();
  in_two.entries.push_back(entry(kMapping + 4096, 4096, in_two.entries[0].name));
  Candidate header_marked = in_two;
  in_two.vm_flags = {"rd wr", "rd wr"};
  header_marked.vm_flags = {"rd wr dc", "rd wr"};
  EXPECT_EQ(outcome(in_two, header_marked), Outcome::kWarn);
  // The first publication never had it.
  Writer next;
  next.header.monotonic_published_at_ns += kSecond;
  EXPECT_EQ(outcome(unmarked, next.candidate()), Outcome::kFail);
}

TEST(Conventions, NearMissesOnly) {
  EXPECT_EQ(conventional_name_near("serviceName"), "service.name");
  EXPECT_EQ(conventional_name_near("service_name"), "service.name");
  EXPECT_EQ(conventional_name_near("service.nmae"), "service.name");
  EXPECT_EQ(conventional_name_near("telemetry.sdk.languag"), "telemetry.sdk.language");
  for (const char* fine : {"service.name", "own.key", "team", "host.name", "service.names.internal",
                           "os.names", "", "datadog.process_tags"}) {
    EXPECT_EQ(conventional_name_near(fine), "") << fine;
  }
}

// ---- the records of the requirements

TEST(RequirementRules, EachIsOfTheCatalogueAndOnlyOnce) {
  std::set<std::string_view> ids;
  for (const RequirementRule& r : all_rules()) {
    EXPECT_NE(Catalogue::builtin().find(r.id), nullptr) << r.id;
    EXPECT_NE(r.rule, nullptr) << r.id;
    EXPECT_TRUE(ids.insert(r.id).second) << r.id << " has two records";
    EXPECT_EQ(rule_of(r.id), &r);
  }
  EXPECT_EQ(rule_of("pctx.header.unheard-of"), nullptr);
}

TEST(RequirementRules, EachRequirementThatCanBeCheckedHasOne) {
  for (const Specification& spec : Catalogue::builtin().specifications()) {
    for (const Requirement& r : spec.requirements) {
      const bool is_checked = r.role == Role::kWriter && !r.excluded;
      EXPECT_EQ(rule_of(r.id) != nullptr, is_checked) << r.id;
    }
  }
}

TEST(RequirementRules, OnlyTheTesteeIsAskedWhatRestsOnOperations) {
  for (const RequirementRule& r : all_rules()) {
    EXPECT_TRUE(r.rests_on != RestsOn::kOperations || r.asked_of == AskedOf::kTestee) << r.id;
  }
}

}  // namespace
}  // namespace ctxconf::conformance
