// The process context of the adapter, with the reference data of its records.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/writer/choice.h"
#include "conformance/testees/writer/header.h"

namespace ctxconf::testees {

using adapter::json;
using adapter::Reply;

extern const Choices kReferenceDataChoices;

constexpr std::size_t kMostNames = 256;

class Process {
 public:
  Process();
  Reply publish(const json& request);
  Reply update(const json& request);
  Reply drop(bool attached);
  // Returns the indexes, or -1 where there is none, once readers can look them up.
  std::vector<int> indexes_of(const std::vector<std::string>& names);
  void add_thread(int count) { threads_ += count; }
  void say_now();
  // Runs in a child, which has no other thread.
  void publish_in_child(const json& request);

 private:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // Encodes, and sends after another thread has had the time to give a name.
  Reply update_late(std::unique_lock<std::mutex>& guard);
  // Every thread takes the next index before any has used it. Where fewer come, they wait a while.
  std::vector<int> indexes_without_lock(const std::vector<std::string>& names);
  static Pairs attributes_of(const json& request);
  static Pairs pairs_of(const json& attributes);
  void withdraw();
  bool is_published() const { return region_.at != nullptr; }
  Region publish_in_room(const Bytes& bytes);
  void rewrite(const Bytes& bytes);
  Bytes without_threads() const;
  Bytes whole() const;
  Bytes with_new_names();
  void send(const Bytes& bytes);

  std::mutex lock_;               // from a new name to the end of its publication
  std::atomic<int> threads_ = 0;  // without the first
  std::condition_variable all_there_;
  int took_index_ = 0;
  bool encoded_ = false;
  int wrote_name_ = 0;
  Region region_;  // without an address where nothing is published
  Buffer payload_;
  Pairs resource_;
  Pairs first_resource_;
  Pairs pairs_;  // next to the Resource
  std::vector<std::string> names_;
  std::size_t published_names_ = 0;
  bool said_ = false;   // the map that is published is the last one
  bool again_ = false;  // the last publication replaced another
};

}  // namespace ctxconf::testees
