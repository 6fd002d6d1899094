// What must hold for any text used as /proc/PID/maps.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: the text. If its first byte is 1, that byte is skipped and each later byte 1 stands for
// 8000 letters, so that long lines need few bytes and few inputs have them. Aborts if a check
// fails.
void check_maps(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
