// The golden vectors as scenes: records by reader.record, process contexts in a scripted process.
#include <linux/memfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "abi/thread_record.h"
#include "conformance/reader/builtin_vectors.h"
#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"
#include "golden/vector.h"

namespace ctxconf::conformance::reader {
namespace {

using golden::Kind;
using golden::Result;
using golden::Vector;
using Json = nlohmann::json;
using puppet::Bytes;
using puppet::Value;

constexpr std::string_view kTimestamp = "monotonic_published_at_ns";

std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4U];
    out += kDigits[byte & 15U];
  }
  return out;
}

std::string base64_of_hex(std::string_view digits) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  const std::size_t size = digits.size() / 2;
  for (std::size_t i = 0; i < size; i += 3) {
    unsigned three = 0;
    for (std::size_t j = i; j < i + 3; ++j) {
      const auto byte = j < size ? std::string(digits.substr(2 * j, 2)) : std::string("0");
      three = three << 8U | static_cast<unsigned>(std::stoul(byte, nullptr, 16));
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j > size ? '=' : kLetters[three >> (18 - 6 * j) & 63U];
    }
  }
  return out;
}

// A value of a vector as in OTLP/JSON.
Json otlp_value(const Json& value) {
  for (const auto& [kind, item] : value.items()) {
    if (kind == "string") return {{"stringValue", item}};
    if (kind == "bool") return {{"boolValue", item}};
    if (kind == "int") return {{"intValue", item}};
    if (kind == "double") return {{"doubleValue", item}};
    if (kind == "bytes") return {{"bytesValue", base64_of_hex(item.get<std::string>())}};
    Json values = Json::array();
    for (const Json& one : item) {
      if (kind == "array") {
        values.push_back(otlp_value(one));
      } else {
        values.push_back({{"key", one[0]}, {"value", otlp_value(one[1])}});
      }
    }
    return {{kind == "array" ? "arrayValue" : "kvlistValue", {{"values", values}}}};
  }
  return Json::object();
}

Json object_of(const golden::Attributes& attributes) {
  Json out = Json::object();
  for (const auto& [key, value] : attributes) out[key] = otlp_value(Json::parse(value));
  return out;
}

std::string content_of(const golden::ProcessContent& c) {
  return Json{{"resource", object_of(c.resource)}, {"attributes", object_of(c.attributes)}}.dump();
}

bool is_text(const std::string& bytes) {
  try {
    (void)Json(bytes).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

// How a value that is not UTF-8 is shown is left to the reader.
std::string content_of(const golden::RecordContent& c) {
  Json names = Json::object();
  bool all_text = true;
  for (const auto& [name, value] : c.attributes) {
    all_text = all_text && is_text(value);
    if (is_text(value)) names[name] = value;
  }
  Json out = {{"trace_id", c.trace_id}, {"span_id", c.span_id}, {"flags", c.flags}};
  out[all_text ? "names" : "names_has"] = std::move(names);
  return out.dump();
}

template <class Contents>
std::vector<AllowedAnswer> allowed_by(const Vector& v, const Contents& expect) {
  std::vector<AllowedAnswer> out;
  for (const Result result : v.results) {
    if (result != Result::kAccept) {
      for (auto& none : result == Result::kRetry ? not_used() : no_context()) out.push_back(none);
      continue;
    }
    for (const auto& content : expect) out.push_back(accept(content_of(content)));
  }
  return out;
}

// The requirement that an answer decides: the first one about readers.
std::string requirement_of(const Vector& v) {
  const auto at = std::ranges::find_if(
      v.requirements, [](const std::string& id) { return id.contains(".reader."); });
  return at == v.requirements.end() ? std::string() : *at;
}

bool is_mask(const golden::ProcessContextVector& v, std::string_view name) {
  return std::ranges::any_of(v.masks, [&](const golden::Mask& m) { return m.name == name; });
}

Scene process_scene(const Vector& v) {
  const auto& c = v.process_context;
  SceneBuilder s("vector-" + std::string(v.name()), v.comment);
  auto& b = s.script();
  const Value fd = b.memfd("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  b.truncate(fd, c.mapping_size);
  const Value header = b.map({.size = c.mapping_size,
                              .prot = kReadWrite,
                              .flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE,
                              .fd = fd,
                              .offset = 0,
                              .at = c.mapping_address});
  b.close(fd);
  b.advise(header, c.mapping_size, MADV_DONTFORK);
  const std::uint64_t end = c.mapping_address + c.mapping_size;
  if (c.payload_at < c.mapping_address || c.payload_at >= end) {
    const std::uint64_t first = c.payload_at / kPage * kPage;
    b.map({.size = c.payload_at + std::max<std::uint64_t>(c.payload.size(), 1) - first,
           .prot = kReadWrite,
           .flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE,
           .fd = {},
           .offset = 0,
           .at = first});
  }
  if (!c.payload.empty()) b.write(c.payload_at, puppet::bytes_of(c.payload));
  b.write(header, puppet::bytes_of(c.header));
  // A timestamp that the vector does not determine is that of a publication now.
  if (is_mask(c, kTimestamp)) b.store(header + 16, 8, b.clock());
  b.may_fail().name(header, c.mapping_size, "OTEL_CTX");
  Question q;
  q.shown = {{"header", {header, 32}}, {"payload", {c.payload_at, c.payload.size()}}};
  q.claims = {claim(requirement_of(v), allowed_by(v, c.expect), v.comment)};
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene record_scene(const Vector& v) {
  SceneBuilder s("record-" + std::string(v.name()), v.comment);
  Question q;
  q.about = Question::About::kRecord;
  q.record = hex(v.thread_record.record);
  q.key_map = v.thread_record.key_map;
  q.claims = {claim(requirement_of(v), allowed_by(v, v.thread_record.expect), v.comment)};
  s.ask(std::move(q));
  return std::move(s).scene();
}

// Memory ends with a page, and records are at even addresses.
bool ends_at_an_odd_byte(const golden::ThreadRecordVector& r) {
  constexpr std::size_t kHead = 28;
  if (r.record.size() % 2 == 0) return false;
  if (r.record.size() < kHead) return true;
  const auto size = static_cast<std::size_t>(static_cast<unsigned char>(r.record[26])) |
                    static_cast<std::size_t>(static_cast<unsigned char>(r.record[27])) << 8U;
  return r.record.size() < kHead + size;
}

// Whether a scene of its own shows it: the answers that a vector permits decide nothing about half
// ids, and another schema shows only in a process.
bool is_shown_otherwise(const Vector& v, bool alone) {
  return v.name() == "span-without-trace" || v.name() == "trace-without-span" ||
         (alone && !abi::is_thread_schema(v.thread_record.schema)) ||
         (!alone && v.kind == Kind::kThreadRecord && ends_at_an_odd_byte(v.thread_record));
}

// The record of a vector, attached by a thread of a process that publishes its key map. Nothing
// that can be read follows it.
Scene thread_scene(const Vector& v) {
  const auto& r = v.thread_record;
  SceneBuilder s("thread-" + std::string(v.name()), v.comment, puppet::Program::kSlot);
  auto& b = s.script();
  Message message = reference_data(r.key_map);
  message.schema = r.schema;
  publish(b, message.encoded());
  const Attached a = attach(b, puppet::bytes_of(r.record), InPage::kAtTheEnd);
  s.ask(about_thread(a, {claim(requirement_of(v), allowed_by(v, r.expect), v.comment)}));
  return std::move(s).scene();
}

SceneGroup vectors_of(Kind kind, std::string name, Scene (*scene_of)(const Vector&)) {
  SceneGroup out;
  out.name = std::move(name);
  for (const BuiltinFile& f : scene_vectors()) {
    if (!std::string_view(f.name).starts_with(golden::to_string(kind))) continue;
    const auto v = golden::parse_vector(f.text, f.name, kind);
    if (!v) {
      std::fprintf(stderr, "ctxconf: a built-in vector is wrong: %s\n", v.error().c_str());
      std::abort();
    }
    if (is_shown_otherwise(*v, scene_of == record_scene)) continue;
    out.scenes.push_back(scene_of(*v));
  }
  return out;
}

}  // namespace

SceneGroup record_vectors() { return vectors_of(Kind::kThreadRecord, "records", record_scene); }
SceneGroup context_vectors() {
  return vectors_of(Kind::kProcessContext, "contexts", process_scene);
}
SceneGroup thread_vectors() {
  return vectors_of(Kind::kThreadRecord, "record-threads", thread_scene);
}

}  // namespace ctxconf::conformance::reader
