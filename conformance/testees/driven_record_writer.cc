// An adapter with its own thread contexts, which changes the records of its main thread in
// legal and in wrong orders: --good NAME or --bad ID.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/testees/adapter_loop.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"
#include "writer_ref/otel_ctx.h"

extern "C" {
struct record {
  std::uint8_t trace_id[16];
  std::uint8_t span_id[8];
  std::uint8_t valid;
  std::uint8_t flags;
  std::uint16_t size;
  std::uint8_t entries[612];
};
static_assert(sizeof(record) == 640);
extern __thread record* otel_thread_ctx_v1 __attribute__((visibility("default")));
__thread record* otel_thread_ctx_v1;
}

namespace ctxconf::adapter {
namespace {

using opentelemetry::proto::processcontext::v1development::ProcessContext;

const char* const kKeys[] = {"http_route", "user", "path", "query"};

struct Kind {
  const char* name;
  const char* about;
  bool by_valid;  // it hides and shows by the valid byte; else by the pointer
};
constexpr Kind kBadKinds[] = {
    {"tctx.attach.valid-cleared-first", "stores the span id before it clears the valid byte", true},
    {"tctx.attach.valid-set-last", "stores the size after it sets the valid byte", true},
    {"tctx.attach.one-switch", "hides by the valid byte and by null", true},
    {"tctx.attach.same-thread-writes", "lets another thread append", false},
    {"tctx.append.size-last", "stores the size before the new entries", false},
    {"tctx.append.size-single-store", "stores the size in two halves", false},
    {"tctx.shrink.size-before-tail", "clears the tail before it stores the size", false},
    {"tctx.attach.complete-before-visible", "shows a valid record, and then completes it", false},
    {"tctx.attach.valid-before-visible", "never sets the valid byte", false},
    {"tctx.attach.no-change-while-visible",
     "changes a byte of a visible value, and changes it back", false},
    {"tctx.attach.no-change-while-visible:value", "overwrites a visible value", false},
    {"tctx.attach.no-change-while-visible:same-trace",
     "does not hide the record for a span of the same trace", true},
    {"tctx.attach.no-change-while-visible:elsewhere",
     "lets another thread store the flags of a visible record", false},
    {"tctx.attach.valid-cleared-first:flags", "stores the flags before it clears the valid byte",
     true},
    {"tctx.attach.visible:nested",
     "refuses a context inside another, and clears its record when it ends", false},
    {"tctx.attach.slot-always-sound", "copies the pointer byte by byte", false},
    {"tctx.attach.record-outlives-slot", "frees the record before it clears the slot", false},
    {"tctx.keymap.before-use", "publishes names after their first use", false},
};
constexpr Kind kGoodKinds[] = {
    {"valid-byte", "rewrites one record, hidden by the valid byte", true},
    {"pointer", "has two records; the pointer shows one of them", false},
    {"append-hidden", "hides the record while it appends", true},
    {"append-hidden-size-in-two",
     "hides the record while it appends, and stores the size in two halves", true},
    {"append-switches", "appends in the other record, and shows that", false},
    {"built-elsewhere", "lets another thread fill the record that is not visible", false},
    {"append-by-valid-byte",
     "switches by the pointer, and hides by the valid byte while it appends", false},
    {"pointer-then-valid", "shows a record that is not valid yet, and then completes it", false},
    {"null-first", "has null before it shows another record", false},
    {"fresh-memory", "allocates each record, and frees the one before", false},
    {"growing-map", "publishes names when they are used first", false},
    {"late-flags", "stores the flags after the record is visible", false},
    {"late-flags-in-place", "stores the flags after the record is valid", true},
    {"filled-elsewhere", "lets another thread fill the hidden record", true},
};

struct Attribute {
  std::uint8_t key = 0;
  std::string value;
};
struct Context {
  std::uint8_t trace_id[16] = {};
  std::uint8_t span_id[8] = {};
  std::uint8_t flags = 0;
  std::vector<Attribute> attributes;
};

// A compiler may not join, split or move these.
template <class T>
void store(T& to, T value) {
  *const_cast<volatile T*>(&to) = value;
}
void copy(std::uint8_t* to, const void* from, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) store(to[i], static_cast<const std::uint8_t*>(from)[i]);
}

void bytes_of_hex(const std::string& text, std::uint8_t* out, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    out[i] = static_cast<std::uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  }
}

std::uint16_t put_entry(record& r, std::size_t at, const Attribute& a) {
  store(r.entries[at], a.key);
  store(r.entries[at + 1], static_cast<std::uint8_t>(a.value.size()));
  copy(&r.entries[at + 2], a.value.data(), a.value.size());
  return static_cast<std::uint16_t>(at + 2 + a.value.size());
}

// A thread that exists before anything is attached.
class Background {
 public:
  void start() {
    if (pipe(go_) != 0 || pipe(done_) != 0) _exit(1);
    std::thread([this] {
      for (char byte = 0; read(go_[0], &byte, 1) == 1;) {
        task_();
        if (write(done_[1], &byte, 1) != 1) return;
      }
    }).detach();
  }
  // Returns when the task is done.
  void run(std::function<void()> task) {
    task_ = std::move(task);
    char byte = 0;
    if (write(go_[1], &byte, 1) != 1 || read(done_[0], &byte, 1) != 1) _exit(1);
  }

 private:
  int go_[2] = {};
  int done_[2] = {};
  std::function<void()> task_;
};

class Writer {
 public:
  explicit Writer(const Kind& kind) : kind_(kind), name_(kind.name) {
    if (uses_background()) background_.start();
  }

  Reply publish(const json& request) {
    if (!request.value("attributes", json::array()).empty()) {
      return refuse("rejected", "it takes no pairs outside the Resource");
    }
    resource_.clear_attributes();
    for (const auto& a : request.at("resource").at("attributes")) {
      auto& pair = *resource_.add_attributes();
      pair.set_key(a.at("key").get<std::string>());
      pair.mutable_value()->set_string_value(a.at("value").at("stringValue").get<std::string>());
    }
    names_ = grows() ? 0 : std::size(kKeys);
    return send(otel_ctx_publish);
  }

  Reply attach(const json& request) {
    if (name_ == "tctx.attach.visible:nested" && !contexts_.empty()) {
      return refuse("rejected", "there is a context already");
    }
    Context c;
    bytes_of_hex(request.value("trace_id", std::string(32, '0')), c.trace_id, 16);
    bytes_of_hex(request.value("span_id", std::string(16, '0')), c.span_id, 8);
    c.flags = request.value("flags", std::uint8_t{0});
    c.attributes = attributes_of(request);
    contexts_.push_back(std::move(c));
    const bool map_first = name_ != "tctx.keymap.before-use";
    if (!map_first) show();
    if (auto published = publish_names(); !published) return published;
    if (map_first) show();
    store_late_flags();
    return json();
  }

  void end() {
    if (name_ != "tctx.attach.visible:nested") return;
    for (record& r : records_) {
      for (auto& byte : r.trace_id) store(byte, std::uint8_t{0});
    }
  }

  Reply detach(const json&) {
    if (contexts_.empty()) return refuse("bad-request", "nothing is attached");
    contexts_.pop_back();
    show();
    store_late_flags();
    return json();
  }

  Reply append(const json& request) {
    if (contexts_.empty()) return refuse("bad-request", "nothing is attached");
    const auto added = attributes_of(request);
    auto& all = contexts_.back().attributes;
    all.insert(all.end(), added.begin(), added.end());
    if (auto published = publish_names(); !published) return published;
    if (name_ == "append-switches") {
      show();
      return json();
    }
    record& r = *otel_thread_ctx_v1;
    if (name_ == "tctx.attach.no-change-while-visible:value" && overwrite(r, added)) return json();
    const bool hides = name_.starts_with("append-hidden") || name_ == "append-by-valid-byte";
    if (hides) store(r.valid, std::uint8_t{0});
    if (name_ == "tctx.attach.same-thread-writes") {
      std::thread([&] { append_to(r, added); }).join();
    } else {
      append_to(r, added);
    }
    if (hides) store(r.valid, std::uint8_t{1});
    if (name_ == "tctx.attach.no-change-while-visible") {
      // It changes a byte of the first value, and changes it back.
      std::uint8_t& byte = r.entries[5];
      const std::uint8_t same = byte;
      store(byte, static_cast<std::uint8_t>(same + 1));
      store(byte, same);
    }
    return json();
  }

  Reply shrink(const json& request) {
    if (contexts_.empty()) return refuse("bad-request", "nothing is attached");
    auto& all = contexts_.back().attributes;
    all.resize(std::min(all.size(), request.at("keep").get<std::size_t>()));
    std::size_t size = 0;
    for (const auto& a : all) size += 2 + a.value.size();
    record& r = *otel_thread_ctx_v1;
    if (kind_.by_valid) store(r.valid, std::uint8_t{0});
    if (name_ == "tctx.shrink.size-before-tail") {
      for (std::size_t i = size; i < r.size; ++i) store(r.entries[i], std::uint8_t{0});
    }
    store(r.size, static_cast<std::uint16_t>(size));
    if (kind_.by_valid) store(r.valid, std::uint8_t{1});
    return json();
  }

 private:
  // A sampler decides once the span has begun.
  void store_late_flags() {
    if (!has_late_flags() || contexts_.empty()) return;
    std::uint8_t& flags = otel_thread_ctx_v1->flags;
    const std::uint8_t decided = contexts_.back().flags;
    if (name_.starts_with("late-flags")) return store(flags, decided);
    background_.run([&flags, decided] { store(flags, decided); });
  }
  bool uses_background() const {
    return name_ == "filled-elsewhere" || name_.ends_with(":elsewhere");
  }
  // "elsewhere" is about inner contexts alone, whose record is another than at the reply before.
  bool has_late_flags() const {
    return name_.starts_with("late-flags") ||
           (name_ == "tctx.attach.no-change-while-visible:elsewhere" && contexts_.size() > 1);
  }

  bool grows() const { return name_ == "growing-map" || name_ == "tctx.keymap.before-use"; }

  Reply send(int (*how)(const void*, std::size_t, otel_ctx_error*)) const {
    ProcessContext context;
    *context.mutable_resource() = resource_;
    auto& schema = *context.add_attributes();
    schema.set_key("threadlocal.schema_version");
    schema.mutable_value()->set_string_value("tlsdesc_v1_dev");
    auto& map = *context.add_attributes();
    map.set_key("threadlocal.attribute_key_map");
    auto& names = *map.mutable_value()->mutable_array_value();
    for (std::size_t i = 0; i < names_; ++i) names.add_values()->set_string_value(kKeys[i]);
    const std::string bytes = context.SerializeAsString();
    otel_ctx_error error{};
    if (how(bytes.data(), bytes.size(), &error) != OTEL_CTX_OK) {
      return refuse("failed", error.step, error.sys_errno);
    }
    return nullptr;
  }

  // Publishes the names that the innermost context uses, where the map has only those used before.
  Reply publish_names() {
    std::size_t wanted = names_;
    for (const auto& a : contexts_.back().attributes) {
      wanted = std::max<std::size_t>(wanted, a.key + 1U);
    }
    if (!grows() || wanted == names_) return nullptr;
    names_ = wanted;
    return send(otel_ctx_update);
  }

  // No part of a character is kept.
  static std::string cut(const std::string& value) {
    std::size_t size = std::min<std::size_t>(value.size(), 255);
    while (size < value.size() && size > 0 && (value[size] & 0xc0) == 0x80) --size;
    return value.substr(0, size);
  }

  static std::vector<Attribute> attributes_of(const json& request) {
    std::vector<Attribute> out;
    for (const auto& a : request.at("attributes")) {
      for (std::uint8_t key = 0; key < std::size(kKeys); ++key) {
        if (a.at("key") != kKeys[key]) continue;
        out.push_back({key, cut(a.at("value").value("stringValue", std::string()))});
      }
    }
    return out;
  }

  // Overwrites the values of attributes that exist; false: one does not, or has another length.
  static bool overwrite(record& r, const std::vector<Attribute>& added) {
    for (const auto& a : added) {
      std::size_t at = 0;
      while (at < r.size && r.entries[at] != a.key) at += 2U + r.entries[at + 1];
      if (at >= r.size || r.entries[at + 1] != a.value.size()) return false;
      copy(&r.entries[at + 2], a.value.data(), a.value.size());
    }
    return true;
  }

  void append_to(record& r, const std::vector<Attribute>& added) const {
    std::uint16_t end = r.size;
    for (const auto& a : added) end = static_cast<std::uint16_t>(end + 2 + a.value.size());
    if (name_ == "tctx.append.size-last") {
      const std::uint16_t from = r.size;
      store(r.size, end);
      std::uint16_t at = from;
      for (const auto& a : added) at = put_entry(r, at, a);
      return;
    }
    std::uint16_t at = r.size;
    for (const auto& a : added) at = put_entry(r, at, a);
    if (name_ == "tctx.append.size-single-store" || name_ == "append-hidden-size-in-two") {
      auto* halves = reinterpret_cast<std::uint8_t*>(&r.size);
      store(halves[0], static_cast<std::uint8_t>(end & 0xffU));
      store(halves[1], static_cast<std::uint8_t>(end >> 8U));
      return;
    }
    store(r.size, end);
  }

  // Shows the innermost context, or none.
  void show() {
    if (kind_.by_valid) {
      show_in_place();
      return;
    }
    if (name_ == "fresh-memory" || name_ == "tctx.attach.record-outlives-slot") {
      show_fresh();
      return;
    }
    if (contexts_.empty()) {
      store(otel_thread_ctx_v1, static_cast<record*>(nullptr));
      return;
    }
    // The next record is never the visible one.
    record& next = records_[&records_[0] == otel_thread_ctx_v1 ? 1 : 0];
    if (name_ == "null-first") store(otel_thread_ctx_v1, static_cast<record*>(nullptr));
    if (name_ == "pointer-then-valid" || name_ == "tctx.attach.complete-before-visible") {
      store(next.valid, std::uint8_t{0});
      if (name_ != "pointer-then-valid") {
        fill(next, contexts_.back());
        copy(next.span_id, next.trace_id, sizeof next.span_id);
        store(next.valid, std::uint8_t{1});
      }
      store(otel_thread_ctx_v1, &next);
      fill(next, contexts_.back());
      store(next.valid, std::uint8_t{1});
      return;
    }
    const auto build = [&] {
      store(next.valid, std::uint8_t{0});
      fill(next, contexts_.back());
      if (name_ != "tctx.attach.valid-before-visible") store(next.valid, std::uint8_t{1});
    };
    if (name_ == "built-elsewhere") {
      std::thread(build).join();
    } else {
      build();
    }
    if (name_ == "tctx.attach.slot-always-sound") {
      const record* const pointer = &next;
      copy(reinterpret_cast<std::uint8_t*>(&otel_thread_ctx_v1), &pointer, sizeof pointer);
      return;
    }
    store(otel_thread_ctx_v1, &next);
  }

  void show_fresh() {
    record* const old = otel_thread_ctx_v1;
    record* const next = contexts_.empty() ? nullptr : new record{};
    if (next != nullptr) {
      fill(*next, contexts_.back());
      store(next->valid, std::uint8_t{1});
    }
    if (name_ == "fresh-memory") store(otel_thread_ctx_v1, next);
    delete old;
    store(otel_thread_ctx_v1, next);
  }

  std::uint16_t fill_head(record& r, const Context& c) const {
    copy(r.trace_id, c.trace_id, sizeof c.trace_id);
    copy(r.span_id, c.span_id, sizeof c.span_id);
    store(r.flags, has_late_flags() ? std::uint8_t{0} : c.flags);
    std::uint16_t at = 0;
    for (const auto& a : c.attributes) at = put_entry(r, at, a);
    return at;
  }
  void fill(record& r, const Context& c) const { store(r.size, fill_head(r, c)); }

  void show_in_place() {
    record& r = records_[0];
    if (contexts_.empty()) {
      store(r.valid, std::uint8_t{0});
      if (name_ == "tctx.attach.one-switch") {
        store(otel_thread_ctx_v1, static_cast<record*>(nullptr));
      }
      return;
    }
    const Context& c = contexts_.back();
    if (name_ == "tctx.attach.valid-cleared-first") copy(r.span_id, c.span_id, sizeof c.span_id);
    if (name_ == "tctx.attach.valid-cleared-first:flags") store(r.flags, c.flags);
    const bool same_trace = memcmp(r.trace_id, c.trace_id, sizeof c.trace_id) == 0;
    if (name_ != "tctx.attach.no-change-while-visible:same-trace" || !same_trace) {
      store(r.valid, std::uint8_t{0});
    }
    if (name_ == "tctx.attach.valid-set-last") {
      const std::uint16_t size = fill_head(r, c);
      store(r.valid, std::uint8_t{1});
      store(r.size, size);
    } else {
      if (name_ == "filled-elsewhere") {
        background_.run([&] { fill(r, c); });
      } else {
        fill(r, c);
      }
      store(r.valid, std::uint8_t{1});
    }
    if (otel_thread_ctx_v1 == nullptr) store(otel_thread_ctx_v1, &r);
  }

  const Kind& kind_;
  std::string_view name_;
  std::vector<Context> contexts_;
  opentelemetry::proto::resource::v1::Resource resource_;
  std::size_t names_ = 0;  // of kKeys, in the map
  Background background_;
  alignas(8) record records_[2] = {};
};

int run(const Kind& kind) {
  json caps = json::object();
  for (const char* const cap :
       {"process.publish", "thread.attach", "thread.detach", "thread.append", "thread.shrink"}) {
    caps[cap] = json::object();
  }
  caps["thread.attach"]["keys"] = kKeys;
  Writer writer(kind);
  Loop loop({{"adapter", {{"name", "driven_record_writer"}, {"version", "1"}}},
             {"caps", std::move(caps)}});
  loop.on("process.publish", [&](const json& r) { return writer.publish(r); });
  loop.on("thread.attach", [&](const json& r) { return writer.attach(r); });
  loop.on("thread.detach", [&](const json& r) { return writer.detach(r); });
  loop.on("thread.append", [&](const json& r) { return writer.append(r); });
  loop.on("thread.shrink", [&](const json& r) { return writer.shrink(r); });
  const int code = loop.run();
  writer.end();
  _exit(code);
}

}  // namespace
}  // namespace ctxconf::adapter

int main(int argc, char** argv) {
  using namespace ctxconf::adapter;
  const std::string_view how = argc == 3 ? argv[1] : "";
  const std::pair<const char*, std::span<const Kind>> all[] = {{"--good", kGoodKinds},
                                                               {"--bad", kBadKinds}};
  for (const auto& [option, kinds] : all) {
    for (const auto& kind : kinds) {
      if (how == option && std::string_view(argv[2]) == kind.name) return run(kind);
    }
  }
  fprintf(stderr, "usage: driven_record_writer --good NAME | --bad ID\n");
  for (const auto& [option, kinds] : all) {
    for (const auto& kind : kinds) fprintf(stderr, "  %s %s\n", option, kind.name);
  }
  return 2;
}
