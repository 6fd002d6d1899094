// What a recorded system call is about.
#pragma once

#include <string_view>

#include "conformance/evidence/timeline.h"

namespace ctxconf::conformance {

bool maps_anonymously(const SystemCall& mmap);
// What a descriptor is ("/memfd:NAME (deleted)"): any memfd, and one that looks like OTEL_CTX.
bool is_memfd(std::string_view file);
bool is_memfd_of_context(std::string_view file);

}  // namespace ctxconf::conformance
