#include <nlohmann/json.hpp>

#include "conformance/testee/checks.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

Json attribute(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
Json resource(Json attributes) { return {{"attributes", std::move(attributes)}}; }

Json plain_resource() {
  return resource({attribute("service.name", "ctxconf-checkout"),
                   attribute("service.instance.id", "627cc493-f310-47de-96bd-71410b7dec09")});
}

Driven publish(Testee& t) {
  CTX_CHECK(t.request("process.publish", {{"resource", plain_resource()}}));
  return {};
}

Driven update(Testee& t) {
  CTX_CHECK(publish(t));
  CTX_CHECK(t.request("process.update",
                      {{"resource", resource({attribute("service.name", "ctxconf-checkout-2")})}}));
  return {};
}

const Group kGroups[] = {
    {"publish",
     {{"publish",
       {"process.publish"},
       {"pctx.publish.discoverable"},
       {"pctx.header.*", "pctx.payload.*", "pctx.publish.*", "pctx.fork.dontfork*"},
       publish}}},
    {"update",
     {{"update",
       {"process.publish", "process.update"},
       {"pctx.update.visible"},
       {"pctx.update.*"},
       update}}},
};

}  // namespace

std::span<const Group> process_groups() { return kGroups; }

}  // namespace ctxconf::conformance
