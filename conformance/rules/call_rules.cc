// Rules about the system calls of a publication (level syscalls), without injected faults.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "conformance/rules/header_mapping.h"
#include "conformance/rules/header_operations.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/rule.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif

namespace ctxconf::conformance {
namespace {

constexpr std::uint32_t kWantedFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL;

void add_namings(Finding& f, const Publication& p) {
  for (const Naming& n : p.namings) {
    if (f.evidence.size() >= 8) return;
    std::string line = call_line(*n.call);
    if (n.before) {
      line += fmt::format(", found timestamp {}", n.before->monotonic_published_at_ns);
    }
    f.evidence.push_back(std::move(line));
  }
}

Hexdump bytes_dump(std::string title, std::uint64_t address, std::span<const std::byte> bytes,
                   std::vector<Hexdump::Mark> marks = {}) {
  Hexdump dump;
  dump.title = std::move(title);
  dump.address = address;
  for (const std::byte b : bytes) dump.bytes.push_back(std::to_integer<std::uint8_t>(b));
  dump.marks = std::move(marks);
  return dump;
}

EventLocation at_call(const Publication& p, const SystemCall& c) {
  return {p.start, c.entered_order, {}};
}

// The order of a store that gave the header this timestamp; 0: none was seen.
std::uint64_t ordered_by(const Image& image, const Publication& p, std::uint64_t timestamp) {
  for (const Store& s : image.stores) {
    const auto h = header_of(image, s.after);
    if (s.header == p.start && h && h->monotonic_published_at_ns == timestamp) return s.order;
  }
  return 0;
}

EventLocation no_naming_behind(const Image& image, const Publication& p, std::uint64_t timestamp) {
  return {p.start, ordered_by(image, p, timestamp), "no prctl(PR_SET_VMA, \"OTEL_CTX\")"};
}

constexpr const char* kPublish = "a program that publishes while it is watched, and ends";
constexpr const char* kUpdate = "a program that updates its context while it is watched, and ends";

Finding nothing_judged(const ImageEvidence& e, std::string what, const char* remedy = kPublish) {
  if (!is_complete(*e.image)) {
    return unobservable("not all system calls were seen: " + what,
                        "a program without a seccomp filter of its own and with fewer calls");
  }
  return unobservable(std::move(what), remedy);
}

using Publications = std::vector<Publication>;

Finding memfd_name(const ImageEvidence& e, const Publications& all) {
  bool judged = false;
  for (const Publication& p : all) {
    if (p.create == nullptr) continue;
    judged = true;
    if (p.create->text == abi::kMemfdName) continue;
    Finding f = failed(fmt::format("the memfd is called {}", p.create->text), "memfd name");
    f.evidence = call_lines({p.create, p.map});
    f.evidence.push_back(maps_line(*p.context));
    f.event = at_call(p, *p.create);
    return f;
  }
  return judged ? passed() : nothing_judged(e, "no mapping of a memfd became a context");
}

std::string flags_text(std::uint32_t flags) {
  struct Name {
    std::uint32_t flag;
    std::string_view name;
  };
  static constexpr std::array<Name, 5> kFlagNames = {{{MFD_CLOEXEC, "MFD_CLOEXEC"},
                                                      {MFD_ALLOW_SEALING, "MFD_ALLOW_SEALING"},
                                                      {MFD_HUGETLB, "MFD_HUGETLB"},
                                                      {MFD_NOEXEC_SEAL, "MFD_NOEXEC_SEAL"},
                                                      {0x10, "MFD_EXEC"}}};
  std::string out;
  for (const auto& n : kFlagNames) {
    if ((flags & n.flag) == 0) continue;
    out += (out.empty() ? "" : "|");
    out += n.name;
    flags &= ~n.flag;
  }
  if (flags != 0 || out.empty()) out += (out.empty() ? "" : "|") + hex_text(flags);
  return out;
}

Finding memfd_flags(const ImageEvidence& e, const Publications& all) {
  bool judged = false;
  for (const Publication& p : all) {
    const SystemCall* first = p.create;
    // Refused attempts of the same name are this publication's; others may be anybody's.
    const std::string_view name = p.create != nullptr ? p.create->text : abi::kMemfdName;
    const auto attempt = std::ranges::find(p.attempts, name, &SystemCall::text);
    if (attempt != p.attempts.end()) first = *attempt;
    if (first == nullptr) continue;
    judged = true;
    const auto flags = static_cast<std::uint32_t>(first->args[1]);
    if (flags == kWantedFlags) continue;
    Finding f = failed("the first memfd_create asks for " + flags_text(flags), "memfd flags");
    f.evidence = call_lines({first});
    f.event = at_call(p, *first);
    if ((kWantedFlags & ~flags) != 0) {
      f.evidence.push_back("missing: " + flags_text(kWantedFlags & ~flags));
    }
    if ((flags & ~kWantedFlags) != 0) {
      f.evidence.push_back("too much: " + flags_text(flags & ~kWantedFlags));
    }
    return f;
  }
  return judged ? passed() : nothing_judged(e, "no memfd was asked for");
}

// Bytes from the start of the mapping that the writer uses.
std::uint64_t used_bytes(const Publication& p, std::uint64_t size) {
  const Context& c = *p.context;
  std::uint64_t used = sizeof(abi::ProcessHeader);
  if (c.usable() && c.address() >= p.start && c.address() - p.start < size) {
    used = std::max(used, c.address() - p.start + c.header.payload_size);
  }
  return used;
}

// The file's size in bytes; nothing when more than ftruncate may have set it.
std::optional<std::uint64_t> truncated_to(const Publication& p) {
  std::optional<std::uint64_t> size;
  for (const SystemCall* c : p.sizings) {
    if (c->name != "ftruncate") return std::nullopt;
    size = c->args[1];
  }
  return size;
}

Finding memfd_sized(const ImageEvidence& e, const Publications& all) {
  constexpr int kSigbus = 7;
  const std::uint64_t page = e.timeline->page_size;
  bool judged = false;
  std::optional<Finding> otherwise;
  for (const Publication& p : all) {
    if (p.create == nullptr) continue;
    const bool readable =
        p.context->head != nullptr && p.context->head->bytes.size() >= sizeof(abi::ProcessHeader);
    if (!readable) {
      const bool announced = std::ranges::any_of(
          p.namings, [](const Naming& n) { return !n.before && n.call->before.empty(); });
      const bool died = e.process->killed_by == kSigbus && e.image == &e.process->images.back();
      if (!p.sizings.empty() || !is_complete(*e.image) || !(announced || died)) continue;
      Finding f = failed("nothing made the memfd large enough: its mapping cannot be accessed",
                         "memfd not sized");
      f.evidence = call_lines({p.create, p.map});
      f.evidence.emplace_back("no ftruncate");
      add_namings(f, p);
      return f;
    }
    judged = true;
    if (p.sizings.empty() || !p.sizings.front()->name.starts_with("ftruncate")) {
      if (!is_complete(*e.image)) continue;
      otherwise = info("the memfd was made larger by means other than ftruncate", "memfd sizing");
      otherwise->evidence = call_lines({p.create, p.map});
      continue;
    }
    const std::uint64_t mapped = p.map->args[1];
    const auto size = truncated_to(p);
    if (size && (*size + page - 1) / page * page < used_bytes(p, mapped)) {
      Finding f =
          failed(fmt::format("the memfd has {} bytes, {} are used", *size, used_bytes(p, mapped)),
                 "memfd too small");
      f.evidence = call_lines({p.create, p.sizings.back(), p.map});
      f.event = at_call(p, *p.sizings.back());
      return f;
    }
    if (p.sizings.front() > p.map) {
      otherwise = info("the memfd was mapped before it was sized", "memfd sized late");
      otherwise->evidence = call_lines({p.create, p.map, p.sizings.front()});
    }
  }
  if (otherwise) return *otherwise;
  return judged ? passed() : nothing_judged(e, "no mapping of a memfd became a context");
}

// Was a memfd asked for before the memory was mapped, or at least before it was worked on? One that
// became another context was for that.
bool tried_memfd(const ImageEvidence& e, const Publications& all, const Publication& p) {
  const SystemCall* until = p.map;
  if (until == nullptr) until = p.dontfork;
  if (until == nullptr) until = p.namings.front().call;
  return std::any_of(e.image->calls.data(), until, [&](const SystemCall& c) {
    if (c.name != "memfd_create") return false;
    if (c.result && *c.result < 0) return true;
    return c.text.starts_with(abi::kMemfdName) &&
           std::ranges::find(all, &c, &Publication::create) == all.end();
  });
}

Finding memfd_first(const ImageEvidence& e, const Publications& all) {
  const auto& host = e.timeline->host;
  const auto memfd = std::ranges::find(host, sys::kHostMemfd, &sys::HostFact::name);
  if (memfd != host.end() && !memfd->available) {
    return not_applicable(NaReason::kCapability, "this host has no memfd: " + memfd->detail);
  }
  bool judged = false;
  for (const Publication& p : all) {
    if (!p.own()) continue;
    if (p.create != nullptr || tried_memfd(e, all, p)) {
      judged = true;
      continue;
    }
    const bool file = p.context->candidate->entries.front().inode != 0;
    if (file || !is_complete(*e.image)) continue;
    Finding f =
        failed("the context is in anonymous memory, and no memfd was tried", "no memfd tried");
    f.evidence = call_lines({p.map, p.dontfork});
    f.evidence.push_back(maps_line(*p.context));
    if (p.map != nullptr) f.event = at_call(p, *p.map);
    return f;
  }
  return judged ? passed() : nothing_judged(e, "no call shows where a context's memory comes from");
}

// The publication was made by calls that were not recorded, so others may be missing too.
bool is_made_elsewhere(const Publication& p) { return p.map == nullptr && p.dontfork == nullptr; }

bool is_otel_name(const SystemCall& c) { return is_naming(c) && c.text == abi::kMemfdName; }

// A call with the right text for memory of no publication, meant for this one or another.
const SystemCall* stray_naming(const Publications& all, const Publication& p) {
  for (const SystemCall& c : p.calls) {
    if (!is_otel_name(c)) continue;
    const bool at_home = std::ranges::any_of(all, [&](const Publication& q) {
      return std::ranges::find(q.namings, &c, &Naming::call) != q.namings.end();
    });
    if (!at_home) return &c;
  }
  return nullptr;
}

// Is the context still there under a later name? A writer may take the name away on its way to
// withdraw it.
bool is_left(const ImageEvidence& e, const Publication& p) {
  const auto& calls = e.image->calls;
  const bool is_last = p.calls.data() + p.calls.size() == calls.data() + calls.size();
  return is_last && !e.contexts.empty() &&
         std::ranges::any_of(e.contexts.back(),
                             [&](const Context& c) { return c.start() == p.start && c.usable(); });
}

// The last call that gave a published context a name of another kind.
const SystemCall* misnaming(const Publication& p) {
  const SystemCall* last = nullptr;
  for (const Naming& n : p.renamings) {
    if (n.valid() && !n.call->text.empty() && n.call->args[2] == p.start) last = n.call;
  }
  return last;
}

// The one thread that stored to the header; nothing: not known, or several.
std::optional<std::int32_t> only_writer(const ImageEvidence& e, const Publication& p) {
  std::optional<std::int32_t> tid;
  for (const Store& s : e.image->stores) {
    if (!p.is_stored_to(s)) continue;
    if (s.tid == 0 || (tid && *tid != s.tid)) return std::nullopt;
    tid = s.tid;
  }
  return tid;
}

// The call found no valid header, and its thread alone can have ended what was seen before: the
// call is not for that. With several writers, another one may have begun an update before the call.
bool follows_own_end(const Naming& n, std::optional<std::int32_t> only_writer, const Sight& sight) {
  return !n.valid() && only_writer == n.call->tid && n.call->entered_ns > sight.first_ns;
}

// The naming calls of what came after it alone are there, and none for the publication itself.
bool is_named_later_alone(const ImageEvidence& e, const Publication& p) {
  if (p.sights.size() < 2) return false;
  const Sight& first = p.sights.front();
  const auto writer = only_writer(e, p);
  const auto early = static_cast<std::size_t>(std::ranges::count_if(
      p.namings, [&](const Naming& n) { return follows_own_end(n, writer, first); }));
  if (p.namings.size() - early >= p.sights.size()) return false;
  return std::ranges::all_of(p.namings, [&](const Naming& n) {
    if (!n.valid()) return follows_own_end(n, writer, first);
    return n.before->monotonic_published_at_ns != first.timestamp &&
           n.call->entered_ns > p.sights[1].first_ns;
  });
}

Finding name_always(const ImageEvidence& e, const Publications& all) {
  bool judged = false;
  for (const Publication& p : all) {
    if (!p.own() || p.sights.empty()) continue;
    const bool named = !p.namings.empty() && !is_named_later_alone(e, p);
    if (named || misnaming(p) != nullptr ||
        (p.namings.empty() && stray_naming(all, p) != nullptr)) {
      judged = true;
      continue;
    }
    if (is_made_elsewhere(p)) continue;
    if (!is_complete(*e.image) || !is_past(e, p, p.sights.front())) continue;
    Finding f = failed("a context was published without a naming call", "no naming call");
    f.evidence = call_lines({p.create, p.map, p.dontfork});
    f.evidence.push_back(maps_line(*p.context));
    f.event = no_naming_behind(*e.image, p, p.sights.front().timestamp);
    return f;
  }
  return judged ? passed() : nothing_judged(e, "no publication was seen to its end");
}

bool has_right_arguments(const Publication& p, const SystemCall& c) {
  return c.args[2] == p.start && c.args[3] != 0 && c.text == abi::kMemfdName;
}

Finding name_arguments(const ImageEvidence& e, const Publications& all) {
  bool judged = false;
  for (const Publication& p : all) {
    const SystemCall* wrong = nullptr;
    if (!p.namings.empty()) {
      judged = true;
      const bool any = std::ranges::any_of(
          p.namings, [&](const Naming& n) { return has_right_arguments(p, *n.call); });
      const Naming& last = p.namings.back();
      // The time of its first update.
      const std::uint64_t until = p.sights.size() < 2 ? UINT64_MAX : p.sights[1].first_ns;
      const auto early = std::ranges::find_if(
          p.namings, [&](const Naming& n) { return n.call->entered_ns >= until; });
      const bool none = early != p.namings.begin() &&
                        std::none_of(p.namings.begin(), early, [&](const Naming& n) {
                          return has_right_arguments(p, *n.call);
                        });
      if (none) wrong = std::prev(early)->call;
      // The publication itself was not named, and a call named other memory.
      const SystemCall* stray = early == p.namings.begin() ? stray_naming(all, p) : nullptr;
      if (p.own() && stray != nullptr && stray->entered_ns < until) wrong = stray;
      if (!any) wrong = last.call;
      // A later call with another name removes the right one.
      const bool renamed =
          last.call->args[2] == p.start && last.call->text != abi::kMemfdName && last.valid();
      if (any && renamed && is_left(e, p)) wrong = last.call;
      const SystemCall* other = misnaming(p);
      if (any && other != nullptr && other > last.call && is_left(e, p)) wrong = other;
    } else if (p.own() && !p.sights.empty()) {
      wrong = misnaming(p) != nullptr ? misnaming(p) : stray_naming(all, p);
    }
    if (wrong == nullptr) continue;
    std::string saw;
    if (wrong->text != abi::kMemfdName) {
      saw = fmt::format("the naming call for the context says {}", wrong->text);
    } else if (wrong->args[2] != p.start) {
      saw = "the naming call is about memory other than the header's";
    } else {
      saw = "the naming call has length 0";
    }
    Finding f = failed(std::move(saw), "arguments of the naming call");
    f.evidence = call_lines({wrong});
    f.event = at_call(p, *wrong);
    f.evidence.push_back(fmt::format("wanted: start {:#x}, text OTEL_CTX", p.start));
    f.evidence.push_back(maps_line(*p.context));
    return f;
  }
  return judged ? passed() : nothing_judged(e, "no naming call for a context was seen");
}

// Bytes of the mapping that a call leaves out, by the kernel's arithmetic, which rounds its length
// up to pages; nothing: the call is about other memory, or the mapping's end is not known.
std::optional<std::uint64_t> left_out(const Publication& p, const SystemCall& c,
                                      std::uint64_t page) {
  const std::uint64_t end = p.end_at(c, page);
  if (end == 0 || !has_right_arguments(p, c)) return std::nullopt;
  const std::uint64_t size = end - p.start;
  return c.args[3] >= size ? 0 : size - (c.args[3] + page - 1) / page * page;
}

Finding name_whole_mapping(const ImageEvidence& e, const Publications& all) {
  bool judged = false;
  for (const Publication& p : all) {
    // The least that all calls up to an announcement leave out.
    const SystemCall* longest = nullptr;
    std::uint64_t missing = UINT64_MAX;
    for (std::size_t i = 0; i < p.namings.size(); ++i) {
      const Naming& n = p.namings[i];
      const auto left = left_out(p, *n.call, e.timeline->page_size);
      if (left && *left < missing) {
        longest = n.call;
        missing = *left;
      }
      const bool announces =
          i + 1 == p.namings.size() || (n.valid() && p.namings[i + 1].before &&
                                        n.before->monotonic_published_at_ns !=
                                            p.namings[i + 1].before->monotonic_published_at_ns);
      if (longest == nullptr || !announces) continue;
      judged = true;
      if (missing == 0) break;
      Finding f = failed(fmt::format("the naming call leaves out {} bytes of the mapping", missing),
                         "part of the mapping named");
      f.evidence = call_lines({longest, p.map});
      f.event = at_call(p, *longest);
      for (const auto& entry : p.context->candidate->entries) {
        if (f.evidence.size() >= 8) break;
        f.evidence.push_back("maps: " + to_maps_line(entry));
      }
      return f;
    }
  }
  return judged ? passed() : nothing_judged(e, "no naming call for a context was seen");
}

// ---- the order of timestamp and naming call

enum class Announcement { kYes, kEarly, kNo, kUnknown };

bool found_timestamp(const Naming& n, std::uint64_t timestamp) {
  return n.valid() && n.before->monotonic_published_at_ns == timestamp;
}

// Writers that make the call after they released a lock may find the next timestamp there. A lone
// writer does not: no other thread could take the lock.
bool may_be_deferred(const Publication& p, std::optional<std::int32_t> only_writer,
                     std::size_t sight) {
  return std::any_of(p.sights.begin() + static_cast<std::ptrdiff_t>(sight) + 1, p.sights.end(),
                     [&](const Sight& later) {
                       std::size_t calls = 0;
                       bool by_another = false;
                       for (const Naming& n : p.namings) {
                         if (!found_timestamp(n, later.timestamp)) continue;
                         ++calls;
                         by_another = by_another || only_writer != n.call->tid;
                       }
                       return calls > 1 && by_another;
                     });
}

// Whether the publication may have been replaced, or be in the middle of another change.
bool may_be_overtaken(const Publication& p, std::optional<std::int32_t> only_writer,
                      const Sight& sight) {
  return std::ranges::any_of(p.namings, [&](const Naming& n) {
    return !n.valid() && n.call->entered_ns > sight.first_ns &&
           !follows_own_end(n, only_writer, sight);
  });
}

// How the state with the timestamp of `sight` was announced: the first is the publication,
// the others are updates.
Announcement announced(const ImageEvidence& e, const Publication& p, std::size_t sight) {
  const Sight& s = p.sights[sight];
  const auto found = [&](const Naming& n) { return found_timestamp(n, s.timestamp); };
  if (std::ranges::any_of(p.namings, found)) return Announcement::kYes;
  if (is_made_elsewhere(p)) return Announcement::kUnknown;
  const std::uint64_t since = sight == 0 ? 0 : p.sights[sight - 1].first_ns;
  const std::uint64_t stored = ordered_by(*e.image, p, s.timestamp);
  const bool blind = std::ranges::any_of(p.namings, [&](const Naming& n) {
    return !n.before && n.call->entered_ns >= since && !(n.call->left_order < stored);
  });
  if (blind || !is_complete(*e.image) || !is_past(e, p, s)) return Announcement::kUnknown;
  const auto writer = only_writer(e, p);
  if (may_be_deferred(p, writer, sight) || may_be_overtaken(p, writer, s)) {
    return Announcement::kUnknown;
  }
  const bool early = std::ranges::any_of(p.namings, [&](const Naming& n) {
    return !n.valid() && n.call->entered_ns >= since && n.call->entered_ns <= s.first_ns;
  });
  return early ? Announcement::kEarly : Announcement::kNo;
}

Finding early_naming(const Publication& p, std::size_t sight, std::string saw) {
  Finding f = failed(std::move(saw), "naming call before the timestamp");
  add_namings(f, p);
  f.evidence.push_back(fmt::format("timestamp {} came later", p.sights[sight].timestamp));
  const SystemCall* call = nullptr;
  for (const Naming& n : p.namings) {
    if (!n.valid() && n.call->entered_ns <= p.sights[sight].first_ns) call = n.call;
  }
  if (call != nullptr) {
    f.event = at_call(p, *call);
    f.hexdumps = {bytes_dump("header at " + hex_text(p.start) + " when the call was made", p.start,
                             call->before, {{16, 8, "timestamp"}})};
  }
  return f;
}

Finding name_after_timestamp(const ImageEvidence& e, const Publications& all) {
  bool judged = false;
  for (const Publication& p : all) {
    if (!p.own() || p.sights.empty()) continue;
    switch (announced(e, p, 0)) {
      case Announcement::kYes:
        judged = true;
        break;
      case Announcement::kEarly:
        return early_naming(p, 0,
                            "the naming call found no valid header, and there was no later one");
      case Announcement::kNo:
      case Announcement::kUnknown:
        break;
    }
  }
  return judged ? passed() : nothing_judged(e, "no naming call for a publication was seen");
}

Finding update_name_after_timestamp(const ImageEvidence& e, const Publications& all) {
  bool judged = false;
  for (const Publication& p : all) {
    for (std::size_t i = 1; p.own() && i < p.sights.size(); ++i) {
      const Announcement how = announced(e, p, i);
      judged = judged || how == Announcement::kYes;
      if (how != Announcement::kEarly) continue;
      return early_naming(
          p, i,
          "the naming call of an update came before its timestamp, and there was no later one");
    }
  }
  return judged ? passed() : nothing_judged(e, "no update with a naming call was seen", kUpdate);
}

// A timestamp that may have come back after a withdrawal, in the same mapping.
bool may_be_publication(const ImageEvidence& e, const Publication& p, std::uint64_t timestamp) {
  const HeaderHistory history = header_history_of(e);
  return std::ranges::any_of(history.operations, [&](const HeaderOperation& op) {
    return op.watch->header == p.start && op.is_announced() &&
           op.announcing().after.monotonic_published_at_ns == timestamp &&
           (op.kind == HeaderOperation::Kind::kPublication || op.may_be_publication);
  });
}

Finding update_name_always(const ImageEvidence& e, const Publications& all) {
  std::size_t updates = 0;
  std::optional<Finding> milder;
  for (const Publication& p : all) {
    for (std::size_t i = 1; p.own() && i < p.sights.size(); ++i) {
      const Announcement how = announced(e, p, i);
      if (how == Announcement::kYes || how == Announcement::kEarly) ++updates;
      if (how != Announcement::kNo) continue;
      const bool published = may_be_publication(e, p, p.sights[i].timestamp);
      if (published && milder) continue;
      Finding f = failed(published ? "an update, or a publication into the mapping of an "
                                     "earlier one, was not followed by a naming call"
                                   : "an update was not followed by a naming call",
                         "update without naming call");
      f.evidence = {fmt::format("timestamps {} and then {}, no naming call found the second",
                                p.sights[i - 1].timestamp, p.sights[i].timestamp)};
      f.event = no_naming_behind(*e.image, p, p.sights[i].timestamp);
      add_namings(f, p);
      if (!published) return f;
      f.outcome = Outcome::kWarn;  // the severity of `pctx.publish.name-always`
      milder = std::move(f);
    }
  }
  if (milder) return *milder;
  if (updates > 0) return passed(fmt::format("{} updates, each with a naming call", updates));
  return nothing_judged(e, "no update was seen", kUpdate);
}

// Whether the program was asked for nothing that may end its context or publish it for the first
// time: what such an operation changes is an update.
bool asks_for_updates(const DrivenOperation& d) {
  constexpr std::array<std::string_view, 4> kUpdates = {"process.update", "process.churn",
                                                        "thread.attach", "thread.append"};
  const auto is_update = [&](const auto& op) {
    return std::ranges::find(kUpdates, op) != kUpdates.end();
  };
  if (d.op != "parallel") return is_update(d.op);
  return std::ranges::all_of(list_member(d.request, "requests"), [&](const auto& r) {
    const auto op = text_member(r, "op");
    return op == "process.fork" || is_update(op);
  });
}

// What a driven program made of its mapping when it was asked to update.
std::optional<Finding> remade_by_an_update(const ImageEvidence& e) {
  const DrivenOperation* last = nullptr;
  for (const DrivenOperation& d : e.session->operations) {
    const DrivenOperation* before = std::exchange(last, &d);
    if (before == nullptr || before->view == nullptr || d.view == nullptr || !d.ok) continue;
    if (before->view->image != d.view->image || d.view->image != e.image->key) continue;
    if (!asks_for_updates(d)) continue;
    const Published was = published_at(*e.session, *before);
    const Published now = published_at(*e.session, d);
    // With several of them it is not known which one is to change.
    if (was.contexts != 1 || now.image == nullptr) continue;
    auto f = made_anew(d.op == "process.update" ? "an update" : d.op, *before, d, was, now);
    if (!f) continue;
    f->signature = "header mapping made anew";
    return f;
  }
  return std::nullopt;
}

Finding same_mapping(const ImageEvidence& e, const Publications& all) {
  bool updated = false;
  std::vector<const Publication*> own;
  for (const Publication& p : all) {
    if (p.sights.empty()) continue;
    updated = updated || p.sights.size() > 1;
    const auto next = std::ranges::find(all, p.moved, &Publication::map);
    if (p.moved != nullptr && next != all.end() && !next->sights.empty()) {
      Finding f = failed(fmt::format("the context moved from {:#x} to {:#x}", p.start, next->start),
                         "header mapping moved");
      f.evidence = call_lines({p.moved});
      f.event = at_call(p, *p.moved);
      f.evidence.push_back(maps_line(*p.context));
      f.evidence.push_back(maps_line(*next->context));
      return f;
    }
    if (p.own()) own.push_back(&p);
  }
  if (e.session != nullptr) {
    if (auto f = remade_by_an_update(e)) return *std::move(f);
    return updated ? passed() : nothing_judged(e, "no update was seen", kUpdate);
  }
  std::ranges::sort(own, {}, [](const Publication* p) { return p->sights.front().first_ns; });
  for (std::size_t i = 1; i < own.size(); ++i) {
    const Publication& ended = *own[i - 1];
    const Publication& next = *own[i];
    if (std::ranges::max(ended.sights, {}, &Sight::last_ns).last_ns >=
        next.sights.front().first_ns) {
      continue;  // one next to the other
    }
    Finding f = unobservable(
        fmt::format("a context ended at {:#x} and another began at {:#x}: a withdrawal and a "
                    "publication may do that, an update may not",
                    ended.start, next.start),
        "ctxconf run with an adapter, which is asked for updates");
    f.evidence = {maps_line(*ended.context), maps_line(*next.context)};
    return f;
  }
  return updated ? passed() : nothing_judged(e, "no update was seen", kUpdate);
}

// The first 32 bytes of a mapping, whose other fields are of no use to a reader without these.
bool is_accepted(std::span<const std::byte> head) {
  const auto header = abi::decode_process_header(head);
  return header && abi::is_valid(*header);
}

Finding dontfork_before_header(const ImageEvidence& e, const Publications& all) {
  bool judged = false;
  std::optional<Finding> milder;
  for (const Publication& p : all) {
    const SystemCall* c = p.dontfork;
    // Moved memory brings both its mark and its content along.
    if (c == nullptr || (p.map != nullptr && p.map->name == "mremap")) continue;
    if (c->before.size() < sizeof(abi::ProcessHeader)) continue;
    judged = true;
    if (all_zero(c->before) && all_zero(c->after)) continue;
    const bool accepted = is_accepted(c->before) || is_accepted(c->after);
    Finding f = accepted ? failed("the header was valid when MADV_DONTFORK was set",
                                  "valid header before MADV_DONTFORK")
                         : unnoticed(failed("the header had content when MADV_DONTFORK was set",
                                            "header before MADV_DONTFORK"));
    f.evidence = call_lines({p.map, c});
    f.event = at_call(p, *c);
    const std::string title = "header at " + hex_text(p.start);
    f.hexdumps = {bytes_dump(title + " before the call", p.start, c->before)};
    if (!c->after.empty()) {
      f.hexdumps.push_back(bytes_dump(title + " after the call", p.start, c->after));
    }
    if (accepted) return f;
    if (!milder) milder = std::move(f);
  }
  std::size_t children = 0;
  for (const Publication& p : all) {
    for (const ForkProbe& fork : e.image->forks) {
      if (fork_time(e, p, fork) != ForkTime::kBeforeMark) continue;
      ++children;
      const auto header = inherited_header(p, fork);
      if (header.empty()) continue;
      Finding f =
          failed(fmt::format("a child that thread {} forks {} has a header that is never corrected",
                             fork.tid, fork.at),
                 "a child's header before MADV_DONTFORK");
      f.unnoticed = !is_accepted(header);
      f.evidence = call_lines({p.map, p.dontfork});
      f.hexdumps = {bytes_dump("the child's header at " + hex_text(p.start), p.start, header)};
      if (!f.unnoticed) return f;
      if (!milder) milder = std::move(f);
    }
  }
  if (milder) return *milder;
  if (children > 0) {
    return passed(fmt::format("nothing in a child at each of {} steps before the mark", children));
  }
  return judged ? passed() : nothing_judged(e, "no madvise(MADV_DONTFORK) for a context was seen");
}

using CallRule = Finding (*)(const ImageEvidence&, const Publications&);

Finding judge_calls(const ImageEvidence& e, CallRule rule) {
  constexpr const char* kRemedy = "ctxconf wrap, on a host where it can stop system calls";
  if (e.timeline->mode == Mode::kAttach) {
    return unobservable("the calls were made before ctxconf observed the program", kRemedy);
  }
  if (!e.image->calls_unseen.empty()) return unobservable(e.image->calls_unseen, kRemedy);
  // Memory for a context takes a call, unless another process's fork brought it.
  if (e.image->calls.empty()) {
    return unobservable("no system call that concerns a context was recorded", kRemedy);
  }
  const auto all = publications_of(e);
  if (all.empty()) return no_valid_header();
  return rule(e, all);
}

template <CallRule kRule>
Finding at_plain_calls(const ImageEvidence& e) {
  Finding f = judge_calls(e, kRule);
  f.level = to_string(Level::kSyscalls);
  return f;
}

constexpr auto kCallRules = std::to_array<RequirementRule>({
    {"pctx.publish.memfd-name", at_plain_calls<memfd_name>},
    {"pctx.publish.memfd-flags", at_plain_calls<memfd_flags>},
    {"pctx.publish.memfd-sized", at_plain_calls<memfd_sized>},
    {"pctx.publish.memfd-first", at_plain_calls<memfd_first>},
    {"pctx.publish.name-always", at_plain_calls<name_always>},
    {"pctx.publish.name-arguments", at_plain_calls<name_arguments>},
    {"pctx.publish.name-whole-mapping", at_plain_calls<name_whole_mapping>},
    {"pctx.publish.name-after-timestamp", at_plain_calls<name_after_timestamp>},
    {.id = "pctx.update.same-mapping",
     .rule = at_plain_calls<same_mapping>,
     .rests_on_other_calls = true},
    {"pctx.update.name-always", at_plain_calls<update_name_always>},
    {"pctx.update.name-after-timestamp", at_plain_calls<update_name_after_timestamp>},
    {"pctx.fork.dontfork-before-header", at_plain_calls<dontfork_before_header>},
});

}  // namespace

std::span<const RequirementRule> call_rules() { return kCallRules; }

}  // namespace ctxconf::conformance
