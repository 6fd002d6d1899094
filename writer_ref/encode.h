// Parses attributes from a command line and encodes the message.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ctxconf::writer {

struct Bytes {
  std::string value;
};

struct Attribute {
  std::string key;
  std::variant<std::string, bool, std::int64_t, double, Bytes, std::vector<std::string>> value;
};

// "KEY=VALUE" is a string; "KEY:TYPE=VALUE" with TYPE string, int, double, bool (true or false),
// bytes (hexadecimal) or strings (separated by commas). Keys and strings are valid UTF-8.
// The error is a sentence for the user.
std::expected<Attribute, std::string> parse_attribute(std::string_view argument);

struct Context {
  std::vector<Attribute> resource;
  std::vector<Attribute> attributes;
};

// Refuses a key that occurs twice in one of the lists.
std::expected<std::string, std::string> encode(const Context& context);

}  // namespace ctxconf::writer
