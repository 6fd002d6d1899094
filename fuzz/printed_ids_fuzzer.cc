// The ids that a program prints. Input: 1 byte that says how long the pieces of the output are; the
// output.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "conformance/evidence/trace_ids.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf;
using conformance::IdScanner;

constexpr std::string_view kHex = "0123456789abcdefABCDEF";
constexpr std::string_view kOthers = "ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ-_";
// 'h' is one hexadecimal digit; the other characters stand for themselves.
constexpr std::string_view kTraceId = "hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh";
constexpr std::string_view kParent = "00-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh";
constexpr std::size_t kTraceAt = 3;
constexpr std::size_t kSpanAt = 36;

struct Ids {
  std::set<std::string> traces;
  std::set<std::string> spans;
  bool operator==(const Ids&) const = default;
};

bool has_shape(std::string_view word, std::string_view shape) {
  if (word.size() != shape.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool fits = shape[i] == 'h' ? kHex.find(word[i]) != kHex.npos : word[i] == shape[i];
    if (!fits) return false;
  }
  return true;
}

std::string in_lower_case(std::string_view digits) {
  std::string out;
  for (const char c : digits) out += c >= 'A' && c <= 'F' ? kHex[kHex.find(c) - 6] : c;
  return out;
}

bool is_zero(std::string_view digits) {
  return std::ranges::all_of(digits, [](char c) { return c == '0'; });
}

void add_word(std::string_view word, Ids& ids) {
  if (has_shape(word, kTraceId)) {
    if (!is_zero(word)) ids.traces.insert(in_lower_case(word));
  } else if (has_shape(word, kParent)) {
    const auto trace = word.substr(kTraceAt, conformance::kTraceIdDigits);
    const auto span = word.substr(kSpanAt, conformance::kSpanIdDigits);
    if (is_zero(trace) || is_zero(span)) return;
    ids.traces.insert(in_lower_case(trace));
    ids.spans.insert(in_lower_case(span));
  }
}

Ids slow_ids(std::string_view text) {
  const auto is_of_word = [&](std::size_t i) {
    return kHex.find(text[i]) != kHex.npos || kOthers.find(text[i]) != kOthers.npos;
  };
  Ids ids;
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    if (!is_of_word(begin) || (begin > 0 && is_of_word(begin - 1))) continue;
    std::size_t end = begin;
    while (end < text.size() && is_of_word(end)) ++end;
    add_word(text.substr(begin, end - begin), ids);
  }
  return ids;
}

Ids scanned(std::string_view text, std::size_t piece) {
  IdScanner scanner;
  for (std::size_t at = 0; at < text.size(); at += piece) scanner.take(text.substr(at, piece));
  scanner.end();
  return {scanner.trace_ids(), scanner.span_ids()};
}

// The ids as a program would print them; each span belongs to the first trace.
std::string printed(const Ids& ids) {
  std::string out;
  for (const auto& trace : ids.traces) out += "trace=" + trace + "\n";
  for (const auto& span : ids.spans) out += "\"00-" + *ids.traces.begin() + "-" + span + "-01\" ";
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text = fuzz::text_of(data, size).substr(1);
  const Ids ids = slow_ids(text);
  FUZZ_CHECK(scanned(text, text.size() + 1) == ids);
  FUZZ_CHECK(scanned(text, 1 + data[0] % 64) == ids);
  FUZZ_CHECK(scanned(printed(ids), 1 + data[0] % 64) == ids);
  const auto parent = conformance::traceparent_from(text);
  FUZZ_CHECK(parent.has_value() == (has_shape(text, kParent) && !ids.spans.empty()));
  const auto trace = conformance::trace_id_from(text);
  FUZZ_CHECK(trace.has_value() == (has_shape(text, kTraceId) && !ids.traces.empty()));
  if (trace) FUZZ_CHECK(conformance::trace_id_from(*trace) == trace);
  return 0;
}
