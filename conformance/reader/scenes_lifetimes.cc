// What changes between two looks of a reader: publications that come late, updates, exec, other
// data at the same address, children.
#include <signal.h>
#include <sys/mman.h>

#include <string>
#include <utility>

#include "conformance/puppet/kernel_numbers.h"
#include "conformance/puppet/record_script.h"
#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

using puppet::Value;
using std::chrono::milliseconds;

// Asks until the answer satisfies the claims.
void ask_until(SceneBuilder& s, Question q) {
  q.attempts = kAttempts;
  s.ask(std::move(q));
}

// Asks until nothing of the service is reported any more.
void ask_until_gone(SceneBuilder& s, AnswerClaim c, const char* service_name) {
  c.never = {service_name};
  Question q;
  q.claims = {std::move(c)};
  ask_until(s, std::move(q));
}

Scene completed_later() {
  const Message message = service("ctxconf-completed");
  SceneBuilder s("completed-later",
                 "an empty mapping of the right name gets a context after the first look");
  auto& b = s.script();
  Published p = publish(b, message.encoded(), {.names = false, .leave_zero = true});
  b.store(p.header, 8, 0);
  b.store(p.header + 8, 4, 0);
  s.ask(about_process(p, {}));
  s.wait({.duration = milliseconds(100)});
  b.write(p.header, puppet::bytes_of("OTEL_CTX"));
  b.store(p.header + 8, 4, 2);
  b.store(p.header + 16, 8, b.clock());
  ask_until(s,
            about_process(p, {claim("pctx.reader.skip-not-forever", {accept(message.content())},
                                    "a mapping that was not ready once is not looked at again")}));
  return std::move(s).scene();
}

Scene late() {
  const Message first = service("ctxconf-late-1");
  const Message second = service("ctxconf-late-2");
  SceneBuilder s(
      "published-late",
      "a process publishes after the first look, without naming the mapping, and updates");
  s.rests_on(Premise::kUpdate);
  auto& b = s.script();
  b.fence();
  s.ask({});
  s.wait({.duration = milliseconds(100)});
  const Published p = publish(b, first.encoded(), {.names = false});
  constexpr const char* kLate = "pctx.reader.late-publication";
  ask_until(s, about_process(p, {claim(kLate, {accept(first.content())},
                                       "a context that was published late is not found")}));
  const Value other = place(b, second.encoded());
  update(b, p, other, second.encoded().size());
  ask_until(s, about_process(p, {claim(kLate, {accept(second.content())},
                                       "an update of a late context is not found")}));
  return std::move(s).scene();
}

Scene withdrawn() {
  SceneBuilder s("withdrawn", "a context is withdrawn: its timestamp is zero, then it is unmapped");
  auto& b = s.script();
  const Message message = service("ctxconf-withdrawn");
  const Published p = publish(b, message.encoded());
  s.ask(about_process(p, {}));
  b.store(p.header + 16, 8, 0);
  b.unmap(p.header, kPage);
  ask_until_gone(
      s, claim("pctx.reader.no-context", no_context(), "a context that is gone is still used"),
      "ctxconf-withdrawn");
  return std::move(s).scene();
}

Scene new_buffer() {
  const Message first = service("ctxconf-buffer-1");
  const Message second = service("ctxconf-buffer-2-longer");
  const Message decoy = service("ctxconf-buffer-3");
  SceneBuilder s("update-new-buffer", "an update to a new buffer; the old one has another message");
  s.rests_on(Premise::kUpdateInPlace);
  auto& b = s.script();
  const Published p = publish(b, first.encoded());
  constexpr const char* kFresh = "pctx.reader.fresh-pointer";
  s.ask(about_process(p, {claim(kFresh, {accept(first.content())}, "a context is not read")}));
  const Value other = place(b, second.encoded());
  update(b, p, other, second.encoded().size());
  b.write(p.payload, decoy.encoded());
  auto c =
      claim(kFresh, {accept(second.content())}, "the old address of the payload is still used");
  c.never = {"ctxconf-buffer-3"};
  ask_until(s, about_process({p.header, other, second.encoded().size()}, {c}));
  return std::move(s).scene();
}

Scene same_buffer() {
  const Message first = service("ctxconf-in-place-1");
  const Message second = service("ctxconf-in-place-2");
  SceneBuilder s("update-same-buffer",
                 "the same timestamp at three looks, and then an update in the same buffer");
  auto& b = s.script();
  const Published p = publish(b, first.encoded());
  constexpr const char* kNew = "pctx.reader.new-timestamp-new-read";
  for (int i = 0; i < 3; ++i) {
    s.ask(about_process(p, {claim(kNew, {accept(first.content())}, "a context is not read")}));
  }
  b.store(p.header + 16, 8, 0);
  b.write(p.payload, second.encoded());
  b.store(p.header + 16, 8, b.clock());
  ask_until(s, about_process(p, {claim(kNew, {accept(second.content())},
                                       "the new timestamp does not lead to a new read")}));
  return std::move(s).scene();
}

Scene replaced_by_exec() {
  SceneBuilder s("exec", "the process execs a program without a context");
  auto& b = s.script();
  const Message message = service("ctxconf-before-exec");
  const Published p = publish(b, message.encoded());
  s.ask(about_process(p, {}));
  b.exec("plain");
  ask_until_gone(s,
                 claim("pctx.reader.exec-drops-context", or_refused(no_context()),
                       "attributes of the program before the exec are still used"),
                 "ctxconf-before-exec");
  return std::move(s).scene();
}

// The context is of another program, which knows nothing of scripts.
Scene of_32_bits() {
  SceneBuilder s("32-bit-process", "a program of 32 bits publishes a context");
  const std::string program = puppet::find_puppets().value_or("") + "/" + kThirtyTwoBitProgram;
  s.needs_host(program);
  s.script().exec(program, {"--quiet", "--good", "default", "--hold", "600000"});
  Message message;
  message.resource = {{"service.name", "ctxconf-testee"}};
  message.attributes = {{"ctxconf.example", "field two"}};
  const AllowedAnswer right = accept(message.content(/*exactly=*/false));
  auto any = or_refused(not_used());
  any.push_back(right);
  Question q;
  q.state = 'S';  // it sleeps once it has published
  q.claims = {claim("pctx.reader.thirty-two-bit-target", {right},
                    "the context of a 32-bit process is not reported"),
              claim("pctx.reader.decodes-process-context", std::move(any),
                    "what is reported of a 32-bit process is not what it publishes")};
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene other_data_there() {
  SceneBuilder s("reused-address",
                 "other data with the same timestamp and pointer where the context was");
  auto& b = s.script();
  const Message message = service("ctxconf-reused");
  const Published p = publish(b, message.encoded());
  s.ask(about_process(p, {}));
  const Value timestamp = b.load(p.header + 16, 8);
  b.unmap(p.header, kPage);
  const Value there = b.map({.size = kPage,
                             .prot = kReadWrite,
                             .flags = MAP_PRIVATE | MAP_FIXED,
                             .fd = {},
                             .offset = 0,
                             .at = p.header});
  b.store(there + 12, 4, p.size);
  b.store(there + 24, 8, p.payload);
  b.store(there + 16, 8, timestamp);
  auto c = claim("pctx.reader.reused-address", or_refused(no_context()),
                 "other data at the address of a former context is used as one");
  c.never = {"ctxconf-reused"};
  ask_until(s, about_process(p, {c}));
  return std::move(s).scene();
}

Scene parent_and_child() {
  constexpr const char* kOwn = "pctx.reader.applies-to-this-process";
  SceneBuilder s("parent-and-child",
                 "a forked child without a context, and one that publishes its own");
  auto& b = s.script();
  const Message parents = service("ctxconf-parent");
  const Message childs = service("ctxconf-child");
  const Published p = publish(b, parents.encoded());
  s.ask(about_process(p, {claim(kOwn, {accept(parents.content())}, "a context is not read")}));
  const Value child = b.fork();
  Question none;
  none.process = child;
  none.claims = {
      claim(kOwn, or_refused(no_context()), "a child is given the context of its parent")};
  none.claims.front().never = {"ctxconf-parent"};
  s.ask(std::move(none));
  const Value other = b.fork();
  b.by(other);
  const Published own = publish(b, childs.encoded());
  b.by_first();
  Question q = about_process(
      own, {claim(kOwn, {accept(childs.content())}, "the context of a child is not its own")});
  q.process = other;
  ask_until(s, std::move(q));
  ask_until(s, about_process(p, {claim(kOwn, {accept(parents.content())},
                                       "the context of a parent is not its own any more")}));
  return std::move(s).scene();
}

Scene reused_pid() {
  constexpr const char* kOwn = "pctx.reader.applies-to-this-process";
  SceneBuilder s("reused-pid", "a process ends, and another one without a context gets its number");
  s.needs_host("root");
  auto& b = s.script();
  const Value first = b.fork();
  b.by(first);
  const Message message = service("ctxconf-former");
  const Published p = publish(b, message.encoded());
  b.by_first();
  Question q = about_process(p, {});
  q.process = first;
  s.ask(std::move(q));
  b.by(first).exit();
  b.by_first();
  b.wait(first);
  // The start time that the kernel shows counts hundredths of a second.
  constexpr std::chrono::milliseconds kOtherStartTime{20};
  s.wait({.duration = kOtherStartTime});
  const Value second = b.fork(puppet::ForkHow::kFork, 0, first);
  Question other;
  other.process = second;
  other.claims = {claim(kOwn, or_refused(no_context()),
                        "a process is given the context of another one that had its number")};
  other.claims.front().never = {"ctxconf-former"};
  ask_until(s, std::move(other));
  return std::move(s).scene();
}

Scene stopped() {
  constexpr const char* kStopped = "pctx.reader.target-may-be-stopped";
  SceneBuilder s("stopped", "a process that SIGSTOP has stopped");
  auto& b = s.script();
  const Message message = service("ctxconf-stopped");
  const Value child = b.fork();
  b.by(child);
  const Published p = publish(b, message.encoded());
  b.by_first();
  b.signal(SIGSTOP, child, /*process=*/true);
  Question q = about_process(p, {claim(kStopped, {accept(message.content())},
                                       "the context of a stopped process is not read")});
  q.process = child;
  q.state = 'T';
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene waiting() {
  constexpr const char* kStopped = "pctx.reader.target-may-be-stopped";
  SceneBuilder s("deadlocked", "a process whose only thread waits for a futex for ever");
  auto& b = s.script();
  const Message message = service("ctxconf-waiting");
  const Value child = b.fork();
  b.by(child);
  const Published p = publish(b, message.encoded());
  const Value word = b.map_anonymous(kPage, kReadWrite, MAP_PRIVATE);
  b.later().syscall(puppet::kFutex, {word, 0, 0, 0});
  b.by_first();
  Question q =
      about_process(p, {claim(kStopped, {accept(message.content())},
                              "the context of a process that waits for ever is not read")});
  q.process = child;
  q.state = 'S';
  s.ask(std::move(q));
  return std::move(s).scene();
}

Scene without_defaults(bool broken) {
  constexpr const char* kDefault = "pctx.reader.default-detection";
  SceneBuilder s(broken ? "defaults-broken-payload" : "defaults-no-context",
                 std::string("what else the reader finds out about a process ") +
                     (broken ? "whose payload does not decode" : "without a context"));
  auto& b = s.script();
  if (broken) {
    publish(b, puppet::bytes_of("this is not a message"));
  } else {
    b.fence();
  }
  Question q;
  auto allowed = or_refused(no_context());
  for (auto& a : allowed) a.content = R"({"defaults":true})";
  q.claims = {claim(kDefault, allowed, "the reader reports nothing at all about the process")};
  s.ask(std::move(q));
  return std::move(s).scene();
}

}  // namespace

SceneGroup lifetime_scenes() {
  SceneGroup out;
  out.name = "lifetimes";
  out.scenes.push_back(completed_later());
  out.scenes.push_back(late());
  out.scenes.push_back(withdrawn());
  out.scenes.push_back(new_buffer());
  out.scenes.push_back(same_buffer());
  out.scenes.push_back(replaced_by_exec());
  out.scenes.push_back(of_32_bits());
  out.scenes.push_back(other_data_there());
  out.scenes.push_back(parent_and_child());
  out.scenes.push_back(reused_pid());
  out.scenes.push_back(stopped());
  out.scenes.push_back(waiting());
  out.scenes.push_back(without_defaults(false));
  out.scenes.push_back(without_defaults(true));
  return out;
}

}  // namespace ctxconf::conformance::reader
