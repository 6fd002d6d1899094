#include "conformance/testees/reader/record.h"

#include <endian.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "conformance/testees/reader/text.h"

namespace ctxconf::testees {
namespace {

constexpr Choice kBadRecord[] = {
    {"tctx.reader.record-layout", "takes the length of an entry for a signed number"},
    {"tctx.reader.header-read-28", "reads 640 bytes, and gives up on a failure"},
    {"tctx.reader.attrs-read-when-needed",
     "reads attributes before the valid byte, and reports errors"},
    {"tctx.reader.attrs-read-when-needed:more",
     "reads 65535 bytes whatever the size, if they are there"},
    {"tctx.reader.valid-other-values", "takes any value but zero for valid"},
    {"tctx.reader.valid-other-values:bit", "looks at the lowest bit of the valid byte"},
    {"tctx.reader.trace-flags", "reports each trace as sampled"},
    {"tctx.reader.trace-flags:never", "reports no flags and says that it shows them"},
    {"tctx.reader.trace-flags:known", "reports the lowest bit of the flags alone"},
    {"tctx.reader.zero-ids-no-link", "reports the trace of all zeros"},
    {"tctx.reader.zero-ids-keep-attributes", "drops a record without ids"},
    {"tctx.reader.half-ids", "reports a trace with a span id of zeros"},
    {"tctx.reader.half-ids:trace", "reports a span with a trace id of zeros"},
    {"tctx.reader.stop-at-short-entry", "takes the length of an entry as it is"},
    {"tctx.reader.stop-at-short-entry:rest", "takes the rest for the value of a cut entry"},
    {"tctx.reader.stop-at-short-entry:index", "takes a last index for an empty value"},
    {"tctx.reader.keep-before-short-entry", "drops a record whose last entry is cut"},
    {"tctx.reader.keep-before-short-entry:attributes", "drops all attributes if the last is cut"},
    {"tctx.reader.last-occurrence-wins", "keeps the first entry of an index"},
    {"tctx.reader.last-occurrence-wins:joins", "joins the values of an index"},
    {"tctx.reader.last-occurrence-odd", "aborts if the last entry of an index is empty"},
    {"tctx.reader.unknown-index-ignored", "invents a name for an unknown index"},
    {"tctx.reader.unknown-index-ignored:rest", "stops at an unknown index"},
    {"tctx.reader.unknown-index-ignored:wraps",
     "takes an unknown index modulo the size of the map"},
    {"tctx.reader.zero-length-value", "takes an empty value for the end"},
    {"tctx.reader.bytes-beyond-size", "continues after the size until it meets a zero"},
    {"tctx.reader.large-record-survives", "copies into 640 bytes without a check"},
    {"tctx.reader.large-record-ids", "ignores records of more than 640 bytes"},
    {"tctx.reader.bad-utf8", "aborts at a value that is not UTF-8"},
    {"tctx.reader.bad-utf8:all", "drops all attributes for a value that is not UTF-8"},
    {"tctx.reader.byte-order", "takes the size for a little-endian number"},
};

constexpr Choice kGoodRecord[] = {
    {"reads-640-first", "reads 640 bytes first, and 28 where these are not there"},
    {"no-flags", "declares that it shows no flags"},
    {"drops-half-ids", "drops a record with one of two ids"},
    {"keeps-older-value", "keeps the older value of an index when the last is empty"},
    {"drops-empty-values", "leaves out attributes whose last value is empty"},
    {"small-records", "leaves out the attributes of records above 640 bytes, and declares it"},
    {"ids-without-attributes", "uses the ids of a record whose attributes cannot be read"},
    {"drops-bad-text", "leaves out values that are not UTF-8"},
    {"replaces-bad-text", "replaces bytes that are not UTF-8"},
};

constexpr std::size_t kUsualSize = 640;
constexpr std::size_t kMostAttributes = 65535;
constexpr std::size_t kSpanAt = 16;
constexpr std::size_t kValidAt = 24;
constexpr std::size_t kFlagsAt = 25;
constexpr std::size_t kSizeAtInRecord = 26;

}  // namespace

const Choices kRecordChoices{kBadRecord, kGoodRecord};

namespace {

using Bytes = std::vector<std::uint8_t>;

std::size_t size_of(const RecordCopy& copy) {
  std::uint16_t out = 0;
  std::memcpy(&out, &copy.fixed[kSizeAtInRecord], sizeof out);
  return is_bad("tctx.reader.byte-order") ? le16toh(out) : out;
}

bool is_valid(std::uint8_t byte) {
  if (is_bad("tctx.reader.valid-other-values")) return byte != 0;
  if (is_bad("tctx.reader.valid-other-values:bit")) return (byte & 1U) != 0;
  return byte == 1;
}

// Copies as many bytes as there are.
Bytes copy_while_readable(const CopyBytes& copy, std::size_t offset, std::size_t most) {
  Bytes out;
  for (std::size_t part = 4096; part > 0 && out.size() < most;) {
    Bytes more(std::min(part, most - out.size()));
    if (copy(offset + out.size(), more.data(), more.size())) {
      out.insert(out.end(), more.begin(), more.end());
    } else {
      part = more.size() / 2;  // to the last byte before the end of the memory
    }
  }
  return out;
}

struct Entry {
  unsigned index = 0;
  std::string value;
};

struct Entries {
  std::vector<Entry> list;
  bool is_cut = false;
};

Entries entries_of(const RecordCopy& copy) {
  Entries out;
  const Bytes& area = copy.attributes;
  const std::size_t size = std::min(size_of(copy), area.size());
  std::size_t at = 0;
  const auto text = [&](std::size_t from, std::size_t length) {
    return std::string(area.begin() + static_cast<std::ptrdiff_t>(from),
                       area.begin() + static_cast<std::ptrdiff_t>(from + length));
  };
  while (at < size) {
    const unsigned index = area[at];
    const std::size_t left = size - at - 1;
    if (left == 0) {
      out.is_cut = true;
      if (is_bad("tctx.reader.stop-at-short-entry:index")) out.list.push_back({index, ""});
      return out;
    }
    const std::size_t length = area[at + 1];
    if (length > INT8_MAX && is_bad("tctx.reader.record-layout")) return out;
    if (length == 0 && is_bad("tctx.reader.zero-length-value")) return out;
    if (length > left - 1) {
      out.is_cut = true;
      auto rest = text(at + 2, left - 1);
      if (is_bad("tctx.reader.stop-at-short-entry:rest")) out.list.push_back({index, rest});
      // What is in the reader's buffer after the copy.
      if (is_bad("tctx.reader.stop-at-short-entry")) {
        rest.resize(length, '?');
        out.list.push_back({index, rest});
      }
      return out;
    }
    out.list.push_back({index, text(at + 2, length)});
    at += 2 + length;
  }
  if (!is_bad("tctx.reader.bytes-beyond-size")) return out;
  while (at + 2 <= area.size() && area[at + 1] != 0 && at + 2 + area[at + 1] <= area.size()) {
    out.list.push_back({area[at], text(at + 2, area[at + 1])});
    at += std::size_t{2} + area[at + 1];
  }
  return out;
}

// The values that count, by index.
std::map<unsigned, std::string> values_of(const std::vector<Entry>& entries) {
  std::map<unsigned, std::string> out;
  for (const auto& [index, value] : entries) {
    const auto [at, is_new] = out.try_emplace(index, value);
    if (is_new || is_bad("tctx.reader.last-occurrence-wins")) continue;
    if (value.empty() && is_bad("tctx.reader.last-occurrence-odd")) abort();
    if (value.empty() && is_good("keeps-older-value")) continue;
    at->second = (is_bad("tctx.reader.last-occurrence-wins:joins") ? at->second : "") + value;
  }
  if (is_good("drops-empty-values")) {
    std::erase_if(out, [](const auto& pair) { return pair.second.empty(); });
  }
  return out;
}

std::string replaced(std::string text) {
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }, '?');
  return text;
}

void name_values(const std::vector<Entry>& entries, const KeyMap& names, Record& out) {
  const auto is_known = [&](const Entry& e) { return e.index < names.size(); };
  const bool stops = is_bad("tctx.reader.unknown-index-ignored:rest");
  const auto end = stops ? std::ranges::find_if_not(entries, is_known) : entries.end();
  out.has_unknown = !std::ranges::all_of(entries, is_known);
  for (auto& [number, value] : values_of({entries.begin(), end})) {
    std::size_t index = number;
    if (!names.empty() && is_bad("tctx.reader.unknown-index-ignored:wraps")) index %= names.size();
    std::optional<std::string> name;
    if (index < names.size()) {
      name = names[index];
    } else {
      if (is_bad("tctx.reader.unknown-index-ignored")) name = "key_" + std::to_string(index);
    }
    if (!name) continue;
    if (!is_utf8(value)) {
      if (is_bad("tctx.reader.bad-utf8")) abort();
      if (is_bad("tctx.reader.bad-utf8:all")) {
        out.attributes.clear();
        return;
      }
      if (is_good("drops-bad-text")) continue;
      if (is_good("replaces-bad-text")) value = replaced(value);
    }
    out.attributes[*name] = value;
  }
}

void link(const RecordCopy& copy, Record& out) {
  const auto& fixed = copy.fixed;
  const auto is_zero = [](std::uint8_t byte) { return byte == 0; };
  const bool no_trace = std::all_of(fixed.begin(), fixed.begin() + kSpanAt, is_zero);
  const bool no_span = std::all_of(fixed.begin() + kSpanAt, fixed.begin() + kValidAt, is_zero);
  out.is_dropped = (no_trace && no_span && is_bad("tctx.reader.zero-ids-keep-attributes")) ||
                   (no_trace != no_span && is_good("drops-half-ids"));
  bool links = !no_trace && !no_span;
  if (no_trace && no_span) links = is_bad("tctx.reader.zero-ids-no-link");
  if (!no_trace && no_span) links = is_bad("tctx.reader.half-ids");
  if (no_trace && !no_span) links = is_bad("tctx.reader.half-ids:trace");
  if (!links) return;
  const std::string_view ids(reinterpret_cast<const char*>(fixed.data()), kValidAt);
  out.trace_id = hex(ids.substr(0, kSpanAt));
  out.span_id = hex(ids.substr(kSpanAt));
  out.flags = fixed[kFlagsAt];
  if (is_bad("tctx.reader.trace-flags")) out.flags = 1;
  if (is_bad("tctx.reader.trace-flags:never")) out.flags = 0;
  if (is_bad("tctx.reader.trace-flags:known")) out.flags &= 1U;
}

bool copy_fixed(const CopyBytes& copy, RecordCopy& out, Bytes& more) {
  const bool all = is_bad("tctx.reader.header-read-28");
  if (all || is_good("reads-640-first")) {
    Bytes whole(kUsualSize);
    if (copy(0, whole.data(), whole.size())) {
      std::copy_n(whole.begin(), kFixedSize, out.fixed.begin());
      more.assign(whole.begin() + kFixedSize, whole.end());
      return true;
    }
    if (all) return false;
  }
  return copy(0, out.fixed.data(), kFixedSize);
}

}  // namespace

CopyState copy_record(const CopyBytes& copy, RecordCopy& out) {
  Bytes more;
  if (!copy_fixed(copy, out, more)) return CopyState::kUnreadable;
  const std::size_t size = size_of(out);
  const bool attributes_first = is_bad("tctx.reader.attrs-read-when-needed");
  const auto copy_attributes = [&] {
    out.attributes.resize(size);
    return size == 0 || copy(kFixedSize, out.attributes.data(), size);
  };
  if (attributes_first && !copy_attributes()) return CopyState::kFailed;
  if (!is_valid(out.fixed[kValidAt])) return CopyState::kNotValid;
  if (kFixedSize + size > kUsualSize) {
    if (is_bad("tctx.reader.large-record-survives")) abort();  // as a stack protector does
    if (is_bad("tctx.reader.large-record-ids")) return CopyState::kNotValid;
    if (is_good("small-records")) return CopyState::kValid;
  }
  if (is_bad("tctx.reader.bytes-beyond-size") ||
      is_bad("tctx.reader.attrs-read-when-needed:more")) {
    const bool most = !is_bad("tctx.reader.bytes-beyond-size");
    out.attributes = copy_while_readable(copy, kFixedSize, most ? kMostAttributes : kUsualSize);
  } else if (more.size() >= size) {
    out.attributes.assign(more.begin(), more.begin() + static_cast<std::ptrdiff_t>(size));
  } else if (!attributes_first && !copy_attributes()) {
    out.attributes.clear();
    return is_good("ids-without-attributes") ? CopyState::kValid : CopyState::kUnreadable;
  }
  return CopyState::kValid;
}

Record parse_record(const RecordCopy& copy, const KeyMap& names) {
  Record out;
  link(copy, out);
  const Entries entries = entries_of(copy);
  if (entries.is_cut) {
    if (is_bad("tctx.reader.keep-before-short-entry")) out.is_dropped = true;
    if (is_bad("tctx.reader.keep-before-short-entry:attributes")) return out;
  }
  name_values(entries.list, names, out);
  return out;
}

}  // namespace ctxconf::testees
