// Mutates JSON as JSON: after the engine's own mutations most inputs are not JSON any more. One in
// four inputs, and every input that is not JSON, still gets the engine's mutations.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming): the engine's names
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

using Json = nlohmann::ordered_json;
using Random = std::minstd_rand;

constexpr std::size_t kDeepest = 100;  // copies recurse
constexpr std::size_t kLongestText = 4096;

std::size_t below(Random& random, std::size_t n) { return n == 0 ? 0 : random() % n; }

std::size_t depth_of(std::string_view text) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return deepest;
}

void collect(Json& value, std::vector<Json*>& all) {
  all.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& inner : value) collect(inner, all);
}

Json some_number(const Json& was, Random& random) {
  constexpr std::array<std::uint64_t, 12> kEdges = {
      0,         1,          2,         32,         127,         4096,
      INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, 1ULL << 20U, 1ULL << 63U};
  switch (below(random, 5)) {
    case 0:
      return kEdges[below(random, kEdges.size())];
    case 1:
      return -static_cast<std::int64_t>(kEdges[below(random, 9)]);
    case 2:
      return was.is_number_unsigned() ? Json(was.get<std::uint64_t>() + 1) : Json(3);
    case 3:
      return was.is_number_unsigned() ? Json(was.get<std::uint64_t>() - 1) : Json(-3);
    default:
      return 1.5;
  }
}

std::string some_text(std::string text, Random& random) {
  text = text.substr(0, kLongestText);
  const std::size_t size = text.size();
  text.resize(size + 16);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, size + 16));
  if (below(random, 16) == 0) text += text;
  return text;
}

void mutate_list(Json& list, Random& random) {
  const std::size_t at = below(random, list.size());
  const std::size_t other = below(random, list.size());
  switch (below(random, 3)) {
    case 0:
      list.erase(at);
      break;
    case 1: {
      Json copy = list[at];
      list.push_back(std::move(copy));
      break;
    }
    default:
      if (at != other) std::swap(list[at], list[other]);
  }
}

void mutate(Json& file, Random& random) {
  std::vector<Json*> all;
  collect(file, all);
  Json& value = *all[below(random, all.size())];
  const std::size_t how = below(random, 10);
  if (how == 0) {
    // A copy, because the other may contain this one.
    Json other = *all[below(random, all.size())];
    value = std::move(other);
  } else if (how == 1) {
    constexpr std::array<const char*, 7> kOthers = {"null", "true", "[]",  "{}",
                                                    "\"\"", "0",    "[[]]"};
    value = Json::parse(kOthers[below(random, kOthers.size())]);
  } else if (value.is_object() && !value.empty()) {
    auto member = value.begin();
    std::advance(member, static_cast<std::ptrdiff_t>(below(random, value.size())));
    if (how == 2) {
      value.erase(member);
    } else if (member.value().is_string()) {
      member.value() = some_text(member.value().get<std::string>(), random);
    } else if (member.value().is_number()) {
      member.value() = some_number(member.value(), random);
    } else if (member.value().is_array() && !member.value().empty()) {
      mutate_list(member.value(), random);
    }
  } else if (value.is_array() && !value.empty()) {
    mutate_list(value, random);
  } else if (value.is_string()) {
    value = some_text(value.get<std::string>(), random);
  } else if (value.is_boolean()) {
    value = !value.get<bool>();
  } else {
    value = some_number(value, random);
  }
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  Random random(seed);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (below(random, 4) == 0 || depth_of(text) > kDeepest) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  Json file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded()) return LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t n = 1 + below(random, 4); n > 0; --n) mutate(file, random);
  const std::string out = file.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::ranges::copy(out, data);
  return out.size();
}
// NOLINTEND(readability-identifier-naming)
