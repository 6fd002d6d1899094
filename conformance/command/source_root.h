// Finds code of a program in its repository, so that reports can name it as CI systems do.
#pragma once

#include <string>
#include <vector>

#include "conformance/command/options.h"
#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// The repository, under all names that debug information may have for it.
class SourceRoot {
 public:
  // `given`: of --source-root. The first that is a directory is the root. If none is, the root is
  // the Git checkout around the working directory, or else the working directory, unless that is /.
  explicit SourceRoot(const std::vector<std::string>& given);

  const std::string& path() const { return path_; }  // absolute; empty: there is none
  // The source file below the root, or empty. It need not exist if its name is absolute, or begins
  // with one of `given`.
  std::string below(const std::string& source_file) const;
  // A file that exists, relative to the working directory; otherwise as above.
  std::string file_below(const std::string& path) const;

 private:
  std::string path_;
  std::vector<std::string> names_;  // without a slash at the end
};

// Fills in RunResult::source and the paths of code and images.
void find_sources(const JudgeOptions& options, RunResult& run);

}  // namespace ctxconf::conformance
