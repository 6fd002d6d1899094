#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/testee/checks.h"
#include "conformance/testee/protocol.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr const char* kThreadsService = "ctxconf-threads";
constexpr const char* kTrace = "0af7651916cd43dd8448eb211c80319c";
constexpr const char* kSpan = "b7ad6b7169203331";
constexpr std::chrono::milliseconds kSpin{20};
constexpr std::chrono::milliseconds kMostWait{250};  // for a context published in the background

// No two ids are equal, and none is a palindrome.
std::string trace_id(unsigned number) {
  return fmt::format("4bf92f3577b34da6a3ce929d{:08x}", number);
}
std::string span_id(unsigned number) { return fmt::format("00f067aa{:08x}", number); }

Json on(const char* thread) { return {{"thread", thread}}; }

Json context(const char* thread, const std::string& name, const std::string& trace,
             const std::string& span, unsigned flags, Json attributes) {
  return {{"thread", thread}, {"ctx", name},    {"trace_id", trace},
          {"span_id", span},  {"flags", flags}, {"attributes", std::move(attributes)}};
}
Json context(const char* thread, const std::string& name, unsigned number,
             Json attributes = Json::array()) {
  return context(thread, name, trace_id(number), span_id(number), 1, std::move(attributes));
}

Json resource_named(const std::string& name) {
  return {{"attributes", Json::array({text_attribute("service.name", name)})}};
}

// Without thread.detach contexts pile up, which does no harm.
Driven detach(Testee& t, const char* thread) {
  if (t.can("thread.detach")) CTX_RETURN_IF_ERROR(t.request("thread.detach", on(thread)));
  return {};
}

// Attaches something that an SDK may refuse by design, and detaches it again.
Driven offer(Testee& t, Json members) {
  const auto reply = t.offer("thread.attach", std::move(members));
  if (!reply) return std::unexpected(reply.error());
  if ((*reply)["ok"] == true) CTX_RETURN_IF_ERROR(detach(t, "main"));
  return {};
}

Driven attach(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach", context("main", "A", kTrace, kSpan, 1,
                               Json::array({text_attribute("http_route", "/cart"),
                                            text_attribute("http_request_method", "GET")}))));
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  return {};
}

Driven flags(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  unsigned number = 0x100;
  for (const unsigned given : {0x01U, 0x00U, 0x02U, 0x03U, 0xfdU}) {
    ++number;
    CTX_RETURN_IF_ERROR(offer(t, context("main", fmt::format("flags-{}", given), trace_id(number),
                                         span_id(number), given, Json::array())));
  }
  return {};
}

Driven nested(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  // Two spans of one trace, and one of another.
  CTX_RETURN_IF_ERROR(
      t.request("thread.attach", context("main", "root", kTrace, "1111111111111112", 1,
                                         Json::array({text_attribute("http_route", "/cart")}))));
  CTX_RETURN_IF_ERROR(
      t.request("thread.attach", context("main", "child", kTrace, "2222222222222223", 1,
                                         Json::array({text_attribute("db_table", "carts")}))));
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("main", "linked", 0x201, Json::array({text_attribute("http_route", "/pay")}))));
  for (int i = 0; i < 3; ++i) CTX_RETURN_IF_ERROR(detach(t, "main"));
  // A sampled span inside an unsampled one, which some SDKs refuse.
  const auto reply =
      t.offer("thread.attach", context("main", "unsampled", trace_id(0x202), span_id(0x202), 0,
                                       Json::array({text_attribute("http_route", "/health")})));
  if (!reply) return std::unexpected(reply.error());
  if ((*reply)["ok"] != true) return {};
  CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "sampled", 0x203)));
  for (int i = 0; i < 2; ++i) CTX_RETURN_IF_ERROR(detach(t, "main"));
  return {};
}

Driven attributes_only(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("main", "traced", 0x301, Json::array({text_attribute("http_route", "/cart")}))));
  CTX_RETURN_IF_ERROR(t.request("thread.detach", on("main")));
  return offer(t, {{"thread", "main"},
                   {"ctx", "untraced"},
                   {"attributes", Json::array({text_attribute("http_route", "/idle")})}});
}

Driven other_types(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  const Json attributes =
      Json::array({{{"key", "retry_count"}, {"value", {{"intValue", 42}}}},
                   {{"key", "cache_hit"}, {"value", {{"boolValue", true}}}},
                   {{"key", "load_factor"}, {"value", {{"doubleValue", 2.5}}}}});
  unsigned number = 0x400;
  for (const Json& one : attributes) {
    ++number;
    CTX_RETURN_IF_ERROR(
        offer(t, context("main", fmt::format("other-{}", number), number, Json::array({one}))));
  }
  return {};
}

// Names and values that a converter may take for others, and an id of 64 bits.
Driven odd_texts(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(offer(
      t,
      context("main", "names", 0x481,
              Json::array({text_attribute("http.request.method", "GET"),
                           text_attribute("X-Request-Id", "7f3"),
                           text_attribute("deployment-zone", "eu-west"),
                           text_attribute("loyalty_program_membership_tier_of_customer", "gold"),
                           text_attribute("loyalty_program_membership_tier_of_partner", "new")}))));
  unsigned number = 0x482;
  for (const std::string& value :
       {std::string("two\r\nlines\n"), std::string("100%25 %s+%2F\\"),
        std::string("cart \xf0\x9f\x9b\x92 of \xf0\xa0\xae\xb7"), std::string("a\0b", 3)}) {
    ++number;
    CTX_RETURN_IF_ERROR(offer(t, context("main", fmt::format("text-{}", number), number,
                                         Json::array({text_attribute("http_route", value)}))));
  }
  return offer(t, context("main", "of-64-bits", "0000000000000000a3ce929d0e0e4736", span_id(0x480),
                          1, Json::array()));
}

// If a length is taken modulo 256, the rest of the value reads as entries with the index of a
// letter: after the remainder there are four times 64 bytes, each "x>" and 62 more.
std::string long_value(std::size_t size, std::string_view filler) {
  std::string out(size % 256, 'v');
  while (out.size() + 64 <= size) {
    std::string tile = "x>";
    while (tile.size() + filler.size() <= 64) tile += filler;
    tile.resize(64, 'e');
    out += tile;
  }
  return out;
}

Driven long_values(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  unsigned number = 0x500;
  for (const std::size_t size : {255U, 256U, 257U, 300U, 70000U}) {
    const std::string plain = size == 255 ? std::string(255, 'v') : long_value(size, "w");
    // A character of three bytes begins at 253 or 254.
    std::string wide =
        size == 255 ? std::string(252, 'v') + "\xe2\x82\xac" : long_value(size, "\xe2\x82\xac");
    for (const auto& value : {plain, wide}) {
      ++number;
      CTX_RETURN_IF_ERROR(offer(t, context("main", fmt::format("long-{}", number), number,
                                           Json::array({text_attribute("http_route", value)}))));
    }
  }
  return {};
}

Json six_of(const std::string& value) {
  Json attributes = Json::array();
  for (const char* key :
       {"http_route", "user_tier", "db_table", "db_shard", "db_query", "tenant"}) {
    attributes.push_back(text_attribute(key, value));
  }
  return attributes;
}

// More than fits into what every reader looks at.
Driven full_record(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(offer(t, context("main", "full", 0x580, six_of(std::string(150, 'f')))));
  // The limit of 640 bytes falls into the middle of a three-byte character.
  std::string wide = "ff";
  while (wide.size() < 140) wide += "\xe2\x82\xac";
  return offer(t, context("main", "full-wide", 0x581, six_of(wide)));
}

Driven append(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(
      t.request("thread.attach", context("main", "grows", 0x601,
                                         Json::array({text_attribute("http_route", "/a"),
                                                      text_attribute("user_tier", "free")}))));
  CTX_RETURN_IF_ERROR(t.offer(
      "thread.append", {{"thread", "main"},
                        {"attributes", Json::array({text_attribute("http_route", "/b"),
                                                    text_attribute("db_table", "carts")})}}));
  CTX_RETURN_IF_ERROR(t.offer(
      "thread.append", {{"thread", "main"},
                        {"attributes", Json::array({text_attribute("http_route", "/checkout")})}}));
  CTX_RETURN_IF_ERROR(t.offer(
      "thread.append",
      {{"thread", "main"}, {"attributes", Json::array({text_attribute("http_route", "/")})}}));
  return detach(t, "main");
}

Driven append_one(Testee& t, const char* thread, const char* key, const std::string& value) {
  if (!t.can("thread.append")) return {};
  CTX_RETURN_IF_ERROR(
      t.offer("thread.append",
              {{"thread", thread}, {"attributes", Json::array({text_attribute(key, value)})}}));
  return {};
}

Driven shrink_to(Testee& t, const char* thread, unsigned keep) {
  if (!t.can("thread.shrink")) return {};
  CTX_RETURN_IF_ERROR(t.offer("thread.shrink", {{"thread", thread}, {"keep", keep}}));
  return {};
}

// A context that was changed comes back when another one inside it ends, and is changed again.
Driven changes(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  const auto inside = [&](unsigned number) {
    return offer(t, context("main", fmt::format("inside-{}", number), number));
  };
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("main", "grows", 0x681, Json::array({text_attribute("http_route", "/orders")}))));
  CTX_RETURN_IF_ERROR(append_one(t, "main", "user_tier", "gold"));
  CTX_RETURN_IF_ERROR(inside(0x682));
  CTX_RETURN_IF_ERROR(append_one(t, "main", "db_table", "carts"));
  CTX_RETURN_IF_ERROR(inside(0x683));
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  Json given = {text_attribute("http_route", "/pay"), text_attribute("user_tier", "free"),
                text_attribute("db_table", "bills")};
  // The key map has another order, that of the earlier requests. An SDK that takes few keys may
  // count only those.
  const Json attaches = t.capabilities().value("thread.attach", Json::object());
  if (!attaches.contains("keys")) std::ranges::rotate(given, given.end() - 1);
  CTX_RETURN_IF_ERROR(
      t.request("thread.attach", context("main", "shrinks", 0x684, std::move(given))));
  CTX_RETURN_IF_ERROR(shrink_to(t, "main", 1));
  CTX_RETURN_IF_ERROR(inside(0x685));
  CTX_RETURN_IF_ERROR(shrink_to(t, "main", 0));
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  const auto reply =
      t.offer("thread.attach", context("main", "unsampled-grows", trace_id(0x686), span_id(0x686),
                                       0, Json::array({text_attribute("http_route", "/health")})));
  if (!reply) return std::unexpected(reply.error());
  if ((*reply)["ok"] != true) return {};
  CTX_RETURN_IF_ERROR(append_one(t, "main", "user_tier", "none"));
  return detach(t, "main");
}

Driven switches(Testee& t) {
  constexpr unsigned kSwitches = 20;
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  for (unsigned i = 0; i < kSwitches; ++i) {
    CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "switch", 0x700 + i)));
    CTX_RETURN_IF_ERROR(t.request("thread.detach", on("main")));
  }
  return {};
}

Driven fresh_threads(Testee& t) {
  CTX_RETURN_IF_ERROR(t.request("thread.spawn", on("early")));
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(t.request("thread.spawn", on("plain")));
  CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "busy", 0x801)));
  CTX_RETURN_IF_ERROR(t.request("thread.spawn", on("from-busy")));
  // Later changes on one thread must not show on the other.
  if (t.can("thread.append")) {
    CTX_RETURN_IF_ERROR(t.offer(
        "thread.append", {{"thread", "main"},
                          {"attributes", Json::array({text_attribute("http_route", "/later")})}}));
  }
  CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "busier", 0x802)));
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  for (const char* thread : {"early", "plain", "from-busy"}) {
    CTX_RETURN_IF_ERROR(t.request("thread.exit", on(thread)));
  }
  return {};
}

// `wanted`, or fewer if the testee declares a maximum.
int most_threads(const Testee& t, int wanted) {
  const Json thread = t.capabilities().value("thread", Json::object());
  const Json most = thread.value("max_threads", Json(wanted));
  return most.is_number_integer() && most < wanted ? most.get<int>() : wanted;
}

Driven canaries(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  std::vector<std::string> names;
  for (int i = 1; i < most_threads(t, 4); ++i) names.push_back(fmt::format("t{}", i));
  CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "on-main", 0x900)));
  unsigned number = 0x900;
  for (const auto& name : names) {
    ++number;
    CTX_RETURN_IF_ERROR(t.request("thread.spawn", on(name.c_str())));
    CTX_RETURN_IF_ERROR(t.request(
        "thread.attach", context(name.c_str(), "on-" + name, number,
                                 Json::array({text_attribute("http_route", "/" + name)}))));
  }
  if (!names.empty()) {
    const char* const first = names.front().c_str();
    CTX_RETURN_IF_ERROR(append_one(t, first, "user_tier", "gold"));
    // It computes: a thread that waits may show nothing where contexts belong to tasks.
    CTX_RETURN_IF_ERROR(
        t.ask("thread.block", {{"thread", first}, {"how", "spin"}, {"ms", kSpin.count()}}));
    // One span on two threads.
    CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "shared", 0x901)));
    CTX_RETURN_IF_ERROR(detach(t, "main"));
  }
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  for (const auto& name : names) {
    CTX_RETURN_IF_ERROR(detach(t, name.c_str()));
    CTX_RETURN_IF_ERROR(t.request("thread.exit", on(name.c_str())));
  }
  return {};
}

// A context that is not sampled moves away from inside another.
Driven move_out_of_another(Testee& t) {
  if (!t.can("thread.detach")) return {};
  CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "stays", 0xa02)));
  const auto attached =
      t.offer("thread.attach", context("main", "unsampled-moves", trace_id(0xa03), span_id(0xa03),
                                       0, Json::array({text_attribute("http_route", "/next")})));
  if (!attached) return std::unexpected(attached.error());
  if ((*attached)["ok"] == true) {
    const auto moved =
        t.offer("thread.move", {{"from", "main"}, {"to", "target"}, {"ctx", "unsampled-moves"}});
    if (!moved) return std::unexpected(moved.error());
    CTX_RETURN_IF_ERROR(detach(t, (*moved)["ok"] == true ? "target" : "main"));
  }
  return detach(t, "main");
}

Driven move(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(t.request("thread.spawn", on("target")));
  CTX_RETURN_IF_ERROR(
      t.request("thread.attach", context("main", "moving", 0xa01,
                                         Json::array({text_attribute("http_route", "/moving"),
                                                      text_attribute("user_tier", "gold")}))));
  // It stays under the context that moves.
  CTX_RETURN_IF_ERROR(t.request("thread.attach", context("target", "of-the-target", 0xa04)));
  const auto moved =
      t.offer("thread.move", {{"from", "main"}, {"to", "target"}, {"ctx", "moving"}});
  if (!moved) return std::unexpected(moved.error());
  const char* const now_on = (*moved)["ok"] == true ? "target" : "main";
  CTX_RETURN_IF_ERROR(append_one(t, now_on, "db_table", "moves"));
  CTX_RETURN_IF_ERROR(detach(t, now_on));
  CTX_RETURN_IF_ERROR(detach(t, "target"));
  if ((*moved)["ok"] == true) CTX_RETURN_IF_ERROR(move_out_of_another(t));
  CTX_RETURN_IF_ERROR(t.request("thread.exit", on("target")));
  return {};
}

Driven exit(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  // Stays while others end.
  CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "stays", 0xb02)));
  CTX_RETURN_IF_ERROR(t.request("thread.spawn", on("ends")));
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("ends", "to-the-end", 0xb01, Json::array({text_attribute("http_route", "/cart")}))));
  CTX_RETURN_IF_ERROR(t.request("thread.exit", on("ends")));
  // It may get the memory of the thread that has ended.
  CTX_RETURN_IF_ERROR(t.request("thread.spawn", on("begins")));
  CTX_RETURN_IF_ERROR(t.request("thread.exit", on("begins")));
  return detach(t, "main");
}

// While a context is attached on another thread.
Driven churn(Testee& t) {
  constexpr int kThreads = 2;
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  if (most_threads(t, 1 + kThreads) < 1 + kThreads) return {};
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("main", "meanwhile", 0xb11, Json::array({text_attribute("http_route", "/cart")}))));
  CTX_RETURN_IF_ERROR(
      t.request("thread.churn", {{"threads", kThreads}, {"iterations", 20}, {"seed", "c0ffee"}}));
  return detach(t, "main");
}

Driven attach_first(Testee& t) {
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("main", "first", 0xc01, Json::array({text_attribute("http_route", "/cart")}))));
  return detach(t, "main");
}

Driven new_names(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_with_pairs(t, resource_named(kThreadsService)));
  CTX_RETURN_IF_ERROR(attach_first(t));
  CTX_RETURN_IF_ERROR(
      t.request("thread.attach", context("main", "one-more", 0xc02,
                                         Json::array({text_attribute("user_tier", "gold"),
                                                      text_attribute("http_route", "/pay")}))));
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  // The next names come after a change of the Resource.
  if (t.can("process.update")) {
    CTX_RETURN_IF_ERROR(
        t.ask("process.update", {{"resource", resource_named("ctxconf-threads-updated")}}));
  }
  CTX_RETURN_IF_ERROR(
      t.request("thread.attach", context("main", "two-more", 0xc03,
                                         Json::array({text_attribute("db_table", "carts"),
                                                      text_attribute("db_shard", "7")}))));
  return detach(t, "main");
}

// Each writer uses a name that is new.
Driven names_at_once(Testee& t) {
  constexpr int kThreads = 8;
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  std::vector<std::string> threads;
  Json requests = Json::array();
  const int most = most_threads(t, 1 + kThreads);
  if (most < 2) return {};
  for (int i = 1; i < most; ++i) {
    threads.push_back(fmt::format("writer-{}", i));
    CTX_RETURN_IF_ERROR(t.request("thread.spawn", on(threads.back().c_str())));
    Json request = context(threads.back().c_str(), "named-" + threads.back(),
                           0xc80U + static_cast<unsigned>(i),
                           Json::array({text_attribute(fmt::format("name_of_writer_{}", i),
                                                       fmt::format("value of writer {}", i))}));
    request["op"] = "thread.attach";
    requests.push_back(std::move(request));
  }
  CTX_RETURN_IF_ERROR(attach_first(t));
  CTX_RETURN_IF_ERROR(t.request("parallel", {{"requests", requests}}));
  if (t.can("thread.detach")) {
    for (Json& request : requests) {
      request = on(request["thread"].get<std::string>().c_str());
      request["op"] = "thread.detach";
    }
    CTX_RETURN_IF_ERROR(t.request("parallel", {{"requests", requests}}));
  }
  for (const auto& thread : threads)
    CTX_RETURN_IF_ERROR(t.request("thread.exit", on(thread.c_str())));
  return {};
}

// One thread gives a new name while another updates the Resource.
Driven update_beside_a_name(Testee& t) {
  constexpr unsigned kTimes = 4;
  CTX_RETURN_IF_ERROR(t.request("thread.spawn", on("namer")));
  for (unsigned i = 0; i < kTimes; ++i) {
    Json attach = context("namer", fmt::format("beside-{}", i), 0xd80U + i,
                          Json::array({text_attribute(fmt::format("name_beside_{}", i),
                                                      fmt::format("value beside {}", i))}));
    attach["op"] = "thread.attach";
    const Json update = {{"op", "process.update"},
                         {"resource", resource_named(fmt::format("ctxconf-beside-{}", i))}};
    CTX_RETURN_IF_ERROR(t.request("parallel", {{"requests", {update, attach}}}));
  }
  CTX_RETURN_IF_ERROR(t.request("thread.exit", on("namer")));
  return {};
}

// An update of the pairs next to the Resource, and another publication.
Driven names_around_publications(Testee& t) {
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("main", "waits", 0xd11, Json::array({text_attribute("http_route", "/pay")}))));
  CTX_RETURN_IF_ERROR(t.ask(
      "process.update", {{"attributes", Json::array({text_attribute("ctxconf.pair", "one")})}}));
  const auto again = t.ask("process.publish", {{"resource", resource_named("ctxconf-once-more")}});
  if (!again) return std::unexpected(again.error());
  CTX_RETURN_IF_ERROR(t.wait_for_change(*again, kMostWait));
  // An SDK that was set up again may know nothing of the context.
  if (t.can("thread.detach")) CTX_RETURN_IF_ERROR(t.ask("thread.detach", on("main")));
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach", context("main", "named-later", 0xd12,
                               Json::array({text_attribute("http_route", "/done"),
                                            text_attribute("name_of_the_next", "value")}))));
  return detach(t, "main");
}

Driven other_update(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("main", "stays", 0xd01, Json::array({text_attribute("http_route", "/cart")}))));
  CTX_RETURN_IF_ERROR(
      t.request("process.update", {{"resource", resource_named("ctxconf-renamed")}}));
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  const bool has_threads = t.can("thread") && most_threads(t, 2) == 2;
  if (has_threads && t.can("process.parallel")) CTX_RETURN_IF_ERROR(update_beside_a_name(t));
  return names_around_publications(t);
}

Driven republish(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  // The same names in another order after each drop.
  const char* const names[] = {"http_route", "user_tier", "db_table"};
  for (unsigned i = 0; i < 3; ++i) {
    Json attributes = Json::array();
    for (unsigned k = 0; k < 3; ++k) attributes.push_back(text_attribute(names[(i + k) % 3], "x"));
    CTX_RETURN_IF_ERROR(t.request(
        "thread.attach", context("main", fmt::format("life-{}", i), 0xe01 + i, attributes)));
    // The first life ends with nothing attached.
    if (i == 0) CTX_RETURN_IF_ERROR(detach(t, "main"));
    if (i == 2) break;
    CTX_RETURN_IF_ERROR(t.request("process.drop"));
    CTX_RETURN_IF_ERROR(
        t.request("process.publish", {{"resource", resource_named("ctxconf-again")}}));
  }
  return {};
}

// `count` names in one context, starting with `first`.
Driven offer_names(Testee& t, unsigned first, unsigned count) {
  Json attributes = Json::array();
  for (unsigned k = first; k < first + count; ++k) {
    attributes.push_back(text_attribute(fmt::format("name_{}", k), "v"));
  }
  return offer(t, context("main", fmt::format("names-{}", first), 0x1000 + first, attributes));
}

// 300 names. If a context has some names for which there is room and some for which there is none,
// an SDK may refuse all of it.
Driven many_names(Testee& t) {
  constexpr unsigned kMost = 256;
  constexpr unsigned kAtOnce = 30;
  constexpr unsigned kFitting = 240;  // next to a few earlier ones
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  for (unsigned i = 0; i < kFitting; i += kAtOnce) CTX_RETURN_IF_ERROR(offer_names(t, i, kAtOnce));
  CTX_RETURN_IF_ERROR(offer_names(t, kFitting, 300 - kFitting));
  for (unsigned i = kFitting; i < kMost; ++i) CTX_RETURN_IF_ERROR(offer_names(t, i, 1));
  return offer(t, context("main", "one-too-many", 0x1200,
                          Json::array({text_attribute("no_index_left", "must-not-show")})));
}

Driven fork_in_context(Testee& t, const std::string& name, unsigned number, const Json& child) {
  CTX_RETURN_IF_ERROR(publish_once(t, kThreadsService));
  CTX_RETURN_IF_ERROR(t.request("thread.attach", context("main", "around-" + name, number + 0x10)));
  CTX_RETURN_IF_ERROR(t.request(
      "thread.attach",
      context("main", name, number, Json::array({text_attribute("http_route", "/cart")}))));
  const auto forked = t.request("process.fork", {{"child", child}});
  if (!forked) return std::unexpected(forked.error());
  CTX_RETURN_IF_ERROR(t.request("process.reap", {{"child_pid", (*forked)["child_pid"]}}));
  CTX_RETURN_IF_ERROR(detach(t, "main"));
  return detach(t, "main");
}

Driven fork_idle_in_context(Testee& t) {
  return fork_in_context(t, "before-idle", 0x1302, {{"do", "idle"}});
}

Driven fork_publishing(Testee& t) {
  return fork_in_context(t, "before-fork", 0x1301,
                         {{"do", "publish"}, {"resource", resource_named("ctxconf-child")}});
}

const Group kThreadGroups[] = {
    {"attach",
     {{"attach",
       {"thread.attach"},
       {"tctx.attach.visible", "tctx.attach.matches-context", "tctx.record.trace-id",
        "tctx.record.span-id", "tctx.refdata.before-first-record"},
       {"tctx.*"},
       attach},
      {"flags", {"thread.attach"}, {"tctx.record.trace-flags"}, {"tctx.attach.visible"}, flags},
      {"nested",
       {"thread.attach", "thread.detach"},
       {"tctx.attach.restores-outer", "tctx.detach.hidden"},
       {"tctx.attach.matches-context", "tctx.record.trace-flags"},
       nested},
      {"attributes-only",
       {"thread.attach", "thread.detach"},
       {"tctx.record.ids-zero-when-none", "tctx.record.trace-flags-without-ids"},
       {"tctx.attach.visible"},
       attributes_only},
      {"append",
       {"thread.attach", "thread.append"},
       {"tctx.attrs.last-occurrence-wins"},
       {},
       append},
      {"other-types", {"thread.attach"}, {"tctx.attrs.non-strings-as-text"}, {}, other_types},
      {"texts",
       {"thread.attach"},
       {"tctx.attach.matches-context"},
       {"tctx.record.trace-id"},
       odd_texts},
      {"changes",
       {"thread.attach", "thread.detach"},
       {"tctx.attach.matches-context"},
       {"tctx.attach.restores-outer", "tctx.record.trace-flags"},
       changes},
      {"switches",
       {"thread.attach", "thread.detach"},
       {"tctx.attach.fixed-record-pointer"},
       {},
       switches}}},
    {.name = "threads",
     .checks = {{"fresh",
                 {"thread", "thread.attach"},
                 {"tctx.tls.fresh-thread-null"},
                 {"tctx.attach.visible"},
                 fresh_threads},
                {"canaries",
                 {"thread", "thread.attach"},
                 {"tctx.tls.per-thread"},
                 {"tctx.attach.visible", "tctx.attach.matches-context"},
                 canaries},
                {"move",
                 {"thread", "thread.attach", "thread.move"},
                 {"tctx.detach.hidden"},
                 {"tctx.attach.visible", "tctx.attach.matches-context"},
                 move},
                {"exit",
                 {"thread", "thread.attach"},
                 {"tctx.exit.no-dangling"},
                 {"tctx.tls.fresh-thread-null"},
                 exit},
                {"churn",
                 {"thread", "thread.attach", "thread.churn"},
                 {},
                 {"tctx.exit.no-dangling", "tctx.attach.visible", "tctx.attach.matches-context"},
                 churn}},
     .overwrites_freed = true},
    {"key-map",
     {{"new-names",
       {"process.publish", "thread.attach"},
       {"tctx.keymap.append-updates-context", "tctx.keymap.update-protocol"},
       {"tctx.keymap.never-*", "pctx.update.visible"},
       new_names},
      {"other-update",
       {"process.publish", "process.update", "thread.attach"},
       {"tctx.keymap.survives-other-updates"},
       {"tctx.keymap.never-*", "tctx.keymap.stable-across-republish", "pctx.update.visible",
        "tctx.attach.visible"},
       other_update}}},
    {"names-at-once",
     {{"names-at-once",
       {"process.publish", "process.parallel", "thread", "thread.attach"},
       {"tctx.keymap.single-writer"},
       {"tctx.keymap.never-*"},
       names_at_once}}},
    {"republish",
     {{"republish",
       {"process.publish", "process.drop", "thread.attach", "thread.detach"},
       {"tctx.keymap.stable-across-republish"},
       {},
       republish}}},
    {"limits",
     {{"long-values",
       {"thread.attach"},
       {"tctx.attrs.length-not-wrapped"},
       {"tctx.attrs.*"},
       long_values},
      {"full-record",
       {"thread.attach"},
       {"tctx.record.recommended-size"},
       {"tctx.record.contiguous", "tctx.attrs.*"},
       full_record},
      {"many-names",
       {"process.publish", "thread.attach"},
       {"tctx.keymap.index-not-wrapped"},
       {"tctx.keymap.at-most-256", "tctx.attach.matches-context"},
       many_names}}},
    {"fork",
     {{"child-publishes",
       {"process.publish", "process.fork:publish", "thread.attach"},
       {"tctx.fork.inherited-record"},
       {},
       fork_publishing},
      {"child-idles",
       {"process.publish", "process.fork:idle", "thread.attach"},
       {},
       {"tctx.fork.inherited-record"},
       fork_idle_in_context}}},
};

}  // namespace

Driven publish_once(Testee& t, const std::string& service_name) {
  if (!t.can("process.publish") || t.has_asked("process.publish")) return {};
  CTX_RETURN_IF_ERROR(t.request("process.publish", {{"resource", resource_named(service_name)}}));
  return {};
}

std::span<const Group> thread_groups() { return kThreadGroups; }

}  // namespace ctxconf::conformance
