// Reads the JSON of a recording, which is untrusted and large, within the limits of json_limits.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

// The required members "format" and "version". They are checked where they occur, whatever follows.
struct JsonFormat {
  std::string format;
  std::uint64_t version = 0;
  std::string other_format;  // the complaint about another format
  std::string mend;          // appended to the complaint about another version
};

// The value, or why the text was not read to its end.
std::expected<nlohmann::ordered_json, std::string> parse_recording(std::string_view text,
                                                                   const JsonFormat& wanted);

}  // namespace ctxconf::conformance
