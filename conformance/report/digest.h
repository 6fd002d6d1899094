// SHA-256 digests in reports.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ctxconf::conformance {

using Digest = std::array<std::uint8_t, 32>;
Digest sha256(std::string_view text);

// The first `size` bytes, two digits each.
std::string hex(const Digest& digest, std::size_t size);

// "sha256-" and base64, as a Content-Security-Policy names a script or style.
std::string policy_hash(std::string_view text);

}  // namespace ctxconf::conformance
