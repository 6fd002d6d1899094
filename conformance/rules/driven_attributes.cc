#include "conformance/rules/driven_attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "abi/thread_record.h"
#include "conformance/payload/payload_walk.h"
#include "conformance/rules/rule.h"
#include "conformance/text/ascii.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

std::string shown_value(std::string_view value) {
  return conformance::quoted(value, kShownValueBytes);
}

// A number from 0 to `most`; anything else says nothing.
void read_number(const Json& object, const char* name, std::size_t most, std::size_t& out) {
  if (!object.is_object() || !object.contains(name)) return;
  const Json& value = object[name];
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) return;
  out = value.get<std::size_t>();
}

const std::string* name_of(const Record& r, const abi::AttributeEntry& entry) {
  if (r.key_map == nullptr || entry.key >= r.key_map->elements.size()) return nullptr;
  return &r.key_map->elements[entry.key].text;
}

bool is_in_map(const Record& r, std::string_view key, std::size_t most) {
  if (r.key_map == nullptr) return false;
  const auto& all = r.key_map->elements;
  const auto usable = std::span(all).first(std::min(all.size(), most));
  return std::ranges::any_of(usable, [&](const auto& e) { return e.text == key; });
}

// The record has no attributes, and nothing names any: the published process context has no key
// map, and neither has an earlier or a later one.
bool has_no_attributes(const DrivenSample& sample) {
  const Record& r = *sample.slot.record;
  if (r.key_map != nullptr || r.last_key_map != nullptr || r.head.attrs_data_size != 0) {
    return false;
  }
  const Context* c = context_at(*sample.image, *sample.driven->view);
  return c != nullptr && c->payload != nullptr &&
         threadlocal_entry(*c, abi::kAttributeKeyMapKey) == nullptr;
}

// Whatever language writes it: "T", "#t", "bool(true)".
bool has_truth(const std::string& lower, bool truth) {
  constexpr auto kYes = std::to_array<std::string_view>({"1", "-1", "t", "#t", "y", "yes", "on"});
  constexpr auto kNo = std::to_array<std::string_view>({"0", "f", "#f", "n", "no", "nil", "off"});
  return lower.contains(truth ? "true" : "false") ||
         (truth ? std::ranges::find(kYes, lower) != kYes.end()
                : std::ranges::find(kNo, lower) != kNo.end());
}

bool has_digit(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Whether they are as close as a float, or six digits, can be.
bool is_near(double a, double b) {
  constexpr double kTolerance = 1e-5;
  return a == b || std::abs(a - b) <= kTolerance * std::max(std::abs(a), std::abs(b));
}

std::size_t bytes_of(const ExpectedAttribute& a, std::size_t limit) {
  constexpr std::size_t kNumber = 24;  // as text
  const std::size_t value = a.text ? std::min(a.text->size(), limit) : kNumber;
  return abi::kEntryHeadBytes + value;
}

}  // namespace

bool TakenContext::takes(std::string_view key) const {
  return !keys || std::ranges::find(*keys, key) != keys->end();
}

TakenContext taken_context(const SessionEvidence& session) {
  TakenContext out;
  const Json attach = session.capabilities.value("thread.attach", Json::object());
  std::size_t flags = out.flags;
  read_number(attach, "flags", 0xff, flags);
  out.flags = static_cast<unsigned>(flags);
  if (attach.is_object() && attach.contains("keys") && attach["keys"].is_array()) {
    auto& keys = out.keys.emplace();
    for (const Json& key : attach["keys"]) {
      if (key.is_string()) keys.push_back(key.get<std::string>());
    }
  }
  out.inherits = attach.is_object() && attach.value("inherits", Json()) == true;
  read_number(session.limits, "value_bytes", abi::kMaxValueBytes, out.value_bytes);
  read_number(session.limits, "record_bytes", abi::kRecordHeadBytes + 0xffff, out.record_bytes);
  read_number(session.limits, "keys", out.key_count, out.key_count);
  return out;
}

bool has_to_show(const ImageEvidence& e, const DrivenSample& sample) {
  const ExpectedContext& c = *sample.context();
  if (c.has_ids()) return true;
  if (context_at(*sample.image, *sample.driven->view) == nullptr) return false;
  const TakenContext taken = taken_context(*e.session);
  const auto names = key_map_at(e, *sample.driven).value_or(std::vector<std::string>());
  if (names.size() + c.attributes.size() > taken.key_count) return false;
  std::size_t bytes = abi::kRecordHeadBytes;
  for (const ExpectedAttribute& a : c.attributes) bytes += bytes_of(a, abi::kMaxValueBytes);
  if (bytes > taken.record_bytes) return false;
  return std::ranges::any_of(c.attributes, [&](const ExpectedAttribute& a) {
    return a.text && !a.text->empty() && a.text->size() <= taken.value_bytes && taken.takes(a.key);
  });
}

std::size_t cut_size(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text.size();
  std::size_t size = limit;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0U) == 0x80) --size;
  return size;
}

bool reads_as_another(const Json& value, const std::string& text) {
  if (!value.is_object() || text.empty()) return false;
  const std::string lower = lower_case(text);
  if (const auto expected = value.find("boolValue"); expected != value.end()) {
    return !has_truth(lower, *expected == true);
  }
  if (const auto expected = value.find("intValue"); expected != value.end()) {
    const std::string wanted =
        expected->is_string() ? expected->get_ref<const std::string&>() : expected->dump();
    const auto n = number_from<std::int64_t>(wanted);
    if (!n) return false;
    if (const auto shown = number_from<std::int64_t>(text)) return *shown != *n;
    // A runtime may have one kind of number, a double.
    const auto shown = number_from<double>(text);
    return shown ? !is_near(*shown, static_cast<double>(*n)) : !has_digit(text);
  }
  const auto expected = value.find("doubleValue");
  if (expected == value.end() || !expected->is_number()) return false;
  const auto shown = number_from<double>(text);
  return shown ? !is_near(*shown, expected->get<double>()) : !has_digit(text);
}

std::vector<Hexdump::Mark> AttributeFault::marks() const {
  if (!entry) return {};
  return {{abi::kRecordHeadBytes + entry->offset, abi::kEntryHeadBytes + entry->value.size(),
           "not as given"}};
}

AttributeJudge::AttributeJudge(const ImageEvidence& evidence)
    : evidence_(&evidence),
      session_(evidence.session.get()),
      taken_(taken_context(*evidence.session)) {}

void AttributeJudge::hear_until(std::size_t operation) {
  for (; heard_ <= operation; ++heard_) {
    const DrivenOperation& d = session_->operations[heard_];
    if (const auto* map = key_map_entry_at(*evidence_, d);
        map != nullptr && map->elements.size() != names_) {
      names_ = map->elements.size();
      named_by_ = heard_;
    }
    for (const ExpectedAttribute& a : accepted_attributes(d)) {
      if (!a.text) continue;
      accepted_[a.key].last = heard_;
      auto& values = accepted_[a.key].values;
      values.insert(*a.text);
      values.insert(a.text->substr(0, cut_size(*a.text, taken_.value_bytes)));
    }
  }
}

std::optional<AttributeFault> AttributeJudge::fault_of(const DrivenSample& sample) {
  hear_until(sample.operation);
  const ExpectedContext& c = *sample.context();
  std::set<std::string_view> seen;
  for (const ExpectedAttribute& a : c.attributes) {
    if (!seen.insert(a.key).second) continue;
    if (auto fault = fault_of(sample, c, a.key)) return fault;
  }
  return left_over(sample);
}

std::optional<AttributeFault> AttributeJudge::lost_from(const DrivenSample& sample) {
  hear_until(sample.operation);
  const Record& r = *sample.slot.record;
  const ExpectedContext& c = *sample.context();
  if (r.key_map == nullptr) return std::nullopt;
  std::set<std::string> shown;
  abi::AttributeCursor cursor(r.attributes);
  while (const auto entry = cursor.next()) shown.insert(text_of(*entry));
  for (const ExpectedAttribute& a : c.attributes) {
    if (!a.text || !taken_.takes(a.key) || entry_named(r, a.key)) continue;
    const std::string cut = a.text->substr(0, cut_size(*a.text, taken_.value_bytes));
    if (shown.contains(cut) || may_be_missing(sample, c, a.key, cut)) continue;
    return AttributeFault{fmt::format("{} and its value {} are lost", conformance::quoted(a.key),
                                      shown_value(*a.text)),
                          "a name is lost", std::nullopt};
  }
  return std::nullopt;
}

std::optional<AttributeFault> AttributeJudge::fault_of(const DrivenSample& sample,
                                                       const ExpectedContext& c,
                                                       const std::string& key) {
  const Record& r = *sample.slot.record;
  const auto last =
      std::ranges::find(c.attributes.rbegin(), c.attributes.rend(), key, &ExpectedAttribute::key);
  if (!last->text) return std::nullopt;  // tctx.attrs.non-strings-as-text speaks of it
  const std::string& text = *last->text;
  if (!taken_.takes(key)) return std::nullopt;
  if (r.key_map == nullptr && !has_no_attributes(sample)) {
    lacked_names_ = true;
    return std::nullopt;
  }
  const std::string cut = text.substr(0, cut_size(text, taken_.value_bytes));
  const auto entry = entry_named(r, key);
  if (!entry) {
    if (may_be_missing(sample, c, key, cut)) return std::nullopt;
    // tctx.keymap.single-writer speaks of names that came at once.
    const bool at_once = gives_names_at_once(session_->operations[c.attached_by]);
    if (at_once && !is_in_map(r, key, taken_.key_count)) return std::nullopt;
    ++compared_;
    return AttributeFault{
        fmt::format("{} is missing{}; expected {}", conformance::quoted(key),
                    r.key_map == nullptr ? ", and the context has no key map" : "",
                    shown_value(text)),
        "attribute missing", std::nullopt};
  }
  ++compared_;
  const std::string value = text_of(*entry);
  if (value == cut) return std::nullopt;
  // tctx.attrs.utf8 speaks of a character that is cut, tctx.attrs.length-not-wrapped of a length
  // that wraps and tctx.attrs.last-occurrence-wins of a value that is outdated.
  if (value == text.substr(0, taken_.value_bytes)) return std::nullopt;
  const bool wraps = text.size() > abi::kMaxValueBytes &&
                     value == text.substr(0, text.size() % (abi::kMaxValueBytes + 1));
  if (wraps || is_cut_by_record(r, *entry, text)) return std::nullopt;
  const auto texts = c.texts_of(key);
  if (std::ranges::find(texts, value) != texts.end()) return std::nullopt;
  const bool is_prefix = text.starts_with(value);
  return AttributeFault{
      fmt::format("{} is {} ({} bytes), expected {} ({} bytes)", conformance::quoted(key),
                  shown_value(value), value.size(), shown_value(text), text.size()),
      is_prefix ? "attribute truncated without a limit" : "attribute not as given", entry};
}

// What the SDK says that it does not take, and what the format or its limits have no room for.
bool AttributeJudge::may_be_missing(const DrivenSample& sample, const ExpectedContext& c,
                                    std::string_view key, std::string_view text) const {
  const Record& r = *sample.slot.record;
  if (text.empty() || text.contains('\0')) return true;
  // It is there under an index that has no name: requirements about the key map speak of it.
  abi::AttributeCursor cursor(r.attributes);
  while (const auto entry = cursor.next()) {
    const std::string* name = name_of(r, *entry);
    if ((name == nullptr || name->empty()) && text_of(*entry) == text) return true;
  }
  std::set<std::string_view> new_keys;
  std::size_t bytes = 0;
  bool is_long = false;
  for (const ExpectedAttribute& a : c.attributes) {
    if (!taken_.takes(a.key)) continue;
    bytes += bytes_of(a, taken_.value_bytes);
    if (!is_in_map(r, a.key, taken_.key_count)) new_keys.insert(a.key);
    is_long = is_long || (a.key == key && a.text && a.text->size() > taken_.value_bytes);
  }
  if (is_long) return true;
  const std::size_t entry_bytes = abi::kEntryHeadBytes + text.size();
  bytes = std::max(bytes, r.head.attrs_data_size + entry_bytes);
  if (abi::kRecordHeadBytes + bytes > taken_.record_bytes) return true;
  return new_keys.contains(key) &&
         count_of_other_names(r, new_keys) + new_keys.size() > taken_.key_count;
}

// How many other names have an index, or were given after the key map last changed, so that they
// may have one that is not published yet.
std::size_t AttributeJudge::count_of_other_names(const Record& r,
                                                 const std::set<std::string_view>& names) const {
  std::size_t out = r.key_map == nullptr ? 0 : r.key_map->element_count;
  for (const auto& [key, accepted] : accepted_) {
    const bool is_new = accepted.last > named_by_ && !names.contains(key);
    if (is_new && !is_in_map(r, key, abi::kMaxKeys)) ++out;
  }
  return out;
}

bool AttributeJudge::is_cut_by_record(const Record& r, const abi::AttributeEntry& entry,
                                      std::string_view text) const {
  const std::size_t from = abi::kRecordHeadBytes + entry.offset + abi::kEntryHeadBytes;
  if (from > taken_.record_bytes) return false;
  const std::size_t room = std::min(taken_.record_bytes - from, taken_.value_bytes);
  const std::size_t size = entry.value.size();
  const bool is_last = from + size == abi::kRecordHeadBytes + r.head.attrs_data_size;
  // tctx.attrs.utf8 speaks of a character that is cut.
  const bool is_whole = size == cut_size(text, room) || size == std::min(text.size(), room);
  return is_last && is_whole && text.starts_with(text_of(entry));
}

// Whether an attribute that the innermost context was not given may be that of one around it. A
// context without ids may add to those around it.
bool AttributeJudge::may_be_of_outer(const DrivenSample& sample, const std::string& key) const {
  if (!taken_.inherits && sample.context()->has_ids()) return false;
  return std::ranges::any_of(sample.thread.stack, [&](const auto& c) { return c->gives(key); });
}

// An attribute of a context that has ended or is around this one, or one that was removed.
std::optional<AttributeFault> AttributeJudge::left_over(const DrivenSample& sample) const {
  const Record& r = *sample.slot.record;
  abi::AttributeCursor cursor(r.attributes);
  while (const auto entry = cursor.next()) {
    const std::string* name = name_of(r, *entry);
    if (name == nullptr || sample.context()->gives(*name) || may_be_of_outer(sample, *name))
      continue;
    const auto values = accepted_.find(*name);
    if (values == accepted_.end() || !values->second.values.contains(text_of(*entry))) continue;
    return AttributeFault{
        fmt::format("{} is {}, which was given to another context, or removed from this one",
                    conformance::quoted(*name), shown_value(text_of(*entry))),
        "attribute left over", entry};
  }
  return std::nullopt;
}

}  // namespace ctxconf::conformance
