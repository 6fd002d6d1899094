// The output of an adapter: bytes, cut into lines, some of which are replies and events. A byte 1
// stands for 300,000 letters, so that a line over the limit needs few bytes.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/testee/protocol.h"
#include "fuzz/agree.h"
#include "fuzz/expand.h"

namespace {

using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;
using nlohmann::json;

constexpr std::size_t kLongRun = 300'000;
constexpr std::size_t kMostText = 5 * kLongRun;

// A second way to cut lines: the whole text at once.
std::vector<std::string> lines_of_text(std::string_view text) {
  std::vector<std::string> lines;
  for (auto end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    lines.emplace_back(end > kLongestLine ? std::string_view() : text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

void check_lines(std::string_view text, std::size_t piece, std::span<const std::string> wanted) {
  LineBuffer buffer;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size(); at += piece) {
    buffer.add(text.substr(at, piece));
    FUZZ_CHECK(buffer.pending() <= kLongestLine);
    while (const auto line = buffer.next()) {
      FUZZ_CHECK(next < wanted.size());
      FUZZ_CHECK(*line == wanted[next++]);
    }
  }
  FUZZ_CHECK(next == wanted.size());
}

void check_line(const std::string& line) {
  json value;
  const LineKind kind = classify_line(line, value);
  if (kind == LineKind::kNoise) return;
  FUZZ_CHECK(value.is_object());
  json again;
  FUZZ_CHECK(classify_line(value.dump(), again) == kind);
  FUZZ_CHECK(again == value);
  for (const Definition definition :
       {Definition::kRequest, Definition::kReply, Definition::kEvent, Definition::kHelloReply,
        Definition::kSpawnReply, Definition::kForkReply, Definition::kReapReply,
        Definition::kTlsAddressReply, Definition::kParallelReply, Definition::kReaderReply}) {
    const auto problem = problem_of(value, definition);
    if (problem) FUZZ_CHECK(!problem->empty());
    if (definition != Definition::kHelloReply || problem) continue;
    // If a hello is valid, its declarations are used in the requests.
    const json caps = value.value("caps", json::object());
    for (const char* const name : {"process.publish", "process.fork:publish", "thread", "gate"}) {
      if (is_declared(caps, name)) FUZZ_CHECK(value.contains("caps"));
    }
    json request = {
        {"id", 1},
        {"op", "process.publish"},
        {"resource", {{"attributes", {{{"key", "service.name"}, {"value", {{"string", "a"}}}}}}}}};
    keep_settable_keys(caps, request);
    FUZZ_CHECK(request["resource"]["attributes"].size() <= 1);
    FUZZ_CHECK(!problem_of(request, Definition::kRequest));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text;
  expand(text_of(data, size), kLongRun, kMostText, text);
  const std::vector<std::string> lines = lines_of_text(text + "\n");
  const auto ended = std::span(lines).first(lines.size() - 1);  // the last one has no newline
  check_lines(text, SIZE_MAX / 2, ended);
  check_lines(text, text.size() / 3 + 1, ended);
  if (text.size() <= 256) check_lines(text, 1, ended);
  for (const std::string& line : lines) check_line(line);
  return 0;
}
