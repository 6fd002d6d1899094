// Rules about the order of stores to the header (level stores).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "conformance/requirements/catalogue.h"
#include "conformance/rules/header_operations.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/store_evidence.h"

namespace ctxconf::conformance {
namespace {

using Kind = HeaderOperation::Kind;

// ---- what rules ask

// What the rules have found so far: a failure ends the search, a note waits for one.
struct Tally {
  std::size_t judged = 0;
  std::size_t unordered = 0;  // changes by nobody who was watched, in no known order
  std::size_t late = 0;       // operations whose beginning was not seen
  std::size_t unread = 0;     // payloads of which too little is known
  std::size_t contended = 0;  // where another thread may have acted between two looks
  std::size_t reopened = 0;   // updates that may be a withdrawal and a publication
  std::size_t uncopied = 0;   // where it is not known what memory held
  std::size_t by_kernel = 0;  // timestamps that a system call stored, in unknown pieces
  std::optional<Finding> info;
};

using History = std::vector<HeaderOperation>;
using StoreRule = std::optional<Finding> (*)(const ImageEvidence&, const History&, Tally&);

bool is_update(const HeaderOperation& op) { return op.kind == Kind::kUpdate && op.is_asked_for; }

// Its window was open when the watch began.
bool is_late(const HeaderOperation& op) {
  return is_update(op) && !op.was_zeroed() && op.is_announced() &&
         op.stores[op.announce_first].before.monotonic_published_at_ns == 0;
}

bool is_replaced(const HeaderOperation& op) {
  return is_update(op) && !op.was_zeroed() && op.is_announced() && !is_late(op);
}

bool any_unordered(const HeaderOperation& op) {
  return std::ranges::any_of(op.stores, &HeaderStore::is_unordered);
}

bool by_nobody(const std::vector<const HeaderStore*>& stores) {
  return std::ranges::any_of(stores, [](const HeaderStore* s) { return s->store->tid == 0; });
}

std::optional<Finding> timestamp_last(const ImageEvidence& e, const History& all, Tally& tally) {
  for (const HeaderOperation& op : all) {
    if (op.kind != Kind::kPublication) continue;
    if (any_unordered(op)) {
      ++tally.unordered;
      continue;
    }
    ++tally.judged;
    for (std::size_t i = op.announce_first; i < op.stores.size(); ++i) {
      const HeaderStore& s = op.stores[i];
      if (!s.changes_another_field()) continue;
      const bool together = s.changes_timestamp();
      return wrong_store(
          *e.image, op, s,
          together ? "one store set the timestamp and other fields"
                   : "the header changed after its first timestamp",
          together ? "timestamp stored with other fields" : "field stored after the timestamp");
    }
  }
  return std::nullopt;
}

bool in_one_half(const HeaderStore& s) {
  const std::uint64_t changed =
      s.before.monotonic_published_at_ns ^ s.after.monotonic_published_at_ns;
  return (changed >> 32U) == 0 || (changed & UINT32_MAX) == 0;
}

enum class Narrow { kInfo, kWarning };

// `pieces` changed the timestamp one after the other; `narrow` is what that is in 32 bits.
std::optional<Finding> judge_pieces(const ImageEvidence& e, const HeaderOperation& op,
                                    const std::vector<const HeaderStore*>& pieces, const char* what,
                                    Narrow narrow, Tally& tally) {
  if (pieces.empty()) return std::nullopt;
  if (by_nobody(pieces)) {
    ++tally.unordered;
    return std::nullopt;
  }
  // How the kernel copies is not known, but two calls are two pieces.
  if (pieces.size() == 1 && !pieces.front()->store->call.empty()) {
    ++tally.by_kernel;
    return std::nullopt;
  }
  ++tally.judged;
  if (pieces.size() == 1) return std::nullopt;
  std::string values;
  for (const HeaderStore* s : pieces) {
    values += fmt::format(" -> {:#x}", s->after.monotonic_published_at_ns);
  }
  Finding f = wrong_store(*e.image, op, *pieces.front(),
                          fmt::format("{} in {} pieces: {:#x}{}", what, pieces.size(),
                                      pieces.front()->before.monotonic_published_at_ns, values),
                          fmt::format("{} in pieces", what));
  const bool halves =
      pieces.size() == 2 && std::ranges::all_of(pieces, [](auto* s) { return in_one_half(*s); });
  if (e.image->elf64 || !halves) return f;
  f.outcome = narrow == Narrow::kInfo ? Outcome::kInfo : Outcome::kWarn;
  f.evidence.emplace_back("a 32-bit program may have no store of eight bytes");
  if (!tally.info) tally.info = std::move(f);
  return std::nullopt;
}

std::optional<Finding> timestamp_single_store(const ImageEvidence& e, const History& all,
                                              Tally& tally) {
  for (const HeaderOperation& op : all) {
    if (op.kind != Kind::kPublication) continue;
    if (auto f = judge_pieces(e, op, op.pieces(op.announce_first, op.announce),
                              "the first timestamp was stored", Narrow::kInfo, tally)) {
      return f;
    }
  }
  return std::nullopt;
}

std::optional<Finding> update_timestamp_single_store(const ImageEvidence& e, const History& all,
                                                     Tally& tally) {
  for (const HeaderOperation& op : all) {
    if (!is_update(op) || !op.is_announced() || is_replaced(op)) continue;
    if (auto f = judge_pieces(e, op, op.pieces(op.announce_first, op.announce),
                              "the closing timestamp was stored", Narrow::kWarning, tally)) {
      return f;
    }
  }
  return std::nullopt;
}

std::optional<Finding> zero_single_store(const ImageEvidence& e, const History& all, Tally& tally) {
  for (const HeaderOperation& op : all) {
    if (!is_update(op) || !op.is_announced()) continue;
    if (is_late(op)) ++tally.late;
    if (!op.was_zeroed()) continue;
    if (auto f = judge_pieces(e, op, op.pieces(op.zero_first, op.zero),
                              "the opening zero was stored", Narrow::kInfo, tally)) {
      return f;
    }
  }
  return std::nullopt;
}

std::optional<Finding> zero_timestamp_first(const ImageEvidence& e, const History& all,
                                            Tally& tally) {
  for (const HeaderOperation& op : all) {
    if (!is_update(op) || !op.is_announced()) continue;
    if (is_late(op)) {
      ++tally.late;
      continue;
    }
    // A whole update may hide in one change that nobody was seen to make.
    const bool hidden = is_replaced(op) && op.stores[op.announce_first].store->tid == 0;
    if (any_unordered(op) || hidden) {
      ++tally.unordered;
      continue;
    }
    ++tally.judged;
    const std::size_t first = op.was_zeroed() ? op.zero_first : op.announce_first;
    for (std::size_t i = 0; i < first; ++i) {
      if (!op.stores[i].changes_another_field()) continue;
      return wrong_store(*e.image, op, op.stores[i],
                         "an update changed other fields before the timestamp",
                         "fields before the zero");
    }
    const HeaderStore& s = op.stores[first];
    if (is_replaced(op)) {
      return wrong_store(*e.image, op, s, "an update replaced the timestamp without a zero",
                         "timestamp replaced");
    }
    if (s.changes_another_field()) {
      return wrong_store(*e.image, op, s, "one store zeroed the timestamp and changed other fields",
                         "fields with the zero");
    }
  }
  return std::nullopt;
}

const char* changed_location(const HeaderStore& s) {
  if (s.before.payload == s.after.payload) return "payload_size";
  if (s.before.payload_size == s.after.payload_size) return "payload";
  return "payload_size and payload";
}

std::optional<Finding> fields_while_zero(const ImageEvidence& e, const History& all, Tally& tally) {
  for (const HeaderOperation& op : all) {
    if (!is_update(op)) continue;
    for (const HeaderStore& s : op.stores) {
      const std::uint64_t found = s.before.monotonic_published_at_ns;
      const std::uint64_t left = s.after.monotonic_published_at_ns;
      if (!s.changes_location() || s.is_unordered() || (found == 0 && left == 0)) continue;
      std::string saw =
          fmt::format("{} changed while the timestamp was {}", changed_location(s), found);
      if (s.changes_timestamp()) {
        const std::string& call = s.store->call;
        const std::string how = call.empty() ? "store" : "call of " + call;
        saw += fmt::format(", in one {} with timestamp {}", how, left);
      }
      return wrong_store(*e.image, op, s, saw, "pointer or size stored next to a timestamp");
    }
    if (any_unordered(op)) {
      ++tally.unordered;
    } else if (op.is_announced()) {
      ++tally.judged;
    }
  }
  return std::nullopt;
}

std::optional<Finding> signature_untouched(const ImageEvidence& e, const History& all,
                                           Tally& tally) {
  for (const HeaderOperation& op : all) {
    if (!is_update(op)) continue;
    // A header that was found half filled may be one that is published for the first time.
    if (is_late(op) && op.watch->begin != WatchBegin::kMoved) {
      ++tally.late;
      continue;
    }
    const auto changed = std::ranges::find_if(op.stores, &HeaderStore::changes_identity);
    if (changed != op.stores.end() && op.may_be_publication) {
      ++tally.reopened;
      continue;
    }
    if (changed != op.stores.end()) {
      const HeaderStore& s = *changed;
      return wrong_store(*e.image, op, s,
                         s.before.signature == s.after.signature
                             ? "an update changed the version"
                             : "an update changed the signature",
                         "signature or version changed");
    }
    // What was stored in between, and taken back, is not known.
    if (any_unordered(op)) {
      ++tally.unordered;
    } else if (op.is_announced()) {
      ++tally.judged;
    }
  }
  return std::nullopt;
}

// ---- messages

std::optional<Finding> payload_before_timestamp(const ImageEvidence& e, const History& all,
                                                Tally& tally) {
  const Image& image = *e.image;
  for (std::size_t n = 0; n < all.size(); ++n) {
    const HeaderOperation& op = all[n];
    if (!op.is_announced()) continue;
    const MemoryBlock* then = announced_by(image, op.announcing(), op.announcing().after);
    const auto samples = looks_behind(e, op);
    if (then == nullptr) {
      ++tally.unread;
      continue;
    }
    const std::uint64_t named = naming_ns(image, op);
    bool equal = false;
    for (const MessageSample& sample : samples) {
      const auto same = same_bytes(*then, *sample.block);
      equal = equal || same == true;
      if (same != false) continue;
      // A change of a message that was complete is for pctx.update.no-silent-change.
      const bool at_once = &sample == &samples.front() || sample.ns <= named;
      const bool completed =
          is_message(image, *then) == false && is_message(image, *sample.block) == true;
      if (!at_once && !completed) continue;
      Finding f = wrong_store(image, op, op.announcing(),
                              "the message changed after the timestamp had announced it",
                              "message completed after the timestamp");
      show_difference(image, *then, *sample.block, "when the timestamp was stored", "later", f);
      return f;
    }
    if (!equal && n + 1 < all.size() && all[n + 1].was_zeroed() && all[n + 1].watch == op.watch) {
      const auto* at_zero = announced_by(image, all[n + 1].zeroing(), op.announcing().after);
      equal = at_zero != nullptr && same_bytes(*then, *at_zero) == true;
    }
    ++(equal ? tally.judged : tally.unread);
  }
  return std::nullopt;
}

struct Span {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  bool meets(const Span& other) const {
    return size != 0 && other.size != 0 &&
           (begin < other.begin ? other.begin - begin < size : begin - other.begin < other.size);
  }
};

Span mapping_of(const ImageEvidence& e, std::uint64_t header) {
  Span out{header, e.timeline->page_size};
  for (const Context* c : relevant_contexts(e)) {
    if (c->start() != header) continue;
    out.size = std::max(out.size, c->candidate->entries.back().range.end().raw() - header);
  }
  return out;
}

void add_window(const Image& image, const HeaderOperation& op, Finding& f) {
  const Store& from = *op.zeroing().store;
  const Store& to = *op.announcing().store;
  std::string calls;
  std::size_t count = 0;
  for (const SystemCall& c : image.calls) {
    if (c.entered_order <= from.order || c.entered_order >= to.order) continue;
    if (++count <= 8) calls += (calls.empty() ? "" : ", ") + c.name;
  }
  f.evidence.push_back(fmt::format(
      "the timestamp was zero for {} ns under observation; recorded system calls meanwhile: {}{}",
      to.at_ns - std::min(from.at_ns, to.at_ns), count,
      calls.empty() ? "" : " (" + calls + (count > 8 ? ", …)" : ")")));
}

// Where the announced message was when the timestamp was zeroed.
struct Prepared {
  const MemoryBlock* then = nullptr;   // the bytes at its place, or its bytes at another place
  const MemoryBlock* later = nullptr;  // when it was announced
  std::optional<bool> ready;           // nothing: not known
  bool elsewhere = false;
};

Prepared prepared_for(const Image& image, const HeaderOperation& op) {
  Prepared out;
  const HeaderStore& zeroing = op.zeroing();
  const HeaderStore& closing = op.announcing();
  out.later = announced_by(image, closing, closing.after);
  if (out.later == nullptr || out.later->readable == 0) return out;
  const auto& recorded = zeroing.store->prepared;
  out.then = recorded && recorded->wanted == out.later->wanted
                 ? &*recorded
                 : announced_by(image, zeroing, closing.after);
  if (out.then == nullptr) return out;
  if (out.then->at != out.later->at) {
    out.elsewhere = out.then->readable == out.later->wanted && out.then->hash == out.later->hash;
    if (out.elsewhere) out.ready = false;
    return out;
  }
  out.ready = out.then->readable < out.later->readable ? false : same_bytes(*out.then, *out.later);
  return out;
}

// Another thread stored to the timestamp in between and left it zero: where writers take it for
// their lock, that may be a zero of its own after a timestamp that nobody had the time to see.
bool is_contended(const HeaderOperation& op) {
  for (std::size_t i = op.zero + 1; i < op.announce_first; ++i) {
    const HeaderStore& s = op.stores[i];
    const bool to_timestamp = (s.store->words >> 2U & 1U) != 0;
    if (to_timestamp && !s.changes_timestamp() && s.store->tid != op.zeroing().store->tid) {
      return true;
    }
  }
  return false;
}

// A message that is copied to where it is announced while the timestamp is zero: legal when it was
// encoded before, and not to be told from encoding where it replaces another one in place.
std::optional<Finding> prepare_before_zero(const ImageEvidence& e, const History& all,
                                           Tally& tally) {
  const Image& image = *e.image;
  for (const HeaderOperation& op : all) {
    if (!is_update(op) || !op.is_announced()) continue;
    if (is_late(op)) ++tally.late;
    if (!op.was_zeroed()) continue;
    const HeaderStore& zeroing = op.zeroing();
    if (zeroing.store->tid == 0 || any_unordered(op)) {
      ++tally.unordered;
      continue;
    }
    const Prepared p = prepared_for(image, op);
    if (!p.ready) {
      ++(p.later != nullptr && p.then == nullptr ? tally.uncopied : tally.unread);
      continue;
    }
    if (!*p.ready && op.may_be_publication) {
      ++tally.reopened;
      continue;
    }
    if (!*p.ready && is_contended(op)) {
      ++tally.contended;
      continue;
    }
    ++tally.judged;
    if (*p.ready) continue;
    const Span announced{p.later->at.raw(), p.later->wanted};
    const Span old{payload_address(zeroing.before.payload, image.elf64),
                   zeroing.before.payload_size};
    const bool in_place =
        announced.meets(old) || announced.meets(mapping_of(e, zeroing.store->header));
    const char* saw = "the message was not ready when the timestamp was zeroed";
    const char* signature = "message not ready";
    if (p.elsewhere) {
      saw = "the message was copied to its place while the timestamp was zero";
      signature = "message copied late";
    } else if (in_place) {
      saw = "the message was written in place while the timestamp was zero";
      signature = "message written in place";
    }
    Finding f = wrong_store(image, op, zeroing, saw, signature);
    add_window(image, op, f);
    if (p.elsewhere) {
      f.evidence.push_back(
          fmt::format("the same bytes were at {:#x} when the zero was stored", p.then->at.raw()));
    } else {
      show_difference(image, *p.then, *p.later, "when the zero was stored", "when it was announced",
                      f);
    }
    if (!in_place && !p.elsewhere) return f;
    f.outcome = Outcome::kInfo;
    if (!tally.info) tally.info = std::move(f);
  }
  return std::nullopt;
}

// The munmap between the two stores that took a part of the range away.
const SystemCall* unmapped_between(const Image& image, const Store& from, const Store& to,
                                   const Span& range) {
  for (const SystemCall& c : image.calls) {
    if (c.name != "munmap" || !c.result || *c.result != 0) continue;
    if (c.left_order <= from.order || c.left_order >= to.order) continue;
    if (range.meets({c.args[0], c.args[1]})) return &c;
  }
  return nullptr;
}

std::optional<Finding> old_payload_until_zero(const ImageEvidence& e, const History& all,
                                              Tally& tally) {
  const Image& image = *e.image;
  for (std::size_t n = 0; n < all.size(); ++n) {
    const HeaderOperation& op = all[n];
    if (!is_update(op) || !op.was_zeroed()) continue;
    const bool known = n > 0 && all[n - 1].watch == op.watch && all[n - 1].is_announced();
    const HeaderStore& zeroing = op.zeroing();
    const abi::ProcessHeader& old = op.stores[op.zero_first].before;
    const HeaderStore* announcing = known ? &all[n - 1].announcing() : nullptr;
    const MemoryBlock* first =
        announcing == nullptr ? nullptr : announced_by(image, *announcing, old);
    if (zeroing.is_unordered() || zeroing.store->tid == 0) {
      ++tally.unordered;
      continue;
    }
    if (first == nullptr || first->readable == 0) {
      ++tally.unread;
      continue;
    }
    const MemoryBlock* now = announced_by(image, zeroing, old);
    const SystemCall* gone = unmapped_between(image, *announcing->store, *zeroing.store,
                                              {first->at.raw(), first->wanted});
    // What a reader found first, where there was time to look.
    const auto samples = looks_behind(e, all[n - 1]);
    const MemoryBlock* then = first;
    std::optional<bool> same;
    if (now != nullptr) {
      if (!samples.empty()) same = same_bytes(*samples.front().block, *now);
      if (same) then = samples.front().block;
      if (!same) same = now->readable < first->readable ? false : same_bytes(*first, *now);
    } else if (gone != nullptr || !zeroing.changes_another_field()) {
      same = false;  // nothing of it was there to be copied
    }
    if (!same) {
      ++tally.unread;
      continue;
    }
    // Another thread may have seen the zero, and acted on it, before the message was copied.
    const bool seen_before = std::ranges::any_of(samples, [&](const MessageSample& sample) {
      return same_bytes(*samples.front().block, *sample.block) == false;
    });
    if (!*same && gone == nullptr && !seen_before && zeroing.store->threads != 1) {
      ++tally.contended;
      continue;
    }
    ++tally.judged;
    if (*same) continue;
    const bool unreadable = now == nullptr || now->readable < first->readable;
    Finding f =
        wrong_store(image, op, zeroing,
                    unreadable ? "the old message was gone when the timestamp became zero"
                               : "the old message had changed when the timestamp became zero",
                    "old message not kept until the zero");
    if (gone != nullptr) {
      f.evidence.push_back(fmt::format("munmap({:#x}, {:#x}) before the zero, thread {}",
                                       gone->args[0], gone->args[1], gone->tid));
    }
    if (now != nullptr && !unreadable) {
      show_difference(image, *then, *now, "before", "when the zero was stored", f);
    }
    return f;
  }
  return std::nullopt;
}

// ---- what there is to judge

enum class About { kPublications, kAnnouncements, kUpdates };

std::string not_kept(const Image& image) {
  if (std::ranges::any_of(image.watches,
                          [](const Watch& w) { return w.end == WatchEnd::kTooManyStores; })) {
    return fmt::format("nothing after the first {} stores was seen", image.stores.size());
  }
  const bool one = image.stores_dropped == 1;
  return fmt::format("{} store{} not kept", image.stores_dropped, one ? " was" : "s were");
}

Finding nothing_judged(const ImageEvidence& e, const HeaderHistory& history, About about,
                       const Tally& tally) {
  const bool updates = about == About::kUpdates;
  const Image& image = *e.image;
  if (tally.unordered > 0) {
    return unobservable(
        "the kernel, or no thread of the program, stored several fields: the order is unknown",
        "a program whose own threads store the fields");
  }
  if (tally.by_kernel > 0) {
    return unobservable(
        "a system call stored the timestamp: it is not known in how many pieces the kernel did so",
        "a program whose own threads store the timestamp");
  }
  if (tally.reopened > 0) {
    return unobservable(
        "the zero may have withdrawn the context, and another may have been published since",
        "ctxconf run, which knows what the program was asked for");
  }
  if (tally.contended > 0) {
    return unobservable("another thread may have acted before the memory was copied",
                        "a program that updates its context from its only thread");
  }
  if (tally.uncopied > 0) {
    return unobservable("it is not known where the new message was when the timestamp became zero",
                        "a program with at most 32 MiB of writable memory and no shared memory; "
                        "only its first 16 updates are copied");
  }
  if (tally.unread > 0) {
    return unobservable("the message could not be read at these moments",
                        "a readable message of 64 MiB at most");
  }
  if (history.unknown > 0) {
    return unobservable("not all bytes of the header were readable when it was stored to",
                        "a header that stays mapped");
  }
  if (tally.late > 0 || (!updates && history.late)) {
    return unobservable(
        "the header was filled before it was watched",
        "a header that is filled after its memory is mapped: a memfd named OTEL_CTX, or memory "
        "marked with MADV_DONTFORK");
  }
  if (image.stores_dropped > 0) {
    return unobservable(not_kept(image), "a program that stores to its header less often");
  }
  if (updates && std::ranges::any_of(history.operations, is_replaced)) {
    return unobservable("no update zeroed the timestamp: see pctx.update.zero-timestamp-first",
                        "an update that zeroes the timestamp");
  }
  if (!updates) {
    return unobservable("no publication was seen while the header was watched",
                        "a program that publishes while it is watched");
  }
  std::string remedy = "a program that updates its context while it is watched, and ends";
  if (!e.timeline->watches_lifetime) remedy += "; --watch lifetime";
  return unobservable("no update was seen while the header was watched", std::move(remedy));
}

Finding judge_stores(const ImageEvidence& e, StoreRule rule, About about) {
  constexpr const char* kRemedy =
      "ctxconf wrap without --watch threads, on a host with hardware watchpoints";
  if (e.timeline->mode == Mode::kAttach) {
    return unobservable("the stores were made before ctxconf observed the program", "ctxconf wrap");
  }
  if (!e.image->stores_unseen.empty()) return unobservable(e.image->stores_unseen, kRemedy);
  if (std::ranges::none_of(relevant_contexts(e), &Context::usable)) return no_valid_header();
  if (e.image->watches.empty()) {
    return unobservable("no header was watched in this image",
                        "a program that publishes while it is watched; --level stores");
  }
  const HeaderHistory history = header_history_of(e);
  Tally tally;
  if (auto found = rule(e, history.operations, tally)) return *found;
  if (tally.info) return *tally.info;
  if (tally.judged == 0) return nothing_judged(e, history, about, tally);
  const char* what = about == About::kUpdates         ? "update"
                     : about == About::kAnnouncements ? "announcement"
                                                      : "publication";
  std::string saw = fmt::format("{} {}{} judged", tally.judged, what, tally.judged == 1 ? "" : "s");
  const auto more = tally.unordered + tally.late + tally.unread + tally.contended + tally.uncopied +
                    tally.reopened + tally.by_kernel;
  if (more > 0) saw += fmt::format(", {} not judged: too little evidence", more);
  if (e.image->stores_dropped > 0) saw += "; " + not_kept(*e.image);
  return passed(std::move(saw));
}

template <StoreRule kRule, About kAbout>
Finding at_stores(const ImageEvidence& e) {
  Finding f = judge_stores(e, kRule, kAbout);
  f.level = to_string(Level::kStores);
  return f;
}

struct StoreRequirement {
  std::string_view id;
  StoreRule rule;
  About about;
  RuleFunction at_stores;
  bool rests_on_other_calls = false;
};

template <StoreRule kRule, About kAbout>
constexpr StoreRequirement store_requirement(std::string_view id) {
  return {id, kRule, kAbout, at_stores<kRule, kAbout>};
}

constexpr StoreRequirement resting_on_other_calls(StoreRequirement requirement) {
  requirement.rests_on_other_calls = true;
  return requirement;
}

constexpr std::array kStoreRequirements = {
    store_requirement<timestamp_last, About::kPublications>("pctx.publish.timestamp-last"),
    store_requirement<payload_before_timestamp, About::kAnnouncements>(
        "pctx.publish.payload-before-timestamp"),
    store_requirement<timestamp_single_store, About::kPublications>(
        "pctx.publish.timestamp-single-store"),
    store_requirement<prepare_before_zero, About::kUpdates>("pctx.update.prepare-before-zero"),
    store_requirement<zero_timestamp_first, About::kUpdates>("pctx.update.zero-timestamp-first"),
    store_requirement<fields_while_zero, About::kUpdates>("pctx.update.fields-while-zero"),
    store_requirement<update_timestamp_single_store, About::kUpdates>(
        "pctx.update.timestamp-single-store"),
    store_requirement<zero_single_store, About::kUpdates>("pctx.update.zero-single-store"),
    store_requirement<signature_untouched, About::kUpdates>("pctx.update.signature-untouched"),
    resting_on_other_calls(store_requirement<old_payload_until_zero, About::kUpdates>(
        "pctx.update.old-payload-until-zero")),
};

constexpr auto kStoreRules = [] {
  std::array<RequirementRule, kStoreRequirements.size()> out;
  std::ranges::transform(kStoreRequirements, out.begin(), [](const StoreRequirement& r) {
    return RequirementRule{
        .id = r.id, .rule = r.at_stores, .rests_on_other_calls = r.rests_on_other_calls};
  });
  return out;
}();

bool is_error(std::string_view id) {
  const Requirement* requirement = Catalogue::builtin().find(id);
  return requirement != nullptr && requirement->severity == Severity::kError;
}

}  // namespace

std::span<const RequirementRule> store_rules() { return kStoreRules; }

Finding judge_updates(const ImageEvidence& e,
                      const std::function<bool(const HeaderOperation&)>& is_asked_for) {
  if (!e.image->stores_unseen.empty()) {
    return unobservable(e.image->stores_unseen, "a host with hardware watchpoints");
  }
  HeaderHistory history = header_history_of(e);
  for (HeaderOperation& op : history.operations) op.is_asked_for = is_asked_for(op);
  const auto updates =
      static_cast<std::size_t>(std::ranges::count_if(history.operations, is_update));
  std::optional<Finding> milder;
  Tally sum;
  for (const StoreRequirement& requirement : kStoreRequirements) {
    if (requirement.about != About::kUpdates) continue;
    Tally tally;
    auto found = requirement.rule(e, history.operations, tally);
    sum.judged = std::max(sum.judged, tally.judged);
    sum.unordered += tally.unordered;
    sum.late += tally.late;
    sum.unread += tally.unread;
    sum.contended += tally.contended;
    sum.reopened += tally.reopened;
    sum.uncopied += tally.uncopied;
    sum.by_kernel += tally.by_kernel;
    if (found && !is_error(requirement.id)) found->outcome = Outcome::kWarn;
    if (!found) found = std::move(tally.info);
    if (!found) continue;
    found->level = to_string(Level::kStores);
    found->evidence.insert(found->evidence.begin(), fmt::format("against {}", requirement.id));
    if (found->outcome == Outcome::kFail) return *found;
    if (!milder || milder->outcome == Outcome::kInfo) milder = std::move(found);
  }
  if (milder) return *milder;
  Finding f = sum.judged == 0
                  ? nothing_judged(e, history, About::kUpdates, sum)
                  : passed(fmt::format("{} update{} judged", updates, updates == 1 ? "" : "s"));
  f.level = to_string(Level::kStores);
  return f;
}

}  // namespace ctxconf::conformance
