// The picture of an operation in the HTML report: SVG with an explanation, and the same as a table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "conformance/verdict/run_result.h"

namespace ctxconf::conformance {

// Markup of bounded size. `wrong` is the problem of the marked step, or empty; it may be hostile.
std::string operation_figure(const OperationPicture& picture, std::string_view wrong);

}  // namespace ctxconf::conformance
