// Runs a fuzz target on files: what the engine does, without an engine.
//
//   TARGET FILE|DIRECTORY...   every file below a directory, in the order of its name
//
// Exit codes: 0 all were run; 2 usage, an argument that cannot be read, or no file at all. A
// finding ends the program with SIGABRT or the sanitizer's code, after the name of the file.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

bool add_files(const fs::path& argument, std::vector<fs::path>& files) {
  std::error_code error;
  if (!fs::is_directory(argument, error)) {
    files.push_back(argument);
    return fs::is_regular_file(argument, error);
  }
  fs::recursive_directory_iterator entry(argument, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->is_regular_file(error)) files.push_back(entry->path());
  }
  return !error;
}

bool run(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in.good() && !in.eof()) return false;
  // The name of the file must appear before a crash.
  std::printf("%s\n", file.c_str());
  std::fflush(stdout);
  // The engine never passes null, and neither does this.
  static const char none = 0;
  const char* data = bytes.empty() ? &none : bytes.data();
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(data), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE|DIRECTORY...\n", argv[0]);
    return 2;
  }
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::size_t before = files.size();
    if (!add_files(argv[i], files)) {
      std::fprintf(stderr, "%s: cannot be read\n", argv[i]);
      return 2;
    }
    if (files.size() == before) {
      std::fprintf(stderr, "%s: no input here: a corpus has at least one file\n", argv[i]);
      return 2;
    }
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    if (!run(file)) {
      std::fprintf(stderr, "%s: cannot be read\n", file.c_str());
      return 2;
    }
  }
  std::printf("%zu inputs, none of them a finding\n", files.size());
  return 0;
}
