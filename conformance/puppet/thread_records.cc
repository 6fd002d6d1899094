// What a legal program announces about its threads, and what their records contain.
#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <utility>

#include "conformance/puppet/thread_grammar.h"

namespace ctxconf::conformance::puppet {
namespace {

constexpr std::size_t kMostKeys = 256;
constexpr std::size_t kLongestValue = 255;
constexpr std::size_t kEntryHead = 2;

std::byte byte_of(std::size_t value) { return static_cast<std::byte>(value & 0xffU); }

void put_number(Bytes& record, std::size_t at, std::uint16_t value) {
  std::memcpy(record.data() + at, &value, sizeof value);
}

void put_entry(Bytes& area, std::size_t key, const Bytes& value, Flaw flaw) {
  area.push_back(byte_of(key));
  if (flaw == Flaw::kVarint && value.size() > 127) {
    area.push_back(byte_of(value.size() | 0x80U));
    area.push_back(byte_of(value.size() >> 7U));
  } else {
    area.push_back(byte_of(value.size()));
  }
  area.insert(area.end(), value.begin(), value.end());
  if (flaw == Flaw::kPadded && area.size() % 2 != 0) area.push_back(std::byte{0});
}

Bytes entries_of(const RecordPlan& record, std::size_t names) {
  Bytes out;
  if (names == 0) return out;
  for (const auto& a : record.attributes) {
    put_entry(out, a.beyond ? names : a.key % names, a.value, record.flaw);
  }
  return out;
}

std::uint16_t announced(const RecordPlan& record, std::size_t bytes) {
  auto size = static_cast<std::uint16_t>(bytes);
  switch (record.flaw) {
    case Flaw::kSizeSwapped:
      return std::byteswap(size);
    case Flaw::kSizeIsCount:
      return static_cast<std::uint16_t>(record.attributes.size());
    case Flaw::kSizeWithHead:
      return static_cast<std::uint16_t>(size + kRecordHead);
    case Flaw::kSizeLess:
      return --size;
    case Flaw::kSizeMore:
      return ++size;
    case Flaw::kCut:
      return static_cast<std::uint16_t>(size - 5);
    case Flaw::kBeyondMapping:
      return 60000;
    default:
      return size;
  }
}

// Text of this many bytes, or a few less if a character does not fit.
Bytes text_of(Rng& rng, std::size_t size) {
  static const std::vector<std::string> kPieces = {
      "/cart",      "GET",  "na\u00efve", "\u6771\u4eac",           "\U0001f680",
      "user-4711 ", "a\tb", "x",          std::string("\0\0\0", 3), std::string("\1\2\0", 3)};
  std::string out;
  for (unsigned misses = 0; out.size() < size && misses < 4;) {
    const std::string& piece = rng.pick(kPieces);
    if (piece.size() <= size - out.size()) {
      out += piece;
    } else {
      ++misses;
    }
  }
  if (rng.one_in(2)) out.append(size - out.size(), '.');
  return bytes_of(out);
}

Bytes legal_value(Rng& rng) {
  static const std::vector<std::size_t> kSizes = {0, 1, 2, 3, 127, 128, 129, 254, 255};
  if (rng.one_in(5)) {
    const std::size_t size = rng.pick(kSizes);
    Bytes out = text_of(rng, size);
    out.resize(size, std::byte{'-'});
    return out;
  }
  return text_of(rng, rng.below(24));
}

std::uint8_t legal_key(Rng& rng) {
  return static_cast<std::uint8_t>(rng.one_in(3) ? rng.next() : rng.below(6));
}

// Adds attributes, up to the recommended length of a record.
void fill_up(RecordPlan& record, Rng& rng, std::size_t used) {
  for (;;) {
    const std::size_t left = kLargestRecord - kRecordHead - used;
    if (left < kEntryHead) return;
    std::size_t size = std::min(left - kEntryHead, kLongestValue);
    if (left - kEntryHead - size == 1) --size;
    Bytes value = text_of(rng, size);
    value.resize(size, std::byte{'-'});
    record.attributes.push_back({legal_key(rng), value});
    used += kEntryHead + size;
  }
}

RecordPlan legal_record(Rng& rng) {
  RecordPlan out;
  out.ids = !rng.one_in(5);
  for (auto& b : out.trace_id) b = static_cast<std::uint8_t>(rng.next());
  for (auto& b : out.span_id) b = static_cast<std::uint8_t>(rng.next());
  if (rng.one_in(6)) std::fill_n(out.trace_id.begin(), 8, std::uint8_t{0});  // of 64 bits
  if (rng.one_in(8)) std::fill_n(out.span_id.begin(), 7, std::uint8_t{0});
  out.trace_id.back() |= 1U;
  out.span_id.back() |= 1U;
  out.flags = static_cast<std::uint8_t>(rng.one_in(8) ? rng.next() : rng.below(4));
  std::size_t used = 0;
  for (auto n = rng.one_in(4) ? 0 : rng.below(rng.one_in(4) ? 24 : 5); n > 0; --n) {
    const Attribute a{legal_key(rng), legal_value(rng)};
    if (used + kEntryHead + a.value.size() > kLargestRecord - kRecordHead) break;
    used += kEntryHead + a.value.size();
    out.attributes.push_back(a);
    if (rng.one_in(10)) out.attributes.back().key = out.attributes.front().key;
  }
  if (rng.one_in(10)) fill_up(out, rng, used);
  return out;
}

}  // namespace

Bytes encode(const RecordPlan& record, std::size_t names) {
  const Bytes entries = entries_of(record, names);
  Bytes out(kRecordHead);
  const bool ids = record.ids;
  if (ids && record.flaw != Flaw::kNoTraceId) {
    std::memcpy(out.data(), record.trace_id.data(), record.trace_id.size());
  }
  if (ids && record.flaw != Flaw::kNoSpanId) {
    std::memcpy(out.data() + 16, record.span_id.data(), record.span_id.size());
  }
  if (record.flaw == Flaw::kRootSpanId) {
    out.resize(34);
    std::memcpy(out.data() + 24, record.trace_id.data() + 8, 8);
    out[24] |= std::byte{2};
    out[32] = std::byte{1};
    out[33] = byte_of(record.attributes.size());
  } else {
    out[24] = std::byte{1};
    if (record.flaw == Flaw::kValidTwo) out[24] = std::byte{2};
    if (record.flaw == Flaw::kValidFf) out[24] = std::byte{0xff};
    if (ids || record.flaw == Flaw::kFlags) out[25] = byte_of(record.flags);
    put_number(out, 26, announced(record, entries.size()));
  }
  out.insert(out.end(), entries.begin(), entries.end());
  return out;
}

std::vector<std::string> first_keys(std::size_t count) {
  std::vector<std::string> out = {"http.route",  "user_id",      "http.request.method", "tenant",
                                  "url.path",    "\u30ad\u30fc", "db system",           "a",
                                  "rpc.service", "Tenant"};
  while (out.size() < count) out.push_back("com.example.k" + std::to_string(out.size()));
  out.resize(count);
  return out;
}

Announcement::Announcement(Rng& rng) {
  now_.map_first = rng.one_in(3);
  now_.before_others = rng.one_in(3);
  begun_ = !rng.one_in(6);
  has_map_ = !rng.one_in(8);
  static const std::vector<std::size_t> kCounts = {0, 1, 2, 3, 3, 5, 8, 8, 20, 255, kMostKeys};
  names_ = rng.pick(kCounts);
  if (rng.one_in(6)) now_.schema = "tls_v1";
  if (rng.one_in(12)) {
    now_.schema = rng.one_in(2) ? "nodejs_v1_dev" : "com_example_v3";
    now_.used = false;
  }
}

std::optional<Reference> Announcement::next(Rng& rng) {
  const bool now = begun_;
  begun_ = begun_ || rng.one_in(2);
  if (!now) return std::nullopt;
  Reference out = now_;
  if (has_map_) out.keys = first_keys(names_);
  has_map_ = has_map_ || rng.one_in(2);
  if (rng.one_in(2)) names_ = std::min<std::size_t>(names_ + rng.below(5), kMostKeys);
  return out;
}

ThreadAct legal_thread_act(Rng& rng, bool first_only, const std::optional<ThreadAct>& before) {
  using ThreadKind = ThreadAct::Kind;
  static const std::vector<ThreadKind> kKinds = {
      ThreadKind::kAttach, ThreadKind::kAttach,   ThreadKind::kAttach, ThreadKind::kAttach,
      ThreadKind::kAttach, ThreadKind::kDetach,   ThreadKind::kDetach, ThreadKind::kAppend,
      ThreadKind::kShrink, ThreadKind::kHandOver, ThreadKind::kShare,  ThreadKind::kEnd,
      ThreadKind::kEnd,    ThreadKind::kFork,     ThreadKind::kRun,
  };
  ThreadAct out;
  out.kind = rng.pick(kKinds);
  out.thread = first_only ? 0 : static_cast<unsigned>(rng.below(4));
  if (before && rng.one_in(2)) {
    out.thread = before->thread;
    if (before->kind == ThreadKind::kShrink) out.kind = ThreadKind::kAppend;
  }
  out.other = (out.thread + 1 + static_cast<unsigned>(rng.below(3))) % 4;
  out.in_place = rng.one_in(3);
  out.own_block = rng.one_in(4);
  out.record = legal_record(rng);
  out.memory = static_cast<Memory>(rng.below(9));
  out.writing = static_cast<Writing>(rng.below(4));
  static const std::vector<CopyHow> kHows = {
      CopyHow::kBytes,  CopyHow::kWords, CopyHow::kRepBytes, CopyHow::kRepWords,
      CopyHow::kVector, CopyHow::kPipe,  CopyHow::kProcessVm};
  out.how = rng.pick(kHows);
  out.spare = rng.one_in(2) ? rng.below(300) : 0;
  out.leftovers = rng.one_in(3);
  out.nested = rng.one_in(3);
  out.in_handler = rng.one_in(8);
  out.reused = rng.one_in(2);
  out.null_first = rng.one_in(4);
  out.at_once = rng.one_in(3);
  out.by_another = rng.one_in(6);
  out.order = static_cast<StoreOrder>(rng.below(3));
  if (rng.one_in(2)) out.fence = static_cast<FenceKind>(rng.below(3));
  out.retiring = static_cast<ThreadAct::Retiring>(rng.below(4));
  out.ending = static_cast<ThreadAct::Ending>(rng.below(2));
  return out;
}

}  // namespace ctxconf::conformance::puppet
