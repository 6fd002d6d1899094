// Checks untrusted JSON before it is parsed. Parsed values need up to sixty times the memory of
// their text, and no message about the file could appear until the parser ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

// Beyond any file of ours: with 16 bytes per value, a file of 256 MiB has this many values.
inline constexpr std::size_t kDeepestJson = 64;
inline constexpr std::size_t kMostJsonValues = std::size_t{1} << 24U;

// A line of the testee protocol that nests deeper is not parsed, because its readers recurse.
inline constexpr std::size_t kDeepestLine = 100;

// Bytes of a line that a recording keeps: six times as many as the protocol allows, because each
// byte that is not ASCII may become an escape, and the dots of a line that was cut.
inline constexpr std::size_t kLongestKeptLine = (std::size_t{6} << 20U) + 3;

// Calls `f` with each character of a JSON text outside its strings, until that returns false.
template <class F>
void outside_strings(std::string_view text, F f) {
  const char* const end = text.data() + text.size();
  bool in_string = false;
  for (const char* at = text.data(); at < end; ++at) {
    if (in_string) {
      if (*at == '\\') {
        if (++at == end) return;
      } else if (*at == '"') {
        in_string = false;
      }
    } else if (*at == '"') {
      in_string = true;
    } else if (!f(*at)) {
      return;
    }
  }
}

// Whether lists and objects nest deeper than `depth`. To copy such a value recurses once per level.
inline bool nests_deeper(std::string_view text, std::size_t depth) {
  std::size_t open = 0;
  outside_strings(text, [&](char c) {
    if (c == '[' || c == '{') ++open;
    if ((c == ']' || c == '}') && open > 0) --open;
    return open <= depth;
  });
  return open > depth;
}

// No parser makes more values of the text, even if it is not JSON.
inline std::size_t most_values_in(std::string_view text) {
  std::size_t values = 1;
  outside_strings(text, [&](char c) {
    if (c == ',' || c == '[' || c == '{') ++values;
    return true;
  });
  return values;
}

// The value of a line that a recording keeps. It is discarded if the line is too long, nests too
// deeply or is not JSON.
inline nlohmann::json value_of_kept_line(std::string_view line) {
  if (line.size() > kLongestKeptLine || nests_deeper(line, kDeepestLine)) {
    return nlohmann::json::value_t::discarded;
  }
  return nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
}

// The required members "format" and "version". They are checked where they occur, whatever follows.
struct JsonFormat {
  std::string format;
  std::uint64_t oldest = 0;   // version that is read
  std::uint64_t version = 0;  // the newest one
  std::string other_format;   // the complaint about another format
  std::string mend;           // appended to the complaint about another version
};

// Why a text must not be parsed; empty if it may be.
class JsonLimits {
 public:
  static std::string problem_of(std::string_view text, const JsonFormat& wanted) {
    JsonLimits limits(wanted);
    const bool whole = nlohmann::json::sax_parse(text, &limits);
    if (!whole && limits.problem_.empty()) return "this is not JSON";
    return limits.problem_;
  }

  // Called by nlohmann::json::sax_parse; false stops it.
  bool null() { return value("null"); }
  bool boolean(bool v) { return value(v ? "true" : "false"); }
  bool number_integer(std::int64_t v) { return value(std::to_string(v)); }
  bool number_unsigned(std::uint64_t v) { return value(std::to_string(v)); }
  bool number_float(double /*v*/, const std::string& text) { return value(text); }
  bool string(const std::string& v) { return value(member_ == Member::kFormat ? v : "a text"); }
  bool binary(const nlohmann::json::binary_t& /*v*/) { return value("bytes"); }
  bool start_object(std::size_t /*members*/) { return value("an object") && enter(); }
  bool start_array(std::size_t /*elements*/) { return value("a list") && enter(); }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(const std::string& name) {
    member_ = depth_ != 1         ? Member::kOther
              : name == "format"  ? Member::kFormat
              : name == "version" ? Member::kVersion
                                  : Member::kOther;
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    return false;
  }

 private:
  enum class Member { kOther, kFormat, kVersion };

  explicit JsonLimits(const JsonFormat& wanted) : wanted_(wanted) {}

  bool value(std::string_view text) {
    if (++values_ > kMostJsonValues) {
      problem_ = "has more than " + std::to_string(kMostJsonValues) + " values";
    } else if (member_ == Member::kFormat && text != wanted_.format) {
      problem_ = wanted_.other_format;
    } else if (member_ == Member::kVersion && !is_read(text)) {
      problem_ = "version " + std::string(text) + " of the format, but " +
                 std::to_string(wanted_.oldest) + " to " + std::to_string(wanted_.version) +
                 " are read here" + wanted_.mend;
    }
    member_ = Member::kOther;
    return problem_.empty();
  }
  bool is_read(std::string_view version) const {
    for (std::uint64_t v = wanted_.oldest; v <= wanted_.version; ++v) {
      if (version == std::to_string(v)) return true;
    }
    return false;
  }
  bool enter() {
    if (++depth_ > kDeepestJson) {
      problem_ = "nests more than " + std::to_string(kDeepestJson) + " deep";
    }
    return problem_.empty();
  }
  bool leave() {
    --depth_;
    return true;
  }

  const JsonFormat& wanted_;
  Member member_ = Member::kOther;  // whose value comes next
  std::size_t depth_ = 0;
  std::size_t values_ = 0;
  std::string problem_;
};

}  // namespace ctxconf::conformance
