#include "conformance/payload/churn_values.h"

#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <vector>

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kDigits = 10;

void add_numbers(const std::vector<Attribute>& attributes, std::set<std::uint64_t>& out) {
  for (const Attribute& a : attributes) {
    if (a.kind != ValueKind::kString) continue;
    if (a.key != "service.name" && !a.key.starts_with("ctxconf.")) continue;
    const std::string_view value(a.value);
    const auto dash = value.rfind('-');
    if (dash == std::string_view::npos || value.size() - dash - 1 != kDigits) continue;
    std::uint64_t number = 0;
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data() + dash + 1, end, number);
    if (read.ec == std::errc() && read.ptr == end) out.insert(number);
  }
}

}  // namespace

std::set<std::uint64_t> numbers_in(const Payload& payload) {
  std::set<std::uint64_t> out;
  add_numbers(payload.resource, out);
  add_numbers(payload.attributes, out);
  return out;
}

}  // namespace ctxconf::conformance
