#include "conformance/evidence/memory_calls.h"

#include <sys/mman.h>

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kMemfdLink = "/memfd:";

}  // namespace

bool maps_anonymously(const SystemCall& mmap) { return (mmap.args[3] & MAP_ANONYMOUS) != 0; }

bool is_memfd(std::string_view file) { return file.starts_with(kMemfdLink); }

bool is_memfd_of_context(std::string_view file) {
  return is_memfd(file) && looks_like_the_name(file.substr(kMemfdLink.size()));
}

}  // namespace ctxconf::conformance
