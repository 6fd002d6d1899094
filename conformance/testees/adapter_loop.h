// What adapters in C++ share: the lines of the testee protocol (docs/testee-protocol.md), named
// threads and gates. An adapter gives a handler for each operation of its SDK and calls run().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace ctxconf::adapter {

using nlohmann::json;

// An error reply.
struct Refusal {
  const char* kind = "failed";  // or "unsupported", "rejected", "bad-request"
  std::string message;
  int err = 0;  // errno, or 0
};

// Members for the reply, or null for none but `ok`.
using Reply = std::expected<json, Refusal>;

inline std::unexpected<Refusal> refuse(const char* kind, std::string message, int err = 0) {
  return std::unexpected(Refusal{kind, std::move(message), err});
}

using Handler = std::function<Reply(const json& request)>;

// Returns at once unless the request has a gate; then says that this thread is armed and waits.
using Gate = std::function<void()>;
using GatedHandler = std::function<Reply(const json& request, const Gate& gate)>;

class Loop {
 public:
  // `hello` is the reply to it but for `v` and `pid`: `adapter`, `caps` and so on. The lines come
  // and go through descriptors 0 and 1, or 3 where the environment has CTXCONF_CHANNEL=fd3.
  explicit Loop(json hello);
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  // The handler runs on the thread that the request's `thread` names, else on the main one, after
  // the gate. What it throws becomes an error reply: bad-request if a member is missing or of
  // another type, else failed. Replaces an earlier handler, or what the loop does by itself: hello,
  // bye, parallel, thread.spawn, thread.exit and thread.block.
  void on(std::string op, Handler handler);
  // The handler calls the gate itself, when nothing is left to do but the SDK's call.
  void on_gated(std::string op, GatedHandler handler);

  // Called first in each thread that thread.spawn starts; and when one is gone, with its name.
  void on_thread_start(std::function<void()> start) { thread_start_ = std::move(start); }
  void on_thread_end(std::function<void(const std::string&)> end) { thread_end_ = std::move(end); }

  // Call it from the main thread, which waits. `thread`: "main" or one that was spawned.
  Reply run_on(const std::string& thread, std::function<Reply()> work);

  // Answers requests until bye or the end of the file. The program then has to end with _exit:
  // threads may be blocked.
  int run();

  // One line, from any thread; the line feed is added.
  void send(const json& message);
  void send_line(std::string_view line);
  // nullopt at the end of the file. A line over 1 MiB is returned empty.
  std::optional<std::string> read_line();

  // Call it in a child after fork, which then no longer holds the channel open.
  void leave_channel() const;

 private:
  class Worker;

  Reply dispatch(const json& request, const Gate& gate);
  Reply spawn(const json& request);
  Reply end_thread(const json& request);
  Reply parallel(const json& request);
  // Sends its reply itself.
  void block(const json& request, const Gate& gate);
  void answer(const json& request);
  void wait_for_go(std::int64_t id);

  json hello_;
  std::map<std::string, GatedHandler> handlers_;
  std::function<void()> thread_start_;
  std::function<void(const std::string&)> thread_end_;
  std::map<std::string, std::unique_ptr<Worker>> workers_;
  std::mutex sending_;
  int in_ = 0;
  int out_ = 1;
  std::string pending_;  // read, not yet used
  bool ended_ = false;
};

// process.reap: one of `children`, which is then none of them any more.
Reply reap_child(std::set<pid_t>& children, const json& request);

// Becomes the program at `path`, or this program again with CTXCONF_RESUME=1. Returns why not.
Refusal exec_program(const json& argv, const json& env);
Refusal exec_self(char** argv);
// A value of process.churn: "checkout-0000000017" is the seventeenth.
std::string numbered(const std::string& value, std::uint64_t number);

}  // namespace ctxconf::adapter
