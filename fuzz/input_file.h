// The input of a fuzz target as a file, for what reads files.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "fuzz/check.h"
#include "sys/code_location.h"

namespace ctxconf::fuzz {

// One file for all inputs: the next call overwrites it.
inline sys::HeldFile input_file(std::span<const std::byte> bytes) {
  static const int fd = memfd_create("input", MFD_CLOEXEC);
  FUZZ_CHECK(fd >= 0);
  FUZZ_CHECK(ftruncate(fd, 0) == 0);
  FUZZ_CHECK(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  auto file = sys::HeldFile::open("/proc/self/fd/" + std::to_string(fd));
  FUZZ_CHECK(file.has_value());
  return std::move(*file);
}

}  // namespace ctxconf::fuzz
