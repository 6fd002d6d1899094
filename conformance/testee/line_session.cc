#include "conformance/testee/line_session.h"

#include <algorithm>
#include <utility>

#include "conformance/testee/protocol.h"
#include "conformance/version.h"
#include "sys/started.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kWriting{2000};
constexpr milliseconds kEnding{5000};  // for killed processes

}  // namespace

struct LineSession::Processes {
  sys::Started started;  // before the child starts
  std::optional<sys::Child> child;

  ~Processes() {
    child.reset();
    (void)started.end(kEnding);
  }
};

LineSession::LineSession(std::unique_ptr<Processes> processes) : processes_(std::move(processes)) {}
LineSession::LineSession(LineSession&&) noexcept = default;
LineSession& LineSession::operator=(LineSession&&) noexcept = default;
LineSession::~LineSession() = default;

sys::Result<LineSession> LineSession::start(const LineOptions& given) {
  sys::ChildOptions options;
  options.argv = given.argv;
  options.descriptor3 = given.descriptor3;
  options.extra_env = {"CTXCONF=1", "CTXCONF_PROTOCOL=1", "CTXCONF_TEST=by-hand",
                       "CTXCONF_SEED=" + given.seed};
  if (given.descriptor3) options.extra_env.emplace_back("CTXCONF_CHANNEL=fd3");
  options.deadline = kWriting;
  options.interrupt = given.interrupt;
  auto processes = std::make_unique<Processes>();
  CTX_ASSIGN_OR_RETURN(child, sys::Child::start(options));
  processes->child = std::move(child);
  return LineSession(std::move(processes));
}

std::int64_t LineSession::send(Json request) {
  const std::int64_t id = next_id_++;
  if (!request.contains("id")) request["id"] = id;
  (void)processes_->child->write(request.dump(-1, ' ', false, Json::error_handler_t::replace) +
                                 "\n");
  return id;
}

std::optional<Json> LineSession::receive(Clock::time_point until) {
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    auto line = processes_->child->read_line(std::max(left, milliseconds(0)));
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

sys::Result<sys::ChildResult> LineSession::end(milliseconds within) {
  return processes_->child->wait(within);
}

bool LineSession::has_started(pid_t pid) const { return processes_->started.has(pid); }

std::vector<pid_t> LineSession::left() const { return processes_->started.running(); }

std::vector<pid_t> LineSession::end_left() const { return processes_->started.end(kEnding); }

Json hello_request() {
  return {{"op", "hello"}, {"v", 1}, {"suite", kVersionText}, {"spec", Json::object()}};
}

}  // namespace ctxconf::conformance
