#include "conformance/rules/store_evidence.h"

#include <fmt/format.h>

#include <algorithm>

#include "conformance/rules/ending.h"
#include "conformance/rules/publications.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kTimestampAt = 16;

std::string location_of(const Image& image, const Store& s) {
  if (s.tid == 0) return "no thread that was watched: the kernel, or who shares the memory";
  std::string out = s.call.empty() ? "" : fmt::format("system call {}, ", s.call);
  if (s.location && *s.location < image.locations.size()) {
    out += location_text(image.locations[*s.location]) + ", ";
  }
  return out + fmt::format("thread {}", s.tid);
}

struct FieldChange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::string_view name;
  std::string was;
  std::string is;
};

std::vector<FieldChange> changes_of(const HeaderStore& s) {
  const auto text = [](const std::array<char, 8>& signature) {
    return fmt::format("\"{}\"", std::string_view(signature.data(), signature.size()));
  };
  const auto& b = s.before;
  const auto& a = s.after;
  std::vector<FieldChange> out;
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
  for (const FieldChange& c : changes_of(s)) {
    out += fmt::format("{}+{} {} {} -> {}", out.empty() ? "" : ", ", c.offset, c.name, c.was, c.is);
  }
  if (out.empty()) {
    for (unsigned i = 0; i < 4; ++i) {
      if (((s.store->words >> i) & 1U) != 0) out += fmt::format("+{} ", 8 * i);
    }
    out += "the same bytes again";
  }
  return out + "; " + location_of(image, *s.store);
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
    f.evidence.push_back(fmt::format("… {} stores after it", op.stores.size() - to));
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
  for (const FieldChange& c : changes_of(s)) {
    dump.marks.push_back({c.offset, c.length, fmt::format("{}: was {}", c.name, c.was)});
  }
  return dump;
}

// Shows at most 64 bytes around `offset`.
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
  return kept_bytes(image, b);
}

std::string frame_text(const InstructionLocation& p) {
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

}  // namespace

std::string instructions_text(std::uint64_t count) {
  return fmt::format("{} instruction{}", count, count == 1 ? "" : "s");
}

std::string file_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string location_text(const InstructionLocation& p) {
  std::string out = frame_text(p);
  for (const InstructionLocation& caller : p.callers) out += ", called from " + frame_text(caller);
  return out;
}

void name_code(const Image& image, const std::optional<std::uint32_t>& location, Finding& f) {
  f.code.clear();
  if (!location || *location >= image.locations.size()) return;
  const auto add = [&f](const InstructionLocation& p) {
    if (f.code.size() == kMaxCodeFrames) return;
    f.code.push_back({.function = p.symbol,
                      .source_file = p.source_file,
                      .source_line = p.source_line,
                      .module = p.module,
                      .offset = p.offset});
  };
  const InstructionLocation& innermost = image.locations[*location];
  add(innermost);
  for (const InstructionLocation& caller : innermost.callers) add(caller);
}

Finding wrong_store(const Image& image, const HeaderOperation& op, const HeaderStore& by,
                    const std::string& saw, std::string signature) {
  Finding f = failed(fmt::format("{}; stores: {}", saw, order_text(op)), std::move(signature));
  if (by.store->tid != 0) {
    f.at = location_of(image, *by.store);
    name_code(image, by.store->location, f);
  }
  add_log(image, op, by, f);
  f.hexdumps = {header_after(by)};
  f.event = {by.store->header, by.store->order, {}};
  return f;
}

std::optional<bool> same_bytes(const MemoryBlock& a, const MemoryBlock& b) {
  if (a.at != b.at || a.wanted != b.wanted) return std::nullopt;
  if (a.readable == b.readable) {
    if (a.hash != b.hash) return false;
    // What comes after it was not seen.
    return a.readable < a.wanted ? std::nullopt : std::optional(true);
  }
  const std::size_t common = std::min(a.bytes.size(), b.bytes.size());
  if (!std::equal(a.bytes.begin(), a.bytes.begin() + static_cast<std::ptrdiff_t>(common),
                  b.bytes.begin())) {
    return false;
  }
  return std::nullopt;
}

std::optional<bool> is_message(const Image& image, const MemoryBlock& b) {
  const auto bytes = bytes_of(image, b);
  if (bytes.size() != b.wanted || b.wanted == 0) return std::nullopt;
  return analyse_payload(bytes).problem == PayloadProblem::kNone;
}

const MemoryBlock* announced_by(const Image& image, const HeaderStore& s,
                                const abi::ProcessHeader& h) {
  const auto& block = s.store->payload;
  if (!block || h.payload_size == 0 || block->wanted != h.payload_size) return nullptr;
  return block->at.raw() == payload_address(h.payload, image.elf64) ? &*block : nullptr;
}

std::vector<MessageSample> looks_behind(const ImageEvidence& e, const HeaderOperation& op) {
  const HeaderStore& s = op.announcing();
  std::vector<MessageSample> out;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      const Snapshot& shot = *c.snapshot;
      if (!c.usable() || c.start() != s.store->header || c.header != s.after) continue;
      // A look may meet the store before its thread has stopped for it, and see the same again.
      const std::uint64_t seen_ns =
          shot.first_seen_ns < s.store->at_ns ? shot.last_seen_ns : shot.first_seen_ns;
      if (c.payload_block == nullptr || seen_ns < s.store->at_ns) continue;
      if (seen_ns >= op.until_ns || begins_at_exit(shot)) continue;
      out.push_back({seen_ns, c.payload_block});
    }
  }
  for (std::size_t i = op.announce + 1; i < op.stores.size(); ++i) {
    const HeaderStore& later = op.stores[i];
    if (later.after != s.after) break;
    if (const auto* b = announced_by(*e.image, later, s.after)) {
      out.push_back({later.store->at_ns, b});
    }
  }
  std::ranges::sort(out, {}, &MessageSample::ns);
  return out;
}

std::uint64_t naming_ns(const Image& image, const HeaderOperation& op) {
  const Store& s = *op.announcing().store;
  for (const SystemCall& c : image.calls) {
    if (c.args[2] != s.header || c.entered_order <= s.order || !is_context_naming(c)) continue;
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

}  // namespace ctxconf::conformance
