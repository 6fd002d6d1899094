// An ELF file, and what ctxconf reports about its thread context variable.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/elf/elf_facts.h"
#include "conformance/evidence/timeline.h"
#include "fuzz/agree.h"
#include "sys/c_library.h"
#include "sys/elf_image.h"
#include "sys/fd.h"

namespace {

using namespace ctxconf;
using namespace ctxconf::fuzz;
using conformance::ModuleFacts;

// A second reader of the program headers, from the tables of the System V ABI, byte by byte.
class SlowElf {
 public:
  explicit SlowElf(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool is_64() const { return byte(EI_CLASS) == ELFCLASS64; }
  // Nothing: a section header has the count.
  std::optional<std::vector<sys::ElfSegment>> segments() const {
    const std::uint64_t count = is_64() ? number(56, 2) : number(44, 2);
    if (count == PN_XNUM) return std::nullopt;
    std::vector<sys::ElfSegment> out;
    const std::uint64_t first = is_64() ? number(32, 8) : number(28, 4);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = first + i * (is_64() ? 56 : 32);
      if (is_64()) {
        out.push_back({field(at, 4), field(at + 4, 4), number(at + 8, 8), number(at + 16, 8),
                       number(at + 32, 8), number(at + 40, 8), number(at + 48, 8)});
      } else {
        out.push_back({field(at, 4), field(at + 24, 4), number(at + 4, 4), number(at + 8, 4),
                       number(at + 16, 4), number(at + 20, 4), number(at + 28, 4)});
      }
    }
    return out;
  }

 private:
  std::uint8_t byte(std::uint64_t at) const {
    FUZZ_CHECK(at < bytes_.size());  // an accepted file has its headers
    return std::to_integer<std::uint8_t>(bytes_[at]);
  }
  std::uint64_t number(std::uint64_t at, unsigned size) const {
    std::uint64_t out = 0;
    for (unsigned i = 0; i < size; ++i) {
      const bool little = byte(EI_DATA) == ELFDATA2LSB;
      out |= std::uint64_t{byte(at + i)} << 8U * (little ? i : size - 1 - i);
    }
    return out;
  }
  std::uint32_t field(std::uint64_t at, unsigned size) const {
    return static_cast<std::uint32_t>(number(at, size));
  }

  std::span<const std::byte> bytes_;
};

void check_headers(const sys::ElfImage& image, std::span<const std::byte> bytes) {
  const SlowElf slow(bytes);
  FUZZ_CHECK(image.is_64() == slow.is_64());
  if (const auto segments = slow.segments()) FUZZ_CHECK(image.segments() == *segments);
  const sys::ElfSegment* tls = nullptr;
  for (const auto& segment : image.segments()) {
    if (segment.type == PT_TLS) tls = &segment;
  }
  const bool has_tls = tls != nullptr && tls->memory_size != 0;
  FUZZ_CHECK(image.tls_segment().has_value() == has_tls);
  if (has_tls) FUZZ_CHECK(*image.tls_segment() == *tls);
}

void check_symbols(const sys::Result<std::vector<sys::ElfSymbol>>& symbols) {
  if (!symbols) {
    FUZZ_CHECK(!sys::to_string(symbols.error()).empty());
    return;
  }
  for (const auto& symbol : *symbols) FUZZ_CHECK(symbol.name == abi::kThreadSlotSymbol);
}

// The bytes at an address are the same, however many are requested.
void check_reading(const sys::ElfImage& image) {
  std::array<std::byte, 64> whole;
  std::array<std::byte, 64> parts;
  for (const auto& segment : image.segments() | std::views::take(4)) {
    for (const std::uint64_t at : {segment.address, segment.address + segment.file_size - 32,
                                   segment.address + segment.memory_size - 32}) {
      const std::size_t size = image.read_at(at, whole);
      FUZZ_CHECK(size <= whole.size());
      for (std::size_t i = 0; i < size; ++i) {
        FUZZ_CHECK(image.read_at(at + i, std::span(parts).subspan(i, 1)) == 1);
      }
      FUZZ_CHECK(std::equal(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size),
                            parts.begin()));
    }
  }
}

// A recording may hold what is said of its C library.
void check_library(const sys::ElfImage& image) {
  const auto library = sys::c_library_in(image);
  FUZZ_CHECK(library ? library->empty() || sys::is_c_library(*library) : library.error().err != 0);
  const std::string interpreter = sys::interpreter_of(image);
  FUZZ_CHECK(interpreter.size() <= 4096 && !interpreter.contains('\0'));
  FUZZ_CHECK(!image.has_interpreter() || !sys::is_musl(image));
}

// A recording must contain what was found.
void check_recorded(const ModuleFacts& facts) {
  conformance::Timeline timeline;
  timeline.mode = conformance::Mode::kElf;
  auto& process = timeline.processes.emplace_back();
  process.pid = 1;
  process.images.emplace_back().key.pid = 1;
  process.images.front().modules = {facts};
  const auto again = conformance::timeline_from_json(conformance::to_json(timeline));
  FUZZ_CHECK(again.has_value());
  ModuleFacts same = again->processes.front().images.front().modules.front();
  // Only the size and position of the segment are recorded.
  if (facts.tls) same.tls = facts.tls;
  FUZZ_CHECK(same == facts);
}

// A file on disk is read as memory is.
void check_file(std::span<const std::byte> bytes, const sys::ElfImage& same,
                const ModuleFacts& facts) {
  const sys::Fd file(memfd_create("file", MFD_CLOEXEC));
  FUZZ_CHECK(file.is_open());
  FUZZ_CHECK(write(file.get(), bytes.data(), bytes.size()) == std::ssize(bytes));
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  const auto identity = sys::file_identity(path);
  FUZZ_CHECK(identity.has_value() && identity->size == bytes.size());
  const auto image = sys::ElfImage::open(path, "file", nullptr, *identity);
  FUZZ_CHECK(image.has_value());
  FUZZ_CHECK(image->segments() == same.segments());
  FUZZ_CHECK(conformance::module_facts(*image, "file", image->is_executable()) == facts);
  sys::FileIdentity other = *identity;
  ++other.size;
  FUZZ_CHECK(!sys::ElfImage::open(path, "file", nullptr, other));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto image = sys::ElfImage::from_memory(bytes, "file");
  if (!image) {
    FUZZ_CHECK(!image.error().detail.empty());
    return 0;
  }
  check_headers(*image, bytes);
  check_reading(*image);
  check_library(*image);
  check_symbols(image->dynamic_symbols(abi::kThreadSlotSymbol));
  check_symbols(image->static_symbols(abi::kThreadSlotSymbol));
  FUZZ_CHECK(image->build_id().find_first_not_of("0123456789abcdef") == std::string::npos);
  (void)image->soname();
  const ModuleFacts facts = conformance::module_facts(*image, "file", image->is_executable());
  check_recorded(facts);
  check_file(bytes, *image, facts);

  // With a small budget there is less, or the same.
  sys::ElfLimits little;
  little.time = std::chrono::hours(1);
  little.bytes = size;
  const auto poor =
      sys::ElfImage::from_memory(bytes, "file", std::make_shared<sys::ElfBudget>(little));
  if (poor) {
    const ModuleFacts part = conformance::module_facts(*poor, "file", poor->is_executable());
    FUZZ_CHECK(part.dynamic_symbols.empty() || part.dynamic_symbols == facts.dynamic_symbols);
  }
  return 0;
}
