// SHA-256 of what reports have to name by its digest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

using Digest = std::array<std::uint8_t, 32>;
Digest sha256(std::string_view text);

// "sha256-" and base64: a script or style in a Content-Security-Policy.
std::string policy_hash(std::string_view text);

}  // namespace ctxconf::conformance
