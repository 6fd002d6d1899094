// One list of members for both directions of JSON: a function `members(m, value)`, found by its
// argument types, names each member once. MemberWriter writes them in that order, MemberReader
// reads them into `value`.
//
//   void members(auto& m, Is<Watch> auto& w) {
//     m.address("header", w.header);
//     m.number("armed_ns", w.armed_ns);
//   }
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "conformance/text/json_text.h"

namespace ctxconf::conformance {

// T or const T.
template <class T, class Wanted>
concept Is = std::same_as<std::remove_const_t<T>, Wanted>;

template <class T>
nlohmann::ordered_json json_by_members(const T& value);
template <class T>
T value_by_members(const JsonReader& in);

class MemberWriter {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr bool kReads = false;

  explicit MemberWriter(Json& out) : out_(&out) {}

  // A member that a file may lack. Writes it if `there`.
  bool has(const char* /*name*/, bool there) const { return there; }

  template <class T>
  void number(const char* name, const T& value, std::type_identity_t<T> /*low*/ = {},
              std::type_identity_t<T> /*high*/ = {}) {
    (*out_)[name] = value;
  }
  template <class T>
  void number_or_null(const char* name, const std::optional<T>& value) {
    (*out_)[name] = value ? Json(*value) : Json(nullptr);
  }
  template <class T>
  void numbers(const char* name, const std::vector<T>& values) {
    (*out_)[name] = values;
  }
  void flag(const char* name, bool value) { (*out_)[name] = value; }
  // As hexadecimal text.
  void address(const char* name, std::uint64_t value) { (*out_)[name] = hex(value); }
  void bytes(const char* name, const std::vector<std::byte>& value) { (*out_)[name] = hex(value); }
  void text(const char* name, const std::string& value) {
    (*out_)[name] = conformance::text(value);
  }
  void texts(const char* name, const std::vector<std::string>& values) {
    (*out_)[name] = conformance::texts(values);
  }
  // An object, which reads as empty where it is not there.
  template <class T>
  void object(const char* name, const T& value) {
    (*out_)[name] = json_by_members(value);
  }
  template <class T>
  void object_if_there(const char* name, const std::optional<T>& value) {
    if (value) object(name, *value);
  }
  template <class T>
  void object_or_null(const char* name, const std::optional<T>& value) {
    (*out_)[name] = value ? json_by_members(*value) : Json(nullptr);
  }
  template <class T>
  void list(const char* name, const std::vector<T>& values) {
    list(name, values, [](auto& m, auto& one) { members(m, one); });
  }
  // The same, with `of_one` in the place of members().
  template <class T, class Members>
  void list(const char* name, const std::vector<T>& values, Members of_one) {
    Json& out = (*out_)[name] = Json::array();
    for (const T& value : values) {
      MemberWriter one(out.emplace_back(Json::object()));
      of_one(one, value);
    }
  }
  // A member with a form of its own: `to_json(value)` makes it, `from_json(reader, name, value)`
  // reads it.
  template <class T, class To, class From>
  void as(const char* name, const T& value, To to_json, From /*from_json*/) {
    (*out_)[name] = to_json(value);
  }
  // Complains if what was read does not satisfy the condition.
  template <class Condition>
  void check(const char* /*name*/, const char* /*complaint*/, Condition /*holds*/) {}

 private:
  Json* out_;
};

class MemberReader {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr bool kReads = true;

  explicit MemberReader(const JsonReader& in) : in_(&in) {}

  const JsonReader& in() const { return *in_; }

  bool has(const char* name, bool /*there*/) const { return !in_->absent_or_null(name); }

  template <class T>
  void number(const char* name, T& value,
              std::type_identity_t<T> low = std::numeric_limits<T>::min(),
              std::type_identity_t<T> high = std::numeric_limits<T>::max()) {
    value = in_->number<T>(name, low, high);
  }
  template <class T>
  void number_or_null(const char* name, std::optional<T>& value) {
    value = in_->optional_number<T>(name);
  }
  template <class T>
  void numbers(const char* name, std::vector<T>& values) {
    values = in_->numbers<T>(name);
  }
  void flag(const char* name, bool& value) { value = in_->boolean(name); }
  void address(const char* name, std::uint64_t& value) { value = in_->address(name); }
  void bytes(const char* name, std::vector<std::byte>& value) { value = in_->bytes(name); }
  void text(const char* name, std::string& value) { value = in_->string(name); }
  void texts(const char* name, std::vector<std::string>& values) { values = in_->strings(name); }
  template <class T>
  void object(const char* name, T& value) {
    value = in_->optional<T>(name, value_by_members<T>).value_or(T{});
  }
  template <class T>
  void object_if_there(const char* name, std::optional<T>& value) {
    value = in_->optional<T>(name, value_by_members<T>);
  }
  template <class T>
  void object_or_null(const char* name, std::optional<T>& value) {
    object_if_there(name, value);
  }
  template <class T>
  void list(const char* name, std::vector<T>& values) {
    values = in_->list<T>(name, value_by_members<T>);
  }
  template <class T, class Members>
  void list(const char* name, std::vector<T>& values, Members of_one) {
    values = in_->list<T>(name, [&](const JsonReader& in) {
      T out{};
      MemberReader one(in);
      of_one(one, out);
      return out;
    });
  }
  template <class T, class To, class From>
  void as(const char* name, T& value, To /*to_json*/, From from_json) {
    from_json(*in_, name, value);
  }
  template <class Condition>
  void check(const char* name, const char* complaint, Condition holds) {
    if (in_->ok() && !holds()) in_->complain(name, complaint);
  }

 private:
  const JsonReader* in_;
};

template <class T>
nlohmann::ordered_json json_by_members(const T& value) {
  auto out = nlohmann::ordered_json::object();
  MemberWriter writer(out);
  members(writer, value);
  return out;
}

template <class T>
T value_by_members(const JsonReader& in) {
  T out{};
  MemberReader reader(in);
  members(reader, out);
  return out;
}

}  // namespace ctxconf::conformance
