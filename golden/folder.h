// The folder golden/ as a whole: generates files from its sources, and compares them with the
// present files. A generated file that somebody changed is never overwritten: the manifest has the
// size and CRC-32 of what was generated last.
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

// One line for each file that is missing, stale, edited by hand, malformed or foreign, with advice.
// The error is about the folder itself.
std::expected<std::vector<std::string>, std::string> check_folder(
    const std::filesystem::path& golden, const Outputs& outputs);

struct Written {
  std::size_t written = 0;
  std::size_t removed = 0;
  std::size_t unchanged = 0;
};
struct WriteProblem {
  std::string text;
  bool unwritten = false;  // a file could not be written or removed; otherwise it was refused
};
// Refuses, with one line per file, if a file that it would overwrite or remove was edited by hand.
// All new texts are on disk before the first old file changes; a failure before that leaves every
// vector unchanged. The last line of the error says what was done. After a later failure or
// interruption, another call finishes the work.
std::expected<Written, WriteProblem> write_folder(const std::filesystem::path& golden,
                                                  const Outputs& outputs);

}  // namespace ctxconf::golden
