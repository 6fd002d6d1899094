// Rules about what a reader could have copied between two instructions (level steps).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "conformance/rules/header_operations.h"
#include "conformance/rules/race_evidence.h"
#include "conformance/rules/rule.h"
#include "conformance/rules/store_evidence.h"
#include "sys/processor.h"

namespace ctxconf::conformance {
namespace {

constexpr const char* kNotStepped = "an operation that is single-stepped";
constexpr std::size_t kLinesShown = 12;

// A view as a reader takes it.
struct SeenHeader {
  const ReaderView* view = nullptr;
  abi::ProcessHeader header{};
  bool accepted() const { return abi::is_valid(header); }
  std::uint64_t timestamp() const { return header.monotonic_published_at_ns; }
};

std::vector<SeenHeader> seen_in(const Image& image, const StepTrace& trace) {
  std::vector<SeenHeader> out;
  out.reserve(trace.views.size());
  for (const ReaderView& view : trace.views) {
    out.push_back({&view, header_of(image, view.header).value_or(abi::ProcessHeader{})});
  }
  return out;
}

bool same_location(const SeenHeader& a, const SeenHeader& b) {
  return a.header.payload == b.header.payload && a.header.payload_size == b.header.payload_size;
}

// What a reader takes away from both: header fields and bytes.
bool same_content(const SeenHeader& a, const SeenHeader& b) {
  if (!same_location(a, b) || a.view->payload.has_value() != b.view->payload.has_value())
    return false;
  if (!a.view->payload) return true;
  return a.view->payload->hash == b.view->payload->hash &&
         a.view->payload->readable == b.view->payload->readable;
}

std::string location_of(const Image& image, const StepTrace& trace, const SeenHeader& s) {
  if (!s.view->location) return fmt::format("thread {}", trace.tid);
  return fmt::format("{}, thread {}", location_text(image.locations[*s.view->location]), trace.tid);
}

std::string header_line(const Image& image, const SeenHeader& s) {
  const auto& h = s.header;
  std::string out =
      fmt::format("after {}: timestamp {}, payload {} of {} bytes", instructions_text(s.view->step),
                  h.monotonic_published_at_ns, hex_text(h.payload), h.payload_size);
  if (s.view->payload) out += fmt::format(", hash {:016x}", s.view->payload->hash);
  if (s.view->location) out += "; " + location_text(image.locations[*s.view->location]);
  return out;
}

// The views around the one at `index`.
void show_trace(const Image& image, const StepTrace& trace, const std::vector<SeenHeader>& seen,
                std::size_t index, Finding& f) {
  f.at = location_of(image, trace, seen[index]);
  name_code(image, seen[index].view->location, f);
  f.level = to_string(Level::kSteps);
  f.event = {trace.header, seen[index].view->order, {}};
  const std::size_t first = index < kLinesShown / 2 ? 0 : index - kLinesShown / 2;
  for (std::size_t i = first; i < seen.size() && i < first + kLinesShown; ++i) {
    f.evidence.push_back((i == index ? "> " : "  ") + header_line(image, seen[i]));
  }
}

std::optional<Finding> mixture_in(const Image& image, const StepTrace& trace,
                                  std::map<std::uint64_t, SeenHeader>& known) {
  const auto seen = seen_in(image, trace);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const SeenHeader& now = seen[i];
    if (!now.accepted()) continue;
    const auto [first, is_new] = known.emplace(now.timestamp(), now);
    if (is_new || same_content(first->second, now)) continue;
    const bool adjacent =
        i > 0 && seen[i - 1].accepted() && seen[i - 1].timestamp() == now.timestamp();
    const bool moved = !same_location(first->second, now);
    Finding f = failed(
        adjacent ? fmt::format("under the timestamp {} the {} changed: a reader that sees this "
                               "timestamp before and after its copy may mix both contents",
                               now.timestamp(), moved ? "payload's place" : "payload's bytes")
                 : fmt::format("the timestamp {} came back with other content: a reader that sees "
                               "this timestamp before and after its copy may mix both contents",
                               now.timestamp()),
        adjacent ? "content changed under its timestamp" : "timestamp came back");
    show_trace(image, trace, seen, i, f);
    return f;
  }
  return std::nullopt;
}

// How often one content gave way to another one without a fault.
std::size_t updates_in(const Image& image, const StepTrace& trace) {
  const SeenHeader* last = nullptr;
  std::size_t count = 0;
  const auto seen = seen_in(image, trace);
  for (const SeenHeader& s : seen) {
    if (!s.accepted()) continue;
    if (last != nullptr && last->timestamp() != s.timestamp()) ++count;
    last = &s;
  }
  return count;
}

Finding not_stepped(const Image& image) {
  std::string why = "no such operation was single-stepped";
  if (!image.steps_unseen.empty()) why += ": " + image.steps_unseen;
  // What came after a step trace from a gate that was given up says more.
  const auto early = std::find_if(image.step_traces.rbegin(), image.step_traces.rend(),
                                  [](const StepTrace& trace) { return !trace.whole(); });
  if (early != image.step_traces.rend())
    why += ": a step trace ended early: " + early->ended_because;
  return unobservable(std::move(why), kNotStepped);
}

Finding no_mixed_read(const ImageEvidence& e) {
  if (auto raced = mixed_read_in_race(e)) return *std::move(raced);
  const Image& image = *e.image;
  std::map<std::uint64_t, SeenHeader> known;  // by timestamp: the first content under it
  std::size_t updates = 0;
  std::size_t from_gate = 0;
  std::uint64_t steps = 0;
  for (const StepTrace& trace : image.step_traces) {
    if (auto f = mixture_in(image, trace, known)) return *std::move(f);
    if (!trace.whole()) continue;
    const std::size_t more = updates_in(image, trace);
    updates += more;
    if (trace.from_gate) from_gate += more;
    steps += trace.steps;
  }
  if (updates == 0) return not_stepped(image);
  Finding f = passed(fmt::format(
      "{} {}{}: after each of {} instructions a reader finds the old content, none or the new",
      updates, updates == 1 ? "update" : "updates",
      from_gate == updates ? ", from the gate on" : "", steps));
  for (const StepTrace& trace : image.step_traces) {
    if (!trace.from_gate || trace.whole()) continue;
    f.evidence.push_back("a step trace from a gate ended early: " + trace.ended_because);
    break;
  }
  f.level = to_string(Level::kSteps);
  return f;
}

// ---- barriers

// Whether stores before it are seen before those after it. A store-release holds back itself, and
// no store that follows.
bool orders_later_stores(const std::string& text) {
  if (text.starts_with("dmb") || text.starts_with("dsb")) {
    return text.find("ld") == std::string::npos;  // ishld and the like order loads
  }
  if (text.starts_with("lock") || text.starts_with("xchg") || text.ends_with("fence")) return true;
  // An atomic of aarch64 with acquire and release.
  return !text.starts_with("stl") && text.substr(0, text.find(' ')).find("al") != std::string::npos;
}

bool orders_loads_only(const std::string& text) {
  return (text.starts_with("dmb") || text.starts_with("dsb")) && !orders_later_stores(text);
}

struct Gap {
  const StepTrace* trace = nullptr;
  SeenHeader before;  // the store in front of it
  SeenHeader after;   // the next store
};

// A barrier in each gap: after the instruction of the first store, or in that of the second.
Finding barrier_in(const ImageEvidence& e, const std::vector<Gap>& gaps, const char* where) {
  const Image& image = *e.image;
  const bool keeps_order = sys::processor_of_uname(e.timeline->arch).keeps_store_order;
  if (gaps.empty() && keeps_order) {
    return not_applicable(NaReason::kArch,
                          fmt::format("no barrier is needed {}: this processor keeps stores in "
                                      "order",
                                      where));
  }
  if (gaps.empty()) return not_stepped(image);
  std::vector<std::string> witnesses;
  for (const Gap& gap : gaps) {
    const std::uint64_t second = gap.after.view->step - 1;
    const auto found = std::ranges::find_if(gap.trace->barriers, [&](const Barrier& b) {
      if (b.step == second) return !orders_loads_only(b.text);
      // The first store may be an exchange, which orders what follows, too.
      return b.step + 1 >= gap.before.view->step && b.step < second && orders_later_stores(b.text);
    });
    if (found != gap.trace->barriers.end()) {
      witnesses.push_back(found->location
                              ? fmt::format("{} at {}", found->text,
                                            location_text(image.locations[*found->location]))
                              : found->text);
      continue;
    }
    const auto window = fmt::format(
        "{}, from {} to {}", instructions_text(gap.after.view->step - gap.before.view->step),
        location_of(image, *gap.trace, gap.before), location_of(image, *gap.trace, gap.after));
    if (keeps_order) {
      Finding f = not_applicable(
          NaReason::kArch,
          fmt::format("no barrier {}, and none is needed: this processor keeps stores in order",
                      where));
      f.evidence.push_back(window);
      f.level = to_string(Level::kSteps);
      return f;
    }
    Finding f = failed(fmt::format("no barrier {}", where), "no barrier");
    f.at = location_of(image, *gap.trace, gap.after);
    name_code(image, gap.after.view->location, f);
    f.event = {gap.trace->header, gap.after.view->order, {}};
    f.evidence.push_back(window);
    f.level = to_string(Level::kSteps);
    return f;
  }
  Finding f = passed(fmt::format("{}: {}", where, witnesses.front()));
  for (std::size_t i = 1; i < witnesses.size() && i < kLinesShown; ++i) {
    f.evidence.push_back(witnesses[i]);
  }
  f.level = to_string(Level::kSteps);
  return f;
}

// The gaps between the last other field and the timestamp. The step trace of an update begins at
// its zero.
std::vector<Gap> gaps_before_timestamp(const Image& image, bool of_updates) {
  std::vector<Gap> out;
  for (const StepTrace& trace : image.step_traces) {
    const auto seen = seen_in(image, trace);
    bool was_accepted = false;
    for (std::size_t i = 0; i + 1 < seen.size(); ++i) {
      was_accepted = was_accepted || seen[i].accepted();
      const bool announces = seen[i].timestamp() == 0 && seen[i + 1].accepted();
      // The view before it must be there because of a store, and not because the step trace began.
      if (announces && i > 0 && was_accepted == of_updates) {
        out.push_back({&trace, seen[i], seen[i + 1]});
      }
    }
  }
  return out;
}

// The gaps from the zero to each of the stores that follow while it is there.
std::vector<Gap> gaps_after_zero(const Image& image) {
  std::vector<Gap> out;
  for (const StepTrace& trace : image.step_traces) {
    const auto seen = seen_in(image, trace);
    const SeenHeader* zero = nullptr;
    for (std::size_t i = 1; i < seen.size(); ++i) {
      if (seen[i].timestamp() != 0) {
        zero = nullptr;
      } else if (zero != nullptr) {
        out.push_back({&trace, *zero, seen[i]});
      } else if (seen[i - 1].accepted()) {
        zero = &seen[i];
      }
    }
  }
  return out;
}

Finding publish_fence(const ImageEvidence& e) {
  return barrier_in(e, gaps_before_timestamp(*e.image, false),
                    "between the header's fields and its timestamp");
}
Finding update_fence(const ImageEvidence& e) {
  return barrier_in(e, gaps_before_timestamp(*e.image, true),
                    "between the updated fields and the new timestamp");
}
Finding zero_fence(const ImageEvidence& e) {
  return barrier_in(e, gaps_after_zero(*e.image), "between the zero and the changed fields");
}

constexpr auto kStepRules = std::to_array<RequirementRule>({
    {"pctx.publish.fence-before-timestamp", publish_fence},
    {"pctx.update.fence-after-zero", zero_fence},
    {"pctx.update.fence-before-timestamp", update_fence},
    {"pctx.update.no-mixed-read", no_mixed_read},
});

}  // namespace

std::span<const RequirementRule> step_rules() { return kStepRules; }

}  // namespace ctxconf::conformance
