#include "golden/members.h"

#include <fmt/format.h>

#include <charconv>

#include "golden/json_check.h"

namespace ctxconf::golden {
namespace {

constexpr std::size_t kDeepestValue = 64;
const Json kNoObject = Json::object();
const Json kNoList = Json::array();

}  // namespace

std::expected<Json, std::string> parse_json(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) {
    return std::unexpected("begins with a byte order mark; save it as UTF-8 without one");
  }
  const JsonCheck check(text, kDeepestValue);
  if (check.too_deep()) {
    return std::unexpected(fmt::format("is nested deeper than {} levels", kDeepestValue));
  }
  if (check.repeated()) {
    return std::unexpected(
        fmt::format("has the member \"{}\" twice in one object", *check.repeated()));
  }
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    return std::unexpected(std::string("is not JSON: ") + e.what());
  }
}

std::optional<std::string> bytes_of_hex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string out;
  out.reserve(digits.size() / 2);
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    int byte = 0;
    for (const char c : digits.substr(i, 2)) {
      byte *= 16;
      if (c >= '0' && c <= '9') {
        byte += c - '0';
      } else if (c >= 'a' && c <= 'f') {
        byte += c - 'a' + 10;
      } else {
        return std::nullopt;
      }
    }
    out += static_cast<char>(byte);
  }
  return out;
}

std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte / 16U];
    out += kDigits[byte % 16U];
  }
  return out;
}

std::string address_text(std::uint64_t address) { return fmt::format("{:#x}", address); }

std::optional<std::uint64_t> address_of(std::string_view text) {
  if (!text.starts_with("0x")) return std::nullopt;
  text.remove_prefix(2);
  std::uint64_t value = 0;
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [at, error] = std::from_chars(begin, end, value, 16);
  if (error != std::errc() || at != end || address_text(value).substr(2) != text) {
    return std::nullopt;
  }
  return value;
}

Members::Members(const Json& object, std::string where, std::string& error)
    : object_(&object), where_(std::move(where)), error_(&error) {
  if (object.is_object()) return;
  if (error_->empty()) {
    const auto name = where_.empty() ? "the file" : where_.substr(0, where_.size() - 1);
    *error_ = name + ": must be an object";
  }
  object_ = &kNoObject;
}

bool Members::has(const char* name) const { return object_->contains(name); }

void Members::wrong(const std::string& name, const std::string& what) {
  if (error_->empty()) *error_ = where_ + name + ": " + what;
}

const Json* Members::take(const char* name) {
  taken_.insert(name);
  const auto found = object_->find(name);
  return found == object_->end() ? nullptr : &*found;
}

const Json* Members::need(const char* name) {
  const Json* found = take(name);
  if (found == nullptr) wrong(name, "is missing");
  return found;
}

std::string Members::text(const char* name) {
  const Json* value = need(name);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  wrong(name, "must be a text");
  return {};
}

std::string Members::text(const char* name, std::string_view fallback) {
  return has(name) ? text(name) : std::string(fallback);
}

std::string Members::hex(const char* name) {
  if (!has(name)) return {};
  if (auto bytes = bytes_of_hex(text(name))) return std::move(*bytes);
  wrong(name, "must be pairs of hex digits, lower case, nothing between them");
  return {};
}

std::uint64_t Members::number(const char* name, std::uint64_t most) {
  const Json* value = need(name);
  // JSON has no unsigned type: a number that is not negative and in range is accepted.
  if (value != nullptr && value->is_number_unsigned() && value->get<std::uint64_t>() <= most) {
    return value->get<std::uint64_t>();
  }
  wrong(name, fmt::format("must be a whole number from 0 to {}", most));
  return 0;
}

std::uint64_t Members::number(const char* name, std::uint64_t most, std::uint64_t fallback) {
  return has(name) ? number(name, most) : fallback;
}

std::uint64_t Members::address(const char* name) {
  if (const auto value = address_of(text(name))) return *value;
  wrong(name, "must be an address like \"0x7f5e10000000\"");
  return 0;
}

const Json* Members::list(const char* name) {
  const Json* value = need(name);
  if (value != nullptr && value->is_array()) return value;
  wrong(name, "must be a list");
  return &kNoList;
}

Members Members::object(const char* name) {
  const Json* value = take(name);
  return {value == nullptr ? kNoObject : *value, where_ + name + ".", *error_};
}

Members Members::element(const char* name, const Json& list, std::size_t index) {
  return {list[index], fmt::format("{}{}[{}].", where_, name, index), *error_};
}

void Members::finish() {
  for (const auto& [name, value] : object_->items()) {
    if (!taken_.contains(name)) wrong(name, "is not a known member");
  }
}

}  // namespace ctxconf::golden
