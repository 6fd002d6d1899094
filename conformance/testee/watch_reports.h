// What a reader that looks by itself reports of the processes that it was asked to watch.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ctxconf::conformance {

class WatchReports {
 public:
  using Json = nlohmann::json;

  // The most unread reports that are kept, for processes and threads.
  static constexpr std::size_t kMost = 4096;

  // From now on the reader may report this process. A report may be late, so this never ends.
  void ask_about(pid_t process) { asked_.insert(process); }

  // A "saw" event that follows the schema. Empty; or why it breaks the protocol, and is not kept.
  std::string add(const Json& event);

  // The last report of each process and thread since the last call.
  std::vector<Json> take();

 private:
  std::set<pid_t> asked_;
  std::map<std::pair<pid_t, pid_t>, Json> latest_;  // by process and thread; 0: the process itself
};

}  // namespace ctxconf::conformance
