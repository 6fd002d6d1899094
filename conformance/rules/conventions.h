// The attribute names that the semantic conventions define for resources, and
// which of them a key was probably meant to be.
#pragma once

#include <string_view>

namespace ctxconf::conformance {

// The conventional name that differs from `key` only in case, separators or one
// letter; empty when the key is conventional itself or resembles none.
std::string_view conventional_name_near(std::string_view key);

// Whether two keys differ only in case and separators, which no slip of the pen explains better.
bool is_same_name(std::string_view a, std::string_view b);

}  // namespace ctxconf::conformance
