#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>

#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

Finding timestamp_distinct(const ImageEvidence& e) {
  if (e.first_sights.empty()) return no_valid_header();
  bool updated = false;
  for (std::size_t i = 0; i < e.first_sights.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      const Context& a = *e.first_sights[k];
      const Context& b = *e.first_sights[i];
      // Another mapping is another publication: values need not differ there.
      if (a.start() != b.start()) continue;
      updated = true;
      if (a.header.monotonic_published_at_ns != b.header.monotonic_published_at_ns) continue;
      Finding f =
          failed(fmt::format("two states have the timestamp {}, but different sizes or pointers",
                             a.header.monotonic_published_at_ns),
                 "repeated timestamp");
      f.evidence = {maps_line(b), fmt::format("state {} and state {} of {}", k + 1, i + 1,
                                              e.first_sights.size())};
      f.hexdumps = {header_dump(a, {{16, 8, "timestamp"}}),
                    header_dump(b, {{16, 8, "the same timestamp"}})};
      return f;
    }
  }
  if (updated && e.image->snapshots_dropped + e.image->looks_skipped > 0) {
    return unobservable("not all states were kept, so that not all timestamps were compared",
                        "a program that updates its context less often while it is watched");
  }
  if (updated) {
    return passed(
        fmt::format("{} states seen, each with its own timestamp", e.first_sights.size()));
  }
  return unobservable("no update was seen",
                      "a program that updates its context while it is watched");
}

Finding no_silent_change(const ImageEvidence& e) {
  bool judged = false;
  for (const Context* first : e.first_sights) {
    if (!first->is_decoded()) continue;
    for (const auto& list : e.contexts) {
      for (const Context& c : list) {
        if (!c.usable() || !c.candidate->named || c.start() != first->start() ||
            c.header != first->header || c.payload == nullptr ||
            c.payload->problem != PayloadProblem::kNone) {
          continue;
        }
        judged = judged || c.snapshot != first->snapshot || c.snapshot->times > 1;
        if (c.payload_block->hash == first->payload_block->hash) continue;
        const auto was = first->payload_bytes;
        const auto is = c.payload_bytes;
        const auto at =
            static_cast<std::uint64_t>(std::ranges::mismatch(was, is).in1 - was.begin());
        Finding f = failed(fmt::format("payload byte {} changed while the timestamp stayed {}", at,
                                       c.header.monotonic_published_at_ns),
                           "payload changed under the same timestamp");
        f.evidence = {maps_line(c), fmt::format("hash {:#x} at first, {:#x} now",
                                                first->payload_block->hash, c.payload_block->hash)};
        f.hexdumps = {payload_dump(*first, at, 1, "at first"), payload_dump(c, at, 1, "now")};
        return f;
      }
    }
  }
  if (judged) return passed();
  return unobservable("no payload was seen twice", "a program that runs for at least 100 ms");
}

bool has_dontfork(const std::optional<std::string>& vm_flags) {
  return vm_flags && (" " + *vm_flags + " ").find(" dc ") != std::string::npos;
}

// A later state of the same publication shows the mark: it came late, and how late is for
// pctx.fork.dontfork-before-header.
bool is_marked_later(std::span<const Context* const> from, const sys::MapEntry& entry) {
  const Context& c = *from.front();
  return std::ranges::any_of(from, [&](const Context* later) {
    if (later->header.monotonic_published_at_ns != c.header.monotonic_published_at_ns) return false;
    const Candidate& same = *later->candidate;
    for (std::size_t i = 0; i < same.entries.size() && i < same.vm_flags.size(); ++i) {
      if (same.entries[i].range.begin() == entry.range.begin() && has_dontfork(same.vm_flags[i]))
        return true;
    }
    return false;
  });
}

Finding dontfork(const ImageEvidence& e) {
  bool judged = false;
  std::optional<Finding> milder;
  for (std::size_t at = 0; at < e.judged.size(); ++at) {
    const Context* c = e.judged[at];
    // A mapping may be seen between mmap and madvise, while it is still empty.
    if (c->state == HeaderState::kBlank || c->state == HeaderState::kUnreadable) continue;
    const auto& entries = c->candidate->entries;
    for (std::size_t i = 0; i < entries.size() && i < c->candidate->vm_flags.size(); ++i) {
      const auto& flags = c->candidate->vm_flags[i];
      if (!flags) continue;
      judged = true;
      if (has_dontfork(flags) || is_marked_later(std::span(e.judged).subspan(at), entries[i]))
        continue;
      // Without the header a child has memory of that name, and no context.
      const bool has_header = entries[i].range.contains(sys::RemoteAddr(c->start()));
      if (!has_header && milder) continue;
      Finding f =
          has_header ? failed("VmFlags lack dc: a forked child gets the context of its parent",
                              "no MADV_DONTFORK")
                     : warned("VmFlags of pages after the header lack dc: a forked child gets them",
                              "MADV_DONTFORK for a part");
      f.evidence = {"maps: " + to_maps_line(entries[i]), "VmFlags: " + *flags};
      if (has_header) return f;
      milder = std::move(f);
    }
  }
  if (milder) return *milder;
  if (judged) return passed();
  if (e.judged.empty()) return no_valid_header();
  return unobservable("smaps shows no VmFlags for the mapping",
                      "a kernel with CONFIG_PROC_PAGE_MONITOR, and the right to read smaps");
}

constexpr auto kUpdateRules = std::to_array<RequirementRule>({
    {"pctx.update.timestamp-distinct", timestamp_distinct, AskedOf::kImages, RestsOn::kStates},
    {"pctx.update.no-silent-change", no_silent_change, AskedOf::kImages, RestsOn::kStates},
    {"pctx.fork.dontfork", dontfork, AskedOf::kImages, RestsOn::kStates},
});

}  // namespace

std::span<const RequirementRule> update_rules() { return kUpdateRules; }

}  // namespace ctxconf::conformance
