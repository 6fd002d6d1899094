// One list of members for both directions of result.json, as text/json_members.h has it for
// recordings: ResultWriter writes the members that a function `members(m, value)` names, and
// ResultReader reads them. What is written has limits; what is read may lack what older versions of
// ctxconf did not write, and complains by the path of a member: "results[0].findings[2].saw".
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/report/escape.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/text/json_text.h"

namespace ctxconf::conformance {

inline constexpr std::size_t kMostItems = 1000;  // of every list except the results
inline constexpr std::size_t kMostDumpBytes = 4096;
inline constexpr std::size_t kFixedCost = 256;  // the members around a text

inline std::size_t bounded(std::string_view text, std::size_t limit = kTextLimit) {
  return std::min(text.size(), limit);
}

// Takes bytes from the budget; if there are too few, takes nothing and returns false.
class Budget {
 public:
  explicit Budget(std::size_t bytes) : left_(bytes) {}
  bool spend(std::size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

 private:
  std::size_t left_;
};

enum class PaidBy { kFindings, kLists };

struct ListForm {
  std::size_t most = SIZE_MAX;    // elements that are written
  const char* omitted = nullptr;  // the member that counts the others
  bool if_any = false;            // an empty list is not written
  bool may_lack = false;          // a file may lack the list
  const char* refused = nullptr;  // the complaint about a file with more than `most`
};

inline constexpr auto kByMembers = [](auto& m, auto& one) { members(m, one); };

class ResultWriter {
 public:
  using Json = nlohmann::json;
  static constexpr bool kReads = false;

  ResultWriter(Json& out, Budget& findings, Budget& lists)
      : out_(&out), findings_(&findings), lists_(&lists) {}

  template <class T>
  void number(const char* name, const T& value) {
    (*out_)[name] = value;
  }
  template <class T>
  void number_if_any(const char* name, const T& value) {
    if (value != T{}) number(name, value);
  }
  void real(const char* name, double value) { (*out_)[name] = std::isfinite(value) ? value : 0.0; }
  void flag(const char* name, bool value) { (*out_)[name] = value; }
  void flag_if_set(const char* name, bool value) {
    if (value) flag(name, value);
  }
  // Without bytes that are not ASCII.
  void plain(const char* name, std::string_view value) { (*out_)[name] = value; }
  void text(const char* name, std::string_view value, std::size_t limit = kTextLimit) {
    (*out_)[name] = json_text(value, limit);
  }
  void text_if_any(const char* name, std::string_view value, std::size_t limit = kTextLimit) {
    if (!value.empty()) text(name, value, limit);
  }
  void text_if_there(const char* name, const std::optional<std::string>& value) {
    if (value) text(name, *value);
  }
  void texts(const char* name, const std::vector<std::string>& values,
             const ListForm& form = {.most = kMostItems}, PaidBy by = PaidBy::kLists) {
    Json list = Json::array();
    for (const std::string& value : values) {
      if (list.size() == form.most || !budget(by).spend(kFixedCost + bounded(value))) break;
      list.push_back(json_text(value));
    }
    add(name, std::move(list), values.size(), form);
  }
  // A word of a fixed list: `from` is the inverse of to_string().
  template <class T, class From>
  void word(const char* name, const T& value, From /*from*/, T /*otherwise*/) {
    (*out_)[name] = to_string(value);
  }
  template <class T, class From>
  void word_may_lack(const char* name, const T& value, From from, T otherwise) {
    word(name, value, from, otherwise);
  }
  void address(const char* name, std::uint64_t value) {
    (*out_)[name] = fmt::format("0x{:x}", value);
  }
  void bytes(const char* name, std::span<const std::uint8_t> value) {
    (*out_)[name] = hex(std::as_bytes(value.first(std::min(value.size(), kMostDumpBytes))));
  }
  void omitted(const char* name, std::size_t all, std::size_t kept) {
    if (all > kept) (*out_)[name] = all - kept;
  }
  template <class Members>
  void object(const char* name, Members of_it) {
    Json& object = (*out_)[name] = Json::object();
    ResultWriter inner(object, *findings_, *lists_);
    of_it(inner);
  }
  template <class T>
  void object_if_there(const char* name, const std::optional<T>& value) {
    if (value) object(name, [&](auto& m) { members(m, *value); });
  }
  template <class T, class Cost>
  void paid_object_if_there(const char* name, const std::optional<T>& value, Cost cost, PaidBy by) {
    if (value && budget(by).spend(cost(*value))) object_if_there(name, value);
  }
  template <class T, class Members = decltype(kByMembers)>
  void list(const char* name, const std::vector<T>& values, const ListForm& form,
            Members of_one = kByMembers) {
    elements(name, values, form, of_one, [](const T& /*value*/, bool /*first*/) { return true; });
  }
  template <class T, class Cost>
  void paid_list(const char* name, const std::vector<T>& values, const ListForm& form, Cost cost,
                 PaidBy by) {
    elements(name, values, form, kByMembers,
             [&](const T& value, bool /*first*/) { return budget(by).spend(cost(value)); });
  }
  // The first one is written even if the budget is spent.
  template <class T, class Cost>
  void paid_list_with_first(const char* name, const std::vector<T>& values, const ListForm& form,
                            Cost cost, PaidBy by) {
    elements(name, values, form, kByMembers,
             [&](const T& value, bool first) { return budget(by).spend(cost(value)) || first; });
  }

 private:
  Budget& budget(PaidBy by) { return by == PaidBy::kFindings ? *findings_ : *lists_; }
  template <class T, class Members, class Affords>
  void elements(const char* name, const std::vector<T>& values, const ListForm& form,
                Members of_one, Affords affords) {
    Json list = Json::array();
    for (const T& value : values) {
      if (list.size() == form.most || !affords(value, list.empty())) break;
      Json one = Json::object();
      ResultWriter inner(one, *findings_, *lists_);
      of_one(inner, value);
      list.push_back(std::move(one));
    }
    add(name, std::move(list), values.size(), form);
  }
  void add(const char* name, Json list, std::size_t all, const ListForm& form) {
    if (form.omitted != nullptr) omitted(form.omitted, all, list.size());
    if (!form.if_any || !list.empty()) (*out_)[name] = std::move(list);
  }

  Json* out_;
  Budget* findings_;
  Budget* lists_;
};

// One value of the file and its path. The first problem is kept for the whole file; after that all
// values read as empty.
class Node {
 public:
  using Json = nlohmann::json;

  Node(const Json* value, std::string* error) : value_(value), error_(error) {}

  // A member that must exist.
  Node operator[](const char* key) const {
    Node out = maybe(key);
    if (out.value_ == nullptr) out.wrong("is missing");
    return out;
  }
  Node maybe(const char* key) const {
    Node out(nullptr, error_);
    out.parent_ = this;
    out.key_ = key;
    if (value_ == nullptr) return out;
    if (!value_->is_object()) {
      wrong("is not an object");
      return out;
    }
    if (const auto found = value_->find(key); found != value_->end()) out.value_ = &*found;
    return out;
  }
  bool present() const { return value_ != nullptr; }

  template <class F>
  void each(F&& use) const {
    if (value_ == nullptr) return;
    if (!value_->is_array()) return wrong("is not a list");
    for (std::size_t i = 0; i < value_->size() && error_->empty(); ++i) {
      Node item(&(*value_)[i], error_);
      item.parent_ = this;
      item.index_ = i;
      use(item);
    }
  }
  std::string plain_text() const {
    if (value_ == nullptr) return {};
    if (value_->is_string()) return value_->get_ref<const std::string&>();
    wrong("is not a string");
    return {};
  }
  std::string text() const { return bytes_of_json_text(plain_text()); }
  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    each([&out](const Node& item) { out.push_back(item.text()); });
    return out;
  }
  bool boolean() const {
    if (value_ == nullptr) return false;
    if (value_->is_boolean()) return value_->get<bool>();
    wrong("is not true or false");
    return false;
  }
  double number() const {
    if (value_ == nullptr) return 0;
    if (value_->is_number()) return value_->get<double>();
    wrong("is not a number");
    return 0;
  }
  template <class T>
  T integer() const {
    if (value_ == nullptr) return 0;
    if (value_->is_number_unsigned()) {
      const auto v = value_->get<std::uint64_t>();
      if (std::in_range<T>(v)) return static_cast<T>(v);
    } else if (value_->is_number_integer()) {
      const auto v = value_->get<std::int64_t>();
      if (std::in_range<T>(v)) return static_cast<T>(v);
    } else {
      wrong("is not a whole number");
      return 0;
    }
    wrong("is out of range");
    return 0;
  }
  std::uint64_t address() const {
    const std::string text = plain_text();
    std::uint64_t out = 0;
    const char* const end = text.data() + text.size();
    if (text.starts_with("0x") && text.size() > 2) {
      const auto [stop, failed] = std::from_chars(text.data() + 2, end, out, 16);
      if (failed == std::errc() && stop == end) return out;
    }
    wrong("is not an address");
    return 0;
  }
  std::vector<std::uint8_t> bytes() const {
    const std::string text = plain_text();
    std::vector<std::uint8_t> out;
    out.reserve(text.size() / 2);
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
      std::uint8_t byte = 0;
      const char* const end = text.data() + i + 2;
      const auto [stop, failed] = std::from_chars(text.data() + i, end, byte, 16);
      if (failed != std::errc() || stop != end) break;
      out.push_back(byte);
    }
    if (2 * out.size() != text.size()) wrong("is not bytes in hexadecimal");
    return out;
  }
  // A word of a fixed list.
  template <class T, class From>
  T word(From from, T otherwise) const {
    if (value_ == nullptr) return otherwise;
    const std::string name = plain_text();
    if (const auto found = from(std::string_view(name))) return *found;
    wrong(fmt::format("is not one of the known words: '{}'", quoted(name)));
    return otherwise;
  }

  static std::string quoted(std::string_view text) { return escape(text, Escape::kTerminal, 80); }

  void wrong(std::string_view how) const {
    if (!error_->empty()) return;
    const std::string where = path();
    *error_ = fmt::format("{} {}", where.empty() ? "the file" : where, how);
  }

 private:
  std::string path() const {
    if (parent_ == nullptr) return {};
    const std::string before = parent_->path();
    if (key_ == nullptr) return fmt::format("{}[{}]", before, index_);
    return before.empty() ? std::string(key_) : fmt::format("{}.{}", before, key_);
  }

  const Json* value_;
  std::string* error_;
  const Node* parent_ = nullptr;
  const char* key_ = nullptr;
  std::size_t index_ = 0;
};

class ResultReader {
 public:
  static constexpr bool kReads = true;

  ResultReader(const Node& node, const Catalogue& catalogue)
      : node_(&node), catalogue_(&catalogue) {}

  const Catalogue& catalogue() const { return *catalogue_; }
  void wrong(const char* name, std::string_view how) const { (*node_)[name].wrong(how); }

  template <class T>
  void number(const char* name, T& value) {
    value = (*node_)[name].template integer<T>();
  }
  template <class T>
  void number_if_any(const char* name, T& value) {
    value = node_->maybe(name).template integer<T>();
  }
  void real(const char* name, double& value) { value = (*node_)[name].number(); }
  void flag(const char* name, bool& value) { value = (*node_)[name].boolean(); }
  void flag_if_set(const char* name, bool& value) { value = node_->maybe(name).boolean(); }
  void plain(const char* name, std::string& value) { value = (*node_)[name].plain_text(); }
  void text(const char* name, std::string& value, std::size_t /*limit*/ = 0) {
    value = (*node_)[name].text();
  }
  void text_if_any(const char* name, std::string& value, std::size_t /*limit*/ = 0) {
    value = node_->maybe(name).text();
  }
  void text_if_there(const char* name, std::optional<std::string>& value) {
    if (const Node node = node_->maybe(name); node.present()) value = node.text();
  }
  void texts(const char* name, std::vector<std::string>& values, const ListForm& form = {},
             PaidBy /*by*/ = PaidBy::kLists) {
    values = list_of(name, form).texts();
  }
  template <class T, class From>
  void word(const char* name, T& value, From from, T otherwise) {
    value = (*node_)[name].word(from, otherwise);
  }
  template <class T, class From>
  void word_may_lack(const char* name, T& value, From from, T otherwise) {
    value = node_->maybe(name).word(from, otherwise);
  }
  void address(const char* name, std::uint64_t& value) { value = (*node_)[name].address(); }
  void bytes(const char* name, std::vector<std::uint8_t>& value) { value = (*node_)[name].bytes(); }
  void omitted(const char* /*name*/, std::size_t /*all*/, std::size_t /*kept*/) {}
  template <class Members>
  void object(const char* name, Members of_it) {
    const Node node = (*node_)[name];
    ResultReader inner(node, *catalogue_);
    of_it(inner);
  }
  template <class T>
  void object_if_there(const char* name, std::optional<T>& value) {
    if (!node_->maybe(name).present()) return;
    value.emplace();
    object(name, [&](auto& m) { members(m, *value); });
  }
  template <class T, class Cost>
  void paid_object_if_there(const char* name, std::optional<T>& value, Cost /*cost*/,
                            PaidBy /*by*/) {
    object_if_there(name, value);
  }
  template <class T, class Members = decltype(kByMembers)>
  void list(const char* name, std::vector<T>& values, const ListForm& form,
            Members of_one = kByMembers) {
    const Node list = list_of(name, form);
    list.each([&](const Node& node) {
      if (form.refused != nullptr && values.size() == form.most) return list.wrong(form.refused);
      ResultReader inner(node, *catalogue_);
      of_one(inner, values.emplace_back());
    });
  }
  template <class T, class Cost>
  void paid_list(const char* name, std::vector<T>& values, const ListForm& form, Cost /*cost*/,
                 PaidBy /*by*/) {
    list(name, values, form);
  }
  template <class T, class Cost>
  void paid_list_with_first(const char* name, std::vector<T>& values, const ListForm& form,
                            Cost /*cost*/, PaidBy /*by*/) {
    list(name, values, form);
  }

 private:
  Node list_of(const char* name, const ListForm& form) const {
    return form.if_any || form.may_lack ? node_->maybe(name) : (*node_)[name];
  }

  const Node* node_;
  const Catalogue* catalogue_;
};

}  // namespace ctxconf::conformance
