// Reads what people write in golden/src, fields instead of bytes, and encodes it. This is the first
// of two encoders (golden/second_encoder.py is the other). docs/golden.md has the format.
#pragma once

#include <expected>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "golden/vector.h"

namespace ctxconf::golden {

std::filesystem::path source_file_of(Kind kind);  // "src/process-contexts.json"

// The vectors of a source, in its order; ids are unique. `file` is for the error.
std::expected<std::vector<Vector>, std::string> encode_source(std::string_view json,
                                                              std::string_view file, Kind kind);

// Checks that the second encoder printed exactly these vectors, with the same bytes. Otherwise says
// which vector differs, where, and both sides.
std::expected<void, std::string> compare_encodings(const std::vector<Vector>& ours,
                                                   std::string_view theirs_json);

}  // namespace ctxconf::golden
