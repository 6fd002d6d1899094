// Looks at one process again and again, and reports each change of what it believes of it and of
// its threads.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

namespace ctxconf::reader {

struct WatchOptions {
  std::chrono::milliseconds interval{100};  // between two looks
  std::chrono::milliseconds relist{1000};   // as in ReaderOptions
};

class ProcessWatch {
 public:
  // The members of an event `saw` (docs/testee-protocol.md). Called in a thread of the watch.
  using Report = std::function<void(nlohmann::json)>;

  // Reports what it believes of the process after its first look, and whatever becomes different;
  // of a thread, as soon as it has had a context. While a context is being changed, it believes
  // what it believed before. Ends with the process. Throws std::system_error if no thread can be
  // started.
  ProcessWatch(pid_t pid, const WatchOptions& options, Report report);
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;
  // Ends it; nothing is reported after this. A watch that hangs in a page that nobody fills is left
  // behind after a moment.
  ~ProcessWatch();

  bool has_ended() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with its thread
};

}  // namespace ctxconf::reader
