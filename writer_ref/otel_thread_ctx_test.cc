#include "writer_ref/otel_thread_ctx.h"

#include <gtest/gtest.h>
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "abi/thread_record.h"

namespace ctxconf::writer {
namespace {

using Record = otel_thread_ctx_record;

constexpr std::array<std::uint8_t, 16> kTrace = {0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6,
                                                 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36};
constexpr std::array<std::uint8_t, 8> kSpan = {0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7};

int append(Record& record, int key, std::string_view value, std::size_t bytes = sizeof(Record)) {
  return otel_thread_ctx_append_inline(&record, bytes, key, value.data(), value.size());
}

std::span<const std::byte> bytes_of(const Record& record) {
  return std::as_bytes(std::span(&record, 1));
}

// "1=GET,2=/cart", or an error if entries do not fill the size.
std::string attributes(const Record& record) {
  std::string out;
  abi::AttributeCursor cursor(bytes_of(record).subspan(28, record.attrs_data_size));
  while (const auto entry = cursor.next()) {
    if (!out.empty()) out += ',';
    out += std::to_string(entry->key) + '=';
    out.append(reinterpret_cast<const char*>(entry->value.data()), entry->value.size());
  }
  return cursor.left() == 0 ? out : "does not walk";
}

Record filled() {
  Record record;
  memset(&record, 0xee, sizeof record);
  otel_thread_ctx_begin_inline(&record, kTrace.data(), kSpan.data(), 1);
  return record;
}

TEST(Record, HasTheBytesOfTheDocument) {
  Record record = filled();
  EXPECT_EQ(record.valid, 0);
  EXPECT_EQ(append(record, 5, "/cart"), OTEL_THREAD_CTX_OK);
  EXPECT_EQ(append(record, 255, ""), OTEL_THREAD_CTX_OK);
  EXPECT_EQ(record.valid, 0);
  otel_thread_ctx_end_inline(&record);
  std::array<std::uint8_t, 40> expected{0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce,
                                        0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36, 0x00, 0xf0, 0x67, 0xaa,
                                        0x0b, 0xa9, 0x02, 0xb7, 1,    1,    9,    0,    5,    5,
                                        '/',  'c',  'a',  'r',  't',  255,  0,    0xee, 0xee, 0xee};
  if constexpr (std::endian::native == std::endian::big) std::swap(expected[26], expected[27]);
  EXPECT_EQ(memcmp(&record, expected.data(), expected.size()), 0);
}

TEST(Record, IsTheSameThroughTheLibrary) {
  Record record;
  memset(&record, 0xee, sizeof record);
  otel_thread_ctx_begin(&record, kTrace.data(), kSpan.data(), 1);
  EXPECT_EQ(otel_thread_ctx_append(&record, sizeof record, 5, "/cart", 5), OTEL_THREAD_CTX_OK);
  EXPECT_EQ(otel_thread_ctx_append(&record, sizeof record, 6, "x", 1), OTEL_THREAD_CTX_OK);
  otel_thread_ctx_shrink(&record, 7);
  otel_thread_ctx_end(&record);
  Record other = filled();
  append(other, 5, "/cart");
  append(other, 6, "x");
  otel_thread_ctx_shrink_inline(&other, 7);
  otel_thread_ctx_end_inline(&other);
  EXPECT_EQ(memcmp(&record, &other, sizeof record), 0);
  EXPECT_EQ(otel_thread_ctx_attach(&record), nullptr);
  EXPECT_EQ(otel_thread_ctx_attach(nullptr), &record);
}

TEST(Record, HasBothIdsOrNone) {
  const std::array<std::uint8_t, 16> zero{};
  const struct {
    const std::uint8_t* trace;
    const std::uint8_t* span;
  } none[] = {{nullptr, nullptr},           {kTrace.data(), nullptr},
              {nullptr, kSpan.data()},      {zero.data(), zero.data()},
              {kTrace.data(), zero.data()}, {zero.data(), kSpan.data()}};
  for (const auto& ids : none) {
    Record record = filled();
    otel_thread_ctx_begin_inline(&record, ids.trace, ids.span, 1);
    append(record, 1, "kept");
    otel_thread_ctx_end_inline(&record);
    const auto head = abi::decode_thread_record(bytes_of(record));
    EXPECT_FALSE(abi::has_trace_id(*head) || abi::has_span_id(*head));
    EXPECT_EQ(head->trace_flags, 0);
    EXPECT_EQ(head->valid, abi::kRecordValid);
    EXPECT_EQ(attributes(record), "1=kept");
  }
  // One nonzero byte anywhere makes an id.
  for (std::size_t i = 0; i < 16; ++i) {
    auto trace = zero;
    auto span = std::array<std::uint8_t, 8>{};
    trace[i] = 1;
    span[i / 2] = 0x80;
    Record record = filled();
    otel_thread_ctx_begin_inline(&record, trace.data(), span.data(), 2);
    EXPECT_EQ(memcmp(record.trace_id, trace.data(), 16), 0);
    EXPECT_EQ(memcmp(record.span_id, span.data(), 8), 0);
    EXPECT_EQ(record.trace_flags, 2);
  }
}

// Every length with each way of copying, checking the bytes before and after it.
TEST(Append, CopiesEveryLengthAndNothingElse) {
  std::string text;
  for (int i = 0; i < 255; ++i) text.push_back(static_cast<char>('!' + i % 90));
  for (std::size_t length = 0; length <= 255; ++length) {
    Record record = filled();
    append(record, 0, "before");
    EXPECT_EQ(append(record, 1, std::string_view(text).substr(0, length)), OTEL_THREAD_CTX_OK);
    EXPECT_EQ(attributes(record), "0=before,1=" + text.substr(0, length));
    for (std::size_t i = record.attrs_data_size; i < sizeof record.attrs_data; ++i) {
      ASSERT_EQ(record.attrs_data[i], 0xee) << length;
    }
  }
}

TEST(Append, LeavesOutWhatDoesNotFitAndReportsIt) {
  Record record = filled();
  const std::string longest(255, 'v');
  EXPECT_EQ(append(record, 0, longest), OTEL_THREAD_CTX_OK);
  EXPECT_EQ(append(record, 1, longest), OTEL_THREAD_CTX_OK);
  const Record before = record;
  EXPECT_EQ(append(record, 2, longest.substr(0, 97)), OTEL_THREAD_CTX_LEFT_OUT);
  EXPECT_EQ(append(record, 256, ""), OTEL_THREAD_CTX_LEFT_OUT);
  EXPECT_EQ(append(record, OTEL_THREAD_CTX_FULL, ""), OTEL_THREAD_CTX_LEFT_OUT);
  EXPECT_EQ(append(record, INT_MIN, ""), OTEL_THREAD_CTX_LEFT_OUT);
  EXPECT_EQ(memcmp(&record, &before, sizeof record), 0);
  EXPECT_EQ(append(record, 2, longest.substr(0, 96)), OTEL_THREAD_CTX_OK);
  EXPECT_EQ(record.attrs_data_size, 612);
  EXPECT_EQ(append(record, 3, ""), OTEL_THREAD_CTX_LEFT_OUT);
  EXPECT_NE(attributes(record), "does not walk");
}

TEST(Append, LeavesOutWhatHasNoMemoryForARecord) {
  Record record = filled();
  const Record before = record;
  for (const std::size_t bytes : {0U, 1U, 27U}) {
    EXPECT_EQ(append(record, 0, "", bytes), OTEL_THREAD_CTX_LEFT_OUT);
  }
  EXPECT_EQ(memcmp(&record, &before, sizeof record), 0);
}

TEST(Append, KeepsToTheMemoryThatTheRecordHas) {
  for (const std::size_t bytes : {28U, 29U, 30U, 33U}) {
    Record record = filled();
    EXPECT_EQ(append(record, 0, "", bytes), bytes < 30 ? OTEL_THREAD_CTX_LEFT_OUT : 0);
    EXPECT_EQ(append(record, 0, "x", bytes), bytes < 33 ? OTEL_THREAD_CTX_LEFT_OUT : 0);
    EXPECT_EQ(append(record, 0, "", bytes), OTEL_THREAD_CTX_LEFT_OUT);
    EXPECT_LE(28U + record.attrs_data_size, bytes);
  }
  // The size must not exceed what the field can hold.
  std::vector<std::uint64_t> memory(9000);
  auto* const large = reinterpret_cast<Record*>(memory.data());
  otel_thread_ctx_begin_inline(large, nullptr, nullptr, 0);
  const std::string longest(255, 'v');
  int entries = 0;
  while (otel_thread_ctx_append_inline(large, memory.size() * 8, 0, longest.data(), 255) == 0) {
    ++entries;
  }
  EXPECT_EQ(entries, 255);
  EXPECT_EQ(large->attrs_data_size, 255 * 257);
}

TEST(Append, CutsBetweenCharacters) {
  const struct {
    std::string value;
    std::size_t kept;
  } cases[] = {
      {std::string(256, 'v'), 255},
      {std::string(100'000, 'v'), 255},
      {std::string(254, 'v') + "\u00fc", 254},
      {std::string(253, 'v') + "\u00fc!", 255},
      {std::string(253, 'v') + "\u20ac", 253},
      {std::string(254, 'v') + "\u20ac", 254},
      {std::string(252, 'v') + "\U0001f511", 252},
      {std::string(253, 'v') + "\U0001f511", 253},
      {std::string(254, 'v') + "\U0001f511", 254},
      {std::string(255, 'v') + "\U0001f511", 255},
      {std::string(256, '\x80'), 255},  // not UTF-8
  };
  for (const auto& c : cases) {
    Record record = filled();
    EXPECT_EQ(append(record, 7, c.value), OTEL_THREAD_CTX_CUT);
    EXPECT_EQ(attributes(record), "7=" + c.value.substr(0, c.kept));
  }
}

TEST(Shrink, RemovesWhatWasAddedLast) {
  Record record = filled();
  append(record, 1, "a");
  const std::uint16_t mark = record.attrs_data_size;
  append(record, 2, "b");
  append(record, 1, "c");
  otel_thread_ctx_end_inline(&record);
  EXPECT_EQ(attributes(record), "1=a,2=b,1=c");
  otel_thread_ctx_shrink_inline(&record, mark);
  EXPECT_EQ(attributes(record), "1=a");
  otel_thread_ctx_shrink_inline(&record, 600);
  EXPECT_EQ(attributes(record), "1=a") << "shrinking does not grow";
  append(record, 3, "d");
  EXPECT_EQ(attributes(record), "1=a,3=d");
  EXPECT_EQ(record.valid, 1) << "none of these calls hides the record";
}

// --- the slot

TEST(Attach, NestsAndReturnsWhatWasThere) {
  Record outer = filled();
  Record inner = filled();
  EXPECT_EQ(otel_thread_ctx_v1, nullptr);
  EXPECT_EQ(otel_thread_ctx_attach_inline(&outer), nullptr);
  Record* const before = otel_thread_ctx_attach_inline(&inner);
  EXPECT_EQ(before, &outer);
  EXPECT_EQ(otel_thread_ctx_v1, &inner);
  EXPECT_EQ(otel_thread_ctx_attach_inline(before), &inner);
  EXPECT_EQ(otel_thread_ctx_v1, &outer);
  std::thread([] { EXPECT_EQ(otel_thread_ctx_v1, nullptr); }).join();
  EXPECT_EQ(otel_thread_ctx_attach_inline(nullptr), &outer);
  EXPECT_EQ(otel_thread_ctx_v1, nullptr);
}

// A thread in its last destructor, observed by another thread.
struct Ending {
  Record** slot = nullptr;
  std::barrier<> met{2};
  bool attaches_late = false;
  int round = 0;
};
pthread_key_t last_key;
Record static_record;

void last_destructor(void* value) {
  auto* const ending = static_cast<Ending*>(value);
  if (ending->attaches_late && ending->round == 0) otel_thread_ctx_attach_inline(&static_record);
  if (++ending->round < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(last_key, value);
    return;
  }
  ending->met.arrive_and_wait();  // the observer looks
  ending->met.arrive_and_wait();
}

TEST(ThreadExit, EmptiesTheSlot) {
  ASSERT_EQ(otel_thread_ctx_init_thread(), OTEL_THREAD_CTX_OK);  // its key comes before ours
  ASSERT_EQ(pthread_key_create(&last_key, last_destructor), 0);
  for (const bool prepared : {true, false}) {
    for (const bool late : {false, true}) {
      Ending ending;
      ending.attaches_late = late;
      std::thread thread([&] {
        pthread_setspecific(last_key, &ending);
        ending.slot = &otel_thread_ctx_v1;
        for (int i = 0; prepared && i < 3; ++i) {
          EXPECT_EQ(otel_thread_ctx_init_thread(), OTEL_THREAD_CTX_OK);
        }
        otel_thread_ctx_attach_inline(&static_record);
      });
      ending.met.arrive_and_wait();
      EXPECT_EQ(*ending.slot, prepared ? nullptr : &static_record) << late;
      ending.met.arrive_and_wait();
      thread.join();
    }
  }
  pthread_key_delete(last_key);
}

TEST(Fork, LeavesSlotAndKeysToTheChild) {
  Record record = filled();
  const int key = otel_thread_ctx_register_key("before.fork", 11);
  otel_thread_ctx_attach_inline(&record);
  const pid_t child = fork();
  if (child == 0) {
    const bool good = otel_thread_ctx_v1 == &record &&
                      otel_thread_ctx_register_key("before.fork", 11) == key &&
                      otel_thread_ctx_register_key("in.child", 8) == key + 1;
    _exit(good ? 0 : 1);
  }
  otel_thread_ctx_attach_inline(nullptr);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(otel_thread_ctx_key(key + 1), nullptr);
}

// --- keys

int key(std::string_view name) { return otel_thread_ctx_register_key(name.data(), name.size()); }

TEST(Keys, RefuseNamesThatAreNone) {
  const auto count = otel_thread_ctx_key_count();
  EXPECT_EQ(otel_thread_ctx_register_key(nullptr, 3), OTEL_THREAD_CTX_BAD_NAME);
  EXPECT_EQ(key(""), OTEL_THREAD_CTX_BAD_NAME);
  EXPECT_EQ(key(std::string_view("a\0b", 3)), OTEL_THREAD_CTX_BAD_NAME);
  EXPECT_EQ(key(std::string_view("a\0", 2)), OTEL_THREAD_CTX_BAD_NAME);
  // A lone continuation, an overlong form, a surrogate, above U+10FFFF, an invalid byte, truncated.
  for (const auto* name : {"a\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                           "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
                           "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xe2\x82z"}) {
    EXPECT_EQ(key(name), OTEL_THREAD_CTX_BAD_NAME) << testing::PrintToString(name);
  }
  EXPECT_EQ(otel_thread_ctx_key_count(), count);
  EXPECT_EQ(otel_thread_ctx_key(count), nullptr);
  EXPECT_EQ(otel_thread_ctx_key(SIZE_MAX), nullptr);
}

TEST(Keys, AreUtf8) {
  for (const auto* name :
       {"\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "z\xc3\xa4hler"}) {
    const int index = key(name);
    ASSERT_GE(index, 0) << testing::PrintToString(name);
    EXPECT_STREQ(otel_thread_ctx_key(static_cast<std::size_t>(index)), name);
  }
}

TEST(Keys, AreTheSameForTheSameName) {
  const int first = key("http.route");
  EXPECT_EQ(key("http.route.more"), first + 1);
  EXPECT_EQ(key("http.rout"), first + 2) << "a prefix is another name";
  std::string copied = "http.route";
  EXPECT_EQ(key(copied), first);
  copied[0] = 'x';
  EXPECT_STREQ(otel_thread_ctx_key(static_cast<std::size_t>(first)), "http.route");
}

// Fills the registry for good, so this is the last test of the keys.
TEST(Keys, OfManyThreadsGetOneIndexEach) {
  constexpr int kThreads = 8;
  constexpr int kNames = 300;
  std::array<std::vector<int>, kThreads> got;
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int i = 0; i < kNames; ++i) {
        // The orders are different; every thread registers every name.
        got[t].push_back(key("name." + std::to_string((i * (2 * t + 1)) % kNames)));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(otel_thread_ctx_key_count(), 256U);
  std::map<std::string, int> index;
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_TRUE(index.emplace(otel_thread_ctx_key(i), static_cast<int>(i)).second) << "twice";
  }
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kNames; ++i) {
      const auto known = index.find("name." + std::to_string((i * (2 * t + 1)) % kNames));
      EXPECT_EQ(got[t][static_cast<std::size_t>(i)],
                known == index.end() ? OTEL_THREAD_CTX_FULL : known->second);
    }
  }
  EXPECT_EQ(key("one.more"), OTEL_THREAD_CTX_FULL);
  EXPECT_EQ(key(otel_thread_ctx_key(255)), 255);
}

}  // namespace
}  // namespace ctxconf::writer
