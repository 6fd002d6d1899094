#include "conformance/rules/repetitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

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

void add_looks(const ReaderQuestion& q, Repetition& to) {
  constexpr std::uint64_t kTimestamp = 16;
  constexpr std::uint64_t kSize = 8;
  constexpr std::size_t kLooks = 2;  // of a reader that meets no update
  const ShownMemory* const header = shown(q, "header");
  if (header == nullptr || q.calls.empty()) return;
  const auto looks = reads_of(q, {.at = header->at + kTimestamp, .size = kSize});
  if (looks.empty()) return;
  to.looked_again = to.looked_again.value_or(0) + (looks.size() > kLooks ? 1 : 0);
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
      "of {} answers {} have one content, {} the other, {} none, {} a mixture (hits: {}, misses: "
      "{})",
      answers(), first, second, none, other, none + other, first + second);
  if (looked_again) {
    out += fmt::format("; for {} the timestamp was read more than twice", *looked_again);
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
  std::string_view last;  // of a reader that looks by itself
  for (const Operation* operation : scene.operations) {
    const ReaderQuestion& q = *operation->question;
    if (!q.repeated || q.claims.empty() || operation->reply.empty()) continue;
    if (!was_asked(*operation)) {
      if (operation->reply == last) continue;
      last = operation->reply;
    }
    add_answer(q.claims.front(), *operation, scene.traits, out);
    if (was_asked(*operation)) add_looks(q, out);
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
