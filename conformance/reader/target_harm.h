// What a reader may have done to the processes that it was asked about, seen from outside: it ended
// one, left one stopped, made a stopped one run, or is still the tracer of one.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>

#include "conformance/puppet/script.h"

namespace ctxconf::conformance::reader {

class TargetHarm {
 public:
  // `script` says what its processes do to themselves. `keeps_tracing`: the reader declares that it
  // stays the tracer of what it has looked at.
  TargetHarm(const puppet::Script& script, bool keeps_tracing);

  // Call it before a question about the process.
  void begin(pid_t process);
  // Looks at all of them. A thread that was once seen to be well is well.
  struct Found {
    std::string what;     // "ended its target: killed by SIGKILL"; empty: nothing
    bool may_end = true;  // it may be only for a moment
  };
  Found look();

 private:
  struct Condition {
    std::string state;  // the letter
    pid_t tracer = 0;
    bool has_ended() const;
  };
  static std::optional<Condition> condition_of(pid_t tid);  // nothing: it is gone
  Found look_at(pid_t process, const Condition& before);

  bool ends_ = false;       // a process of the script may end
  bool stops_ = false;      // and may be stopped
  bool continues_ = false;  // and may be made to run again
  bool keeps_tracing_ = false;
  std::map<pid_t, Condition> processes_;  // as they were at first
  std::set<pid_t> well_;                  // threads
};

}  // namespace ctxconf::conformance::reader
