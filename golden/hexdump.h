// Bytes next to their meaning, for reviewers: one line per field, masked bytes as dots.
//
//   000008  02 00 00 00                 version = 2
//   000010  .. .. .. .. .. .. .. ..     monotonic_published_at_ns: u64 != 0 && ...
//
// All text is printable ASCII; values are quoted and shortened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "golden/vector.h"

namespace ctxconf::golden {

// The meaning of a run of bytes. The runs of one dump follow each other without gaps.
struct Annotation {
  std::size_t offset = 0;
  std::size_t length = 0;
  std::string text;  // "version = 2"; for a masked field its rule
  bool masked = false;
  std::size_t depth = 0;  // of the message that contains the field
};
std::vector<Annotation> annotate_header(abi::HeaderLayout layout, std::string_view header,
                                        const std::vector<Mask>& masks);
std::vector<Annotation> annotate_record(std::string_view record, const std::vector<Mask>& masks,
                                        std::string_view layout = "T3");
// Reads the payload as a ProcessContext, as far as it is one.
std::vector<Annotation> annotate_payload(std::string_view payload);

// Shortens fields of more than `kMostFieldLines` lines, and says so.
inline constexpr std::size_t kMostFieldLines = 8;
std::vector<std::string> dump_lines(std::string_view bytes,
                                    const std::vector<Annotation>& annotations);

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// The found bytes, field by field next to the expected bytes, with the differing bytes marked.
// Masked bytes differ if they are `at_fault`. Equal fields take one line. At most `most_lines`.
//
//   000008  02 00 00 00                 version = 2
//    found  03 00 00 00
//           ^^
std::vector<std::string> compare_lines(std::string_view expected, std::string_view found,
                                       const std::vector<Annotation>& annotations,
                                       const std::vector<ByteRange>& at_fault,
                                       std::size_t most_lines);

// The text of NAME.hex; empty for maps texts, which need none.
std::string hexdump(const Vector& vector);

}  // namespace ctxconf::golden
