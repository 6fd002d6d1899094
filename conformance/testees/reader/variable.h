// Finds otel_thread_ctx_v1 in the ELF files of a process, and its address for one thread. Reads the
// files where they are mapped, so that it does not matter what they are called and whether they
// still exist.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "conformance/testees/reader/mappings.h"
#include "conformance/testees/reader/memory.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kVariableChoices;

// One way in which the program gets at the variable.
struct Access {
  enum class How {
    kLocalExec,   // `offset` from the thread pointer
    kOffset,      // the word at `got` is the offset from the thread pointer
    kDescriptor,  // at `got`: a TLS descriptor
    kModule,      // at `got`: module and offset, for the dynamic thread vector
  };
  How how = How::kLocalExec;
  std::uint64_t got = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const Access&, const Access&) = default;
};

std::vector<Access> find_variable(pid_t pid, const Memory& memory, const Mappings& mappings);

enum class SlotState {
  kFound,
  kNoBlock,  // the thread has no such block yet
  kFailed,   // what a broken reader takes for an error
};
SlotState slot_address(const Memory& memory, const Access& access, std::uint64_t thread_pointer,
                       std::uint64_t& out);

}  // namespace ctxconf::testees
