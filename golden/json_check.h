// Finds what nlohmann::json accepts silently. A callback of its parser could do it, but after each
// object the library then looks at all elements before it: the time grows with their square.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ctxconf::golden {

class JsonCheck {
 public:
  // Goes through `text` up to the first problem, or to what is not JSON.
  JsonCheck(std::string_view text, std::size_t deepest) : deepest_(deepest) {
    nlohmann::json::sax_parse(text, this);
  }

  bool has_repeated() const { return has_repeated_; }
  const std::string& repeated() const { return repeated_; }  // a name that an object has twice
  bool too_deep() const { return open_ > deepest_; }

  // Called by sax_parse; false stops it.
  bool null() { return true; }
  bool boolean(bool /*v*/) { return true; }
  bool number_integer(std::int64_t /*v*/) { return true; }
  bool number_unsigned(std::uint64_t /*v*/) { return true; }
  bool number_float(double /*v*/, const std::string& /*text*/) { return true; }
  bool string(const std::string& /*v*/) { return true; }
  bool binary(const nlohmann::json::binary_t& /*v*/) { return true; }
  bool start_object(std::size_t /*members*/) {
    names_.emplace_back();
    return ++open_ <= deepest_;
  }
  bool start_array(std::size_t /*elements*/) { return ++open_ <= deepest_; }
  bool end_object() {
    names_.pop_back();
    --open_;
    return true;
  }
  bool end_array() {
    --open_;
    return true;
  }
  bool key(const std::string& name) {
    if (names_.back().insert(name).second) return true;
    repeated_ = name;
    has_repeated_ = true;
    return false;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    return false;
  }

 private:
  std::size_t deepest_;
  std::size_t open_ = 0;
  std::vector<std::set<std::string>> names_;  // of each open object
  std::string repeated_;
  bool has_repeated_ = false;
};

}  // namespace ctxconf::golden
