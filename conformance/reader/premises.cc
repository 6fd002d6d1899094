#include "conformance/reader/premises.h"

#include <array>
#include <map>
#include <string>
#include <utility>

#include "conformance/reader/publish.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::conformance::reader {
namespace premises {
namespace {

using opentelemetry::proto::common::v1::AnyValue;
using opentelemetry::proto::processcontext::v1development::ProcessContext;
using puppet::Bytes;
using puppet::Value;

constexpr const char* kService = "ctxconf-premise";

// The last question of the scene: the premise holds if the answer is `wanted`.
Scene asked_at_last(SceneBuilder s, const Published& p, AllowedAnswer wanted) {
  Question q = about_process(p, {});
  q.premise = claim("", {std::move(wanted)}, "the reader does not report it");
  q.attempts = kAttempts;
  s.ask(std::move(q));
  return std::move(s).scene();
}

SceneBuilder begin(std::string name, std::string about) {
  SceneBuilder s("premise-" + std::move(name), std::move(about));
  s.rests_only_on({});
  return s;
}

Scene plain(bool is_inline) {
  SceneBuilder s = begin(is_inline ? "inline" : "elsewhere",
                         is_inline ? "a plain context" : "a context whose payload is elsewhere");
  drop_capabilities(s.script());
  PublishOptions how;
  how.inline_payload = is_inline;
  const Message message = service(kService);
  const Published p = publish(s.script(), message.encoded(), how);
  return asked_at_last(std::move(s), p, accept(message.content()));
}

Scene message(std::string name, std::string about, const Bytes& bytes, std::string content) {
  SceneBuilder s = begin(std::move(name), std::move(about));
  PublishOptions how;
  how.inline_payload = true;
  const Published p = publish(s.script(), bytes, how);
  return asked_at_last(std::move(s), p, accept(std::move(content)));
}

// Values of all kinds are in the Resource before its last attribute, and in field 2.
Scene kinds() {
  Message expected;
  expected.resource = {{"ctxconf.first", "1"}, {"ctxconf.last", "1"}};
  ProcessContext context;
  auto* first = context.mutable_resource()->add_attributes();
  first->set_key("ctxconf.first");
  first->mutable_value()->set_string_value("1");
  std::array<AnyValue, 7> values;
  values[0].set_bool_value(true);
  values[1].set_int_value(-4719);
  values[2].set_double_value(0.5);
  values[3].mutable_array_value()->add_values()->set_int_value(1);
  values[4].mutable_kvlist_value()->add_values()->set_key("inner");
  values[5].set_bytes_value("\xff");
  values[6].GetReflection()->MutableUnknownFields(&values[6])->AddVarint(100, 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (auto* pair : {context.mutable_resource()->add_attributes(), context.add_attributes()}) {
      pair->set_key("ctxconf.kind" + std::to_string(i));
      *pair->mutable_value() = values[i];
    }
  }
  auto* last = context.mutable_resource()->add_attributes();
  last->set_key("ctxconf.last");
  last->mutable_value()->set_string_value("1");
  return message("kinds", "a context with values of all kinds",
                 puppet::bytes_of(context.SerializeAsString()), expected.content(false));
}

Scene few_attributes() {
  Message m;
  m.resource = {{"ctxconf.only", "1"}};
  return message("few-attributes", "a context without service.name", m.encoded(), m.content());
}

Scene no_resource() {
  Message m;
  m.attributes = {{"ctxconf.only", "1"}};
  return message("no-resource", "a context without a Resource", m.encoded(), {});
}

Scene field_2() {
  Message m = service(kService);
  m.attributes = {{"ctxconf.only", "1"}};
  return message("field-2", "a context with field 2", m.encoded(), m.content());
}

Scene other_order() {
  Message second = service(kService);
  Message first;
  first.attributes = {{"ctxconf.first", "1"}};
  Bytes bytes = first.encoded();
  const Bytes rest = second.encoded();
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  second.attributes = first.attributes;
  return message("other-order", "a context whose Resource comes last", bytes, second.content());
}

Scene skips_invalid() {
  SceneBuilder s = begin("skips-invalid", "a context next to an invalid candidate");
  const Message m = service(kService);
  publish_without_signature(s.script());
  const Published p = publish(s.script(), m.encoded());
  return asked_at_last(std::move(s), p, accept(m.content()));
}

Scene after_zero() {
  SceneBuilder s = begin("after-zero", "a context whose timestamp was zero at first");
  auto& b = s.script();
  const Message m = service(kService);
  const Published p = publish(b, m.encoded(), {.names = false, .leave_zero = true});
  s.ask(about_process(p, {}));
  b.store(p.header + 16, 8, b.clock());
  return asked_at_last(std::move(s), p, accept(m.content()));
}

Scene updated() {
  SceneBuilder s = begin("update", "an update");
  const Message second = service("ctxconf-premise-updated");
  const Published p = publish(s.script(), service(kService).encoded());
  s.ask(about_process(p, {}));
  const Value other = place(s.script(), second.encoded());
  update(s.script(), p, other, second.encoded().size());
  return asked_at_last(std::move(s), p, accept(second.content()));
}

Scene window() {
  SceneBuilder s = begin("window", "an update that overtakes its copy");
  auto& b = s.script();
  const Message second = service("ctxconf-premise-updated");
  const Published p = publish(b, service(kService).encoded());
  const Value other = place(b, second.encoded());
  Hold hold = s.hold("after the first read of the payload", Hold::When::kAfter, p.message(),
                     [&] { update(b, p, other, second.encoded().size()); });
  Scene out = asked_at_last(std::move(s), p, accept(second.content()));
  std::get<Question>(out.acts.back()).holds.push_back(std::move(hold));
  return out;
}

// As many as three hundred libraries have.
Scene many_mappings() {
  SceneBuilder s = begin("many-mappings", "a context after many other mappings");
  auto& b = s.script();
  const Message m = service(kService);
  const Published p = publish(b, m.encoded());
  constexpr std::uint64_t kPages = 4'000;
  const Value many = b.map_anonymous(kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  b.split(many, kPages * kPage);
  return asked_at_last(std::move(s), p, accept(m.content()));
}

Scene updated_in_place() {
  SceneBuilder s = begin("update-in-place", "an update in the same payload");
  auto& b = s.script();
  const Message second = service("ctxconf-updated");  // as long as the first one
  const Published p = publish(b, service(kService).encoded());
  s.ask(about_process(p, {}));
  b.store(p.header + 16, 8, 0);
  b.write(p.payload, second.encoded());
  b.store(p.header + 16, 8, b.clock());
  return asked_at_last(std::move(s), p, accept(second.content()));
}

Scene found() {
  Scene out = plain(true);
  auto& allowed = std::get<Question>(out.acts.back()).premise->allowed;
  allowed = found_answers();
  return out;
}

Scene make(Premise premise) {
  switch (premise) {
    case Premise::kFound:
      return found();
    case Premise::kInline:
      return plain(true);
    case Premise::kElsewhere:
      return plain(false);
    case Premise::kKinds:
      return kinds();
    case Premise::kFewAttributes:
      return few_attributes();
    case Premise::kNoResource:
      return no_resource();
    case Premise::kField2:
      return field_2();
    case Premise::kOtherOrder:
      return other_order();
    case Premise::kSkipsInvalid:
      return skips_invalid();
    case Premise::kAfterZero:
      return after_zero();
    case Premise::kUpdate:
      return updated();
    case Premise::kUpdateInPlace:
      return updated_in_place();
    case Premise::kWindow:
      return window();
    case Premise::kManyMappings:
      break;
  }
  return many_mappings();
}

}  // namespace
}  // namespace premises

const Scene& premise_scene(Premise premise) {
  static const auto* const kAll = [] {
    auto* const all = new std::map<Premise, Scene>();
    for (const Premise p :
         {Premise::kFound, Premise::kInline, Premise::kElsewhere, Premise::kKinds,
          Premise::kFewAttributes, Premise::kNoResource, Premise::kField2, Premise::kOtherOrder,
          Premise::kSkipsInvalid, Premise::kAfterZero, Premise::kUpdate, Premise::kUpdateInPlace,
          Premise::kWindow, Premise::kManyMappings}) {
      all->emplace(p, premises::make(p));
    }
    return all;
  }();
  return kAll->at(premise);
}

}  // namespace ctxconf::conformance::reader
