// Addresses of another process. They cannot be dereferenced here, do not convert to or from
// integers by accident, and never wrap.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace ctxconf::sys {

class RemoteAddr {
 public:
  constexpr RemoteAddr() = default;
  constexpr explicit RemoteAddr(std::uint64_t raw) : raw_(raw) {}
  constexpr std::uint64_t raw() const { return raw_; }
  constexpr std::optional<RemoteAddr> plus(std::uint64_t n) const {
    if (n > UINT64_MAX - raw_) return std::nullopt;
    return RemoteAddr(raw_ + n);
  }
  // How many of `n` bytes from here on have an address at all.
  constexpr std::uint64_t addressable(std::uint64_t n) const {
    return std::min(n, UINT64_MAX - raw_);
  }
  friend constexpr auto operator<=>(RemoteAddr, RemoteAddr) = default;

 private:
  std::uint64_t raw_ = 0;
};

// Half-open [begin, end). A range that would wrap cannot be created.
class RemoteRange {
 public:
  constexpr RemoteRange() = default;
  static constexpr std::optional<RemoteRange> from_bounds(RemoteAddr begin, RemoteAddr end) {
    if (end < begin) return std::nullopt;
    return RemoteRange(begin, end);
  }
  static constexpr std::optional<RemoteRange> from_size(RemoteAddr begin, std::uint64_t size) {
    const auto end = begin.plus(size);
    if (!end) return std::nullopt;
    return RemoteRange(begin, *end);
  }
  constexpr RemoteAddr begin() const { return begin_; }
  constexpr RemoteAddr end() const { return end_; }
  constexpr std::uint64_t size() const { return end_.raw() - begin_.raw(); }
  constexpr bool empty() const { return begin_ == end_; }
  constexpr bool contains(RemoteAddr a) const { return begin_ <= a && a < end_; }
  constexpr bool contains(RemoteRange r) const { return begin_ <= r.begin_ && r.end_ <= end_; }
  friend constexpr auto operator<=>(const RemoteRange&, const RemoteRange&) = default;

 private:
  constexpr RemoteRange(RemoteAddr begin, RemoteAddr end) : begin_(begin), end_(end) {}
  RemoteAddr begin_;
  RemoteAddr end_;
};

// Types that may be copied out of another process and then used: no pointers of ours, no vtable, no
// constructor that must run.
template <class T>
concept Plain =
    std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T> && !std::is_pointer_v<T>;

template <Plain T>
struct RemotePtr {
  RemoteAddr at;
};

}  // namespace ctxconf::sys
