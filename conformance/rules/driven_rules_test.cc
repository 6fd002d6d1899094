// The rules about driven programs, OTEP 4719, against sessions that are written down.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/rules/expected_resource.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using sys::MapEntry;
using sys::RemoteAddr;
using sys::RemoteRange;

constexpr std::int32_t kPid = 12;
constexpr std::int32_t kChildPid = 30;

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string pairs_in(int number, const Pairs& pairs) {
  std::string out;
  for (const auto& [key, value] : pairs) {
    out += field(number, field(1, key) + field(2, field(1, value)));
  }
  return out;
}

Json expected_attributes(const Pairs& pairs) {
  Json out = Json::array();
  for (const auto& [key, value] : pairs) {
    out.push_back({{"key", key}, {"value", {{"stringValue", value}}}});
  }
  return out;
}
Json with_resource(const Pairs& pairs) {
  return {{"resource", {{"attributes", expected_attributes(pairs)}}}};
}

// What a process published.
struct PublishedContext {
  Pairs resource = {{"service.name", "shop"}};
  Pairs attributes;
  std::uint64_t timestamp = 1000;
  std::uint64_t mapping = kMapping;
  std::string tail;  // after the message, and announced with it

  std::string payload() const {
    return field(1, pairs_in(1, resource)) + pairs_in(2, attributes) + tail;
  }
  abi::ProcessHeader header() const {
    return {abi::kSignature, abi::kVersion, static_cast<std::uint32_t>(payload().size()), timestamp,
            kHeap};
  }
  Candidate candidate() const {
    const auto h = header();
    MapEntry entry;
    entry.range = *RemoteRange::from_size(RemoteAddr(mapping), 4096);
    entry.readable = entry.writable = true;
    entry.inode = 7;
    entry.name = "/memfd:OTEL_CTX (deleted)";
    Candidate c;
    c.entries = {entry};
    c.memory = {memory_block(mapping, std::string(reinterpret_cast<const char*>(&h), sizeof h)),
                memory_block(kHeap, payload())};
    return c;
  }
};

// A session with process 12. A snapshot shows what was published after each operation.
struct Driven : LiteralRecording {
  Session session;
  std::vector<PublishedContext> state;     // of process 12
  std::vector<PublishedContext> of_child;  // of process 30, while it lives
  bool child_lives = false;

  Driven() {
    t.mode = Mode::kRun;
    session.group = "literal";
    session.root = {kPid, 0};
    session.hello = R"({"id":1,"ok":true,"caps":{}})";
    session.checks.emplace_back().name = "literal";
    ask("hello", {});
  }

  ImageView look_at(Image& i, const std::vector<PublishedContext>& published) {
    Snapshot s;
    s.moment = Moment::kOperation;
    s.moments = {s.moment};
    s.first_seen_ns = s.last_seen_ns = now += kStep;
    for (const PublishedContext& w : published) s.candidates.push_back(w.candidate());
    i.snapshots.push_back(std::move(s));
    ImageView view;
    view.image = i.key;
    view.order = order;
    view.snapshot = i.snapshots.size() - 1;
    return view;
  }

  Operation& ask(const std::string& op, Json members, const Json& reply = {{"ok", true}}) {
    Operation o;
    if (!op.empty()) {
      members["op"] = op;
      o.request = members.dump();
      o.reply = reply.dump();
    }
    o.sent_ns = now += kStep;
    o.after.push_back(look_at(image(), state));
    if (child_lives) o.after.push_back(look_at(child().images.front(), of_child));
    o.answered_ns = now += kStep;
    session.operations.push_back(std::move(o));
    return session.operations.back();
  }
  Operation& idle() { return ask("", {}); }
  Operation& refused(const std::string& op, const Json& members) {
    return ask(op, members, {{"ok", false}, {"error", {{"kind", "rejected"}, {"message", "no"}}}});
  }

  Process& child() {
    for (Process& p : t.processes) {
      if (p.pid == kChildPid) return p;
    }
    Process p;
    p.pid = kChildPid;
    p.parent = kPid;
    p.images.emplace_back().key = {kChildPid, 0};
    t.processes.push_back(std::move(p));
    return t.processes.back();
  }

  Store& store(std::int32_t tid, const PublishedContext& before, const PublishedContext& after) {
    Store s;
    s.tid = tid;
    s.order = ++order;
    s.at_ns = now += kStep;
    s.header = before.mapping;
    const auto bytes = [](const abi::ProcessHeader& h) {
      std::vector<std::byte> out(sizeof h);
      std::memcpy(out.data(), &h, sizeof h);
      return out;
    };
    s.before = bytes(before.header());
    s.after = bytes(after.header());
    s.payload = memory_block(kHeap, after.payload());
    s.threads = 1;
    image().stores.push_back(std::move(s));
    return image().stores.back();
  }

  Finding judge(std::string_view id) {
    Timeline timeline = t;
    timeline.sessions = {session};
    const auto all = evidence_of(timeline);
    const RequirementRule* rule = rule_of(id);
    EXPECT_NE(rule, nullptr) << id;
    for (const auto& e : all) {
      if (rule != nullptr && e.image->key == session.root) return rule->rule(e);
    }
    ADD_FAILURE() << "nobody to ask";
    return {};
  }
  Outcome outcome(std::string_view id) { return judge(id).outcome; }
};

PublishedContext named(const std::string& name, std::uint64_t timestamp) {
  PublishedContext w;
  w.resource = {{"service.name", name}};
  w.timestamp = timestamp;
  return w;
}
Driven published(const PublishedContext& w = {}) {
  Driven d;
  d.state = {w};
  d.ask("process.publish", with_resource(w.resource));
  return d;
}

TEST(DrivenRules, NothingWasAsked) {
  for (const auto group : {driven_resource_rules(), driven_process_rules(), driven_fork_rules()}) {
    for (const RequirementRule& rule : group) {
      Driven d;
      const Finding f = d.judge(rule.id);
      EXPECT_EQ(f.outcome, Outcome::kUnobservable) << rule.id;
      EXPECT_FALSE(f.remedy.empty()) << rule.id;
    }
  }
  Driven d;
  EXPECT_EQ(d.outcome("pctx.payload.resource-matches-sdk"), Outcome::kUnobservable);
}

// ---- updates

constexpr const char* kVisible = "pctx.update.visible";

TEST(UpdateVisible, TheNewValue) {
  Driven d = published();
  d.state = {named("shop-2", 2000)};
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome(kVisible), Outcome::kPass);
}

TEST(UpdateVisible, TheOldValue) {
  Driven d = published();
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  const Finding f = d.judge(kVisible);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_NE(f.saw.find("\"shop\""), std::string::npos) << f.saw;
  EXPECT_NE(f.saw.find("\"shop-2\""), std::string::npos) << f.saw;
}

TEST(UpdateVisible, TheResourceIsNoLongerInField1) {
  PublishedContext w;
  w.resource = {};
  w.attributes = {{"service.name", "shop-2"}};
  for (const char* const op : {"process.update", "process.publish"}) {
    Driven d = published();
    d.state = {w};
    d.ask(op, with_resource({{"service.name", "shop-2"}}));
    const Finding f = d.judge(kVisible);
    EXPECT_EQ(f.outcome, Outcome::kFail) << op;
    EXPECT_NE(f.saw.find("is in field 2, and not in the Resource"), std::string::npos) << f.saw;
  }
}

TEST(UpdateVisible, AResourceThatWasNeverInField1IsForAnotherRequirement) {
  PublishedContext w;
  w.resource = {};
  w.attributes = {{"service.name", "shop"}};
  Driven d;
  d.state = {w};
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  w.attributes = {{"service.name", "shop-2"}};
  d.state = {w};
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome("pctx.payload.resource-matches-sdk"), Outcome::kFail);
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);
}

TEST(UpdateVisible, AnAdditionalPairMayBeInTheResource) {
  Driven d = published();
  Json request = with_resource({{"service.name", "shop-2"}});
  request["attributes"] = expected_attributes({{"canary", "2"}});
  d.state = {named("shop-2", 2000)};
  d.state.back().resource.emplace_back("canary", "2");
  d.ask("process.update", request);
  EXPECT_EQ(d.outcome(kVisible), Outcome::kPass);
}

TEST(UpdateVisible, WhatWasChangedFromTheStartIsForAnotherRequirement) {
  Driven d;
  d.state = {named("SHOP", 1000)};
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  d.state = {named("SHOP-2", 2000)};
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome("pctx.payload.resource-matches-sdk"), Outcome::kFail);
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);

  Driven lacking;
  lacking.state = {named("shop", 1000)};
  lacking.ask("process.publish", with_resource({{"service.name", "shop"}, {"host.name", "one"}}));
  lacking.state = {named("shop-2", 2000)};
  lacking.ask("process.update", with_resource({{"service.name", "shop-2"}, {"host.name", "two"}}));
  EXPECT_EQ(lacking.outcome(kVisible), Outcome::kPass);
  lacking.ask("process.update", with_resource({{"service.name", "shop-3"}, {"host.name", "two"}}));
  EXPECT_EQ(lacking.outcome(kVisible), Outcome::kFail);
}

TEST(UpdateVisible, TheContextIsGone) {
  Driven d = published();
  d.state = {};
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome(kVisible), Outcome::kFail);
}

TEST(UpdateVisible, WithoutAnyContextNothingIsKnown) {
  Driven d;
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);
}

TEST(UpdateVisible, ARefusedChangeNeedNotShow) {
  Driven d = published();
  d.refused("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);
}

TEST(UpdateVisible, WhileAThreadGivesAName) {
  Json update = with_resource({{"service.name", "shop-2"}});
  update["op"] = "process.update";
  const Json attach = {{"op", "thread.attach"}, {"thread", "namer"}};
  const Json requests = {{"requests", {update, attach}}};
  const Json ok = {{"ok", true}};
  Driven d = published();
  d.ask("parallel", requests, {{"ok", true}, {"results", {ok, {{"ok", false}}}}});
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);
  d.ask("parallel", requests, {{"ok", true}, {"results", {ok, ok}}});
  EXPECT_EQ(d.outcome(kVisible), Outcome::kFail);
  Driven shown = published();
  shown.state = {named("shop-2", 2000)};
  shown.ask("parallel", requests, {{"ok", true}, {"results", {ok, ok}}});
  EXPECT_EQ(shown.outcome(kVisible), Outcome::kPass);
}

TEST(UpdateVisible, AnotherPublicationIsAChange) {
  Driven d = published();
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  const Finding f = d.judge(kVisible);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_NE(f.saw.find("\"again\""), std::string::npos) << f.saw;
}

TEST(UpdateVisible, AnotherPublicationMayShowAfterAWait) {
  Driven d = published();
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  d.state = {named("again", 2000)};
  d.idle();
  EXPECT_EQ(d.outcome(kVisible), Outcome::kPass);
}

TEST(UpdateVisible, ARefusedPublicationChangesNothing) {
  Driven d = published();
  d.refused("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);
}

TEST(UpdateVisible, APublicationAfterAWithdrawal) {
  Driven d = published();
  d.state = {};
  d.ask("process.drop", {});
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_EQ(d.outcome(kVisible), Outcome::kFail);
}

TEST(UpdateVisible, APublicationAfterAWithdrawalThatLeftTheMapping) {
  Driven d = published();
  d.state = {named("shop", 0)};
  d.ask("process.drop", {});
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);
  Driven again = d;
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_EQ(d.outcome(kVisible), Outcome::kFail);
  again.ask("process.publish", with_resource({{"service.name", "again"}}));
  again.state = {named("again", 2000)};
  again.idle();
  EXPECT_EQ(again.outcome(kVisible), Outcome::kUnobservable);
}

TEST(UpdateVisible, AWithdrawalThatWithdrawsNothing) {
  const auto outcome_with = [](const std::vector<PublishedContext>& left) {
    Driven d = published();
    d.state = left;
    d.ask("process.drop", {});
    return d.outcome(kVisible);
  };
  EXPECT_EQ(outcome_with({PublishedContext{}}), Outcome::kFail);
  EXPECT_EQ(outcome_with({named("shop", 2000)}), Outcome::kFail);
  PublishedContext empty = named("", 2000);
  empty.resource = {};
  empty.attributes = {{"left", "1"}};
  EXPECT_EQ(outcome_with({empty}), Outcome::kFail);
  EXPECT_EQ(outcome_with({named("shop", 0)}), Outcome::kUnobservable);
}

TEST(UpdateVisible, AContextOfAnotherSdkMayBeThereAfterAWithdrawal) {
  Driven d = published();
  d.ask("sdk.load", {});
  d.state = {named("other", 2000)};
  d.ask("process.drop", {});
  EXPECT_EQ(d.outcome(kVisible), Outcome::kUnobservable);
}

TEST(UpdateVisible, ManyUpdates) {
  const auto outcome_of = [](const std::string& name, std::uint64_t timestamp,
                             const Json& iterations = 20U) {
    Driven d = published();
    d.state = {named(name, timestamp)};
    d.ask("process.churn", {{"iterations", iterations}});
    return d.outcome(kVisible);
  };
  EXPECT_EQ(outcome_of("shop", 1000), Outcome::kFail);
  EXPECT_EQ(outcome_of("shop", 2000), Outcome::kFail);
  EXPECT_EQ(outcome_of("churn-0000000020", 2000), Outcome::kUnobservable);
  EXPECT_EQ(outcome_of("churn-0000000019", 2000), Outcome::kFail);
  EXPECT_EQ(outcome_of("shop", 1000, "many"), Outcome::kUnobservable);
}

TEST(UpdateVisible, ManyUpdatesOfAnSdkThatHasItsOwnName) {
  Driven d = published(named("of the SDK", 1000));
  d.session.operations.clear();
  d.ask("process.publish", with_resource({{"service.name", "shop"}}),
        {{"ok", true}, {"left_out", {"service.name"}}});
  d.ask("process.churn", {{"iterations", 20U}});
  EXPECT_NE(d.outcome(kVisible), Outcome::kFail);
}

// A kind, and a length, that showed once is not left out for a limit.
TEST(UpdateVisible, WhatShowedBeforeCannotBeLeftOut) {
  const auto outcome_of = [](std::size_t first, std::size_t next, bool shows_first) {
    const auto with_long = [](std::size_t size) {
      return Pairs{{"service.name", "shop"}, {"long", std::string(size, 'l')}};
    };
    Driven d;
    PublishedContext w;
    if (shows_first) w.resource = with_long(first);
    d.state = {w};
    d.ask("process.publish", with_resource(with_long(first)));
    d.state = {named("shop", 2000)};
    d.ask("process.update", with_resource(with_long(next)));
    return d.outcome(kVisible);
  };
  EXPECT_EQ(outcome_of(300, 200, true), Outcome::kFail);
  EXPECT_EQ(outcome_of(200, 300, true), Outcome::kPass);
  EXPECT_EQ(outcome_of(300, 200, false), Outcome::kPass);
}

TEST(UpdateVisible, WhatWasLeftOutAndThenShowsIsAsItWasGiven) {
  const auto outcome_of = [](const Pairs& updated) {
    const Json number = {{"key", "number"}, {"value", {{"intValue", "7"}}}};
    Json given = with_resource({{"service.name", "shop"}});
    given["resource"]["attributes"].push_back(number);
    Driven d;
    d.state = {PublishedContext()};
    d.ask("process.publish", given);
    PublishedContext w = named("shop", 2000);
    w.resource = updated;
    d.state = {w};
    d.ask("process.update", given);
    return d.outcome(kVisible);
  };
  EXPECT_EQ(outcome_of({{"service.name", "shop"}}), Outcome::kPass);
  EXPECT_EQ(outcome_of({{"service.name", "shop"}, {"number", "7"}}), Outcome::kFail);
}

TEST(UpdateVisible, FirstPublicationsAtOnce) {
  Json requests = Json::array();
  for (const char* const name : {"a", "b"}) {
    Json r = with_resource({{"service.name", name}});
    r["op"] = "process.publish";
    requests.push_back(r);
  }
  const auto outcome_of = [&](const Json& first, const Json& second, bool shows_later) {
    Driven d;
    d.ask("parallel", {{"requests", requests}},
          {{"ok", true}, {"results", Json::array({first, second})}});
    if (shows_later) d.state = {named("b", 1000)};
    d.idle();
    d.state = {named("after", 2000)};
    d.ask("process.publish", with_resource({{"service.name", "after"}}));
    return d.outcome(kVisible);
  };
  const Json ok = {{"ok", true}};
  EXPECT_EQ(outcome_of(ok, ok, false), Outcome::kFail);
  EXPECT_EQ(outcome_of(ok, ok, true), Outcome::kPass);
  EXPECT_NE(outcome_of(ok, {{"ok", false}}, false), Outcome::kFail);
  const auto first_shows = [&](const std::string& name) {
    Driven d;
    d.state = {named(name, 1000)};
    d.ask("parallel", {{"requests", requests}}, {{"ok", true}, {"results", {ok, ok}}});
    return d.outcome("pctx.payload.resource-matches-sdk");
  };
  EXPECT_EQ(first_shows("unknown_service"), Outcome::kFail);
  EXPECT_NE(first_shows("b"), Outcome::kFail);
  Driven never;
  never.ask("parallel", {{"requests", requests}}, {{"ok", true}, {"results", {ok, ok}}});
  never.ask("process.publish", with_resource({{"service.name", "after"}}));
  EXPECT_NE(never.outcome(kVisible), Outcome::kFail);
}

TEST(UpdateVisible, SeveralContextsAreForAnotherRequirement) {
  Driven d = published();
  d.state.push_back(named("other", 2000));
  d.state.back().mapping -= 0x10000;
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_NE(d.outcome(kVisible), Outcome::kFail);
}

constexpr const char* kSame = "pctx.update.same-mapping";

TEST(UpdateSameMapping, MadeAnewAtItsPlace) {
  Driven d = published();
  d.call("munmap", {kMapping, 4096}, 0);
  d.call("mmap", {0, 4096}, kMapping);
  d.state = {named("shop-2", 2000)};
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  const Finding f = d.judge(kSame);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.signature, "header mapping made anew");
}

TEST(UpdateSameMapping, MappedOver) {
  Driven d = published();
  d.call("mmap", {kMapping - 4096, 8192}, kMapping - 4096);
  d.state = {named("shop-2", 2000)};
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome(kSame), Outcome::kFail);
}

TEST(UpdateSameMapping, OneThatWorksInPlaceDoesNotMakeUpForIt) {
  Driven d = published();
  d.call("madvise", {kMapping, 4096, 10}, 0);
  d.state = {named("shop-2", 2000)};
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome(kSame), Outcome::kPass);
  d.state = {named("shop-3", 3000)};
  d.state.front().mapping += 0x10000;
  d.ask("thread.attach", {{"thread", "main"}});
  EXPECT_EQ(d.outcome(kSame), Outcome::kFail);
}

TEST(UpdateSameMapping, AWithdrawalAndAPublicationAreNotAnUpdate) {
  Driven d = published();
  d.state = {named("shop-2", 2000)};
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  d.call("munmap", {kMapping, 4096}, 0);
  d.state = {};
  d.ask("process.drop", {});
  d.state = {named("shop", 3000)};
  d.state.front().mapping += 0x10000;
  d.call("mmap", {0, 4096}, static_cast<std::int64_t>(kMapping + 0x10000));
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(d.outcome(kSame), Outcome::kPass);
}

constexpr const char* kState = "pctx.update.complete-state";
const Pairs kTwo = {{"service.name", "shop"}, {"extra", "canary"}};

Driven with_two() {
  PublishedContext w;
  w.resource = kTwo;
  return published(w);
}

TEST(UpdateCompleteState, ARemovedAttributeIsGone) {
  Driven d = with_two();
  d.state = {named("shop", 2000)};
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  d.state = {named("longer", 3000)};
  d.ask("process.update", with_resource({{"service.name", "longer"}}));
  EXPECT_EQ(d.outcome(kState), Outcome::kPass);
}

TEST(UpdateCompleteState, ItIsStillPublished) {
  Driven d = with_two();
  d.state.front().timestamp = 2000;
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(d.outcome(kState), Outcome::kFail);
}

TEST(UpdateCompleteState, AmongFewKeys) {
  constexpr const char* kFewKeys =
      R"({"id":1,"ok":true,"caps":{"process.publish":{"keys":["service.name","extra"]}}})";
  const auto update = [](Driven& d, const Pairs& wanted, const Pairs& there) {
    d.state.front().resource = there;
    d.state.front().timestamp += 1000;
    d.ask("process.update", with_resource(wanted));
  };
  Driven d = with_two();
  d.session.hello = kFewKeys;
  update(d, kTwo, kTwo);
  EXPECT_EQ(d.outcome(kState), Outcome::kNa);
  Driven by_name = d;
  update(by_name, {{"service.name", "longer"}, {"extra", "canary"}},
         {{"service.name", "longer"}, {"extra", "canary"}});
  EXPECT_EQ(by_name.outcome(kState), Outcome::kPass);
  Driven removed = d;
  update(removed, {{"service.name", "shop"}}, {{"service.name", "shop"}});
  EXPECT_EQ(removed.outcome(kState), Outcome::kPass);
  update(d, {{"service.name", "shop"}}, kTwo);
  EXPECT_EQ(d.outcome(kState), Outcome::kFail);
}

TEST(UpdateCompleteState, TheSdkHasAValueOfItsOwn) {
  Driven d = with_two();
  PublishedContext w = named("shop", 2000);
  w.resource.emplace_back("extra", "default");
  d.state = {w};
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  d.state = {named("longer", 3000)};
  d.ask("process.update", with_resource({{"service.name", "longer"}}));
  EXPECT_EQ(d.outcome(kState), Outcome::kPass);
}

TEST(UpdateCompleteState, WhatOnlyWeGiveHasNoValueOfTheSdk) {
  PublishedContext w;
  w.resource = {{"service.name", "shop"}, {"ctxconf.removed", "canary"}};
  Driven d = published(w);
  w.timestamp = 2000;
  w.resource.back().second = "";
  d.state = {w};
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(d.outcome(kState), Outcome::kFail);
}

TEST(UpdateCompleteState, TheSizeIsThatOfTheOldMessage) {
  Driven d = with_two();
  d.state = {named("shop", 2000)};
  d.state.front().tail = std::string(18, '\0');
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  const Finding f = d.judge(kState);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.signature, "the state after an update does not decode");
}

TEST(UpdateCompleteState, AnUpdateThatIsNotVisibleIsForAnotherRequirement) {
  Driven d = with_two();
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}));
  EXPECT_EQ(d.outcome(kState), Outcome::kUnobservable);
}

TEST(UpdateCompleteState, WhatIsGivenInParallelIsNotCertain) {
  Driven d = with_two();
  d.ask("parallel", {{"requests", {{{"op", "process.update"}}}}});
  d.ask("process.update", {{"attributes", Json::array()}});
  EXPECT_EQ(d.outcome(kState), Outcome::kUnobservable);
}

// ---- publication

constexpr const char* kAgain = "pctx.publish.existing-becomes-update";

TEST(ExistingBecomesUpdate, TheSameMapping) {
  Driven d = published();
  d.state = {named("again", 2000)};
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_EQ(d.outcome(kAgain), Outcome::kPass);
}

TEST(ExistingBecomesUpdate, AnotherMapping) {
  Driven d = published();
  d.state = {named("again", 2000)};
  d.state.front().mapping += 0x10000;
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_EQ(d.outcome(kAgain), Outcome::kFail);
}

TEST(ExistingBecomesUpdate, UnmappedAndMadeAgainAtItsPlace) {
  Driven d = published();
  d.call("munmap", {kMapping, 4096}, 0);
  d.state = {named("again", 2000)};
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  const Finding f = d.judge(kAgain);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.level, "syscalls");
}

TEST(ExistingBecomesUpdate, OtherCallsAndOtherTimes) {
  Driven d = published();
  d.call("munmap", {kMapping + 4096, 4096}, 0);  // the page after it
  d.call("munmap", {kMapping, 4096}, -22);
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(d.outcome(kAgain), Outcome::kUnobservable);  // answered, and nothing was done
  d.state = {named("shop", 2000)};
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  d.call("munmap", {kMapping, 4096}, 0);
  d.state = {};
  d.ask("process.drop", {});
  d.state = {named("shop", 3000)};
  d.state.front().mapping += 0x10000;
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(d.outcome(kAgain), Outcome::kPass);
}

TEST(ExistingBecomesUpdate, ARefusalLeavesTheFirst) {
  Driven d = published();
  d.refused("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_EQ(d.outcome(kAgain), Outcome::kPass);
  d.state.front().mapping += 0x10000;
  d.refused("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_EQ(d.outcome(kAgain), Outcome::kFail);
}

TEST(ExistingBecomesUpdate, AnotherCopyOfTheSdkIsForAnotherRequirement) {
  Driven d = published();
  d.state.push_back(named("other", 2000));
  d.state.back().mapping -= 0x10000;
  Json request = with_resource({{"service.name", "other"}});
  request["sdk"] = 2;
  d.ask("process.publish", request);
  EXPECT_EQ(d.outcome(kAgain), Outcome::kUnobservable);
}

constexpr const char* kInit = "pctx.publish.on-init";

TEST(PublishOnInit, AtOnce) {
  Driven d = published();
  EXPECT_EQ(d.outcome(kInit), Outcome::kPass);
}

TEST(PublishOnInit, InTheBackground) {
  Driven d;
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  d.state = {PublishedContext{}};
  d.idle();
  EXPECT_EQ(d.outcome(kInit), Outcome::kPass);
}

TEST(PublishOnInit, NotWhileOneWaits) {
  Driven d;
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  d.now += 3 * kSecond;
  d.idle();
  const Finding f = d.judge(kInit);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.saw.find("one came with"), std::string::npos) << f.saw;
  d.state = {PublishedContext{}};
  d.ask("thread.attach", {});
  EXPECT_NE(d.judge(kInit).saw.find("one came with thread.attach"), std::string::npos);
}

TEST(PublishOnInit, NobodyWaited) {
  Driven d;
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  d.state = {PublishedContext{}};
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(d.outcome(kInit), Outcome::kUnobservable);
}

constexpr const char* kIdle = "pctx.publish.available-while-idle";

TEST(AvailableWhileIdle, TheSameContent) {
  Driven d = published();
  d.idle();
  EXPECT_EQ(d.outcome(kIdle), Outcome::kPass);
}

TEST(AvailableWhileIdle, AnUpdateOfItsOwnIsLegal) {
  Driven d = published();
  d.state.front().timestamp = 2000;
  d.state.front().resource.emplace_back("host.name", "detected");
  d.idle();
  EXPECT_EQ(d.outcome(kIdle), Outcome::kPass);
}

TEST(AvailableWhileIdle, Withdrawn) {
  Driven d = published();
  d.state = {};
  d.idle();
  EXPECT_EQ(d.outcome(kIdle), Outcome::kFail);
}

TEST(AvailableWhileIdle, AnotherValue) {
  Driven d = published();
  d.state = {named("unknown_service", 2000)};
  d.idle();
  EXPECT_EQ(d.outcome(kIdle), Outcome::kFail);
}

TEST(AvailableWhileIdle, WhatWasWrongBeforeIsForAnotherRequirement) {
  Driven d = published();
  d.state = {named("unknown_service", 2000)};
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  d.idle();
  EXPECT_NE(d.outcome(kIdle), Outcome::kFail);
}

// ---- withdrawal

constexpr const char* kDead = "pctx.drop.no-dead-payload";

PublishedContext zeroed(PublishedContext w) {
  w.timestamp = 0;
  return w;
}

TEST(NoDeadPayload, ZeroedAndUnmapped) {
  Driven d = published();
  d.store(kPid, PublishedContext{}, zeroed({}));
  d.call("munmap", {kMapping, 4096}, 0);
  d.state = {};
  d.ask("process.drop", {});
  EXPECT_EQ(d.outcome(kDead), Outcome::kPass);
}

TEST(NoDeadPayload, TheHeaderStays) {
  Driven d = published();
  d.ask("process.drop", {});
  EXPECT_EQ(d.outcome(kDead), Outcome::kUnobservable);  // nothing was withdrawn
  d.state = {named("gone", 1000)};                      // another payload under the same header
  d.state.front().resource = {{"service.nam3", "shop"}};
  d.idle();
  EXPECT_EQ(d.outcome(kDead), Outcome::kFail);
}

TEST(NoDeadPayload, OverwrittenBeforeTheZero) {
  Driven d = published();
  d.store(kPid, PublishedContext{}, zeroed({})).payload =
      memory_block(kHeap, std::string(24, '\0'));
  d.state = {};
  d.ask("process.drop", {});
  const Finding f = d.judge(kDead);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.level, "stores");
}

TEST(NoDeadPayload, UnmappedBeforeTheZero) {
  Driven d = published();
  d.store(kPid, PublishedContext{}, zeroed({})).payload.reset();
  d.state = {};
  d.ask("process.drop", {});
  EXPECT_EQ(d.outcome(kDead), Outcome::kFail);
}

TEST(NoDeadPayload, AnotherThreadMayHaveSeenTheZero) {
  Driven d = published();
  Store& s = d.store(kPid, PublishedContext{}, zeroed({}));
  s.payload.reset();
  s.threads = 2;
  d.state = {};
  d.ask("process.drop", {});
  EXPECT_EQ(d.outcome(kDead), Outcome::kUnobservable);
}

TEST(NoDeadPayload, StoresOfAnUpdateAreNone) {
  Driven d = published();
  d.store(kPid, PublishedContext{}, zeroed({})).payload.reset();
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(d.outcome(kDead), Outcome::kUnobservable);
}

// ---- several writers

constexpr const char* kWriters = "pctx.update.one-writer-at-a-time";

Json parallel_updates() {
  Json requests = Json::array();
  for (const char* const name : {"a", "b"}) {
    Json r = with_resource({{"service.name", name}, {"writer", name}});
    r["op"] = "process.update";
    requests.push_back(r);
  }
  return {{"requests", requests}};
}
Json all_ok() { return {{"ok", true}, {"results", {{{"ok", true}}, {{"ok", true}}}}}; }

TEST(UpdateVisible, OneOfSeveralUpdatesAtOnce) {
  const auto outcome_of = [](const Pairs& there, const Json& reply) {
    Driven d = published();
    PublishedContext w;
    w.resource = there;
    w.timestamp = 2000;
    d.state = {w};
    d.ask("parallel", parallel_updates(), reply);
    return d.outcome(kVisible);
  };
  EXPECT_EQ(outcome_of({{"service.name", "b"}, {"writer", "b"}}, all_ok()), Outcome::kPass);
  EXPECT_EQ(outcome_of({{"service.name", "shop"}}, all_ok()), Outcome::kFail);
  EXPECT_EQ(outcome_of({{"service.name", "b"}}, all_ok()), Outcome::kFail);
  // A mixture is for pctx.update.one-writer-at-a-time.
  EXPECT_EQ(outcome_of({{"service.name", "a"}, {"writer", "b"}}, all_ok()), Outcome::kUnobservable);
  const Json took_the_name = {{"ok", true}, {"taken", {"service.name"}}};
  const Json took_names = {{"ok", true}, {"results", {took_the_name, took_the_name}}};
  EXPECT_EQ(outcome_of({{"service.name", "b"}}, took_names), Outcome::kPass);
  const Json one_failed = {{"ok", true}, {"results", {{{"ok", true}}, {{"ok", false}}}}};
  EXPECT_EQ(outcome_of({{"service.name", "shop"}}, one_failed), Outcome::kUnobservable);
}

// An update in which `middle` stores the fields.
void update(Driven& d, std::int32_t tid, std::int32_t middle, const PublishedContext& from,
            const PublishedContext& to) {
  PublishedContext between = zeroed(to);
  d.store(tid, from, zeroed(from));
  d.store(middle, zeroed(from), between);
  d.store(tid, between, to);
}

Driven watched() {
  Driven d = published();
  Watch w;
  w.header = kMapping;
  w.armed_order = ++d.order;
  const auto h = PublishedContext{}.header();
  w.found.resize(sizeof h);
  std::memcpy(w.found.data(), &h, sizeof h);
  d.image().watches.push_back(std::move(w));
  d.idle();
  return d;
}

PublishedContext of_both(const std::string& name, const std::string& writer) {
  PublishedContext w;
  w.timestamp = 2000;
  w.resource = {{"service.name", name}, {"writer", writer}};
  return w;
}

TEST(OneWriterAtATime, EachByOneThread) {
  Driven d = watched();
  const PublishedContext b = of_both("b", "b");
  update(d, 20, 20, PublishedContext{}, b);
  PublishedContext a = of_both("a", "a");
  a.timestamp = 3000;
  update(d, 21, 21, b, a);
  d.state = {a};
  d.ask("parallel", parallel_updates(), all_ok());
  const Finding f = d.judge(kWriters);
  EXPECT_EQ(f.outcome, Outcome::kPass) << f.saw;
}

TEST(OneWriterAtATime, AStoreOfAnotherThread) {
  Driven d = watched();
  const PublishedContext b = of_both("b", "b");
  update(d, 20, 21, PublishedContext{}, b);
  d.state = {b};
  d.ask("parallel", parallel_updates(), all_ok());
  EXPECT_EQ(d.outcome(kWriters), Outcome::kFail);
}

TEST(OneWriterAtATime, AMixture) {
  Driven d = watched();
  const PublishedContext mixed = of_both("a", "b");
  update(d, 20, 20, PublishedContext{}, mixed);
  d.state = {mixed};
  d.ask("parallel", parallel_updates(), all_ok());
  EXPECT_EQ(d.outcome(kWriters), Outcome::kFail);
}

TEST(OneWriterAtATime, NeitherOfThemIsNotAMixture) {
  Driven d = watched();
  const PublishedContext b = of_both("c", "b");
  update(d, 20, 20, PublishedContext{}, b);
  d.state = {b};
  d.ask("parallel", parallel_updates(), all_ok());
  EXPECT_EQ(d.outcome(kWriters), Outcome::kPass);
}

TEST(OneWriterAtATime, WithoutStores) {
  Driven d = published();
  d.state = {of_both("b", "b")};
  d.ask("parallel", parallel_updates(), all_ok());
  EXPECT_EQ(d.outcome(kWriters), Outcome::kUnobservable);
}

// ---- failures

constexpr const char* kRecoverable = "pctx.update.failure-recoverable";

// An update during which the clock could not be read, and `after` is seen.
Driven failed_update(const std::vector<PublishedContext>& after) {
  Driven d = published();
  d.call("clock_gettime", {7}, -22).injected = true;
  d.state = after;
  d.refused("process.update", with_resource({{"service.name", "next"}}));
  return d;
}

TEST(UpdateFailureRecoverable, AnOldContextANewOneAndNone) {
  for (const auto& after : {std::vector{PublishedContext{}}, std::vector{named("next", 2000)},
                            std::vector<PublishedContext>{}}) {
    Driven d = failed_update(after);
    d.state = {named("next", 3000)};
    d.ask("process.update", with_resource({{"service.name", "next"}}));
    EXPECT_EQ(d.outcome(kRecoverable), Outcome::kPass) << after.size();
  }
}

TEST(UpdateFailureRecoverable, TheTimestampStaysZero) {
  Driven d = failed_update({zeroed({})});
  d.state = {named("next", 3000)};
  d.ask("process.update", with_resource({{"service.name", "next"}}));
  const Finding f = d.judge(kRecoverable);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.signature, "timestamp left at zero");
}

TEST(UpdateFailureRecoverable, AnUpdateOfItsOwnWasUnderWay) {
  Driven d = failed_update({zeroed({})});
  d.state = {named("shop", 2500)};
  d.idle();
  d.state = {named("next", 3000)};
  d.ask("process.update", with_resource({{"service.name", "next"}}));
  EXPECT_EQ(d.outcome(kRecoverable), Outcome::kPass);
}

TEST(UpdateFailureRecoverable, AnEarlierStoreByAnotherThreadIsNoUpdateUnderWay) {
  Driven d;
  d.store(kPid + 1, zeroed({}), PublishedContext{});
  d.state = {PublishedContext{}};
  d.ask("process.publish", with_resource({{"service.name", "shop"}}));
  d.call("prctl", {0x53564d41}, -22).injected = true;
  d.state = {zeroed({})};
  d.refused("process.update", with_resource({{"service.name", "next"}}));
  EXPECT_EQ(d.judge(kRecoverable).signature, "timestamp left at zero");
}

TEST(UpdateFailureRecoverable, AStoreNextToTheOldTimestampStoresNone) {
  Driven d = failed_update({PublishedContext{}});
  d.state = {zeroed(named("next", 3000))};
  d.store(kPid, PublishedContext{}, named("next", 1000));
  d.store(kPid, named("next", 1000), zeroed(named("next", 3000)));
  d.ask("process.update", with_resource({{"service.name", "next"}}));
  EXPECT_EQ(d.outcome(kRecoverable), Outcome::kFail);
}

TEST(UpdateFailureRecoverable, TheLookAtTheNextUpdateMetAnUpdateByAnotherThread) {
  for (const bool stored : {false, true}) {
    Driven d = failed_update({PublishedContext{}});
    d.state = {zeroed(named("next", 3000))};
    if (stored) {
      d.store(kPid, zeroed({}), named("next", 3000));
      d.store(kPid + 1, named("next", 3000), zeroed(named("next", 3000)));
    }
    d.ask("process.update", with_resource({{"service.name", "next"}}));
    EXPECT_EQ(d.outcome(kRecoverable), stored ? Outcome::kPass : Outcome::kFail);
  }
}

TEST(UpdateFailureRecoverable, AnotherThreadWasInTheMiddleOfAnUpdate) {
  for (const std::int32_t tid : {kPid, kPid + 1}) {
    Driven d = published();
    d.call("prctl", {0x53564d41}, -22).injected = true;
    d.store(tid, PublishedContext{}, zeroed({}));
    d.state = {zeroed({})};
    d.ask("process.update", with_resource({{"service.name", "next"}}));
    EXPECT_EQ(d.outcome(kRecoverable) == Outcome::kFail, tid == kPid);
  }
}

TEST(UpdateVisible, TheTimestampMayBeZeroBeforeAndAfterByChance) {
  Driven d = published();
  d.state = {zeroed({})};
  d.idle();
  d.ask("process.publish", with_resource({{"service.name", "next"}}));
  const Finding f = d.judge(kVisible);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.saw, "after another publication the timestamp is still zero");
  d.state = {named("next", 3000)};
  d.idle();
  EXPECT_NE(d.outcome(kVisible), Outcome::kFail);

  Driven between = published();
  between.state = {zeroed({})};
  between.idle();
  between.store(kPid, zeroed({}), named("next", 3000));
  between.store(kPid, named("next", 3000), zeroed({}));
  between.ask("process.publish", with_resource({{"service.name", "next"}}));
  EXPECT_NE(between.outcome(kVisible), Outcome::kFail);
}

TEST(UpdateFailureRecoverable, NothingMoreCanBePublished) {
  Driven d = failed_update({});
  EXPECT_EQ(d.outcome(kRecoverable), Outcome::kPass);  // nobody tried
  d.refused("process.update", with_resource({{"service.name", "next"}}));
  EXPECT_EQ(d.outcome(kRecoverable), Outcome::kFail);
  d.state = {named("anew", 3000)};
  d.ask("process.publish", with_resource({{"service.name", "anew"}}));
  EXPECT_EQ(d.outcome(kRecoverable), Outcome::kPass);
}

TEST(UpdateFailureRecoverable, AnEndWithoutMemoryHidesNoTimestampLeftAtZero) {
  const auto end_without_memory = [](Driven& d) {
    d.session.ending = {AdapterEnding::How::kKilled, "killed by SIGABRT"};
    d.call("mmap", {0, 4096}, -12).injected = true;
    d.ask("process.update", with_resource({{"service.name", "last"}})).reply.clear();
  };
  Driven d = published();
  end_without_memory(d);
  EXPECT_EQ(d.outcome(kRecoverable), Outcome::kInfo);
  Driven zero = failed_update({zeroed({})});
  end_without_memory(zero);
  EXPECT_EQ(zero.judge(kRecoverable).signature, "timestamp left at zero");
}

TEST(UpdateFailureRecoverable, ACallThatFailedByItself) {
  Driven d = published();
  d.call("prctl", {0x53564d41}, -22);
  d.ask("process.update", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(d.outcome(kRecoverable), Outcome::kUnobservable);
}

// ---- what is given

TEST(DefaultResource, OneOfTwo) {
  constexpr const char* kId = "pctx.payload.default-resource";
  Driven d = published();
  d.ask("process.second_resource", with_resource({{"service.name", "tenant"}}));
  EXPECT_EQ(d.outcome(kId), Outcome::kPass);
  Driven other = d;
  other.state = {named("other", 2000)};
  other.idle();
  EXPECT_EQ(other.outcome(kId), Outcome::kFail);
  Driven emptied = d;
  emptied.state.front().resource = {};
  emptied.idle();
  EXPECT_EQ(emptied.outcome(kId), Outcome::kFail);
  Driven withdrawn = d;
  withdrawn.state = {};
  withdrawn.idle();
  EXPECT_EQ(withdrawn.outcome(kId), Outcome::kFail);
  d.state = {named("tenant", 3000)};
  d.idle();
  EXPECT_NE(d.judge(kId).saw.find("of another provider"), std::string::npos);
}

const Json kTookTheName = {{"ok", true}, {"taken", {"service.name"}}, {"left_out", {"extra"}}};
const Json kTookNothing = {{"ok", true}, {"taken", Json::array()}};

TEST(ResourceAsGiven, WhatTheSdkDidNotTakeIsNotCompared) {
  constexpr const char* kId = "pctx.payload.resource-matches-sdk";
  const Pairs two = {{"service.name", "shop"}, {"extra", "canary"}};
  for (const auto& [reply, wanted] :
       {std::pair{Json{{"ok", true}}, Outcome::kFail}, std::pair{kTookTheName, Outcome::kPass},
        std::pair{kTookNothing, Outcome::kNa}}) {
    Driven d;
    PublishedContext w;
    w.resource.emplace_back("extra", "of the SDK");
    d.state = {w};
    d.ask("process.publish", with_resource(two), reply);
    EXPECT_EQ(d.outcome(kId), wanted) << reply;
  }
}

TEST(ResourceAsGiven, WhatItTookIsCompared) {
  Driven d;
  d.state = {named("other", 1000)};
  d.ask("process.publish", with_resource({{"service.name", "shop"}, {"extra", "canary"}}),
        kTookTheName);
  EXPECT_EQ(d.outcome("pctx.payload.resource-matches-sdk"), Outcome::kFail);
}

TEST(UpdateVisible, PairsNextToAResourceThatStays) {
  const Json update = {{"attributes", expected_attributes({{"canary", "2"}})}};
  Driven d = published();
  d.state.front().attributes = {{"canary", "1"}};
  d.ask("process.update", {{"attributes", expected_attributes({{"canary", "1"}})}});
  EXPECT_EQ(d.outcome(kVisible), Outcome::kPass);
  Driven left_out = d;
  left_out.ask("process.update", update, {{"ok", true}, {"left_out", {"canary"}}});
  EXPECT_EQ(left_out.outcome(kVisible), Outcome::kPass);
  Driven lost = d;
  lost.ask("process.update", update);
  EXPECT_EQ(lost.outcome(kVisible), Outcome::kFail);
  d.state.front().attributes = {{"canary", "2"}};
  d.ask("process.update", update);
  EXPECT_EQ(d.outcome(kVisible), Outcome::kPass);
}

TEST(UpdateVisible, WhatTheSdkDidNotTakeNeedNotShow) {
  Driven d = published();
  d.ask("process.update", with_resource({{"service.name", "shop-2"}}), kTookNothing);
  EXPECT_EQ(d.outcome(kVisible), Outcome::kNa);
  d.ask("process.update", with_resource({{"service.name", "shop-2"}, {"extra", "1"}}),
        kTookTheName);
  EXPECT_EQ(d.outcome(kVisible), Outcome::kFail);
}

Json forked(const char* what) {
  Json child = with_resource({{"service.name", "worker"}});
  child["do"] = what;
  return {{"child", child}};
}

TEST(ForkedChild, ThatWithdrawsHasNoContext) {
  constexpr const char* kId = "pctx.fork.child-publishes-own";
  const Json reply = {{"ok", true}, {"child_pid", kChildPid}};
  Driven d = published();
  d.child_lives = true;
  d.ask("process.fork", forked("drop"), reply);
  EXPECT_EQ(d.outcome(kId), Outcome::kPass);
  EXPECT_EQ(d.outcome("pctx.fork.parent-untouched"), Outcome::kPass);
  d.of_child = {named("worker", 2000)};
  d.ask("process.fork", forked("drop"), reply);
  EXPECT_EQ(d.outcome(kId), Outcome::kFail);
  d.state = {};
  d.ask("process.fork", forked("drop"), reply);
  EXPECT_EQ(d.outcome("pctx.fork.parent-untouched"), Outcome::kFail);
}

TEST(ExtraKeys, InFieldTwo) {
  constexpr const char* kId = "pctx.payload.extra-keys-in-attributes";
  Json request = with_resource({{"service.name", "shop"}});
  request["attributes"] = expected_attributes({{"canary", "1"}});
  Driven d;
  PublishedContext w;
  w.attributes = {{"canary", "1"}};
  d.state = {w};
  d.ask("process.publish", request);
  EXPECT_EQ(d.outcome(kId), Outcome::kPass);
  w.resource.emplace_back("canary", "1");
  d.state = {w};
  d.ask("process.publish", request);
  EXPECT_EQ(d.outcome(kId), Outcome::kFail);

  Driven refusing;
  refusing.refused("process.publish", request);
  EXPECT_EQ(refusing.outcome(kId), Outcome::kNa);
  Driven replaced = published();
  replaced.ask("process.publish", request);
  EXPECT_EQ(replaced.outcome(kId), Outcome::kUnobservable);
}

constexpr const char* kAsGiven = "pctx.payload.resource-matches-sdk";

TEST(ExtraKeys, AsTheyWereGiven) {
  constexpr const char* kPlace = "pctx.payload.extra-keys-in-attributes";
  const Json number = {{"key", "number"}, {"value", {{"intValue", "1"}}}};
  Json request = with_resource({{"service.name", "shop"}});
  request["attributes"] = expected_attributes({{"canary", "1"}});
  request["attributes"].push_back(number);
  const auto outcome_of = [&](const char* id, const Pairs& there, const Json& reply) {
    Driven d;
    PublishedContext w;
    w.attributes = there;
    d.state = {w};
    d.ask("process.publish", request, reply);
    return d.outcome(id);
  };
  const auto outcome = [&](const Pairs& there, const Json& reply) {
    return outcome_of(kPlace, there, reply);
  };
  const Json ok = {{"ok", true}};
  const Json left_out = {{"ok", true}, {"left_out", {"canary"}}};
  EXPECT_EQ(outcome({{"canary", "1"}}, ok), Outcome::kPass);
  EXPECT_EQ(outcome({}, ok), Outcome::kFail);
  EXPECT_EQ(outcome({}, left_out), Outcome::kUnobservable);
  EXPECT_EQ(outcome({{"canary", "2"}}, left_out), Outcome::kUnobservable);
  EXPECT_EQ(outcome({}, kTookTheName), Outcome::kNa);

  EXPECT_EQ(outcome_of(kAsGiven, {{"canary", "1"}}, ok), Outcome::kPass);
  EXPECT_EQ(outcome_of(kAsGiven, {{"canary", "2"}}, ok), Outcome::kFail);
  EXPECT_EQ(outcome_of(kAsGiven, {{"canary", "1"}, {"number", "1"}}, ok), Outcome::kFail);
  EXPECT_EQ(outcome_of(kAsGiven, {}, ok), Outcome::kPass);
  EXPECT_EQ(outcome_of(kAsGiven, {{"canary", "2"}}, left_out), Outcome::kPass);
}

TEST(ResourceAsGiven, FoundAndChanged) {
  Driven d = published();
  EXPECT_EQ(d.outcome(kAsGiven), Outcome::kPass);

  Driven changed;
  changed.state = {named("sho", 1000)};
  changed.ask("process.publish", with_resource({{"service.name", "shop"}}));
  EXPECT_EQ(changed.outcome(kAsGiven), Outcome::kFail);

  Driven lost;
  lost.state = {PublishedContext{}};
  lost.ask("process.publish", with_resource(kTwo));
  EXPECT_EQ(lost.outcome(kAsGiven), Outcome::kFail);
}

TEST(ResourceAsGiven, WhatALimitOrTheApiLeavesOut) {
  Driven d;
  d.state = {PublishedContext{}};
  Json request = with_resource({{"service.name", "shop"}, {"long", std::string(16384, 's')}});
  request["resource"]["attributes"].push_back({{"key", "flag"}, {"value", {{"boolValue", true}}}});
  d.ask("process.publish", request);
  const Finding f = d.judge(kAsGiven);
  EXPECT_EQ(f.outcome, Outcome::kPass);
  EXPECT_EQ(f.evidence.size(), 2U);

  Driven cut;
  PublishedContext w;
  w.resource.emplace_back("long", std::string(16383, 's'));
  cut.state = {w};
  cut.ask("process.publish", request);
  EXPECT_EQ(cut.outcome(kAsGiven), Outcome::kFail);
}

TEST(ResourceAsGiven, APairIsFoundWhereverItIsInItsList) {
  const auto list = [](std::string value, ValueKind kind = ValueKind::kKvlist) {
    return Attribute{.key = "list", .value = std::move(value), .kind = kind};
  };
  const Attribute given = list(R"({"a":1,"b":[{"c":3.0,"d":"x"}]})");
  EXPECT_TRUE(is_same(given, list(R"({"b":[{"d":"x","c":3.0}],"a":1})")));
  EXPECT_FALSE(is_same(given, list(R"({"b":[{"d":"x","c":3.1}],"a":1})")));
  EXPECT_FALSE(is_same(list(R"({"a":3.0,"b":10})"), list(R"({"b":3.0,"a":10})")));
  EXPECT_FALSE(is_same(list(R"({"a":3.0,"b":100})"), list(R"({"b":3.00,"a":10})")));
  EXPECT_FALSE(is_same(list("[1,2]", ValueKind::kArray), list("[2,1]", ValueKind::kArray)));
  EXPECT_FALSE(is_same(list(R"({"a":1,"a":2})"), list(R"({"a":2,"a":1})")));
  EXPECT_FALSE(is_same(list("{1", ValueKind::kString), list("1{", ValueKind::kString)));
}

TEST(ResourceAsGiven, ASecondPublicationIsForOtherRequirements) {
  Driven d = published();
  d.ask("process.publish", with_resource({{"service.name", "again"}}));
  EXPECT_EQ(d.outcome(kAsGiven), Outcome::kPass);
}

// ---- other processes

Json child_that(const char* what, const Pairs& pairs = {}) {
  Json child = with_resource(pairs);
  child["do"] = what;
  return {{"child", child}};
}
Json child_reply() { return {{"ok", true}, {"child_pid", kChildPid}}; }

TEST(ForkChildHasNone, NothingAndSomething) {
  constexpr const char* kId = "pctx.fork.child-has-none";
  Driven d = published();
  d.child_lives = true;
  d.ask("process.fork", child_that("idle"), child_reply());
  EXPECT_EQ(d.outcome(kId), Outcome::kPass);

  Driven own = published();
  own.child_lives = true;
  own.of_child = {named("worker", 2000)};
  own.ask("process.fork", child_that("idle"), child_reply());
  EXPECT_EQ(own.outcome(kId), Outcome::kPass);

  Driven inherited = published();
  inherited.child_lives = true;
  inherited.of_child = {PublishedContext{}};
  inherited.ask("process.fork", child_that("idle"), child_reply());
  EXPECT_EQ(inherited.outcome(kId), Outcome::kFail);

  Driven unseen = published();
  unseen.ask("process.fork", child_that("idle"), child_reply());
  EXPECT_EQ(unseen.outcome(kId), Outcome::kUnobservable);
}

TEST(ForkChildHasNone, OneOfSeveralAtOnceAndAGrandchild) {
  constexpr const char* kId = "pctx.fork.child-has-none";
  Json fork = child_that("idle");
  fork["op"] = "process.fork";
  Driven d = published();
  d.child_lives = true;
  d.of_child = {PublishedContext{}};
  d.ask("parallel", {{"requests", {{{"op", "process.update"}}, fork}}},
        {{"ok", true}, {"results", {{{"ok", true}}, child_reply()}}});
  EXPECT_EQ(d.outcome(kId), Outcome::kFail);

  Driven deeper = published();
  deeper.child_lives = true;
  deeper.of_child = {PublishedContext{}};
  deeper.ask("process.fork", {{"child", {{"do", "fork"}, {"child", {{"do", "idle"}}}}}},
             {{"ok", true}, {"child_pid", kChildPid + 1}, {"grandchild_pid", kChildPid}});
  EXPECT_EQ(deeper.outcome(kId), Outcome::kFail);
}

TEST(ForkChildHasNone, AtEachStep) {
  constexpr const char* kId = "pctx.fork.child-has-none";
  constexpr std::uint64_t kDontFork = 10;
  const auto with = [&](bool after_mark, const std::vector<PublishedContext>& inherited,
                        bool ended = false) {
    Driven d;
    d.call("mmap", {0, 4096, 3, 2, 3, 0}, static_cast<std::int64_t>(kMapping));
    const auto mapped = d.order;
    d.call("madvise", {kMapping, 4096, kDontFork}, 0);
    if (ended) d.call("munmap", {kMapping, 4096}, 0);
    ForkProbe fork{.tid = kPid,
                   .order = after_mark ? d.order : mapped,
                   .at = "after a store",
                   .candidates = {}};
    for (const PublishedContext& w : inherited) fork.candidates.push_back(w.candidate());
    d.image().forks = {fork};
    d.state = {PublishedContext{}};
    d.ask("process.publish", with_resource(PublishedContext{}.resource));
    return d.outcome(kId);
  };
  EXPECT_EQ(with(true, {}), Outcome::kPass);
  EXPECT_EQ(with(true, {PublishedContext{}}), Outcome::kFail);
  PublishedContext elsewhere;
  elsewhere.mapping += 0x10000;
  EXPECT_EQ(with(true, {elsewhere}), Outcome::kPass);
  // What comes before the mark is for another requirement.
  EXPECT_EQ(with(false, {PublishedContext{}}), Outcome::kUnobservable);
  EXPECT_EQ(with(true, {PublishedContext{}}, /*ended=*/true), Outcome::kUnobservable);
}

TEST(ForkChildHasNone, SaysWhyNoStepWasSeen) {
  Driven d = published();
  d.image().forks_unseen = "it has a filter";
  EXPECT_EQ(d.outcome("pctx.fork.child-has-none"), Outcome::kNa);
  d.session.hello = R"({"id":1,"ok":true,"caps":{"process.fork":{}}})";
  const Finding f = d.judge("pctx.fork.child-has-none");
  EXPECT_EQ(f.outcome, Outcome::kUnobservable);
  EXPECT_NE(f.saw.find("it has a filter"), std::string::npos) << f.saw;
}

const Pairs kWorker = {{"service.instance.id", "worker-1"}};

TEST(ForkSamePidNamespace, AChildWithItsParentsNumber) {
  constexpr const char* kId = "pctx.fork.same-pid-namespace";
  Json request = child_that("publish", kWorker);
  request["namespace"] = "pid";
  // The number in the reply is one of the namespace.
  const Json reply = {{"ok", true}, {"child_pid", 2}};
  const auto outcome_of = [&](const std::vector<PublishedContext>& of_child,
                              std::int32_t own_pid = 1) {
    Driven d = published();
    d.process().own_pid = 1;
    d.child().own_pid = own_pid;
    d.child_lives = true;
    d.of_child = of_child;
    d.ask("process.fork", request, reply);
    EXPECT_EQ(d.outcome("pctx.fork.child-publishes-own"), Outcome::kUnobservable);
    return d.outcome(kId);
  };
  PublishedContext own;
  own.resource = kWorker;
  EXPECT_EQ(outcome_of({own}), Outcome::kPass);
  EXPECT_EQ(outcome_of({}), Outcome::kFail);
  EXPECT_EQ(outcome_of({PublishedContext{}}), Outcome::kFail);
  EXPECT_EQ(outcome_of({}, 2), Outcome::kUnobservable);

  Driven died = published();
  died.process().own_pid = died.child().own_pid = 1;
  died.child().killed_by = 11;
  died.ask("process.fork", request, {{"ok", false}});
  const Finding f = died.judge(kId);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_NE(f.saw.find("killed by signal 11"), std::string::npos) << f.saw;
  // It was dying when its snapshot was due; or it had none, and ended with its parent.
  ImageView dying;
  dying.image = {kChildPid, 0};
  died.session.operations.back().after.push_back(dying);
  EXPECT_EQ(died.outcome(kId), Outcome::kFail);
  died.child().killed_by = 9;
  EXPECT_EQ(died.outcome(kId), Outcome::kUnobservable);

  Driven elsewhere = published();
  elsewhere.child_lives = true;
  elsewhere.ask("process.fork", request, reply);
  EXPECT_EQ(elsewhere.outcome(kId), Outcome::kUnobservable);
}

TEST(ForkChildPublishesOwn, OneContextWithItsOwnValue) {
  constexpr const char* kId = "pctx.fork.child-publishes-own";
  const auto outcome_of = [&](const std::vector<PublishedContext>& of_child) {
    Driven d = published();
    d.child_lives = true;
    d.of_child = of_child;
    d.ask("process.fork", child_that("publish", kWorker), child_reply());
    return d.outcome(kId);
  };
  PublishedContext own;
  own.resource = kWorker;
  EXPECT_EQ(outcome_of({own}), Outcome::kPass);
  EXPECT_EQ(outcome_of({}), Outcome::kFail);
  EXPECT_EQ(outcome_of({PublishedContext{}}), Outcome::kFail);
  PublishedContext in_field_2;
  in_field_2.resource = {};
  in_field_2.attributes = kWorker;
  EXPECT_EQ(outcome_of({in_field_2}), Outcome::kFail);
  PublishedContext second = own;
  second.mapping += 0x10000;
  EXPECT_EQ(outcome_of({own, second}), Outcome::kFail);
  PublishedContext merged = own;
  merged.resource.emplace_back("service.name", "shop");
  EXPECT_EQ(outcome_of({merged}), Outcome::kFail);
  merged.resource.back().second = "of the SDK";
  EXPECT_EQ(outcome_of({merged}), Outcome::kPass);
}

TEST(ForkChildPublishesOwn, AndAnUpdateOfIt) {
  Json request = child_that("update", {{"service.instance.id", "worker-0"}});
  request["child"]["update"] = with_resource(kWorker);
  const auto outcome_of = [&](const Pairs& of_child) {
    Driven d = published();
    d.child_lives = true;
    PublishedContext own;
    own.resource = of_child;
    d.of_child = {own};
    d.ask("process.fork", request, child_reply());
    return d.outcome("pctx.fork.child-publishes-own");
  };
  EXPECT_EQ(outcome_of(kWorker), Outcome::kPass);
  EXPECT_EQ(outcome_of({{"service.instance.id", "worker-0"}}), Outcome::kFail);
}

TEST(ForkChildPublishesOwn, ItDied) {
  constexpr const char* kId = "pctx.fork.child-publishes-own";
  Driven d = published();
  d.child().killed_by = 11;
  d.ask("process.fork", child_that("publish", kWorker), child_reply());
  EXPECT_EQ(d.outcome(kId), Outcome::kFail);
  d.child().ended_by_us = true;
  EXPECT_EQ(d.outcome(kId), Outcome::kUnobservable);
}

TEST(ForkParentUntouched, BeforeAndAfter) {
  constexpr const char* kId = "pctx.fork.parent-untouched";
  const auto outcome_of = [&](const std::vector<PublishedContext>& of_parent, bool at_end) {
    Driven d = published();
    if (!at_end) d.state = of_parent;
    d.ask("process.fork", child_that("publish", kWorker), child_reply());
    d.state = of_parent;
    d.ask("process.reap", {{"child_pid", kChildPid}}, {{"ok", true}, {"status", 9}});
    return d.outcome(kId);
  };
  PublishedContext of_worker;
  of_worker.timestamp = 2000;
  of_worker.resource = kWorker;
  PublishedContext other_payload;
  other_payload.resource = {{"service.name", "sh0p"}};
  for (const bool at_end : {false, true}) {
    EXPECT_EQ(outcome_of({PublishedContext{}}, at_end), Outcome::kPass) << at_end;
    EXPECT_EQ(outcome_of({named("own update", 2000)}, at_end), Outcome::kPass) << at_end;
    EXPECT_EQ(outcome_of({of_worker}, at_end), Outcome::kFail) << at_end;
    EXPECT_EQ(outcome_of({other_payload}, at_end), Outcome::kFail) << at_end;
    EXPECT_EQ(outcome_of({}, at_end), Outcome::kFail) << at_end;
  }
}

TEST(ExecMemfdNotLeaked, TheFirstSnapshotOfTheNextProgram) {
  constexpr const char* kId = "pctx.exec.memfd-not-leaked";
  const auto with = [&](const std::vector<DescriptorLink>& links, Moment moment) {
    Driven d = published();
    Image next;
    next.key = {kPid, 1};
    Snapshot s;
    s.moments = {moment};
    s.descriptors = links;
    next.snapshots.push_back(std::move(s));
    d.process().images.push_back(std::move(next));
    d.ask("process.exec_self", {}, Json());
    return d.outcome(kId);
  };
  const DescriptorLink memfd{4, "/memfd:OTEL_CTX (deleted)"};
  EXPECT_EQ(with({}, Moment::kStart), Outcome::kPass);
  EXPECT_EQ(with({memfd}, Moment::kStart), Outcome::kFail);
  EXPECT_EQ(with({memfd}, Moment::kOperation), Outcome::kUnobservable);
}

// ---- whatever a testee says

TEST(DrivenRules, RequestsThatAreNoObjectsOrDeep) {
  const std::string deep = R"({"op":"thread.attach","attributes":)" + std::string(400'000, '[') +
                           std::string(400'000, ']') + "}";
  for (const std::string& request :
       {std::string(), std::string("null"), std::string("[]"), std::string("7"),
        std::string(R"("process.update")"), std::string(R"({"op":)"), deep}) {
    Driven d = published();
    d.ask("thread.attach", {}, {{"ok", true}});
    for (Operation& o : d.session.operations) o.request = o.reply = request;
    for (const auto group : {driven_resource_rules(), driven_process_rules(), driven_fork_rules(),
                             driven_key_map_rules()}) {
      for (const RequirementRule& rule : group) {
        EXPECT_NE(d.outcome(rule.id), Outcome::kFail) << rule.id;
      }
    }
  }
}

TEST(DrivenRules, RepliesAndRequestsThatMakeNoSense) {
  const std::vector<Json> strange = {
      {{"ok", true}, {"child_pid", "30"}},
      {{"ok", true}, {"child_pid", -1}, {"grandchild_pid", 1e300}},
      {{"ok", true}, {"results", Json::array()}},
      {{"ok", true}, {"results", {1, "two", nullptr}}},
      {{"ok", "yes"}},
      Json::array(),
      Json(),
  };
  for (const Json& reply : strange) {
    Driven d = published();
    d.ask("process.fork", child_that("publish", kWorker), reply);
    d.ask("process.fork", {}, reply);
    d.ask("parallel", parallel_updates(), reply);
    d.ask("process.update", {{"resource", 1}, {"attributes", "none"}}, reply);
    d.ask("process.second_resource", {{"resource", Json::object()}}, reply);
    d.ask("process.exec_self", {}, reply);
    d.session.operations.back().after.front().snapshot = 1000;
    d.ask("process.drop", {}, reply);
    for (const auto group :
         {driven_resource_rules(), driven_process_rules(), driven_fork_rules()}) {
      for (const RequirementRule& rule : group) {
        EXPECT_NE(d.outcome(rule.id), Outcome::kFail) << rule.id << reply;
      }
    }
  }
}

}  // namespace
}  // namespace ctxconf::conformance
