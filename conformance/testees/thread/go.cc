// Cases about Go's schema.
#include <vector>

#include "conformance/testees/thread/loaded_slot.h"
#include "conformance/testees/thread/scene.h"
#include "conformance/testees/thread/topics.h"
#include "conformance/testees/thread/usual.h"
#include "conformance/testees/writer/program.h"

// This is what the Go linker leaves for debug/buildinfo: magic, pointer size, flags (strings
// inline), then version and modules with their lengths.
__attribute__((section(".go.buildinfo"), used, aligned(16))) const char kBuildInfo[64] =
    "\xff Go buildinf:\x08\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06go1.23\x00";

namespace ctxconf::testees {
namespace {

void bad_go_value() { play({.records = {}}); }

void bad_go_no_key_map() {
  play({.context = context_with(reference_data({"a.label", "b.label"}, kGoSchema)), .records = {}});
}

void good_go() { play({.context = context_with({version_entry(text(kGoSchema))}), .records = {}}); }

void good_go_empty_key_map() {
  play({.context = context_with(reference_data({}, kGoSchema)), .records = {}});
}

void good_go_native_records() {
  take_slot_of("slot_tlsdesc.so");
  std::vector<Bytes> records;
  for (auto r : usual_records()) {
    r.entries.clear();
    records.push_back(r.bytes());
  }
  play({.context = context_with({version_entry(text(kGoSchema))}), .records = records});
}

void good_go_native_schema() {
  take_slot_of("slot_tlsdesc.so");
  play({});
}

constexpr Case kBadGo[] = {
    {"tctx.altschema.go-value", "announces tlsdesc_v1_dev without the slot", bad_go_value},
    {"tctx.altschema.go-no-key-map", "has two names with Go's schema", bad_go_no_key_map},
};

constexpr Case kGoodGo[] = {
    {"go", "has Go's schema", good_go},
    {"go-empty-key-map", "has Go's schema and an empty key map", good_go_empty_key_map},
    {"go-native-records", "has Go's schema and a native library with records",
     good_go_native_records},
    {"go-native-schema", "has the schema of a native library", good_go_native_schema},
};

}  // namespace

const Topic kGoCases{kBadGo, kGoodGo};

}  // namespace ctxconf::testees
