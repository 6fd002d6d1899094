// For tests: parts of contexts, and memory that has them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "reader_ref/process_context.h"

namespace ctxconf::reader {

inline opentelemetry::proto::common::v1::AnyValue* add(KeyValues* attributes,
                                                       const std::string& key) {
  auto* a = attributes->Add();
  a->set_key(key);
  return a->mutable_value();
}

inline void put(sys::SnapshotMemory& memory, std::uint64_t at, const std::string& bytes) {
  memory.put(sys::RemoteAddr(at), std::as_bytes(std::span(bytes)));
}

}  // namespace ctxconf::reader
