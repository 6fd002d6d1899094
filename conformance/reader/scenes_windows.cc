// The target changes in the middle of a reader's reading: the reader is held between two of its own
// system calls. Readers without such calls meet the same moments by repetition.
#include <sys/mman.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Value;

// Two versions of a context, and what a mixture of them would contain.
struct Versions {
  Message first = service("ctxconf-window-1");
  Message second = service("ctxconf-window-2-longer");
  Message never = service("ctxconf-window-3");     // as long as the first one
  Message in_place = service("ctxconf-window-4");  // as long as the first one
  Published p;
  Value other;  // where the second one is
  std::uint64_t other_size = 0;
};

Versions lay_out(SceneBuilder& s) {
  Versions v;
  auto& b = s.script();
  v.p = publish(b, v.first.encoded());
  v.other = place(b, v.second.encoded());
  v.other_size = v.second.encoded().size();
  return v;
}

Question about(const Versions& v, AnswerClaim c, Hold hold) {
  c.never.push_back("ctxconf-window-3");
  Question q = about_process(v.p, {std::move(c)});
  q.holds.push_back(std::move(hold));
  q.attempts = kAttempts;
  return q;
}

// The fields were read, the payload was not: the old payload now has other bytes.
Scene after_the_fields() {
  SceneBuilder s("window-after-the-fields",
                 "an update between the read of the pointer and that of the payload");
  const Versions v = lay_out(s);
  Hold hold =
      s.hold("after the first read of the pointer", Hold::When::kAfter, {v.p.header + 24, 8}, [&] {
        update(s.script(), v.p, v.other, v.other_size);
        s.script().write(v.p.payload, v.never.encoded());
      });
  s.ask(about(v,
              claim("pctx.reader.rereads-timestamp", {accept(v.second.content())},
                    "a payload is reported that does not belong to the timestamp"),
              std::move(hold)));
  return std::move(s).scene();
}

Scene after_the_payload() {
  SceneBuilder s("window-after-the-payload",
                 "an update between the read of the payload and the second look at the timestamp");
  const Versions v = lay_out(s);
  Hold hold = s.hold("after the first read of the payload", Hold::When::kAfter, v.p.message(),
                     [&] { update(s.script(), v.p, v.other, v.other_size); });
  s.ask(about(v,
              claim("pctx.reader.rereads-timestamp", {accept(v.second.content())},
                    "a copy is used although the timestamp has changed"),
              std::move(hold)));
  return std::move(s).scene();
}

// An update begins before the read of the payload. When the second look at the timestamp comes, all
// bytes but the timestamp are as they were.
Scene there_and_back() {
  SceneBuilder s("window-there-and-back",
                 "during the read, the payload has other bytes, and then the old ones again");
  const Versions v = lay_out(s);
  auto& b = s.script();
  const Value old = b.load(v.p.header + 16, 8);
  Hold there =
      s.hold("before the first read of the payload", Hold::When::kBefore, v.p.message(), [&] {
        b.store(v.p.header + 16, 8, 0);
        b.write(v.p.payload, v.never.encoded());
      });
  Hold back = s.hold("after the first read of the payload", Hold::When::kAfter, v.p.message(), [&] {
    b.write(v.p.payload, v.first.encoded());
    b.store(v.p.header + 16, 8, old + 1);
  });
  Question q = about(v,
                     claim("pctx.reader.rereads-timestamp", {accept(v.first.content())},
                           "a payload is reported that does not belong to the timestamp"),
                     std::move(there));
  q.holds.push_back(std::move(back));
  s.ask(std::move(q));
  return std::move(s).scene();
}

// The payload is rewritten where it is: of the header, the timestamp alone changes. A reader that
// refuses an unusual timestamp breaks another requirement.
Scene other_timestamp(const std::string& name, const std::string& about_it, bool is_usual,
                      const std::function<Value(const Value& old)>& changed) {
  SceneBuilder s("window-timestamp-" + name, "during the read, the timestamp becomes " + about_it);
  s.rests_on(Premise::kWindow);
  Versions v = lay_out(s);
  auto& b = s.script();
  const Value old = b.load(v.p.header + 16, 8);
  Hold hold = s.hold("after the first read of the payload", Hold::When::kAfter, v.p.message(), [&] {
    b.write(v.p.payload, v.in_place.encoded());
    b.store(v.p.header + 16, 8, changed(old));
  });
  auto allowed = is_usual ? std::vector<AllowedAnswer>() : not_used();
  allowed.push_back(accept(v.in_place.content()));
  s.ask(about(v,
              claim("pctx.reader.any-difference-counts", std::move(allowed),
                    "a copy is used although the timestamp has changed"),
              std::move(hold)));
  return std::move(s).scene();
}

// An update begins while the reader is held, and ends later.
Scene update_begins(SceneBuilder s, const std::string& moment,
                    const std::function<Part(const Published&)>& part,
                    const std::function<void(puppet::Builder&, const Versions&)>& more) {
  s.rests_on(Premise::kWindow);
  s.rests_on(Premise::kAfterZero);
  const Versions v = lay_out(s);
  auto& b = s.script();
  constexpr const char* kAny = "pctx.reader.any-difference-counts";
  Hold hold = s.hold(moment, Hold::When::kAfter, part(v.p), [&] {
    b.store(v.p.header + 16, 8, 0);
    more(b, v);
  });
  Question during = about(v, claim(kAny, not_used(), "a copy is used although an update has begun"),
                          std::move(hold));
  during.attempts = 1;
  s.ask(std::move(during));
  b.store(v.p.header + 24, 8, v.other);
  b.store(v.p.header + 12, 4, v.other_size);
  b.store(v.p.header + 16, 8, b.clock());
  Question after = about_process(v.p, {claim(kAny, {accept(v.second.content())},
                                             "the context is not found after the update")});
  after.attempts = kAttempts;
  s.ask(std::move(after));
  return std::move(s).scene();
}

Scene to_zero_and_on() {
  return update_begins(
      SceneBuilder("window-timestamp-zero", "an update begins during the read, and ends later"),
      "after the first read of the payload", [](const Published& p) { return p.message(); },
      [](puppet::Builder& b, const Versions& v) { b.write(v.p.payload, v.never.encoded()); });
}

// A reader that copies the whole header at once has the old fields, another one a pointer and a
// size that do not belong together.
Scene after_the_timestamp() {
  return update_begins(
      SceneBuilder("window-after-the-timestamp",
                   "an update begins between the first read of the timestamp and the fields"),
      "after the first read of the timestamp", [](const Published& p) { return p.timestamp(); },
      [](puppet::Builder& b, const Versions& v) { b.store(v.p.header + 24, 8, v.other); });
}

Scene garbage() {
  SceneBuilder s("window-garbage", "during the read, the old payload becomes garbage");
  const Versions v = lay_out(s);
  Hold hold =
      s.hold("before the first read of the payload", Hold::When::kBefore, v.p.message(), [&] {
        s.script().fill(v.p.payload, v.p.size, puppet::bytes_of("\xff"));
        update(s.script(), v.p, v.other, v.other_size);
      });
  s.ask(about(v,
              claim("pctx.reader.decode-after-check", {accept(v.second.content())},
                    "a context is given up because a copy that an update overtook does not decode"),
              std::move(hold)));
  return std::move(s).scene();
}

Scene unmapped() {
  SceneBuilder s("window-unmapped", "during the read, the old payload is unmapped");
  const Versions v = lay_out(s);
  Hold hold =
      s.hold("before the first read of the payload", Hold::When::kBefore, v.p.message(), [&] {
        update(s.script(), v.p, v.other, v.other_size);
        s.script().unmap(v.p.payload, kPage);
      });
  s.ask(about(v,
              claim("pctx.reader.fault-during-copy", {accept(v.second.content())},
                    "a context is given up because its old payload cannot be read any more"),
              std::move(hold)));
  return std::move(s).scene();
}

Scene exec_meanwhile() {
  SceneBuilder s("window-exec", "during the read, the process execs a program without a context");
  s.rests_on(Premise::kWindow);
  const Versions v = lay_out(s);
  Hold hold = s.hold("after the first read of the payload", Hold::When::kAfter, v.p.message(),
                     [&] { s.script().exec("plain"); });
  auto c = claim("pctx.reader.exec-drops-context", or_refused(not_used()),
                 "a copy of the program before the exec is used");
  c.never = {"ctxconf-window-1"};
  Question q = about(v, std::move(c), std::move(hold));
  q.attempts = 1;
  s.ask(std::move(q));
  return std::move(s).scene();
}

// One store of a round of repeat(): `more` is added to the value in each further round.
void add_store(std::vector<Value>& round, Value at, std::uint64_t width, Value value,
               std::uint64_t more = 0) {
  round.insert(round.end(), {std::move(at), width, std::move(value), more});
}

void update_without_end(SceneBuilder& s, std::vector<Value> round, std::uint64_t spins = 0) {
  auto& b = s.script();
  b.by(b.thread()).later().repeat(UINT64_MAX >> 1U, std::move(round), spins);
  b.by_first();
}

Question either_of(const Published& p, const Message& one, const Message& two) {
  auto either = not_used();
  either.push_back(accept(one.content()));
  either.push_back(accept(two.content()));
  Question q = about_process(p, {claim("pctx.reader.rereads-timestamp", std::move(either),
                                       "an answer mixes two versions of a context")});
  q.repeated = true;
  return q;
}

// Updates without end, as OTEP 4719 describes them: no answer mixes two versions.
Scene churn() {
  SceneBuilder s("updates-without-end",
                 "another thread updates between two contents as fast as it can");
  const Versions v = lay_out(s);
  const Value now = s.script().clock();
  std::vector<Value> round;
  const auto update_to = [&](const Value& payload, std::uint64_t size, const Value& timestamp) {
    add_store(round, v.p.header + 16, 8, 0);
    add_store(round, v.p.header + 24, 8, payload);
    add_store(round, v.p.header + 12, 4, size);
    add_store(round, v.p.header + 16, 8, timestamp, 2);
  };
  update_to(v.other, v.other_size, now);
  update_to(v.p.payload, v.p.size, now + 1);
  update_without_end(s, std::move(round));
  for (int i = 0; i < 8; ++i) {
    Question q = either_of(v.p, v.first, v.second);
    q.shown.emplace_back("other payload", Part{v.other, v.other_size});
    s.ask(std::move(q));
  }
  return std::move(s).scene();
}

// The same at one place. The contents differ once in each cache line, and a copy takes as long as
// an update, so a third of the copies have parts of both.
Scene churn_in_place() {
  SceneBuilder s("updates-in-place", "another thread rewrites the payload as fast as it can");
  constexpr int kLines = 6;  // with the timestamps 16 stores, the most of one round
  std::string name_one = "ctxconf-window-";
  std::string name_two = name_one;
  for (int i = 0; i < kLines; ++i) {
    const std::string rest_of_line(63, '.');
    name_one += "1" + rest_of_line;
    name_two += "2" + rest_of_line;
  }
  const Message one = service(name_one);
  const Message two = service(name_two);
  const puppet::Bytes first = one.encoded();
  const puppet::Bytes second = two.encoded();
  auto& b = s.script();
  const Published p = publish(b, first);
  const Value now = b.clock();
  std::vector<Value> round;
  const auto update_to = [&](const puppet::Bytes& message, const Value& timestamp) {
    add_store(round, p.header + 16, 8, 0);
    for (std::size_t i = 0; i < message.size(); ++i) {
      if (first[i] == second[i]) continue;
      add_store(round, p.payload + i, 1, std::to_integer<std::uint64_t>(message[i]));
    }
    add_store(round, p.header + 16, 8, timestamp, 2);
  };
  update_to(second, now);
  update_to(first, now + 1);
  constexpr std::uint64_t kSpins = 100;  // so that a first look often meets a timestamp
  update_without_end(s, std::move(round), kSpins);
  constexpr int kQuestions = 40;
  constexpr std::chrono::milliseconds kApart{20};  // on a busy machine the thread runs now and then
  for (int i = 0; i < kQuestions; ++i) {
    s.ask(either_of(p, one, two));
    s.wait({.duration = kApart, .counter = p.header + 16});
  }
  return std::move(s).scene();
}

}  // namespace

SceneGroup window_scenes() {
  SceneGroup out;
  out.name = "windows";
  out.scenes.push_back(after_the_timestamp());
  out.scenes.push_back(after_the_fields());
  out.scenes.push_back(after_the_payload());
  out.scenes.push_back(there_and_back());
  out.scenes.push_back(
      other_timestamp("later", "one more", true, [](const Value& old) { return old + 1; }));
  out.scenes.push_back(
      other_timestamp("earlier", "one less", true, [](const Value& old) { return old - 1; }));
  out.scenes.push_back(other_timestamp("upper-half", "2^32 more", false,
                                       [](const Value& old) { return old + (1ULL << 32U); }));
  out.scenes.push_back(other_timestamp("maximum", "the largest number", false,
                                       [](const Value&) { return Value(UINT64_MAX); }));
  out.scenes.push_back(to_zero_and_on());
  out.scenes.push_back(garbage());
  out.scenes.push_back(unmapped());
  out.scenes.push_back(exec_meanwhile());
  out.scenes.push_back(churn());
  out.scenes.push_back(churn_in_place());
  return out;
}

}  // namespace ctxconf::conformance::reader
