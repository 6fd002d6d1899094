#include "reader_ref/process_watch.h"

#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "reader_ref/process_reader.h"
#include "reader_ref/protocol_answers.h"
#include "sys/all_signals_blocked.h"

namespace ctxconf::reader {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kWatchGrace{500};

}  // namespace

struct ProcessWatch::State {
  State(pid_t its_pid, const WatchOptions& its_options, Report to)
      : pid(its_pid), options(its_options), report(std::move(to)) {}

  void run();
  void take(const sys::Result<ProcessReport>& now);
  void take_threads(const ProcessReport& now);
  void tell(Json answer, pid_t tid);
  bool sleep();

  const pid_t pid;
  const WatchOptions options;
  std::mutex lock;
  std::condition_variable changed;
  Report report;  // empty: nobody listens any more
  bool stops = false;
  bool ended = false;

  // Only the thread uses these.
  Json process;  // null: not known
  std::map<pid_t, Json> threads;
};

void ProcessWatch::State::run() {
  {
    ReaderOptions how;
    how.patience.samples = 1;
    how.relist = options.relist;
    ReaderTools tools;
    ProcessReader reader(pid, how, tools);
    bool goes_on = true;
    while (goes_on) {
      const auto now = reader.read();
      if (now || now.error().err != EAGAIN) take(now);
      goes_on = (now || now.error().err != ESRCH) && sleep();
    }
  }
  const std::lock_guard guard(lock);
  ended = true;
  changed.notify_all();
}

void ProcessWatch::State::take(const sys::Result<ProcessReport>& now) {
  const bool had_one = process.is_object() && process["result"] == "accept";
  if (now && now->busy && had_one) return;
  Json answer = answer_about_process(now);
  if (answer != process) {
    process = answer;
    tell(std::move(answer), 0);
  }
  take_threads(now ? *now : ProcessReport());
}

void ProcessWatch::State::take_threads(const ProcessReport& now) {
  std::map<pid_t, Json> fresh;
  for (const ThreadReport& t : now.threads) {
    if (t.context) fresh[t.tid] = answer_about(t);
  }
  for (const auto& [tid, answer] : threads) {
    if (!fresh.contains(tid)) tell({{"result", "absent"}}, tid);
  }
  for (const auto& [tid, answer] : fresh) {
    const auto before = threads.find(tid);
    if (before == threads.end() || before->second != answer) tell(answer, tid);
  }
  threads = std::move(fresh);
}

void ProcessWatch::State::tell(Json answer, pid_t tid) {
  answer["ev"] = "saw";
  answer["pid"] = pid;
  if (tid != 0) answer["tid"] = tid;
  const std::lock_guard guard(lock);
  if (report) report(std::move(answer));
}

// False: stop.
bool ProcessWatch::State::sleep() {
  std::unique_lock guard(lock);
  return !changed.wait_for(guard, options.interval, [this] { return stops; });
}

ProcessWatch::ProcessWatch(pid_t pid, const WatchOptions& options, Report report)
    : state_(std::make_shared<State>(pid, options, std::move(report))) {
  const sys::AllSignalsBlocked blocked;
  std::thread([state = state_] { state->run(); }).detach();
}

ProcessWatch::~ProcessWatch() {
  std::unique_lock guard(state_->lock);
  state_->report = nullptr;
  state_->stops = true;
  state_->changed.notify_all();
  state_->changed.wait_for(guard, kWatchGrace, [this] { return state_->ended; });
}

bool ProcessWatch::has_ended() const {
  const std::lock_guard guard(state_->lock);
  return state_->ended;
}

}  // namespace ctxconf::reader
