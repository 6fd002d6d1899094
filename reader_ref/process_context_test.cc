#include "reader_ref/process_context.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "reader_ref/literal_context.h"

namespace ctxconf::reader {
namespace {

using sys::InterruptedMemory;
using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;
using sys::Result;
using sys::SnapshotMemory;

constexpr std::uint64_t kHeaderAt = 0x10000;
constexpr std::uint64_t kPayloadAt = 0x20000;

std::string payload_of(const std::string& name) {
  ProcessContextMessage message;
  auto* a = message.mutable_resource()->add_attributes();
  a->set_key("service.name");
  a->mutable_value()->set_string_value(name);
  return message.SerializeAsString();
}

std::string service_of(const ProcessContext& context) {
  const auto* a = find_attribute(context.message.resource().attributes(), "service.name");
  return a == nullptr ? "" : a->value().string_value();
}

abi::ProcessHeader header_of(std::size_t size, std::uint64_t timestamp,
                             std::uint64_t payload = kPayloadAt) {
  return {abi::kSignature, abi::kVersion, static_cast<std::uint32_t>(size), timestamp, payload};
}

void put_header(SnapshotMemory& memory, std::uint64_t at, const abi::ProcessHeader& header) {
  memory.put(RemoteAddr(at), std::as_bytes(std::span(&header, 1)));
}

void publish(SnapshotMemory& memory, const std::string& payload, std::uint64_t timestamp,
             std::uint64_t header_at = kHeaderAt, std::uint64_t payload_at = kPayloadAt) {
  put(memory, payload_at, payload);
  put_header(memory, header_at, header_of(payload.size(), timestamp, payload_at));
}

MapEntry mapping(std::uint64_t at = kHeaderAt,
                 const std::string& name = "/memfd:OTEL_CTX (deleted)") {
  MapEntry m;
  m.range = *RemoteRange::from_size(RemoteAddr(at), 0x1000);
  m.readable = m.writable = true;
  m.name = name;
  return m;
}

ContextSample sample(const sys::MemoryReader& memory,
                     std::vector<MapEntry> candidates = {mapping()},
                     const std::shared_ptr<const ProcessContext>& known = nullptr) {
  return sample_once(memory, candidates, known).value();
}

struct Reading {
  ContextSample sample;
  std::vector<int> slept;  // ms
};

// Reads with as many samples as the default patience allows.
Reading read_context(const sys::MemoryReader& memory,
                     const std::function<void(int)>& between = {}) {
  Reading r;
  const auto list = [] { return Result<std::vector<MapEntry>>({mapping()}); };
  const auto sleep = [&](std::chrono::milliseconds ms) {
    r.slept.push_back(static_cast<int>(ms.count()));
    if (between) between(static_cast<int>(r.slept.size()));
    return true;
  };
  r.sample = read_process_context(memory, list, nullptr, {}, sleep).value();
  return r;
}

TEST(ProcessContext, IsReadWithoutWaiting) {
  SnapshotMemory m;
  publish(m, payload_of("shop"), 7);
  const auto r = read_context(m);
  ASSERT_TRUE(r.sample.context);
  EXPECT_EQ(service_of(*r.sample.context), "shop");
  EXPECT_EQ(r.sample.context->header.monotonic_published_at_ns, 7U);
  EXPECT_EQ(r.sample.context->mapping, mapping());
  EXPECT_TRUE(r.slept.empty());
  EXPECT_TRUE(r.sample.notes.empty());
}

TEST(ProcessContext, TakesAnyTimestampThatIsNotZero) {
  for (const std::uint64_t t : {std::uint64_t{1}, std::uint64_t{1} << 63U, UINT64_MAX}) {
    SnapshotMemory m;
    publish(m, payload_of("shop"), t);
    EXPECT_TRUE(sample(m).context) << t;
  }
}

TEST(ProcessContext, SkipsForeignHeadersAndGoesOn) {
  const std::vector<std::pair<const char*, abi::ProcessHeader>> foreign = [] {
    auto cases =
        std::vector<std::pair<const char*, abi::ProcessHeader>>{{"zeros", {}},
                                                                {"OTEL_CTY", header_of(0, 1)},
                                                                {"OTEL_CT", header_of(0, 1)},
                                                                {"otel_ctx", header_of(0, 1)}};
    std::memcpy(cases[1].second.signature.data(), "OTEL_CTY", 8);
    std::memcpy(cases[2].second.signature.data(), "OTEL_CT\0", 8);
    std::memcpy(cases[3].second.signature.data(), "otel_ctx", 8);
    for (const std::uint32_t v : {0U, 1U, 3U, 0x00010002U, 0x02000000U}) {
      cases.emplace_back("version", header_of(0, 1));
      cases.back().second.version = v;
    }
    return cases;
  }();
  for (const auto& [what, header] : foreign) {
    for (const bool first : {true, false}) {
      SCOPED_TRACE(what);
      SnapshotMemory m;
      put_header(m, first ? 0x1000 : 0x90000, header);
      publish(m, payload_of("shop"), 7);
      const auto found = sample(m, first ? std::vector{mapping(0x1000), mapping()}
                                         : std::vector{mapping(), mapping(0x90000)});
      ASSERT_TRUE(found.context);
      EXPECT_EQ(service_of(*found.context), "shop");
      EXPECT_EQ(found.notes.size(), first ? 1U : 0U);
      const auto alone = sample(m, {mapping(first ? 0x1000 : 0x90000)});
      EXPECT_FALSE(alone.context || alone.busy);
    }
  }
}

TEST(ProcessContext, OfTwoTakesTheFirstAndMixesNothing) {
  SnapshotMemory m;
  publish(m, payload_of("one"), 7);
  publish(m, payload_of("two"), 8, 0x30000, 0x40000);
  const auto found = sample(m, {mapping(), mapping(0x30000)});
  ASSERT_TRUE(found.context);
  EXPECT_EQ(service_of(*found.context), "one");
  EXPECT_EQ(found.context->message.resource().attributes_size(), 1);
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_EQ(found.notes[0],
            "the mapping at 0x30000 (/memfd:OTEL_CTX (deleted)) is a second context, not used");
}

TEST(ProcessContext, GoesOnBehindAPayloadThatDoesNotDecode) {
  SnapshotMemory m;
  publish(m, std::string("\xff\xff\xff", 3), 7);
  publish(m, payload_of("two"), 8, 0x30000, 0x40000);
  const auto found = sample(m, {mapping(), mapping(0x30000)});
  ASSERT_TRUE(found.context);
  EXPECT_EQ(service_of(*found.context), "two");
}

TEST(ProcessContext, WaitsWhileTheTimestampIsZero) {
  SnapshotMemory m;
  publish(m, payload_of("shop"), 0);
  const auto r = read_context(m, [&](int n) {
    if (n == 5) publish(m, payload_of("shop"), 7);
  });
  ASSERT_TRUE(r.sample.context);
  EXPECT_EQ(r.slept, (std::vector{1, 2, 4, 8, 16}));
}

TEST(ProcessContext, GivesUpOnATimestampThatStaysZero) {
  SnapshotMemory m;
  publish(m, payload_of("shop"), 0);
  const auto r = read_context(m);
  EXPECT_FALSE(r.sample.context);
  EXPECT_TRUE(r.sample.busy);
  EXPECT_EQ(r.slept, (std::vector{1, 2, 4, 8, 16, 32, 64}));
}

TEST(ProcessContext, ADelayHasALimit) {
  EXPECT_EQ(delay_after(7, {}), std::chrono::milliseconds(64));
  EXPECT_EQ(delay_after(8, {}), std::chrono::milliseconds(100));
  EXPECT_EQ(delay_after(1000, {}), std::chrono::milliseconds(100));
}

TEST(ProcessContext, GivesUpOnATimestampThatNeverStandsStill) {
  SnapshotMemory m;
  std::uint64_t timestamp = 1;
  const InterruptedMemory restless(m, [&](int, RemoteAddr) -> Result<> {
    publish(m, payload_of("shop"), ++timestamp);
    return {};
  });
  const auto r = read_context(restless);
  EXPECT_FALSE(r.sample.context);
  EXPECT_TRUE(r.sample.busy);
  EXPECT_EQ(r.slept.size(), 7U);
}

TEST(ProcessContext, ReadsNothingButTheHeaderWhileTheTimestampIsZero) {
  SnapshotMemory m;
  publish(m, payload_of("shop"), 0);
  std::vector<std::uint64_t> reads;
  const InterruptedMemory watched(m, [&](int, RemoteAddr at) -> Result<> {
    reads.push_back(at.raw());
    return {};
  });
  sample(watched);
  EXPECT_EQ(reads, std::vector{kHeaderAt});
}

TEST(ProcessContext, StopsWaitingWhenTold) {
  SnapshotMemory m;
  publish(m, payload_of("shop"), 0);
  int slept = 0;
  const auto r = read_process_context(
      m, [] { return Result<std::vector<MapEntry>>({mapping()}); }, nullptr, {},
      [&](std::chrono::milliseconds) { return ++slept < 3; });
  EXPECT_TRUE(r->busy);
  EXPECT_EQ(slept, 3);
}

TEST(ProcessContext, DoesNotWaitForOneWhereAnotherIsReady) {
  SnapshotMemory m;
  publish(m, payload_of("one"), 0);
  publish(m, payload_of("two"), 8, 0x30000, 0x40000);
  const auto found = sample(m, {mapping(), mapping(0x30000)});
  ASSERT_TRUE(found.context);
  EXPECT_EQ(service_of(*found.context), "two");
  EXPECT_FALSE(found.busy);
}

// The third read is the second one of the header.
TEST(ProcessContext, AnyOtherTimestampAtTheSecondLookDiscardsTheCopy) {
  for (const std::uint64_t later :
       {std::uint64_t{8}, std::uint64_t{6}, std::uint64_t{0}, UINT64_MAX}) {
    SnapshotMemory m;
    publish(m, payload_of("old"), 7);
    const InterruptedMemory racing(m, [&](int nth, RemoteAddr) -> Result<> {
      if (nth == 3) put_header(m, kHeaderAt, header_of(payload_of("old").size(), later));
      return {};
    });
    const auto found = sample(racing);
    EXPECT_FALSE(found.context) << later;
    EXPECT_TRUE(found.busy) << later;
  }
}

TEST(ProcessContext, GarbageDuringAnUpdateIsNeverBelieved) {
  SnapshotMemory m;
  publish(m, payload_of("old"), 7);
  const InterruptedMemory racing(m, [&](int nth, RemoteAddr) -> Result<> {
    if (nth == 2) put(m, kPayloadAt, "\xff\xff\xff\xff");
    if (nth == 3) publish(m, payload_of("new"), 8);
    return {};
  });
  const auto r = read_context(racing);
  ASSERT_TRUE(r.sample.context);
  EXPECT_EQ(service_of(*r.sample.context), "new");
  EXPECT_EQ(r.slept.size(), 1U);
}

TEST(ProcessContext, FollowsAPointerThatMovedDuringTheCopy) {
  SnapshotMemory m;
  publish(m, payload_of("old"), 7);
  const InterruptedMemory racing(m, [&](int nth, RemoteAddr) -> Result<> {
    if (nth == 2) publish(m, payload_of("new"), 8, kHeaderAt, 0x50000);
    return {};
  });
  const auto r = read_context(racing);
  ASSERT_TRUE(r.sample.context);
  EXPECT_EQ(service_of(*r.sample.context), "new");
}

// The kernel may copy the 32 bytes in any order: the old pointer with the new timestamp.
TEST(ProcessContext, ATornHeaderIsNotBelieved) {
  SnapshotMemory m;
  put(m, kPayloadAt, payload_of("old"));
  put_header(m, kHeaderAt, header_of(payload_of("old").size(), 8));
  const InterruptedMemory racing(m, [&](int nth, RemoteAddr) -> Result<> {
    if (nth == 2) publish(m, payload_of("new"), 8, kHeaderAt, 0x50000);
    return {};
  });
  const auto r = read_context(racing);
  ASSERT_TRUE(r.sample.context);
  EXPECT_EQ(service_of(*r.sample.context), "new");
}

TEST(ProcessContext, AFaultDuringAnUpdateIsARace) {
  SnapshotMemory m;
  put_header(m, kHeaderAt, header_of(5, 7, 0xdead0000));
  const InterruptedMemory racing(m, [&](int nth, RemoteAddr) -> Result<> {
    if (nth == 3) publish(m, payload_of("new"), 8);
    return {};
  });
  const auto r = read_context(racing);
  ASSERT_TRUE(r.sample.context);
  EXPECT_EQ(service_of(*r.sample.context), "new");
}

TEST(ProcessContext, AFaultWithoutAnUpdateIsNotWaitedFor) {
  const std::vector<std::pair<std::uint32_t, std::uint64_t>> cases = {
      {5, 0},          {5, 1},          {5, 0xffff800000000000},
      {5, UINT64_MAX}, {5, 0xdead0000}, {0x800, kPayloadAt}};
  for (const auto& [size, at] : cases) {
    SnapshotMemory m;
    put(m, kPayloadAt, "12345678");
    put_header(m, kHeaderAt, header_of(size, 7, at));
    const auto r = read_context(m);
    EXPECT_FALSE(r.sample.context || r.sample.busy) << std::hex << at;
    EXPECT_TRUE(r.slept.empty());
    ASSERT_EQ(r.sample.notes.size(), 1U);
    EXPECT_NE(r.sample.notes[0].find("cannot be read"), std::string::npos) << r.sample.notes[0];
  }
}

TEST(ProcessContext, AHugePayloadIsNotCopied) {
  for (const std::uint32_t size : {kPayloadLimit + 1, 1'200'000'000U, 0xffffffffU}) {
    SnapshotMemory m;
    put_header(m, kHeaderAt, header_of(size, 7));
    std::size_t reads = 0;
    const InterruptedMemory watched(m, [&](int, RemoteAddr at) -> Result<> {
      ++reads;
      EXPECT_EQ(at.raw(), kHeaderAt);
      return {};
    });
    const auto found = sample(watched);
    EXPECT_FALSE(found.context || found.busy) << size;
    EXPECT_EQ(reads, 2U);
  }
}

TEST(ProcessContext, AHugeSizeThatIsOnlyTornIsReadAgain) {
  SnapshotMemory m;
  put_header(m, kHeaderAt, header_of(0xffffffff, 7));
  const InterruptedMemory racing(m, [&](int nth, RemoteAddr) -> Result<> {
    if (nth == 2) publish(m, payload_of("new"), 8);
    return {};
  });
  EXPECT_TRUE(read_context(racing).sample.context);
}

TEST(ProcessContext, AnEmptyPayloadIsAnEmptyContext) {
  SnapshotMemory m;
  put_header(m, kHeaderAt, header_of(0, 7, 0));
  const auto found = sample(m);
  ASSERT_TRUE(found.context);
  EXPECT_FALSE(found.context->message.has_resource());
  EXPECT_FALSE(found.context->has_schema);
}

TEST(ProcessContext, AMappingThatCannotBeReadIsPassedOver) {
  SnapshotMemory m;
  put(m, kHeaderAt, "OTEL_CTX");
  const auto found = sample(m);
  EXPECT_FALSE(found.context || found.busy);
}

TEST(ProcessContext, AnErrorOfTheProcessIsAnError) {
  SnapshotMemory m;
  publish(m, payload_of("shop"), 7);
  for (int gone = 1; gone <= 3; ++gone) {
    const InterruptedMemory dying(m, [&](int nth, RemoteAddr) -> Result<> {
      if (nth == gone) return sys::fail("process_vm_readv", ESRCH, "pid 1");
      return {};
    });
    const std::vector candidates = {mapping()};
    const auto r = sample_once(dying, candidates, nullptr);
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().err, ESRCH);
  }
}

TEST(ProcessContext, AnEqualHeaderIsNotCopiedAgain) {
  SnapshotMemory m;
  publish(m, payload_of("one"), 7);
  const auto known = sample(m).context;
  std::size_t reads = 0;
  const InterruptedMemory counted(m, [&](int, RemoteAddr) -> Result<> {
    ++reads;
    return {};
  });
  EXPECT_EQ(sample(counted, {mapping()}, known).context, known);
  EXPECT_EQ(reads, 1U);
  publish(m, payload_of("two"), 8);
  EXPECT_EQ(service_of(*sample(m, {mapping()}, known).context), "two");
  publish(m, payload_of("three"), 7, 0x30000);
  EXPECT_EQ(service_of(*sample(m, {mapping(0x30000)}, known).context), "three");
  put_header(m, kHeaderAt, abi::ProcessHeader{});
  EXPECT_FALSE(sample(m, {mapping()}, known).context);
}

TEST(ProcessContext, ManyMappingsOfTheNameAreBounded) {
  SnapshotMemory m;
  std::vector<MapEntry> many(1000, mapping(0x1000));
  const auto found = sample(m, many);
  EXPECT_EQ(found.notes.size(), 65U);
}

std::shared_ptr<ProcessContext> decode(const std::string& bytes) {
  auto r = decode_payload(std::as_bytes(std::span(bytes)));
  return r ? *r : nullptr;
}

KeyValue* add_attribute(ProcessContextMessage& message, std::string_view key) {
  auto* a = message.add_attributes();
  a->set_key(std::string(key));
  return a;
}

TEST(Payload, SkipsUnknownFieldsAndMergesASplitResource) {
  const std::string unknown(
      "\x78\x01\x79"
      "12345678"
      "\x7a\x02hi\x7d"
      "1234",
      20);
  const auto context = decode(unknown + payload_of("a") + unknown + payload_of("b"));
  ASSERT_TRUE(context);
  EXPECT_EQ(context->message.resource().attributes_size(), 2);
  EXPECT_EQ(service_of(*context), "b");
}

TEST(Payload, RefusesGarbage) {
  const std::string good = payload_of("shop");
  for (std::size_t n = 1; n < good.size(); ++n) {
    const auto cut = decode(good.substr(0, n));
    EXPECT_FALSE(cut) << n;
  }
  EXPECT_FALSE(decode(payload_of("\xff\xfe")));
  std::string deep;
  for (int i = 0; i < 1000; ++i) {  // nested groups
    deep += '\x0b';
  }
  EXPECT_FALSE(decode(deep));
}

TEST(Payload, FindsTheReferenceDataOfThreads) {
  ProcessContextMessage message;
  add_attribute(message, abi::kSchemaVersionKey)->mutable_value()->set_string_value("tls_v1");
  auto* keys =
      add_attribute(message, abi::kAttributeKeyMapKey)->mutable_value()->mutable_array_value();
  keys->add_values()->set_string_value("zero");
  keys->add_values()->set_int_value(1);
  keys->add_values();
  keys->add_values()->set_string_value("three");
  const auto context = decode(message.SerializeAsString());
  ASSERT_TRUE(context);
  EXPECT_TRUE(context->has_schema);
  EXPECT_EQ(context->schema, "tls_v1");
  EXPECT_EQ(context->keys, (KeyMap{"zero", "", "", "three"}));
}

TEST(Payload, ASchemaThatIsNoStringIsNone) {
  ProcessContextMessage message;
  add_attribute(message, abi::kSchemaVersionKey)->mutable_value()->set_int_value(1);
  add_attribute(message, abi::kAttributeKeyMapKey)->mutable_value()->set_string_value("x");
  const auto context = decode(message.SerializeAsString());
  EXPECT_TRUE(context->has_schema);
  EXPECT_EQ(context->schema, "");
  EXPECT_TRUE(context->keys.empty());
}

TEST(Payload, AnOverlongKeyMapIsCut) {
  ProcessContextMessage message;
  auto* keys =
      add_attribute(message, abi::kAttributeKeyMapKey)->mutable_value()->mutable_array_value();
  for (int i = 0; i < 300; ++i) keys->add_values()->set_string_value(std::to_string(i));
  const auto context = decode(message.SerializeAsString());
  ASSERT_EQ(context->keys.size(), 256U);
  EXPECT_EQ(context->keys[255], "255");
}

TEST(Payload, AResourceDoesNotCarryReferenceData) {
  ProcessContextMessage message;
  auto* a = message.mutable_resource()->add_attributes();
  a->set_key(std::string(abi::kSchemaVersionKey));
  a->mutable_value()->set_string_value("tls_v1");
  EXPECT_FALSE(decode(message.SerializeAsString())->has_schema);
}

TEST(Candidates, AreNamesThatBeginLikeAContext) {
  for (const char* name :
       {"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]", "/memfd:OTEL_CTX (deleted)"}) {
    EXPECT_TRUE(abi::is_candidate_name(name));
  }
  for (const char* name : {"/tmp/x/memfd:OTEL_CTX", "/tmp/[anon:OTEL_CTX]", "[heap]", ""}) {
    EXPECT_FALSE(abi::is_candidate_name(name));
  }
}

}  // namespace
}  // namespace ctxconf::reader
