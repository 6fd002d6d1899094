// Generated programs: a context and records in every legal shape, and all changes between them.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "conformance/puppet/generate.h"
#include "conformance/reader/message_content.h"
#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Moment;

Question about_context(const Moment& moment) {
  if (!moment.message) {
    Question q;
    q.claims = {claim("pctx.reader.no-context", not_used(),
                      "a context is reported that a generated program has withdrawn")};
    return q;
  }
  const Published p{
      .header = moment.header, .payload = moment.payload, .size = moment.message->size()};
  Question q = about_process(p, {claim("pctx.reader.decodes-process-context",
                                       {accept(content_of_message(*moment.message))},
                                       "the context of a generated program is not reported")});
  q.attempts = kAttempts;
  return q;
}

Question about_record(const puppet::ThreadScript::Visible& visible, const Moment& moment) {
  Question q;
  q.about = Question::About::kThread;
  q.thread = visible.thread;
  q.claims = {claim("tctx.reader.record-layout",
                    {accept(content_of_record(visible.bytes, moment.names))},
                    "the record of a thread of a generated program is not reported")};
  q.shown = {{"record", {visible.record, visible.bytes.size()}}};
  q.attempts = kAttempts;
  return q;
}

Scene generated(std::uint64_t seed, std::uint64_t index, const puppet::Surroundings& host) {
  puppet::Plan plan = puppet::generate(seed, index, /*deviant=*/false, host).plan;
  plan.cut.reset();
  plan.exits = false;
  std::vector<Moment> moments;
  Scene out;
  out.script = puppet::script_of(plan, &moments);
  out.name = fmt::format("generated-{:x}-{}", seed, index);
  out.about = fmt::format("program {} of the seed {:x}", index, seed);
  out.needs = {"reader.process|reader.watch"};
  out.requirements = {"pctx.reader.no-context", "pctx.reader.decodes-process-context"};
  out.rests_on = {Premise::kInline,        Premise::kElsewhere,  Premise::kKinds,
                  Premise::kFewAttributes, Premise::kNoResource, Premise::kField2,
                  Premise::kOtherOrder,    Premise::kAfterZero,  Premise::kUpdate,
                  Premise::kUpdateInPlace};
  std::size_t played = 0;
  bool lacks_context = false;
  for (const Moment& moment : moments) {
    if (moment.operations > played) out.acts.emplace_back(Play{{played, moment.operations}});
    played = moment.operations;
    // A reader may wait for a while each time it finds a timestamp of zero.
    if (moment.message || !lacks_context) out.acts.emplace_back(about_context(moment));
    lacks_context = !moment.message;
    for (const auto& record : moment.records) out.acts.emplace_back(about_record(record, moment));
  }
  return out;
}

}  // namespace

SceneGroup generated_scenes(std::uint64_t count, std::uint64_t seed, bool host_names_memory) {
  SceneGroup out;
  out.name = "generated";
  const puppet::Surroundings host{.names_anonymous = host_names_memory};
  for (std::uint64_t i = 0; i < count; ++i) out.scenes.push_back(generated(seed, i, host));
  return out;
}

}  // namespace ctxconf::conformance::reader
