// For tests: the golden vectors of this source tree, and the values to compare with them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "golden/vector.h"

namespace ctxconf::golden {

// Empty, and the test fails, if they cannot be read.
inline std::vector<Vector> vectors_of(Kind kind) {
  auto loaded = load_vectors(CTXCONF_SOURCE_DIR "/golden", kind);
  EXPECT_TRUE(loaded) << loaded.error();
  return std::move(loaded).value_or(std::vector<Vector>());
}

// A reader without a context cannot tell whether there was one.
inline bool allows_none(const Vector& v) {
  return v.allows(Result::kAbsent) || v.allows(Result::kReject);
}

// The process context for a record: its key map and its schema.
inline ProcessContextMessage reference_data_of(const ThreadRecordVector& v) {
  ProcessContextMessage message;
  auto* schema = message.add_attributes();
  schema->set_key(std::string(abi::kSchemaVersionKey));
  schema->mutable_value()->set_string_value(v.schema);
  auto* keys = message.add_attributes();
  keys->set_key(std::string(abi::kAttributeKeyMapKey));
  auto* names = keys->mutable_value()->mutable_array_value();
  for (const auto& name : v.key_map) names->add_values()->set_string_value(name);
  return message;
}

// Two digits per byte, as in the ids of vectors.
template <class Bytes>
std::string hex(const Bytes& bytes) {
  std::string out;
  for (const auto byte : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return out;
}

}  // namespace ctxconf::golden
