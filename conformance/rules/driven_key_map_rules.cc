// Requirements that need a program to be driven, OTEP 4947: the reference data in the process
// context, and what was attached and changed meanwhile.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "conformance/payload/payload_walk.h"
#include "conformance/rules/driven_attributes.h"
#include "conformance/rules/driven_threads.h"
#include "conformance/rules/expected_resource.h"
#include "conformance/rules/header_operations.h"
#include "conformance/rules/store_evidence.h"
#include "conformance/rules/thread_rules.h"

namespace ctxconf::conformance {
namespace {

using Names = std::vector<std::string>;

const ImageEvidence* image_of(const ImageEvidence& e, const DrivenOperation& d) {
  return d.view == nullptr ? nullptr : e.session->image(d.view->image);
}
const Context* context_after(const ImageEvidence& e, const DrivenOperation& d) {
  const ImageEvidence* image = image_of(e, d);
  return image == nullptr ? nullptr : context_at(*image, *d.view);
}

void add_names(Finding& f, const std::string& title, const Names& names, std::size_t from = 0) {
  f.evidence.push_back(fmt::format("{}: {} names", title, names.size()));
  const std::size_t end = std::min(names.size(), from + kMaxListed);
  for (std::size_t i = from; i < end; ++i) {
    f.evidence.push_back(fmt::format("index {}: {}", i, conformance::quoted(names[i])));
  }
  if (end < names.size()) f.evidence.push_back(fmt::format("and {} more", names.size() - end));
}

bool has(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// ---- when it comes

Finding before_first_record(const ImageEvidence& e) {
  const auto& operations = e.session->operations;
  bool published = false;  // was asked to, and did
  bool attached = false;
  const Context* any = nullptr;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    published = published || (d.ok && d.op == "process.publish");
    attached = attached || d.op == "thread.attach";
    const ImageEvidence* image = image_of(e, d);
    if (image == nullptr) continue;
    const Context* c = context_at(*image, *d.view);
    if (c != nullptr) any = c;
    const bool announced = c != nullptr && threadlocal_entry(*c, abi::kSchemaVersionKey) != nullptr;
    const Record* record = nullptr;
    std::int32_t tid = 0;
    for (const ThreadView& t : d.view->threads) {
      const Slot slot = slot_at(*image, *d.view, t.tid);
      if (slot.state != SlotState::kRecord) continue;
      record = slot.record;
      tid = t.tid;
    }
    if (announced) {
      return passed(record == nullptr
                        ? "the schema version was there before the first record"
                        : "the schema version was there when the first record was seen");
    }
    if (record == nullptr) continue;
    if (any == nullptr && attached && !published) {
      return unobservable("the adapter was asked to attach a context before anything was published",
                          "an adapter that declares process.publish");
    }
    std::string later = "no schema version came later";
    for (std::size_t k = i + 1; k < operations.size(); ++k) {
      const Context* next = context_after(e, operations[k]);
      if (next == nullptr || threadlocal_entry(*next, abi::kSchemaVersionKey) == nullptr) continue;
      const auto ns = operations[k].operation->answered_ns - d.operation->answered_ns;
      later = fmt::format("the schema version came {} operations and {:.1f} ms later", k - i,
                          static_cast<double>(ns) / 1e6);
      break;
    }
    if (any == nullptr && attached) {
      return unobservable(
          "there is a record but no process context; other requirements report that",
          "an adapter that publishes a process context");
    }
    Finding f = any == nullptr
                    ? failed(fmt::format("thread {} had a record before there was a process "
                                         "context; {}",
                                         tid, later),
                             "record before the process context")
                    : info(fmt::format("thread {} had a record before the process context had a "
                                       "schema version; {}",
                                       tid, later),
                           "reference data comes later");
    f.evidence = {"after " + request_line(d)};
    for (auto& line : record_lines(*record)) f.evidence.push_back(std::move(line));
    return f;
  }
  return unobservable("no record was seen", "an adapter that declares thread.attach");
}

// ---- names and their indexes

// Nothing: a context whose key map is not known. A context without one has no names.
std::optional<Names> names_at(const ImageEvidence& e, const DrivenOperation& d) {
  const Context* c = context_after(e, d);
  if (c == nullptr) return std::nullopt;
  if (threadlocal_entry(*c, abi::kAttributeKeyMapKey) == nullptr) return Names{};
  return key_map_at(e, d);
}

// A value that was given once, on whatever thread, and under which name.
std::map<std::string, std::string> values_given_once(const std::vector<RequestPart>& parts) {
  std::map<std::string, std::string> out;
  std::set<std::string> twice;
  for (const RequestPart& part : parts) {
    for (const auto& [key, text, any] : expected_attributes(part.request)) {
      if (!text || text->empty()) continue;
      if (!out.emplace(*text, key).second) twice.insert(*text);
    }
  }
  for (const auto& text : twice) out.erase(text);
  return out;
}

// What a record of these threads has under an index of another name, or of none.
std::optional<Finding> wrong_index(const std::vector<DrivenSample>& samples, std::size_t operation,
                                   const std::map<std::string, std::string>& expected,
                                   const Names& names) {
  for (const auto& sample : samples) {
    if (sample.operation != operation || !sample.shows_record() || sample.context() == nullptr)
      continue;
    if (sample.context()->attached_by != operation) continue;
    const Record& r = *sample.slot.record;
    abi::AttributeCursor cursor(r.attributes);
    while (const auto entry = cursor.next()) {
      const auto it = expected.find(text_of(*entry));
      if (it == expected.end()) continue;
      const bool named = entry->key < names.size();
      // An SDK may have another name for it.
      const bool of_another = named && names[entry->key] != it->second &&
                              std::ranges::any_of(expected, [&](const auto& g) {
                                return g.second == names[entry->key];
                              });
      if (named && !of_another) continue;
      Finding f =
          failed(named ? fmt::format("{} and {} have index {}, whose name is {}",
                                     conformance::quoted(it->second),
                                     conformance::quoted(names[entry->key]), entry->key,
                                     conformance::quoted(names[entry->key]))
                       : fmt::format("{} has index {}, and the key map has {} names",
                                     conformance::quoted(it->second), entry->key, names.size()),
                 named ? "two names have one index" : "a name is lost");
      for (auto& line : record_lines(r)) f.evidence.push_back(std::move(line));
      f.hexdumps = {record_dump(r, {{sizeof(abi::ThreadRecordHead) + entry->offset, 1,
                                     fmt::format("index {}", entry->key)}})};
      return f;
    }
  }
  return std::nullopt;
}

// What was given to these threads at once, and has neither a name nor a value.
std::optional<Finding> lost_attribute(const ImageEvidence& e,
                                      const std::vector<DrivenSample>& samples,
                                      std::size_t operation) {
  AttributeJudge attributes(e);
  for (const auto& sample : samples) {
    const ExpectedContext* c = sample.context();
    if (sample.operation != operation || !sample.shows_record() || c == nullptr) continue;
    if (c->attached_by != operation || !shows_ids_of(*sample.slot.record, *c)) continue;
    auto lost = attributes.lost_from(sample);
    if (!lost) continue;
    Finding f = failed(std::move(lost->saw), std::move(lost->signature));
    for (auto& line : record_lines(*sample.slot.record)) f.evidence.push_back(std::move(line));
    f.hexdumps = {record_dump(*sample.slot.record, {})};
    return f;
  }
  return std::nullopt;
}

// ---- what becomes of it

// Judges one parallel request: an update of the Resource while threads gave names.
std::optional<Finding> lost_beside_an_update(const ImageEvidence& e,
                                             const std::vector<DrivenSample>& samples,
                                             std::size_t operation, std::size_t& judged) {
  const DrivenOperation& d = e.session->operations[operation];
  const auto parts = parts_of(d);
  const auto is_update = [](const RequestPart& part) {
    return says(part.request, "op", "process.update");
  };
  const bool only_those = std::ranges::all_of(parts, [&](const RequestPart& part) {
    return part.ok && (is_update(part) || may_name_keys(part.request));
  });
  if (d.op != "parallel" || !d.ok || !only_those) return std::nullopt;
  const auto updates = std::ranges::count_if(parts, is_update);
  if (updates == 0 || std::cmp_equal(updates, parts.size())) return std::nullopt;
  const auto before = names_at(e, e.session->operations[operation - 1]);
  const auto after = names_at(e, d);
  if (!before || !after || (before->empty() && after->empty())) return std::nullopt;
  ++judged;
  const auto against = [&](Finding f) {
    f.evidence.insert(f.evidence.begin(), "after " + request_line(d));
    add_names(f, "before", *before);
    add_names(f, "after", *after);
    return f;
  };
  for (std::size_t k = 0; k < before->size(); ++k) {
    if (k < after->size() && (*after)[k] == (*before)[k]) continue;
    return against(failed(
        fmt::format("{} lost its index {} in an update of the Resource while a new name was given",
                    conformance::quoted((*before)[k]), k),
        "reference data lost in an update"));
  }
  // tctx.keymap.append-updates-context reports a writer that publishes no new name at all.
  const bool publishes_names = std::ranges::none_of(samples, [&](const DrivenSample& sample) {
    if (sample.operation >= operation || sample.driven->op == "parallel") return false;
    if (!sample.shows_record()) return false;
    abi::AttributeCursor cursor(sample.slot.record->attributes);
    while (const auto entry = cursor.next()) {
      if (never_named(e, *sample.slot.record, *entry)) return true;
    }
    return false;
  });
  if (!publishes_names) return std::nullopt;
  if (auto f = wrong_index(samples, operation, values_given_once(parts), *after)) {
    f->saw += ", after an update of the Resource at the same time";
    return against(std::move(*f));
  }
  return std::nullopt;
}

bool shows_attributes(const DrivenSample& sample) {
  return sample.context() != nullptr && sample.shows_record() &&
         !sample.slot.record->attributes.empty();
}

// A publication replaced another that had reference data, and has none although a context with
// attributes was attached after it. Contexts from before may be left as they are.
std::optional<Finding> lost_in_a_publication(const ImageEvidence& e,
                                             const std::vector<DrivenSample>& samples,
                                             std::size_t operation, std::size_t& judged) {
  const auto& operations = e.session->operations;
  const DrivenOperation& d = operations[operation];
  const Context* before = context_after(e, operations[operation - 1]);
  if (!d.ok || d.op != "process.publish" || before == nullptr) return std::nullopt;
  if (threadlocal_entry(*before, abi::kSchemaVersionKey) == nullptr) return std::nullopt;
  for (const auto& sample : samples) {
    if (sample.operation <= operation) continue;
    if (sample.driven->op == "hello" || sample.driven->op.starts_with("process.")) break;
    if (!shows_attributes(sample) || sample.context()->attached_by <= operation) continue;
    const Context* now = context_after(e, *sample.driven);
    if (now == nullptr || now->payload == nullptr) continue;
    ++judged;
    if (threadlocal_entry(*now, abi::kSchemaVersionKey) != nullptr) return std::nullopt;
    Finding f = failed(fmt::format("{} is gone after another publication, and thread {} shows a "
                                   "context with attributes",
                                   abi::kSchemaVersionKey, sample.thread.tid),
                       "reference data lost in a publication");
    f.evidence = {request_line(d), "after " + request_line(*sample.driven), maps_line(*now)};
    f.hexdumps = {record_dump(*sample.slot.record, {})};
    return f;
  }
  return std::nullopt;
}

Finding survives_other_updates(const ImageEvidence& e) {
  const auto& operations = e.session->operations;
  const auto samples = driven_samples(e);
  std::size_t judged = 0;
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    if (auto f = lost_beside_an_update(e, samples, i, judged)) return *std::move(f);
    if (auto f = lost_in_a_publication(e, samples, i, judged)) return *std::move(f);
    if (!d.ok || d.op != "process.update") continue;
    const Context* before = context_after(e, operations[i - 1]);
    const Context* after = context_after(e, d);
    if (before == nullptr || after == nullptr) continue;
    if (after->payload == nullptr || after->payload->problem != PayloadProblem::kNone) continue;
    bool compared = false;
    for (const auto key : {abi::kSchemaVersionKey, abi::kAttributeKeyMapKey}) {
      const auto* was = threadlocal_entry(*before, key);
      const auto* is = threadlocal_entry(*after, key);
      if (was == nullptr) continue;
      compared = true;
      const bool version = key == abi::kSchemaVersionKey;
      // Other requirements report names that have moved or are gone.
      if (is != nullptr && (!version || (is->kind == was->kind && is->text == was->text))) continue;
      if (is == nullptr && !version && was->element_count == 0) continue;
      Finding f =
          failed(is == nullptr
                     ? fmt::format("{} is gone after an update of the Resource", key)
                     : fmt::format("{} was {} and is {} after an update of the Resource", key,
                                   conformance::quoted(was->text), conformance::quoted(is->text)),
                 "reference data lost in an update");
      f.evidence = {"after " + request_line(d), maps_line(*after)};
      if (const auto names = key_map_at(e, operations[i - 1])) add_names(f, "before", *names);
      f.evidence.emplace_back("keys of field 2 after it:");
      for (const auto& a : after->payload->attributes) {
        if (f.evidence.size() > 2 * kMaxListed) break;
        f.evidence.push_back("  " + conformance::quoted(a.key));
      }
      return f;
    }
    if (compared) ++judged;
  }
  if (judged == 0) {
    return unobservable("no update was answered while the context had reference data",
                        "an adapter that declares process.update and thread.attach");
  }
  return passed(fmt::format("{} updates, each with the reference data as before", judged));
}

Finding stable_across_republish(const ImageEvidence& e) {
  const auto& operations = e.session->operations;
  const auto samples = driven_samples(e);
  // Whether a thread had a context, and a record that refers to the map.
  const auto is_held = [&](std::size_t operation) {
    return std::ranges::any_of(samples, [&](const DrivenSample& sample) {
      return sample.operation == operation && shows_attributes(sample);
    });
  };
  std::optional<Names> old;
  std::size_t judged = 0;
  bool dropped = false;
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    const bool drops = d.ok && d.op == "process.drop";
    const bool replaces =
        d.ok && d.op == "process.publish" && context_after(e, operations[i - 1]) != nullptr;
    dropped = dropped || drops;
    if (drops || replaces) {
      // A program that detaches the contexts of its threads may begin a new key map.
      const bool held = is_held(i - 1) && is_held(i);
      old = held ? key_map_at(e, operations[i - 1]) : std::nullopt;
    }
    if (drops) continue;
    if (!old) continue;
    const auto names = key_map_at(e, d);
    if (!names) continue;
    const std::size_t common = std::min(names->size(), old->size());
    if (common > 0) ++judged;
    for (std::size_t k = 0; k < common; ++k) {
      if ((*names)[k] == (*old)[k]) continue;
      Finding f = failed(
          fmt::format(
              "index {} was {}; after the context was published again it is {}. A record from "
              "before was still attached",
              k, conformance::quoted((*old)[k]), conformance::quoted((*names)[k])),
          "index with another name");
      f.evidence = {"after " + request_line(d)};
      add_names(f, "before", *old, k);
      add_names(f, "after", *names, k);
      return f;
    }
  }
  if (judged > 0) {
    return passed(fmt::format("{} samples of a key map that was published again", judged));
  }
  return unobservable(dropped ? "no thread had attributes when the context was withdrawn, or no "
                                "key map came after it"
                              : "no context was withdrawn while a thread had attributes",
                      "an adapter that declares process.publish, process.drop and thread.attach");
}

Finding append_updates_context(const ImageEvidence& e) {
  const auto& operations = e.session->operations;
  const auto samples = driven_samples(e);
  std::size_t appended = 0;
  std::size_t left_out = 0;
  for (const auto& sample : samples) {
    const DrivenOperation& d = *sample.driven;
    if (!d.ok || (d.op != "thread.attach" && d.op != "thread.append")) continue;
    if (sample.operation == 0 || !d.of_thread(sample.thread.name) || !sample.shows_record())
      continue;
    const DrivenOperation& previous = operations[sample.operation - 1];
    const Context* was = context_after(e, previous);
    const Context* is = context_after(e, d);
    if (was == nullptr || is == nullptr) continue;
    const bool none = threadlocal_entry(*was, abi::kAttributeKeyMapKey) == nullptr;
    const auto before = none ? Names{} : key_map_at(e, previous);
    if (!before) continue;
    const Names after = key_map_at(e, d).value_or(Names{});
    abi::AttributeCursor cursor(sample.slot.record->attributes);
    while (const auto entry = cursor.next()) {
      const auto expected = never_named(e, *sample.slot.record, *entry);
      if (!expected) continue;
      Finding f = failed(
          fmt::format("the record has {} under index {}, and no key map ever had the name {}",
                      conformance::quoted(text_of(*entry), 32), entry->key,
                      conformance::quoted(*expected)),
          "a new name is not published");
      f.evidence = {"after " + request_line(d)};
      add_names(f, "key map before", *before);
      add_names(f, "key map after", after);
      f.hexdumps = {record_dump(
          *sample.slot.record,
          {{sizeof(abi::ThreadRecordHead) + entry->offset, 1, "index without a name"}})};
      return f;
    }
    for (const auto& [key, text, any] : expected_attributes(d.request)) {
      if (has(*before, key)) continue;
      if (!has(after, key)) {
        ++left_out;
        continue;
      }
      ++appended;
      if (was->start() != is->start() ||
          was->header.monotonic_published_at_ns != is->header.monotonic_published_at_ns) {
        continue;
      }
      Finding f =
          failed(fmt::format("the key map has the new name {}, and the timestamp is still {}",
                             conformance::quoted(key), is->header.monotonic_published_at_ns),
                 "a new name without an update");
      f.evidence = {"after " + request_line(d), maps_line(*is)};
      add_names(f, "key map before", *before);
      add_names(f, "key map after", after);
      return f;
    }
  }
  if (appended > 0) {
    return passed(
        fmt::format("{} new names, each published when its attach was answered; {} left "
                    "out",
                    appended, left_out));
  }
  if (left_out > 0) return passed("new names are left out, and so are their values");
  return unobservable("no attribute with a new name was attached",
                      "an adapter that declares process.publish and thread.attach");
}

Finding index_not_wrapped(const ImageEvidence& e) {
  const auto& operations = e.session->operations;
  const auto samples = driven_samples(e);
  std::size_t most = 0;
  std::size_t judged = 0;
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    if (d.op != "thread.attach" && d.op != "thread.append") continue;
    const auto before = key_map_at(e, operations[i - 1]);
    if (!before) continue;
    most = std::max(most, before->size());
    if (before->size() < abi::kMaxKeys) continue;
    for (const auto& [key, text, any] : expected_attributes(d.request)) {
      if (has(*before, key)) continue;
      if (!d.ok) {
        ++judged;  // refused
        continue;
      }
      const auto sample = std::ranges::find_if(samples, [&](const DrivenSample& l) {
        return l.operation == i && d.of_thread(l.thread.name);
      });
      if (sample == samples.end() || sample->context() == nullptr) continue;
      ++judged;
      if (!sample->shows_record()) continue;
      const auto texts = sample->context()->texts_of(key);
      const bool only_one =
          std::ranges::count_if(sample->context()->attributes, [&](const auto& o) {
            return o.text && !texts.empty() && *o.text == texts.back();
          }) == 1;
      if (!only_one || texts.back().empty()) continue;
      abi::AttributeCursor cursor(sample->slot.record->attributes);
      while (const auto entry = cursor.next()) {
        if (text_of(*entry) != texts.back()) continue;
        const std::string name =
            entry->key < before->size() ? (*before)[entry->key] : std::string("?");
        Finding f = failed(
            fmt::format("{} has no index among the {} of the key map, and its value {} is there "
                        "as index {}, {}",
                        conformance::quoted(key), before->size(),
                        conformance::quoted(texts.back(), 32), entry->key,
                        conformance::quoted(name)),
            "index wrapped");
        f.evidence = {"after " + request_line(d)};
        for (auto& line : record_lines(*sample->slot.record)) f.evidence.push_back(std::move(line));
        for (const auto& [shown, value] : attributes_of(*sample->slot.record)) {
          if (f.evidence.size() > 2 * kMaxListed) break;
          f.evidence.push_back(
              fmt::format("{} = {}", conformance::quoted(shown), conformance::quoted(value, 32)));
        }
        f.hexdumps = {
            record_dump(*sample->slot.record, {{sizeof(abi::ThreadRecordHead) + entry->offset, 1,
                                                fmt::format("index {}", entry->key)}})};
        return f;
      }
    }
  }
  if (judged == 0) {
    return unobservable(
        fmt::format("the key map had {} names, not 256, when another name was given", most),
        "an SDK that takes that many names");
  }
  return passed(fmt::format("{} attributes too many, all left out", judged));
}

// ---- how it grows

// What came between two looks at the same image.
struct Window {
  std::uint64_t after = 0;
  std::uint64_t until = 0;
  bool holds(const HeaderOperation& op) const {
    return op.stores.front().store->order > after && op.stores.back().store->order <= until;
  }
};
std::optional<Window> window_of(const ImageEvidence& e, std::size_t operation) {
  const auto& operations = e.session->operations;
  const ImageView* view = operations[operation].view;
  const ImageView* before = operation == 0 ? nullptr : operations[operation - 1].view;
  if (view == nullptr || before == nullptr) return std::nullopt;
  if (view->image != e.image->key || before->image != e.image->key) return std::nullopt;
  return Window{before->order, view->order};
}

Finding update_protocol(const ImageEvidence& e) {
  const auto& operations = e.session->operations;
  std::vector<Window> windows;
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const auto window = window_of(e, i);
    const auto parts = parts_of(operations[i]);
    const bool only_keys = std::ranges::all_of(
        parts, [](const RequestPart& part) { return may_name_keys(part.request); });
    if (!window || !only_keys) continue;
    const auto before = names_at(e, operations[i - 1]);
    const auto after = names_at(e, operations[i]);
    if (!before || !after) continue;
    if (std::ranges::all_of(*after, [&](const auto& name) { return has(*before, name); })) continue;
    windows.push_back(*window);
  }
  if (windows.empty()) {
    return unobservable("no new name was published while threads attached",
                        "an adapter that declares process.publish and thread.attach");
  }
  return judge_updates(e, [&](const HeaderOperation& op) {
    return std::ranges::any_of(windows, [&](const Window& window) { return window.holds(op); });
  });
}

Finding single_writer(const ImageEvidence& e) {
  const auto& operations = e.session->operations;
  const auto samples = driven_samples(e);
  const auto history = header_history_of(e).operations;
  std::size_t threads = 0;
  std::size_t updates = 0;
  for (std::size_t i = 1; i < operations.size(); ++i) {
    const DrivenOperation& d = operations[i];
    const auto window = window_of(e, i);
    if (!window || !gives_names_at_once(d)) continue;
    const auto before = names_at(e, operations[i - 1]);
    const auto names = names_at(e, d);
    if (!names) continue;
    const auto against = [&](Finding f) {
      f.evidence.insert(f.evidence.begin(), "after " + request_line(d));
      add_names(f, "key map", *names);
      return f;
    };
    if (auto f = lost_attribute(e, samples, i)) return against(std::move(*f));
    if (before && *before == *names) continue;
    const auto parts = parts_of(d);
    threads = std::max(threads, parts.size());
    const auto expected = values_given_once(parts);
    if (auto f = wrong_index(samples, i, expected, *names)) return against(std::move(*f));
    for (const auto& [text, key] : expected) {
      if (std::ranges::count(*names, key) < 2) continue;
      return against(
          failed(fmt::format("the key map has the name {} twice", conformance::quoted(key)),
                 "a name is there twice"));
    }
    for (const HeaderOperation& op : history) {
      if (op.kind != HeaderOperation::Kind::kUpdate || !window->holds(op)) continue;
      const HeaderStore* by = store_of_another_writer(op);
      if (by != nullptr) {
        return against(wrong_store(*e.image, op, *by,
                                   fmt::format("thread {} stored into the update of thread {}",
                                               by->store->tid, op.stores[op.zero_first].store->tid),
                                   "two updates at once"));
      }
      if (op.was_zeroed() && op.is_announced()) ++updates;
    }
  }
  if (threads == 0) {
    return unobservable(
        "no names that several threads gave at once were published",
        "an adapter that declares process.publish, process.parallel, thread and thread.attach");
  }
  if (!e.image->stores_unseen.empty()) {
    return unobservable(e.image->stores_unseen, "a host with hardware watchpoints");
  }
  if (updates == 0) {
    return unobservable("none of these updates was seen as stores",
                        "a process context that is updated in its place");
  }
  Finding f = passed(fmt::format("names of {} threads at once in {} updates, each by one thread",
                                 threads, updates));
  f.level = "stores";
  return f;
}

constexpr auto kDrivenKeyMapRules = std::to_array<RequirementRule>({
    {"tctx.refdata.before-first-record", before_first_record, AskedOf::kTestee,
     RestsOn::kOperations, UnderFaults::kJudgedIfPublished},
    {"tctx.keymap.survives-other-updates", survives_other_updates, AskedOf::kTestee,
     RestsOn::kOperations, UnderFaults::kJudged},
    {"tctx.keymap.stable-across-republish", stable_across_republish, AskedOf::kTestee,
     RestsOn::kOperations, UnderFaults::kJudged},
    {"tctx.keymap.append-updates-context", append_updates_context, AskedOf::kTestee,
     RestsOn::kOperations, UnderFaults::kJudged},
    {"tctx.keymap.update-protocol", update_protocol, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.keymap.single-writer", single_writer, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
    {"tctx.keymap.index-not-wrapped", index_not_wrapped, AskedOf::kTestee, RestsOn::kOperations,
     UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> driven_key_map_rules() { return kDrivenKeyMapRules; }

}  // namespace ctxconf::conformance
