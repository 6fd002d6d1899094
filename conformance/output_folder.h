// A directory that files are written into, held open: whatever becomes of its name meanwhile, all
// of them come to one place. Nothing that lies there is written through, waited for or followed.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/fd.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// `name` is always that of an entry, without a slash.
class OutputFolder {
 public:
  // The directory has to be there, or is made with all above it.
  static sys::Result<OutputFolder> open(const std::string& path);
  static sys::Result<OutputFolder> make(const std::string& path);
  // One in this one, made if it is not there. ENOTDIR: the name is another's, a link to a
  // directory too.
  sys::Result<OutputFolder> make_folder(const std::string& name) const;

  // As it was given, and a "/" at its end.
  const std::string& prefix() const { return prefix_; }
  bool is_writable() const;
  bool is_folder(const std::string& name) const;  // itself, not what it links to
  bool has(const std::string& name) const;
  std::vector<std::string> regular_files() const;

  // In place of what has the name, whole or not at all: through a new file that nobody can know the
  // name of, which SIGINT, SIGTERM and SIGHUP do not leave behind.
  sys::Result<> write(const std::string& name, std::string_view text) const;
  // A new, empty file in place of what has the name.
  sys::Result<sys::Fd> create(const std::string& name) const;
  // Whatever has the name. It succeeds where there is nothing, and leaves a directory there.
  sys::Result<> remove(const std::string& name) const;

 private:
  OutputFolder(sys::Fd directory, std::string prefix)
      : directory_(std::move(directory)), prefix_(std::move(prefix)) {}

  sys::Fd directory_;
  std::string prefix_;
};

}  // namespace ctxconf::conformance
