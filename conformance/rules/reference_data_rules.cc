#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "conformance/payload/payload_walk.h"
#include "conformance/rules/thread_rules.h"

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kNeedsMap = "a process context with a key map";

// The entry of a context, in field 2 or, misplaced, in the Resource.
const ThreadlocalEntry* entry_anywhere(const Context& c, std::string_view key) {
  const ThreadlocalEntry* found = nullptr;
  for (const auto& t : c.payload->threadlocal) {
    if (t.key == key && (found == nullptr || found->in_resource)) found = &t;
  }
  return found;
}

struct SeenEntry {
  const Context* context = nullptr;
  const ThreadlocalEntry* entry = nullptr;
};
std::vector<SeenEntry> seen_entries(const ImageEvidence& e, std::string_view key) {
  std::vector<SeenEntry> out;
  for (const Context* c : decoded_contexts(e)) {
    if (const auto* entry = entry_anywhere(*c, key)) out.push_back({c, entry});
  }
  return out;
}

std::string shown_entry(const ThreadlocalEntry& t) {
  return fmt::format("{} = {} ({})", t.key, conformance::quoted(t.text), to_string(t.kind));
}

Finding against(const SeenEntry& s, std::string saw, std::string signature, std::string label) {
  Finding f = failed(std::move(saw), std::move(signature));
  f.evidence = {maps_line(*s.context)};
  f.hexdumps = {payload_dump(*s.context, s.entry->offset, 2, std::move(label))};
  return f;
}

// "index 3: "http.route"", the table that readers have.
void add_elements(Finding& f, const ThreadlocalEntry& map, std::size_t from = 0) {
  const std::size_t end = std::min(map.elements.size(), from + kMaxListed);
  for (std::size_t i = from; i < end; ++i) {
    f.evidence.push_back(fmt::format("index {}: {}", i, conformance::quoted(map.elements[i].text)));
  }
  if (map.element_count > end) {
    f.evidence.push_back(fmt::format("and {} more", map.element_count - end));
  }
}

void add_keys(Finding& f, const Context& c) {
  std::string keys;
  std::size_t count = 0;
  for (const auto& a : c.payload->attributes) {
    if (++count > kMaxListed) break;
    keys += (keys.empty() ? "" : ", ") + conformance::quoted(a.key);
  }
  if (count > kMaxListed) keys += ", ...";
  f.evidence.push_back("keys of field 2: " + (keys.empty() ? "none" : keys));
}

// A usable record that is this process's own and not left over from before a fork.
template <class Wanted>
const Record* own_record(const ImageEvidence& e, const Wanted& wanted) {
  for (const Record& r : e.records) {
    if (r.valid() && wanted(r) && !is_inherited(e, r)) return &r;
  }
  return nullptr;
}
const Record* own_record(const ImageEvidence& e) {
  return own_record(e, [](const Record&) { return true; });
}

Finding no_own_record(const ImageEvidence& e) {
  if (std::ranges::any_of(e.records, &Record::valid)) {
    return unobservable("the only records are those of the parent, from before the fork",
                        "a context that is attached after the fork");
  }
  return no_record(e);
}

Finding no_context_to_judge(const ImageEvidence& e) {
  if (e.has_usable || e.published()) {
    return unobservable("no process context could be decoded; other requirements report that",
                        "a process context that can be decoded");
  }
  return unobservable("no process context was seen",
                      "a program that publishes a process context while it is observed");
}

Finding in_attributes(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  bool found = false;
  for (const Context* c : decoded_contexts(e)) {
    for (const auto& t : c->payload->threadlocal) {
      found = true;
      if (!t.in_resource) continue;
      Finding f = against({c, &t}, fmt::format("{} is an attribute of the Resource", t.key),
                          "threadlocal entry in the Resource", "in the Resource");
      for (const auto& other : c->payload->threadlocal) {
        if (f.evidence.size() > kMaxListed) break;
        f.evidence.push_back(fmt::format("{} in {}, offset {}", other.key,
                                         other.in_resource ? "the Resource" : "field 2",
                                         other.offset));
      }
      return f;
    }
  }
  if (found) return passed();
  return decoded_contexts(e).empty() ? no_context_to_judge(e)
                                     : unobservable("no threadlocal entry was seen",
                                                    "a process context with threadlocal entries");
}

bool only_in_resource(const std::vector<SeenEntry>& entries) {
  return !entries.empty() &&
         std::ranges::all_of(entries, [](const SeenEntry& s) { return s.entry->in_resource; });
}
Finding misplaced() {
  return unobservable("only in the Resource; tctx.refdata.in-attributes reports that",
                      "threadlocal entries in field 2");
}

// Did a writer take an entry back while a record of its own was attached?
bool withdrawn_under_a_record(const ImageEvidence& e, const Context& last) {
  return own_record(e, [&](const Record& r) {
           return r.sample->last_seen_ns > last.snapshot->first_seen_ns;
         }) != nullptr;
}

Finding schema_version_present(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto contexts = decoded_contexts(e);
  const auto versions = seen_entries(e, abi::kSchemaVersionKey);
  const Record* record = own_record(e);
  if (only_in_resource(versions)) return misplaced();
  if (!versions.empty()) {
    const Context& last = *contexts.back();
    // Where the key map went as well, tctx.keymap.never-removed speaks.
    if (entry_anywhere(last, abi::kSchemaVersionKey) != nullptr ||
        !withdrawn_under_a_record(e, last) ||
        (!seen_entries(e, abi::kAttributeKeyMapKey).empty() &&
         entry_anywhere(last, abi::kAttributeKeyMapKey) == nullptr)) {
      return passed(shown_entry(*versions.back().entry));
    }
  }
  if (record == nullptr) return no_own_record(e);
  const double waited =
      static_cast<double>(record->sample->last_seen_ns - record->sample->first_seen_ns) / 1e9;
  if (!contexts.empty()) {
    Finding f = failed(
        "a thread has a valid record, and field 2 has no " + std::string(abi::kSchemaVersionKey),
        "no schema version");
    f.evidence = record_lines(*record);
    add_keys(f, *contexts.back());
    f.evidence.push_back(fmt::format("the record was there for {:.1f} s", waited));
    return f;
  }
  if (e.published() || e.timeline->mode == Mode::kAttach) return no_context_to_judge(e);
  if (may_have_contexts_of_ancestors(e)) {
    return unobservable("a forked child without a context: its record may be from before the fork",
                        "a child that publishes a context of its own");
  }
  Finding f = failed("a thread has a valid record, and the process published no context",
                     "no process context");
  f.evidence = record_lines(*record);
  f.evidence.push_back(fmt::format("the record was there for {:.1f} s", waited));
  return f;
}

// The runtime announces a mechanism of its own, and records next to it are a native component's.
bool is_of_a_runtime(const ThreadlocalEntry& version) {
  return version.kind == ValueKind::kString &&
         (version.text == abi::kGoSchemaVersion ||
          std::ranges::find(abi::kNodeSchemaVersions, version.text) !=
              abi::kNodeSchemaVersions.end());
}

Finding key_map_present(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto contexts = decoded_contexts(e);
  const auto maps = seen_entries(e, abi::kAttributeKeyMapKey);
  if (only_in_resource(maps)) return misplaced();
  if (!maps.empty()) {
    return passed(fmt::format("{} of {} elements", to_string(maps.back().entry->kind),
                              maps.back().entry->element_count));
  }
  if (contexts.empty()) return no_context_to_judge(e);
  const auto versions = seen_entries(e, abi::kSchemaVersionKey);
  if (versions.empty()) {
    return unobservable("no reference data at all: see tctx.refdata.schema-version-present",
                        "a process context with a schema version");
  }
  if (own_record(e) == nullptr) return no_own_record(e);
  std::vector<const Record*> drafts;  // have another number where the size is
  for (const auto& j : judged_records(e)) {
    if (j.fault == RecordFault::kOlderLayout) drafts.push_back(j.record);
  }
  const Record* record = own_record(e, [&](const Record& r) {
    return r.head.attrs_data_size != 0 && std::ranges::find(drafts, &r) == drafts.end();
  });
  if (record == nullptr) {
    return info("no key map, and no record carries attributes", "no key map, none needed");
  }
  if (is_of_a_runtime(*versions.back().entry)) {
    Finding f =
        info(fmt::format("there is no key map next to {}, but a native component has records with "
                         "attributes",
                         versions.back().entry->text),
             "two mechanisms in one process");
    f.evidence = record_lines(*record);
    return f;
  }
  Finding f = failed(fmt::format("a record has {} bytes of attributes, and field 2 no {}",
                                 record->head.attrs_data_size, abi::kAttributeKeyMapKey),
                     "no key map");
  f.evidence = record_lines(*record);
  add_keys(f, *contexts.back());
  f.hexdumps = {record_dump(*record, {{26, 2, "size"}})};
  return f;
}

Finding schema_version_string(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto versions = seen_entries(e, abi::kSchemaVersionKey);
  for (const SeenEntry& s : versions) {
    if (s.entry->kind == ValueKind::kString) continue;
    return against(s, shown_entry(*s.entry) + ", not a string", "schema version is not a string",
                   "this entry");
  }
  if (!versions.empty()) return passed(shown_entry(*versions.back().entry));
  return decoded_contexts(e).empty()
             ? no_context_to_judge(e)
             : unobservable("no schema version was seen", "a process context with one");
}

Finding schema_version_value(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  if (e.definers.empty()) {
    return unobservable("no module exports the variable, so none of its values is expected",
                        "a module that exports the variable");
  }
  const Record* record = own_record(e);
  if (record == nullptr) return no_own_record(e);
  const ThreadlocalEntry* judged = nullptr;
  const ThreadlocalEntry* of_a_runtime = nullptr;
  for (const SeenEntry& s : seen_entries(e, abi::kSchemaVersionKey)) {
    if (s.entry->kind != ValueKind::kString) continue;
    judged = s.entry;
    if (abi::is_thread_schema(s.entry->text)) continue;
    if (is_of_a_runtime(*s.entry)) {
      of_a_runtime = s.entry;
      continue;
    }
    Finding f = against(s, shown_entry(*s.entry) + ", and a thread has a valid record",
                        "unknown schema version", "this value");
    f.evidence.push_back(fmt::format("known values: {}, {}", abi::kThreadSchemaVersions[0],
                                     abi::kThreadSchemaVersions[1]));
    f.evidence.push_back(record_line(*record));
    return f;
  }
  if (of_a_runtime != nullptr) {
    Finding f = info(fmt::format("{} is announced, and a native component has records of its own",
                                 of_a_runtime->text),
                     "two mechanisms in one process");
    f.evidence = record_lines(*record);
    return f;
  }
  if (judged != nullptr) return passed(shown_entry(*judged));
  return decoded_contexts(e).empty() ? no_context_to_judge(e)
                                     : unobservable("no schema version with a string was seen",
                                                    "a process context with a schema version");
}

Finding no_map(const ImageEvidence& e) {
  return decoded_contexts(e).empty() ? no_context_to_judge(e)
                                     : unobservable("no key map was seen", std::string(kNeedsMap));
}

Finding key_map_array(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto maps = seen_entries(e, abi::kAttributeKeyMapKey);
  for (const SeenEntry& s : maps) {
    if (s.entry->kind == ValueKind::kArray) continue;
    const bool draft = s.entry->kind == ValueKind::kKvlist;
    return against(
        s,
        fmt::format("the key map is a {}{}: {}", to_string(s.entry->kind),
                    draft ? ", as in the draft of 2025" : "", conformance::quoted(s.entry->text)),
        draft ? "key map is a key-value list" : "key map is not an array", "this entry");
  }
  return maps.empty() ? no_map(e) : passed();
}

// The maps that are arrays: what the requirements about their elements judge.
std::vector<SeenEntry> arrays(const ImageEvidence& e) {
  auto out = seen_entries(e, abi::kAttributeKeyMapKey);
  std::erase_if(out, [](const SeenEntry& s) { return s.entry->kind != ValueKind::kArray; });
  return out;
}

Finding key_map_strings(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto maps = arrays(e);
  for (const SeenEntry& s : maps) {
    const auto& elements = s.entry->elements;
    const auto it = std::ranges::find_if(
        elements, [](const auto& element) { return element.kind != ValueKind::kString; });
    if (it == elements.end()) continue;
    const auto index = static_cast<std::size_t>(it - elements.begin());
    Finding f = against(
        s,
        fmt::format("element {} is {}", index,
                    it->kind == ValueKind::kNone ? "without a value"
                                                 : fmt::format("a {}", to_string(it->kind))),
        "element of the key map is not a string", "this entry");
    add_elements(f, *s.entry, index);
    return f;
  }
  return maps.empty() ? no_map(e) : passed();
}

Finding key_map_names_usable(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto maps = arrays(e);
  for (const SeenEntry& s : maps) {
    std::map<std::string_view, std::size_t> first;
    for (std::size_t i = 0; i < s.entry->elements.size(); ++i) {
      const auto& element = s.entry->elements[i];
      if (element.kind != ValueKind::kString) continue;
      const auto [it, fresh] = first.try_emplace(element.text, i);
      if (fresh && !element.text.empty()) continue;
      Finding f = against(
          s,
          element.text.empty() ? fmt::format("the name of index {} is empty", i)
                               : fmt::format("{} is index {} and index {}",
                                             conformance::quoted(element.text), it->second, i),
          element.text.empty() ? "empty name in the key map" : "repeated name in the key map",
          "this entry");
      add_elements(f, *s.entry, it->second);
      return f;
    }
  }
  return maps.empty() ? no_map(e) : passed();
}

Finding at_most_256(const ImageEvidence& e) {
  if (auto na = no_thread_context(e)) return *na;
  const auto maps = arrays(e);
  std::uint64_t most = 0;
  for (const SeenEntry& s : maps) {
    most = std::max(most, s.entry->element_count);
    if (s.entry->element_count <= abi::kMaxKeys) continue;
    return against(s, fmt::format("the key map has {} elements", s.entry->element_count),
                   "key map above 256 elements", "this entry");
  }
  return maps.empty() ? no_map(e) : passed(fmt::format("{} elements", most));
}

// One publication and its updates, as opposed to another one at the same address.
bool is_same_mapping(const ImageEvidence& e, const Context& a, const Context& b) {
  const auto& first = a.candidate->entries.front();
  const auto& second = b.candidate->entries.front();
  if (a.start() != b.start() || first.inode != second.inode) return false;
  const auto index = [&](const Context& c) { return c.snapshot - e.image->snapshots.data(); };
  for (auto i = index(a) + 1; i < index(b); ++i) {
    const auto& candidates = e.image->snapshots[static_cast<std::size_t>(i)].candidates;
    if (std::ranges::none_of(candidates, [&](const Candidate& c) {
          return !c.entries.empty() && c.entries.front().range.begin().raw() == a.start();
        })) {
      return false;
    }
  }
  return true;
}

enum class MapChange { kGrown, kRemoved, kMoved };
struct MapUpdate {
  MapChange what = MapChange::kGrown;
  std::size_t index = 0;  // in the earlier map
};

MapUpdate change_between(const ThreadlocalEntry& before, const ThreadlocalEntry* after) {
  const auto& old = before.elements;
  if (after == nullptr) return {old.empty() ? MapChange::kGrown : MapChange::kRemoved, 0};
  std::map<std::string_view, std::size_t> left;
  for (const auto& element : after->elements) ++left[element.text];
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (left[old[i].text]-- == 0) return {MapChange::kRemoved, i};
  }
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (old[i].text != after->elements[i].text) return {MapChange::kMoved, i};
  }
  return {};
}

// Each key map of a mapping begins with the one before it.
Finding append_only(const ImageEvidence& e, MapChange judged) {
  if (auto na = no_thread_context(e)) return *na;
  const auto contexts = decoded_contexts(e);
  bool compared = false;
  bool taken_back = false;
  for (std::size_t i = 1; i < contexts.size(); ++i) {
    const Context& now = *contexts[i];
    // Contexts of two mappings may alternate.
    std::size_t k = i;
    while (k > 0 && !is_same_mapping(e, *contexts[k - 1], now)) --k;
    if (k == 0) continue;
    const Context& was = *contexts[k - 1];
    const auto* before = entry_anywhere(was, abi::kAttributeKeyMapKey);
    const auto* after = entry_anywhere(now, abi::kAttributeKeyMapKey);
    if (before == nullptr || before->kind != ValueKind::kArray ||
        before->element_count > before->elements.size()) {
      continue;
    }
    if (after != nullptr &&
        (after->kind != ValueKind::kArray || after->element_count > after->elements.size())) {
      continue;
    }
    compared = true;
    const MapUpdate change = change_between(*before, after);
    if (change.what != judged) continue;
    const auto& name = before->elements[change.index].text;
    // tctx.keymap.survives-other-updates speaks of that, and tctx.keymap.stable-across-republish of
    // an SDK that was set up again.
    if (after == nullptr && is_left_by("process.update", e, now)) continue;
    if (is_left_by("process.publish", e, now)) continue;
    // A program that withdraws its context for good may remove the names too.
    if (after == nullptr && !withdrawn_under_a_record(e, now)) {
      taken_back = true;
      continue;
    }
    Finding f = judged == MapChange::kRemoved
                    ? failed(fmt::format("the name {} of index {} is gone after an update",
                                         conformance::quoted(name), change.index),
                             after == nullptr ? "key map removed" : "key removed")
                    : failed(fmt::format("index {} was {} and is {} after an update", change.index,
                                         conformance::quoted(name),
                                         conformance::quoted(after->elements[change.index].text)),
                             "key moved");
    f.evidence = {maps_line(now), fmt::format("{} elements before:", before->element_count)};
    add_elements(f, *before, change.index);
    f.evidence.push_back(
        fmt::format("{} elements after:", after == nullptr ? 0 : after->element_count));
    if (after != nullptr) add_elements(f, *after, change.index);
    return f;
  }
  if (taken_back) {
    return info("the key map was withdrawn, and no record was seen after that",
                "key map withdrawn");
  }
  if (compared) return passed();
  if (arrays(e).empty()) return no_map(e);
  return unobservable("no update was seen",
                      "a program that updates its context while it is watched");
}

Finding never_removed(const ImageEvidence& e) { return append_only(e, MapChange::kRemoved); }
Finding never_reordered(const ImageEvidence& e) { return append_only(e, MapChange::kMoved); }

Finding go_value(const ImageEvidence& e) {
  const auto& modules = e.image->modules;
  const bool go = std::ranges::any_of(modules, [](const auto& m) { return m.executable && m.go; });
  if (!go) return not_applicable(NaReason::kCapability, "the executable is not a Go program");
  for (const SeenEntry& s : seen_entries(e, abi::kSchemaVersionKey)) {
    if (s.entry->kind != ValueKind::kString || s.entry->text == abi::kGoSchemaVersion) continue;
    if (!e.definers.empty()) {
      return info(fmt::format("a Go program with {} exports the variable, and announces {}",
                              conformance::quoted(e.definers.front()->path),
                              conformance::quoted(s.entry->text)),
                  "native component in a Go program");
    }
    Finding f = against(s,
                        fmt::format("a Go program announces {} and no module exports the variable",
                                    conformance::quoted(s.entry->text)),
                        "another schema in a Go program", "this value");
    f.evidence.push_back("the executable carries Go build information");
    return f;
  }
  if (e.schema == abi::kGoSchemaVersion) return passed(*e.schema);
  return unobservable("no schema version with a string was seen",
                      "a process context with a schema version");
}

Finding go_no_key_map(const ImageEvidence& e) {
  if (e.schema != abi::kGoSchemaVersion) {
    return not_applicable(NaReason::kCapability, "the process does not announce Go's schema");
  }
  // Somebody else's map, next to a native component with records.
  const bool shared = own_record(e) != nullptr;
  for (const Context* c : decoded_contexts(e)) {
    const auto* version = entry_anywhere(*c, abi::kSchemaVersionKey);
    const auto* map = entry_anywhere(*c, abi::kAttributeKeyMapKey);
    if (version == nullptr || version->text != abi::kGoSchemaVersion || map == nullptr) continue;
    if (map->kind == ValueKind::kArray && map->element_count == 0) continue;
    std::string saw = fmt::format("a key map with {} elements next to {}", map->element_count,
                                  abi::kGoSchemaVersion);
    if (shared) return info(std::move(saw), "two mechanisms in one process");
    Finding f = against({c, map}, std::move(saw), "key map with Go's schema", "this entry");
    add_elements(f, *map);
    return f;
  }
  return passed();
}

constexpr auto kReferenceDataRules = std::to_array<RequirementRule>({
    {"tctx.refdata.in-attributes", in_attributes, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"tctx.refdata.schema-version-present", schema_version_present, AskedOf::kImages,
     RestsOn::kStates, UnderFaults::kJudgedIfPublished},
    {"tctx.refdata.key-map-present", key_map_present, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudgedIfPublished},
    {"tctx.refdata.schema-version-string", schema_version_string, AskedOf::kImages,
     RestsOn::kStates, UnderFaults::kJudged},
    {"tctx.refdata.schema-version-value", schema_version_value, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudgedIfPublished},
    {"tctx.refdata.key-map-array", key_map_array, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"tctx.refdata.key-map-strings", key_map_strings, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"tctx.refdata.key-map-names-usable", key_map_names_usable, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"tctx.keymap.never-removed", never_removed, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"tctx.keymap.never-reordered", never_reordered, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"tctx.keymap.at-most-256", at_most_256, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"tctx.altschema.go-value", go_value, AskedOf::kImages, RestsOn::kStates, UnderFaults::kJudged},
    {"tctx.altschema.go-no-key-map", go_no_key_map, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
});

}  // namespace

std::span<const RequirementRule> reference_data_rules() { return kReferenceDataRules; }

}  // namespace ctxconf::conformance
