#include "conformance/evidence/trace_ids.h"

#include <algorithm>
#include <utility>

#include "conformance/text/ascii.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kTraceparentSize = 55;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_of_word(char c) {
  const char l = lower_case(c);
  return is_digit(c) || (l >= 'a' && l <= 'z') || c == '-' || c == '_';
}

std::optional<std::string> id_from(std::string_view text, std::size_t digits) {
  if (text.size() != digits || !std::ranges::all_of(text, is_hex)) return std::nullopt;
  if (text.find_first_not_of('0') == std::string_view::npos) return std::nullopt;
  return lower_case(text);
}

}  // namespace

std::optional<std::string> trace_id_from(std::string_view text) {
  return id_from(text, kTraceIdDigits);
}
std::optional<std::string> span_id_from(std::string_view text) {
  return id_from(text, kSpanIdDigits);
}

std::optional<Traceparent> traceparent_from(std::string_view text) {
  if (text.size() != kTraceparentSize || !text.starts_with("00-") || text[35] != '-' ||
      text[52] != '-' || !is_hex(text[53]) || !is_hex(text[54])) {
    return std::nullopt;
  }
  auto trace = trace_id_from(text.substr(3, kTraceIdDigits));
  auto span = span_id_from(text.substr(36, kSpanIdDigits));
  if (!trace || !span) return std::nullopt;
  return Traceparent{*std::move(trace), *std::move(span)};
}

void IdScanner::take(std::string_view text) {
  for (const char c : text) {
    if (!is_of_word(c)) {
      end_word();
    } else if (word_.size() <= kTraceparentSize) {  // one more says that it is too long
      word_.push_back(c);
    }
  }
}

void IdScanner::end_word() {
  const std::string word = std::exchange(word_, {});
  const auto add = [](std::set<std::string>& ids, std::string id) {
    if (ids.size() < kMaxPrintedIds) ids.insert(std::move(id));
  };
  if (auto parent = traceparent_from(word)) {
    add(trace_ids_, std::move(parent->trace_id));
    add(span_ids_, std::move(parent->span_id));
  } else if (auto id = trace_id_from(word)) {
    add(trace_ids_, *std::move(id));
  }
}

}  // namespace ctxconf::conformance
