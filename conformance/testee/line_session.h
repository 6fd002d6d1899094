// An adapter that is spoken to by hand, for adapter-lint and repl: started, not traced, and held to
// nothing but the form of its lines.
#pragma once

#include <sys/types.h>

#include <chrono>
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
};

class LineSession {
 public:
  using Clock = std::chrono::steady_clock;
  using Json = nlohmann::json;

  // The error is that of starting it.
  static sys::Result<LineSession> start(const LineOptions& options);

  // Adds the id and writes the line; an adapter that does not read is seen at the reply.
  std::int64_t send(Json request);
  // The next line that is a reply or an event; nothing: none came in time, or its output ended.
  std::optional<Json> receive(Clock::time_point until);

  // Ends its stdin and waits; what is left of its process group is killed.
  sys::Result<sys::ChildResult> end(std::chrono::milliseconds within);

  std::uint64_t noise_lines() const { return noise_lines_; }
  const std::string& noise() const { return noise_; }  // the last one; hostile
  const std::string& mark() const { return mark_; }    // in the environment of all that it starts

 private:
  LineSession(sys::Child child, std::string mark);

  sys::Child child_;
  std::string mark_;
  std::int64_t next_id_ = 1;
  std::uint64_t noise_lines_ = 0;
  std::string noise_;
};

// Processes with "KEY=VALUE" in their environment, where that may be read.
std::vector<pid_t> processes_with(std::string_view variable);

// The parts of a hello that ctxconf sends.
nlohmann::json hello_request();

}  // namespace ctxconf::conformance
