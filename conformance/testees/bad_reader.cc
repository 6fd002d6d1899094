// An adapter of a small agent that reads process and thread contexts, for `ctxconf reader`. It is
// correct, or wrong in one way (--bad ID[:HOW]), or legal in an unusual one (--good NAME).
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/testees/adapter_loop.h"
#include "conformance/testees/reader/agent.h"
#include "conformance/testees/reader/answer_json.h"
#include "conformance/testees/reader/mappings.h"
#include "conformance/testees/reader/memory.h"
#include "conformance/testees/reader/thread_sample.h"
#include "conformance/testees/reader/variable.h"
#include "conformance/testees/writer/choice.h"

namespace ctxconf::testees {
namespace {

using adapter::json;
using adapter::Loop;
using adapter::refuse;
using adapter::Reply;

std::chrono::milliseconds poll_interval() {
  return std::chrono::milliseconds(is_good("polls-slowly") ? 1000 : 50);
}
constexpr int kCannotBeShownHere = 77;

const auto kTopics = {kAgentChoices,     kSearchChoices, kCopyChoices,    kHeaderChoices,
                      kMappingsChoices,  kMemoryChoices, kPayloadChoices, kRecordChoices,
                      kReferenceChoices, kSampleChoices, kVariableChoices};

json capabilities(bool watches) {
  const json none = json::object();
  json out = {{"reader", reader_traits()}, {"reader.record", none}, {"reader.forget", none}};
  if (watches) {
    out["reader.watch"] = {{"poll_ms", poll_interval().count()}};
    out["reader.watch_threads"] = none;
  } else {
    out["reader.process"] = none;
    out["reader.thread"] = none;
  }
  return out;
}

std::vector<std::uint8_t> bytes_from(const std::string& hex) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

Reply reply_of(const Answer& answer) {
  if (answer.failure) return refuse("failed", *answer.failure);
  return json_of(answer);
}

// Adds what it found out in other ways if there is no context.
Answer look_at_process(Agent& agent, pid_t pid, json& out) {
  Answer answer = agent.process(pid);
  out = json_of(answer);
  const bool lacks =
      (answer.result == Result::kReject && is_bad("pctx.reader.default-detection")) ||
      (answer.result == Result::kAbsent && is_bad("pctx.reader.default-detection:absent"));
  if (answer.result != Result::kAccept && reader_traits().contains("defaults") && !lacks) {
    out["defaults"] = json_of(Agent::defaults_of(pid));
  }
  return answer;
}

// Looks at processes again and again, and says what has changed.
class Watcher {
 public:
  Watcher(Agent& agent, Loop& loop) : agent_(agent), loop_(loop) {}

  void watch(pid_t pid) {
    const std::lock_guard guard(lock_);
    watched_.insert(pid);
    if (!thread_.joinable()) thread_ = std::thread([this] { poll(); });
  }

  void forget(pid_t pid) {
    const std::lock_guard guard(lock_);
    agent_.forget(pid);
    watched_.erase(pid);
    std::erase_if(said_, [&](const auto& one) { return one.first.first == pid; });
  }

 private:
  [[noreturn]] void poll() {
    for (;; std::this_thread::sleep_for(poll_interval())) {
      const std::lock_guard guard(lock_);
      for (const pid_t pid : watched_) look_at(pid);
    }
  }

  void look_at(pid_t pid) {
    json process;
    look_at_process(agent_, pid, process);
    say({pid, 0}, std::move(process));
    for (const pid_t tid : threads_of(pid)) {
      say({pid, tid}, json_of(agent_.thread(pid, tid, std::nullopt)));
    }
  }

  void say(std::pair<pid_t, pid_t> about, json what) {
    if (said_[about] == what && !is_good("reports-each-look")) return;
    said_[about] = what;
    what["ev"] = "saw";
    what["pid"] = about.first;
    if (about.second != 0) what["tid"] = about.second;
    loop_.send(what);
  }

  Agent& agent_;
  Loop& loop_;
  std::mutex lock_;
  std::set<pid_t> watched_;
  std::map<std::pair<pid_t, pid_t>, json> said_;  // by process and thread
  std::thread thread_;
};

int run(bool watches) {
  Loop loop(
      {{"adapter", {{"name", "bad_reader"}, {"version", "1"}}}, {"caps", capabilities(watches)}});
  Agent agent;
  Watcher watcher(agent, loop);
  loop.on("reader.process", [&](const json& request) -> Reply {
    json out;
    const Answer answer = look_at_process(agent, request.at("pid").get<pid_t>(), out);
    if (answer.failure) return refuse("failed", *answer.failure);
    return out;
  });
  loop.on("reader.thread", [&](const json& request) {
    std::optional<SecondSource> second;
    if (request.contains("second_source")) {
      const json& source = request["second_source"];
      second = {source.at("trace_id").get<std::string>(), source.at("span_id").get<std::string>()};
    }
    return reply_of(
        agent.thread(request.at("pid").get<pid_t>(), request.at("tid").get<pid_t>(), second));
  });
  loop.on("reader.record", [&](const json& request) {
    KeyMap names;
    for (const auto& name : request.at("key_map")) names.push_back(name.get<std::string>());
    return reply_of(Agent::record(bytes_from(request.at("hex").get<std::string>()), names));
  });
  loop.on("reader.watch", [&](const json& request) {
    watcher.watch(request.at("pid").get<pid_t>());
    return json();
  });
  loop.on("reader.forget", [&](const json& request) -> Reply {
    const auto pid = request.at("pid").get<pid_t>();
    if (is_good("refuses-to-forget") && kill(pid, 0) != 0) return refuse("failed", "it has ended");
    watcher.forget(pid);
    return json();
  });
  // The watching thread never ends.
  _exit(loop.run());
}

int usage() {
  fprintf(stderr, "usage: bad_reader [--watch] [--bad ID[:HOW] | --good NAME]; these are\n");
  for (const auto& topic : kTopics) {
    for (const auto& c : topic.bad) fprintf(stderr, "  --bad %-48s %s\n", c.name, c.about);
  }
  for (const auto& topic : kTopics) {
    for (const auto& c : topic.good) fprintf(stderr, "  --good %-24s %s\n", c.name, c.about);
  }
  return 2;
}

}  // namespace
}  // namespace ctxconf::testees

int main(int argc, char** argv) {
  using namespace ctxconf::testees;
  bool watches = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--watch") {
      watches = true;
    } else if (i + 1 < argc && choose(option, argv[i + 1], kTopics)) {
      ++i;
    } else {
      return usage();
    }
  }
  if (uses_ring() && !ring_is_available()) return kCannotBeShownHere;
  try {
    return run(watches);
  } catch (const std::exception& e) {
    fprintf(stderr, "bad_reader: %s\n", e.what());
    return 1;
  }
}
