#include "conformance/rules/operation_pictures.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "conformance/rules/header_operations.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/store_evidence.h"

namespace ctxconf::conformance {
namespace {

using StepKind = PictureStep::Kind;

// A part of the image's order of events.
struct Part {
  bool is_update = false;
  std::uint64_t header = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const Publication* publication = nullptr;  // null: not seen
};

const Publication* publication_at(const std::vector<Publication>& all, std::uint64_t header,
                                  std::uint64_t order) {
  const Publication* out = nullptr;
  for (const Publication& p : all) {
    if (p.start != header) continue;
    const bool later = p.map != nullptr && p.map->entered_order > order;
    if (out == nullptr || !later) out = &p;
  }
  return out;
}

std::uint64_t first_call_of(const Publication& p, std::uint64_t otherwise) {
  std::uint64_t out = otherwise;
  const auto take = [&out](const SystemCall* c) {
    if (c != nullptr) out = std::min(out, c->entered_order);
  };
  take(p.map);
  take(p.create);
  take(p.dontfork);
  for (const SystemCall* c : p.attempts) take(c);
  return out;
}

// Where the naming call that follows `since` ends; `since` if none begins before `until`.
std::uint64_t end_of_naming(const Image& image, std::uint64_t header, std::uint64_t since,
                            std::uint64_t until) {
  for (const SystemCall& c : image.calls) {
    if (c.args[2] != header || c.entered_order <= since || !is_context_naming(c)) continue;
    return c.entered_order < until ? std::max(c.entered_order, c.left_order) : since;
  }
  return since;
}

// What a thread did between its gate and its first store, to the payload, belongs to its update.
// `last`: in the order of events, the last store of the operation before.
std::uint64_t begin_of_update(const Image& image, std::uint64_t header, std::uint64_t last,
                              std::uint64_t first_store) {
  std::uint64_t out = first_store;
  for (const StepTrace& trace : image.step_traces) {
    if (!trace.from_gate || trace.header != header || trace.views.size() < 2) continue;
    const std::uint64_t first = trace.views[1].order;
    if (first > last) out = std::min(out, first);
  }
  return out;
}

std::vector<Part> parts_of(const ImageEvidence& e, const HeaderHistory& history,
                           const std::vector<Publication>& publications, std::uint64_t header) {
  std::vector<Part> out;
  for (const HeaderOperation& op : history.operations) {
    if (op.watch->header != header || op.stores.empty()) continue;
    Part part;
    part.is_update = op.kind == HeaderOperation::Kind::kUpdate;
    part.header = header;
    part.begin = op.stores.front().store->order;
    part.end = op.stores.back().store->order;
    part.publication = publication_at(publications, header, part.begin);
    if (part.is_update) {
      part.begin = begin_of_update(*e.image, header, out.empty() ? 0 : out.back().end, part.begin);
    }
    if (!part.is_update && part.publication != nullptr) {
      const std::uint64_t first = first_call_of(*part.publication, part.begin);
      if (out.empty() || first > out.back().end) part.begin = first;
    }
    out.push_back(part);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t next = i + 1 < out.size() ? out[i + 1].begin : UINT64_MAX;
    out[i].end = end_of_naming(*e.image, header, out[i].end, next);
  }
  if (!out.empty()) return out;
  // Without stores the calls still tell of the publication.
  for (const Publication& p : publications) {
    if (p.start != header) continue;
    Part part;
    part.header = header;
    part.begin = first_call_of(p, UINT64_MAX);
    if (part.begin == UINT64_MAX) continue;
    part.end = end_of_naming(*e.image, header, part.begin, UINT64_MAX);
    part.publication = &p;
    out.push_back(part);
  }
  return out;
}

// ---- steps

std::string location_of(const Image& image, const std::optional<std::uint32_t>& location) {
  if (!location || *location >= image.locations.size()) return {};
  InstructionLocation p = image.locations[*location];
  p.source_file = file_name(p.source_file);
  for (InstructionLocation& caller : p.callers) caller.source_file = file_name(caller.source_file);
  return location_text(p);
}

std::string short_address(std::uint64_t address) {
  constexpr std::size_t kLong = 10;  // "0x" and eight digits
  const std::string text = hex_text(address);
  return text.size() <= kLong ? text : "0x…" + text.substr(text.size() - 6);
}

std::string signature_text(const abi::ProcessHeader& h) {
  const std::string_view text(h.signature.data(), h.signature.size());
  if (text.find_first_not_of('\0') == text.npos) return "zeros";
  return fmt::format("\"{}\"", text);
}

std::vector<PictureStep::Change> picture_changes(const HeaderStore& s) {
  constexpr std::uint8_t kSignatureWord = 1;
  constexpr std::uint8_t kSizeWord = 2;
  constexpr std::uint8_t kTimestampWord = 4;
  constexpr std::uint8_t kPointerWord = 8;
  const auto& b = s.before;
  const auto& a = s.after;
  std::vector<PictureStep::Change> out;
  // A store of the same bytes is told only where it changed nothing at all.
  const bool again = b == a;
  const auto add = [&](Lane lane, std::uint8_t word, std::string was, std::string is) {
    const bool stored = (s.store->words & word) != 0;
    if (was != is || (again && stored)) out.push_back({lane, std::move(was), std::move(is)});
  };
  add(Lane::kSignature, kSignatureWord, signature_text(b), signature_text(a));
  add(Lane::kVersion, kSizeWord, std::to_string(b.version), std::to_string(a.version));
  add(Lane::kSize, kSizeWord, std::to_string(b.payload_size), std::to_string(a.payload_size));
  add(Lane::kTimestamp, kTimestampWord, std::to_string(b.monotonic_published_at_ns),
      std::to_string(a.monotonic_published_at_ns));
  add(Lane::kPointer, kPointerWord, short_address(b.payload), short_address(a.payload));
  return out;
}

std::string call_text(const SystemCall& c) {
  std::string out = c.name;
  if (c.name == "memfd_create") {
    out = fmt::format("memfd_create(\"{}\")", c.text);
  } else if (is_naming(c)) {
    out = fmt::format("prctl(PR_SET_VMA, \"{}\")", c.text);
  } else if (c.name == "madvise") {
    out = c.args[2] == MADV_DONTFORK ? "madvise(MADV_DONTFORK)"
                                     : fmt::format("madvise({})", c.args[2]);
  } else if (c.name == "ftruncate" || c.name == "mmap" || c.name == "munmap") {
    out += fmt::format(", {} bytes", c.args[1]);
  }
  if (c.result && *c.result < 0) {
    const char* error = strerrorname_np(static_cast<int>(-*c.result));
    out += fmt::format(" = -{}", error == nullptr ? std::to_string(-*c.result) : error);
  }
  return c.injected ? out + ", made to fail" : out;
}

bool is_new_process(const SystemCall& c) {
  return c.name == "fork" || c.name == "vfork" || c.name == "clone";
}

// One step with its place in the order of events.
struct Event {
  std::uint64_t order = 0;
  PictureStep step;
  std::optional<abi::ProcessHeader> before;  // of a store
  std::optional<abi::ProcessHeader> after;
  bool came_back = false;  // of a payload: its bytes, in the end
};

class Painter {
 public:
  Painter(const ImageEvidence& e, const Part& part)
      : timeline_(*e.timeline), image_(*e.image), part_(part) {}

  // `event`: null, nothing is wrong.
  OperationPicture paint(const EventLocation* event) {
    stores();
    calls(event);
    payloads();
    std::ranges::sort(events_, {}, &Event::order);
    join_payloads();
    OperationPicture out;
    out.is_update = part_.is_update;
    out.header = part_.header;
    finds(out);
    const std::size_t marked = event == nullptr ? 0 : mark(*event);
    const std::size_t from = cut(events_.size(), marked);
    const std::size_t to = std::min(events_.size(), from + kMaxPictureSteps);
    out.steps_before = from;
    out.steps_behind = events_.size() - to;
    for (std::size_t i = from; i < to; ++i) out.steps.push_back(std::move(events_[i].step));
    return out;
  }

  // Painted: a reader may have found what the program never had.
  bool is_mixed() const { return is_mixed_; }

 private:
  bool is_inside(std::uint64_t order) const { return order >= part_.begin && order <= part_.end; }

  void stores() {
    for (const Store& s : image_.stores) {
      if (s.header != part_.header || !is_inside(s.order)) continue;
      const auto before = header_of(image_, s.before);
      const auto after = header_of(image_, s.after);
      if (!before || !after) continue;
      Event event;
      event.order = s.order;
      event.step.changes = picture_changes({&s, *before, *after});
      if (event.step.changes.empty()) continue;
      event.step.tid = s.tid;
      event.step.at = s.tid == 0 ? "no thread that was watched" : location_of(image_, s.location);
      if (s.tid != 0 && !s.call.empty()) {
        const char* const separator = event.step.at.empty() ? "" : ", ";
        event.step.at = "system call " + s.call + separator + event.step.at;
      }
      event.before = before;
      event.after = after;
      payload_locations_.insert({before->payload, after->payload});
      events_.push_back(std::move(event));
    }
  }

  bool concerns(const SystemCall& c) const {
    if (is_new_process(c)) return true;
    if (const Publication* p = part_.publication; p != nullptr) {
      if (&c == p->create || &c == p->map) return true;
      if (std::ranges::find(p->sizings, &c) != p->sizings.end()) return true;
      if (std::ranges::find(p->attempts, &c) != p->attempts.end()) return true;
    }
    if (is_naming(c)) return c.args[2] == part_.header;
    const auto covers = [&c](std::uint64_t address) {
      return c.args[0] <= address && address - c.args[0] < std::max<std::uint64_t>(c.args[1], 1);
    };
    const bool unmaps = c.name == "munmap" || c.name == "mremap";
    if (!unmaps && c.name != "madvise" && c.name != "mprotect") return false;
    return covers(part_.header) ||
           (unmaps && std::ranges::any_of(payload_locations_, [&](std::uint64_t payload) {
              return payload != 0 && covers(payload_address(payload, image_.elf64));
            }));
  }

  // Whether no program can make the naming call better here. A memfd is found by its own name.
  std::string excuse(const SystemCall& c) const {
    if (!is_naming(c) || c.injected) return {};
    const bool none = c.result == -EINVAL && host_has(timeline_, sys::kHostAnonVmaName) == false;
    const bool none_of_memfds =
        c.result == -EBADF && host_has(timeline_, sys::kHostShmemVmaName) == false;
    if (!none && !none_of_memfds) return {};
    const bool memfd = part_.publication != nullptr && part_.publication->create != nullptr;
    return fmt::format(", {}this kernel cannot name such memory", memfd ? "harmless: " : "");
  }

  void calls(const EventLocation* event) {
    for (const SystemCall& c : image_.calls) {
      if (!is_inside(c.entered_order)) continue;
      const bool wrong = event != nullptr && event->missing.empty() &&
                         event->header == part_.header && event->order == c.entered_order;
      if (!wrong && !concerns(c)) continue;
      Event out;
      out.order = c.entered_order;
      out.step.kind = is_new_process(c) ? StepKind::kFork : StepKind::kCall;
      out.step.text = call_text(c) + excuse(c);
      out.step.tid = c.tid;
      events_.push_back(std::move(out));
    }
  }

  // Bytes that changed where they stand, under one timestamp.
  void payloads() {
    for (const StepTrace& trace : image_.step_traces) {
      if (trace.header != part_.header) continue;
      for (std::size_t i = 1; i < trace.views.size(); ++i) {
        const ReaderView& was = trace.views[i - 1];
        const ReaderView& is = trace.views[i];
        if (!is_inside(is.order) || was.header != is.header || !was.payload || !is.payload ||
            was.payload->hash == is.payload->hash) {
          continue;
        }
        Event out;
        out.order = is.order;
        out.step.kind = StepKind::kPayload;
        out.step.changes = {{Lane::kPayload, hash_text(*was.payload), hash_text(*is.payload)}};
        out.step.at = location_of(image_, is.location);
        out.step.tid = trace.tid;
        events_.push_back(std::move(out));
      }
    }
  }

  // A copy shows after each of its instructions.
  void join_payloads() {
    std::vector<Event> joined;
    std::size_t times = 0;
    for (Event& event : events_) {
      const bool more = event.step.kind == StepKind::kPayload && !joined.empty() &&
                        joined.back().step.kind == StepKind::kPayload;
      times = more ? times + 1 : 1;
      if (more) {
        PictureStep& step = joined.back().step;
        joined.back().came_back = event.step.changes.front().is == step.changes.front().was;
        step.text = fmt::format("the first of {} changes", times);
      } else {
        joined.push_back(std::move(event));
      }
    }
    events_ = std::move(joined);
  }

  static std::string hash_text(const MemoryBlock& block) {
    return fmt::format("{:08x}…", block.hash >> 32U);
  }

  void finds(OperationPicture& out) {
    std::optional<abi::ProcessHeader> old;
    std::optional<abi::ProcessHeader> last;
    for (const Event& event : events_) {
      if (!event.after) continue;
      if (!old) old = event.before;
      last = event.after;
    }
    if (!old) return;
    const auto found = [&](const abi::ProcessHeader& h) {
      if (h.monotonic_published_at_ns == 0) return Finds::kNoTimestamp;
      if (!abi::is_valid(h)) return Finds::kNoContext;
      if (part_.is_update && h == *old) return Finds::kOld;
      return h == *last ? Finds::kNew : Finds::kNeither;
    };
    Finds now = out.before = found(*old);
    for (Event& event : events_) {
      if (event.after) now = found(*event.after);
      event.step.finds = now;
      const bool changed = event.step.kind == StepKind::kPayload;
      if (!changed || (now != Finds::kOld && now != Finds::kNew)) continue;
      event.step.finds = Finds::kNeither;
      if (!event.came_back) now = Finds::kNeither;
    }
    before_memory(out);
    is_mixed_ = std::ranges::any_of(
        events_, [](const Event& event) { return event.step.finds == Finds::kNeither; });
  }

  // What comes before the memory is mapped finds none.
  void before_memory(OperationPicture& out) {
    const SystemCall* map = part_.publication == nullptr ? nullptr : part_.publication->map;
    if (part_.is_update || map == nullptr || map->name != "mmap") return;
    if (is_inside(map->entered_order)) out.before = Finds::kNoMemory;
    for (Event& event : events_) {
      if (event.order < map->entered_order) event.step.finds = Finds::kNoMemory;
    }
  }

  // The index of what is wrong. What shows after a store is that store's.
  std::size_t mark(const EventLocation& location) {
    if (!location.missing.empty()) {
      Event event;
      event.order = part_.end;
      event.step.kind = StepKind::kMissing;
      event.step.text = location.missing;
      event.step.finds = events_.empty() ? Finds::kUnknown : events_.back().step.finds;
      event.step.wrong = true;
      events_.push_back(std::move(event));
      return events_.size() - 1;
    }
    std::size_t out = events_.size();
    for (std::size_t i = 0; i < events_.size() && events_[i].order <= location.order; ++i) {
      const bool shows_later = events_[i].after || events_[i].step.kind == StepKind::kPayload;
      if (events_[i].order == location.order || shows_later) out = i;
    }
    if (out == events_.size()) return 0;
    events_[out].step.wrong = true;
    return out;
  }

  // The first of those shown, with what is marked among them.
  static std::size_t cut(std::size_t all, std::size_t marked) {
    if (all <= kMaxPictureSteps) return 0;
    const std::size_t from = marked < kMaxPictureSteps / 2 ? 0 : marked - kMaxPictureSteps / 2;
    return std::min(from, all - kMaxPictureSteps);
  }

  const Timeline& timeline_;
  const Image& image_;
  const Part& part_;
  std::vector<Event> events_;
  std::set<std::uint64_t> payload_locations_;
  bool is_mixed_ = false;
};

constexpr std::size_t kMostTried = 100;

// The last that has begun by then, or the first.
std::size_t part_with(const std::vector<Part>& parts, std::uint64_t order) {
  std::size_t out = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].begin <= order) out = i;
  }
  return out;
}

}  // namespace

std::optional<OperationPicture> picture_of(const ImageEvidence& e, const EventLocation& event) {
  const auto publications = publications_of(e);
  const auto parts = parts_of(e, header_history_of(e), publications, event.header);
  if (parts.empty()) return std::nullopt;
  Part part = parts[part_with(parts, event.order)];
  if (event.missing.empty()) {
    part.begin = std::min(part.begin, event.order);
    part.end = std::max(part.end, event.order);
  }
  return Painter(e, part).paint(&event);
}

std::vector<OperationPicture> pictures_without(const ImageEvidence& e,
                                               std::span<const EventLocation> wrong) {
  const auto publications = publications_of(e);
  const HeaderHistory history = header_history_of(e);
  std::set<std::uint64_t> headers;
  for (const Watch& watch : e.image->watches) headers.insert(watch.header);
  std::vector<Part> whole;
  for (const std::uint64_t header : headers) {
    const auto parts = parts_of(e, history, publications, header);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool marked = std::ranges::any_of(wrong, [&](const EventLocation& location) {
        return location.header == header && part_with(parts, location.order) == i;
      });
      if (!marked) whole.push_back(parts[i]);
    }
  }
  std::ranges::sort(whole, {}, &Part::begin);
  std::vector<OperationPicture> out;
  for (const bool update : {false, true}) {
    std::size_t tried = 0;
    for (const Part& part : whole) {
      if (part.is_update != update) continue;
      if (++tried > kMostTried) break;
      Painter painter(e, part);
      OperationPicture picture = painter.paint(nullptr);
      if (painter.is_mixed()) continue;
      out.push_back(std::move(picture));
      break;
    }
  }
  return out;
}

}  // namespace ctxconf::conformance
