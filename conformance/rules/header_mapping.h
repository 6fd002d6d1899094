// Whether a change of a context kept the mapping that holds its header.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "conformance/rules/expected_resource.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

// The recorded calls that were entered after `from` and not after `to`.
std::vector<const SystemCall*> calls_between(const Image& image, std::uint64_t from,
                                             std::uint64_t to);

// A failure if the operation `d` did not keep the header's mapping: it unmapped it, mapped other
// memory there, or put the context elsewhere. The program had the context `was` before `d` and, if
// any, `now` after it. The finding has no signature and begins with `what`. Nothing: the mapping
// was kept, as far as the calls say.
std::optional<Finding> made_anew(std::string_view what, const DrivenOperation& before,
                                 const DrivenOperation& d, const Published& was,
                                 const Published& now);

}  // namespace ctxconf::conformance
