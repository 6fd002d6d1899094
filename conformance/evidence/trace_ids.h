// Trace ids and span ids as W3C Trace Context writes them, from left to right in lower-case
// hexadecimal: what a program was told, and what it prints.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

inline constexpr std::size_t kTraceIdDigits = 32;
inline constexpr std::size_t kSpanIdDigits = 16;

// The id in lower case. Nothing: the text has another number of hexadecimal digits, or they are all
// zero.
std::optional<std::string> trace_id_from(std::string_view text);
std::optional<std::string> span_id_from(std::string_view text);

struct Traceparent {
  std::string trace_id;
  std::string span_id;
  friend bool operator==(const Traceparent&, const Traceparent&) = default;
};
// 00-TRACEID-SPANID-FLAGS
std::optional<Traceparent> traceparent_from(std::string_view text);

// Finds ids in text that comes in pieces: words that are a traceparent, and words of 32 hexadecimal
// digits. A word has letters, digits, '-' and '_'.
class IdScanner {
 public:
  void take(std::string_view text);
  void end() { end_word(); }
  const std::set<std::string>& trace_ids() const { return trace_ids_; }
  const std::set<std::string>& span_ids() const { return span_ids_; }

 private:
  void end_word();

  std::string word_;
  std::set<std::string> trace_ids_;
  std::set<std::string> span_ids_;
};

inline constexpr std::size_t kMaxPrintedIds = 4096;  // of each kind; later ones are not kept

}  // namespace ctxconf::conformance
