#include "conformance/rules/churned_contexts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "abi/thread_record.h"
#include "conformance/payload/payload_walk.h"
#include "conformance/rules/driven_attributes.h"
#include "conformance/rules/thread_rules.h"

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kChurnKey = "ctxconf.churn";
constexpr std::size_t kLongestValue = 64;

// Whether `value` is `part` repeated, and cut anywhere.
bool repeats(std::string_view value, std::string_view part) {
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != part[i % part.size()]) return false;
  }
  return true;
}

bool churns(const DrivenOperation& d) { return d.op == "thread.churn" && d.ok; }

// A thread shows other ids than those that were attached: the SDK makes its own, or breaks
// tctx.record.trace-id or tctx.record.span-id.
bool shows_other_ids(const std::vector<DrivenSample>& samples) {
  return std::ranges::any_of(samples, [](const DrivenSample& s) {
    const DrivenOperation& d = *s.driven;
    if (d.reply.contains("trace_id") || d.reply.contains("span_id")) return true;
    const ExpectedContext* c = s.context();
    return c != nullptr && c->has_ids() && s.shows_record() && !shows_ids_of(*s.slot.record, *c);
  });
}

using Ids = std::pair<std::string, std::string>;  // trace id, span id

// A thread may get a context of the one that started it.
std::set<Ids> ids_of_named_threads(const std::vector<DrivenSample>& samples) {
  std::set<Ids> out;
  for (const DrivenSample& sample : samples) {
    for (const auto& c : sample.thread.stack) out.emplace(c->trace_id, c->span_id);
  }
  return out;
}

// Nothing: no fault, or it cannot be judged.
std::optional<AttributeFault> attribute_fault(const Record& r, const TakenContext& taken) {
  const auto named = [&](const auto& element) { return element.text == kChurnKey; };
  if (!taken.takes(kChurnKey) || r.key_map == nullptr ||
      std::ranges::count_if(r.key_map->elements, named) != 1) {
    return std::nullopt;
  }
  const bool has_room =
      taken.value_bytes >= kLongestValue &&
      abi::kRecordHeadBytes + r.head.attrs_data_size + abi::kEntryHeadBytes + kLongestValue <=
          taken.record_bytes;
  const std::string span = span_id_of(r);
  const auto expected =
      fmt::format("expected {}, repeated or cut to at most {} bytes", span, kLongestValue);
  const auto entry = entry_named(r, kChurnKey);
  if (!entry) {
    if (!has_room) return std::nullopt;
    return AttributeFault{fmt::format("{} is missing; {}", kChurnKey, expected),
                          "attribute missing", std::nullopt};
  }
  const std::string value = text_of(*entry);
  if (value.empty() && !has_room) return std::nullopt;
  if (!value.empty() && value.size() <= kLongestValue && repeats(value, span)) return std::nullopt;
  return AttributeFault{fmt::format("{} is {}; {}", kChurnKey,
                                    conformance::quoted(value, kShownValueBytes), expected),
                        "attribute not as given", entry};
}

std::optional<AttributeFault> fault_of(const Record& r, const TakenContext& taken) {
  const std::string trace = trace_id_of(r);
  const std::string span = span_id_of(r);
  if (trace.ends_with(span)) return attribute_fault(r, taken);
  return AttributeFault{fmt::format("span id {} is not the end of trace id {}", span, trace),
                        "ids of two contexts", std::nullopt};
}

// The last thing that a thread shows, if that is a whole valid record.
std::optional<Record> record_at_exit(const ImageEvidence& e, const DrivenOperation& d,
                                     const ThreadSample& s) {
  if (s.first_seen_ns < d.operation->sent_ns || s.first_seen_ns > d.operation->answered_ns) {
    return std::nullopt;
  }
  auto record = record_of(e, s);
  if (!record || !record->whole || !record->valid() || is_freed(*s.record)) return std::nullopt;
  return record;
}

// tctx.exit.no-dangling speaks of memory that several threads end with.
bool is_shared(const ImageEvidence& e, const ThreadSample& s) {
  return std::ranges::any_of(e.image->exits, [&](const ThreadSample& other) {
    return &other != &s && other.value == s.value;
  });
}

}  // namespace

ChurnedContexts churned_contexts(const ImageEvidence& e, const std::vector<DrivenSample>& samples) {
  ChurnedContexts out;
  const auto& operations = e.session->operations;
  if (std::ranges::none_of(operations, churns) || shows_other_ids(samples)) return out;
  const TakenContext taken = taken_context(*e.session);
  const auto named = ids_of_named_threads(samples);
  for (const DrivenOperation& d : operations) {
    if (!churns(d) || d.view == nullptr || d.view->image != e.image->key) continue;
    for (const ThreadSample& s : e.image->exits) {
      const auto r = record_at_exit(e, d, s);
      if (!r || has_no_ids(*r) || is_shared(e, s)) continue;
      if (named.contains({trace_id_of(*r), span_id_of(*r)})) continue;
      ++out.judged;
      const auto fault = fault_of(*r, taken);
      if (!fault) continue;
      Finding f =
          failed(fmt::format("thread {} ended with a context in which {}", s.tid, fault->saw),
                 fault->signature);
      f.evidence = {request_line(d)};
      for (auto& line : record_lines(*r)) f.evidence.push_back(std::move(line));
      f.hexdumps = {record_dump(*r, fault->marks())};
      out.fault = std::move(f);
      return out;
    }
  }
  return out;
}

}  // namespace ctxconf::conformance
