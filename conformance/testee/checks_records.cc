// Operations that change the record of a thread, for level stores.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "conformance/testee/checks.h"
#include "conformance/testee/protocol.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr const char* kStoresService = "ctxconf-stores";

// Ids that differ from those of the previous context in every byte.
Json numbered_context(const std::string& name, unsigned number, Json attributes) {
  std::string trace;
  std::string span;
  for (unsigned i = 0; i < 16; ++i)
    trace += fmt::format("{:02x}", (number * 37 + i * 3 + 1) & 0xffU);
  for (unsigned i = 0; i < 8; ++i) span += fmt::format("{:02x}", (number * 59 + i * 5 + 2) & 0xffU);
  return {{"thread", "main"}, {"ctx", name}, {"trace_id", trace},
          {"span_id", span},  {"flags", 1},  {"attributes", std::move(attributes)}};
}

Driven attach_numbered(Testee& t, unsigned number, Json attributes = Json::array()) {
  CTX_RETURN_IF_ERROR(t.request("thread.attach", numbered_context(fmt::format("C{}", number),
                                                                  number, std::move(attributes))));
  return {};
}

Driven detach_main(Testee& t) {
  CTX_RETURN_IF_ERROR(t.request("thread.detach", {{"thread", "main"}}));
  return {};
}

Driven append_text(Testee& t, const std::string& key, const std::string& value) {
  CTX_RETURN_IF_ERROR(
      t.offer("thread.append",
              {{"thread", "main"}, {"attributes", Json::array({text_attribute(key, value)})}}));
  return {};
}

// Inside context `number`: another span of its trace with the same attributes, and an unsampled
// span, which some SDKs refuse.
Driven spans_of_one_trace(Testee& t, unsigned number, const Json& attributes) {
  const Json outer = numbered_context("", number, attributes);
  Json span = numbered_context(fmt::format("C{}-span", number), number + 100, attributes);
  span["trace_id"] = outer["trace_id"];
  CTX_RETURN_IF_ERROR(t.request("thread.attach", span));
  CTX_RETURN_IF_ERROR(detach_main(t));
  span["ctx"] = fmt::format("C{}-unsampled", number);
  span["span_id"] = numbered_context("", number + 50, {})["span_id"];
  span["flags"] = 0;
  const auto reply = t.offer("thread.attach", std::move(span));
  if (!reply) return std::unexpected(reply.error());
  if ((*reply)["ok"] == true) CTX_RETURN_IF_ERROR(detach_main(t));
  return {};
}

// The first attach shows where the record is; its stores are seen from the second attach on.
Driven switch_contexts(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kStoresService));
  CTX_RETURN_IF_ERROR(attach_numbered(t, 1, Json::array({text_attribute("http_route", "/cart")})));
  CTX_RETURN_IF_ERROR(
      attach_numbered(t, 2, Json::array({text_attribute("http_route", "/checkout")})));
  CTX_RETURN_IF_ERROR(
      spans_of_one_trace(t, 2, Json::array({text_attribute("http_route", "/checkout")})));
  CTX_RETURN_IF_ERROR(detach_main(t));
  CTX_RETURN_IF_ERROR(detach_main(t));
  for (unsigned i = 3; i < 6; ++i) {
    CTX_RETURN_IF_ERROR(attach_numbered(
        t, i, {text_attribute("http_route", std::string(i, 'x')), text_attribute("user", "7")}));
    CTX_RETURN_IF_ERROR(detach_main(t));
  }
  return {};
}

Driven grow(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kStoresService));
  CTX_RETURN_IF_ERROR(attach_numbered(t, 7, Json::array({text_attribute("http_route", "/cart")})));
  CTX_RETURN_IF_ERROR(append_text(t, "user", "42"));
  // Grows from below to above 255 bytes.
  CTX_RETURN_IF_ERROR(append_text(t, "path", std::string(200, 'p')));
  CTX_RETURN_IF_ERROR(append_text(t, "query", std::string(90, 'q')));
  CTX_RETURN_IF_ERROR(detach_main(t));
  return {};
}

Driven shrink(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kStoresService));
  CTX_RETURN_IF_ERROR(
      attach_numbered(t, 8,
                      {text_attribute("http_route", "/cart"), text_attribute("user", "42"),
                       text_attribute("path", "/a/longer/one/that/goes/on")}));
  CTX_RETURN_IF_ERROR(t.offer("thread.shrink", {{"thread", "main"}, {"keep", 1}}));
  if (t.can("thread.append")) CTX_RETURN_IF_ERROR(append_text(t, "path", "/another"));
  CTX_RETURN_IF_ERROR(detach_main(t));
  return {};
}

// The first attach creates the variable if it is not in a static block; from then on its changes
// are single-stepped.
Driven trace(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kStoresService));
  CTX_RETURN_IF_ERROR(attach_numbered(t, 9, Json::array({text_attribute("http_route", "/cart")})));
  CTX_RETURN_IF_ERROR(
      attach_numbered(t, 10, {text_attribute("http_route", "/pay"), text_attribute("user", "42")}));
  if (t.can("thread.append")) CTX_RETURN_IF_ERROR(append_text(t, "path", "/a/b"));
  if (t.can("thread.shrink")) {
    CTX_RETURN_IF_ERROR(t.offer("thread.shrink", {{"thread", "main"}, {"keep", 2}}));
  }
  // The new value is as long as the old one.
  if (t.can("thread.append")) CTX_RETURN_IF_ERROR(append_text(t, "user", "43"));
  if (!t.can("thread.detach")) return {};
  CTX_RETURN_IF_ERROR(detach_main(t));
  CTX_RETURN_IF_ERROR(
      spans_of_one_trace(t, 9, Json::array({text_attribute("http_route", "/cart")})));
  CTX_RETURN_IF_ERROR(detach_main(t));
  CTX_RETURN_IF_ERROR(
      attach_numbered(t, 11, Json::array({text_attribute("query", " two carts ")})));
  return detach_main(t);
}

// A thread that ends while a context is attached.
Driven walk_exit(Testee& t) {
  CTX_RETURN_IF_ERROR(publish_once(t, kStoresService));
  CTX_RETURN_IF_ERROR(t.request("thread.spawn", {{"thread", "t1"}}));
  Json ending =
      numbered_context("ending", 12, Json::array({text_attribute("http_route", "/cart")}));
  ending["thread"] = "t1";
  CTX_RETURN_IF_ERROR(t.request("thread.attach", std::move(ending)));
  CTX_RETURN_IF_ERROR(t.request("thread.exit", {{"thread", "t1"}}));
  return {};
}

const Group kRecordGroups[] = {
    {"record-stores",
     {{"switch",
       {"thread.attach", "thread.detach"},
       {"tctx.attach.valid-cleared-first", "tctx.attach.valid-set-last", "tctx.attach.one-switch",
        "tctx.attach.same-thread-writes"},
       {},
       switch_contexts},
      {"append",
       {"thread.attach", "thread.detach", "thread.append"},
       {"tctx.append.*"},
       {"tctx.attach.same-thread-writes"},
       grow},
      {"shrink",
       {"thread.attach", "thread.detach", "thread.shrink"},
       {"tctx.shrink.*"},
       {"tctx.attach.same-thread-writes"},
       shrink}},
     /*records=*/true},
    {.name = "contexts-by-instructions",
     .checks = {{"walk",
                 {"thread.attach"},
                 {"tctx.attach.complete-before-visible", "tctx.attach.valid-before-visible",
                  "tctx.attach.no-change-while-visible", "tctx.attach.slot-always-sound",
                  "tctx.attach.record-outlives-slot", "tctx.keymap.before-use"},
                 {},
                 trace},
                {"exit", {"thread", "thread.attach"}, {"tctx.exit.no-dangling"}, {}, walk_exit}},
     .slot_steps = true},
};

}  // namespace

std::span<const Group> record_groups() { return kRecordGroups; }

}  // namespace ctxconf::conformance
