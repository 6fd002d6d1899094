#include "conformance/rules/header_mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "conformance/rules/publications.h"

namespace ctxconf::conformance {
namespace {

bool covers(std::uint64_t begin, std::uint64_t size, std::uint64_t at) {
  return begin <= at && at - begin < size;
}

// Maps, unmaps or moves memory at `start`, and worked.
bool is_about_mapping(const SystemCall& c, std::uint64_t start) {
  if (!c.result || c.injected) return false;
  if (c.name == "munmap") return *c.result == 0 && covers(c.args[0], c.args[1], start);
  if (c.name == "mremap") {
    return *c.result >= 0 && c.args[0] == start && std::cmp_not_equal(*c.result, start);
  }
  return c.name == "mmap" && *c.result >= 0 &&
         covers(static_cast<std::uint64_t>(*c.result), c.args[1], start);
}

bool has_context_at(const Published& p, const DrivenOperation& d, std::uint64_t start) {
  const auto& all = p.image->contexts[*d.view->snapshot];
  return std::ranges::any_of(all, [&](const Context& c) {
    return c.candidate->named && c.usable() && c.start() == start;
  });
}

}  // namespace

std::vector<const SystemCall*> calls_between(const Image& image, std::uint64_t from,
                                             std::uint64_t to) {
  std::vector<const SystemCall*> out;
  for (const SystemCall& c : image.calls) {
    if (c.entered_order > from && c.entered_order <= to) out.push_back(&c);
  }
  return out;
}

std::optional<Finding> made_anew(std::string_view what, const DrivenOperation& before,
                                 const DrivenOperation& d, const Published& was,
                                 const Published& now) {
  constexpr std::size_t kShown = 12;
  const std::uint64_t start = was.context->start();
  const auto calls = calls_between(*now.image->image, before.view->order, d.view->order);
  const auto remade =
      std::ranges::find_if(calls, [&](const SystemCall* c) { return is_about_mapping(*c, start); });
  const bool elsewhere = now.context != nullptr && !has_context_at(now, d, start);
  if (!elsewhere && remade == calls.end()) return std::nullopt;
  Finding f = failed(
      elsewhere ? fmt::format("{} made another mapping: {:#x}, before {:#x}", what,
                              now.context->start(), start)
                : fmt::format("{} unmapped, moved or replaced the mapping at {:#x}", what, start),
      "");
  f.level = "syscalls";
  if (remade != calls.end()) f.event = {start, (*remade)->entered_order, {}};
  f.evidence = {request_line(d), "before: " + maps_line(*was.context)};
  if (now.context != nullptr) f.evidence.push_back("after: " + maps_line(*now.context));
  for (const SystemCall* c : calls) {
    if (f.evidence.size() < kShown) f.evidence.push_back(call_line(*c));
  }
  return f;
}

}  // namespace ctxconf::conformance
