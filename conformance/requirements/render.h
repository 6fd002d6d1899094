// The catalogue as text: `ctxconf list`, `ctxconf explain` and docs/requirements.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/requirements/catalogue.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// All requirements of these revisions, with any role and level, in the catalogue's order.
std::vector<const Requirement*> requirements_of(const Catalogue& catalogue,
                                                const SpecSelection& spec);
// Every built-in revision.
SpecSelection all_specs(const Catalogue& catalogue);

// One line per requirement, and a last line with their number.
std::string list_text(std::span<const Requirement* const> requirements);
// An array with one object per requirement.
std::string list_json(std::span<const Requirement* const> requirements);
// Everything about one requirement. For an unknown id the error (EINVAL) names the nearest one.
sys::Result<std::string> explain(const Catalogue& catalogue, std::string_view id);
// docs/requirements.md
std::string requirements_markdown(const Catalogue& catalogue);

}  // namespace ctxconf::conformance
