#include "conformance/rules/reader_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "conformance/rules/reader_findings.h"
#include "conformance/rules/reader_thread_rules.h"
#include "conformance/rules/repetitions.h"
#include "conformance/rules/rule.h"
#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

// ---- reads, level syscalls

// The reads of one question about a process context that was answered with its content.
struct ContextReads {
  bool asked = false;  // these are all reads of the answer; otherwise of looks that begin before it
  std::vector<const ReaderCall*> timestamp;
  std::vector<const ReaderCall*> fields;  // pointer and size
  std::vector<const ReaderCall*> payload;
};

// Nothing: the question is not about a context, or the reader answered from what it knew.
std::optional<ContextReads> context_reads(const Operation& operation) {
  const ReaderQuestion& q = *operation.question;
  const ShownMemory* const header = shown(q, "header");
  const ShownMemory* const payload = shown(q, "payload");
  if (header == nullptr || payload == nullptr || !has_result(operation, "accept")) return {};
  // Where the target was moved meanwhile, the payload may be elsewhere.
  const auto is_held = [](const ReaderCall& c) { return !c.held.empty(); };
  if (std::ranges::any_of(q.calls, is_held)) return {};
  constexpr std::uint64_t kTimestamp = 16;
  constexpr std::uint64_t kPointer = 24;
  constexpr std::uint64_t kWord = 8;
  const Json request = value_of_kept_line(operation.request);
  ContextReads out{.asked = request.is_object() && request.value("op", Json()) == "reader.process",
                   .timestamp = reads_of(q, {header->at + kTimestamp, kWord}),
                   .fields = reads_of(q, {header->at + kPointer, kWord}),
                   .payload = reads_of(q, {payload->at, payload->size})};
  if (!out.asked) {
    // What comes before the first timestamp is of a look that had begun.
    const ReaderCall* const first = out.timestamp.empty() ? nullptr : out.timestamp.front();
    const auto is_before = [&](const ReaderCall* c) { return first == nullptr || c < first; };
    std::erase_if(out.fields, is_before);
    std::erase_if(out.payload, is_before);
  }
  return out;
}

bool has_reads(const SceneEvidence& scene) {
  return std::ranges::any_of(scene.operations, [](const Operation* o) {
    return std::ranges::any_of(o->question->calls, [](const ReaderCall& c) {
      return !c.ranges.empty() && c.name != "mmap";
    });
  });
}

// Judges each question of the scene that was answered with a context. `asked`: not those whose
// answer a reader gives by itself.
template <class Problem>
std::optional<Finding> over_reads(const SceneEvidence& scene, bool asked, Problem problem_of) {
  bool judged = false;
  bool unseen = false;
  bool dropped = false;
  for (const Operation* operation : scene.operations) {
    const auto reads = context_reads(*operation);
    if (!reads) continue;
    if (!has_reads(scene)) {
      unseen = true;
      continue;
    }
    if (reads->payload.empty() || (asked && !reads->asked)) continue;
    // What was not kept may be the read that is missed.
    if (operation->question->calls_dropped > 0) {
      dropped = true;
      continue;
    }
    judged = true;
    if (auto f = problem_of(*operation, *reads))
      return at_syscalls(in_scene(scene, *operation, *f));
  }
  if (judged) return at_syscalls(passed());
  if (unseen) return no_reads(scene);
  if (dropped) return unobservable(kTooManyCalls, kTooManyCallsRemedy);
  return std::nullopt;
}

// What the reads say, and the answers. These alone do not show how the reader reads.
std::optional<Finding> with_answers(std::optional<Finding> by_reads, const SceneEvidence& scene,
                                    std::string_view id) {
  auto by_answers = answers(scene, id);
  if (!by_reads && by_answers && !has_reads(scene)) {
    by_reads = no_reads(scene);
  }
  return worse(std::move(by_reads), std::move(by_answers));
}

std::optional<Finding> timestamp_before_fields(const SceneEvidence& scene, std::string_view id) {
  auto by_reads = over_reads(
      scene, /*asked=*/false,
      [](const Operation&, const ContextReads& reads) -> std::optional<Finding> {
        const std::string signature = "the timestamp is not read before pointer and size";
        if (reads.timestamp.empty()) return failed("the timestamp was not read", signature);
        if (reads.fields.empty()) return std::nullopt;
        const auto* const first = reads.timestamp.front();
        if (first > reads.fields.front()) {
          return failed("pointer and size were read before the timestamp", signature);
        }
        if (reads.fields.front() > reads.payload.front()) {
          return failed("the payload was read before pointer and size", signature);
        }
        return std::nullopt;
      });
  return with_answers(std::move(by_reads), scene, id);
}

// The next look of a reader that polls reads the timestamp as well, so that its reads say nothing.
std::optional<Finding> rereads_timestamp(const SceneEvidence& scene, std::string_view id) {
  auto by_reads =
      over_reads(scene, /*asked=*/true,
                 [](const Operation&, const ContextReads& reads) -> std::optional<Finding> {
                   if (!reads.timestamp.empty() && reads.timestamp.back() > reads.payload.back())
                     return {};
                   return failed("the timestamp was not read again after the payload",
                                 "no second look at the timestamp");
                 });
  return with_repetition(with_answers(std::move(by_reads), scene, id), scene);
}

// Any way of reading another process that gives an error instead of a fault.
std::optional<Finding> fallible_remote_reads(const SceneEvidence& scene, std::string_view /*id*/) {
  std::map<std::string, std::size_t> used;
  bool accepts = false;
  for (const Operation* operation : scene.operations) {
    if (operation->question->process == 0) continue;  // about bytes that it was given
    accepts = accepts || has_result(*operation, "accept");
    for (const ReaderCall& c : operation->question->calls) {
      if (c.name == "mmap") {
        return at_syscalls(in_scene(
            scene, *operation,
            failed("it maps " + c.detail, "the target's memory is mapped and not copied")));
      }
      if (!c.ranges.empty()) ++used[c.name];
    }
  }
  if (!accepts) return std::nullopt;
  if (used.empty()) return no_reads(scene);
  std::string all;
  for (const auto& [name, count] : used) {
    all += fmt::format("{}{} times {}", all.empty() ? "" : ", ", count, name);
  }
  return at_syscalls(passed(all));
}

// ---- what a question costs

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20U;
constexpr std::uint64_t kUsualMemory = 64 * kMebibyte;  // where the adapter declares no limit
constexpr std::uint64_t kMostProcessorNs = 500'000'000;

std::optional<MemoryExcess> excess_of(const ReaderQuestion& q, const ReaderTraits& traits) {
  const std::uint64_t limit = traits.number("memory_bytes", kUsualMemory);
  if (q.peak_bytes <= q.before_bytes || q.peak_bytes - q.before_bytes <= limit) return {};
  return MemoryExcess{.used_bytes = q.peak_bytes - q.before_bytes, .limit_bytes = limit};
}

std::optional<Finding> payload_size_bounded(const SceneEvidence& scene, std::string_view id) {
  auto f = answers(scene, id);
  if (!f || f->outcome != Outcome::kPass) return f;
  for (const Operation* operation : scene.operations) {
    if (operation->question->claims.empty()) continue;
    const auto excess = excess_of(*operation->question, scene.traits);
    if (!excess) continue;
    return in_scene(
        scene, *operation,
        failed(fmt::format("it used {} MiB more memory for the answer; its limit is {} MiB",
                           excess->used_bytes / kMebibyte, excess->limit_bytes / kMebibyte),
               "memory grows with the size field"));
  }
  return f;
}

std::optional<Finding> bounded_retry(const SceneEvidence& scene, std::string_view id) {
  auto f = answers(scene, id);
  if (!f || f->outcome != Outcome::kPass) return f;
  for (const Operation* operation : scene.operations) {
    const ReaderQuestion& q = *operation->question;
    if (q.claims.empty() || q.processor_ns <= kMostProcessorNs) continue;
    return in_scene(
        scene, *operation,
        failed(fmt::format("it used the processor for {} ms", q.processor_ns / 1'000'000),
               "a context that is not ready keeps the processor busy"));
  }
  return f;
}

// Why no scene shows it, on any host that ctxconf runs on.
std::optional<Finding> other_byte_order(const SceneEvidence& /*scene*/, std::string_view /*id*/) {
  return unobservable("processes of the other byte order do not run on this machine",
                      "a machine with big-endian numbers");
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
    {.id = "pctx.reader.payload-size-bounded", .rule = payload_size_bounded, .trait = {}},
    {.id = "pctx.reader.zero-timestamp-not-used", .rule = answers, .trait = {}},
    {.id = "pctx.reader.retries-after-zero", .rule = answers, .trait = {}},
    {.id = "pctx.reader.bounded-retry", .rule = bounded_retry, .trait = {}},
    {.id = "pctx.reader.timestamp-before-fields", .rule = timestamp_before_fields, .trait = {}},
    {.id = "pctx.reader.fresh-pointer", .rule = answers, .trait = {}},
    {.id = "pctx.reader.follows-pointer", .rule = answers, .trait = {}},
    {.id = "pctx.reader.rereads-timestamp", .rule = rereads_timestamp, .trait = {}},
    {.id = "pctx.reader.any-difference-counts", .rule = answers, .trait = {}},
    {.id = "pctx.reader.decode-after-check", .rule = answers, .trait = {}},
    {.id = "pctx.reader.fault-during-copy", .rule = answers, .trait = {}},
    {.id = "pctx.reader.reads-memory-not-file", .rule = answers, .trait = {}},
    {.id = "pctx.reader.fallible-remote-reads", .rule = fallible_remote_reads, .trait = {}},
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
    {.id = "pctx.reader.byte-order", .rule = other_byte_order, .trait = {}},
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
    {.id = "tctx.reader.null-slot", .rule = answers, .trait = {}},
    {.id = "tctx.reader.record-layout", .rule = answers, .trait = {}},
    {.id = "tctx.reader.header-read-28", .rule = answers, .trait = {}},
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
    {.id = "tctx.reader.survives-bad-pointer", .rule = answers, .trait = {}},
    {.id = "tctx.reader.bad-utf8", .rule = answers, .trait = {}},
    {.id = "tctx.reader.byte-order", .rule = other_byte_order, .trait = {}},
    {.id = "tctx.reader.authoritative", .rule = answers, .trait = "second_source"},
};

std::optional<std::int64_t> foreign_reader(const Json& hello, std::int64_t adapter) {
  if (!hello.is_object() || !hello.contains("pid") || !hello["pid"].is_number_integer()) return {};
  const auto pid = hello["pid"].get<std::int64_t>();
  return pid == adapter ? std::nullopt : std::optional(pid);
}

}  // namespace

std::vector<SceneEvidence> scenes_of(const Session& session) {
  const Json hello = value_of_kept_line(session.hello);
  const ReaderTraits traits(hello.is_object() ? hello.value("caps", Json::object())
                                              : Json::object());
  const auto foreign = foreign_reader(hello, session.root.pid);
  std::vector<SceneEvidence> out;
  for (const CheckRun& check : session.checks) {
    SceneEvidence& scene = out.emplace_back();
    scene.session = &session;
    scene.scene = &check;
    scene.traits = traits;
    scene.foreign_reader = foreign;
  }
  for (const Operation& o : session.operations) {
    if (o.check < out.size() && o.question) out[o.check].operations.push_back(&o);
  }
  return out;
}

std::vector<SceneEvidence> scenes_of(const Timeline& timeline) {
  std::vector<SceneEvidence> out;
  if (timeline.mode != Mode::kReader) return out;
  for (const Session& s : timeline.sessions) {
    std::ranges::move(scenes_of(s), std::back_inserter(out));
  }
  return out;
}

std::optional<MemoryExcess> memory_excess(const SceneEvidence& scene) {
  const auto is_about_memory = [](const AnswerClaim& c) {
    const ReaderRule* const rule = reader_rule_of(c.requirement);
    return rule != nullptr && rule->rule == payload_size_bounded;
  };
  std::optional<MemoryExcess> most;
  for (const Operation* operation : scene.operations) {
    const ReaderQuestion& q = *operation->question;
    if (std::ranges::any_of(q.claims, is_about_memory)) continue;
    const auto excess = excess_of(q, scene.traits);
    if (excess && (!most || excess->used_bytes > most->used_bytes)) most = excess;
  }
  return most;
}

std::span<const ReaderRule> reader_rules() {
  static const auto* const kAll = [] {
    auto* const all = new std::vector<ReaderRule>(std::begin(kRules), std::end(kRules));
    const auto threads = reader_thread_rules();
    all->insert(all->end(), threads.begin(), threads.end());
    return all;
  }();
  return *kAll;
}

const ReaderRule* reader_rule_of(std::string_view id) {
  const auto rules = reader_rules();
  const auto it = std::ranges::find(rules, id, &ReaderRule::id);
  return it == rules.end() ? nullptr : &*it;
}

}  // namespace ctxconf::conformance
