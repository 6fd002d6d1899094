#include "conformance/rules/churned_contexts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/rules/driven_attributes.h"
#include "conformance/rules/driven_threads.h"
#include "conformance/rules/thread_rules.h"

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kChurnKey = "ctxconf.churn";
constexpr std::size_t kLongestValue = 64;

// A beginning of `part`, again and again.
bool repeats(std::string_view value, std::string_view part) {
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != part[i % part.size()]) return false;
  }
  return true;
}

// The SDK attached ids of its own, which thread.churn has no reply for.
bool makes_ids(const SessionEvidence& session) {
  return std::ranges::any_of(session.operations, [](const DrivenOperation& d) {
    return d.op == "thread.attach" && d.ok &&
           (d.reply.contains("trace_id") || d.reply.contains("span_id"));
  });
}

// A context of a named thread, which a thread may get from the one that started it.
bool is_handed_on(const std::vector<DrivenSample>& samples, std::size_t operation,
                  const Record& record) {
  return std::ranges::any_of(samples, [&](const DrivenSample& sample) {
    return sample.operation == operation &&
           std::ranges::any_of(sample.thread.stack, [&](const auto& c) {
             return c->has_ids() ? shows_ids_of(record, *c) : has_no_ids(record);
           });
  });
}

// Nothing: it is as it was given.
std::optional<AttributeFault> attribute_fault(const Record& r, const TakenContext& taken,
                                              const std::vector<std::string>& names) {
  const auto key = std::ranges::find(names, kChurnKey);
  if (!taken.takes(kChurnKey) || key == names.end()) return std::nullopt;
  std::optional<abi::AttributeEntry> entry;
  abi::AttributeCursor cursor(r.attributes);
  while (const auto next = cursor.next()) {
    if (next->key == key - names.begin()) entry = next;
  }
  const std::string span = span_id_of(r);
  const std::string expected =
      fmt::format("expected {}, repeated or cut to at most {} bytes", span, kLongestValue);
  if (!entry) {
    const std::size_t most = abi::kRecordHeadBytes + abi::kEntryHeadBytes + kLongestValue;
    if (taken.record_bytes < most || taken.value_bytes < kLongestValue) return std::nullopt;
    return AttributeFault{fmt::format("{} is missing; {}", kChurnKey, expected),
                          "attribute missing", std::nullopt};
  }
  const std::string value = text_of(*entry);
  if (!value.empty() && value.size() <= kLongestValue && repeats(value, span)) return std::nullopt;
  return AttributeFault{fmt::format("{} is {}; {}", kChurnKey,
                                    conformance::quoted(value, kShownValueBytes), expected),
                        "attribute not as given", entry};
}

}  // namespace

ChurnedContexts churned_contexts(const ImageEvidence& e) {
  ChurnedContexts out;
  const auto samples = driven_samples(e);
  const TakenContext taken = taken_context(*e.session);
  const auto& operations = e.session->operations;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    if (d.op != "thread.churn" || !d.ok || d.view == nullptr || d.view->image != e.image->key) {
      continue;
    }
    const auto names = key_map_at(e, d).value_or(std::vector<std::string>());
    for (const ThreadSample& s : e.image->exits) {
      if (s.first_seen_ns < d.operation->sent_ns || s.first_seen_ns > d.operation->answered_ns) {
        continue;
      }
      const auto head = s.record ? abi::decode_thread_record(s.record->bytes) : std::nullopt;
      if (!head || head->valid != abi::kRecordValid || is_freed(*s.record)) continue;
      Record r;
      r.sample = &s;
      r.head = *head;
      r.bytes = s.record->bytes;
      r.attributes = r.bytes.subspan(
          abi::kRecordHeadBytes,
          std::min<std::size_t>(head->attrs_data_size, r.bytes.size() - abi::kRecordHeadBytes));
      if (has_no_ids(r) || is_handed_on(samples, i, r)) continue;
      ++out.judged;
      const std::string trace = trace_id_of(r);
      const std::string span = span_id_of(r);
      const bool is_of_two = !trace.ends_with(span) && !makes_ids(*e.session);
      std::optional<AttributeFault> fault = attribute_fault(r, taken, names);
      if (is_of_two) {
        fault = {fmt::format("span id {} is not the end of trace id {}", span, trace),
                 "ids of two contexts", std::nullopt};
      }
      if (!fault) continue;
      Finding f =
          failed(fmt::format("thread {} ended with a context in which {}", s.tid, fault->saw),
                 fault->signature);
      f.evidence = {request_line(d)};
      for (auto& line : record_lines(r)) f.evidence.push_back(std::move(line));
      f.hexdumps = {record_dump(r, {})};
      out.fault = std::move(f);
      return out;
    }
  }
  return out;
}

}  // namespace ctxconf::conformance
