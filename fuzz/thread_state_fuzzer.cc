// What a thread waits for. Input: the texts of its stat, wchan, syscall and stack, each before a
// zero byte.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/testee/thread_states.h"
#include "fuzz/agree.h"

namespace {

using namespace ctxconf;

constexpr std::size_t kMostFrames = 8;
constexpr std::size_t kMostOfLine = 256;
constexpr pid_t kTid = 7;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  bool is_new = true;
  for (const char c : text) {
    if (is_new) lines.emplace_back();
    is_new = c == '\n';
    if (!is_new) lines.back() += c;
  }
  return lines;
}

std::string slow_first(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || out.size() == kMostOfLine) break;
    out += c;
  }
  return out;
}

std::string until(const std::string& text, char end) {
  std::string out;
  for (std::size_t i = 0; i < text.size() && text[i] != end; ++i) out += text[i];
  return out;
}

std::string slow_stack(const std::string& text) {
  const auto lines = lines_of(text);
  std::string out;
  for (std::size_t i = 0; i < lines.size() && i < kMostFrames; ++i) {
    std::size_t at = 1;
    while (at < lines[i].size() && (lines[i][at - 1] != ']' || lines[i][at] != ' ')) ++at;
    if (at >= lines[i].size()) continue;
    if (!out.empty()) out += " < ";
    out += until(lines[i].substr(at + 1), '+');
  }
  return out;
}

std::optional<std::string> slow_state(const conformance::ThreadTexts& texts) {
  std::size_t first = 0;
  while (first < texts.stat.size() && texts.stat[first] != '(') ++first;
  std::optional<std::size_t> last;
  for (std::size_t i = first; i + 1 < texts.stat.size(); ++i) {
    if (texts.stat[i] == ')' && texts.stat[i + 1] == ' ') last = i;
  }
  if (!last) return std::nullopt;
  std::string out = std::to_string(kTid) + " ";
  for (std::size_t i = first; i <= *last; ++i) out += texts.stat[i];
  out += ": ";
  if (*last + 2 < texts.stat.size()) out += texts.stat[*last + 2];
  const std::string channel = slow_first(texts.wchan);
  if (!channel.empty() && channel != "0") out += ", " + channel;
  const std::string call = slow_first(texts.syscall);
  if (!call.empty()) out += call == "running" ? ", running" : ", system call " + until(call, ' ');
  const std::string stack = slow_stack(texts.stack);
  if (!stack.empty()) out += ", stack " + stack;
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::array<std::string, 4> parts;
  std::size_t part = 0;
  for (const char c : fuzz::text_of(data, size)) {
    if (c == '\0' && part + 1 < parts.size()) {
      ++part;
    } else {
      parts[part] += c;
    }
  }
  const conformance::ThreadTexts texts{parts[0], parts[1], parts[2], parts[3]};
  FUZZ_CHECK(conformance::thread_state(kTid, texts) == slow_state(texts));
  return 0;
}
