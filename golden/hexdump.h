// Bytes beside their meaning, for reviewers: a line a field, masked bytes as dots.
//
//   000008  02 00 00 00                 version = 2
//   000010  .. .. .. .. .. .. .. ..     monotonic_published_at_ns: u64 != 0 && ...
//
// All text is printable ASCII; values are quoted and cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "golden/vector.h"

namespace ctxconf::golden {

// What a run of bytes is. Those of one dump follow each other without gaps.
struct Annotation {
  std::size_t offset = 0;
  std::size_t length = 0;
  std::string text;  // "version = 2"; behind a masked field its rule
  bool masked = false;
  std::size_t depth = 0;  // of the message that the field stands in
};
std::vector<Annotation> annotate_header(abi::HeaderLayout layout, std::string_view header,
                                        const std::vector<Mask>& masks);
std::vector<Annotation> annotate_record(std::string_view record, const std::vector<Mask>& masks,
                                        std::string_view layout = "T3");
// As a ProcessContext, as far as it is one.
std::vector<Annotation> annotate_payload(std::string_view payload);

// Fields of more than `kMostFieldLines` lines are shortened, and said to be.
inline constexpr std::size_t kMostFieldLines = 8;
std::vector<std::string> dump_lines(std::string_view bytes,
                                    const std::vector<Annotation>& annotations);

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// What was found, field by field beside what was expected, with the differing bytes marked. Masked
// bytes differ where they are `at_fault`. Fields that are the same take one line. At most
// `most_lines`.
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
