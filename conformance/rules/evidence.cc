#include "conformance/rules/evidence.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <tuple>

#include "conformance/elf/tls_access.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/ending.h"
#include "conformance/rules/publications.h"
#include "conformance/text/json_text.h"
#include "sys/c_library.h"

namespace ctxconf::conformance {
namespace {

using abi::HeaderLayout;

const MemoryBlock* find_block(const Candidate& c, std::uint64_t at, std::uint64_t wanted) {
  const MemoryBlock* tail = nullptr;
  for (const auto& b : c.memory) {
    if (b.at.raw() != at || b.wanted != wanted) continue;
    // What was copied from after a header or a payload has no hash. A payload may be as long.
    if (b.hash != 0) return &b;
    tail = &b;
  }
  return tail;
}

bool is_whole(const Image& image, const MemoryBlock& b) {
  return b.readable == b.wanted && kept_bytes(image, b).size() == b.wanted;
}

std::uint64_t mapped_prefix(const Candidate& c, std::uint64_t address, std::uint64_t size) {
  std::uint64_t at = address;
  bool moved = true;
  while (moved && at - address < size) {
    moved = false;
    for (const auto& e : c.neighbours) {
      if (e.range.begin().raw() <= at && at < e.range.end().raw()) {
        at = e.range.end().raw();
        moved = true;
      }
    }
  }
  return std::min(at - address, size);
}

// A payload of a draft is believed only when its bytes are one from end to end.
bool is_any_payload(std::span<const std::byte> bytes) {
  const auto p = analyse_payload(bytes).problem;
  return !bytes.empty() && (p == PayloadProblem::kNone || p == PayloadProblem::kOlderFormat);
}

bool header_is_sane(const Image& image, const Candidate& c, const abi::ProcessHeader& h) {
  const MemoryBlock* b = find_block(c, payload_address(h.payload, image.elf64), h.payload_size);
  return b != nullptr && is_whole(image, *b) && is_any_payload(kept_bytes(image, *b));
}

abi::Recognition recognise(const Timeline& t, const Image& image, const Context& context) {
  const Candidate& c = *context.candidate;
  abi::RecognitionInput in;
  in.head = context.head->bytes;
  const std::uint64_t now = context.snapshot->last_seen_ns;
  in.boottime_now_ns = now + static_cast<std::uint64_t>(image.boottime_offset_ns);
  in.realtime_now_ns = now + t.realtime_minus_boottime_ns;
  in.is_mapped = [&c](std::uint64_t at, std::uint64_t size) {
    const MemoryBlock* b = find_block(c, at, size);
    return (b != nullptr && b->readable == size) || mapped_prefix(c, at, size) == size;
  };
  in.payload = [&](std::uint64_t at, std::uint64_t size) -> std::span<const std::byte> {
    const MemoryBlock* b = find_block(c, at, size);
    return b == nullptr ? std::span<const std::byte>() : kept_bytes(image, *b);
  };
  return abi::recognise_header(in);
}

bool is_older(HeaderLayout l) {
  return l == HeaderLayout::kH0 || l == HeaderLayout::kH1 || l == HeaderLayout::kH2 ||
         l == HeaderLayout::kH3;
}

// Is what the best older layout points at a payload from end to end?
bool older_layout_proven(const Image& image, const Context& context) {
  const auto& layout = abi::fields_of(context.recognition.best);
  if (layout.layout == HeaderLayout::kH0) return true;  // the signature alone says it
  const auto fields = abi::decode_as(layout, context.head->bytes);
  const MemoryBlock* b = find_block(*context.candidate, fields.pointer, fields.size);
  return b != nullptr && is_whole(image, *b) && is_any_payload(kept_bytes(image, *b));
}

// Four bytes of pointer at 24: what follows at 28 is not an upper half. A sign-extended
// address is another matter.
bool is_narrow(const Image& image, const abi::ProcessHeader& h) {
  const auto upper = static_cast<std::uint32_t>(h.payload >> 32U);
  const auto lower = static_cast<std::uint32_t>(h.payload);
  if (image.elf64 || upper == 0) return false;
  return upper != 0xffffffffU || (lower >> 31U) == 0;
}

using Announcements = std::set<std::pair<std::uint64_t, std::vector<std::byte>>>;

// The headers that naming calls found, with their addresses.
Announcements announcements_of(const Image& image) {
  Announcements out;
  for (const SystemCall& c : image.calls) {
    if (!is_context_naming(c) || c.before.size() < sizeof(abi::ProcessHeader)) continue;
    const std::span head = std::span(c.before).first(sizeof(abi::ProcessHeader));
    out.emplace(c.args[2], std::vector(head.begin(), head.end()));
  }
  return out;
}

bool is_broken(HeaderState state) {
  return state != HeaderState::kUnreadable && state != HeaderState::kBlank &&
         state != HeaderState::kUnknown && state != HeaderState::kValid;
}

// The broken contexts of an image that also had a usable one: announced by a naming call as they
// are, with a timestamp, while nothing else was active. One that becomes usable under the same
// timestamp was named too early, which another requirement reports.
std::set<const Context*> broken_publications(const ImageEvidence& e) {
  std::set<const Context*> out;
  const Announcements announced = announcements_of(*e.image);
  std::set<std::pair<std::uint64_t, std::uint64_t>> mended;  // starts and timestamps
  for (auto list = e.contexts.rbegin(); list != e.contexts.rend(); ++list) {
    bool active = false;
    for (const Context& c : *list) {
      if (!c.candidate->named || !c.usable()) continue;
      active = true;
      mended.emplace(c.start(), c.header.monotonic_published_at_ns);
    }
    for (const Context& c : *list) {
      if (active || !c.candidate->named || !c.candidate->stable || !is_broken(c.state)) continue;
      const std::uint64_t timestamp = c.header.monotonic_published_at_ns;
      if (timestamp == 0 || mended.contains({c.start(), timestamp})) continue;
      const std::span head = std::span(c.head->bytes).first(sizeof(abi::ProcessHeader));
      if (announced.contains({c.start(), std::vector(head.begin(), head.end())})) out.insert(&c);
    }
  }
  return out;
}

HeaderState classify(const Image& image, const Context& context) {
  const auto& h = context.header;
  if (context.head == nullptr || context.head->bytes.size() < sizeof h) {
    return HeaderState::kUnreadable;
  }
  const bool signature = h.signature == abi::kSignature;
  if (signature && h.version == abi::kVersion && h.monotonic_published_at_ns != 0) {
    if (is_narrow(image, h)) return HeaderState::kNarrow;
    if (is_older(context.recognition.best) && !header_is_sane(image, *context.candidate, h) &&
        older_layout_proven(image, context)) {
      return HeaderState::kOlderLayout;
    }
    return HeaderState::kValid;
  }
  if (context.candidate->found_at) return HeaderState::kElsewhere;
  if (all_zero(context.head->bytes)) return HeaderState::kBlank;
  if (signature && h.version == abi::kDevelopmentVersion) {
    if (h.monotonic_published_at_ns == 0) return HeaderState::kBlank;
    if (is_older(context.recognition.best) && !header_is_sane(image, *context.candidate, h) &&
        older_layout_proven(image, context)) {
      return HeaderState::kOlderLayout;
    }
    return HeaderState::kDevelopment;
  }
  const auto swapped = abi::byte_swapped(h);
  if (signature && swapped.version == abi::kVersion && swapped.monotonic_published_at_ns != 0) {
    return HeaderState::kForeignOrder;
  }
  if (is_older(context.recognition.best) && older_layout_proven(image, context)) {
    return HeaderState::kOlderLayout;
  }
  if (h.monotonic_published_at_ns == 0) return HeaderState::kBlank;
  if (signature) return HeaderState::kBadVersion;
  if (h.version == abi::kVersion) return HeaderState::kBadSignature;
  return HeaderState::kUnknown;
}

}  // namespace

std::uint64_t Context::address() const { return payload_address(header.payload, elf64); }

const sys::MapEntry* Context::payload_mapping() const {
  for (const auto& e : candidate->neighbours) {
    if (e.range.contains(sys::RemoteAddr(address()))) return &e;
  }
  return nullptr;
}

std::uint64_t Context::payload_mapped() const {
  return mapped_prefix(*candidate, address(), header.payload_size);
}

std::string ImageEvidence::name() const {
  std::string out = std::to_string(image->key.pid);
  if (image->key.image != 0) out += "#" + std::to_string(image->key.image);
  out += " " + image->executable;
  return cell == nullptr ? out : out + " (" + cell->name() + ")";
}

bool ImageEvidence::has_valid_record() const {
  return std::ranges::any_of(records, &Record::valid);
}

bool is_freed(const MemoryBlock& record) {
  constexpr std::size_t kKept = 16;  // which the allocator uses itself
  return record.bytes.size() >= abi::kRecordHeadBytes &&
         std::ranges::all_of(std::span(record.bytes).subspan(kKept, abi::kRecordHeadBytes - kKept),
                             [](std::byte b) { return b == std::byte{kFreedByte}; });
}

std::string why_freed_is_unfilled(const Image& image) {
  if (image.libc.empty() || image.libc.starts_with("glibc")) return {};
  if (image.libc == sys::kNoInterpreter) {
    return "it is not known whether freed memory is filled: the program is statically linked";
  }
  return "freed memory is not filled: the C library is " +
         image.libc.substr(0, image.libc.find(' '));
}

namespace {

// The usable payload at the first look that ended at or after `ns`; the last one when all were
// before.
const Payload* payload_at(const ImageEvidence& e, std::uint64_t ns) {
  const Payload* found = nullptr;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      if (!c.candidate->named || !c.usable() || c.payload == nullptr) continue;
      if (c.payload->problem != PayloadProblem::kNone) continue;
      found = c.payload.get();
      if (c.snapshot->last_seen_ns >= ns) return found;
    }
  }
  return found;
}

const ThreadlocalEntry* entry_of(const Payload* payload, std::string_view key) {
  if (payload == nullptr) return nullptr;
  const auto it = std::ranges::find_if(payload->threadlocal, [&](const ThreadlocalEntry& t) {
    return t.key == key && !t.in_resource;
  });
  return it == payload->threadlocal.end() ? nullptr : &*it;
}

}  // namespace

std::optional<Record> record_of(const ImageEvidence& e, const ThreadSample& sample) {
  if (!sample.record) return std::nullopt;
  Record r;
  r.sample = &sample;
  r.storage = sample.record->bytes;
  const auto head = abi::decode_thread_record(r.storage);
  if (!head) return std::nullopt;
  r.head = *head;
  const bool native = e.image->little_endian == (std::endian::native == std::endian::little);
  if (!native) r.head.attrs_data_size = std::byteswap(r.head.attrs_data_size);
  const std::size_t announced = sizeof *head + r.head.attrs_data_size;
  r.whole = sample.record->readable >= announced && r.storage.size() >= announced;
  const std::size_t end = std::min(announced, r.storage.size());
  if (r.whole && sample.after) {
    r.storage.insert(r.storage.end(), sample.after->bytes.begin(), sample.after->bytes.end());
  }
  r.bytes = r.storage;
  r.attributes = r.bytes.subspan(sizeof *head, end - sizeof *head);
  r.key_map = entry_of(payload_at(e, sample.first_seen_ns), abi::kAttributeKeyMapKey);
  return r;
}

namespace {

void add_records(ImageEvidence& e) {
  const auto* last_map = entry_of(payload_at(e, UINT64_MAX), abi::kAttributeKeyMapKey);
  for (const ThreadSample& sample : e.image->threads) {
    if (sample.value == 0 || !sample.record) continue;
    auto r = record_of(e, sample);
    if (!r) {
      e.unreadable.push_back(&sample);
      continue;
    }
    r->last_key_map = last_map;
    e.records.push_back(*std::move(r));
  }
}

void add_thread_facts(ImageEvidence& e) {
  for (const ModuleFacts& m : e.image->modules) {
    if (!m.dynamic_symbols.empty() || !m.static_symbols.empty()) e.uses_threads = true;
    if (slot_definition(m) != nullptr) e.definers.push_back(&m);
  }
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      if (!c.candidate->named || !c.usable() || c.payload == nullptr) continue;
      if (!c.payload->threadlocal.empty()) e.uses_threads = true;
    }
  }
  if (const auto* schema = entry_of(payload_at(e, UINT64_MAX), abi::kSchemaVersionKey);
      schema != nullptr && schema->kind == ValueKind::kString) {
    e.schema = schema->text;
  }
  add_records(e);
  if (!e.records.empty() || !e.unreadable.empty()) e.uses_threads = true;
}

// run: its files could not grow while it was asked to publish.
bool is_limited(const Timeline& timeline, const Process& process) {
  return std::ranges::any_of(timeline.sessions, [&](const Session& s) {
    return s.root.session == process.session &&
           std::ranges::find(s.faults, kFileSizeLimit) != s.faults.end();
  });
}

}  // namespace

std::vector<ImageEvidence> evidence_of(const Timeline& timeline) {
  std::vector<ImageEvidence> out;
  for (const Process& process : timeline.processes) {
    for (const Image& image : process.images) {
      ImageEvidence e;
      e.timeline = &timeline;
      e.process = &process;
      e.image = &image;
      e.cell = cell_of(timeline, process.session);
      // The same bytes come in many snapshots: they are analysed once.
      std::map<std::pair<std::uint64_t, std::size_t>, std::shared_ptr<const Payload>> payloads;
      for (const Snapshot& s : image.snapshots) {
        auto& list = e.contexts.emplace_back();
        for (const Candidate& c : s.candidates) {
          Context context;
          context.snapshot = &s;
          context.candidate = &c;
          context.elf64 = image.elf64;
          if (!c.memory.empty()) context.head = &c.memory.front();
          if (context.head != nullptr) {
            const auto raw = abi::decode_process_header(context.head->bytes);
            const bool same = image.little_endian == (std::endian::native == std::endian::little);
            if (raw) {
              context.header = same ? *raw : abi::byte_swapped(*raw);
              context.recognition = recognise(timeline, image, context);
            }
          }
          context.state = classify(image, context);
          const auto& h = context.header;
          context.payload_block = find_block(c, context.address(), h.payload_size);
          if (h.payload == 0 || h.payload_size == 0) context.payload_block = nullptr;
          if (const auto* b = context.payload_block; b != nullptr) {
            context.payload_bytes = kept_bytes(image, *b);
            if (is_whole(image, *b)) {
              auto& payload = payloads[{b->hash, b->wanted}];
              if (!payload) {
                payload = std::make_shared<const Payload>(analyse_payload(context.payload_bytes));
              }
              context.payload = payload;
            }
          }
          e.has_named = e.has_named || c.named;
          e.has_hidden = e.has_hidden || !c.named;
          e.has_usable = e.has_usable || (c.named && context.usable());
          list.push_back(std::move(context));
        }
      }
      add_thread_facts(e);
      e.faulted =
          is_limited(timeline, process) || std::ranges::any_of(image.calls, &SystemCall::injected);
      const bool silent = !e.published() && !e.uses_threads && !e.faulted;
      if (silent && timeline.mode != Mode::kRun) continue;
      std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t>> seen;
      std::set<const Context*> broken;
      if (e.has_usable) broken = broken_publications(e);
      for (const auto& list : e.contexts) {
        for (const Context& context : list) {
          if (!context.candidate->named) continue;
          const bool is_judged = e.has_usable ? context.usable() || broken.contains(&context)
                                              : context.candidate->stable;
          if (is_judged) {
            e.judged.push_back(&context);
          }
          const auto& h = context.header;
          // Memory of a process that is about to end goes in some order: a payload first
          // seen then, and no longer whole, says nothing of the publication.
          const bool torn_down = begins_at_exit(*context.snapshot) && h.payload != 0 &&
                                 h.payload_size != 0 && !context.is_decoded();
          if (torn_down) continue;
          if (context.usable() &&
              seen.emplace(context.start(), h.monotonic_published_at_ns, h.payload, h.payload_size)
                  .second) {
            e.first_sights.push_back(&context);
          }
        }
      }
      out.push_back(std::move(e));
    }
  }
  add_sessions(timeline, out);
  return out;
}

std::vector<const Context*> decoded_contexts(const ImageEvidence& e) {
  std::vector<const Context*> out;
  for (const Context* c : e.first_sights) {
    if (c->is_decoded()) out.push_back(c);
  }
  return out;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; });
}

bool ImageEvidence::was_read() const {
  const auto is_whole = [](const Context* c) {
    return c->is_decoded() || c->header.payload_size == 0;
  };
  return std::ranges::any_of(first_sights, is_whole) ||
         std::ranges::any_of(records, [](const Record& r) { return r.valid() && r.whole; });
}

const Payload* last_payload(const ImageEvidence& evidence) {
  const auto decoded = decoded_contexts(evidence);
  return decoded.empty() ? nullptr : decoded.back()->payload.get();
}

std::string summary_of(const ImageEvidence& evidence) {
  const Payload* const payload = last_payload(evidence);
  if (payload == nullptr) return {};
  std::vector<const Attribute*> all;
  all.reserve(payload->resource.size() + payload->attributes.size());
  for (const auto& a : payload->resource) all.push_back(&a);
  for (const auto& a : payload->attributes) all.push_back(&a);
  if (all.empty()) return "no attributes";
  // The service's name is what one looks for.
  if (const auto it = std::ranges::find(all, "service.name", &Attribute::key); it != all.end()) {
    std::iter_swap(all.begin(), it);
  }
  std::string out = all.front()->key + "=" + all.front()->value.substr(0, 80);
  if (all.size() > 1) {
    out += ", " + std::to_string(all.size() - 1) + " more attribute" + (all.size() > 2 ? "s" : "");
  }
  return out;
}

std::string threads_of(const ImageEvidence& evidence) {
  if (!evidence.uses_threads) return {};
  if (!evidence.image->threads_unread.empty()) {
    return "threads not sampled: " + evidence.image->threads_unread;
  }
  std::map<std::int32_t, const Record*> of;  // a thread's last valid record
  for (const Record& r : evidence.records) {
    if (r.valid() && r.whole) of[r.sample->tid] = &r;
  }
  if (of.empty()) return "no thread with a valid record was seen";
  const auto& [tid, record] = *of.begin();
  std::string out = std::to_string(of.size()) + (of.size() == 1 ? " thread" : " threads") +
                    " with a record; " + std::to_string(tid) + ": trace " +
                    hex(std::as_bytes(std::span(record->head.trace_id))) + ", span " +
                    hex(std::as_bytes(std::span(record->head.span_id)));
  abi::AttributeCursor cursor(record->attributes);
  for (int shown = 0; shown < 4; ++shown) {
    const auto entry = cursor.next();
    if (!entry) break;
    const auto* map = record->last_key_map;
    const std::string name = map != nullptr && entry->key < map->elements.size()
                                 ? map->elements[entry->key].text
                                 : "attribute " + std::to_string(entry->key);
    out += ", " + name + "=" +
           std::string(reinterpret_cast<const char*>(entry->value.data()), entry->value.size());
  }
  return out;
}

}  // namespace ctxconf::conformance
