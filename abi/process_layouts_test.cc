#include "abi/process_layouts.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "abi/process_header.h"

namespace ctxconf::abi {
namespace {

static_assert(std::endian::native == std::endian::little, "the byte examples are little-endian");

using Bytes = std::vector<std::byte>;

Bytes raw(std::initializer_list<int> values) {
  Bytes out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

Bytes operator+(Bytes a, std::string_view text) {
  for (const char c : text) a.push_back(static_cast<std::byte>(c));
  return a;
}

Bytes operator+(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class T>
void put(Bytes& bytes, std::size_t at, T value) {
  if (bytes.size() < at + sizeof value) bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

constexpr std::uint64_t kPayloadAt = 0x5f6a7e6d82a0;
constexpr std::uint64_t kBoottimeNow = 2'000'000'000'000;          // 33 minutes
constexpr std::uint64_t kRealtimeNow = 1'800'000'000'000'000'000;  // January 2027
constexpr std::uint64_t kDecember2025 = 0x187d24704755680b;

// A process with one readable range at kPayloadAt.
struct World {
  Bytes payload;
  RecognitionInput input(std::span<const std::byte> head) const {
    RecognitionInput in;
    in.head = head;
    in.boottime_now_ns = kBoottimeNow;
    in.realtime_now_ns = kRealtimeNow;
    in.is_mapped = [this](std::uint64_t address, std::uint64_t size) {
      return address >= kPayloadAt && size <= payload.size() &&
             address - kPayloadAt <= payload.size() - size;
    };
    in.payload = [this](std::uint64_t address, std::uint64_t size) {
      return std::span(payload).subspan(address - kPayloadAt, size);
    };
    return in;
  }
  Recognition recognise(std::span<const std::byte> head) const {
    return recognise_header(input(head));
  }
};

const Bytes kP0 = raw({2, 0, 4, 0, 0, 0}) + "cart" + raw({1, 0, 0, 0}) + "x";
const Bytes kP1 = raw({0x81, 0xac}) + "service.name" + raw({0xa4}) + "cart";
const Bytes kP2 = raw({0x12, 4}) + "cart" + raw({0x1a, 3}) + "1.0";
const Bytes kP2Map =
    raw({0x0a, 8, 0x0a, 1}) + "k" + raw({0x12, 3}) + "abc" + raw({0x12, 4}) + "cart";
const Bytes kP3 = raw({0x0a, 22, 0x0a, 12}) + "service.name" + raw({0x12, 6, 0x0a, 4}) + "cart";
const Bytes kP4 =
    raw({0x0a, 24, 0x0a, 22, 0x0a, 12}) + "service.name" + raw({0x12, 6, 0x0a, 4}) + "cart";
const Bytes kP4Attributes = raw({0x12, 6, 0x0a, 1}) + "k" + raw({0x12, 1, 0x40});

Bytes signature() { return Bytes{} + "OTEL_CTX"; }

Bytes h0(std::uint64_t pointer) {
  Bytes b = Bytes{} + "OTL-PROC";
  put(b, 8, pointer);
  b.resize(40);
  return b;
}

Bytes h1_or_h2(std::uint32_t version, std::size_t size, std::uint64_t pointer) {
  Bytes b = signature();
  put(b, 8, version);
  put(b, 12, static_cast<std::uint32_t>(size));
  put(b, 16, pointer);
  b.resize(40);
  return b;
}

Bytes h3(std::uint64_t timestamp, std::size_t size, std::uint64_t pointer) {
  Bytes b = signature();
  put(b, 8, std::uint32_t{2});
  put(b, 12, timestamp);
  put(b, 20, static_cast<std::uint32_t>(size));
  put(b, 24, pointer);
  b.resize(40);
  return b;
}

Bytes h5(std::size_t size, std::uint64_t timestamp, std::uint64_t pointer,
         std::uint32_t version = 2) {
  Bytes b = signature();
  put(b, 8, version);
  put(b, 12, static_cast<std::uint32_t>(size));
  put(b, 16, timestamp);
  put(b, 24, pointer);
  b.resize(40);
  return b;
}

int score_of(const Recognition& r, HeaderLayout layout) {
  for (std::size_t i = 0; i < r.scored; ++i) {
    if (r.scores[i].layout == layout) return r.scores[i].score;
  }
  return -1000;
}

TEST(HeaderLayouts, AreThoseOfTheTable) {
  struct Row {
    std::string_view id;
    int version, size, timestamp, pointer;
    std::size_t bytes;
  };
  const std::vector<Row> want = {{"H0", -1, -1, -1, 8, 16},
                                 {"H1", 8, 12, -1, 16, 24},
                                 {"H2", 8, 12, -1, 16, 24},
                                 {"H3", 8, 20, 12, 24, 32},
                                 {"H5", 8, 12, 16, 24, 32}};
  const auto got = header_layouts();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].id, want[i].id);
    EXPECT_EQ(got[i].version, want[i].version) << want[i].id;
    EXPECT_EQ(got[i].size, want[i].size) << want[i].id;
    EXPECT_EQ(got[i].timestamp, want[i].timestamp) << want[i].id;
    EXPECT_EQ(got[i].pointer, want[i].pointer) << want[i].id;
    EXPECT_EQ(got[i].bytes, want[i].bytes) << want[i].id;
    EXPECT_EQ(fields_of(got[i].layout).id, want[i].id);
  }
  EXPECT_EQ(fields_of(HeaderLayout::kUnknown).id, "H5");
  EXPECT_EQ(fields_of(HeaderLayout::kInProgressSignatureLast).id, "H5");
}

TEST(HeaderLayouts, H5HasTheOffsetsOfTheHeaderStruct) {
  const auto& f = fields_of(HeaderLayout::kH5);
  EXPECT_EQ(f.size, static_cast<int>(offsetof(ProcessHeader, payload_size)));
  EXPECT_EQ(f.timestamp, static_cast<int>(offsetof(ProcessHeader, monotonic_published_at_ns)));
  EXPECT_EQ(f.pointer, static_cast<int>(offsetof(ProcessHeader, payload)));
  EXPECT_EQ(f.bytes, sizeof(ProcessHeader));
}

TEST(Recognition, FindsEveryLayout) {
  const World p0{kP0}, p1{kP1}, p2{kP2}, p3{kP3}, p4{kP4};

  auto r = p0.recognise(h0(kPayloadAt));
  EXPECT_EQ(r.best, HeaderLayout::kH0);
  EXPECT_EQ(r.payload, PayloadFormat::kUnknown) << "there are fewer than 16 bytes";
  const World longer{kP0 + raw({3, 0, 0, 0}) + "abc"};
  EXPECT_EQ(longer.recognise(h0(kPayloadAt)).payload, PayloadFormat::kP0);

  r = p1.recognise(h1_or_h2(1, kP1.size(), kPayloadAt));
  EXPECT_EQ(r.best, HeaderLayout::kH1);
  EXPECT_EQ(r.payload, PayloadFormat::kP1);
  EXPECT_EQ(r.scored, 0U);

  r = p2.recognise(h1_or_h2(2, kP2.size(), kPayloadAt));
  EXPECT_EQ(r.best, HeaderLayout::kH2);
  EXPECT_EQ(r.payload, PayloadFormat::kP2);
  EXPECT_EQ(r.scored, 3U);
  EXPECT_EQ(score_of(r, HeaderLayout::kH2), 5);

  r = p3.recognise(h3(kDecember2025, kP3.size(), kPayloadAt));
  EXPECT_EQ(r.best, HeaderLayout::kH3);
  EXPECT_EQ(r.payload, PayloadFormat::kP3);
  EXPECT_TRUE(r.wall_clock);
  EXPECT_EQ(r.scored, 2U) << "H2 needs a user-space address at 16 and zero at 24";

  r = p4.recognise(h5(kP4.size(), kBoottimeNow - 1, kPayloadAt));
  EXPECT_EQ(r.best, HeaderLayout::kH5);
  EXPECT_EQ(r.payload, PayloadFormat::kP4);
  EXPECT_FALSE(r.wall_clock);
  EXPECT_EQ(score_of(r, HeaderLayout::kH5), 6);

  r = p3.recognise(h5(kP3.size(), kDecember2025, kPayloadAt));
  EXPECT_EQ(r.best, HeaderLayout::kH5) << "H4 has the same bytes";
  EXPECT_TRUE(r.wall_clock);
}

TEST(Recognition, TellsThePublishedExampleOfH3ByItsSize) {
  const Bytes example = raw({0x4f, 0x54, 0x45, 0x4c, 0x5f, 0x43, 0x54, 0x58, 0x02, 0x00, 0x00,
                             0x00, 0x0b, 0x68, 0x55, 0x47, 0x70, 0x24, 0x7d, 0x18, 0x50, 0x01,
                             0x00, 0x00, 0xa0, 0x82, 0x6d, 0x7e, 0x6a, 0x5f, 0x00, 0x00});
  World world{kP3};
  world.payload.resize(4096);
  const auto r = world.recognise(example);
  EXPECT_EQ(r.best, HeaderLayout::kH3);
  EXPECT_TRUE(r.wall_clock);
  EXPECT_EQ(r.payload, PayloadFormat::kP3);
  EXPECT_EQ(score_of(r, HeaderLayout::kH3), 6);
  EXPECT_EQ(score_of(r, HeaderLayout::kH5), -1);

  const auto as_h3 = decode_as(fields_of(HeaderLayout::kH3), example);
  EXPECT_EQ(as_h3.version, 2U);
  EXPECT_EQ(as_h3.timestamp, kDecember2025);
  EXPECT_EQ(as_h3.size, 336U);
  EXPECT_EQ(as_h3.pointer, kPayloadAt);
  const auto as_h5 = decode_as(fields_of(HeaderLayout::kH5), example);
  EXPECT_EQ(as_h5.size, 0x4755680bU);
  EXPECT_EQ(as_h5.timestamp, 0x150187d2470U);
  EXPECT_EQ(as_h5.pointer, kPayloadAt);
  EXPECT_EQ(describe(r.best),
            "this looks like the draft of late October to early December 2025: timestamp at 12, "
            "size at 20");
}

TEST(Recognition, ReadsH5AsH3TheWayTheTableSays) {
  const std::uint64_t timestamp = 0x0000001234567890;
  const auto d = decode_as(fields_of(HeaderLayout::kH3), h5(336, timestamp, kPayloadAt));
  EXPECT_EQ(d.timestamp, (timestamp << 32U) | 336U);
  EXPECT_EQ(d.size, timestamp >> 32U);
  World world{kP4};
  world.payload.resize(4096);
  const auto r = world.recognise(h5(336, timestamp, kPayloadAt));
  EXPECT_EQ(r.best, HeaderLayout::kH5);
  EXPECT_GT(score_of(r, HeaderLayout::kH5), score_of(r, HeaderLayout::kH3));
}

TEST(Recognition, GivesTiesToH5) {
  RecognitionInput blind;  // no question can be answered
  const Bytes zeros = h5(0, 0, 0);
  blind.head = zeros;
  const auto r = recognise_header(blind);
  EXPECT_EQ(score_of(r, HeaderLayout::kH3), score_of(r, HeaderLayout::kH5));
  EXPECT_EQ(r.best, HeaderLayout::kH5);
  EXPECT_EQ(r.payload, PayloadFormat::kUnknown);
  EXPECT_TRUE(describe(r.best).empty());
}

TEST(Recognition, CountsAnUpdateInProgressAsH5) {
  const World world{kP4};
  EXPECT_EQ(world.recognise(h5(kP4.size(), 0, kPayloadAt)).best, HeaderLayout::kH5);
}

TEST(Recognition, AcceptsTheDevelopmentVersionInTheLayoutOfToday) {
  const World world{kP4};
  const auto r = world.recognise(h5(kP4.size(), 1234, kPayloadAt, 1));
  EXPECT_EQ(r.best, HeaderLayout::kH5);
  EXPECT_EQ(r.payload, PayloadFormat::kP4);
  EXPECT_EQ(world.recognise(h5(kP4.size(), 1234, 0x1000, 1)).best, HeaderLayout::kH1)
      << "nothing indicates today's layout";
}

TEST(Recognition, SeesAPublicationThatStoresTheSignatureLast) {
  const World world{kP3};
  Bytes head = h3(kDecember2025, kP3.size(), kPayloadAt);
  std::memset(head.data(), 0, 8);
  EXPECT_EQ(world.recognise(head).best, HeaderLayout::kInProgressSignatureLast);
  EXPECT_FALSE(describe(HeaderLayout::kInProgressSignatureLast).empty());
  head = Bytes(40);
  put(head, 8, std::uint32_t{2});
  EXPECT_EQ(world.recognise(head).best, HeaderLayout::kUnknown) << "version alone";
  put(head, 12, std::uint32_t{5});
  EXPECT_EQ(world.recognise(head).best, HeaderLayout::kInProgressSignatureLast);
  head = h5(kP4.size(), 1, kPayloadAt);
  head[4] = std::byte{'-'};
  EXPECT_EQ(world.recognise(head).best, HeaderLayout::kUnknown)
      << "a wrong signature is not an empty one";
}

TEST(Recognition, KnowsNothingAboutOtherVersionsAndGarbage) {
  const World world{kP4};
  EXPECT_EQ(world.recognise(h5(kP4.size(), 1, kPayloadAt, 3)).best, HeaderLayout::kUnknown);
  EXPECT_EQ(world.recognise({}).best, HeaderLayout::kUnknown);
  EXPECT_EQ(world.recognise(Bytes(40)).best, HeaderLayout::kUnknown);
  std::mt19937 random(4719);  // NOLINT(bugprone-random-generator-seed): the same every time
  for (int i = 0; i < 2000; ++i) {
    Bytes head(40);
    for (auto& b : head) b = static_cast<std::byte>(random());
    EXPECT_EQ(world.recognise(head).best, HeaderLayout::kUnknown);
    // After a valid beginning anything may follow.
    std::memcpy(head.data(), h5(0, 0, 0).data(), 12);
    const auto r = world.recognise(head);
    EXPECT_NE(r.best, HeaderLayout::kUnknown);
    EXPECT_LE(r.scored, 3U);
    for (auto& b : head) b = static_cast<std::byte>(random());
    (void)recognise_payload(head);
  }
}

TEST(Recognition, JudgesTheClocks) {
  const World world{kP4};
  const auto score = [&](std::uint64_t timestamp) {
    return score_of(world.recognise(h5(kP4.size(), timestamp, kPayloadAt)), HeaderLayout::kH5);
  };
  EXPECT_EQ(score(kBoottimeNow), 6);
  EXPECT_EQ(score(kBoottimeNow + 1), 5) << "after now";
  EXPECT_EQ(score(kDecember2025), 6);
  EXPECT_EQ(score(kRealtimeNow + 1), 5) << "a wall clock after now";
  EXPECT_EQ(score(1'650'000'000'000'000'000), 5) << "a wall clock before there was a draft";

  RecognitionInput unknown = world.input({});
  unknown.boottime_now_ns = 0;
  unknown.realtime_now_ns = 0;
  const Bytes head = h5(kP4.size(), kBoottimeNow * 9, kPayloadAt);
  unknown.head = head;
  EXPECT_EQ(score_of(recognise_header(unknown), HeaderLayout::kH5), 6);
}

TEST(Recognition, SubtractsForAbsurdSizes) {
  World world{kP4};
  const auto score = [&](std::size_t size) {
    return score_of(world.recognise(h5(size, 1, kPayloadAt)), HeaderLayout::kH5);
  };
  EXPECT_EQ(score(0), 3) << "mapped and plausible, but nothing to parse";
  EXPECT_EQ(score(65536), 2) << "not mapped";
  EXPECT_EQ(score(65537), 1);
  EXPECT_EQ(score((16U << 20U) + 1), -1);
  world.payload.resize(65537);
  EXPECT_EQ(score(65536), 6);
  EXPECT_EQ(score(65537), 5);
}

TEST(Recognition, AsksForNoRangeThatWraps) {
  World world{kP4};
  auto in = world.input({});
  in.is_mapped = [](std::uint64_t address, std::uint64_t size) {
    EXPECT_LE(size, UINT64_MAX - address);
    EXPECT_NE(address, 0U);
    return false;
  };
  in.payload = [](std::uint64_t, std::uint64_t) -> std::span<const std::byte> {
    ADD_FAILURE() << "the reader asked for bytes that are not mapped";
    return {};
  };
  for (const auto pointer : {std::uint64_t{0}, UINT64_MAX, UINT64_MAX - 3}) {
    const Bytes head = h5(100, 1, pointer);
    in.head = head;
    EXPECT_EQ(recognise_header(in).best, HeaderLayout::kH5);
    const Bytes first = h0(pointer);
    in.head = first;
    EXPECT_EQ(recognise_header(in).best, HeaderLayout::kH0);
  }
}

TEST(Recognition, UsesNoMoreOfThePayloadThanTheSizeSays) {
  World world{kP4};
  auto in = world.input({});
  in.payload = [&](std::uint64_t, std::uint64_t) {
    return std::span<const std::byte>(world.payload);
  };
  const Bytes head = h5(2, 1, kPayloadAt);
  in.head = head;
  EXPECT_EQ(recognise_header(in).payload, PayloadFormat::kUnknown);
}

TEST(PayloadFormats, AreRecognisedByTheirBeginning) {
  const std::vector<std::pair<Bytes, PayloadFormat>> cases = {
      {kP0, PayloadFormat::kP0},
      {kP1, PayloadFormat::kP1},
      {raw({0xde, 0, 1, 0xa1}) + "k", PayloadFormat::kP1},
      {raw({0xdf, 0, 0, 0, 1, 0xd9, 1}) + "k", PayloadFormat::kP1},
      {kP2, PayloadFormat::kP2},
      {kP2Map, PayloadFormat::kP2},
      {raw({0x42, 3}) + "abc", PayloadFormat::kP2},
      {kP3, PayloadFormat::kP3},
      {raw({0x0a, 3, 0x0a, 1}) + "k", PayloadFormat::kP3},
      // Values whose first tag is printable: double, array, list, bytes.
      {raw({0x0a, 14, 0x0a, 1}) + "k" + raw({0x12, 9}) + "!abcdefgh", PayloadFormat::kP3},
      {raw({0x0a, 7, 0x0a, 1}) + "k" + raw({0x12, 2, 0x2a, 0}), PayloadFormat::kP3},
      {raw({0x0a, 8, 0x0a, 1}) + "k" + raw({0x12, 3}) + "2.0", PayloadFormat::kP2},
      {kP4, PayloadFormat::kP4},
      {kP4Attributes, PayloadFormat::kP4},
      {raw({0x0a, 0}), PayloadFormat::kP4},
      {raw({0x0a, 0}) + kP4Attributes, PayloadFormat::kP4},
      {raw({0x0a, 0x80, 2, 0x0a, 0xfd, 1, 0x0a, 3}) + "key", PayloadFormat::kP4},
      {{}, PayloadFormat::kUnknown},
      {raw({0}), PayloadFormat::kUnknown},
      {Bytes{} + "just some text", PayloadFormat::kUnknown},
      {raw({2, 0, 0xff, 0xff, 0xff, 0xff}), PayloadFormat::kUnknown},
      {raw({0x81, 0x01, 0x01}), PayloadFormat::kUnknown},
      {raw({0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), PayloadFormat::kUnknown},
      {raw({0x4a, 3}) + "abc", PayloadFormat::kUnknown},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(to_string(recognise_payload(cases[i].first)), to_string(cases[i].second)) << i;
  }
}

TEST(PayloadFormats, HaveNames) {
  EXPECT_EQ(to_string(PayloadFormat::kP3), "P3");
  EXPECT_EQ(describe(PayloadFormat::kP3), "bare Resource, December 2025 to mid February 2026");
  EXPECT_EQ(to_string(PayloadFormat::kUnknown), "unknown");
}

// A buffer that ends at the end of readable memory.
class Guarded {
 public:
  Guarded() {
    page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* at = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return;
    base_ = static_cast<std::byte*>(at);
    if (mprotect(base_ + page_, page_, PROT_NONE) != 0) ADD_FAILURE() << "no guard page";
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() {
    if (base_ != nullptr) munmap(base_, 2 * page_);
  }
  bool usable() const { return base_ != nullptr; }
  std::span<const std::byte> with(std::span<const std::byte> bytes) const {
    std::byte* at = base_ + page_ - bytes.size();
    if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
    return {at, bytes.size()};
  }

 private:
  std::size_t page_ = 0;
  std::byte* base_ = nullptr;
};

TEST(Truncation, ReadsNoByteBehindTheEnd) {
  const Guarded guarded;
  ASSERT_TRUE(guarded.usable());
  const World world{kP4};
  const std::vector<Bytes> heads = {h0(kPayloadAt), h1_or_h2(1, 9, kPayloadAt),
                                    h1_or_h2(2, 9, kPayloadAt), h3(kDecember2025, 9, kPayloadAt),
                                    h5(9, 1, kPayloadAt)};
  for (const Bytes& head : heads) {
    for (std::size_t n = 0; n <= head.size(); ++n) {
      const auto cut = guarded.with(std::span(head).first(n));
      const auto r = world.recognise(cut);
      if (n < 8) {
        EXPECT_EQ(r.best, HeaderLayout::kUnknown) << n;
      }
      if (n >= 32) {
        EXPECT_EQ(r.best, world.recognise(head).best) << n;
      }
      for (const auto& layout : header_layouts()) {
        const auto d = decode_as(layout, cut);
        if (layout.pointer + 8 > static_cast<int>(n)) {
          EXPECT_EQ(d.pointer, 0U) << n;
        }
      }
    }
  }
  const World p2{kP2};
  const Bytes old = h1_or_h2(2, kP2.size(), kPayloadAt);
  EXPECT_EQ(p2.recognise(guarded.with(std::span(old).first(24))).best, HeaderLayout::kH2)
      << "a header of 24 bytes at the end of its mapping";
  for (const Bytes& payload : {kP0, kP1, kP2, kP2Map, kP3, kP4, kP4Attributes}) {
    const auto whole = recognise_payload(payload);
    EXPECT_NE(whole, PayloadFormat::kUnknown);
    bool known = false;
    for (std::size_t n = 0; n <= payload.size(); ++n) {
      const auto f = recognise_payload(guarded.with(std::span(payload).first(n)));
      if (f == whole) known = true;
    }
    EXPECT_TRUE(known);
  }
}

}  // namespace
}  // namespace ctxconf::abi
