// Rules about what a reader of a stopped thread finds between two instructions (level steps of
// OTEP 4947).
#include "conformance/rules/slot_step_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/driven_threads.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/store_evidence.h"
#include "conformance/rules/thread_rules.h"
#include "conformance/text/json_text.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kShownEntryBytes = 16;
constexpr const char* kAdapter = "an adapter that declares thread.attach and thread.detach";

enum class RecordReading {
  kNull,
  kUnknown,     // not all that could be copied was kept
  kUnreadable,  // not even the fixed part can be copied
  kHidden,      // byte 24 is not 1: a reader goes no further
  kCut,         // fewer bytes of entries can be copied than it announces
  kVisible,
};

// A view as a reader takes it.
struct SeenSlot {
  const SlotView* view = nullptr;
  RecordReading reading = RecordReading::kNull;
  abi::ThreadRecordHead head{};        // attrs_data_size in the byte order of this machine
  std::span<const std::byte> entries;  // of a visible record
  std::uint64_t value() const { return view->value; }
  bool visible() const { return reading == RecordReading::kVisible; }
};

SeenSlot seen(const Image& image, const SlotView& view) {
  SeenSlot out;
  out.view = &view;
  if (view.value == 0) return out;
  out.reading = RecordReading::kUnknown;
  if (!view.record) return out;
  const MemoryBlock& block = *view.record;
  const auto head = abi::decode_thread_record(block.bytes);
  if (block.readable < abi::kRecordHeadBytes) {
    out.reading = RecordReading::kUnreadable;
  } else if (head) {
    out.head = *head;
    const bool native = image.little_endian == (std::endian::native == std::endian::little);
    if (!native) out.head.attrs_data_size = std::byteswap(out.head.attrs_data_size);
    const std::size_t whole = abi::kRecordHeadBytes + out.head.attrs_data_size;
    if (out.head.valid != abi::kRecordValid) {
      out.reading = RecordReading::kHidden;
    } else if (block.readable < whole) {
      out.reading = RecordReading::kCut;
    } else if (block.bytes.size() >= whole) {
      out.reading = RecordReading::kVisible;
      out.entries = std::span(block.bytes).subspan(abi::kRecordHeadBytes, out.head.attrs_data_size);
    }
  }
  return out;
}

struct TraceViews {
  const SlotStepTrace* trace = nullptr;
  std::vector<SeenSlot> views;  // at least one
  std::size_t index = 0;        // of its operation in the session; without one each has its own
  const DrivenOperation* operation = nullptr;  // null: nothing was sampled after it
  // What the variable led to in the sample before the operation, if it led there before the first
  // store as well.
  const MemoryBlock* before = nullptr;
};

const MemoryBlock* record_before(const ImageEvidence& e, const SlotStepTrace& trace,
                                 std::size_t index) {
  const auto& operations = e.session->operations;
  if (index == 0 || index > operations.size()) return nullptr;
  const ImageView* view = operations[index - 1].view;
  if (view == nullptr || view->image != e.image->key) return nullptr;
  for (const ThreadView& t : view->threads) {
    if (t.tid != trace.tid || !t.sample || *t.sample >= e.image->threads.size()) continue;
    const ThreadSample& s = e.image->threads[*t.sample];
    const bool same = s.slot == trace.slot && s.value == trace.views.front().value;
    if (same && s.record) return &*s.record;
  }
  return nullptr;
}

std::vector<TraceViews> stepped(const ImageEvidence& e) {
  std::vector<TraceViews> out;
  for (const SlotStepTrace& trace : e.image->slot_step_traces) {
    if (trace.views.empty()) continue;
    TraceViews& w = out.emplace_back();
    w.trace = &trace;
    w.views.reserve(trace.views.size());
    for (const SlotView& view : trace.views) w.views.push_back(seen(*e.image, view));
    if (e.session == nullptr) {
      w.index = out.size();
      continue;
    }
    w.index = operation_of(e, trace.views.front().order);
    if (w.index < e.session->operations.size()) w.operation = &e.session->operations[w.index];
    w.before = record_before(e, trace, w.index);
  }
  return out;
}

// The views of a step trace from one on up to another.
struct Run {
  std::size_t first = 0;
  std::size_t end = 0;  // after the last
};

// The runs in which the variable held one address.
std::vector<Run> holds(const TraceViews& w) {
  std::vector<Run> out;
  for (std::size_t i = 0; i < w.views.size(); ++i) {
    const bool goes_on = i > 0 && w.views[i].value() == w.views[i - 1].value();
    if (!goes_on) out.push_back({.first = i, .end = i});
    out.back().end = i + 1;
  }
  std::erase_if(out, [&](const Run& r) { return w.views[r.first].value() == 0; });
  return out;
}

// The runs in which a record was visible without a gap.
std::vector<Run> visible_runs(const TraceViews& w, const Run& hold) {
  std::vector<Run> out;
  for (std::size_t i = hold.first; i < hold.end; ++i) {
    if (!w.views[i].visible()) continue;
    if (out.empty() || out.back().end != i) out.push_back({.first = i, .end = i});
    out.back().end = i + 1;
  }
  return out;
}

struct Release {
  std::size_t at = 0;  // index of the first view after it
  bool unmapped = false;
};

// The memory that the variable leads to was given back while it leads there.
std::optional<Release> release_in(const TraceViews& w, const Run& hold) {
  const MemoryBlock* last = hold.first == 0 ? w.before : nullptr;
  for (std::size_t i = hold.first; i < hold.end; ++i) {
    const auto& record = w.views[i].view->record;
    if (!record) return std::nullopt;
    if (last != nullptr) {
      if (record->readable < record->wanted && record->readable < last->readable) {
        return Release{.at = i, .unmapped = true};
      }
      if (is_freed(*record) && !is_freed(*last)) return Release{.at = i, .unmapped = false};
    }
    last = &*record;
  }
  return std::nullopt;
}

bool is_prefix(std::span<const std::byte> a, std::span<const std::byte> of) {
  return a.size() <= of.size() && std::ranges::equal(a, of.first(a.size()));
}

bool same_ids(const SeenSlot& a, const SeenSlot& b) {
  return a.head.trace_id == b.head.trace_id && a.head.span_id == b.head.span_id &&
         a.head.trace_flags == b.head.trace_flags;
}

// What may change in a visible record: nothing, or entries come or go at its end.
bool keeps_to_tail(const SeenSlot& before, const SeenSlot& after) {
  return same_ids(before, after) &&
         (is_prefix(before.entries, after.entries) || is_prefix(after.entries, before.entries));
}

// Whether only its flags changed, apart from what may change in a visible record.
bool changes_flags_alone(const SeenSlot& before, const SeenSlot& after) {
  SeenSlot same = before;
  same.head.trace_flags = after.head.trace_flags;
  return before.head.trace_flags != after.head.trace_flags && keeps_to_tail(same, after);
}

std::string what_differs(const SeenSlot& a, const SeenSlot& b) {
  std::string out;
  const auto add = [&](bool differs, const std::string& name) {
    if (differs) out += (out.empty() ? "" : ", ") + name;
  };
  add(a.head.trace_id != b.head.trace_id, "the trace id");
  add(a.head.span_id != b.head.span_id, "the span id");
  add(a.head.trace_flags != b.head.trace_flags, "the flags");
  const auto at = std::ranges::mismatch(a.entries, b.entries).in1 - a.entries.begin();
  add(!std::ranges::equal(a.entries, b.entries), fmt::format("entries from byte {} on", at));
  return out;
}

// ---- what a finding shows

std::string slot_text(const SeenSlot& s) {
  if (s.reading == RecordReading::kNull) return "slot null";
  std::string out = "slot " + hex_text(s.value());
  if (s.reading == RecordReading::kUnknown) return out + ", no copy of the record was kept";
  if (s.reading == RecordReading::kUnreadable) {
    return out + fmt::format(", {} of {} bytes can be copied", s.view->record->readable,
                             abi::kRecordHeadBytes);
  }
  out += fmt::format(", trace {}, span {}, valid {}, flags {:02x}, {} bytes of entries",
                     hex(std::as_bytes(std::span(s.head.trace_id))),
                     hex(std::as_bytes(std::span(s.head.span_id))), s.head.valid,
                     s.head.trace_flags, s.head.attrs_data_size);
  if (s.reading == RecordReading::kCut) {
    out += fmt::format(", {} can be copied", s.view->record->readable - abi::kRecordHeadBytes);
  }
  if (s.entries.empty()) return out;
  out += " " + hex(s.entries.first(std::min(s.entries.size(), kShownEntryBytes)));
  return s.entries.size() > kShownEntryBytes ? out + "..." : out;
}

std::string slot_line(const Image& image, const SeenSlot& s) {
  std::string out =
      s.view->step == 0 ? "before: " : fmt::format("after {}: ", instructions_text(s.view->step));
  out += slot_text(s);
  if (s.view->location) out += "; " + location_text(image.locations[*s.view->location]);
  if (s.view->by_another) out += "; by another thread";
  return out;
}

// A failure that the instruction in front of view `index` committed; `also`: other views that
// it takes to see it.
Finding against(const ImageEvidence& e, const TraceViews& w, std::size_t index, std::string saw,
                std::string signature, const std::vector<std::size_t>& also = {}) {
  constexpr std::size_t kAround = 3;
  const Image& image = *e.image;
  Finding f = failed(std::move(saw), std::move(signature));
  f.level = to_string(Level::kSteps);
  const SlotView& view = *w.views[index].view;
  f.at = fmt::format("thread {}", w.trace->tid);
  if (view.location) f.at = location_text(image.locations[*view.location]) + ", " + f.at;
  name_code(image, view.location, f);
  if (w.operation != nullptr) f.evidence.push_back(request_line(*w.operation));
  std::set<std::size_t> shown(also.begin(), also.end());
  const std::size_t from = index < kAround ? 0 : index - kAround;
  for (std::size_t i = from; i < std::min(w.views.size(), index + kAround); ++i) shown.insert(i);
  for (const std::size_t i : shown) {
    f.evidence.push_back((i == index ? "> " : "  ") + slot_line(image, w.views[i]));
  }
  return f;
}

std::string after_steps(const SeenSlot& s) {
  return s.view->step == 0 ? "before the first store" : "after " + instructions_text(s.view->step);
}

// A sampler may decide late: open.tctx.late-flags.
Finding late_flags(const ImageEvidence& e, const TraceViews& w, const Run& run, std::size_t index) {
  Finding f = against(e, w, index,
                      fmt::format("the flags were stored {}, while the record was visible",
                                  after_steps(w.views[index])),
                      "flags stored while visible", {run.first, run.end - 1});
  f.outcome = Outcome::kWarn;
  return f;
}

// Nobody has asked for what a step trace shows: one attach or detach may follow the other in it.
bool is_undriven(const ImageEvidence& e) { return e.session == nullptr; }

// A step trace that was cut shows nothing of how its operation went on. Where nobody asked for one,
// it shows every change before the cut.
bool shows_changes(const ImageEvidence& e, const TraceViews& w) {
  return w.trace->whole() || is_undriven(e);
}

// Not applicable if nobody drives the program and it has no thread context.
std::optional<Finding> without_threads(const ImageEvidence& e) {
  return is_undriven(e) ? no_thread_context(e) : std::nullopt;
}

// A pass; if some step traces are missing, it says so.
Finding kept(const ImageEvidence& e, std::string saw) {
  Finding f = passed(std::move(saw));
  f.level = to_string(Level::kSteps);
  const auto& step_traces = e.image->slot_step_traces;
  const auto cut = std::ranges::find_if_not(step_traces, &SlotStepTrace::whole);
  if (cut != step_traces.end()) {
    f.evidence.push_back(
        fmt::format("of {} step traces {} ended early: {}", step_traces.size(),
                    step_traces.size() - std::ranges::count_if(step_traces, &SlotStepTrace::whole),
                    cut->ended_because));
  }
  if (!e.image->slot_steps_unseen.empty()) f.evidence.push_back(e.image->slot_steps_unseen);
  return f;
}

// `wanted`: what none of the step traces showed.
Finding not_stepped(const ImageEvidence& e, const std::string& wanted,
                    std::string remedy = kAdapter) {
  const Image& image = *e.image;
  std::string why = "no operation on a thread's context was single-stepped";
  if (is_undriven(e)) {
    remedy = "a program that does so while it is watched, or ctxconf run with an adapter";
    if (image.slot_step_traces.empty() && image.slot_steps_unseen.empty()) {
      return unobservable("changes of thread contexts were not watched",
                          "wrap --watch threads, or ctxconf run with an adapter");
    }
  }
  if (std::ranges::any_of(image.slot_step_traces, &SlotStepTrace::whole)) why = wanted;
  if (!image.slot_steps_unseen.empty()) {
    why += ": " + image.slot_steps_unseen;
    if (!is_undriven(e)) remedy = "a program and a host without this limit";
  }
  const auto cut = std::ranges::find_if_not(image.slot_step_traces, &SlotStepTrace::whole);
  if (cut != image.slot_step_traces.end())
    why += ": a step trace ended early: " + cut->ended_because;
  return unobservable(std::move(why), std::move(remedy));
}

using Operations =
    std::set<std::size_t>;  // indexes into the session: one may have many step traces

std::string operations_text(const ImageEvidence& e, const Operations& all) {
  return fmt::format("{} {}{}", all.size(), is_undriven(e) ? "step trace" : "operation",
                     all.size() == 1 ? "" : "s");
}

// ---- the variable

// Every byte is that of one or the other.
bool is_mixture(std::uint64_t value, std::uint64_t a, std::uint64_t b) {
  if (value == a || value == b) return false;
  for (unsigned shift = 0; shift < 64; shift += 8) {
    const auto byte = [&](std::uint64_t v) { return (v >> shift) & 0xffU; };
    if (byte(value) != byte(a) && byte(value) != byte(b)) return false;
  }
  return true;
}

// The last address of a trace that was cut may be half of the next one.
bool is_open(const TraceViews& w, const Run& hold) {
  return !w.trace->whole() && hold.end == w.views.size();
}

// It was seen that the variable led to a record, or how it went on from where it led.
bool is_shown(const TraceViews& w, const Run& hold) {
  const auto views = std::span(w.views).subspan(hold.first, hold.end - hold.first);
  return !is_open(w, hold) || views.front().value() == w.views.front().value() ||
         std::ranges::any_of(views, &SeenSlot::visible);
}

std::optional<Finding> unsound_slot(const ImageEvidence& e, const TraceViews& w, const Run& hold) {
  const std::uint64_t value = w.views[hold.first].value();
  const bool is_end = value == w.views.front().value() || is_open(w, hold) ||
                      (w.trace->whole() && value == w.views.back().value());
  // From there on it is for tctx.attach.record-outlives-slot.
  const auto release = release_in(w, hold);
  bool is_record = release.has_value();
  for (std::size_t i = hold.first; i < (release ? release->at : hold.end); ++i) {
    const SeenSlot& s = w.views[i];
    is_record = is_record || s.visible() || s.reading == RecordReading::kUnknown;
    // Other requirements report entries that are cut at rest.
    const bool unreadable =
        s.reading == RecordReading::kUnreadable || (s.reading == RecordReading::kCut && !is_end);
    if (!unreadable) continue;
    return against(e, w, i,
                   fmt::format("{} the variable leads to {}, where {} bytes can be copied",
                               after_steps(s), hex_text(value), s.view->record->readable),
                   "the variable leads to no record");
  }
  if (is_end || is_record) return std::nullopt;
  const std::uint64_t from = w.views[hold.first - 1].value();
  const std::uint64_t to = w.views[hold.end].value();
  if (!is_mixture(value, from, to)) return std::nullopt;
  return against(
      e, w, hold.first,
      fmt::format("{} the variable holds {}, which has bytes of {} and of {}",
                  after_steps(w.views[hold.first]), hex_text(value), hex_text(from), hex_text(to)),
      "parts of two addresses");
}

Finding slot_always_sound(const ImageEvidence& e) {
  if (auto na = without_threads(e)) return *na;
  Operations judged;
  std::uint64_t steps = 0;
  for (const TraceViews& w : stepped(e)) {
    const auto all = holds(w);
    for (const Run& hold : all) {
      if (auto f = unsound_slot(e, w, hold)) return *std::move(f);
    }
    const auto shown = [&](const Run& hold) { return is_shown(w, hold); };
    if (!shows_changes(e, w) || all.empty() || !std::ranges::all_of(all, shown)) continue;
    judged.insert(w.index);
    steps += w.trace->steps;
  }
  if (judged.empty()) {
    return not_stepped(e, "the variable was null at every instruction that was single-stepped",
                       "an adapter that declares thread.attach");
  }
  return kept(e, fmt::format("{}: after each of {} instructions the variable is null or leads to "
                             "memory that a record can be copied from",
                             operations_text(e, judged), steps));
}

bool is_exit(const TraceViews& w) {
  return w.operation != nullptr && w.operation->op == "thread.exit";
}

std::optional<Finding> released_under_slot(const ImageEvidence& e, const TraceViews& w) {
  for (const Run& hold : holds(w)) {
    const auto release = release_in(w, hold);
    if (!release) continue;
    const SeenSlot& s = w.views[release->at];
    const std::string where =
        fmt::format("{} the variable still leads to {}", after_steps(s), hex_text(s.value()));
    if (release->unmapped) {
      return against(e, w, release->at,
                     fmt::format("{}, where no more than {} bytes can be copied", where,
                                 s.view->record->readable),
                     "record unmapped under the variable", {hold.first});
    }
    return against(e, w, release->at,
                   fmt::format("{}, which was freed: it is filled with {:02x}", where, kFreedByte),
                   "record freed under the variable", {hold.first});
  }
  return std::nullopt;
}

Finding record_outlives_slot(const ImageEvidence& e) {
  Operations judged;
  for (const TraceViews& w : stepped(e)) {
    // tctx.exit.no-dangling speaks of these.
    if (is_exit(w)) continue;
    if (auto f = released_under_slot(e, w)) return *std::move(f);
    const SeenSlot& first = w.views.front();
    const bool left = w.views.back().value() != first.value();
    const bool detached = w.operation != nullptr && w.operation->op == "thread.detach";
    if (w.trace->whole() && first.visible() && (left || detached)) judged.insert(w.index);
  }
  if (judged.empty()) {
    return not_stepped(e, "no single-stepped operation released a record");
  }
  if (auto why = why_freed_is_unfilled(*e.image); !why.empty()) {
    return unobservable(std::move(why), kLinkedToGlibc);
  }
  return kept(e, fmt::format("{}: the record was neither unmapped nor overwritten by glibc's "
                             "free() as long as the variable led to it",
                             operations_text(e, judged)));
}

// ---- the record

// Each change of the ids next to that of view `i` is of the span id as well: none is a part of it.
bool is_among_whole_switches(const TraceViews& w, std::size_t i) {
  const auto is_part = [&](std::size_t k) {
    return w.views[k - 1].head.span_id == w.views[k].head.span_id;
  };
  const auto changes = [&](std::size_t k) { return !same_ids(w.views[k - 1], w.views[k]); };
  std::size_t earlier = i - 1;
  while (earlier > 0 && !changes(earlier)) --earlier;
  std::size_t later = i + 1;
  while (later < w.views.size() && !changes(later)) ++later;
  return (earlier == 0 || !is_part(earlier)) && (later == w.views.size() || !is_part(later));
}

// A switch to all that it shows in the end, in one instruction: a stopped thread has the one or the
// other. Spans of one trace differ in the span id alone; then nothing else of the ids may change
// before or after. A program that nobody drives may switch several times in a step trace.
bool is_whole_switch(const ImageEvidence& e, const TraceViews& w, const Run& run, std::size_t i) {
  const SeenSlot& before = w.views[i - 1];
  const SeenSlot& after = w.views[i];
  const SeenSlot& last = w.views[run.end - 1];
  if (is_undriven(e)) {
    return before.head.span_id != after.head.span_id &&
           std::ranges::equal(before.entries, after.entries) && is_among_whole_switches(w, i);
  }
  if (before.head.span_id == after.head.span_id || !same_ids(after, last) ||
      !is_prefix(after.entries, last.entries)) {
    return false;
  }
  if (before.head.trace_id != after.head.trace_id) return true;
  const SeenSlot& first = w.views.front();
  return first.visible() && same_ids(before, first) && same_ids(after, w.views.back());
}

// What may become of a visible record without being hidden. `late`: a sampler has decided; that
// ends an operation, but no step trace of a program that nobody drives.
bool may_follow(const ImageEvidence& e, const TraceViews& w, const Run& run, std::size_t i,
                bool& late) {
  const SeenSlot& before = w.views[i - 1];
  const SeenSlot& now = w.views[i];
  if (keeps_to_tail(before, now)) return true;
  late = (is_undriven(e) || run.end == w.views.size()) && changes_flags_alone(before, now);
  return late;
}

// The valid byte hides the record, or shows it, at this view, and the variable stays where it is.
bool is_hidden_at(const TraceViews& w, const Run& hold, std::size_t view) {
  return view >= hold.first && view < hold.end && w.views[view].reading == RecordReading::kHidden;
}

// The finding for a requirement about the valid byte as a switch, if no step trace shows that.
Finding no_valid_switch(const ImageEvidence& e, const char* what) {
  const auto all = stepped(e);
  const bool switches_pointer = std::ranges::any_of(all, [&](const TraceViews& w) {
    const auto all_holds = holds(w);  // one that ends leads elsewhere
    const auto ends = [&](const Run& hold) { return hold.end < w.views.size(); };
    return shows_changes(e, w) && std::ranges::any_of(all_holds, ends);
  });
  if (switches_pointer) {
    return not_applicable(NaReason::kCapability,
                          "the record was not hidden by its valid byte: this writer switches the "
                          "pointer");
  }
  return not_stepped(e, fmt::format("no change that was single-stepped {}", what));
}

const Record* record_at(const ImageEvidence& e, const DrivenOperation& operation,
                        const SlotStepTrace& like) {
  if (operation.view == nullptr || operation.view->image != e.image->key) return nullptr;
  const Slot slot = slot_at(e, *operation.view, like.tid);
  if (slot.state != SlotState::kRecord || slot.record->sample->slot != like.slot) return nullptr;
  const std::size_t whole = abi::kRecordHeadBytes + slot.record->head.attrs_data_size;
  return slot.record->bytes.size() < whole ? nullptr : slot.record;
}

// Values that an append overwrote without a step trace: of the variable and byte 24, which hide the
// record, each store begins one.
std::optional<Finding> overwritten_unseen(const ImageEvidence& e,
                                          const std::vector<TraceViews>& all) {
  if (all.empty() || is_undriven(e)) return std::nullopt;
  const auto& operations = e.session->operations;
  if (!e.image->slot_steps_unseen.empty()) return std::nullopt;
  for (const DrivenSample& sample : driven_samples(e)) {
    const std::size_t i = sample.operation;
    const TraceViews& first = all.front();
    const bool appends = sample.driven->ok && sample.driven->op == "thread.append" &&
                         sample.driven->of_thread(sample.thread.name);
    if (!appends || sample.thread.tid != first.trace->tid || i <= first.index) continue;
    // The thread that was asked last is the one that is watched.
    if (!operations[i - 1].of_thread(sample.thread.name)) continue;
    const auto is_in_doubt = [&](const TraceViews& w) {
      return w.index == i || (w.index < i && !w.trace->whole());
    };
    if (std::ranges::any_of(all, is_in_doubt)) continue;
    const Record* before = record_at(e, operations[i - 1], *first.trace);
    const Record* after = record_at(e, operations[i], *first.trace);
    if (before == nullptr || after == nullptr || before->head != after->head) continue;
    if (before->sample->value != after->sample->value) continue;
    const auto old = before->bytes.subspan(abi::kRecordHeadBytes, before->head.attrs_data_size);
    const auto now = after->bytes.subspan(abi::kRecordHeadBytes, old.size());
    if (std::ranges::equal(old, now)) continue;
    const auto at = std::ranges::mismatch(old, now).in1 - old.begin();
    Finding f = failed(
        fmt::format("entries from byte {} on changed while the record was visible: the operation "
                    "stored neither to the variable nor to byte 24",
                    at),
        "entries of a visible record changed");
    f.level = to_string(Level::kSteps);
    f.at = fmt::format("thread {}", first.trace->tid);
    f.evidence = {request_line(*sample.driven), "  before: entries " + hex(old),
                  "> after: entries " + hex(now)};
    return f;
  }
  return std::nullopt;
}

// A visible record changed, by no store of its thread: no sampler of the span that decides late,
// and no switch. To grow and to shrink it is for tctx.attach.same-thread-writes.
std::optional<Finding> changed_by_another(const ImageEvidence& e, const TraceViews& w) {
  if (is_undriven(e)) return std::nullopt;
  for (const Run& hold : holds(w)) {
    if (release_in(w, hold)) continue;
    for (std::size_t i = hold.first + 1; i < hold.end; ++i) {
      const SeenSlot& before = w.views[i - 1];
      const SeenSlot& now = w.views[i];
      if (!now.view->by_another || !before.visible() || !now.visible()) continue;
      if (keeps_to_tail(before, now)) continue;
      return against(
          e, w, i,
          fmt::format("{} changed {}, while the record was visible, and its own thread did "
                      "not store it: another thread did",
                      what_differs(before, now), after_steps(now)),
          "another thread changed a visible record");
    }
  }
  return std::nullopt;
}

// `by_valid_byte`: of records that are hidden by it alone.
Finding unchanged_until_hidden(const ImageEvidence& e, bool by_valid_byte) {
  Operations judged;
  std::optional<Finding> late;
  const auto all = stepped(e);
  for (const TraceViews& w : all) {
    if (by_valid_byte) break;
    if (auto f = changed_by_another(e, w)) return *std::move(f);
  }
  for (const TraceViews& w : all) {
    if (!w.views.front().visible()) continue;
    const Run hold = holds(w).front();
    if (release_in(w, hold)) continue;
    const Run run = visible_runs(w, hold).front();
    if (by_valid_byte && !is_hidden_at(w, hold, run.end)) continue;
    bool changed = run.end < w.views.size();
    for (std::size_t i = run.first + 1; i < run.end; ++i) {
      const SeenSlot& before = w.views[i - 1];
      const SeenSlot& now = w.views[i];
      // If a trace was cut, its last change of ids may be incomplete.
      const bool may_be_a_part =
          !w.trace->whole() && !same_ids(before, now) && same_ids(now, w.views[run.end - 1]);
      changed = changed || (before.head != now.head && !may_be_a_part);
      bool is_late = false;
      if (may_follow(e, w, run, i, is_late) || is_whole_switch(e, w, run, i)) {
        if (is_late && !late) late = late_flags(e, w, run, i);
        continue;
      }
      if (by_valid_byte) {
        return against(e, w, i,
                       fmt::format("{} changed {}, before the valid byte was cleared",
                                   what_differs(before, now), after_steps(now)),
                       "changed before the valid byte was cleared", {run.first, run.end});
      }
      return against(e, w, i,
                     fmt::format("{} changed while the record was visible: {}",
                                 what_differs(before, now), after_steps(now)),
                     same_ids(before, now) ? "entries of a visible record changed"
                                           : "ids of a visible record changed",
                     {run.first, run.end - 1});
    }
    if (shows_changes(e, w) && changed) judged.insert(w.index);
  }
  if (!by_valid_byte) {
    if (auto f = overwritten_unseen(e, all)) return *std::move(f);
  }
  if (late) return *std::move(late);
  if (judged.empty()) {
    if (by_valid_byte) return no_valid_switch(e, "hid a record by its valid byte");
    return not_stepped(e,
                       "no operation that was single-stepped changed a context that was attached");
  }
  if (by_valid_byte) {
    return kept(e, fmt::format("{}: the valid byte was cleared first", operations_text(e, judged)));
  }
  return kept(e, fmt::format("{}: while the record was visible, only entries at its end changed",
                             operations_text(e, judged)));
}

Finding no_change_while_visible(const ImageEvidence& e) {
  if (auto na = without_threads(e)) return *na;
  return unchanged_until_hidden(e, /*by_valid_byte=*/false);
}

// What another thread did to a visible record says nothing of how its own attached it.
bool is_for_another_requirement(const ImageEvidence& e, const TraceViews& w, std::size_t i) {
  return !is_undriven(e) && w.views[i].view->by_another;
}

// The first view of a run that shows that the record was not complete in the first one.
std::optional<std::size_t> incomplete_in(const ImageEvidence& e, const TraceViews& w,
                                         const Run& run) {
  // A copy of the record that was visible just before may continue to change as the original could.
  const SeenSlot& old = w.views[run.first - 1];
  const bool is_copy = old.visible() && keeps_to_tail(old, w.views[run.first]);
  const auto& first = w.views[run.first].entries;
  const auto& last = w.views[run.end - 1].entries;
  // A record that begins inside an entry was not attached and then appended to.
  const bool is_cut = !abi::walks_exactly(first) && abi::walks_exactly(last);
  const bool is_begun = is_prefix(first, last) && !is_cut;
  for (std::size_t i = run.first + 1; i < run.end; ++i) {
    const auto& now = w.views[i].entries;
    if (is_for_another_requirement(e, w, i)) continue;
    bool is_late = false;
    const bool next = is_undriven(e) && is_whole_switch(e, w, run, i);
    if (!next && !may_follow(e, w, run, i, is_late)) return i;
    // It may be shrunk right after it was attached.
    if (is_undriven(e)) continue;
    if (!is_copy && !is_begun && (is_cut ? now.size() != first.size() : !is_prefix(first, now)))
      return i;
  }
  return std::nullopt;
}

// `by_valid_byte`: of records that are shown by it alone.
Finding complete_when_shown(const ImageEvidence& e, bool by_valid_byte) {
  std::size_t judged = 0;
  std::optional<Finding> late;
  for (const TraceViews& w : stepped(e)) {
    for (const Run& hold : holds(w)) {
      if (release_in(w, hold)) continue;
      for (const Run& run : visible_runs(w, hold)) {
        if (run.first == 0) continue;
        if (by_valid_byte && !is_hidden_at(w, hold, run.first - 1)) continue;
        if (const auto at = incomplete_in(e, w, run)) {
          const SeenSlot& now = w.views[*at];
          return against(e, w, *at,
                         fmt::format("the record was visible {}, and {} changed {}",
                                     after_steps(w.views[run.first]),
                                     what_differs(w.views[*at - 1], now), after_steps(now)),
                         by_valid_byte ? "valid before everything else was final"
                                       : "visible before it was complete",
                         {run.first, run.end - 1});
        }
        for (std::size_t i = run.first + 1; i < run.end && !late; ++i) {
          if (is_for_another_requirement(e, w, i)) continue;
          if (changes_flags_alone(w.views[i - 1], w.views[i])) late = late_flags(e, w, run, i);
        }
        // A record that was shown just before the cut may have been changed just after it.
        if (!is_open(w, run) && shows_changes(e, w)) ++judged;
      }
    }
  }
  if (late) return *std::move(late);
  if (judged == 0) {
    if (by_valid_byte) return no_valid_switch(e, "showed a record by its valid byte");
    return not_stepped(e, "no operation that was single-stepped showed a record",
                       "an adapter that declares thread.attach");
  }
  return kept(e, fmt::format("{}, complete when visible",
                             judged == 1 ? "1 record" : fmt::format("{} records", judged)));
}

Finding complete_before_visible(const ImageEvidence& e) {
  if (auto na = without_threads(e)) return *na;
  return complete_when_shown(e, /*by_valid_byte=*/false);
}

// The context must show on its thread: it has ids and is sampled.
bool must_show(const std::vector<DrivenSample>& samples, const TraceViews& w) {
  return std::ranges::any_of(samples, [&](const DrivenSample& sample) {
    const ExpectedContext* c = sample.context();
    return sample.operation == w.index && sample.thread.tid == w.trace->tid && c != nullptr &&
           c->attached_by == w.index && c->has_ids() && (c->flags & kSampled) != 0;
  });
}

Finding valid_before_visible(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  Operations by_pointer;
  Operations by_valid;
  for (const TraceViews& w : stepped(e)) {
    if (w.operation == nullptr || w.operation->op != "thread.attach" || !w.operation->ok) continue;
    // What it passes through on its way is not a record of this context.
    const auto all = holds(w);
    if (!w.trace->whole() || all.empty() || all.back().end != w.views.size()) continue;
    const Run& hold = all.back();
    const auto is_valid = [](const SeenSlot& s) { return s.head.valid == abi::kRecordValid; };
    const auto views = std::span(w.views).subspan(hold.first, hold.end - hold.first);
    const bool hidden = std::ranges::all_of(
        views, [](const SeenSlot& s) { return s.reading == RecordReading::kHidden; });
    if (hold.first > 0 && is_valid(views.front())) {
      by_pointer.insert(w.index);
    } else if (is_valid(views.back()) && !std::ranges::all_of(views, is_valid)) {
      by_valid.insert(w.index);
    }
    if (hold.first == 0 || !hidden || release_in(w, hold) || !must_show(samples, w)) continue;
    // The byte may have been set long after that, in another step trace.
    if (w.operation->view != nullptr &&
        slot_at(e, *w.operation->view, w.trace->tid).state == SlotState::kRecord) {
      continue;
    }
    return against(e, w, hold.first,
                   fmt::format("{} the variable leads to a record with byte 24 at {}, and it stays "
                               "so",
                               after_steps(views.front()), views.front().head.valid),
                   "switched to a record that is not valid", {hold.end - 1});
  }
  if (!by_pointer.empty()) {
    return kept(e, fmt::format("{}: byte 24 is 1 when the variable leads to the record",
                               operations_text(e, by_pointer)));
  }
  if (!by_valid.empty()) {
    return not_applicable(NaReason::kCapability,
                          "no pointer was switched to a valid record: this writer shows it by its "
                          "valid byte");
  }
  return not_stepped(e, "no attach that was single-stepped switched the pointer",
                     "an adapter that declares thread.attach");
}

// ---- the key map

// Lengths of the key maps that were seen, by the timestamp of the context.
class KeyMaps {
 public:
  explicit KeyMaps(const ImageEvidence& e) {
    for (const auto& list : e.contexts) {
      for (const Context& c : list) {
        if (!c.candidate->named || !c.usable() || c.payload == nullptr) continue;
        if (c.payload->problem != PayloadProblem::kNone) continue;
        const auto* map = threadlocal_entry(c, abi::kAttributeKeyMapKey);
        if (map != nullptr && map->kind != ValueKind::kArray) continue;
        auto& length = lengths_[c.header.monotonic_published_at_ns];
        length = std::max<std::size_t>(length, map == nullptr ? 0 : map->element_count);
      }
    }
  }
  // Nothing: none was seen with this timestamp.
  std::optional<std::size_t> length_at(std::optional<std::uint64_t> timestamp) const {
    const auto it = timestamp ? lengths_.find(*timestamp) : lengths_.end();
    return it == lengths_.end() ? std::nullopt : std::optional(it->second);
  }
  std::size_t longest_after(std::uint64_t timestamp) const {
    std::size_t out = 0;
    for (auto it = lengths_.upper_bound(timestamp); it != lengths_.end(); ++it) {
      out = std::max(out, it->second);
    }
    return out;
  }

 private:
  std::map<std::uint64_t, std::size_t> lengths_;
};

// How long it took until the map had the index that view `from` uses.
std::string caught_up(const TraceViews& w, const KeyMaps& maps, std::size_t from,
                      std::size_t index) {
  for (std::size_t i = from + 1; i < w.views.size(); ++i) {
    const auto length = maps.length_at(w.views[i].view->published);
    if (length && *length > index) {
      return fmt::format("{} later it had {}",
                         instructions_text(w.views[i].view->step - w.views[from].view->step),
                         *length);
    }
  }
  return "a later key map has the name; it is not known when it was published";
}

// Those that a reader of the record looks up. What is not a list of entries has none.
std::set<std::size_t> indexes_of(const SeenSlot& s) {
  std::set<std::size_t> out;
  if (!s.visible() || !abi::walks_exactly(s.entries)) return out;
  abi::AttributeCursor cursor(s.entries);
  while (const auto entry = cursor.next()) out.insert(entry->key);
  return out;
}

Finding before_use(const ImageEvidence& e) {
  const KeyMaps maps(e);
  std::size_t judged = 0;
  for (const TraceViews& w : stepped(e)) {
    std::optional<std::vector<std::string>> known;
    if (w.operation != nullptr && w.index > 0) {
      known = key_map_at(e, e.session->operations[w.index - 1]);
    }
    // These indexes were in use before the trace; when their use began was not seen.
    std::set<std::size_t> used;
    const std::set<std::size_t> old = indexes_of(w.views.front());
    for (std::size_t i = 1; i < w.views.size(); ++i) {
      const SeenSlot& s = w.views[i];
      const auto length = maps.length_at(s.view->published);
      for (const std::size_t index : indexes_of(s)) {
        const bool is_first = used.insert(index).second;
        if (!length || old.contains(index)) continue;
        if (index < *length) {
          const bool is_new = index >= (known ? known->size() : 0);
          if (is_first && is_new && w.trace->whole()) ++judged;
          continue;
        }
        if (maps.longest_after(s.view->published.value_or(0)) <= index) continue;
        return against(e, w, i,
                       fmt::format("{} a visible record uses index {}, and the key map that is "
                                   "published has {} names; {}",
                                   after_steps(s), index, *length, caught_up(w, maps, i, index)),
                       "index used before its name is published");
      }
    }
  }
  if (judged == 0) {
    return not_stepped(e, "no record with a new name was single-stepped",
                       "an SDK that publishes the names of attributes when they are first used");
  }
  return kept(e, fmt::format("{} new {}, published before a visible record used {}", judged,
                             judged == 1 ? "index" : "indexes", judged == 1 ? "it" : "them"));
}

constexpr auto kSlotStepRules = std::to_array<RequirementRule>({
    {"tctx.attach.complete-before-visible", complete_before_visible, AskedOf::kTestee,
     RestsOn::kEvents, UnderFaults::kJudged},
    {"tctx.attach.valid-before-visible", valid_before_visible, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.attach.no-change-while-visible", no_change_while_visible, AskedOf::kTestee,
     RestsOn::kEvents, UnderFaults::kJudged},
    {"tctx.attach.slot-always-sound", slot_always_sound, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.attach.record-outlives-slot", record_outlives_slot, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
    {"tctx.keymap.before-use", before_use, AskedOf::kTestee, RestsOn::kEvents,
     UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> slot_step_rules() { return kSlotStepRules; }

Finding valid_cleared_first_by_steps(const ImageEvidence& e) {
  if (auto na = without_threads(e)) return *na;
  return unchanged_until_hidden(e, /*by_valid_byte=*/true);
}
Finding valid_set_last_by_steps(const ImageEvidence& e) {
  if (auto na = without_threads(e)) return *na;
  return complete_when_shown(e, /*by_valid_byte=*/true);
}

std::optional<Finding> released_at_exit(const ImageEvidence& e) {
  for (const TraceViews& w : stepped(e)) {
    if (!is_exit(w)) continue;
    if (auto f = released_under_slot(e, w)) return f;
  }
  return std::nullopt;
}

}  // namespace ctxconf::conformance
