// Makes long texts from few bytes, to test limits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ctxconf::fuzz {

// The letter of the runs: the hash of glibc's memmem() takes other runs, such as of "x", for a part
// of "OTEL_CTX", and compares at each byte.
inline constexpr char kRunOf = 'y';

// Sets `text` to `input` with `run` letters for each byte 1. Stops after a run that makes it longer
// than `most`.
inline void expand(std::string_view input, std::size_t run, std::size_t most, std::string& text) {
  text.clear();
  for (auto at = input.find('\x01'); at != input.npos; at = input.find('\x01')) {
    text += input.substr(0, at);
    text.append(run, kRunOf);
    input.remove_prefix(at + 1);
    if (text.size() > most) return;
  }
  text += input;
}

}  // namespace ctxconf::fuzz
