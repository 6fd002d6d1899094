// The folder golden/ as a whole: what its sources make of it, whether that is what stands there,
// and making it so. A generated file is never overwritten when somebody changed it: the manifest
// knows size and CRC-32 of what was generated last.
#pragma once

#include <expected>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "golden/vector.h"

namespace ctxconf::golden {

inline constexpr std::string_view kManifestFile = "manifest.json";

// The vectors of all three sources, by id.
std::expected<std::vector<Vector>, std::string> encode_sources(const std::filesystem::path& golden);

// Every generated file with its text, by its path inside the folder; the manifest too.
using Outputs = std::map<std::string, std::string>;
Outputs outputs_of(const std::vector<Vector>& vectors);

// A line for each file that is missing, stale, edited by hand, malformed or not ours, with what to
// do. The error is about the folder itself.
std::expected<std::vector<std::string>, std::string> check_folder(
    const std::filesystem::path& golden, const Outputs& outputs);

struct Written {
  std::size_t written = 0;
  std::size_t removed = 0;
  std::size_t unchanged = 0;
};
// Refuses, with a line a file, when a file that it would overwrite or remove was edited by hand.
// All new texts are on disk before the first old file changes; before that a failure leaves every
// vector as it was. The last line of the error says what was done; after a failure or an
// interruption on the way another call finishes the work.
std::expected<Written, std::string> write_folder(const std::filesystem::path& golden,
                                                 const Outputs& outputs);

}  // namespace ctxconf::golden
