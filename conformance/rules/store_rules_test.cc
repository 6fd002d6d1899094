// The rules about stores against literal recordings: what keeps them, what breaks them, what
// cannot be told, and recordings that make no sense.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "conformance/rules/header_operations.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/stored_bytes.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kTime = 0x1122334455667788;
constexpr std::uint64_t kLater = kTime + 0x10101;

using Bytes = std::vector<std::byte>;

// An empty Resource, and field 15 with one character.
Bytes message(char c) { return bytes_of(std::string("\x0a\x00\x7a\x01", 4) + c); }

std::uint64_t hash_of(const Bytes& bytes) {
  std::uint64_t h = 14695981039346656037U;
  for (const std::byte b : bytes) h = (h ^ std::to_integer<std::uint64_t>(b)) * 1099511628211U;
  return h;
}

// A program with one header whose stores are recorded one by one.
struct StoreRecording : LiteralRecording {
  std::uint64_t at = kMapping;
  std::int32_t tid = 12;
  std::string in_call;  // in which the kernel stores; empty: the thread does
  Bytes head = Bytes(32);
  std::map<std::uint64_t, Bytes> memory;
  std::map<std::uint64_t, Bytes> at_zero;  // memory when the timestamp was zeroed
  std::optional<std::size_t> zeroing;      // of the image's stores
  bool know_prepared = true;
  std::optional<std::uint32_t> threads = 1;  // at each store that zeroes

  StoreRecording() {
    t.watches_lifetime = true;
    image().locations = {
        {0x401000, "/usr/lib/libapp.so", 0x1000, "publish_update", 12, "src/ctx.cc", 118},
        {0x402000, "/usr/lib/libapp.so", 0x2000, "publish", 28, "", 0},
        {0x403000, "/usr/lib/libapp.so", 0x3000, "", 0, "", 0}};
  }

  StoreRecording& watched(WatchBegin begin = WatchBegin::kMemfd) {
    Watch w;
    w.header = at;
    w.armed_order = ++order;
    w.armed_ns = now;
    w.begin = begin;
    w.found = head;
    image().watches.push_back(std::move(w));
    return *this;
  }
  std::optional<MemoryBlock> block(const std::map<std::uint64_t, Bytes>& in, std::uint64_t address,
                                   std::uint32_t size) const {
    const auto it = in.find(address);
    if (it == in.end() || size == 0) return std::nullopt;
    MemoryBlock b;
    b.at = sys::RemoteAddr(address);
    b.wanted = size;
    b.bytes = it->second;
    b.bytes.resize(std::min<std::size_t>(size, b.bytes.size()));
    b.readable = b.bytes.size();
    b.hash = hash_of(b.bytes);
    return b;
  }
  abi::ProcessHeader header() const { return *abi::decode_process_header(head); }

  StoreRecording& put(std::size_t offset, const void* bytes, std::size_t size) {
    Store s;
    s.tid = tid;
    s.order = ++order;
    s.at_ns = now += 1'000'000;
    s.header = at;
    s.before = head;
    const std::uint64_t was = header().monotonic_published_at_ns;
    std::memcpy(head.data() + offset, bytes, size);
    s.after = head;
    for (std::size_t i = offset / 8; i <= (offset + size - 1) / 8; ++i) {
      s.words = static_cast<std::uint8_t>(s.words | (1U << i));
    }
    s.location = 0;
    s.call = in_call;
    const auto h = header();
    s.payload = block(memory, h.payload, h.payload_size);
    image().stores.push_back(std::move(s));
    const std::uint64_t is = h.monotonic_published_at_ns;
    if (was != 0 && is == 0) {
      zeroing = image().stores.size() - 1;
      image().stores.back().threads = threads;
      at_zero = memory;
    }
    if (was == 0 && is != 0 && zeroing && know_prepared) {
      image().stores[*zeroing].prepared = block(at_zero, h.payload, h.payload_size);
    }
    return *this;
  }
  template <class T>
  StoreRecording& store(std::size_t offset, T value) {
    return put(offset, &value, sizeof value);
  }
  StoreRecording& signature(std::string_view text = "OTEL_CTX") { return put(0, text.data(), 8); }
  StoreRecording& version() { return store<std::uint32_t>(8, 2); }
  StoreRecording& size(std::uint32_t bytes = 5) { return store<std::uint32_t>(12, bytes); }
  StoreRecording& timestamp(std::uint64_t value) { return store<std::uint64_t>(16, value); }
  StoreRecording& pointer(std::uint64_t value = kLowHeap) {
    return store<std::uint64_t>(24, value);
  }
  // All of a header in one store of `bytes` bytes from `offset` on.
  StoreRecording& vector(const abi::ProcessHeader& h, std::size_t offset = 0,
                         std::size_t bytes = 32) {
    return put(offset, reinterpret_cast<const char*>(&h) + offset, bytes);
  }

  StoreRecording& named() {
    seen(Moment::kNaming);
    call("prctl", {kNaming, 0, at, kPage, 0x2000}, -22).text = "OTEL_CTX";
    return *this;
  }
  StoreRecording& seen(Moment moment = Moment::kPeriodic) {
    Snapshot s;
    s.moment = moment;
    s.moments = {moment};
    s.first_seen_ns = s.last_seen_ns = now += 1'000'000;
    Candidate c;
    sys::MapEntry e;
    e.range = *sys::RemoteRange::from_size(sys::RemoteAddr(at), kPage);
    e.readable = e.writable = true;
    e.inode = 7;
    e.name = "/memfd:OTEL_CTX (deleted)";
    c.entries = {e};
    MemoryBlock b;
    b.at = sys::RemoteAddr(at);
    b.wanted = b.readable = 32;
    b.bytes = head;
    c.memory = {b};
    if (auto payload = block(memory, header().payload, header().payload_size)) {
      c.memory.push_back(*std::move(payload));
    }
    s.candidates = {c};
    image().snapshots.push_back(std::move(s));
    return *this;
  }
  StoreRecording& keep(std::uint64_t address, Bytes bytes) {
    memory[address] = std::move(bytes);
    return *this;
  }
  StoreRecording& fields(std::uint64_t address = kLowHeap) {
    return signature().version().size().pointer(address);
  }
  // A legal publication with its message at kLowHeap.
  StoreRecording& published() {
    return watched().keep(kLowHeap, message('a')).fields().timestamp(kTime).named();
  }
  // A legal update to a message at `address`.
  StoreRecording& updated(std::uint64_t value = kLater, std::uint64_t address = kOtherLowHeap) {
    return keep(address, message('b'))
        .timestamp(0)
        .size()
        .pointer(address)
        .timestamp(value)
        .named();
  }

  Finding judge(std::string_view id) const {
    const auto all = evidence_of(t);
    const RequirementRule* rule = rule_of(id);
    EXPECT_NE(rule, nullptr) << id;
    EXPECT_EQ(all.size(), 1U);
    return rule == nullptr || all.empty() ? Finding{} : rule->rule(all.front());
  }
};

using Ids = std::vector<std::string>;

Ids with(const StoreRecording& r, Outcome outcome) {
  Ids out;
  for (const auto& rule : store_rules()) {
    const Finding f = r.judge(rule.id);
    EXPECT_EQ(f.level, "stores");
    if (f.outcome == Outcome::kUnobservable) {
      EXPECT_FALSE(f.remedy.empty()) << rule.id;
    }
    if (f.outcome == outcome) out.emplace_back(rule.id);
  }
  return out;
}
Ids broken(const StoreRecording& r) { return with(r, Outcome::kFail); }
Ids info(const StoreRecording& r) { return with(r, Outcome::kInfo); }
Ids silent(const StoreRecording& r) { return with(r, Outcome::kUnobservable); }

const Ids kOfUpdates = {"pctx.update.prepare-before-zero",   "pctx.update.zero-timestamp-first",
                        "pctx.update.fields-while-zero",     "pctx.update.timestamp-single-store",
                        "pctx.update.zero-single-store",     "pctx.update.signature-untouched",
                        "pctx.update.old-payload-until-zero"};

void expect_clean(const StoreRecording& r) {
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(info(r), Ids{});
  EXPECT_EQ(silent(r), Ids{});
}

abi::ProcessHeader whole(std::uint64_t timestamp, std::uint64_t pointer = kLowHeap) {
  return {abi::kSignature, abi::kVersion, 5, timestamp, pointer};
}

TEST(StoreRules, ALegalPublicationAndUpdateKeepAll) {
  StoreRecording r;
  r.published().updated().updated(kLater + 1, kLowHeap).seen();
  expect_clean(r);
  EXPECT_EQ(r.judge("pctx.update.zero-timestamp-first").saw, "2 updates judged");
  EXPECT_EQ(r.judge("pctx.publish.timestamp-last").saw, "1 publication judged");
  EXPECT_EQ(r.judge("pctx.publish.payload-before-timestamp").saw, "3 announcements judged");
}

TEST(StoreRules, WithoutUpdatesTheRequirementsAboutThemAreSilent) {
  StoreRecording r;
  r.published();
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(silent(r), kOfUpdates);
  r.t.watches_lifetime = false;
  EXPECT_NE(r.judge("pctx.update.fields-while-zero").remedy.find("--watch lifetime"),
            std::string::npos);
}

TEST(StoreRules, WhatWasNotRecordedIsNotJudged) {
  StoreRecording attached;
  attached.published().updated();
  attached.t.mode = Mode::kAttach;
  StoreRecording unseen;
  unseen.published().updated().image().stores_unseen = "no debug registers";
  StoreRecording unwatched;
  unwatched.published().updated().image().watches.clear();
  StoreRecording invalid;
  invalid.watched().keep(kLowHeap, message('a')).signature("OTEL-CTX").version().size().pointer();
  invalid.timestamp(kTime).named();
  for (const StoreRecording& r : {attached, unseen, unwatched, invalid}) {
    EXPECT_EQ(silent(r).size(), store_rules().size());
  }
  EXPECT_EQ(unseen.judge("pctx.publish.timestamp-last").saw, "no debug registers");
}

TEST(StoreRules, AnyOrderAndRepetitionBeforeTheTimestampIsLegal) {
  StoreRecording reversed;
  reversed.watched().keep(kLowHeap, message('a')).pointer().size().version().signature();
  reversed.timestamp(kTime).named();
  StoreRecording repeated;
  repeated.watched().keep(kLowHeap, message('a')).timestamp(0).pointer(1).size(9).fields().fields();
  repeated.timestamp(kTime).named();
  StoreRecording together;
  together.watched().keep(kLowHeap, message('a')).vector(whole(0)).timestamp(kTime).named();
  StoreRecording bytes;
  bytes.watched().keep(kLowHeap, message('a'));
  const auto h = whole(0);
  for (std::size_t i = 0; i < 32; ++i) bytes.vector(h, i, 1);
  bytes.timestamp(kTime).named();
  StoreRecording again;  // the same bytes after the timestamp
  again.published().fields().timestamp(kTime);
  for (const StoreRecording* r : {&reversed, &repeated, &together, &bytes, &again}) {
    EXPECT_EQ(broken(*r), Ids{});
    EXPECT_EQ(silent(*r), kOfUpdates);
  }
}

TEST(StoreRules, FieldsAfterTheFirstTimestamp) {
  StoreRecording pointer_last;
  pointer_last.watched().keep(kLowHeap, message('a')).signature().version().size().timestamp(kTime);
  pointer_last.pointer().named();
  EXPECT_EQ(broken(pointer_last), Ids{"pctx.publish.timestamp-last"});
  const Finding f = pointer_last.judge("pctx.publish.timestamp-last");
  EXPECT_EQ(f.at, "src/ctx.cc:118 in publish_update, thread 12");
  EXPECT_EQ(f.signature, "field stored after the timestamp");
  EXPECT_NE(f.saw.find("monotonic_published_at_ns=1234605616436508552  payload=0x55001000"),
            std::string::npos)
      << f.saw;
  EXPECT_EQ(f.evidence.size(), 5U);
  EXPECT_EQ(f.evidence.back(), "+24 payload 0x0 -> 0x55001000; " + f.at);
  pointer_last.timestamp(kTime);
  EXPECT_EQ(pointer_last.judge("pctx.publish.timestamp-last").evidence.size(), 5U);
  StoreRecording again;
  again.watched().keep(kLowHeap, message('a')).timestamp(0).signature().version().size();
  again.timestamp(kTime).pointer().named();
  EXPECT_EQ(again.judge("pctx.publish.timestamp-last").evidence.front(),
            "+16 the same bytes again; " + f.at);

  StoreRecording signature_last;
  signature_last.watched().keep(kLowHeap, message('a')).version().size().pointer().timestamp(kTime);
  signature_last.signature().named();
  EXPECT_EQ(broken(signature_last), Ids{"pctx.publish.timestamp-last"});

  StoreRecording in_one;
  in_one.watched().keep(kLowHeap, message('a')).vector(whole(kTime)).named();
  EXPECT_EQ(broken(in_one), Ids{"pctx.publish.timestamp-last"});

  StoreRecording in_two;
  in_two.watched().keep(kLowHeap, message('a')).vector(whole(kTime), 0, 16);
  in_two.vector(whole(kTime), 16, 16).named().updated();
  EXPECT_EQ(broken(in_two), Ids{"pctx.publish.timestamp-last"});

  // Byte by byte it comes in pieces as well.
  StoreRecording copied;
  copied.watched().keep(kLowHeap, message('a'));
  for (std::size_t i = 0; i < 32; ++i) copied.vector(whole(kTime), i, 1);
  copied.named();
  EXPECT_EQ(broken(copied),
            (Ids{"pctx.publish.timestamp-last", "pctx.publish.timestamp-single-store"}));
}

TEST(StoreRules, PlacesAreNamedAsWellAsTheyAreKnown) {
  const auto at = [](std::optional<std::uint32_t> location, std::int32_t tid) {
    StoreRecording r;
    r.watched()
        .keep(kLowHeap, message('a'))
        .signature()
        .version()
        .size()
        .timestamp(kTime)
        .pointer();
    r.named().image().stores.back().location = location;
    r.image().stores.back().tid = tid;
    return r.judge("pctx.publish.timestamp-last").at;
  };
  EXPECT_EQ(at(1, 12), "publish+0x1c in libapp.so, thread 12");
  EXPECT_EQ(at(2, 13), "libapp.so+0x3000, thread 13");
  EXPECT_EQ(at(3, 13), "thread 13");
  EXPECT_EQ(at(std::nullopt, 13), "thread 13");
  EXPECT_EQ(at(std::nullopt, 0), "");
}

Finding shows(std::uint64_t address, std::vector<std::uint8_t> bytes, Hexdump::Mark mark) {
  Finding f;
  Hexdump dump;
  dump.address = address;
  dump.bytes = std::move(bytes);
  dump.marks = {std::move(mark)};
  f.hexdumps = {std::move(dump)};
  return f;
}

TEST(StoredBytes, MarkedBytesOfAHeaderAreOfTheLastStoreThatLeftThem) {
  StoreRecording r;
  r.published();
  std::vector<std::uint8_t> header;
  for (const std::byte b : r.head) header.push_back(std::to_integer<std::uint8_t>(b));
  Image& image = r.image();
  for (std::size_t i = 0; i < image.stores.size(); ++i) {
    image.stores[i].location = (image.stores[i].words & 2U) != 0 ? 1 : 2;
  }
  Finding f = shows(r.at, header, {12, 4, "payload_size"});
  name_who_stored(image, f);
  EXPECT_EQ(f.at, "publish+0x1c in libapp.so, thread 12");
  ASSERT_EQ(f.code.size(), 1U);
  EXPECT_EQ(f.code[0].function, "publish");

  header[12] ^= 1U;  // nobody stored that
  Finding other = shows(r.at, header, {12, 4, "payload_size"});
  name_who_stored(image, other);
  EXPECT_EQ(other.at, "");
  EXPECT_TRUE(other.code.empty());
}

TEST(StoredBytes, MarkedBytesOfAPayloadAreOfTheStoreOfThePointerToIt) {
  StoreRecording r;
  r.published();
  const auto named = [&](std::uint64_t address) {
    Finding f = shows(address, {0x7a}, {0, 1, "field"});
    name_who_stored(r.image(), f);
    return f.at;
  };
  EXPECT_EQ(named(kLowHeap + 4),
            "pointer to it stored by src/ctx.cc:118 in publish_update, thread 12");
  EXPECT_EQ(named(kLowHeap + 5), "");
  EXPECT_EQ(named(kLowHeap - 1), "");
}

TEST(StoredBytes, MarkedBytesOfARecordAreOfAStoreToIt) {
  StoreRecording r;
  r.published();
  RecordStore s;
  s.tid = 13;
  s.record = 0x7004;  // word 0 begins at 0x7000
  s.words = 2;
  s.after = Bytes(28, std::byte{7});
  s.location = 0;
  r.image().record_stores = {s};
  const auto named = [&](std::uint64_t offset) {
    Finding f = shows(0x7004, std::vector<std::uint8_t>(28, 7), {offset, 1, "valid"});
    name_who_stored(r.image(), f);
    return f.at;
  };
  EXPECT_EQ(named(4), "src/ctx.cc:118 in publish_update, thread 13");
  EXPECT_EQ(named(11), "src/ctx.cc:118 in publish_update, thread 13");
  EXPECT_EQ(named(3), "");
  EXPECT_EQ(named(12), "");
}

TEST(StoreRules, AFirstTimestampInHalves) {
  StoreRecording r;
  r.watched().keep(kLowHeap, message('a')).fields();
  r.store<std::uint32_t>(16, static_cast<std::uint32_t>(kTime));
  r.store<std::uint32_t>(20, static_cast<std::uint32_t>(kTime >> 32U));
  r.named();
  EXPECT_EQ(broken(r), Ids{"pctx.publish.timestamp-single-store"});
  r.image().elf64 = false;
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(info(r), Ids{"pctx.publish.timestamp-single-store"});
}

TEST(StoreRules, AnUpdatesTimestampsInHalves) {
  StoreRecording closing;
  closing.published().keep(kOtherLowHeap, message('b')).timestamp(0).pointer(kOtherLowHeap);
  closing.store<std::uint32_t>(20, static_cast<std::uint32_t>(kLater >> 32U));
  closing.store<std::uint32_t>(16, static_cast<std::uint32_t>(kLater));
  closing.named();
  EXPECT_EQ(broken(closing), Ids{"pctx.update.timestamp-single-store"});
  closing.image().elf64 = false;
  EXPECT_EQ(broken(closing), Ids{});
  EXPECT_EQ(closing.judge("pctx.update.timestamp-single-store").outcome, Outcome::kWarn);

  StoreRecording opening;
  opening.published().keep(kOtherLowHeap, message('b'));
  opening.store<std::uint32_t>(16, 0).store<std::uint32_t>(20, 0);
  opening.pointer(kOtherLowHeap).timestamp(kLater).named();
  EXPECT_EQ(broken(opening), Ids{"pctx.update.zero-single-store"});
  EXPECT_NE(opening.judge("pctx.update.zero-single-store")
                .saw.find("0x1122334455667788 -> 0x1122334400000000 -> 0x0"),
            std::string::npos);
  opening.image().elf64 = false;
  EXPECT_EQ(info(opening), Ids{"pctx.update.zero-single-store"});

  // Single bytes are not halves.
  StoreRecording bytes;
  bytes.published().keep(kOtherLowHeap, message('b'));
  for (std::size_t i = 16; i < 24; ++i) bytes.store<std::uint8_t>(i, 0);
  bytes.pointer(kOtherLowHeap).timestamp(kLater).named().image().elf64 = false;
  EXPECT_EQ(broken(bytes), Ids{"pctx.update.zero-single-store"});
}

TEST(StoreRules, AnUpdateThatReplacesTheTimestamp) {
  StoreRecording r;
  r.published().keep(kOtherLowHeap, message('b')).size(4).pointer(kOtherLowHeap).timestamp(kLater);
  r.named();
  EXPECT_EQ(broken(r), (Ids{"pctx.update.zero-timestamp-first", "pctx.update.fields-while-zero"}));
  const Finding f = r.judge("pctx.update.zero-timestamp-first");
  EXPECT_EQ(f.saw,
            "an update changed other fields before the timestamp; stores: payload_size=4  "
            "payload=0x55002000  monotonic_published_at_ns=1234605616436574345");
  // Without a naming call the fields are the update's as well.
  StoreRecording unnamed;
  unnamed.watched()
      .keep(kLowHeap, message('a'))
      .fields()
      .timestamp(kTime)
      .size(4)
      .timestamp(kLater);
  unnamed.seen();
  EXPECT_EQ(broken(unnamed),
            (Ids{"pctx.update.zero-timestamp-first", "pctx.update.fields-while-zero"}));
  StoreRecording alone;
  alone.published().timestamp(kLater).named();
  EXPECT_EQ(broken(alone), Ids{"pctx.update.zero-timestamp-first"});
  EXPECT_EQ(alone.judge("pctx.update.zero-single-store").saw,
            "no update zeroed the timestamp: see pctx.update.zero-timestamp-first");
}

// A timestamp of nanoseconds ends in a zero byte once in 256 times.
TEST(StoreRules, ATimestampWithZeroBytesIsReplaced) {
  for (const std::uint64_t first : {kTime & ~0xffULL, kTime & ~0xffff'ffULL}) {
    StoreRecording r;
    r.watched().keep(kLowHeap, message('a')).fields().timestamp(first);
    r.timestamp(first + 5).named();
    EXPECT_EQ(broken(r), Ids{"pctx.update.zero-timestamp-first"});
  }
  StoreRecording bytes;
  bytes.watched().keep(kLowHeap, message('a')).fields();
  for (std::size_t i = 16; i < 24; ++i) {
    bytes.store(i, static_cast<std::uint8_t>(kTime >> (8 * (i - 16))));
  }
  bytes.named();
  EXPECT_EQ(broken(bytes), Ids{"pctx.publish.timestamp-single-store"});
}

TEST(StoreRules, AnUpdateThatZeroesLate) {
  StoreRecording r;
  r.published()
      .keep(kOtherLowHeap, message('b'))
      .pointer(kOtherLowHeap)
      .timestamp(0)
      .timestamp(kLater);
  r.named();
  EXPECT_EQ(broken(r), (Ids{"pctx.update.zero-timestamp-first", "pctx.update.fields-while-zero"}));
  StoreRecording in_one;
  in_one.published().keep(kOtherLowHeap, message('b')).vector(whole(0, kOtherLowHeap));
  in_one.timestamp(kLater).named();
  EXPECT_EQ(broken(in_one),
            (Ids{"pctx.update.zero-timestamp-first", "pctx.update.fields-while-zero"}));
}

TEST(StoreRules, FieldsAfterTheClosingTimestamp) {
  StoreRecording r;
  r.published().keep(kOtherLowHeap, message('b')).timestamp(0).pointer(kOtherLowHeap).size(9);
  r.timestamp(kLater).size().named();
  EXPECT_EQ(broken(r), Ids{"pctx.update.fields-while-zero"});
  // It belongs to this update, not to the next one.
  r.updated(kLater + 1, kLowHeap);
  EXPECT_EQ(broken(r), Ids{"pctx.update.fields-while-zero"});
  StoreRecording with_it;
  with_it.published().keep(kOtherLowHeap, message('b')).timestamp(0);
  with_it.vector(whole(kLater, kOtherLowHeap), 16, 16).named();
  EXPECT_EQ(broken(with_it), Ids{"pctx.update.fields-while-zero"});
  StoreRecording at_rest;
  at_rest.published().size(4);
  EXPECT_EQ(broken(at_rest), Ids{"pctx.update.fields-while-zero"});
}

TEST(StoreRules, AnUpdateMayTouchNothingButTheTimestamp) {
  StoreRecording r;
  r.published().timestamp(0).keep(kLowHeap, message('b')).timestamp(kLater).named();
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(info(r), Ids{"pctx.update.prepare-before-zero"});
}

TEST(StoreRules, ASignatureThatIsBlankedDuringAnUpdate) {
  StoreRecording r;
  r.published().keep(kOtherLowHeap, message('b')).timestamp(0).store<std::uint64_t>(0, 0);
  r.pointer(kOtherLowHeap).signature().timestamp(kLater).named();
  EXPECT_EQ(broken(r), Ids{"pctx.update.signature-untouched"});
  StoreRecording same;
  same.published().keep(kOtherLowHeap, message('b')).timestamp(0).fields(kOtherLowHeap);
  same.timestamp(kLater).named();
  expect_clean(same);
}

TEST(StoreRules, AMessageThatIsCompletedTooLate) {
  // The bytes do not decode at first; the message comes before the naming call, or after it.
  StoreRecording empty;
  empty.watched().keep(kLowHeap, Bytes(5)).fields().timestamp(kTime).keep(kLowHeap, message('a'));
  empty.named();
  EXPECT_EQ(broken(empty), Ids{"pctx.publish.payload-before-timestamp"});
  EXPECT_EQ(empty.judge("pctx.publish.payload-before-timestamp").hexdumps.size(), 2U);
  StoreRecording late;
  late.watched().keep(kLowHeap, Bytes(5)).fields().timestamp(kTime).named();
  late.keep(kLowHeap, message('a')).seen();
  EXPECT_EQ(broken(late), Ids{"pctx.publish.payload-before-timestamp"});
  // Another message at the naming call.
  StoreRecording other;
  other.watched()
      .keep(kLowHeap, message('x'))
      .fields()
      .timestamp(kTime)
      .keep(kLowHeap, message('a'));
  other.named();
  EXPECT_EQ(broken(other), Ids{"pctx.publish.payload-before-timestamp"});
  StoreRecording update;
  update.published().keep(kOtherLowHeap, Bytes(5)).timestamp(0).pointer(kOtherLowHeap);
  update.timestamp(kLater).keep(kOtherLowHeap, message('b')).named();
  EXPECT_EQ(broken(update), Ids{"pctx.publish.payload-before-timestamp"});
}

TEST(StoreRules, WhatOtherRequirementsSayOfMessages) {
  StoreRecording patched;  // pctx.update.no-silent-change
  patched.published().keep(kLowHeap, message('z')).seen();
  EXPECT_EQ(broken(patched), Ids{});
  EXPECT_EQ(patched.judge("pctx.publish.payload-before-timestamp").outcome, Outcome::kPass);
  StoreRecording undecodable;  // the requirements about payloads
  undecodable.watched().keep(kLowHeap, Bytes(5)).fields().timestamp(kTime).named();
  EXPECT_EQ(undecodable.judge("pctx.publish.payload-before-timestamp").outcome, Outcome::kPass);
  StoreRecording unreadable;
  unreadable.watched().fields().timestamp(kTime).named();
  EXPECT_EQ(unreadable.judge("pctx.publish.payload-before-timestamp").outcome,
            Outcome::kUnobservable);
  StoreRecording unseen;  // no later snapshot
  unseen.watched().keep(kLowHeap, message('a')).fields().timestamp(kTime).seen(Moment::kExit);
  EXPECT_EQ(unseen.judge("pctx.publish.payload-before-timestamp").outcome, Outcome::kUnobservable);
  unseen.timestamp(0).timestamp(kLater);
  EXPECT_EQ(unseen.judge("pctx.publish.payload-before-timestamp").outcome, Outcome::kPass);
}

// A snapshot shows a store right after it, before its thread stops.
TEST(StoreRules, ASnapshotOfAStoreBeforeItsThreadStops) {
  StoreRecording r;
  r.watched().keep(kLowHeap, message('a')).fields().timestamp(kTime).seen();
  Snapshot& shot = r.image().snapshots.back();
  const std::uint64_t stored_ns = r.image().stores.back().at_ns;
  shot.first_seen_ns = stored_ns - 1;
  shot.last_seen_ns = stored_ns - 1;
  EXPECT_EQ(r.judge("pctx.publish.payload-before-timestamp").outcome, Outcome::kUnobservable);
  shot.last_seen_ns = stored_ns + 1;
  EXPECT_EQ(r.judge("pctx.publish.payload-before-timestamp").outcome, Outcome::kPass);
}

TEST(StoreRules, AMessageThatWasNotReady) {
  StoreRecording r;
  r.published().keep(kOtherLowHeap, Bytes(5)).timestamp(0).keep(kOtherLowHeap, message('b'));
  r.call("clock_gettime", {}, 0);
  r.pointer(kOtherLowHeap).timestamp(kLater).named();
  EXPECT_EQ(broken(r), Ids{"pctx.update.prepare-before-zero"});
  const auto evidence = r.judge("pctx.update.prepare-before-zero").evidence;
  EXPECT_TRUE(std::ranges::any_of(evidence, [](const std::string& line) {
    return line.find("zero for 3000000 ns under observation") != std::string::npos &&
           line.find("meanwhile: 1 (clock_gettime)") != std::string::npos;
  }));
  // Memory that was not there at all.
  StoreRecording mapped_later;
  mapped_later.published().timestamp(0).keep(kOtherLowHeap, message('b')).pointer(kOtherLowHeap);
  mapped_later.timestamp(kLater).named();
  EXPECT_EQ(mapped_later.judge("pctx.update.prepare-before-zero").outcome, Outcome::kUnobservable);
  MemoryBlock none;
  none.at = sys::RemoteAddr(kOtherLowHeap);
  none.wanted = 5;
  mapped_later.image().stores[*mapped_later.zeroing].prepared = none;
  EXPECT_EQ(broken(mapped_later), Ids{"pctx.update.prepare-before-zero"});
  StoreRecording unknown = r;
  for (Store& s : unknown.image().stores) s.prepared.reset();
  EXPECT_EQ(unknown.judge("pctx.update.prepare-before-zero").outcome, Outcome::kUnobservable);
}

TEST(StoreRules, AnInlineMessageIsCopiedInTheWindow) {
  StoreRecording r;
  r.watched().keep(kMapping + 32, message('a')).fields(kMapping + 32).timestamp(kTime).named();
  r.keep(kMapping + 64, Bytes(5))
      .timestamp(0)
      .keep(kMapping + 64, message('b'))
      .pointer(kMapping + 64);
  r.timestamp(kLater).named();
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(info(r), Ids{"pctx.update.prepare-before-zero"});
}

TEST(StoreRules, AnEncodedMessageIsCopiedToNewMemoryInTheWindow) {
  StoreRecording r;
  r.published().keep(kOtherLowHeap, Bytes(5)).timestamp(0).keep(kOtherLowHeap, message('b'));
  r.pointer(kOtherLowHeap).timestamp(kLater).named();
  MemoryBlock found = *r.block(r.memory, kOtherLowHeap, 5);
  found.at = sys::RemoteAddr(kOtherLowHeap + 0x300);
  r.image().stores[*r.zeroing].prepared = found;
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(info(r), Ids{"pctx.update.prepare-before-zero"});
  r.image().stores[*r.zeroing].prepared->hash ^= 1U;
  EXPECT_EQ(r.judge("pctx.update.prepare-before-zero").outcome, Outcome::kUnobservable);
}

TEST(StoreRules, AnOldMessageThatIsGoneTooEarly) {
  StoreRecording poisoned;
  poisoned.published().keep(kLowHeap, bytes_of("\xdd\xdd\xdd\xdd\xdd")).updated();
  EXPECT_EQ(broken(poisoned), Ids{"pctx.update.old-payload-until-zero"});
  StoreRecording unmapped;
  unmapped.published().memory.erase(kLowHeap);
  EXPECT_EQ(unmapped.call("munmap", {kLowHeap & ~(kPage - 1), kPage}, 0).result, 0);
  unmapped.updated();
  EXPECT_EQ(broken(unmapped), Ids{"pctx.update.old-payload-until-zero"});
  const auto says = [](const Finding& f, std::string_view what) {
    return std::ranges::any_of(
        f.evidence, [&](const std::string& line) { return line.find(what) != std::string::npos; });
  };
  EXPECT_TRUE(says(unmapped.judge("pctx.update.old-payload-until-zero"), "munmap(0x55001000"));
  std::erase_if(unmapped.image().calls, [](const SystemCall& c) { return c.name == "munmap"; });
  EXPECT_EQ(broken(unmapped), Ids{"pctx.update.old-payload-until-zero"});
  StoreRecording freed_in_the_window;
  freed_in_the_window.published().keep(kOtherLowHeap, message('b')).timestamp(0);
  freed_in_the_window.keep(kLowHeap, Bytes(5)).pointer(kOtherLowHeap).timestamp(kLater).named();
  expect_clean(freed_in_the_window);
}

TEST(StoreRules, AnotherThreadMayActOnTheZeroBeforeTheMessageIsCopied) {
  const auto outcome = [](const StoreRecording& r) {
    return r.judge("pctx.update.old-payload-until-zero").outcome;
  };
  for (const std::optional<std::uint32_t> threads :
       {std::optional(2U), std::optional<unsigned>()}) {
    StoreRecording poisoned;
    poisoned.threads = threads;
    poisoned.published().keep(kLowHeap, bytes_of("\xdd\xdd\xdd\xdd\xdd")).updated();
    EXPECT_EQ(broken(poisoned), Ids{});
    EXPECT_EQ(outcome(poisoned), Outcome::kUnobservable);
    StoreRecording kept;
    kept.threads = threads;
    kept.published().updated();
    EXPECT_EQ(outcome(kept), Outcome::kPass);
    StoreRecording unmapped;
    unmapped.threads = threads;
    unmapped.published().memory.erase(kLowHeap);
    EXPECT_EQ(unmapped.call("munmap", {kLowHeap & ~(kPage - 1), kPage}, 0).result, 0);
    unmapped.updated();
    EXPECT_EQ(outcome(unmapped), Outcome::kFail);
    StoreRecording seen;
    seen.threads = threads;
    seen.published().keep(kLowHeap, bytes_of("\xdd\xdd\xdd\xdd\xdd")).seen().updated();
    EXPECT_EQ(outcome(seen), Outcome::kFail);
  }
}

TEST(StoreRules, AnUnchangedTimestampOfAnotherThreadMayHideItsOwnZero) {
  StoreRecording r;
  r.published().keep(kOtherLowHeap, Bytes(5)).timestamp(0).keep(kOtherLowHeap, message('b'));
  StoreRecording alone = r;
  for (StoreRecording* one : {&r, &alone}) {
    one->tid = one == &r ? 13 : 12;
    one->timestamp(0).tid = 12;
    one->pointer(kOtherLowHeap).timestamp(kLater).named();
  }
  EXPECT_EQ(broken(alone), Ids{"pctx.update.prepare-before-zero"});
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(r.judge("pctx.update.prepare-before-zero").outcome, Outcome::kUnobservable);
}

TEST(StoreRules, WhatLiesAfterTheLimitWasNotCompared) {
  StoreRecording r;
  r.published().updated();
  for (Store& s : r.image().stores) {
    for (auto* block : {&s.payload, &s.prepared}) {
      if (*block) (*block)->readable = 4;
    }
  }
  for (Snapshot& s : r.image().snapshots) s.candidates.front().memory.back().readable = 4;
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(silent(r),
            (Ids{"pctx.publish.payload-before-timestamp", "pctx.update.prepare-before-zero",
                 "pctx.update.old-payload-until-zero"}));
}

TEST(StoreRules, ContextsWithoutANameAreJudgedWhereNoneHasOne) {
  StoreRecording r;
  r.published().updated();
  StoreRecording late = r;
  late.size(4);
  for (StoreRecording* one : {&r, &late}) {
    for (Snapshot& s : one->image().snapshots) s.candidates.front().named = false;
  }
  expect_clean(r);
  EXPECT_EQ(broken(late), Ids{"pctx.update.fields-while-zero"});
}

TEST(StoreRules, AWithdrawalIsNotAnUpdate) {
  StoreRecording zeroed;
  zeroed.published().timestamp(0).keep(kLowHeap, Bytes(5)).seen();
  EXPECT_EQ(broken(zeroed), Ids{});
  EXPECT_EQ(silent(zeroed), kOfUpdates);
  // The header is blanked and published there again, which is not an update either.
  StoreRecording blanked;
  blanked.published().vector({});
  blanked.keep(kOtherLowHeap, Bytes(5)).keep(kOtherLowHeap, message('b')).fields(kOtherLowHeap);
  blanked.timestamp(kLater).named();
  EXPECT_EQ(broken(blanked), Ids{});
  EXPECT_EQ(silent(blanked), kOfUpdates);
  StoreRecording in_pieces;
  in_pieces.published().timestamp(0).vector({}, 0, 16).vector({}, 16, 16);
  in_pieces.fields(kLowHeap).timestamp(kLater).named();
  EXPECT_EQ(broken(in_pieces), Ids{});
  EXPECT_EQ(silent(in_pieces), kOfUpdates);
  // Its signature or its pointer goes first, or alone.
  for (const bool named : {true, false}) {
    for (const bool zero : {true, false}) {
      StoreRecording signature;
      signature.watched().keep(kLowHeap, message('a')).fields().timestamp(kTime);
      StoreRecording pointer = signature;
      for (StoreRecording* r : {&signature, &pointer}) {
        named ? r->named() : r->seen();
        r == &pointer ? r->pointer(0) : r->signature("        ");
        if (zero) r->timestamp(0);
        EXPECT_EQ(broken(*r), Ids{});
        EXPECT_EQ(silent(*r), kOfUpdates);
      }
    }
  }
  // Cut by the end of the program.
  StoreRecording cut;
  cut.published().timestamp(0).pointer(kOtherLowHeap).size(9);
  EXPECT_EQ(broken(cut), Ids{});
}

TEST(StoreRules, AZeroMayWithdrawAndAnotherContextFollowInTheSameMapping) {
  const auto again = [](auto&& meanwhile) {
    StoreRecording r;
    r.published().keep(kOtherLowHeap, message('a')).timestamp(0);
    meanwhile(r);
    r.keep(kOtherLowHeap, message('b')).size().pointer(kOtherLowHeap).timestamp(kLater).named();
    return r;
  };
  const auto nothing = again([](StoreRecording&) {});
  EXPECT_EQ(broken(nothing), Ids{"pctx.update.prepare-before-zero"});
  const auto signed_again = again([](StoreRecording& r) { r.signature(); });
  EXPECT_EQ(broken(signed_again), Ids{});
  EXPECT_EQ(signed_again.judge("pctx.update.prepare-before-zero").outcome, Outcome::kUnobservable);
  const auto slow = again([](StoreRecording& r) { r.now += 5'000'000'000; });
  EXPECT_EQ(broken(slow), Ids{"pctx.update.prepare-before-zero"});
  const auto at_rest = again([](StoreRecording& r) { r.image().stores.back().rested = true; });
  EXPECT_EQ(broken(at_rest), Ids{});
  EXPECT_EQ(at_rest.judge("pctx.update.prepare-before-zero").outcome, Outcome::kUnobservable);
  const auto cleared = again([](StoreRecording& r) {
    r.image().stores.back().rested = true;
    r.signature(std::string_view("\0\0\0\0\0\0\0\0", 8));
    r.signature();
  });
  EXPECT_EQ(broken(cleared), Ids{});
  EXPECT_EQ(cleared.judge("pctx.update.signature-untouched").outcome, Outcome::kUnobservable);
  const auto unnamed =
      again([](StoreRecording& r) { r.call("prctl", {kNaming, 0, kMapping, kPage, 0}, -22); });
  EXPECT_EQ(broken(unnamed), Ids{});
  EXPECT_EQ(silent(unnamed), kOfUpdates);
  EXPECT_EQ(unnamed.judge("pctx.publish.timestamp-last").evidence, Ids{});
  // A call that was not kept may have removed the name; it came after the calls that were kept.
  auto not_kept = again([](StoreRecording&) {});
  not_kept.image().calls_dropped = 1;
  EXPECT_EQ(broken(not_kept), Ids{"pctx.update.prepare-before-zero"});
  not_kept.image().calls.pop_back();
  EXPECT_EQ(broken(not_kept), Ids{});
}

TEST(StoreRules, FieldsThatChangeBeforeAZeroThatStays) {
  StoreRecording r;
  r.published().size(4).pointer(kOtherLowHeap).timestamp(0);
  EXPECT_EQ(broken(r), Ids{"pctx.update.fields-while-zero"});
  StoreRecording withdrawn;
  withdrawn.published().size(4).size(0).timestamp(0);
  EXPECT_EQ(broken(withdrawn), Ids{});
  StoreRecording blanked_at_once;
  blanked_at_once.published().size(4).pointer(kOtherLowHeap).vector({});
  EXPECT_EQ(broken(blanked_at_once), Ids{"pctx.update.fields-while-zero"});
  StoreRecording blanked;
  blanked.published().size(4).pointer(kOtherLowHeap).timestamp(0).vector({});
  EXPECT_EQ(broken(blanked), Ids{"pctx.update.fields-while-zero"});
}

TEST(StoreRules, WhatAReaderHasSeenIsPublishedWithoutANamingCall) {
  StoreRecording r;
  r.watched().keep(kLowHeap, message('a')).fields().timestamp(kTime).seen();
  r.size(4).timestamp(0).size(5).pointer(kOtherLowHeap).timestamp(kLater);
  EXPECT_EQ(broken(r), (Ids{"pctx.update.zero-timestamp-first", "pctx.update.fields-while-zero"}));
}

TEST(StoreRules, ChangesByNobodyAreNotBlamedOnAThread) {
  StoreRecording kernel;
  kernel.tid = 0;
  kernel.watched().keep(kLowHeap, message('a')).vector(whole(kTime)).named();
  EXPECT_EQ(broken(kernel), Ids{});
  EXPECT_EQ(kernel.judge("pctx.publish.timestamp-last").outcome, Outcome::kUnobservable);
  kernel.vector(whole(kLater, kOtherLowHeap)).named();
  EXPECT_EQ(broken(kernel), Ids{});
  EXPECT_EQ(kernel.judge("pctx.update.zero-timestamp-first").outcome, Outcome::kUnobservable);
  EXPECT_EQ(kernel.judge("pctx.update.signature-untouched").outcome, Outcome::kUnobservable);

  StoreRecording fields_only;
  fields_only.tid = 0;
  fields_only.watched().keep(kLowHeap, message('a')).vector(whole(0));
  fields_only.tid = 12;
  fields_only.timestamp(kTime).named();
  EXPECT_EQ(broken(fields_only), Ids{});
  EXPECT_EQ(silent(fields_only), kOfUpdates);

  StoreRecording too_late;
  too_late.watched().keep(kLowHeap, message('a')).signature().version().size().timestamp(kTime);
  too_late.tid = 0;
  too_late.pointer().named();
  EXPECT_EQ(broken(too_late), Ids{"pctx.publish.timestamp-last"});
  const Finding f = too_late.judge("pctx.publish.timestamp-last");
  EXPECT_EQ(f.at, "");
  EXPECT_NE(f.evidence.back().find("no thread that was watched"), std::string::npos);
}

TEST(StoreRules, WhatTheKernelStoresInOneCallIsOneStoreOfUnknownPieces) {
  constexpr auto kFirst = "pctx.publish.timestamp-single-store";
  StoreRecording last;
  last.watched().keep(kLowHeap, message('a'));
  last.in_call = "read";
  last.fields().timestamp(kTime).named();
  EXPECT_EQ(broken(last), Ids{});
  EXPECT_EQ(last.judge("pctx.publish.timestamp-last").outcome, Outcome::kPass);
  EXPECT_EQ(last.judge(kFirst).outcome, Outcome::kUnobservable);
  EXPECT_EQ(last.judge(kFirst).saw,
            "a system call stored the timestamp: it is not known in how many pieces the kernel did "
            "so");

  StoreRecording whole_header;
  whole_header.watched().keep(kLowHeap, message('a'));
  whole_header.in_call = "read";
  whole_header.vector(whole(kTime)).named();
  EXPECT_EQ(broken(whole_header), Ids{"pctx.publish.timestamp-last"});
  const Finding f = whole_header.judge("pctx.publish.timestamp-last");
  EXPECT_EQ(f.at, "system call read, src/ctx.cc:118 in publish_update, thread 12");

  StoreRecording two_calls;
  two_calls.watched().keep(kLowHeap, message('a')).fields();
  two_calls.in_call = "recvfrom";
  two_calls.store<std::uint32_t>(16, static_cast<std::uint32_t>(kTime));
  two_calls.store<std::uint32_t>(20, static_cast<std::uint32_t>(kTime >> 32U)).named();
  EXPECT_EQ(broken(two_calls), Ids{kFirst});
}

TEST(StoreRules, TheOrderInWhichOneCallStoresIsUnknown) {
  constexpr std::size_t kSizeAt = 12;
  constexpr std::size_t kSizeAndTimestamp = 12;
  const auto is_unknown = [](const StoreRecording& r, const char* id) {
    const Finding f = r.judge(id);
    EXPECT_EQ(f.outcome, Outcome::kUnobservable) << id;
    EXPECT_NE(f.saw.find("the order is unknown"), std::string::npos) << f.saw;
  };
  StoreRecording published;
  published.watched().keep(kLowHeap, message('a')).signature().version().pointer();
  published.in_call = "read";
  published.vector(whole(kTime), kSizeAt, kSizeAndTimestamp).named();
  EXPECT_EQ(broken(published), Ids{});
  is_unknown(published, "pctx.publish.timestamp-last");

  StoreRecording updated;
  updated.published().timestamp(0).size(4);
  updated.in_call = "read";
  updated.vector(whole(kLater), kSizeAt, kSizeAndTimestamp).named();
  is_unknown(updated, "pctx.update.fields-while-zero");
}

TEST(StoreRules, AnUpdateInCallsOfTheKernelIsJudgedByItsOrder) {
  StoreRecording good;
  good.published().keep(kOtherLowHeap, message('b'));
  good.in_call = "pread64";
  good.timestamp(0).pointer(kOtherLowHeap).timestamp(kLater).named();
  EXPECT_EQ(broken(good), Ids{});
  for (const auto* id : {"pctx.update.zero-timestamp-first", "pctx.update.fields-while-zero",
                         "pctx.update.prepare-before-zero", "pctx.update.signature-untouched"}) {
    EXPECT_EQ(good.judge(id).outcome, Outcome::kPass) << id;
  }
  for (const auto* id : {"pctx.update.zero-single-store", "pctx.update.timestamp-single-store"}) {
    EXPECT_EQ(good.judge(id).outcome, Outcome::kUnobservable) << id;
  }

  StoreRecording bad;
  bad.published().keep(kOtherLowHeap, message('b'));
  bad.in_call = "pread64";
  bad.vector(whole(kLater, kOtherLowHeap)).named();
  EXPECT_EQ(broken(bad),
            (Ids{"pctx.update.zero-timestamp-first", "pctx.update.fields-while-zero"}));
}

TEST(StoreRules, UpdatesFromOtherThreadsAndRepeatedZeros) {
  StoreRecording r;
  r.published();
  r.tid = 14;
  r.keep(kOtherLowHeap, message('b')).timestamp(kTime).timestamp(0).timestamp(0).pointer(kLowHeap);
  r.pointer(kOtherLowHeap).timestamp(kLater).timestamp(kLater).named();
  expect_clean(r);
}

TEST(StoreRules, AWatchThatBeganLate) {
  StoreRecording r;
  r.keep(kLowHeap, message('a'));
  r.vector(whole(kTime)).image().stores.clear();
  r.watched(WatchBegin::kNamed).named();
  EXPECT_EQ(silent(r).size(), store_rules().size());
  EXPECT_NE(r.judge("pctx.publish.timestamp-last").saw.find("filled before it was watched"),
            std::string::npos);
  r.updated();
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(silent(r), (Ids{"pctx.publish.timestamp-last", "pctx.publish.timestamp-single-store",
                            "pctx.update.old-payload-until-zero"}));
}

TEST(StoreRules, AHeaderThatMovesInTheWindow) {
  constexpr std::uint64_t kElsewhere = kMapping + (1U << 20U);
  StoreRecording r;
  r.published().timestamp(0).image().watches.back().ended_order = r.order + 1;
  r.at = kElsewhere;
  ++r.order;
  r.watched(WatchBegin::kMoved)
      .keep(kOtherLowHeap, message('b'))
      .pointer(kOtherLowHeap)
      .timestamp(kLater)
      .named();
  EXPECT_EQ(broken(r), Ids{});
  EXPECT_EQ(r.judge("pctx.update.fields-while-zero").outcome, Outcome::kPass);
  EXPECT_EQ(r.judge("pctx.update.zero-timestamp-first").outcome, Outcome::kUnobservable);
}

TEST(StoreRules, EachPublicationOfSeveralIsJudged) {
  StoreRecording r;
  r.published().updated().image().watches.back().ended_order = r.order;
  r.head = Bytes(32);
  r.at = kMapping + kPage;
  r.watched().signature().version().size().timestamp(kLater).pointer().named();
  EXPECT_EQ(broken(r), Ids{"pctx.publish.timestamp-last"});
  StoreRecording same_location;
  same_location.published().image().watches.back().ended_order = same_location.order;
  same_location.head = Bytes(32);
  same_location.watched().fields().timestamp(kLater).named();
  EXPECT_EQ(broken(same_location), Ids{});
  EXPECT_EQ(silent(same_location), kOfUpdates);
}

TEST(StoreRules, StoresThatWereNotKept) {
  StoreRecording r;
  r.published().image().stores_dropped = 3;
  EXPECT_EQ(r.judge("pctx.update.fields-while-zero").saw, "3 stores were not kept");
  EXPECT_NE(r.judge("pctx.publish.timestamp-last").saw.find("3 stores were not kept"),
            std::string::npos);
  r.image().stores_dropped = 1;
  EXPECT_EQ(r.judge("pctx.update.fields-while-zero").saw, "1 store was not kept");
  r.image().watches.back().end = WatchEnd::kTooManyStores;
  EXPECT_EQ(r.judge("pctx.update.fields-while-zero").saw,
            "nothing after the first 5 stores was seen");
}

TEST(StoreRules, NumbersInTheOrderOfTheProcess) {
  StoreRecording r;
  r.image().little_endian = false;
  const auto swapped = [](std::uint64_t timestamp, std::uint64_t pointer) {
    return abi::byte_swapped(whole(timestamp, pointer));
  };
  r.watched().vector(swapped(0, kLowHeap)).vector(swapped(kTime, kLowHeap), 16, 8).named();
  r.vector(swapped(0, kLowHeap), 16, 8).vector(swapped(0, kOtherLowHeap), 24, 8);
  r.vector(swapped(kLater, kOtherLowHeap), 16, 4)
      .vector(swapped(kLater, kOtherLowHeap), 20, 4)
      .named();
  EXPECT_EQ(broken(r), Ids{"pctx.update.timestamp-single-store"});
}

TEST(StoreRules, BytesThatAreMissingOrContradictEachOther) {
  StoreRecording missing;
  missing.published().updated();
  missing.image().stores[2].after.resize(7);
  EXPECT_EQ(broken(missing), Ids{});
  StoreRecording torn;
  torn.published().updated();
  torn.image().stores[5].before = Bytes(32, std::byte{0xff});
  EXPECT_EQ(broken(torn), Ids{});
  StoreRecording nothing;
  nothing.published().updated();
  for (Store& s : nothing.image().stores) s.before = s.after = {};
  EXPECT_EQ(silent(nothing).size(), store_rules().size());
}

// Whatever a recording says, a rule says something and each store is used once.
TEST(StoreRules, SurvivesRecordingsThatMakeNoSense) {
  std::mt19937_64 random(1);
  const auto below = [&random](std::uint64_t n) { return random() % n; };
  const auto odd = [&]() -> std::uint64_t {
    constexpr std::uint64_t kOdd[] = {0,        1,        kTime,     kTime & UINT32_MAX,
                                      kLowHeap, kMapping, UINT64_MAX};
    return kOdd[below(std::size(kOdd))];
  };
  for (int round = 0; round < 300; ++round) {
    StoreRecording r;
    r.keep(kLowHeap, message('a')).keep(kOtherLowHeap, Bytes(3));
    if (below(4) != 0) r.published();
    for (std::uint64_t n = below(40); n-- > 0;) {
      r.tid = static_cast<std::int32_t>(below(3));
      switch (below(8)) {
        case 0:
          r.watched(below(2) == 0 ? WatchBegin::kNamed : WatchBegin::kMoved);
          break;
        case 1:
          r.named();
          break;
        case 2:
          r.timestamp(odd());
          break;
        case 3:
          r.vector({abi::kSignature, 2, static_cast<std::uint32_t>(below(9)), odd(), odd()});
          break;
        case 4:
          r.store<std::uint8_t>(below(32), static_cast<std::uint8_t>(random()));
          break;
        case 5:
          r.store<std::uint32_t>(4 * below(8), static_cast<std::uint32_t>(odd()));
          break;
        case 6:
          r.seen(below(2) == 0 ? Moment::kPeriodic : Moment::kExit);
          break;
        default:
          r.call(below(2) == 0 ? "munmap" : "prctl", {odd(), odd(), odd(), odd()}, 0);
          break;
      }
    }
    r.vector(whole(kTime)).seen();
    Image& image = r.image();
    for (Store& s : image.stores) {
      if (below(10) == 0) s.before.resize(below(40));
      if (below(10) == 0) s.after.resize(below(40));
      if (below(10) == 0) s.order = odd();
      if (below(10) == 0) s.at_ns = odd();
      if (below(10) == 0) s.header = odd();
      if (below(10) == 0) s.location = static_cast<std::uint32_t>(random());
      if (s.payload && below(5) == 0) s.payload->wanted = odd();
      if (s.payload && below(5) == 0) s.payload->readable = odd();
      if (below(10) == 0) s.prepared = s.payload;
    }
    for (Watch& w : image.watches) {
      if (below(4) == 0) w.found.resize(below(40));
      if (below(4) == 0) w.ended_order = odd();
    }
    if (below(3) == 0) std::ranges::shuffle(image.stores, random);
    image.elf64 = below(2) == 0;
    image.little_endian = below(4) != 0;
    const auto evidence = evidence_of(r.t);
    ASSERT_EQ(evidence.size(), 1U);
    std::vector<const Store*> used;
    for (const auto& op : header_history_of(evidence.front()).operations) {
      for (const HeaderStore& s : op.stores) used.push_back(s.store);
      for (const std::size_t i : {op.zero_first, op.zero, op.announce_first, op.announce}) {
        EXPECT_TRUE(i == HeaderOperation::kNone || i < op.stores.size());
      }
    }
    std::ranges::sort(used);
    EXPECT_EQ(std::ranges::adjacent_find(used), used.end());
    for (const auto& rule : store_rules()) EXPECT_FALSE(rule.rule(evidence.front()).level.empty());
  }
}

}  // namespace
}  // namespace ctxconf::conformance
