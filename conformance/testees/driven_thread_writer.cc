// An adapter with its own writer for thread context (OTEP 4947) for `ctxconf selftest`. It is legal
// in one way or another (--good NAME), or wrong in exactly one (--bad ROW); `--list` names them.
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/driven_thread/record.h"
#include "conformance/testees/driven_thread/reference_data.h"
#include "conformance/testees/driven_thread/threads.h"
#include "conformance/testees/writer/choice.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {

const char* const kProgram = "driven_thread_writer";

namespace {

using adapter::refuse;

[[noreturn]] void be_child(const Loop& loop, Process& process, Threads& threads, pid_t parent,
                           const std::array<int, 2>& ends, const json& child) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  loop.leave_channel();
  if (child.at("do") == "publish") {
    threads.forget_in_child();
    process.publish_in_child(child);
  }
  if (write(ends[1], "", 1) != 1) _exit(1);
  close(ends[0]);
  close(ends[1]);
  for (;;) ::pause();
}

bool churns() {
  constexpr std::array<const char*, 11> kGood = {
      "pointer",     "valid-byte",           "detaches-in-churn", "ids-of-its-own",
      "handed-on",   "handed-on-as-it-is",   "inherits",          "attribute-of-its-own",
      "fixed-names", "freed-after-the-slot", "cut-at-its-limit"};
  return is_bad("tctx.attach.matches-context:churn") ||
         is_bad("tctx.attach.matches-context:churn-ids") ||
         std::ranges::any_of(kGood, [](const char* name) { return is_good(name); });
}

json hello() {
  json caps = {{"process.fork", {{"child", {"idle", "publish"}}}},
               {"thread", {{"style", uses_valid_byte() ? "valid" : "pointer"}}}};
  for (const char* const cap :
       {"process.publish", "process.update", "process.drop", "process.parallel", "thread.attach",
        "thread.detach", "thread.append", "thread.shrink", "thread.move"}) {
    caps[cap] = json::object();
  }
  if (churns()) caps["thread.churn"] = json::object();
  json& attach = caps["thread.attach"];
  if (is_good("fixed-names")) attach["keys"] = {"http_route", "user_tier", "db_table"};
  if (is_good("not-configured")) attach["keys"] = {"http_route"};
  if (is_good("hidden-without-a-trace")) attach["keys"] = json::array();
  if (is_good("no-random-flag")) attach["flags"] = 1;
  if (is_good("inherits")) attach["inherits"] = true;
  json limits = {{"record_bytes", kRecordBytes}, {"keys", kMostNames}};
  if (is_good("cut-at-its-limit")) limits["value_bytes"] = kOwnLimit;
  return {{"adapter", {{"name", "driven_thread_writer"}, {"version", "1"}}},
          {"caps", std::move(caps)},
          {"limits", std::move(limits)}};
}

int run() {
  Process process;
  Threads threads(process);
  threads.begin_main();
  Loop loop(hello());
  std::set<pid_t> children;
  loop.on_thread_start([&] { threads.begin_thread(); });
  loop.on_thread_end([&](const std::string& thread) { threads.end_thread(thread); });

  loop.on("process.publish", [&](const json& r) {
    if (is_good("begins-anew")) threads.hide_on_main();
    return process.publish(r);
  });
  loop.on("process.update", [&](const json& r) {
    auto reply = process.update(r);
    if (is_bad("tctx.attach.visible:hidden-by-an-update")) threads.hide_on_main();
    return reply;
  });
  loop.on("process.drop", [&](const json&) {
    if (is_good("hidden-by-a-withdrawal")) threads.hide_on_main();
    return process.drop(threads.any_attached());
  });
  loop.on("thread.attach", [&](const json& r) { return threads.attach(r); });
  loop.on("thread.append", [&](const json& r) { return threads.append(r); });
  loop.on("thread.shrink", [&](const json& r) { return threads.shrink(r); });
  loop.on("thread.detach", [&](const json& r) {
    process.say_now();
    return threads.detach(r);
  });
  if (is_bad("tctx.attach.visible:blocked")) {
    loop.on("thread.block", [&](const json&) { return threads.block(); });
  }
  loop.on("thread.churn", [&](const json& r) { return threads.churn(r); });
  loop.on("thread.move", [&](const json& r) { return threads.move(loop, r); });
  loop.on("process.fork", [&](const json& r) -> Reply {
    const json& child = r.at("child");
    const auto todo = child.at("do").get<std::string>();
    if (todo != "idle" && todo != "publish") return refuse("unsupported", "a child's " + todo);
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return refuse("failed", "pipe", errno);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) be_child(loop, process, threads, parent, ends, child);
    const int err = errno;
    close(ends[1]);
    char told = 0;
    const bool ready = pid > 0 && read(ends[0], &told, 1) == 1;
    close(ends[0]);
    if (pid < 0) return refuse("failed", "fork", err);
    children.insert(pid);
    if (!ready) return refuse("failed", "the child has ended");
    return json{{"child_pid", pid}};
  });
  loop.on("process.reap", [&](const json& r) { return adapter::reap_child(children, r); });
  _exit(loop.run());
}

}  // namespace
}  // namespace ctxconf::testees

int main(int argc, char** argv) {
  using namespace ctxconf::testees;
  const auto topics = {kReferenceDataChoices, kRecordChoices, kThreadsChoices};
  if (argc == 2 && std::string_view(argv[1]) == "--list") {
    for (const auto& topic : topics) {
      for (const auto& c : topic.bad) printf("bad %s\n", c.name);
    }
    for (const auto& topic : topics) {
      for (const auto& c : topic.good) printf("good %s\n", c.name);
    }
    return 0;
  }
  if (argc != 3 || !choose(argv[1], argv[2], topics)) {
    fprintf(stderr, "usage: driven_thread_writer --bad ROW | --good NAME | --list\n");
    return 2;
  }
  try {
    return run();
  } catch (const std::exception& e) {
    fprintf(stderr, "driven_thread_writer: %s\n", e.what());
    return 1;
  }
}
