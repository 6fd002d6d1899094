// The style and the script of the HTML report as of the build. cmake/embed_text.cmake generates the
// definition.
#pragma once

#include "conformance/requirements/builtin_files.h"

namespace ctxconf::conformance {

std::span<const BuiltinFile> page_parts();  // "report/page.css", "report/page.js"

}  // namespace ctxconf::conformance
