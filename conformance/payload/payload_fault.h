// What the walk and the decoding share: a fault in a payload, and the limits of both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ctxconf::conformance {

// A repeated key, a bad string or an index: where it is and what it is, ready to print. The texts
// quote the testee, so they are hostile; they are cut to a printable length.
struct PayloadFault {
  std::string path;                     // "resource.attributes[3].value.kvlist[1].key"
  std::string key;                      // of the attribute concerned
  std::string what;                     // "occurs twice: \"a\", \"b\"" or the offending bytes
  std::optional<std::uint64_t> offset;  // in the payload, where known
};

// Messages beyond the first number are checked but neither listed nor decoded; lists of faults and
// fields stop at the second number.
inline constexpr std::size_t kMaxPayloadItems = std::size_t{1} << 20U;
inline constexpr std::size_t kMaxPayloadListed = 1000;

// Messages nested deeper than this are a fault; protobuf's default limit is the same.
inline constexpr int kMaxPayloadDepth = 100;

}  // namespace ctxconf::conformance
