// Compares two vectors by their fields, for people; never by bytes.
#pragma once

#include <string>
#include <vector>

#include "golden/vector.h"

namespace ctxconf::golden {

// One line per field: "header.payload_size = 68", "payload.resource.attributes.key =
// \"service.name\"". Contains everything that the vector says except its id. Printable, except for
// texts of people.
std::vector<std::string> field_lines(const Vector& vector);

// The lines that only one of them has, in their order: "- " for `a`, "+ " for `b`. Empty if they
// say the same.
std::vector<std::string> diff(const Vector& a, const Vector& b);

}  // namespace ctxconf::golden
