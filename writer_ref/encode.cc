#include "writer_ref/encode.h"

#include <charconv>
#include <cstddef>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::writer {
namespace {

namespace common = opentelemetry::proto::common::v1;
using opentelemetry::proto::processcontext::v1development::ProcessContext;

// Shortest form, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    std::size_t length = 0;
    if (lead < 0x80) {
      length = 1;
    } else if (lead >= 0xc0 && lead < 0xe0) {
      length = 2;
    } else if (lead >= 0xe0 && lead < 0xf0) {
      length = 3;
    } else if (lead >= 0xf0 && lead < 0xf8) {
      length = 4;
    }
    if (length == 0 || length > text.size() - i) return false;
    std::uint32_t code = length == 1 ? lead : lead & (0x7fU >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0U) != 0x80) return false;
      code = code << 6 | (next & 0x3fU);
    }
    if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      return false;
    }
    i += length;
  }
  return true;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::string> unhex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned byte = 0;
    const char* const end = text.data() + i + 2;
    if (std::from_chars(text.data() + i, end, byte, 16).ptr != end) return std::nullopt;
    out.push_back(static_cast<char>(byte));
  }
  return out;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  if (text.empty()) return out;
  for (;;) {
    const auto comma = text.find(',');
    out.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return out;
    text.remove_prefix(comma + 1);
  }
}

struct Fill {
  common::AnyValue& out;
  void operator()(const std::string& v) const { out.set_string_value(v); }
  void operator()(bool v) const { out.set_bool_value(v); }
  void operator()(std::int64_t v) const { out.set_int_value(v); }
  void operator()(double v) const { out.set_double_value(v); }
  void operator()(const Bytes& v) const { out.set_bytes_value(v.value); }
  void operator()(const std::vector<std::string>& v) const {
    auto& array = *out.mutable_array_value();
    for (const auto& element : v) array.add_values()->set_string_value(element);
  }
};

// The first key that occurs twice.
template <class List>
std::optional<std::string> append(const std::vector<Attribute>& from, List& to) {
  std::set<std::string_view> keys;
  for (const auto& attribute : from) {
    if (!keys.insert(attribute.key).second) return attribute.key;
    auto& pair = *to.Add();
    pair.set_key(attribute.key);
    std::visit(Fill{*pair.mutable_value()}, attribute.value);
  }
  return std::nullopt;
}

}  // namespace

std::expected<Attribute, std::string> parse_attribute(std::string_view argument) {
  const auto bad = [&](std::string_view why) {
    return std::unexpected("'" + std::string(argument) + "': " + std::string(why));
  };
  const auto equals = argument.find('=');
  if (equals == std::string_view::npos) return bad("expected KEY=VALUE or KEY:TYPE=VALUE");
  const auto value = argument.substr(equals + 1);
  auto key = argument.substr(0, equals);
  std::string_view type = "string";
  if (const auto colon = key.rfind(':'); colon != std::string_view::npos) {
    type = key.substr(colon + 1);
    key = key.substr(0, colon);
  }
  if (key.empty()) return bad("the key is empty");
  if (!is_utf8(key)) return bad("the key is not valid UTF-8");

  Attribute out{std::string(key), {}};
  if (type == "string" || type == "strings") {
    if (!is_utf8(value)) return bad("the value is not valid UTF-8; :bytes takes anything");
    if (type == "string") {
      out.value = std::string(value);
    } else {
      out.value = split(value);
    }
  } else if (type == "int") {
    const auto n = number<std::int64_t>(value);
    if (!n) return bad("not a 64-bit integer");
    out.value = *n;
  } else if (type == "double") {
    const auto n = number<double>(value);
    if (!n) return bad("not a number");
    out.value = *n;
  } else if (type == "bool") {
    if (value != "true" && value != "false") return bad("expected true or false");
    out.value = value == "true";
  } else if (type == "bytes") {
    auto raw = unhex(value);
    if (!raw) return bad("expected pairs of hexadecimal digits");
    out.value = Bytes{std::move(*raw)};
  } else {
    return bad("the type after ':' is one of string, int, double, bool, bytes, strings");
  }
  return out;
}

std::expected<std::string, std::string> encode(const Context& context) {
  ProcessContext message;
  auto& resource = *message.mutable_resource();
  if (const auto twice = append(context.resource, *resource.mutable_attributes())) {
    return std::unexpected("resource attribute '" + *twice + "' is given twice");
  }
  if (const auto twice = append(context.attributes, *message.mutable_attributes())) {
    return std::unexpected("attribute '" + *twice + "' is given twice");
  }
  std::string out;
  if (!message.SerializeToString(&out)) return std::unexpected("the message is larger than 2 GiB");
  return out;
}

}  // namespace ctxconf::writer
