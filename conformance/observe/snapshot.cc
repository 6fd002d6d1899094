#include "conformance/observe/snapshot.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <initializer_list>
#include <iterator>
#include <ranges>
#include <utility>

#include "abi/process_header.h"
#include "abi/process_layouts.h"
#include "conformance/evidence/trace_ids.h"
#include "conformance/observe/memory_block.h"
#include "sys/confinement.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

using sys::MapEntry;
using sys::MapTable;
using sys::MemoryReader;
using sys::RemoteAddr;
using sys::RemoteRange;

constexpr std::uint64_t kTailBytes = 64;  // after a payload, in case its size is too small
constexpr std::uint64_t kSignatureSearch = 1U << 16U;  // how far into a mapping
constexpr int kSettleTries = 5;
constexpr std::size_t kHiddenScanLimit = 50000;  // mappings searched for a nameless header

bool same_mapping(const MapEntry& a, const MapEntry& b) {
  return a.range.end() == b.range.begin() && a.name == b.name && a.inode == b.inode &&
         a.dev_major == b.dev_major && a.dev_minor == b.dev_minor && a.shared == b.shared &&
         (a.inode == 0 || a.offset + a.range.size() == b.offset);
}

// mprotect, mlock or madvise on a part makes the kernel split a mapping; a reader that sees two
// entries still sees one context.
std::vector<Candidate> join_split_entries(std::vector<MapEntry> entries) {
  std::vector<Candidate> out;
  for (auto& e : entries) {
    if (!out.empty() && same_mapping(out.back().entries.back(), e)) {
      out.back().entries.push_back(std::move(e));
    } else {
      out.emplace_back().entries.push_back(std::move(e));
    }
  }
  return out;
}

abi::ProcessHeader native_header(std::span<const std::byte> head, bool little_endian) {
  auto h = abi::decode_process_header(head).value_or(abi::ProcessHeader{});
  constexpr bool kWeAreLittle = std::endian::native == std::endian::little;
  return little_endian == kWeAreLittle ? h : abi::byte_swapped(h);
}

struct Reference {
  std::uint64_t address;
  std::uint64_t size;
};

// Where the payload may be: by the merged layout; if that is not usable, by every earlier layout
// and in the other byte order.
std::vector<Reference> references_of(std::span<const std::byte> head, const Image& image) {
  const auto header = native_header(head, image.little_endian);
  std::vector<Reference> out;
  const auto add = [&](std::uint64_t address, std::uint64_t size) {
    const bool known = std::ranges::any_of(
        out, [&](const Reference& r) { return r.address == address && r.size == size; });
    if (address != 0 && size != 0 && !known) out.push_back({address, size});
  };
  if (head.size() < sizeof header) return out;
  add(payload_address(header.payload, image.elf64), header.payload_size);
  for (const auto& layout : abi::header_layouts()) {
    if (layout.pointer < 0 || layout.size < 0) continue;
    const auto fields = abi::decode_as(layout, head);
    // Do not copy an impossible size from a layout that does not apply.
    if (fields.size <= abi::kUsualPayloadBytes) add(fields.pointer, fields.size);
  }
  const auto swapped = abi::byte_swapped(header);
  if (swapped.version == abi::kVersion) add(swapped.payload, swapped.payload_size);
  return out;
}

bool has_signature(std::span<const std::byte> bytes) {
  return bytes.size() >= abi::kSignature.size() &&
         std::memcmp(bytes.data(), abi::kSignature.data(), abi::kSignature.size()) == 0;
}

// A header that is not at the start: searched in steps of eight bytes.
std::optional<std::uint64_t> find_signature(const MemoryReader& memory, RemoteRange range) {
  std::vector<std::byte> bytes(std::min<std::uint64_t>(range.size(), kSignatureSearch));
  const auto got = memory.read_some(range.begin(), bytes);
  if (!got) return std::nullopt;
  for (std::size_t i = 8; i + sizeof(abi::ProcessHeader) <= *got; i += 8) {
    if (has_signature(std::span(bytes).subspan(i))) return i;
  }
  return std::nullopt;
}

// The entries that cover each copied range, up to a gap or to more than enough.
std::vector<MapEntry> neighbours_of(const Candidate& c, const MapTable& table) {
  std::vector<MapEntry> out;
  for (const auto& block : c.memory) {
    auto at = std::optional(block.at);
    const auto end = block.at.plus(block.wanted);
    for (int n = 0; n < 64 && at && end && *at < *end; ++n) {
      const MapEntry* e = table.find(*at);
      if (e == nullptr) break;
      if (std::ranges::find(out, *e) == out.end()) out.push_back(*e);
      at = e->range.end();
    }
  }
  return out;
}

std::uint64_t bytes_of(const Snapshot& s) {
  std::uint64_t total = 0;
  for (const Candidate& c : s.candidates) {
    for (const MemoryBlock& b : c.memory) total += b.bytes.size();
  }
  return total;
}

bool may_hold_hidden_header(const MapEntry& e) {
  return e.readable && !e.shared && !abi::is_candidate_name(e.name) &&
         (e.name.empty() || e.name.starts_with("[anon") || e.name.starts_with("/memfd:"));
}

// States are equal if a reader would see the same; tails do not count.
bool same_state(const Candidate& a, const Candidate& b) {
  const auto blocks_equal = [](const MemoryBlock& x, const MemoryBlock& y) {
    const bool tail = x.hash == 0 && y.hash == 0;
    return x.at == y.at && x.wanted == y.wanted &&
           (tail || (x.readable == y.readable && x.hash == y.hash));
  };
  return a.entries == b.entries && a.vm_flags == b.vm_flags && a.named == b.named &&
         a.stable == b.stable && a.found_at == b.found_at &&
         std::ranges::equal(a.memory, b.memory, blocks_equal);
}

}  // namespace

// Moves a payload that is too large for a state to the payloads of the image, unless it is already
// there. Reads it a second time, so that no look holds all of a known payload.
void SnapshotRecorder::keep_apart(MemoryBlock& payload) {
  const std::uint64_t begin = std::min(limits_.large_begin, limits_.payload_kept);
  const bool whole = payload.readable == payload.wanted;
  if (!whole || payload.wanted <= limits_.payload_kept) return;
  const auto known = [&] {
    return std::ranges::any_of(image_.payloads, [&](const LargePayload& p) {
      return p.hash == payload.hash && p.bytes->size() == payload.wanted;
    });
  };
  if (!known()) {
    if (large_bytes_ + payload.wanted > limits_.large_payloads) return;
    if (limits_.large_of_all && !limits_.large_of_all->take(payload.wanted)) return;
    payload = read_block(memory_, payload.at, payload.wanted, payload.wanted, limits_.payload_read);
    if (payload.readable == payload.wanted && !known()) {
      large_bytes_ += payload.wanted;
      image_.payloads.push_back(
          {.hash = payload.hash,
           .bytes = std::make_shared<const std::vector<std::byte>>(std::move(payload.bytes))});
      const auto& kept = *image_.payloads.back().bytes;
      payload.bytes.assign(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(begin));
    }
  }
  payload.bytes.resize(std::min<std::size_t>(payload.bytes.size(), begin));
  payload.bytes.shrink_to_fit();
}

// Everything about one candidate that depends on its memory. Copies between two reads of the
// timestamp, as in the reading protocol.
void SnapshotRecorder::copy_candidate(Candidate& c) {
  const bool little_endian = image_.little_endian;
  const RemoteAddr start = c.entries.front().range.begin();
  const std::uint64_t span_bytes = c.entries.back().range.end().raw() - start.raw();
  for (int tries = 0; tries < kSettleTries; ++tries) {
    c.memory.clear();
    auto head = read_block(memory_, start, std::min(abi::kHeaderBytes, span_bytes),
                           abi::kHeaderBytes, abi::kHeaderBytes);
    const auto before = native_header(head.bytes, little_endian);
    const auto references = references_of(head.bytes, image_);
    c.memory.push_back(std::move(head));
    // The bytes after the header or a payload may change at any time and are not part of the state.
    const auto add_tail = [&](std::optional<RemoteAddr> at) {
      if (!at) return;
      c.memory.push_back(read_block(memory_, *at, kTailBytes, kTailBytes, kTailBytes));
      c.memory.back().hash = 0;
    };
    add_tail(start.plus(abi::kHeaderBytes));
    std::vector<std::size_t> payloads;
    for (const auto& r : references) {
      auto block = read_block(memory_, RemoteAddr(r.address), r.size, limits_.payload_kept,
                              limits_.payload_read);
      const auto after_payload = RemoteAddr(r.address).plus(r.size);
      const bool whole = block.readable == block.wanted;
      payloads.push_back(c.memory.size());
      c.memory.push_back(std::move(block));
      if (whole) add_tail(after_payload);
    }
    const auto stable = [&] {
      const auto again =
          read_block(memory_, start, abi::kHeaderBytes, abi::kHeaderBytes, abi::kHeaderBytes);
      const auto after = native_header(again.bytes, little_endian);
      return before.monotonic_published_at_ns == after.monotonic_published_at_ns &&
             before.payload == after.payload && before.payload_size == after.payload_size;
    };
    c.stable = stable();
    if (!c.stable) continue;
    // An invalid header may have any size.
    if (abi::is_valid(before)) {
      for (const std::size_t i : payloads) keep_apart(c.memory[i]);
      c.stable = stable();
    }
    if (c.stable) return;
  }
}

SnapshotRecorder::SnapshotRecorder(ImageKey key, SnapshotLimits limits)
    : limits_(limits), memory_(key.pid) {
  image_.key = key;
  image_.started_ns = sys::boottime_now_ns();
  if (auto facts = sys::process_facts(key.pid)) {
    image_.executable = facts->executable;
    image_.command_line = facts->command_line;
    image_.elf64 = facts->elf64;
    image_.little_endian = facts->little_endian;
    image_.personality = facts->personality;
    image_.boottime_offset_ns = facts->boottime_offset_ns;
    const auto told = sys::environment_variable(key.pid, "TRACEPARENT");
    if (told && traceparent_from(*told)) image_.traceparent = *told;
  } else if (facts.error().err != ESRCH) {
    unread("/proc/PID", facts.error());
  }
}

void SnapshotRecorder::note(const std::string& text) {
  if (std::ranges::find(image_.notes, text) == image_.notes.end() && image_.notes.size() < 16) {
    image_.notes.push_back(text);
  }
}

void SnapshotRecorder::unread(const std::string& what, const sys::Error& why) {
  std::string text = what + " cannot be read: " + sys::to_string(why);
  note(text);
  if (why.err == EPERM || why.err == EACCES || why.err == ENOSYS)
    text += "; " + sys::remedy_for_reading_another(sys::Confinement::of_this_process());
  // Otherwise the memory is as the program has it.
  if (why.err != EFAULT && why.err != EIO) image_.unread = std::move(text);
}

void SnapshotRecorder::keep_those_in_use(std::vector<Candidate>& candidates) {
  const auto is_in_use = [this](const Candidate& c) {
    std::array<std::byte, abi::kHeaderBytes> head{};
    if (!c.entries.front().readable) return false;
    const auto got = memory_.read_mapped(c.entries.front().range.begin(), head);
    return got && *got == head.size() &&
           std::ranges::any_of(head, [](std::byte b) { return b != std::byte{0}; });
  };
  // Those whose headers are not read count as in use.
  std::size_t in_use = candidates.size() - std::min(candidates.size(), limits_.headers);
  candidates.resize(candidates.size() - in_use);
  std::vector<Candidate> first;
  std::vector<Candidate> blank;
  for (Candidate& c : candidates) {
    const bool used = is_in_use(c);
    in_use += used ? 1 : 0;
    auto& to = used ? first : blank;
    if (to.size() < limits_.candidates) to.push_back(std::move(c));
  }
  if (in_use > limits_.candidates) {
    image_.unexamined = std::max<std::uint64_t>(image_.unexamined, in_use - limits_.candidates);
  }
  std::ranges::move(blank, std::back_inserter(first));
  first.resize(std::min(first.size(), limits_.candidates));
  // In the order of addresses, as in every other look.
  std::ranges::sort(first, {}, [](const Candidate& c) { return c.entries.front().range.begin(); });
  candidates = std::move(first);
}

bool SnapshotRecorder::meets_update() const {
  if (image_.snapshots.empty()) return false;
  return std::ranges::any_of(image_.snapshots.back().candidates, [&](const Candidate& c) {
    std::array<std::byte, abi::kHeaderBytes> head{};
    if (!c.named || !memory_.read_exact(c.entries.front().range.begin(), head)) return false;
    const abi::ProcessHeader h = native_header(head, image_.little_endian);
    return abi::is_zeroed(h) && h.payload != 0;
  });
}

std::optional<std::vector<Candidate>> SnapshotRecorder::named_candidates() {
  const std::vector<std::string> prefixes(abi::kMappingNamePrefixes.begin(),
                                          abi::kMappingNamePrefixes.end());
  auto entries = sys::find_all_mappings(image_.key.pid, prefixes);
  if (!entries) {
    // ESRCH: the process ended meanwhile, which is not a fault.
    if (entries.error().err != ESRCH) unread("mappings", entries.error());
    return std::nullopt;
  }
  auto candidates = join_split_entries(std::move(*entries));
  if (candidates.size() <= limits_.candidates) {
    crowded_looks_ = 0;
    return candidates;
  }
  if (crowded_looks_++ == 0) {
    note("has " + std::to_string(candidates.size()) + " mappings named OTEL_CTX; " +
         std::to_string(limits_.candidates) + " are examined, those that are not blank first");
  }
  keep_those_in_use(candidates);
  return candidates;
}

std::vector<Candidate> SnapshotRecorder::hidden_candidates() const {
  std::vector<Candidate> out;
  const auto text = sys::read_maps_text(image_.key.pid);
  if (!text) return out;
  std::size_t looked_at = 0;
  sys::for_each_mapping(*text, [&](sys::Result<MapEntry> e) {
    if (!e || !may_hold_hidden_header(*e)) return true;
    if (++looked_at > kHiddenScanLimit) return false;
    abi::ProcessHeader h{};
    const auto into = std::as_writable_bytes(std::span(&h, 1));
    const auto copied = memory_.read_mapped(e->range.begin(), into);
    if (copied && *copied == into.size() && abi::is_valid(h)) {
      out.emplace_back().entries.push_back(std::move(*e));
      out.back().named = false;
    }
    return out.size() < limits_.candidates;
  });
  return out;
}

// Explains a candidate that shows no header at its start.
void SnapshotRecorder::examine_start(Candidate& c) {
  const auto& head = c.memory.front();
  const RemoteAddr start = c.entries.front().range.begin();
  if (head.readable == 0) {
    std::byte byte{};
    if (const auto got = memory_.read_some(start, std::span(&byte, 1));
        !got && got.error().err != ESRCH) {
      unread("memory", got.error());
    }
  } else if (!has_signature(head.bytes)) {
    const auto range = RemoteRange::from_bounds(start, c.entries.back().range.end());
    if (range) c.found_at = find_signature(memory_, *range);
  }
}

bool SnapshotRecorder::copy_candidates(std::vector<Candidate>& candidates) {
  const Snapshot* last = image_.snapshots.empty() ? nullptr : &image_.snapshots.back();
  bool changed = last == nullptr || last->candidates.size() != candidates.size();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    Candidate& c = candidates[i];
    copy_candidate(c);
    examine_start(c);
    // Assume the previous value, so that only a difference requires a full look.
    if (!changed) {
      c.vm_flags = last->candidates[i].vm_flags;
      c.neighbours = last->candidates[i].neighbours;
      changed = !same_state(c, last->candidates[i]);
    }
  }
  if (candidates.size() < 2) return changed;
  // The copies follow one another while the process runs: whether the first one changed meanwhile
  // decides whether they existed together.
  for (Candidate& c : candidates) {
    const auto again = read_block(memory_, c.entries.front().range.begin(), abi::kHeaderBytes,
                                  abi::kHeaderBytes, abi::kHeaderBytes);
    if (again.hash != c.memory.front().hash) c.stable = false;
  }
  return changed;
}

void SnapshotRecorder::add_surroundings(std::vector<Candidate>& candidates) {
  const pid_t pid = image_.key.pid;
  MapTable table;
  if (const auto text = sys::read_maps_text(pid)) {
    std::vector<MapEntry> all;
    sys::for_each_mapping(*text, [&](sys::Result<MapEntry> e) {
      if (e) all.push_back(std::move(*e));
      return true;
    });
    table = MapTable(std::move(all));
  }
  // A process may change its personality after its start.
  image_.personality |= sys::personality_of(pid);
  for (Candidate& c : candidates) {
    c.neighbours = neighbours_of(c, table);
    c.vm_flags.assign(c.entries.size(), std::nullopt);
    if (auto flags = sys::vm_flags(pid, c.entries)) c.vm_flags = std::move(*flags);
  }
}

void SnapshotRecorder::note_publications(const Snapshot& s) {
  std::vector<std::uint64_t> published;
  for (const Candidate& c : s.candidates) {
    saw_candidate_ = saw_candidate_ || c.named;
    if (!abi::is_valid(native_header(c.memory.front().bytes, image_.little_endian))) continue;
    const auto start = c.entries.front().range.begin().raw();
    if (std::ranges::find(published_at_, start) == published_at_.end()) {
      last_publication_ns_ = s.last_seen_ns;
    }
    published.push_back(start);
  }
  published_at_ = std::move(published);
}

std::optional<std::uint64_t> SnapshotRecorder::take(Moment moment, SnapshotDepth depth) {
  // Each of very many contexts makes a look more expensive, and a look shows only some of them.
  if (crowded_looks_ >= limits_.crowded_looks &&
      (moment == Moment::kNaming || moment == Moment::kNamed)) {
    ++image_.looks_skipped;
    return std::nullopt;
  }
  Snapshot s;
  s.moment = moment;
  s.moments = {moment};
  s.first_seen_ns = sys::boottime_now_ns();

  auto named = named_candidates();
  if (!named) return std::nullopt;
  s.candidates = std::move(*named);
  const bool thorough = depth == SnapshotDepth::kThorough;
  // Once a context was seen, searches only at the end: a later one may have another name.
  const bool may_be_hidden =
      !saw_candidate_ || moment == Moment::kExit || moment == Moment::kExecEntry;
  if (s.candidates.empty() && thorough && may_be_hidden) s.candidates = hidden_candidates();

  const bool changed = copy_candidates(s.candidates);
  const bool full = !s.candidates.empty() && (changed || thorough);
  if (full) add_surroundings(s.candidates);

  const bool had_descriptors =
      !image_.snapshots.empty() && !image_.snapshots.back().descriptors.empty();
  if (full || had_descriptors || (thorough && (saw_candidate_ || limits_.descriptors_always))) {
    if (const auto links = sys::descriptors_to(image_.key.pid, abi::kMemfdFile)) {
      for (const auto& l : *links) s.descriptors.push_back({l.fd, l.link});
    }
  }

  // If a process ends meanwhile, parts look unmapped or unreadable, which is not a state of its
  // context.
  if (!has_memory(memory_)) return std::nullopt;

  s.last_seen_ns = sys::boottime_now_ns();
  note_publications(s);
  return append(std::move(s));
}

bool SnapshotRecorder::is_full_for(std::uint64_t bytes) const {
  return image_.snapshots.size() >= limits_.snapshots + kept_as_broken_.size() ||
         stored_bytes_ + bytes > limits_.image_bytes;
}

// Judges a state that would be dropped, together with the first state and the one before it.
// Returns which of the last two are kept after all: they break a requirement that the kept states
// do not break often enough.
std::vector<Snapshot> SnapshotRecorder::worth_keeping(const Snapshot* before, const Snapshot& s) {
  std::uint64_t bytes = 0;  // includes large payloads, which are decoded as well
  for (const Candidate& c : s.candidates) {
    for (const MemoryBlock& b : c.memory) bytes += b.readable;
  }
  const std::size_t most = limits_.judge == nullptr || limits_.broken == 0 ? 0 : limits_.judged;
  if (!judged_.takes(bytes, most, limits_.judged_bytes)) {
    return {};
  }
  if (judged_.count() == 1)
    broken_.shown_often(limits_.judge->broken_by_states(image_, image_.snapshots));
  ++image_.snapshots_judged;
  const auto broken_with = [&](std::initializer_list<const Snapshot*> states) {
    std::vector<Snapshot> snapshots;
    if (!image_.snapshots.empty()) snapshots.push_back(image_.snapshots.front());
    for (const Snapshot* state : states) {
      if (state != nullptr && state != image_.snapshots.data()) snapshots.push_back(*state);
    }
    return limits_.judge->broken_by_states(image_, std::move(snapshots));
  };
  std::vector<BrokenRequirement> broken = broken_with({before, &s});
  std::vector<BrokenRequirement> own;
  if (!broken.empty()) {
    own = broken_with({&s});
    const auto without = broken_with({before});
    std::erase_if(broken, [&](const BrokenRequirement& r) {
      return std::ranges::find(own, r) == own.end() &&
             std::ranges::find(without, r) != without.end();
    });
  }
  const auto unshown = broken_.unshown(broken);
  std::vector<Snapshot> out;
  if (!unshown.empty()) {
    const bool needs_before = gave_way_ && before == &*gave_way_ && broken_.unshown(own) != unshown;
    if (needs_before) out.push_back(*before);
    out.push_back(s);
  }
  std::uint64_t more = 0;
  for (const Snapshot& kept : out) more += bytes_of(kept);
  if (out.empty() || kept_as_broken_.size() + out.size() > limits_.broken ||
      broken_bytes_ + more > limits_.image_bytes / 2) {
    add_dropped(broken, image_.requirements_dropped);
    return {};
  }
  broken_.shown(unshown);
  for (const Snapshot& kept : out) kept_as_broken_.insert(kept.first_seen_ns);
  broken_bytes_ += more;
  // Neither of them is dropped, and the one before was already counted.
  image_.snapshots_judged -= out.size();
  image_.snapshots_dropped -= out.size() - 1;
  return out;
}

std::optional<std::uint64_t> SnapshotRecorder::append(Snapshot s) {
  keeps_named_ = keeps_named_ || s.moment == Moment::kOperation;
  const auto is_again = [&](const Snapshot& last) {
    return last.descriptors == s.descriptors &&
           std::ranges::equal(last.candidates, s.candidates, same_state);
  };
  const auto see_again = [&](Snapshot& last) {
    last.last_seen_ns = s.last_seen_ns;
    ++last.times;
    if (std::ranges::find(last.moments, s.moment) == last.moments.end()) {
      last.moments.push_back(s.moment);
    }
  };
  const std::uint64_t bytes = bytes_of(s);
  // An index that an operation's view names must stay valid.
  const bool stays_out = keeps_named_ && is_full_for(bytes);
  if (!image_.snapshots.empty() && is_again(image_.snapshots.back())) {
    see_again(image_.snapshots.back());
    if (stays_out) gave_way_.reset();
    return image_.snapshots.size() - 1;
  }
  if (stays_out && gave_way_ && is_again(*gave_way_)) {
    see_again(*gave_way_);
    return std::nullopt;
  }
  const auto before = [&]() -> const Snapshot* {
    if (gave_way_) return &*gave_way_;
    return image_.snapshots.empty() ? nullptr : &image_.snapshots.back();
  };
  std::vector<Snapshot> kept;  // last first
  std::optional<Snapshot> dropped;
  const auto judge = [&](Snapshot last) {
    auto worth = worth_keeping(before(), last);
    gave_way_.reset();
    if (!worth.empty()) {
      std::ranges::move(worth | std::views::reverse, std::back_inserter(kept));
      return;
    }
    ++image_.snapshots_dropped;
    if (!dropped) dropped = std::move(last);
  };
  // The last state shows how the image ended; earlier states are replaced.
  while (!stays_out && !image_.snapshots.empty() && is_full_for(bytes)) {
    Snapshot last = std::move(image_.snapshots.back());
    image_.snapshots.pop_back();
    if (kept_as_broken_.contains(last.first_seen_ns)) {
      kept.push_back(std::move(last));
      continue;
    }
    stored_bytes_ -= bytes_of(last);
    judge(std::move(last));
  }
  if (stays_out) judge(s);
  const bool any_kept = !kept.empty();
  std::ranges::move(kept | std::views::reverse, std::back_inserter(image_.snapshots));
  gave_way_ = std::move(dropped);
  if (stays_out) return any_kept ? std::optional(image_.snapshots.size() - 1) : std::nullopt;
  stored_bytes_ += bytes;
  image_.snapshots.push_back(std::move(s));
  return image_.snapshots.size() - 1;
}

void SnapshotRecorder::replaced_unseen() {
  if (image_.snapshots.size() < 2) return;
  const Snapshot& last = image_.snapshots.back();
  const bool was_asked_for =
      std::ranges::any_of(last.moments, [](Moment m) { return m != Moment::kPeriodic; });
  const bool shows_something = std::ranges::any_of(
      last.candidates, [](const Candidate& c) { return c.memory.front().readable > 0; });
  if (was_asked_for || shows_something) return;
  stored_bytes_ -= bytes_of(last);
  image_.snapshots.pop_back();
}

std::optional<sys::RemoteAddr> SnapshotRecorder::header() const {
  if (image_.snapshots.empty()) return std::nullopt;
  for (const Candidate& c : image_.snapshots.back().candidates) {
    if (!c.named || c.memory.empty()) continue;
    const auto h = abi::decode_process_header(c.memory.front().bytes);
    if (h && abi::is_valid(*h)) return c.memory.front().at;
  }
  return std::nullopt;
}

Image SnapshotRecorder::finish(std::string ending) && {
  image_.ending = std::move(ending);
  return std::move(image_);
}

}  // namespace ctxconf::conformance
