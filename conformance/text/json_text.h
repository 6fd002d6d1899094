// JSON of recordings: numbers and bytes as hex, texts of the testee as any bytes, and a reader that
// trusts nothing.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ctxconf::conformance {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

inline std::string hex(std::uint64_t value) {
  std::array<char, 18> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, 16).ptr;
  return "0x" + std::string(text.data(), end);
}

inline std::string hex(std::span<const std::byte> bytes) {
  std::string out(bytes.size() * 2, '\0');
  char* to = out.data();
  for (const std::byte b : bytes) {
    *to++ = kHexDigits[std::to_integer<unsigned>(b) >> 4U];
    *to++ = kHexDigits[std::to_integer<unsigned>(b) & 15U];
  }
  return out;
}

// The value of each character that is a hexadecimal digit as hex() writes it; 16 for the others.
inline constexpr auto kHexValues = [] {
  std::array<std::uint8_t, 256> out{};
  out.fill(16);
  for (std::uint8_t i = 0; i < 16; ++i) out[static_cast<unsigned char>(kHexDigits[i])] = i;
  return out;
}();

// A testee's text may be any bytes, but JSON holds only UTF-8. Text that is not plain ASCII is
// stored as {"hex": ...}, so that nothing is lost.
inline nlohmann::ordered_json text(const std::string& s) {
  for (const char c : s) {
    if (c < 0x20 || c > 0x7e) {
      return nlohmann::ordered_json{{"hex", hex(std::as_bytes(std::span(s)))}};
    }
  }
  return s;
}

inline nlohmann::ordered_json texts(const std::vector<std::string>& list) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& s : list) out.push_back(text(s));
  return out;
}

inline nlohmann::ordered_json optional_number(const std::optional<int>& n) {
  return n ? nlohmann::ordered_json(*n) : nlohmann::ordered_json(nullptr);
}

// A member that files of an older version have under another name.
struct RenamedMember {
  std::string_view name;
  const char* old_name;
};

// Reads members and checks their types and ranges. Keeps the first problem with its path; after
// that everything reads as empty.
class JsonReader {
 public:
  using Json = nlohmann::ordered_json;

  // The values inside are read with the same list of renamed members.
  JsonReader(const Json& value, std::string path, std::string* problem,
             std::span<const RenamedMember> renamed = {})
      : value_(&value), path_(std::move(path)), problem_(problem), renamed_(renamed) {}

  template <class T>
  T number(const char* name, T low = std::numeric_limits<T>::min(),
           T high = std::numeric_limits<T>::max()) const {
    const Json* v = member(name);
    if (v == nullptr) return {};
    return number_of<T>(*v, name, low, high);
  }
  bool boolean(const char* name) const {
    const Json* v = member(name);
    if (v == nullptr) return false;
    if (!v->is_boolean()) {
      complain(name, "is not true or false");
      return false;
    }
    return v->get<bool>();
  }
  std::string string(const char* name) const {
    const Json* v = member(name);
    return v == nullptr ? std::string() : string_of(*v, name);
  }
  std::uint64_t address(const char* name) const { return address_of(string(name), name); }
  std::uint64_t address_of(const std::string& s, const char* name) const {
    std::uint64_t value = 0;
    if (!ok()) return 0;
    const char* end = s.data() + s.size();
    if (s.size() < 3 || !s.starts_with("0x") ||
        std::from_chars(s.data() + 2, end, value, 16).ptr != end) {
      complain(name, "is not a number like 0x1f");
    }
    return value;
  }
  template <class T>
  std::optional<T> optional_number(const char* name) const {
    const Json* v = member(name);
    if (v == nullptr || v->is_null()) return std::nullopt;
    return number_of<T>(*v, name, std::numeric_limits<T>::min(), std::numeric_limits<T>::max());
  }
  template <class T>
  std::optional<T> number_if_there(const char* name) const {
    if (absent_or_null(name)) return std::nullopt;
    return optional_number<T>(name);
  }
  std::vector<std::byte> bytes(const char* name) const {
    const Json* v = member(name);
    if (v == nullptr || !v->is_string()) {
      complain(name, "is not a string of hex digits");
      return {};
    }
    return bytes_of(v->get_ref<const std::string&>(), name);
  }
  template <class T>
  std::vector<T> numbers(const char* name) const {
    std::vector<T> out;
    each(name, [&](const Json& v, const std::string&) {
      out.push_back(
          number_of<T>(v, name, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    });
    return out;
  }
  std::vector<std::string> strings(const char* name) const {
    std::vector<std::string> out;
    each(name, [&](const Json& v, const std::string&) { out.push_back(string_of(v, name)); });
    return out;
  }
  template <class F>
  void each(const char* name, F f) const {
    const Json* v = member(name);
    if (v == nullptr) return;
    if (!v->is_array()) {
      complain(name, "is not a list");
      return;
    }
    std::size_t n = 0;
    for (const auto& item : *v) {
      if (!ok()) return;
      f(item, path_ + "/" + name + "/" + std::to_string(n++));
    }
  }
  template <class T, class F>
  std::vector<T> list(const char* name, F parse) const {
    std::vector<T> out;
    each(name, [&](const Json& v, const std::string& path) {
      out.push_back(parse(JsonReader(v, path, problem_, renamed_)));
    });
    return out;
  }
  template <class T, class F>
  std::optional<T> optional(const char* name, F parse) const {
    if (absent_or_null(name)) return std::nullopt;
    return parse(JsonReader(*find(name), path_ + "/" + name, problem_, renamed_));
  }
  std::string string_of(const Json& v, const char* name) const {
    if (v.is_string()) return v.get<std::string>();
    if (v.is_object() && v.contains("hex") && v["hex"].is_string()) {
      const auto b = bytes_of(v["hex"].get_ref<const std::string&>(), name);
      return {reinterpret_cast<const char*>(b.data()), b.size()};
    }
    complain(name, "is not a text");
    return {};
  }
  void complain(const char* name, const char* what) const {
    if (problem_->empty()) *problem_ = path_ + "/" + name + " " + what;
  }
  bool ok() const { return problem_->empty(); }
  bool absent_or_null(const char* name) const {
    const Json* const v = find(name);
    return v == nullptr || v->is_null();
  }

 private:
  // Null: it is there under neither of its names.
  const Json* find(std::string_view name) const {
    if (!value_->is_object()) return nullptr;
    if (const auto it = value_->find(name); it != value_->end()) return &*it;
    for (const RenamedMember& r : renamed_) {
      if (r.name != name) continue;
      if (const auto it = value_->find(r.old_name); it != value_->end()) return &*it;
    }
    return nullptr;
  }
  const Json* member(const char* name) const {
    if (!ok()) return nullptr;
    const Json* const v = find(name);
    if (v == nullptr) complain(name, "is missing");
    return v;
  }
  template <class T>
  T number_of(const Json& v, const char* name, T low, T high) const {
    if (v.is_number_unsigned()) {
      const auto n = v.get<std::uint64_t>();
      if (std::cmp_less_equal(n, high) && std::cmp_greater_equal(n, low)) return static_cast<T>(n);
    } else if (v.is_number_integer()) {
      const auto n = v.get<std::int64_t>();
      if (std::cmp_less_equal(n, high) && std::cmp_greater_equal(n, low)) return static_cast<T>(n);
    } else {
      complain(name, "is not a whole number");
      return {};
    }
    complain(name, "is out of range");
    return {};
  }
  std::vector<std::byte> bytes_of(const std::string& s, const char* name) const {
    if (s.size() % 2 != 0) complain(name, "has an odd number of hex digits");
    if (!ok()) return {};
    std::vector<std::byte> out(s.size() / 2);
    const char* from = s.data();
    for (std::byte& b : out) {
      const unsigned high = kHexValues[static_cast<unsigned char>(*from++)];
      const unsigned low = kHexValues[static_cast<unsigned char>(*from++)];
      if ((high | low) > 15) {
        complain(name, "is not a string of hex digits");
        return {};
      }
      b = static_cast<std::byte>(high << 4U | low);
    }
    return out;
  }

  const Json* value_;
  std::string path_;
  std::string* problem_;
  std::span<const RenamedMember> renamed_;
};

}  // namespace ctxconf::conformance
