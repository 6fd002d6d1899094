// The program adapter_cpp: the testee protocol over the reference writer, as an SDK in C++ would
// use it.
#include <errno.h>
#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <exception>
#include <expected>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/testees/adapter_loop.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"
#include "writer_ref/otel_ctx.h"
#include "writer_ref/otel_thread_ctx.h"

namespace ctxconf::adapter {
namespace {

using opentelemetry::proto::processcontext::v1development::ProcessContext;

constexpr std::string_view kChurnKey = "ctxconf.churn";
constexpr std::size_t kLongestChurnValue = 64;

std::unexpected<Refusal> failed(const otel_ctx_error& error) {
  std::array<char, 256> text{};
  otel_ctx_describe(&error, text.data(), text.size());
  return refuse("failed", text.data(), error.sys_errno);
}

std::string hex(std::uint64_t number) {
  std::array<char, 17> text{};
  snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(number));
  return text.data();
}

template <std::size_t N>
std::array<std::uint8_t, N> bytes_of(const std::string& text) {
  std::array<std::uint8_t, N> out{};
  if (text.size() != 2 * N) throw std::invalid_argument("an id of another length: '" + text + "'");
  for (std::size_t i = 0; i < N; ++i) {
    const char* const end = text.data() + 2 * i + 2;
    if (std::from_chars(end - 2, end, out[i], 16).ptr != end) {
      throw std::invalid_argument("not hexadecimal: '" + text + "'");
    }
  }
  return out;
}

std::uint64_t seed_of(const json& request) {
  const auto text = request.at("seed").get<std::string>();
  return std::stoull(text, nullptr, 16);
}

// What a record can say of an AnyValue: text, or nothing of what is not a scalar.
std::optional<std::string> text_of(const json& value) {
  if (value.contains("stringValue")) return value["stringValue"].get<std::string>();
  for (const char* const kind : {"boolValue", "intValue", "doubleValue"}) {
    if (!value.contains(kind)) continue;
    return value[kind].is_string() ? value[kind].get<std::string>() : value[kind].dump();
  }
  return std::nullopt;
}

std::optional<std::string> repeated_key(const json& attributes) {
  std::set<std::string> keys;
  for (const auto& attribute : attributes) {
    auto key = attribute.at("key").get<std::string>();
    if (!keys.insert(key).second) return key;
  }
  return std::nullopt;
}

// The process context: what the harness gave, and the reference data of the thread context once
// that is used.
class Process {
 public:
  struct Content {
    std::optional<json> resource;
    json attributes = json::array();
  };

  Reply publish(const json& request, const Gate& gate) { return change({}, request, gate, true); }

  Reply update(const json& request, const Gate& gate) {
    const std::lock_guard guard(lock_);
    return change_locked(content_, request, gate, false);
  }

  Reply drop(const Gate& gate) {
    const std::lock_guard guard(lock_);
    gate();
    otel_ctx_error error;
    keys_said_.reset();
    if (otel_ctx_drop(&error) != OTEL_CTX_OK) return failed(error);
    return json();
  }

  // Every value ends in the number of the iteration.
  Reply churn(const json& request, const Gate& gate) {
    const auto iterations = request.at("iterations").get<std::uint64_t>();
    const std::uint64_t seed = seed_of(request);
    gate();
    for (std::uint64_t i = 1; i <= iterations; ++i) {
      const std::string padding((seed ^ i * 0x9e3779b97f4a7c15) >> 56, 'x');
      const auto pair = [&](const char* key, const std::string& value) {
        return json{{"key", key}, {"value", {{"stringValue", numbered(value, i)}}}};
      };
      const json content = {
          {"resource",
           {{"attributes",
             {pair("service.name", "churn"), pair("service.instance.id", hex(seed))}}}},
          {"attributes", {pair("ctxconf.churn.padding", padding), pair("ctxconf.churn", "at")}}};
      if (auto reply = change({}, content, [] {}, true); !reply) return reply;
    }
    return json();
  }

  // The indexes, once the process context says their names; -1 for a key that has none.
  std::expected<std::vector<int>, Refusal> register_keys(const std::vector<std::string>& keys) {
    const std::lock_guard guard(lock_);
    std::vector<int> indexes;
    indexes.reserve(keys.size());
    for (const auto& key : keys) {
      indexes.push_back(otel_thread_ctx_register_key(key.data(), key.size()));
    }
    threads_used_ = true;
    if (keys_said_ != otel_thread_ctx_key_count()) {
      const auto reply = send(content_, [] {}, true);
      if (!reply) return std::unexpected(reply.error());
    }
    return indexes;
  }

  std::expected<std::string, Refusal> encode(const Content& content) const {
    json whole = {{"attributes", content.attributes}};
    if (content.resource) whole["resource"] = *content.resource;
    if (threads_used_) {
      json names = json::array();
      for (std::size_t i = 0; const char* const key = otel_thread_ctx_key(i); ++i) {
        names.push_back({{"stringValue", key}});
      }
      whole["attributes"].push_back(
          {{"key", "threadlocal.schema_version"}, {"value", {{"stringValue", "tlsdesc_v1_dev"}}}});
      whole["attributes"].push_back({{"key", "threadlocal.attribute_key_map"},
                                     {"value", {{"arrayValue", {{"values", names}}}}}});
    }
    auto twice = repeated_key(whole["attributes"]);
    if (!twice && content.resource) twice = repeated_key(content.resource->at("attributes"));
    if (twice) return refuse("rejected", "'" + *twice + "' is given twice");
    ProcessContext message;
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = true;
    const auto status =
        google::protobuf::util::JsonStringToMessage(whole.dump(), &message, options);
    if (!status.ok()) return refuse("bad-request", status.ToString());
    std::string bytes;
    if (!message.SerializeToString(&bytes)) return refuse("rejected", "more than 2 GiB");
    return bytes;
  }

  static Content merged(Content content, const json& request) {
    if (request.contains("resource")) content.resource = request["resource"];
    if (request.contains("attributes")) content.attributes = request["attributes"];
    return content;
  }

 private:
  Reply change(const Content& base, const json& request, const Gate& gate, bool publishes) {
    const std::lock_guard guard(lock_);
    return change_locked(base, request, gate, publishes);
  }

  Reply change_locked(const Content& base, const json& request, const Gate& gate, bool publishes) {
    auto content = merged(base, request);
    auto reply = send(content, gate, publishes);
    if (reply) content_ = std::move(content);
    return reply;
  }

  Reply send(const Content& content, const Gate& gate, bool publishes) {
    const auto bytes = encode(content);
    if (!bytes) return std::unexpected(bytes.error());
    gate();
    otel_ctx_error error;
    const int status = publishes ? otel_ctx_publish(bytes->data(), bytes->size(), &error)
                                 : otel_ctx_update(bytes->data(), bytes->size(), &error);
    if (status != OTEL_CTX_OK) return failed(error);
    if (threads_used_) keys_said_ = otel_thread_ctx_key_count();
    return json();
  }

  std::mutex lock_;  // from the names of the keys to the end of their publication
  Content content_;
  bool threads_used_ = false;
  std::optional<std::size_t> keys_said_;  // by the reference data that is published
};

struct ThreadContext {
  std::string name;
  std::vector<std::uint16_t> ends;  // attrs_data_size before each attribute
  otel_thread_ctx_record record{};

  void append(int index, const std::string& value) {
    ends.push_back(record.attrs_data_size);
    otel_thread_ctx_append_inline(&record, sizeof record, index, value.data(), value.size());
  }
};

// The contexts of one thread, innermost last.
struct Stack {
  std::vector<std::unique_ptr<ThreadContext>> contexts;

  otel_thread_ctx_record* top() { return contexts.empty() ? nullptr : &contexts.back()->record; }
};

class Threads {
 public:
  explicit Threads(Process& process) : process_(process) {}

  Reply attach(const json& request, const Gate& gate) {
    auto context = std::make_unique<ThreadContext>();
    context->name = request.at("ctx").get<std::string>();
    const auto [keys, texts] = texts_of(request.value("attributes", json::array()));
    const bool traced = request.contains("trace_id");
    const auto trace = traced ? bytes_of<16>(request["trace_id"]) : decltype(bytes_of<16>("")){};
    const auto span = traced ? bytes_of<8>(request.at("span_id")) : decltype(bytes_of<8>("")){};
    const auto flags = request.value("flags", std::uint8_t{0});
    Stack& stack = stack_of(request);
    stack.contexts.reserve(stack.contexts.size() + 1);
    gate();
    const auto indexes = process_.register_keys(keys);
    if (!indexes) return std::unexpected(indexes.error());
    otel_thread_ctx_begin_inline(&context->record, trace.data(), span.data(), flags);
    for (std::size_t i = 0; i < texts.size(); ++i) context->append((*indexes)[i], texts[i]);
    otel_thread_ctx_end_inline(&context->record);
    otel_thread_ctx_attach_inline(&context->record);
    stack.contexts.push_back(std::move(context));
    return json();
  }

  Reply append(const json& request, const Gate& gate) {
    Stack& stack = stack_of(request);
    if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
    const auto [keys, texts] = texts_of(request.at("attributes"));
    gate();
    const auto indexes = process_.register_keys(keys);
    if (!indexes) return std::unexpected(indexes.error());
    auto& context = *stack.contexts.back();
    for (std::size_t i = 0; i < texts.size(); ++i) context.append((*indexes)[i], texts[i]);
    return json();
  }

  Reply shrink(const json& request, const Gate& gate) {
    Stack& stack = stack_of(request);
    if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
    auto& [name, ends, record] = *stack.contexts.back();
    const auto keep = request.at("keep").get<std::size_t>();
    gate();
    if (keep >= ends.size()) return json();
    otel_thread_ctx_shrink_inline(&record, ends[keep]);
    ends.resize(keep);
    return json();
  }

  Reply detach(const json& request, const Gate& gate) {
    Stack& stack = stack_of(request);
    if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
    const auto ended = std::move(stack.contexts.back());
    stack.contexts.pop_back();
    gate();
    otel_thread_ctx_attach_inline(stack.top());
    return json();
  }

  Reply move(Loop& loop, const json& request, const Gate& gate) {
    const auto name = request.at("ctx").get<std::string>();
    const auto from = request.at("from").get<std::string>();
    const auto to = request.at("to").get<std::string>();
    Stack& source = stacks_of(from);
    const auto found = std::ranges::find(source.contexts, name, &ThreadContext::name);
    if (found == source.contexts.end()) return refuse("failed", "no context '" + name + "'");
    Stack& target = stacks_of(to);
    target.contexts.reserve(target.contexts.size() + 1);
    std::unique_ptr<ThreadContext> moving;
    auto reply = loop.run_on(from, [&]() -> Reply {
      moving = std::move(*found);
      source.contexts.erase(found);
      otel_thread_ctx_attach_inline(source.top());
      return json();
    });
    if (!reply) return reply;
    return loop.run_on(to, [&]() -> Reply {
      gate();
      otel_thread_ctx_attach_inline(&moving->record);
      target.contexts.push_back(std::move(moving));
      return json();
    });
  }

  // When the thread is gone: its slot may have pointed to a record until then.
  void forget(const std::string& thread) {
    const std::lock_guard guard(lock_);
    stacks_.erase(thread);
  }

  Reply churn(const json& request, const Gate& gate) {
    const auto count = request.at("threads").get<std::size_t>();
    const auto iterations = request.at("iterations").get<std::uint64_t>();
    const std::uint64_t seed = seed_of(request);
    const auto keys = process_.register_keys({std::string(kChurnKey)});
    if (!keys) return std::unexpected(keys.error());
    const int key = keys->front();
    gate();
    std::vector<std::thread> threads;
    threads.reserve(count);
    std::vector<Records> records(count);  // each stays while its thread may point to it
    std::optional<Refusal> refusal;
    try {
      for (std::size_t i = 0; i < count; ++i) {
        threads.emplace_back([=, &own = records[i]] {
          churn_one(own, key, seed + i * 0x9e3779b97f4a7c15, iterations);
        });
      }
    } catch (const std::system_error& e) {
      refusal = {"failed", "thread " + std::to_string(threads.size()), e.code().value()};
    }
    for (auto& thread : threads) thread.join();
    if (refusal) return std::unexpected(*refusal);
    return json();
  }

 private:
  using Records = std::array<otel_thread_ctx_record, 2>;

  static void churn_one(Records& records, int key, std::uint64_t seed, std::uint64_t iterations) {
    otel_thread_ctx_init_thread();
    std::uint64_t state = seed;
    const auto next = [&state] {  // never the same twice in a row, never zero
      state = state * 6364136223846793005 + 1442695040888963407;
      return state | 1;
    };
    for (std::uint64_t i = 0; i < iterations; ++i) {
      const std::string span = hex(next());
      const auto trace = bytes_of<16>(hex(next()) + span);
      std::string value;
      const std::size_t length = 1 + (state >> 32) % kLongestChurnValue;
      while (value.size() < length) value += span;
      auto& record = records[i % records.size()];
      otel_thread_ctx_begin_inline(&record, trace.data(), trace.data() + 8, 1);
      otel_thread_ctx_append_inline(&record, sizeof record, key, value.data(), length);
      otel_thread_ctx_end_inline(&record);
      otel_thread_ctx_attach_inline(&record);
    }
  }

  // Keys, and what a record can say of their values.
  struct Texts {
    std::vector<std::string> keys;
    std::vector<std::string> texts;
  };
  static Texts texts_of(const json& attributes) {
    Texts out;
    for (const auto& attribute : attributes) {
      auto text = text_of(attribute.at("value"));
      if (!text) continue;
      out.keys.push_back(attribute.at("key").get<std::string>());
      out.texts.push_back(std::move(*text));
    }
    return out;
  }

  Stack& stack_of(const json& request) { return stacks_of(request.value("thread", "main")); }
  Stack& stacks_of(const std::string& thread) {
    const std::lock_guard guard(lock_);
    return stacks_[thread];
  }

  Process& process_;
  std::mutex lock_;  // the map, not the stacks in it
  std::map<std::string, Stack> stacks_;
};

// Processes made by process.fork. They end with the thread that made them.
class Children {
 public:
  Children(const Loop& loop, Process& process) : loop_(loop), process_(process) {}

  Reply fork_child(const json& request, const Gate& gate) {
    const json& child = request.at("child");
    const bool deeper = child.at("do") == "fork";
    const json& last = deeper ? child.at("child") : child;
    const auto todo = last.at("do").get<std::string>();
    const bool updates = todo == "update";
    const bool drops = todo == "drop";
    if (todo != "idle" && todo != "publish" && !updates && !drops) {
      return refuse("unsupported", "a child's " + todo);
    }
    // Encodes here, where other threads cannot have stopped in the middle of something.
    std::vector<std::string> payloads;
    if (todo != "idle") {
      std::vector<Process::Content> contents = {Process::merged({}, last)};
      if (updates) contents.push_back(Process::merged(contents.front(), last.at("update")));
      for (const auto& content : contents) {
        auto bytes = process_.encode(content);
        if (!bytes) return std::unexpected(bytes.error());
        payloads.push_back(std::move(*bytes));
      }
    }
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return refuse("failed", "pipe", errno);
    gate();
    const pid_t parent = getpid();
    // Process 1 of a new namespace has no parent there, and ends with this one's.
    const bool nested = request.value("namespace", "") == "pid";
    if (nested && unshare(CLONE_NEWPID) != 0) return refuse("failed", "unshare", errno);
    const pid_t pid = fork();
    if (pid == 0) be_child(nested ? 0 : parent, ends, deeper, payloads, drops);
    const int err = errno;
    close(ends[1]);
    Report report;
    const bool told = pid > 0 && read(ends[0], &report, sizeof report) == sizeof report;
    close(ends[0]);
    if (pid < 0) return refuse("failed", "fork", err);
    children_.insert(pid);
    if (!told) return refuse("failed", "the child has ended");
    if (report.err != 0) return refuse("failed", "the child could not fork", report.err);
    if (report.publish.status != OTEL_CTX_OK) return failed(report.publish);
    json reply = {{"child_pid", pid}};
    if (deeper) reply["grandchild_pid"] = report.grandchild;
    return reply;
  }

  Reply reap(const json& request) { return reap_child(children_, request); }

 private:
  struct Report {
    otel_ctx_error publish{};  // its step is a literal: the same address in the parent
    pid_t grandchild = 0;
    int err = 0;
  };

  [[noreturn]] void be_child(pid_t parent, const std::array<int, 2>& ends, bool deeper,
                             const std::vector<std::string>& payloads, bool drops) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    loop_.leave_channel();
    Report report;
    if (deeper) {
      const pid_t self = getpid();
      const pid_t pid = fork();
      if (pid == 0) be_child(self, ends, false, payloads, drops);
      report.grandchild = pid;
      report.err = pid < 0 ? errno : 0;
      if (pid > 0) idle(ends);  // the grandchild reports
    } else {
      report.grandchild = getpid();
      if (!payloads.empty()) {
        otel_thread_ctx_attach_inline(nullptr);
        const std::string& first = payloads.front();
        otel_ctx_publish(first.data(), first.size(), &report.publish);
      }
      if (payloads.size() > 1 && report.publish.status == OTEL_CTX_OK) {
        otel_ctx_update(payloads[1].data(), payloads[1].size(), &report.publish);
      }
      if (drops && report.publish.status == OTEL_CTX_OK) otel_ctx_drop(&report.publish);
    }
    if (write(ends[1], &report, sizeof report) != sizeof report) _exit(1);
    idle(ends);
  }

  [[noreturn]] static void idle(const std::array<int, 2>& ends) {
    close(ends[0]);
    close(ends[1]);
    for (;;) pause();
  }

  const Loop& loop_;
  Process& process_;
  std::set<pid_t> children_;
};

json hello() {
  json caps = {{"process.fork", {{"child", {"idle", "publish", "update", "drop", "fork"}}}},
               {"thread", {{"style", "pointer"}}}};
  for (const char* const cap :
       {"process.publish", "process.update", "process.drop", "process.attributes", "process.exec",
        "process.fork_namespace", "process.parallel", "process.no_resource", "thread.attach",
        "thread.detach", "thread.append", "thread.shrink", "thread.move", "thread.churn", "gate",
        "churn", "diag.tls_address"}) {
    caps[cap] = json::object();
  }
  return {{"adapter", {{"name", "adapter_cpp"}, {"version", "1"}}},
          {"sdk", {{"name", "otel_ctx_writer"}, {"version", "0.1.0"}, {"language", "cpp"}}},
          {"sources",
           {{"process", "writer_ref/otel_ctx.cc"}, {"thread", "writer_ref/otel_thread_ctx.h"}}},
          {"caps", std::move(caps)},
          {"limits",
           {{"record_bytes", OTEL_THREAD_CTX_RECORD_BYTES},
            {"keys", OTEL_THREAD_CTX_MAX_KEYS},
            {"value_bytes", OTEL_THREAD_CTX_MAX_VALUE_BYTES}}}};
}

int run(char** argv) {
  Process process;
  Threads threads(process);
  Loop loop(hello());
  Children children(loop, process);
  otel_thread_ctx_init_thread();
  loop.on_thread_start([] { otel_thread_ctx_init_thread(); });
  loop.on_thread_end([&](const std::string& thread) { threads.forget(thread); });

  loop.on_gated("process.publish",
                [&](const json& r, const Gate& gate) { return process.publish(r, gate); });
  loop.on_gated("process.update",
                [&](const json& r, const Gate& gate) { return process.update(r, gate); });
  loop.on_gated("process.drop", [&](const json&, const Gate& gate) { return process.drop(gate); });
  loop.on_gated("process.churn",
                [&](const json& r, const Gate& gate) { return process.churn(r, gate); });
  loop.on_gated("process.fork",
                [&](const json& r, const Gate& gate) { return children.fork_child(r, gate); });
  loop.on("process.reap", [&](const json& r) { return children.reap(r); });
  loop.on("process.exec", [](const json& r) -> Reply {
    return std::unexpected(exec_program(r.at("argv"), r.at("env")));
  });
  loop.on("process.exec_self",
          [argv](const json&) -> Reply { return std::unexpected(exec_self(argv)); });

  loop.on_gated("thread.attach",
                [&](const json& r, const Gate& gate) { return threads.attach(r, gate); });
  loop.on_gated("thread.append",
                [&](const json& r, const Gate& gate) { return threads.append(r, gate); });
  loop.on_gated("thread.shrink",
                [&](const json& r, const Gate& gate) { return threads.shrink(r, gate); });
  loop.on_gated("thread.detach",
                [&](const json& r, const Gate& gate) { return threads.detach(r, gate); });
  loop.on_gated("thread.move",
                [&](const json& r, const Gate& gate) { return threads.move(loop, r, gate); });
  loop.on_gated("thread.churn",
                [&](const json& r, const Gate& gate) { return threads.churn(r, gate); });
  loop.on("diag.tls_address", [](const json&) {
    std::array<char, 24> text{};
    snprintf(text.data(), text.size(), "%p", static_cast<void*>(&otel_thread_ctx_v1));
    return json{{"address", text.data()}};
  });
  _exit(loop.run());
}

}  // namespace
}  // namespace ctxconf::adapter

int main(int, char** argv) {
  try {
    return ctxconf::adapter::run(argv);
  } catch (const std::exception& e) {
    fprintf(stderr, "adapter_cpp: %s\n", e.what());
    return 1;
  }
}
