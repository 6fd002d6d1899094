#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "conformance/rules/rule.h"
#include "conformance/rules/vector_bytes.h"

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kNeedsActive =
    "a context with a non-zero timestamp, seen while the process was observed";

// The header, and what a golden vector has there.
Hexdump compared(const ImageEvidence& e, const Context& c, std::vector<Hexdump::Mark> marks,
                 const std::vector<KnownBytes>& known = {}) {
  Hexdump dump = header_dump(c, std::move(marks));
  if (e.image->little_endian) put_beside_header(dump, known);
  return dump;
}

// What the header would be in the merged layout, as far as the numbers are known.
std::vector<KnownBytes> merged_header(const abi::LayoutFields& found, const abi::DecodedLayout& d) {
  std::vector<KnownBytes> out;
  if (found.size >= 0) out.push_back(known_number(12, d.size, 4));
  if (found.timestamp >= 0) out.push_back(known_number(16, d.timestamp, 8));
  out.push_back(known_number(24, d.pointer, 8));
  return out;
}

Finding no_active_header(const ImageEvidence& e) {
  for (const Context* c : e.judged) {
    if (c->state == HeaderState::kElsewhere) {
      return unobservable("the header is not at the start: see pctx.header.at-mapping-start",
                          "a header at the start of its mapping");
    }
    if (c->state == HeaderState::kOlderLayout) {
      return unobservable("the bytes are those of a draft: see pctx.header.layout",
                          "the merged layout");
    }
  }
  return unobservable("no context with a non-zero timestamp was seen", std::string(kNeedsActive));
}

const Context* first_in(const ImageEvidence& e, std::initializer_list<HeaderState> states) {
  for (const Context* c : e.judged) {
    if (std::ranges::find(states, c->state) != states.end()) return c;
  }
  return nullptr;
}

Finding signature(const ImageEvidence& e) {
  if (const Context* c = first_in(e, {HeaderState::kBadSignature})) {
    std::vector<Hexdump::Mark> marks;
    for (std::size_t i = 0; i < abi::kSignature.size(); ++i) {
      if (c->header.signature[i] != abi::kSignature[i]) {
        marks.push_back(
            {i, 1, fmt::format("want {:02x} '{}'", abi::kSignature[i], abi::kSignature[i])});
      }
    }
    Finding f = failed(
        fmt::format("bytes 0 to 7 are \"{}\", not \"OTEL_CTX\"",
                    std::string_view(c->header.signature.data(), c->header.signature.size())),
        "wrong signature");
    f.evidence = {maps_line(*c)};
    f.hexdumps = {compared(e, *c, std::move(marks))};
    return f;
  }
  if (first_in(e, {HeaderState::kValid, HeaderState::kBadVersion, HeaderState::kDevelopment,
                   HeaderState::kForeignOrder, HeaderState::kNarrow}) != nullptr) {
    return passed();
  }
  return no_active_header(e);
}

Finding version(const ImageEvidence& e) {
  if (const Context* c = first_in(e, {HeaderState::kBadVersion, HeaderState::kForeignOrder})) {
    Finding f =
        failed(fmt::format("the version is {} ({} in the other byte order), not {}",
                           c->header.version, std::byteswap(c->header.version), abi::kVersion),
               "wrong version");
    f.evidence = {maps_line(*c)};
    if (const auto draft = abi::describe(c->recognition.best); !draft.empty()) {
      f.evidence.emplace_back(draft);
    }
    f.hexdumps = {compared(
        e, *c, {{8, 4, fmt::format("version: {}, want {}", c->header.version, abi::kVersion)}})};
    return f;
  }
  if (first_in(e, {HeaderState::kDevelopment}) != nullptr) {
    return not_applicable(NaReason::kRevision,
                          "announces version 1: see pctx.header.version-development");
  }
  if (first_in(e, {HeaderState::kValid, HeaderState::kBadSignature, HeaderState::kNarrow})) {
    return passed();
  }
  return no_active_header(e);
}

std::string decoded_text(const abi::DecodedLayout& d) {
  return fmt::format("version {}, size {}, timestamp {}, pointer {:#x}", d.version, d.size,
                     d.timestamp, d.pointer);
}

Finding version_development(const ImageEvidence& e) {
  if (const Context* c = first_in(e, {HeaderState::kDevelopment})) {
    Finding f =
        failed("the header announces version 1, which is for development", "development version");
    const auto merged = abi::decode_as(abi::fields_of(abi::HeaderLayout::kH5), c->head->bytes);
    f.evidence = {maps_line(*c), "as the merged layout: " + decoded_text(merged)};
    if (c->recognition.best != abi::HeaderLayout::kH5 &&
        c->recognition.best != abi::HeaderLayout::kUnknown) {
      const auto& layout = abi::fields_of(c->recognition.best);
      f.evidence.push_back(fmt::format("as {} ({}): {}", layout.id, layout.in_use,
                                       decoded_text(abi::decode_as(layout, c->head->bytes))));
    }
    f.hexdumps = {compared(e, *c, {{8, 4, "version: 1, want 2 in a release"}})};
    return f;
  }
  if (first_in(e, {HeaderState::kValid, HeaderState::kNarrow})) return passed();
  return no_active_header(e);
}

Finding header_layout(const ImageEvidence& e) {
  if (const Context* c = first_in(e, {HeaderState::kOlderLayout})) {
    const auto& best = abi::fields_of(c->recognition.best);
    Finding f =
        failed(std::string(abi::describe(c->recognition.best)), fmt::format("layout {}", best.id));
    f.evidence = {maps_line(*c)};
    for (std::size_t i = 0; i < c->recognition.scored; ++i) {
      const auto& s = c->recognition.scores[i];
      f.evidence.push_back(fmt::format("as {}: {}, score {}", abi::fields_of(s.layout).id,
                                       decoded_text(s.fields), s.score));
    }
    if (c->recognition.wall_clock) f.evidence.emplace_back("its timestamp is of the wall clock");
    std::vector<Hexdump::Mark> marks;
    const auto mark = [&](int at, std::uint64_t size, const char* what) {
      if (at >= 0) marks.push_back({static_cast<std::uint64_t>(at), size, what});
    };
    mark(best.size, 4, "size in this draft");
    mark(best.timestamp, 8, "timestamp in this draft");
    mark(best.pointer, 8, "pointer in this draft");
    f.hexdumps = {compared(e, *c, std::move(marks),
                           merged_header(best, abi::decode_as(best, c->head->bytes)))};
    return f;
  }
  if (first_in(e, {HeaderState::kValid})) return passed();
  return no_active_header(e);
}

Finding at_mapping_start(const ImageEvidence& e) {
  if (const Context* c = first_in(e, {HeaderState::kElsewhere})) {
    const std::uint64_t at = *c->candidate->found_at;
    Finding f =
        failed(fmt::format("the signature is at offset {} of the mapping, not at its start", at),
               "header not at the start");
    f.evidence = {maps_line(*c), fmt::format("signature at {:#x}", c->start() + at)};
    f.hexdumps = {compared(e, *c, {{0, 8, "no signature here"}})};
    return f;
  }
  if (first_in(e, {HeaderState::kValid, HeaderState::kBadVersion, HeaderState::kDevelopment,
                   HeaderState::kForeignOrder, HeaderState::kOlderLayout, HeaderState::kNarrow})) {
    return passed();
  }
  return no_active_header(e);
}

Finding native_byte_order(const ImageEvidence& e) {
  if (const Context* c = first_in(e, {HeaderState::kForeignOrder})) {
    const auto other = abi::byte_swapped(c->header);
    const char* order = e.image->little_endian ? "big-endian" : "little-endian";
    Finding f = failed(fmt::format("the numbers make sense only as {}, but the program is {}",
                                   order, e.image->little_endian ? "little-endian" : "big-endian"),
                       "foreign byte order");
    f.evidence = {
        maps_line(*c),
        fmt::format("as the program's order: version {}, size {}, timestamp {}", c->header.version,
                    c->header.payload_size, c->header.monotonic_published_at_ns),
        fmt::format("as {}: version {}, size {}, timestamp {}, pointer {:#x}", order, other.version,
                    other.payload_size, other.monotonic_published_at_ns, other.payload)};
    f.hexdumps = {compared(e, *c, {{8, 24, "numbers"}},
                           merged_header(abi::fields_of(abi::HeaderLayout::kH5),
                                         {other.version, other.payload_size,
                                          other.monotonic_published_at_ns, other.payload}))};
    return f;
  }
  if (first_in(e, {HeaderState::kValid, HeaderState::kDevelopment, HeaderState::kNarrow,
                   HeaderState::kBadSignature})) {
    return passed();
  }
  return no_active_header(e);
}

Finding wide_fields_on_32_bit(const ImageEvidence& e) {
  if (e.image->elf64) return not_applicable(NaReason::kArch, "the program is 64-bit");
  if (const Context* c = first_in(e, {HeaderState::kNarrow})) {
    Finding f = failed(
        fmt::format("ELFCLASS32, but bytes 28 to 31 are not zero: the pointer reads as {:#x}",
                    c->header.payload),
        "four-byte pointer");
    f.evidence = {maps_line(*c)};
    f.hexdumps = {compared(e, *c, {{28, 4, "upper half of the pointer, want 00 00 00 00"}},
                           {known_number(24, c->header.payload & UINT32_MAX, 8)})};
    return f;
  }
  if (const Context* c = first_in(e, {HeaderState::kValid})) {
    if ((c->header.payload >> 32U) != 0) {
      return info(fmt::format("the address was sign-extended: {:#x}", c->header.payload),
                  "sign-extended address");
    }
    return passed();
  }
  return no_active_header(e);
}

Finding payload_pointer(const ImageEvidence& e) {
  if (e.first_sights.empty()) return no_active_header(e);
  bool judged = false;
  for (const Context* c : e.first_sights) {
    const auto& h = c->header;
    if (h.payload == 0 || h.payload_size == 0) continue;
    judged = true;
    if (c->payload_mapping() != nullptr || c->payload_block == nullptr ||
        c->payload_block->readable > 0) {
      continue;
    }
    Finding f =
        failed(fmt::format("the payload pointer {:#x} is in no mapping of the process", h.payload),
               "pointer into nothing");
    f.evidence = {maps_line(*c)};
    if (h.payload < 4096) {
      f.evidence.push_back(
          fmt::format("{:#x} looks like an offset; header plus offset would be {:#x}", h.payload,
                      c->start() + h.payload));
    }
    f.hexdumps = {compared(e, *c, {{24, 8, fmt::format("payload: {:#x}", h.payload)}})};
    return f;
  }
  if (!judged) {
    return unobservable("size or pointer is zero: see pctx.publish.fields-nonzero",
                        "a payload of at least one byte");
  }
  const Context& c = *e.first_sights.back();
  const auto* m = c.payload_mapping();
  if (m == nullptr) return passed();
  const bool inside = c.candidate->entries.front().range.contains(sys::RemoteAddr(c.address()));
  return passed(fmt::format("{:#x} in {} ({} bytes before its end, {})", c.header.payload,
                            m->name.empty() ? "unnamed memory" : m->name,
                            m->range.end().raw() - c.address(),
                            inside ? "after the header" : "elsewhere"));
}

Finding payload_size(const ImageEvidence& e) {
  if (e.first_sights.empty()) return no_active_header(e);
  bool judged = false;
  for (const Context* c : e.first_sights) {
    const auto& h = c->header;
    if (h.payload == 0 || h.payload_size == 0 || c->payload_block == nullptr) continue;
    const auto mark = Hexdump::Mark{12, 4, fmt::format("payload_size: {}", h.payload_size)};
    const auto mapped = c->payload_mapped();
    if (c->payload_mapping() != nullptr && mapped < h.payload_size &&
        c->payload_block->readable < h.payload_size) {
      Finding f = failed(fmt::format("{} bytes are announced, but only {} are mapped from {:#x} on",
                                     h.payload_size, mapped, h.payload),
                         "size beyond the mapping");
      f.evidence = {maps_line(*c)};
      f.hexdumps = {compared(e, *c, {mark})};
      return f;
    }
    if (c->payload == nullptr) continue;
    if (c->payload->problem == PayloadProblem::kNotWalkable) {
      Finding f =
          failed(fmt::format("payload_size is {}, but decoding stopped at offset {}: {}",
                             h.payload_size, c->payload->problem_offset, c->payload->detail),
                 "size is not the message's length");
      f.evidence = {maps_line(*c)};
      f.hexdumps = {compared(e, *c, {mark}),
                    payload_dump(*c, c->payload->problem_offset,
                                 h.payload_size - std::min<std::uint64_t>(
                                                      c->payload->problem_offset, h.payload_size),
                                 "decoding stopped here")};
      return f;
    }
    judged = judged || c->payload->problem == PayloadProblem::kNone ||
             c->payload->problem == PayloadProblem::kNotTyped ||
             c->payload->problem == PayloadProblem::kFieldsMisplaced;
  }
  if (judged) return passed();
  return unobservable("the payload could not be decoded as a ProcessContext",
                      "a payload that can be read and is a ProcessContext");
}

// Is `ts` in [low, high] after division of the bounds by `unit`? Small numbers are
// no proof: a counter is legal.
bool in_unit(std::uint64_t ts, std::uint64_t low, std::uint64_t high, std::uint64_t unit) {
  return ts >= 10000 && ts >= low / unit && ts <= high / unit;
}

Finding timestamp_nanoseconds(const ImageEvidence& e) {
  if (e.first_sights.empty()) return no_active_header(e);
  struct Unit {
    std::uint64_t ns;
    const char* name;
  };
  constexpr std::array kUnits = {Unit{1'000, "microseconds"}, Unit{1'000'000, "milliseconds"},
                                 Unit{1'000'000'000, "seconds"}};
  // A clock may be read a moment before the harness notices the start; the kernel's
  // coarse clocks lag by a tick.
  constexpr std::uint64_t kSlack = 20'000'000;
  const auto offset = static_cast<std::uint64_t>(e.image->boottime_offset_ns);
  const auto realtime = e.timeline->realtime_minus_boottime_ns;
  bool within = false;
  bool other_clock = false;
  for (const Context* c : e.first_sights) {
    const std::uint64_t ts = c->header.monotonic_published_at_ns;
    const std::uint64_t low = e.image->started_ns - std::min(e.image->started_ns, kSlack) + offset;
    const std::uint64_t high = c->snapshot->last_seen_ns + offset;
    const std::string bounds = fmt::format(
        "boot-time clock at the start {}, when it was seen {}, stored {}", low, high, ts);
    if (ts >= low && ts <= high) {
      within = true;
      continue;
    }
    for (const auto& [ns, name] : kUnits) {
      const bool wall = in_unit(ts, low - offset + realtime, high - offset + realtime, ns);
      if (!wall && !in_unit(ts, low, high, ns)) continue;
      Finding f = failed(fmt::format("the timestamp {} counts {} {}, not nanoseconds (ratio {})",
                                     ts, name, wall ? "of the wall clock" : "since boot", ns),
                         fmt::format("timestamp in {}", name));
      f.evidence = {maps_line(*c), bounds};
      f.hexdumps = {compared(e, *c, {{16, 8, fmt::format("timestamp: {}", ts)}})};
      return f;
    }
    other_clock = true;
  }
  if (within && !other_clock) return passed();
  return unobservable(
      "a timestamp is from another clock, a counter, or older than this image",
      "level syscalls, which sees where the value comes from (pctx.header.timestamp-clock)");
}

// In attach and wrap mode a withdrawn context looks like one that was left at zero. Only
// the naming call tells them apart: it ends a publication or update and no withdrawal.
Finding timestamp_nonzero_at_rest(const ImageEvidence& e) {
  constexpr std::uint64_t kRest = 2'000'000'000;
  const Context* left_at_zero = nullptr;
  bool zero_at_end = false;
  bool active = e.has_usable;
  std::vector<std::uint64_t> starts;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      if (c.candidate->named && std::ranges::find(starts, c.start()) == starts.end()) {
        starts.push_back(c.start());
      }
    }
  }
  for (const std::uint64_t start : starts) {
    const Context* zero = nullptr;  // first of the run of zeros that goes on to the end
    bool named = false;
    bool alone = true;
    bool published = false;  // else a naming call may come early, before a first publication
    std::uint64_t until = 0;
    for (const auto& list : e.contexts) {
      if (std::ranges::find(list, start, &Context::start) == list.end()) {
        zero = nullptr;  // it was unmapped meanwhile: a withdrawal
        named = published = false;
      }
      for (const Context& c : list) {
        if (c.start() != start || c.head == nullptr) continue;
        if (c.header.signature == abi::kSignature && c.header.monotonic_published_at_ns == 0) {
          if (zero == nullptr) zero = &c;
          // If another context is active, the naming call belongs to it.
          alone = std::ranges::none_of(
              list, [](const Context& other) { return other.state == HeaderState::kValid; });
          named = named || (alone && std::ranges::find(c.snapshot->moments, Moment::kNamed) !=
                                         c.snapshot->moments.end());
          until = c.snapshot->last_seen_ns;
        } else {
          zero = nullptr;
          named = false;
          published = published || c.header.monotonic_published_at_ns != 0;
        }
      }
    }
    if (zero == nullptr || !alone) continue;
    zero_at_end = true;
    if (named && published && until - zero->snapshot->first_seen_ns >= kRest) left_at_zero = zero;
  }
  if (left_at_zero != nullptr) {
    Finding f = failed(
        "the timestamp was zero at the naming call that ends an update, and stayed zero for two "
        "seconds and more",
        "timestamp left at zero");
    f.evidence = {maps_line(*left_at_zero)};
    f.hexdumps = {compared(e, *left_at_zero, {{16, 8, "timestamp: 0"}})};
    return f;
  }
  if (zero_at_end) {
    return unobservable(
        "the timestamp was zero at the end: the context was withdrawn, or an update did not finish",
        "run mode, where the harness knows that no withdrawal was asked for");
  }
  if (active) return passed();
  return no_active_header(e);
}

constexpr auto kHeaderRules = std::to_array<RequirementRule>({
    {"pctx.header.signature", signature, AskedOf::kImages, RestsOn::kStates, UnderFaults::kJudged,
     ClockCell::kJudged},
    {"pctx.header.version", version, AskedOf::kImages, RestsOn::kStates, UnderFaults::kJudged,
     ClockCell::kJudged},
    {"pctx.header.version-development", version_development, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged, ClockCell::kJudged},
    {"pctx.header.payload-size", payload_size, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged, ClockCell::kJudged},
    {"pctx.header.layout", header_layout, AskedOf::kImages, RestsOn::kStates, UnderFaults::kJudged,
     ClockCell::kJudged},
    {"pctx.header.payload-pointer", payload_pointer, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged, ClockCell::kJudged},
    {"pctx.header.at-mapping-start", at_mapping_start, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged, ClockCell::kJudged},
    {"pctx.header.native-byte-order", native_byte_order, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged, ClockCell::kJudged},
    {"pctx.header.wide-fields-on-32-bit", wide_fields_on_32_bit, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged, ClockCell::kJudged},
    {"pctx.header.timestamp-nanoseconds", timestamp_nanoseconds, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kNotJudged, ClockCell::kJudged},
    {"pctx.header.timestamp-nonzero-at-rest", timestamp_nonzero_at_rest, AskedOf::kImages,
     RestsOn::kStates, UnderFaults::kNotJudged, ClockCell::kJudged},
});

}  // namespace

std::span<const RequirementRule> header_rules() { return kHeaderRules; }

}  // namespace ctxconf::conformance
