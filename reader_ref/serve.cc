#include "reader_ref/serve.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "reader_ref/process_reader.h"
#include "reader_ref/protocol_answers.h"
#include "sys/all_signals_blocked.h"

namespace ctxconf::reader {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr std::size_t kLongestLine = std::size_t{1} << 20U;
constexpr std::int64_t kLargestId = 9'007'199'254'740'991;
constexpr std::int64_t kLargestPid = 4'194'304;
constexpr std::size_t kMostReaders = 128;  // each keeps a few descriptors open
constexpr milliseconds kGrace{500};

// The lines that this program writes; several threads do.
class Lines {
 public:
  explicit Lines(std::ostream& out) : out_(&out) {}

  // False: it could not be written.
  bool write(const Json& object) {
    const std::string line =
        object.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
    const std::lock_guard guard(lock_);
    if (line.size() < kLongestLine) *out_ << line << '\n' << std::flush;
    return line.size() < kLongestLine && out_->good();
  }
  bool good() {
    const std::lock_guard guard(lock_);
    return out_->good();
  }

 private:
  std::mutex lock_;
  std::ostream* out_;
};

// False: the end. A line that is too long is no line.
bool read_line(std::istream& in, std::string& line) {
  using Traits = std::streambuf::traits_type;
  line.clear();
  bool too_long = false;
  while (true) {
    const auto c = in.rdbuf()->sbumpc();
    const bool end = Traits::eq_int_type(c, Traits::eof());
    if (end && line.empty()) return false;
    if (end || c == '\n') break;
    too_long = too_long || line.size() == kLongestLine;
    if (!too_long) line += Traits::to_char_type(c);
  }
  if (too_long) line.clear();
  return true;
}

std::optional<std::int64_t> integer_in(const Json& object, const char* name, std::int64_t least,
                                       std::int64_t most) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_number_integer()) return std::nullopt;
  // A larger one does not become negative.
  if (at->is_number_unsigned() && at->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
    return std::nullopt;
  }
  const auto value = at->get<std::int64_t>();
  return value >= least && value <= most ? std::optional(value) : std::nullopt;
}

std::optional<std::string> text_in(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? std::optional(at->get<std::string>())
                                               : std::nullopt;
}

std::optional<KeyMap> texts_in(const Json& object, const char* name) {
  const auto at = object.find(name);
  if (at == object.end() || !at->is_array()) return std::nullopt;
  KeyMap texts;
  for (const Json& text : *at) {
    if (!text.is_string()) return std::nullopt;
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

Json done() { return {{"ok", true}}; }

Json done(Json answer) {
  answer["ok"] = true;
  return answer;
}

Json refused(const char* kind, const std::string& message) {
  return {{"ok", false}, {"error", {{"kind", kind}, {"message", message}}}};
}

Json bad(const std::string& what) { return refused("bad-request", what); }

// The readers of the processes that were asked about.
class Asked {
 public:
  explicit Asked(milliseconds relist) : relist_(relist) {}

  Json process(pid_t pid) {
    ProcessReader& reader = reader_of(pid);
    // Says of no process that it has no context because it had none a moment ago.
    if (!reader.knows_context()) reader.relist();
    return answer_about_process(reader.read_context());
  }

  Json thread(pid_t pid, pid_t tid) {
    ProcessReader& reader = reader_of(pid);
    if (!reader.knows_context()) reader.relist();
    Json answer = answer_about_thread(reader.read_thread(tid), tid);
    // Perhaps a library with the variable has been loaded.
    if (answer["result"] == "absent") {
      reader.relist();
      answer = answer_about_thread(reader.read_thread(tid), tid);
    }
    return answer;
  }

  void forget(pid_t pid) { readers_.erase(pid); }

 private:
  ProcessReader& reader_of(pid_t pid) {
    auto& reader = readers_[pid];
    if (!reader && readers_.size() > kMostReaders) {
      readers_.clear();
      return reader_of(pid);
    }
    if (!reader) {
      ReaderOptions options;
      options.relist = relist_;
      reader = std::make_unique<ProcessReader>(pid, options, tools_);
    }
    return *reader;
  }

  milliseconds relist_;
  ReaderTools tools_;
  std::map<pid_t, std::unique_ptr<ProcessReader>> readers_;
};

// A thread that reads. If a read does not return because the page that it needs is never filled,
// the thread is left behind, and its reader with it.
class ReadingThread {
 public:
  using Work = std::function<Json(Asked&)>;

  explicit ReadingThread(milliseconds relist) : state_(std::make_shared<State>(relist)) {
    const sys::AllSignalsBlocked blocked;
    std::thread([state = state_] { state->run(); }).detach();
  }
  ReadingThread(const ReadingThread&) = delete;
  ReadingThread& operator=(const ReadingThread&) = delete;
  ~ReadingThread() {
    std::unique_lock guard(state_->lock);
    state_->stops = true;
    state_->changed.notify_all();
    // It has stopped no thread of another process when this program ends.
    if (!state_->work) {
      state_->changed.wait_for(guard, kGrace, [this] { return state_->ended; });
    }
  }

  // Nothing: it takes longer than that.
  std::optional<Json> answer(Work work, milliseconds limit) {
    std::unique_lock guard(state_->lock);
    state_->answer.reset();
    state_->work = std::move(work);
    state_->changed.notify_all();
    state_->changed.wait_for(guard, limit, [this] { return state_->answer.has_value(); });
    return std::move(state_->answer);
  }

 private:
  struct State {
    explicit State(milliseconds relist_every) : relist(relist_every) {}

    void run() {
      {
        Asked asked(relist);
        std::unique_lock guard(lock);
        while (true) {
          changed.wait(guard, [this] { return stops || work; });
          if (stops) break;
          guard.unlock();
          Json made = work(asked);
          guard.lock();
          work = nullptr;
          answer = std::move(made);
          changed.notify_all();
        }
      }
      const std::lock_guard guard(lock);
      ended = true;
      changed.notify_all();
    }

    const milliseconds relist;
    std::mutex lock;
    std::condition_variable changed;
    Work work;  // empty: none
    std::optional<Json> answer;
    bool stops = false;
    bool ended = false;
  };

  std::shared_ptr<State> state_;
};

class Server {
 public:
  Server(Lines& lines, const ServeOptions& options)
      : lines_(lines),
        options_(options),
        reading_(std::make_unique<ReadingThread>(options.watch.relist)) {}

  Json answer(const Json& request) {
    const auto op = text_in(request, "op");
    if (!op) return bad("no operation");
    if (*op == "hello") return hello();
    if (*op == "bye") return done();
    if (*op == "reader.record") return record(request);
    const bool is_ours = *op == "reader.process" || *op == "reader.thread" ||
                         *op == "reader.watch" || *op == "reader.forget";
    if (!is_ours) return refused("unsupported", "no operation " + *op);
    const auto pid = integer_in(request, "pid", 1, kLargestPid);
    if (!pid) return bad("pid");
    return about(*op, static_cast<pid_t>(*pid), request);
  }

 private:
  Json hello() const {
    // A context that is published late is found when the mappings are listed.
    const auto poll = std::max({options_.watch.interval, options_.watch.relist, milliseconds(1)});
    return {{"ok", true},
            {"v", 1},
            {"pid", getpid()},
            {"adapter", {{"name", "reader_ref"}, {"version", "0.1.0"}}},
            {"sdk", {{"name", "reader_ref"}, {"version", "0.1.0"}, {"language", "cpp"}}},
            {"caps",
             {{"reader", {{"payload_bytes", kPayloadLimit}}},
              {"reader.process", Json::object()},
              {"reader.thread", Json::object()},
              {"reader.record", Json::object()},
              {"reader.watch", {{"poll_ms", poll.count()}}},
              {"reader.watch_threads", Json::object()},
              {"reader.forget", Json::object()}}}};
  }

  static Json record(const Json& request) {
    const auto hex = text_in(request, "hex");
    const auto bytes = hex ? bytes_of_hex(*hex) : std::nullopt;
    if (!bytes) return bad("hex");
    const auto keys = texts_in(request, "key_map");
    if (!keys) return bad("key_map");
    return done(answer_about_record(*bytes, *keys));
  }

  Json about(const std::string& op, pid_t pid, const Json& request) {
    if (op == "reader.watch") return watch(pid);
    if (op == "reader.forget") return forget(pid);
    if (op == "reader.process") return read([pid](Asked& a) { return a.process(pid); });
    const auto tid = integer_in(request, "tid", 1, kLargestPid);
    if (!tid) return bad("tid");
    return read([pid, tid = static_cast<pid_t>(*tid)](Asked& a) { return a.thread(pid, tid); });
  }

  Json read(ReadingThread::Work work) {
    auto answer = reading_->answer(std::move(work), options_.answer_limit);
    if (answer) return done(std::move(*answer));
    reading_ = std::make_unique<ReadingThread>(options_.watch.relist);
    return refused("failed", "the process did not answer within " +
                                 std::to_string(options_.answer_limit.count()) + " ms");
  }

  Json watch(pid_t pid) {
    const auto at = watches_.find(pid);
    if (at != watches_.end() && !at->second->has_ended()) return done();
    try {
      watches_[pid] = std::make_unique<ProcessWatch>(
          pid, options_.watch, [this](const Json& event) { lines_.write(event); });
    } catch (const std::system_error& e) {
      return refused("failed", e.what());
    }
    return done();
  }

  Json forget(pid_t pid) {
    watches_.erase(pid);
    return read([pid](Asked& a) {
      a.forget(pid);
      return Json::object();
    });
  }

  Lines& lines_;
  ServeOptions options_;
  std::unique_ptr<ReadingThread> reading_;
  std::map<pid_t, std::unique_ptr<ProcessWatch>> watches_;
};

}  // namespace

bool serve(std::istream& in, std::ostream& out, const ServeOptions& options) {
  Lines lines(out);
  Server server(lines, options);
  for (std::string line; read_line(in, line);) {
    const Json request = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!request.is_object()) continue;
    const auto id = integer_in(request, "id", 0, kLargestId);
    if (!id) continue;
    Json reply = server.answer(request);
    reply["id"] = *id;
    if (!lines.write(reply)) {
      if (!lines.good()) return false;
      lines.write({{"id", *id},
                   {"ok", false},
                   {"error",
                    {{"kind", "failed"}, {"message", "the answer is longer than a line may be"}}}});
    }
    if (text_in(request, "op") == "bye") break;
  }
  return lines.good();
}

}  // namespace ctxconf::reader
