#include "conformance/testees/driven_thread/threads.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern "C" {
__attribute__((visibility("default"), used)) __thread void* otel_thread_ctx_v1 = nullptr;
}

namespace ctxconf::testees {

using adapter::refuse;

namespace {

constexpr Choice kBadThreads[] = {
    {"tctx.tls.fresh-thread-null", "gives new threads the record of the main thread"},
    {"tctx.tls.fresh-thread-null:ended", "gives new threads the record of a thread that has ended"},
    {"tctx.tls.per-thread", "has one record for all threads"},
    {"tctx.attach.visible", "stores its pointer in another variable"},
    {"tctx.attach.visible:refuses-sampled", "refuses contexts with flags"},
    {"tctx.attach.visible:lost-in-a-move", "shows nothing on the thread that a context moves to"},
    {"tctx.attach.visible:hidden-by-an-update", "has null in the main thread after each update"},
    {"tctx.attach.visible:hidden-by-another-thread",
     "has null in the main thread after an attach on another"},
    {"tctx.attach.visible:hidden-by-an-end", "has null in the main thread when another one ends"},
    {"tctx.attach.visible:unsampled", "shows nothing for a context that is not sampled"},
    {"tctx.attach.visible:without-ids", "shows nothing for a context without ids"},
    {"tctx.attach.visible:blocked", "has null in a thread that computes or waits"},
    {"tctx.attach.matches-context", "stores the span id of the outer context"},
    {"tctx.attach.matches-context:left-over", "keeps the entries of the context that has ended"},
    {"tctx.attach.matches-context:of-the-outer", "adds the entries of the outer context"},
    {"tctx.attach.matches-context:zeros", "shows zeros where an outer context is there again"},
    {"tctx.attach.matches-context:lost-in-a-move", "moves a context without its attributes"},
    {"tctx.attach.matches-context:append-elsewhere", "appends on the main thread only"},
    {"tctx.attach.matches-context:append-later",
     "appends nothing to a context once another inside it has ended"},
    {"tctx.attach.matches-context:without-appended",
     "shows a context without what was appended when it is there again"},
    {"tctx.attach.matches-context:with-removed",
     "shows a context with what was removed when it is there again"},
    {"tctx.attach.matches-context:append-moved", "ignores an append to a context that has moved"},
    {"tctx.attach.matches-context:churn", "keeps the attribute of the first of many contexts"},
    {"tctx.attach.matches-context:churn-ids", "keeps the span id of the first of many contexts"},
    {"tctx.attach.matches-context:by-index", "keeps the attributes with the lowest indexes"},
    {"tctx.attach.matches-context:last-one", "does not remove the first attribute"},
    {"tctx.record.trace-flags:append", "sets the sampled flag when it appends"},
    {"tctx.record.trace-flags:move", "sets the sampled flag of a context that moves"},
    {"tctx.attrs.last-occurrence-wins:shorter", "does not replace a value by a shorter one"},
    {"tctx.attach.fixed-record-pointer", "uses the valid byte and another record each time"},
    {"tctx.attach.restores-outer", "has null where an outer context is there again"},
    {"tctx.attach.restores-outer:moved", "shows nothing when a context that has moved ends"},
    {"tctx.attach.restores-outer:move", "has null where the inner context has moved away"},
    {"tctx.detach.hidden", "leaves the last context in place"},
    {"tctx.detach.hidden:earlier",
     "shows attributes of an earlier context when no context is attached"},
    {"tctx.detach.hidden:attributes", "leaves the attributes of the last context in place"},
    {"tctx.exit.no-dangling", "unmaps the record of a thread that ends"},
    {"tctx.exit.no-dangling:freed", "frees the record of a thread that ends"},
    {"tctx.exit.no-dangling:cleared-late", "frees the record, then clears the slot"},
    {"tctx.fork.inherited-record", "goes back to another context in a child"},
};

constexpr Choice kGoodThreads[] = {
    {"pointer", "shows and hides records by the pointer"},
    {"valid-byte", "shows and hides the record by the valid byte"},
    {"record-from-the-start", "does the same, with a record from the start of the thread"},
    {"record-for-none", "has a record that is never valid where there is no context"},
    {"handed-on", "gives new threads a copy of the record of the main thread"},
    {"handed-on-as-it-is", "gives new threads the record of the main thread, and never changes it"},
    {"ids-of-its-own", "makes its own ids, and says so"},
    {"ids-for-all", "makes ids for contexts without a trace, and says so"},
    {"hidden-by-a-withdrawal", "shows no context any more once the process context is withdrawn"},
    {"hidden-without-a-trace",
     "shows nothing for a context without a trace, and takes no attributes, as it declares"},
    {"no-context-without-a-trace", "refuses contexts without a trace"},
    {"contexts-never-change", "refuses to change a context or to move it to another thread"},
    {"knows-two-flags", "refuses flags that it does not know"},
    {"zeros-instead-of-none", "shows zeros where there is no context"},
    {"outer-anew", "writes a new record when an outer context is there again"},
    {"inherits", "adds the entries of the outer context, which it declares"},
    {"child-attaches", "attaches a record in a child"},
    {"child-goes-on", "goes on with the parent's record in a child"},
    {"freed-after-the-slot", "clears the slot, then frees the record"},
    {"detaches-in-churn", "detaches each of many contexts"},
};

}  // namespace

const Choices kThreadsChoices{kBadThreads, kGoodThreads};

namespace {

__thread void* internal_slot = nullptr;

// Those after the first `before` whose value is shorter than that of the same index before them.
void drop_shorter(std::vector<Bytes>& entries, std::size_t before) {
  for (std::size_t i = entries.size(); i-- > before;) {
    const auto is_longer = [&](const Bytes& e) {
      return e[0] == entries[i][0] && e.size() > entries[i].size();
    };
    const auto here = entries.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(entries.begin(), here, is_longer)) entries.erase(here);
  }
}

void point_at(char* record) {
  set_slot(is_bad("tctx.attach.visible") ? &internal_slot : &otel_thread_ctx_v1, record);
}

// Frees the record of a thread that ends, and does not say so.
struct Destructor {
  ~Destructor() {
    if (is_bad("tctx.exit.no-dangling") && otel_thread_ctx_v1 != nullptr) {
      munmap(otel_thread_ctx_v1, kRecordBytes);
    }
    if (is_bad("tctx.exit.no-dangling:freed")) free(otel_thread_ctx_v1);
    if (is_bad("tctx.exit.no-dangling:cleared-late")) {
      free(otel_thread_ctx_v1);
      point_at(nullptr);
    }
    if (is_good("freed-after-the-slot")) {
      void* const record = otel_thread_ctx_v1;
      point_at(nullptr);
      free(record);
    }
  }
};

}  // namespace

void Threads::begin_main() {
  main_slot_ = &otel_thread_ctx_v1;
  if (is_bad("tctx.refdata.before-first-record")) {
    Content early;
    early.trace = bytes_of_hex("4bf92f3577b34da6a3ce929d0e0e4736");
    early.span = bytes_of_hex("00f067aa0ba902b7");
    char* record = new_record();
    fill(record, early);
    set_valid(record, 1);
    point_at(record);
  }
}

void Threads::begin_thread() {
  process_.add_thread(1);
  static thread_local const Destructor at_the_end;
  (void)&at_the_end;
  if (is_bad("tctx.tls.fresh-thread-null")) {
    otel_thread_ctx_v1 = __atomic_load_n(main_slot_, __ATOMIC_RELAXED);
  }
  if (is_bad("tctx.tls.fresh-thread-null:ended")) point_at(left_behind_);
  if (is_good("handed-on-as-it-is")) {
    point_at(static_cast<char*>(__atomic_load_n(main_slot_, __ATOMIC_RELAXED)));
  }
  if (is_good("handed-on") && *main_slot_ != nullptr) {
    char* record = new_record();
    memcpy(record, *main_slot_, kRecordBytes);
    point_at(record);
  }
  if (is_good("record-from-the-start")) point_at(new_record());
  if (is_good("record-for-none")) point_at(none_);
}

bool Threads::any_attached() {
  const std::lock_guard guard(lock_);
  return std::ranges::any_of(stacks_, [](const auto& s) { return !s.second.contexts.empty(); });
}

Reply Threads::attach(const json& request) {
  Content c;
  c.name = request.at("ctx").get<std::string>();
  c.traced = request.contains("trace_id");
  if (!c.traced && is_good("no-context-without-a-trace")) {
    return refuse("rejected", "a context has a trace here");
  }
  if (c.traced) {
    c.trace = bytes_of_hex(request["trace_id"].get<std::string>());
    c.span = bytes_of_hex(request.at("span_id").get<std::string>());
    c.flags = request.value("flags", 0U);
  }
  if (is_good("knows-two-flags") && c.flags > 1) return refuse("rejected", "unknown flags");
  if (is_bad("tctx.attach.visible:refuses-sampled") && c.flags != 0) {
    return refuse("rejected", "unknown flags");
  }
  if (auto added = add_attributes(c, request.value("attributes", json::array())); !added) {
    return added;
  }
  const std::lock_guard guard(lock_);
  Stack& stack = stack_of(request);
  const bool nested = !stack.contexts.empty() && stack.contexts.front().traced;
  if (is_bad("tctx.attach.matches-context") && nested) c.span = stack.contexts.front().span;
  json reply;
  if (c.traced && is_good("ids-of-its-own")) {
    ++made_;
    c.trace = nested ? stack.contexts.front().trace : bytes_of_hex(numbered(32));
    c.span = bytes_of_hex(numbered(16));
    reply = {{"trace_id", hex_of(c.trace)}, {"span_id", hex_of(c.span)}};
  }
  if (!c.traced && is_good("ids-for-all")) {
    ++made_;
    c.traced = true;
    c.trace = bytes_of_hex(numbered(32));
    c.span = bytes_of_hex(numbered(16));
    reply = {{"trace_id", hex_of(c.trace)}, {"span_id", hex_of(c.span)}};
  }
  if (is_bad("tctx.attach.matches-context:left-over")) {
    for (const auto& e : stack.ended) c.add(e);
  }
  if (!stack.contexts.empty() &&
      (is_good("inherits") || is_bad("tctx.attach.matches-context:of-the-outer"))) {
    inherit(c, stack.contexts.back());
  }
  c.first_entries = c.entries;
  stack.contexts.push_back(std::move(c));
  show(stack, true);
  const bool on_main = request.value("thread", "main") == "main";
  if (!on_main && is_bad("tctx.attach.visible:hidden-by-another-thread")) hide_on_main();
  return reply;
}

Reply Threads::append(const json& request) {
  if (is_good("contexts-never-change")) return refuse("rejected", "a context never changes");
  const std::lock_guard guard(lock_);
  Stack& stack = stack_of(request);
  if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
  if (is_bad("tctx.attach.matches-context:append-elsewhere") && request["thread"] != "main") {
    return json();
  }
  Content& c = stack.contexts.back();
  if (is_bad("tctx.attach.matches-context:append-later") && c.again) return json();
  if (is_bad("tctx.attach.matches-context:append-moved") && c.moved) return json();
  const std::size_t before = c.entries.size();
  const std::size_t used = c.size();
  Content changed = c;
  if (auto added = add_attributes(changed, request.at("attributes")); !added) return added;
  if (is_bad("tctx.attrs.last-occurrence-wins:shorter")) drop_shorter(changed.entries, before);
  if (is_bad("tctx.record.trace-flags:append")) {
    store<char>(record_of(stack) + kFlagsAt, 1);
    changed.flags = 1;
  }
  const bool in_front = is_bad("tctx.attrs.last-occurrence-wins");
  if (in_front || is_good("rewritten") || is_good("handed-on-as-it-is")) {
    // It writes a record that nobody sees, then the pointer; or it hides the record for as long.
    const auto repeats = [&](const Bytes& e) {
      return std::any_of(changed.entries.begin(),
                         changed.entries.begin() + static_cast<std::ptrdiff_t>(before),
                         [&](const Bytes& earlier) { return earlier[0] == e[0]; });
    };
    const bool is_repeated =
        std::any_of(changed.entries.begin() + static_cast<std::ptrdiff_t>(before),
                    changed.entries.end(), repeats);
    if (in_front && is_repeated) {
      std::rotate(changed.entries.begin(),
                  changed.entries.begin() + static_cast<std::ptrdiff_t>(before),
                  changed.entries.end());
    } else if (!in_front) {
      drop_repeated(changed.entries);
    }
    changed.record = nullptr;
    c = std::move(changed);
    show(stack, true);
    return json();
  }
  char* record = record_of(stack);
  std::size_t at = kHead + used;
  for (std::size_t i = before; record != nullptr && i < changed.entries.size(); ++i) {
    at += changed.entries[i].copy(record + at, changed.entries[i].size());
    set_size(record, at - kHead);
  }
  c = std::move(changed);
  return json();
}

Reply Threads::shrink(const json& request) {
  if (is_good("contexts-never-change")) return refuse("rejected", "a context never changes");
  const std::lock_guard guard(lock_);
  Stack& stack = stack_of(request);
  if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
  Content& c = stack.contexts.back();
  auto keep = request.at("keep").get<std::size_t>();
  if (is_good("attribute-of-its-own")) ++keep;
  if (is_bad("tctx.attach.matches-context:last-one")) keep = std::max<std::size_t>(keep, 1);
  if (keep >= c.entries.size()) return json();
  const bool by_index = is_bad("tctx.attach.matches-context:by-index");
  if (by_index) {
    std::ranges::sort(c.entries, {},
                      [](const Bytes& e) { return static_cast<unsigned char>(e[0]); });
  }
  c.entries.resize(keep);
  if (by_index || is_good("handed-on-as-it-is")) {
    c.record = nullptr;
    show(stack, true);
    return json();
  }
  if (record_of(stack) != nullptr) set_size(record_of(stack), c.size());
  return json();
}

Reply Threads::detach(const json& request) {
  const std::lock_guard guard(lock_);
  Stack& stack = stack_of(request);
  if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
  stack.ended = std::move(stack.contexts.back().entries);
  const bool moved = stack.contexts.back().moved;
  stack.contexts.pop_back();
  if (moved && is_bad("tctx.attach.restores-outer:moved")) {
    point_at(nullptr);
    return json();
  }
  if (stack.contexts.empty() && is_bad("tctx.detach.hidden")) return json();
  Content left;
  if (stack.contexts.empty() && is_bad("tctx.detach.hidden:attributes")) left.entries = stack.ended;
  if (stack.contexts.empty() && is_bad("tctx.detach.hidden:earlier")) {
    left.entries = std::exchange(earlier_, stack.ended);
  }
  if (!left.entries.empty()) {
    char* const record = new_record();
    fill(record, left);
    set_valid(record, 1);
    point_at(record);
    return json();
  }
  if (is_bad("tctx.attach.matches-context:zeros") && !stack.contexts.empty()) {
    char* const record = new_record();
    set_valid(record, 1);
    point_at(record);
    return json();
  }
  if (stack.contexts.empty() && is_good("zeros-instead-of-none")) {
    char* const record = new_record();
    set_valid(record, 1);
    point_at(record);
    return json();
  }
  if (is_bad("tctx.attach.restores-outer")) {
    point_at(nullptr);
    return json();
  }
  show(stack, false);
  return json();
}

Reply Threads::move(Loop& loop, const json& request) {
  if (is_good("contexts-never-change")) return refuse("rejected", "a context never changes");
  const auto from = request.at("from").get<std::string>();
  const auto to = request.at("to").get<std::string>();
  const auto name = request.at("ctx").get<std::string>();
  std::optional<Content> moving;
  auto reply = loop.run_on(from, [&]() -> Reply {
    const std::lock_guard guard(lock_);
    Stack& stack = stacks_[from];
    const auto it = std::ranges::find(stack.contexts, name, &Content::name);
    if (it == stack.contexts.end()) return refuse("failed", "no context '" + name + "'");
    moving = std::move(*it);
    if (is_bad("tctx.attach.matches-context:lost-in-a-move")) {
      moving->entries.clear();
      moving->record = nullptr;
    }
    stack.contexts.erase(it);
    moving->moved = true;
    if (is_bad("tctx.record.trace-flags:move")) {
      moving->flags = 1;
      moving->record = nullptr;
    }
    if (!stack.contexts.empty() || !is_bad("tctx.detach.hidden")) show(stack, false);
    if (is_bad("tctx.attach.restores-outer:move")) point_at(nullptr);
    // The other thread has the record.
    if (stack.contexts.empty() && is_bad("tctx.tls.per-thread")) point_at(nullptr);
    return json();
  });
  if (!reply) return reply;
  return loop.run_on(to, [&]() -> Reply {
    const std::lock_guard guard(lock_);
    stacks_[to].contexts.push_back(std::move(*moving));
    if (is_bad("tctx.attach.visible:lost-in-a-move")) {
      point_at(nullptr);
    } else {
      show(stacks_[to], true);
    }
    return json();
  });
}

Reply Threads::churn(const json& request) {
  const auto count = request.at("threads").get<unsigned>();
  const auto iterations = request.at("iterations").get<unsigned>();
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    const std::string name = "churn-" + std::to_string(i);
    threads.emplace_back([this, name, i, iterations] {
      begin_thread();
      churn_on(name, i, iterations);
      end_thread(name);
    });
  }
  for (auto& thread : threads) thread.join();
  return json();
}

void Threads::churn_on(const std::string& thread, unsigned number, unsigned iterations) {
  constexpr std::size_t kLongest = 64;
  const auto span_of = [&](unsigned i) {
    std::string digits = std::to_string(number * iterations + i + 1);
    return std::string(16 - digits.size(), 'c') + digits;
  };
  for (unsigned i = 0; i < iterations; ++i) {
    const std::string span = span_of(i);
    const std::string of_value = is_bad("tctx.attach.matches-context:churn") ? span_of(0) : span;
    std::string value;
    while (value.size() < kLongest) value += of_value;
    value.resize(kLongest - i % 8);
    if (i > 0) detach({{"thread", thread}});
    attach({{"thread", thread},
            {"ctx", "churn"},
            {"trace_id", std::string(16, 'd') + span},
            {"span_id", is_bad("tctx.attach.matches-context:churn-ids") ? span_of(0) : span},
            {"flags", 1},
            {"attributes",
             json::array({{{"key", "ctxconf.churn"}, {"value", {{"stringValue", value}}}}})}});
  }
  if (is_good("detaches-in-churn")) detach({{"thread", thread}});
}

void Threads::hide_on_main() { __atomic_store_n(main_slot_, nullptr, __ATOMIC_RELAXED); }

void Threads::end_thread(const std::string& thread) {
  process_.add_thread(-1);
  const std::lock_guard guard(lock_);
  const Stack& stack = stacks_[thread];
  if (!stack.contexts.empty()) left_behind_ = record_of(stack);
  stacks_.erase(thread);
  if (is_bad("tctx.attach.visible:hidden-by-an-end")) hide_on_main();
}

Reply Threads::block() {
  point_at(nullptr);
  return json();
}

void Threads::forget_in_child() {
  const bool goes_on = is_good("child-goes-on") || is_bad("tctx.fork.inherited-record:renamed") ||
                       is_bad("tctx.fork.inherited-record:unnamed");
  if (goes_on) return;
  if (is_bad("tctx.fork.inherited-record")) {
    return point_at(stacks_["main"].contexts.front().record);  // not the innermost
  }
  stacks_.clear();
  if (!is_good("child-attaches")) return point_at(nullptr);
  Content c;
  c.trace = bytes_of_hex("4bf92f3577b34da6a3ce929d0e0e4736");
  c.span = bytes_of_hex("00f067aa0ba902b7");
  c.record = new_record();
  fill(c.record, c);
  set_valid(c.record, 1);
  point_at(c.record);
}

std::string Threads::numbered(std::size_t digits) const {
  std::string out = std::to_string(made_);
  return std::string("5d").append(digits - 2 - out.size(), '0') + out;
}

char* Threads::record_of(const Stack& stack) const {
  return uses_valid_byte() ? stack.fixed : stack.contexts.back().record;
}

void Threads::show(Stack& stack, bool begins) {
  const bool shown = !stack.contexts.empty() && !hides(stack.contexts.back());
  if (is_bad("tctx.tls.per-thread")) {
    if (shared_ == nullptr) shared_ = new_record();
    stack.fixed = shared_;
  }
  if (is_bad("tctx.attach.fixed-record-pointer")) {
    if (!shown) return set_valid(stack.fixed, 0);
    stack.fixed = new_record();
    fill(stack.fixed, stack.contexts.back());
    set_valid(stack.fixed, 1);
    return point_at(stack.fixed);
  }
  if (uses_valid_byte()) {
    if (stack.fixed == nullptr && is_good("record-from-the-start")) {
      stack.fixed = static_cast<char*>(otel_thread_ctx_v1);
    }
    if (stack.fixed != nullptr) set_valid(stack.fixed, 0);
    if (!shown) return;
    if (stack.fixed == nullptr) stack.fixed = new_record();
    fill(stack.fixed, stack.contexts.back());
    point_at(stack.fixed);
    return set_valid(stack.fixed, 1);
  }
  if (!shown) return point_at(is_good("record-for-none") ? none_ : nullptr);
  Content& c = stack.contexts.back();
  c.again = !begins;
  const bool as_it_was = !begins && (is_bad("tctx.attach.matches-context:without-appended") ||
                                     is_bad("tctx.attach.matches-context:with-removed"));
  if (as_it_was) {
    const bool grown = c.entries.size() > c.first_entries.size();
    if (grown == is_bad("tctx.attach.matches-context:without-appended"))
      c.entries = c.first_entries;
  }
  // A reader may see what has ended until its memory has another use, so each gets its own.
  const bool anew =
      as_it_was || is_good("outer-anew") || is_bad("tctx.record.trace-flags:restored");
  if (c.record == nullptr || (anew && !begins)) {
    c.record = new_record();
    if (is_bad("tctx.record.ids-zero-when-none") && last_ != nullptr) {
      memcpy(c.record, last_, kHead);
      c.record[kValidAt] = 0;
    }
    fill(c.record, c, !begins);
    set_valid(c.record, 1);
  }
  last_ = c.record;
  point_at(c.record);
}

bool Threads::hides(const Content& c) {
  if (is_bad("tctx.attach.visible:unsampled")) return c.traced && (c.flags & 1) == 0;
  const bool traced_only =
      is_good("hidden-without-a-trace") || is_bad("tctx.attach.visible:without-ids");
  return traced_only && !c.traced;
}

void Threads::inherit(Content& c, const Content& outer) {
  for (const Bytes& e : outer.entries) {
    if (std::ranges::none_of(c.entries, [&](const Bytes& own) { return own[0] == e[0]; })) {
      c.add(e);
    }
  }
}

Reply Threads::add_attributes(Content& c, const json& attributes) {
  std::vector<std::string> names;
  std::vector<Bytes> values;
  for (const auto& a : attributes) {
    auto value = value_of(a.at("value"));
    if (!value) return std::unexpected(value.error());
    if (!*value) continue;
    names.push_back(changed_name(a.at("key").get<std::string>()));
    values.push_back(std::move(**value));
  }
  const bool writes_none = is_bad("tctx.attach.matches-context:unwritten") ||
                           is_bad("tctx.attach.matches-context:no-key-map") ||
                           is_good("hidden-without-a-trace");
  if (writes_none) return json();
  if (is_bad("tctx.attach.matches-context:exchanged") && values.size() > 1) {
    std::swap(values[0], values[1]);
  }
  if (is_good("attribute-of-its-own") && c.entries.empty()) {
    names.insert(names.begin(), "writer_note");
    values.insert(values.begin(), "of its own");
  }
  if (is_good("not-configured")) {
    for (std::size_t i = names.size(); i-- > 0;) {
      if (names[i] == "http_route") continue;
      names.erase(names.begin() + static_cast<std::ptrdiff_t>(i));
      values.erase(values.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  const auto indexes = process_.indexes_of(names);
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    if (indexes[i] < 0 && is_good("refuses-names")) {
      return refuse("rejected", "no index is left for '" + names[i] + "'");
    }
  }
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    if (indexes[i] < 0) continue;
    Bytes value = values[i];
    if (is_good("cut-at-its-limit") && value.size() > kOwnLimit)
      value.resize(cut(value, kOwnLimit));
    if (value.size() > kLongestValue) {
      if (is_bad("tctx.attrs.length-not-wrapped")) {
        // The length is a byte, and the value is whole.
        c.add(Bytes(1, static_cast<char>(indexes[i])) + Bytes(1, static_cast<char>(value.size())) +
              value);
        continue;
      }
      if (is_good("long-values-left-out")) continue;
      value.resize(is_bad("tctx.attrs.utf8") ? kLongestValue : cut(value, kLongestValue));
    }
    c.add(entry(indexes[i], value));
  }
  return json();
}

}  // namespace ctxconf::testees
