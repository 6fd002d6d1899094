// What a reader reports of an encoded message or record, as in AllowedAnswer::content.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "conformance/puppet/script.h"

namespace ctxconf::conformance::reader {

// The content of a ProcessContext: exactly its Resource and its attributes. The message must be
// valid.
std::string content_of_message(const puppet::Bytes& message);
// The value of threadlocal.schema_version in field 2 of a valid message; empty: none, or no string.
std::string schema_of_message(const puppet::Bytes& message);
// The content of a record of OTEP 4947: its ids, and with `attributes` exactly those, whose names
// are by index. The record must be whole and may have more bytes than its size says.
std::string content_of_record(const puppet::Bytes& record, const std::vector<std::string>& names,
                              bool attributes);
bool has_ids(const puppet::Bytes& record);

std::string base64(std::span<const std::byte> bytes);

}  // namespace ctxconf::conformance::reader
