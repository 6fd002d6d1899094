// The rules over driven threads against literal sessions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/literal_evidence.h"
#include "conformance/rules/literal_recording.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string>;
using sys::RemoteAddr;

constexpr std::uint64_t kPayloadAt = 0x550000800000;
constexpr std::int32_t kMain = 12;
constexpr std::int32_t kChild = 77;

const std::string kTrace2 = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kSpan2 = "00f067aa0ba902b7";

std::string unhex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

std::string pair(const std::string& key, const std::string& any_value) {
  return field(1, key) + field(2, any_value);
}

// A process context; without names: without threadlocal.* entries.
struct Ctx {
  std::optional<Names> names;
  std::string schema = "tls_v1";
  std::uint64_t timestamp = 1000;

  std::string payload() const {
    std::string out = field(1, field(1, pair("service.name", field(1, "test"))));
    if (!names) return out;
    std::string elements;
    for (const auto& n : *names) elements += field(1, field(1, n));
    return out + field(2, pair("threadlocal.schema_version", field(1, schema))) +
           field(2, pair("threadlocal.attribute_key_map", field(5, elements)));
  }
};

struct Rec {
  std::string trace = kTrace;
  std::string span = kSpan;
  std::vector<std::pair<int, std::string>> entries;
  int flags = 1;
  int valid = 1;
  std::uint64_t at = kHeap;
  std::string behind;  // the area

  std::string head_and_area() const {
    std::string area;
    for (const auto& [key, value] : entries) {
      area += static_cast<char>(key);
      area += static_cast<char>(value.size());
      area += value;
    }
    const auto size = static_cast<std::uint16_t>(area.size() + behind.size());
    std::string out = unhex(trace) + unhex(span) + static_cast<char>(valid);
    out += static_cast<char>(flags);
    out.append(reinterpret_cast<const char*>(&size), sizeof size);
    return out + area + behind;
  }
};

using Threads = std::map<std::int32_t, std::optional<Rec>>;  // nothing: a null slot

Json text(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
Json expected(const std::string& thread, const std::string& ctx, const std::string& trace = kTrace,
              const std::string& span = kSpan, const Json& attributes = Json::array(),
              int flags = 1) {
  return {{"op", "thread.attach"},   {"thread", thread}, {"ctx", ctx},
          {"trace_id", trace},       {"span_id", span},  {"flags", flags},
          {"attributes", attributes}};
}
Json untraced(const Json& attributes = Json::array()) {
  return {{"op", "thread.attach"}, {"thread", "main"}, {"ctx", "N"}, {"attributes", attributes}};
}
Json on(const char* op, const std::string& thread) { return {{"op", op}, {"thread", thread}}; }
const Json kDetach = on("thread.detach", "main");

class ThreadSession {
 public:
  ThreadSession() {
    t_.mode = Mode::kRun;
    process(kMain);
    session_.group = "test";
    session_.root = {kMain, 0};
    session_.checks.emplace_back().name = "test";
    session_.hello = R"({"id":1,"ok":true,"caps":{"thread":{"style":"pointer"}}})";
    operate({{"op", "hello"}});
  }

  void style(const std::string& style) {
    session_.hello = R"({"id":1,"ok":true,"caps":{"thread":{"style":")" + style + R"("}}})";
  }

  void hello(const std::string& line) { session_.hello = line; }
  void libc(const std::string& name) { t_.processes.front().images.front().libc = name; }

  // What is there from here on.
  void context(std::optional<Ctx> context) { context_ = std::move(context); }

  void operate(Json request, const Threads& threads = {}, Json reply = {{"ok", true}}) {
    request["id"] = reply["id"] = ++id_;
    now_ += 1'000'000;
    auto& o = session_.operations.emplace_back();
    o.request = request.dump();
    o.reply = reply.dump();
    o.answered_ns = now_;
    o.after.push_back(sample(kMain, threads));
  }
  void refuse(const Json& request, const char* kind = "rejected") {
    operate(request, {}, {{"ok", false}, {"error", {{"kind", kind}, {"message", "no"}}}});
  }
  // A forked child, with the record that it had at birth.
  void fork(const Rec& born_with, const Threads& parent, const Threads& child,
            const std::optional<Ctx>& of_child = {}) {
    operate({{"op", "process.fork"}, {"child", {{"do", "publish"}}}}, parent,
            {{"ok", true}, {"child_pid", kChild}});
    process(kChild);
    add_sample(image(kChild), kChild, born_with).inherited = true;
    if (of_child) context_ = of_child;
    session_.operations.back().after.push_back(sample(kChild, child));
  }

  // A thread that leaves with this in its slot; nothing: null.
  void exit(const std::string& thread, std::int32_t tid, const std::optional<Rec>& left,
            bool readable = true, bool same_slot = true) {
    ThreadSample s;
    if (left) {
      s = add_sample(image(kMain), tid, *left);
      image(kMain).threads.pop_back();
    }
    s.tid = tid;
    s.slot = slot_of(tid) + (same_slot ? 0 : 0x100);
    if (left && !readable) {
      s.record->bytes.clear();
      s.record->readable = 0;
    }
    image(kMain).exits.push_back(std::move(s));
    operate(on("thread.exit", thread), {}, {{"ok", true}, {"tid", tid}});
  }
  // The same during thread.churn.
  void end_in_churn(const std::optional<Rec>& left, const Threads& threads) {
    constexpr std::int32_t kEnding = 77;
    ThreadSample s;
    if (left) {
      s = add_sample(image(kMain), kEnding, *left);
      image(kMain).threads.pop_back();
    }
    s.tid = kEnding;
    s.first_seen_ns = now_ + 1;
    image(kMain).exits.push_back(std::move(s));
    const std::uint64_t sent = now_;
    operate({{"op", "thread.churn"}, {"threads", 1}, {"iterations", 20}}, threads);
    session_.operations.back().sent_ns = sent;
  }

  // The header is watched from here on, and was found so.
  void watch(const abi::ProcessHeader& found) {
    Watch watch;
    watch.header = kMapping;
    watch.armed_order = ++order_;
    watch.found.resize(sizeof found);
    std::memcpy(watch.found.data(), &found, sizeof found);
    image(kMain).watches.push_back(std::move(watch));
  }
  void store(std::int32_t tid, const abi::ProcessHeader& before, const abi::ProcessHeader& after) {
    Store s;
    s.header = kMapping;
    s.tid = tid;
    s.threads = 1;
    s.order = ++order_;
    s.at_ns = now_ += 1000;
    s.before.resize(sizeof before);
    s.after.resize(sizeof after);
    std::memcpy(s.before.data(), &before, sizeof before);
    std::memcpy(s.after.data(), &after, sizeof after);
    image(kMain).stores.push_back(std::move(s));
  }

  Finding judge(std::string_view id) const {
    const RequirementRule* rule = rule_of(id);
    EXPECT_NE(rule, nullptr) << id;
    Timeline t = t_;
    t.sessions.push_back(session_);
    for (const auto& e : evidence_of(t)) {
      if (e.image->key == session_.root) return rule->rule(e);
    }
    ADD_FAILURE() << "no evidence";
    return {};
  }
  Outcome outcome(std::string_view id) const { return judge(id).outcome; }

 private:
  static std::uint64_t slot_of(std::int32_t tid) {
    return 0x7e0000000000 + static_cast<std::uint64_t>(tid) * 0x1000;
  }
  void process(std::int32_t pid) {
    Process p;
    p.pid = pid;
    Image i;
    i.key = {pid, 0};
    i.modules.emplace_back();
    p.images.push_back(std::move(i));
    t_.processes.push_back(std::move(p));
  }
  Image& image(std::int32_t pid) {
    return std::ranges::find(t_.processes, pid, &Process::pid)->images.front();
  }

  ThreadSample& add_sample(Image& image, std::int32_t tid, const Rec& rec) {
    ThreadSample s;
    s.tid = tid;
    s.first_seen_ns = s.last_seen_ns = now_;
    s.slot = slot_of(tid);
    s.value = rec.at;
    auto& block = s.record.emplace();
    block.at = RemoteAddr(rec.at);
    block.bytes = bytes_of(rec.head_and_area());
    block.wanted = block.readable = block.bytes.size();
    image.threads.push_back(std::move(s));
    return image.threads.back();
  }

  ImageView sample(std::int32_t pid, const Threads& threads) {
    Image& i = image(pid);
    ImageView view;
    view.image = i.key;
    view.order = order_;
    for (const auto& [tid, rec] : threads) {
      auto& t = view.threads.emplace_back();
      t.tid = tid;
      t.null = !rec;
      if (!rec) continue;
      t.sample = i.threads.size();
      add_sample(i, tid, *rec);
    }
    Snapshot s;
    s.first_seen_ns = s.last_seen_ns = now_ + 1;
    if (context_) s.candidates.push_back(candidate(*context_));
    view.snapshot = i.snapshots.size();
    i.snapshots.push_back(std::move(s));
    return view;
  }

  static Candidate candidate(const Ctx& context) {
    const std::string payload = context.payload();
    const abi::ProcessHeader h{abi::kSignature, abi::kVersion,
                               static_cast<std::uint32_t>(payload.size()), context.timestamp,
                               kPayloadAt};
    std::vector<std::byte> head(sizeof h);
    std::memcpy(head.data(), &h, sizeof h);
    Candidate c;
    auto& entry = c.entries.emplace_back();
    entry.range = *sys::RemoteRange::from_size(RemoteAddr(kMapping), 4096);
    entry.readable = entry.writable = true;
    entry.inode = 7;
    for (auto& [at, content] : {std::pair{kMapping, head}, {kPayloadAt, bytes_of(payload)}}) {
      auto& block = c.memory.emplace_back();
      block.at = RemoteAddr(at);
      block.bytes = content;
      block.wanted = block.readable = block.bytes.size();
      block.hash = std::hash<std::string>{}(payload) + at;
    }
    return c;
  }

  Timeline t_;
  Session session_;
  std::optional<Ctx> context_;
  std::uint64_t now_ = 1'000'000'000;
  std::uint64_t order_ = 0;
  std::int64_t id_ = 0;
};

Rec shown(const std::string& trace, const std::string& span, std::uint64_t at = kHeap) {
  Rec out;
  out.trace = trace;
  out.span = span;
  out.at = at;
  return out;
}
Rec with(std::vector<std::pair<int, std::string>> entries) {
  Rec out;
  out.entries = std::move(entries);
  return out;
}
Rec hidden(std::uint64_t at = kHeap) {
  Rec out;
  out.valid = 0;
  out.at = at;
  return out;
}

std::string reversed(const std::string& hex) {
  std::string out;
  for (std::size_t at = hex.size(); at > 0; at -= 2) out += hex.substr(at - 2, 2);
  return out;
}

// ---- attach

TEST(DrivenEvidence, HasAttachedGoesByTheOperationNotByItsValues) {
  const auto attached = [](std::string request, std::string reply = R"({"id":2,"ok":true})") {
    Session s;
    s.operations.resize(1);
    s.operations[0].request = std::move(request);
    s.operations[0].reply = std::move(reply);
    return has_attached(s);
  };
  EXPECT_TRUE(attached(R"({"op":"thread.attach","thread":"a"})"));
  EXPECT_TRUE(attached(R"({"op":"parallel","requests":[{"op":"thread.attach"}]})"));
  EXPECT_FALSE(attached(R"({"op":"parallel","requests":[{"op":"thread.detach"}]})"));
  EXPECT_FALSE(attached(R"({"op":"thread.start","thread":"thread.attach"})"));
  EXPECT_FALSE(attached(R"({"op":"thread.attach"})", R"({"id":2,"ok":false})"));
  EXPECT_FALSE(attached("", ""));
}

TEST(AttachVisible, TakesAValidRecord) {
  ThreadSession w;
  EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kUnobservable);
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kPass);
  w.operate(expected("main", "B"), {{kMain, hidden()}});
  EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kFail);
}

TEST(AttachVisible, WhateverItsFlags) {
  for (const int flags : {0, 1, 2, 0xfd}) {
    ThreadSession w;
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    w.operate(kDetach, {{kMain, std::nullopt}});
    ThreadSession refused = w;
    const Json attach = expected("main", "B", kTrace2, kSpan2, Json::array(), flags);
    w.operate(attach, {{kMain, std::nullopt}});
    EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kFail) << flags;
    refused.refuse(attach);
    refused.operate(Json::object(), {{kMain, std::nullopt}});
    EXPECT_EQ(refused.outcome("tctx.attach.visible"), Outcome::kPass) << flags;
  }
}

TEST(AttachVisible, AContextWithoutIdsShowsTheAttributesThatTheSdkTakes) {
  const auto run = [](const Json& attributes, const std::string& hello = {},
                      const std::optional<Ctx>& context = Ctx{Names{"route"}}) {
    ThreadSession w;
    if (!hello.empty()) w.hello(hello);
    w.context(context);
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    w.operate(kDetach, {{kMain, std::nullopt}});
    w.operate(untraced(attributes), {{kMain, std::nullopt}});
    return w.outcome("tctx.attach.visible");
  };
  const auto route = Json::array({text("route", "/idle")});
  EXPECT_EQ(run(route), Outcome::kFail);
  EXPECT_EQ(run(route, {}, Ctx{}), Outcome::kFail);
  EXPECT_EQ(run(route, {}, std::nullopt), Outcome::kPass);
  EXPECT_EQ(run(Json::array()), Outcome::kPass);
  EXPECT_EQ(run(Json::array({text("route", "")})), Outcome::kPass);
  EXPECT_EQ(run(Json::array({{{"key", "route"}, {"value", {{"intValue", 7}}}}})), Outcome::kPass);
  const auto hello = [](const std::string& attach, const std::string& limits) {
    return R"({"id":1,"ok":true,"caps":{"thread.attach":)" + attach + R"(},"limits":)" + limits +
           "}";
  };
  EXPECT_EQ(run(route, hello(R"({"keys":["route"]})", "{}")), Outcome::kFail);
  EXPECT_EQ(run(route, hello(R"({"keys":[]})", "{}")), Outcome::kPass);
  EXPECT_EQ(run(route, hello("{}", R"({"keys":1})")), Outcome::kPass);
  EXPECT_EQ(run(route, hello("{}", R"({"value_bytes":4})")), Outcome::kPass);
  EXPECT_EQ(run(route, hello("{}", R"({"record_bytes":30})")), Outcome::kPass);
}

TEST(AttachVisible, AContextGoesOnShowing) {
  ThreadSession w;
  w.operate(on("thread.spawn", "t"), {{kMain, std::nullopt}, {13, std::nullopt}},
            {{"ok", true}, {"tid", 13}});
  w.operate(expected("main", "A"), {{kMain, Rec{}}, {13, std::nullopt}});
  const Json own = {{"ok", true}, {"tid", 13}};
  const Rec other = shown(kTrace2, kSpan2, kHeap + 0x1000);
  for (const auto& slot : {std::optional<Rec>(), std::optional(hidden())}) {
    ThreadSession updated = w;
    updated.operate({{"op", "process.update"}}, {{kMain, slot}});
    EXPECT_EQ(updated.judge("tctx.attach.visible").signature,
              "an attached context is no longer visible");
    ThreadSession beside = w;
    beside.operate(expected("t", "B", kTrace2, kSpan2), {{kMain, slot}, {13, other}}, own);
    EXPECT_EQ(beside.outcome("tctx.attach.visible"), Outcome::kFail);
    EXPECT_EQ(beside.outcome("tctx.tls.per-thread"), Outcome::kUnobservable);
    ThreadSession appended = w;
    appended.operate({{"op", "thread.append"}, {"thread", "main"}, {"attributes", Json::array()}},
                     {{kMain, slot}});
    EXPECT_EQ(appended.outcome("tctx.attach.visible"), Outcome::kFail);
  }
  w.operate({{"op", "process.update"}}, {{kMain, shown(kTrace, kSpan, kHeap + 0x2000)}});
  EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kPass);
  ThreadSession unknown = w;
  unknown.refuse(expected("main", "B", kTrace2, kSpan2), "failed");
  unknown.operate(Json::object(), {{kMain, std::nullopt}});
  EXPECT_EQ(unknown.outcome("tctx.attach.visible"), Outcome::kPass);
  w.refuse(expected("main", "B", kTrace2, kSpan2));
  w.operate(Json::object(), {{kMain, std::nullopt}});
  EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kFail);
}

TEST(AttachVisible, OnTheThreadThatItMovesTo) {
  ThreadSession w;
  w.operate(on("thread.spawn", "t"), {{kMain, std::nullopt}, {13, std::nullopt}},
            {{"ok", true}, {"tid", 13}});
  w.operate(expected("main", "A"), {{kMain, Rec{}}, {13, std::nullopt}});
  const Json move = {{"op", "thread.move"}, {"from", "main"}, {"to", "t"}, {"ctx", "A"}};
  ThreadSession refused = w;
  ThreadSession moved = w;
  w.operate(move, {{kMain, std::nullopt}, {13, std::nullopt}});
  const Finding f = w.judge("tctx.attach.visible");
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_EQ(f.saw, "a context has moved, and thread 13 shows a null slot");
  refused.refuse(move);
  refused.operate(Json::object(), {{kMain, Rec{}}, {13, std::nullopt}});
  EXPECT_EQ(refused.outcome("tctx.attach.visible"), Outcome::kPass);
  moved.operate(move, {{kMain, std::nullopt}, {13, Rec{}}});
  EXPECT_EQ(moved.outcome("tctx.attach.visible"), Outcome::kPass);
  moved.operate(Json::object(), {{kMain, std::nullopt}, {13, std::nullopt}});
  EXPECT_EQ(moved.outcome("tctx.attach.visible"), Outcome::kFail);
}

TEST(AttachVisible, AContextAroundAnotherIsForAnotherRequirement) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  w.operate(expected("main", "B", kTrace2, kSpan2), {{kMain, shown(kTrace2, kSpan2)}});
  for (int i = 0; i < 2; ++i) w.operate(kDetach, {{kMain, std::nullopt}});
  EXPECT_EQ(w.outcome("tctx.attach.restores-outer"), Outcome::kFail);
  EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kPass);
  ThreadSession again;
  again.operate(expected("main", "A"), {{kMain, Rec{}}});
  again.operate(expected("main", "B", kTrace2, kSpan2), {{kMain, shown(kTrace2, kSpan2)}});
  again.operate(kDetach, {{kMain, Rec{}}});
  again.operate(Json::object(), {{kMain, std::nullopt}});
  EXPECT_EQ(again.outcome("tctx.attach.visible"), Outcome::kFail);
}

TEST(AttachVisible, AWithdrawalMayHideWhatIsAttached) {
  for (const char* const op : {"process.drop", "process.publish"}) {
    ThreadSession w;
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    w.operate({{"op", op}}, {{kMain, std::nullopt}});
    w.operate({{"op", "process.update"}}, {{kMain, std::nullopt}});
    EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kPass) << op;
    ThreadSession inner = w;
    inner.operate(expected("main", "B", kTrace2, kSpan2), {{kMain, std::nullopt}});
    EXPECT_EQ(inner.outcome("tctx.attach.visible"), Outcome::kFail) << op;
    w.operate(Json::object(), {{kMain, Rec{}}});
    w.operate(Json::object(), {{kMain, std::nullopt}});
    EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kFail) << op;
  }
}

TEST(AttachVisible, ARecordOfTwoThreadsIsForAnotherRequirement) {
  ThreadSession w;
  w.operate(on("thread.spawn", "t"), {{13, std::nullopt}}, {{"ok", true}, {"tid", 13}});
  w.operate(expected("main", "A"), {{kMain, Rec{}}, {13, std::nullopt}});
  const Rec over = shown(kTrace2, kSpan2);
  w.operate(expected("t", "B", kTrace2, kSpan2), {{kMain, over}, {13, over}},
            {{"ok", true}, {"tid", 13}});
  w.operate(kDetach, {{kMain, hidden()}, {13, hidden()}});
  w.operate(Json::object(), {{13, hidden()}});
  EXPECT_EQ(w.outcome("tctx.tls.per-thread"), Outcome::kFail);
  EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kPass);
}

TEST(AttachVisible, AThreadThatWasNotSampledSaysNothing) {
  ThreadSession w;
  w.operate(expected("main", "A"), {});
  EXPECT_EQ(w.outcome("tctx.attach.visible"), Outcome::kUnobservable);
}

TEST(MatchesContext, TheRootIsNotTheCurrentSpan) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.attach.matches-context"), Outcome::kPass);
  w.operate(expected("main", "B", kTrace, kSpan2), {{kMain, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.attach.matches-context"), Outcome::kFail);
}

TEST(MatchesContext, IdsThatWereNeverGivenAreForOtherRequirements) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, shown(reversed(kTrace), kSpan)}});
  EXPECT_EQ(w.outcome("tctx.attach.matches-context"), Outcome::kUnobservable);
  EXPECT_EQ(w.outcome("tctx.record.trace-id"), Outcome::kFail);
  EXPECT_EQ(w.outcome("tctx.record.span-id"), Outcome::kPass);
}

TEST(MatchesContext, NoIdsAtAllAreMissing) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, shown(std::string(32, '0'), std::string(16, '0'))}});
  EXPECT_EQ(w.outcome("tctx.attach.matches-context"), Outcome::kFail);
  EXPECT_EQ(w.outcome("tctx.record.trace-id"), Outcome::kUnobservable);
}

Outcome of_attribute(const std::string& expected_value,
                     const std::vector<std::pair<int, std::string>>& entries,
                     const std::string& hello = {}) {
  ThreadSession w;
  if (!hello.empty()) w.hello(hello);
  w.context(Ctx{Names{"route", "own"}});
  w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", expected_value)})),
            {{kMain, with(entries)}});
  return w.outcome("tctx.attach.matches-context");
}

TEST(MatchesContext, AnAttributeIsThereAsItWasGiven) {
  EXPECT_EQ(of_attribute("/cart", {{0, "/cart"}}), Outcome::kPass);
  EXPECT_EQ(of_attribute("/cart", {{0, "/cart"}, {1, "of its own"}}), Outcome::kPass);
  EXPECT_EQ(of_attribute("/cart", {{0, "/old"}, {0, "/cart"}}), Outcome::kPass);
  for (const char* const other : {"/CART", "/car", "/", "/cart ", ""}) {
    EXPECT_EQ(of_attribute("/cart", {{0, other}}), Outcome::kFail) << other;
  }
  EXPECT_EQ(of_attribute("/cart", {}), Outcome::kFail);
  EXPECT_EQ(of_attribute("/cart", {{1, "/cart"}}), Outcome::kFail);
  EXPECT_EQ(of_attribute("", {}), Outcome::kPass);
  const std::string nul("a\0b", 3);
  EXPECT_EQ(of_attribute(nul, {{0, nul}}), Outcome::kPass);
  EXPECT_EQ(of_attribute(nul, {}), Outcome::kPass);
  EXPECT_EQ(of_attribute(nul, {{0, "a"}}), Outcome::kFail);
  // An index without a name is for requirements about the key map.
  EXPECT_EQ(of_attribute("/cart", {{7, "/cart"}}), Outcome::kPass);
}

TEST(MatchesContext, WhatIsDeclaredMayBeMissingOrCut) {
  const auto hello = [](const std::string& attach, const std::string& limits) {
    return R"({"id":1,"ok":true,"caps":{"thread.attach":)" + attach + R"(},"limits":)" + limits +
           "}";
  };
  const auto own_keys = hello(R"({"keys":["own"]})", "{}");
  EXPECT_EQ(of_attribute("/cart", {}, own_keys), Outcome::kPass);
  EXPECT_EQ(of_attribute("/cart", {}, hello(R"({"keys":["route"]})", "{}")), Outcome::kFail);
  const auto of_six = hello("{}", R"({"value_bytes":6})");
  EXPECT_EQ(of_attribute("/checkout", {{0, "/check"}}, of_six), Outcome::kPass);
  EXPECT_EQ(of_attribute("/checkout", {}, of_six), Outcome::kPass);
  EXPECT_EQ(of_attribute("/checkout", {{0, "/chec"}}, of_six), Outcome::kFail);
  EXPECT_EQ(of_attribute("/checkout", {{0, "/checkout"}}, of_six), Outcome::kPass);
  EXPECT_EQ(of_attribute("abcd\xe2\x82\xac", {{0, "abcd"}}, of_six), Outcome::kPass);
  EXPECT_EQ(of_attribute("abcd\xe2\x82\xac", {{0, "abc"}}, of_six), Outcome::kFail);
  const auto of_40 = hello("{}", R"({"record_bytes":40})");
  EXPECT_EQ(of_attribute("/check", {}, of_40), Outcome::kFail);
  EXPECT_EQ(of_attribute("/checkout/now", {}, of_40), Outcome::kPass);
  EXPECT_EQ(of_attribute("/checkout/now", {{0, "/checkout/"}}, of_40), Outcome::kPass);
  EXPECT_EQ(of_attribute("/checkout/now", {{0, "/checkout"}}, of_40), Outcome::kFail);
  const std::string wide = "/checkou\xe2\x82\xac";
  EXPECT_EQ(of_attribute(wide, {{0, "/checkou"}}, of_40), Outcome::kPass);
  EXPECT_EQ(of_attribute(wide, {{0, "/checkou\xe2\x82"}}, of_40), Outcome::kPass);  // attrs.utf8
  EXPECT_EQ(of_attribute(wide, {{0, "/checkou\xe2"}}, of_40), Outcome::kFail);
  // Limits that are none say nothing.
  EXPECT_EQ(of_attribute("/cart", {}, hello("[]", "7")), Outcome::kFail);
  EXPECT_EQ(of_attribute("/cart", {}, hello(R"({"keys":3,"flags":-1})", R"({"value_bytes":-1})")),
            Outcome::kFail);
}

TEST(MatchesContext, ANameIsMissingOnlyWhereTheKeyMapIsFull) {
  const auto run = [](std::size_t in_map, std::size_t given, const std::string& limits = "{}") {
    ThreadSession w;
    w.hello(R"({"id":1,"ok":true,"caps":{"thread.attach":{}},"limits":)" + limits + "}");
    Names names;
    for (std::size_t i = 0; i < in_map; ++i) names.push_back(fmt::format("n{}", i));
    w.context(Ctx{names});
    Json attributes = Json::array();
    for (std::size_t i = 0; i < given; ++i) attributes.push_back(text(fmt::format("g{}", i), "v"));
    w.operate(expected("main", "A", kTrace, kSpan, attributes), {{kMain, Rec{}}});
    return w.outcome("tctx.attach.matches-context");
  };
  EXPECT_EQ(run(230, 26), Outcome::kFail);
  EXPECT_EQ(run(230, 27), Outcome::kPass);
  EXPECT_EQ(run(256, 1), Outcome::kPass);
  EXPECT_EQ(run(230, 1, R"({"keys":230})"), Outcome::kPass);
}

// Of names without an index only those that came since the last one may have one.
TEST(MatchesContext, ANameThatWasLeftOutEarlierTakesNoRoom) {
  const auto run = [](bool a_name_follows, bool more_are_left_out) {
    ThreadSession w;
    w.hello(R"({"id":1,"ok":true,"caps":{"thread.attach":{}}})");
    Names names;
    for (std::size_t i = 0; i < 254; ++i) names.push_back(fmt::format("n{}", i));
    w.context(Ctx{names});
    const auto attach = [&](const char* ctx, const Json& attributes) {
      w.operate(expected("main", ctx, kTrace, kSpan, attributes), {{kMain, Rec{}}});
    };
    attach("A", Json::array({text("left", "v"), text("out", "v"), text("of-it", "v")}));
    if (a_name_follows) {
      names.emplace_back("n254");
      Ctx later{names};
      later.timestamp = 2000;
      w.context(later);
    }
    attach("B", Json::array());
    if (more_are_left_out) attach("C", Json::array({text("more", "v"), text("names", "v")}));
    attach("D", Json::array({text("name", "v")}));
    return w.outcome("tctx.attach.matches-context");
  };
  EXPECT_EQ(run(false, false), Outcome::kFail);
  EXPECT_EQ(run(true, false), Outcome::kFail);
  EXPECT_EQ(run(true, true), Outcome::kPass);
}

TEST(MatchesContext, AThreadOfManyContextsEndsWithOneOfThem) {
  const std::string churn_key = "ctxconf.churn";
  const std::string other_trace(32, 'e');
  const std::string other_span(16, 'f');
  const std::string trace = std::string(16, 'a') + kSpan;
  const std::string many = std::string(kSpan) + kSpan + kSpan + kSpan;
  using Entries = std::vector<std::pair<int, std::string>>;
  const auto rec = [](const std::string& of_trace, Entries entries, const std::string& span = kSpan,
                      int valid = 1) {
    Rec out;
    out.trace = of_trace;
    out.span = span;
    out.entries = std::move(entries);
    out.valid = valid;
    return out;
  };
  const auto finding = [&](const std::optional<Rec>& left, const Json& reply = {{"ok", true}},
                           const std::string& caps = R"({"thread.attach":{},"thread.churn":{}})",
                           const std::string& limits = "{}") {
    ThreadSession w;
    w.hello(R"({"id":1,"ok":true,"caps":)" + caps + R"(,"limits":)" + limits + "}");
    w.context(Ctx{Names{churn_key}});
    const Rec on_main = rec(other_trace, {}, other_span);
    w.operate(expected("main", "A", other_trace, other_span), {{kMain, on_main}}, reply);
    w.end_in_churn(left, {{kMain, on_main}});
    return w.judge("tctx.attach.matches-context");
  };
  const auto run = [&](const auto&... of) { return finding(of...).outcome; };
  // "2 contexts": the one on main, and that of the churn.
  const auto is_judged = [&](const auto&... of) {
    return run(of...) == Outcome::kPass && finding(of...).saw.starts_with("2 ");
  };
  const auto is_skipped = [&](const auto&... of) {
    return run(of...) == Outcome::kPass && finding(of...).saw.starts_with("1 ");
  };
  const Json ok = {{"ok", true}};
  EXPECT_TRUE(is_skipped(std::optional<Rec>()));
  EXPECT_TRUE(is_judged(rec(trace, {{0, kSpan}})));
  EXPECT_TRUE(is_judged(rec(trace, {{0, many}})));
  EXPECT_TRUE(is_judged(rec(trace, {{0, many.substr(0, 1)}})));
  EXPECT_EQ(run(rec(trace, {{0, many + "b"}})), Outcome::kFail);
  EXPECT_EQ(run(rec(trace, {{0, other_span}})), Outcome::kFail);
  EXPECT_EQ(run(rec(kTrace, {{0, kSpan}})), Outcome::kFail);
  EXPECT_TRUE(is_skipped(rec(kTrace, {{0, kSpan}}, kSpan, 0)));
  EXPECT_TRUE(is_skipped(rec(other_trace, {}, other_span))) << "handed on";
  EXPECT_TRUE(is_skipped(rec(other_trace, {{0, kSpan}}, other_span))) << "handed on";
  // Left out or empty
  const std::string caps = R"({"thread.attach":{},"thread.churn":{}})";
  const std::string keys = R"({"thread.attach":{"keys":[]},"thread.churn":{}})";
  EXPECT_EQ(run(rec(trace, {})), Outcome::kFail);
  EXPECT_EQ(run(rec(trace, {{0, ""}})), Outcome::kFail);
  EXPECT_TRUE(is_judged(rec(trace, {}), ok, keys));
  for (const char* limits : {R"({"value_bytes":0})", R"({"record_bytes":90})"}) {
    EXPECT_TRUE(is_judged(rec(trace, {}), ok, caps, limits)) << limits;
    EXPECT_TRUE(is_judged(rec(trace, {{0, ""}}), ok, caps, limits)) << limits;
  }
  // An SDK that makes ids
  const Json own = {{"ok", true}, {"trace_id", other_trace}, {"span_id", other_span}};
  EXPECT_TRUE(is_skipped(rec(kTrace, {{0, other_span}}), own));
}

TEST(MatchesContext, LongValuesAreCutAtTheLimitOfTheFormat) {
  const std::string value(300, 'v');
  EXPECT_EQ(of_attribute(value, {{0, value.substr(0, 255)}}), Outcome::kPass);
  EXPECT_EQ(of_attribute(value, {}), Outcome::kPass);
  EXPECT_EQ(of_attribute(value, {{0, value.substr(0, 254)}}), Outcome::kFail);
  EXPECT_EQ(of_attribute(value, {{0, value.substr(0, 44)}}), Outcome::kPass);  // length-not-wrapped
}

TEST(MatchesContext, NothingOfWhatHasEndedIsLeft) {
  ThreadSession w;
  w.context(Ctx{Names{"route", "tier"}});
  const auto a = Json::array({text("route", "/a"), text("tier", "gold")});
  w.operate(expected("main", "A", kTrace, kSpan, a), {{kMain, with({{0, "/a"}, {1, "gold"}})}});
  ThreadSession nested = w;
  w.operate(kDetach, {{kMain, std::nullopt}});
  const auto b = Json::array({text("route", "/b")});
  Rec r = shown(kTrace2, kSpan2);
  r.entries = {{0, "/b"}, {1, "gold"}};
  ThreadSession own = w;
  w.operate(expected("main", "B", kTrace2, kSpan2, b), {{kMain, r}});
  EXPECT_EQ(w.judge("tctx.attach.matches-context").signature, "attribute left over");
  // An SDK that says so hands attributes on to contexts inside, and any has others of its own.
  nested.operate(expected("main", "B", kTrace2, kSpan2, b), {{kMain, r}});
  EXPECT_EQ(nested.judge("tctx.attach.matches-context").signature, "attribute left over");
  nested.hello(R"({"id":1,"ok":true,"caps":{"thread.attach":{"inherits":true}}})");
  EXPECT_EQ(nested.outcome("tctx.attach.matches-context"), Outcome::kPass);
  r.entries = {{0, "/b"}, {1, "silver"}};
  own.operate(expected("main", "B", kTrace2, kSpan2, b), {{kMain, r}});
  EXPECT_EQ(own.outcome("tctx.attach.matches-context"), Outcome::kPass);
}

TEST(MatchesContext, AttributesWithoutAKeyMapAreNotKnown) {
  ThreadSession w;
  w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", "/a")})),
            {{kMain, with({{0, "/a"}})}});
  EXPECT_EQ(w.outcome("tctx.attach.matches-context"), Outcome::kUnobservable);
}

TEST(MatchesContext, AttributesThatWereTakenNeedAKeyMap) {
  const auto run = [](const std::optional<Ctx>& context, const Rec& rec,
                      const std::string& hello = {}, const std::string& value = "/a") {
    ThreadSession w;
    if (!hello.empty()) w.hello(hello);
    w.context(context);
    w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", value)})),
              {{kMain, rec}});
    return w;
  };
  const auto outcome = [&](const auto&... given) {
    return run(given...).outcome("tctx.attach.matches-context");
  };
  const Ctx no_map;
  EXPECT_EQ(outcome(no_map, Rec{}), Outcome::kFail);
  EXPECT_EQ(run(no_map, Rec{}).judge("tctx.attach.matches-context").saw,
            "\"route\" is missing, and the context has no key map; expected \"/a\"");
  // Nothing is published, or the record has what it needs a name for.
  EXPECT_EQ(outcome(std::nullopt, Rec{}), Outcome::kUnobservable);
  EXPECT_EQ(outcome(no_map, with({{0, "/a"}})), Outcome::kUnobservable);
  const auto hello = [](const std::string& attach, const std::string& limits) {
    return R"({"id":1,"ok":true,"caps":{"thread.attach":)" + attach + R"(},"limits":)" + limits +
           "}";
  };
  EXPECT_EQ(outcome(no_map, Rec{}, hello(R"({"keys":["route"]})", "{}")), Outcome::kFail);
  EXPECT_EQ(outcome(no_map, Rec{}, hello(R"({"keys":[]})", "{}")), Outcome::kPass);
  EXPECT_NE(outcome(no_map, Rec{}, hello("{}", R"({"keys":0})")), Outcome::kFail);
  EXPECT_NE(outcome(no_map, Rec{}, hello("{}", R"({"record_bytes":28})")), Outcome::kFail);
  EXPECT_NE(outcome(no_map, Rec{}, std::string(), std::string()), Outcome::kFail);
  EXPECT_NE(outcome(no_map, Rec{}, std::string(), std::string(300, 'v')), Outcome::kFail);
  // It is there later.
  ThreadSession later = run(no_map, Rec{});
  later.context(Ctx{Names{"route"}});
  later.operate({{"op", "process.update"}}, {{kMain, with({{0, "/a"}})}});
  EXPECT_EQ(later.outcome("tctx.attach.matches-context"), Outcome::kPass);
  ThreadSession refused;
  refused.context(no_map);
  refused.refuse(expected("main", "A", kTrace, kSpan, Json::array({text("route", "/a")})));
  refused.operate(expected("main", "B"), {{kMain, Rec{}}});
  EXPECT_EQ(refused.outcome("tctx.attach.matches-context"), Outcome::kPass);
}

TEST(MatchesContext, AttributesMoveWithTheirContext) {
  ThreadSession w;
  w.context(Ctx{Names{"route"}});
  w.operate(on("thread.spawn", "t"), {{kMain, std::nullopt}, {13, std::nullopt}},
            {{"ok", true}, {"tid", 13}});
  w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", "/a")})),
            {{kMain, with({{0, "/a"}})}, {13, std::nullopt}});
  ThreadSession lost = w;
  const Json move = {{"op", "thread.move"}, {"from", "main"}, {"to", "t"}, {"ctx", "A"}};
  w.operate(move, {{kMain, std::nullopt}, {13, with({{0, "/a"}})}});
  EXPECT_EQ(w.outcome("tctx.attach.matches-context"), Outcome::kPass);
  lost.operate(move, {{kMain, std::nullopt}, {13, Rec{}}});
  EXPECT_EQ(lost.outcome("tctx.attach.matches-context"), Outcome::kFail);
}

TEST(MatchesContext, AFailedAttachLeavesItsThreadUnknown) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  w.refuse(expected("main", "B", kTrace2, kSpan2), "failed");
  w.operate(kDetach, {{kMain, shown(kTrace2, kSpan2)}});
  EXPECT_EQ(w.outcome("tctx.attach.matches-context"), Outcome::kPass);
  EXPECT_EQ(w.outcome("tctx.detach.hidden"), Outcome::kUnobservable);
}

TEST(FixedRecordPointer, OnePointerWhereTheValidByteIsTheSwitch) {
  ThreadSession w;
  w.style("valid");
  w.operate(kDetach, {{kMain, std::nullopt}});
  ThreadSession moving = w;
  for (const auto at : {kHeap, kHeap}) {
    w.operate(expected("main", "A"), {{kMain, shown(kTrace, kSpan, at)}});
    w.operate(kDetach, {{kMain, hidden(at)}});
  }
  // Its first operation was a detach of nothing.
  EXPECT_EQ(w.outcome("tctx.attach.fixed-record-pointer"), Outcome::kUnobservable);
  ThreadSession v;
  v.style("valid");
  for (const auto at : {kHeap, kHeap}) {
    v.operate(expected("main", "A"), {{kMain, shown(kTrace, kSpan, at)}});
    v.operate(kDetach, {{kMain, hidden(at)}});
  }
  EXPECT_EQ(v.outcome("tctx.attach.fixed-record-pointer"), Outcome::kPass);
  v.operate(expected("main", "A"), {{kMain, shown(kTrace, kSpan, kHeap + 0x1000)}});
  EXPECT_EQ(v.outcome("tctx.attach.fixed-record-pointer"), Outcome::kFail);
  v.style("mixed");
  EXPECT_EQ(v.outcome("tctx.attach.fixed-record-pointer"), Outcome::kInfo);
}

TEST(FixedRecordPointer, IsNotForThosePointersThatSwitch) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, shown(kTrace, kSpan, kHeap)}});
  w.operate(kDetach, {{kMain, std::nullopt}});
  w.operate(expected("main", "B"), {{kMain, shown(kTrace, kSpan, kHeap + 0x1000)}});
  EXPECT_EQ(w.outcome("tctx.attach.fixed-record-pointer"), Outcome::kNa);
}

TEST(FixedRecordPointer, ARecordThatIsNeverValidStandsForNull) {
  ThreadSession w;
  for (const auto at : {kHeap + 0x1000, kHeap + 0x2000}) {
    w.operate(expected("main", "A"), {{kMain, shown(kTrace, kSpan, at)}});
    w.operate(kDetach, {{kMain, hidden(kHeap)}});
  }
  EXPECT_EQ(w.outcome("tctx.attach.fixed-record-pointer"), Outcome::kNa);
  w.style("valid");
  EXPECT_EQ(w.outcome("tctx.attach.fixed-record-pointer"), Outcome::kUnobservable);
  // A context is hidden by the valid byte where it was shown.
  w.operate(expected("main", "B"), {{kMain, shown(kTrace, kSpan, kHeap)}});
  w.operate(kDetach, {{kMain, hidden(kHeap)}});
  EXPECT_EQ(w.outcome("tctx.attach.fixed-record-pointer"), Outcome::kFail);
}

// ---- detach

TEST(RestoresOuter, ShowsTheEnclosingContext) {
  for (const auto& [after, outcome] :
       {std::pair{std::optional(shown(kTrace, kSpan, kHeap + 0x2000)), Outcome::kPass},
        {std::optional(shown(kTrace2, kSpan2)), Outcome::kFail},
        {std::optional(hidden()), Outcome::kFail},
        {std::optional<Rec>(), Outcome::kFail}}) {
    ThreadSession w;
    w.operate(expected("main", "A"), {{kMain, shown(kTrace, kSpan)}});
    w.operate(expected("main", "B", kTrace2, kSpan2), {{kMain, shown(kTrace2, kSpan2)}});
    w.operate(kDetach, {{kMain, after}});
    EXPECT_EQ(w.outcome("tctx.attach.restores-outer"), outcome);
    EXPECT_EQ(w.outcome("tctx.detach.hidden"), Outcome::kUnobservable);
  }
}

TEST(RestoresOuter, AlsoWhenTheInnerOneMoves) {
  const Json move = {{"op", "thread.move"}, {"from", "main"}, {"to", "t"}, {"ctx", "B"}};
  const Rec inner = shown(kTrace2, kSpan2);
  for (const auto& [after, outcome] :
       {std::pair{std::optional(shown(kTrace, kSpan, kHeap + 0x2000)), Outcome::kPass},
        {std::optional<Rec>(), Outcome::kFail}}) {
    ThreadSession w;
    w.operate(on("thread.spawn", "t"), {{kMain, std::nullopt}, {13, std::nullopt}},
              {{"ok", true}, {"tid", 13}});
    w.operate(expected("main", "A"), {{kMain, shown(kTrace, kSpan)}, {13, std::nullopt}});
    w.operate(expected("main", "B", kTrace2, kSpan2), {{kMain, inner}, {13, std::nullopt}});
    w.operate(move, {{kMain, after}, {13, inner}});
    EXPECT_EQ(w.outcome("tctx.attach.restores-outer"), outcome);
  }
}

TEST(RestoresOuter, WhatNeverToldThemApartSaysNothing) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  w.operate(expected("main", "B", kTrace, kSpan2), {{kMain, Rec{}}});
  w.operate(kDetach, {{kMain, std::nullopt}});
  EXPECT_EQ(w.outcome("tctx.attach.restores-outer"), Outcome::kUnobservable);
}

TEST(RestoresOuter, AttributesOfTheInnerGo) {
  ThreadSession w;
  w.context(Ctx{Names{"route", "table"}});
  w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", "/a")})),
            {{kMain, with({{0, "/a"}})}});
  auto inner = with({{0, "/a"}, {1, "carts"}});
  inner.span = kSpan2;
  w.operate(expected("main", "B", kTrace, kSpan2, Json::array({text("table", "carts")})),
            {{kMain, inner}});
  w.operate(kDetach, {{kMain, with({{0, "/a"}, {1, "carts"}})}});
  EXPECT_EQ(w.outcome("tctx.attach.restores-outer"), Outcome::kFail);
}

TEST(DetachHidden, NothingReadableIsLeft) {
  const Rec blank = shown(std::string(32, '0'), std::string(16, '0'));
  for (const auto& [after, outcome] : {std::pair{std::optional<Rec>(), Outcome::kPass},
                                       {std::optional(hidden()), Outcome::kPass},
                                       {std::optional(Rec{}), Outcome::kFail},
                                       {std::optional(blank), Outcome::kInfo}}) {
    ThreadSession w;
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    w.operate(kDetach, {{kMain, after}});
    EXPECT_EQ(w.outcome("tctx.detach.hidden"), outcome);
  }
}

TEST(DetachHidden, NorAnAttributeOfAnEarlierContext) {
  const auto run = [](const std::string& left) {
    ThreadSession w;
    w.context(Ctx{Names{"route", "tier"}});
    w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", "/a")})),
              {{kMain, with({{0, "/a"}})}});
    w.operate(kDetach, {{kMain, std::nullopt}});
    w.operate(expected("main", "B", kTrace2, kSpan2, Json::array({text("tier", "gold")})),
              {{kMain, shown(kTrace2, kSpan2)}});
    Rec rest = with({{0, left}});
    rest.trace = std::string(32, '0');
    rest.span = std::string(16, '0');
    w.operate(kDetach, {{kMain, rest}});
    return w.outcome("tctx.detach.hidden");
  };
  EXPECT_EQ(run("/a"), Outcome::kFail);
  EXPECT_EQ(run("idle"), Outcome::kInfo);  // of its own
}

TEST(DetachHidden, NorWhereAContextHasMovedFrom) {
  ThreadSession w;
  w.operate(on("thread.spawn", "t"), {{kMain, std::nullopt}, {13, std::nullopt}},
            {{"ok", true}, {"tid", 13}});
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  w.operate({{"op", "thread.move"}, {"from", "main"}, {"to", "t"}, {"ctx", "A"}},
            {{kMain, Rec{}}, {13, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.detach.hidden"), Outcome::kFail);
}

// ---- threads

TEST(FreshThreadNull, ARecordOfAnotherThreadIsNotItsOwn) {
  const Json spawned = {{"ok", true}, {"tid", 13}};
  for (const auto& [slot, outcome] :
       {std::pair{std::optional<Rec>(), Outcome::kPass},
        {std::optional(hidden(kHeap + 0x1000)), Outcome::kPass},
        {std::optional(shown(kTrace, kSpan, kHeap + 0x1000)), Outcome::kInfo},
        {std::optional(Rec{}), Outcome::kInfo}}) {
    ThreadSession w;
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    w.operate(on("thread.spawn", "t"), {{kMain, Rec{}}, {13, slot}}, spawned);
    EXPECT_EQ(w.outcome("tctx.tls.fresh-thread-null"), outcome);
  }
}

TEST(FreshThreadNull, AThreadThatWasUsedIsNotFresh) {
  ThreadSession w;
  w.operate(on("thread.spawn", "t"), {}, {{"ok", true}, {"tid", 13}});
  w.operate(expected("t", "A"), {{13, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.tls.fresh-thread-null"), Outcome::kUnobservable);
}

TEST(FreshThreadNull, NothingThatHasEndedIsHandedOn) {
  const Json spawned = {{"ok", true}, {"tid", 13}};
  const auto run = [&](const Json& end, const std::optional<Rec>& main) {
    ThreadSession w;
    w.operate(on("thread.spawn", "s"), {{kMain, std::nullopt}, {14, std::nullopt}},
              {{"ok", true}, {"tid", 14}});
    w.operate(expected("main", "A"), {{kMain, Rec{}}, {14, std::nullopt}});
    w.operate(expected("s", "B", kTrace2, kSpan2),
              {{kMain, Rec{}}, {14, shown(kTrace2, kSpan2, kHeap + 0x1000)}});
    w.operate(end, {{kMain, main}}, {{"ok", true}, {"tid", 14}});
    w.operate(on("thread.spawn", "t"),
              {{kMain, main}, {13, shown(kTrace2, kSpan2, kHeap + 0x1000)}}, spawned);
    return w.outcome("tctx.tls.fresh-thread-null");
  };
  EXPECT_EQ(run(on("thread.exit", "s"), Rec{}), Outcome::kFail);
  EXPECT_EQ(run(on("thread.detach", "s"), Rec{}), Outcome::kFail);
  // What became of it is not known.
  EXPECT_EQ(run({{"op", "process.update"}}, Rec{}), Outcome::kInfo);
  // It goes on in another thread, which hands it on.
  EXPECT_EQ(run({{"op", "thread.move"}, {"from", "s"}, {"to", "main"}, {"ctx", "B"}},
                shown(kTrace2, kSpan2, kHeap + 0x1000)),
            Outcome::kInfo);
}

TEST(FreshThreadNull, ARecordOfAnotherThreadThatNeverChangesIsHandedOn) {
  const Json spawned = {{"ok", true}, {"tid", 13}};
  const auto run = [&](const Rec& later, std::optional<Rec> fresh) {
    ThreadSession w;
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    w.operate(on("thread.spawn", "t"), {{kMain, Rec{}}, {13, Rec{}}}, spawned);
    w.operate(expected("main", "B"), {{kMain, later}, {13, std::move(fresh)}});
    return w.outcome("tctx.tls.fresh-thread-null");
  };
  const Rec next = shown(kTrace2, kSpan2, kHeap + 0x1000);
  const Rec over = shown(kTrace2, kSpan2);
  EXPECT_EQ(run(next, Rec{}), Outcome::kInfo);
  EXPECT_EQ(run(next, std::nullopt), Outcome::kInfo);
  EXPECT_EQ(run(over, std::nullopt), Outcome::kInfo);  // the fresh one has let go of it
  EXPECT_EQ(run(next, over), Outcome::kFail);
  EXPECT_EQ(run(next, hidden()), Outcome::kFail);
  EXPECT_EQ(run(over, Rec{}), Outcome::kFail);  // a thread that slept, with what it last had
}

TEST(PerThread, ContextsOfTwoThreads) {
  const Json spawned = {{"ok", true}, {"tid", 13}};
  for (const auto& [slot, outcome] :
       {std::pair{shown(kTrace2, kSpan2, kHeap + 0x1000), Outcome::kPass},
        {shown(kTrace, kSpan, kHeap + 0x1000), Outcome::kFail},
        {shown(kTrace2, kSpan2, kHeap), Outcome::kFail}}) {
    ThreadSession w;
    w.operate(on("thread.spawn", "t"), {{13, std::nullopt}}, spawned);
    w.operate(expected("main", "A"), {{kMain, Rec{}}, {13, std::nullopt}});
    w.operate(expected("t", "B", kTrace2, kSpan2), {{kMain, Rec{}}, {13, slot}},
              {{"ok", true}, {"tid", 13}});
    EXPECT_EQ(w.outcome("tctx.tls.per-thread"), outcome);
    if (outcome == Outcome::kFail) {
      EXPECT_EQ(w.outcome("tctx.attach.matches-context"), Outcome::kPass);
    }
  }
}

TEST(PerThread, OneSpanOnTwoThreads) {
  ThreadSession w;
  w.operate(on("thread.spawn", "t"), {{13, std::nullopt}}, {{"ok", true}, {"tid", 13}});
  w.operate(expected("main", "A"), {{kMain, Rec{}}, {13, std::nullopt}});
  w.operate(expected("t", "A"), {{kMain, Rec{}}, {13, Rec{}}}, {{"ok", true}, {"tid", 13}});
  EXPECT_EQ(w.outcome("tctx.tls.per-thread"), Outcome::kUnobservable);
}

TEST(InheritedRecord, GoesWhenTheChildPublishes) {
  const Rec own = shown(kTrace2, kSpan2, kHeap + 0x1000);
  for (const auto& [slot, outcome] : {std::pair{std::optional<Rec>(), Outcome::kPass},
                                      {std::optional(own), Outcome::kPass},
                                      {std::optional(Rec{}), Outcome::kInfo}}) {
    ThreadSession w;
    w.context(Ctx{Names{"route"}});
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    w.fork(Rec{}, {{kMain, Rec{}}}, {{kChild, slot}});
    EXPECT_EQ(w.outcome("tctx.fork.inherited-record"), outcome);
  }
  ThreadSession other;  // a span of the parent, and not the one in which it was forked
  other.context(Ctx{Names{"route"}});
  other.operate(expected("main", "A"), {{kMain, Rec{}}});
  other.fork(own, {{kMain, Rec{}}}, {{kChild, own}});
  EXPECT_EQ(other.outcome("tctx.fork.inherited-record"), Outcome::kFail);
  for (const auto& [names, outcome] : {std::pair{Names{"route"}, Outcome::kInfo},
                                       {Names{"route", "more"}, Outcome::kInfo},
                                       {Names{"pid", "route"}, Outcome::kFail},
                                       {Names{}, Outcome::kFail}}) {
    ThreadSession renamed;  // its indexes have the names of the child's key map
    const Rec record = with({{0, "/a"}});
    renamed.context(Ctx{Names{"route"}});
    renamed.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", "/a")})),
                    {{kMain, record}});
    renamed.fork(record, {{kMain, record}}, {{kChild, record}}, Ctx{names});
    EXPECT_EQ(renamed.outcome("tctx.fork.inherited-record"), outcome) << names.size();
  }
  ThreadSession w;  // publishes nothing
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  w.fork(Rec{}, {{kMain, Rec{}}}, {{kChild, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.fork.inherited-record"), Outcome::kUnobservable);
}

TEST(NoDangling, AtTheExitOfAThread) {
  const auto run = [](const std::optional<Rec>& left, bool readable = true, bool same_slot = true) {
    ThreadSession w;
    w.operate(on("thread.spawn", "t"), {{13, std::nullopt}}, {{"ok", true}, {"tid", 13}});
    w.operate(expected("t", "A"), {{13, Rec{}}}, {{"ok", true}, {"tid", 13}});
    w.exit("t", 13, left, readable, same_slot);
    return w.outcome("tctx.exit.no-dangling");
  };
  EXPECT_EQ(run(std::nullopt), Outcome::kPass);
  EXPECT_EQ(run(hidden()), Outcome::kPass);
  EXPECT_EQ(run(Rec{}), Outcome::kPass);
  EXPECT_EQ(run(Rec{}, /*readable=*/false), Outcome::kFail);
  // What malloc writes into memory that was freed.
  EXPECT_EQ(run(shown("e1d7a40505000000b0f3c2d1e0f1a2b3", kSpan)), Outcome::kFail);
  // The memory of the thread itself is gone already.
  EXPECT_EQ(run(Rec{}, false, /*same_slot=*/false), Outcome::kUnobservable);
}

TEST(NoDangling, ToARecordThatWasFreed) {
  // Filled, but for the first 16 bytes, where the allocator keeps what it needs.
  constexpr int kFilled = kFreedByte;
  Rec filled = shown("e1d7a40505000000b0f3c2d1e0f1a2b3", "a5a5a5a5a5a5a5a5");
  filled.valid = filled.flags = kFilled;
  filled.behind = std::string(kFilled << 8 | kFilled, static_cast<char>(kFilled));
  Rec begun = filled;  // no allocator fills it so
  begun.flags = 1;
  Rec reused = filled;
  reused.valid = 0;
  const auto run = [](const Rec& attached, const std::optional<Rec>& left) {
    ThreadSession w;
    w.operate(on("thread.spawn", "t"), {{13, std::nullopt}}, {{"ok", true}, {"tid", 13}});
    w.operate(expected("t", "A", attached.trace, attached.span), {{13, attached}},
              {{"ok", true}, {"tid", 13}});
    w.exit("t", 13, left);
    return w.judge("tctx.exit.no-dangling");
  };
  const Finding f = run(Rec{}, filled);
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_NE(f.saw.find("memory that was freed"), std::string::npos) << f.saw;
  EXPECT_EQ(run(Rec{}, begun).outcome, Outcome::kPass);
  EXPECT_EQ(run(Rec{}, reused).outcome, Outcome::kPass);
  // A record that is kept, or freed when nothing leads to it any more.
  EXPECT_EQ(run(Rec{}, hidden()).outcome, Outcome::kPass);
  EXPECT_EQ(run(Rec{}, std::nullopt).outcome, Outcome::kPass);
  // A span id of the same bytes.
  const Rec alike = shown(kTrace, "a5a5a5a5a5a5a5a5");
  EXPECT_EQ(run(alike, alike).outcome, Outcome::kPass);
}

TEST(NoDangling, OnlyGlibcFillsWhatIsFreed) {
  const auto run = [](const char* libc, const std::optional<Rec>& left, bool readable = true) {
    ThreadSession w;
    w.libc(libc);
    w.operate(on("thread.spawn", "t"), {{13, std::nullopt}}, {{"ok", true}, {"tid", 13}});
    w.operate(expected("t", "A"), {{13, Rec{}}}, {{"ok", true}, {"tid", 13}});
    w.exit("t", 13, left, readable);
    return w.judge("tctx.exit.no-dangling");
  };
  EXPECT_EQ(run("glibc 2.36", Rec{}).outcome, Outcome::kPass);
  for (const char* libc : {"musl 1.2.3", "static"}) {
    EXPECT_EQ(run(libc, Rec{}).outcome, Outcome::kUnobservable) << libc;
    EXPECT_EQ(run(libc, std::nullopt).outcome, Outcome::kPass) << libc;
    EXPECT_EQ(run(libc, hidden()).outcome, Outcome::kPass) << libc;
    EXPECT_EQ(run(libc, Rec{}, /*readable=*/false).outcome, Outcome::kFail) << libc;
  }
  EXPECT_EQ(run("musl", Rec{}).saw,
            "a thread ended with a record, and freed memory is not filled: the C library is musl");
}

TEST(NoDangling, AThreadWithoutAContextLeavesNone) {
  ThreadSession w;
  w.operate(on("thread.spawn", "t"), {{13, std::nullopt}}, {{"ok", true}, {"tid", 13}});
  w.exit("t", 13, std::nullopt);
  EXPECT_EQ(w.outcome("tctx.exit.no-dangling"), Outcome::kUnobservable);
}

// ---- records

TEST(Ids, InReverseOrder) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, shown(kTrace, reversed(kSpan))}});
  EXPECT_EQ(w.outcome("tctx.record.trace-id"), Outcome::kPass);
  const Finding f = w.judge("tctx.record.span-id");
  EXPECT_EQ(f.outcome, Outcome::kFail);
  EXPECT_NE(f.saw.find("in reverse order"), std::string::npos) << f.saw;
}

TEST(Ids, MayHaveALengthThatNoIdHas) {
  for (const char* span : {"", "b", "b7a", "b7ad6b71692033311"}) {
    ThreadSession w;
    w.operate(expected("main", "A", kTrace, span), {{kMain, shown(kTrace, kSpan)}});
    EXPECT_EQ(w.outcome("tctx.record.trace-id"), Outcome::kPass) << span;
    EXPECT_NE(w.outcome("tctx.record.span-id"), Outcome::kPass) << span;
  }
}

TEST(Ids, MayBeTheSdksOwnAsTheReplyNamesThem) {
  const auto run = [](const Json& named) {
    ThreadSession w;
    Json reply = {{"ok", true}};
    reply.update(named);
    w.operate(expected("main", "A"), {{kMain, shown(kTrace, kSpan2)}}, reply);
    return w.outcome("tctx.record.span-id");
  };
  EXPECT_EQ(run(Json::object()), Outcome::kFail);
  EXPECT_EQ(run({{"span_id", kSpan2}}), Outcome::kPass);
  EXPECT_EQ(run({{"trace_id", kTrace}, {"span_id", kSpan2}}), Outcome::kPass);
  EXPECT_EQ(run({{"span_id", kSpan}}), Outcome::kFail);
  EXPECT_EQ(run({{"span_id", "00F067AA0BA902B7"}}), Outcome::kFail);
  EXPECT_EQ(run({{"span_id", 7}}), Outcome::kFail);
}

TEST(IdsZeroWhenNone, IdsOfAContextThatEndedStay) {
  for (const auto& [slot, outcome] :
       {std::pair{std::optional(shown(std::string(32, '0'), std::string(16, '0'))), Outcome::kPass},
        {std::optional<Rec>(), Outcome::kPass},
        {std::optional(shown(kTrace2, kSpan2)), Outcome::kFail},
        {std::optional(Rec{}), Outcome::kFail}}) {
    ThreadSession w;
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    w.operate(kDetach, {{kMain, std::nullopt}});
    w.operate(untraced(), {{kMain, slot}});
    EXPECT_EQ(w.outcome("tctx.record.ids-zero-when-none"), outcome);
  }
  ThreadSession named;  // ids of its own, by its reply
  named.operate(expected("main", "A"), {{kMain, Rec{}}});
  named.operate(kDetach, {{kMain, std::nullopt}});
  named.operate(untraced(), {{kMain, shown(kTrace2, kSpan2)}},
                {{"ok", true}, {"trace_id", kTrace2}, {"span_id", kSpan2}});
  EXPECT_EQ(named.outcome("tctx.record.ids-zero-when-none"), Outcome::kUnobservable);
}

TEST(IdsZeroWhenNone, InsideATraceItsIdsStay) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  w.operate(untraced(), {{kMain, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.record.ids-zero-when-none"), Outcome::kUnobservable);
  w.refuse(untraced());
  EXPECT_EQ(w.outcome("tctx.record.ids-zero-when-none"), Outcome::kNa);
}

TEST(TraceFlags, AllBitsThatWereGiven) {
  for (const auto& [flags, shown_flags, outcome] :
       {std::tuple{1, 1, Outcome::kPass}, std::tuple{1, 0, Outcome::kFail},
        std::tuple{0, 1, Outcome::kFail}, std::tuple{1, 3, Outcome::kFail},
        std::tuple{3, 1, Outcome::kFail}, std::tuple{5, 1, Outcome::kInfo},
        std::tuple{5, 5, Outcome::kPass}, std::tuple{0xf7, 0x77, Outcome::kFail},
        std::tuple{0xff, 3, Outcome::kInfo}, std::tuple{0xff, 0, Outcome::kFail},
        std::tuple{1, 0x81, Outcome::kFail}}) {
    ThreadSession w;
    w.operate(expected("main", "A"), {{kMain, Rec{}}});
    Rec r;
    r.flags = shown_flags;
    w.operate(expected("main", "B", kTrace, kSpan, Json::array(), flags), {{kMain, r}});
    EXPECT_EQ(w.outcome("tctx.record.trace-flags"), outcome) << flags << " " << shown_flags;
  }
}

TEST(TraceFlags, AreThoseThatTheSdkTakes) {
  for (const auto& [taken, flags, outcome] :
       {std::tuple{"1", 1, Outcome::kPass}, std::tuple{"1", 3, Outcome::kFail},
        std::tuple{"3", 3, Outcome::kPass}, std::tuple{"3", 1, Outcome::kFail}}) {
    ThreadSession w;
    w.hello(R"({"id":1,"ok":true,"caps":{"thread.attach":{"flags":)" + std::string(taken) + "}}}");
    Rec r;
    r.flags = flags;
    w.operate(expected("main", "A", kTrace, kSpan, Json::array(), 3), {{kMain, r}});
    EXPECT_EQ(w.outcome("tctx.record.trace-flags"), outcome) << taken << " " << flags;
  }
}

TEST(TraceFlags, MayBeTheSdksOwnAsTheReplyNamesThem) {
  ThreadSession w;
  Rec r;
  r.flags = 3;
  w.operate(expected("main", "A"), {{kMain, r}}, {{"ok", true}, {"flags", 3}});
  EXPECT_EQ(w.outcome("tctx.record.trace-flags"), Outcome::kPass);
}

TEST(LengthNotWrapped, TheRestFollows) {
  const std::string value(300, 'v');
  for (const auto& [entry, behind, outcome] :
       {std::tuple{value.substr(0, 44), value.substr(44), Outcome::kFail},
        std::tuple{value.substr(0, 44), std::string(), Outcome::kFail},
        std::tuple{value.substr(0, 255), std::string(), Outcome::kPass}}) {
    ThreadSession w;
    w.context(Ctx{Names{"route"}});
    Rec r = with({{0, entry}});
    r.behind = behind;
    w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", value)})),
              {{kMain, r}});
    EXPECT_EQ(w.outcome("tctx.attrs.length-not-wrapped"), outcome);
  }
}

TEST(LengthNotWrapped, ALimitThatIsDeclaredIsLegal) {
  ThreadSession w;
  w.hello(R"({"id":1,"ok":true,"caps":{},"limits":{"value_bytes":44}})");
  w.context(Ctx{Names{"route"}});
  for (const std::size_t size : {300U, 257U, 700U}) {
    const std::string value(size, 'v');
    w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", value)})),
              {{kMain, with({{0, value.substr(0, 44)}})}});
  }
  EXPECT_EQ(w.outcome("tctx.attrs.length-not-wrapped"), Outcome::kPass);
}

TEST(NonStringsAsText, AnotherValue) {
  const auto outcome = [](const Json& value, const std::string& text) {
    ThreadSession w;
    w.context(Ctx{Names{"count"}});
    w.operate(
        expected("main", "A", kTrace, kSpan, Json::array({{{"key", "count"}, {"value", value}}})),
        {{kMain, with({{0, text}})}});
    return w.outcome("tctx.attrs.non-strings-as-text");
  };
  const Json yes = {{"boolValue", true}};
  const Json number = {{"intValue", 42}};
  const Json in_text = {{"intValue", "9007199254740993"}};
  const Json fraction = {{"doubleValue", 2.5}};
  for (const auto& [value, text] : {std::pair{yes, "true"},
                                    {yes, "True"},
                                    {yes, "1"},
                                    {yes, "yes"},
                                    {yes, "#t"},
                                    {yes, "bool(true)"},
                                    {number, "int(42)"},
                                    {number, "42.0"},
                                    {number, "4.2e+01"},
                                    {number, "0x2a"},
                                    {in_text, "9007199254740993"},
                                    {in_text, "9.007199254740992e+15"},
                                    {fraction, "2.500000"},
                                    {fraction, "2.50001"},
                                    {fraction, "2,5"}}) {
    EXPECT_EQ(outcome(value, text), Outcome::kPass) << value << " " << text;
  }
  for (const auto& [value, text] : {std::pair{yes, "false"},
                                    {yes, "maybe"},
                                    {yes, "[object]"},
                                    {number, "<number>"},
                                    {fraction, "double"},
                                    {yes, "0"},
                                    {number, "43"},
                                    {number, "4"},
                                    {number, "-42"},
                                    {number, "42.5"},
                                    {in_text, "9007199254740992"},
                                    {fraction, "2"},
                                    {fraction, "3"}}) {
    EXPECT_EQ(outcome(value, text), Outcome::kFail) << value << " " << text;
  }
}

TEST(NonStringsAsText, TextOrNothing) {
  const Json number = Json::array({{{"key", "count"}, {"value", {{"intValue", 42}}}}});
  const std::string binary("\x2a\0\0\0\0\0\0\0", 8);
  for (const auto& [value, outcome] : {std::pair{std::string("42"), Outcome::kPass},
                                       {binary, Outcome::kFail},
                                       {std::string("\xff"), Outcome::kFail}}) {
    ThreadSession w;
    w.context(Ctx{Names{"count"}});
    w.operate(expected("main", "A", kTrace, kSpan, number), {{kMain, with({{0, value}})}});
    EXPECT_EQ(w.outcome("tctx.attrs.non-strings-as-text"), outcome);
  }
  ThreadSession w;
  w.refuse(expected("main", "A", kTrace, kSpan, number));
  EXPECT_EQ(w.outcome("tctx.attrs.non-strings-as-text"), Outcome::kNa);
  w.context(Ctx{Names{"count"}});
  w.operate(expected("main", "A", kTrace, kSpan, number), {{kMain, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.attrs.non-strings-as-text"), Outcome::kPass);
}

TEST(LastOccurrenceWins, TheOutdatedValueComesLast) {
  const Json more = {{"op", "thread.append"},
                     {"thread", "main"},
                     {"attributes", Json::array({text("route", "/b")})}};
  for (const auto& [entries, outcome] :
       {std::pair{std::vector<std::pair<int, std::string>>{{0, "/a"}, {0, "/b"}}, Outcome::kPass},
        {{{0, "/b"}}, Outcome::kPass},
        {{{0, "/b"}, {0, "/a"}}, Outcome::kFail},
        {{}, Outcome::kUnobservable}}) {
    ThreadSession w;
    w.context(Ctx{Names{"route"}});
    w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("route", "/a")})),
              {{kMain, with({{0, "/a"}})}});
    w.operate(more, {{kMain, with(entries)}});
    EXPECT_EQ(w.outcome("tctx.attrs.last-occurrence-wins"), outcome);
  }
}

// ---- key map

const Json kPublish = {{"op", "process.publish"}};

TEST(BeforeFirstRecord, ARecordBeforeAnyContext) {
  ThreadSession w;
  EXPECT_EQ(w.outcome("tctx.refdata.before-first-record"), Outcome::kUnobservable);
  ThreadSession early = w;
  early.operate(on("thread.block", "main"), {{kMain, Rec{}}});
  early.context(Ctx{Names{}});
  early.operate(kPublish, {{kMain, Rec{}}});
  EXPECT_EQ(early.outcome("tctx.refdata.before-first-record"), Outcome::kFail);
  ThreadSession later = w;
  later.context(Ctx{});
  later.operate(kPublish, {});
  later.operate(expected("main", "A"), {{kMain, Rec{}}});
  later.context(Ctx{Names{}});
  later.operate(kDetach, {});
  EXPECT_EQ(later.outcome("tctx.refdata.before-first-record"), Outcome::kInfo);
  w.operate(kPublish, {});
  w.context(Ctx{Names{}});
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.refdata.before-first-record"), Outcome::kPass);
}

TEST(BeforeFirstRecord, NotWhereWeAskedForThat) {
  ThreadSession w;
  w.operate(expected("main", "A"), {{kMain, Rec{}}});
  EXPECT_EQ(w.outcome("tctx.refdata.before-first-record"), Outcome::kUnobservable);
}

TEST(SurvivesOtherUpdates, TheEntriesStay) {
  const Json update = {{"op", "process.update"}};
  for (const auto& [after, outcome] : {std::pair{Ctx{Names{"a"}}, Outcome::kPass},
                                       {Ctx{Names{"a", "b"}}, Outcome::kPass},
                                       {Ctx{Names{"a"}, "other"}, Outcome::kFail},
                                       {Ctx{}, Outcome::kFail}}) {
    ThreadSession w;
    w.context(Ctx{Names{"a"}});
    w.operate(kPublish, {});
    w.context(after);
    w.operate(update, {});
    EXPECT_EQ(w.outcome("tctx.keymap.survives-other-updates"), outcome);
  }
}

TEST(SurvivesOtherUpdates, AnotherPublicationHasThemForTheNextContext) {
  const auto run = [](const Ctx& again, const Ctx& later, const Rec& last) {
    ThreadSession w;
    w.context(Ctx{Names{"a"}});
    w.operate(kPublish, {});
    w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("a", "1")})),
              {{kMain, with({{0, "1"}})}});
    w.context(again);
    w.operate(kPublish, {{kMain, with({{0, "1"}})}});
    w.operate(kDetach, {{kMain, std::nullopt}});
    w.context(later);
    w.operate(expected("main", "B", kTrace, kSpan, Json::array({text("b", "2")})), {{kMain, last}});
    return w.outcome("tctx.keymap.survives-other-updates");
  };
  const Ctx whole{Names{"a", "b"}};
  EXPECT_EQ(run(Ctx{Names{"a"}}, whole, with({{1, "2"}})), Outcome::kPass);
  EXPECT_EQ(run(Ctx{}, Ctx{}, with({{1, "2"}})), Outcome::kFail);
  EXPECT_EQ(run(Ctx{}, whole, with({{1, "2"}})), Outcome::kPass);  // with the next name
  EXPECT_EQ(run(Ctx{}, Ctx{}, Rec{}), Outcome::kUnobservable);
}

TEST(StableAcrossRepublish, CountsFromZeroUnderARecord) {
  const auto run = [](bool attached, const Names& after, bool hides = false) {
    ThreadSession w;
    w.context(Ctx{Names{"a", "b"}});
    const Threads threads = {{kMain, with({{0, "x"}, {1, "y"}})}};
    w.operate(expected("main", "A"), threads);
    if (!attached) w.operate(kDetach, {{kMain, std::nullopt}});
    w.context(std::nullopt);
    w.operate({{"op", "process.drop"}}, hides ? Threads{{kMain, std::nullopt}} : threads);
    w.context(Ctx{after});
    w.operate(kPublish, threads);
    return w.outcome("tctx.keymap.stable-across-republish");
  };
  EXPECT_EQ(run(true, {"a", "b", "c"}), Outcome::kPass);
  EXPECT_EQ(run(true, {"b", "a"}), Outcome::kFail);
  EXPECT_EQ(run(false, {"b", "a"}), Outcome::kUnobservable);
  EXPECT_EQ(run(true, {"b", "a"}, /*hides=*/true), Outcome::kUnobservable);
}

TEST(StableAcrossRepublish, AlsoWhereOnePublicationReplacesAnother) {
  const auto run = [](const char* op, const Names& after, bool hides = false) {
    ThreadSession w;
    w.context(Ctx{Names{"a", "b"}});
    const Threads threads = {{kMain, with({{0, "x"}, {1, "y"}})}};
    w.operate(expected("main", "A"), threads);
    w.context(Ctx{after, "tls_v1", 2000});
    w.operate({{"op", op}}, hides ? Threads{{kMain, std::nullopt}} : threads);
    return w;
  };
  const auto stable = [&](const auto&... given) {
    return run("process.publish", given...).outcome("tctx.keymap.stable-across-republish");
  };
  EXPECT_EQ(stable(Names{"a", "b", "c"}), Outcome::kPass);
  EXPECT_EQ(stable(Names{"b", "a"}), Outcome::kFail);
  EXPECT_EQ(stable(Names{"b", "a"}, /*hides=*/true), Outcome::kUnobservable);
  EXPECT_EQ(run("process.publish", {"c"}).outcome("tctx.keymap.never-removed"), Outcome::kPass);
  EXPECT_EQ(run("process.publish", {"b", "a"}).outcome("tctx.keymap.never-reordered"),
            Outcome::kPass);
  EXPECT_EQ(run("process.update", {"c"}).outcome("tctx.keymap.never-removed"), Outcome::kFail);
}

TEST(AppendUpdatesContext, AnIndexThatIsNeverPublished) {
  const auto run = [](const Ctx& after, const Rec& record) {
    ThreadSession w;
    w.context(Ctx{Names{"a"}});
    w.operate(kPublish, {});
    w.context(after);
    w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("b", "new")})),
              {{kMain, record}});
    return w.outcome("tctx.keymap.append-updates-context");
  };
  EXPECT_EQ(run({Names{"a", "b"}, "tls_v1", 2000}, with({{1, "new"}})), Outcome::kPass);
  EXPECT_EQ(run({Names{"a", "b"}, "tls_v1", 1000}, with({{1, "new"}})), Outcome::kFail);
  EXPECT_EQ(run({Names{"a"}, "tls_v1", 1000}, with({{1, "new"}})), Outcome::kFail);
  EXPECT_EQ(run({Names{"a"}, "tls_v1", 1000}, with({})), Outcome::kPass);
}

// A header as a store found it or left it.
abi::ProcessHeader header(std::uint64_t timestamp, std::uint32_t size, std::uint64_t payload) {
  return {abi::kSignature, abi::kVersion, size, timestamp, payload};
}

// An update from one message to a longer one after it, with a zero or without.
enum class Zero { kYes, kNo };
void append_key(ThreadSession& w, Zero zero, std::int32_t first = kMain,
                std::int32_t middle = kMain) {
  const bool zeroes = zero == Zero::kYes;
  const auto old = header(1000, 20, kPayloadAt);
  const auto last = header(2000, 30, kPayloadAt + 0x100);
  const auto open = header(zeroes ? 0 : 1000, 20, kPayloadAt);
  const auto moved = header(zeroes ? 0 : 1000, 30, kPayloadAt + 0x100);
  if (zeroes) w.store(first, old, open);
  w.store(middle, open, moved);
  w.store(first, moved, last);
}

TEST(KeyMapUpdateProtocol, AsAnyUpdate) {
  const Json attach = expected("main", "A", kTrace, kSpan, Json::array({text("b", "new")}));
  const auto run = [&](const Json& op, const Names& names, Zero zero) {
    ThreadSession w;
    w.context(Ctx{Names{"a"}});
    w.operate(kPublish, {});
    w.watch(header(1000, 20, kPayloadAt));
    w.operate({{"op", "thread.detach"}, {"thread", "main"}}, {});
    append_key(w, zero);
    w.context(Ctx{names, "tls_v1", 2000});
    w.operate(op, {{kMain, with({{1, "new"}})}});
    return w.outcome("tctx.keymap.update-protocol");
  };
  EXPECT_EQ(run(attach, {"a", "b"}, Zero::kYes), Outcome::kPass);
  EXPECT_EQ(run(attach, {"a", "b"}, Zero::kNo), Outcome::kFail);
  // Nothing is new, or it comes with what is asked about elsewhere.
  EXPECT_EQ(run(attach, {"a"}, Zero::kNo), Outcome::kUnobservable);
  EXPECT_EQ(run({{"op", "process.update"}}, {"a", "b"}, Zero::kNo), Outcome::kUnobservable);
}

TEST(KeyMapUpdateProtocol, NothingIsKnownWithoutStores) {
  ThreadSession w;
  w.context(Ctx{Names{"a"}});
  w.operate(kPublish, {});
  w.context(Ctx{Names{"a", "b"}, "tls_v1", 2000});
  w.operate(expected("main", "A", kTrace, kSpan, Json::array({text("b", "new")})), {});
  EXPECT_EQ(w.outcome("tctx.keymap.update-protocol"), Outcome::kUnobservable);
}

// Two threads give a name each, at once; what the records and the key map have then.
Outcome names_at_once(const Names& names, int first_index, int second_index,
                      std::int32_t middle = 13, const std::string& hello = {}) {
  ThreadSession w;
  if (!hello.empty()) w.hello(hello);
  const auto spawned = [](std::int32_t tid) { return Json{{"ok", true}, {"tid", tid}}; };
  w.context(Ctx{Names{"a"}});
  w.operate(kPublish, {});
  w.watch(header(1000, 20, kPayloadAt));
  w.operate(on("thread.spawn", "s"), {}, spawned(13));
  w.operate(on("thread.spawn", "t"), {}, spawned(14));
  append_key(w, Zero::kYes, 13, middle);
  w.context(Ctx{names, "tls_v1", 2000});
  const Json requests =
      Json::array({expected("s", "S", kTrace, kSpan, Json::array({text("of_s", "value of s")})),
                   expected("t", "T", kTrace2, kSpan2, Json::array({text("of_t", "value of t")}))});
  Rec s = first_index < 0 ? Rec{} : with({{first_index, "value of s"}});
  Rec t = second_index < 0 ? Rec{} : with({{second_index, "value of t"}});
  t.trace = kTrace2;
  t.span = kSpan2;
  t.at = kHeap + 0x1000;
  const Json ok = {{"ok", true}};
  w.operate({{"op", "parallel"}, {"requests", requests}}, {{13, s}, {14, t}},
            {{"ok", true}, {"results", Json::array({ok, ok})}});
  return w.outcome("tctx.keymap.single-writer");
}

TEST(SingleWriter, EachNameOnceAndEachUpdateByOneThread) {
  EXPECT_EQ(names_at_once({"a", "of_s", "of_t"}, 1, 2), Outcome::kPass);
  EXPECT_EQ(names_at_once({"a", "of_t"}, 1, 1), Outcome::kFail);  // one index for both
  EXPECT_EQ(names_at_once({"a", "of_s"}, 1, 2), Outcome::kFail);  // one is lost
  EXPECT_EQ(names_at_once({"a", "of_s", "of_t", "of_s"}, 1, 2), Outcome::kFail);
  EXPECT_EQ(names_at_once({"a", "of_s", "of_t"}, 1, 2, /*middle=*/14), Outcome::kFail);
  // Other names than those given are the SDK's own business.
  EXPECT_EQ(names_at_once({"a", "sdk.of_s", "sdk.of_t"}, 1, 2), Outcome::kPass);
  EXPECT_EQ(names_at_once({"a"}, 0, 0), Outcome::kUnobservable);
}

TEST(SingleWriter, NothingThatWasGivenIsLost) {
  EXPECT_EQ(names_at_once({"a", "of_s"}, 1, -1), Outcome::kFail);
  EXPECT_EQ(names_at_once({"a"}, -1, -1), Outcome::kFail);
  const auto hello = [](const std::string& attach, const std::string& limits) {
    return R"({"id":1,"ok":true,"caps":{"thread.attach":)" + attach + R"(},"limits":)" + limits +
           "}";
  };
  const auto one_key = hello(R"({"keys":["of_s"]})", "{}");
  EXPECT_EQ(names_at_once({"a", "of_s"}, 1, -1, 13, one_key), Outcome::kPass);
  const auto two_names = hello("{}", R"({"keys":2})");
  EXPECT_EQ(names_at_once({"a", "of_s"}, 1, -1, 13, two_names), Outcome::kPass);
}

TEST(IndexNotWrapped, AnIndexOfTheOneTooMany) {
  Names names;
  for (int i = 0; i < 256; ++i) names.push_back(fmt::format("n{}", i));
  const Json one_more =
      expected("main", "A", kTrace, kSpan, Json::array({text("extra", "canary")}));
  const auto run = [&](const Names& before, const Rec& record) {
    ThreadSession w;
    w.context(Ctx{before});
    w.operate(kPublish, {});
    w.operate(one_more, {{kMain, record}});
    return w.outcome("tctx.keymap.index-not-wrapped");
  };
  EXPECT_EQ(run(names, with({{0, "canary"}})), Outcome::kFail);
  EXPECT_EQ(run(names, with({})), Outcome::kPass);
  EXPECT_EQ(run({"n0"}, with({{0, "canary"}})), Outcome::kUnobservable);
  ThreadSession w;
  w.context(Ctx{names});
  w.operate(kPublish, {});
  w.refuse(one_more);
  EXPECT_EQ(w.outcome("tctx.keymap.index-not-wrapped"), Outcome::kPass);
}

}  // namespace
}  // namespace ctxconf::conformance
