#include "conformance/testees/reader/header.h"

#include <endian.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace ctxconf::testees {
namespace {

constexpr Choice kBadHeader[] = {
    {"pctx.reader.signature-eight-bytes", "compares seven bytes"},
    {"pctx.reader.signature-eight-bytes:case", "takes small letters as well"},
    {"pctx.reader.version-supported", "compares the lower 16 bits of the version"},
    {"pctx.reader.version-supported:byte", "compares the first byte of the version"},
    {"pctx.reader.version-supported:newer", "takes newer versions as well"},
    {"pctx.reader.version-supported:both-orders", "takes the version in both byte orders"},
    {"pctx.reader.version-supported:draft", "reads the draft H1, and does not say so"},
    {"pctx.reader.timestamp-before-fields", "reads the fields first and both timestamps later"},
    {"pctx.reader.any-difference-counts", "retries only if the timestamp has grown"},
    {"pctx.reader.any-difference-counts:zero", "takes a zero at the second look for no change"},
    {"pctx.reader.any-difference-counts:fields",
     "compares pointer and size alone, and notices zero"},
    {"pctx.reader.any-difference-counts:lower-half", "compares the lower half of the timestamp"},
    {"pctx.reader.any-difference-counts:maximum", "takes the largest number for no change"},
    {"pctx.reader.timestamp-opaque", "refuses a timestamp in the future"},
    {"pctx.reader.timestamp-opaque:signed", "takes the timestamp for a signed number"},
    {"pctx.reader.timestamp-opaque:old", "refuses a timestamp before the start of the process"},
    {"pctx.reader.reads-memory-not-file",
     "reads the header from the file of the mapping where it has one"},
    {"pctx.reader.fallible-remote-reads",
     "maps the file of the mapping and looks at it there first"},
    {"pctx.reader.byte-order", "takes the numbers for little-endian ones"},
    {"pctx.reader.thirty-two-bit-target",
     "reads four bytes at offset 20 for the pointer of a header below 4 GiB"},
};

constexpr Choice kGoodHeader[] = {
    {"separate-reads", "reads the fields of the header one by one, the timestamp first"},
    {"accepts-version-1", "takes contexts of version 1"},
    {"first-draft", "declares and reads the draft H1"},
};

constexpr std::string_view kSignature = "OTEL_CTX";
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kOtherVersion = 1;  // of the draft H1, and for development
constexpr std::uint64_t kNanoseconds = 1'000'000'000;

}  // namespace

const Choices kHeaderChoices{kBadHeader, kGoodHeader};

bool reads_first_draft() {
  return is_good("first-draft") || is_bad("pctx.reader.version-supported:draft");
}

namespace {

constexpr std::size_t kSizeAt = offsetof(Header, size);
constexpr std::size_t kTimestampAt = offsetof(Header, timestamp);
constexpr std::size_t kPointerAt = offsetof(Header, pointer);

std::string file_of(const HeaderLocation& location) {
  std::array<char, 80> path{};
  snprintf(path.data(), path.size(), "/proc/%d/map_files/%lx-%lx", location.pid,
           static_cast<unsigned long>(location.mapping.begin),
           static_cast<unsigned long>(location.mapping.end));
  return path.data();
}

bool copy_from_file(const HeaderLocation& location, Header& out) {
  const int fd = open(file_of(location).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto offset = static_cast<off_t>(location.mapping.offset);
  const bool whole = pread(fd, &out, sizeof out, offset) == sizeof out;
  close(fd);
  return whole && out.timestamp != 0;
}

// What is there without a copy.
bool look_at_file(const HeaderLocation& location, Header& out) {
  const int fd = open(file_of(location).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const auto size = location.mapping.end - location.mapping.begin;
  const auto offset = static_cast<off_t>(location.mapping.offset);
  struct stat file{};
  const bool is_long = fstat(fd, &file) == 0 && file.st_size >= offset + off_t{sizeof out};
  void* const memory =
      is_long ? mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, offset) : MAP_FAILED;
  close(fd);
  if (memory == MAP_FAILED) return false;
  std::memcpy(&out, memory, sizeof out);
  munmap(memory, size);
  return out.timestamp != 0;
}

bool copy_in_parts(const Memory& memory, std::uint64_t at, Header& out) {
  constexpr std::size_t kIdentity = kSizeAt;  // bytes of signature and version
  const auto timestamp = [&] {
    return memory.copy(at + kTimestampAt, &out.timestamp, sizeof out.timestamp);
  };
  const bool late = is_bad("pctx.reader.timestamp-before-fields");
  return memory.copy(at, &out, kIdentity) && (late || timestamp()) &&
         memory.copy(at + kSizeAt, &out.size, sizeof out.size) &&
         memory.copy(at + kPointerAt, &out.pointer, sizeof out.pointer) && (!late || timestamp());
}

bool copy_any_header(const Memory& memory, const HeaderLocation& location, Header& out) {
  const std::uint64_t at = location.mapping.begin;
  if (is_bad("pctx.reader.reads-memory-not-file") && copy_from_file(location, out)) return true;
  if (is_bad("pctx.reader.fallible-remote-reads")) (void)look_at_file(location, out);
  if (is_good("separate-reads") || is_bad("pctx.reader.timestamp-before-fields")) {
    return copy_in_parts(memory, at, out);
  }
  return memory.copy(at, &out, sizeof out);
}

std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * kNanoseconds +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t start_ns_of(pid_t pid) {
  return start_ticks_of(pid) * (kNanoseconds / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)));
}

bool has_signature(const Header& header) {
  const char* const bytes = header.signature.data();
  if (is_bad("pctx.reader.signature-eight-bytes")) {
    return std::memcmp(bytes, kSignature.data(), 7) == 0;
  }
  if (is_bad("pctx.reader.signature-eight-bytes:case")) {
    return strncasecmp(bytes, kSignature.data(), kSignature.size()) == 0;
  }
  return std::memcmp(bytes, kSignature.data(), kSignature.size()) == 0;
}

bool has_version(std::uint32_t version) {
  if (is_bad("pctx.reader.version-supported")) return (version & 0xffffU) == kVersion;
  if (is_bad("pctx.reader.version-supported:byte")) return (version & 0xffU) == kVersion;
  if (is_bad("pctx.reader.version-supported:newer")) return version >= kVersion;
  if (is_bad("pctx.reader.version-supported:both-orders") &&
      __builtin_bswap32(version) == kVersion) {
    return true;
  }
  return version == kVersion ||
         (version == kOtherVersion && (is_good("accepts-version-1") || reads_first_draft()));
}

}  // namespace

std::optional<Header> copy_header(const Memory& memory, const HeaderLocation& location) {
  Header out;
  if (!copy_any_header(memory, location, out)) return std::nullopt;
  if (is_bad("pctx.reader.byte-order")) {
    out.version = le32toh(out.version);
    out.size = le32toh(out.size);
    out.timestamp = le64toh(out.timestamp);
    out.pointer = le64toh(out.pointer);
  }
  if (is_bad("pctx.reader.thirty-two-bit-target") && location.mapping.end <= UINT32_MAX) {
    // Reads as if the timestamp were packed next to a pointer of four bytes.
    std::uint32_t pointer = 0;
    if (!memory.copy(location.mapping.begin + 20, &pointer, sizeof pointer)) return std::nullopt;
    out.pointer = pointer;
  }
  if (reads_first_draft() && out.version == kOtherVersion) {
    // It has no timestamp, and the pointer in its place.
    out.pointer = std::exchange(out.timestamp, 1);
  }
  return out;
}

bool is_context(const Header& header) {
  return has_signature(header) && has_version(header.version);
}

bool is_plausible(const Header& header, pid_t pid) {
  if (is_bad("pctx.reader.timestamp-opaque")) return header.timestamp <= now_ns();
  if (is_bad("pctx.reader.timestamp-opaque:old")) return header.timestamp >= start_ns_of(pid);
  return !is_bad("pctx.reader.timestamp-opaque:signed") ||
         static_cast<std::int64_t>(header.timestamp) > 0;
}

bool is_unchanged(const Header& first, const Header& second) {
  if (is_bad("pctx.reader.any-difference-counts")) return second.timestamp <= first.timestamp;
  if (is_bad("pctx.reader.any-difference-counts:zero") && second.timestamp == 0) return true;
  if (is_bad("pctx.reader.any-difference-counts:maximum") && second.timestamp == UINT64_MAX) {
    return true;
  }
  Header compared = second;
  if (is_bad("pctx.reader.any-difference-counts:fields") && second.timestamp != 0) {
    compared.timestamp = first.timestamp;
  }
  if (is_bad("pctx.reader.any-difference-counts:lower-half")) {
    constexpr std::uint64_t kLower = UINT32_MAX;
    compared.timestamp = (first.timestamp & ~kLower) | (second.timestamp & kLower);
  }
  return first == compared;
}

}  // namespace ctxconf::testees
