#include "conformance/rules/reader_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "conformance/rules/rule.h"
#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostCalls = 12;  // that a finding lists

std::string range_text(const MemoryRange& r) { return fmt::format("{:#x}+{}", r.at, r.size); }

void add_calls(const ReaderQuestion& q, std::vector<std::string>& lines) {
  if (q.calls.empty()) return;
  lines.push_back(fmt::format("{} of the reader's calls:", q.calls.size()));
  for (std::size_t i = 0; i < std::min(kMostCalls, q.calls.size()); ++i) {
    lines.push_back("  " + call_text(q.calls[i], q));
  }
  if (q.calls.size() > kMostCalls) lines.emplace_back("  ...");
}

Hexdump dump_of(const ShownMemory& memory) {
  Hexdump out;
  out.title = fmt::format("{} at {:#x}", memory.name, memory.at);
  out.address = memory.at;
  for (const std::byte b : memory.bytes) out.bytes.push_back(std::to_integer<std::uint8_t>(b));
  return out;
}

// What the reader was shown, and what it made of it.
void add_evidence(const SceneEvidence& scene, const Operation& operation, Finding& f) {
  const ReaderQuestion& q = *operation.question;
  f.evidence.push_back(fmt::format("scene {}/{}", scene.session->group, scene.scene->name));
  const Json reply = value_of_kept_line(operation.reply);
  f.evidence.push_back(operation.reply.empty() ? "it did not answer"
                                               : "it answered " + shown_answer(reply));
  add_calls(q, f.evidence);
  for (const ShownMemory& memory : q.shown) {
    if (!memory.bytes.empty()) f.hexdumps.push_back(dump_of(memory));
  }
}

Finding not_shown(const SceneEvidence& scene) {
  return unobservable(scene.scene->unshown, scene.scene->remedy);
}

// The reader refuses a payload that is larger than its adapter says it takes.
bool is_beyond_limit(const Operation& operation, const ReaderTraits& traits) {
  const ShownMemory* const payload = shown(*operation.question, "payload");
  return payload != nullptr && payload->size > traits.number("payload_bytes", payload->size) &&
         has_result(operation, "reject");
}

std::string not_started(std::int64_t pid) {
  return fmt::format(
      "process {}, which reads, existed before the adapter started: its system calls are not seen",
      pid);
}
constexpr const char* kStartIt = "an adapter that starts the process that reads";

Finding window_missed(const SceneEvidence& scene, const std::string& hold) {
  const auto& foreign = scene.foreign_reader;
  return unobservable(fmt::format("the moment \"{}\" was not reached{}", hold,
                                  foreign ? ": " + not_started(*foreign) : std::string()),
                      foreign ? kStartIt : "a reader whose reads of the target are system calls");
}

}  // namespace

std::string call_text(const ReaderCall& c, const ReaderQuestion& q) {
  std::string out = c.name;
  if (!c.detail.empty()) out += " " + c.detail;
  if (c.target != 0) out += fmt::format(" of {}", c.target);
  for (const MemoryRange& r : c.ranges) {
    out += " " + range_text(r);
    const auto part = std::ranges::find_if(
        q.shown, [&](const ShownMemory& s) { return r.touches({.at = s.at, .size = s.size}); });
    if (part != q.shown.end()) out += " (" + part->name + ")";
  }
  if (!c.state.empty()) out += ", thread state " + c.state;
  out += c.result ? fmt::format(" = {}", *c.result) : " did not return";
  if (!c.held.empty()) out += "; held: " + c.held;
  return out;
}

Finding in_scene(const SceneEvidence& scene, const Operation& operation, Finding f) {
  f.level = "puppet";
  add_evidence(scene, operation, f);
  return f;
}

std::optional<Finding> worse(std::optional<Finding> a, std::optional<Finding> b) {
  return !a || (b && b->outcome > a->outcome) ? std::move(b) : std::move(a);
}

std::optional<Finding> answers(const SceneEvidence& scene, std::string_view requirement) {
  std::optional<Finding> best;
  for (const Operation* operation : scene.operations) {
    const ReaderQuestion& q = *operation->question;
    for (const AnswerClaim& c : q.claims) {
      if (c.requirement != requirement || operation->reply.empty()) continue;
      const Json reply = value_of_kept_line(operation->reply);
      const auto problem = problem_with(c, reply, scene.traits);
      Finding f;
      if (is_beyond_limit(*operation, scene.traits)) {
        f = not_applicable(NaReason::kCapability,
                           "the payload is larger than the adapter declares as its limit");
      } else if (!q.missed.empty()) {
        f = window_missed(scene, q.missed.front());
      } else if (problem.empty()) {
        f = passed();
        f.level = "puppet";
      } else {
        f = c.info      ? info(problem, c.otherwise)
            : c.warning ? warned(problem, c.otherwise)
                        : failed(problem, c.otherwise);
        f.saw = c.otherwise + ": " + problem;
        f = in_scene(scene, *operation, std::move(f));
      }
      best = worse(std::move(best), std::move(f));
    }
  }
  const auto is_named = [&](const std::string& id) { return id == requirement; };
  if (!best && !scene.scene->unshown.empty() &&
      std::ranges::any_of(scene.scene->requirements, is_named)) {
    return not_shown(scene);
  }
  return best;
}

Finding no_reads(const SceneEvidence& scene) {
  if (scene.foreign_reader) return unobservable(not_started(*scene.foreign_reader), kStartIt);
  return unobservable("the reader made no system call that reads the target",
                      "a reader that reads by process_vm_readv, /proc/PID/mem or ptrace");
}

Finding at_syscalls(Finding f) {
  f.level = "syscalls";
  return f;
}

const ShownMemory* shown(const ReaderQuestion& q, std::string_view name) {
  const auto at = std::ranges::find(q.shown, name, &ShownMemory::name);
  return at == q.shown.end() ? nullptr : &*at;
}

bool has_result(const Operation& operation, std::string_view result) {
  const Json reply = value_of_kept_line(operation.reply);
  return reply.is_object() && reply.value("result", Json()) == Json(result);
}

bool is_copy(const ReaderCall& c) {
  if (!c.result || c.name == "mmap" || c.ranges.empty()) return false;
  // The kernel's ptrace stores the word, and returns 0.
  return *c.result > 0 || (c.name == "ptrace" && *c.result == 0);
}

std::vector<const ReaderCall*> reads_of(const ReaderQuestion& q, const MemoryRange& part) {
  std::vector<const ReaderCall*> out;
  for (const ReaderCall& c : q.calls) {
    if (!is_copy(c)) continue;
    const auto touches = [&](const MemoryRange& r) { return r.touches(part); };
    if (std::ranges::any_of(c.ranges, touches)) out.push_back(&c);
  }
  return out;
}

}  // namespace ctxconf::conformance
