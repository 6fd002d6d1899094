#include "golden/hexdump.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "abi/thread_record.h"

namespace ctxconf::golden {
namespace {

constexpr std::size_t kBytesALine = 16;
constexpr std::size_t kMostQuoted = 48;
constexpr std::size_t kDeepestMessage = 32;

std::string quote(std::string_view bytes) {
  std::string out = "\"";
  for (const char c : bytes.substr(0, kMostQuoted)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
  if (bytes.size() > kMostQuoted) out += fmt::format("... ({} bytes)", bytes.size());
  return out;
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size() && i < 8; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

std::string digits(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return out;
}

// Adds fields one after the other; omits those that begin after the end of the bytes.
class Fields {
 public:
  Fields(std::string_view bytes, const std::vector<Mask>& masks) : bytes_(bytes), masks_(masks) {}

  std::string_view bytes(std::size_t offset, std::size_t length) const {
    return offset >= bytes_.size() ? std::string_view() : bytes_.substr(offset, length);
  }
  // Whether the field ends before its length.
  bool is_cut(std::size_t offset, std::size_t length) const {
    return length > bytes_.size() || offset > bytes_.size() - length;
  }

  void add(std::size_t offset, std::size_t length, std::string text, std::size_t depth = 0) {
    const std::string_view seen = bytes(offset, length);
    if (seen.empty()) return;
    if (seen.size() < length) text += fmt::format(" (only {} of {} bytes)", seen.size(), length);
    out.push_back({offset, seen.size(), std::move(text), false, depth});
    for (const Mask& m : masks_) {
      if (m.offset != offset || m.length != length) continue;
      out.back().masked = true;
      out.back().text = m.name + ": " + m.rule;
    }
  }

  std::vector<Annotation> out;

 private:
  std::string_view bytes_;
  const std::vector<Mask>& masks_;
};

// --- payloads: the fields of each message

enum class Shape {
  kContext,
  kResource,
  kPair,
  kValue,
  kArray,
  kList,
  kText,
  kBytes,
  kNumber,
  kBool,
  kDouble
};
struct KnownField {
  Shape in;
  std::uint64_t number;
  Shape shape;
  const char* name;
};
constexpr KnownField kKnownFields[] = {
    {Shape::kContext, 1, Shape::kResource, "resource"},
    {Shape::kContext, 2, Shape::kPair, "attributes"},
    {Shape::kResource, 1, Shape::kPair, "attributes"},
    {Shape::kResource, 2, Shape::kNumber, "dropped_attributes_count"},
    {Shape::kPair, 1, Shape::kText, "key"},
    {Shape::kPair, 2, Shape::kValue, "value"},
    {Shape::kPair, 3, Shape::kNumber, "key_strindex"},
    {Shape::kValue, 1, Shape::kText, "string_value"},
    {Shape::kValue, 2, Shape::kBool, "bool_value"},
    {Shape::kValue, 3, Shape::kNumber, "int_value"},
    {Shape::kValue, 4, Shape::kDouble, "double_value"},
    {Shape::kValue, 5, Shape::kArray, "array_value"},
    {Shape::kValue, 6, Shape::kList, "kvlist_value"},
    {Shape::kValue, 7, Shape::kBytes, "bytes_value"},
    {Shape::kValue, 8, Shape::kNumber, "string_value_strindex"},
    {Shape::kArray, 1, Shape::kValue, "values"},
    {Shape::kList, 1, Shape::kPair, "values"},
};

bool is_message(Shape shape) { return shape < Shape::kText; }

std::uint32_t wire_type_of(Shape shape) {
  if (shape == Shape::kNumber || shape == Shape::kBool) return 0;
  return shape == Shape::kDouble ? 1 : 2;
}

class PayloadAnnotator {
 public:
  explicit PayloadAnnotator(std::string_view payload)
      : payload_(payload), fields_(payload, none_) {}

  std::vector<Annotation> run() {
    if (!message(Shape::kContext, 0, payload_.size(), 0) || at_ < payload_.size()) {
      fields_.add(at_, payload_.size() - at_, "not a field of the message");
    }
    return std::move(fields_.out);
  }

 private:
  std::optional<std::uint64_t> varint(std::size_t& at, std::size_t end) const {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 10 && at < end; ++i) {
      const auto byte = static_cast<unsigned char>(payload_[at++]);
      value |= std::uint64_t{byte & 0x7fU} << (7 * i);
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  // Adds fields up to `end`; false at bytes that are not a field, with `at_` at the tag.
  bool message(Shape shape, std::size_t begin, std::size_t end, std::size_t depth) {
    at_ = begin;
    while (at_ < end) {
      if (!field(shape, end, depth)) return false;
    }
    return true;
  }

  bool field(Shape in, std::size_t end, std::size_t depth) {
    const std::size_t begin = at_;
    std::size_t at = begin;
    const auto tag = varint(at, end);
    if (!tag || *tag >> 3U == 0) return false;
    const auto wire = static_cast<std::uint32_t>(*tag & 7U);
    const auto* known = std::ranges::find_if(kKnownFields, [&](const KnownField& k) {
      return k.in == in && k.number == *tag >> 3U && wire_type_of(k.shape) == wire;
    });
    const bool is_known = known != std::end(kKnownFields);
    const std::string name =
        is_known ? known->name : fmt::format("field {}, wire type {}", *tag >> 3U, wire);
    std::string text;
    std::size_t after = at;
    if (wire == 0) {
      const auto value = varint(after, end);
      if (!value) return false;
      text = is_known && known->shape == Shape::kBool
                 ? (*value != 0 ? "true" : "false")
                 : fmt::format("{}", static_cast<std::int64_t>(*value));
    } else if (wire == 1 || wire == 5) {
      const std::size_t length = wire == 1 ? 8 : 4;
      if (end - at < length) return false;
      after = at + length;
      const auto value = little_endian(payload_.substr(at, length));
      text =
          is_known ? fmt::format("{}", std::bit_cast<double>(value)) : fmt::format("{:#x}", value);
    } else if (wire == 2) {
      const auto length = varint(at, end);
      if (!length || *length > end - at) return false;
      after = at + *length;
      if (is_known && is_message(known->shape) && depth < kDeepestMessage) {
        fields_.add(begin, at - begin, fmt::format("{}, {} bytes", name, *length), depth);
        return message(known->shape, at, after, depth + 1);
      }
      text = is_known && known->shape == Shape::kBytes ? fmt::format("{} bytes", *length)
                                                       : quote(payload_.substr(at, *length));
    } else {
      return false;  // groups: no message here has them
    }
    fields_.add(begin, after - begin, fmt::format("{} = {}", name, text), depth);
    at_ = after;
    return true;
  }

  std::string_view payload_;
  std::vector<Mask> none_;
  Fields fields_;
  std::size_t at_ = 0;
};

// --- lines

constexpr std::size_t kHexWidth = 3 * kBytesALine - 1;

std::string hex_line(std::string_view bytes, bool masked) {
  std::string out;
  for (const char c : bytes) {
    if (!out.empty()) out += ' ';
    out += masked ? std::string("..") : fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string with_text(std::string line, const std::string& text, std::size_t depth) {
  constexpr std::size_t kOffsetWidth = 8;
  line.resize(kOffsetWidth + kHexWidth + 2 + 2 * depth, ' ');
  return line + text;
}

void add_field(std::vector<std::string>& out, std::string_view bytes, const Annotation& a) {
  const std::string_view field = bytes.substr(a.offset, a.length);
  const std::size_t lines = (field.size() + kBytesALine - 1) / kBytesALine;
  const std::size_t shown = lines > kMostFieldLines ? kMostFieldLines - 1 : lines;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t at = i * kBytesALine;
    std::string line =
        fmt::format("{:06x}  {}", a.offset + at, hex_line(field.substr(at, kBytesALine), a.masked));
    out.push_back(i == 0 ? with_text(std::move(line), a.text, a.depth) : std::move(line));
  }
  if (shown < lines) {
    const std::size_t more = field.size() - shown * kBytesALine;
    out.push_back(fmt::format("        {} more byte{}", more, more == 1 ? "" : "s"));
  }
}

bool is_same(std::string_view bytes, const Annotation& a, const Annotation& b) {
  return a.text == b.text && a.depth == b.depth && a.masked == b.masked &&
         bytes.substr(a.offset, a.length) == bytes.substr(b.offset, b.length);
}

void add_repeats(std::vector<std::string>& out, std::size_t repeats) {
  if (repeats == 0) return;
  out.push_back(fmt::format("        the same {} more time{}", repeats, repeats == 1 ? "" : "s"));
}

void add_dump(std::string& out, const std::string& title, std::string_view bytes,
              const std::vector<Annotation>& annotations) {
  out += title + "\n";
  for (const auto& line : dump_lines(bytes, annotations)) out += line + "\n";
}

std::string results_text(const Vector& v) {
  std::string out;
  for (const Result r : v.results) out += (out.empty() ? "" : " or ") + std::string(to_string(r));
  return out;
}

}  // namespace

std::vector<Annotation> annotate_header(abi::HeaderLayout layout, std::string_view header,
                                        const std::vector<Mask>& masks) {
  const auto& l = abi::fields_of(layout);
  Fields fields(header, masks);
  fields.add(0, 8, "signature = " + quote(fields.bytes(0, 8)));
  struct Number {
    const char* name;
    int offset;
    std::size_t length;
  };
  Number numbers[] = {{"version", l.version, 4},
                      {"payload_size", l.size, 4},
                      {layout == abi::HeaderLayout::kH5 ? "monotonic_published_at_ns" : "timestamp",
                       l.timestamp, 8},
                      {"payload", l.pointer, 8}};
  std::ranges::sort(numbers, {}, &Number::offset);
  for (const Number& n : numbers) {
    if (n.offset < 0) continue;
    const auto at = static_cast<std::size_t>(n.offset);
    const auto value = little_endian(fields.bytes(at, n.length));
    fields.add(at, n.length,
               n.offset == l.pointer ? fmt::format("{} = {:#x}", n.name, value)
                                     : fmt::format("{} = {}", n.name, value));
  }
  if (header.size() > l.bytes) fields.add(l.bytes, header.size() - l.bytes, "after the header");
  return std::move(fields.out);
}

std::vector<Annotation> annotate_record(std::string_view record, const std::vector<Mask>& masks,
                                        std::string_view layout) {
  Fields fields(record, masks);
  fields.add(0, 16, "trace-id = " + digits(fields.bytes(0, 16)));
  fields.add(16, 8, "span-id = " + digits(fields.bytes(16, 8)));
  const bool is_t0 = layout == "T0";
  std::size_t at = 24;
  if (is_t0) {
    fields.add(at, 8, "root span-id = " + digits(fields.bytes(at, 8)));
    at += 8;
  }
  fields.add(at, 1, fmt::format("valid = {}", little_endian(fields.bytes(at, 1))));
  std::uint64_t left = UINT64_MAX;  // bytes of entries
  if (is_t0) {
    fields.add(at + 1, 1,
               fmt::format("attribute count = {}", little_endian(fields.bytes(at + 1, 1))));
    at += 2;
  } else {
    fields.add(at + 1, 1, fmt::format("trace-flags = {:#04x}", little_endian(fields.bytes(25, 1))));
    left = little_endian(fields.bytes(26, 2));
    fields.add(at + 2, 2, fmt::format("attrs-data-size = {}", left));
    at += 4;
  }
  while (at < record.size() && left > 0) {
    const std::string_view head = fields.bytes(at, 2);
    const std::size_t length =
        head.size() < 2 ? 0 : static_cast<unsigned char>(head[1]) + std::size_t{2};
    if (length == 0 || length > left) {
      const auto rest = std::min<std::uint64_t>(left, record.size() - at);
      fields.add(at, rest, "not a whole entry within the size");
      at += rest;
      break;
    }
    fields.add(at, length,
               fmt::format("key {}, {} bytes: {}", static_cast<unsigned char>(head[0]), length - 2,
                           quote(fields.bytes(at + 2, length - 2))));
    at += std::min(length, record.size() - at);
    left -= length;
  }
  if (at < record.size()) fields.add(at, record.size() - at, "after the size");
  return std::move(fields.out);
}

std::vector<Annotation> annotate_payload(std::string_view payload) {
  return PayloadAnnotator(payload).run();
}

std::vector<std::string> dump_lines(std::string_view bytes,
                                    const std::vector<Annotation>& annotations) {
  std::vector<std::string> out;
  std::size_t repeats = 0;
  for (std::size_t i = 0; i < annotations.size(); ++i) {
    if (i > 0 && is_same(bytes, annotations[i], annotations[i - 1])) {
      ++repeats;
      continue;
    }
    add_repeats(out, repeats);
    repeats = 0;
    add_field(out, bytes, annotations[i]);
  }
  add_repeats(out, repeats);
  return out;
}

std::vector<std::string> compare_lines(std::string_view expected, std::string_view found,
                                       const std::vector<Annotation>& annotations,
                                       const std::vector<ByteRange>& at_fault,
                                       std::size_t most_lines) {
  const auto is_at_fault = [&](std::size_t at) {
    return std::ranges::any_of(
        at_fault, [at](const ByteRange& r) { return at >= r.offset && at - r.offset < r.length; });
  };
  std::vector<std::string> out;
  for (const Annotation& a : annotations) {
    const auto have =
        a.offset >= found.size() ? std::string_view() : found.substr(a.offset, a.length);
    const auto want = expected.substr(a.offset, a.length);
    for (std::size_t at = 0; at < want.size(); at += kBytesALine) {
      const auto w = want.substr(at, kBytesALine);
      const auto h = at >= have.size() ? std::string_view() : have.substr(at, kBytesALine);
      std::string marks;
      for (std::size_t i = 0; i < w.size(); ++i) {
        const bool differs =
            a.masked ? is_at_fault(a.offset + at + i) : i >= h.size() || w[i] != h[i];
        marks += differs ? "^^ " : "   ";
      }
      marks.erase(marks.find_last_not_of(' ') + 1);
      const bool same = marks.empty();
      if (same && at > 0) continue;
      if (out.size() + 3 > most_lines) {
        if (!same) {
          out.emplace_back("        more bytes differ");
          return out;
        }
        continue;
      }
      std::string line = fmt::format("{:06x}  {}", a.offset + at, hex_line(w, a.masked));
      out.push_back(at == 0 ? with_text(std::move(line), a.text, a.depth) : std::move(line));
      if (same) continue;
      out.push_back(" found  " + (h.empty() ? "(nothing)" : hex_line(h, false)));
      out.push_back("        " + marks);
    }
  }
  return out;
}

std::string hexdump(const Vector& v) {
  if (v.kind == Kind::kMaps) return {};
  std::string out = fmt::format("{}: {}\n{}\n\n", v.id, results_text(v), v.comment);
  if (v.kind == Kind::kThreadRecord) {
    const auto& r = v.thread_record;
    add_dump(out, fmt::format("record ({}), {} bytes", r.layout, r.record.size()), r.record,
             annotate_record(r.record, r.masks, r.layout));
    out += "\nkey map:";
    for (std::size_t i = 0; i < r.key_map.size() && i < kBytesALine; ++i) {
      out += fmt::format(" {} {}", i, quote(r.key_map[i]));
    }
    if (r.key_map.size() > kBytesALine) out += fmt::format(" ... ({} keys)", r.key_map.size());
    return out + (r.key_map.empty() ? " (empty)\n" : "\n");
  }
  const auto& p = v.process_context;
  add_dump(out,
           fmt::format("header ({}) at {:#x}, in a mapping of {} bytes",
                       abi::fields_of(p.layout).id, p.mapping_address, p.mapping_size),
           p.header, annotate_header(p.layout, p.header, p.masks));
  add_dump(out, fmt::format("\npayload at {:#x}, {} bytes", p.payload_at, p.payload.size()),
           p.payload, annotate_payload(p.payload));
  return out;
}

}  // namespace ctxconf::golden
