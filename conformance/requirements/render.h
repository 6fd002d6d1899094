// The catalogue as text: `ctxconf list`, `ctxconf explain` and docs/requirements.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/requirements/catalogue.h"
#include "sys/result.h"

namespace ctxconf::conformance {

// All rows of these sets, whatever their role and level, in the catalogue's order.
std::vector<const Requirement*> rows_of(const Catalogue& catalogue, const SpecSelection& spec);
// Every set that is built in.
SpecSelection all_specs(const Catalogue& catalogue);

// One line a row, and a last line with their number.
std::string list_text(std::span<const Requirement* const> rows);
// An array with one object a row.
std::string list_json(std::span<const Requirement* const> rows);
// All that is known of a row; the error (EINVAL) for an unknown id names the nearest one.
sys::Result<std::string> explain(const Catalogue& catalogue, std::string_view id);
// docs/requirements.md
std::string requirements_markdown(const Catalogue& catalogue);

}  // namespace ctxconf::conformance
