#include "conformance/rules/publications.h"

#include <fmt/format.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "conformance/rules/header_operations.h"
#include "conformance/rules/rule.h"

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

namespace ctxconf::conformance {
namespace {

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

std::uint64_t up_to_page(std::uint64_t size, std::uint64_t page) {
  return size > UINT64_MAX - page ? UINT64_MAX / page * page : (size + page - 1) / page * page;
}

bool succeeded(const SystemCall& c) { return c.result && *c.result >= 0; }

std::uint64_t result_of(const SystemCall& c) { return static_cast<std::uint64_t>(*c.result); }

int as_int(std::uint64_t argument) { return static_cast<int>(argument); }

bool grows_in_place(const SystemCall& c, std::uint64_t start) {
  return c.args[0] == start && c.name == "mremap" && succeeded(c) && result_of(c) == start;
}

bool makes(const SystemCall& c, std::uint64_t start) {
  return succeeded(c) && result_of(c) == start && (c.name == "mmap" || c.name == "mremap") &&
         !grows_in_place(c, start);
}

// Maps memory from before `start` to after it: what was there was unmapped, by a call that is not
// recorded.
bool maps_over(const SystemCall& c, std::uint64_t start) {
  return result_of(c) < start && start - result_of(c) < c.args[1] && c.name == "mmap";
}

bool ends(const SystemCall& c, std::uint64_t start) {
  if (!succeeded(c)) return false;
  if (maps_over(c, start)) return true;
  if (c.args[0] > start) return false;
  if (start - c.args[0] < c.args[1] && c.name == "munmap") return true;
  return c.args[0] == start && result_of(c) != start && c.name == "mremap";
}

std::optional<abi::ProcessHeader> header_in(const Image& image, std::span<const std::byte> bytes) {
  auto h = abi::decode_process_header(bytes);
  const bool native = image.little_endian == (std::endian::native == std::endian::little);
  if (h && !native) h = abi::byte_swapped(*h);
  return h;
}

// A part of a memfd's mapping that got a name of its own is a candidate of its own.
std::uint64_t end_in_maps(const Context& c) {
  const sys::MapEntry* last = &c.candidate->entries.back();
  for (const Candidate& next : c.snapshot->candidates) {  // ascending
    const sys::MapEntry& e = next.entries.front();
    if (e.inode == 0 || e.inode != last->inode || e.range.begin() != last->range.end()) continue;
    if (last->offset + last->range.size() == e.offset) last = &next.entries.back();
  }
  return last->range.end().raw();
}

void add_sight(Publication& p, std::uint64_t timestamp, std::uint64_t first, std::uint64_t last,
               bool at_rest) {
  const auto it = std::ranges::find(p.sights, timestamp, &Sight::timestamp);
  if (it == p.sights.end()) {
    p.sights.push_back({timestamp, first, last, at_rest});
    return;
  }
  it->first_ns = std::min(it->first_ns, first);
  it->last_ns = std::max(it->last_ns, last);
  it->at_rest = it->at_rest || at_rest;
}

// Whether MADV_DONTFORK was for what was mapped there last.
bool is_marked(const Image& image, std::uint64_t start) {
  bool marked = false;
  for (const SystemCall& c : image.calls) {
    if (c.name == "mmap" && c.result == static_cast<std::int64_t>(start)) marked = false;
    if (c.name != "madvise" || c.args[0] != start || c.result != 0) continue;
    marked = marked || c.args[2] == MADV_DONTFORK;
  }
  return marked;
}

bool is_ending(Moment m) { return m == Moment::kExit || m == Moment::kExecEntry; }

void add_memfd(const Image& image, Publication& p) {
  const std::span all(image.calls);
  const auto before = all.first(p.map == nullptr ? 0 : static_cast<std::size_t>(p.map - &all[0]));
  const bool file =
      p.map != nullptr && p.map->name == "mmap" && (p.map->args[3] & MAP_ANONYMOUS) == 0;
  const int fd = file ? as_int(p.map->args[4]) : -1;
  const auto* since = before.data() + before.size();
  if (file) {
    for (const SystemCall& c : before) {
      if (c.name != "memfd_create" || !succeeded(c) || as_int(result_of(c)) != fd) continue;
      p.create = &c;
    }
    // The number may since belong to another file.
    if (p.create != nullptr && !p.map->file.empty() &&
        !p.map->file.starts_with("/memfd:" + p.create->text)) {
      p.create = nullptr;
    }
    if (p.create != nullptr) since = p.create;
  }
  if (p.map == nullptr) return;
  // Another thread may map what this one has asked for.
  const std::int32_t tid = p.create != nullptr ? p.create->tid : p.map->tid;
  for (const SystemCall& c : before.first(static_cast<std::size_t>(since - before.data()))) {
    if (c.name != "memfd_create" || c.tid != tid) continue;
    if (succeeded(c)) {
      p.attempts.clear();
    } else {
      p.attempts.push_back(&c);
    }
  }
  if (p.create == nullptr) return;
  for (const SystemCall& c : all.subspan(static_cast<std::size_t>(p.create - &all[0]) + 1)) {
    if (c.name == "memfd_create" && succeeded(c) && as_int(result_of(c)) == fd) break;
    static constexpr std::array<std::string_view, 5> kSizing = {"ftruncate", "ftruncate64",
                                                                "fallocate", "write", "pwrite64"};
    if (std::ranges::find(kSizing, c.name) == kSizing.end()) continue;
    if (as_int(c.args[0]) != fd || !succeeded(c)) continue;
    if (!c.file.empty() && !c.file.starts_with("/memfd:" + p.create->text)) continue;
    p.sizings.push_back(&c);
  }
}

void add_calls(const Image& image, std::uint64_t page, Publication& p) {
  for (const SystemCall& c : p.calls) {
    const std::uint64_t address = is_naming(c) ? c.args[2] : c.args[0];
    if (is_naming(c)) {
      if (c.args[4] == 0 && c.text.empty()) continue;  // takes a name away
      const std::uint64_t end = p.end_at(c, page);
      if (address < p.start || address - p.start >= std::max(end - p.start, page)) continue;
      // A munmap of much is not recorded: other memory may be there now.
      if (address != p.start && p.last_seen_ns < c.entered_ns) continue;
      auto& list = is_context_naming(c) ? p.namings : p.renamings;
      list.push_back({&c, header_in(image, c.before)});
    } else if (c.name == "madvise" && as_int(c.args[2]) == MADV_DONTFORK && succeeded(c)) {
      const bool covers = address <= p.start && p.start - address < std::max(c.args[1], page);
      if (covers && p.dontfork == nullptr) p.dontfork = &c;
    }
  }
}

// One for each time that there was something at `start`, of which `contexts` are.
void add_publications(const ImageEvidence& e, const std::vector<const Context*>& contexts,
                      const HeaderHistory& history, std::uint64_t start,
                      std::vector<Publication>& out) {
  const std::span all(e.image->calls);
  const std::uint64_t page = e.timeline->page_size;
  std::size_t from = 0;
  const SystemCall* map = nullptr;
  const auto close = [&](std::size_t until) {
    Publication p;
    p.start = start;
    p.map = map;
    p.calls = all.subspan(from, until - from);
    for (const SystemCall& c : p.calls) {
      if (grows_in_place(c, start)) p.growths.push_back({.call = &c, .size = c.args[2]});
    }
    const std::uint64_t grown_ns = p.growths.empty() ? std::numeric_limits<std::uint64_t>::max()
                                                     : p.growths.front().call->entered_ns;
    const std::uint64_t from_ns = from == 0 ? 0 : all[from - 1].entered_ns;
    const std::uint64_t until_ns =
        until == all.size() ? std::numeric_limits<std::uint64_t>::max() : all[until].entered_ns;
    for (const Context* c : contexts) {
      const Snapshot& s = *c->snapshot;
      if (s.last_seen_ns < from_ns || s.first_seen_ns >= until_ns) continue;
      if (p.context == nullptr) p.context = c;
      p.last_seen_ns = std::max(p.last_seen_ns, s.last_seen_ns);
      if (c->candidate->named && s.first_seen_ns < grown_ns) {
        p.seen_end = std::max(p.seen_end, end_in_maps(*c));
      }
      if (!c->usable()) continue;
      add_sight(p, c->header.monotonic_published_at_ns, s.first_seen_ns, s.last_seen_ns,
                !std::ranges::all_of(s.moments, is_ending));
    }
    if (p.context == nullptr) return;
    add_memfd(*e.image, p);
    add_calls(*e.image, page, p);
    // Adds what no snapshot and no call shows, because the next change came first.
    const std::uint64_t from_order = from == 0 ? 0 : all[from - 1].left_order;
    const std::uint64_t until_order =
        until == all.size() ? std::numeric_limits<std::uint64_t>::max() : all[until].entered_order;
    for (const HeaderOperation& op : history.operations) {
      if (!op.is_announced() || !op.is_asked_for) continue;
      const HeaderStore& by = op.announcing();
      if (by.store->header != start || by.store->tid == 0 || by.is_unordered()) continue;
      if (by.store->order <= from_order || by.store->order >= until_order) continue;
      if (!abi::is_valid(by.after) || by.after.payload == 0 || by.after.payload_size == 0) continue;
      add_sight(p, by.after.monotonic_published_at_ns, by.store->at_ns, by.store->at_ns, false);
    }
    if (until < all.size() && all[until].name == "mremap" && ends(all[until], start)) {
      p.moved = &all[until];
    }
    out.push_back(std::move(p));
  };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!makes(all[i], start) && !ends(all[i], start)) continue;
    close(i);
    map = makes(all[i], start) ? &all[i] : nullptr;
    from = i + 1;
  }
  close(all.size());
}

// When the first mapping was made between the start of `p` and `end`, since `p` was there: its
// place in the order of events.
std::uint64_t mapped_inside(const std::vector<Publication>& all, const Publication& p,
                            std::uint64_t end) {
  const std::uint64_t since = p.map == nullptr ? 0 : p.map->left_order;
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const Publication& q : all) {
    if (q.map == nullptr || q.map->left_order <= since || q.start <= p.start || q.start >= end) {
      continue;
    }
    first = std::min(first, q.map->left_order);
  }
  return first;
}

// Memory may be unmapped by a call that is not recorded, and another context mapped there: its
// naming calls, and what is named next to it, do not concern the first.
void leave_out_namings_of_others(std::vector<Publication>& all, std::uint64_t page) {
  std::set<const SystemCall*> at_starts;
  for (const Publication& p : all) {
    for (const Naming& n : p.namings) {
      if (n.call->args[2] == p.start) at_starts.insert(n.call);
    }
  }
  for (Publication& p : all) {
    // The end is another one only where the mapping grows.
    std::optional<std::uint64_t> end;
    std::uint64_t first = 0;
    std::erase_if(p.namings, [&](const Naming& n) {
      if (n.call->args[2] == p.start) return false;
      if (at_starts.contains(n.call)) return true;
      if (const std::uint64_t now = p.end_at(*n.call, page); end != now) {
        end = now;
        first = mapped_inside(all, p, now);
      }
      return first < n.call->entered_order;
    });
  }
}

// Whether everything that is known of the publication was done by the first thread.
bool is_written_by_first_thread(const ImageEvidence& e, const Publication& p) {
  const std::int32_t pid = e.process->pid;
  if (p.map != nullptr && p.map->tid != pid) return false;
  return std::ranges::all_of(p.namings, [&](const Naming& n) { return n.call->tid == pid; }) &&
         std::ranges::all_of(e.image->stores, [&](const Store& s) {
           return !p.is_stored_to(s) || s.tid == 0 || s.tid == pid;
         });
}

}  // namespace

ForkTime fork_time(const ImageEvidence& e, const Publication& p, const ForkProbe& fork) {
  if (p.map == nullptr || p.dontfork == nullptr || fork.order < p.map->left_order) {
    return ForkTime::kNeither;
  }
  const auto after = static_cast<std::size_t>(p.calls.data() - e.image->calls.data()) +
                     p.calls.size();  // the call that ended the mapping
  if (after < e.image->calls.size() && fork.order >= e.image->calls[after].entered_order) {
    return ForkTime::kNeither;
  }
  return fork.order < p.dontfork->left_order ? ForkTime::kBeforeMark : ForkTime::kAfterMark;
}

std::span<const std::byte> inherited_header(const Publication& p, const ForkProbe& fork) {
  for (const Candidate& c : fork.candidates) {
    if (c.entries.front().range.begin().raw() != p.start || c.memory.empty()) continue;
    const std::span<const std::byte> bytes = c.memory.front().bytes;
    if (std::ranges::any_of(bytes, [](std::byte b) { return b != std::byte{}; })) return bytes;
  }
  return {};
}

bool is_naming(const SystemCall& c) {
  return c.name == "prctl" && static_cast<std::uint32_t>(c.args[0]) == PR_SET_VMA &&
         c.args[1] == PR_SET_VMA_ANON_NAME;
}

bool is_context_naming(const SystemCall& c) { return is_naming(c) && looks_like_the_name(c.text); }

std::optional<bool> host_has(const Timeline& t, std::string_view name) {
  const auto fact = std::ranges::find(t.host, name, &sys::HostFact::name);
  return fact == t.host.end() ? std::nullopt : std::optional(fact->available);
}

std::string call_line(const SystemCall& c) {
  struct Shape {
    std::string_view name;
    std::size_t arguments;
  };
  static constexpr std::array<Shape, 9> kShapes = {{{"memfd_create", 2},
                                                    {"ftruncate", 2},
                                                    {"mmap", 6},
                                                    {"madvise", 3},
                                                    {"prctl", 4},
                                                    {"mremap", 5},
                                                    {"munmap", 2},
                                                    {"mprotect", 3},
                                                    {"clock_gettime", 2}}};
  const auto shape = std::ranges::find(kShapes, c.name, &Shape::name);
  const std::size_t count = shape == kShapes.end() ? c.args.size() : shape->arguments;
  std::string arguments;
  for (std::size_t i = 0; i < count; ++i) {
    arguments += (i == 0 ? "" : ", ");
    arguments += c.name == "memfd_create" && i == 0 ? '"' + c.text + '"' : hex_text(c.args[i]);
  }
  if (is_naming(c)) arguments += ", \"" + c.text + '"';
  std::string result = "?";
  if (c.result) result = *c.result < 0 ? std::to_string(*c.result) : hex_text(*c.result);
  return fmt::format("{}({}) = {}{}{}, thread {}", c.name, arguments, result,
                     c.clock_ns ? fmt::format(", {} ns", *c.clock_ns) : "",
                     c.injected ? " (injected)" : "", c.tid);
}

std::vector<std::string> call_lines(std::initializer_list<const SystemCall*> calls) {
  std::vector<std::string> out;
  for (const SystemCall* c : calls) {
    if (c != nullptr) out.push_back(call_line(*c));
  }
  return out;
}

std::uint64_t Publication::end_at(const SystemCall& call, std::uint64_t page) const {
  std::uint64_t end = 0;
  if (map != nullptr) {
    end = sum(start, up_to_page(map->args[map->name == "mmap" ? 1 : 2], page));
  } else if (dontfork != nullptr && dontfork->args[0] == start) {
    // The kernel joins anonymous memory of the same kind: maps may show more than was asked for.
    end = sum(start, up_to_page(dontfork->args[1], page));
  }
  // A mapping that is cut off leaves no recorded call.
  const bool cut = map != nullptr && seen_end != 0 && seen_end < end;
  if (end == 0 || cut) end = seen_end;
  if (end == 0) return 0;
  // The last one before it.
  const auto later = std::ranges::lower_bound(growths, &call, {}, &Growth::call);
  if (later != growths.begin()) end = sum(start, up_to_page(std::prev(later)->size, page));
  return end;
}

std::vector<const Context*> hidden_after_usable_ones(const ImageEvidence& e) {
  const auto memory_of = [](const Context& c) {
    return std::pair(c.start(), c.candidate->entries.front().inode);
  };
  if (!e.has_usable || e.contexts.empty()) return {};
  const auto& last = e.contexts.back();
  if (std::ranges::any_of(last, [](const Context& c) { return c.candidate->named; })) return {};
  std::set<std::pair<std::uint64_t, std::uint64_t>> named_files;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      if (c.candidate->named) named_files.insert(memory_of(c));
    }
  }
  std::vector<const Context*> out;
  for (const Context& c : last) {
    if (!c.usable() || !c.is_decoded() || !is_marked(*e.image, c.start())) continue;
    if (!named_files.contains(memory_of(c))) out.push_back(&c);
  }
  return out;
}

std::vector<const Context*> relevant_contexts(const ImageEvidence& e) {
  if (e.has_usable) {
    std::vector<const Context*> out = e.judged;
    for (const Context* c : hidden_after_usable_ones(e)) {
      if (c->candidate->entries.front().name.empty()) out.push_back(c);
    }
    return out;
  }
  std::vector<const Context*> hidden;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      if (!c.candidate->named && c.usable()) hidden.push_back(&c);
    }
  }
  return hidden.empty() ? e.judged : hidden;
}

std::vector<Publication> publications_of(const ImageEvidence& e) {
  const HeaderHistory history = header_history_of(e);
  std::map<std::uint64_t, std::vector<const Context*>> at;  // by their start
  std::vector<std::uint64_t> starts;                        // in the order of their first sight
  for (const Context* c : relevant_contexts(e)) {
    auto& there = at[c->start()];
    if (there.empty()) starts.push_back(c->start());
    there.push_back(c);
  }
  std::vector<Publication> out;
  for (const std::uint64_t start : starts) add_publications(e, at[start], history, start, out);
  leave_out_namings_of_others(out, e.timeline->page_size);
  for (Publication& p : out) {
    for (const auto* calls : {&p.namings, &p.renamings}) {
      for (const Naming& n : *calls) {
        if (!n.valid()) continue;
        const std::uint64_t at_ns = n.call->entered_ns;
        add_sight(p, n.before->monotonic_published_at_ns, at_ns, at_ns, false);
      }
    }
    std::ranges::sort(p.sights, {}, &Sight::first_ns);
  }
  return out;
}

bool is_complete(const Image& image) {
  if (image.calls_dropped > 0) return false;
  return std::ranges::none_of(image.calls, [](const SystemCall& c) {
    return c.name == "seccomp" || (c.name == "prctl" && c.args[0] == PR_SET_SECCOMP);
  });
}

bool is_past(const ImageEvidence& e, const Publication& p, const Sight& sight) {
  constexpr std::uint64_t kRest = 2'000'000'000;
  if (&sight != &p.sights.back()) return true;
  // Its memory was taken away, or something else was put there.
  if (p.calls.data() + p.calls.size() != e.image->calls.data() + e.image->calls.size()) return true;
  if (sight.last_ns - sight.first_ns >= kRest) return true;
  // The end may have come between the timestamp and the call of a thread that does not cause it. It
  // is the first thread that usually does.
  const bool ended = e.process->exit_code.has_value() || e.image != &e.process->images.back();
  return ended && sight.at_rest && is_written_by_first_thread(e, p);
}

}  // namespace ctxconf::conformance
