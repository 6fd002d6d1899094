// protocol.schema.json as of the build. cmake/embed_text.cmake generates the definition.
#pragma once

#include <span>

#include "conformance/requirements/builtin_files.h"

namespace ctxconf::conformance {

std::span<const BuiltinFile> builtin_schema();

}  // namespace ctxconf::conformance
