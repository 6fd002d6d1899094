// The records of the adapter, and the attributes in them.
#pragma once

#include <cstddef>
#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/writer/choice.h"
#include "conformance/testees/writer/record.h"

namespace ctxconf::testees {

using adapter::json;
using adapter::Refusal;

extern const Choices kRecordChoices;

constexpr std::size_t kRecordBytes = 640;
constexpr std::size_t kLongestValue = 255;
constexpr std::size_t kOwnLimit = 100;

// Whether the valid byte is the switch, and the pointer does not change.
bool uses_valid_byte();

// Never freed: a reader may come late.
char* new_record();

Bytes bytes_of_hex(const std::string& hex);
std::string hex_of(const Bytes& bytes);

struct Content {
  std::string name;
  Bytes trace = Bytes(16, '\0');
  Bytes span = Bytes(8, '\0');
  bool traced = false;
  unsigned flags = 0;
  std::vector<Bytes> entries;
  std::vector<Bytes> first_entries;  // when it began
  bool again = false;                // another one inside it has ended
  bool moved = false;                // from another thread
  char* record = nullptr;            // its own, where the pointer is the switch

  std::size_t size() const {
    std::size_t out = 0;
    for (const auto& e : entries) out += e.size();
    return out;
  }
  // False: it does not fit.
  bool add(Bytes e);
};

// `restored`: the context is there again.
void fill(char* record, const Content& c, bool restored = false);

// Returns nothing for a value that is left out.
std::expected<std::optional<Bytes>, Refusal> value_of(const json& value);
// The name under which an attribute is published.
std::string changed_name(std::string name);
// Returns how many bytes are left of a value that is cut between characters.
std::size_t cut(const Bytes& value, std::size_t most);
// The last entry of each key stays.
void drop_repeated(std::vector<Bytes>& entries);

}  // namespace ctxconf::testees
