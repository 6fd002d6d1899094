// Requirements that need a program to be driven, OTEP 4947: what the record of a given context has
// in it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "conformance/payload/payload_walk.h"
#include "conformance/rules/driven_attributes.h"
#include "conformance/rules/driven_threads.h"
#include "conformance/rules/thread_rules.h"
#include "conformance/rules/told_ids.h"

namespace ctxconf::conformance {
namespace {

Finding against(const DrivenSample& sample, std::string saw, std::string signature,
                std::vector<Hexdump::Mark> marks) {
  Finding f = failed(std::move(saw), std::move(signature));
  f.evidence = {"after " + request_line(*sample.driven)};
  for (auto& line : record_lines(*sample.slot.record)) f.evidence.push_back(std::move(line));
  f.hexdumps = {record_dump(*sample.slot.record, std::move(marks))};
  return f;
}

// "offset 28: index 0 "http.route", length 3, "GET"", the table of a reader.
void add_named_entries(Finding& f, const Record& r) {
  constexpr std::size_t kMostEntries = 12;
  abi::AttributeCursor cursor(r.attributes);
  for (std::size_t i = 0; i < kMostEntries; ++i) {
    const auto entry = cursor.next();
    if (!entry) return;
    const bool named = r.key_map != nullptr && entry->key < r.key_map->elements.size();
    f.evidence.push_back(fmt::format(
        "offset {}: index {}{}, length {}, {}", abi::kRecordHeadBytes + entry->offset, entry->key,
        named ? " " + conformance::quoted(r.key_map->elements[entry->key].text) : "",
        entry->value.size(), conformance::quoted(text_of(*entry), kShownValueBytes)));
  }
}

Hexdump::Mark mark_of(const abi::AttributeEntry& entry, std::string label) {
  return {abi::kRecordHeadBytes + entry.offset, abi::kEntryHeadBytes + entry.value.size(),
          std::move(label)};
}

Finding no_record_of_a_context() {
  return unobservable("no thread showed a record while a context was attached to it",
                      "an adapter whose contexts are visible");
}

// Refused by design wherever it was asked, as far as `asked` tells.
template <class Asked>
std::optional<Finding> refused(const ImageEvidence& e, const Asked& asked, const char* what) {
  for (const DrivenOperation& d : e.session->operations) {
    if (d.op != "thread.attach" || d.ok || !asked(d.request)) continue;
    if (d.error_kind != "rejected" && d.error_kind != "unsupported") continue;
    Finding f = not_applicable(NaReason::kCapability, what);
    f.evidence = {request_line(d)};
    return f;
  }
  return std::nullopt;
}

// ---- ids and flags

Finding id_as_given(const ImageEvidence& e, const IdField& field,
                    std::string ExpectedContext::* id) {
  const auto samples = driven_samples(e);
  // The ids of all contexts: an id on the wrong one is not a matter of bytes.
  std::set<std::string> given;
  for (const auto& sample : samples) {
    if (sample.context() != nullptr) given.insert(sample.context()->*id);
  }
  std::set<const ExpectedContext*> judged;
  for (const auto& sample : samples) {
    const ExpectedContext* c = sample.context();
    if (!sample.shows_record() || c == nullptr || !c->has_ids()) continue;
    const std::string shown = field.shown(*sample.slot.record);
    if (shown == c->*id) {
      judged.insert(c);
    } else if (!given.contains(shown) && shown.find_first_not_of('0') != std::string::npos) {
      return against(sample,
                     fmt::format("the {} is {}, expected {}{}", field.name, shown, c->*id,
                                 order_of(c->*id, shown)),
                     fmt::format("{} not as given", field.name),
                     {{field.offset, field.length, fmt::format("given: {}", c->*id)}});
    }
  }
  if (judged.empty()) return no_record_of_a_context();
  return passed(fmt::format("{} contexts, each with its {}", judged.size(), field.name));
}

Finding trace_id(const ImageEvidence& e) {
  if (e.session == nullptr) return trace_id_as_told(e);
  return id_as_given(e, kTraceIdField, &ExpectedContext::trace_id);
}
Finding span_id(const ImageEvidence& e) {
  if (e.session == nullptr) return span_id_as_told(e);
  return id_as_given(e, kSpanIdField, &ExpectedContext::span_id);
}

Finding ids_zero_when_none(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  std::map<std::string, std::set<std::string>> earlier;  // ids that a thread has shown
  std::size_t judged = 0;
  for (const auto& sample : samples) {
    const ExpectedContext* c = sample.context();
    const auto is_traced = [](const auto& context) { return context->has_ids(); };
    auto& before = earlier[sample.thread.name];
    if (c == nullptr || std::ranges::any_of(sample.thread.stack, is_traced)) {
      if (sample.shows_record() && c != nullptr && !has_no_ids(*sample.slot.record)) {
        before.insert(trace_id_of(*sample.slot.record));
        before.insert(span_id_of(*sample.slot.record));
      }
      continue;
    }
    if (sample.slot.state == SlotState::kUnreadable || before.empty()) continue;
    ++judged;
    if (!sample.shows_record() || has_no_ids(*sample.slot.record)) continue;
    const Record& r = *sample.slot.record;
    const std::string trace = trace_id_of(r);
    const std::string span = span_id_of(r);
    const bool ended = before.contains(trace) || before.contains(span);
    return against(
        sample,
        fmt::format(
            "a context without ids shows trace id {} and span id {}, which {}", trace, span,
            ended ? fmt::format("thread {} had shown for one that has ended", sample.thread.tid)
                  : std::string("neither the request nor the reply named")),
        ended ? "ids of a context that has ended" : "ids of its own", {{0, 24, "ids: want zero"}});
  }
  if (judged == 0) {
    if (auto na = refused(
            e, [](const auto& request) { return !request.contains("trace_id"); },
            "the adapter attaches nothing without ids")) {
      return *na;
    }
    return unobservable("no context without ids was attached where one with ids had ended",
                        "an adapter that declares thread.attach and thread.detach");
  }
  return passed(fmt::format("{} samples of a context without ids", judged));
}

std::string named_flags(unsigned flags) {
  std::vector<std::string> out;
  if ((flags & kSampled) != 0) out.emplace_back("sampled");
  if ((flags & kRandom) != 0) out.emplace_back("random");
  const unsigned rest = flags & ~(kSampled | kRandom);
  if (rest != 0) out.push_back(fmt::format("{:#04x}", rest));
  return fmt::format("{}", fmt::join(out, ", "));
}

Finding trace_flags(const ImageEvidence& e) {
  const unsigned taken = taken_context(*e.session).flags;
  std::size_t sampled = 0;
  std::size_t unsampled = 0;
  unsigned others = 0;                 // the higher bits that were given, and shown
  std::optional<DrivenSample> masked;  // those without a meaning so far are all cleared
  for (const auto& sample : driven_samples(e)) {
    const ExpectedContext* c = sample.context();
    if (!sample.shows_record() || c == nullptr || !c->has_ids()) continue;
    if (!shows_ids_of(*sample.slot.record, *c)) continue;  // somebody else's, perhaps
    const unsigned shown = sample.slot.record->head.trace_flags;
    const unsigned wanted = c->flags & taken;
    if (shown != wanted && shown == (wanted & (kSampled | kRandom))) {
      masked = sample;
    } else if (shown != wanted) {
      const unsigned lost = wanted & ~shown;
      const unsigned added = shown & ~wanted;
      std::string saw = fmt::format("the flags are {:#04x}, expected {:#04x}", shown, c->flags);
      if (wanted != c->flags) saw += fmt::format("; the SDK takes {:#04x} of them", wanted);
      Finding f = against(sample, std::move(saw), "flags not as given",
                          {{25, 1, fmt::format("given: {:#04x}", c->flags)}});
      if (lost != 0) f.evidence.push_back(fmt::format("lost: {}", named_flags(lost)));
      if (added != 0) f.evidence.push_back(fmt::format("added: {}", named_flags(added)));
      return f;
    }
    ++((c->flags & kSampled) != 0 ? sampled : unsampled);
    others |= shown & ~kSampled;
  }
  if (sampled == 0) return no_record_of_a_context();
  if (masked) {
    Finding f = info(fmt::format("of the flags {:#04x}, those without a meaning yet are cleared",
                                 masked->context()->flags),
                     "flags without a meaning cleared");
    f.evidence = {"after " + request_line(*masked->driven)};
    return f;
  }
  return passed(fmt::format("the sampled flag is set in {} samples and clear in {}; {}", sampled,
                            unsampled,
                            others == 0 ? "no other flag shown" : "also " + named_flags(others)));
}

// ---- attributes

Finding length_not_wrapped(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  const TakenContext taken = taken_context(*e.session);
  std::set<std::size_t> seen;
  std::set<std::string> shown;  // keys that have an index and a value
  std::set<std::string> too_long;
  for (const auto& sample : samples) {
    const ExpectedContext* c = sample.context();
    if (!sample.shows_record() || c == nullptr) continue;
    for (const ExpectedAttribute& a : c->attributes) {
      if (!a.text) continue;
      const auto entry = entry_named(*sample.slot.record, a.key);
      if (entry) shown.insert(a.key);
      if (a.text->size() <= abi::kMaxValueBytes) continue;
      seen.insert(a.text->size());
      too_long.insert(a.key);
      const std::size_t left = a.text->size() % (abi::kMaxValueBytes + 1);
      if (!entry || entry->value.size() != left) continue;
      if (left == cut_size(*a.text, taken.value_bytes) || left == taken.value_bytes) continue;
      if (text_of(*entry) != a.text->substr(0, left)) continue;
      Finding f = against(
          sample, fmt::format("a value of {} bytes has the length {}", a.text->size(), left),
          "length wrapped", {mark_of(*entry, fmt::format("length {}", left))});
      add_named_entries(f, *sample.slot.record);
      return f;
    }
  }
  if (seen.empty()) return no_record_of_a_context();
  if (std::ranges::none_of(too_long, [&](const auto& key) { return shown.contains(key); })) {
    return unobservable(
        "the attribute with long values is never visible, not even with a short value",
        "an adapter that publishes the attributes that it is given");
  }
  return passed(fmt::format("values of up to {} bytes", *seen.rbegin()));
}

bool is_printable(const std::string& text) {
  return !first_bad_utf8(text) &&
         std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

Finding non_strings_as_text(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  const TakenContext taken = taken_context(*e.session);
  std::size_t judged = 0;
  std::size_t as_text = 0;
  for (const auto& sample : samples) {
    const ExpectedContext* c = sample.context();
    if (!sample.shows_record() || c == nullptr) continue;
    for (const ExpectedAttribute& a : c->attributes) {
      if (a.text || c->texts_of(a.key).size() != 1) continue;
      ++judged;
      const Record& r = *sample.slot.record;
      const auto entry = entry_named(r, a.key);
      if (!entry) continue;
      ++as_text;
      const std::string text = text_of(*entry);
      const bool is_text = is_printable(text);
      const bool may_be_cut = text.size() >= taken.value_bytes ||
                              abi::kRecordHeadBytes + r.head.attrs_data_size >= taken.record_bytes;
      if (is_text && (may_be_cut || !reads_as_another(a.value, text))) continue;
      const std::string quoted = conformance::quoted(text, kShownValueBytes);
      const std::string key = conformance::quoted(a.key);
      Finding f =
          is_text ? against(sample,
                            fmt::format("{} is {}, but {} was given", key, quoted, a.value.dump()),
                            "another value as text", {mark_of(*entry, "another value")})
                  : against(sample,
                            fmt::format("the value of {}, which is not a string, is not text: {}",
                                        key, quoted),
                            "value in binary", {mark_of(*entry, "no text")});
      add_named_entries(f, *sample.slot.record);
      return f;
    }
  }
  if (judged == 0) {
    const auto is_other = [](const nlohmann::json& request) {
      const auto expected = expected_attributes(request);
      return std::ranges::any_of(expected, [](const ExpectedAttribute& a) { return !a.text; });
    };
    if (auto na = refused(e, is_other, "the adapter takes strings only")) return *na;
    return unobservable("no record was seen while an attribute of another type was attached",
                        "an adapter that declares thread.attach");
  }
  return passed(fmt::format("{} of {} are there as text, the others left out", as_text, judged));
}

Finding last_occurrence_wins(const ImageEvidence& e) {
  const auto samples = driven_samples(e);
  std::size_t judged = 0;
  for (const auto& sample : samples) {
    const ExpectedContext* c = sample.context();
    if (!sample.shows_record() || c == nullptr) continue;
    for (const ExpectedAttribute& a : c->attributes) {
      const auto texts = c->texts_of(a.key);
      if (texts.size() < 2 || texts.back().size() > abi::kMaxValueBytes) continue;
      const auto entry = entry_named(*sample.slot.record, a.key);
      if (!entry) continue;
      const std::string shown = text_of(*entry);
      if (shown == texts.back()) {
        ++judged;
        continue;
      }
      if (std::ranges::find(texts, shown) == texts.end()) continue;
      Finding f = against(
          sample,
          fmt::format("the last entry of {} is {}, and {} was given last",
                      conformance::quoted(a.key), conformance::quoted(shown, kShownValueBytes),
                      conformance::quoted(texts.back(), kShownValueBytes)),
          "an outdated value comes last", {mark_of(*entry, "outdated")});
      add_named_entries(f, *sample.slot.record);
      return f;
    }
  }
  if (judged == 0) {
    return unobservable("no record was seen with an attribute that was set more than once",
                        "an adapter that declares thread.append");
  }
  return passed(fmt::format("{} samples of an attribute that was set more than once", judged));
}

constexpr auto kDrivenRecordRules = std::to_array<RequirementRule>({
    {"tctx.record.trace-id", trace_id, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.record.span-id", span_id, AskedOf::kTestee, RestsOn::kOperations, UnderFaults::kJudged},
    {"tctx.record.ids-zero-when-none", ids_zero_when_none, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.record.trace-flags", trace_flags, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.attrs.length-not-wrapped", length_not_wrapped, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.attrs.non-strings-as-text", non_strings_as_text, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.attrs.last-occurrence-wins", last_occurrence_wins, AskedOf::kTestee,
     RestsOn::kOperations, UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> driven_record_rules() { return kDrivenRecordRules; }

}  // namespace ctxconf::conformance
