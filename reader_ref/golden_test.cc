// Tests the reader with every golden vector: it must read what the vector says.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "golden/test_vectors.h"
#include "reader_ref/process_context.h"
#include "reader_ref/thread_context.h"
#include "sys/map_table.h"
#include "sys/memory_reader.h"

namespace ctxconf::reader {
namespace {

using golden::Kind;
using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;
using sys::SnapshotMemory;

void put(SnapshotMemory& memory, std::uint64_t at, std::string_view bytes) {
  memory.put(RemoteAddr(at), std::as_bytes(std::span(bytes)));
}

template <class Content>
void expect_any(const Content& found, const std::vector<Content>& right) {
  EXPECT_NE(std::ranges::find(right, found), right.end()) << "not one of the expected contents";
}

void expect_none(const golden::Vector& v) {
  EXPECT_TRUE(golden::allows_none(v)) << "nothing was read";
}

void expect_accepted(const golden::Vector& v) {
  EXPECT_TRUE(v.allows(golden::Result::kAccept)) << "it was accepted";
}

// A wrong header is found before anything is decoded.
ContextSample sample(const golden::ProcessContextVector& v) {
  SnapshotMemory memory;
  for (const auto& piece : golden::memory_of(v)) put(memory, piece.address, piece.bytes);
  MapEntry mapping;
  mapping.range = *RemoteRange::from_size(RemoteAddr(v.mapping_address), v.mapping_size);
  mapping.readable = mapping.writable = true;
  mapping.name = "/memfd:OTEL_CTX (deleted)";
  auto sampled = sample_once(memory, std::array{mapping}, nullptr);
  EXPECT_TRUE(sampled) << sampled.error().detail;
  return sampled ? std::move(*sampled) : ContextSample();
}

TEST(GoldenVectors, ProcessContextsAreReadAsTheySay) {
  const auto all = golden::vectors_of(Kind::kProcessContext);
  ASSERT_GE(all.size(), 25U);
  for (const auto& v : all) {
    SCOPED_TRACE(v.id + ": " + v.comment);
    const ContextSample found = sample(v.process_context);
    if (found.context) {
      expect_accepted(v);
      expect_any(golden::content_of(found.context->message), v.process_context.expect);
      EXPECT_FALSE(found.busy);
    } else if (found.busy) {
      EXPECT_TRUE(v.allows(golden::Result::kRetry))
          << "the reader takes it for a context that is being changed";
    } else {
      expect_none(v);
      EXPECT_FALSE(found.notes.empty());
    }
  }
}

// The reader gets the key map and the schema from a process context.
std::shared_ptr<ProcessContext> reference_data(const golden::ThreadRecordVector& v) {
  const std::string payload = golden::reference_data_of(v).SerializeAsString();
  return decode_payload(std::as_bytes(std::span(payload))).value();
}

golden::RecordContent content_of(const ThreadContext& context) {
  const TraceLink link = context.link.value_or(TraceLink());
  golden::RecordContent out{golden::hex(link.trace_id), golden::hex(link.span_id), link.flags, {}};
  for (const auto& a : context.attributes) {
    EXPECT_TRUE(out.attributes.emplace(a.key, a.value).second) << a.key << " appears twice";
  }
  return out;
}

TEST(GoldenVectors, ThreadRecordsAreReadAsTheySay) {
  constexpr std::uint64_t kSlot = 0x10000;
  constexpr std::uint64_t kRecord = 0x20000;
  const auto all = golden::vectors_of(Kind::kThreadRecord);
  ASSERT_GE(all.size(), 40U);
  for (const auto& v : all) {
    SCOPED_TRACE(v.id + ": " + v.comment);
    const auto context = reference_data(v.thread_record);
    if (!abi::is_thread_schema(context->schema)) {  // it ignores the variable
      expect_none(v);
      continue;
    }
    SnapshotMemory memory;
    const std::uint64_t pointer = kRecord;
    memory.put(RemoteAddr(kSlot), std::as_bytes(std::span(&pointer, 1)));
    put(memory, kRecord, v.thread_record.record);
    const auto copy = copy_record(memory, RemoteAddr(kSlot), Attributes::kRead);
    ASSERT_TRUE(copy);
    if (copy->state != RecordState::kValid) {
      expect_none(v);
      EXPECT_EQ(copy->state == RecordState::kUnreadable,
                v.thread_record.record.size() < sizeof(abi::ThreadRecordHead));
      continue;
    }
    expect_accepted(v);
    expect_any(content_of(parse_record(*copy, context->keys)), v.thread_record.expect);
    // Without attributes it is the same context.
    const auto head = copy_record(memory, RemoteAddr(kSlot), Attributes::kSkip);
    ASSERT_TRUE(head);
    EXPECT_EQ(parse_record(*head, context->keys).link, parse_record(*copy, context->keys).link);
  }
}

std::vector<std::string> prefixes() {
  return {abi::kMappingNamePrefixes.begin(), abi::kMappingNamePrefixes.end()};
}

std::vector<std::uint64_t> starts(const std::vector<MapEntry>& entries) {
  std::vector<std::uint64_t> out;
  out.reserve(entries.size());
  for (const auto& e : entries) out.push_back(e.range.begin().raw());
  return out;
}

// As find_all_mappings reads /proc/PID/maps, `step` bytes at a time.
std::vector<std::uint64_t> in_pieces(const std::string& text, std::size_t step) {
  const sys::MappingFinder finder(prefixes());
  std::vector<MapEntry> found;
  sys::LinePieces pieces;
  for (std::size_t at = 0; at < text.size(); at += step) {
    const std::string_view piece = std::string_view(text).substr(at, step);
    std::ranges::copy(piece, pieces.space().begin());
    finder.find_in(pieces.added(piece.size()), found);
  }
  finder.find_in(pieces.rest(), found);
  return starts(found);
}

TEST(GoldenVectors, CandidatesAreThoseOfTheMapsTexts) {
  const auto all = golden::vectors_of(Kind::kMaps);
  ASSERT_GE(all.size(), 15U);
  for (const auto& v : all) {
    SCOPED_TRACE(v.id + ": " + v.comment);
    const std::string& text = v.maps.maps;
    std::vector<MapEntry> found;
    sys::MappingFinder(prefixes()).find_in(text, found);
    if (found.empty()) {
      expect_none(v);
    } else {
      expect_accepted(v);
      expect_any({starts(found)}, v.maps.expect);
    }
    // The same, line by line and in pieces.
    std::vector<MapEntry> parsed;
    sys::for_each_mapping(text, [&](sys::Result<MapEntry> entry) {
      if (entry && abi::is_candidate_name(entry->name)) parsed.push_back(std::move(*entry));
      return true;
    });
    EXPECT_EQ(parsed, found);
    for (const std::size_t step : {std::size_t{1000}, std::size_t{4096}, std::size_t{65536}}) {
      EXPECT_EQ(in_pieces(text, step), starts(found)) << step;
    }
  }
}

}  // namespace
}  // namespace ctxconf::reader
