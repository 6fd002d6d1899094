#include "conformance/reader/publish.h"

#include <linux/capability.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "abi/process_header.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Bytes;
using puppet::Value;
using ProcessContext = opentelemetry::proto::processcontext::v1development::ProcessContext;
using Json = nlohmann::json;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

Json text_value(const std::string& text) { return {{"stringValue", text}}; }

Json object_of(const Pairs& pairs) {
  Json out = Json::object();
  for (const auto& [key, value] : pairs) out[key] = text_value(value);
  return out;
}

void append(Bytes& out, const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); }

}  // namespace

Bytes from_hex(std::string_view digits) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(
        static_cast<std::byte>(std::stoul(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

Message service(const std::string& name) {
  Message out;
  out.resource = {{"service.name", name},
                  {"service.instance.id", "627cc493-f310-47de-96bd-71410b7dec09"}};
  return out;
}

Bytes Message::encoded() const {
  ProcessContext message;
  for (const auto& [key, value] : resource) {
    auto* pair = message.mutable_resource()->add_attributes();
    pair->set_key(key);
    pair->mutable_value()->set_string_value(value);
  }
  for (const auto& [key, value] : attributes) {
    auto* pair = message.add_attributes();
    pair->set_key(key);
    pair->mutable_value()->set_string_value(value);
  }
  if (!schema.empty() || schema_number) {
    auto* pair = message.add_attributes();
    pair->set_key(std::string(abi::kSchemaVersionKey));
    if (schema_number) {
      pair->mutable_value()->set_int_value(*schema_number);
    } else {
      pair->mutable_value()->set_string_value(schema);
    }
    if (!no_key_map) {
      auto* map = message.add_attributes();
      map->set_key(std::string(abi::kAttributeKeyMapKey));
      auto* names = map->mutable_value()->mutable_array_value();
      for (std::size_t i = 0; i < key_map.size(); ++i) {
        auto* const element = names->add_values();
        if (number_at == i) {
          element->set_int_value(static_cast<std::int64_t>(i));
        } else {
          element->set_string_value(key_map[i]);
        }
      }
    }
  }
  return puppet::bytes_of(message.SerializeAsString());
}

std::string Message::content(bool exactly) const {
  Json out;
  out[exactly ? "resource" : "resource_has"] = object_of(resource);
  Json extra = object_of(attributes);
  if (!schema.empty()) {
    extra[std::string(abi::kSchemaVersionKey)] = text_value(schema);
    if (!no_key_map) {
      Json values = Json::array();
      for (const auto& name : key_map) values.push_back(text_value(name));
      extra[std::string(abi::kAttributeKeyMapKey)] = {{"arrayValue", {{"values", values}}}};
    }
  }
  out[exactly ? "attributes" : "attributes_has"] = std::move(extra);
  return out.dump();
}

void publish_without_signature(puppet::Builder& b) {
  const Published p = publish(b, service("ctxconf-no-signature").encoded(), {.names = false});
  b.store(p.header, 8, 0);
}

Value place(puppet::Builder& b, const Bytes& bytes) {
  const Value at = b.map_anonymous(whole_pages(std::max<std::uint64_t>(bytes.size(), 1)),
                                   kReadWrite, MAP_PRIVATE);
  if (!bytes.empty()) b.write(at, bytes);
  return at;
}

Published publish(puppet::Builder& b, const Bytes& payload, const PublishOptions& how) {
  Published out;
  out.size = payload.size();
  if (how.anonymous) {
    out.header = b.map_anonymous(how.mapping, kReadWrite, MAP_PRIVATE);
  } else {
    const Value fd = b.memfd(how.memfd, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    b.truncate(fd, how.mapping);
    out.header = b.map_file(fd, how.mapping, kReadWrite, MAP_PRIVATE);
    b.close(fd);
  }
  b.advise(out.header, how.mapping, MADV_DONTFORK);
  if (how.inline_payload) {
    out.payload = out.header + 32;
    b.write(out.payload, payload);
  } else {
    out.payload = place(b, payload);
  }
  b.write(out.header, puppet::bytes_of("OTEL_CTX"));
  b.store(out.header + 8, 4, 2);
  b.store(out.header + 12, 4, out.size);
  b.store(out.header + 24, 8, out.payload);
  b.fence();
  if (!how.leave_zero) {
    b.store(out.header + 16, 8, how.timestamp != 0 ? Value(how.timestamp) : b.clock());
  }
  if (how.names) b.may_fail().name(out.header, how.mapping, "OTEL_CTX");
  return out;
}

void update(puppet::Builder& b, const Published& p, const Value& payload, std::uint64_t size,
            std::uint64_t timestamp) {
  const Value now = timestamp != 0 ? Value(timestamp) : b.clock();
  b.store(p.header + 16, 8, 0);
  b.fence();
  b.store(p.header + 24, 8, payload);
  b.store(p.header + 12, 4, size);
  b.fence();
  b.store(p.header + 16, 8, now);
}

Bytes Record::encoded() const {
  Bytes attributes;
  for (const auto& [index, value] : entries) {
    attributes.push_back(static_cast<std::byte>(index));
    attributes.push_back(static_cast<std::byte>(value.size()));
    append(attributes, puppet::bytes_of(value));
  }
  const auto length = size.value_or(static_cast<std::uint16_t>(attributes.size()));
  Bytes out = from_hex(trace_id);
  append(out, from_hex(span_id));
  for (const unsigned byte : {0U + valid, 0U + flags, length & 0xffU, (0U + length) >> 8U}) {
    out.push_back(static_cast<std::byte>(byte));
  }
  append(out, attributes);
  return out;
}

Message reference_data(std::vector<std::string> key_map) {
  Message out = service("ctxconf-threads");
  out.schema = kUsualSchema;
  out.key_map = std::move(key_map);
  return out;
}

Attached attach(puppet::Builder& b, const Bytes& record, InPage where, const Value& library) {
  constexpr std::uint64_t kLargest = 28 + 65535;
  Attached out;
  out.size = record.size();
  const bool at_end = where == InPage::kAtTheEnd;
  const std::uint64_t pages =
      whole_pages(std::max<std::uint64_t>(record.size(), at_end ? 1 : kLargest));
  const Value at = b.map_anonymous(pages + (at_end ? kPage : 0), kReadWrite, MAP_PRIVATE);
  if (at_end) b.unmap(at + pages, kPage);
  // The record begins at an even address.
  out.record = at_end ? at + (pages - (record.size() + 1) / 2 * 2) : at;
  if (!record.empty()) b.write(out.record, record);
  b.slot(out.record, puppet::StoreOrder::kRelease, library);
  out.slot = b.slot_address(library);
  return out;
}

Question about_thread(const Attached& a, std::vector<AnswerClaim> claims) {
  Question out;
  out.about = Question::About::kThread;
  out.thread = a.thread;
  out.claims = std::move(claims);
  out.shown = {{"slot", {a.slot, 8}}, {"record", {a.record, a.size}}};
  // A busy machine may keep a thread from stopping in time.
  out.attempts = 4;
  out.pause = std::chrono::milliseconds(50);
  return out;
}

std::string record_content(const Record& record, const Pairs& names) {
  Json shown = Json::object();
  for (const auto& [name, value] : names) shown[name] = value;
  return Json{{"trace_id", record.trace_id}, {"span_id", record.span_id}, {"names", shown}}.dump();
}

std::string ids_content(const Record& record) {
  return Json{{"trace_id", record.trace_id}, {"span_id", record.span_id}}.dump();
}

Record numbered_record(unsigned number) {
  Record out;
  const std::string digits = std::to_string(1'000 + number);
  out.trace_id.replace(28, 4, digits);
  out.span_id.replace(12, 4, digits);
  return out;
}

void require_plain_record(SceneBuilder& s, const std::optional<Value>& thread,
                          const char* requirement) {
  const Record plain = numbered_record(thread ? 8000 : 8001);
  if (thread) s.script().by(*thread);
  Attached a = attach(s.script(), plain.encoded());
  a.thread = thread;
  if (thread) s.script().by_first();
  Question q = about_thread(a, {});
  q.premise = claim(requirement, {accept(ids_content(plain))},
                    "the reader does not report a plain record of the same process");
  s.ask(std::move(q));
}

void require_plain_child(SceneBuilder& s, const PlainChild& child) {
  auto& b = s.script();
  const Record plain = numbered_record(8002);
  const Value pid = b.fork();
  b.by(pid);
  publish(b, child.message.encoded());
  const Value library = child.library.empty() ? Value(0) : b.load_library(child.library);
  Attached a = attach(b, plain.encoded(), InPage::kAtTheBeginning, library);
  a.thread = pid;
  b.by_first();
  Question q = about_thread(a, {});
  q.process = pid;
  q.premise = claim(child.requirement, {accept(ids_content(plain))},
                    "the reader does not report a plain record of a process of this kind");
  s.ask(std::move(q));
}

Question about_process(const Published& p, std::vector<AnswerClaim> claims) {
  Question out;
  out.claims = std::move(claims);
  out.shown = {{"header", p.whole()}, {"payload", p.message()}};
  return out;
}

void drop_capabilities(puppet::Builder& b) {
  const Value at = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE);
  b.store(at, 4, _LINUX_CAPABILITY_VERSION_3);
  b.may_fail().syscall(SYS_capset, {at, at + 64});
  b.unmap(at, kPage);
}

Scene witness_scene() {
  const Message message = service("ctxconf-witness");
  SceneBuilder s("witness", "a process that publishes a plain context");
  drop_capabilities(s.script());
  const Published p = publish(s.script(), message.encoded());
  s.ask(about_process(p, {claim("", {accept(message.content())},
                                "another process is not read correctly any more")}));
  return std::move(s).scene();
}

}  // namespace ctxconf::conformance::reader
