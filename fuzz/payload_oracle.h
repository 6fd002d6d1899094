// What must hold for any bytes used as a payload.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: the payload. Aborts if a check fails. The first function checks the walk over the wire
// format, which needs no library; the second checks what decodes with protobuf.
void check_payload_walk(std::span<const std::byte> input);
void check_payload_decoders(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
