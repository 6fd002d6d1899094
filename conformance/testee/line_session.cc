#include "conformance/testee/line_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "conformance/testee/protocol.h"
#include "conformance/version.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kNoiseKept = 200;
constexpr milliseconds kWriting{2000};

}  // namespace

LineSession::LineSession(sys::Child child, std::string mark)
    : child_(std::move(child)), mark_(std::move(mark)) {}

sys::Result<LineSession> LineSession::start(const LineOptions& given) {
  static std::atomic<int> sessions{0};
  std::string mark = fmt::format("CTXCONF_SESSION={}-{}-{}", getpid(), given.seed, ++sessions);
  sys::ChildOptions options;
  options.argv = given.argv;
  options.descriptor3 = given.descriptor3;
  options.extra_env = {"CTXCONF=1", "CTXCONF_PROTOCOL=1", "CTXCONF_TEST=by-hand",
                       "CTXCONF_SEED=" + given.seed, mark};
  if (given.descriptor3) options.extra_env.emplace_back("CTXCONF_CHANNEL=fd3");
  options.deadline = kWriting;
  CTX_TRY(child, sys::Child::start(options));
  return LineSession(std::move(child), std::move(mark));
}

std::int64_t LineSession::send(Json request) {
  const std::int64_t id = next_id_++;
  if (!request.contains("id")) request["id"] = id;
  (void)child_.write(request.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  return id;
}

std::optional<Json> LineSession::receive(Clock::time_point until) {
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    auto line = child_.read_line(std::max(left, milliseconds(0)));
    if (!line) return std::nullopt;
    Json value;
    if (line->size() <= kLongestLine && classify_line(*line, value) != LineKind::kNoise) {
      return value;
    }
    ++noise_lines_;
    noise_ = line->substr(0, kNoiseKept);
    if (Clock::now() >= until) return std::nullopt;
  }
}

sys::Result<sys::ChildResult> LineSession::end(milliseconds within) { return child_.wait(within); }

std::vector<pid_t> processes_with(std::string_view variable) {
  std::vector<pid_t> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (status != std::errc() || end != name.data() + name.size()) continue;
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    const std::string wanted = std::string(variable) + '\0';
    const auto at = ('\0' + text).find('\0' + wanted);
    if (at != std::string::npos) out.push_back(pid);
  }
  return out;
}

Json hello_request() {
  return {{"op", "hello"}, {"v", 1}, {"suite", kVersionText}, {"spec", Json::object()}};
}

}  // namespace ctxconf::conformance
