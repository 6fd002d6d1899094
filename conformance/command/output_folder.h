// A directory for files, held open: if it is renamed meanwhile, all files still go to one place.
// Existing files in it are never written through, waited for or followed.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/fd.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// `name` is always the name of an entry, without a slash.
class OutputFolder {
 public:
  // Opens the directory; makes it and its parents if they do not exist.
  static sys::Result<OutputFolder> open(const std::string& path);
  static sys::Result<OutputFolder> make(const std::string& path);
  // Opens or makes a directory in this one. ENOTDIR: the name exists and is not a directory (a link
  // to a directory is not one).
  sys::Result<OutputFolder> make_folder(const std::string& name) const;

  // The path as given, with a "/" at its end.
  const std::string& prefix() const { return prefix_; }
  bool is_writable() const;
  bool is_folder(const std::string& name) const;  // not a link to one
  bool has(const std::string& name) const;
  std::vector<std::string> regular_files() const;

  // Replaces the file atomically, through a new file with an unpredictable name. The signals of
  // EndingSignals leave no such file. A `mode` does not depend on the umask.
  sys::Result<> write(const std::string& name, std::string_view text,
                      std::optional<mode_t> mode = std::nullopt) const;
  // Replaces the file by a new, empty one.
  sys::Result<sys::Fd> create(const std::string& name) const;
  // Removes an entry. Succeeds if it does not exist; leaves a directory.
  sys::Result<> remove(const std::string& name) const;

 private:
  OutputFolder(sys::Fd directory, std::string prefix)
      : directory_(std::move(directory)), prefix_(std::move(prefix)) {}

  sys::Fd directory_;
  std::string prefix_;
};

}  // namespace ctxconf::conformance
