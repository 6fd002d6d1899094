// Cases about records that change.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "conformance/testees/thread/scene.h"
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/thread/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

// A thread works on its record until the end.
void play_moving(const std::function<void()>& step_forever) {
  const Region r = publish(usual_message());
  Threads threads;
  threads.start([&] {
    step_forever();
    detach();
  });
  threads.start([] { hold_record(in_block(usual_records()[1].bytes()), Stay::kAsleep); });
  announce_ready(&r);
  wait_for_the_end();
}

void attached_now() {
  tell_thread("moving");
  ++attached;
}

bool go_on() { return !done.load(std::memory_order_relaxed); }

// By default it takes so long that two changes do not pass for one.
void work(int turns = 1000) {
  volatile int left = turns;
  while (left > 0) left = left - 1;
}

Record numbered(unsigned i) {
  Record r = usual_records()[i % 3];
  r.span[7] = static_cast<char>(i | 1U);
  r.trace[15] = static_cast<char>(i | 1U);
  r.entries.push_back(entry(2, std::to_string(i)));
  return r;
}

// Attaches a record, and then makes changes to it.
void play_changes(const std::function<void(char* at, unsigned i)>& change) {
  play_moving([&] {
    char* at = in_block(numbered(0).bytes());
    attach(at);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) change(at, i);
  });
}

// Each change gives the record other ids.
void play_new_ids(const std::function<void(char* at, const Bytes& ids)>& rewrite) {
  play_changes([&](char* at, unsigned i) {
    const Bytes ids = numbered(3 * i).bytes().substr(0, kValidAt);
    work();
    rewrite(at, ids);
  });
}

// The record is hidden while it is rewritten.
void good_toggled() {
  play_changes([](char* at, unsigned i) {
    const Bytes bytes = numbered(i).bytes();
    set_valid(at, 0);
    bytes.copy(at, kValidAt);
    bytes.copy(at + kFlagsAt, bytes.size() - kFlagsAt, kFlagsAt);
    set_valid(at, 1);
  });
}

// The record that is not attached is rewritten.
void good_switched() {
  play_moving([] {
    char* at[2] = {in_block(numbered(0).bytes()), in_block({})};
    attach(at[0]);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      const Bytes bytes = numbered(i).bytes();
      bytes.copy(at[i % 2], bytes.size());
      attach(at[i % 2]);
    }
  });
}

void good_switched_through_null() {
  play_changes([](char* at, unsigned i) {
    const Bytes bytes = numbered(i).bytes();
    detach();
    bytes.copy(at, bytes.size());
    attach(at);
  });
}

void nested(unsigned depth) {
  char record[128] __attribute__((aligned(2))) = {};
  const Bytes bytes = numbered(depth).bytes();
  bytes.copy(record, bytes.size());
  void* outer = *slot();
  attach(record);
  if (depth < 8) nested(depth + 1);
  attach(static_cast<char*>(outer));
}

void good_nested() {
  play_moving([] {
    attach(in_block(numbered(0).bytes()));
    attached_now();
    while (go_on()) nested(1);
  });
}

// Entries come after the visible ones, are then shown, and are taken away again.
void good_appended() {
  play_moving([] {
    const Record r = usual_records()[0];
    char* at = in_block(r.bytes());
    const std::size_t size = r.area().size();
    attach(at);
    attached_now();
    while (go_on()) {
      const Bytes more = entry(3, "appended") + entry(1, "PUT");
      more.copy(at + kHead + size, more.size());
      set_size(at, size + more.size());
      work(100);  // so that readers find both sizes
      set_size(at, size);
    }
  });
}

// Its tail is cut off right after it is attached.
void good_shrunk_at_once() {
  play_moving([] {
    const Record r = usual_records()[0];
    char* at = in_block(r.bytes());
    attach(at);
    attached_now();
    while (go_on()) {
      detach();
      set_size(at, r.area().size());
      attach(at);
      set_size(at, r.entries[0].size());
      work();
    }
  });
}

// A copy may be one instruction (SVE), and then no reader sees a part of it.
void store_words(char* at, const Bytes& bytes) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    bytes.copy(reinterpret_cast<char*>(&word), sizeof word, i);
    store(at + i, word);
  }
}

void bad_complete_before_visible() {
  play_moving([] {
    char* at[2] = {in_block(numbered(0).bytes()), in_block(numbered(0).bytes())};
    attach(at[0]);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      const Bytes ids = numbered(3 * i).bytes().substr(0, kValidAt);
      work();
      attach(at[i % 2]);
      store_words(at[i % 2], ids);
    }
  });
}

void bad_no_change_while_visible() { play_new_ids(store_words); }

void bad_valid_cleared_first() {
  play_new_ids([](char* at, const Bytes& ids) {
    ids.copy(at + kSpanAt, 8, kSpanAt);
    set_valid(at, 0);
    ids.copy(at, kSpanAt);
    set_valid(at, 1);
  });
}

void bad_valid_set_last() {
  play_new_ids([](char* at, const Bytes& ids) {
    set_valid(at, 0);
    ids.copy(at, kSpanAt);
    set_valid(at, 1);
    ids.copy(at + kSpanAt, 8, kSpanAt);
  });
}

void bad_slot_always_sound() {
  play_moving([] {
    alignas(8192) static char memory[8192];
    char* at[2] = {memory + 0x40, memory + 0x1180};
    for (unsigned i = 0; i < 2; ++i) {
      const Bytes bytes = numbered(i).bytes();
      bytes.copy(at[i], bytes.size());
    }
    attach(at[0]);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      work();
      const auto* from = reinterpret_cast<const char*>(&at[i % 2]);
      auto* to = reinterpret_cast<volatile char*>(slot());
      for (std::size_t b = 0; b < sizeof(char*); ++b) to[b] = from[b];
    }
  });
}

// Each thread has a record that it frees at its end.
void good_thread_churn() {
  play_moving([] {
    attach(in_block(numbered(0).bytes()));
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      std::thread([i] {
        const Bytes bytes = numbered(i).bytes();
        auto* at = static_cast<char*>(std::malloc(bytes.size()));
        if (at == nullptr) die("malloc");
        bytes.copy(at, bytes.size());
        attach(at);
        sleep_ms(2);
        detach();
        std::free(at);
      }).join();
    }
  });
}

// A record goes from thread to thread with its work.
void good_handed_over() {
  play_changes([](char* at, unsigned /*i*/) {
    detach();
    std::thread([at] {
      attach(at);
      sleep_ms(2);
      detach();
    }).join();
    attach(at);
    sleep_ms(2);
  });
}

constexpr Case kBadStoreOrder[] = {
    {"tctx.attach.complete-before-visible", "stores the pointer first, and then the ids",
     bad_complete_before_visible},
    {"tctx.attach.no-change-while-visible", "overwrites the ids that are attached",
     bad_no_change_while_visible},
    {"tctx.attach.valid-cleared-first", "stores the span id, and then the valid byte",
     bad_valid_cleared_first},
    {"tctx.attach.valid-set-last", "stores the valid byte, and then the span id",
     bad_valid_set_last},
    {"tctx.attach.slot-always-sound", "copies the pointer byte by byte", bad_slot_always_sound},
};

constexpr Case kGoodStoreOrder[] = {
    {"toggled", "rewrites one record in place all the time", good_toggled},
    {"switched", "switches between two records all the time", good_switched},
    {"switched-through-null", "has null while it rewrites the record", good_switched_through_null},
    {"nested", "makes calls within calls, and has records on the stack", good_nested},
    {"appended", "appends entries and takes them away all the time", good_appended},
    {"shrunk-at-once", "attaches and shrinks in one go", good_shrunk_at_once},
    {"thread-churn", "has threads that come and go", good_thread_churn},
    {"handed-over", "moves a record between threads", good_handed_over},
};

}  // namespace

const Topic kStoreOrderCases{kBadStoreOrder, kGoodStoreOrder};

}  // namespace ctxconf::testees
