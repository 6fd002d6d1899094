#include "conformance/testees/driven_thread/record.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "conformance/testees/writer/memory.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {

using adapter::refuse;

namespace {

constexpr Choice kBadRecord[] = {
    {"tctx.record.trace-id", "reverses trace ids"},
    {"tctx.record.trace-id:short", "puts trace ids of 64 bits into the first half"},
    {"tctx.record.span-id", "reverses span ids"},
    {"tctx.record.ids-zero-when-none", "keeps the ids of the last record where there is no trace"},
    {"tctx.record.ids-zero-when-none:own",
     "makes ids for a context without a trace, and its reply does not name them"},
    {"tctx.record.trace-flags", "stores no flags"},
    {"tctx.record.trace-flags:random", "clears the random flag"},
    {"tctx.record.trace-flags:higher", "clears the highest flag"},
    {"tctx.record.trace-flags:added", "sets the highest flag"},
    {"tctx.record.trace-flags:restored",
     "sets the sampled flag when an outer context is there again"},
    {"tctx.attrs.length-not-wrapped", "writes a byte of the length and the whole value"},
    {"tctx.attrs.utf8", "cuts values at 255 bytes"},
    {"tctx.attrs.utf8:at-the-end", "cuts values at the end of the record"},
    {"tctx.attrs.non-strings-as-text", "writes the bytes of integers"},
    {"tctx.attrs.non-strings-as-text:another", "writes another integer"},
    {"tctx.attrs.non-strings-as-text:placeholder",
     "writes the kind of a value that is not a string"},
    {"tctx.attrs.last-occurrence-wins", "puts a repeated entry in front"},
    {"tctx.attach.matches-context:same-length", "changes the letters of values"},
    {"tctx.attach.matches-context:exchanged", "exchanges two values"},
    {"tctx.attach.matches-context:last-byte", "leaves out the last byte of values"},
    {"tctx.attach.matches-context:prefix", "keeps four bytes of values"},
    {"tctx.attach.matches-context:unwritten", "writes no attributes"},
    {"tctx.attach.matches-context:lower-case", "writes names in lower case"},
    {"tctx.attach.matches-context:dots", "writes dots in names as underscores"},
    {"tctx.attach.matches-context:long-names", "keeps twenty bytes of names"},
    {"tctx.attach.matches-context:nul", "cuts values at a NUL"},
    {"tctx.attach.matches-context:wide", "replaces characters beyond U+FFFF"},
    {"tctx.attach.matches-context:lines", "replaces the ends of lines"},
    {"tctx.attach.matches-context:percent", "replaces percent signs"},
};

constexpr Choice kGoodRecord[] = {
    {"higher-flags-cleared", "clears all flags but two"},
    {"no-random-flag", "knows one flag, which it declares"},
    {"cut-at-its-limit", "cuts values at a limit that it declares"},
    {"long-values-left-out", "leaves out values that are too long"},
    {"nul-left-out", "leaves out values with a NUL"},
    {"other-types-left-out", "leaves out values that are not strings"},
    {"strings-only", "refuses values that are not strings"},
    {"rewritten", "writes a new record to append"},
    {"attribute-of-its-own", "adds its own attribute"},
    {"not-configured", "takes one key, which it declares"},
};

}  // namespace

const Choices kRecordChoices{kBadRecord, kGoodRecord};

bool uses_valid_byte() {
  return is_good("valid-byte") || is_good("record-from-the-start") ||
         is_bad("tctx.tls.per-thread") || is_bad("tctx.attach.fixed-record-pointer");
}

char* new_record() {
  if (is_bad("tctx.exit.no-dangling")) return map_anonymous(kRecordBytes);
  auto* record = static_cast<char*>(aligned_alloc(64, kRecordBytes));
  if (record == nullptr) die("aligned_alloc");
  memset(record, 0, kRecordBytes);
  return record;
}

Bytes bytes_of_hex(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    const char* const end = hex.data() + i + 2;
    if (std::from_chars(hex.data() + i, end, value, 16).ptr != end) {
      throw std::invalid_argument("not hexadecimal: '" + hex + "'");
    }
    out.push_back(static_cast<char>(value));
  }
  return out;
}

std::string hex_of(const Bytes& bytes) {
  std::string out;
  for (const char c : bytes) {
    for (const int shift : {4, 0})
      out += "0123456789abcdef"[static_cast<unsigned char>(c) >> shift & 15];
  }
  return out;
}

bool Content::add(Bytes e) {
  const std::size_t room = kRecordBytes - kHead - size();
  if (e.size() > room && room > 2 && is_bad("tctx.attrs.utf8:at-the-end")) {
    e.resize(room);
    e[1] = static_cast<char>(room - 2);
  }
  if (e.size() > room) return false;
  entries.push_back(std::move(e));
  return true;
}

void fill(char* record, const Content& c, bool restored) {
  Bytes trace = c.trace;
  Bytes span = c.span;
  if (is_bad("tctx.record.trace-id")) std::ranges::reverse(trace);
  if (is_bad("tctx.record.span-id")) std::ranges::reverse(span);
  if (is_bad("tctx.record.trace-id:short") && c.traced && trace.starts_with(Bytes(8, '\0'))) {
    std::ranges::rotate(trace, trace.begin() + 8);
  }
  if (is_bad("tctx.record.ids-zero-when-none:own") && !c.traced) {
    trace.assign(16, '\x5a');
    span.assign(8, '\x5b');
  }
  unsigned flags = c.flags;
  if (is_bad("tctx.record.trace-flags")) flags = 0;
  if (is_bad("tctx.record.trace-flags:random")) flags &= ~2U;
  if (is_bad("tctx.record.trace-flags:higher")) flags &= 0x7fU;
  if (is_bad("tctx.record.trace-flags:added") && c.traced) flags |= 0x80U;
  if (is_bad("tctx.record.trace-flags:restored") && restored) flags |= 1U;
  if (is_good("higher-flags-cleared")) flags &= 3;
  if (is_good("no-random-flag")) flags &= 1;
  const bool keeps_ids = is_bad("tctx.record.ids-zero-when-none") && !c.traced;
  if (!keeps_ids) {
    trace.copy(record, trace.size());
    span.copy(record + kSpanAt, span.size());
    record[kFlagsAt] = static_cast<char>(flags);
  }
  std::size_t at = kHead;
  for (const auto& e : c.entries) at += e.copy(record + at, e.size());
  store<std::uint16_t>(record + kAttributesSizeAt, static_cast<std::uint16_t>(at - kHead));
}

namespace {

Bytes changed(Bytes value) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (is_bad("tctx.attach.matches-context:same-length")) {
    for (char& c : value) c = is_ascii(c) && c > ' ' && c < '~' ? static_cast<char>(c + 1) : c;
  }
  if (is_bad("tctx.attach.matches-context:last-byte") && value.size() < kLongestValue &&
      is_ascii(value.back())) {
    value.pop_back();
  }
  constexpr std::size_t kSome = 4;
  if (is_bad("tctx.attach.matches-context:prefix") && value.size() > kSome) {
    value.resize(cut(value, kSome));
  }
  if (is_bad("tctx.attach.matches-context:nul")) value = value.substr(0, value.find('\0'));
  for (char& c : value) {
    const bool wide = static_cast<unsigned char>(c) >= 0xf0;
    if (wide && is_bad("tctx.attach.matches-context:wide")) return "?";
    if ((c == '\r' || c == '\n') && is_bad("tctx.attach.matches-context:lines")) c = ' ';
    if (c == '%' && is_bad("tctx.attach.matches-context:percent")) c = '_';
  }
  return value;
}

}  // namespace

std::string changed_name(std::string name) {
  constexpr std::size_t kSome = 20;
  if (name.size() > kSome && is_bad("tctx.attach.matches-context:long-names")) name.resize(kSome);
  for (char& c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper && is_bad("tctx.attach.matches-context:lower-case")) {
      c = static_cast<char>(c - 'A' + 'a');
    }
    if (c == '.' && is_bad("tctx.attach.matches-context:dots")) c = '_';
  }
  return name;
}

std::size_t cut(const Bytes& value, std::size_t most) {
  std::size_t size = most;
  while (size > 0 && (static_cast<unsigned char>(value[size]) & 0xc0) == 0x80) --size;
  return size;
}

std::expected<std::optional<Bytes>, Refusal> value_of(const json& value) {
  if (value.contains("stringValue")) {
    auto text = value["stringValue"].get<std::string>();
    if (is_good("nul-left-out") && text.contains('\0')) return std::nullopt;
    return changed(std::move(text));
  }
  if (is_good("strings-only")) return refuse("rejected", "strings only");
  if (is_good("other-types-left-out")) return std::nullopt;
  if (value.contains("intValue") && is_bad("tctx.attrs.non-strings-as-text")) {
    const auto number = value["intValue"].get<std::int64_t>();
    return Bytes(reinterpret_cast<const char*>(&number), sizeof number);
  }
  if (value.contains("intValue") && is_bad("tctx.attrs.non-strings-as-text:another")) {
    return std::to_string(value["intValue"].get<std::int64_t>() + 1);
  }
  for (const char* const kind : {"boolValue", "intValue", "doubleValue"}) {
    if (!value.contains(kind)) continue;
    const bool names_kind = is_bad("tctx.attrs.non-strings-as-text:placeholder");
    return names_kind ? "<" + std::string(kind) + ">" : value[kind].dump();
  }
  return std::nullopt;
}

void drop_repeated(std::vector<Bytes>& entries) {
  for (std::size_t i = entries.size(); i-- > 0;) {
    const auto repeats = [&](const Bytes& later) { return later[0] == entries[i][0]; };
    if (std::any_of(entries.begin() + static_cast<std::ptrdiff_t>(i) + 1, entries.end(), repeats)) {
      entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

}  // namespace ctxconf::testees
