#include "conformance/rules/race_evidence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "conformance/payload/churn_values.h"
#include "conformance/payload/payload.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

// With fewer, nobody can say that updates and reads met.
constexpr std::uint64_t kContentsNeeded = 20;
constexpr const char* kNotRaced = "updates while a reader runs on another processor";

std::string content_of(const RaceRead& r) {
  if (r.payload.readable < r.payload.wanted) {
    return fmt::format("{} of {} bytes at {:#x} could be read", r.payload.readable,
                       r.payload.wanted, r.payload.at.raw());
  }
  const Payload payload = analyse_payload(r.payload.bytes);
  if (payload.problem != PayloadProblem::kNone) return "no message: " + payload.detail;
  std::string out = fmt::format("{} bytes at {:#x}, hash {:016x}", r.payload.wanted,
                                r.payload.at.raw(), r.payload.hash);
  if (const auto numbers = numbers_in(payload); !numbers.empty()) {
    out += fmt::format(", of update {}", fmt::join(numbers, " and "));
  }
  return out;
}

std::string line_of(const RaceRead& r) {
  return fmt::format("read {}: timestamp {} before and after the copy; {}", r.read, r.timestamp,
                     content_of(r));
}

std::string counts_of(const Race& r) {
  const auto share = [&](std::uint64_t part) {
    return 100.0 * static_cast<double>(part) /
           static_cast<double>(std::max<std::uint64_t>(r.reads, 1));
  };
  std::string out = fmt::format(
      "{} reads in {:.1f} s: {:.2f} % found no timestamp, {:.2f} % were overtaken by an update, {} "
      "different contents",
      r.reads, static_cast<double>(r.duration_ns) / 1e9, share(r.none), share(r.overtaken),
      r.contents);
  if (r.unreadable > 0) {
    out += fmt::format("; in {:.2f} % the header was gone", share(r.unreadable));
  }
  if (r.too_large > 0) {
    out +=
        fmt::format("; in {:.2f} % the payload was too large to be read here", share(r.too_large));
  }
  return out;
}

std::optional<Finding> broken(const Race& race, const RaceRead& at, std::string text,
                              const char* signature) {
  Finding f = failed(std::move(text), signature);
  f.level = to_string(Level::kRace);
  f.evidence.push_back(counts_of(race));
  for (const RaceRead& r : race.kept) f.evidence.push_back((&r == &at ? "> " : "  ") + line_of(r));
  return f;
}

std::optional<Finding> mixture_in(const Race& race) {
  for (std::size_t i = 0; i < race.kept.size(); ++i) {
    const RaceRead& r = race.kept[i];
    if (i > 0 && race.kept[i - 1].timestamp == r.timestamp &&
        (race.kept[i - 1].payload.hash != r.payload.hash ||
         race.kept[i - 1].payload.readable != r.payload.readable)) {
      return broken(race, r,
                    fmt::format("under the timestamp {} a reader on another processor got two "
                                "different payloads",
                                r.timestamp),
                    "two payloads under one timestamp");
    }
    if (r.payload.readable < r.payload.wanted) {
      return broken(race, r,
                    fmt::format("the payload could not be read, and the timestamp {} had not "
                                "changed",
                                r.timestamp),
                    "payload unreadable under its timestamp");
    }
    const Payload payload = analyse_payload(r.payload.bytes);
    if (const auto numbers = numbers_in(payload); numbers.size() > 1) {
      return broken(race, r,
                    fmt::format("under the timestamp {} a reader on another processor got parts of "
                                "the updates {}",
                                r.timestamp, fmt::join(numbers, " and ")),
                    "parts of two updates");
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Finding> mixed_read_in_race(const ImageEvidence& e) {
  const Image& image = *e.image;
  const Race* best = nullptr;
  for (const Race& race : image.races) {
    if (auto f = mixture_in(race)) return f;
    const bool met = race.contents >= kContentsNeeded && race.none + race.overtaken > 0;
    if (met && (best == nullptr || race.reads > best->reads)) best = &race;
  }
  if (best != nullptr) {
    Finding f = passed("no copy by a reader on another processor was mixed: " + counts_of(*best));
    f.level = to_string(Level::kRace);
    return f;
  }
  if (!image.races.empty()) {
    return unobservable(
        "the reader on another processor met too few updates: " + counts_of(image.races.front()),
        kNotRaced);
  }
  if (!image.races_unseen.empty()) {
    return unobservable("no reader on another processor: " + image.races_unseen, kNotRaced);
  }
  return std::nullopt;
}

}  // namespace ctxconf::conformance
