// What has to hold for any text that is taken for that of /proc/PID/maps.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: the text; each byte 1 in it stands for 8000 letters, so that long lines are a few
// bytes. Aborts where something does not hold.
void check_maps(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
