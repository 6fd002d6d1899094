// Two vectors compared by their fields, for people; never by bytes.
#pragma once

#include <string>
#include <vector>

#include "golden/vector.h"

namespace ctxconf::golden {

// A line a field: "header.payload_size = 68", "payload.resource.attributes.key = \"service.name\"".
// Everything that the vector says is in it, but its id. Printable, except for texts of people.
std::vector<std::string> field_lines(const Vector& vector);

// The lines that only one of them has, in their order: "- " of `a`, "+ " of `b`. Empty when
// they say the same.
std::vector<std::string> diff(const Vector& a, const Vector& b);

}  // namespace ctxconf::golden
