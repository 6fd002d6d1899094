// What a reader says of a process, a thread and a record in the testee protocol
// (docs/testee-protocol.md, "Readers"): the members `result`, `context` and `record`. Pure.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reader_ref/key_map.h"
#include "reader_ref/process_reader.h"
#include "sys/result.h"

namespace ctxconf::reader {

nlohmann::json answer_about_process(const sys::Result<ProcessReport>& report);
nlohmann::json answer_about(const ThreadReport& thread);
// A thread that is not in the report has no context.
nlohmann::json answer_about_thread(const sys::Result<ProcessReport>& report, pid_t tid);
// A record in memory that ends with its last byte.
nlohmann::json answer_about_record(std::span<const std::byte> record, const KeyMap& keys);

// Nothing: these are not pairs of lower-case hexadecimal digits.
std::optional<std::vector<std::byte>> bytes_of_hex(std::string_view hex);

}  // namespace ctxconf::reader
