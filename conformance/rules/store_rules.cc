// Rules about the order of stores to the header (level stores).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "conformance/rules/header_operations.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Kind = HeaderOperation::Kind;

constexpr std::uint64_t kTimestampAt = 16;

// ---- what is printed

std::string file_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

// "src/ctx.cc:118 in publish", "publish+0x1c in libctx.so" or "libctx.so+0x1234".
std::string place_text(const CodePlace& p) {
  if (!p.source_file.empty()) {
    std::string out = fmt::format("{}:{}", p.source_file, p.source_line);
    return p.symbol.empty() ? out : out + " in " + p.symbol;
  }
  const std::string module = file_name(p.module);
  if (!p.symbol.empty()) {
    std::string out = fmt::format("{}+{:#x}", p.symbol, p.symbol_offset);
    return module.empty() ? out : out + " in " + module;
  }
  if (!module.empty()) return fmt::format("{}+{:#x}", module, p.offset);
  return fmt::format("{:#x}", p.address);
}

std::string place_of(const Image& image, const Store& s) {
  if (s.tid == 0) return "no thread that was watched: the kernel, or who shares the memory";
  if (!s.place || *s.place >= image.places.size()) return fmt::format("thread {}", s.tid);
  return fmt::format("{}, thread {}", place_text(image.places[*s.place]), s.tid);
}

struct Change {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::string_view name;
  std::string was;
  std::string is;
};

std::vector<Change> changes_of(const HeaderStore& s) {
  const auto text = [](const std::array<char, 8>& signature) {
    return fmt::format("\"{}\"", std::string_view(signature.data(), signature.size()));
  };
  const auto& b = s.before;
  const auto& a = s.after;
  std::vector<Change> out;
  if (b.signature != a.signature) {
    out.push_back({0, 8, "signature", text(b.signature), text(a.signature)});
  }
  const auto number = [&](std::uint64_t offset, std::uint64_t length, std::string_view name,
                          std::uint64_t was, std::uint64_t is) {
    if (was == is) return;
    out.push_back({offset, length, name, std::to_string(was), std::to_string(is)});
  };
  number(8, 4, "version", b.version, a.version);
  number(12, 4, "payload_size", b.payload_size, a.payload_size);
  number(kTimestampAt, 8, "monotonic_published_at_ns", b.monotonic_published_at_ns,
         a.monotonic_published_at_ns);
  if (b.payload != a.payload) {
    out.push_back({24, 8, "payload", hex_text(b.payload), hex_text(a.payload)});
  }
  return out;
}

// "+16 monotonic_published_at_ns 0 -> 222; src/ctx.cc:118 in publish, thread 12"
std::string store_line(const Image& image, const HeaderStore& s) {
  std::string out;
  for (const Change& c : changes_of(s)) {
    out += fmt::format("{}+{} {} {} -> {}", out.empty() ? "" : ", ", c.offset, c.name, c.was, c.is);
  }
  if (out.empty()) {
    for (unsigned i = 0; i < 4; ++i) {
      if (((s.store->words >> i) & 1U) != 0) out += fmt::format("+{} ", 8 * i);
    }
    out += "the same bytes again";
  }
  return out + "; " + place_of(image, *s.store);
}

// "payload=0x2000  payload_size=20  monotonic_published_at_ns=222"
std::string order_text(const HeaderOperation& op) {
  constexpr int kMost = 10;
  std::string out;
  int shown = 0;
  for (const HeaderStore& s : op.stores) {
    const auto changes = changes_of(s);
    if (changes.empty()) continue;
    if (++shown > kMost) return out + "  …";
    out += out.empty() ? "" : "  ";
    for (std::size_t i = 0; i < changes.size(); ++i) {
      out += fmt::format("{}{}={}", i == 0 ? "" : "+", changes[i].name, changes[i].is);
    }
  }
  return out;
}

void add_log(const Image& image, const HeaderOperation& op, const HeaderStore& marked, Finding& f) {
  constexpr std::size_t kAround = 12;
  const auto at = static_cast<std::size_t>(&marked - op.stores.data());
  const std::size_t from = at > kAround ? at - kAround : 0;
  const std::size_t to = std::min(op.stores.size(), at + kAround);
  if (from > 0) f.evidence.push_back(fmt::format("… {} stores before", from));
  for (std::size_t i = from; i < to; ++i) {
    f.evidence.push_back(store_line(image, op.stores[i]));
  }
  if (to < op.stores.size()) {
    f.evidence.push_back(fmt::format("… {} stores behind", op.stores.size() - to));
  }
}

Hexdump dump_of(std::string title, std::uint64_t address, std::span<const std::byte> bytes) {
  Hexdump dump;
  dump.title = std::move(title);
  dump.address = address;
  for (const std::byte b : bytes) dump.bytes.push_back(std::to_integer<std::uint8_t>(b));
  return dump;
}

Hexdump header_after(const HeaderStore& s) {
  Hexdump dump = dump_of(fmt::format("header at {:#x} after the store", s.store->header),
                         s.store->header, s.store->after);
  for (const Change& c : changes_of(s)) {
    dump.marks.push_back({c.offset, c.length, fmt::format("{}: was {}", c.name, c.was)});
  }
  return dump;
}

// At most 64 bytes around `offset`.
Hexdump bytes_around(std::string title, std::uint64_t address, std::span<const std::byte> bytes,
                     std::uint64_t offset, std::string label) {
  constexpr std::uint64_t kShown = 64;
  offset = std::min<std::uint64_t>(offset, bytes.size());
  const std::uint64_t from = (offset > kShown / 2 ? offset - kShown / 2 : 0) / 16 * 16;
  const std::uint64_t shown = std::min<std::uint64_t>(kShown, bytes.size() - from);
  Hexdump dump = dump_of(std::move(title), address + from, bytes.subspan(from, shown));
  if (offset - from < shown) dump.marks.push_back({offset - from, 1, std::move(label)});
  return dump;
}

// A contradiction that `by` committed.
Finding wrong_store(const Image& image, const HeaderOperation& op, const HeaderStore& by,
                    const std::string& saw, std::string signature) {
  Finding f =
      contradicted(fmt::format("{}; stores: {}", saw, order_text(op)), std::move(signature));
  if (by.store->tid != 0) f.at = place_of(image, *by.store);
  add_log(image, op, by, f);
  f.hexdumps = {header_after(by)};
  return f;
}

// ---- what rules ask

// What the rules have found so far: a contradiction ends the search, a note waits for one.
struct Tally {
  std::size_t judged = 0;
  std::size_t unordered = 0;  // changes by nobody who was watched, in no known order
  std::size_t late = 0;       // operations whose beginning was not seen
  std::size_t unread = 0;     // payloads of which too little is known
  std::optional<Finding> noted;
};

using History = std::vector<HeaderOperation>;
using StoreRule = std::optional<Finding> (*)(const ImageEvidence&, const History&, Tally&);

bool is_update(const HeaderOperation& op) { return op.kind == Kind::kUpdate; }

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
                   : "the header changed behind its first timestamp",
          together ? "timestamp stored with other fields" : "field stored behind the timestamp");
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
  if (!tally.noted) tally.noted = std::move(f);
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

const char* changed_place(const HeaderStore& s) {
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
      if (!s.changes_place() || s.is_unordered() || (found == 0 && left == 0)) continue;
      std::string saw =
          fmt::format("{} changed while the timestamp was {}", changed_place(s), found);
      if (s.changes_timestamp()) saw += fmt::format(", in one store with timestamp {}", left);
      return wrong_store(*e.image, op, s, saw, "pointer or size beside a timestamp");
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
    if (is_late(op) && op.watch->because != "mremap") {
      ++tally.late;
      continue;
    }
    for (const HeaderStore& s : op.stores) {
      if (!s.changes_identity()) continue;
      return wrong_store(*e.image, op, s,
                         s.before.signature == s.after.signature
                             ? "an update changed the version"
                             : "an update changed the signature",
                         "signature or version changed");
    }
    if (op.is_announced()) ++tally.judged;
  }
  return std::nullopt;
}

// ---- payloads

// Nothing: too little was kept to tell.
std::optional<bool> same_bytes(const MemoryBlock& a, const MemoryBlock& b) {
  if (a.at != b.at || a.wanted != b.wanted) return std::nullopt;
  if (a.readable == b.readable) return a.hash == b.hash;
  const std::size_t common = std::min(a.bytes.size(), b.bytes.size());
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + static_cast<std::ptrdiff_t>(common),
                  b.bytes.begin())) {
    return false;
  }
  return std::nullopt;
}

std::span<const std::byte> bytes_of(const Image& image, const MemoryBlock& b) {
  if (!b.bytes.empty() || b.readable == 0) return b.bytes;
  for (const Store& s : image.stores) {
    for (const auto* other : {&s.payload, &s.prepared}) {
      if (!*other || (*other)->bytes.empty()) continue;
      if ((*other)->at == b.at && (*other)->wanted == b.wanted && (*other)->hash == b.hash) {
        return (*other)->bytes;
      }
    }
  }
  return {};
}

// Nothing where not all of it was kept.
std::optional<bool> is_message(const Image& image, const MemoryBlock& b) {
  const auto bytes = bytes_of(image, b);
  if (bytes.size() != b.wanted || b.wanted == 0) return std::nullopt;
  return analyse_payload(bytes).problem == PayloadProblem::kNone;
}

// What `h` announces, as recorded with the store.
const MemoryBlock* announced_by(const Image& image, const HeaderStore& s,
                                const abi::ProcessHeader& h) {
  const auto& block = s.store->payload;
  if (!block || h.payload_size == 0 || block->wanted != h.payload_size) return nullptr;
  return block->at.raw() == payload_address(h.payload, image.elf64) ? &*block : nullptr;
}

struct Look {
  std::uint64_t ns = 0;
  const MemoryBlock* block = nullptr;
};

// The announced message at later moments, in order.
std::vector<Look> looks_behind(const ImageEvidence& e, const HeaderOperation& op) {
  const HeaderStore& s = op.announcing();
  std::vector<Look> out;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      const Snapshot& shot = *c.snapshot;
      if (!c.usable() || c.start() != s.store->header || c.header != s.after) continue;
      if (c.payload_block == nullptr || shot.first_seen_ns < s.store->at_ns) continue;
      if (shot.first_seen_ns >= op.until_ns || shot.moments == std::vector{Moment::kExit}) continue;
      out.push_back({shot.first_seen_ns, c.payload_block});
    }
  }
  for (std::size_t i = op.announce + 1; i < op.stores.size(); ++i) {
    const HeaderStore& later = op.stores[i];
    if (later.after != s.after) break;
    if (const auto* b = announced_by(*e.image, later, s.after)) {
      out.push_back({later.store->at_ns, b});
    }
  }
  std::ranges::sort(out, {}, &Look::ns);
  return out;
}

// When the call was made that ends the operation; 0: none was seen.
std::uint64_t naming_ns(const Image& image, const HeaderOperation& op) {
  const Store& s = *op.announcing().store;
  for (const SystemCall& c : image.calls) {
    if (!is_naming(c) || c.args[2] != s.header || c.entered_order <= s.order) continue;
    return c.entered_ns < op.until_ns ? c.entered_ns : 0;
  }
  return 0;
}

void show_difference(const Image& image, const MemoryBlock& then, const MemoryBlock& later,
                     const std::string& then_label, const std::string& later_label, Finding& f) {
  f.evidence.push_back(fmt::format("payload at {:#x}: hash {:#x} {}, {:#x} {}", then.at.raw(),
                                   then.hash, then_label, later.hash, later_label));
  const auto was = bytes_of(image, then);
  const auto is = bytes_of(image, later);
  const auto at = static_cast<std::uint64_t>(std::ranges::mismatch(was, is).in1 - was.begin());
  if (at >= was.size() || at >= is.size()) return;
  f.evidence.push_back(fmt::format("first difference at byte {}", at));
  const std::string title = fmt::format("payload at {:#x} ", then.at.raw());
  f.hexdumps = {bytes_around(title + then_label, then.at.raw(), was, at, then_label),
                bytes_around(title + later_label, later.at.raw(), is, at, later_label)};
}

std::optional<Finding> payload_before_timestamp(const ImageEvidence& e, const History& all,
                                                Tally& tally) {
  const Image& image = *e.image;
  for (std::size_t n = 0; n < all.size(); ++n) {
    const HeaderOperation& op = all[n];
    if (!op.is_announced()) continue;
    const MemoryBlock* then = announced_by(image, op.announcing(), op.announcing().after);
    const auto looks = looks_behind(e, op);
    if (then == nullptr) {
      ++tally.unread;
      continue;
    }
    const std::uint64_t named = naming_ns(image, op);
    bool equal = false;
    for (const Look& look : looks) {
      const auto same = same_bytes(*then, *look.block);
      equal = equal || same == true;
      if (same != false) continue;
      // A change of a message that was complete is for pctx.update.no-silent-change.
      const bool at_once = &look == &looks.front() || look.ns <= named;
      const bool completed =
          is_message(image, *then) == false && is_message(image, *look.block) == true;
      if (!at_once && !completed) continue;
      Finding f = wrong_store(image, op, op.announcing(),
                              "the message changed after the timestamp had announced it",
                              "message completed behind the timestamp");
      show_difference(image, *then, *look.block, "when the timestamp was stored", "later", f);
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
  for (const Context* c : e.judged) {
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
    out.elsewhere = out.then->readable == out.later->readable && out.then->hash == out.later->hash;
    if (out.elsewhere) out.ready = false;
    return out;
  }
  out.ready = out.then->readable < out.later->readable ? false : same_bytes(*out.then, *out.later);
  return out;
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
      ++tally.unread;
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
    if (!tally.noted) tally.noted = std::move(f);
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
    const auto looks = looks_behind(e, all[n - 1]);
    const MemoryBlock* then = first;
    std::optional<bool> same;
    if (now != nullptr) {
      if (!looks.empty()) same = same_bytes(*looks.front().block, *now);
      if (same) then = looks.front().block;
      if (!same) same = now->readable < first->readable ? false : same_bytes(*first, *now);
    } else if (gone != nullptr || !zeroing.changes_another_field()) {
      same = false;  // nothing of it was there to be copied
    }
    if (!same) {
      ++tally.unread;
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

enum class About { kPublications, kUpdates };

Finding nothing_judged(const ImageEvidence& e, const HeaderHistory& history, About about,
                       const Tally& tally) {
  const bool updates = about == About::kUpdates;
  const Image& image = *e.image;
  if (tally.unordered > 0) {
    return unobservable(
        "the header was not written by threads of the program: the order is unknown",
        "a program whose own threads store the fields");
  }
  if (tally.unread > 0) {
    return unobservable("too little is known of the message at these moments",
                        "a readable message of 64 KiB at most");
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
    return unobservable(fmt::format("{} stores were not kept", image.stores_dropped),
                        "a program that stores to its header less often");
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
  constexpr const char* kRemedy = "ctxconf wrap, on a host with hardware watchpoints";
  if (e.timeline->mode == Mode::kAttach) {
    return unobservable("the stores were made before ctxconf looked", "ctxconf wrap");
  }
  if (!e.image->stores_unseen.empty()) return unobservable(e.image->stores_unseen, kRemedy);
  if (!e.has_usable) return no_valid_header();
  if (e.image->watches.empty()) {
    return unobservable("no header was watched in this image",
                        "a program that publishes while it is watched; --level stores");
  }
  const HeaderHistory history = header_history_of(e);
  Tally tally;
  if (auto found = rule(e, history.operations, tally)) return *found;
  if (tally.noted) return *tally.noted;
  if (tally.judged == 0) return nothing_judged(e, history, about, tally);
  const char* what = about == About::kUpdates ? "update" : "publication";
  std::string saw = fmt::format("{} {}{} judged", tally.judged, what, tally.judged == 1 ? "" : "s");
  const auto more = tally.unordered + tally.late + tally.unread;
  if (more > 0) saw += fmt::format(", {} not: too little is known", more);
  if (e.image->stores_dropped > 0)
    saw += fmt::format("; {} stores were not kept", e.image->stores_dropped);
  return passed(std::move(saw));
}

template <StoreRule kRule, About kAbout>
Finding at_stores(const ImageEvidence& e) {
  Finding f = judge_stores(e, kRule, kAbout);
  f.level = to_string(Level::kStores);
  return f;
}

constexpr auto kPublications = About::kPublications;
constexpr auto kUpdates = About::kUpdates;

constexpr std::array<NamedRule, 10> kRules = {{
    {"pctx.publish.timestamp-last", at_stores<timestamp_last, kPublications>},
    {"pctx.publish.payload-before-timestamp", at_stores<payload_before_timestamp, kPublications>},
    {"pctx.publish.timestamp-single-store", at_stores<timestamp_single_store, kPublications>},
    {"pctx.update.prepare-before-zero", at_stores<prepare_before_zero, kUpdates>},
    {"pctx.update.zero-timestamp-first", at_stores<zero_timestamp_first, kUpdates>},
    {"pctx.update.fields-while-zero", at_stores<fields_while_zero, kUpdates>},
    {"pctx.update.timestamp-single-store", at_stores<update_timestamp_single_store, kUpdates>},
    {"pctx.update.zero-single-store", at_stores<zero_single_store, kUpdates>},
    {"pctx.update.signature-untouched", at_stores<signature_untouched, kUpdates>},
    {"pctx.update.old-payload-until-zero", at_stores<old_payload_until_zero, kUpdates>},
}};

}  // namespace

std::span<const NamedRule> store_rules() { return kRules; }

}  // namespace ctxconf::conformance
