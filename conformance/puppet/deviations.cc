#include "conformance/puppet/deviations.h"

#include <algorithm>
#include <functional>

namespace ctxconf::conformance::puppet {
namespace {

using Kind = Act::Kind;

Act look(Rng& rng) {
  Act out;
  out.seed = rng.next();
  return out;
}

// Acts of the process itself after which its context is examined.
Act* some(Plan& plan, Kind kind, Rng& rng) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < plan.acts.size(); ++i) {
    if (plan.acts[i].kind == kind) found.push_back(i);
  }
  if (found.empty()) return nullptr;
  const auto at = static_cast<std::ptrdiff_t>(rng.pick(found));
  plan.acts.insert(plan.acts.begin() + at + 1, look(rng));
  Act& act = plan.acts[static_cast<std::size_t>(at)];
  act.deviant = true;
  return &act;
}

// A publication into a mapping of its own.
Publication* publication(Plan& plan, Rng& rng) {
  Act* act = some(plan, Kind::kPublish, rng);
  if (act == nullptr) return nullptr;
  act->publication.again_in_place = false;
  return &act->publication;
}

// The publication in `act`, directly followed by an update that changes what is announced.
Update* update(Plan& plan, Rng& rng, Location location = Location::kAnonymous) {
  Act* act = some(plan, Kind::kPublish, rng);
  if (act == nullptr) return nullptr;
  Publication& p = act->publication;
  p.again_in_place = false;
  p.location = location;
  p.gap = 0;
  make_room(p);
  Act next;
  next.kind = Kind::kUpdate;
  next.seed = rng.next();
  next.deviant = true;
  next.update = legal_update(rng, p, false);
  next.update.renewal = Renewal::kNewBuffer;
  next.update.noise = 0;
  next.update.stamp.plus_one = false;
  if (p.pages > 1) {
    for (auto* namings : {&next.update.early, &next.update.late}) {
      for (auto& n : *namings) n.length = Length::kWhole;
    }
  }
  // Differs from the present content, and has another size.
  next.update.content.attributes.push_back(
      {"com.example.changed", string_value(std::string(40 + rng.below(20), 'c')), {}});
  if (encode(next.update.content).size() == encode(p.content).size()) {
    next.update.content.attributes.back().value = string_value(
        "longer than that, by many letters, "
        "and therefore of another size");
  }
  const auto at = act - plan.acts.data();
  plan.acts.insert(plan.acts.begin() + at + 1, next);
  return &plan.acts[static_cast<std::size_t>(at) + 1].update;
}

bool wrong_after(Plan& plan, Rng& rng, const char* what, Location location) {
  Act* act = some(plan, Kind::kPublish, rng);
  if (act == nullptr) return false;
  act->publication.again_in_place = false;
  act->publication.location = location;
  act->publication.gap = 0;
  make_room(act->publication);
  Act wrong;
  wrong.kind = Kind::kWrong;
  wrong.deviant = true;
  wrong.seed = rng.next();
  wrong.wrong = what;
  const auto at = act - plan.acts.data();
  plan.acts.insert(plan.acts.begin() + at + 2, wrong);
  return true;
}

// Publishes it again and again while it is valid.
bool repeat(Plan& plan, Rng& rng, Act& act, std::size_t times, bool quietly = false) {
  act.publication.again_in_place = false;
  std::vector<Act> more(times, act);
  for (Act& again : more) {
    again.seed = rng.next();
    again.repeated = true;
    if (quietly) again.publication.noise = 0;
  }
  plan.acts.insert(plan.acts.begin() + (&act - plan.acts.data()) + 1, more.begin(), more.end());
  return true;
}

template <typename Change>
bool publishes(Plan& plan, Rng& rng, Change change) {
  Publication* p = publication(plan, rng);
  if (p == nullptr) return false;
  change(*p);
  make_room(*p);
  return true;
}

template <typename Change>
void deviate(Act& act, Change change) {
  act.deviant = true;
  act.publication.again_in_place = false;
  change(act.publication);
  make_room(act.publication);
}

// Otherwise an update may store what the publication has wrong.
void update_by_fields(Act& act) {
  act.update.style = Style::kFields;
  act.update.same_signature = false;
}

// Makes everything that it publishes wrong in this way, where a valid context would excuse the
// others.
template <typename Change>
bool always_publishes(Plan& plan, Rng& rng, Change change) {
  std::erase_if(plan.acts, [](const Act& a) { return a.kind == Kind::kChild; });
  for (Act& act : plan.acts) {
    if (act.kind == Kind::kUpdate) update_by_fields(act);
    if (act.kind == Kind::kPublish) deviate(act, change);
  }
  return some(plan, Kind::kPublish, rng) != nullptr;
}

// Several publications, each withdrawn before the next.
void publish_several_times(Plan& plan, Rng& rng) {
  const auto first = std::ranges::find(plan.acts, Kind::kPublish, &Act::kind);
  if (first == plan.acts.end()) return;
  Act publish = *first;
  publish.publication.again_in_place = false;
  std::vector<Act> before;
  for (std::uint64_t i = 1 + rng.below(2); i > 0; --i) {
    publish.seed = rng.next();
    before.push_back(publish);
    Act drop = made(Kind::kDrop, rng);
    drop.drop.how = static_cast<Dropped>(rng.below(5));
    before.push_back(drop);
  }
  first->publication.again_in_place = false;
  plan.acts.insert(first, before.begin(), before.end());
}

// Makes all that it publishes wrong in this way, or one of several publications: the first, the
// last or one between them.
template <typename Change>
bool publishes_some(Plan& plan, Rng& rng, Change change) {
  if (rng.one_in(2)) return always_publishes(plan, rng, change);
  std::erase_if(plan.acts, [](const Act& a) { return a.kind == Kind::kChild; });
  publish_several_times(plan, rng);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < plan.acts.size(); ++i) {
    if (plan.acts[i].kind == Kind::kPublish) found.push_back(i);
  }
  if (found.empty()) return false;
  const std::size_t chosen = rng.pick(found);
  for (std::size_t i = chosen + 1; i < plan.acts.size(); ++i) {
    Act& act = plan.acts[i];
    if (act.kind == Kind::kPublish) {
      act.publication.again_in_place = false;
      break;
    }
    if (act.kind == Kind::kUpdate) update_by_fields(act);
  }
  deviate(plan.acts[chosen], change);
  plan.acts.insert(plan.acts.begin() + static_cast<std::ptrdiff_t>(chosen) + 1, look(rng));
  return true;
}

template <typename Change>
bool contains(Plan& plan, Rng& rng, Change change) {
  Publication* p = publication(plan, rng);
  if (p == nullptr) return false;
  change(p->content);
  make_room(*p);
  return true;
}

template <typename Change>
bool updates(Plan& plan, Rng& rng, Change change) {
  Update* u = update(plan, rng);
  if (u == nullptr) return false;
  change(*u);
  return true;
}

void store_by_field(std::vector<Act>& acts) {
  for (auto& act : acts) {
    store_by_field(act.child);
    if (act.kind != Kind::kPublish) continue;
    act.publication.style = Style::kFields;
    act.publication.again_in_place = false;
    act.deviant = true;
  }
}

// Reverses the order of two steps in everything that the program publishes.
bool turned(Plan& plan, Rng& rng, const char* first, const char* then) {
  store_by_field(plan.acts);
  plan.reversed.insert({first, then});
  return some(plan, Kind::kPublish, rng) != nullptr;
}

// A naming call before an update, or a second one after it, may belong to the earlier publication.
void name_updates_once(Plan& plan) {
  for (Act& act : plan.acts) {
    if (act.kind != Kind::kUpdate) continue;
    act.update.early.clear();
    act.update.late = {Naming()};
  }
}

// Letters in an order that no other message has.
std::string some_text(Rng& rng) {
  std::string out;
  for (int i = 0; i < 90; ++i) out += static_cast<char>('a' + rng.below(26));
  return out;
}

// A message may be prepared in shared memory, and not all of that is examined.
void without_shared_memory(Plan& plan) {
  std::erase_if(plan.acts, [](const Act& a) { return a.kind == Kind::kNoise; });
  for (Act& act : plan.acts) {
    act.publication.noise = 0;
    act.update.noise = 0;
    if (act.kind == Kind::kPublish && act.publication.location != Location::kInline) {
      act.publication.location = Location::kAnonymous;
    }
  }
}

// Makes the mapping longer, and names all of it.
void add_page(Publication& p) {
  p.pages += 1;
  p.asked = 0;
  for (auto* namings : {&p.early, &p.late}) {
    for (auto& n : *namings) n.length = Length::kWhole;
  }
}

// Only publications are wrong: an update would store where there is no header.
void without_updates(Plan& plan) {
  std::erase_if(plan.acts, [](const Act& a) { return a.kind == Kind::kUpdate; });
}

bool has_children(const Plan& plan) {
  return std::ranges::any_of(plan.acts, [](const Act& a) { return a.kind == Kind::kChild; });
}

// Nothing that a reader needs exists, and every request for it fails.
const std::vector<std::string_view> kNoHeader = {
    "pctx.publish.discoverable", "pctx.publish.name-after-timestamp", "pctx.header.layout",
    "pctx.publish.timestamp-last"};
const std::vector<std::string_view> kNoMessage = {"pctx.payload.process-context-message",
                                                  "pctx.payload.field-numbers",
                                                  "pctx.payload.utf8",
                                                  "pctx.publish.name-after-timestamp",
                                                  "pctx.header.payload-size",
                                                  "pctx.header.layout",
                                                  "pctx.header.payload-pointer",
                                                  "pctx.payload.readable",
                                                  "pctx.publish.payload-before-timestamp",
                                                  "pctx.publish.discoverable"};

std::vector<std::string_view> with(std::vector<std::string_view> a,
                                   const std::vector<std::string_view>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<Deviation> header_table() {
  return {
      {"signature-with-dash", "stores the signature OTEL-CTX", "pctx.header.signature", kNoHeader,
       [](Plan& plan, Rng& rng) {
         return publishes_some(plan, rng, [](Publication& p) { p.signature = "OTEL-CTX"; });
       }},
      {"version-three", "stores the version 3", "pctx.header.version", kNoHeader,
       [](Plan& plan, Rng& rng) {
         return publishes_some(plan, rng, [](Publication& p) { p.version = 3; });
       }},
      {"version-one", "stores the version 1", "pctx.header.version-development",
       with({"pctx.header.version"}, kNoHeader),
       [](Plan& plan, Rng& rng) {
         return publishes_some(plan, rng, [](Publication& p) { p.version = 1; });
       }},
      {"big-endian", "stores version and size with their bytes swapped",
       "pctx.header.native-byte-order",
       with({"pctx.header.version", "pctx.header.payload-size"}, with(kNoHeader, kNoMessage)),
       [](Plan& plan, Rng& rng) {
         return publishes_some(plan, rng, [](Publication& p) { p.foreign_order = true; });
       }},
      {"size-one-less", "announces one byte too few", "pctx.header.payload-size", kNoMessage,
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.size_error = -1; });
       }},
      // Another message may follow directly.
      {"size-one-more", "announces one byte too many", "pctx.header.payload-size",
       with({"pctx.update.old-payload-until-zero", "pctx.update.no-silent-change"}, kNoMessage),
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) {
           p.size_error = 1;
           p.spare += 8;
         });
       }},
      {"pointer-nowhere", "announces an address where nothing is mapped",
       "pctx.header.payload-pointer", kNoMessage,
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.pointer = 0x10000; });
       }},
      {"size-huge", "announces more bytes than any program maps", "pctx.header.payload-size",
       with({"pctx.update.old-payload-until-zero", "pctx.update.no-silent-change",
             "pctx.publish.memfd-sized"},
            kNoMessage),
       [](Plan& plan, Rng& rng) {
         static const std::vector<std::uint32_t> kSizes = {0x10000000, 0x7fffffff, 0xffffffff};
         return publishes(plan, rng, [&](Publication& p) { p.size = rng.pick(kSizes); });
       }},
      {"pointer-null", "announces a message at the address 0", "pctx.publish.fields-nonzero",
       kNoMessage,
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.pointer = 0; });
       }},
      {"pointer-beyond", "announces an address that no process has", "pctx.header.payload-pointer",
       kNoMessage,
       [](Plan& plan, Rng& rng) {
         static const std::vector<std::uint64_t> kAddresses = {0x800000000000, 0xffff800000000000,
                                                               0xffffffffffffff00};
         return publishes(plan, rng, [&](Publication& p) { p.pointer = rng.pick(kAddresses); });
       }},
      {"version-zero", "stores the version 0", "pctx.header.version", kNoHeader,
       [](Plan& plan, Rng& rng) {
         return publishes_some(plan, rng, [](Publication& p) { p.version = 0; });
       }},
      {"header-inside", "begins the header 64 bytes into its mapping",
       "pctx.header.at-mapping-start",
       with({"pctx.publish.name-arguments", "pctx.publish.name-always", "pctx.header.signature",
             "pctx.header.version"},
            kNoHeader),
       [](Plan& plan, Rng& rng) {
         without_updates(plan);
         return always_publishes(plan, rng, [](Publication& p) {
           p.header_at = 64;
           p.location = Location::kAnonymous;
           p.late = {Naming()};
         });
       }},
      {"clock-monotonic",
       "takes the timestamp from CLOCK_MONOTONIC",
       "pctx.header.timestamp-clock",
       {},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.stamp.clock = 1; });
       }},
      {"clock-realtime",
       "takes the timestamp from CLOCK_REALTIME",
       "pctx.header.timestamp-clock",
       {"pctx.update.timestamp-later"},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.stamp.clock = 0; });
       }},
      {"size-and-pointer-zero",
       "announces nothing with a size and a pointer of zero",
       "pctx.publish.fields-nonzero",
       {"pctx.publish.name-after-timestamp", "pctx.payload.process-context-message"},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.nothing = true; });
       }},
  };
}

std::vector<Deviation> repeated_key_table() {
  return {
      {"resource-key-twice",
       "has a key twice in the Resource",
       "pctx.payload.resource-keys-unique",
       {},
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           c.has_resource = true;
           c.resource.push_back({"com.example.twice", string_value("a"), {}});
           c.resource.insert(c.resource.begin(), {"com.example.twice", string_value("b"), {}});
         });
       }},
      {"attribute-key-twice",
       "has a key twice in field 2",
       "pctx.payload.attribute-keys-unique",
       {},
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           c.attributes.push_back({"com.example.twice", string_value("a"), {}});
           c.attributes.insert(c.attributes.begin(), {"com.example.twice", string_value("a"), {}});
         });
       }},
      {"nested-key-twice",
       "has a key twice in a list that is a value",
       "pctx.payload.nested-keys-unique",
       {},
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           Bytes pair = {std::byte{0x0a}, std::byte{1}, std::byte{'k'}, std::byte{0x12},
                         std::byte{0}};
           Bytes value = {std::byte{0x32}, std::byte{14}};
           for (int i = 0; i < 2; ++i) {
             value.push_back(std::byte{0x0a});
             value.push_back(std::byte{5});
             value.insert(value.end(), pair.begin(), pair.end());
           }
           c.attributes.push_back({"com.example.list", value, {}});
         });
       }},
  };
}

std::vector<Deviation> message_table() {
  return {
      {"value-not-utf8",
       "has a string value that is not UTF-8",
       "pctx.payload.utf8",
       {"pctx.payload.process-context-message"},
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           c.attributes.push_back({"com.example.bad", string_value("caf\xe9"), {}});
         });
       }},
      {"key-not-utf8",
       "has a key with an overlong form",
       "pctx.payload.utf8",
       {"pctx.payload.process-context-message"},
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           c.has_resource = true;
           c.entity = false;  // it would be about that key
           c.resource.push_back({"com.example.\xc0\xaf", string_value("a"), {}});
         });
       }},
      {"key-by-index",
       "names a key by an index (KeyValue field 3)",
       "pctx.payload.no-dictionary-references",
       {},
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           c.attributes.push_back({"com.example.index", string_value("a"), 7});
         });
       }},
      {"value-by-index",
       "names a value by an index (AnyValue field 8)",
       "pctx.payload.no-dictionary-references",
       {},
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           c.attributes.push_back({"com.example.index", {std::byte{0x40}, std::byte{7}}, {}});
         });
       }},
      {"field-one-number",
       "has a number in field 1",
       "pctx.payload.field-numbers",
       {"pctx.payload.process-context-message", "pctx.publish.name-after-timestamp",
        "pctx.header.layout", "pctx.header.payload-pointer"},
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) { c.raw = {std::byte{8}, std::byte{1}}; });
       }},
      {"no-message", "publishes text instead of a message", "pctx.payload.process-context-message",
       kNoMessage,
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           c = Content();
           c.has_resource = false;
           c.raw = bytes_of("service.name=checkout");
         });
       }},
      {"bare-resource", "publishes a Resource instead of a ProcessContext",
       "pctx.payload.process-context-message", kNoMessage,
       [](Plan& plan, Rng& rng) {
         return contains(plan, rng, [](Content& c) {
           Content inner;
           inner.resource = {};
           c = Content();
           c.has_resource = false;
           // The pairs of a Resource instead of a Resource.
           Bytes pair = {std::byte{0x0a}, std::byte{12}};
           for (const auto b : bytes_of("service.name")) pair.push_back(b);
           const Bytes value = string_value("checkout");
           pair.push_back(std::byte{0x12});
           pair.push_back(static_cast<std::byte>(value.size()));
           pair.insert(pair.end(), value.begin(), value.end());
           c.raw = {std::byte{0x0a}, static_cast<std::byte>(pair.size())};
           c.raw.insert(c.raw.end(), pair.begin(), pair.end());
         });
       }},
  };
}

std::vector<Deviation> payload_memory_table() {
  const auto unreadable = with({"pctx.payload.readable", "pctx.update.old-payload-until-zero",
                                "pctx.update.no-silent-change"},
                               kNoMessage);
  return {
      {"payload-unreadable", "takes read permission from the payload", "pctx.payload.stays-alive",
       unreadable,
       [](Plan& plan, Rng& rng) {
         return wrong_after(plan, rng, "payload unreadable", Location::kAnonymous);
       }},
      {"payload-released", "unmaps the payload of a context that stays valid",
       "pctx.payload.stays-alive", unreadable,
       [](Plan& plan, Rng& rng) {
         return wrong_after(plan, rng, "payload unmapped", Location::kAnonymous);
       }},
      {"payload-truncated", "truncates the file of a payload that stays announced",
       "pctx.payload.stays-alive", unreadable,
       [](Plan& plan, Rng& rng) {
         if (!wrong_after(plan, rng, "payload truncated", Location::kOtherFile)) return false;
         for (Act& act : plan.acts) {
           if (act.kind == Kind::kPublish && act.deviant) act.publication.keeps_file = true;
         }
         return true;
       }},
      {"payload-patched",
       "changes a byte of the payload without an update",
       "pctx.update.no-silent-change",
       {"pctx.payload.stays-alive", "pctx.update.old-payload-until-zero"},
       [](Plan& plan, Rng& rng) {
         if (!wrong_after(plan, rng, "patched",
                          rng.one_in(2) ? Location::kInline : Location::kShared)) {
           return false;
         }
         for (Act& act : plan.acts) {  // what is patched is the end of a text
           if (act.kind != Kind::kPublish || !act.deviant) continue;
           Content& c = act.publication.content;
           c.attributes_first = false;
           c.unknown_fields = false;
           c.attributes.push_back({"com.example.patched", string_value("text"), {}});
           make_room(act.publication);
         }
         return true;
       }},
  };
}

std::vector<Deviation> header_memory_table() {
  return {
      {"memfd-other-name", "names the memfd OTEL-CTX", "pctx.publish.memfd-name",
       with({"pctx.publish.memfd-first", "pctx.publish.memfd-flags"}, kNoHeader),
       [](Plan& plan, Rng& rng) {
         return always_publishes(plan, rng, [](Publication& p) { p.memfd_name = "OTEL-CTX"; });
       },
       true},
      {"memfd-longer-name", "names the memfd OTEL_CTX_2", "pctx.publish.memfd-name",
       with({"pctx.publish.memfd-first", "pctx.publish.memfd-flags"}, kNoHeader),
       [](Plan& plan, Rng& rng) {
         return publishes_some(plan, rng, [](Publication& p) { p.memfd_name = "OTEL_CTX_2"; });
       }},
      {"memfd-executable",
       "asks for no non-executable seal at once",
       "pctx.publish.memfd-flags",
       {},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) {
           p.memfd_flags = 3;
           p.refused_first = false;
         });
       }},
      {"memfd-inherited",
       "does not ask for close-on-exec",
       "pctx.publish.memfd-flags",
       {"pctx.exec.memfd-not-leaked"},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) {
           p.memfd_flags = 10;
           p.refused_first = false;
         });
       }},
      {"memfd-not-sized",
       "stores to a memfd of no size",
       "pctx.publish.memfd-sized",
       {"pctx.publish.name-always", "pctx.publish.discoverable"},
       [](Plan& plan, Rng& rng) {
         if (has_children(plan)) return false;
         plan.left_out.insert("sized");
         return always_publishes(plan, rng, [](Publication& p) {
           p.map_flags = 2;
           p.location = Location::kAnonymous;
           p.how = p.header_how = CopyHow::kBytes;  // by the kernel: EFAULT, and no signal
         });
       },
       /*needs_names=*/false,
       Threads::kNever,
       /*may_die=*/true},
      {"anonymous-at-once", "does not try a memfd", "pctx.publish.memfd-first", kNoHeader,
       [](Plan& plan, Rng& rng) {
         return always_publishes(plan, rng, [](Publication& p) {
           p.anonymous = true;
           p.refused_first = false;
         });
       },
       true},
      {"mapping-shared",
       "maps the header's memory shared",
       "pctx.publish.mapping-private",
       {},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.map_flags = 1; });
       }},
      {"mapping-executable",
       "maps the header's memory executable",
       "pctx.publish.mapping-protection",
       {},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) {
           p.prot = 7;
           p.memfd_flags = 11;
         });
       }},
      {"mapping-executable-later",
       "makes the header's memory executable once it is published",
       "pctx.publish.mapping-protection",
       {},
       [](Plan& plan, Rng& rng) {
         return wrong_after(plan, rng, "executable", Location::kAnonymous);
       }},
      {"memfd-left-open",
       "leaves the memfd open",
       "pctx.publish.memfd-closed",
       {"pctx.exec.memfd-not-leaked"},
       [](Plan& plan, Rng& rng) {
         if (!publishes(plan, rng, [](Publication& p) { p.closed = false; })) return false;
         // It is still open when the process ends.
         const auto last = std::ranges::find(plan.acts, true, &Act::deviant);
         plan.acts.erase(last + 2, plan.acts.end());
         return true;
       }},
  };
}

std::vector<Deviation> several_contexts_table() {
  const std::vector<std::string_view> two_contexts = {"pctx.publish.discoverable",
                                                      "pctx.publish.existing-becomes-update",
                                                      "pctx.update.same-mapping"};
  return {
      {"two-contexts", "publishes again while the first context is valid", "pctx.publish.singleton",
       two_contexts,
       [](Plan& plan, Rng& rng) {
         Act* act = some(plan, Kind::kPublish, rng);
         return act != nullptr && repeat(plan, rng, *act, 1);
       }},
      {"many-contexts", "publishes again and again while the first context is valid",
       "pctx.publish.singleton", two_contexts,
       [](Plan& plan, Rng& rng) {
         Act* act = some(plan, Kind::kPublish, rng);
         return act != nullptr && repeat(plan, rng, *act, 2 + rng.below(10), /*quietly=*/true);
       }},
  };
}

std::vector<Deviation> publication_order_table() {
  const auto late_field =
      with({"pctx.update.timestamp-distinct", "pctx.update.zero-timestamp-first",
            "pctx.publish.fields-nonzero", "pctx.update.fields-while-zero"},
           with(kNoMessage, kNoHeader));
  return {
      {"signature-last", "stores the signature after the timestamp", "pctx.publish.timestamp-last",
       with({"pctx.update.signature-untouched", "pctx.update.zero-timestamp-first"}, kNoHeader),
       [](Plan& plan, Rng& rng) { return turned(plan, rng, "signature", "timestamp"); }},
      {"version-last", "stores the version after the timestamp", "pctx.publish.timestamp-last",
       with({"pctx.update.signature-untouched", "pctx.update.zero-timestamp-first"}, kNoHeader),
       [](Plan& plan, Rng& rng) { return turned(plan, rng, "version", "timestamp"); }},
      {"size-last", "stores the size after the timestamp", "pctx.publish.timestamp-last",
       late_field, [](Plan& plan, Rng& rng) { return turned(plan, rng, "size", "timestamp"); }},
      {"pointer-last", "stores the pointer after the timestamp", "pctx.publish.timestamp-last",
       late_field, [](Plan& plan, Rng& rng) { return turned(plan, rng, "pointer", "timestamp"); }},
      {"payload-last", "writes the payload after the timestamp",
       "pctx.publish.payload-before-timestamp",
       with({"pctx.update.no-silent-change", "pctx.payload.stays-alive"}, kNoMessage),
       [](Plan& plan, Rng& rng) { return turned(plan, rng, "payload", "timestamp"); }},
      {"timestamp-in-halves",
       "stores the first timestamp in two halves",
       "pctx.publish.timestamp-single-store",
       {"pctx.publish.timestamp-last"},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.stamp.halves = true; });
       }},
  };
}

std::vector<Deviation> naming_table() {
  const std::vector<std::string_view> unnamed = {
      "pctx.publish.name-always", "pctx.publish.discoverable", "pctx.publish.name-after-timestamp"};
  return {
      {"never-named",
       "makes no naming call",
       "pctx.publish.name-always",
       {"pctx.publish.discoverable"},
       [](Plan& plan, Rng& rng) {
         name_updates_once(plan);
         return publishes(plan, rng, [](Publication& p) {
           p.late.clear();
           p.early.clear();
         });
       }},
      {"named-otherwise", "gives the mapping the name OTEL-CTX", "pctx.publish.name-arguments",
       unnamed,
       [](Plan& plan, Rng& rng) {
         name_updates_once(plan);
         return publishes(plan, rng, [](Publication& p) {
           p.early.clear();
           p.late = {Naming()};
           p.late[0].text = "OTEL-CTX";
         });
       }},
      {"payload-named", "names the payload's mapping instead", "pctx.publish.name-arguments",
       unnamed,
       [](Plan& plan, Rng& rng) {
         name_updates_once(plan);
         return publishes(plan, rng, [](Publication& p) {
           p.early.clear();
           p.late = {Naming()};
           p.late[0].payload = true;
           p.location = Location::kAfter;
         });
       }},
      {"named-in-part",
       "names the first of several pages",
       "pctx.publish.name-whole-mapping",
       {"pctx.publish.discoverable"},
       [](Plan& plan, Rng& rng) {
         name_updates_once(plan);
         Publication* p = publication(plan, rng);
         if (p == nullptr) return false;
         p->pages = std::max<std::uint64_t>(p->pages, 2) + 1;
         p->asked = 0;
         p->early.clear();
         p->late = {Naming()};
         p->late[0].length = Length::kPage;
         return true;
       }},
      {"second-page-named",
       "names all but the first page",
       "pctx.publish.name-arguments",
       {"pctx.publish.discoverable", "pctx.publish.name-always", "pctx.publish.name-whole-mapping",
        "pctx.publish.name-after-timestamp"},
       [](Plan& plan, Rng& rng) {
         name_updates_once(plan);
         return publishes(plan, rng, [](Publication& p) {
           add_page(p);
           p.early.clear();
           p.late = {Naming()};
           p.late[0].from = 1;
         });
       }},
      {"named-early-alone",
       "makes the naming call before the timestamp and not again",
       "pctx.publish.name-after-timestamp",
       {"pctx.publish.name-always"},
       [](Plan& plan, Rng& rng) {
         name_updates_once(plan);
         return publishes(plan, rng, [](Publication& p) {
           p.late.clear();
           p.early = {Naming()};
         });
       }},
  };
}

std::vector<Deviation> fork_table() {
  const std::vector<std::string_view> inherited = {
      "pctx.fork.dontfork-before-header", "pctx.fork.child-has-none", "pctx.publish.singleton",
      "pctx.publish.memfd-closed"};
  return {
      {"forkable", "never asks for MADV_DONTFORK", "pctx.fork.dontfork", inherited,
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.advice = 0; });
       }},
      {"other-advice", "asks for MADV_DONTDUMP instead of MADV_DONTFORK", "pctx.fork.dontfork",
       inherited,
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) { p.advice = 16; });
       }},
      {"forkable-in-part",
       "leaves the last page out of MADV_DONTFORK",
       "pctx.fork.dontfork",
       {"pctx.fork.dontfork-before-header", "pctx.publish.singleton", "pctx.publish.memfd-closed"},
       [](Plan& plan, Rng& rng) {
         return publishes(plan, rng, [](Publication& p) {
           add_page(p);
           p.advice_partial = true;
         });
       }},
      {"forkable-again",
       "takes MADV_DONTFORK back",
       "pctx.fork.dontfork",
       {"pctx.publish.singleton", "pctx.publish.memfd-closed"},
       [](Plan& plan, Rng& rng) {
         return wrong_after(plan, rng, "forkable again", Location::kAnonymous);
       }},
      {"advice-after-signature",
       "stores the signature before MADV_DONTFORK",
       "pctx.fork.dontfork-before-header",
       {},
       [](Plan& plan, Rng& rng) { return turned(plan, rng, "advise", "signature"); }},
      {"advice-after-pointer",
       "stores the pointer before MADV_DONTFORK",
       "pctx.fork.dontfork-before-header",
       {},
       [](Plan& plan, Rng& rng) { return turned(plan, rng, "advise", "pointer"); }},
      {"advice-after-version",
       "stores the version before MADV_DONTFORK",
       "pctx.fork.dontfork-before-header",
       {},
       [](Plan& plan, Rng& rng) { return turned(plan, rng, "advise", "version"); }},
  };
}

std::vector<Deviation> update_timestamp_table() {
  const auto late_field =
      with({"pctx.update.timestamp-distinct", "pctx.update.zero-timestamp-first",
            "pctx.update.no-silent-change", "pctx.update.name-after-timestamp",
            "pctx.update.prepare-before-zero"},
           kNoMessage);
  return {
      {"update-without-zero",
       "changes the fields and then replaces the timestamp",
       "pctx.update.zero-timestamp-first",
       {"pctx.update.fields-while-zero", "pctx.update.no-silent-change",
        "pctx.update.timestamp-single-store", "pctx.update.zero-single-store"},
       [](Plan& plan, Rng& rng) {
         return updates(plan, rng, [](Update& u) { u.no_zero = true; });
       }},
      {"update-size-late", "stores the new size after the new timestamp",
       "pctx.update.fields-while-zero", late_field,
       [](Plan& plan, Rng& rng) {
         plan.reversed.insert({"update size", "update timestamp"});
         return updates(plan, rng, [](Update& u) { u.style = Style::kFields; });
       }},
      {"update-pointer-late", "stores the new pointer after the new timestamp",
       "pctx.update.fields-while-zero", late_field,
       [](Plan& plan, Rng& rng) {
         plan.reversed.insert({"update pointer", "update timestamp"});
         return updates(plan, rng, [](Update& u) {
           u.style = Style::kFields;
           u.release = Release::kKept;
         });
       }},
      {"size-corrected", "changes the size of a context that is not updated",
       "pctx.update.fields-while-zero",
       with({"pctx.update.timestamp-distinct", "pctx.publish.timestamp-last",
             "pctx.update.zero-timestamp-first", "pctx.update.no-silent-change",
             "pctx.payload.stays-alive"},
            kNoMessage),
       [](Plan& plan, Rng& rng) {
         return wrong_after(plan, rng, "size corrected", Location::kAnonymous);
       }},
      {"timestamp-replaced",
       "stores another timestamp without a zero",
       "pctx.update.zero-timestamp-first",
       {"pctx.publish.timestamp-last", "pctx.publish.timestamp-single-store",
        "pctx.update.name-always", "pctx.update.timestamp-single-store",
        "pctx.header.timestamp-clock"},
       [](Plan& plan, Rng& rng) {
         return wrong_after(plan, rng, "timestamp repeated", Location::kAnonymous);
       }},
      {"zero-in-halves",
       "stores the zero in two halves",
       "pctx.update.zero-single-store",
       {"pctx.update.zero-timestamp-first"},
       [](Plan& plan, Rng& rng) {
         return updates(plan, rng, [](Update& u) { u.zero_in_halves = true; });
       }},
      {"update-timestamp-in-halves",
       "stores the new timestamp in two halves",
       "pctx.update.timestamp-single-store",
       {},
       [](Plan& plan, Rng& rng) {
         return updates(plan, rng, [](Update& u) { u.stamp.halves = true; });
       }},
      {"timestamp-repeated",
       "stores the old timestamp again",
       "pctx.update.timestamp-distinct",
       {"pctx.update.timestamp-later", "pctx.header.timestamp-clock",
        "pctx.update.no-silent-change"},
       [](Plan& plan, Rng& rng) {
         return updates(plan, rng, [](Update& u) { u.stamp.repeated = true; });
       }},
      {"timestamp-smaller",
       "stores a smaller timestamp",
       "pctx.update.timestamp-later",
       {"pctx.header.timestamp-clock"},
       [](Plan& plan, Rng& rng) {
         return updates(plan, rng, [](Update& u) { u.stamp.smaller = true; });
       }},
  };
}

std::vector<Deviation> update_naming_table() {
  return {
      {"update-not-named",
       "makes no naming call on an update",
       "pctx.update.name-always",
       {"pctx.publish.discoverable"},
       [](Plan& plan, Rng& rng) {
         name_updates_once(plan);
         return updates(plan, rng, [](Update& u) {
           u.late.clear();
           u.early.clear();
           // With it, this may be another publication, and the call of the next update may belong
           // to it.
           u.same_signature = false;
         });
       }},
      {"update-named-early",
       "makes the naming call of an update before its zero and not again",
       "pctx.update.name-always",
       {"pctx.update.name-after-timestamp"},
       [](Plan& plan, Rng& rng) {
         name_updates_once(plan);
         return updates(plan, rng, [](Update& u) {
           u.late.clear();
           u.early = {Naming()};
         });
       }},
  };
}

std::vector<Deviation> update_memory_table() {
  return {
      {"encoded-in-window",
       "encodes the new message while the timestamp is zero",
       "pctx.update.prepare-before-zero",
       {},
       [](Plan& plan, Rng& rng) {
         without_shared_memory(plan);
         return updates(plan, rng, [&](Update& u) {
           u.encoded_in_window = true;
           u.same_signature = false;  // with it, it may be another publication
           Content content;
           content.attributes = {{"com.example.once", string_value(some_text(rng)), {}}};
           u.content = content;
         });
       }},
      {"signature-blanked",
       "blanks the signature during an update",
       "pctx.update.signature-untouched",
       {},
       [](Plan& plan, Rng& rng) {
         return updates(plan, rng, [](Update& u) {
           u.blanked_signature = true;
           u.same_signature = false;
         });
       }},
      {"old-payload-poisoned", "overwrites the old message before the zero",
       "pctx.update.old-payload-until-zero",
       with({"pctx.update.no-silent-change", "pctx.payload.stays-alive"}, kNoMessage),
       [](Plan& plan, Rng& rng) {
         plan.threads = 0;
         plan.alone = true;
         std::erase_if(plan.acts, [](const Act& act) { return act.kind == Kind::kFirstEnds; });
         return updates(plan, rng, [](Update& u) { u.poisoned_before = true; });
       }},
      {"mapping-moved",
       "moves the mapping with mremap on an update",
       "pctx.update.same-mapping",
       {"pctx.update.name-always", "pctx.update.name-after-timestamp"},
       [](Plan& plan, Rng& rng) { return updates(plan, rng, [](Update& u) { u.moved = true; }); }},
  };
}

}  // namespace

std::span<const Deviation> deviations() {
  static const std::vector<Deviation> kAll = [] {
    std::vector<Deviation> all;
    for (const auto& table :
         {header_table(), repeated_key_table(), message_table(), payload_memory_table(),
          header_memory_table(), several_contexts_table(), publication_order_table(),
          naming_table(), fork_table(), update_timestamp_table(), update_naming_table(),
          update_memory_table(), thread_deviations()}) {
      all.insert(all.end(), table.begin(), table.end());
    }
    return all;
  }();
  return kAll;
}

}  // namespace ctxconf::conformance::puppet
