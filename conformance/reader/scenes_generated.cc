// Generated programs: a context and records in every legal shape, and all changes between them.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/puppet/generate.h"
#include "conformance/reader/message_content.h"
#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Moment;

constexpr const char* kDecodes = "pctx.reader.decodes-process-context";
constexpr const char* kNoContext = "pctx.reader.no-context";
constexpr const char* kLayout = "tctx.reader.record-layout";

Question about_context(const Moment& moment) {
  const Published p{
      .header = moment.header, .payload = moment.payload, .size = moment.message->size()};
  Question q = about_process(p, {});
  q.process = moment.child;
  q.attempts = kAttempts;
  return q;
}

// Nothing else is asked of a reader that does not find what has just been published, or not in this
// encoding: other scenes show that.
Question must_find(Question q, const char* requirement, AllowedAnswer answer) {
  q.premise = claim(requirement, {std::move(answer)},
                    "the reader does not report what a generated program has just published");
  return q;
}

Question about_record(const puppet::ThreadScript::Visible& visible, const Moment& moment) {
  Question q;
  q.about = Question::About::kThread;
  q.process = moment.child;
  q.thread = visible.thread;
  q.shown = {{"record", {visible.record, visible.bytes.size()}}};
  q.attempts = kAttempts;
  return q;
}

Scene begin(const std::string& name, const std::string& about, const puppet::Script& script) {
  Scene out;
  out.name = name;
  out.about = about;
  out.script = script;
  out.rests_on = {Premise::kInline,        Premise::kElsewhere,    Premise::kKinds,
                  Premise::kFewAttributes, Premise::kNoResource,   Premise::kField2,
                  Premise::kOtherOrder,    Premise::kSkipsInvalid, Premise::kAfterZero,
                  Premise::kUpdate,        Premise::kUpdateInPlace};
  return out;
}

// Plays what comes before the moment.
void play_to(const Moment& moment, std::size_t& played, Scene& scene) {
  if (moment.operations <= played) return;
  scene.acts.emplace_back(Play{{played, moment.operations}});
  played = moment.operations;
}

Scene contexts_of(Scene out, const std::vector<Moment>& moments) {
  out.needs = {"reader.process|reader.watch"};
  out.requirements = {kDecodes, kNoContext};
  std::size_t played = 0;
  const Moment* before = nullptr;
  for (const Moment& moment : moments) {
    play_to(moment, played, out);
    if (moment.message) {
      const AllowedAnswer right = accept(content_of_message(*moment.message));
      const bool is_new = before == nullptr || !before->message || before->child != moment.child;
      if (is_new) out.acts.emplace_back(must_find(about_context(moment), kDecodes, accept()));
      if (moment.unusual_encoding) {
        out.acts.emplace_back(
            must_find(about_context(moment), "pctx.reader.unusual-encodings", right));
      }
      Question q = about_context(moment);
      q.claims = {claim(kDecodes, {right}, "the answer is not what a generated program publishes")};
      out.acts.emplace_back(std::move(q));
    } else if (moment.unmapped &&
               (before == nullptr || before->message || before->child != moment.child)) {
      Question q;
      q.process = moment.child;
      q.claims = {claim(kNoContext, not_used(),
                        "a context is reported although the program has none at this moment")};
      out.acts.emplace_back(std::move(q));
    }
    before = &moment;
  }
  return out;
}

// The ids and, of a record with names, the attributes. A reader may leave out those of a record
// that is larger than recommended.
std::string shown_content(const puppet::ThreadScript::Visible& visible, const Moment& moment) {
  const bool names = !moment.names.empty() && visible.bytes.size() <= abi::kRecommendedRecordBytes;
  return content_of_record(visible.bytes, moment.names, names);
}

// It may change from one message to the next.
void needs_schema_of(const Moment& moment, Scene& out) {
  if (!moment.message) return;
  const std::string schema = schema_of_message(*moment.message);
  if (abi::is_thread_schema(schema)) add_new("reader.formats:" + schema, out.needs);
}

Scene records_of(Scene out, const std::vector<Moment>& moments) {
  out.needs = {"reader.thread|reader.watch_threads"};
  out.requirements = {kLayout};
  std::size_t played = 0;
  for (const Moment& moment : moments) {
    play_to(moment, played, out);
    for (const auto& record : moment.records) {
      // What a record without ids links to is undecided: open.tctx.attributes-without-trace.
      if (!has_ids(record.bytes)) continue;
      needs_schema_of(moment, out);
      out.acts.emplace_back(must_find(about_record(record, moment), kLayout, accept()));
      Question q = about_record(record, moment);
      q.claims = {claim(kLayout, {accept(shown_content(record, moment))},
                        "the answer is not what a thread of a generated program has attached")};
      out.acts.emplace_back(std::move(q));
    }
  }
  return out;
}

void add_scenes(std::uint64_t seed, std::uint64_t index, const puppet::Surroundings& host,
                std::vector<Scene>& out) {
  std::vector<Moment> moments;
  const puppet::Script script = puppet::generate_whole(seed, index, host, moments);
  const std::string name = fmt::format("generated-{:x}-{}", seed, index);
  const std::string about = fmt::format("program {} of the seed {:x}", index, seed);
  out.push_back(contexts_of(begin(name, about, script), moments));
  const bool has_records =
      std::ranges::any_of(moments, [](const Moment& m) { return !m.records.empty(); });
  if (has_records) {
    out.push_back(
        records_of(begin(name + "-threads", about + ", and its threads", script), moments));
  }
}

}  // namespace

SceneGroup generated_scenes(std::uint64_t count, std::uint64_t seed, bool host_names_memory) {
  SceneGroup out;
  out.name = "generated";
  const puppet::Surroundings host{.names_anonymous = host_names_memory};
  for (std::uint64_t i = 0; i < count; ++i) add_scenes(seed, i, host, out.scenes);
  return out;
}

}  // namespace ctxconf::conformance::reader
