#include "conformance/rules/reader_thread_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/rules/reader_findings.h"
#include "conformance/rules/repetitions.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kFixed = abi::kRecordHeadBytes;
constexpr std::uint64_t kWord = 8;

// The memory of the thread that a question is about.
struct Places {
  MemoryRange slot;
  MemoryRange fixed;
  MemoryRange area;  // of the attributes
};

std::optional<Places> places_of(const ReaderQuestion& q) {
  const ShownMemory* const slot = shown(q, "slot");
  const ShownMemory* const record = shown(q, "record");
  if (slot == nullptr || record == nullptr) return std::nullopt;
  return Places{.slot = {slot->at, slot->size},
                .fixed = {record->at, kFixed},
                .area = {record->at + kFixed, record->size - std::min(record->size, kFixed)}};
}

bool touches(const ReaderCall& c, const MemoryRange& part) {
  return std::ranges::any_of(c.ranges, [&](const MemoryRange& r) { return r.touches(part); });
}

bool concerns(const ReaderCall& c, const Places& p) {
  return is_copy(c) && (touches(c, p.slot) || touches(c, p.fixed) || touches(c, p.area));
}

// The thread of the question counts all the time. A frozen thread does not, and has no state of its
// own.
bool is_running(const ReaderCall& c) { return c.state == "R" || c.ran_before != c.ran_after; }

// The questions about a thread that counts, in which the reader read its slot or record.
struct Sample {
  const Operation* operation = nullptr;
  Places places;
  std::vector<const ReaderCall*> reads;
};

struct Samples {
  std::vector<Sample> all;
  bool unseen = false;   // there was an answer, and no read
  bool dropped = false;  // calls over the limit were not kept
};

Samples samples_of(const SceneEvidence& scene) {
  Samples out;
  for (const Operation* operation : scene.operations) {
    const ReaderQuestion& q = *operation->question;
    const auto places = places_of(q);
    if (!q.counted || !places) continue;
    Sample s{.operation = operation, .places = *places, .reads = {}};
    for (const ReaderCall& c : q.calls) {
      if (concerns(c, *places)) s.reads.push_back(&c);
    }
    out.dropped = out.dropped || q.calls_dropped > 0;
    if (!s.reads.empty()) {
      out.all.push_back(std::move(s));
    } else {
      out.unseen = out.unseen || has_result(*operation, "accept");
    }
  }
  return out;
}

// The finding if no sample is wrong.
std::optional<Finding> nothing_wrong(const SceneEvidence& scene, const Samples& samples) {
  if (samples.dropped) {
    return unobservable(kTooManyCalls, "fewer threads");
  }
  if (!samples.all.empty()) return at_syscalls(passed());
  if (samples.unseen) return no_reads(scene);
  return std::nullopt;
}

// What a reader that reads threads that run gets wrong is mentioned, if it says so.
std::optional<Finding> as_declared(std::optional<Finding> f, const ReaderTraits& traits) {
  if (f && f->outcome == Outcome::kFail && traits.says("unsynchronised")) {
    f->outcome = Outcome::kInfo;
  }
  return f;
}

std::optional<Finding> only_while_stopped(const SceneEvidence& scene, std::string_view id) {
  const Samples samples = samples_of(scene);
  for (const Sample& s : samples.all) {
    const auto read =
        std::ranges::find_if(s.reads, [](const ReaderCall* c) { return is_running(*c); });
    if (read == s.reads.end()) continue;
    const std::string saw =
        "it read while the thread was running: " + call_text(**read, *s.operation->question);
    Finding f = failed(saw, "the thread is read while it runs");
    return as_declared(at_syscalls(in_scene(scene, *s.operation, std::move(f))), scene.traits);
  }
  return worse(nothing_wrong(scene, samples), as_declared(answers(scene, id), scene.traits));
}

// Whether the call lets the thread run.
bool continues(const ReaderCall& c, const ReaderQuestion& q) {
  constexpr std::array<std::string_view, 4> kRequests = {"PTRACE_CONT", "PTRACE_DETACH",
                                                         "PTRACE_SYSCALL", "PTRACE_SINGLESTEP"};
  if (c.target != q.thread && c.target != q.process) return false;
  if (c.detail == "SIGCONT") return true;
  return c.name == "ptrace" && c.target == q.thread && c.result == 0 &&
         std::ranges::find(kRequests, std::string_view(c.detail)) != kRequests.end();
}

// Nothing: each sample was read within one stop. A reader may start again in a later one.
std::optional<std::string> torn_sample(const Sample& s) {
  constexpr std::uint64_t kNever = UINT64_MAX;
  std::uint64_t stop = 0;
  std::uint64_t slot_in = kNever;   // the stop in which the slot was read
  std::uint64_t fixed_in = kNever;  // after that: the fixed part
  const ReaderCall* last = nullptr;
  const ReaderQuestion& q = *s.operation->question;
  for (const ReaderCall& c : q.calls) {
    if (continues(c, q)) ++stop;
    if (!concerns(c, s.places)) continue;
    if (last != nullptr && c.ran_before != last->ran_after) ++stop;
    last = &c;
    if (touches(c, s.places.slot)) {
      slot_in = stop;
      fixed_in = kNever;
    }
    if (touches(c, s.places.fixed)) {
      if (slot_in != kNever && fixed_in == kNever && slot_in != stop) {
        return "the thread ran between the read of its slot and that of its record: ";
      }
      fixed_in = stop;
    } else if (touches(c, s.places.area) && fixed_in != kNever && fixed_in != stop) {
      return "the thread ran between the read of ids and size and that of the attributes: ";
    }
  }
  return std::nullopt;
}

// The reads and what lets the thread run, in order.
std::string order_of(const Sample& s) {
  std::string out;
  for (const ReaderCall& c : s.operation->question->calls) {
    const bool runs = continues(c, *s.operation->question);
    if (!runs && !concerns(c, s.places)) continue;
    if (!out.empty()) out += ", ";
    out += runs                         ? c.detail
           : touches(c, s.places.slot)  ? "slot"
           : touches(c, s.places.fixed) ? "record"
                                        : "attributes";
    if (!runs) out += fmt::format(" at {}", c.ran_before);
  }
  return out;
}

// Judges the order of the reads, and whether an answer mixes two samples. Without recorded reads,
// answers that do not mix prove nothing.
std::optional<Finding> sampled_in_one_stop(const SceneEvidence& scene, std::string_view id) {
  const Samples samples = samples_of(scene);
  for (const Sample& s : samples.all) {
    if (std::ranges::any_of(s.reads, [](const ReaderCall* c) { return is_running(*c); })) {
      return unobservable("the thread was not stopped when it was read",
                          "a reader that satisfies tctx.reader.only-while-stopped");
    }
  }
  for (const Sample& s : samples.all) {
    const auto torn = torn_sample(s);
    if (!torn) continue;
    Finding f = failed(*torn + order_of(s), "a sample is read in more than one stop");
    return as_declared(at_syscalls(in_scene(scene, *s.operation, std::move(f))), scene.traits);
  }
  auto by_answers = as_declared(answers(scene, id), scene.traits);
  if (by_answers && by_answers->outcome == Outcome::kPass && samples.all.empty()) {
    by_answers = no_reads(scene);
  }
  return worse(nothing_wrong(scene, samples), std::move(by_answers));
}

std::optional<Finding> one_stop_per_sample(const SceneEvidence& scene, std::string_view id) {
  return with_repetition(sampled_in_one_stop(scene, id), scene);
}

// The first call that reads attributes without need; it may be the last of several pieces. A read
// of more than the fixed part does not count before the reader knows the size.
const ReaderCall* needless(const ReaderQuestion& q, const abi::ThreadRecordHead& head,
                           std::uint64_t area) {
  // A reader may use the recommended size of a record.
  const std::uint64_t most = head.valid == abi::kRecordValid
                                 ? area + std::max<std::uint64_t>(abi::kRecommendedRecordBytes,
                                                                  head.attrs_data_size + kWord)
                                 : area;
  std::uint64_t end = area;  // of the pieces until now
  for (const ReaderCall& c : q.calls) {
    for (const MemoryRange& r : c.ranges) {
      if (c.name == "mmap" || r.at < area || r.at > end + kWord) continue;
      end = std::max(end, r.at + r.size);
      if (end > most) return &c;
    }
  }
  return nullptr;
}

std::optional<Finding> attributes_when_needed(const SceneEvidence& scene, std::string_view id) {
  auto by_answers = answers(scene, id);
  for (const Operation* operation : scene.operations) {
    const ReaderQuestion& q = *operation->question;
    const auto is_about_this = [&](const AnswerClaim& c) { return c.requirement == id; };
    const ShownMemory* const record = shown(q, "record");
    if (record == nullptr) continue;
    const auto head = abi::decode_thread_record(record->bytes);
    if (!head || std::ranges::none_of(q.claims, is_about_this)) continue;
    const ReaderCall* const call = needless(q, *head, record->at + kFixed);
    if (call == nullptr) continue;
    Finding f = failed(
        (head->valid == abi::kRecordValid ? "it read more than the size says: "
                                          : "it read attributes of a record that is not valid: ") +
            call_text(*call, q),
        "attributes are read without need");
    return worse(std::move(by_answers), at_syscalls(in_scene(scene, *operation, std::move(f))));
  }
  return by_answers;
}

// Attributes of large records are only mentioned, and a reader may declare that it leaves them out.
std::optional<Finding> large_record_ids(const SceneEvidence& scene, std::string_view id) {
  auto f = answers(scene, id);
  const bool declared = scene.traits.number("attribute_bytes", UINT64_MAX) != UINT64_MAX;
  if (f && f->outcome == Outcome::kInfo && declared) return passed();
  return f;
}

constexpr ReaderRule kThreadRules[] = {
    {.id = "tctx.reader.only-while-stopped", .rule = only_while_stopped, .trait = {}},
    {.id = "tctx.reader.one-stop-per-sample", .rule = one_stop_per_sample, .trait = {}},
    {.id = "tctx.reader.attrs-read-when-needed", .rule = attributes_when_needed, .trait = {}},
    {.id = "tctx.reader.large-record-ids", .rule = large_record_ids, .trait = {}},
};

}  // namespace

std::span<const ReaderRule> reader_thread_rules() { return kThreadRules; }

}  // namespace ctxconf::conformance
