// The picture of an operation as a part of the HTML report: SVG with its explanation, and the same
// as a table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "conformance/report/run_result.h"

namespace ctxconf::conformance {

// Markup, of bounded size. `wrong` is what is wrong with the marked step; empty: nothing is.
// It may be hostile.
std::string operation_figure(const OperationPicture& picture, std::string_view wrong);

}  // namespace ctxconf::conformance
