// What needs a reader of its own: processes that were there before it, and ones that it may not
// read.
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <string>
#include <utility>

#include "conformance/reader/publish.h"
#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {
namespace {

Scene published_before() {
  const Message message = service("ctxconf-before-the-reader");
  SceneBuilder s("before-the-reader",
                 "a context that was published, and named, before the reader was started");
  const Published p = publish(s.script(), message.encoded());
  s.ask(
      about_process(p, {claim("pctx.reader.hook-not-only-source", {accept(message.content())},
                              "a context is not found whose publication the reader did not see")}));
  return std::move(s).scene();
}

// `becomes_other`: it is also a process of another user.
Scene protected_process(const char* name, const char* about, bool becomes_other) {
  constexpr const char* kNoRight = "pctx.reader.no-permission";
  constexpr std::uint64_t kNobody = 65534;
  SceneBuilder s(name, about);
  auto& b = s.script();
  publish(b, service("ctxconf-protected").encoded());
  b.syscall(SYS_prctl, {PR_SET_DUMPABLE, 0});
  if (becomes_other) {
    s.needs_host("root");
    b.syscall(SYS_setresuid, {kNobody, kNobody, kNobody});
  }
  auto c = claim(kNoRight, not_used(), "a context that the reader may not read");
  c.never = {"ctxconf-protected"};
  Question q;
  q.claims = {c};
  s.ask(std::move(q));
  s.ask_witness({kNoRight});
  return std::move(s).scene();
}

Scene thread_not_dumpable() {
  constexpr const char* kNoRight = "tctx.reader.no-permission";
  SceneBuilder s("thread-not-dumpable",
                 "a thread that the reader may not stop, next to one that it may",
                 puppet::Program::kSlot);
  auto& b = s.script();
  drop_capabilities(b);
  const puppet::Value child = b.fork();
  b.by(child);
  publish(b, reference_data({}).encoded());
  const Record secret = numbered_record(1);
  Attached hidden = attach(b, secret.encoded());
  hidden.thread = child;
  b.syscall(SYS_prctl, {PR_SET_DUMPABLE, 0});
  b.by_first();
  publish(b, reference_data({}).encoded());
  require_plain_record(s);
  const Record plain = numbered_record(2);
  const Attached open = attach(b, plain.encoded());
  auto c = claim(kNoRight, not_used(), "a record that the reader may not read");
  c.never = {secret.trace_id};
  Question q = about_thread(hidden, {std::move(c)});
  q.process = child;
  s.ask(std::move(q));
  s.ask(about_thread(open,
                     {claim(kNoRight, {accept(ids_content(plain))},
                            "the record of a thread is missing because another may not be read")}));
  return std::move(s).scene();
}

}  // namespace

SceneGroup early_scenes() {
  SceneGroup out;
  out.name = "early";
  out.early = true;
  out.scenes.push_back(published_before());
  return out;
}

SceneGroup permission_scenes() {
  SceneGroup out;
  out.name = "permissions";
  out.without_ptrace_right = true;
  out.scenes.push_back(protected_process(
      "not-dumpable", "a process that the reader may not read, next to one that it may", false));
  out.scenes.push_back(protected_process(
      "another-user", "a process of another user, next to one that the reader may read", true));
  out.scenes.push_back(thread_not_dumpable());
  return out;
}

}  // namespace ctxconf::conformance::reader
