#include "conformance/command/source_root.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace ctxconf::conformance {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostWords = 256;  // of a command that may name files

// Without a slash at the end; empty if the kernel would not take it as a path.
std::string plain(const fs::path& path) {
  if (path.native().size() >= PATH_MAX) return {};
  std::string out = path.lexically_normal().string();
  if (out.size() > 1 && out.ends_with('/')) out.pop_back();
  if (out == "." || out.find('\0') != out.npos) out.clear();
  return out;
}

std::string without(const std::string& root, const std::string& path) {
  const std::size_t end = root == "/" ? 0 : root.size();
  if (root.empty() || !path.starts_with(root) || path.size() < end + 2) return {};
  return path[end] == '/' ? path.substr(end + 1) : std::string();
}

bool is_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

fs::path working_directory() {
  std::error_code error;
  return fs::current_path(error);
}

fs::path checkout_around(const fs::path& folder) {
  std::error_code error;
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path()) {
    if (fs::exists(at / ".git", error)) return at;
  }
  return folder;
}

// Compilers record the working directory as the shell calls it, which may go through links.
std::string name_in_shell(const std::string& root) {
  const char* const shell = std::getenv("PWD");
  if (shell == nullptr || *shell != '/') return {};
  std::error_code error;
  for (fs::path at = plain(shell); at.has_relative_path(); at = at.parent_path()) {
    if (fs::equivalent(at, root, error)) return at.string();
  }
  return {};
}

}  // namespace

SourceRoot::SourceRoot(const std::vector<std::string>& given) {
  const fs::path here = working_directory();
  for (const std::string& name : given) {
    const bool exists = !name.empty() && is_directory(name);
    names_.push_back(plain(exists ? here / name : fs::path(name)));
    if (exists && path_.empty()) path_ = names_.back();
  }
  if (path_.empty()) {
    path_ = plain(checkout_around(here));
    if (path_ == "/") path_.clear();
    names_.push_back(path_);
  }
  if (path_.empty()) return;
  names_.push_back(name_in_shell(path_));
  std::error_code error;
  names_.push_back(plain(fs::canonical(path_, error)));
}

std::string SourceRoot::below(const std::string& source_file) const {
  const std::string file = plain(source_file);
  if (file.empty()) return {};
  for (const std::string& name : names_) {
    if (std::string out = without(name, file); !out.empty()) return out;
  }
  // With -ffile-prefix-map and the like, names are relative to the repository.
  const bool is_inside = file.front() != '/' && file != ".." && !file.starts_with("../");
  return is_inside && !path_.empty() && is_file(fs::path(path_) / file) ? file : std::string();
}

std::string SourceRoot::file_below(const std::string& path) const {
  if (path.empty() || path.size() >= PATH_MAX || path.find('\0') != path.npos) return {};
  const fs::path file = working_directory() / path;
  // A name in another mount namespace may lead anywhere here, so it is compared first.
  const std::string out = below(file.string());
  return !out.empty() && is_file(file) ? out : std::string();
}

void find_sources(const JudgeOptions& options, RunResult& run) {
  const SourceRoot root(options.source_root);
  SourceTree& source = run.source.emplace();
  source.root = root.path();
  for (std::size_t i = 0; i < std::min(run.target.size(), kMostWords); ++i) {
    source.program = root.file_below(run.target[i]);
    if (!source.program.empty()) break;
  }
  source.expectations = root.file_below(options.expect);
  for (ImageSummary& image : run.images) image.path = root.file_below(image.executable);
  for (RequirementResult& result : run.results) {
    for (Finding& finding : result.findings) {
      for (CodeFrame& frame : finding.code) {
        if (!frame.source_file.empty()) frame.path = root.below(frame.source_file);
      }
    }
  }
}

}  // namespace ctxconf::conformance
