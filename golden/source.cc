#include "golden/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "golden/members.h"
#include "golden/values.h"
#include "golden/vector_members.h"

namespace ctxconf::golden {
namespace {

constexpr std::uint64_t kUsualAddress = 0x7f5e10000000;
constexpr std::uint64_t kUsualSize = 4096;
constexpr std::uint64_t kUsualTimestamp = 1'000'000'000'000;
constexpr std::uint64_t kUsualBoottime = 3'600'000'000'000;
constexpr std::string_view kFirstSignature = "OTL-PROC";  // H0
constexpr std::size_t kLargestRecord = std::size_t{128} << 10U;
constexpr std::size_t kLongestText = std::size_t{256} << 10U;
constexpr std::uint64_t kMostCopies = 65536;

// Header fields by the names in the layouts, and what a correct publication may have instead.
struct HeaderField {
  const char* member;  // in the source
  const char* name;    // in masks
  int offset;
  std::size_t length;
  std::uint64_t value;
  const char* rule;
};

void put_number(Bytes& out, std::uint64_t value, std::size_t at, std::size_t length, bool swapped) {
  // The vectors are for a little-endian machine, whatever this machine is.
  for (std::size_t i = 0; i < length; ++i) {
    const auto shift = 8U * (swapped ? length - 1 - i : i);
    out[at + i] = static_cast<char>((value >> shift) & 0xffU);
  }
}

bool is_big_endian(Members& members) {
  const std::string order = members.text("byte_order", "little");
  if (order != "little" && order != "big") members.wrong("byte_order", "must be little or big");
  return order == "big";
}

std::string signature_of(Members& header, abi::HeaderLayout layout) {
  std::string signature(layout == abi::HeaderLayout::kH0
                            ? kFirstSignature
                            : std::string_view(abi::kSignature.data(), abi::kSignature.size()));
  if (header.has("signature")) signature = header.text("signature");
  const bool ascii =
      std::ranges::all_of(signature, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (signature.size() != abi::kSignature.size() || !ascii) {
    header.wrong("signature", "must be 8 ASCII characters");
  }
  signature.resize(abi::kSignature.size());
  return signature;
}

// The header from its source; what the source omits becomes a mask.
void encode_header(Members& members, ProcessContextVector& v) {
  const auto& layout = abi::fields_of(v.layout);
  Members header = members.object("header");
  const bool big = is_big_endian(members);
  v.header = signature_of(header, v.layout);
  v.header.resize(layout.bytes, '\0');
  const HeaderField fields[] = {
      {"version", nullptr, layout.version, 4, v.layout == abi::HeaderLayout::kH1 ? 1U : 2U, ""},
      {"payload_size", "payload_size", layout.size, 4, v.payload.size(),
       "u32 == length of the encoded message"},
      {"timestamp", v.layout == abi::HeaderLayout::kH5 ? "monotonic_published_at_ns" : "timestamp",
       layout.timestamp, 8, kUsualTimestamp,
       v.layout == abi::HeaderLayout::kH5 ? "u64 != 0 && <= boottime at capture"
                                          : "u64 != 0 && <= wall clock at capture"},
      {"payload", "payload", layout.pointer, 8, v.payload_at,
       "u64 == address of payload_size readable bytes of the publisher"},
  };
  for (const HeaderField& f : fields) {
    if (f.offset < 0) continue;
    const auto at = static_cast<std::size_t>(f.offset);
    std::uint64_t value = f.value;
    if (header.has(f.member)) {
      value = std::string_view(f.member) == "payload"
                  ? header.address(f.member)
                  : header.number(f.member, f.length == 4 ? UINT32_MAX : UINT64_MAX);
    } else if (f.name != nullptr) {
      v.masks.push_back({at, f.length, f.name, f.rule});
    }
    put_number(v.header, value, at, f.length, big);
  }
  header.finish();
  const auto cut = members.number("cut", v.header.size(), v.header.size());
  v.header.resize(cut);
  std::erase_if(v.masks, [&](const Mask& m) { return m.offset + m.length > cut; });
  std::ranges::sort(v.masks, {}, &Mask::offset);
}

void encode(Members& members, const Vector& common, ProcessContextVector& v) {
  v.layout = header_layout_from(members);
  Members mapping = members.object("mapping");
  v.mapping_size = mapping.number("size", kLargestMapping, kUsualSize);
  v.mapping_address = mapping.has("address") ? mapping.address("address") : kUsualAddress;
  mapping.finish();
  v.payload = encode_payload(members.object("payload"));
  if (members.text("payload_at", "inline") == "inline") {
    const auto size = abi::fields_of(v.layout).bytes;
    if (size > UINT64_MAX - v.mapping_address) {
      members.wrong("mapping.address", "leaves no room for the header");
    }
    v.payload_at = v.mapping_address + size;
  } else {
    v.payload_at = members.address("payload_at");
  }
  encode_header(members, v);
  Members clock = members.object("clock");
  v.boottime_ns = clock.number("boottime_ns", UINT64_MAX, kUsualBoottime);
  clock.finish();
  v.expect = process_contents_from(members, common);
  if (members.ok()) check_memory(members, v);
}

// --- records

// Repeats as often as the member `name` says, or `fallback` times.
Bytes repeated(const Bytes& bytes, Members& members, const char* name, std::size_t limit,
               std::uint64_t fallback = 1) {
  const auto times = members.number(name, kMostCopies, fallback);
  if (!bytes.empty() && times > limit / bytes.size()) {
    members.wrong(name, fmt::format("makes more than {} bytes", limit));
    return {};
  }
  Bytes out;
  for (std::uint64_t i = 0; i < times; ++i) out += bytes;
  return out;
}

Bytes encode_entry(Members entry) {
  const auto key = entry.number("key", 255);
  if (entry.has("text") == entry.has("hex")) {
    entry.wrong("text", "needs either text or hex");
    return {};
  }
  const Bytes value = repeated(entry.has("text") ? entry.text("text") : entry.hex("hex"), entry,
                               "times", kLargestRecord);
  const auto length = entry.number("length", 255, std::min<std::uint64_t>(value.size(), 256));
  if (length > 255) entry.wrong("text", "is longer than 255 bytes and there is no length");
  Bytes out{static_cast<char>(key), static_cast<char>(length)};
  out += value;
  Bytes all = repeated(out, entry, "copies", kLargestRecord);
  entry.finish();
  return all;
}

std::string id_from(Members& members, const char* name, std::size_t bytes) {
  if (!members.has(name)) return std::string(bytes, '\0');
  Bytes id = members.hex(name);
  if (id.size() != bytes) members.wrong(name, fmt::format("must be {} hex digits", 2 * bytes));
  id.resize(bytes);
  return id;
}

Bytes encode_fields_of_record(Members& members) {
  Bytes entries;
  if (members.has("entries")) {
    const Json& list = *members.list("entries");
    for (std::size_t i = 0; i < list.size() && entries.size() < kLargestRecord; ++i) {
      entries += encode_entry(members.element("entries", list, i));
    }
  }
  Bytes out = id_from(members, "trace_id", 16) + id_from(members, "span_id", 8);
  out += static_cast<char>(members.number("valid", 255, abi::kRecordValid));
  out += static_cast<char>(members.number("flags", 255, 0));
  if (!members.has("attrs_data_size") && entries.size() > UINT16_MAX) {
    members.wrong("entries", "have more than 65535 bytes and there is no attrs_data_size");
  }
  const auto size = members.number("attrs_data_size", UINT16_MAX, entries.size());
  out.resize(sizeof(abi::ThreadRecordHead));
  put_number(out, size, offsetof(abi::ThreadRecordHead, attrs_data_size), 2, false);
  out += entries + members.hex("tail");
  const auto cut = members.number("cut", out.size(), out.size());
  out.resize(cut);
  return out;
}

void encode(Members& members, const Vector& common, ThreadRecordVector& v) {
  v.layout = record_layout_from(members);
  v.record = members.has("record") ? members.hex("record") : encode_fields_of_record(members);
  v.key_map = key_map_from(members);
  v.schema = members.text("schema", abi::kThreadSchemaVersions[0]);
  v.masks = masks_from(members, v.record.size());
  v.expect = record_contents_from(members, common);
}

// --- maps texts

std::string lines_of(Members line) {
  std::string one = line.text("text");
  const std::string then = line.text("then", "");
  one += repeated(then, line, "times", kLongestText, 0);
  std::string all = repeated(one + "\n", line, "copies", kLongestText);
  line.finish();
  return all;
}

void encode(Members& members, const Vector& common, MapsVector& v) {
  if (members.has("maps")) {
    v.maps = members.text("maps");
  } else {
    const Json& lines = *members.list("lines");
    for (std::size_t i = 0; i < lines.size(); ++i) {
      v.maps += lines[i].is_string() ? lines[i].get<std::string>() + "\n"
                                     : lines_of(members.element("lines", lines, i));
    }
    const Json* final_newline = members.take("final_newline");
    if (final_newline != nullptr && !final_newline->is_boolean()) {
      members.wrong("final_newline", "must be true or false");
    } else if (final_newline != nullptr && !final_newline->get<bool>() && !v.maps.empty()) {
      v.maps.pop_back();
    }
  }
  v.expect = maps_contents_from(members, common);
}

Vector vector_from(Members members, Kind kind) {
  Vector v;
  v.kind = kind;
  read_common(members, v);
  if (kind == Kind::kProcessContext) encode(members, v, v.process_context);
  if (kind == Kind::kThreadRecord) encode(members, v, v.thread_record);
  if (kind == Kind::kMaps) encode(members, v, v.maps);
  members.finish();
  return v;
}

// The position at which two encodings first differ, with some bytes of both.
std::string difference(std::string_view ours, std::string_view theirs) {
  const auto at = static_cast<std::size_t>(std::ranges::mismatch(ours, theirs).in1 - ours.begin());
  const auto piece = [&](std::string_view text) {
    return at >= text.size() ? "(end)" : std::string(text.substr(at, 16));
  };
  return fmt::format("differ at character {} of {} and {}: ours {}, theirs {}", at, ours.size(),
                     theirs.size(), piece(ours), piece(theirs));
}

std::vector<std::pair<const char*, std::string>> encodings_of(const Vector& v) {
  switch (v.kind) {
    case Kind::kProcessContext:
      return {{"header", hex_of(v.process_context.header)},
              {"payload", hex_of(v.process_context.payload)}};
    case Kind::kThreadRecord:
      return {{"record", hex_of(v.thread_record.record)}};
    case Kind::kMaps:
      return {{"maps", v.maps.maps}};
  }
  return {};
}

}  // namespace

std::filesystem::path source_file_of(Kind kind) {
  switch (kind) {
    case Kind::kProcessContext:
      return "src/process-contexts.json";
    case Kind::kThreadRecord:
      return "src/thread-records.json";
    case Kind::kMaps:
      return "src/maps.json";
  }
  return {};
}

std::expected<std::vector<Vector>, std::string> encode_source(std::string_view json,
                                                              std::string_view file, Kind kind) {
  const auto fail = [&](const std::string& what) {
    return std::unexpected(fmt::format("{}: {} (docs/golden.md has the format)", file, what));
  };
  const auto parsed = parse_json(json);
  if (!parsed) return fail(parsed.error());
  std::string error;
  Members members(*parsed, "", error);
  check_kind(members, kind);
  const Json& list = *members.list("vectors");
  members.finish();
  if (list.empty()) members.wrong("vectors", "is empty");
  std::vector<Vector> out;
  std::set<std::string> ids;
  for (std::size_t i = 0; i < list.size() && error.empty(); ++i) {
    out.push_back(vector_from(members.element("vectors", list, i), kind));
    if (!error.empty()) {
      error = fmt::format("{}: {}", out.back().id, error);
    } else if (!ids.insert(out.back().id).second) {
      error = out.back().id + ": appears twice; ids are unique and permanent";
    }
  }
  if (!error.empty()) return fail(error);
  return out;
}

std::expected<void, std::string> compare_encodings(const std::vector<Vector>& ours,
                                                   std::string_view theirs_json) {
  const auto theirs = parse_json(theirs_json);
  if (!theirs) return std::unexpected("the second encoder's output " + theirs.error());
  if (!theirs->is_object() || theirs->size() != ours.size()) {
    return std::unexpected(fmt::format("the second encoder made {} vectors of {}",
                                       theirs->is_object() ? theirs->size() : 0, ours.size()));
  }
  for (const Vector& v : ours) {
    const auto found = theirs->find(v.id);
    if (found == theirs->end())
      return std::unexpected(v.id + ": the second encoder did not make it");
    for (const auto& [name, text] : encodings_of(v)) {
      const auto member = found->is_object() ? found->find(name) : found->end();
      if (!found->is_object() || member == found->end() || !member->is_string()) {
        return std::unexpected(fmt::format("{}: the second encoder gave no {}", v.id, name));
      }
      const auto& said = member->get_ref<const std::string&>();
      if (said != text) {
        return std::unexpected(
            fmt::format("{}: the encodings of {} {}", v.id, name, difference(text, said)));
      }
    }
  }
  return {};
}

}  // namespace ctxconf::golden
