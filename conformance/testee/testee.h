// One testee in one session: ctxconf starts it, talks to it, records it and ends it. Whatever the
// testee does becomes a Stop and evidence in the timeline; it never ends this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <expected>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/wrap.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/testee/protocol.h"

namespace ctxconf::conformance {

// Why nothing more can be asked of a testee, or not in this check.
enum class Stop {
  kCrashed,       // it died or left
  kHung,          // it did not answer in time; it must be killed
  kGaveUp,        // it ended while calls failed, which is allowed: Testee::gives_up()
  kRefused,       // it refused what it declares: the check ends, the testee continues
  kAdapterFault,  // it broke the protocol, or never said hello: adapter_fault() says how
  kInterrupted,   // a signal to ctxconf
  kHarnessFault,  // a fault of ctxconf: harness_fault() says which
};

struct TesteeOptions {
  std::vector<std::string> argv;
  Mode mode = Mode::kRun;        // whose requirements are asked for
  bool descriptor3 = false;      // --channel fd3
  bool names_memory = true;      // the kernel can name anonymous memory
  bool pid_namespaces = true;    // this host has them
  bool file_size_limit = false;  // inject() turns on kFileSizeLimit
  bool poisons_memory = false;   // memory freed to glibc's malloc is overwritten
  std::uint32_t repeat = 0;      // which of --repeat this is
  // It is a reader: its own memory is not looked at, and the process that hello names may be one
  // that it has not started.
  bool reader = false;
  bool without_ptrace_right = false;  // it gets no CAP_SYS_PTRACE, if ctxconf is root
  std::string seed;                   // hexadecimal
  SpecSelection spec;
  Level deepest = Level::kRace;  // see Driver
  // What is recorded, and how; argv is ignored. With record_stores, the record of the thread of the
  // last request is watched.
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

  // Starts it and says hello. `timeline` must outlive this. A failure before the reply to hello is
  // kAdapterFault, unless ctxconf caused it. end() or the destructor ends the session.
  Testee(TesteeOptions options, std::string group, Timeline& timeline);
  ~Testee();
  Testee(const Testee&) = delete;
  Testee& operator=(const Testee&) = delete;
  Answer<void> start();

  // Whether hello declared the capability.
  bool can(std::string_view capability) const;
  const Json& capabilities() const;
  pid_t pid() const;                          // from hello
  bool has_asked(std::string_view op) const;  // in this process

  // Begins a check; everything that follows belongs to it.
  void begin_check(std::string name, std::vector<std::string> requirements);
  // Ends the current check.
  void end_check(Stop stop);

  // Sends {"op":op, ...members}, waits for the reply, then takes snapshots. A reply with ok:false
  // is kRefused.
  Answer<Json> request(const std::string& op, Json members = Json::object());
  // The same if an SDK may refuse by design: "rejected" and "unsupported" count as answers.
  Answer<Json> offer(const std::string& op, Json members);
  // The same, but every refusal counts as an answer.
  Answer<Json> ask(const std::string& op, Json members = Json::object());
  // Requests an exec of the testee itself, which then says hello again.
  Answer<void> exec_self();
  // Requests an exec of a program that does nothing and cannot be asked anything more. The testee
  // survives if it cannot find that program.
  Answer<void> exec_idle();
  // Turns options.recording.injections on or off; they start off. They also end for a request that
  // has used half of its time, because a program may wait until a call succeeds.
  void inject(bool on);
  bool has_injected() const;  // a call was injected, or the limit was set
  // For a check in which the testee ended while calls failed. Then only the rules decide, unless a
  // signal ended the testee that neither refused memory nor the limit explains.
  Stop gives_up();
  // As ask(), with a gate: the injections are on from when the gate is passed until the reply.
  Answer<Json> ask_with_failures(const std::string& op, Json members);
  // Calls `ask` with 0, 1, 2 and so on until options.race_for is over, while a race reader copies
  // the context again and again. Nothing else is observed meanwhile, and only the last operation is
  // kept.
  Answer<void> race(const std::function<Answer<void>(std::uint64_t)>& ask);
  // Lets it run for a while without a request, then takes snapshots.
  Answer<void> wait(std::chrono::milliseconds duration);
  // The same while SIGSTOP stops it, and then while it runs again.
  Answer<void> wait_stopped(std::chrono::milliseconds stopped, std::chrono::milliseconds running);
  // As wait(), but only if no context was seen yet, and until one is seen.
  Answer<void> wait_for_context(std::chrono::milliseconds most);

  // As wait(), but only if the previous operation, whose answer is `reply`, was accepted and the
  // context is unchanged; until it changes.
  Answer<void> wait_for_change(const Json& reply, std::chrono::milliseconds most);

  // What follows is for readers.

  // Handles what happens until then, or until a descriptor of wake_for() is ready.
  Answer<void> pump(std::chrono::steady_clock::time_point until);
  sys::Result<> wake_for(int fd, short events);  // see sys::Tracer::wake_for()
  // Waits without a request, at most this long, until the condition holds; the operation of this
  // time is the last one. The condition is checked after each event, and this often.
  Answer<void> wait_until(std::chrono::milliseconds most, const std::function<bool()>& is_done,
                          std::chrono::milliseconds checked);
  // What the last request asked; it may be completed after the reply. Null before the first one.
  Operation* last_operation();
  // The last report ("saw") of each process and thread that came since the last call.
  std::vector<Json> take_events();
  std::vector<pid_t> processes() const;  // of the adapter, living
  CheckRun& check();                     // the current one

  // Says bye, waits for the end and kills what is left. Adds the session and its processes to the
  // timeline.
  void end();

  const std::string& adapter_fault() const;  // one line and more; hostile
  const std::string& harness_fault() const;
  int start_error() const;   // errno if it cannot be started, else 0
  bool interrupted() const;  // by a signal to ctxconf; known after the end

 private:
  struct State;
  // Why it did not answer hello; blames it if it ended or hung.
  Stop no_hello(Stop stop);
  // Notes the refusal in the check.
  std::unexpected<Stop> refused(const std::string& op, const Json& reply);
  std::unique_ptr<State> state_;
};

}  // namespace ctxconf::conformance
