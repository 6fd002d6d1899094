// Requirements that need a program to be driven, OTEP 4719: what was asked of it, and what a
// reader sees after the answer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "conformance/payload_walk.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

// What was given so far: lists that were never given are nothing that could be missed.
struct Given {
  std::optional<std::vector<Attribute>> resource;
  std::optional<std::vector<Attribute>> attributes;

  void apply(const DrivenOperation& d) {
    if (d.op == "process.publish" || d.op == "process.drop") *this = {};
    if (d.request.contains("resource")) {
      resource = attributes_of(d.request["resource"].value("attributes", Json::array()));
    }
    if (d.request.contains("attributes")) attributes = attributes_of(d.request["attributes"]);
  }
};

const ImageEvidence* image_of(const ImageEvidence& e, const DrivenOperation& d) {
  return d.view == nullptr ? nullptr : e.session->image(d.view->image);
}

// The first attribute that is not there as it was given; null: all are.
const Attribute* missing(const std::vector<Attribute>& given, const std::vector<Attribute>& seen,
                         const Attribute** instead) {
  for (const Attribute& g : given) {
    const auto it = std::ranges::find(seen, g.key, &Attribute::key);
    *instead = it == seen.end() ? nullptr : &*it;
    if (*instead == nullptr || (*instead)->value != g.value || (*instead)->kind != g.kind) {
      return &g;
    }
  }
  return nullptr;
}

std::string shown(const Attribute& a) {
  return fmt::format("{} = {} ({})", conformance::quoted(a.key), conformance::quoted(a.value),
                     to_string(a.kind));
}

Finding update_visible(const ImageEvidence& e) {
  Given given;
  std::size_t updates = 0;
  for (const DrivenOperation& d : e.session->operations) {
    if (!d.ok) continue;
    given.apply(d);
    if (d.op != "process.update" || !given.resource) continue;
    const ImageEvidence* image = image_of(e, d);
    if (image == nullptr) continue;
    const Context* c = context_at(*image, *d.view);
    if (c == nullptr || c->payload == nullptr || c->payload->problem != PayloadProblem::kNone) {
      continue;
    }
    ++updates;
    const Attribute* instead = nullptr;
    const Attribute* lost = missing(*given.resource, c->payload->resource, &instead);
    if (lost == nullptr && given.attributes) {
      lost = missing(*given.attributes, c->payload->attributes, &instead);
    }
    if (lost == nullptr) continue;
    Finding f = contradicted(
        instead == nullptr
            ? fmt::format("after the update {} is not there", conformance::quoted(lost->key))
            : fmt::format("after the update {}, where {} was given", shown(*instead), shown(*lost)),
        "an accepted change does not show");
    f.evidence = {request_line(d), maps_line(*c)};
    return f;
  }
  if (updates == 0) {
    return unobservable("no update was answered while a context was there",
                        "an adapter that declares process.update");
  }
  return passed(fmt::format("{} updates, each visible when it was answered", updates));
}

constexpr auto kRules = std::to_array<NamedRule>({
    {"pctx.update.visible", update_visible},
});

}  // namespace

std::span<const NamedRule> driven_process_rules() { return kRules; }

}  // namespace ctxconf::conformance
