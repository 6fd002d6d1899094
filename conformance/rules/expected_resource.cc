#include "conformance/rules/expected_resource.h"

#include <fmt/format.h>

#include <algorithm>

#include "conformance/payload/payload_walk.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kUsualCount = 128;  // of attributes, in SDKs that have a limit

bool is_of_second_sdk(const Json& request) {
  return request.is_object() && request.contains("sdk") && request["sdk"] != 1;
}

// A list as JSON, with the pairs of each list of pairs in the order of their keys: a map has no
// other order.
std::string with_sorted_pairs(const std::string& list) {
  const Json sorted = Json::parse(list, nullptr, /*allow_exceptions=*/false);
  return sorted.is_discarded() ? list : sorted.dump();
}

}  // namespace

std::vector<Attribute> taken_of(std::vector<Attribute> expected, const Json& reply) {
  if (!reply.is_object()) return expected;
  const auto is_in = [&](const char* list, const std::string& key) {
    return std::ranges::any_of(list_member(reply, list), [&](const Json& k) { return k == key; });
  };
  std::erase_if(expected, [&](const Attribute& a) {
    return is_in("left_out", a.key) || (reply.contains("taken") && !is_in("taken", a.key));
  });
  return expected;
}

Finding nothing_was_taken() {
  return not_applicable(
      NaReason::kCapability,
      "the SDK sets the keys of its Resource itself and took none that was given");
}

bool FirstPublications::begins(const DrivenOperation& d, const Published& now) {
  const bool first = !published_;
  if (d.op == "hello" || (d.op == "process.drop" && d.ok)) published_ = false;
  if (now.context != nullptr) published_ = true;
  return first && d.op == "process.publish";
}

bool ExpectedResource::is_removed(std::string_view key) const {
  return find_key(removed, key) != nullptr;
}

void ExpectedResource::apply(const DrivenOperation& d) {
  if (d.op == "hello" || d.op == "process.drop" || d.op == "process.churn" || d.op == "parallel" ||
      d.op.starts_with("sdk.") || is_of_second_sdk(d.request)) {
    return forget();
  }
  const bool publishes = d.op == "process.publish";
  if (!publishes && d.op != "process.update") return;
  if (!d.ok) return forget();
  std::vector<Attribute> before = removed;
  for (const auto* list : {&resource, &attributes}) {
    if (*list) before.insert(before.end(), (*list)->begin(), (*list)->end());
  }
  if (publishes) {
    resource.reset();
    attributes.emplace();
  }
  if (d.request.contains("resource")) {
    resource = taken_of(d.resource, d.reply);
    nothing_taken = resource->empty();
  }
  if (d.request.contains("attributes")) {
    attributes = taken_of(d.attributes, d.reply);
  }
  removed.clear();
  for (auto it = before.rbegin(); it != before.rend(); ++it) {
    const bool expected = find_key(d.resource, it->key) != nullptr ||
                          (resource && find_key(*resource, it->key) != nullptr) ||
                          (attributes && find_key(*attributes, it->key) != nullptr);
    if (!expected && !is_removed(it->key)) removed.push_back(*it);
  }
}

bool is_same(const Attribute& a, const Attribute& b) {
  if (a.key != b.key || a.kind != b.kind) return false;
  if (a.value == b.value) return true;
  const bool may_have_pairs = a.kind == ValueKind::kKvlist || a.kind == ValueKind::kArray;
  return may_have_pairs && a.value.size() == b.value.size() &&
         with_sorted_pairs(a.value) == with_sorted_pairs(b.value);
}

const Attribute* find_key(const std::vector<Attribute>& list, std::string_view key) {
  const auto it = std::ranges::find(list, key, &Attribute::key);
  return it == list.end() ? nullptr : &*it;
}

std::string shown(const Attribute* a) {
  if (a == nullptr) return "nothing";
  return fmt::format("{} = {} ({})", conformance::quoted(a->key), conformance::quoted(a->value),
                     to_string(a->kind));
}

const Attribute* Published::find(std::string_view key) const {
  if (payload == nullptr) return nullptr;
  const Attribute* a = find_key(payload->resource, key);
  return a != nullptr ? a : find_key(payload->attributes, key);
}

const Attribute* Published::find_in_resource(std::string_view key) const {
  return payload == nullptr ? nullptr : find_key(payload->resource, key);
}

Published published_at(const SessionEvidence& session, const ImageView* view) {
  Published out;
  if (view == nullptr) return out;
  const ImageEvidence* image = session.image(view->image);
  if (image == nullptr || !view->snapshot || *view->snapshot >= image->contexts.size()) return out;
  out.image = image;
  const auto& all = image->contexts[*view->snapshot];
  out.has_mappings = !all.empty();
  out.contexts = static_cast<std::size_t>(std::ranges::count_if(
      all, [](const Context& c) { return c.candidate->named && c.usable(); }));
  const auto zeroed = std::ranges::find_if(
      all, [](const Context& c) { return c.candidate->named && abi::is_zeroed(c.header); });
  if (zeroed != all.end()) out.zeroed = &*zeroed;
  out.context = context_at(*image, *view);
  if (out.context == nullptr || out.context->payload == nullptr) return out;
  const Payload& p = *out.context->payload;
  if (p.problem == PayloadProblem::kNone && p.incomplete.empty()) out.payload = &p;
  return out;
}

Published published_at(const SessionEvidence& session, const DrivenOperation& d) {
  return published_at(session, d.view);
}

bool may_be_left_out(const Attribute& expected, std::size_t count) {
  constexpr std::size_t kUsualSize = 127;
  // An SDK that has room for 128 attributes keeps its name.
  const bool too_many = count > kUsualCount && expected.key != "service.name";
  return expected.kind != ValueKind::kString || expected.value.empty() ||
         expected.value.contains('\0') || expected.value.size() > kUsualSize || too_many;
}

void ShownBefore::add(const ExpectedResource& given, const Published& published) {
  if (published.payload == nullptr) return;
  for (const auto* list : {&given.resource, &given.attributes}) {
    if (!*list) continue;
    for (const Attribute& g : **list) {
      const Attribute* there = published.find(g.key);
      if (there != nullptr && is_same(g, *there)) last_.insert_or_assign(g.key, g);
    }
  }
}

bool ShownBefore::has_one_like(const Attribute& expected) const {
  const auto it = last_.find(expected.key);
  if (it == last_.end() || it->second.kind != expected.kind) return false;
  if (expected.kind != ValueKind::kString) return true;
  const std::string& was = it->second.value;
  return was.size() >= expected.value.size() && was.empty() == expected.value.empty() &&
         was.contains('\0') == expected.value.contains('\0');
}

const Attribute* first_missing(const ExpectedResource& expected, const Published& published,
                               bool every, const ShownBefore* shown) {
  for (const auto* list : {&expected.resource, &expected.attributes}) {
    if (!*list) continue;
    for (const Attribute& g : **list) {
      const Attribute* in_resource = find_key(published.payload->resource, g.key);
      const Attribute* in_attributes = find_key(published.payload->attributes, g.key);
      if (in_resource != nullptr && is_same(g, *in_resource)) continue;
      const bool may_be_in_attributes = list == &expected.attributes;
      if (may_be_in_attributes && in_attributes != nullptr && is_same(g, *in_attributes)) continue;
      const bool absent = in_resource == nullptr && in_attributes == nullptr;
      const bool could =
          shown != nullptr && (*list)->size() <= kUsualCount && shown->has_one_like(g);
      if (!every && absent && !could && may_be_left_out(g, (*list)->size())) continue;
      return &g;
    }
  }
  return nullptr;
}

std::vector<std::vector<Attribute>> resources_at_once(const DrivenOperation& d,
                                                      std::string_view op) {
  std::vector<std::vector<Attribute>> out;
  if (d.op != "parallel" || !d.ok) return out;
  for (const auto& [request, reply, ok] : parts_of(d)) {
    if (says(request, "op", "process.fork")) continue;
    if (!says(request, "op", op) || !request.contains("resource")) return {};
    out.push_back(taken_of(resource_of(request), reply));
  }
  return out;
}

std::vector<std::vector<Attribute>> publications_at_once(const DrivenOperation& d) {
  const bool accepted = std::ranges::all_of(parts_of(d), [](const RequestPart& part) {
    return part.ok || says(part.request, "op", "process.fork");
  });
  return accepted ? resources_at_once(d, "process.publish") : std::vector<std::vector<Attribute>>();
}

bool is_mixture(const std::vector<std::vector<Attribute>>& lists, const Published& now) {
  return std::ranges::all_of(lists.front(), [&](const Attribute& a) {
    const Attribute* there = now.find_in_resource(a.key);
    return there != nullptr && std::ranges::any_of(lists, [&](const auto& attributes) {
             const Attribute* one = find_key(attributes, a.key);
             return one != nullptr && is_same(*one, *there);
           });
  });
}

const ImageView* view_of(const DrivenOperation& d, std::int64_t pid) {
  const auto it =
      std::ranges::find(d.operation->after, pid, [](const ImageView& v) { return v.image.pid; });
  return it == d.operation->after.end() ? nullptr : &*it;
}

bool says(const Json& object, const char* name, std::string_view text) {
  return object.is_object() && object.contains(name) && object[name] == text;
}

std::int64_t pid_member(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_number_integer()) return 0;
  return object[name].get<std::int64_t>();
}

}  // namespace ctxconf::conformance
