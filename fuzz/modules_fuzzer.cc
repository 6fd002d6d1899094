// The mappings and memory of a process, as the search for a thread-local variable sees them: two
// modules of one file, the loader's list, its GOT and the blocks of a thread.
//
// Input: 2 bytes, the size of the memory at kArea; that memory; the ELF file.
#include <elf.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "abi/thread_record.h"
#include "fuzz/check.h"
#include "sys/elf_image.h"
#include "sys/memory_reader.h"
#include "sys/tls_variable.h"

namespace {

using namespace ctxconf;
using sys::RemoteAddr;

constexpr std::uint64_t kArea = 0x70000000;
constexpr std::array<std::uint64_t, 2> kBiases = {0, 0x7f0000000000};
constexpr std::size_t kMostMapped = 65536;

// Words of the memory, without the reader.
class Words {
 public:
  explicit Words(const sys::MemoryReader& memory) : memory_(memory) {}
  std::optional<std::uint64_t> at(std::uint64_t address) const {
    std::uint64_t word = 0;
    const auto read =
        memory_.read_some(RemoteAddr(address), std::as_writable_bytes(std::span(&word, 1)));
    if (read.value_or(0) != sizeof word) return std::nullopt;
    return word;
  }

 private:
  const sys::MemoryReader& memory_;
};

// The first position at which the loader's list, followed word by word, has a module with this
// dynamic section.
std::optional<std::size_t> slow_location(const Words& words, std::uint64_t debug,
                                         std::uint64_t dynamic) {
  auto next = words.at(debug).has_value() ? words.at(debug + 8) : std::nullopt;
  for (std::size_t location = 0; next && *next != 0 && location < 8192; ++location) {
    for (std::uint64_t member = 0; member < 5; ++member) {
      if (!words.at(*next + 8 * member)) return std::nullopt;
    }
    if (words.at(*next + 16) == dynamic) return location;
    next = words.at(*next + 24);
  }
  return std::nullopt;
}

const sys::ElfSegment* segment_of(const sys::ElfImage& image, std::uint32_t type) {
  const auto at = std::ranges::find(image.segments(), type, &sys::ElfSegment::type);
  return at == image.segments().end() ? nullptr : &*at;
}

void check_order(const sys::Modules& modules, const sys::MemoryReader& memory) {
  const sys::ElfSegment* dynamic = segment_of(*modules.modules[0].image, PT_DYNAMIC);
  std::uint64_t debug = 0;
  const Words words(memory);
  for (std::uint64_t i = 0; dynamic != nullptr && modules.modules[0].image->is_64() &&
                            i < std::min<std::uint64_t>(dynamic->memory_size / 16, 1024);
       ++i) {
    const std::uint64_t at = dynamic->address + modules.modules[0].load_bias + 16 * i;
    const auto tag = words.at(at);
    const auto value = words.at(at + 8);
    if (!tag || !value || *tag == DT_NULL) break;
    if (*tag != DT_DEBUG) continue;
    debug = *value;
    break;
  }
  for (const sys::Module& module : modules.modules) {
    const auto wanted = debug == 0 || dynamic == nullptr
                            ? std::nullopt
                            : slow_location(words, debug, dynamic->address + module.load_bias);
    FUZZ_CHECK(module.load_order == wanted);
  }
}

void check_variable(sys::Modules& modules, const sys::MemoryReader& memory, RemoteAddr tp) {
  const auto definitions = sys::find_tls_variable(modules, abi::kThreadSlotSymbol);
  if (!definitions) return;
  FUZZ_CHECK(definitions->size() <= 64);
  for (const sys::TlsDefinition& definition : *definitions) {
    FUZZ_CHECK(definition.module < modules.modules.size());
    FUZZ_CHECK(definition.symbol.name == abi::kThreadSlotSymbol && definition.symbol.defined());
    for (const sys::TlsAccess& access : definition.accesses) {
      FUZZ_CHECK(access.module < modules.modules.size());
    }
    const auto location = sys::tls_location(modules, definition, memory);
    const auto address = sys::tls_address(location, tp, memory);
    const auto again = sys::tls_address(modules, definition, tp, memory);
    FUZZ_CHECK(address.has_value() == again.has_value());
    if (address) FUZZ_CHECK(*address == *again);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  auto bytes = std::as_bytes(std::span(data, size));
  const std::size_t area_size = std::min<std::size_t>(data[0] | data[1] << 8U, bytes.size() - 2);
  const auto area = bytes.subspan(2, area_size);
  const auto file = bytes.subspan(2 + area_size);
  sys::Modules modules;
  sys::SnapshotMemory memory;
  memory.put(RemoteAddr(kArea), area);
  for (const std::uint64_t bias : kBiases) {
    auto image = sys::ElfImage::from_memory(file, "file");
    if (!image) return 0;
    const sys::ElfSegment* load = segment_of(*image, PT_LOAD);
    const std::uint64_t start = (load == nullptr ? 0 : load->address) + bias;
    if (start <= UINT64_MAX - kMostMapped &&
        (start + kMostMapped < kArea || start > kArea + 65536)) {
      memory.put(RemoteAddr(start), file.first(std::min(file.size(), kMostMapped)));
    }
    modules.modules.push_back({"/file",
                               RemoteAddr(start),
                               bias,
                               bias == 0,
                               {},
                               std::make_shared<const sys::ElfImage>(std::move(*image))});
  }
  sys::add_load_order(modules, memory);
  check_order(modules, memory);
  for (const std::uint64_t tp : {kArea, kArea + area_size / 2, std::uint64_t{0}}) {
    check_variable(modules, memory, RemoteAddr(tp));
  }
  modules.musl = true;
  check_variable(modules, memory, RemoteAddr(kArea));
  return 0;
}
