// What the programs with thread contexts do unless the case changes it: they publish a
// process context, attach a record in each of three threads, and hold still.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "conformance/testees/thread/slot.h"
#include "conformance/testees/thread/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/record.h"

namespace ctxconf::testees {

void attach(char* record);
void detach();

extern std::atomic<bool> done;
extern std::atomic<int> attached;

// Tells somebody outside what there is to be seen.
void tell_thread(const char* style);
void announce_ready(const Region* r);

enum class Stay { kAsleep, kWaking, kBusy };  // kWaking: runs now and then
void stay(Stay how);

// The body of a thread whose record does not change.
void hold_record(char* record, Stay how);

class Threads {
 public:
  // `body` adds one to `attached` when there is something to look at, and returns soon after
  // `done`.
  void start(std::function<void()> body);
  ~Threads();

 private:
  std::vector<std::thread> threads_;
};

struct Scene {
  Bytes context = usual_message();                         // empty: none is published
  std::vector<Bytes> records = usual_bytes();              // of main and further threads
  char* (*place)(const Bytes& record) = in_block;          // where a record goes
  Stay second = Stay::kWaking;                             // what every second thread does
  std::function<void(const Region&)> meanwhile = nullptr;  // once all are attached
};

void play(const Scene& scene);
void play_context(const std::vector<Bytes>& attributes);
void play_records(std::vector<Bytes> records);

}  // namespace ctxconf::testees
