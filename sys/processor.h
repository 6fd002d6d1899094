// What holds of the processor that an ELF file or a recording names. This program may run on
// another one.
#pragma once

#include <cstdint>
#include <string_view>

namespace ctxconf::sys {

struct Processor {
  std::uint16_t machine = 0;  // EM_* of <elf.h>
  std::string_view name;      // to print
  std::string_view uname;     // what `uname -m` prints
  // Another processor sees its stores in the order of the program, even without a barrier.
  bool keeps_store_order = false;
  // The relocations with which code reaches a thread-local variable are known.
  bool knows_tls_relocations = false;
  // Its code shows whether such a relocation is for local dynamic: ctxconf can read it.
  bool shows_local_dynamic = false;
  const char* tlsdesc_option = "";  // the option of compilers for TLSDESC
};

// The processor without a name, of which nothing holds, if this one is not known.
const Processor& processor_of_elf(std::uint16_t machine);
const Processor& processor_of_uname(std::string_view name);

}  // namespace ctxconf::sys
