#include "conformance/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>

#include "conformance/ascii.h"
#include "conformance/json_limits.h"
#include "conformance/json_text.h"
#include "conformance/session_json.h"
#include "conformance/trace_ids.h"

namespace ctxconf::conformance {
namespace {

using OrderedJson = JsonReader::Json;

using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;

constexpr std::string_view kFormat = "ctxconf-timeline";

constexpr std::array<std::pair<Moment, std::string_view>, 8> kMoments = {{
    {Moment::kStart, "start"},
    {Moment::kPeriodic, "periodic"},
    {Moment::kNaming, "naming"},
    {Moment::kNamed, "named"},
    {Moment::kExecEntry, "exec-entry"},
    {Moment::kExit, "exit"},
    {Moment::kEnd, "end"},
    {Moment::kOperation, "operation"},
}};

OrderedJson json_of(const MapEntry& e) {
  return {{"begin", hex(e.range.begin().raw())},
          {"end", hex(e.range.end().raw())},
          {"permissions", permissions(e)},
          {"offset", hex(e.offset)},
          {"device", {e.dev_major, e.dev_minor}},
          {"inode", e.inode},
          {"name", text(e.name)}};
}

OrderedJson json_of(const MemoryBlock& b) {
  return {{"at", hex(b.at.raw())},
          {"wanted", b.wanted},
          {"readable", b.readable},
          {"hash", hex(b.hash)},
          {"bytes", hex(b.bytes)}};
}

OrderedJson json_of(const Candidate& c) {
  OrderedJson out = {{"entries", OrderedJson::array()},
                     {"vm_flags", OrderedJson::array()},
                     {"named", c.named},
                     {"settled", c.settled},
                     {"memory", OrderedJson::array()},
                     {"neighbours", OrderedJson::array()},
                     {"found_at", nullptr}};
  for (const auto& e : c.entries) out["entries"].push_back(json_of(e));
  for (const auto& f : c.vm_flags) out["vm_flags"].push_back(f ? text(*f) : OrderedJson(nullptr));
  for (const auto& b : c.memory) out["memory"].push_back(json_of(b));
  for (const auto& e : c.neighbours) out["neighbours"].push_back(json_of(e));
  if (c.found_at) out["found_at"] = *c.found_at;
  return out;
}

OrderedJson json_of(const Snapshot& s) {
  OrderedJson out = {{"moment", to_string(s.moment)},      {"first_seen_ns", s.first_seen_ns},
                     {"last_seen_ns", s.last_seen_ns},     {"times", s.times},
                     {"moments", OrderedJson::array()},    {"candidates", OrderedJson::array()},
                     {"descriptors", OrderedJson::array()}};
  for (const Moment m : s.moments) out["moments"].push_back(to_string(m));
  for (const auto& c : s.candidates) out["candidates"].push_back(json_of(c));
  for (const auto& d : s.descriptors) {
    out["descriptors"].push_back({{"fd", d.fd}, {"link", text(d.link)}});
  }
  return out;
}

OrderedJson json_of(const SystemCall& c) {
  OrderedJson out = {{"tid", c.tid},
                     {"name", c.name},
                     {"args", OrderedJson::array()},
                     {"result", c.result ? OrderedJson(*c.result) : OrderedJson(nullptr)},
                     {"injected", c.injected},
                     {"entered_ns", c.entered_ns},
                     {"entered_order", c.entered_order},
                     {"left_order", c.left_order},
                     {"text", text(c.text)},
                     {"file", text(c.file)},
                     {"before", hex(c.before)},
                     {"after", hex(c.after)},
                     {"snapshot", c.snapshot ? OrderedJson(*c.snapshot) : OrderedJson(nullptr)},
                     {"clock_ns", c.clock_ns ? OrderedJson(*c.clock_ns) : OrderedJson(nullptr)}};
  for (const auto arg : c.args) out["args"].push_back(hex(arg));
  return out;
}

OrderedJson json_of(const ForkProbe& f) {
  OrderedJson out = {
      {"tid", f.tid}, {"order", f.order}, {"at", f.at}, {"candidates", OrderedJson::array()}};
  for (const auto& c : f.candidates) out["candidates"].push_back(json_of(c));
  return out;
}

OrderedJson json_of(const CodePlace& p) {
  OrderedJson out = {{"address", hex(p.address)},        {"module", text(p.module)},
                     {"offset", hex(p.offset)},          {"symbol", text(p.symbol)},
                     {"symbol_offset", p.symbol_offset}, {"source_file", text(p.source_file)},
                     {"source_line", p.source_line}};
  for (const auto& caller : p.callers) out["callers"].push_back(json_of(caller));
  return out;
}

OrderedJson json_of(const Store& s) {
  OrderedJson out = {
      {"tid", s.tid},          {"order", s.order},
      {"at_ns", s.at_ns},      {"header", hex(s.header)},
      {"words", s.words},      {"before", hex(s.before)},
      {"after", hex(s.after)}, {"place", s.place ? OrderedJson(*s.place) : OrderedJson(nullptr)}};
  if (s.payload) out["payload"] = json_of(*s.payload);
  if (s.prepared) out["prepared"] = json_of(*s.prepared);
  if (s.threads) out["threads"] = *s.threads;
  return out;
}

OrderedJson json_of(const Watch& w) {
  return {{"header", hex(w.header)},
          {"armed_order", w.armed_order},
          {"armed_ns", w.armed_ns},
          {"because", w.because},
          {"found", hex(w.found)},
          {"ended_order", w.ended_order ? OrderedJson(*w.ended_order) : OrderedJson(nullptr)},
          {"ended_because", w.ended_because},
          {"unwatched", w.unwatched}};
}

OrderedJson json_of(const ReaderView& v) {
  OrderedJson out = {{"step", v.step},
                     {"order", v.order},
                     {"header", hex(v.header)},
                     {"place", v.place ? OrderedJson(*v.place) : OrderedJson(nullptr)}};
  if (v.payload) out["payload"] = json_of(*v.payload);
  return out;
}

OrderedJson json_of(const StepWalk& w) {
  OrderedJson out = {{"tid", w.tid},
                     {"header", hex(w.header)},
                     {"from", w.from_gate ? "gate" : "store"},
                     {"began_order", w.began_order},
                     {"steps", w.steps},
                     {"ended_because", text(w.ended_because)},
                     {"views", OrderedJson::array()},
                     {"barriers", OrderedJson::array()}};
  for (const auto& v : w.views) out["views"].push_back(json_of(v));
  for (const auto& b : w.barriers) {
    out["barriers"].push_back({{"step", b.step},
                               {"text", text(b.text)},
                               {"place", b.place ? OrderedJson(*b.place) : OrderedJson(nullptr)}});
  }
  return out;
}

OrderedJson json_of(const SlotView& v) {
  OrderedJson out = {{"step", v.step},
                     {"order", v.order},
                     {"value", hex(v.value)},
                     {"published", v.published ? OrderedJson(*v.published) : OrderedJson(nullptr)},
                     {"place", v.place ? OrderedJson(*v.place) : OrderedJson(nullptr)}};
  if (v.record) out["record"] = json_of(*v.record);
  if (v.by_another) out["by_another"] = true;
  return out;
}

OrderedJson json_of(const SlotWalk& w) {
  OrderedJson out = {{"tid", w.tid},
                     {"slot", hex(w.slot)},
                     {"steps", w.steps},
                     {"ended_because", text(w.ended_because)},
                     {"views", OrderedJson::array()}};
  for (const auto& v : w.views) out["views"].push_back(json_of(v));
  return out;
}

OrderedJson json_of(const Race& r) {
  OrderedJson out = {{"header", hex(r.header)},    {"duration_ns", r.duration_ns},
                     {"reads", r.reads},           {"none", r.none},
                     {"unreadable", r.unreadable}, {"too_large", r.too_large},
                     {"overtaken", r.overtaken},   {"accepted", r.accepted},
                     {"contents", r.contents},     {"kept", OrderedJson::array()}};
  for (const auto& k : r.kept) {
    out["kept"].push_back({{"read", k.read},
                           {"timestamp", hex(k.timestamp)},
                           {"header", hex(k.header)},
                           {"payload", json_of(k.payload)}});
  }
  return out;
}

OrderedJson json_of(const RecordStore& s) {
  return {{"tid", s.tid},
          {"order", s.order},
          {"at_ns", s.at_ns},
          {"record", hex(s.record)},
          {"words", s.words},
          {"slot", hex(s.slot)},
          {"before", hex(s.before)},
          {"after", hex(s.after)},
          {"place", s.place ? OrderedJson(*s.place) : OrderedJson(nullptr)}};
}

OrderedJson json_of(const RecordWatch& w) {
  return {{"record", hex(w.record)},
          {"slot", hex(w.slot)},
          {"owner", w.owner},
          {"armed_order", w.armed_order},
          {"ended_order", w.ended_order ? OrderedJson(*w.ended_order) : OrderedJson(nullptr)},
          {"found", hex(w.found)},
          {"unwatched", w.unwatched}};
}

OrderedJson json_of(const sys::ElfSymbol& s) {
  return {{"index", s.index},      {"name", text(s.name)},
          {"value", hex(s.value)}, {"size", s.size},
          {"type", s.type},        {"binding", s.binding},
          {"section", s.section},  {"visibility", s.visibility}};
}

OrderedJson json_of(const sys::TlsRelocation& r) {
  return {{"kind", sys::to_string(r.kind)},
          {"type", r.type},
          {"offset", hex(r.offset)},
          {"symbol", r.symbol},
          {"addend", r.addend},
          {"word", hex(r.word)},
          {"word_after", hex(r.word_after)}};
}

OrderedJson json_of(const ModuleFacts& m) {
  OrderedJson out = {{"path", text(m.path)},
                     {"elf64", m.elf64},
                     {"little_endian", m.little_endian},
                     {"machine", m.machine},
                     {"type", m.type},
                     {"executable", m.executable},
                     {"has_dynamic_section", m.has_dynamic_section},
                     {"has_interpreter", m.has_interpreter},
                     {"symbolic", m.symbolic},
                     {"section_headers", m.section_headers},
                     {"go", m.go},
                     {"tls", nullptr},
                     {"dynamic_symbols", OrderedJson::array()},
                     {"static_symbols", OrderedJson::array()},
                     {"relocations", OrderedJson::array()},
                     {"local_dynamic_code", texts(m.local_dynamic_code)},
                     {"problem", text(m.problem)}};
  if (m.tls) {
    out["tls"] = {{"address", hex(m.tls->address)},
                  {"file_size", m.tls->file_size},
                  {"memory_size", m.tls->memory_size},
                  {"alignment", m.tls->alignment}};
  }
  for (const auto& s : m.dynamic_symbols) out["dynamic_symbols"].push_back(json_of(s));
  for (const auto& s : m.static_symbols) out["static_symbols"].push_back(json_of(s));
  for (const auto& r : m.relocations) out["relocations"].push_back(json_of(r));
  return out;
}

OrderedJson json_of(const ThreadSample& t) {
  OrderedJson out = {{"tid", t.tid},
                     {"module", t.module},
                     {"first_seen_ns", t.first_seen_ns},
                     {"last_seen_ns", t.last_seen_ns},
                     {"times", t.times},
                     {"slot", hex(t.slot)},
                     {"value", hex(t.value)},
                     {"inherited", t.inherited}};
  if (t.mapping) out["mapping"] = json_of(*t.mapping);
  if (t.record) out["record"] = json_of(*t.record);
  if (t.behind) out["behind"] = json_of(*t.behind);
  return out;
}

OrderedJson json_of(const Image& i) {
  OrderedJson out = {{"pid", i.key.pid},
                     {"image", i.key.image},
                     {"executable", text(i.executable)},
                     {"command_line", texts(i.command_line)},
                     {"elf64", i.elf64},
                     {"little_endian", i.little_endian},
                     {"personality", i.personality},
                     {"boottime_offset_ns", i.boottime_offset_ns},
                     {"started_ns", i.started_ns},
                     {"ending", i.ending},
                     {"snapshots", OrderedJson::array()},
                     {"snapshots_dropped", i.snapshots_dropped},
                     {"snapshots_judged", i.snapshots_judged},
                     {"calls", OrderedJson::array()},
                     {"calls_dropped", i.calls_dropped},
                     {"calls_unseen", text(i.calls_unseen)},
                     {"watches", OrderedJson::array()},
                     {"stores", OrderedJson::array()},
                     {"stores_dropped", i.stores_dropped},
                     {"stores_unseen", text(i.stores_unseen)},
                     {"places", OrderedJson::array()},
                     {"walks", OrderedJson::array()},
                     {"walks_unseen", text(i.walks_unseen)},
                     {"races", OrderedJson::array()},
                     {"races_unseen", text(i.races_unseen)},
                     {"forks", OrderedJson::array()},
                     {"forks_unseen", text(i.forks_unseen)},
                     {"slot_walks", OrderedJson::array()},
                     {"slot_walks_unseen", text(i.slot_walks_unseen)},
                     {"record_watches", OrderedJson::array()},
                     {"record_stores", OrderedJson::array()},
                     {"record_stores_dropped", i.record_stores_dropped},
                     {"modules", OrderedJson::array()},
                     {"defined_together", i.defined_together},
                     {"threads", OrderedJson::array()},
                     {"hidden_slots", OrderedJson::array()},
                     {"exits", OrderedJson::array()},
                     {"threads_dropped", i.threads_dropped},
                     {"threads_judged", i.threads_judged},
                     {"rows_dropped", i.rows_dropped},
                     {"threads_unread", text(i.threads_unread)},
                     {"notes", texts(i.notes)}};
  for (const auto& s : i.snapshots) out["snapshots"].push_back(json_of(s));
  for (const auto& p : i.payloads) {
    out["payloads"].push_back({{"hash", hex(p.hash)}, {"bytes", hex(*p.bytes)}});
  }
  for (const auto& c : i.calls) out["calls"].push_back(json_of(c));
  for (const auto& w : i.watches) out["watches"].push_back(json_of(w));
  for (const auto& st : i.stores) out["stores"].push_back(json_of(st));
  for (const auto& p : i.places) out["places"].push_back(json_of(p));
  for (const auto& w : i.walks) out["walks"].push_back(json_of(w));
  for (const auto& r : i.races) out["races"].push_back(json_of(r));
  for (const auto& f : i.forks) out["forks"].push_back(json_of(f));
  for (const auto& w : i.slot_walks) out["slot_walks"].push_back(json_of(w));
  for (const auto& w : i.record_watches) out["record_watches"].push_back(json_of(w));
  for (const auto& st : i.record_stores) out["record_stores"].push_back(json_of(st));
  for (const auto& m : i.modules) out["modules"].push_back(json_of(m));
  for (const auto& t : i.threads) out["threads"].push_back(json_of(t));
  for (const auto& t : i.hidden_slots) out["hidden_slots"].push_back(json_of(t));
  for (const auto& t : i.exits) out["exits"].push_back(json_of(t));
  if (!i.traceparent.empty()) out["traceparent"] = text(i.traceparent);
  return out;
}

OrderedJson json_of(const Process& p) {
  OrderedJson out = {{"pid", p.pid},
                     {"parent", p.parent},
                     {"session", p.session},
                     {"own_pid", p.own_pid},
                     {"exit_code", optional_number(p.exit_code)},
                     {"killed_by", optional_number(p.killed_by)},
                     {"ended_by_us", p.ended_by_us},
                     {"images", OrderedJson::array()}};
  for (const auto& i : p.images) out["images"].push_back(json_of(i));
  return out;
}

OrderedJson json_of(const FaultRun& f) {
  return {{"fault", f.fault},
          {"exit_code", optional_number(f.exit_code)},
          {"killed_by", optional_number(f.killed_by)},
          {"ended_by_us", f.ended_by_us},
          {"last_syscall", f.last_syscall},
          {"last_file", text(f.last_file)},
          {"published", f.published}};
}

OrderedJson json_of(const Injection& i) {
  return {{"spec", text(i.spec)}, {"call", text(i.call)}, {"result", i.result}, {"times", i.times}};
}

OrderedJson json_of(const FaultCell& c) {
  OrderedJson out = {{"session", c.session},
                     {"step", c.step},
                     {"fault", c.fault},
                     {"injections", OrderedJson::array()},
                     {"clock_calls", c.clock_calls},
                     {"left_out", text(c.left_out)},
                     {"hang", c.hang},
                     {"output", text(c.output)}};
  for (const auto& i : c.injections) out["injections"].push_back(json_of(i));
  return out;
}

MapEntry map_entry(const JsonReader& in) {
  MapEntry e;
  const auto range =
      RemoteRange::from_bounds(RemoteAddr(in.address("begin")), RemoteAddr(in.address("end")));
  if (range) {
    e.range = *range;
  } else {
    in.complain("end", "lies before begin");
  }
  const std::string p = in.string("permissions");
  if (p.size() != 4) {
    in.complain("permissions", "is not like rw-p");
    return e;
  }
  e.readable = p[0] == 'r';
  e.writable = p[1] == 'w';
  e.executable = p[2] == 'x';
  e.shared = p[3] == 's';
  e.offset = in.address("offset");
  std::vector<std::uint32_t> device;
  in.each("device", [&](const OrderedJson& v, const std::string&) {
    if (v.is_number_unsigned() && std::in_range<std::uint32_t>(v.get<std::uint64_t>())) {
      device.push_back(v.get<std::uint32_t>());
    }
  });
  if (device.size() != 2) {
    in.complain("device", "is not two numbers");
    return e;
  }
  e.dev_major = device[0];
  e.dev_minor = device[1];
  e.inode = in.number<std::uint64_t>("inode");
  e.name = in.string("name");
  return e;
}

MemoryBlock memory_block(const JsonReader& in) {
  MemoryBlock b;
  b.at = RemoteAddr(in.address("at"));
  b.wanted = in.number<std::uint64_t>("wanted");
  b.readable = in.number<std::uint64_t>("readable");
  b.hash = in.address("hash");
  b.bytes = in.bytes("bytes");
  if (b.readable > b.wanted) in.complain("readable", "is more than was wanted");
  if (b.bytes.size() > b.readable) in.complain("bytes", "are more than were readable");
  return b;
}

Moment moment_of(const JsonReader& in, const char* name, const std::string& s) {
  for (const auto& [m, word] : kMoments) {
    if (word == s) return m;
  }
  in.complain(name, "is no known moment");
  return Moment::kPeriodic;
}

Candidate candidate(const JsonReader& in) {
  Candidate c;
  c.entries = in.list<MapEntry>("entries", map_entry);
  if (c.entries.empty()) in.complain("entries", "is empty");
  in.each("vm_flags", [&](const OrderedJson& v, const std::string&) {
    c.vm_flags.push_back(v.is_null() ? std::nullopt : std::optional(in.string_of(v, "vm_flags")));
  });
  c.named = in.boolean("named");
  c.settled = in.boolean("settled");
  c.memory = in.list<MemoryBlock>("memory", memory_block);
  c.neighbours = in.list<MapEntry>("neighbours", map_entry);
  if (!in.absent_or_null("found_at")) c.found_at = in.number<std::uint64_t>("found_at");
  return c;
}

Snapshot snapshot(const JsonReader& in) {
  Snapshot s;
  s.moment = moment_of(in, "moment", in.string("moment"));
  s.first_seen_ns = in.number<std::uint64_t>("first_seen_ns");
  s.last_seen_ns = in.number<std::uint64_t>("last_seen_ns", s.first_seen_ns);
  s.times = in.number<std::uint64_t>("times", 1);
  for (const auto& m : in.strings("moments")) s.moments.push_back(moment_of(in, "moments", m));
  s.candidates = in.list<Candidate>("candidates", candidate);
  s.descriptors = in.list<DescriptorLink>("descriptors", [](const JsonReader& d) {
    return DescriptorLink{d.number<int>("fd"), d.string("link")};
  });
  return s;
}

constexpr std::size_t kHeader = 32;

SystemCall system_call(const JsonReader& in) {
  SystemCall c;
  c.tid = in.number<std::int32_t>("tid", 1);
  c.name = in.string("name");
  const auto args = in.strings("args");
  if (args.size() != c.args.size()) {
    in.complain("args", "are not six");
    return c;
  }
  for (std::size_t i = 0; i < args.size(); ++i) c.args[i] = in.address_of(args[i], "args");
  c.result = in.optional_number<std::int64_t>("result");
  c.injected = in.boolean("injected");
  c.entered_ns = in.number<std::uint64_t>("entered_ns");
  c.entered_order = in.number<std::uint64_t>("entered_order");
  c.left_order = in.number<std::uint64_t>("left_order");
  c.text = in.string("text");
  c.file = in.string("file");
  c.before = in.bytes("before");
  c.after = in.bytes("after");
  if (c.before.size() > kHeader) in.complain("before", "is more than a header");
  if (c.after.size() > kHeader) in.complain("after", "is more than a header");
  c.snapshot = in.optional_number<std::uint64_t>("snapshot");
  c.clock_ns = in.optional_number<std::uint64_t>("clock_ns");
  return c;
}

ForkProbe fork_probe(const JsonReader& in) {
  ForkProbe f;
  f.tid = in.number<std::int32_t>("tid", 1);
  f.order = in.number<std::uint64_t>("order");
  f.at = in.string("at");
  f.candidates = in.list<Candidate>("candidates", candidate);
  return f;
}

CodePlace code_frame(const JsonReader& in) {
  CodePlace p;
  p.address = in.address("address");
  p.module = in.string("module");
  p.offset = in.address("offset");
  p.symbol = in.string("symbol");
  p.symbol_offset = in.number<std::uint64_t>("symbol_offset");
  p.source_file = in.string("source_file");
  p.source_line = in.number<std::uint32_t>("source_line");
  return p;
}

CodePlace code_place(const JsonReader& in) {
  CodePlace p = code_frame(in);
  if (!in.absent_or_null("callers")) p.callers = in.list<CodePlace>("callers", code_frame);
  return p;
}

Store store(const JsonReader& in) {
  Store s;
  s.tid = in.number<std::int32_t>("tid", 0);
  s.order = in.number<std::uint64_t>("order");
  s.at_ns = in.number<std::uint64_t>("at_ns");
  s.header = in.address("header");
  s.words = in.number<std::uint8_t>("words", 0, 15);
  s.before = in.bytes("before");
  s.after = in.bytes("after");
  if (s.before.size() > kHeader) in.complain("before", "is more than a header");
  if (s.after.size() > kHeader) in.complain("after", "is more than a header");
  s.place = in.optional_number<std::uint32_t>("place");
  s.payload = in.optional<MemoryBlock>("payload", memory_block);
  s.prepared = in.optional<MemoryBlock>("prepared", memory_block);
  s.threads = in.number_if_there<std::uint32_t>("threads");
  return s;
}

Watch watch(const JsonReader& in) {
  Watch w;
  w.header = in.address("header");
  w.armed_order = in.number<std::uint64_t>("armed_order");
  w.armed_ns = in.number<std::uint64_t>("armed_ns");
  w.because = in.string("because");
  w.found = in.bytes("found");
  if (w.found.size() > kHeader) in.complain("found", "is more than a header");
  w.ended_order = in.optional_number<std::uint64_t>("ended_order");
  if (w.ended_order && *w.ended_order < w.armed_order) {
    in.complain("ended_order", "lies before armed_order");
  }
  w.ended_because = in.string("ended_because");
  w.unwatched = in.numbers<std::int32_t>("unwatched");
  return w;
}

ReaderView reader_view(const JsonReader& in) {
  ReaderView v;
  v.step = in.number<std::uint64_t>("step");
  v.order = in.number<std::uint64_t>("order");
  v.header = in.bytes("header");
  if (v.header.size() > kHeader) in.complain("header", "is more than a header");
  v.payload = in.optional<MemoryBlock>("payload", memory_block);
  v.place = in.optional_number<std::uint32_t>("place");
  return v;
}

Barrier barrier(const JsonReader& in) {
  Barrier b;
  b.step = in.number<std::uint64_t>("step");
  b.text = in.string("text");
  b.place = in.optional_number<std::uint32_t>("place");
  return b;
}

StepWalk step_walk(const JsonReader& in) {
  StepWalk w;
  w.tid = in.number<std::int32_t>("tid", 1);
  w.header = in.address("header");
  const std::string from = in.string("from");
  w.from_gate = from == "gate";
  if (!w.from_gate && from != "store") in.complain("from", "is neither \"gate\" nor \"store\"");
  w.began_order = in.number<std::uint64_t>("began_order");
  w.steps = in.number<std::uint64_t>("steps");
  w.ended_because = in.string("ended_because");
  w.views = in.list<ReaderView>("views", reader_view);
  w.barriers = in.list<Barrier>("barriers", barrier);
  if (w.views.size() > kMaxViews) in.complain("views", "are more than a walk can have");
  if (w.barriers.size() > kMaxBarriers) in.complain("barriers", "are more than a walk can have");
  if (!std::ranges::is_sorted(w.views, std::ranges::less_equal{}, &ReaderView::order)) {
    in.complain("views", "are not in their order");
  }
  return w;
}

SlotView slot_view(const JsonReader& in) {
  SlotView v;
  v.step = in.number<std::uint64_t>("step");
  v.order = in.number<std::uint64_t>("order");
  v.value = in.address("value");
  v.record = in.optional<MemoryBlock>("record", memory_block);
  v.published = in.optional_number<std::uint64_t>("published");
  v.place = in.optional_number<std::uint32_t>("place");
  v.by_another = !in.absent_or_null("by_another") && in.boolean("by_another");
  return v;
}

SlotWalk slot_walk(const JsonReader& in) {
  SlotWalk w;
  w.tid = in.number<std::int32_t>("tid", 1);
  w.slot = in.address("slot");
  w.steps = in.number<std::uint64_t>("steps");
  w.ended_because = in.string("ended_because");
  w.views = in.list<SlotView>("views", slot_view);
  if (w.views.size() > kMaxViews) in.complain("views", "are more than a walk can have");
  if (!std::ranges::is_sorted(w.views, std::ranges::less_equal{}, &SlotView::order)) {
    in.complain("views", "are not in their order");
  }
  return w;
}

RaceRead race_read(const JsonReader& in) {
  RaceRead r;
  r.read = in.number<std::uint64_t>("read");
  r.timestamp = in.address("timestamp");
  r.header = in.bytes("header");
  r.payload = in.optional<MemoryBlock>("payload", memory_block).value_or(MemoryBlock{});
  return r;
}

Race race(const JsonReader& in) {
  Race r;
  r.header = in.address("header");
  r.duration_ns = in.number<std::uint64_t>("duration_ns");
  r.reads = in.number<std::uint64_t>("reads");
  r.none = in.number<std::uint64_t>("none");
  r.unreadable = in.number<std::uint64_t>("unreadable");
  r.too_large = in.number<std::uint64_t>("too_large");
  r.overtaken = in.number<std::uint64_t>("overtaken");
  r.accepted = in.number<std::uint64_t>("accepted");
  r.contents = in.number<std::uint64_t>("contents");
  r.kept = in.list<RaceRead>("kept", race_read);
  if (r.kept.size() > kMaxRaceReads) in.complain("kept", "are more than a race can have");
  return r;
}

RecordStore record_store(const JsonReader& in) {
  RecordStore s;
  s.tid = in.number<std::int32_t>("tid", 1);
  s.order = in.number<std::uint64_t>("order");
  s.at_ns = in.number<std::uint64_t>("at_ns");
  s.record = in.address("record");
  s.words = in.number<std::uint8_t>("words", 0, 15);
  s.slot = in.address("slot");
  s.before = in.bytes("before");
  s.after = in.bytes("after");
  s.place = in.optional_number<std::uint32_t>("place");
  return s;
}

RecordWatch record_watch(const JsonReader& in) {
  RecordWatch w;
  w.record = in.address("record");
  w.slot = in.address("slot");
  w.owner = in.number<std::int32_t>("owner", 1);
  w.armed_order = in.number<std::uint64_t>("armed_order");
  w.ended_order = in.optional_number<std::uint64_t>("ended_order");
  w.found = in.bytes("found");
  w.unwatched = in.numbers<std::int32_t>("unwatched");
  return w;
}

sys::ElfSymbol symbol(const JsonReader& in) {
  sys::ElfSymbol s;
  s.index = in.number<std::uint32_t>("index");
  s.name = in.string("name");
  s.value = in.address("value");
  s.size = in.number<std::uint64_t>("size");
  s.type = in.number<std::uint8_t>("type");
  s.binding = in.number<std::uint8_t>("binding");
  s.visibility = in.number<std::uint8_t>("visibility");
  s.section = in.number<std::uint16_t>("section");
  return s;
}

sys::TlsRelocation relocation(const JsonReader& in) {
  using enum sys::TlsRelocationKind;
  sys::TlsRelocation r;
  const std::string kind = in.string("kind");
  bool known = false;
  for (const auto k : {kTlsdesc, kModule, kOffset, kThreadPointerOffset}) {
    if (sys::to_string(k) != kind) continue;
    r.kind = k;
    known = true;
  }
  if (!known) in.complain("kind", "is no known relocation");
  r.type = in.number<std::uint32_t>("type");
  r.offset = in.address("offset");
  r.symbol = in.number<std::uint32_t>("symbol");
  r.addend = in.number<std::int64_t>("addend");
  r.word = in.address("word");
  r.word_after = in.address("word_after");
  return r;
}

sys::ElfSegment tls_segment(const JsonReader& in) {
  sys::ElfSegment s;
  s.address = in.address("address");
  s.file_size = in.number<std::uint64_t>("file_size");
  s.memory_size = in.number<std::uint64_t>("memory_size");
  s.alignment = in.number<std::uint64_t>("alignment");
  return s;
}

ModuleFacts module(const JsonReader& in) {
  ModuleFacts m;
  m.path = in.string("path");
  m.elf64 = in.boolean("elf64");
  m.little_endian = in.boolean("little_endian");
  m.machine = in.number<std::uint16_t>("machine");
  m.type = in.number<std::uint16_t>("type");
  m.executable = in.boolean("executable");
  m.has_dynamic_section = in.boolean("has_dynamic_section");
  m.has_interpreter = in.boolean("has_interpreter");
  m.symbolic = in.boolean("symbolic");
  m.section_headers = in.boolean("section_headers");
  m.go = in.boolean("go");
  m.tls = in.optional<sys::ElfSegment>("tls", tls_segment);
  m.dynamic_symbols = in.list<sys::ElfSymbol>("dynamic_symbols", symbol);
  m.static_symbols = in.list<sys::ElfSymbol>("static_symbols", symbol);
  m.relocations = in.list<sys::TlsRelocation>("relocations", relocation);
  m.local_dynamic_code = in.strings("local_dynamic_code");
  m.problem = in.string("problem");
  return m;
}

ThreadSample thread_sample(const JsonReader& in) {
  ThreadSample t;
  t.tid = in.number<std::int32_t>("tid", 1);
  t.module = in.number<std::uint32_t>("module");
  t.first_seen_ns = in.number<std::uint64_t>("first_seen_ns");
  t.last_seen_ns = in.number<std::uint64_t>("last_seen_ns", t.first_seen_ns);
  t.times = in.number<std::uint64_t>("times", 1);
  t.slot = in.address("slot");
  t.value = in.address("value");
  t.inherited = in.boolean("inherited");
  t.mapping = in.optional<MapEntry>("mapping", map_entry);
  t.record = in.optional<MemoryBlock>("record", memory_block);
  t.behind = in.optional<MemoryBlock>("behind", memory_block);
  return t;
}

LargePayload large_payload(const JsonReader& in) {
  return {.hash = in.address("hash"),
          .bytes = std::make_shared<const std::vector<std::byte>>(in.bytes("bytes"))};
}

Image image(const JsonReader& in) {
  Image i;
  i.key.pid = in.number<std::int32_t>("pid", 1);
  i.key.image = in.number<std::uint32_t>("image");
  i.executable = in.string("executable");
  i.command_line = in.strings("command_line");
  if (!in.absent_or_null("traceparent")) {
    i.traceparent = in.string("traceparent");
    if (!i.traceparent.empty() && !traceparent_from(i.traceparent)) {
      in.complain("traceparent", "is none");
    }
  }
  i.elf64 = in.boolean("elf64");
  i.little_endian = in.boolean("little_endian");
  i.personality = in.number<std::uint32_t>("personality");
  i.boottime_offset_ns = in.number<std::int64_t>("boottime_offset_ns");
  i.started_ns = in.number<std::uint64_t>("started_ns");
  i.ending = in.string("ending");
  i.snapshots = in.list<Snapshot>("snapshots", snapshot);
  i.snapshots_dropped = in.number<std::uint64_t>("snapshots_dropped");
  if (!in.absent_or_null("snapshots_judged")) {
    i.snapshots_judged = in.number<std::uint64_t>("snapshots_judged");
  }
  if (!in.absent_or_null("payloads")) {
    i.payloads = in.list<LargePayload>("payloads", large_payload);
  }
  i.calls = in.list<SystemCall>("calls", system_call);
  if (i.calls.size() > kMaxCalls) in.complain("calls", "are more than an image can have");
  for (const auto& c : i.calls) {
    if (c.snapshot && *c.snapshot >= i.snapshots.size()) {
      in.complain("calls", "name a snapshot that is not listed");
    }
  }
  i.calls_dropped = in.number<std::uint64_t>("calls_dropped");
  i.calls_unseen = in.string("calls_unseen");
  i.places = in.list<CodePlace>("places", code_place);
  i.watches = in.list<Watch>("watches", watch);
  i.stores = in.list<Store>("stores", store);
  if (i.stores.size() > kMaxStores) in.complain("stores", "are more than an image can have");
  if (!std::ranges::is_sorted(i.stores, std::ranges::less_equal{}, &Store::order)) {
    in.complain("stores", "are not in their order");
  }
  for (const auto& s : i.stores) {
    if (s.place && *s.place >= i.places.size()) {
      in.complain("stores", "name a place that is not listed");
    }
  }
  i.stores_dropped = in.number<std::uint64_t>("stores_dropped");
  i.walks = in.list<StepWalk>("walks", step_walk);
  i.walks_unseen = in.string("walks_unseen");
  i.forks = in.list<ForkProbe>("forks", fork_probe);
  if (i.forks.size() > kMaxForkProbes) in.complain("forks", "are more than an image can have");
  i.forks_unseen = in.string("forks_unseen");
  if (i.walks.size() > kMaxWalks) in.complain("walks", "are more than an image can have");
  const auto is_listed = [&](const auto& at) { return !at.place || *at.place < i.places.size(); };
  for (const auto& w : i.walks) {
    if (!std::ranges::all_of(w.views, is_listed) || !std::ranges::all_of(w.barriers, is_listed)) {
      in.complain("walks", "name a place that is not listed");
    }
  }
  i.races = in.list<Race>("races", race);
  i.races_unseen = in.string("races_unseen");
  if (i.races.size() > kMaxRaces) in.complain("races", "are more than an image can have");
  i.slot_walks = in.list<SlotWalk>("slot_walks", slot_walk);
  i.slot_walks_unseen = in.string("slot_walks_unseen");
  if (i.slot_walks.size() > kMaxWalks) in.complain("slot_walks", "are more than an image can have");
  for (const auto& w : i.slot_walks) {
    if (!std::ranges::all_of(w.views, is_listed)) {
      in.complain("slot_walks", "name a place that is not listed");
    }
  }
  i.record_watches = in.list<RecordWatch>("record_watches", record_watch);
  i.record_stores = in.list<RecordStore>("record_stores", record_store);
  if (i.record_stores.size() > kMaxRecordStores) {
    in.complain("record_stores", "are more than an image can have");
  }
  if (!std::ranges::is_sorted(i.record_stores, std::ranges::less_equal{}, &RecordStore::order)) {
    in.complain("record_stores", "are not in their order");
  }
  for (const auto& s : i.record_stores) {
    if (s.place && *s.place >= i.places.size()) {
      in.complain("record_stores", "name a place that is not listed");
    }
  }
  i.record_stores_dropped = in.number<std::uint64_t>("record_stores_dropped");
  i.stores_unseen = in.string("stores_unseen");
  i.modules = in.list<ModuleFacts>("modules", module);
  i.defined_together = in.numbers<std::uint32_t>("defined_together");
  i.threads = in.list<ThreadSample>("threads", thread_sample);
  const auto listed = [&](std::uint32_t module) { return module < i.modules.size(); };
  if (!std::ranges::all_of(i.threads, listed, &ThreadSample::module)) {
    in.complain("threads", "name a module that is not listed");
  }
  if (!in.absent_or_null("hidden_slots")) {
    i.hidden_slots = in.list<ThreadSample>("hidden_slots", thread_sample);
  }
  if (!std::ranges::all_of(i.hidden_slots, listed, &ThreadSample::module)) {
    in.complain("hidden_slots", "name a module that is not listed");
  }
  if (!std::ranges::all_of(i.defined_together, listed)) {
    in.complain("defined_together", "name a module that is not listed");
  }
  i.exits = in.list<ThreadSample>("exits", thread_sample);
  if (i.exits.size() > kMaxExits) in.complain("exits", "are more than an image can have");
  if (!std::ranges::all_of(i.exits, listed, &ThreadSample::module)) {
    in.complain("exits", "name a module that is not listed");
  }
  i.threads_dropped = in.number<std::uint64_t>("threads_dropped");
  if (!in.absent_or_null("threads_judged")) {
    i.threads_judged = in.number<std::uint64_t>("threads_judged");
  }
  if (!in.absent_or_null("rows_dropped")) i.rows_dropped = in.strings("rows_dropped");
  i.threads_unread = in.string("threads_unread");
  i.notes = in.strings("notes");
  return i;
}

Process process(const JsonReader& in) {
  Process p;
  p.pid = in.number<std::int32_t>("pid", 1);
  p.parent = in.number<std::int32_t>("parent");
  p.exit_code = in.optional_number<int>("exit_code");
  p.killed_by = in.optional_number<int>("killed_by");
  p.ended_by_us = in.boolean("ended_by_us");
  p.session = in.number<std::uint32_t>("session");
  p.own_pid = in.number<std::int32_t>("own_pid", 0);
  p.images = in.list<Image>("images", image);
  for (Image& i : p.images) i.key.session = p.session;
  return p;
}

FaultRun fault_run(const JsonReader& in) {
  FaultRun f;
  f.fault = in.string("fault");
  f.exit_code = in.optional_number<int>("exit_code");
  f.killed_by = in.optional_number<int>("killed_by");
  f.ended_by_us = in.boolean("ended_by_us");
  f.last_syscall = in.string("last_syscall");
  f.last_file = in.string("last_file");
  f.published = in.boolean("published");
  return f;
}

Injection injection(const JsonReader& in) {
  return {in.string("spec"), in.string("call"), in.number<std::int64_t>("result"),
          in.number<std::uint64_t>("times")};
}

FaultCell fault_cell(const JsonReader& in) {
  FaultCell c;
  c.session = in.number<std::uint32_t>("session", 1);
  c.step = in.string("step");
  c.fault = in.string("fault");
  c.injections = in.list<Injection>("injections", injection);
  c.clock_calls = in.boolean("clock_calls");
  c.left_out = in.string("left_out");
  c.hang = in.string("hang");
  c.output = in.string("output");
  return c;
}

RepeatCount repeat_count(const JsonReader& in) {
  return {in.number<std::uint32_t>("repeat"), in.number<std::uint32_t>("times", 1)};
}

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
  if (!t.cells.empty() && !t.sessions.empty()) in.complain("cells", "stand beside sessions");
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

sys::HostFact host_fact(const JsonReader& in) {
  return {in.string("name"), in.boolean("available"), in.string("detail"), in.string("remedy")};
}

}  // namespace

std::string_view to_string(Moment m) {
  for (const auto& [moment, word] : kMoments) {
    if (moment == m) return word;
  }
  return "periodic";
}

std::string signal_name(int signo) {
  const char* abbreviation = sigabbrev_np(signo);
  return abbreviation == nullptr ? "signal " + std::to_string(signo)
                                 : std::string("SIG") + abbreviation;
}

bool looks_like_the_name(std::string_view text) {
  constexpr std::string_view kStart = "otel";
  return lower_case(text.substr(0, kStart.size())) == kStart;
}

bool is_root(const Timeline& timeline, const Process& process) {
  return &*std::ranges::find(timeline.processes, process.session, &Process::session) == &process;
}

std::span<const std::byte> kept_bytes(const Image& image, const MemoryBlock& block) {
  if (block.bytes.size() == block.wanted || block.readable < block.wanted) return block.bytes;
  const auto kept = std::ranges::find_if(image.payloads, [&](const LargePayload& p) {
    return p.hash == block.hash && p.bytes->size() == block.wanted;
  });
  return kept == image.payloads.end() ? std::span(block.bytes) : std::span(*kept->bytes);
}

std::string ending_of(const Process& p) {
  if (p.killed_by) {
    return "killed by " + signal_name(*p.killed_by) + (p.ended_by_us ? " (by ctxconf)" : "");
  }
  return p.exit_code ? "exited " + std::to_string(*p.exit_code) : "";
}

namespace {

// The lists of ids by their names in the recording.
auto id_lists(auto& t) {
  return std::array{std::pair{"expected_trace_ids", &t.expected_trace_ids},
                    std::pair{"expected_span_ids", &t.expected_span_ids},
                    std::pair{"printed_trace_ids", &t.printed_trace_ids},
                    std::pair{"printed_span_ids", &t.printed_span_ids}};
}

}  // namespace

std::optional<std::string> to_json(const Timeline& t, std::size_t most) {
  OrderedJson out = {{"format", kFormat},
                     {"version", kTimelineVersion},
                     {"suite_version", t.suite_version},
                     {"mode", to_string(t.mode)},
                     {"target", texts(t.target)},
                     {"kernel", t.kernel},
                     {"arch", t.arch},
                     {"libc", t.libc},
                     {"started_at", t.started_at},
                     {"milliseconds", static_cast<std::uint64_t>(std::llround(t.seconds * 1000))},
                     {"page_size", t.page_size},
                     {"realtime_minus_boottime_ns", t.realtime_minus_boottime_ns},
                     {"host", OrderedJson::array()},
                     {"faults_asked", t.faults_asked},
                     {"injections", OrderedJson::array()},
                     {"clock_calls", t.clock_calls},
                     {"watches_lifetime", t.watches_lifetime},
                     {"expected_resource", texts(t.expected_resource)},
                     {"notes", texts(t.notes)},
                     {"stops", t.stops},
                     {"hang", t.hang},
                     {"faults", OrderedJson::array()},
                     {"cells", OrderedJson::array()},
                     {"skipped", OrderedJson::array()},
                     {"repeats", OrderedJson::array()},
                     {"harness_fault", text(t.harness_fault)}};
  for (const auto& [name, ids] : id_lists(t)) {
    if (!ids->empty()) out[name] = texts(*ids);
  }
  if (!t.asked_for.empty()) out["asked_for"] = texts(t.asked_for);
  if (t.partial) out["partial"] = true;
  if (t.reading != Reading()) out["reading"] = to_string(t.reading);
  if (!t.incomplete.empty()) out["incomplete"] = text(t.incomplete);
  for (const auto& s : t.skipped) out["skipped"].push_back(json_of(s));
  for (const auto& r : t.repeats) {
    out["repeats"].push_back({{"repeat", r.repeat}, {"times", r.times}});
  }
  for (const auto& f : t.host) {
    out["host"].push_back(
        {{"name", f.name}, {"available", f.available}, {"detail", f.detail}, {"remedy", f.remedy}});
  }
  for (const auto& f : t.faults) out["faults"].push_back(json_of(f));
  for (const auto& c : t.cells) out["cells"].push_back(json_of(c));
  for (const auto& i : t.injections) out["injections"].push_back(json_of(i));
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
  add("processes", t.processes);
  add("sessions", t.sessions);
  json += "\n}\n";
  if (json.size() > most) return std::nullopt;
  return json;
}

std::string to_json(const Timeline& t) { return to_json(t, SIZE_MAX).value_or(""); }

sys::Result<Timeline> timeline_from_json(std::string_view json) {
  if (json.size() > kLongestTimeline) return sys::fail("read timeline", EFBIG, "more than 256 MiB");
  const JsonFormat wanted = {
      std::string(kFormat), kTimelineVersion,
      "this is no recording of ctxconf (wrap --out DIR writes DIR/timeline.json)",
      ": record again with this ctxconf"};
  if (const auto why = JsonLimits::problem_of(json, wanted); !why.empty()) {
    return sys::fail("read timeline", EINVAL, why);
  }
  const OrderedJson value = OrderedJson::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object() || !value.contains("format")) {
    return sys::fail("read timeline", EINVAL, wanted.other_format);
  }
  if (!value.contains("version")) {
    return sys::fail("read timeline", EINVAL, "says no version of its format");
  }
  std::string problem;
  const JsonReader in(value, "", &problem);
  Timeline t;
  t.suite_version = in.string("suite_version");
  const std::string mode = in.string("mode");
  bool known = false;
  for (const Mode m : {Mode::kAttach, Mode::kWrap, Mode::kElf, Mode::kRun}) {
    if (to_string(m) != mode) continue;
    t.mode = m;
    known = true;
  }
  if (!known) in.complain("mode", "is none of run, wrap, attach and elf");
  t.target = in.strings("target");
  t.kernel = in.string("kernel");
  t.arch = in.string("arch");
  t.libc = in.string("libc");
  t.started_at = in.string("started_at");
  t.seconds = static_cast<double>(in.number<std::uint32_t>("milliseconds")) / 1000;
  t.page_size = in.number<std::uint64_t>("page_size", 1, std::uint64_t{1} << 30U);
  t.realtime_minus_boottime_ns = in.number<std::uint64_t>("realtime_minus_boottime_ns");
  t.host = in.list<sys::HostFact>("host", host_fact);
  t.faults_asked = in.boolean("faults_asked");
  t.injections = in.list<Injection>("injections", injection);
  t.clock_calls = in.boolean("clock_calls");
  t.watches_lifetime = in.boolean("watches_lifetime");
  t.expected_resource = in.strings("expected_resource");
  t.notes = in.strings("notes");
  t.stops = in.number<std::uint64_t>("stops");
  t.hang = in.string("hang");
  t.processes = in.list<Process>("processes", process);
  t.faults = in.list<FaultRun>("faults", fault_run);
  t.cells = in.list<FaultCell>("cells", fault_cell);
  t.sessions = in.list<Session>("sessions", session_from);
  t.skipped = in.list<SkippedCheck>("skipped", skipped_check_from);
  t.repeats = in.list<RepeatCount>("repeats", repeat_count);
  for (const auto& [name, ids] : id_lists(t)) {
    if (in.absent_or_null(name)) continue;
    *ids = in.strings(name);
    const bool of_traces = std::string_view(name).ends_with("trace_ids");
    const auto is_id = [&](const std::string& id) {
      return (of_traces ? trace_id_from(id) : span_id_from(id)) == id;
    };
    if (!std::ranges::all_of(*ids, is_id)) in.complain(name, "has one that is no id");
  }
  if (!in.absent_or_null("asked_for")) t.asked_for = in.strings("asked_for");
  t.partial = !in.absent_or_null("partial") && in.boolean("partial");
  if (!in.absent_or_null("reading")) {
    const auto reading = reading_from(in.string("reading"));
    if (!reading) in.complain("reading", "is neither reader-visible nor strict");
    t.reading = reading.value_or(Reading());
  }
  if (!in.absent_or_null("incomplete")) t.incomplete = in.string("incomplete");
  t.harness_fault = in.string("harness_fault");
  check_session_numbers(in, t);
  check_views(in, t);
  check_cells(in, t);
  if (!problem.empty()) return sys::fail("read timeline", EINVAL, problem);
  return t;
}

}  // namespace ctxconf::conformance
