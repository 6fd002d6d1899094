// What has to hold for any text that is taken for that of /proc/PID/maps.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: the text. Behind a first byte 1, which is no part of it, each byte 1 stands for 8000
// letters, so that long lines are a few bytes and few inputs have them. Aborts where something does
// not hold.
void check_maps(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
