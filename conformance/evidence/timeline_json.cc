#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "conformance/evidence/session_json.h"
#include "conformance/evidence/timeline.h"
#include "conformance/evidence/trace_ids.h"
#include "conformance/text/json_limits.h"
#include "conformance/text/json_members.h"
#include "conformance/text/words.h"
#include "sys/c_library.h"

namespace ctxconf::conformance {

namespace {

using OrderedJson = JsonReader::Json;

using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;

constexpr std::string_view kFormat = "ctxconf-timeline";
constexpr std::size_t kHeader = 32;

constexpr int kVersionOfOldNames = 12;
// The names that it has for them.
constexpr auto kRenamed = std::to_array<RenamedMember>({
    {"after", "behind"},
    {"location", "place"},
    {"locations", "places"},
    {"requirements_dropped", "rows_dropped"},
    {"slot_step_traces", "slot_walks"},
    {"slot_steps_unseen", "slot_walks_unseen"},
    {"stable", "settled"},
    {"step_traces", "walks"},
    {"steps_unseen", "walks_unseen"},
});

Moment moment_of(const JsonReader& in, const char* name, const std::string& word) {
  const auto known = moment_from(word);
  if (!known) in.complain(name, "is not a known moment");
  return known.value_or(Moment::kPeriodic);
}

void read_moment(const JsonReader& in, const char* name, Moment& m) {
  m = moment_of(in, name, in.string(name));
}

OrderedJson words_of(const std::vector<Moment>& moments) {
  OrderedJson out = OrderedJson::array();
  for (const Moment m : moments) out.push_back(to_string(m));
  return out;
}

void read_moments(const JsonReader& in, const char* name, std::vector<Moment>& moments) {
  for (const auto& m : in.strings(name)) moments.push_back(moment_of(in, name, m));
}

void read_permissions(const JsonReader& in, const char* name, MapEntry& e) {
  const std::string p = in.string(name);
  if (p.size() != 4) {
    in.complain(name, "is not like rw-p");
    return;
  }
  e.readable = p[0] == 'r';
  e.writable = p[1] == 'w';
  e.executable = p[2] == 'x';
  e.shared = p[3] == 's';
}

OrderedJson device_of(const MapEntry& e) { return {e.dev_major, e.dev_minor}; }

void read_device(const JsonReader& in, const char* name, MapEntry& e) {
  std::vector<std::uint32_t> device;
  in.each(name, [&](const OrderedJson& v, const std::string&) {
    if (v.is_number_unsigned() && std::in_range<std::uint32_t>(v.get<std::uint64_t>())) {
      device.push_back(v.get<std::uint32_t>());
    }
  });
  if (device.size() != 2) {
    in.complain(name, "is not two numbers");
    return;
  }
  e.dev_major = device[0];
  e.dev_minor = device[1];
}

using VmFlags = std::vector<std::optional<std::string>>;  // of a Candidate

OrderedJson flags_of(const VmFlags& flags) {
  OrderedJson out = OrderedJson::array();
  for (const auto& f : flags) out.push_back(f ? text(*f) : OrderedJson(nullptr));
  return out;
}

void read_flags(const JsonReader& in, const char* name, VmFlags& flags) {
  in.each(name, [&](const OrderedJson& v, const std::string&) {
    flags.push_back(v.is_null() ? std::nullopt : std::optional(in.string_of(v, name)));
  });
}

using Arguments = std::array<std::uint64_t, 6>;  // of a SystemCall

OrderedJson arguments_of(const Arguments& args) {
  OrderedJson out = OrderedJson::array();
  for (const auto arg : args) out.push_back(hex(arg));
  return out;
}

void read_arguments(const JsonReader& in, const char* name, Arguments& args) {
  const auto texts = in.strings(name);
  if (texts.size() != args.size()) {
    in.complain(name, "are not six");
    return;
  }
  for (std::size_t i = 0; i < args.size(); ++i) args[i] = in.address_of(texts[i], name);
}

constexpr std::array<Word<WatchBegin>, 5> kWatchBegins = {{
    {WatchBegin::kUnknown, ""},
    {WatchBegin::kMemfd, "mmap"},
    {WatchBegin::kAnonymous, "madvise"},
    {WatchBegin::kNamed, "prctl"},
    {WatchBegin::kMoved, "mremap"},
}};

std::string_view watch_begin_word(WatchBegin begin) { return word_of(kWatchBegins, begin); }

void read_watch_begin(const JsonReader& in, const char* name, WatchBegin& begin) {
  begin = value_of(kWatchBegins, in.string(name)).value_or(WatchBegin::kUnknown);
}

constexpr std::array<Word<WatchEnd>, 8> kWatchEnds = {{
    {WatchEnd::kWithImage, ""},
    {WatchEnd::kUnmapped, "unmapped"},
    {WatchEnd::kMoved, "moved"},
    {WatchEnd::kPublished, "published"},
    {WatchEnd::kPublishedElsewhere, "published elsewhere"},
    {WatchEnd::kTooManyStores, "too many stores"},
    {WatchEnd::kGivenUp, "given up"},
    {WatchEnd::kOther, "other"},
}};

std::string_view watch_end_word(WatchEnd end) { return word_of(kWatchEnds, end); }

void read_watch_end(const JsonReader& in, const char* name, WatchEnd& end) {
  end = value_of(kWatchEnds, in.string(name)).value_or(WatchEnd::kOther);
}

// Recordings of earlier versions have only the text.
void read_missing_over(const JsonReader& in, auto& trace) {
  if (in.absent_or_null("over")) trace.over = trace.ended_because == "over";
}

void read_missing_no_such_call(const JsonReader& in, FaultCell& cell) {
  if (in.absent_or_null("no_such_call")) {
    cell.no_such_call = cell.left_out == "no such call was seen";
  }
}

std::string_view trace_began(bool from_gate) { return from_gate ? "gate" : "store"; }

void read_trace_began(const JsonReader& in, const char* name, bool& from_gate) {
  const std::string from = in.string(name);
  from_gate = from == trace_began(true);
  if (!from_gate && from != trace_began(false)) {
    in.complain(name, "is neither \"gate\" nor \"store\"");
  }
}

void read_kind(const JsonReader& in, const char* name, sys::TlsRelocationKind& kind) {
  using enum sys::TlsRelocationKind;
  const std::string word = in.string(name);
  for (const auto k : {kTlsdesc, kModule, kOffset, kThreadPointerOffset}) {
    if (sys::to_string(k) != word) continue;
    kind = k;
    return;
  }
  in.complain(name, "is not a known relocation");
}

using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

void read_shared_bytes(const JsonReader& in, const char* name, SharedBytes& bytes) {
  bytes = std::make_shared<const std::vector<std::byte>>(in.bytes(name));
}

void read_mode(const JsonReader& in, const char* name, Mode& mode) {
  const std::string word = in.string(name);
  for (const Mode m : {Mode::kAttach, Mode::kWrap, Mode::kElf, Mode::kRun, Mode::kReader}) {
    if (to_string(m) != word) continue;
    mode = m;
    return;
  }
  in.complain(name, "is not one of run, wrap, attach, elf and reader");
}

OrderedJson milliseconds_of(double seconds) {
  return static_cast<std::uint64_t>(std::llround(seconds * 1000));
}

void read_milliseconds(const JsonReader& in, const char* name, double& seconds) {
  seconds = static_cast<double>(in.number<std::uint32_t>(name)) / 1000;
}

void read_reading(const JsonReader& in, const char* name, Reading& reading) {
  const auto known = reading_from(in.string(name));
  if (!known) in.complain(name, "is neither reader-visible nor strict");
  reading = known.value_or(Reading());
}

OrderedJson json_of_skipped(const std::vector<SkippedCheck>& checks) {
  OrderedJson out = OrderedJson::array();
  for (const auto& c : checks) out.push_back(json_of(c));
  return out;
}

void read_skipped(const JsonReader& in, const char* name, std::vector<SkippedCheck>& checks) {
  checks = in.list<SkippedCheck>(name, skipped_check_from);
}

// Used for members that are written as the word for them.
constexpr auto kAsWord = [](const auto& value) { return to_string(value); };

template <class List, class Member>
bool is_in_order(const List& list, Member order) {
  return std::ranges::is_sorted(list, std::ranges::less_equal{}, order);
}

}  // namespace

// ---- one list of members for each type

void members(auto& m, Is<MapEntry> auto& e) {
  std::uint64_t begin = e.range.begin().raw();
  std::uint64_t end = e.range.end().raw();
  m.address("begin", begin);
  m.address("end", end);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) {
    const auto range = RemoteRange::from_bounds(RemoteAddr(begin), RemoteAddr(end));
    m.check("end", "lies before begin", [&] { return range.has_value(); });
    e.range = range.value_or(RemoteRange());
  }
  m.as("permissions", e, sys::permissions, read_permissions);
  m.address("offset", e.offset);
  m.as("device", e, device_of, read_device);
  m.number("inode", e.inode);
  m.text("name", e.name);
}

void members(auto& m, Is<MemoryBlock> auto& b) {
  std::uint64_t at = b.at.raw();
  m.address("at", at);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) b.at = RemoteAddr(at);
  m.number("wanted", b.wanted);
  m.number("readable", b.readable);
  m.address("hash", b.hash);
  m.bytes("bytes", b.bytes);
  m.check("readable", "is more than was wanted", [&] { return b.readable <= b.wanted; });
  m.check("bytes", "are more than were readable", [&] { return b.bytes.size() <= b.readable; });
}

void members(auto& m, Is<Candidate> auto& c) {
  m.list("entries", c.entries);
  m.check("entries", "is empty", [&] { return !c.entries.empty(); });
  m.as("vm_flags", c.vm_flags, flags_of, read_flags);
  m.flag("named", c.named);
  m.flag("stable", c.stable);
  m.list("memory", c.memory);
  m.list("neighbours", c.neighbours);
  if (m.has("found_at", true)) m.number_or_null("found_at", c.found_at);
}

void members(auto& m, Is<DescriptorLink> auto& d) {
  m.number("fd", d.fd);
  m.text("link", d.link);
}

void members(auto& m, Is<Snapshot> auto& s) {
  m.as("moment", s.moment, kAsWord, read_moment);
  m.number("first_seen_ns", s.first_seen_ns);
  m.number("last_seen_ns", s.last_seen_ns, s.first_seen_ns);
  m.number("times", s.times, 1);
  m.as("moments", s.moments, words_of, read_moments);
  m.list("candidates", s.candidates);
  m.list("descriptors", s.descriptors);
}

void header_bytes(auto& m, const char* name, auto& bytes) {
  m.bytes(name, bytes);
  m.check(name, "is more than a header", [&] { return bytes.size() <= kHeader; });
}

void members(auto& m, Is<SystemCall> auto& c) {
  m.number("tid", c.tid, 1);
  m.text("name", c.name);
  m.as("args", c.args, arguments_of, read_arguments);
  m.number_or_null("result", c.result);
  m.flag("injected", c.injected);
  m.number("entered_ns", c.entered_ns);
  m.number("entered_order", c.entered_order);
  m.number("left_order", c.left_order);
  m.text("text", c.text);
  m.text("file", c.file);
  header_bytes(m, "before", c.before);
  header_bytes(m, "after", c.after);
  m.number_or_null("snapshot", c.snapshot);
  m.number_or_null("clock_ns", c.clock_ns);
}

void members(auto& m, Is<ForkProbe> auto& f) {
  m.number("tid", f.tid, 1);
  m.number("order", f.order);
  m.text("at", f.at);
  m.list("candidates", f.candidates);
}

void frame_members(auto& m, auto& p) {
  m.address("address", p.address);
  m.text("module", p.module);
  m.address("offset", p.offset);
  m.text("symbol", p.symbol);
  m.number("symbol_offset", p.symbol_offset);
  m.text("source_file", p.source_file);
  m.number("source_line", p.source_line);
}

void members(auto& m, Is<InstructionLocation> auto& p) {
  frame_members(m, p);
  // Callers have no callers of their own.
  if (m.has("callers", !p.callers.empty())) {
    m.list("callers", p.callers, [](auto& of_one, auto& one) { frame_members(of_one, one); });
  }
}

void members(auto& m, Is<Store> auto& s) {
  m.number("tid", s.tid, 0);
  m.number("order", s.order);
  m.number("at_ns", s.at_ns);
  m.address("header", s.header);
  m.number("words", s.words, 0, 15);
  header_bytes(m, "before", s.before);
  header_bytes(m, "after", s.after);
  m.number_or_null("location", s.location);
  m.object_if_there("payload", s.payload);
  m.object_if_there("prepared", s.prepared);
  if (m.has("threads", s.threads.has_value())) m.number_or_null("threads", s.threads);
  if (m.has("rested", s.rested)) m.flag("rested", s.rested);
  if (m.has("call", !s.call.empty())) m.text("call", s.call);
}

void members(auto& m, Is<Watch> auto& w) {
  m.address("header", w.header);
  m.number("armed_order", w.armed_order);
  m.number("armed_ns", w.armed_ns);
  m.as("because", w.begin, watch_begin_word, read_watch_begin);
  header_bytes(m, "found", w.found);
  m.number_or_null("ended_order", w.ended_order);
  m.check("ended_order", "lies before armed_order",
          [&] { return !w.ended_order || *w.ended_order >= w.armed_order; });
  m.as("ended_because", w.end, watch_end_word, read_watch_end);
  m.numbers("unwatched", w.unwatched);
}

void members(auto& m, Is<ReaderView> auto& v) {
  m.number("step", v.step);
  m.number("order", v.order);
  header_bytes(m, "header", v.header);
  m.number_or_null("location", v.location);
  m.object_if_there("payload", v.payload);
}

void members(auto& m, Is<Barrier> auto& b) {
  m.number("step", b.step);
  m.text("text", b.text);
  m.number_or_null("location", b.location);
}

void trace_end(auto& m, auto& w) {
  m.text("ended_because", w.ended_because);
  if (m.has("over", true)) m.flag("over", w.over);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) read_missing_over(m.in(), w);
}

void trace_views(auto& m, auto& w) {
  m.list("views", w.views);
  m.check("views", "are more than a step trace can have",
          [&] { return w.views.size() <= kMaxViews; });
  m.check("views", "are not in their order",
          [&] { return is_in_order(w.views, [](const auto& v) { return v.order; }); });
}

void members(auto& m, Is<StepTrace> auto& w) {
  m.number("tid", w.tid, 1);
  m.address("header", w.header);
  m.as("from", w.from_gate, trace_began, read_trace_began);
  m.number("began_order", w.began_order);
  m.number("steps", w.steps);
  trace_end(m, w);
  trace_views(m, w);
  m.list("barriers", w.barriers);
  m.check("barriers", "are more than a step trace can have",
          [&] { return w.barriers.size() <= kMaxBarriers; });
}

void members(auto& m, Is<SlotView> auto& v) {
  m.number("step", v.step);
  m.number("order", v.order);
  m.address("value", v.value);
  m.number_or_null("published", v.published);
  m.number_or_null("location", v.location);
  m.object_if_there("record", v.record);
  if (m.has("by_another", v.by_another)) m.flag("by_another", v.by_another);
}

void members(auto& m, Is<SlotStepTrace> auto& w) {
  m.number("tid", w.tid, 1);
  m.address("slot", w.slot);
  m.number("steps", w.steps);
  trace_end(m, w);
  trace_views(m, w);
}

void members(auto& m, Is<RaceRead> auto& r) {
  m.number("read", r.read);
  m.address("timestamp", r.timestamp);
  m.bytes("header", r.header);
  m.object("payload", r.payload);
}

void members(auto& m, Is<Race> auto& r) {
  m.address("header", r.header);
  m.number("duration_ns", r.duration_ns);
  m.number("reads", r.reads);
  m.number("none", r.none);
  m.number("unreadable", r.unreadable);
  m.number("too_large", r.too_large);
  m.number("overtaken", r.overtaken);
  m.number("accepted", r.accepted);
  m.number("contents", r.contents);
  m.list("kept", r.kept);
  m.check("kept", "are more than a race can have", [&] { return r.kept.size() <= kMaxRaceReads; });
}

void members(auto& m, Is<RecordStore> auto& s) {
  m.number("tid", s.tid, 1);
  m.number("order", s.order);
  m.number("at_ns", s.at_ns);
  m.address("record", s.record);
  m.number("words", s.words, 0, 15);
  m.address("slot", s.slot);
  m.bytes("before", s.before);
  m.bytes("after", s.after);
  m.number_or_null("location", s.location);
}

void members(auto& m, Is<RecordWatch> auto& w) {
  m.address("record", w.record);
  m.address("slot", w.slot);
  m.number("owner", w.owner, 1);
  m.number("armed_order", w.armed_order);
  m.number_or_null("ended_order", w.ended_order);
  m.bytes("found", w.found);
  m.numbers("unwatched", w.unwatched);
}

void members(auto& m, Is<sys::ElfSymbol> auto& s) {
  m.number("index", s.index);
  m.text("name", s.name);
  m.address("value", s.value);
  m.number("size", s.size);
  m.number("type", s.type);
  m.number("binding", s.binding);
  m.number("section", s.section);
  m.number("visibility", s.visibility);
}

void members(auto& m, Is<sys::TlsRelocation> auto& r) {
  m.as("kind", r.kind, kAsWord, read_kind);
  m.number("type", r.type);
  m.address("offset", r.offset);
  m.number("symbol", r.symbol);
  m.number("addend", r.addend);
  m.address("word", r.word);
  m.address("word_after", r.word_after);
}

void members(auto& m, Is<sys::ElfSegment> auto& s) {
  m.address("address", s.address);
  m.number("file_size", s.file_size);
  m.number("memory_size", s.memory_size);
  m.number("alignment", s.alignment);
}

void members(auto& m, Is<ModuleFacts> auto& f) {
  m.text("path", f.path);
  m.flag("elf64", f.elf64);
  m.flag("little_endian", f.little_endian);
  m.number("machine", f.machine);
  m.number("type", f.type);
  m.flag("executable", f.executable);
  m.flag("has_dynamic_section", f.has_dynamic_section);
  m.flag("has_interpreter", f.has_interpreter);
  m.flag("symbolic", f.symbolic);
  m.flag("section_headers", f.section_headers);
  m.flag("go", f.go);
  m.object_or_null("tls", f.tls);
  m.list("dynamic_symbols", f.dynamic_symbols);
  m.list("static_symbols", f.static_symbols);
  m.list("relocations", f.relocations);
  m.texts("local_dynamic_code", f.local_dynamic_code);
  m.text("problem", f.problem);
}

void members(auto& m, Is<ThreadSample> auto& t) {
  m.number("tid", t.tid, 1);
  m.number("module", t.module);
  m.number("first_seen_ns", t.first_seen_ns);
  m.number("last_seen_ns", t.last_seen_ns, t.first_seen_ns);
  m.number("times", t.times, 1);
  m.address("slot", t.slot);
  m.address("value", t.value);
  m.flag("inherited", t.inherited);
  m.object_if_there("mapping", t.mapping);
  m.object_if_there("record", t.record);
  m.object_if_there("after", t.after);
}

void members(auto& m, Is<LargePayload> auto& p) {
  m.address("hash", p.hash);
  m.as("bytes", p.bytes, [](const SharedBytes& b) { return hex(*b); }, read_shared_bytes);
}

namespace {

// Complains of indexes that name nothing, and of lists that are too long or in another order.
class ImageCheck {
 public:
  ImageCheck(const JsonReader& in, const Image& image) : in_(in), image_(image) {}

  void all() const {
    lengths();
    orders();
    locations();
    modules();
    const auto snapshot_is_listed = [&](const SystemCall& c) {
      return !c.snapshot || *c.snapshot < image_.snapshots.size();
    };
    expect(std::ranges::all_of(image_.calls, snapshot_is_listed), "calls",
           "name a snapshot that is not listed");
    expect(image_.libc.empty() || sys::is_c_library(image_.libc), "libc", "is not a C library");
    expect(image_.traceparent.empty() || traceparent_from(image_.traceparent), "traceparent",
           "is not a traceparent");
  }

 private:
  void expect(bool holds, const char* name, const char* complaint) const {
    if (!holds) in_.complain(name, complaint);
  }
  void at_most(std::size_t most, const auto& list, const char* name) const {
    expect(list.size() <= most, name, "are more than an image can have");
  }
  void lengths() const {
    at_most(kMaxCalls, image_.calls, "calls");
    at_most(kMaxStores, image_.stores, "stores");
    at_most(kMaxStepTraces, image_.step_traces, "step_traces");
    at_most(kMaxRaces, image_.races, "races");
    at_most(kMaxForkProbes, image_.forks, "forks");
    at_most(kMaxStepTraces, image_.slot_step_traces, "slot_step_traces");
    at_most(kMaxRecordStores, image_.record_stores, "record_stores");
    at_most(kMaxExits, image_.exits, "exits");
  }
  void orders() const {
    expect(is_in_order(image_.stores, &Store::order), "stores", "are not in their order");
    expect(is_in_order(image_.record_stores, &RecordStore::order), "record_stores",
           "are not in their order");
  }
  void have_locations(const auto& list, const char* name) const {
    const auto is_listed = [&](const auto& one) {
      return !one.location || *one.location < image_.locations.size();
    };
    expect(std::ranges::all_of(list, is_listed), name, "name a location that is not listed");
  }
  void locations() const {
    have_locations(image_.stores, "stores");
    for (const auto& w : image_.step_traces) {
      have_locations(w.views, "step_traces");
      have_locations(w.barriers, "step_traces");
    }
    for (const auto& w : image_.slot_step_traces) have_locations(w.views, "slot_step_traces");
    have_locations(image_.record_stores, "record_stores");
  }
  void have_modules(const auto& list, auto module, const char* name) const {
    const auto is_listed = [&](std::uint32_t m) { return m < image_.modules.size(); };
    expect(std::ranges::all_of(list, is_listed, module), name, "name a module that is not listed");
  }
  void modules() const {
    have_modules(image_.threads, &ThreadSample::module, "threads");
    have_modules(image_.hidden_slots, &ThreadSample::module, "hidden_slots");
    have_modules(image_.defined_together, std::identity(), "defined_together");
    have_modules(image_.exits, &ThreadSample::module, "exits");
  }

  const JsonReader& in_;
  const Image& image_;
};

}  // namespace

void members(auto& m, Is<Image> auto& i) {
  m.number("pid", i.key.pid, 1);
  m.number("image", i.key.image);
  m.text("executable", i.executable);
  m.texts("command_line", i.command_line);
  m.flag("elf64", i.elf64);
  m.flag("little_endian", i.little_endian);
  m.number("personality", i.personality);
  m.number("boottime_offset_ns", i.boottime_offset_ns);
  m.number("started_ns", i.started_ns);
  m.text("ending", i.ending);
  if (m.has("unread", !i.unread.empty())) m.text("unread", i.unread);
  if (m.has("unexamined", i.unexamined > 0)) m.number("unexamined", i.unexamined);
  m.list("snapshots", i.snapshots);
  m.number("snapshots_dropped", i.snapshots_dropped);
  if (m.has("looks_skipped", i.looks_skipped > 0)) m.number("looks_skipped", i.looks_skipped);
  if (m.has("snapshots_judged", true)) m.number("snapshots_judged", i.snapshots_judged);
  m.list("calls", i.calls);
  m.number("calls_dropped", i.calls_dropped);
  if (m.has("other_calls_dropped", i.other_calls_dropped > 0)) {
    m.number("other_calls_dropped", i.other_calls_dropped);
  }
  m.text("calls_unseen", i.calls_unseen);
  m.list("watches", i.watches);
  m.list("stores", i.stores);
  m.number("stores_dropped", i.stores_dropped);
  m.text("stores_unseen", i.stores_unseen);
  m.list("locations", i.locations);
  m.list("step_traces", i.step_traces);
  m.text("steps_unseen", i.steps_unseen);
  m.list("races", i.races);
  m.text("races_unseen", i.races_unseen);
  m.list("forks", i.forks);
  m.text("forks_unseen", i.forks_unseen);
  m.list("slot_step_traces", i.slot_step_traces);
  m.text("slot_steps_unseen", i.slot_steps_unseen);
  m.list("record_watches", i.record_watches);
  m.list("record_stores", i.record_stores);
  m.number("record_stores_dropped", i.record_stores_dropped);
  m.list("modules", i.modules);
  m.numbers("defined_together", i.defined_together);
  m.list("threads", i.threads);
  if (m.has("hidden_slots", true)) m.list("hidden_slots", i.hidden_slots);
  m.list("exits", i.exits);
  m.number("threads_dropped", i.threads_dropped);
  if (m.has("threads_judged", true)) m.number("threads_judged", i.threads_judged);
  if (m.has("requirements_dropped", true)) m.texts("requirements_dropped", i.requirements_dropped);
  m.text("threads_unread", i.threads_unread);
  m.texts("notes", i.notes);
  if (m.has("payloads", !i.payloads.empty())) m.list("payloads", i.payloads);
  if (m.has("libc", !i.libc.empty())) m.text("libc", i.libc);
  if (m.has("traceparent", !i.traceparent.empty())) m.text("traceparent", i.traceparent);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) ImageCheck(m.in(), i).all();
}

void members(auto& m, Is<Process> auto& p) {
  m.number("pid", p.pid, 1);
  m.number("parent", p.parent);
  m.number("session", p.session);
  m.number("own_pid", p.own_pid, 0);
  m.number_or_null("exit_code", p.exit_code);
  m.number_or_null("killed_by", p.killed_by);
  m.flag("ended_by_us", p.ended_by_us);
  m.list("images", p.images);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) {
    for (Image& i : p.images) i.key.session = p.session;
  }
}

void members(auto& m, Is<FaultRun> auto& f) {
  m.text("fault", f.fault);
  m.number_or_null("exit_code", f.exit_code);
  m.number_or_null("killed_by", f.killed_by);
  m.flag("ended_by_us", f.ended_by_us);
  m.text("last_syscall", f.last_syscall);
  m.text("last_file", f.last_file);
  m.flag("published", f.published);
}

void members(auto& m, Is<Injection> auto& i) {
  m.text("spec", i.spec);
  m.text("call", i.call);
  m.number("result", i.result);
  m.number("times", i.times);
}

void members(auto& m, Is<FaultCell> auto& c) {
  m.number("session", c.session, 1);
  m.text("step", c.step);
  m.text("fault", c.fault);
  m.list("injections", c.injections);
  m.flag("clock_calls", c.clock_calls);
  m.text("left_out", c.left_out);
  if (m.has("no_such_call", !c.left_out.empty())) m.flag("no_such_call", c.no_such_call);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) read_missing_no_such_call(m.in(), c);
  m.text("hang", c.hang);
  m.text("output", c.output);
}

void members(auto& m, Is<RepeatCount> auto& r) {
  m.number("repeat", r.repeat);
  m.number("times", r.times, 1);
}

void members(auto& m, Is<sys::HostFact> auto& f) {
  m.text("name", f.name);
  m.flag("available", f.available);
  m.text("detail", f.detail);
  m.text("remedy", f.remedy);
}

// Left out when there are none.
void id_members(auto& m, const char* name, auto& ids, auto id_from) {
  if (!m.has(name, !ids.empty())) return;
  m.texts(name, ids);
  m.check(name, "contains an entry that is not an id", [&] {
    return std::ranges::all_of(ids, [&](const std::string& id) { return id_from(id) == id; });
  });
}

// All but the processes and sessions, of which to_json() holds one at a time.
void members(auto& m, Is<Timeline> auto& t) {
  m.text("suite_version", t.suite_version);
  m.as("mode", t.mode, kAsWord, read_mode);
  m.texts("target", t.target);
  m.text("kernel", t.kernel);
  m.text("arch", t.arch);
  m.text("libc", t.libc);
  m.text("started_at", t.started_at);
  m.as("milliseconds", t.seconds, milliseconds_of, read_milliseconds);
  m.number("page_size", t.page_size, 1, std::uint64_t{1} << 30U);
  m.number("realtime_minus_boottime_ns", t.realtime_minus_boottime_ns);
  m.list("host", t.host);
  m.flag("faults_asked", t.faults_asked);
  m.list("injections", t.injections);
  m.flag("clock_calls", t.clock_calls);
  m.flag("watches_lifetime", t.watches_lifetime);
  m.texts("expected_resource", t.expected_resource);
  m.texts("notes", t.notes);
  m.number("stops", t.stops);
  m.text("hang", t.hang);
  m.list("faults", t.faults);
  m.list("cells", t.cells);
  m.as("skipped", t.skipped, json_of_skipped, read_skipped);
  m.list("repeats", t.repeats);
  m.text("harness_fault", t.harness_fault);
  id_members(m, "expected_trace_ids", t.expected_trace_ids, trace_id_from);
  id_members(m, "expected_span_ids", t.expected_span_ids, span_id_from);
  id_members(m, "printed_trace_ids", t.printed_trace_ids, trace_id_from);
  id_members(m, "printed_span_ids", t.printed_span_ids, span_id_from);
  if (m.has("asked_for", !t.asked_for.empty())) m.texts("asked_for", t.asked_for);
  if (m.has("partial", t.partial)) m.flag("partial", t.partial);
  if (m.has("reading", t.reading != Reading())) m.as("reading", t.reading, kAsWord, read_reading);
  if (m.has("incomplete", !t.incomplete.empty())) m.text("incomplete", t.incomplete);
}

namespace {

void check_session_numbers(const JsonReader& in, const Timeline& t) {
  std::set<std::uint32_t> numbers;
  for (const auto& s : t.sessions) {
    if (!numbers.insert(s.root.session).second) in.complain("sessions", "share a number");
  }
}

void check_cells(const JsonReader& in, const Timeline& t) {
  std::set<std::uint32_t> numbers;
  for (const auto& c : t.cells) {
    if (!numbers.insert(c.session).second) in.complain("cells", "share a number");
  }
  if (!t.cells.empty() && !t.sessions.empty())
    in.complain("cells", "cannot be used together with sessions");
}

// What an operation's views name is there, or was left out of this recording with its image.
void check_views(const JsonReader& in, const Timeline& t) {
  std::map<ImageKey, const Image*> images;
  for (const auto& p : t.processes) {
    for (const auto& i : p.images) images[i.key] = &i;
  }
  for (const auto& s : t.sessions) {
    for (const auto& o : s.operations) {
      for (const auto& v : o.after) {
        const auto it = images.find(v.image);
        if (it == images.end()) continue;
        const Image& image = *it->second;
        if (v.snapshot && *v.snapshot >= image.snapshots.size()) {
          in.complain("sessions", "name a snapshot that is not listed");
        }
        for (const auto& thread : v.threads) {
          if (thread.module >= image.modules.size()) {
            in.complain("sessions", "name a module that is not listed");
          }
          if (thread.sample && *thread.sample >= image.threads.size()) {
            in.complain("sessions", "name a thread sample that is not listed");
          }
        }
      }
    }
  }
}

// The values of all lines are held at the same time when they are judged.
void check_lines(const JsonReader& in, const Timeline& t) {
  std::size_t values = 0;
  for (const auto& s : t.sessions) {
    values += most_values_in(s.hello);
    for (const auto& o : s.operations) {
      values += most_values_in(o.request) + most_values_in(o.reply);
    }
  }
  if (values > kMostJsonValues) in.complain("sessions", "have too many values in their lines");
}

constexpr const char* kProcesses = "processes";
constexpr const char* kSessions = "sessions";

OrderedJson json_of(const Process& p) { return json_by_members(p); }

}  // namespace

std::optional<std::string> to_json(const Timeline& t, std::size_t most) {
  OrderedJson out = {{"format", kFormat}, {"version", kTimelineVersion}};
  MemberWriter writer(out);
  members(writer, t);
  std::string json = out.dump(1);
  json.resize(json.size() - std::string_view("\n}").size());
  // As values they would take many times their text, so that there is one of them at a time.
  const auto add = [&](std::string_view name, const auto& list) {
    json.append(",\n \"").append(name).append("\": [");
    std::string_view before = "\n";
    for (const auto& one : list) {
      if (json.size() > most) return;
      json.append(std::exchange(before, ",\n")).append(json_of(one).dump(1));
    }
    json += "]";
  };
  add(kProcesses, t.processes);
  add(kSessions, t.sessions);
  json += "\n}\n";
  if (json.size() > most) return std::nullopt;
  return json;
}

std::string to_json(const Timeline& t) { return to_json(t, SIZE_MAX).value_or(""); }

sys::Result<Timeline> timeline_from_json(std::string_view json) {
  if (json.size() > kLongestTimeline) return sys::fail("read timeline", EFBIG, "more than 256 MiB");
  const JsonFormat wanted = {
      std::string(kFormat), kOldestTimelineVersion, kTimelineVersion,
      "this is not a recording of ctxconf (wrap --out DIR writes DIR/timeline.json)",
      ": record again with this ctxconf"};
  if (const auto why = JsonLimits::problem_of(json, wanted); !why.empty()) {
    return sys::fail("read timeline", EINVAL, why);
  }
  const OrderedJson value = OrderedJson::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object() || !value.contains("format")) {
    return sys::fail("read timeline", EINVAL, wanted.other_format);
  }
  if (!value.contains("version")) {
    return sys::fail("read timeline", EINVAL, "does not say which version of the format it has");
  }
  std::string problem;
  const bool has_old_names = value["version"] == kVersionOfOldNames;
  const JsonReader in(value, "", &problem,
                      has_old_names ? kRenamed : std::span<const RenamedMember>());
  Timeline t;
  MemberReader reader(in);
  members(reader, t);
  t.processes = in.list<Process>(kProcesses, value_by_members<Process>);
  t.sessions = in.list<Session>(kSessions, session_from);
  check_session_numbers(in, t);
  check_views(in, t);
  check_lines(in, t);
  check_cells(in, t);
  if (!problem.empty()) return sys::fail("read timeline", EINVAL, problem);
  return t;
}

}  // namespace ctxconf::conformance
