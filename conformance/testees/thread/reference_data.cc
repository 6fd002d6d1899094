// Cases about reference data: the schema version and the key map.
#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <vector>

#include "conformance/testees/thread/scene.h"
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/thread/usual.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

void bad_in_attributes() { play({.context = context_with({}, reference_data(usual_names()))}); }

void bad_schema_version_present() { play_context({map_entry(array_of(usual_names()))}); }

void bad_key_map_present() { play_context({version_entry(text(kDevelopmentSchema))}); }

void bad_schema_version_string() {
  play_context({version_entry(integer(1)), map_entry(array_of(usual_names()))});
}

void bad_schema_version_value() { play_context(reference_data(usual_names(), "tlsdesc")); }

void bad_key_map_array() {
  std::vector<Bytes> pairs;
  for (const auto& name : usual_names()) pairs.push_back(pair(name, integer(pairs.size())));
  play_context({version_entry(text(kDevelopmentSchema)), map_entry(list(pairs))});
}

void bad_key_map_strings() {
  std::vector<Bytes> values;
  for (const auto& name : usual_names()) values.push_back(text(name));
  values.push_back(Bytes());  // its key was in use once
  values.push_back(text("http.status"));
  play_context({version_entry(text(kDevelopmentSchema)), map_entry(array(values))});
}

void bad_key_map_names_usable() {
  auto names = usual_names();
  names.push_back(names[1]);
  play_context(reference_data(names));
}

void bad_never_removed() {
  auto names = usual_names();
  names.emplace_back("unused.lately");
  play({.context = context_with(reference_data(names)), .meanwhile = [](const Region& r) {
          pause();
          update(r, on_heap(usual_message()));
        }});
}

void bad_never_reordered() {
  play({.meanwhile = [](const Region& r) {
    pause();
    auto names = usual_names();
    names.emplace_back("another.name");
    std::ranges::sort(names);
    update(r, on_heap(context_with(reference_data(names))));
  }});
}

Names many_names(int count) {
  auto names = usual_names();
  while (static_cast<int>(names.size()) < count) {
    names.push_back("key.number_" + std::to_string(names.size()));
  }
  return names;
}

void bad_at_most_256() { play_context(reference_data(many_names(300))); }

void good_schema_tls_v1() { play_context(reference_data(usual_names(), "tls_v1")); }

void good_late_reference_data() {
  play({.context = context_with({}), .meanwhile = [](const Region& r) {
          pause();
          update(r, on_heap(usual_message()));
        }});
}

void good_no_thread_context() { play({.context = context_with({}), .records = {}}); }

void good_empty_key_map() {
  play({.context = context_with(reference_data({})),
        .records = usual_with([](Record& r) { r.entries.clear(); })});
}

void good_no_key_map() {
  play({.context = context_with({version_entry(text(kDevelopmentSchema))}),
        .records = usual_with([](Record& r) { r.entries.clear(); })});
}

// Node.js has a native component, whose names are there or not.
void good_node_native_records() { play_context(reference_data(usual_names(), "nodejs_v1_dev")); }

void good_node_stable_native_records() { play_context(reference_data(usual_names(), "nodejs_v1")); }

void good_go_labels_native_records() {
  play_context(reference_data(usual_names(), "go_pprof_labels_v1"));
}

void good_node_no_key_map() { play_context({version_entry(text("nodejs_v1_dev"))}); }

void good_other_schema() {
  play({.context = context_with({version_entry(text("somebody_elses_v3"))}), .records = {}});
}

void good_256_names() {
  auto records = usual_records();
  records[1].entries.push_back(entry(255, "last"));
  play({.context = context_with(reference_data(many_names(256))), .records = bytes_of(records)});
}

void good_growing_key_map() {
  play({.meanwhile = [](const Region& r) {
    auto names = usual_names();
    for (const char* more : {"z.name", "a.name", "m.name"}) {
      pause();
      names.emplace_back(more);
      update(r, on_heap(context_with(reference_data(names))));
    }
  }});
}

void good_key_map_unchanged() {
  play({.meanwhile = [](const Region& r) {
    pause();
    update(r, on_heap(context_with(reference_data(usual_names()),
                                   {pair("service.version", text("2.0.0"))})));
  }});
}

// The name of the index is published a moment later.
void good_key_after_use() {
  auto records = usual_records();
  records[1].entries.push_back(entry(4, "early"));
  play({.records = bytes_of(records), .meanwhile = [](const Region& r) {
          pause();
          auto names = usual_names();
          names.emplace_back("late.name");
          update(r, on_heap(context_with(reference_data(names))));
        }});
}

// Nothing is attached in between, so the second context may have its own indexes.
void good_republished() {
  const Region old = publish(context_with(reference_data({"old.name", "older.name"})));
  pause();
  set_timestamp(old, 0);
  munmap(old.at, old.size);
  pause();
  play({});
}

constexpr Case kBadReferenceData[] = {
    {"tctx.refdata.in-attributes", "puts the entries in the Resource", bad_in_attributes},
    {"tctx.refdata.schema-version-present", "publishes only a key map", bad_schema_version_present},
    {"tctx.refdata.key-map-present", "publishes only a schema version", bad_key_map_present},
    {"tctx.refdata.schema-version-string", "gives the integer 1 as schema version",
     bad_schema_version_string},
    {"tctx.refdata.schema-version-value", "gives tlsdesc as schema version",
     bad_schema_version_value},
    {"tctx.refdata.key-map-array", "publishes a list from name to index", bad_key_map_array},
    {"tctx.refdata.key-map-strings", "has an empty value for a key that it no longer uses",
     bad_key_map_strings},
    {"tctx.refdata.key-map-names-usable", "has a name twice", bad_key_map_names_usable},
    {"tctx.keymap.never-removed", "drops a key that is not used", bad_never_removed},
    {"tctx.keymap.never-reordered", "sorts the names at each update", bad_never_reordered},
    {"tctx.keymap.at-most-256", "has 300 names", bad_at_most_256},
};

constexpr Case kGoodReferenceData[] = {
    {"schema-tls-v1", "has the other schema version", good_schema_tls_v1},
    {"late-reference-data", "has records before their reference data", good_late_reference_data},
    {"no-thread-context", "has the slot and does not use it", good_no_thread_context},
    {"empty-key-map", "has no names and no attributes", good_empty_key_map},
    {"no-key-map", "has no key map and no attributes", good_no_key_map},
    {"node-native-records", "has Node's schema, and a native component with records",
     good_node_native_records},
    {"node-stable-native-records", "does the same with the name without _dev",
     good_node_stable_native_records},
    {"go-labels-native-records", "has Go's schema, and a native component with records",
     good_go_labels_native_records},
    {"node-no-key-map", "does the same without a key map", good_node_no_key_map},
    {"other-schema", "announces its own mechanism", good_other_schema},
    {"256-names", "has as many names as there may be", good_256_names},
    {"growing-key-map", "appends names one by one", good_growing_key_map},
    {"key-map-unchanged", "makes an update for another reason", good_key_map_unchanged},
    {"key-after-use", "uses an index before its name is there", good_key_after_use},
    {"republished", "withdraws, and publishes anew with other names", good_republished},
};

}  // namespace

const Topic kReferenceDataCases{kBadReferenceData, kGoodReferenceData};

}  // namespace ctxconf::testees
