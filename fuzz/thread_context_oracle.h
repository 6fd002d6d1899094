// What has to hold when a thread record becomes a context, is read as a draft, or is printed.
#pragma once

#include <cstddef>
#include <span>

namespace ctxconf::fuzz {

// `input`: one byte with the number of keys in the map (255: 256), one byte that says what is
// tried (ContextMode + 3 * RecordPlace), and the bytes that can be read from the record's address
// on. Aborts where something does not hold.
enum class ContextMode { kEncoder, kReader, kLayouts };
enum class RecordPlace {
  kPlain,
  kNull,  // the slot is null
  kOdd,   // the record is at an odd address
  kSlotUnreadable,
  kEndOfMemory,        // the fixed part reaches the last address there is
  kWithoutAttributes,  // readable, and not asked for
};
void check_thread_context(std::span<const std::byte> input);

}  // namespace ctxconf::fuzz
