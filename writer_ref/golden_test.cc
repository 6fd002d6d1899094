// Tests the writer with the golden vectors: it must write the same bytes to memory, except for
// masked bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "golden/test_vectors.h"
#include "writer_ref/otel_ctx.h"
#include "writer_ref/otel_thread_ctx.h"

namespace ctxconf::writer {
namespace {

bool is_masked(const std::vector<golden::Mask>& masks, std::size_t at) {
  return std::ranges::any_of(
      masks, [at](const auto& m) { return at >= m.offset && at - m.offset < m.length; });
}

void expect_same(std::string_view written, std::string_view want,
                 const std::vector<golden::Mask>& masks) {
  ASSERT_EQ(written.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (is_masked(masks, i)) continue;
    EXPECT_EQ(static_cast<unsigned char>(written[i]), static_cast<unsigned char>(want[i]))
        << "byte " << i;
  }
}

std::string_view memory(std::uint64_t at, std::size_t size) {
  return {std::bit_cast<const char*>(at), size};
}

// --- headers

// Why no correct writer has this header; empty: a correct writer does.
std::string why_no_writer(const golden::ProcessContextVector& v) {
  if (v.layout != abi::HeaderLayout::kH5) return "a draft's";
  if (v.header.size() != 32) return "cut";
  if (v.payload.empty()) return "no payload";
  static constexpr std::array<std::pair<std::size_t, std::size_t>, 3> kFields = {
      {{12, 4}, {16, 8}, {24, 8}}};
  for (const auto& [offset, length] : kFields) {
    for (std::size_t i = 0; i < length; ++i) {
      if (!is_masked(v.masks, offset + i)) return "about a field that depends on the publication";
    }
  }
  if (std::string_view(v.header).substr(0, 12) != std::string_view("OTEL_CTX\2\0\0\0", 12)) {
    return "another signature or version";
  }
  return {};
}

TEST(GoldenVectors, HeadersAreWrittenAsTheyAre) {
  std::size_t written = 0;
  std::uint64_t last = 0;
  for (const auto& vector : golden::vectors_of(golden::Kind::kProcessContext)) {
    const auto& v = vector.process_context;
    if (!why_no_writer(v).empty()) continue;
    SCOPED_TRACE(vector.id);
    ++written;
    // The first is a publication, the others are updates, and every third one starts again.
    if (written % 3 == 0) {
      ASSERT_EQ(otel_ctx_drop(nullptr), OTEL_CTX_OK);
    }
    ASSERT_EQ(otel_ctx_publish(v.payload.data(), v.payload.size(), nullptr), OTEL_CTX_OK);
    otel_ctx_info info;
    otel_ctx_get_info(&info);
    const std::string_view header = memory(info.header, 32);
    expect_same(header, v.header, v.masks);
    // Masked bytes follow the rules.
    std::uint32_t size = 0;
    std::uint64_t timestamp = 0;
    std::uint64_t payload = 0;
    std::memcpy(&size, header.data() + 12, sizeof size);
    std::memcpy(&timestamp, header.data() + 16, sizeof timestamp);
    std::memcpy(&payload, header.data() + 24, sizeof payload);
    EXPECT_EQ(size, v.payload.size());
    EXPECT_GT(timestamp, last);
    EXPECT_EQ(memory(payload, size), v.payload);
    last = timestamp;
  }
  EXPECT_EQ(otel_ctx_drop(nullptr), OTEL_CTX_OK);
  EXPECT_GE(written, 10U);
}

TEST(GoldenVectors, AnEmptyPayloadIsRefused) {
  EXPECT_EQ(otel_ctx_publish("", 0, nullptr), OTEL_CTX_BAD_PAYLOAD);
}

// --- records

struct Entry {
  int key = 0;
  std::string_view value;
};

struct Record {
  std::array<std::uint8_t, 16> trace_id{};
  std::array<std::uint8_t, 8> span_id{};
  std::uint8_t valid = 0;
  std::uint8_t flags = 0;
  std::size_t size = 0;
  std::vector<Entry> entries;
  std::size_t end = 0;  // of the entries
};

std::uint8_t byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint8_t>(bytes.at(at));
}

// Directly from the table of the OTEP; nothing if there is no fixed part.
std::optional<Record> read(std::string_view bytes) {
  if (bytes.size() < 28) return std::nullopt;
  Record r;
  std::memcpy(r.trace_id.data(), bytes.data(), 16);
  std::memcpy(r.span_id.data(), bytes.data() + 16, 8);
  r.valid = byte_at(bytes, 24);
  r.flags = byte_at(bytes, 25);
  r.size = byte_at(bytes, 26) | std::size_t{byte_at(bytes, 27)} << 8U;
  std::size_t at = 28;
  const std::size_t end = std::min(bytes.size(), 28 + r.size);
  while (end - at >= 2 && end - at - 2 >= byte_at(bytes, at + 1)) {
    const std::size_t length = byte_at(bytes, at + 1);
    r.entries.push_back({byte_at(bytes, at), bytes.substr(at + 2, length)});
    at += 2 + length;
  }
  r.end = at - 28;
  return r;
}

bool all_zero(const auto& id) {
  return std::ranges::all_of(id, [](std::uint8_t b) { return b == 0; });
}

// Why no correct writer has this record; empty: a correct writer does.
std::string why_no_writer(const golden::ThreadRecordVector& v, const std::optional<Record>& r) {
  if (v.layout == "T0") return "a draft's";
  if (!r || v.record.size() < 28 + r->size) return "it cannot be read completely";
  if (r->valid > 1) return "a reserved value of valid";
  if (r->end != r->size) return "its entries do not fill the area";
  if (all_zero(r->trace_id) != all_zero(r->span_id)) return "half a link";
  if (all_zero(r->trace_id) && r->flags != 0) return "flags without ids";
  return {};
}

TEST(GoldenVectors, RecordsAreWrittenAsTheyAre) {
  const auto all = golden::vectors_of(golden::Kind::kThreadRecord);
  std::map<std::string, std::size_t> left_out;
  std::size_t written = 0;
  for (const auto& vector : all) {
    const auto& v = vector.thread_record;
    SCOPED_TRACE(vector.id);
    const auto r = read(v.record);
    if (const auto why = why_no_writer(v, r); !why.empty()) {
      ++left_out[why];
      continue;
    }
    ++written;
    // The bytes after the entries in a test with leftovers were there before.
    std::vector<std::uint16_t> storage((v.record.size() + 1) / 2);
    std::memcpy(storage.data(), v.record.data(), v.record.size());
    auto* record = reinterpret_cast<otel_thread_ctx_record*>(storage.data());
    std::memset(storage.data(), 0xa5, 28 + r->size);

    otel_thread_ctx_begin_inline(record, r->trace_id.data(), r->span_id.data(), r->flags);
    for (const Entry& e : r->entries) {
      ASSERT_EQ(otel_thread_ctx_append_inline(record, v.record.size(), e.key, e.value.data(),
                                              e.value.size()),
                OTEL_THREAD_CTX_OK);
    }
    if (r->valid == 1) otel_thread_ctx_end_inline(record);
    expect_same({reinterpret_cast<const char*>(storage.data()), v.record.size()}, v.record,
                v.masks);
  }
  EXPECT_GE(written, 40U);
  std::size_t others = 0;
  for (const auto& [why, count] : left_out) {
    RecordProperty(why, std::to_string(count));
    others += count;
  }
  EXPECT_EQ(written + others, all.size());
  EXPECT_EQ(left_out.size(), 6U) << "the vectors contain each kind that no writer makes";
}

// The inputs from which a writer would have made the vectors without a correct writer.
TEST(GoldenVectors, NoCallMakesARecordThatNoWriterMayHave) {
  otel_thread_ctx_record record;
  for (const auto& vector : golden::vectors_of(golden::Kind::kThreadRecord)) {
    const auto r = read(vector.thread_record.record);
    if (!r || vector.thread_record.layout == "T0") continue;
    SCOPED_TRACE(vector.id);
    otel_thread_ctx_begin(&record, r->trace_id.data(), r->span_id.data(), r->flags);
    for (const Entry& e : r->entries) {
      (void)otel_thread_ctx_append(&record, sizeof record, e.key, e.value.data(), e.value.size());
    }
    otel_thread_ctx_end(&record);
    golden::ThreadRecordVector made;
    made.layout = "T3";
    made.record.assign(reinterpret_cast<const char*>(&record), 28 + record.attrs_data_size);
    EXPECT_EQ(why_no_writer(made, read(made.record)), "");
  }
}

}  // namespace
}  // namespace ctxconf::writer
