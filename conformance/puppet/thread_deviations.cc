// Deviations of thread contexts and of what is announced about them that a look finds. Only
// single-stepping shows the order of stores between two looks.
#include <algorithm>
#include <functional>
#include <iterator>

#include "conformance/puppet/deviations.h"

namespace ctxconf::conformance::puppet {
namespace {

using Kind = Act::Kind;

constexpr unsigned kOwnThread = 9;  // nothing else uses this thread
constexpr std::size_t kFewNames = 12;

void each_content(std::vector<Act>& acts, const std::function<void(Content&)>& change) {
  for (Act& act : acts) {
    each_content(act.child, change);
    if (act.kind == Kind::kPublish) {
      change(act.publication.content);
      make_room(act.publication);
    }
    if (act.kind == Kind::kUpdate) change(act.update.content);
  }
}

// All contexts announce thread contexts, with some names, but not too many.
void announce(Plan& plan) {
  each_content(plan.acts, [](Content& content) {
    if (!content.reference) content.reference.emplace();
    Reference& r = *content.reference;
    if (!r.used) {
      r.used = true;
      r.schema = "tlsdesc_v1_dev";
    }
    const std::size_t names = r.keys ? r.keys->size() : 0;
    r.keys = first_keys(std::clamp<std::size_t>(names, 3, kFewNames));
  });
}

void change_references(Plan& plan, const std::function<void(Reference&)>& change) {
  announce(plan);
  each_content(plan.acts, [&](Content& content) { change(*content.reference); });
}

// A letter is never an index of a small key map.
Attribute some_attribute(Rng& rng, std::uint8_t key, std::size_t size) {
  std::string text;
  while (text.size() < size) text += static_cast<char>('a' + rng.below(26));
  return {key, bytes_of(text)};
}

// A record of a thread of its own, attached and seen more than once.
RecordPlan own_record(Rng& rng) {
  RecordPlan out;
  for (auto& b : out.trace_id) b = static_cast<std::uint8_t>(rng.next() | 1U);
  for (auto& b : out.span_id) b = static_cast<std::uint8_t>(rng.next() | 1U);
  out.flags = 1;
  for (std::uint8_t key = 0; key < 3; ++key) {
    out.attributes.push_back(some_attribute(rng, key, 3 + 2 * rng.below(8)));
  }
  return out;
}

ThreadAct own_attach(Rng& rng) {
  ThreadAct out = legal_thread_act(rng, false);
  out.kind = ThreadAct::Kind::kAttach;
  out.thread = kOwnThread;
  out.by_another = false;
  out.nested = false;
  out.in_handler = false;
  out.reused = false;
  out.record = own_record(rng);
  static const std::vector<Memory> kMemories = {Memory::kMapping,     Memory::kBorder,
                                                Memory::kTwoMappings, Memory::kStack,
                                                Memory::kFile,        Memory::kReadOnly};
  out.memory = rng.pick(kMemories);
  out.spare = 0;
  return out;
}

// Where to add acts after a publication of the process itself; nothing: it has none.
std::optional<std::size_t> after_publication(const Plan& plan, Rng& rng) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < plan.acts.size(); ++i) {
    if (plan.acts[i].kind == Kind::kPublish) found.push_back(i + 1);
  }
  if (found.empty()) return std::nullopt;
  return rng.pick(found);
}

bool insert_acts(Plan& plan, Rng& rng, const std::vector<ThreadAct>& acts) {
  const auto at = after_publication(plan, rng);
  if (!at) return false;
  std::vector<Act> more;
  for (const ThreadAct& act : acts) {
    more.push_back(made(Kind::kThread, rng));
    more.back().deviant = true;
    more.back().thread = act;
  }
  for (int i = 0; i < 2; ++i) {
    more.push_back(made(Kind::kLook, rng));
    more.back().deviant = true;
  }
  // Everything that the thread with the flaw needs is kept.
  plan.acts[*at - 1].deviant = true;
  plan.acts.insert(plan.acts.begin() + static_cast<std::ptrdiff_t>(*at), more.begin(), more.end());
  return true;
}

bool insert_attach(Plan& plan, Rng& rng, const ThreadAct& act) {
  return insert_acts(plan, rng, {act});
}

bool attaches(Plan& plan, Rng& rng, const std::function<void(ThreadAct&)>& change) {
  announce(plan);
  ThreadAct act = own_attach(rng);
  change(act);
  return insert_attach(plan, rng, act);
}
template <Flaw flaw>
bool has_flaw(Plan& plan, Rng& rng) {
  return attaches(plan, rng, [](ThreadAct& act) { act.record.flaw = flaw; });
}
// The same in memory that the thread does not use for another record.
template <Flaw flaw>
bool has_flaw_once(Plan& plan, Rng& rng) {
  return attaches(plan, rng, [](ThreadAct& act) {
    act.record.flaw = flaw;
    act.in_place = false;
    act.memory = Memory::kMapping;
  });
}

// The announcement is always wrong, and there is a record that it affects.
bool announces(Plan& plan, Rng& rng, const std::function<void(Reference&)>& change) {
  change_references(plan, change);
  return insert_attach(plan, rng, own_attach(rng));
}

// An update that changes the key map of the previous context, while a record is attached.
bool updates_map(Plan& plan, Rng& rng, void (*change)(Reference&)) {
  change_references(plan, [](Reference& r) { r.keys = first_keys(kFewNames); });
  const auto at = after_publication(plan, rng);
  if (!at) return false;
  Act& publish = plan.acts[*at - 1];
  publish.deviant = true;
  // This map must not come into a mapping in which another map was.
  publish.publication.again_in_place = false;
  Act update = made(Kind::kUpdate, rng);
  update.deviant = true;
  update.update = legal_update(rng, publish.publication, false);
  update.update.renewal = Renewal::kNewBuffer;
  change(*update.update.content.reference);
  Act attach = made(Kind::kThread, rng);
  attach.deviant = true;
  attach.thread = own_attach(rng);
  attach.thread.record.attributes.clear();
  std::vector<Act> more = {made(Kind::kLook, rng), attach, made(Kind::kLook, rng), update,
                           made(Kind::kLook, rng)};
  for (Act& act : more) act.deviant = true;
  plan.acts.insert(plan.acts.begin() + static_cast<std::ptrdiff_t>(*at), more.begin(), more.end());
  return true;
}

void each_thread_act(std::vector<Act>& acts, const std::function<void(ThreadAct&)>& change) {
  for (Act& act : acts) {
    each_thread_act(act.child, change);
    if (act.kind == Kind::kThread) change(act.thread);
  }
}

void without_thread_acts(std::vector<Act>& acts) {
  std::erase_if(acts, [](const Act& a) { return a.kind == Kind::kThread; });
  for (Act& act : acts) without_thread_acts(act.child);
}

Bytes kvlist(const std::vector<std::string>& names) {
  Bytes values;
  for (std::size_t i = 0; i < names.size(); ++i) {
    Bytes pair = {std::byte{0x0a}, static_cast<std::byte>(names[i].size())};
    const Bytes key = bytes_of(names[i]);
    pair.insert(pair.end(), key.begin(), key.end());
    for (const unsigned b : {0x12U, 2U, 0x18U, static_cast<unsigned>(i)}) {
      pair.push_back(static_cast<std::byte>(b));
    }
    values.push_back(std::byte{0x0a});
    values.push_back(static_cast<std::byte>(pair.size()));
    values.insert(values.end(), pair.begin(), pair.end());
  }
  Bytes out = {std::byte{0x32}};
  std::size_t size = values.size();
  for (; size >= 0x80; size >>= 7U) out.push_back(static_cast<std::byte>((size & 0x7fU) | 0x80U));
  out.push_back(static_cast<std::byte>(size));
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

// An array of three elements: short names, and one element that is not a name.
Bytes array_with(std::initializer_list<unsigned> element) {
  Bytes values;
  for (const char* name : {"a", "b"}) {
    for (const unsigned b : {0x0aU, 3U, 0x0aU, 1U}) values.push_back(static_cast<std::byte>(b));
    values.push_back(static_cast<std::byte>(*name));
  }
  values.push_back(std::byte{0x0a});
  values.push_back(static_cast<std::byte>(element.size()));
  for (const unsigned b : element) values.push_back(static_cast<std::byte>(b));
  Bytes out = {std::byte{0x2a}, static_cast<std::byte>(values.size())};
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

Deviation of_record(std::string_view name, std::string_view how, std::string_view must,
                    bool (*apply)(Plan&, Rng&), std::vector<std::string_view> follow = {}) {
  Deviation out{name, how, must, std::move(follow), apply};
  out.threads = Threads::kAlways;
  return out;
}

std::vector<Deviation> reference_table() {
  return {
      of_record("schema-missing", "attaches records without a schema version",
                "tctx.refdata.schema-version-present",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) { r.no_schema = true; });
                }),
      of_record("schema-number", "announces the number 1 as the schema version",
                "tctx.refdata.schema-version-string",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) {
                    r.schema_value = {std::byte{0x18}, std::byte{1}};
                  });
                }),
      of_record("schema-unknown", "announces tlsdesc", "tctx.refdata.schema-version-value",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) { r.schema = "tlsdesc"; });
                }),
      of_record("reference-in-resource", "adds the threadlocal entries to the Resource",
                "tctx.refdata.in-attributes",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) { r.in_resource = true; });
                }),
      of_record("key-map-missing", "attaches attributes without a key map",
                "tctx.refdata.key-map-present",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) { r.no_map = true; });
                }),
      of_record("key-map-pairs", "publishes the key map as a key-value list",
                "tctx.refdata.key-map-array",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) { r.map_value = kvlist(*r.keys); });
                }),
      of_record("key-map-text", "publishes the names as one text", "tctx.refdata.key-map-array",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng,
                                   [](Reference& r) { r.map_value = string_value("a,b,c"); });
                }),
      of_record("key-map-number", "has a number in the key map", "tctx.refdata.key-map-strings",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) {
                    r.keys = first_keys(3);
                    r.map_value = array_with({0x18U, 3U});
                  });
                }),
      of_record("key-map-gap", "has an element without a value in the key map",
                "tctx.refdata.key-map-strings",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) {
                    r.keys = first_keys(3);
                    r.map_value = array_with({});
                  });
                }),
      of_record("key-map-name-twice", "has a name twice in the key map",
                "tctx.refdata.key-map-names-usable",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) { r.keys->at(2) = r.keys->at(0); });
                }),
      of_record("key-map-name-empty", "has an empty name in the key map",
                "tctx.refdata.key-map-names-usable",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) { r.keys->at(1).clear(); });
                }),
      of_record("key-map-of-257", "publishes 257 names", "tctx.keymap.at-most-256",
                [](Plan& plan, Rng& rng) {
                  return announces(plan, rng, [](Reference& r) { r.keys = first_keys(257); });
                }),
      of_record("key-removed", "publishes a shorter key map in an update",
                "tctx.keymap.never-removed",
                [](Plan& plan, Rng& rng) {
                  return updates_map(plan, rng, [](Reference& r) { r.keys = first_keys(7); });
                }),
      of_record("key-map-removed", "leaves the key map out of an update while a record is attached",
                "tctx.keymap.never-removed",
                [](Plan& plan, Rng& rng) {
                  return updates_map(plan, rng, [](Reference& r) { r.no_map = true; });
                }),
      of_record(
          "key-moved", "sorts the key map otherwise in an update", "tctx.keymap.never-reordered",
          [](Plan& plan, Rng& rng) {
            return updates_map(plan, rng, [](Reference& r) { std::ranges::reverse(*r.keys); });
          }),
      of_record("go-with-key-map", "announces go_pprof_labels_v1 and a key map",
                "tctx.altschema.go-no-key-map",
                [](Plan& plan, Rng& rng) {
                  without_thread_acts(plan.acts);
                  change_references(plan, [](Reference& r) { r.schema = "go_pprof_labels_v1"; });
                  const auto at = after_publication(plan, rng);
                  if (!at) return false;
                  plan.acts[*at - 1].deviant = true;
                  plan.acts.insert(plan.acts.begin() + static_cast<std::ptrdiff_t>(*at),
                                   made(Kind::kLook, rng));
                  return true;
                }),
  };
}

std::vector<Deviation> head_table() {
  return {
      of_record("root-span-id", "has a root span id after the span id", "tctx.record.layout",
                has_flaw_once<Flaw::kRootSpanId>, {"tctx.record.valid-reserved-values"}),
      of_record("record-size-swapped", "stores the size of the attributes with its bytes swapped",
                "tctx.record.byte-order", has_flaw<Flaw::kSizeSwapped>),
      of_record("trace-id-missing", "has a span id without a trace id",
                "tctx.record.ids-both-or-neither", has_flaw<Flaw::kNoTraceId>),
      of_record("span-id-missing", "has a trace id without a span id",
                "tctx.record.ids-both-or-neither", has_flaw<Flaw::kNoSpanId>),
      of_record("ids-while-valid", "sets the ids one after the other while the record is valid",
                "tctx.record.ids-both-or-neither",
                [](Plan& plan, Rng& rng) {
                  announce(plan);
                  ThreadAct attach = own_attach(rng);
                  attach.in_place = true;
                  ThreadAct change = attach;
                  change.turned = true;
                  attach.record.ids = false;
                  return insert_acts(plan, rng, {attach, change});
                }),
      of_record("flags-without-ids", "has trace flags without ids",
                "tctx.record.trace-flags-without-ids",
                [](Plan& plan, Rng& rng) {
                  return attaches(plan, rng, [](ThreadAct& act) {
                    act.record.ids = false;
                    act.record.flaw = Flaw::kFlags;
                  });
                }),
      of_record("valid-ff", "stores 255 for valid in every record", "tctx.record.valid-is-one",
                [](Plan& plan, Rng& rng) {
                  const auto all = [](ThreadAct& act) { act.record.flaw = Flaw::kValidFf; };
                  if (!attaches(plan, rng, all)) return false;
                  each_thread_act(plan.acts, all);
                  return true;
                }),
      of_record("valid-two", "stores 2 for valid in one of its records",
                "tctx.record.valid-reserved-values",
                [](Plan& plan, Rng& rng) {
                  if (!has_flaw<Flaw::kValidTwo>(plan, rng)) return false;
                  const auto at = std::ranges::find_if(
                      plan.acts, [](const Act& a) { return a.kind == Kind::kThread && a.deviant; });
                  Act before = *at;
                  before.seed = rng.next();
                  before.thread.record.flaw = Flaw::kNone;
                  Act seen = made(Kind::kLook, rng);
                  seen.deviant = true;
                  plan.acts.insert(at, {before, seen});
                  return true;
                }),
      of_record("size-counts-entries", "stores the number of attributes as their size",
                "tctx.record.attrs-data-size", has_flaw<Flaw::kSizeIsCount>),
      of_record("size-of-all", "counts the fixed part in the size of the attributes",
                "tctx.record.attrs-data-size", has_flaw<Flaw::kSizeWithHead>),
  };
}

std::vector<Deviation> memory_table() {
  return {
      of_record("odd-address", "has a record at an odd address", "tctx.record.aligned",
                has_flaw<Flaw::kOddAddress>),
      of_record("attributes-elsewhere", "has a pointer to the attributes in their place",
                "tctx.record.contiguous", has_flaw_once<Flaw::kPointer>),
      of_record("record-released", "unmaps a record that is attached", "tctx.record.contiguous",
                [](Plan& plan, Rng& rng) {
                  if (!has_flaw_once<Flaw::kReleased>(plan, rng)) return false;
                  // Other memory may be mapped at its old address.
                  while (!plan.acts.back().deviant) plan.acts.pop_back();
                  return true;
                }),
      of_record("slot-to-nowhere", "stores to the slot an address where nothing is mapped",
                "tctx.record.contiguous", has_flaw_once<Flaw::kNowhere>),
      of_record("size-beyond-mapping", "announces more attributes than are mapped",
                "tctx.record.contiguous", has_flaw_once<Flaw::kBeyondMapping>),
      of_record("record-of-700", "has a record of more than 700 bytes",
                "tctx.record.recommended-size",
                [](Plan& plan, Rng& rng) {
                  return attaches(plan, rng, [&](ThreadAct& act) {
                    for (auto& a : act.record.attributes) {
                      a = some_attribute(rng, a.key, 230 + rng.below(26));
                    }
                  });
                }),
  };
}

std::vector<Deviation> attribute_table() {
  return {
      of_record("length-as-varint", "writes a length above 127 in two bytes",
                "tctx.attrs.entry-format",
                [](Plan& plan, Rng& rng) {
                  return attaches(plan, rng, [&](ThreadAct& act) {
                    act.record.flaw = Flaw::kVarint;
                    act.record.attributes.back() = some_attribute(rng, 2, 130 + rng.below(120));
                  });
                }),
      of_record("entries-padded", "begins every attribute at an even offset", "tctx.attrs.packed",
                has_flaw<Flaw::kPadded>),
      of_record("attribute-size-less", "announces one byte of attributes too few",
                "tctx.attrs.ends-on-boundary", has_flaw<Flaw::kSizeLess>),
      of_record("attribute-size-more", "announces one byte of attributes too many",
                "tctx.attrs.ends-on-boundary", has_flaw<Flaw::kSizeMore>),
      of_record("attributes-cut", "ends the attributes inside a value",
                "tctx.attrs.ends-on-boundary",
                [](Plan& plan, Rng& rng) {
                  return attaches(plan, rng, [&](ThreadAct& act) {
                    act.record.flaw = Flaw::kCut;
                    act.record.attributes.back() = some_attribute(rng, 2, 20 + rng.below(60));
                  });
                }),
      of_record("index-beyond-map", "has an attribute with the first index outside the key map",
                "tctx.attrs.key-in-map",
                [](Plan& plan, Rng& rng) {
                  const auto beyond = [](ThreadAct& act) {
                    act.record.attributes.back().beyond = true;
                  };
                  if (!attaches(plan, rng, beyond)) return false;
                  // A later map with that index would only be late.
                  each_content(plan.acts, [](Content& content) {
                    content.reference->keys = first_keys(kFewNames);
                  });
                  return true;
                }),
      of_record("size-before-entry", "announces an attribute before it is written",
                "tctx.attrs.ends-on-boundary",
                [](Plan& plan, Rng& rng) {
                  announce(plan);
                  ThreadAct attach = own_attach(rng);
                  attach.memory = Memory::kMapping;
                  attach.spare = 100;
                  attach.leftovers = false;
                  ThreadAct append = attach;
                  append.kind = ThreadAct::Kind::kAppend;
                  append.turned = true;
                  append.record.attributes = {some_attribute(rng, 2, 5 + 2 * rng.below(20))};
                  return insert_acts(plan, rng, {attach, append});
                }),
      of_record("attribute-not-utf8", "has a value that is not UTF-8", "tctx.attrs.utf8",
                [](Plan& plan, Rng& rng) {
                  return attaches(plan, rng, [](ThreadAct& act) {
                    act.record.attributes.back().value = bytes_of("caf\xe9");
                  });
                }),
      of_record("character-cut", "cuts a value inside a character", "tctx.attrs.utf8",
                [](Plan& plan, Rng& rng) {
                  return attaches(plan, rng, [&](ThreadAct& act) {
                    Attribute& last = act.record.attributes.back();
                    last = some_attribute(rng, 2, 254);
                    last.value.push_back(std::byte{0xc3});
                  });
                }),
  };
}

}  // namespace

std::vector<Deviation> thread_deviations() {
  std::vector<Deviation> out;
  for (const auto& table : {reference_table(), head_table(), memory_table(), attribute_table()}) {
    out.insert(out.end(), table.begin(), table.end());
  }
  return out;
}

}  // namespace ctxconf::conformance::puppet
