// The header of a process context: 32 bytes at the start of its mapping.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "conformance/testees/reader/mappings.h"
#include "conformance/testees/reader/memory.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kHeaderChoices;

// Whether the reader also knows the draft with a header of 24 bytes and a payload of msgpack.
bool reads_first_draft();

struct Header {
  std::array<char, 8> signature{};
  std::uint32_t version = 0;
  std::uint32_t size = 0;
  std::uint64_t timestamp = 0;
  std::uint64_t pointer = 0;
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(sizeof(Header) == 32);

// Where a header is: at the start of this mapping of the process.
struct HeaderLocation {
  pid_t pid = 0;
  Mapping mapping;
};

std::optional<Header> copy_header(const Memory& memory, const HeaderLocation& location);
// Whether it has the signature and a version that this reader knows.
bool is_context(const Header& header);
// Whether the reader would use a context with this timestamp, which is not zero.
bool is_plausible(const Header& header, pid_t pid);
// Whether nothing was changed from the first look at a header to the second.
bool is_unchanged(const Header& first, const Header& second);

}  // namespace ctxconf::testees
