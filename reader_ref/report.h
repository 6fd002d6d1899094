// The output of what was read, for people and for programs (docs/reader.md describes both).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "reader_ref/process_reader.h"

namespace ctxconf::reader {

// Several lines. Counts threads without a context; lists them with the reason if `verbose`.
std::string to_text(const ProcessReport& report, bool verbose);
std::string to_text(const ThreadReport& thread);  // one line, without the newline

// An object; contains hostile strings unchanged.
nlohmann::ordered_json to_json(const ProcessReport& report);
// One line of valid JSON in ASCII: bytes that are not UTF-8 become U+FFFD.
std::string to_line(const nlohmann::ordered_json& object);

// "9a0b"
std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace ctxconf::reader
