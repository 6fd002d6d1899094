// The golden vectors as scenes: records by reader.record, process contexts in a scripted process.
#include <linux/memfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "abi/process_layouts.h"
#include "abi/thread_record.h"
#include "conformance/reader/builtin_vectors.h"
#include "conformance/reader/message_content.h"
#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"
#include "conformance/reader/vector_requirements.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/text/json_text.h"
#include "golden/vector.h"

namespace ctxconf::conformance::reader {
namespace {

using golden::Kind;
using golden::Result;
using golden::Vector;
using Json = nlohmann::json;
using puppet::Bytes;
using puppet::Value;

constexpr const char* kSurvivesLarge = "tctx.reader.large-record-survives";
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

// A value of a vector as in OTLP/JSON.
Json otlp_value(const Json& value) {
  for (const auto& [kind, item] : value.items()) {
    if (kind == "string") return {{"stringValue", item}};
    if (kind == "bool") return {{"boolValue", item}};
    if (kind == "int") return {{"intValue", item}};
    if (kind == "double") return {{"doubleValue", item}};
    if (kind == "bytes") return {{"bytesValue", base64(from_hex(item.get<std::string>()))}};
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
std::string content_of(const golden::RecordContent& c, const Compared& compared) {
  Json out = Json::object();
  const bool links = c.trace_id.find_first_not_of('0') != std::string::npos;
  if (compared.ids && links) out = {{"trace_id", c.trace_id}, {"span_id", c.span_id}};
  if (compared.ids && !links) out["link"] = false;
  if (compared.flags) out["flags"] = c.flags;
  if (!compared.names) return out.dump();
  Json names = Json::object();
  bool all_text = true;
  for (const auto& [name, value] : c.attributes) {
    all_text = all_text && is_text(value);
    if (is_text(value)) names[name] = value;
  }
  out[all_text ? "names" : "names_has"] = std::move(names);
  return out.dump();
}

template <class Contents, class... Compare>
std::vector<AllowedAnswer> allowed_by(const Vector& v, const Contents& expect,
                                      const Compare&... compare) {
  std::vector<AllowedAnswer> out;
  for (const Result result : v.results) {
    if (result != Result::kAccept) {
      for (auto& none : result == Result::kRetry ? not_used() : no_context()) out.push_back(none);
      continue;
    }
    for (const auto& content : expect) out.push_back(accept(content_of(content, compare...)));
  }
  return out;
}

// Keeps the order within both parts. clang finds std::stable_partition deprecated with
// libstdc++ 12.
template <typename T, typename Predicate>
void move_to_end(std::vector<T>& list, Predicate goes_last) {
  std::vector<T> first;
  std::vector<T> last;
  for (T& each : list) (goes_last(each) ? last : first).push_back(std::move(each));
  std::ranges::move(last, std::back_inserter(first));
  list = std::move(first);
}

bool is_about_readers(const std::string& id) {
  const Requirement* const requirement = Catalogue::builtin().find(id);
  return requirement != nullptr && requirement->role == Role::kReader;
}

std::vector<std::string> requirements_of(const Vector& v) {
  std::vector<std::string> out;
  std::ranges::copy_if(v.requirements, std::back_inserter(out), is_about_readers);
  return out;
}

// The requirement that an answer decides: the first one about readers in the vector's list.
std::string requirement_of(const Vector& v) {
  const auto all = requirements_of(v);
  return all.empty() ? std::string() : all.front();
}

bool is_mask(const golden::ProcessContextVector& v, std::string_view name) {
  return std::ranges::any_of(v.masks, [&](const golden::Mask& m) { return m.name == name; });
}

bool has_only_text(const golden::Attributes& attributes) {
  return std::ranges::all_of(
      attributes, [](const auto& pair) { return pair.second.starts_with(R"({"string")"); });
}

bool has_key(const golden::Attributes& attributes, std::string_view key) {
  return std::ranges::any_of(attributes, [&](const auto& pair) { return pair.first == key; });
}

// What the vector takes for granted, and is not itself about.
std::vector<Premise> premises_of(const Vector& v) {
  const VectorRequirement about = vector_requirement(requirement_of(v));
  std::vector<Premise> out = {about.is_usual ? Premise::kFound : Premise::kInline};
  const auto add = [&](Premise premise) {
    if (about.subject != premise) out.push_back(premise);
  };
  for (const auto& content : v.process_context.expect) {
    if (!has_only_text(content.resource) || !has_only_text(content.attributes)) {
      add(Premise::kKinds);
    }
    const bool has_usual_keys = has_key(content.resource, "service.name") &&
                                has_key(content.resource, "service.instance.id");
    if (!has_usual_keys) add(Premise::kFewAttributes);
    if (!content.attributes.empty()) add(Premise::kField2);
    if (content.resource.empty()) add(Premise::kNoResource);
  }
  const auto& c = v.process_context;
  if (c.payload_at - c.mapping_address >= c.mapping_size && !about.is_usual) {
    add(Premise::kElsewhere);
  }
  if (v.name() == "resource-split-around-attributes") out.push_back(Premise::kOtherOrder);
  return out;
}

std::vector<AnswerClaim> process_claims_of(const Vector& v) {
  const auto requirement = requirement_of(v);
  if (vector_requirement(requirement).claim != VectorClaim::kAnyAnswer) {
    return {claim(requirement, allowed_by(v, v.process_context.expect), v.comment)};
  }
  auto any = not_used();
  any.push_back(accept());
  return {claim(requirement, any, v.comment)};
}

Scene process_scene(const Vector& v) {
  const auto& c = v.process_context;
  SceneBuilder s("vector-" + std::string(v.name()), v.comment);
  s.rests_only_on(premises_of(v));
  if (c.layout != abi::HeaderLayout::kH5) s.shows_draft(std::string(abi::fields_of(c.layout).id));
  if (vector_requirement(requirement_of(v)).is_usual) {
    s.also_shows("pctx.reader.timestamp-before-fields");
    s.also_shows("pctx.reader.fallible-remote-reads");
  }
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
  q.claims = process_claims_of(v);
  s.ask(std::move(q));
  return std::move(s).scene();
}

std::optional<abi::ThreadRecordHead> head_of(const golden::ThreadRecordVector& r) {
  return abi::decode_thread_record(std::as_bytes(std::span(r.record)));
}

bool is_large(const golden::ThreadRecordVector& r) {
  constexpr std::size_t kUsual = abi::kRecommendedRecordBytes - abi::kRecordHeadBytes;
  const auto head = head_of(r);
  return head && head->valid == abi::kRecordValid && head->attrs_data_size > kUsual;
}

// Whether what a reader may copy of the record is there.
bool is_whole(const golden::ThreadRecordVector& r) {
  const auto head = head_of(r);
  return head && (head->valid != abi::kRecordValid ||
                  r.record.size() >= abi::kRecordHeadBytes + head->attrs_data_size);
}

// Whether it matters that nothing can be read after it.
bool ends_memory(const Vector& v) {
  return !is_whole(v.thread_record) || vector_requirement(requirement_of(v)).is_about_the_end;
}

// What an answer about the record decides.
std::vector<AnswerClaim> claims_of(const Vector& v) {
  const auto allowed = [&](const std::string& requirement) {
    return allowed_by(v, v.thread_record.expect, vector_requirement(requirement).compared);
  };
  auto any = no_context();
  any.push_back(accept());
  constexpr const char* kLargeIds = "tctx.reader.large-record-ids";
  const auto all = requirements_of(v);
  const std::string& first = all.front();
  const VectorClaim how = vector_requirement(first).claim;
  // Each of the other requirements is broken in a way of its own.
  if (how == VectorClaim::kAnyBesides && all.size() > 1) {
    return {claim(first, any, v.comment), claim(all[1], allowed(all[1]), v.comment)};
  }
  if (how == VectorClaim::kLargeRecord) {
    std::vector<AnswerClaim> out = {claim(kSurvivesLarge, any, v.comment)};
    const bool has_ids = std::ranges::find(all, kLargeIds) != all.end();
    if (has_ids) out.push_back(claim(kLargeIds, allowed(kLargeIds), v.comment));
    return out;
  }
  std::vector<AnswerClaim> out;
  if (is_large(v.thread_record)) out.push_back(claim(kSurvivesLarge, any, v.comment));
  out.push_back(claim(first, allowed(first), v.comment));
  return out;
}

// A record that is not valid and announces more than is there; a reader leaves that alone.
constexpr const char* kNotRead = "the reader reads attributes of a record that is not valid";
Record left_alone() {
  Record out;
  out.valid = 0;
  out.size = 65535;
  return out;
}
AnswerClaim leaves_alone() {
  return claim("tctx.reader.attrs-read-when-needed", no_context(), kNotRead);
}

// A crash is a matter of another requirement.
void show_also(SceneBuilder& s) {
  s.also_shows("tctx.reader.large-record-ids");
  s.also_shows("tctx.reader.zero-length-value");
  s.also_shows("tctx.reader.survives-bad-pointer");
}

Scene record_scene(const Vector& v) {
  constexpr std::size_t kPadded = 1024;
  SceneBuilder s("record-" + std::string(v.name()), v.comment);
  if (claims_of(v).size() > 1) show_also(s);
  // Without a process nothing says the schema version, but what the vector shows is about it.
  const std::string& schema = v.thread_record.schema;
  if (schema != kUsualSchema) s.needs("reader.formats:" + schema);
  Question q;
  q.about = Question::About::kRecord;
  q.key_map = v.thread_record.key_map;
  if (!is_whole(v.thread_record)) {
    Question before = q;
    before.record = conformance::hex(left_alone().encoded());
    before.premise = leaves_alone();
    s.ask(std::move(before));
  }
  q.record = hex(v.thread_record.record);
  // Zeros follow in the memory of a process.
  if (const auto head = head_of(v.thread_record); head && !ends_memory(v)) {
    const std::size_t size = std::max(kPadded, abi::kRecordHeadBytes + head->attrs_data_size);
    if (q.record.size() < 2 * size) q.record.resize(2 * size, '0');
  }
  q.claims = claims_of(v);
  s.ask(std::move(q));
  return std::move(s).scene();
}

// Memory ends with a page, and records are at even addresses.
bool ends_at_an_odd_byte(const golden::ThreadRecordVector& r) {
  return r.record.size() % 2 != 0 && !is_whole(r);
}

// Whether a scene of its own shows it: the answers that a vector permits decide nothing about half
// ids, and another schema shows only in a process.
bool is_shown_otherwise(const Vector& v, bool alone) {
  return v.name() == "span-without-trace" || v.name() == "trace-without-span" ||
         v.name() == "schema-empty" || (alone && !abi::is_thread_schema(v.thread_record.schema)) ||
         (!alone && v.kind == Kind::kThreadRecord && ends_at_an_odd_byte(v.thread_record));
}

// The record of a vector, attached by a thread of a process that publishes its key map.
Scene thread_scene(const Vector& v) {
  const auto& r = v.thread_record;
  SceneBuilder s("thread-" + std::string(v.name()), v.comment, puppet::Program::kSlot);
  if (claims_of(v).size() > 1) show_also(s);
  s.schema(abi::is_thread_schema(r.schema) ? r.schema : "");
  auto& b = s.script();
  Message message = reference_data(r.key_map);
  message.schema = r.schema;
  publish(b, message.encoded());
  const bool expects_absence = std::ranges::find(v.results, Result::kAccept) == v.results.end();
  if (!expects_absence && message.schema == reference_data({}).schema) require_plain_record(s);
  if (!is_whole(v.thread_record)) {
    Question q = about_thread(attach(b, left_alone().encoded(), InPage::kAtTheEnd), {});
    q.premise = leaves_alone();
    s.ask(std::move(q));
  }
  const auto where = ends_memory(v) ? InPage::kAtTheEnd : InPage::kAtTheBeginning;
  s.ask(about_thread(attach(b, puppet::bytes_of(r.record), where), claims_of(v)));
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
  // A reader that does not survive large records is not asked for the rest of a group.
  move_to_end(out.scenes, [](const Scene& s) {
    return std::ranges::find(s.requirements, kSurvivesLarge) != s.requirements.end();
  });
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
