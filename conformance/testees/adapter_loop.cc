#include "conformance/testees/adapter_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <latch>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ctxconf::adapter {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 20;

pid_t thread_id() { return static_cast<pid_t>(syscall(SYS_gettid)); }

json error_of(const Refusal& refusal) {
  json error = {{"kind", refusal.kind}, {"message", refusal.message}};
  if (const char* const name = refusal.err == 0 ? nullptr : strerrorname_np(refusal.err)) {
    error["errno"] = name;
  }
  return error;
}

json result_of(const Reply& reply) {
  if (!reply) return {{"ok", false}, {"error", error_of(reply.error())}};
  json result = reply->is_object() ? *reply : json::object();
  result["ok"] = true;
  return result;
}

Reply guarded(const std::function<Reply()>& work) {
  try {
    return work();
  } catch (const json::exception& e) {
    return std::unexpected(Refusal{"bad-request", e.what()});
  } catch (const std::system_error& e) {
    return std::unexpected(Refusal{"failed", e.what(), e.code().value()});
  } catch (const std::exception& e) {
    return std::unexpected(Refusal{"failed", e.what()});
  }
}

std::string thread_of(const json& request) { return request.value("thread", std::string("main")); }

void wait_as_told(const std::string& how, std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  if (how == "sleep") {
    std::this_thread::sleep_until(end);
  } else if (how == "spin") {
    while (std::chrono::steady_clock::now() < end) continue;
  } else {
    std::mutex lock;
    std::condition_variable never;
    std::unique_lock guard(lock);
    never.wait_until(guard, end, [] { return false; });
  }
}

}  // namespace

// A thread that does one piece of work after the other.
class Loop::Worker {
 public:
  explicit Worker(const std::function<void()>& start)
      : thread_([this, start] {
          if (start) start();
          run();
        }) {}
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() {
    post(nullptr);
    thread_.join();
  }

  // An empty one ends the thread.
  void post(std::function<void()> work) {
    {
      const std::lock_guard guard(lock_);
      queue_.push_back(std::move(work));
    }
    posted_.notify_one();
  }

 private:
  void run() {
    for (;;) {
      std::unique_lock guard(lock_);
      posted_.wait(guard, [this] { return !queue_.empty(); });
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      guard.unlock();
      if (!work) return;
      work();
    }
  }

  std::mutex lock_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> queue_;
  std::thread thread_;
};

Loop::Loop(json hello) : hello_(std::move(hello)) {
  const char* const channel = getenv("CTXCONF_CHANNEL");
  if (channel != nullptr && std::string_view(channel) == "fd3") in_ = out_ = 3;
  on("hello", [this](const json&) {
    json reply = hello_;
    reply["v"] = 1;
    reply["pid"] = getpid();
    return reply;
  });
  on("bye", [this](const json&) {
    ended_ = true;
    return json();
  });
  on("parallel", [this](const json& request) { return parallel(request); });
}

Loop::~Loop() = default;

void Loop::on(std::string op, Handler handler) {
  on_gated(std::move(op), [handler = std::move(handler)](const json& request, const Gate& gate) {
    gate();
    return handler(request);
  });
}

void Loop::on_gated(std::string op, GatedHandler handler) {
  handlers_[std::move(op)] = std::move(handler);
}

Reply Loop::run_on(const std::string& thread, std::function<Reply()> work) {
  const auto with_tid = [&work] {
    auto reply = guarded(work);
    if (reply && reply->is_null()) reply = json::object();
    if (reply) (*reply)["tid"] = thread_id();
    return reply;
  };
  if (thread == "main") return with_tid();
  const auto worker = workers_.find(thread);
  if (worker == workers_.end()) {
    return std::unexpected(Refusal{"bad-request", "there is no thread '" + thread + "'"});
  }
  Reply reply;
  std::latch done(1);
  worker->second->post([&] {
    reply = with_tid();
    done.count_down();
  });
  done.wait();
  return reply;
}

Reply Loop::dispatch(const json& request, const Gate& gate) {
  const auto op = request.at("op").get<std::string>();
  if (request.value("sdk", 1) != 1 && !hello_["caps"].contains("process.second_sdk")) {
    return std::unexpected(Refusal{"unsupported", "there is one SDK here"});
  }
  if (const auto handler = handlers_.find(op); handler != handlers_.end()) {
    const auto work = [&] { return handler->second(request, gate); };
    return request.contains("thread") ? run_on(thread_of(request), work) : work();
  }
  if (op == "thread.spawn" || op == "thread.exit") {
    gate();
    return op == "thread.spawn" ? spawn(request) : end_thread(request);
  }
  return std::unexpected(Refusal{"unsupported", "no operation '" + op + "'"});
}

Reply Loop::spawn(const json& request) {
  const auto name = thread_of(request);
  if (name == "main" || workers_.contains(name)) {
    return std::unexpected(Refusal{"bad-request", "there is a thread '" + name + "'"});
  }
  workers_[name] = std::make_unique<Worker>(thread_start_);
  return run_on(name, [&] { return json{{"thread", name}}; });
}

Reply Loop::end_thread(const json& request) {
  const auto name = thread_of(request);
  if (name == "main") {
    return std::unexpected(Refusal{"bad-request", "the main thread does not end"});
  }
  auto reply = run_on(name, [] { return json(); });
  if (!reply) return reply;
  workers_.erase(name);
  if (thread_end_) thread_end_(name);
  return reply;
}

void Loop::block(const json& request, const Gate& gate) {
  const auto name = thread_of(request);
  const auto id = request.at("id").get<std::int64_t>();
  const auto how = request.at("how").get<std::string>();
  const std::chrono::milliseconds time(request.at("ms").get<std::uint32_t>());
  const auto say = [&] {
    gate();
    send({{"id", id}, {"ok", true}, {"tid", thread_id()}});
  };
  if (name == "main") {
    say();
    return wait_as_told(how, time);
  }
  const auto worker = workers_.find(name);
  if (worker == workers_.end()) throw std::invalid_argument("there is no thread '" + name + "'");
  std::latch said(1);
  // What it refers to is gone once this function has returned.
  worker->second->post([&say, &said, how, time] {
    say();
    said.count_down();
    wait_as_told(how, time);
  });
  said.wait();
}

Reply Loop::parallel(const json& request) {
  const json& requests = request.at("requests");
  std::vector<Reply> replies(requests.size());
  std::vector<std::size_t> for_main;
  std::vector<std::size_t> for_others;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    // A thread that has forked must not end before the child.
    const bool forks = requests[i].at("op") == "process.fork";
    (forks || requests[i].value("thread", "") == "main" ? for_main : for_others).push_back(i);
  }
  std::latch start(static_cast<std::ptrdiff_t>(for_others.size()) + 1);
  std::vector<std::thread> threads;
  const auto work = [&](std::size_t i) {
    replies[i] = guarded([&] { return dispatch(requests[i], [] {}); });
  };
  for (const auto i : for_others) {
    try {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        work(i);
      });
    } catch (const std::system_error& e) {
      replies[i] = std::unexpected(Refusal{"failed", "no thread for this one", e.code().value()});
      start.count_down();
    }
  }
  start.arrive_and_wait();
  for (const auto i : for_main) work(i);
  for (auto& thread : threads) thread.join();
  json results = json::array();
  for (const auto& reply : replies) results.push_back(result_of(reply));
  return json{{"results", std::move(results)}};
}

void Loop::wait_for_go(std::int64_t id) {
  // Little is done between this line and the SDK's call, which may be moved by single instructions.
  const std::string go = R"({"id":)" + std::to_string(id) + R"(,"op":"go"})";
  send({{"ev", "armed"}, {"id", id}, {"tid", thread_id()}});
  while (const auto line = read_line()) {
    if (*line == go) return;
    const auto message = json::parse(*line, nullptr, false);
    if (message.is_object() && message.value("op", json()) == "go") return;
    send({{"id", id},
          {"ok", false},
          {"error", error_of({"bad-request", "expected go, not '" + line->substr(0, 80) + "'"})}});
  }
  _exit(0);
}

void Loop::answer(const json& request) {
  const auto id = request.at("id").get<std::int64_t>();
  const Gate gate = [&] {
    if (request.value("gate", false)) wait_for_go(id);
  };
  bool answered = false;
  const auto reply = guarded([&]() -> Reply {
    const auto op = request.at("op").get<std::string>();
    const auto handler = handlers_.find(op);
    if (op == "thread.block" && handler == handlers_.end()) {
      block(request, gate);
      answered = true;
      return json();
    }
    if (handler == handlers_.end() || thread_of(request) != "main" ||
        request.value("sdk", 1) != 1) {
      return dispatch(request, gate);
    }
    // Little is done after the SDK's call, too: it may still be moved by single instructions.
    const bool names_thread = request.contains("thread");
    std::string accepted = R"({"id":)" + std::to_string(id) + R"(,"ok":true)";
    if (names_thread) accepted += R"(,"tid":)" + std::to_string(thread_id());
    accepted += '}';
    auto given = handler->second(request, gate);
    answered = given && given->is_null();
    if (answered) send_line(accepted);
    if (!answered && given && names_thread) (*given)["tid"] = thread_id();
    return given;
  });
  if (answered) return;
  json result = result_of(reply);
  result["id"] = id;
  send(result);
}

int Loop::run() {
  signal(SIGPIPE, SIG_IGN);
  while (!ended_) {
    const auto line = read_line();
    if (!line) break;
    const auto request = json::parse(*line, nullptr, false);
    if (!request.is_object() || !request.value("id", json()).is_number_integer()) {
      send({{"id", 0},
            {"ok", false},
            {"error", error_of({"bad-request", "expected an object with an id"})}});
      continue;
    }
    answer(request);
  }
  return 0;
}

void Loop::send(const json& message) {
  send_line(message.dump(-1, ' ', false, json::error_handler_t::replace));
}

void Loop::send_line(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  const std::lock_guard guard(sending_);
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(out_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) _exit(1);  // nobody listens
    at += static_cast<std::size_t>(n);
  }
}

std::optional<std::string> Loop::read_line() {
  bool too_long = false;
  std::array<char, 4096> buffer{};
  for (;;) {
    if (const auto end = pending_.find('\n'); end != std::string::npos) {
      std::string line = too_long || end > kLongestLine ? "" : pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    if (pending_.size() > kLongestLine) {
      too_long = true;
      pending_.clear();
    }
    const ssize_t n = read(in_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    pending_.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

void Loop::leave_channel() const {
  const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nowhere < 0) return;
  dup2(nowhere, in_);
  dup2(nowhere, out_);
  if (nowhere != in_ && nowhere != out_) close(nowhere);
}

Reply reap_child(std::set<pid_t>& children, const json& request) {
  const auto pid = request.at("child_pid").get<pid_t>();
  if (children.erase(pid) == 0) {
    return refuse("bad-request", "not a child of this process");
  }
  kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return refuse("failed", "waitpid", errno);
  }
  return json{{"status", status}};
}

Refusal exec_program(const json& argv, const json& env) {
  const auto words = argv.get<std::vector<std::string>>();
  for (const auto& [name, value] : env.items()) {
    setenv(name.c_str(), value.get<std::string>().c_str(), 1);
  }
  std::vector<char*> pointers;
  for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  if (words.empty()) return {"bad-request", "argv is empty"};
  execv(pointers.front(), pointers.data());
  const int err = errno;
  return {"failed", "execv '" + words.front() + "': " + strerror(err), err};
}

Refusal exec_self(char** argv) {
  // The link itself would become the name of the process.
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {"failed", "/proc/self/exe: " + error.message(), error.value()};
  setenv("CTXCONF_RESUME", "1", 1);
  execv(path.c_str(), argv);
  const int err = errno;
  unsetenv("CTXCONF_RESUME");
  return {"failed", "execv '" + path.string() + "': " + strerror(err), err};
}

std::string numbered(const std::string& value, std::uint64_t number) {
  constexpr std::size_t kDigits = 10;
  const std::string digits = std::to_string(number);
  return value + "-" + std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

}  // namespace ctxconf::adapter
