#include "conformance/rules/vector_bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "abi/thread_record.h"
#include "conformance/rules/builtin_vectors.h"
#include "golden/vector.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kMostRecordBytes = 96;  // of a record

using ExpectedBytes = Hexdump::Expected;

// The vectors are part of this program: without them it is broken.
golden::Vector builtin_vector(std::string_view file, golden::Kind kind) {
  for (const BuiltinFile& f : builtin_vectors()) {
    if (f.name != file) continue;
    const auto vector = golden::parse_vector(f.text, file, kind);
    if (vector) return *vector;
    fmt::print(stderr, "ctxconf: built-in vector: {}\n", vector.error());
  }
  std::abort();
}

ExpectedBytes expected_of(const golden::Vector& vector, const golden::Bytes& bytes,
                          const std::vector<golden::Mask>& masks) {
  ExpectedBytes out;
  out.vector = vector.id;
  for (const char c : bytes) out.bytes.push_back(static_cast<std::uint8_t>(c));
  for (const auto& m : masks) out.masks.push_back({m.offset, m.length, m.name, m.rule});
  return out;
}

void unmask(ExpectedBytes& expected, std::uint64_t from, std::uint64_t to) {
  std::vector<ExpectedBytes::Mask> masks;
  for (const auto& m : expected.masks) {
    const std::uint64_t end = m.offset + m.length;
    if (m.offset < from) {
      masks.push_back(m);
      masks.back().length = std::min(end, from) - m.offset;
    }
    if (end > to) {
      masks.push_back(m);
      masks.back().offset = std::max(m.offset, to);
      masks.back().length = end - masks.back().offset;
    }
  }
  expected.masks = std::move(masks);
}

void fill_in(ExpectedBytes& expected, const std::vector<KnownBytes>& known) {
  for (const KnownBytes& k : known) {
    unmask(expected, k.offset, k.offset + k.bytes.size());
    for (std::size_t i = 0; i < k.bytes.size() && k.offset + i < expected.bytes.size(); ++i) {
      expected.bytes[k.offset + i] = k.bytes[i];
    }
  }
}

bool is_in(const auto& ranges, std::uint64_t at) {
  return std::ranges::any_of(
      ranges, [at](const auto& r) { return at >= r.offset && at - r.offset < r.length; });
}

void mark_differences(Hexdump& dump) {
  const auto& want = dump.expected->bytes;
  const std::vector<Hexdump::Mark> marked = dump.marks;
  const auto differs = [&](std::size_t i) {
    return i < want.size() && i < dump.bytes.size() && want[i] != dump.bytes[i] &&
           !is_in(dump.expected->masks, i) && !is_in(marked, i);
  };
  for (std::size_t i = 0; i < want.size(); ++i) {
    Hexdump::Mark mark{i, 0, "differs from the vector"};
    while (differs(i + mark.length)) ++mark.length;
    if (mark.length == 0) continue;
    i += mark.length - 1;
    dump.marks.push_back(std::move(mark));
  }
}

}  // namespace

KnownBytes known_number(std::uint64_t offset, std::uint64_t value, std::size_t size) {
  KnownBytes out{offset, {}};
  for (std::size_t i = 0; i < size; ++i) {
    out.bytes.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  return out;
}

void put_beside_header(Hexdump& dump, const std::vector<KnownBytes>& known) {
  static const golden::Vector vector =
      builtin_vector("process-context/inline-one-page.json", golden::Kind::kProcessContext);
  dump.expected = expected_of(vector, vector.process_context.header, vector.process_context.masks);
  fill_in(*dump.expected, known);
  mark_differences(dump);
}

void put_beside_record(Hexdump& dump, const std::vector<KnownBytes>& known) {
  static const golden::Vector vector =
      builtin_vector("thread-record/layout.json", golden::Kind::kThreadRecord);
  ExpectedBytes expected =
      expected_of(vector, vector.thread_record.record, vector.thread_record.masks);
  // Its entries are not those of the testee: the mask over them is as long as there are any.
  std::uint64_t size = std::max<std::uint64_t>(abi::kRecordHeadBytes, dump.bytes.size());
  for (const KnownBytes& k : known) {
    if (k.offset == abi::kRecordHeadBytes) size = abi::kRecordHeadBytes + k.bytes.size();
  }
  expected.bytes.resize(std::min(size, kMostRecordBytes));
  for (auto& m : expected.masks) {
    if (m.offset == abi::kRecordHeadBytes) m.length = expected.bytes.size() - abi::kRecordHeadBytes;
  }
  std::erase_if(expected.masks, [](const ExpectedBytes::Mask& m) { return m.length == 0; });
  dump.expected = std::move(expected);
  fill_in(*dump.expected, known);
  mark_differences(dump);
}

}  // namespace ctxconf::conformance
