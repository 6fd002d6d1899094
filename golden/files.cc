#include "golden/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace ctxconf::golden {
namespace fs = std::filesystem;

std::expected<std::vector<std::string>, std::string> list_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (names.size() >= kMostFiles) {
      return std::unexpected(fmt::format("{}: more than {} files; this is not a folder of vectors",
                                         folder.string(), kMostFiles));
    }
    names.push_back(at->path().filename().string());
  }
  if (error) return std::unexpected(folder.string() + ": " + error.message());
  std::ranges::sort(names);
  return names;
}

std::expected<std::string, std::string> read_file(const fs::path& path, std::size_t limit) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return std::unexpected(path.string() + ": " +
                           (error ? error.message() : "is not a regular file"));
  }
  std::ifstream in(path, std::ios::binary);
  std::string text;
  std::array<char, 1U << 16U> part;
  while (text.size() <= limit && in.good()) {
    in.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(in.gcount()));
  }
  if (!in.good() && !in.eof()) return std::unexpected(path.string() + ": cannot be read");
  if (text.size() > limit) {
    return std::unexpected(fmt::format("{}: is larger than {} bytes; shorten or split the vector",
                                       path.string(), limit));
  }
  return text;
}

}  // namespace ctxconf::golden
