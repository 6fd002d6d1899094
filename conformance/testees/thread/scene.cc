#include "conformance/testees/thread/scene.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <utility>

#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

std::mutex output;

}  // namespace

std::atomic<bool> done{false};
std::atomic<int> attached{0};

void attach(char* record) { set_slot(slot(), record); }
void detach() { attach(nullptr); }

void tell_thread(const char* style) {
  if (options.quiet) return;
  const std::scoped_lock lock(output);
  std::printf("%s tid=%d slot=0x%llx record=0x%llx\n", style, static_cast<int>(syscall(SYS_gettid)),
              static_cast<unsigned long long>(address_of(slot())),
              static_cast<unsigned long long>(address_of(*slot())));
}

void announce_ready(const Region* r) {
  if (options.quiet) return;
  const std::scoped_lock lock(output);
  if (r != nullptr) announce(*r);
  say(stdout, "ready pid=%d\n", static_cast<int>(getpid()));
}

void stay(Stay how) {
  if (how == Stay::kAsleep) return done.wait(false);
  while (!done.load(std::memory_order_relaxed)) {
    if (how == Stay::kWaking) sleep_ms(1);
  }
}

void hold_record(char* record, Stay how) {
  attach(record);
  tell_thread("still");
  ++attached;
  stay(how);
  detach();
}

void Threads::start(std::function<void()> body) {
  threads_.emplace_back(std::move(body));
  while (attached.load() < static_cast<int>(threads_.size())) sleep_ms(1);
}

Threads::~Threads() {
  done = true;
  done.notify_all();
  for (auto& t : threads_) t.join();
}

void play(const Scene& scene) {
  Region r;
  const bool publishes = !scene.context.empty();
  if (publishes) r = publish(scene.context);
  if (!scene.records.empty()) {
    attach(scene.place(scene.records[0]));
    tell_thread("still");
  }
  {
    Threads threads;
    for (std::size_t i = 1; i < scene.records.size(); ++i) {
      char* record = scene.place(scene.records[i]);
      const Stay how = i % 2 == 1 ? Stay::kAsleep : scene.second;
      threads.start([record, how] { hold_record(record, how); });
    }
    if (scene.meanwhile) scene.meanwhile(r);
    announce_ready(publishes ? &r : nullptr);
    wait_for_the_end();
  }
  if (!scene.records.empty()) detach();
}

void play_context(const std::vector<Bytes>& attributes) {
  play({.context = context_with(attributes)});
}
void play_records(std::vector<Bytes> records) { play({.records = std::move(records)}); }

}  // namespace ctxconf::testees
