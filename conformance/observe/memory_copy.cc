#include "conformance/observe/memory_copy.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cstring>
#include <span>
#include <unordered_map>
#include <utility>

#include "conformance/observe/memory_block.h"
#include "sys/memory_reader.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostMappings = 8192;
constexpr std::uint64_t kLargestMapping = std::uint64_t{1} << 30U;
// The kernel needs about a millisecond to say which pages of a GiB are filled.
constexpr std::uint64_t kMostLookedAt = std::uint64_t{64} << 30U;

constexpr std::uint64_t kMostFixed = std::uint64_t{64} << 20U;

bool is_anonymous(const sys::MapEntry& e) { return e.inode == 0; }

// The kernel's mappings: [vvar], [vvar_vclock], [vdso], [vsyscall]. Some cannot be read from
// outside.
bool is_the_kernels(const sys::MapEntry& e) { return is_anonymous(e) && e.name.starts_with("[v"); }

bool holds(std::span<const std::byte> memory, std::span<const std::byte> bytes) {
  // memmem must not get a null pointer, whatever the size.
  return memory.size() >= bytes.size() && !bytes.empty() &&
         memmem(memory.data(), memory.size(), bytes.data(), bytes.size()) != nullptr;
}

// Pieces of a message that are not in `known`, all searched at once. For a short message also
// pieces that a compiler may have put into its instructions.
class Pieces {
 public:
  Pieces(std::span<const std::byte> bytes, std::span<const std::byte> known)
      : size_(bytes.size() < 32 ? 8 : 32) {
    for (std::size_t i = 0; bytes.size() - i >= size_; i += size_) {
      const auto piece = bytes.subspan(i, size_);
      if (holds(known, piece)) continue;
      const auto start = start_of(piece.data());
      starts_.set(slot_of(start));
      by_start_.emplace(start, piece);
    }
  }
  bool any_in(std::span<const std::byte> memory) const {
    if (by_start_.empty()) return false;
    for (std::size_t i = 0; i + size_ <= memory.size(); ++i) {
      const auto start = start_of(&memory[i]);
      if (!starts_.test(slot_of(start))) continue;
      const auto piece = by_start_.find(start);
      if (piece == by_start_.end()) continue;
      if (std::ranges::equal(piece->second, memory.subspan(i, size_))) return true;
    }
    return false;
  }

 private:
  static std::uint64_t start_of(const std::byte* at) {
    std::uint64_t out = 0;
    std::memcpy(&out, at, sizeof out);
    return out;
  }
  static std::size_t slot_of(std::uint64_t start) { return start * 0x9e3779b97f4a7c15U >> 48U; }

  std::size_t size_;
  std::bitset<65536> starts_;
  std::unordered_map<std::uint64_t, std::span<const std::byte>> by_start_;
};

}  // namespace

void MemoryCopy::add(pid_t tid, const sys::MapEntry& entry, std::uint64_t limit) {
  if (pieces_.contains(entry.range.begin().raw())) return;
  const bool complete = std::exchange(complete_, false);
  if (entry.range.size() > kLargestMapping) return;
  std::vector<sys::RemoteRange> filled{entry.range};
  if (is_anonymous(entry)) {
    if (entry.range.size() > kMostLookedAt - looked_at_) return;
    looked_at_ += entry.range.size();
    auto pages = sys::filled_pages(tid, entry.range);
    if (!pages) return;
    filled = *std::move(pages);
  }
  std::uint64_t bytes = 0;
  for (const auto& r : filled) bytes += r.size();
  if (bytes > limit - copied_) return;
  complete_ = complete;
  auto at = entry.range.begin().raw();
  const auto zeros_until = [&](std::uint64_t end) {
    if (at < end) pieces_[at] = {end - at, {}};
  };
  for (const auto& r : filled) {
    zeros_until(r.begin().raw());
    Piece piece{r.size(), std::vector<std::byte>(r.size())};
    const auto got = sys::ProcessMemory(tid).read_some(r.begin(), piece.bytes);
    if (got && *got == r.size()) {
      copied_ += r.size();
      pieces_[r.begin().raw()] = std::move(piece);
    } else {
      complete_ = false;
    }
    at = r.end().raw();
  }
  zeros_until(entry.range.end().raw());
}

std::optional<MemoryCopy> MemoryCopy::of(pid_t tid, const std::vector<std::uint64_t>& first,
                                         std::uint64_t limit) {
  const auto text = sys::read_maps_text(tid);
  if (!text) return std::nullopt;
  auto maps = sys::MapTable::parse(*text);
  if (!maps || maps->entries().size() > kMostMappings) return std::nullopt;
  MemoryCopy copy;
  copy.maps_ = *std::move(maps);
  std::vector<std::pair<std::uint64_t, const sys::MapEntry*>> order;
  for (const auto& e : copy.maps_.entries()) {
    if (!e.readable || is_the_kernels(e)) continue;
    if (!e.writable) {
      copy.fixed_.push_back(e.range);
      continue;
    }
    if (e.shared) {
      copy.complete_ = false;
      continue;
    }
    const auto asked = std::ranges::find_if(
        first, [&](std::uint64_t a) { return e.range.contains(sys::RemoteAddr(a)); });
    const bool heap = e.name == "[heap]";
    order.emplace_back(asked != first.end() ? 0 : heap ? 1 : e.range.size(), &e);
  }
  std::ranges::sort(order);
  for (const auto& [rank, entry] : order) {
    if (copy.copied_ < limit) {
      copy.add(tid, *entry, limit);
    } else {
      copy.complete_ = false;
    }
  }
  return copy;
}

std::optional<MemoryBlock> MemoryCopy::block(sys::RemoteAddr at, std::uint64_t wanted,
                                             std::uint64_t keep, std::uint64_t read) const {
  static constexpr std::array<std::byte, 4096> kZeros{};
  MemoryBlock out{.at = at, .wanted = wanted, .readable = 0, .bytes = {}, .hash = kFnvBasis};
  const auto end = std::min(wanted, read);
  while (out.readable < end) {
    const auto here = at.plus(out.readable);
    if (!here || maps_.find(*here) == nullptr) break;
    auto piece = pieces_.upper_bound(here->raw());
    if (piece == pieces_.begin()) return std::nullopt;
    --piece;
    const auto offset = here->raw() - piece->first;
    if (offset >= piece->second.size) return std::nullopt;
    auto n = std::min(end - out.readable, piece->second.size - offset);
    if (piece->second.bytes.empty()) n = std::min<std::uint64_t>(n, kZeros.size());
    const auto bytes = piece->second.bytes.empty()
                           ? std::span(kZeros).first(n)
                           : std::span(piece->second.bytes).subspan(offset, n);
    out.hash = fnv1a(out.hash, bytes);
    const auto kept = keep - std::min<std::uint64_t>(keep, out.bytes.size());
    const auto stored = bytes.first(std::min<std::uint64_t>(n, kept));
    out.bytes.insert(out.bytes.end(), stored.begin(), stored.end());
    out.readable += n;
  }
  return out;
}

std::optional<sys::RemoteAddr> MemoryCopy::find(std::span<const std::byte> bytes) const {
  if (bytes.empty()) return std::nullopt;
  for (const auto& [start, piece] : pieces_) {
    if (piece.bytes.size() < bytes.size()) continue;
    const void* found = memmem(piece.bytes.data(), piece.bytes.size(), bytes.data(), bytes.size());
    if (found == nullptr) continue;
    return sys::RemoteAddr(start).plus(
        static_cast<std::uint64_t>(static_cast<const std::byte*>(found) - piece.bytes.data()));
  }
  return std::nullopt;
}

bool MemoryCopy::lacks(pid_t tid, std::span<const std::byte> bytes,
                       std::span<const std::byte> known) const {
  if (!complete_ || bytes.empty()) return false;
  const Pieces looked_for(bytes, known);
  const auto has = [&](std::span<const std::byte> memory) {
    return holds(memory, bytes) || looked_for.any_in(memory);
  };
  for (const auto& [start, piece] : pieces_) {
    if (has(piece.bytes)) return false;
  }
  const sys::ProcessMemory memory(tid);
  constexpr std::uint64_t kStep = std::uint64_t{1} << 20U;
  std::vector<std::byte> part;
  std::uint64_t left = kMostFixed;
  for (const auto& range : fixed_) {
    if (range.size() > left) return false;
    left -= range.size();
    for (std::uint64_t at = 0; at < range.size(); at += kStep) {
      // A match across the end of a step is found in the next step.
      part.resize(std::min(range.size() - at, kStep + bytes.size() - 1));
      const auto from = range.begin().plus(at);
      if (!from || !memory.read_exact(*from, part) || has(part)) return false;
    }
  }
  return true;
}

}  // namespace ctxconf::conformance
