// The attribute names that the semantic conventions define for resources, and
// which of them a key was probably meant to be.
#pragma once

#include <string_view>

namespace ctxconf::conformance {

// The conventional name that differs from `key` only in case, separators or one
// letter; empty when the key is conventional itself or resembles none.
std::string_view conventional_name_near(std::string_view key);

}  // namespace ctxconf::conformance
