// The file of --metrics.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "conformance/command/output_folder.h"
#include "sys/result.h"

namespace ctxconf::conformance {

class MetricsFile {
 public:
  // Opens the folder of the file. Refuses a file that is there and is not a regular one, such as
  // /dev/stdout, because write() would replace it.
  static sys::Result<MetricsFile> at(const std::string& path);

  // Replaces the file atomically. Every user may read it, because node_exporter must.
  sys::Result<> write(std::string_view text) const;

 private:
  MetricsFile(OutputFolder folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}

  OutputFolder folder_;
  std::string name_;
};

}  // namespace ctxconf::conformance
