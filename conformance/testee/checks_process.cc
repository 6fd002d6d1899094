#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "conformance/testee/checks.h"
#include "conformance/testee/protocol.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kInitialised{3000};
constexpr milliseconds kIdle{250};

Json attribute(const std::string& key, Json value) {
  return {{"key", key}, {"value", std::move(value)}};
}
Json resource(Json attributes) { return {{"attributes", std::move(attributes)}}; }

// A Resource for an instance with this name; `more` attributes follow.
Json named(const std::string& name, const Json& more = Json::array()) {
  Json attributes = {text_attribute("service.name", name),
                     text_attribute("service.instance.id", "627cc493-f310-47de-96bd-71410b7dec09")};
  for (const Json& a : more) attributes.push_back(a);
  return resource(std::move(attributes));
}

Json plain_resource() { return named("ctxconf-checkout"); }

Driven publish(Testee& t) {
  CTX_RETURN_IF_ERROR(t.request("process.publish", {{"resource", plain_resource()}}));
  return {};
}

Driven initialise(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  CTX_RETURN_IF_ERROR(t.wait_for_context(kInitialised));
  return {};
}

// ---- values

// Attributes with these keys and values: {"double", {{"doubleValue", 0.1}}}.
Json with_prefix(const std::string& prefix, const Json& values) {
  Json out = Json::array();
  for (const Json& v : values) out.push_back(attribute(prefix + v[0].get<std::string>(), v[1]));
  return out;
}

Json array_of(Json values) { return {{"arrayValue", {{"values", std::move(values)}}}}; }
Json pairs_of(Json pairs) { return {{"kvlistValue", {{"values", std::move(pairs)}}}}; }
Json string_of(std::string text) { return {{"stringValue", std::move(text)}}; }

// Twenty integers, some of them twice, in no order.
Json repeated() {
  Json values = Json::array();
  for (int i = 0; i < 20; ++i) values.push_back({{"intValue", std::to_string(i * 7 % 12)}});
  return array_of(std::move(values));
}

// What an SDK may take for something else: numbers, truth values and escapes.
Json texts_and_keys(const std::string& prefix) {
  const auto is = [&](const char* key, const char* value) {
    return text_attribute(prefix + key, value);
  };
  return {is("digits", "0123"),
          is("fraction", "1.50"),
          is("truth", "true"),
          is("null", "null"),
          is("percent", "100%25 %41+b"),
          is("case", "Mixed CASE"),
          is("astral", "\U0001D11E \U0001F680"),
          is("combining", "e\u0301"),
          is("Upper.CASE", "upper"),
          is("with-dash_and.dots", "dashed"),
          is("a.key.that.is.longer.than.most.of.those.that.are.in.the.semantic.conventions",
             "long key")};
}

// An update replaces values_of_every_kind() by these, each of the same kind.
Json other_values(const std::string& prefix) {
  const Json mixed = Json::array({{{"intValue", "-8"}},
                                  {{"boolValue", false}},
                                  {{"doubleValue", 5.0}},
                                  {{"bytesValue", "/wA="}}});
  return with_prefix(
      prefix,
      Json::array(
          {Json::array({"true", {{"boolValue", false}}}),
           Json::array({"false", {{"boolValue", true}}}),
           Json::array({"integer", {{"intValue", "9007199254740995"}}}),
           Json::array({"double", {{"doubleValue", -0.3}}}),
           Json::array({"whole", {{"doubleValue", 4.0}}}),
           Json::array({"nan", {{"doubleValue", "Infinity"}}}),
           Json::array({"zero", {{"intValue", "1"}}}),
           Json::array({"words", array_of(Json::array({string_of("three")}))}),
           Json::array({"mixed", array_of(mixed)}),
           Json::array({"bytes", {{"bytesValue", "/gAB"}}}),
           Json::array({"spaces", string_of("  outer spaces, again\t")}),
           Json::array({"pairs", pairs_of(Json::array({text_attribute("inner", "another value"),
                                                       attribute("count", mixed[0])}))})}));
}

Json values_of_every_kind(const std::string& prefix) {
  const Json mixed = Json::array({{{"intValue", "7"}},
                                  {{"boolValue", true}},
                                  {{"doubleValue", 3.0}},
                                  {{"bytesValue", "AP8="}}});
  const Json pairs = Json::array({text_attribute("inner", "value"), attribute("count", mixed[0]),
                                  attribute("flag", mixed[1]), attribute("ratio", mixed[2]),
                                  attribute("raw", mixed[3])});
  return with_prefix(
      prefix,
      Json::array(
          {Json::array({"true", {{"boolValue", true}}}),
           Json::array({"false", {{"boolValue", false}}}),
           Json::array({"integer", {{"intValue", "-9007199254740993"}}}),
           Json::array({"double", {{"doubleValue", 0.1}}}),
           Json::array({"whole", {{"doubleValue", 3.0}}}),
           Json::array({"negative-zero", {{"doubleValue", -0.0}}}),
           Json::array({"nan", {{"doubleValue", "NaN"}}}), Json::array({"none", Json::object()}),
           Json::array({"zero", {{"intValue", "0"}}}), Json::array({"repeated", repeated()}),
           Json::array({"holes", array_of(Json::array({mixed[0], Json::object(), mixed[1]}))}),
           Json::array({"deep", pairs_of(Json::array({attribute("pairs", pairs_of(pairs)),
                                                      attribute("words", repeated())}))}),
           Json::array({"nested", array_of(Json::array({array_of(Json::array({mixed[0]})),
                                                        array_of(Json::array({mixed[1]}))}))}),
           Json::array({"words", array_of(Json::array({string_of("one"), string_of("two")}))}),
           Json::array({"mixed", array_of(mixed)}),
           Json::array({"bytes", {{"bytesValue", "AAH+/w=="}}}),
           Json::array({"spaces", string_of(" outer spaces ")}),
           Json::array({"nul", string_of(std::string("before\0after", 12))}),
           Json::array({"pairs", pairs_of(pairs)})}));
}

Driven resource_kinds(Testee& t) {
  Json more = {text_attribute("ctxconf.text", "canary"),
               text_attribute("ctxconf.unicode", "sch\u00f6n \u2713")};
  for (const Json& a : texts_and_keys("ctxconf.")) more.push_back(a);
  if (t.can("process.attributes")) {
    for (const Json& a : values_of_every_kind("ctxconf.")) more.push_back(a);
  }
  CTX_RETURN_IF_ERROR(t.request("process.publish", {{"resource", named("ctxconf-values", more)}}));
  return {};
}

// Texts that need escapes in JSON, which a small adapter may not read.
Driven resource_escapes(Testee& t) {
  const Json more = {text_attribute("ctxconf.lines", "a\r\nb\n"),
                     text_attribute("ctxconf.tab", "a\tb"),
                     text_attribute("ctxconf.quotes", R"("a", 'b' \ ${c})")};
  CTX_RETURN_IF_ERROR(t.ask("process.publish", {{"resource", named("ctxconf-escapes", more)}}));
  return {};
}

// Sizes at which a length needs another byte, and many such values. An SDK may refuse them.
Driven resource_sizes(Testee& t) {
  Json more = Json::array();
  for (const std::size_t size : {0, 1, 127, 128, 16383, 16384}) {
    more.push_back(text_attribute("ctxconf.size." + std::to_string(size), std::string(size, 's')));
  }
  CTX_RETURN_IF_ERROR(t.ask("process.publish", {{"resource", named("ctxconf-sizes", more)}}));
  return {};
}

// More than a 16-bit length can express.
Driven resource_large(Testee& t) {
  const Json more = Json::array({text_attribute("ctxconf.size.70000", std::string(70000, 's'))});
  CTX_RETURN_IF_ERROR(t.ask("process.publish", {{"resource", named("ctxconf-large", more)}}));
  return {};
}

Driven resource_many(Testee& t) {
  Json more = Json::array();
  for (int i = 0; i < 300; ++i) {
    more.push_back(
        text_attribute("ctxconf.many." + std::to_string(i), "value-" + std::to_string(i)));
  }
  CTX_RETURN_IF_ERROR(t.ask("process.publish", {{"resource", named("ctxconf-many", more)}}));
  return {};
}

Driven extra_pairs(Testee& t) {
  Json pairs = {text_attribute("ctxconf.extra.first", "canary-1"),
                text_attribute("ctxconf.extra.second", "canary-2")};
  if (t.can("process.attributes")) {
    for (const Json& a : values_of_every_kind("ctxconf.extra.")) pairs.push_back(a);
  }
  CTX_RETURN_IF_ERROR(
      t.ask("process.publish", {{"resource", plain_resource()}, {"attributes", pairs}}));
  return {};
}

Json two_pairs() {
  return {text_attribute("ctxconf.extra.first", "canary-1"),
          text_attribute("ctxconf.extra.second", "canary-2")};
}

// An SDK may accept a request and publish a little later.
Driven offer_publication(Testee& t, const Json& resource) {
  const auto reply = t.ask("process.publish", {{"resource", resource}});
  if (!reply) return std::unexpected(reply.error());
  return t.wait_for_change(*reply, kIdle);
}

// Updates the extra pairs while the Resource stays, then the Resource while they stay, then the
// pairs again. A publication without pairs ends them. An SDK may refuse it.
Driven update_extra_pairs(Testee& t) {
  const auto published =
      t.ask("process.publish", {{"resource", plain_resource()}, {"attributes", two_pairs()}});
  if (!published) return std::unexpected(published.error());
  if ((*published)["ok"] != true) return {};
  CTX_RETURN_IF_ERROR(t.wait_for_context(kInitialised));
  const Json next = {text_attribute("ctxconf.extra.first", "canary-3"),
                     text_attribute("ctxconf.extra.third", "canary-4")};
  CTX_RETURN_IF_ERROR(t.ask("process.update", {{"attributes", next}}));
  CTX_RETURN_IF_ERROR(t.ask("process.update", {{"resource", named("ctxconf-next-to-pairs")}}));
  CTX_RETURN_IF_ERROR(t.ask("process.update", {{"attributes", two_pairs()}}));
  CTX_RETURN_IF_ERROR(offer_publication(t, named("ctxconf-without-pairs")));
  CTX_RETURN_IF_ERROR(
      t.ask("process.update", {{"resource", named("ctxconf-still-without-pairs")}}));
  return {};
}

Driven second_resource(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  const Json another =
      resource({text_attribute("service.name", "ctxconf-tenant"),
                text_attribute("service.instance.id", "e3d1b0a6-7c55-4b7e-8f0a-1c9d4a2b6e06")});
  CTX_RETURN_IF_ERROR(t.request("process.second_resource", {{"resource", another}}));
  CTX_RETURN_IF_ERROR(t.wait(kIdle / 5));
  return {};
}

// ---- publication

// The first one has pairs next to the Resource, which the others do not give. The last two differ
// in one attribute.
Driven publish_again(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_with_pairs(t, plain_resource()));
  CTX_RETURN_IF_ERROR(offer_publication(t, named("ctxconf-again")));
  const Json more = Json::array({text_attribute("ctxconf.padding", std::string(9000, 'p'))});
  CTX_RETURN_IF_ERROR(offer_publication(t, named("ctxconf-larger", more)));
  const Json less = Json::array({text_attribute("ctxconf.padding", "q")});
  CTX_RETURN_IF_ERROR(offer_publication(t, named("ctxconf-larger", less)));
  return {};
}

// All requests at once, together with as many forks if the adapter declares them; else one after
// the other.
Driven at_once_with_forks(Testee& t, Json requests) {
  const std::size_t count = requests.size();
  for (std::size_t i = 0; i < count && t.can("process.fork:idle"); ++i) {
    requests.push_back({{"op", "process.fork"}, {"child", {{"do", "idle"}}}});
  }
  const auto reply = t.ask("parallel", {{"requests", std::move(requests)}});
  if (!reply) return std::unexpected(reply.error());
  if ((*reply)["ok"] != true) return {};
  for (const Json& result : (*reply)["results"]) {
    if (!result.is_object() || !result.contains("child_pid")) continue;
    CTX_RETURN_IF_ERROR(t.request("process.reap", {{"child_pid", result["child_pid"]}}));
  }
  return {};
}

Driven publish_in_parallel(Testee& t) {
  Json requests = Json::array();
  for (int i = 0; i < 4; ++i) {
    requests.push_back(
        {{"op", "process.publish"}, {"resource", named("ctxconf-first-" + std::to_string(i))}});
  }
  CTX_RETURN_IF_ERROR(at_once_with_forks(t, std::move(requests)));
  CTX_RETURN_IF_ERROR(t.wait_for_context(kIdle));
  // Shows that the SDK has something to publish, even if nothing was there so far.
  return offer_publication(t, named("ctxconf-after-the-first"));
}

Driven second_sdk(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  CTX_RETURN_IF_ERROR(t.request("sdk.load"));
  CTX_RETURN_IF_ERROR(
      t.ask("process.publish", {{"resource", named("ctxconf-second-sdk")}, {"sdk", 2}}));
  CTX_RETURN_IF_ERROR(t.request("sdk.unload"));
  CTX_RETURN_IF_ERROR(t.ask("process.publish", {{"resource", named("ctxconf-after-sdk")}}));
  return {};
}

// The main thread waits for a lock, and nobody looks.
Driven idle(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  if (t.can("process.update")) {
    CTX_RETURN_IF_ERROR(
        t.ask("process.update", {{"resource", named("ctxconf-before-the-silence")}}));
  }
  if (t.can("thread")) {
    CTX_RETURN_IF_ERROR(
        t.request("thread.block", {{"thread", "main"}, {"how", "futex"}, {"ms", kIdle.count()}}));
  }
  CTX_RETURN_IF_ERROR(t.wait(kIdle));
  CTX_RETURN_IF_ERROR(t.wait_stopped(kIdle / 5, kIdle / 5));
  return {};
}

Driven drop(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  const auto dropped = t.request("process.drop");
  if (!dropped) return std::unexpected(dropped.error());
  CTX_RETURN_IF_ERROR(t.wait_for_change(*dropped, kIdle));
  Json next = {{"resource", named("ctxconf-after-drop")}, {"attributes", two_pairs()}};
  auto again = t.ask("process.publish", next);
  if (again && (*again)["ok"] != true) {
    next.erase("attributes");  // which an SDK may refuse
    again = t.ask("process.publish", next);
  }
  if (!again) return std::unexpected(again.error());
  CTX_RETURN_IF_ERROR(t.wait_for_change(*again, kIdle));
  if ((*again)["ok"] == true) CTX_RETURN_IF_ERROR(t.request("process.drop"));
  return {};
}

// A failed publication is an answer. A background publication begins while it fails.
Driven publish_with_failures(Testee& t) {
  t.inject(true);
  const auto reply = t.ask("process.publish", {{"resource", plain_resource()}});
  if (!reply && reply.error() == Stop::kCrashed && t.has_injected()) {
    return std::unexpected(t.gives_up());
  }
  if (!reply) return std::unexpected(reply.error());
  if ((*reply)["ok"] == true && !t.has_injected()) CTX_RETURN_IF_ERROR(t.wait_for_context(kIdle));
  t.inject(false);
  return {};
}

Driven publish_after_failures(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_with_failures(t));
  CTX_RETURN_IF_ERROR(t.ask("process.publish", {{"resource", named("ctxconf-after-the-denial")}}));
  return {};
}

// ---- updates

Driven update(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  CTX_RETURN_IF_ERROR(t.request("process.update", {{"resource", named("ctxconf-checkout-2")}}));
  return {};
}

// An SDK may refuse these updates.
Driven update_kinds(Testee& t) {
  Json first = values_of_every_kind("ctxconf.");
  first.push_back(text_attribute("ctxconf.unicode", "sch\u00f6n \u2713"));
  first.push_back(text_attribute("ctxconf.long", std::string(300, 'l')));
  const auto published = t.ask("process.publish", {{"resource", named("ctxconf-kinds", first)}});
  if (!published) return std::unexpected(published.error());
  if ((*published)["ok"] != true) return {};
  CTX_RETURN_IF_ERROR(t.wait_for_context(kInitialised));
  Json next = other_values("ctxconf.");
  next.push_back(text_attribute("ctxconf.unicode", "gr\u00fcn \u2717"));
  next.push_back(text_attribute("ctxconf.long", std::string(299, 'm')));
  CTX_RETURN_IF_ERROR(t.ask("process.update", {{"resource", named("ctxconf-other-kinds", next)}}));
  return {};
}

// Keys of the Resource that change in updates.
struct ChangingKeys {
  Json removed = {text_attribute("ctxconf.removed", "to be removed"),
                  text_attribute("service.version", "0.0.1")};
  std::string padded = "ctxconf.padding";  // empty: the name
};

// Chooses among the settable keys, if the adapter declares them.
ChangingKeys changing_keys(const Json& capabilities) {
  const Json publish = capabilities.value("process.publish", Json::object());
  if (!publish.contains("keys")) return {};
  std::vector<std::string> others;
  for (const Json& key : publish["keys"]) {
    const bool is_known = key == "service.name" || key == "service.instance.id" ||
                          std::ranges::find(others, key.get<std::string>()) != others.end();
    if (!is_known) others.push_back(key);
  }
  ChangingKeys out{Json::array(), others.size() > 1 ? others[1] : std::string()};
  if (!others.empty()) out.removed.push_back(text_attribute(others[0], "to be removed"));
  return out;
}

// The size grows and shrinks by a byte, tenfold and a hundredfold; every other update has fewer
// attributes.
Driven update_sizes(Testee& t) {
  const ChangingKeys keys = changing_keys(t.capabilities());
  CTX_RETURN_IF_ERROR(
      t.request("process.publish", {{"resource", named("ctxconf-state", keys.removed)}}));
  bool is_removed = true;
  for (const std::size_t size : {100, 101, 1000, 10000, 9999, 70000, 1000, 100, 1}) {
    const std::string padding(size, 'p');
    // The name changes too: not every SDK takes other keys.
    std::string name = "ctxconf-state-" + std::to_string(size);
    Json more = Json::array();
    if (keys.padded.empty()) {
      name += "-" + padding;
    } else {
      more.push_back(text_attribute(keys.padded, padding));
    }
    if (!is_removed) more.insert(more.end(), keys.removed.begin(), keys.removed.end());
    is_removed = !is_removed;
    // An SDK may refuse a value that is too long.
    constexpr std::size_t kUsual = 255;
    const Json whole = {{"resource", named(name, more)}};
    if (size <= kUsual) {
      CTX_RETURN_IF_ERROR(t.request("process.update", whole));
    } else {
      CTX_RETURN_IF_ERROR(t.ask("process.update", whole));
    }
  }
  return {};
}

// Asks for an update that must work, after one during which calls failed.
Driven update_after_failures(Testee& t, const Json& more = Json::array()) {
  const auto next =
      t.ask("process.update", {{"resource", named("ctxconf-after-the-call-failed", more)}});
  if (!next) return std::unexpected(next.error());
  if ((*next)["ok"] != true) {
    CTX_RETURN_IF_ERROR(
        t.ask("process.publish", {{"resource", named("ctxconf-published-anew-after-it")}}));
  }
  return {};
}

Driven update_with_failures(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  t.inject(true);
  const auto failing = t.ask("process.update", {{"resource", named("ctxconf-while-a-call-fails")}});
  t.inject(false);
  if (!failing) return std::unexpected(failing.error());
  // A thread of the SDK may be in the middle of another update.
  CTX_RETURN_IF_ERROR(t.wait(kIdle / 5));
  return update_after_failures(t);
}

// The clock is injected from the publication on.
Driven update_with_another_clock(Testee& t) {
  t.inject(true);
  CTX_RETURN_IF_ERROR(t.ask("process.publish", {{"resource", plain_resource()}}));
  for (const char* const name : {"ctxconf-first", "ctxconf-second", "ctxconf-third"}) {
    CTX_RETURN_IF_ERROR(t.ask("process.update", {{"resource", named(name)}}));
  }
  t.inject(false);
  return {};
}

// Large enough that an allocator asks the kernel for memory. The adapter has its own memory
// already.
Driven update_without_memory(Testee& t) {
  Json more = Json::array();
  for (int i = 0; i < 40; ++i) {
    more.push_back(text_attribute("ctxconf.padding." + std::to_string(i), std::string(10000, 'p')));
  }
  CTX_RETURN_IF_ERROR(publish(t));
  CTX_RETURN_IF_ERROR(t.ask_with_failures(
      "process.update", {{"resource", named("ctxconf-while-memory-fails", more)}}));
  return update_after_failures(t, more);
}

// The content grows and shrinks; the last update has the size of the one before.
Driven update_by_instructions(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  int step = 0;
  for (const std::size_t size : {8, 1100, 40, 40}) {
    const Json more = Json::array({text_attribute("ctxconf.padding", std::string(size, 'p'))});
    const auto name = "ctxconf-step-" + std::to_string(++step);
    CTX_RETURN_IF_ERROR(t.request("process.update", {{"resource", named(name, more)}}));
  }
  return {};
}

// If it can, the adapter makes the updates itself, which is faster than one request for each.
Driven update_beside_a_reader(Testee& t) {
  CTX_RETURN_IF_ERROR(initialise(t));
  if (t.can("churn")) {
    std::uint64_t iterations = 50;
    return t.race([&t, &iterations](std::uint64_t /*round*/) -> Driven {
      const auto begin = std::chrono::steady_clock::now();
      CTX_RETURN_IF_ERROR(
          t.request("process.churn", {{"iterations", iterations}, {"seed", "5eed"}}));
      // Even if an SDK needs long for one update, none of these requests takes long.
      const auto took = std::chrono::steady_clock::now() - begin;
      if (took < milliseconds(100)) iterations = std::min<std::uint64_t>(2 * iterations, 10000);
      if (took > milliseconds(1000)) iterations = std::max<std::uint64_t>(iterations / 4, 1);
      return {};
    });
  }
  return t.race([&t](std::uint64_t round) -> Driven {
    const Json more =
        Json::array({text_attribute("ctxconf.padding", std::string(round * 97 % 256, 'p'))});
    const auto name = "ctxconf-race-" + std::to_string(round);
    CTX_RETURN_IF_ERROR(t.request("process.update", {{"resource", named(name, more)}}));
    return {};
  });
}

// Whatever comes last, a publication after all of them must be complete.
Driven drop_in_parallel(Testee& t) {
  Json requests = Json::array();
  for (const char* op : {"process.update", "process.drop", "process.publish", "process.update",
                         "process.drop", "process.publish"}) {
    Json request = {{"op", op}};
    if (op != std::string_view("process.drop")) {
      const auto size = requests.size();
      const Json more =
          Json::array({text_attribute("ctxconf.padding", std::string(60 * size, 'p'))});
      request["resource"] = named("ctxconf-racing-" + std::to_string(size), more);
    }
    requests.push_back(std::move(request));
  }
  CTX_RETURN_IF_ERROR(t.ask("parallel", {{"requests", requests}}));
  CTX_RETURN_IF_ERROR(t.ask("process.publish", {{"resource", named("ctxconf-after-all")}}));
  return {};
}

Driven update_in_parallel(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  Json requests = Json::array();
  for (std::size_t i = 0; i < 8; ++i) {
    const auto number = std::to_string(i);
    const Json more =
        Json::array({text_attribute("ctxconf.writer", number + std::string(40 * i, 'w'))});
    requests.push_back({{"op", "process.update"}, {"resource", named("writer-" + number, more)}});
  }
  CTX_RETURN_IF_ERROR(t.request("parallel", {{"requests", requests}}));
  return t.can("process.drop") ? drop_in_parallel(t) : Driven();
}

// ---- other processes

// If there is a name `meanwhile`, updates to it while the child lives.
Driven fork_and_reap(Testee& t, const Json& child, const std::string& meanwhile = "") {
  auto reply = t.request("process.fork", {{"child", child}});
  if (!reply) return std::unexpected(reply.error());
  if (!meanwhile.empty() && t.can("process.update")) {
    CTX_RETURN_IF_ERROR(t.request("process.update", {{"resource", named(meanwhile)}}));
  }
  CTX_RETURN_IF_ERROR(t.request("process.reap", {{"child_pid", (*reply)["child_pid"]}}));
  return {};
}

Driven fork_idle(Testee& t) {
  const Json child = {{"do", "idle"}};
  CTX_RETURN_IF_ERROR(publish(t));
  CTX_RETURN_IF_ERROR(fork_and_reap(t, child));
  if (t.can("process.fork:fork"))
    CTX_RETURN_IF_ERROR(fork_and_reap(t, {{"do", "fork"}, {"child", child}}));
  if (!t.can("process.parallel") || !t.can("process.update")) return {};
  Json requests = Json::array();
  for (int i = 0; i < 6; ++i) {
    requests.push_back(
        {{"op", "process.update"}, {"resource", named("ctxconf-fork-" + std::to_string(i))}});
  }
  return at_once_with_forks(t, std::move(requests));
}

Driven fork_publish(Testee& t) {
  const auto child = [](const std::string& instance) -> Json {
    return {{"do", "publish"},
            {"resource", resource({text_attribute("service.name", "ctxconf-worker"),
                                   text_attribute("service.instance.id", instance)})}};
  };
  // The children are given neither this key nor the pairs.
  const Json of_parent = Json::array({text_attribute("ctxconf.parent", "of the parent")});
  CTX_RETURN_IF_ERROR(publish_with_pairs(t, named("ctxconf-checkout", of_parent)));
  CTX_RETURN_IF_ERROR(fork_and_reap(t, child("b1f4a6de-2d2f-4d5b-9f53-94c6fd2a9b01")));
  if (t.can("process.fork:update")) {
    Json updating = child("5b0dd7e1-3b4e-4f0a-a2b5-7d6c0b7f4d03");
    updating["do"] = "update";
    updating["update"] = {
        {"resource", child("9a6f2c34-8d1e-4b57-b0c9-2e41f0a85e04").at("resource")}};
    CTX_RETURN_IF_ERROR(fork_and_reap(t, updating));
  }
  if (t.can("process.fork:drop")) {
    Json withdrawing = child("7c4e9b12-0d36-4f8a-9a57-3b2f61d0e805");
    withdrawing["do"] = "drop";
    CTX_RETURN_IF_ERROR(fork_and_reap(t, withdrawing));
  }
  if (t.can("process.fork:fork")) {
    CTX_RETURN_IF_ERROR(fork_and_reap(
        t, {{"do", "fork"}, {"child", child("c8a0c5b8-53be-4c35-8f8e-6a1d8fbb1c02")}}));
  }
  CTX_RETURN_IF_ERROR(
      fork_and_reap(t, child("7d1a53c2-5e0b-4c77-9a3f-08b6e2c4d506"), "ctxconf-beside-a-child"));
  if (!t.can("process.update")) return {};
  CTX_RETURN_IF_ERROR(
      t.request("process.update", {{"resource", named("ctxconf-after-its-children")}}));
  return {};
}

// Process 1 of a pid namespace forks process 1 of another one.
Driven fork_into_namespace(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  const Json child = {
      {"do", "publish"},
      {"resource",
       resource({text_attribute("service.name", "ctxconf-nested"),
                 text_attribute("service.instance.id", "2f0c7d5a-6a0b-4a3e-9d2d-51d7a9f1c705")})}};
  // The recording shows why a child did not publish.
  CTX_RETURN_IF_ERROR(t.ask("process.fork", {{"child", child}, {"namespace", "pid"}}));
  return {};
}

Driven publish_and_update(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  if (!t.can("process.update")) return {};
  const Json more = Json::array({text_attribute("ctxconf.padding", std::string(5000, 'p'))});
  CTX_RETURN_IF_ERROR(t.ask("process.update", {{"resource", named("ctxconf-larger", more)}}));
  CTX_RETURN_IF_ERROR(t.request("process.update", {{"resource", named("ctxconf-smaller")}}));
  return {};
}

Driven exec_self(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  CTX_RETURN_IF_ERROR(t.exec_self());
  const Json of_next =
      resource({text_attribute("service.name", "ctxconf-after-exec"),
                text_attribute("service.instance.id", "41f2a9d7-3c86-4e15-8b0a-95d7c1e3f607")});
  CTX_RETURN_IF_ERROR(t.request("process.publish", {{"resource", of_next}}));
  return {};
}

Driven exec_idle(Testee& t) {
  CTX_RETURN_IF_ERROR(publish(t));
  CTX_RETURN_IF_ERROR(t.exec_idle());
  return {};
}

constexpr const char* kSeemsNamed = " prctl(PR_SET_VMA):value=0";

const Group kProcessGroups[] = {
    {"publish",
     {{"publish",
       {"process.publish"},
       {"pctx.publish.discoverable"},
       {"pctx.header.*", "pctx.payload.*", "pctx.publish.*", "pctx.fork.dontfork*"},
       initialise}}},
    {"resource",
     {{"kinds",
       {"process.publish"},
       {"pctx.payload.resource-matches-sdk"},
       {"pctx.payload.*"},
       resource_kinds}}},
    {"escapes",
     {{"escapes",
       {"process.publish"},
       {},
       {"pctx.payload.resource-matches-sdk", "pctx.payload.*"},
       resource_escapes}}},
    {"sizes",
     {{"sizes",
       {"process.publish"},
       {"pctx.payload.resource-matches-sdk"},
       {"pctx.header.payload-size", "pctx.payload.*"},
       resource_sizes}}},
    {"size-of-70000",
     {{"size-of-70000",
       {"process.publish"},
       {},
       {"pctx.payload.resource-matches-sdk", "pctx.header.payload-size", "pctx.payload.*"},
       resource_large}}},
    {"many",
     {{"many",
       {"process.publish"},
       {"pctx.payload.resource-matches-sdk"},
       {"pctx.header.payload-size", "pctx.payload.*"},
       resource_many}}},
    {"extra-pairs",
     {{"extra-pairs",
       {"process.publish"},
       {"pctx.payload.extra-keys-in-attributes"},
       {"pctx.payload.*"},
       extra_pairs}}},
    {"second-resource",
     {{"second-resource",
       {"process.publish", "process.second_resource"},
       {"pctx.payload.default-resource"},
       {},
       second_resource}}},
    {.name = "publish-without-seal",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.memfd-retry", "pctx.publish.memfd-retry-flags"},
                 {"pctx.header.timestamp-clock"},
                 publish_with_failures}},
     .injections = "memfd_create:error=EINVAL:when=1",
     .without_names = kSeemsNamed},
    {.name = "publish-denied-eperm",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.fallback-anon"},
                 {},
                 publish_with_failures}},
     .injections = "memfd_create:error=EPERM",
     .without_names = kSeemsNamed},
    {.name = "publish-denied-eacces",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.fallback-anon"},
                 {},
                 publish_with_failures}},
     .injections = "memfd_create:error=EACCES",
     .without_names = kSeemsNamed},
    {.name = "publish-denied-enosys",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.fallback-anon"},
                 {},
                 publish_with_failures}},
     .injections = "memfd_create:error=ENOSYS",
     .without_names = kSeemsNamed},
    {.name = "publish-denied-einval",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.fallback-anon"},
                 {},
                 publish_with_failures}},
     .injections = "memfd_create:error=EINVAL",
     .without_names = kSeemsNamed},
    {.name = "publish-exhausted-emfile",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.fallback-anon-exhausted"},
                 {},
                 publish_with_failures}},
     .injections = "memfd_create:error=EMFILE",
     .without_names = kSeemsNamed},
    {.name = "publish-exhausted-enfile",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.fallback-anon-exhausted"},
                 {},
                 publish_with_failures}},
     .injections = "memfd_create:error=ENFILE",
     .without_names = kSeemsNamed},
    {.name = "publish-exhausted-enomem",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.fallback-anon-exhausted"},
                 {},
                 publish_with_failures}},
     .injections = "memfd_create:error=ENOMEM",
     .without_names = kSeemsNamed},
    {.name = "publish-without-protection",
     .checks = {{"madvise",
                 {"process.publish"},
                 {"pctx.publish.failure-madvise"},
                 {},
                 publish_with_failures}},
     .injections = "madvise:error=EINVAL"},
    {.name = "publish-without-mapping",
     .checks =
         {{"mmap", {"process.publish"}, {"pctx.publish.failure-mmap"}, {}, publish_with_failures}},
     .injections = "mmap:error=ENOMEM",
     .without_names = kSeemsNamed},
    {.name = "publish-without-size",
     .checks = {{"ftruncate",
                 {"process.publish"},
                 {"pctx.publish.failure-ftruncate"},
                 {},
                 publish_with_failures}},
     .injections = "ftruncate:error=ENOSPC",
     .without_names = kSeemsNamed},
    {.name = "publish-without-right-to-size",
     .checks = {{"ftruncate",
                 {"process.publish"},
                 {"pctx.publish.failure-ftruncate"},
                 {},
                 publish_with_failures}},
     .injections = "ftruncate:error=EPERM",
     .without_names = kSeemsNamed},
    {.name = "publish-without-name",
     .checks = {{"memfd_create",
                 {"process.publish"},
                 {"pctx.publish.no-name-at-all"},
                 {},
                 publish_with_failures}},
     .injections = "memfd_create:error=EPERM prctl(PR_SET_VMA):error=EINVAL"},
    {.name = "publish-without-file-size",
     .checks = {{"RLIMIT_FSIZE",
                 {"process.publish"},
                 {"pctx.publish.survives-file-size-limit"},
                 {},
                 publish_with_failures}},
     .injections = kFileSizeLimit},
    {.name = "publish-with-all-denied",
     .checks = {{"denied",
                 {"process.publish"},
                 {"pctx.publish.survives-total-denial"},
                 {},
                 publish_after_failures}},
     .injections = "memfd_create:error=EPERM madvise:error=EPERM prctl(PR_SET_VMA):error=EPERM"},
    {"again",
     {{"again",
       {"process.publish"},
       {"pctx.publish.existing-becomes-update"},
       {"pctx.publish.*", "pctx.update.*", "pctx.header.*"},
       publish_again}}},
    {"first-in-parallel",
     {{"first-in-parallel",
       {"process.publish", "process.parallel"},
       {},
       {"pctx.publish.singleton", "pctx.fork.child-has-none"},
       publish_in_parallel}}},
    {"second-sdk",
     {{"second-sdk",
       {"process.publish", "process.second_sdk"},
       {},
       {"pctx.publish.singleton"},
       second_sdk}}},
    {"idle",
     {{"idle",
       {"process.publish"},
       {"pctx.publish.available-while-idle"},
       {"pctx.payload.stays-alive"},
       idle}}},
    {"update",
     {{"update",
       {"process.publish", "process.update"},
       {"pctx.update.visible"},
       {"pctx.update.*"},
       update}}},
    {"update-of-kinds",
     {{"update-of-kinds",
       {"process.publish", "process.update", "process.attributes"},
       {"pctx.update.visible"},
       {"pctx.update.complete-state"},
       update_kinds}}},
    {"sizes-of-updates",
     {{"sizes-of-updates",
       {"process.publish", "process.update"},
       {"pctx.update.complete-state"},
       {"pctx.update.*"},
       update_sizes}}},
    {"update-of-extra-pairs",
     {{"update-of-extra-pairs",
       {"process.publish", "process.update"},
       {"pctx.update.visible"},
       {"pctx.update.complete-state"},
       update_extra_pairs}}},
    {"updates-in-parallel",
     {{"updates-in-parallel",
       {"process.publish", "process.update", "process.parallel"},
       {"pctx.update.one-writer-at-a-time"},
       {"pctx.update.*", "pctx.publish.singleton", "pctx.drop.*"},
       update_in_parallel}}},
    {.name = "update-by-instructions",
     .checks = {{"update",
                 {"process.publish", "process.update"},
                 {"pctx.update.no-mixed-read"},
                 {"pctx.*.fence-*", "pctx.update.*"},
                 update_by_instructions}},
     .steps = true},
    {.name = "update-while-a-reader-reads",
     .checks = {{"update",
                 {"process.publish", "process.update"},
                 {"pctx.update.no-mixed-read"},
                 {},
                 update_beside_a_reader}},
     .race = true},
    {.name = "update-at-one-time",
     .checks = {{"clock_gettime",
                 {"process.publish", "process.update"},
                 {"pctx.update.timestamp-later"},
                 {"pctx.header.timestamp-clock"},
                 update_with_another_clock}},
     .injections = "clock_gettime:value=frozen"},
    {.name = "update-with-the-clock-back",
     .checks = {{"clock_gettime",
                 {"process.publish", "process.update"},
                 {"pctx.update.timestamp-later"},
                 {"pctx.header.timestamp-clock"},
                 update_with_another_clock}},
     .injections = "clock_gettime:value=back"},
    {.name = "update-at-time-zero",
     .checks = {{"clock_gettime",
                 {"process.publish", "process.update"},
                 {"pctx.update.timestamp-later"},
                 {"pctx.header.timestamp-clock"},
                 update_with_another_clock}},
     .injections = "clock_gettime:value=0:when=2+"},
    {.name = "update-without-clock",
     .checks = {{"clock_gettime",
                 {"process.publish", "process.update"},
                 {"pctx.update.failure-recoverable"},
                 {},
                 update_with_failures}},
     .injections = "clock_gettime:error=EINVAL"},
    {.name = "update-without-name",
     .checks = {{"prctl",
                 {"process.publish", "process.update"},
                 {"pctx.update.failure-recoverable"},
                 {},
                 update_with_failures}},
     .injections = "prctl(PR_SET_VMA):error=EPERM"},
    {.name = "update-without-memory",
     .checks = {{"mmap",
                 {"process.publish", "process.update", "gate"},
                 {"pctx.update.failure-recoverable"},
                 {},
                 update_without_memory}},
     .injections = "mmap(MAP_ANONYMOUS):error=ENOMEM"},
    {"drop",
     {{"drop",
       {"process.publish", "process.drop"},
       {"pctx.drop.no-dead-payload"},
       {"pctx.publish.singleton", "pctx.update.visible"},
       drop}}},
    {"fork",
     {{"idle",
       {"process.publish", "process.fork:idle"},
       {"pctx.fork.child-has-none"},
       {"pctx.fork.dontfork*"},
       fork_idle}}},
    {"fork-and-publish",
     {{"publish",
       {"process.publish", "process.fork:publish"},
       {"pctx.fork.child-publishes-own"},
       {"pctx.fork.parent-untouched", "pctx.publish.singleton", "pctx.update.*"},
       fork_publish}}},
    {.name = "fork-into-namespace",
     .checks = {{"namespace",
                 {"process.publish", "process.fork:publish", "process.fork_namespace"},
                 {"pctx.fork.same-pid-namespace"},
                 {},
                 fork_into_namespace}},
     .pid_namespace = true},
    {.name = "fork-at-each-step",
     .checks = {{"fork-at-each-step",
                 {"process.publish"},
                 {"pctx.fork.child-has-none"},
                 {"pctx.fork.dontfork-before-header"},
                 publish_and_update}},
     .forks = true},
    {"exec",
     {{"exec",
       {"process.publish", "process.exec"},
       {"pctx.exec.memfd-not-leaked"},
       {"pctx.publish.memfd-closed"},
       exec_self}}},
    {"exec-another",
     {{"exec-another",
       {"process.publish", "process.exec"},
       {"pctx.exec.memfd-not-leaked"},
       {},
       exec_idle}}},
};

}  // namespace

Driven publish_with_pairs(Testee& t, const Json& resource) {
  const auto reply =
      t.ask("process.publish", {{"resource", resource}, {"attributes", two_pairs()}});
  if (!reply) return std::unexpected(reply.error());
  if ((*reply)["ok"] == true) return {};
  CTX_RETURN_IF_ERROR(t.request("process.publish", {{"resource", resource}}));
  return {};
}

std::span<const Group> process_groups() { return kProcessGroups; }

}  // namespace ctxconf::conformance
