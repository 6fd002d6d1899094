// Takes the members of a JSON object one by one. Keeps the first mistake as one line of text;
// everything taken after it is empty. Only for the files of golden/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ctxconf::golden {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // keeps the order of insertion

// A repeated member, nesting beyond 64 levels and a byte order mark are errors too.
std::expected<Json, std::string> parse_json(std::string_view text);

std::optional<std::string> bytes_of_hex(std::string_view digits);  // lower case, in pairs
std::string hex_of(std::string_view bytes);

class Members {
 public:
  // `where` precedes the name of a member ("header."); `error` must outlive this object.
  Members(const Json& object, std::string where, std::string& error);

  bool has(const char* name) const;
  bool ok() const { return error_->empty(); }
  // Reports "vectors[3].header.version": and the mistake. Keeps only the first.
  void wrong(const std::string& name, const std::string& what);

  // Null, after reporting the mistake, if a required member is missing.
  const Json* need(const char* name);
  const Json* take(const char* name);  // null if there is none

  std::string text(const char* name);
  std::string text(const char* name, std::string_view fallback);
  std::string hex(const char* name);  // the bytes; empty if there is no such member
  std::uint64_t number(const char* name, std::uint64_t most, std::uint64_t fallback);
  std::uint64_t number(const char* name, std::uint64_t most);
  std::uint64_t address(const char* name);  // "0x7f5e10000000"
  const Json* list(const char* name);       // not null; empty if it is not a list
  // The members of an object inside this one; none if it is missing.
  Members object(const char* name);
  Members element(const char* name, const Json& list, std::size_t index);

  // Reports members that nobody took.
  void finish();

  std::string& error() { return *error_; }
  const std::string& where() const { return where_; }

 private:
  const Json* object_;
  std::string where_;
  std::string* error_;
  std::set<std::string, std::less<>> taken_;
};

// "0x7f5e10000000"
std::string address_text(std::uint64_t address);
std::optional<std::uint64_t> address_of(std::string_view text);

}  // namespace ctxconf::golden
