// A ProcessContext encoded by hand, for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ctxconf::conformance {

// A value of process.churn; its number must be less than ten.
inline std::string numbered(const std::string& value, std::uint64_t number) {
  return value + "-000000000" + std::to_string(number);
}

// Field 1 is a Resource, field 2 a KeyValue; the Resource's attributes are its field 1. `pairs` are
// short strings; those with a key service.* go into the Resource.
inline std::vector<std::byte> literal_payload(
    const std::vector<std::pair<std::string, std::string>>& pairs) {
  const auto field = [](int number, const std::string& bytes) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size())} + bytes;
  };
  std::string resource;
  std::string attributes;
  for (const auto& [key, value] : pairs) {
    const std::string pair = field(1, key) + field(2, field(1, value));
    if (key.starts_with("service.")) {
      resource += field(1, pair);
    } else {
      attributes += field(2, pair);
    }
  }
  const std::string all = field(1, resource) + attributes;
  std::vector<std::byte> out(all.size());
  std::ranges::transform(all, out.begin(), [](char c) { return static_cast<std::byte>(c); });
  return out;
}

}  // namespace ctxconf::conformance
