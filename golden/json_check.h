// Finds what nlohmann::json accepts silently. A callback of its parser could do it, but then the
// library looks at all earlier elements after each object: its time grows with their square.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ctxconf::golden {

class JsonCheck {
 public:
  // Stops at the first problem, or where the text is not JSON, which the parser will report.
  JsonCheck(std::string_view text, std::size_t deepest) : deepest_(deepest) {
    nlohmann::json::sax_parse(text, this);
  }

  const std::optional<std::string>& repeated() const { return repeated_; }  // twice in one object
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
  std::optional<std::string> repeated_;
};

}  // namespace ctxconf::golden
