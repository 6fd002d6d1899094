// What was read, for people and for programs (docs/reader.md describes both).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "reader_ref/process_reader.h"

namespace ctxconf::reader {

// Several lines. Threads without a context are counted; listed with the reason if `verbose`.
std::string to_text(const ProcessReport& report, bool verbose);
std::string to_text(const ThreadReport& thread);  // one line, without the newline

// An object; hostile strings are in it as they are.
nlohmann::ordered_json to_json(const ProcessReport& report);
// One line of valid JSON in ASCII: what is no UTF-8 is replaced by U+FFFD.
std::string to_line(const nlohmann::ordered_json& object);

// "9a0b"
std::string to_hex(std::span<const std::uint8_t> bytes);

}  // namespace ctxconf::reader
