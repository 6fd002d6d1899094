// An adapter with a small publisher of process context for `ctxconf selftest`. It is wrong in one
// way (--bad ID[:HOW]), or legal in an unusual one (--good NAME).
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/driven_process/children.h"
#include "conformance/testees/driven_process/content.h"
#include "conformance/testees/driven_process/context.h"
#include "conformance/testees/driven_process/sdk.h"
#include "conformance/testees/writer/choice.h"
#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {

const char* const kProgram = "driven_process_writer";

namespace {

using adapter::exec_program;
using adapter::exec_self;

bool breaks_churn() {
  return is_bad("pctx.update.visible:churn") || is_bad("pctx.update.visible:churn-last");
}

json capabilities() {
  if (is_bad("pctx.publish.on-init") || is_good("background")) {
    return {{"process.publish", json::object()}};
  }
  json caps = {{"process.fork", {{"child", {"idle", "publish", "update", "drop", "fork"}}}},
               {"thread", {{"style", "pointer"}}}};
  for (const char* const cap :
       {"process.publish", "process.update", "process.drop", "process.attributes", "process.exec",
        "process.fork_namespace", "process.parallel", "process.second_resource",
        "process.second_sdk", "gate"}) {
    caps[cap] = json::object();
  }
  if (has_few_keys() || is_good("no-keys")) {
    json& publish = caps["process.publish"];
    publish["keys"] = json::array();
    if (has_few_keys()) publish["keys"] = {"service.name", "service.version"};
    publish["own_keys"] = {"service.instance.id", "host.name"};
  }
  if (is_bad("pctx.update.no-mixed-read:bulk") || breaks_churn() || is_good("unmaps-payloads")) {
    caps["churn"] = json::object();
  }
  if (is_good("never-withdraws")) caps.erase("process.drop");
  return caps;
}

int run(char** argv) {
  Sdk::after_exec();
  if (is_good("unmaps-payloads")) mallopt(M_MMAP_THRESHOLD, kMapped);
  Sdk sdk;
  Loop loop({{"adapter", {{"name", "driven_process_writer"}, {"version", "1"}}},
             {"caps", capabilities()}});
  Children children(loop, sdk);
  sdk.watch_for_stops();
  sdk.begin_heartbeat();
  loop.on("process.publish", [&](const json& r) { return sdk.publish(r); });
  loop.on_gated("process.update",
                [&](const json& r, const Gate& gate) { return sdk.update(r, gate); });
  loop.on("process.churn", [&](const json& r) { return sdk.churn(r); });
  loop.on("process.drop", [&](const json&) { return sdk.drop(); });
  loop.on("process.second_resource", [&](const json& r) { return sdk.second_resource(r); });
  loop.on("process.fork", [&](const json& r) { return children.fork_child(r); });
  loop.on("process.reap", [&](const json& r) { return children.reap(r); });
  loop.on("process.exec_self", [&](const json&) -> Reply {
    sdk.before_exec(/*of_itself=*/true);
    return std::unexpected(exec_self(argv));
  });
  loop.on("process.exec", [&](const json& r) -> Reply {
    sdk.before_exec(/*of_itself=*/false);
    json program = r.at("argv");
    if (is_good("finds-no-program")) program[0] = "/nowhere/" + program[0].get<std::string>();
    return std::unexpected(exec_program(program, r.at("env")));
  });
  loop.on("sdk.load", [](const json&) { return json(); });
  loop.on("sdk.unload", [](const json&) { return json(); });
  if (breaks("pctx.publish.singleton") || breaks("pctx.update.one-writer-at-a-time") ||
      is_bad("pctx.update.visible:at-once") || is_bad("pctx.update.visible:at-once-renewed") ||
      is_bad("pctx.update.visible:first-at-once") ||
      is_bad("pctx.payload.resource-matches-sdk:first-at-once") || is_good("merged-updates")) {
    loop.on("parallel", [&](const json& r) { return sdk.parallel(r.at("requests")); });
  }
  loop.on("thread.block", [&](const json&) {
    sdk.main_thread_blocks();
    return json{{"tid", gettid()}};
  });
  _exit(loop.run());
}

}  // namespace
}  // namespace ctxconf::testees

int main(int argc, char** argv) {
  using namespace ctxconf::testees;
  const auto topics = {kContentChoices, kContextChoices, kSdkChoices, kChildrenChoices};
  if (argc != 3 || !choose(argv[1], argv[2], topics)) {
    fprintf(stderr, "usage: driven_process_writer --bad ID[:HOW] | --good NAME; these are\n");
    for (const auto& topic : topics) {
      for (const auto& c : topic.bad) fprintf(stderr, "  --bad %s\n", c.name);
    }
    for (const auto& topic : topics) {
      for (const auto& c : topic.good) fprintf(stderr, "  --good %s\n", c.name);
    }
    return 2;
  }
  try {
    return run(argv);
  } catch (const std::exception& e) {
    fprintf(stderr, "driven_process_writer: %s\n", e.what());
    return 1;
  }
}
