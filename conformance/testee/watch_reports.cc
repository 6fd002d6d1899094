#include "conformance/testee/watch_reports.h"

#include <fmt/format.h>

namespace ctxconf::conformance {

std::string WatchReports::add(const Json& event) {
  const std::pair about(event.at("pid").get<pid_t>(), event.value("tid", pid_t{0}));
  if (!asked_.contains(about.first)) {
    return fmt::format("reported process {}, which it was not told to watch", about.first);
  }
  if (latest_.size() >= kMost && !latest_.contains(about)) {
    return fmt::format("reported more than {} threads at once, and no more are kept", kMost);
  }
  latest_[about] = event;
  return {};
}

std::vector<WatchReports::Json> WatchReports::take() {
  std::vector<Json> out;
  out.reserve(latest_.size());
  for (auto& [about, event] : latest_) out.push_back(std::move(event));
  latest_.clear();
  return out;
}

}  // namespace ctxconf::conformance
