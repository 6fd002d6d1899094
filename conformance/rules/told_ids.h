// The ids in records of a program that nobody drives, compared with those that it was told or
// prints.
#pragma once

#include <cstdint>
#include <string>

#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

// An id in the fixed part of a record.
struct IdField {
  const char* name;
  std::uint64_t offset;
  std::uint64_t length;
  std::string (*shown)(const Record&);  // lower-case hexadecimal
};
extern const IdField kTraceIdField;
extern const IdField kSpanIdField;

// The wrong order in which `shown` has the bytes of `id`: ", in reverse order"; empty: no such
// order.
std::string order_of(const std::string& id, const std::string& shown);

Finding trace_id_as_told(const ImageEvidence& evidence);
Finding span_id_as_told(const ImageEvidence& evidence);

}  // namespace ctxconf::conformance
