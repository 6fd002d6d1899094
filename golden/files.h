// Files and folders of golden vectors. Errors are one line that begins with the path.
#pragma once

#include <cstddef>
#include <expected>
#include <filesystem>
#include <string>
#include <vector>

namespace ctxconf::golden {

inline constexpr std::size_t kMostFiles = 10000;

// The names of the entries of a folder, sorted; including hidden ones.
std::expected<std::vector<std::string>, std::string> list_files(
    const std::filesystem::path& folder);

// A whole regular file of at most `limit` bytes.
std::expected<std::string, std::string> read_file(const std::filesystem::path& path,
                                                  std::size_t limit);

}  // namespace ctxconf::golden
