#include "conformance/text/recording_json.h"

#include <utility>
#include <vector>

#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using RecordingJson = nlohmann::ordered_json;

// Called by RecordingJson::sax_parse, which each member stops by returning false.
class RecordingBuilder {
 public:
  explicit RecordingBuilder(const JsonFormat& wanted) : wanted_(wanted) {}

  std::expected<RecordingJson, std::string> result(bool is_whole) {
    if (is_whole) return std::move(root_);
    return std::unexpected(problem_.empty() ? "this is not JSON" : problem_);
  }

  bool null() { return add("null", nullptr); }
  bool boolean(bool v) { return add(v ? "true" : "false", v); }
  bool number_integer(std::int64_t v) { return add(number_text(v), v); }
  bool number_unsigned(std::uint64_t v) { return add(number_text(v), v); }
  bool number_float(double v, const std::string& text) { return add(text, v); }
  bool string(std::string& v) {
    const std::string text = member_ == Member::kNameOfFormat ? v : "a text";
    return add(text, std::move(v));
  }
  bool binary(RecordingJson::binary_t& v) { return add("bytes", std::move(v)); }
  bool start_object(std::size_t /*members*/) {
    return add("an object", RecordingJson::object()) && enter();
  }
  bool start_array(std::size_t /*elements*/) {
    return add("a list", RecordingJson::array()) && enter();
  }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(const std::string& name) {
    member_ = open_.size() != 1   ? Member::kOther
              : name == "format"  ? Member::kNameOfFormat
              : name == "version" ? Member::kVersionOfFormat
                                  : Member::kOther;
    place_ = &(*open_.back())[name];
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) {
    return false;
  }

 private:
  enum class Member { kOther, kNameOfFormat, kVersionOfFormat };

  template <typename Value>
  bool add(std::string_view text, Value&& value) {
    if (++values_ > kMostJsonValues) {
      problem_ = "has more than " + std::to_string(kMostJsonValues) + " values";
    } else if (member_ == Member::kNameOfFormat && text != wanted_.format) {
      problem_ = wanted_.other_format;
    } else if (member_ == Member::kVersionOfFormat && text != std::to_string(wanted_.version)) {
      problem_ = "version " + std::string(text) + " of the format, but " +
                 std::to_string(wanted_.version) + " is read here" + wanted_.mend;
    }
    member_ = Member::kOther;
    if (!problem_.empty()) return false;
    if (!open_.empty() && open_.back()->is_array()) {
      place_ = &open_.back()->get_ref<RecordingJson::array_t&>().emplace_back();
    }
    *place_ = std::forward<Value>(value);
    return true;
  }
  // Only the number of a version is ever shown.
  template <typename Number>
  std::string number_text(Number v) const {
    return member_ == Member::kOther ? std::string() : std::to_string(v);
  }
  bool enter() {
    open_.push_back(place_);
    if (open_.size() > kDeepestJson) {
      problem_ = "nests more than " + std::to_string(kDeepestJson) + " deep";
    }
    return problem_.empty();
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  const JsonFormat& wanted_;
  RecordingJson root_;
  RecordingJson* place_ = &root_;     // of the next value
  std::vector<RecordingJson*> open_;  // objects and lists, the outermost first
  Member member_ = Member::kOther;    // whose value comes next
  std::size_t values_ = 0;
  std::string problem_;
};

}  // namespace

std::expected<RecordingJson, std::string> parse_recording(std::string_view text,
                                                          const JsonFormat& wanted) {
  RecordingBuilder builder(wanted);
  const bool is_whole = RecordingJson::sax_parse(text, &builder);
  return builder.result(is_whole);
}

}  // namespace ctxconf::conformance
