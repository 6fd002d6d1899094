#include "conformance/reader/scene.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ctxconf::conformance::reader {
namespace {

std::string comment_on(const Question& q) {
  switch (q.about) {
    case Question::About::kProcess:
      return "# the reader is asked about the process\n";
    case Question::About::kThread:
      return "# the reader is asked about a thread\n";
    case Question::About::kRecord:
      return "# the reader is asked about a record\n";
  }
  return {};
}

// Writes the acts of a scene.
struct ActWriter {
  const puppet::Script& script;
  std::string& out;

  void play(const Operations& part) const {
    for (std::size_t i = part.from; i < part.to; ++i) out += to_json(script.operations[i]) + "\n";
  }
  void operator()(const Play& act) const { play(act.operations); }
  void operator()(const Question& act) const {
    out += comment_on(act);
    for (const Hold& hold : act.holds) {
      out += "# it is held " + hold.name + "; meanwhile:\n";
      play(hold.operations);
      out += "# and goes on\n";
    }
  }
  void operator()(const Wait& act) const {
    const std::string time = std::to_string(act.duration.count()) + " ms";
    out += act.counter ? "# some rounds pass, for at most " + time + "\n" : "# " + time + " pass\n";
  }
  void operator()(const AskWitness& /*act*/) const {
    out += "# the reader is asked about another process, which stays as it is\n";
  }
};

}  // namespace

std::string script_with_acts(const Scene& scene) {
  std::string out = "# " + scene.about + "\n";
  puppet::Script head = scene.script;
  head.operations.clear();
  out += to_json(head);
  for (const Act& act : scene.acts) std::visit(ActWriter{scene.script, out}, act);
  return out;
}

void add_new(const std::string& one, std::vector<std::string>& list) {
  if (std::ranges::find(list, one) == list.end()) list.push_back(one);
}

SceneBuilder::SceneBuilder(std::string name, std::string about, puppet::Program program)
    : builder_(program) {
  scene_.name = std::move(name);
  scene_.about = std::move(about);
}

void SceneBuilder::play() {
  if (played_ < builder_.size()) scene_.acts.emplace_back(Play{{played_, builder_.size()}});
  played_ = builder_.size();
}

Hold SceneBuilder::hold(std::string name, Hold::When when, Part part,
                        const std::function<void()>& make, unsigned nth) {
  play();
  make();
  const Operations operations{played_, builder_.size()};
  played_ = builder_.size();
  return {.name = std::move(name),
          .when = when,
          .part = std::move(part),
          .nth = nth,
          .operations = operations};
}

void SceneBuilder::ask(Question question) {
  play();
  constexpr const char* kNeeds[] = {"reader.process|reader.watch",
                                    "reader.thread|reader.watch_threads", "reader.record"};
  add_new(kNeeds[static_cast<std::size_t>(question.about)], scene_.needs);
  if (question.about == Question::About::kThread && !schema_.empty()) {
    needs("reader.formats:" + schema_);
  }
  for (const AnswerClaim& c : question.claims) {
    if (std::ranges::find(scene_.also, c.requirement) != scene_.also.end()) continue;
    add_new(c.requirement, scene_.requirements);
  }
  scene_.acts.emplace_back(std::move(question));
}

void SceneBuilder::also_shows(const std::string& requirement) { add_new(requirement, scene_.also); }

void SceneBuilder::needs(const std::string& capability) { add_new(capability, scene_.needs); }

void SceneBuilder::wait(Wait act) {
  play();
  scene_.acts.emplace_back(std::move(act));
}

void SceneBuilder::ask_witness(std::vector<std::string> requirements) {
  play();
  for (const auto& r : requirements) add_new(r, scene_.requirements);
  scene_.acts.emplace_back(AskWitness{std::move(requirements)});
}

Scene SceneBuilder::scene() && {
  play();
  scene_.script = std::move(builder_).script();
  return std::move(scene_);
}

AnswerClaim claim(std::string requirement, std::vector<AllowedAnswer> allowed,
                  std::string otherwise) {
  return {.requirement = std::move(requirement),
          .allowed = std::move(allowed),
          .never = {},
          .otherwise = std::move(otherwise)};
}

AllowedAnswer accept(std::string content) {
  return {.result = "accept", .content = std::move(content)};
}

std::vector<AllowedAnswer> no_context() {
  return {{.result = "absent", .content = {}}, {.result = "reject", .content = {}}};
}

std::vector<AllowedAnswer> found_answers() {
  return {accept(), {.result = "reject", .content = {}}};
}

std::vector<AllowedAnswer> or_refused(std::vector<AllowedAnswer> allowed) {
  allowed.push_back({.result = kRefusedAnswer, .content = {}});
  return allowed;
}

std::vector<AllowedAnswer> not_used() {
  auto out = no_context();
  out.push_back({.result = "retry", .content = {}});
  return out;
}

}  // namespace ctxconf::conformance::reader
