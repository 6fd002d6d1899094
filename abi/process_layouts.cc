#include "abi/process_layouts.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "abi/process_header.h"

namespace ctxconf::abi {
namespace {

constexpr std::array<char, 8> kFirstSignature = {'O', 'T', 'L', '-', 'P', 'R', 'O', 'C'};

constexpr std::array<LayoutFields, 5> kLayouts = {{
    {HeaderLayout::kH0, "H0", "July 2025", -1, -1, -1, 8, 16},
    {HeaderLayout::kH1, "H1", "early September 2025", 8, 12, -1, 16, 24},
    {HeaderLayout::kH2, "H2", "mid September to mid October 2025", 8, 12, -1, 16, 24},
    {HeaderLayout::kH3, "H3", "late October to early December 2025", 8, 20, 12, 24, 32},
    {HeaderLayout::kH5, "H5", "since December 2025", 8, 12, 16, 24, 32},
}};

constexpr std::uint64_t kWallClock = 1'600'000'000'000'000'000;  // above: not a boot-time clock
constexpr std::uint64_t kRecentWallClock = 1'700'000'000'000'000'000;  // above: a recent wall clock
constexpr std::uint64_t kUsualSize = 65536;
constexpr std::uint64_t kAbsurdSize = 16U << 20U;
constexpr std::uint64_t kUserSpaceEnd = std::uint64_t{1} << 56U;  // five-level page tables
constexpr std::uint64_t kLongestText = 65536;
// H0 has no size; this many bytes are enough to recognise the data.
constexpr std::uint64_t kBytesBehindH0 = 16;

// The integer at `offset`, or zero if it is not completely there.
template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value{};
  if (offset <= bytes.size() && bytes.size() - offset >= sizeof value) {
    std::memcpy(&value, bytes.data() + offset, sizeof value);
  }
  return value;
}

template <class T>
std::uint64_t load_at(std::span<const std::byte> bytes, int offset) {
  return offset < 0 ? 0 : load<T>(bytes, static_cast<std::size_t>(offset));
}

bool has_signature(std::span<const std::byte> bytes, const std::array<char, 8>& signature) {
  return load<std::array<char, 8>>(bytes, 0) == signature;
}

// --- how payloads begin

std::optional<unsigned> byte_at(std::span<const std::byte> bytes, std::uint64_t at) {
  if (at >= bytes.size()) return std::nullopt;
  return std::to_integer<unsigned>(bytes[at]);
}

// UTF-8 beyond ASCII counts as text; control characters do not.
bool is_text(unsigned c) { return c >= 0x20 && c != 0x7f; }

bool all_text(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes,
                             [](std::byte b) { return is_text(std::to_integer<unsigned>(b)); });
}

// A length-delimited field with a one-byte tag. `begin` is within the bytes or at their end; `end`
// follows from the length and may be far beyond.
struct Delimited {
  unsigned tag = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
};

std::optional<Delimited> delimited_at(std::span<const std::byte> bytes, std::uint64_t at) {
  const auto tag = byte_at(bytes, at);
  if (!tag || *tag >= 0x80 || (*tag & 7U) != 2 || *tag < 8) return std::nullopt;
  std::uint64_t length = 0;
  for (unsigned i = 0; i < 5; ++i) {
    const auto b = byte_at(bytes, at + 1 + i);
    if (!b) return std::nullopt;
    length |= std::uint64_t{*b & 0x7fU} << (7 * i);
    if (*b < 0x80) return Delimited{*tag, at + 2 + i, at + 2 + i + length};
  }
  return std::nullopt;
}

std::span<const std::byte> visible(std::span<const std::byte> bytes, const Delimited& field) {
  const auto size = std::min<std::uint64_t>(bytes.size() - field.begin, field.size());
  return bytes.subspan(field.begin, size);
}

// Non-empty text, as far as it is visible.
bool holds_text(std::span<const std::byte> bytes, const Delimited& field) {
  const auto seen = visible(bytes, field);
  return !seen.empty() && all_text(seen);
}

// `0a klen text`: the beginning of a key-value pair with a valid key.
std::optional<Delimited> key_at(std::span<const std::byte> bytes, std::uint64_t at) {
  const auto key = delimited_at(bytes, at);
  if (!key || key->tag != 0x0a || !holds_text(bytes, *key)) return std::nullopt;
  return key;
}

// The map entries of P2 hold plain text where the pairs of P3 hold a message. Some tags of that
// message are printable, so their lengths must fit.
bool value_is_plain_text(std::span<const std::byte> bytes, const Delimited& value) {
  if (!holds_text(bytes, value)) return false;
  const auto first = byte_at(bytes, value.begin);
  if (first == 0x21U) return value.size() != 9;
  if (first == 0x2aU || first == 0x32U || first == 0x3aU) {
    const auto inner = delimited_at(bytes, value.begin);
    return !inner || inner->end != value.end;
  }
  return true;
}

PayloadFormat recognise_protobuf(std::span<const std::byte> bytes) {
  const auto outer = delimited_at(bytes, 0);
  if (!outer) return PayloadFormat::kUnknown;
  if (outer->tag != 0x0a) {
    if (outer->tag > 0x42) return PayloadFormat::kUnknown;
    if (holds_text(bytes, *outer)) return PayloadFormat::kP2;
    return outer->tag == 0x12 && key_at(bytes, outer->begin) ? PayloadFormat::kP4
                                                             : PayloadFormat::kUnknown;
  }
  if (outer->size() == 0) {  // an empty Resource; an empty pair would be useless
    const auto next = byte_at(bytes, outer->end);
    return !next || next == 0x0aU || next == 0x12U ? PayloadFormat::kP4 : PayloadFormat::kUnknown;
  }
  if (const auto key = key_at(bytes, outer->begin); key && key->end <= outer->end) {
    const auto value = delimited_at(bytes, key->end);
    const bool plain =
        key->end < outer->end && value && value->tag == 0x12 && value_is_plain_text(bytes, *value);
    return plain ? PayloadFormat::kP2 : PayloadFormat::kP3;
  }
  const auto pair = delimited_at(bytes, outer->begin);
  if (pair && pair->tag == 0x0a && pair->end <= outer->end && key_at(bytes, pair->begin)) {
    return PayloadFormat::kP4;
  }
  return PayloadFormat::kUnknown;
}

bool begins_as_p0(std::span<const std::byte> bytes) {
  if (bytes.size() < 6 || load<std::uint16_t>(bytes, 0) != 2) return false;
  const auto length = load<std::uint32_t>(bytes, 2);
  return length <= kLongestText &&
         all_text(bytes.subspan(6, std::min<std::size_t>(bytes.size() - 6, length)));
}

bool begins_as_p1(std::span<const std::byte> bytes) {
  const auto first = byte_at(bytes, 0);
  if (!first) return false;
  std::size_t header = 1;
  if (*first == 0xde) {
    header = 3;
  } else if (*first == 0xdf) {
    header = 5;
  } else if (*first < 0x80 || *first > 0x8f) {
    return false;
  }
  if (*first == 0x80) return bytes.size() == 1;
  const auto key = byte_at(bytes, header);  // its keys are strings
  return !key || (*key >= 0xa0 && *key <= 0xbf) || (*key >= 0xd9 && *key <= 0xdb);
}

// --- scores

bool ask_mapped(const RecognitionInput& input, std::uint64_t address, std::uint64_t size) {
  if (!input.is_mapped || address == 0) return false;
  const auto length = std::max<std::uint64_t>(size, 1);
  return length <= UINT64_MAX - address && input.is_mapped(address, length);
}

PayloadFormat ask_payload(const RecognitionInput& input, std::uint64_t address,
                          std::uint64_t size) {
  if (!input.payload || size == 0 || !ask_mapped(input, address, size)) {
    return PayloadFormat::kUnknown;
  }
  const auto bytes = input.payload(address, size);
  return recognise_payload(bytes.first(std::min<std::uint64_t>(bytes.size(), size)));
}

// An unknown clock excludes nothing.
bool is_plausible(std::uint64_t timestamp, const RecognitionInput& input) {
  if (timestamp == 0) return true;
  if (timestamp > kRecentWallClock) {
    return input.realtime_now_ns == 0 || timestamp <= input.realtime_now_ns;
  }
  if (timestamp > kWallClock) return false;
  return input.boottime_now_ns == 0 || timestamp <= input.boottime_now_ns;
}

struct Scored {
  LayoutScore score;
  PayloadFormat payload = PayloadFormat::kUnknown;
};

Scored score_as(HeaderLayout layout, const RecognitionInput& input) {
  const LayoutFields& fields = fields_of(layout);
  Scored out;
  out.score.layout = layout;
  out.score.fields = decode_as(fields, input.head);
  const DecodedLayout& d = out.score.fields;
  if (ask_mapped(input, d.pointer, d.size)) out.score.score += 2;
  if (d.size >= 1 && d.size <= kUsualSize) out.score.score += 1;
  out.payload = ask_payload(input, d.pointer, d.size);
  if (out.payload != PayloadFormat::kUnknown && out.payload != PayloadFormat::kP0) {
    out.score.score += 2;
  }
  if (fields.timestamp >= 0 && is_plausible(d.timestamp, input)) out.score.score += 1;
  if (d.size > kAbsurdSize) out.score.score -= 2;
  return out;
}

// A zero after the header is typical of H2; without it H2 is not considered.
bool may_be_h2(std::span<const std::byte> head) {
  const auto pointer = load<std::uint64_t>(head, 16);
  return pointer != 0 && pointer < kUserSpaceEnd && load<std::uint64_t>(head, 24) == 0;
}

Recognition recognise_by_score(const RecognitionInput& input) {
  Recognition r;
  int best = 0;
  for (const auto layout : {HeaderLayout::kH2, HeaderLayout::kH3, HeaderLayout::kH5}) {
    if (layout == HeaderLayout::kH2 && !may_be_h2(input.head)) continue;
    const Scored s = score_as(layout, input);
    // H5 comes last and wins ties; between the older layouts the earlier one wins.
    if (r.scored == 0 || s.score.score > best ||
        (s.score.score == best && layout == HeaderLayout::kH5)) {
      best = s.score.score;
      r.best = layout;
      r.payload = s.payload;
      r.wall_clock = s.score.fields.timestamp > kWallClock;
    }
    r.scores[r.scored++] = s.score;
  }
  return r;
}

Recognition recognise_as(HeaderLayout layout, const RecognitionInput& input) {
  const DecodedLayout d = decode_as(fields_of(layout), input.head);
  Recognition r;
  r.best = layout;
  r.payload = ask_payload(input, d.pointer, layout == HeaderLayout::kH0 ? kBytesBehindH0 : d.size);
  r.wall_clock = d.timestamp > kWallClock;
  return r;
}

// H1, but today's layout may also have version 1 during development.
Recognition recognise_version_one(const RecognitionInput& input) {
  const auto points_somewhere = [&](HeaderLayout layout) {
    const DecodedLayout d = decode_as(fields_of(layout), input.head);
    return ask_mapped(input, d.pointer, d.size);
  };
  const bool today = !points_somewhere(HeaderLayout::kH1) && points_somewhere(HeaderLayout::kH5);
  return recognise_as(today ? HeaderLayout::kH5 : HeaderLayout::kH1, input);
}

}  // namespace

std::span<const LayoutFields> header_layouts() { return kLayouts; }

const LayoutFields& fields_of(HeaderLayout layout) {
  for (const auto& fields : kLayouts) {
    if (fields.layout == layout) return fields;
  }
  return kLayouts.back();
}

DecodedLayout decode_as(const LayoutFields& layout, std::span<const std::byte> bytes) {
  DecodedLayout d;
  d.version =
      layout.version < 0 ? 0 : load<std::uint32_t>(bytes, static_cast<std::size_t>(layout.version));
  d.size = load_at<std::uint32_t>(bytes, layout.size);
  d.timestamp = load_at<std::uint64_t>(bytes, layout.timestamp);
  d.pointer = load_at<std::uint64_t>(bytes, layout.pointer);
  return d;
}

std::string_view to_string(PayloadFormat f) {
  switch (f) {
    case PayloadFormat::kUnknown:
      return "unknown";
    case PayloadFormat::kP0:
      return "P0";
    case PayloadFormat::kP1:
      return "P1";
    case PayloadFormat::kP2:
      return "P2";
    case PayloadFormat::kP3:
      return "P3";
    case PayloadFormat::kP4:
      return "P4";
  }
  return "unknown";
}

std::string_view describe(PayloadFormat f) {
  switch (f) {
    case PayloadFormat::kUnknown:
      return "no known format";
    case PayloadFormat::kP0:
      return "16-bit version and counted strings, July 2025";
    case PayloadFormat::kP1:
      return "msgpack map, early September 2025";
    case PayloadFormat::kP2:
      return "protobuf with a map of strings, mid September to end of November 2025";
    case PayloadFormat::kP3:
      return "bare Resource, December 2025 to mid February 2026";
    case PayloadFormat::kP4:
      return "ProcessContext, since mid February 2026";
  }
  return "no known format";
}

PayloadFormat recognise_payload(std::span<const std::byte> bytes) {
  if (begins_as_p0(bytes)) return PayloadFormat::kP0;
  if (begins_as_p1(bytes)) return PayloadFormat::kP1;
  return recognise_protobuf(bytes);
}

Recognition recognise_header(const RecognitionInput& input) {
  if (has_signature(input.head, kFirstSignature)) return recognise_as(HeaderLayout::kH0, input);
  const auto version = load<std::uint32_t>(input.head, 8);
  if (!has_signature(input.head, kSignature)) {
    // Garbage does not have an empty signature.
    Recognition r;
    if (input.head.size() >= 8 && load<std::uint64_t>(input.head, 0) == 0 && version == kVersion &&
        (load<std::uint64_t>(input.head, 16) != 0 || load<std::uint32_t>(input.head, 12) != 0)) {
      r.best = HeaderLayout::kInProgressSignatureLast;
    }
    return r;
  }
  if (version == kDevelopmentVersion) return recognise_version_one(input);
  if (version != kVersion) return {};
  return recognise_by_score(input);
}

std::string_view describe(HeaderLayout layout) {
  switch (layout) {
    case HeaderLayout::kUnknown:
    case HeaderLayout::kH5:
      return {};
    case HeaderLayout::kH0:
      return "this looks like the experiment of July 2025: signature OTL-PROC, pointer at 8";
    case HeaderLayout::kH1:
      return "this looks like the draft of early September 2025: version 1, size at 12, pointer at "
             "16, no timestamp";
    case HeaderLayout::kH2:
      return "this looks like the draft of mid September to mid October 2025: size at 12, pointer "
             "at 16, no timestamp";
    case HeaderLayout::kH3:
      return "this looks like the draft of late October to early December 2025: timestamp at 12, "
             "size at 20";
    case HeaderLayout::kInProgressSignatureLast:
      return "this looks like a publication in progress by a protocol that stores the signature "
             "last, as before March 2026";
  }
  return {};
}

}  // namespace ctxconf::abi
