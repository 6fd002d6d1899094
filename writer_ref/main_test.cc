// Tests the program writer_ref through its command line.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace {

using opentelemetry::proto::processcontext::v1development::ProcessContext;
using namespace std::chrono_literals;

// The program with stdout and stderr in one pipe; killed with SIGKILL at the end.
class Program {
 public:
  explicit Program(std::vector<std::string> arguments, bool no_files = false,
                   rlim_t memory = RLIM_INFINITY) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    arguments.insert(arguments.begin(), CTXCONF_BIN_DIR "/writer_ref");
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], 1);
      dup2(ends[1], 2);
      const rlimit none{0, 0};
      if (no_files) setrlimit(RLIMIT_FSIZE, &none);
      const rlimit limit{memory, RLIM_INFINITY};
      if (memory != RLIM_INFINITY) setrlimit(RLIMIT_AS, &limit);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) wait();
    close(output_);
  }

  pid_t pid() const { return pid_; }

  // Up to the end of a line, or everything at the end of output.
  std::string line() {
    std::string out;
    for (char c = 0; c != '\n';) {
      pollfd ready{output_, POLLIN, 0};
      if (poll(&ready, 1, 20'000) != 1 || read(output_, &c, 1) != 1) return out;
      out.push_back(c);
    }
    return out;
  }
  std::string rest() {
    std::string out;
    for (std::string next = line(); !next.empty(); next = line()) out += next;
    return out;
  }
  // The exit code, or -signal.
  int wait() {
    int status = 0;
    if (waitpid(std::exchange(pid_, -1), &status, 0) < 0) return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // The context in the printed line; nothing during an update.
  std::optional<std::pair<std::uint64_t, ProcessContext>> read_context(std::uint64_t header) const {
    ctxconf::abi::ProcessHeader h{};
    if (!copy(header, &h, sizeof h) || !ctxconf::abi::is_valid(h)) return std::nullopt;
    std::string payload(h.payload_size, '\0');
    ctxconf::abi::ProcessHeader after{};
    if (!copy(h.payload, payload.data(), payload.size()) || !copy(header, &after, sizeof after) ||
        after.monotonic_published_at_ns != h.monotonic_published_at_ns) {
      return std::nullopt;
    }
    ProcessContext context;
    EXPECT_TRUE(context.ParseFromString(payload));
    return std::pair(h.monotonic_published_at_ns, context);
  }

  bool copy(std::uint64_t from, void* to, std::size_t size) const {
    const iovec local{to, size};
    const iovec remote{std::bit_cast<void*>(from), size};
    return process_vm_readv(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

struct Line {
  int pid = 0;
  unsigned long long header = 0;
  unsigned long long timestamp = 0;
};
std::optional<Line> parse(const std::string& text, const char* word) {
  Line line;
  const std::string format = std::string(word) + " pid=%d header=0x%llx timestamp=%llu\n";
  if (sscanf(text.c_str(), format.c_str(), &line.pid, &line.header, &line.timestamp) != 3) {
    return std::nullopt;
  }
  return line;
}

TEST(WriterRef, PublishesWhatTheCommandLineSaysUntilItIsTerminated) {
  Program program(
      {"--resource", "service.name=demo", "--resource", "n:int=5", "--attribute", "k:bool=true"});
  const auto line = parse(program.line(), "published");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->pid, program.pid());
  const auto context = program.read_context(line->header);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->first, line->timestamp);
  const auto& resource = context->second.resource();
  ASSERT_EQ(resource.attributes_size(), 2);
  EXPECT_EQ(resource.attributes(0).key(), "service.name");
  EXPECT_EQ(resource.attributes(0).value().string_value(), "demo");
  EXPECT_EQ(resource.attributes(1).value().int_value(), 5);
  ASSERT_EQ(context->second.attributes_size(), 1);
  EXPECT_TRUE(context->second.attributes(0).value().bool_value());
  kill(program.pid(), SIGTERM);
  EXPECT_EQ(program.wait(), 0);
}

TEST(WriterRef, UpdatesAsOftenAsAsked) {
  Program program({"--update-every", "1", "--updates", "20"});
  const auto line = parse(program.line(), "published");
  ASSERT_TRUE(line);
  std::int64_t count = -1;
  std::uint64_t last = 0;
  // A bound, not a measurement: waits for the 20th update.
  for (const auto end = std::chrono::steady_clock::now() + 20s;
       count < 20 && std::chrono::steady_clock::now() < end;) {
    const auto context = program.read_context(line->header);
    if (!context) continue;
    const auto& attribute = context->second.attributes(0);
    EXPECT_EQ(attribute.key(), "writer_ref.update");
    EXPECT_GE(attribute.value().int_value(), count);
    if (attribute.value().int_value() != count) {
      EXPECT_GT(context->first, last);
    }
    count = attribute.value().int_value();
    last = context->first;
    std::this_thread::yield();
  }
  EXPECT_EQ(count, 20);
  kill(program.pid(), SIGINT);
  EXPECT_EQ(program.wait(), 0);
}

TEST(WriterRef, DropsAndPublishesAgain) {
  Program program({"--drop-after", "1ms", "--republish", "--update-every", "0", "--hold", "50ms"});
  const auto first = parse(program.line(), "published");
  const auto dropped = parse(program.line(), "dropped");
  const auto second = parse(program.line(), "published");
  ASSERT_TRUE(first && dropped && second);
  EXPECT_EQ(dropped->header, first->header);
  EXPECT_GE(dropped->timestamp, first->timestamp);
  EXPECT_GT(second->timestamp, dropped->timestamp);
  EXPECT_EQ(program.wait(), 0);
}

struct ThreadLine {
  int tid = 0;
  unsigned long long slot = 0;
  std::array<char, 33> trace{};
  std::array<char, 17> span{};
};
std::optional<ThreadLine> parse_thread(const std::string& text) {
  ThreadLine line;
  if (sscanf(text.c_str(), "thread %d slot 0x%llx trace %32[0-9a-f] span %16[0-9a-f]\n", &line.tid,
             &line.slot, line.trace.data(), line.span.data()) != 4) {
    return std::nullopt;
  }
  return line;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string out;
  for (const auto byte : bytes) {
    std::array<char, 3> digits{};
    snprintf(digits.data(), digits.size(), "%02x", byte);
    out += digits.data();
  }
  return out;
}

struct ThreadRecord {
  ctxconf::abi::ThreadRecordHead head{};
  std::array<std::byte, 612> area{};
  std::string value(std::uint8_t key) const {
    const auto entry =
        ctxconf::abi::last_occurrence(std::span(area).first(head.attrs_data_size), key);
    if (!entry) return "-";
    return {reinterpret_cast<const char*>(entry->value.data()), entry->value.size()};
  }
};
// Nothing while the thread has none.
std::optional<ThreadRecord> read_record(const Program& program, std::uint64_t slot) {
  std::uintptr_t at = 0;
  ThreadRecord record;
  if (!program.copy(slot, &at, sizeof at) || at == 0 ||
      !program.copy(at, &record.head, sizeof record.head) || record.head.valid != 1 ||
      !program.copy(at + sizeof record.head, record.area.data(), record.area.size())) {
    return std::nullopt;
  }
  return record;
}

TEST(WriterRef, ShowsAContextOnEveryThread) {
  for (const char* style : {"pointer", "in-place"}) {
    Program program({"--threads", "3", "--thread-attribute", "http.route=/cart",
                     "--thread-attribute", "http.method=GET", "--thread-attribute",
                     "http.route=/basket", "--thread-style", style});
    const auto line = parse(program.line(), "published");
    ASSERT_TRUE(line);
    const auto context = program.read_context(line->header);
    ASSERT_TRUE(context);
    ASSERT_EQ(context->second.attributes_size(), 2);
    EXPECT_EQ(context->second.attributes(0).key(), "threadlocal.schema_version");
    EXPECT_EQ(context->second.attributes(0).value().string_value(), "tlsdesc_v1_dev");
    EXPECT_EQ(context->second.attributes(1).key(), "threadlocal.attribute_key_map");
    const auto& keys = context->second.attributes(1).value().array_value();
    ASSERT_EQ(keys.values_size(), 2);
    EXPECT_EQ(keys.values(0).string_value(), "http.route");
    EXPECT_EQ(keys.values(1).string_value(), "http.method");
    std::set<std::string> traces;
    for (int i = 0; i < 3; ++i) {
      const auto thread = parse_thread(program.line());
      ASSERT_TRUE(thread);
      const auto task = "/proc/" + std::to_string(program.pid()) + "/task/";
      EXPECT_EQ(access((task + std::to_string(thread->tid)).c_str(), F_OK), 0);
      const auto record = read_record(program, thread->slot);
      ASSERT_TRUE(record);
      EXPECT_EQ(hex(record->head.trace_id), thread->trace.data());
      EXPECT_EQ(hex(record->head.span_id), thread->span.data());
      EXPECT_EQ(record->head.trace_flags, 1);
      EXPECT_EQ(record->head.attrs_data_size, 7 + 5 + 9);
      EXPECT_EQ(record->value(0), "/basket");
      EXPECT_EQ(record->value(1), "GET");
      traces.insert(thread->trace.data());
    }
    EXPECT_EQ(traces.size(), 3U);
    kill(program.pid(), SIGTERM);
    EXPECT_EQ(program.wait(), 0);
  }
}

TEST(WriterRef, RotatesTheContextsOfItsThreads) {
  for (const char* style : {"pointer", "in-place"}) {
    Program program({"--threads", "1", "--rotate", "1ms", "--thread-style", style});
    ASSERT_TRUE(parse(program.line(), "published"));
    const auto thread = parse_thread(program.line());
    ASSERT_TRUE(thread);
    std::set<std::string> traces;
    // A bound, not a measurement.
    for (const auto end = std::chrono::steady_clock::now() + 20s;
         traces.size() < 3 && std::chrono::steady_clock::now() < end;) {
      // Reads until two results are equal, because the thread is not stopped.
      const auto once = read_record(program, thread->slot);
      const auto again = read_record(program, thread->slot);
      if (!once || !again || once->head != again->head) continue;
      traces.insert(hex(once->head.trace_id));
      for (std::size_t i = 0; i < 8; ++i) {
        EXPECT_EQ(once->head.span_id[i], once->head.trace_id[i] ^ once->head.trace_id[8 + i]);
      }
    }
    EXPECT_EQ(traces.size(), 3U);
    kill(program.pid(), SIGTERM);
    EXPECT_EQ(program.wait(), 0);
  }
}

TEST(WriterRef, StopsItsThreadsWhileNothingIsPublished) {
  Program program(
      {"--threads", "1", "--rotate", "0s", "--drop-after", "1ms", "--republish", "--hold", "20ms"});
  EXPECT_TRUE(parse(program.line(), "published"));
  const auto before = parse_thread(program.line());
  EXPECT_TRUE(parse(program.line(), "dropped"));
  EXPECT_TRUE(parse(program.line(), "published"));
  const auto after = parse_thread(program.line());
  ASSERT_TRUE(before && after);
  EXPECT_STRNE(before->trace.data(), after->trace.data());
  EXPECT_EQ(program.wait(), 0);
}

TEST(WriterRef, SaysWhichThreadAttributesAreCutOrLeftOut) {
  Program program({"--quiet", "--hold", "0s", "--threads", "1", "--thread-attribute",
                   "a=" + std::string(256, 'x'), "--thread-attribute", "b=" + std::string(255, 'x'),
                   "--thread-attribute", "c=" + std::string(97, 'x')});
  EXPECT_EQ(program.rest(),
            "writer_ref: --thread-attribute 'a': cut to 255 bytes at most\n"
            "writer_ref: --thread-attribute 'c': left out: the record is full\n");
  EXPECT_EQ(program.wait(), 0);
}

TEST(WriterRef, SaysWhichThreadCannotBeHad) {
  Program program({"--threads", "400"}, false, 200'000'000);
  const std::string text = program.rest();
  EXPECT_NE(text.find("writer_ref: cannot start thread "), std::string::npos) << text;
  EXPECT_NE(text.find(" of 400: "), std::string::npos) << text;
  EXPECT_EQ(program.wait(), 1);
}

TEST(WriterRef, CanBeQuiet) {
  Program program({"--quiet", "--hold", "0s"});
  EXPECT_EQ(program.rest(), "");
  EXPECT_EQ(program.wait(), 0);
}

TEST(WriterRef, ExplainsItself) {
  Program program({"--help"});
  const auto text = program.rest();
  EXPECT_EQ(program.wait(), 0);
  for (const char* word : {"--resource", "--hold", "Exit codes", "KEY:TYPE=VALUE", "--threads"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
}

TEST(WriterRef, RefusesWrongUsageWithTwo) {
  const struct {
    std::vector<std::string> arguments;
    const char* why;
  } cases[] = {
      {{"--resource", "x"}, "expected KEY=VALUE"},
      {{"--attribute", "x:int=y"}, "64-bit integer"},
      {{"--resource", "a=1", "--resource", "a=2"}, "'a' is given twice"},
      {{"--hold", "5"}, "expected a duration"},
      {{"--hold", ""}, "expected a duration"},
      {{"--hold", "-1s"}, "expected a duration"},
      {{"--hold", "nans"}, "expected a duration"},
      {{"--hold", "1e9m"}, "expected a duration"},
      {{"--hold", "99999999m"}, "expected a duration"},
      {{"--update-every", "x"}, "expected a duration"},
      {{"--updates", "3"}, "--update-every"},
      {{"--republish"}, "--drop-after"},
      {{"--update-every", "1", "--attribute", "writer_ref.update=x"}, "given twice"},
      {{"--threads", "0"}, "--threads"},
      {{"--threads", "100000"}, "--threads"},
      {{"--thread-attribute", "a=b"}, "--threads"},
      {{"--rotate", "1ms"}, "--threads"},
      {{"--threads", "1", "--rotate", "1"}, "expected a duration"},
      {{"--threads", "1", "--thread-style", "x"}, "x"},
      {{"--threads", "1", "--thread-attribute", "n:int=5"}, "text only"},
      {{"--threads", "1", "--attribute", "threadlocal.schema_version=x"}, "given twice"},
      {{"bogus"}, "bogus"},
  };
  for (const auto& bad : cases) {
    SCOPED_TRACE(bad.why);
    Program program(bad.arguments);
    const auto text = program.rest();
    EXPECT_EQ(program.wait(), 2) << text;
    EXPECT_NE(text.find(bad.why), std::string::npos) << text;
  }
}

TEST(WriterRef, SaysWhyItCannotPublish) {
  Program program({"--hold", "0s"}, /*no_files=*/true);
  const auto text = program.rest();
  const int code = program.wait();
  if (text.starts_with("published")) GTEST_SKIP() << "this kernel names anonymous memory";
  EXPECT_EQ(code, 1);
  EXPECT_NE(text.find("cannot publish: no reader could find the context"), std::string::npos)
      << text;
  EXPECT_NE(text.find("RLIMIT_FSIZE"), std::string::npos) << text;
}

}  // namespace
