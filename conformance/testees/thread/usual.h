// What the programs with thread contexts publish and attach unless the case changes it.
#pragma once

#include <cstddef>
#include <vector>

#include "conformance/testees/writer/protobuf.h"
#include "conformance/testees/writer/record.h"

namespace ctxconf::testees {

// Reference data

using Names = std::vector<Bytes>;

Names usual_names();  // not in the order of the alphabet
Bytes array_of(const Names& names);

constexpr const char* kDevelopmentSchema = "tlsdesc_v1_dev";
constexpr const char* kGoSchema = "go_pprof_labels_v1";

Bytes version_entry(const Bytes& any_value);
Bytes map_entry(const Bytes& any_value);
std::vector<Bytes> reference_data(const Names& names, const Bytes& version = kDevelopmentSchema);

Bytes context_with(const std::vector<Bytes>& attributes,
                   const std::vector<Bytes>& more_resource = {});
Bytes usual_message();

// Records

Bytes two_bytes(std::size_t value);

struct Record {
  Bytes trace = Bytes("\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36", 16);
  Bytes span = Bytes("\xb7\xad\x6b\x71\x69\x20\x33\x31", 8);
  char valid = 1;
  char flags = 1;
  std::vector<Bytes> entries;

  Bytes area() const {
    Bytes out;
    for (const auto& e : entries) out += e;
    return out;
  }
  // The fixed part has `size`, whatever follows.
  Bytes with(std::size_t size, const Bytes& area) const {
    return trace + span + valid + flags + two_bytes(size) + area;
  }
  Bytes bytes() const { return with(area().size(), area()); }
};

// One for the main thread, one for a thread that sleeps, one for a thread that does not.
std::vector<Record> usual_records();
std::vector<Bytes> bytes_of(const std::vector<Record>& records);
std::vector<Bytes> usual_bytes();

// Makes the same change in each of the usual records.
template <class Change>
std::vector<Bytes> usual_with(const Change& change) {
  auto records = usual_records();
  for (auto& r : records) change(r);
  return bytes_of(records);
}

// A record gets its own block with zeros after it, which is never freed.
char* in_block(const Bytes& bytes);

}  // namespace ctxconf::testees
