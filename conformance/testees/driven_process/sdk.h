// The SDK of the adapter, with one context, or with two where it is wrong.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <mutex>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/driven_process/content.h"
#include "conformance/testees/driven_process/context.h"

namespace ctxconf::testees {

using adapter::Gate;

extern const Choices kSdkChoices;

// Parent and children see the same, where they should not.
struct Shared {
  bool withdrawn = false;
  std::size_t size = 0;
  std::array<char, 4000> resource{};
};

class Sdk {
 public:
  Sdk();
  Reply publish(const json& request);
  Reply update(const json& request, const Gate& gate = [] {});
  // Makes updates in which every value ends in the number of the iteration.
  Reply churn(const json& request);
  Reply drop();
  Reply second_resource(const json& request);
  // A watchdog takes a blocked process for a dead one.
  void main_thread_blocks();
  void begin_heartbeat();
  // Withdraws the context when a stop ends, in the main thread between two requests.
  void watch_for_stops();
  // Does one after the other where nothing else was chosen.
  Reply parallel(const json& all);
  // Runs in a child, which has one thread.
  void in_child(const json& child);
  void before_fork() { lock_.lock(); }
  void after_fork(bool publishes);
  // Runs in the parent, once the child has done what it had to do.
  void child_is_ready();
  void child_has_ended() { --children_; }
  void before_exec(bool of_itself);
  static void after_exec();

 private:
  bool at_once(const json& requests);
  Reply update_locked(const json& request, const Gate& gate = [] {});

  std::mutex lock_;
  pid_t publisher_ = 0;
  bool dropped_ = false;
  int children_ = 0;
  Content content_;
  Content first_;
  Context context_;
  Context second_;
  Shared* shared_ = nullptr;
};

}  // namespace ctxconf::testees
