// What has to hold for any bytes that stand where a payload is expected.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: the payload. Aborts where something does not hold. The first checks the walk over the
// wire format, which needs no library; the second what decodes with protobuf.
void check_payload_walk(std::span<const std::byte> input);
void check_payload_decoders(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
