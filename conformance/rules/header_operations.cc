#include "conformance/rules/header_operations.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/publications.h"

namespace ctxconf::conformance {
namespace {

using Kind = HeaderOperation::Kind;
constexpr std::size_t kNone = HeaderOperation::kNone;

// A context that was taken away, if its timestamp stays.
bool is_withdrawn(const abi::ProcessHeader& h) {
  return !abi::is_valid(h) || h.payload == 0 || h.payload_size == 0;
}

bool is_blank(const abi::ProcessHeader& h) { return h == abi::ProcessHeader{}; }

std::uint8_t byte_of(std::uint64_t value, unsigned i) {
  return static_cast<std::uint8_t>(value >> (8 * i));
}

// A store that changes both halves of a value is not a piece of it: it stored all eight bytes.
bool is_within_a_half(std::uint64_t from, std::uint64_t to) {
  const std::uint64_t changed = from ^ to;
  return changed >> 32U == 0 || (changed & UINT32_MAX) == 0;
}

// Bytes that differ were zero before: the rest of a value that is stored in pieces.
bool only_fills(std::uint64_t from, std::uint64_t to) {
  if (!is_within_a_half(from, to)) return false;
  for (unsigned i = 0; i < 8; ++i) {
    if (byte_of(from, i) != byte_of(to, i) && byte_of(from, i) != 0) return false;
  }
  return true;
}

bool only_clears(std::uint64_t from, std::uint64_t to) { return only_fills(to, from); }

std::set<std::uint64_t> usable_starts(const ImageEvidence& e) {
  std::set<std::uint64_t> out;
  for (const Context* c : relevant_contexts(e)) {
    if (c->usable()) out.insert(c->start());
  }
  return out;
}

class Reader {
 public:
  Reader(const ImageEvidence& e, HeaderHistory& out) : e_(e), out_(out) {}

  // `steps` of one watch, each continuing the one before it.
  void read(const Watch& watch, bool fresh, std::vector<HeaderStore> steps) {
    watch_ = &watch;
    fresh_ = fresh;
    steps_ = std::move(steps);
    begin_ = 0;
    last_ = zero_first_ = zero_ = kNone;
    std::size_t i = 0;
    while (i < steps_.size()) {
      i = steps_[i].before.monotonic_published_at_ns == 0 ? in_zero(i) : at_rest(i);
    }
    finish();
  }

 private:
  HeaderOperation* last() { return last_ == kNone ? nullptr : &out_.operations[last_]; }

  static std::uint64_t timestamp_after(const HeaderStore& s) {
    return s.after.monotonic_published_at_ns;
  }

  // The last of the stores that complete the value which steps_[i] began.
  std::size_t end_of_filling(std::size_t i) const {
    std::size_t end = i;
    const HeaderStore& first = steps_[i];
    if (!is_within_a_half(first.before.monotonic_published_at_ns, timestamp_after(first))) return i;
    for (std::size_t k = i + 1; k < steps_.size(); ++k) {
      const HeaderStore& s = steps_[k];
      if (!s.changes_timestamp()) continue;
      if (!only_fills(s.before.monotonic_published_at_ns, timestamp_after(s))) break;
      end = k;
    }
    return end;
  }

  // The store that completes the zero that steps_[i] begins; kNone: steps_[i] does not begin one.
  std::size_t end_of_clearing(std::size_t i) const {
    for (std::size_t k = i; k < steps_.size(); ++k) {
      const HeaderStore& s = steps_[k];
      if (!s.changes_timestamp()) continue;
      if (timestamp_after(s) == 0) return k;
      if (!only_clears(s.before.monotonic_published_at_ns, timestamp_after(s))) break;
    }
    return kNone;
  }

  std::size_t in_zero(std::size_t i) {
    const HeaderStore& s = steps_[i];
    if (is_blank(s.after) && !is_blank(s.before)) {
      // Withdrawn: what follows is a publication.
      put_what_preceded_the_zero();
      begin_ = i + 1;
      zero_first_ = zero_ = kNone;
      fresh_ = true;
      return i + 1;
    }
    if (timestamp_after(s) == 0) return i + 1;
    const std::size_t end = end_of_filling(i);
    if (!fresh_ && zero_ != kNone && was_withdrawn(steps_[end])) {
      begin_ = zero_ + 1;
      zero_first_ = zero_ = kNone;
      fresh_ = true;
    }
    add(fresh_ ? Kind::kPublication : Kind::kUpdate, i, end);
    return end + 1;
  }

  std::size_t at_rest(std::size_t i) {
    if (!steps_[i].changes_timestamp()) return i + 1;
    const std::size_t zero = end_of_clearing(i);
    part_from_last(i, zero == kNone || is_withdrawn(steps_[i].before));
    fresh_ = false;
    if (zero == kNone) {
      add(Kind::kUpdate, i, i);
      return i + 1;
    }
    zero_first_ = i;
    zero_ = zero;
    if (is_blank(steps_[zero].after)) {
      put_what_preceded_the_zero();
      begin_ = zero + 1;
      zero_first_ = zero_ = kNone;
      fresh_ = true;
    }
    return zero + 1;
  }

  // Whether the zero was a withdrawal: the name was removed before a timestamp came back, or the
  // program was asked to drop the context, and later to publish one.
  bool was_withdrawn(const HeaderStore& announcing) const {
    const std::uint64_t from = steps_[zero_].store->order;
    const std::uint64_t to = announcing.store->order;
    const bool renamed = std::ranges::any_of(e_.image->calls, [&](const SystemCall& c) {
      return c.args[2] == watch_->header && c.entered_order > from && c.entered_order < to &&
             is_naming(c) && !is_context_naming(c);
    });
    if (renamed || is_unknown(announcing)) return true;
    if (e_.session == nullptr) return false;
    const std::size_t asked = operation_of(e_, from);
    return asked < e_.session->operations.size() && asked != operation_of(e_, to) &&
           e_.session->operations[asked].op == "process.drop";
  }

  // Calls over the limit are the last ones: such a call may have removed the name.
  bool is_unknown(const HeaderStore& announcing) const {
    const Image& image = *e_.image;
    if (image.calls_dropped == 0) return false;
    const auto last = std::ranges::max_element(image.calls, {}, &SystemCall::entered_order);
    return last == image.calls.end() || last->entered_order < announcing.store->order;
  }

  // Nothing but what the program does next tells a withdrawal by zero alone from the beginning of
  // an update: a publisher stores the signature again, and a writer who is done sleeps or ends.
  bool may_be_withdrawn(std::size_t zero, std::size_t announcing) const {
    constexpr std::uint8_t kSignatureWord = 1;
    if (steps_[zero].store->rested) return true;
    const std::span window(steps_.data() + zero + 1, announcing - zero - 1);
    return std::ranges::none_of(window, &HeaderStore::changes_identity) &&
           std::ranges::any_of(window, [](const HeaderStore& s) {
             return (s.store->words & kSignatureWord) != 0 && !s.changes_timestamp();
           });
  }

  // When a reader found what `announcing` announced.
  std::uint64_t seen_ns(const HeaderStore& announcing) const {
    std::uint64_t out = UINT64_MAX;
    for (const Context* c : relevant_contexts(e_)) {
      const std::uint64_t ns = c->snapshot->first_seen_ns;
      if (!c->usable() || c->start() != watch_->header || c->header != announcing.after) continue;
      if (ns > announcing.store->at_ns) out = std::min(out, ns);
    }
    return out;
  }

  // Stores to a header at rest, steps_[begin_] to steps_[end - 1], belong to the operation before
  // them until its naming call, and to what comes after them from then on. Without such a call,
  // until a reader has found it; if `is_replaced`, not at all: the fields of a timestamp that is
  // replaced are stored before it.
  void part_from_last(std::size_t end, bool is_replaced) {
    HeaderOperation* op = last();
    if (op == nullptr) return;
    const std::uint64_t since = op->announcing().store->order;
    std::uint64_t named = UINT64_MAX;
    for (const SystemCall& c : e_.image->calls) {
      if (c.args[2] != watch_->header || c.entered_order <= since || !is_context_naming(c)) {
        continue;
      }
      named = std::min(named, c.entered_order);
    }
    if (named == UINT64_MAX && is_replaced) return;
    const std::uint64_t seen = named == UINT64_MAX ? seen_ns(op->announcing()) : UINT64_MAX;
    while (begin_ < end && steps_[begin_].store->order < named &&
           steps_[begin_].store->at_ns < seen) {
      op->stores.push_back(steps_[begin_++]);
    }
  }

  void add(Kind kind, std::size_t first, std::size_t end) {
    HeaderOperation op;
    op.kind = kind;
    op.watch = watch_;
    const auto at = [&](std::size_t i) { return i == kNone ? kNone : i - begin_; };
    op.zero_first = at(zero_first_);
    op.zero = at(zero_);
    op.announce_first = at(first);
    op.announce = at(end);
    op.may_be_publication = kind == Kind::kUpdate && zero_ != kNone && may_be_withdrawn(zero_, end);
    put(std::move(op), end + 1);
    last_ = out_.operations.size() - 1;
    fresh_ = false;
  }

  void put(HeaderOperation op, std::size_t end) {
    op.stores.assign(steps_.begin() + static_cast<std::ptrdiff_t>(begin_),
                     steps_.begin() + static_cast<std::ptrdiff_t>(end));
    if (HeaderOperation* before = last(); before != nullptr && !op.stores.empty()) {
      before->until_ns = op.stores.front().store->at_ns;
    }
    out_.operations.push_back(std::move(op));
    begin_ = end;
    zero_first_ = zero_ = kNone;
  }

  // An update that changed its fields first, and ended at its zero.
  void put_what_preceded_the_zero() {
    if (zero_first_ == kNone || zero_first_ <= begin_) return;
    const auto& was = steps_[begin_].before;
    const auto& is = steps_[zero_first_].before;
    if (is_withdrawn(is) || (was.payload == is.payload && was.payload_size == is.payload_size)) {
      return;
    }
    HeaderOperation op;
    op.kind = Kind::kUpdate;
    op.watch = watch_;
    put(std::move(op), zero_first_);
  }

  void finish() {
    if (begin_ == steps_.size()) return;
    const bool open = zero_ != kNone || timestamp_after(steps_.back()) == 0;
    const bool withdrawn = is_withdrawn(steps_.back().after);
    if (open) put_what_preceded_the_zero();
    if (!open) part_from_last(steps_.size(), withdrawn);
    if (HeaderOperation* op = last(); op != nullptr && begin_ < steps_.size()) {
      op->until_ns = steps_[begin_].store->at_ns;
    }
    const bool changed =
        std::any_of(steps_.begin() + static_cast<std::ptrdiff_t>(begin_), steps_.end(),
                    [](const HeaderStore& s) { return s.changes_another_field(); });
    if (open || withdrawn || !changed) return;
    HeaderOperation op;
    op.kind = Kind::kUpdate;
    op.watch = watch_;
    put(std::move(op), steps_.size());
  }

  const ImageEvidence& e_;
  HeaderHistory& out_;
  const Watch* watch_ = nullptr;
  std::vector<HeaderStore> steps_;
  bool fresh_ = false;     // no context was announced here yet
  std::size_t begin_ = 0;  // of what belongs to no operation yet
  std::size_t zero_first_ = kNone;
  std::size_t zero_ = kNone;
  std::size_t last_ = kNone;  // the watch's last operation that was announced
};

bool is_in(const Store& s, const Watch& w) {
  return s.header == w.header && s.order >= w.armed_order &&
         (!w.ended_order || s.order <= *w.ended_order);
}

// No store of a context was missed before the watch began.
bool begins_fresh(const Watch& w, const std::optional<abi::ProcessHeader>& found) {
  if (!found) return false;
  if (is_blank(*found)) return true;
  return found->monotonic_published_at_ns == 0 &&
         (w.begin == WatchBegin::kMemfd || w.begin == WatchBegin::kAnonymous);
}

bool was_ever_valid(const HeaderOperation& op) {
  if (!op.is_announced())
    return std::ranges::any_of(op.stores, [](const HeaderStore& s) {
      return abi::is_valid(s.before) || abi::is_valid(s.after);
    });
  return std::any_of(op.stores.begin() + static_cast<std::ptrdiff_t>(op.announce), op.stores.end(),
                     [](const HeaderStore& s) { return abi::is_valid(s.after); });
}

}  // namespace

std::optional<abi::ProcessHeader> header_of(const Image& image, std::span<const std::byte> bytes) {
  auto h = abi::decode_process_header(bytes);
  const bool native = image.little_endian == (std::endian::native == std::endian::little);
  if (h && !native) h = abi::byte_swapped(*h);
  return h;
}

std::vector<const HeaderStore*> HeaderOperation::pieces(std::size_t first, std::size_t last) const {
  std::vector<const HeaderStore*> out;
  for (std::size_t i = first; i <= last && i < stores.size(); ++i) {
    if (stores[i].changes_timestamp()) out.push_back(&stores[i]);
  }
  return out;
}

const HeaderStore* store_of_another_writer(const HeaderOperation& update) {
  constexpr std::uint8_t kTimestampWord = 4;
  if (!update.was_zeroed() || !update.is_announced()) return nullptr;
  const std::int32_t first = update.stores[update.zero_first].store->tid;
  std::int32_t current = first;
  std::set<std::int32_t> before;
  for (std::size_t k = update.zero_first; k <= update.announce; ++k) {
    const HeaderStore& by = update.stores[k];
    const std::int32_t tid = by.store->tid;
    if (tid == 0 || first == 0 || tid == current) continue;
    const bool zeroes_again = k > update.zero && (by.store->words & kTimestampWord) != 0 &&
                              by.after.monotonic_published_at_ns == 0;
    before.insert(current);
    current = tid;
    if (before.contains(tid) || zeroes_again) return &by;
  }
  return nullptr;
}

HeaderHistory header_history_of(const ImageEvidence& e) {
  HeaderHistory out;
  const Image& image = *e.image;
  const auto usable = usable_starts(e);
  std::vector<std::vector<const Store*>> of_watch(image.watches.size());
  // A program may publish at thousands of places: only watches of the same header are asked.
  std::map<std::uint64_t, std::vector<std::size_t>> of_header;
  for (std::size_t w = 0; w < image.watches.size(); ++w) {
    of_header[image.watches[w].header].push_back(w);
  }
  for (const Store& s : image.stores) {
    const auto watches = of_header.find(s.header);
    if (watches == of_header.end()) continue;
    // Recorded one after the other: the last that fits.
    for (const std::size_t w : watches->second | std::views::reverse) {
      if (!is_in(s, image.watches[w])) continue;
      of_watch[w].push_back(&s);
      break;
    }
  }
  for (std::size_t w = 0; w < image.watches.size(); ++w) {
    const Watch& watch = image.watches[w];
    if (!usable.contains(watch.header)) continue;
    auto known = header_of(image, watch.found);
    bool fresh = begins_fresh(watch, known);
    if (known && known->monotonic_published_at_ns != 0) out.late = true;
    std::vector<HeaderStore> steps;
    Reader reader(e, out);
    for (const Store* s : of_watch[w]) {
      const auto before = header_of(image, s->before);
      const auto after = header_of(image, s->after);
      const bool follows = before && after && (!known || *known == *before);
      if (!follows) {
        ++out.unknown;
        reader.read(watch, fresh, std::exchange(steps, {}));
        fresh = false;
      }
      known = after;
      if (follows) steps.push_back({s, *before, *after});
    }
    reader.read(watch, fresh, std::move(steps));
  }
  std::erase_if(out.operations, [](const HeaderOperation& op) { return !was_ever_valid(op); });
  return out;
}

}  // namespace ctxconf::conformance
