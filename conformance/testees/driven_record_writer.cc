// An adapter with thread contexts of its own, which changes the records of its main thread in
// legal and in wrong orders: --good NAME or --bad ROW-ID.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
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
  bool bad;
  bool by_valid;  // hides and shows by the valid byte; else by the pointer
};
constexpr Kind kKinds[] = {
    {"valid-byte", false, true},
    {"pointer", false, false},
    {"append-hidden", false, true},
    {"append-hidden-size-in-two", false, true},
    {"append-switches", false, false},
    {"built-elsewhere", false, false},
    {"append-by-valid-byte", false, false},
    {"pointer-then-valid", false, false},
    {"null-first", false, false},
    {"fresh-memory", false, false},
    {"growing-map", false, false},
    {"late-flags", false, false},
    {"late-flags-in-place", false, true},
    {"filled-elsewhere", false, true},
    {"tctx.attach.valid-cleared-first", true, true},
    {"tctx.attach.valid-set-last", true, true},
    {"tctx.attach.one-switch", true, true},
    {"tctx.attach.same-thread-writes", true, false},
    {"tctx.append.size-last", true, false},
    {"tctx.append.size-single-store", true, false},
    {"tctx.shrink.size-before-tail", true, false},
    {"tctx.attach.complete-before-visible", true, false},
    {"tctx.attach.valid-before-visible", true, false},
    {"tctx.attach.no-change-while-visible", true, false},
    {"tctx.attach.no-change-while-visible:value", true, false},
    {"tctx.attach.no-change-while-visible:same-trace", true, true},
    {"tctx.attach.no-change-while-visible:elsewhere", true, false},
    {"tctx.attach.valid-cleared-first:flags", true, true},
    {"tctx.attach.slot-always-sound", true, false},
    {"tctx.attach.record-outlives-slot", true, false},
    {"tctx.keymap.before-use", true, false},
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

// A thread that is there before anything is attached.
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
  // Returns when it has done so.
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
      return std::unexpected(Refusal{"rejected", "no pairs beside the Resource"});
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
    return tid();
  }

  Reply detach(const json&) {
    if (contexts_.empty()) return std::unexpected(Refusal{"bad-request", "nothing is attached"});
    contexts_.pop_back();
    show();
    store_late_flags();
    return tid();
  }

  Reply append(const json& request) {
    if (contexts_.empty()) return std::unexpected(Refusal{"bad-request", "nothing is attached"});
    const auto added = attributes_of(request);
    auto& all = contexts_.back().attributes;
    all.insert(all.end(), added.begin(), added.end());
    if (auto published = publish_names(); !published) return published;
    if (name_ == "append-switches") {
      show();
      return tid();
    }
    record& r = *otel_thread_ctx_v1;
    if (name_ == "tctx.attach.no-change-while-visible:value" && overwrite(r, added)) return tid();
    const bool hides = name_.starts_with("append-hidden") || name_ == "append-by-valid-byte";
    if (hides) store(r.valid, std::uint8_t{0});
    if (name_ == "tctx.attach.same-thread-writes") {
      std::thread([&] { append_to(r, added); }).join();
    } else {
      append_to(r, added);
    }
    if (hides) store(r.valid, std::uint8_t{1});
    if (name_ == "tctx.attach.no-change-while-visible") {
      // In the first value, and back again.
      std::uint8_t& byte = r.entries[5];
      const std::uint8_t same = byte;
      store(byte, static_cast<std::uint8_t>(same + 1));
      store(byte, same);
    }
    return tid();
  }

  Reply shrink(const json& request) {
    if (contexts_.empty()) return std::unexpected(Refusal{"bad-request", "nothing is attached"});
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
    return tid();
  }

 private:
  static json tid() { return {{"tid", gettid()}}; }

  // As where a sampler decides once the span has begun.
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
  // Elsewhere: of inner contexts alone, whose record is another one than at the reply before.
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
      return std::unexpected(Refusal{"failed", error.step, error.sys_errno});
    }
    return nullptr;
  }

  // Those that the innermost context uses, where the map has only what was used before.
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

  // The values of attributes that are there already; false: not all are, or one has another length.
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

  // What is to be seen becomes the innermost context, or none.
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
    // Never the one that is visible.
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
  _exit(loop.run());
}

}  // namespace
}  // namespace ctxconf::adapter

int main(int argc, char** argv) {
  const std::string_view how = argc == 3 ? argv[1] : "";
  for (const auto& kind : ctxconf::adapter::kKinds) {
    if (how == (kind.bad ? "--bad" : "--good") && std::string_view(argv[2]) == kind.name) {
      return ctxconf::adapter::run(kind);
    }
  }
  fprintf(stderr, "usage: driven_record_writer --good NAME | --bad ROW-ID\n");
  for (const auto& kind : ctxconf::adapter::kKinds) {
    fprintf(stderr, "  %s %s\n", kind.bad ? "--bad" : "--good", kind.name);
  }
  return 2;
}
