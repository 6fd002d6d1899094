#include "conformance/text/recording_json.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using RecordingJson = nlohmann::ordered_json;

// What stands in a string of JSON as it is.
constexpr auto kPlain = [] {
  std::array<bool, 256> out{};
  for (unsigned c = 0x20; c < 0x7f; ++c) out[c] = c != '"' && c != '\\';
  return out;
}();

const char* end_of_plain(const char* from, const char* end) {
  while (from != end && kPlain[static_cast<unsigned char>(*from)]) ++from;
  return from;
}

class RecordingParser {
 public:
  RecordingParser(std::string_view text, const JsonFormat& wanted)
      : at_(text.data()), end_(text.data() + text.size()), wanted_(wanted) {}

  std::expected<RecordingJson, std::string> whole() {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (std::string_view(at_, end_).starts_with(kByteOrderMark)) at_ += kByteOrderMark.size();
    RecordingJson out;
    bool is_whole = value(out);
    if (is_whole) {
      skip_blanks();
      is_whole = at_ == end_;
    }
    if (is_whole) return out;
    return std::unexpected(problem_.empty() ? "this is not JSON" : problem_);
  }

 private:
  enum class Member { kOther, kNameOfFormat, kVersionOfFormat };

  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }
  bool next_is(char c) {
    skip_blanks();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  bool value(RecordingJson& out) {
    skip_blanks();
    if (at_ == end_) return false;
    switch (*at_) {
      case '{':
        return counts("an object") && enter() && object(out);
      case '[':
        return counts("a list") && enter() && list(out);
      case '"': {
        std::string text;
        if (!string(text) || !counts(member_ == Member::kNameOfFormat ? text : "a text"))
          return false;
        out = std::move(text);
        return true;
      }
      default:
        return scalar(out);
    }
  }
  bool object(RecordingJson& out) {
    ++at_;
    out = RecordingJson::object();
    if (next_is('}')) return leave();
    do {
      std::string name;
      skip_blanks();
      if (at_ == end_ || *at_ != '"' || !string(name) || !next_is(':')) return false;
      member_ = depth_ != 1         ? Member::kOther
                : name == "format"  ? Member::kNameOfFormat
                : name == "version" ? Member::kVersionOfFormat
                                    : Member::kOther;
      if (!value(out[name])) return false;
    } while (next_is(','));
    return next_is('}') && leave();
  }
  bool list(RecordingJson& out) {
    ++at_;
    out = RecordingJson::array();
    if (next_is(']')) return leave();
    auto& elements = out.get_ref<RecordingJson::array_t&>();
    do {
      if (!value(elements.emplace_back())) return false;
    } while (next_is(','));
    return next_is(']') && leave();
  }
  // At its first quote.
  bool string(std::string& out) {
    const char* begin = at_ + 1;
    const char* end = end_of_plain(begin, end_);
    if (end != end_ && *end == '"') {
      out.assign(begin, end);
      at_ = end + 1;
      return true;
    }
    while (end != end_ && *end != '"') end += *end == '\\' && end + 1 != end_ ? 2 : 1;
    if (end == end_) return false;
    const RecordingJson parsed =
        RecordingJson::parse(at_, end + 1, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_string()) return false;
    out = parsed.get_ref<const std::string&>();
    at_ = end + 1;
    return true;
  }
  // A number, true, false or null.
  bool scalar(RecordingJson& out) {
    const char* begin = at_;
    const auto may_continue = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '.' || c == '-' ||
             c == '+';
    };
    at_ = std::find_if_not(at_, end_, may_continue);
    const std::string_view token(begin, at_);
    std::uint64_t number = 0;
    const bool is_plain = !token.empty() && token.size() < 20 && (token[0] != '0' || token == "0");
    const auto read = std::from_chars(begin, at_, number);
    if (is_plain && read.ec == std::errc() && read.ptr == at_) {
      out = number;
    } else {
      out = RecordingJson::parse(begin, at_, nullptr, /*allow_exceptions=*/false);
    }
    return !out.is_discarded() && counts(token);
  }

  bool counts(std::string_view text) {
    if (++values_ > kMostJsonValues) {
      problem_ = "has more than " + std::to_string(kMostJsonValues) + " values";
    } else if (member_ == Member::kNameOfFormat && text != wanted_.format) {
      problem_ = wanted_.other_format;
    } else if (member_ == Member::kVersionOfFormat && text != std::to_string(wanted_.version)) {
      problem_ = "version " + std::string(text) + " of the format, but " +
                 std::to_string(wanted_.version) + " is read here" + wanted_.mend;
    }
    member_ = Member::kOther;
    return problem_.empty();
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

  const char* at_;
  const char* end_;
  const JsonFormat& wanted_;
  Member member_ = Member::kOther;  // whose value comes next
  std::size_t depth_ = 0;
  std::size_t values_ = 0;
  std::string problem_;
};

void append_text(std::string& out, const std::string& text) {
  const char* end = text.data() + text.size();
  if (end_of_plain(text.data(), end) != end) {
    out += RecordingJson(text).dump();
  } else {
    out.append("\"").append(text).append("\"");
  }
}

void append_indented(std::string& out, const RecordingJson& value, std::size_t indent) {
  if (const auto* text = value.get_ptr<const std::string*>()) return append_text(out, *text);
  if (!value.is_structured() || value.empty()) {
    out += value.dump();
    return;
  }
  std::string_view before = "\n";
  const auto begin_line = [&] {
    out.append(before).append(indent + 1, ' ');
    before = ",\n";
  };
  if (value.is_object()) {
    out += '{';
    for (const auto& [name, member] : value.get_ref<const RecordingJson::object_t&>()) {
      begin_line();
      append_text(out, name);
      out += ": ";
      append_indented(out, member, indent + 1);
    }
  } else {
    out += '[';
    for (const auto& element : value) {
      begin_line();
      append_indented(out, element, indent + 1);
    }
  }
  out.append("\n").append(indent, ' ').append(value.is_object() ? "}" : "]");
}

}  // namespace

std::expected<RecordingJson, std::string> parse_recording(std::string_view text,
                                                          const JsonFormat& wanted) {
  return RecordingParser(text, wanted).whole();
}

void append_recording(std::string& out, const RecordingJson& value) {
  append_indented(out, value, 0);
}

}  // namespace ctxconf::conformance
