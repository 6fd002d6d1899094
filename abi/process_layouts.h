// Recognises the draft of OTEP 4719 from which bytes come: the header layouts that have been in
// use, and the procedure that tells them apart. No I/O: callbacks answer questions about the
// process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace ctxconf::abi {

// H4 and H5 have the same bytes; kH5 stands for both.
enum class HeaderLayout { kUnknown, kH0, kH1, kH2, kH3, kH5, kInProgressSignatureLast };

struct LayoutFields {
  HeaderLayout layout;
  std::string_view id;      // "H3"
  std::string_view in_use;  // "late October to early December 2025"
  // Offsets; -1 if the layout has no such field.
  int version, size, timestamp, pointer;
  std::size_t bytes;  // of the whole header
};
// H0, H1, H2, H3, H5.
std::span<const LayoutFields> header_layouts();
const LayoutFields& fields_of(HeaderLayout layout);  // kUnknown and kInProgress...: those of H5

struct DecodedLayout {
  std::uint32_t version = 0;
  std::uint64_t size = 0;
  std::uint64_t timestamp = 0;
  std::uint64_t pointer = 0;
};
// Zero for fields that the layout lacks or that are beyond `bytes`.
DecodedLayout decode_as(const LayoutFields& layout, std::span<const std::byte> bytes);

enum class PayloadFormat { kUnknown, kP0, kP1, kP2, kP3, kP4 };
std::string_view to_string(PayloadFormat f);  // "P3"
std::string_view describe(PayloadFormat f);   // "bare Resource, December 2025 to mid February 2026"

// A guess from the first bytes, limited to `bytes`; P4 is the merged format. It describes the
// beginning, and does not say that everything can be parsed.
PayloadFormat recognise_payload(std::span<const std::byte> bytes);

struct RecognitionInput {
  std::span<const std::byte> head;    // the first 40 bytes of the mapping, or fewer
  std::uint64_t boottime_now_ns = 0;  // of the writer's clocks; 0 if unknown
  std::uint64_t realtime_now_ns = 0;
  // Whether [address, address + size) is completely readable.
  std::function<bool(std::uint64_t address, std::uint64_t size)> is_mapped;
  // The first bytes of that range (the callee chooses how many), empty if they cannot be read.
  std::function<std::span<const std::byte>(std::uint64_t address, std::uint64_t size)> payload;
};

struct LayoutScore {
  HeaderLayout layout = HeaderLayout::kUnknown;
  int score = 0;
  DecodedLayout fields;
};

struct Recognition {
  HeaderLayout best = HeaderLayout::kUnknown;
  std::array<LayoutScore, 3> scores{};              // H2, H3, H5 if version 2 was found
  std::size_t scored = 0;                           // how many of `scores` are valid
  bool wall_clock = false;                          // the best layout's timestamp is above 1.6e18
  PayloadFormat payload = PayloadFormat::kUnknown;  // at the best layout's pointer
};
Recognition recognise_header(const RecognitionInput& input);

// "this looks like the draft of late October to early December 2025: timestamp at 12, size at 20"
// Static storage; empty for kH5 and kUnknown.
std::string_view describe(HeaderLayout layout);

}  // namespace ctxconf::abi
