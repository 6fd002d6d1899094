// Copies the payload of a process context between two looks at its header.
#pragma once

#include <cstdint>
#include <optional>

#include "conformance/testees/reader/header.h"
#include "conformance/testees/reader/memory.h"
#include "conformance/testees/reader/payload.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kCopyChoices;

constexpr std::uint32_t kPayloadLimit = std::uint32_t{1} << 20U;
std::uint32_t payload_limit();

enum class CopyResult {
  kGood,
  kChanging,  // it is being changed
  kBad,       // it cannot be used
};

// What a broken reader keeps of a process.
struct CopyMemory {
  std::optional<Header> first;  // the first header that was good
  bool given_up = false;
};

// `first` has a timestamp; `mappings` are those of the process.
CopyResult copy_message(const Memory& memory, const HeaderLocation& location, Header first,
                        const Mappings& mappings, CopyMemory& kept, Message& out);

}  // namespace ctxconf::testees
