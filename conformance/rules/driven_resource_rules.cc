// Requirements that need a program to be driven, OTEP 4719: the attributes that it was given, and
// where they are in what it published.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <vector>

#include "conformance/payload/payload_walk.h"
#include "conformance/rules/expected_resource.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

bool is_publication(const DrivenOperation& d) {
  return d.op == "process.publish" || d.op == "process.update";
}

// The first attribute of the default Resource that was published and is not any more, or not as it
// was given; null: all of them are there.
const Attribute* lost_of(const std::vector<Attribute>& resource, const Published& was,
                         const Published& now) {
  const auto it = std::ranges::find_if(resource, [&](const Attribute& a) {
    const Attribute* then = was.find_in_resource(a.key);
    const Attribute* there = now.find_in_resource(a.key);
    return then != nullptr && is_same(*then, a) && (there == nullptr || !is_same(*there, a));
  });
  return it == resource.end() ? nullptr : &*it;
}

Finding default_resource(const ImageEvidence& e) {
  ExpectedResource expected;
  std::optional<std::vector<Attribute>> second;
  Published was;   // with the default Resource alone
  Published last;  // at the operation before
  bool judged = false;
  bool nothing_taken = false;
  for (const DrivenOperation& d : e.session->operations) {
    expected.apply(d);
    const Published now = published_at(*e.session, d);
    if (d.op == "process.second_resource" && d.ok && d.request.contains("resource")) {
      if (!second) was = last;
      second = d.resource;
    }
    last = now;
    if (!second || !expected.resource || was.payload == nullptr || now.image != was.image) continue;
    const auto wrong = [&](std::string saw) {
      Finding f = failed(std::move(saw), "not the default Resource");
      for (const Attribute& a : *expected.resource) {
        if (f.evidence.size() < kMaxListed) f.evidence.push_back("default: " + shown(&a));
      }
      for (const Attribute& a : *second) {
        if (f.evidence.size() < 2 * kMaxListed) f.evidence.push_back("second: " + shown(&a));
      }
      f.evidence.push_back(request_line(d));
      f.evidence.push_back(maps_line(now.context == nullptr ? *was.context : *now.context));
      return f;
    };
    if (!now.has_mappings) return wrong("the context is gone after the provider was replaced");
    if (now.payload == nullptr || now.contexts > 1) continue;
    nothing_taken = expected.nothing_taken;
    if (nothing_taken) continue;
    judged = true;
    const Attribute* lost = lost_of(*expected.resource, was, now);
    if (lost == nullptr) continue;
    const Attribute* there = now.find(lost->key);
    const Attribute* of_second = find_key(*second, lost->key);
    if (there != nullptr && of_second != nullptr && is_same(*there, *of_second)) {
      return wrong("the Resource of another provider is published: " + shown(there));
    }
    return wrong(fmt::format("after another provider was set up, {} is published instead of {}",
                             shown(there), shown(lost)));
  }
  if (judged) return passed();
  if (nothing_taken) return nothing_was_taken();
  return unobservable("no second Resource was set up next to a published one",
                      "an adapter that declares process.second_resource");
}

// What is wrong with the place of a pair that the SDK took in addition to its Resource; nothing: it
// is in field 2 alone, or may be missing.
std::optional<Finding> misplaced(const Attribute& g, const ExpectedResource& expected,
                                 const Published& now, bool first) {
  const Attribute* in_resource = find_key(now.payload->resource, g.key);
  const Attribute* in_attributes = find_key(now.payload->attributes, g.key);
  if (in_resource != nullptr) {
    Finding f = failed(
        fmt::format("{} does not belong to the Resource, but is published in {}",
                    shown(in_resource), in_attributes == nullptr ? "its attributes" : "both lists"),
        "extra pair in the Resource");
    f.hexdumps = {payload_dump(*now.context, in_resource->offset, 1, "in the Resource")};
    return f;
  }
  if (!first) return std::nullopt;
  if (in_attributes == nullptr) {
    if (may_be_left_out(g, expected.attributes->size())) return std::nullopt;
    return failed(fmt::format("{} was accepted next to the Resource and is missing", shown(&g)),
                  "extra pair missing");
  }
  return std::nullopt;  // whether it is as it was given is for pctx.payload.resource-matches-sdk
}

// The first pair that the SDK took in addition to its Resource and published with another value.
const Attribute* changed_pair(const ExpectedResource& expected, const Published& now) {
  if (!expected.attributes) return nullptr;
  const auto it = std::ranges::find_if(*expected.attributes, [&](const Attribute& g) {
    const Attribute* there = find_key(now.payload->attributes, g.key);
    return find_key(*expected.resource, g.key) == nullptr && there != nullptr &&
           !is_same(g, *there);
  });
  return it == expected.attributes->end() ? nullptr : &*it;
}

Finding extra_keys_in_attributes(const ImageEvidence& e) {
  ExpectedResource expected;
  FirstPublications publications;
  std::size_t pairs = 0;
  bool refused = false;
  for (const DrivenOperation& d : e.session->operations) {
    expected.apply(d);
    const Published now = published_at(*e.session, d);
    const bool first = publications.begins(d, now);
    if (!is_publication(d)) continue;
    const bool extra = d.request.contains("attributes") && !d.request["attributes"].empty();
    const bool left_out = d.ok && expected.attributes && expected.attributes->empty();
    refused = refused ||
              (extra && (left_out || d.error_kind == "rejected" || d.error_kind == "unsupported"));
    if (!expected.is_known() || now.payload == nullptr || now.contexts > 1) continue;
    for (const Attribute& g : *expected.attributes) {
      if (find_key(*expected.resource, g.key) != nullptr) continue;
      if (auto wrong = misplaced(g, expected, now, first)) {
        wrong->evidence = {request_line(d), maps_line(*now.context)};
        return *std::move(wrong);
      }
      if (find_key(now.payload->attributes, g.key) != nullptr) ++pairs;
    }
  }
  if (pairs > 0) return passed(fmt::format("{} pairs, each in field 2 alone", pairs));
  if (refused) {
    return not_applicable(NaReason::kCapability,
                          "the SDK takes no attributes in addition to its Resource");
  }
  return unobservable("no pairs were published in addition to the Resource",
                      "an adapter whose process.publish takes `attributes`");
}

// First publications at once, all accepted: what shows is from them. Two that are mixed are for
// pctx.publish.singleton.
std::optional<Finding> none_of_publications(const DrivenOperation& d, const Published& now) {
  const auto lists = publications_at_once(d);
  if (lists.empty() || now.payload == nullptr || now.contexts != 1 || is_mixture(lists, now)) {
    return std::nullopt;
  }
  const Attribute* name = now.find_in_resource("service.name");
  Finding f = failed(
      "after concurrent publications " + shown(name) + " is published, which none of them gave",
      "given attribute missing or changed");
  f.evidence = {request_line(d), maps_line(*now.context)};
  return f;
}

}  // namespace

Finding resource_as_given(const ImageEvidence& e) {
  constexpr std::size_t kShownValue = 80;
  ExpectedResource expected;
  std::set<std::string> compared;
  std::vector<std::string> left_out;
  FirstPublications publications;
  bool nothing_taken = false;
  for (const DrivenOperation& d : e.session->operations) {
    expected.apply(d);
    const Published now = published_at(*e.session, d);
    const bool none_before = !publications.published();
    const bool first = publications.begins(d, now);
    if (now.image == nullptr || now.image->image->key != e.image->key) continue;
    if (none_before) {
      if (auto wrong = none_of_publications(d, now)) return *std::move(wrong);
    }
    if (!first || !expected.resource || now.payload == nullptr) continue;
    nothing_taken = nothing_taken || expected.nothing_taken;
    for (const Attribute& g : d.resource) {
      if (find_key(*expected.resource, g.key) != nullptr || left_out.size() >= kMaxListed) continue;
      left_out.push_back("not taken by the SDK: " + g.key);
    }
    for (const Attribute& g : *expected.resource) {
      const Attribute* there = find_key(now.payload->resource, g.key);
      const bool found = there != nullptr && is_same(g, *there);
      if (found) {
        compared.insert(g.key);
        continue;
      }
      const Attribute* in_attributes = find_key(now.payload->attributes, g.key);
      if (there == nullptr && in_attributes == nullptr &&
          may_be_left_out(g, expected.resource->size())) {
        if (left_out.size() < kMaxListed) left_out.push_back("not published: " + g.key);
        continue;
      }
      std::string saw = conformance::quoted(g.key);
      if (there != nullptr) {
        saw += fmt::format(": {} bytes ({}), but {} ({}) were given", there->value.size(),
                           to_string(there->kind), g.value.size(), to_string(g.kind));
      } else {
        saw += in_attributes == nullptr ? ": no such attribute"
                                        : ": in field 2, and not in the Resource";
      }
      if (there == nullptr) there = in_attributes;
      Finding f = failed(std::move(saw), "given attribute missing or changed");
      f.evidence = {
          "given: " + conformance::quoted(g.value, kShownValue),
          "published: " + (there == nullptr ? std::string("nothing")
                                            : conformance::quoted(there->value, kShownValue)),
          request_line(d), maps_line(*now.context)};
      return f;
    }
    if (const Attribute* g = changed_pair(expected, now)) {
      const Attribute* there = find_key(now.payload->attributes, g->key);
      Finding f = failed(fmt::format("{} is published next to the Resource, but {} was given",
                                     shown(there), shown(g)),
                         "given attribute missing or changed");
      f.evidence = {request_line(d), maps_line(*now.context)};
      f.hexdumps = {payload_dump(*now.context, there->offset, 1, "changed")};
      return f;
    }
  }
  if (compared.empty() && nothing_taken) return nothing_was_taken();
  if (compared.empty()) {
    return unobservable("no Resource that was given was published",
                        "an adapter that declares process.publish");
  }
  Finding f = passed(fmt::format("{} attributes as they were given{}", compared.size(),
                                 left_out.empty() ? "" : ", others left out"));
  f.evidence = std::move(left_out);
  return f;
}

namespace {

constexpr auto kDrivenResourceRules = std::to_array<RequirementRule>({
    {"pctx.payload.default-resource", default_resource, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"pctx.payload.extra-keys-in-attributes", extra_keys_in_attributes, AskedOf::kTestee,
     RestsOn::kOperations, UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> driven_resource_rules() { return kDrivenResourceRules; }

}  // namespace ctxconf::conformance
