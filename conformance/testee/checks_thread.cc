#include <nlohmann/json.hpp>

#include "conformance/testee/checks.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

Json attribute(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

Driven attach(Testee& t) {
  if (t.can("process.publish")) {
    CTX_CHECK(t.request(
        "process.publish",
        {{"resource", {{"attributes", {attribute("service.name", "ctxconf-threads")}}}}}));
  }
  CTX_CHECK(t.request("thread.attach", {{"thread", "main"},
                                        {"ctx", "A"},
                                        {"trace_id", "0af7651916cd43dd8448eb211c80319c"},
                                        {"span_id", "b7ad6b7169203331"},
                                        {"flags", 1},
                                        {"attributes", {attribute("http_route", "/cart")}}}));
  return {};
}

const Group kGroups[] = {
    {"attach", {{"attach", {"thread.attach"}, {"tctx.attach.visible"}, {"tctx.*"}, attach}}},
};

}  // namespace

std::span<const Group> thread_groups() { return kGroups; }

}  // namespace ctxconf::conformance
