#include "conformance/rules/reader_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostCalls = 12;  // that a finding lists

// ---- what a finding shows

std::string range_text(const MemoryRange& r) { return fmt::format("{:#x}+{}", r.at, r.size); }

// "process_vm_readv(4711) of 0x7f0000001000+32 (header) = 32"
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
  const Json reply = Json::parse(operation.reply, nullptr, false);
  f.evidence.push_back("it answered " + shown_answer(reply));
  add_calls(q, f.evidence);
  for (const ShownMemory& memory : q.shown) {
    if (!memory.bytes.empty()) f.hexdumps.push_back(dump_of(memory));
  }
}

Finding in_scene(const SceneEvidence& scene, const Operation& operation, Finding f) {
  f.level = "puppet";
  add_evidence(scene, operation, f);
  return f;
}

// ---- answers

Finding not_shown(const SceneEvidence& scene) {
  return unobservable(scene.scene->unshown, scene.scene->remedy);
}

Finding window_missed(const std::string& hold) {
  return unobservable(fmt::format("the moment \"{}\" did not come", hold),
                      "a reader whose reads of the target are system calls");
}

// The answers that the scene claims for the requirement.
std::optional<Finding> answers(const SceneEvidence& scene, std::string_view requirement) {
  std::optional<Finding> best;
  const auto is_worse = [&](const Finding& f) { return !best || f.outcome > best->outcome; };
  for (const Operation* operation : scene.operations) {
    const ReaderQuestion& q = *operation->question;
    for (const AnswerClaim& c : q.claims) {
      if (c.requirement != requirement || operation->reply.empty()) continue;
      const Json reply = Json::parse(operation->reply, nullptr, false);
      const auto problem = problem_with(c, reply, scene.traits);
      Finding f;
      if (!q.missed.empty()) {
        f = window_missed(q.missed.front());
      } else if (problem.empty()) {
        f = passed();
        f.level = "puppet";
      } else {
        f = c.info ? info(problem, c.otherwise) : failed(problem, c.otherwise);
        f.saw = c.otherwise + ": " + problem;
        f = in_scene(scene, *operation, std::move(f));
      }
      if (is_worse(f)) best = std::move(f);
    }
  }
  const auto is_named = [&](const std::string& id) { return id == requirement; };
  if (!best && !scene.scene->unshown.empty() &&
      std::ranges::any_of(scene.scene->requirements, is_named)) {
    return not_shown(scene);
  }
  return best;
}

// ---- the list

constexpr ReaderRule kRules[] = {
    {.id = "pctx.reader.name-anon-shmem", .rule = answers, .trait = {}},
    {.id = "pctx.reader.name-anon", .rule = answers, .trait = {}},
    {.id = "pctx.reader.name-memfd", .rule = answers, .trait = {}},
    {.id = "pctx.reader.name-prefix-only", .rule = answers, .trait = {}},
    {.id = "pctx.reader.name-suffix", .rule = answers, .trait = {}},
    {.id = "pctx.reader.signature-eight-bytes", .rule = answers, .trait = {}},
    {.id = "pctx.reader.version-supported", .rule = answers, .trait = {}},
    {.id = "pctx.reader.mapping-established", .rule = answers, .trait = {}},
    {.id = "pctx.reader.skip-and-continue", .rule = answers, .trait = {}},
    {.id = "pctx.reader.two-valid-contexts", .rule = answers, .trait = {}},
    {.id = "pctx.reader.skip-not-forever", .rule = answers, .trait = {}},
    {.id = "pctx.reader.late-publication", .rule = answers, .trait = {}},
    {.id = "pctx.reader.hook-not-only-source", .rule = answers, .trait = {}},
    {.id = "pctx.reader.many-mappings", .rule = answers, .trait = {}},
    {.id = "pctx.reader.no-context", .rule = answers, .trait = {}},
    {.id = "pctx.reader.no-permission", .rule = answers, .trait = {}},
    {.id = "pctx.reader.default-detection", .rule = answers, .trait = "defaults"},
    {.id = "pctx.reader.survives-bad-header", .rule = answers, .trait = {}},
    {.id = "pctx.reader.payload-size-bounded", .rule = answers, .trait = {}},
    {.id = "pctx.reader.zero-timestamp-not-used", .rule = answers, .trait = {}},
    {.id = "pctx.reader.retries-after-zero", .rule = answers, .trait = {}},
    {.id = "pctx.reader.bounded-retry", .rule = answers, .trait = {}},
    {.id = "pctx.reader.timestamp-before-fields", .rule = answers, .trait = {}},
    {.id = "pctx.reader.fresh-pointer", .rule = answers, .trait = {}},
    {.id = "pctx.reader.follows-pointer", .rule = answers, .trait = {}},
    {.id = "pctx.reader.rereads-timestamp", .rule = answers, .trait = {}},
    {.id = "pctx.reader.any-difference-counts", .rule = answers, .trait = {}},
    {.id = "pctx.reader.decode-after-check", .rule = answers, .trait = {}},
    {.id = "pctx.reader.fault-during-copy", .rule = answers, .trait = {}},
    {.id = "pctx.reader.reads-memory-not-file", .rule = answers, .trait = {}},
    {.id = "pctx.reader.fallible-remote-reads", .rule = answers, .trait = {}},
    {.id = "pctx.reader.new-timestamp-new-read", .rule = answers, .trait = {}},
    {.id = "pctx.reader.timestamp-opaque", .rule = answers, .trait = {}},
    {.id = "pctx.reader.target-may-be-stopped", .rule = answers, .trait = {}},
    {.id = "pctx.reader.exec-drops-context", .rule = answers, .trait = {}},
    {.id = "pctx.reader.reused-address", .rule = answers, .trait = {}},
    {.id = "pctx.reader.applies-to-this-process", .rule = answers, .trait = {}},
    {.id = "pctx.reader.decodes-process-context", .rule = answers, .trait = {}},
    {.id = "pctx.reader.resource-absent", .rule = answers, .trait = {}},
    {.id = "pctx.reader.unknown-fields-skipped", .rule = answers, .trait = {}},
    {.id = "pctx.reader.any-field-order", .rule = answers, .trait = {}},
    {.id = "pctx.reader.unusual-encodings", .rule = answers, .trait = {}},
    {.id = "pctx.reader.any-value-kinds", .rule = answers, .trait = {}},
    {.id = "pctx.reader.no-required-attributes", .rule = answers, .trait = {}},
    {.id = "pctx.reader.empty-payload", .rule = answers, .trait = {}},
    {.id = "pctx.reader.duplicate-keys", .rule = answers, .trait = {}},
    {.id = "pctx.reader.survives-bad-payload", .rule = answers, .trait = {}},
    {.id = "pctx.reader.byte-order", .rule = answers, .trait = {}},
    {.id = "pctx.reader.thirty-two-bit-target", .rule = answers, .trait = {}},
    {.id = "tctx.reader.model-tlsdesc", .rule = answers, .trait = {}},
    {.id = "tctx.reader.model-general-dynamic", .rule = answers, .trait = {}},
    {.id = "tctx.reader.model-initial-exec", .rule = answers, .trait = {}},
    {.id = "tctx.reader.model-local-exec", .rule = answers, .trait = {}},
    {.id = "tctx.reader.all-modules", .rule = answers, .trait = {}},
    {.id = "tctx.reader.only-tls-definitions", .rule = answers, .trait = {}},
    {.id = "tctx.reader.several-definitions", .rule = answers, .trait = {}},
    {.id = "tctx.reader.unallocated-block", .rule = answers, .trait = {}},
    {.id = "tctx.reader.own-thread-pointer", .rule = answers, .trait = {}},
    {.id = "tctx.reader.defers-without-keys", .rule = answers, .trait = {}},
    {.id = "tctx.reader.late-reference-data", .rule = answers, .trait = {}},
    {.id = "tctx.reader.late-libraries", .rule = answers, .trait = {}},
    {.id = "tctx.reader.schema-other-mechanism", .rule = answers, .trait = {}},
    {.id = "tctx.reader.schema-unknown", .rule = answers, .trait = {}},
    {.id = "tctx.reader.schema-both-values", .rule = answers, .trait = {}},
    {.id = "tctx.reader.no-permission", .rule = answers, .trait = {}},
    {.id = "tctx.reader.fork-key-map", .rule = answers, .trait = {}},
    {.id = "tctx.reader.only-while-stopped", .rule = answers, .trait = {}},
    {.id = "tctx.reader.one-stop-per-sample", .rule = answers, .trait = {}},
    {.id = "tctx.reader.null-slot", .rule = answers, .trait = {}},
    {.id = "tctx.reader.record-layout", .rule = answers, .trait = {}},
    {.id = "tctx.reader.header-read-28", .rule = answers, .trait = {}},
    {.id = "tctx.reader.attrs-read-when-needed", .rule = answers, .trait = {}},
    {.id = "tctx.reader.valid-other-values", .rule = answers, .trait = {}},
    {.id = "tctx.reader.trace-flags", .rule = answers, .trait = {}},
    {.id = "tctx.reader.zero-ids-no-link", .rule = answers, .trait = {}},
    {.id = "tctx.reader.zero-ids-keep-attributes", .rule = answers, .trait = {}},
    {.id = "tctx.reader.half-ids", .rule = answers, .trait = {}},
    {.id = "tctx.reader.stop-at-short-entry", .rule = answers, .trait = {}},
    {.id = "tctx.reader.keep-before-short-entry", .rule = answers, .trait = {}},
    {.id = "tctx.reader.last-occurrence-wins", .rule = answers, .trait = {}},
    {.id = "tctx.reader.last-occurrence-odd", .rule = answers, .trait = {}},
    {.id = "tctx.reader.unknown-index-ignored", .rule = answers, .trait = {}},
    {.id = "tctx.reader.unknown-index-refreshes", .rule = answers, .trait = {}},
    {.id = "tctx.reader.index-by-position", .rule = answers, .trait = {}},
    {.id = "tctx.reader.key-map-missing", .rule = answers, .trait = {}},
    {.id = "tctx.reader.key-map-over-256", .rule = answers, .trait = {}},
    {.id = "tctx.reader.zero-length-value", .rule = answers, .trait = {}},
    {.id = "tctx.reader.bytes-beyond-size", .rule = answers, .trait = {}},
    {.id = "tctx.reader.large-record-survives", .rule = answers, .trait = {}},
    {.id = "tctx.reader.large-record-ids", .rule = answers, .trait = {}},
    {.id = "tctx.reader.survives-bad-pointer", .rule = answers, .trait = {}},
    {.id = "tctx.reader.bad-utf8", .rule = answers, .trait = {}},
    {.id = "tctx.reader.byte-order", .rule = answers, .trait = {}},
    {.id = "tctx.reader.authoritative", .rule = answers, .trait = "second_source"},
};

}  // namespace

std::vector<SceneEvidence> scenes_of(const Session& session) {
  const Json hello = Json::parse(session.hello, nullptr, false);
  const ReaderTraits traits(hello.is_object() ? hello.value("caps", Json::object())
                                              : Json::object());
  std::vector<SceneEvidence> out;
  for (std::size_t i = 0; i < session.checks.size(); ++i) {
    SceneEvidence scene;
    scene.session = &session;
    scene.scene = &session.checks[i];
    scene.traits = traits;
    for (const Operation& o : session.operations) {
      if (o.check == i && o.question) scene.operations.push_back(&o);
    }
    out.push_back(std::move(scene));
  }
  return out;
}

std::span<const ReaderRule> reader_rules() { return kRules; }

const ReaderRule* reader_rule_of(std::string_view id) {
  const auto rules = reader_rules();
  const auto it = std::ranges::find(rules, id, &ReaderRule::id);
  return it == rules.end() ? nullptr : &*it;
}

}  // namespace ctxconf::conformance
