#include "conformance/rules/driven_threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "abi/thread_record.h"
#include "conformance/rules/thread_rules.h"
#include "conformance/text/json_text.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using Threads = std::map<std::string, ExpectedThread>;

// An SDK that makes ids itself names them in its reply.
std::string attached_id(const Json& request, const Json& reply, const char* member,
                        std::size_t digits) {
  auto made = text_member(reply, member);
  const bool is_id =
      made.size() == digits && made.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_id ? made : text_member(request, member);
}

std::shared_ptr<const ExpectedContext> expected_context(const Json& request, const Json& reply,
                                                        std::size_t operation) {
  auto out = std::make_shared<ExpectedContext>();
  out->name = text_member(request, "ctx");
  out->trace_id = attached_id(request, reply, "trace_id", 32);
  out->span_id = attached_id(request, reply, "span_id", 16);
  for (const Json* const from : {&request, &reply}) {
    constexpr unsigned kMost = 0xff;
    if (!from->is_object() || !from->contains("flags")) continue;
    const Json& flags = (*from)["flags"];
    if (flags.is_number_unsigned() && flags.get<std::uint64_t>() <= kMost) {
      out->flags = flags.get<unsigned>();
    }
  }
  out->attributes = expected_attributes(request);
  out->attached_by = operation;
  return out;
}

// Follows the operations of one session.
class ExpectedContexts {
 public:
  explicit ExpectedContexts(const SessionEvidence& session) : session_(&session) { begin(); }

  const Threads& threads() const { return threads_; }

  void apply(std::size_t index) {
    const DrivenOperation& d = session_->operations[index];
    for (auto& [name, thread] : threads_) thread.ended.reset();
    if (d.op == "hello") return begin();
    if (d.op != "parallel") return apply(d.op, d.request, d.reply, index);
    for (const RequestPart& part : parts_of(d)) {
      if (!part.request.is_object()) continue;
      apply(text_member(part.request, "op"), part.request, part.reply, index);
    }
  }

 private:
  void begin() {
    threads_.clear();
    auto& main = threads_["main"];
    main.name = "main";
    main.tid = session_->session->root.pid;
  }

  static bool is_ok(const Json& reply) {
    return reply.is_object() && reply.contains("ok") && reply["ok"] == true;
  }
  // Refused by design: nothing has changed.
  static bool is_untouched(const Json& reply) {
    const std::string kind =
        reply.is_object() ? text_member(reply.value("error", Json()), "kind") : "";
    return kind == "unsupported" || kind == "rejected" || kind == "bad-request";
  }

  void apply(const std::string& op, const Json& request, const Json& reply, std::size_t index) {
    if (!op.starts_with("thread.")) return;
    if (op == "thread.move") return move(request, reply);
    const std::string name = text_member(request, "thread");
    if (op == "thread.spawn") {
      if (!is_ok(reply)) return;
      threads_[name] = {};
      threads_[name].name = name;
    }
    const auto it = threads_.find(name);
    if (it == threads_.end()) return;
    ExpectedThread& thread = it->second;
    if (is_ok(reply) && reply.contains("tid") && reply["tid"].is_number_integer()) {
      const auto tid = reply["tid"].get<std::int64_t>();
      if (std::in_range<std::int32_t>(tid)) thread.tid = static_cast<std::int32_t>(tid);
    }
    if (op == "thread.exit") {
      if (is_ok(reply)) {
        threads_.erase(it);
      } else {
        thread.known = false;
      }
      return;
    }
    const bool changes = op == "thread.attach" || op == "thread.append" || op == "thread.shrink" ||
                         op == "thread.detach";
    if (!changes) return;
    if (!is_ok(reply)) {
      thread.known = thread.known && is_untouched(reply);
      thread.used = thread.used || (op == "thread.attach" && !is_untouched(reply));
      return;
    }
    if (op == "thread.attach") {
      thread.used = true;
      thread.stack.push_back(expected_context(request, reply, index));
    } else if (thread.stack.empty()) {
      thread.known = false;  // answered what cannot be
    } else if (op == "thread.detach") {
      thread.ended = thread.stack.back();
      thread.moved = false;
      thread.stack.pop_back();
    } else {
      change_innermost(thread, op, request);
    }
  }

  static void change_innermost(ExpectedThread& thread, const std::string& op, const Json& request) {
    auto changed = std::make_shared<ExpectedContext>(*thread.stack.back());
    if (op == "thread.append") {
      for (auto& a : expected_attributes(request)) changed->attributes.push_back(std::move(a));
    } else if (request.contains("keep") && request["keep"].is_number_unsigned()) {
      const auto keep = request["keep"].get<std::size_t>();
      if (keep < changed->attributes.size()) changed->attributes.resize(keep);
    }
    thread.stack.back() = std::move(changed);
  }

  void move(const Json& request, const Json& reply) {
    const auto from = threads_.find(text_member(request, "from"));
    const auto to = threads_.find(text_member(request, "to"));
    if (from == threads_.end() || to == threads_.end()) return;
    if (!is_ok(reply)) {
      if (is_untouched(reply)) return;
      from->second.known = to->second.known = false;
      return;
    }
    auto& stack = from->second.stack;
    const auto context = std::ranges::find_if(
        stack, [&](const auto& c) { return c->name == text_member(request, "ctx"); });
    if (context == stack.end()) {
      from->second.known = to->second.known = false;
      return;
    }
    to->second.used = true;
    to->second.stack.push_back(*context);
    if (std::next(context) == stack.end()) {
      from->second.ended = *context;
      from->second.moved = true;
    }
    stack.erase(context);
  }

  const SessionEvidence* session_;
  Threads threads_;
};

const ThreadlocalEntry* map_of(const Context& c) {
  const auto* map = threadlocal_entry(c, abi::kAttributeKeyMapKey);
  const bool whole = map != nullptr && map->kind == ValueKind::kArray &&
                     map->element_count == map->elements.size();
  return whole ? map : nullptr;
}

bool is_named(const ImageEvidence& e, std::string_view key) {
  for (const Context* c : e.first_sights) {
    if (c->payload == nullptr) continue;
    for (const auto& t : c->payload->threadlocal) {
      if (t.key != abi::kAttributeKeyMapKey) continue;
      if (t.element_count > t.elements.size()) return true;  // perhaps
      const auto has_name = [&](const auto& element) { return element.text == key; };
      if (std::ranges::any_of(t.elements, has_name)) return true;
    }
  }
  return false;
}

}  // namespace

bool may_name_keys(const Json& request) {
  const std::string op = text_member(request, "op");
  return op == "thread.attach" || op == "thread.append";
}

bool gives_names_at_once(const DrivenOperation& d) {
  if (d.op != "parallel") return false;
  const auto parts = parts_of(d);
  return parts.size() > 1 && std::ranges::all_of(parts, [](const RequestPart& part) {
           return part.ok && may_name_keys(part.request);
         });
}

std::vector<ExpectedAttribute> expected_attributes(const Json& request) {
  std::vector<ExpectedAttribute> out;
  if (!request.is_object() || !request.contains("attributes") || !request["attributes"].is_array())
    return out;
  for (const Json& pair : request["attributes"]) {
    auto& a = out.emplace_back();
    a.key = text_member(pair, "key");
    a.value = pair.is_object() ? pair.value("value", Json()) : Json();
    if (a.value.is_object() && a.value.contains("stringValue") &&
        a.value["stringValue"].is_string()) {
      a.text = a.value["stringValue"].get<std::string>();
    }
  }
  return out;
}

std::vector<ExpectedAttribute> accepted_attributes(const DrivenOperation& d) {
  std::vector<ExpectedAttribute> out;
  for (const RequestPart& part : parts_of(d)) {
    if (!part.ok || !may_name_keys(part.request)) continue;
    std::ranges::move(expected_attributes(part.request), std::back_inserter(out));
  }
  return out;
}

bool ExpectedContext::gives(std::string_view key) const {
  return std::ranges::find(attributes, key, &ExpectedAttribute::key) != attributes.end();
}

std::vector<std::string> ExpectedContext::texts_of(std::string_view key) const {
  std::vector<std::string> out;
  for (const auto& a : attributes) {
    if (a.key == key) out.push_back(a.text.value_or(""));
  }
  return out;
}

std::vector<DrivenSample> driven_samples(const ImageEvidence& e) {
  std::vector<DrivenSample> out;
  if (e.session == nullptr) return out;
  ExpectedContexts expected(*e.session);
  const auto& operations = e.session->operations;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    expected.apply(i);
    const ImageEvidence* image = d.view == nullptr ? nullptr : e.session->image(d.view->image);
    if (image == nullptr) continue;
    for (const auto& [name, thread] : expected.threads()) {
      if (!thread.known || thread.tid == 0) continue;
      const Slot slot = slot_at(*image, *d.view, thread.tid);
      if (slot.state == SlotState::kUnknown) continue;
      out.push_back({.operation = i, .driven = &d, .image = image, .thread = thread, .slot = slot});
    }
  }
  return out;
}

bool is_of_another_thread(const std::vector<DrivenSample>& samples, const DrivenSample& sample) {
  return std::ranges::any_of(samples, [&](const DrivenSample& other) {
    if (other.operation != sample.operation || other.thread.name == sample.thread.name)
      return false;
    const ExpectedContext* theirs = other.context();
    if (theirs == nullptr || theirs == sample.context() || !sample.shows_record()) return false;
    if (other.shows_record() &&
        other.slot.record->sample->value == sample.slot.record->sample->value) {
      return true;
    }
    const ExpectedContext* own = sample.context();
    const bool same =
        own != nullptr && own->trace_id == theirs->trace_id && own->span_id == theirs->span_id;
    return !same && shows_ids_of(*sample.slot.record, *theirs);
  });
}

std::string trace_id_of(const Record& record) {
  return hex(std::as_bytes(std::span(record.head.trace_id)));
}
std::string span_id_of(const Record& record) {
  return hex(std::as_bytes(std::span(record.head.span_id)));
}
bool has_no_ids(const Record& record) {
  return !abi::has_trace_id(record.head) && !abi::has_span_id(record.head);
}
bool shows_ids_of(const Record& record, const ExpectedContext& context) {
  return trace_id_of(record) == context.trace_id && span_id_of(record) == context.span_id;
}

std::optional<abi::AttributeEntry> entry_named(const Record& record, std::string_view name) {
  std::optional<abi::AttributeEntry> out;
  if (record.key_map == nullptr) return out;
  abi::AttributeCursor cursor(record.attributes);
  while (const auto entry = cursor.next()) {
    if (entry->key < record.key_map->elements.size() &&
        record.key_map->elements[entry->key].text == name) {
      out = entry;
    }
  }
  return out;
}

std::string text_of(const abi::AttributeEntry& entry) {
  return {reinterpret_cast<const char*>(entry.value.data()), entry.value.size()};
}

const ThreadlocalEntry* threadlocal_entry(const Context& c, std::string_view key) {
  if (c.payload == nullptr) return nullptr;
  const auto it = std::ranges::find_if(c.payload->threadlocal, [&](const ThreadlocalEntry& t) {
    return t.key == key && !t.in_resource;
  });
  return it == c.payload->threadlocal.end() ? nullptr : &*it;
}

const ThreadlocalEntry* key_map_entry_at(const ImageEvidence& e, const DrivenOperation& d) {
  const ImageEvidence* image = d.view == nullptr ? nullptr : e.session->image(d.view->image);
  const Context* c = image == nullptr ? nullptr : context_at(*image, *d.view);
  return c == nullptr ? nullptr : map_of(*c);
}

std::optional<std::vector<std::string>> key_map_at(const ImageEvidence& e,
                                                   const DrivenOperation& d) {
  const ThreadlocalEntry* map = key_map_entry_at(e, d);
  if (map == nullptr) return std::nullopt;
  std::vector<std::string> out;
  out.reserve(map->elements.size());
  for (const auto& element : map->elements) out.push_back(element.text);
  return out;
}

std::optional<std::string> never_named(const ImageEvidence& e, const Record& record,
                                       const abi::AttributeEntry& entry) {
  if (e.session == nullptr) return std::nullopt;
  for (const auto* map : {record.key_map, record.last_key_map}) {
    if (map != nullptr && entry.key < map->element_count) return std::nullopt;
  }
  const std::string value = text_of(entry);
  for (const DrivenOperation& d : e.session->operations) {
    for (const RequestPart& part : parts_of(d)) {
      if (!part.ok || !may_name_keys(part.request)) continue;
      for (auto& a : expected_attributes(part.request)) {
        // Cut, or made text of another type.
        const bool may_be = !a.text || (a.text->starts_with(value) && !value.empty());
        if (may_be && !is_named(e, a.key)) return std::move(a.key);
      }
    }
  }
  return std::nullopt;
}

bool is_left_by(std::string_view op, const ImageEvidence& e, const Context& c) {
  if (e.session == nullptr) return false;
  const auto index = static_cast<std::uint64_t>(c.snapshot - e.image->snapshots.data());
  for (const DrivenOperation& d : e.session->operations) {
    if (d.view == nullptr || d.view->image != e.image->key || !d.view->snapshot) continue;
    if (*d.view->snapshot < index) continue;
    return d.ok && std::ranges::any_of(parts_of(d), [&](const RequestPart& part) {
             return text_member(part.request, "op") == op;
           });
  }
  return false;
}

}  // namespace ctxconf::conformance
