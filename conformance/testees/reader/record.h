// A record of OTEP 4947: copied as its reader finds it, and parsed later.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {

extern const Choices kRecordChoices;

constexpr std::size_t kFixedSize = 28;

// Names by index; nothing: an element without a usable name.
using KeyMap = std::vector<std::optional<std::string>>;

struct RecordCopy {
  std::array<std::uint8_t, kFixedSize> fixed{};
  std::vector<std::uint8_t> attributes;
};

// Copies `size` bytes from this offset of the record on: all of them, or returns false.
using CopyBytes = std::function<bool(std::size_t offset, void* to, std::size_t size)>;

enum class CopyState {
  kValid,
  kNotValid,
  kUnreadable,
  kFailed,  // what a broken reader takes for an error
};
CopyState copy_record(const CopyBytes& copy, RecordCopy& out);

struct Record {
  bool is_dropped = false;
  std::optional<std::string> trace_id;  // hexadecimal digits
  std::optional<std::string> span_id;
  unsigned flags = 0;
  std::map<std::string, std::string> attributes;
  bool has_unknown = false;  // an index that has no name
};
Record parse_record(const RecordCopy& copy, const KeyMap& names);

}  // namespace ctxconf::testees
