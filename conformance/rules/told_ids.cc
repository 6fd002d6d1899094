#include "conformance/rules/told_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/evidence/trace_ids.h"
#include "conformance/rules/driven_threads.h"
#include "conformance/rules/record_faults.h"
#include "conformance/rules/thread_rules.h"
#include "conformance/text/counts.h"

namespace ctxconf::conformance {

const IdField kTraceIdField = {"trace id", 0, 16, trace_id_of};
const IdField kSpanIdField = {"span id", 16, 8, span_id_of};

namespace {

struct Order {
  std::string shown;
  const char* text;
};

// The wrong ways to store an id; the first that gives some bytes is the plainest. A recording may
// hold a request whose id has any length.
std::vector<Order> wrong_orders(const std::string& id) {
  if (id.size() % 2 != 0) return {};
  const auto reversed = [&](std::size_t word) {
    std::string out;
    for (std::size_t from = 0; from < id.size(); from += word) {
      for (std::size_t at = std::min(from + word, id.size()); at > from; at -= 2) {
        out += id.substr(at - 2, 2);
      }
    }
    return out;
  };
  std::vector<Order> out = {{reversed(id.size()), ", in reverse order"}};
  if (id.size() != kTraceIdDigits) return out;
  out.push_back({reversed(kSpanIdDigits), ", each half in reverse order"});
  out.push_back({id.substr(kSpanIdDigits) + id.substr(0, kSpanIdDigits), ", the halves exchanged"});
  return out;
}

// An id that is hardly more than a number may be the reverse of another by chance.
bool tells_orders_apart(const std::string& id) {
  constexpr std::size_t kDifferentBytes = 4;
  std::set<std::string> bytes;
  for (std::size_t at = 0; at < id.size(); at += 2) bytes.insert(id.substr(at, 2));
  return bytes.size() >= kDifferentBytes;
}

// What follows the first of so many ids.
std::string were_expected(std::size_t ids) {
  if (ids == 1) return "was expected";
  return fmt::format("or {} more {} expected", ids - 1, ids == 2 ? "was" : "were");
}

struct KnownIds {
  std::map<std::string, std::string> ids;  // id: how it is known
  bool all = false;                        // the program has no others
};

KnownIds known_ids(const ImageEvidence& e, bool trace) {
  KnownIds out;
  const Timeline& t = *e.timeline;
  for (const auto& id : trace ? t.expected_trace_ids : t.expected_span_ids) {
    out.ids.emplace(id, "was expected");
  }
  out.all = !out.ids.empty();
  if (out.all) return out;
  if (const auto told = traceparent_from(e.image->traceparent)) {
    out.ids.emplace(trace ? told->trace_id : told->span_id, "is in its TRACEPARENT");
  }
  for (const auto& id : trace ? t.printed_trace_ids : t.printed_span_ids) {
    out.ids.emplace(id, "was printed");
  }
  return out;
}

Finding against(const Record& r, const IdField& field, std::string saw, std::string signature,
                std::string label) {
  Finding f = failed(std::move(saw), std::move(signature));
  f.evidence = record_lines(r);
  f.hexdumps = {record_dump(r, {{field.offset, field.length, std::move(label)}})};
  return f;
}

Finding as_told(const ImageEvidence& e, const IdField& field, const char* remedy) {
  if (auto na = no_thread_context(e)) return *na;
  const KnownIds known = known_ids(e, field.offset == 0);
  if (known.ids.empty()) {
    return unobservable(fmt::format("the harness was not told any {} of this program", field.name),
                        remedy);
  }
  std::map<std::string, std::pair<std::string, const char*>> wrong;  // bytes: id and order
  for (const auto& [id, how] : known.ids) {
    if (!known.all && !tells_orders_apart(id)) continue;
    for (Order& o : wrong_orders(id)) wrong.emplace(std::move(o.shown), std::pair(id, o.text));
  }
  std::set<std::string> matched;
  const Record* other = nullptr;
  bool any = false;
  for (const JudgedRecord& j : judged_records(e)) {
    if (j.fault == RecordFault::kOlderLayout) continue;
    const std::string shown = field.shown(*j.record);
    if (shown.find_first_not_of('0') == std::string::npos) continue;
    any = true;
    if (known.ids.contains(shown)) {
      matched.insert(shown);
    } else if (const auto it = wrong.find(shown); it != wrong.end()) {
      const auto& [id, order] = it->second;
      return against(
          *j.record, field,
          fmt::format("the {} is {}, and {} {}{}", field.name, shown, id, known.ids.at(id), order),
          fmt::format("{} in another byte order", field.name), fmt::format("want {}", id));
    } else if (other == nullptr) {
      other = j.record;
    }
  }
  if (known.all && other != nullptr) {
    return against(*other, field,
                   fmt::format("the {} is {}, and {} {}", field.name, field.shown(*other),
                               known.ids.begin()->first, were_expected(known.ids.size())),
                   fmt::format("unexpected {}", field.name), "not expected");
  }
  if (!matched.empty()) {
    return passed(fmt::format(
        "{}, which {}{}", *matched.begin(), known.ids.at(*matched.begin()),
        matched.size() == 1 ? "" : ", and " + counted(matched.size() - 1, "more such id")));
  }
  if (!any) {
    Finding f = no_record(e);
    if (!judged_records(e).empty()) f.saw = fmt::format("no record has a {}", field.name);
    return f;
  }
  return unobservable(
      fmt::format("no record shows a {} that the program was told or printed", field.name), remedy);
}

}  // namespace

std::string order_of(const std::string& id, const std::string& shown) {
  for (const Order& o : wrong_orders(id)) {
    if (o.shown == shown) return o.text;
  }
  return "";
}

Finding trace_id_as_told(const ImageEvidence& e) {
  return as_told(e, kTraceIdField,
                 "--expect-trace-id HEX, TRACEPARENT in its environment, or wrap "
                 "--ids-from-output");
}
Finding span_id_as_told(const ImageEvidence& e) {
  return as_told(e, kSpanIdField,
                 "--expect-span-id HEX, or a traceparent that it prints under wrap "
                 "--ids-from-output");
}

}  // namespace ctxconf::conformance
