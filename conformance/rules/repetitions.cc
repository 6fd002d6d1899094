#include "conformance/rules/repetitions.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "conformance/rules/reader_findings.h"
#include "conformance/text/json_limits.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;

// Adds one answer, by the claim that allows both contents.
void add_answer(const AnswerClaim& claim, const Operation& operation, const ReaderTraits& traits,
                Repetition& to) {
  const Json reply = value_of_kept_line(operation.reply);
  bool is_first = true;
  for (const AllowedAnswer& a : claim.allowed) {
    const bool fits = difference(a, reply, traits).empty();
    if (a.result != "accept") {
      if (fits) {
        ++to.none;
        return;
      }
      continue;
    }
    if (fits) {
      ++(is_first ? to.first : to.second);
      return;
    }
    is_first = false;
  }
  ++(has_result(operation, "accept") ? to.other : to.none);
}

// A reader that believes a copy of a payload makes no other one.
void add_looks(const ReaderQuestion& q, Repetition& to) {
  const ShownMemory* const header = shown(q, "header");
  if (header == nullptr || reads_of(q, {.at = header->at, .size = header->size}).empty()) return;
  std::size_t copies = 0;
  for (const ShownMemory& s : q.shown) {
    if (s.name.ends_with("payload")) copies += reads_of(q, {.at = s.at, .size = 1}).size();
  }
  to.looked_again = to.looked_again.value_or(0) + (copies > 1 ? 1 : 0);
}

// One that looks by itself says nothing where nothing has changed.
bool was_asked(const Operation& operation) {
  const Json request = value_of_kept_line(operation.request);
  const Json op = request.is_object() ? request.value("op", Json()) : Json();
  return op == "reader.process" || op == "reader.thread";
}

}  // namespace

std::string Repetition::text() const {
  std::string out = fmt::format(
      "{} answer{}: {} with one content, {} with the other, {} with none, {} mixed (hits: {}, "
      "misses: {})",
      answers(), answers() == 1 ? "" : "s", first, second, none, other, none + other,
      first + second);
  if (looked_again) {
    out += fmt::format("; for {} a payload was copied more than once", *looked_again);
  }
  return out;
}

Repetition& Repetition::operator+=(const Repetition& more) {
  first += more.first;
  second += more.second;
  none += more.none;
  other += more.other;
  if (more.looked_again) looked_again = looked_again.value_or(0) + *more.looked_again;
  return *this;
}

std::optional<Repetition> repetition_of(const SceneEvidence& scene) {
  Repetition out;
  // By process and thread: the last report of a reader that looks by itself.
  std::map<std::pair<std::int32_t, std::int32_t>, std::string_view> reports;
  for (const Operation* operation : scene.operations) {
    const ReaderQuestion& q = *operation->question;
    if (operation->reply.empty()) continue;
    const bool asked = was_asked(*operation);
    const bool is_old = !asked && std::exchange(reports[{q.process, q.thread}], operation->reply) ==
                                      operation->reply;
    if (!q.repeated || q.claims.empty() || is_old) continue;
    add_answer(q.claims.front(), *operation, scene.traits, out);
    if (asked) add_looks(q, out);
  }
  if (out.answers() == 0) return std::nullopt;
  return out;
}

std::optional<Finding> with_repetition(std::optional<Finding> f, const SceneEvidence& scene) {
  const auto repetition = repetition_of(scene);
  if (!f || !repetition) return f;
  if (f->outcome == Outcome::kPass) {
    f->saw = repetition->text();
  } else if (f->outcome == Outcome::kUnobservable) {
    if (f->signature.empty()) f->signature = f->saw;
    f->saw += "; by repetition: " + repetition->text();
  } else {
    f->evidence.push_back(repetition->text());
  }
  return f;
}

}  // namespace ctxconf::conformance
