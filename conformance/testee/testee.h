// A program under test: started, spoken to, recorded, ended and accounted for. Whatever it does
// becomes a Stop here and evidence in the timeline, never an end of this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <expected>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/observe/wrap.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/session.h"
#include "conformance/testee/protocol.h"
#include "conformance/timeline.h"

namespace ctxconf::conformance {

// Why nothing more can be asked of a testee, or not in this check.
enum class Stop {
  kCrashed,       // it died or left
  kHung,          // it did not answer in time, and is to be killed
  kGaveUp,        // it ended while calls failed, as a program may: Testee::gives_up()
  kRefused,       // it refused what it had declared: the check ends, the testee goes on
  kAdapterFault,  // it broke the protocol, or never said hello: adapter_fault() says how
  kInterrupted,   // a signal to ourselves
  kHarnessFault,  // ours: harness_fault() says what
};

struct TesteeOptions {
  std::vector<std::string> argv;
  bool descriptor3 = false;      // --channel fd3
  bool names_memory = true;      // the kernel can name anonymous memory
  bool pid_namespaces = true;    // this host has them
  bool file_size_limit = false;  // what inject() turns on is kFileSizeLimit
  bool poisons_memory = false;   // what is given back to glibc's malloc is overwritten
  std::uint32_t repeat = 0;      // which of --repeat this is
  std::string seed;              // hexadecimal
  SpecSelection spec;
  // What is recorded, and how: argv is not asked. With record_stores the record of the thread that
  // was asked last is watched.
  WrapOptions recording;
  std::chrono::milliseconds race_for{500};
  std::chrono::milliseconds reply_within = kReplyWithin;
  std::chrono::milliseconds hello_within = kHelloWithin;
  std::chrono::milliseconds end_within = kEndWithin;
};

class Testee {
 public:
  using Json = nlohmann::json;
  template <class T>
  using Answer = std::expected<T, Stop>;

  // Starts it and says hello. `timeline` outlives it. What went wrong before hello
  // was answered is kAdapterFault, unless it was us. The session ends with end() or the destructor.
  Testee(TesteeOptions options, std::string group, Timeline& timeline);
  ~Testee();
  Testee(const Testee&) = delete;
  Testee& operator=(const Testee&) = delete;
  Answer<void> start();

  // As declared in hello.
  bool can(std::string_view capability) const;
  const Json& capabilities() const;
  pid_t pid() const;                          // that hello named
  bool has_asked(std::string_view op) const;  // in this process

  // What follows belongs to this check.
  void begin_check(std::string name, std::vector<std::string> requirements);
  // The current check ended so.
  void end_check(Stop stop);

  // Sends {"op":op, ...members} and waits for the reply, then looks at everything. A reply with
  // ok:false is kRefused.
  Answer<Json> request(const std::string& op, Json members = Json::object());
  // The same where an SDK may refuse by design: "rejected" and "unsupported" are answers, too.
  Answer<Json> offer(const std::string& op, Json members);
  // ... and where any refusal is an answer.
  Answer<Json> ask(const std::string& op, Json members = Json::object());
  // Sends what is answered by an exec of the testee itself, which then says hello again.
  Answer<void> exec_self();
  // ... and by an exec of a program that does nothing, of which nothing can be asked any more. The
  // testee lives on where that program is not there for it.
  Answer<void> exec_idle();
  // options.recording.injections hold from now on, or no longer; from the start they do not. Nor
  // do they for a request that has had half of its time: a program may wait for a call to work.
  void inject(bool on);
  bool has_injected() const;  // a call was answered, or the limit was set
  // For a check that the testee did not survive while calls failed: that decides nothing but by
  // what the rules see, unless a signal ended it that neither refused memory nor the limit brings.
  Stop gives_up();
  // The same as ask(), with a gate: they hold from when it is passed until the reply.
  Answer<Json> ask_with_failures(const std::string& op, Json members);
  // While a reader on another processor copies the context again and again, asks `ask` with 0, 1, 2
  // and so on until options.race_for is over. Nothing else is looked at until then, and of what was
  // asked the last is kept.
  Answer<void> race(const std::function<Answer<void>(std::uint64_t)>& ask);
  // Lets it run on for a while without a request, then looks at everything.
  Answer<void> wait(std::chrono::milliseconds duration);
  // The same while it is stopped by SIGSTOP, and then while it runs again.
  Answer<void> wait_stopped(std::chrono::milliseconds stopped, std::chrono::milliseconds running);
  // The same, but only where no context was seen yet, and until there is one.
  Answer<void> wait_for_context(std::chrono::milliseconds most);

  // The same where the operation before, of which `reply` is the answer, was accepted and left the
  // context of the process as it was: until it changes.
  Answer<void> wait_for_change(const Json& reply, std::chrono::milliseconds most);

  // bye, then waits for its end; what is left is killed. Adds session and processes to the
  // timeline.
  void end();

  const std::string& adapter_fault() const;  // one line and more; hostile
  const std::string& harness_fault() const;
  int start_error() const;   // errno of what cannot be started; 0: it was, or nobody tried
  bool interrupted() const;  // by a signal to ourselves, whenever; known once it has ended

 private:
  struct State;
  // Says so in the check.
  std::unexpected<Stop> refused(const std::string& op, const Json& reply);
  std::unique_ptr<State> state_;
};

}  // namespace ctxconf::conformance
