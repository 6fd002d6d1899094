// An adapter for adapter-lint and repl: started but not traced, and checked only for the form of
// its lines.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sys/child.h"
#include "sys/result.h"

namespace ctxconf::conformance {

struct LineOptions {
  std::vector<std::string> argv;
  std::string seed;          // hexadecimal
  bool descriptor3 = false;  // --channel fd3
  int interrupt = -1;        // as in sys::ChildOptions
};

// Ends with all processes that the adapter started.
class LineSession {
 public:
  using Clock = std::chrono::steady_clock;
  using Json = nlohmann::json;

  LineSession(LineSession&&) noexcept;
  LineSession& operator=(LineSession&&) noexcept;
  ~LineSession();

  // Fails if the adapter cannot be started.
  static sys::Result<LineSession> start(const LineOptions& options);

  // Adds the id and writes the line. An adapter that does not read is noticed at the reply.
  std::int64_t send(Json request);
  // The next line that is a reply or an event; nothing if none arrives in time or the output ends.
  std::optional<Json> receive(Clock::time_point until);

  // Closes its stdin and waits; kills what is left of its process group.
  sys::Result<sys::ChildResult> end(std::chrono::milliseconds within);

  std::uint64_t noise_lines() const { return noise_lines_; }
  const std::string& noise() const { return noise_; }  // the last one; hostile

  // Whether the process is the adapter or a descendant of it.
  bool has_started(pid_t pid) const;
  // Descendants of the adapter that still live after its end.
  std::vector<pid_t> left() const;
  // Kills these and waits; returns those that could not be ended in time.
  std::vector<pid_t> end_left() const;

 private:
  struct Processes;
  explicit LineSession(std::unique_ptr<Processes> processes);

  std::unique_ptr<Processes> processes_;
  std::int64_t next_id_ = 1;
  std::uint64_t noise_lines_ = 0;
  std::string noise_;
};

// The parts of a hello that ctxconf sends.
nlohmann::json hello_request();

}  // namespace ctxconf::conformance
