#include "conformance/testees/reader/context_copy.h"

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

namespace ctxconf::testees {
namespace {

constexpr Choice kBadCopy[] = {
    {"pctx.reader.survives-bad-header", "aborts when the payload cannot be read"},
    {"pctx.reader.survives-bad-header:null", "aborts at a null pointer"},
    {"pctx.reader.survives-bad-header:sum", "aborts when pointer and size go beyond the end"},
    {"pctx.reader.payload-size-bounded", "allocates as much as the header asks for"},
    {"pctx.reader.payload-size-bounded:pieces", "copies as much as the header asks for in pieces"},
    {"pctx.reader.fresh-pointer", "remembers pointer and size of its first read"},
    {"pctx.reader.fresh-pointer:pointer", "remembers the pointer of its first read"},
    {"pctx.reader.fresh-pointer:size", "remembers the size of its first read"},
    {"pctx.reader.follows-pointer", "reads after the header, whatever the pointer says"},
    {"pctx.reader.follows-pointer:mapping", "refuses a payload outside the mapping of the header"},
    {"pctx.reader.follows-pointer:below", "refuses a payload below the header"},
    {"pctx.reader.follows-pointer:across", "refuses a payload in two mappings"},
    {"pctx.reader.follows-pointer:read-only", "refuses a payload in memory that is read-only"},
    {"pctx.reader.rereads-timestamp", "compares the timestamp with its own copy"},
    {"pctx.reader.rereads-timestamp:early", "makes the second look before the copy"},
    {"pctx.reader.rereads-timestamp:anyway", "uses the copy although the timestamp has changed"},
    {"pctx.reader.decode-after-check", "decodes before the second look, and gives up on a failure"},
    {"pctx.reader.fault-during-copy", "gives up on the process after one failing copy"},
    {"pctx.reader.empty-payload", "divides by the size"},
};

constexpr Choice kGoodCopy[] = {
    {"refuses-empty-payload", "takes a size of zero for a mistake"},
    {"reads-in-pieces", "copies up to 16 MiB in pieces of a page"},
    {"small-payloads", "declares that it refuses more than 4096 bytes"},
    {"decodes-early", "decodes before the second look and discards the result at a change"},
};

}  // namespace

const Choices kCopyChoices{kBadCopy, kGoodCopy};

namespace {

constexpr std::uint32_t kPieceLimit = std::uint32_t{16} << 20U;
constexpr std::uint32_t kSmallLimit = 4096;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLargePiece = std::size_t{1} << 20U;
// A broken reader takes no more than this of the machine on which it is tested.
constexpr std::size_t kHarmless = std::size_t{128} << 20U;

bool copies_in_pieces() {
  return is_good("reads-in-pieces") || is_bad("pctx.reader.payload-size-bounded:pieces");
}

bool is_permitted_place(const Header& header, const HeaderLocation& location,
                        const Mappings& mappings) {
  const auto& [pid, home] = location;
  const std::uint64_t begin = header.pointer;
  const std::uint64_t end = begin + header.size;
  const auto in = [&](const Mapping& m) { return begin >= m.begin && end <= m.end; };
  if (is_bad("pctx.reader.follows-pointer:mapping")) return in(home);
  if (is_bad("pctx.reader.follows-pointer:below")) return begin >= home.begin;
  if (is_bad("pctx.reader.follows-pointer:across")) return std::ranges::any_of(mappings, in);
  if (is_bad("pctx.reader.follows-pointer:read-only")) {
    return std::ranges::any_of(mappings, [&](const Mapping& m) { return in(m) && m.writable; });
  }
  return true;
}

// Pointer and size as this reader takes them.
Header adjusted(Header header, const HeaderLocation& location, const Mappings& mappings,
                const CopyMemory& kept) {
  const auto has_pointer = [&](const Mapping& m) {
    return header.pointer >= m.begin && header.pointer < m.end;
  };
  if (is_bad("pctx.reader.follows-pointer") && std::ranges::any_of(mappings, has_pointer)) {
    header.pointer = location.mapping.begin + sizeof header;
  }
  if (kept.first) {
    const bool both = is_bad("pctx.reader.fresh-pointer");
    if (both || is_bad("pctx.reader.fresh-pointer:pointer")) header.pointer = kept.first->pointer;
    if (both || is_bad("pctx.reader.fresh-pointer:size")) header.size = kept.first->size;
  }
  return header;
}

bool copy_bytes(const Memory& memory, const Header& header, std::string& out) {
  if (!copies_in_pieces()) {
    out.resize(std::min<std::size_t>(header.size, kHarmless));
    return memory.copy(header.pointer, out.data(), out.size());
  }
  const std::size_t piece = is_good("reads-in-pieces") ? kPage : kLargePiece;
  while (out.size() < std::min<std::size_t>(header.size, kHarmless)) {
    const std::size_t done = out.size();
    out.resize(std::min<std::size_t>(done + piece, header.size));
    if (!memory.copy(header.pointer + done, out.data() + done, out.size() - done)) return false;
  }
  return true;
}

void crash_at(const Header& header, bool copied) {
  if (is_bad("pctx.reader.survives-bad-header") && !copied) abort();
  if (is_bad("pctx.reader.survives-bad-header:null") && header.pointer == 0 && header.size != 0) {
    abort();
  }
  if (is_bad("pctx.reader.survives-bad-header:sum") &&
      header.pointer + header.size < header.pointer) {
    abort();
  }
  // What a division by zero does on many processors.
  if (is_bad("pctx.reader.empty-payload") && header.size == 0) raise(SIGFPE);
}

}  // namespace

std::uint32_t payload_limit() {
  if (is_good("small-payloads")) return kSmallLimit;
  return is_good("reads-in-pieces") ? kPieceLimit : kPayloadLimit;
}

CopyResult copy_message(const Memory& memory, const HeaderLocation& location, Header first,
                        const Mappings& mappings, CopyMemory& kept, Message& out) {
  const Header from = adjusted(first, location, mappings, kept);
  const bool limited = !breaks("pctx.reader.payload-size-bounded");
  const bool fits = (!limited || from.size <= payload_limit()) &&
                    is_permitted_place(from, location, mappings) &&
                    (from.size != 0 || !is_good("refuses-empty-payload"));
  std::optional<Header> second;
  if (is_bad("pctx.reader.rereads-timestamp:early")) second = copy_header(memory, location);
  std::string bytes;
  const bool copied = fits && copy_bytes(memory, from, bytes);
  if (fits && !copied && is_bad("pctx.reader.fault-during-copy")) {
    kept.given_up = true;
    return CopyResult::kBad;
  }
  std::optional<Message> message;
  const bool early = is_bad("pctx.reader.decode-after-check") || is_good("decodes-early");
  if (early && copied) {
    message = decode(bytes);
    if (!message && !is_good("decodes-early")) {
      kept.given_up = true;
      return CopyResult::kBad;
    }
  }
  if (is_bad("pctx.reader.rereads-timestamp")) {
    second = first;
  } else if (!second) {
    second = copy_header(memory, location);
  }
  const bool unchanged = second && is_unchanged(first, *second);
  if (!unchanged && !is_bad("pctx.reader.rereads-timestamp:anyway")) return CopyResult::kChanging;
  if (fits) crash_at(from, copied);
  if (!copied) return CopyResult::kBad;
  if (!early) message = decode(bytes);
  if (!message) return CopyResult::kBad;
  if (!kept.first) kept.first = first;
  out = *std::move(message);
  return CopyResult::kGood;
}

}  // namespace ctxconf::testees
