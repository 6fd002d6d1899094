#include "conformance/rules/driven_evidence.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "abi/thread_record.h"
#include "conformance/payload/payload.h"
#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kShownRequest = 200;

Json parsed(const std::string& line) {
  Json value = value_of_kept_line(line);
  return value.is_object() ? value : Json();
}

std::shared_ptr<const SessionEvidence> evidence_of(
    const Session& session, std::map<ImageKey, const ImageEvidence*> images) {
  auto out = std::make_shared<SessionEvidence>();
  out->session = &session;
  out->images = std::move(images);
  const Json hello = parsed(session.hello);
  out->capabilities = Json::object();
  if (hello.is_object() && hello.contains("caps") && hello["caps"].is_object()) {
    out->capabilities = hello["caps"];
  }
  out->limits = Json::object();
  if (hello.is_object() && hello.contains("limits") && hello["limits"].is_object()) {
    out->limits = hello["limits"];
  }
  for (const Operation& o : session.operations) {
    auto& d = out->operations.emplace_back();
    d.operation = &o;
    d.check = &session.checks[o.check];
    d.request = parsed(o.request);
    if (!d.request.is_object()) d.request = Json::object();
    d.reply = parsed(o.reply);
    d.op = text_member(d.request, "op");
    if (d.op.starts_with("process.")) {
      d.resource = resource_of(d.request);
      if (d.request.contains("attributes")) d.attributes = attributes_of(d.request["attributes"]);
    }
    if (d.reply.is_object()) {
      d.ok = d.reply.contains("ok") && d.reply["ok"] == true;
      if (!d.ok && d.reply.contains("error")) d.error_kind = text_member(d.reply["error"], "kind");
    }
    const auto view = std::ranges::find_if(
        o.after, [&](const ImageView& v) { return v.image.pid == session.root.pid; });
    if (view != o.after.end()) d.view = &*view;
  }
  return out;
}

}  // namespace

std::vector<RequestPart> parts_of(const DrivenOperation& d) {
  std::vector<RequestPart> out;
  if (d.op != "parallel") {
    out.push_back({d.request, d.reply, d.ok});
    return out;
  }
  const auto results = list_member(d.reply, "results");
  for (Json& request : list_member(d.request, "requests")) {
    const Json reply = out.size() < results.size() ? results[out.size()] : Json();
    const bool ok = reply.is_object() && reply.value("ok", Json()) == true;
    out.push_back({std::move(request), reply, ok});
  }
  return out;
}

std::vector<Json> list_member(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_array()) return {};
  return object[name].get<std::vector<Json>>();
}

std::string text_member(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_string()) return {};
  return object[name].get<std::string>();
}

bool DrivenOperation::of_thread(std::string_view name) const {
  return text_member(request, "thread") == name;
}

const ImageEvidence* SessionEvidence::image(ImageKey key) const {
  const auto it = images.find(key);
  return it == images.end() ? nullptr : it->second;
}

std::optional<std::int32_t> SessionEvidence::thread(std::string_view name,
                                                    std::size_t index) const {
  if (name == "main") return session->root.pid;
  for (std::size_t i = std::min(index + 1, operations.size()); i-- > 0;) {
    const DrivenOperation& d = operations[i];
    if (!d.of_thread(name) || !d.ok) continue;
    if (d.op == "thread.exit") return std::nullopt;
    if (d.op != "thread.spawn") continue;
    if (!d.reply.contains("tid") || !d.reply["tid"].is_number_integer()) return std::nullopt;
    return d.reply["tid"].get<std::int32_t>();
  }
  return std::nullopt;
}

const Context* context_at(const ImageEvidence& image, const ImageView& view) {
  if (!view.snapshot || *view.snapshot >= image.contexts.size()) return nullptr;
  for (const Context& c : image.contexts[*view.snapshot]) {
    if (c.candidate->named && c.usable()) return &c;
  }
  return nullptr;
}

Slot slot_at(const ImageEvidence& image, const ImageView& view, std::int32_t tid) {
  Slot out;
  for (const ThreadView& t : view.threads) {
    if (t.tid != tid) continue;
    if (t.null) {
      if (out.state == SlotState::kUnknown) out.state = SlotState::kNone;
      continue;
    }
    if (!t.sample || *t.sample >= image.image->threads.size()) continue;
    const ThreadSample* sample = &image.image->threads[*t.sample];
    const auto record =
        std::ranges::find_if(image.records, [&](const Record& r) { return r.sample == sample; });
    if (record == image.records.end()) {
      out.state = SlotState::kUnreadable;
      continue;
    }
    out.record = &*record;
    out.state = record->valid() ? SlotState::kRecord : SlotState::kNone;
    if (record->valid()) return out;
  }
  return out;
}

std::size_t operation_of(const ImageEvidence& image, std::uint64_t order) {
  const auto& operations = image.session->operations;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const ImageView* view = operations[i].view;
    if (view != nullptr && view->image == image.image->key && order <= view->order) return i;
  }
  return operations.size();
}

std::map<std::string, std::string> attributes_of(const Record& record) {
  std::map<std::string, std::string> out;
  abi::AttributeCursor cursor(record.attributes);
  while (const auto entry = cursor.next()) {
    const bool named = record.key_map != nullptr && entry->key < record.key_map->elements.size();
    out[named ? record.key_map->elements[entry->key].text : "#" + std::to_string(entry->key)] =
        std::string(reinterpret_cast<const char*>(entry->value.data()), entry->value.size());
  }
  return out;
}

std::vector<Attribute> attributes_of(const Json& key_values) {
  std::vector<Attribute> out;
  if (!key_values.is_array()) return out;
  for (const Json& pair : key_values) {
    const std::string key = text_member(pair, "key");
    if (!pair.is_object() || !pair.contains("value")) continue;
    if (auto value = attribute_of_json(key, pair["value"].dump())) out.push_back(std::move(*value));
  }
  return out;
}

std::vector<Attribute> resource_of(const Json& request) {
  if (!request.is_object() || !request.contains("resource")) return {};
  const Json& resource = request["resource"];
  if (!resource.is_object() || !resource.contains("attributes")) return {};
  return attributes_of(resource["attributes"]);
}

std::string request_line(const DrivenOperation& d) {
  if (d.operation->request.empty()) return "no request";
  Json members = d.request;
  members.erase("id");
  members.erase("op");
  std::string out = d.op;
  if (!members.empty()) out += " " + members.dump();
  if (out.size() > kShownRequest) out = out.substr(0, kShownRequest) + "...";
  return out;
}

bool ends_with_refused_context(const Session& session, const CheckRun& check) {
  if (check.ending != CheckEnding::kRefused) return false;
  const auto index = static_cast<std::uint32_t>(&check - session.checks.data());
  const auto last = std::ranges::find(session.operations.rbegin(), session.operations.rend(), index,
                                      &Operation::check);
  if (last == session.operations.rend()) return false;
  const Json reply = parsed(last->reply);
  return text_member(parsed(last->request), "op") == "thread.attach" && reply.is_object() &&
         reply.contains("error") && text_member(reply["error"], "kind") == "rejected";
}

bool has_attached(const Session& session) {
  const auto attaches = [](const Json& request) {
    return text_member(request, "op") == "thread.attach";
  };
  return std::ranges::any_of(session.operations, [&](const Operation& o) {
    const Json request = parsed(o.request);
    if (!attaches(request) && std::ranges::none_of(list_member(request, "requests"), attaches)) {
      return false;
    }
    const Json reply = parsed(o.reply);
    return reply.is_object() && reply.value("ok", Json()) == true;
  });
}

void add_sessions(const Timeline& timeline, std::vector<ImageEvidence>& evidence) {
  if (timeline.sessions.empty()) return;
  std::map<ImageKey, const ImageEvidence*> images;
  for (const ImageEvidence& e : evidence) images[e.image->key] = &e;
  for (const Session& s : timeline.sessions) {
    const auto of_session = evidence_of(s, images);
    for (ImageEvidence& e : evidence) {
      const ImageKey& key = e.image->key;
      if (key.session == s.root.session && key.pid == s.root.pid && key.image >= s.root.image) {
        e.session = of_session;
      }
    }
  }
}

}  // namespace ctxconf::conformance
