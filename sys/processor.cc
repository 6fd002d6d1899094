#include "sys/processor.h"

#include <elf.h>

#include <algorithm>
#include <array>

namespace ctxconf::sys {
namespace {

constexpr auto kProcessors = std::to_array<Processor>({
    {.machine = EM_X86_64,
     .name = "x86-64",
     .uname = "x86_64",
     .keeps_store_order = true,
     .knows_tls_relocations = true,
     .shows_local_dynamic = true,
     .vector_at = 8,
     .tlsdesc_option = "-mtls-dialect=gnu2"},
    {.machine = EM_AARCH64,
     .name = "aarch64",
     .uname = "aarch64",
     .knows_tls_relocations = true,
     .tlsdesc_option = "-mtls-dialect=desc"},
    {.machine = EM_386, .name = "i386"},
    {.machine = EM_ARM, .name = "arm"},
});

constexpr Processor kUnknown;

const Processor& processor_with(auto member, auto value) {
  const auto it = std::ranges::find(kProcessors, value, member);
  return it == kProcessors.end() ? kUnknown : *it;
}

}  // namespace

const Processor& processor_of_elf(std::uint16_t machine) {
  return processor_with(&Processor::machine, machine);
}

const Processor& processor_of_uname(std::string_view name) {
  return name.empty() ? kUnknown : processor_with(&Processor::uname, name);
}

}  // namespace ctxconf::sys
