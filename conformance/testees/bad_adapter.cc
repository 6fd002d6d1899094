// The program bad_adapter: an adapter that publishes as it should, is a reader that finds nothing,
// and, in one way that its argument names, does what no adapter should. docs/testee-protocol.md
// says how `ctxconf run` and `ctxconf reader` end for each.
//
// usage: bad_adapter KIND | --list
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "conformance/testees/reader/agent.h"
#include "conformance/testees/reader/answer_json.h"
#include "writer_ref/otel_ctx.h"

namespace {

using nlohmann::json;

constexpr std::string_view kEscapes =
    "\x1b[2J\x1b]0;owned\x07\x9b"
    "31m\x7f\r<script>]]>";

int g_in = 0;
int g_out = 1;

void say(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(g_out, bytes.data(), bytes.size());
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void complain(std::string_view bytes) { (void)!write(2, bytes.data(), bytes.size()); }

// Byte for byte, so that nothing is taken from the channel but what is answered. The buffer is not
// at the beginning of a page, where a header may be: ctxconf stops at each short read into that.
std::optional<std::string> read_line() {
  alignas(64) static std::array<char, 64> buffer;
  char& c = buffer.back();
  std::string line;
  while (true) {
    const ssize_t n = read(g_in, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    if (c == '\n') return line;
    line += c;
  }
}

// Returns when the process has ended: while it still can be read, an answer about it would be
// right.
void end_process(pid_t pid) {
  kill(pid, SIGKILL);
  const auto lives = [&] {
    std::string line;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), line);
    const auto name_end = line.rfind(") ");
    return name_end != std::string::npos && line.find_first_of("ZX", name_end) != name_end + 2;
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (lives() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

[[noreturn]] void sleep_for_ever() {
  while (true) pause();
}

std::string ok(const json& request, json members = json::object()) {
  members["id"] = request.at("id");
  members["ok"] = true;
  return members.dump() + "\n";
}

std::string refusal(const json& request, const char* kind, const std::string& message) {
  const json error = {{"kind", kind}, {"message", message}};
  return json({{"id", request.at("id")}, {"ok", false}, {"error", error}}).dump() + "\n";
}

// Writes another byte at the end of the code of a process, where no instruction is.
void write_last_of_code(pid_t pid, bool restores) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::ifstream maps(folder + "/maps");
  std::string range;
  std::string rights;
  std::string rest;
  while (maps >> range >> rights && std::getline(maps, rest) && rights[2] != 'x') {
  }
  const auto dash = range.find('-');
  if (dash == std::string::npos) return;
  const auto at = static_cast<off_t>(std::stoull(range.substr(dash + 1), nullptr, 16)) - 1;
  const int fd = open((folder + "/mem").c_str(), O_RDWR | O_CLOEXEC);
  unsigned char was = 0;
  if (pread(fd, &was, 1, at) == 1) {
    const auto other = static_cast<unsigned char>(~was);
    (void)!pwrite(fd, &other, 1, at);
    if (restores) (void)!pwrite(fd, &was, 1, at);
  }
  close(fd);
}

std::optional<std::string> become_tracer(const json& request, const std::string& reply) {
  ptrace(PTRACE_SEIZE, request.value("pid", 0), nullptr, nullptr);
  return reply;
}

// The reader looks by itself.
std::optional<std::string> declare_watch(const json&, const std::string& hello) {
  json reply = json::parse(hello);
  reply["caps"].erase("reader.process");
  reply["caps"]["reader.watch"] = {{"poll_ms", 10}};
  return reply.dump() + "\n";
}

std::string saw(pid_t pid, pid_t tid = 0) {
  json event = {{"ev", "saw"}, {"pid", pid}, {"result", "absent"}};
  if (tid != 0) event["tid"] = tid;
  return event.dump() + "\n";
}

// What a kind does instead of a legal adapter. If it returns nothing, nothing more is sent.
using Step = std::optional<std::string> (*)(const json& request, const std::string& reply);

struct Kind {
  const char* name;
  void (*start)() = nullptr;  // before the first line is read
  Step hello = nullptr;       // the reply to hello is about to be sent
  Step begin = nullptr;       // an operation is about to be done; nothing: it is not done
  Step reply = nullptr;       // ... was done, its reply is about to be sent
  void (*after)() = nullptr;  // ... and was sent
  Step bye = nullptr;         // the reply to bye is about to be sent
  void (*end)() = nullptr;    // ... and was sent
};

template <int kSignal>
std::optional<std::string> die_by(const json&, const std::string&) {
  signal(kSignal, SIG_DFL);
  complain("about to die\n");
  raise(kSignal);
  sleep_for_ever();
}

template <int kCode>
std::optional<std::string> leave(const json&, const std::string&) {
  _exit(kCode);
}

std::optional<std::string> hang(const json&, const std::string&) { sleep_for_ever(); }

// Starts a process that nobody waits for, in its own session.
void leave_a_child() {
  if (const pid_t pid = fork(); pid != 0) {
    // Who ends now has its group ended: the child is to have left that.
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
    return;
  }
  setsid();
  signal(SIGTERM, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  if (fork() != 0) _exit(0);
  for (const int fd : {0, 1, 2, 3}) close(fd);
  sleep_for_ever();
}

// The same with nothing in its environment. What it is called is its mark for the test.
void leave_a_clean_child() {
  if (const pid_t pid = fork(); pid != 0) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
    return;
  }
  setsid();
  if (fork() != 0) _exit(0);
  for (const int fd : {0, 1, 2, 3}) close(fd);
  const char* mark = getenv("CTXCONF_BAD_ADAPTER");
  const std::array<char*, 1> nothing{};
  execle("/bin/sh", "sh", "-c", "while :; do sleep 1; done", mark == nullptr ? "" : mark, nullptr,
         nothing.data());
  _exit(1);
}

void flood() {
  std::thread([] {
    const std::string line(4000, 'x');
    for (int i = 0; i < 20'000; ++i) say("flood " + line + "\n");
  }).detach();
  std::thread([] {
    const std::string line(4000, 'y');
    for (int i = 0; i < 20'000; ++i) complain("flood " + line + "\n");
  }).detach();
}

void exhaust_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, 256);
  setrlimit(RLIMIT_NOFILE, &limit);
  while (dup(2) >= 0) continue;
}

void delete_working_directory() {
  std::array<char, 4096> path{};
  if (getcwd(path.data(), path.size()) != nullptr) (void)rmdir(path.data());
}

void unmap_context() {
  otel_ctx_info info{};
  otel_ctx_get_info(&info);
  if (info.published != 0) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    munmap(reinterpret_cast<void*>(info.header), info.header_mapping);
  }
}

void mount_something() {
  if (unshare(CLONE_NEWNS) != 0) return;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return;
  (void)mount("none", "/tmp", "tmpfs", 0, nullptr);
}

void change_root() {
  if (chroot("/proc/self/fdinfo") == 0) (void)!chdir("/");
}

// The process goes on in a child of a child, and the one that was started ends.
// Answers when its parent is gone, so that nobody can take the answer for the parent's.
void daemonise() {
  const pid_t parent = getpid();
  if (fork() != 0) _exit(0);
  while (getppid() == parent) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  setsid();
  if (fork() != 0) _exit(0);
}

void close_channel() {
  close(g_out);
  if (g_in != g_out) return;
  sleep_for_ever();
}

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string without_feed(std::string line) {
  line.pop_back();
  return line;
}

// "{...}" with one more member, which no library would write.
std::string with_raw(std::string reply, std::string_view member) {
  reply.insert(1, std::string(member) + ",");
  return reply;
}

std::optional<std::string> with_member(const std::string& reply, const char* name, json value) {
  json changed = json::parse(reply);
  if (changed.contains("result")) changed[name] = std::move(value);
  return changed.dump() + "\n";
}

constexpr Kind kKinds[] =
    {
        {.name = "none"},

        // Hello
        {.name = "hello-never", .hello = hang},
        {.name = "never-reads", .start = [] { sleep_for_ever(); }},
        {.name = "hello-twice",
         .hello = [](const json&, const std::string& r) { return std::optional(r + r); }},
        {.name = "hello-late",
         .hello =
             [](const json&, const std::string& r) {
               sleep(60);
               return std::optional(r);
             }},
        {.name = "hello-refused",
         .hello = [](const json& q,
                     const std::string&) { return std::optional(refusal(q, "failed", "no")); }},
        {.name = "hello-version",
         .hello =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               reply["v"] = 7;
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "hello-without-caps",
         .hello =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               reply.erase("caps");
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "hello-huge-caps",
         .hello =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               for (int i = 0; i < 20'000; ++i) {
                 reply["caps"]["example.capability." + std::to_string(i)] = json::object();
               }
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "hello-hostile-names",
         .hello =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               const std::string text = "\x1b[31mred\x1b]0;owned\x07</script>]]>";
               reply["adapter"] = {{"name", text}, {"version", text}};
               reply["sdk"] = {{"name", text}, {"version", text}, {"language", text}};
               reply["caps"][text] = json::object();
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "pid-of-another",
         .hello =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               reply["pid"] = getppid();
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "pid-too-large",
         .hello =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               reply["pid"] = std::uint64_t{1} << 63U;
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "dies-in-hello", .hello = die_by<SIGSEGV>},
        {.name = "exits-in-hello",
         .hello = [](const json&, const std::string&) -> std::optional<std::string> {
           complain("cannot find libsdk.so\n");
           complain(kEscapes);
           _exit(9);
         }},
        {.name = "daemonises", .start = daemonise},

        // Output that is not the protocol
        {.name = "junk-before",
         .start =
             [] {
               say("starting\n\n{\"level\":\"info\",\"msg\":\"up\"}\n[1,2]\n42\nnull\n");
               say(kEscapes);
               say("\n");
             }},
        {.name = "junk-between",
         .reply =
             [](const json&, const std::string& r) {
               return std::optional("an SDK that logs\n" + r + "and goes on\n");
             }},
        {.name = "junk-inside",
         .reply = [](const json&, const std::string& r) { return std::optional("INFO " + r); }},
        {.name = "junk-of-100-mib",
         .reply =
             [](const json&, const std::string& r) {
               const std::string part(std::size_t{1} << 20U, 'z');
               for (int i = 0; i < 100; ++i) say(part);
               return std::optional("\n" + r);
             }},
        {.name = "junk-that-nests",
         .reply =
             [](const json&, const std::string& r) {
               return std::optional(nested(300'000) + "\n{\"a\":" + nested(300'000) + "}\n" + r);
             }},
        {.name = "junk-with-nul",
         .reply =
             [](const json&, const std::string& r) {
               return std::optional(std::string("a\0b\0\n", 5) + r);
             }},
        {.name = "floods",
         .begin =
             [](const json&, const std::string&) {
               flood();
               return std::optional<std::string>("");
             }},

        // Replies
        {.name = "reply-never", .reply = hang},
        {.name = "reply-late",
         .reply =
             [](const json&, const std::string& r) {
               sleep(60);
               return std::optional(r);
             }},
        {.name = "reply-in-pieces",
         .reply = [](const json&, const std::string& r) -> std::optional<std::string> {
           for (const char c : r) say(std::string_view(&c, 1));
           return std::nullopt;
         }},
        {.name = "reply-with-cr",
         .reply = [](const json&,
                     const std::string& r) { return std::optional(without_feed(r) + "\r\n"); }},
        {.name = "reply-without-feed",
         .reply = [](const json&, const std::string& r) { return std::optional(without_feed(r)); }},
        {.name = "reply-twice",
         .reply = [](const json&, const std::string& r) { return std::optional(r + r); }},
        {.name = "reply-wrong-id",
         .reply =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               reply["id"] = 77;
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "reply-malformed",
         .reply =
             [](const json& q, const std::string&) {
               return std::optional(json({{"id", q.at("id")}, {"ok", "yes"}}).dump() + "\n");
             }},
        {.name = "reply-without-error",
         .reply =
             [](const json& q, const std::string&) {
               return std::optional(json({{"id", q.at("id")}, {"ok", false}}).dump() + "\n");
             }},
        {.name = "reply-nan",
         .reply = [](const json&,
                     const std::string& r) { return std::optional(with_raw(r, "\"x\":NaN")); }},
        {.name = "reply-with-nul",
         .reply =
             [](const json&, const std::string& r) {
               return std::optional(with_raw(r, std::string_view("\"x\":\"\0\"", 7)));
             }},
        {.name = "reply-invalid-utf8",
         .reply =
             [](const json&, const std::string& r) {
               return std::optional(with_raw(r, "\"x\":\"\xc0\xff\""));
             }},
        {.name = "reply-that-nests",
         .reply =
             [](const json&, const std::string& r) {
               return std::optional(with_raw(r, "\"x\":" + nested(5'000)));
             }},
        {.name = "reply-huge",
         .reply =
             [](const json&, const std::string& r) {
               return std::optional(
                   with_raw(r, "\"x\":\"" + std::string(std::size_t{2} << 20U, 'x') + '"'));
             }},
        {.name = "event-unasked",
         .reply =
             [](const json& q, const std::string& r) {
               return std::optional(
                   json({{"ev", "armed"}, {"id", q.at("id")}, {"tid", getpid()}}).dump() + "\n" +
                   r);
             }},
        {.name = "refuses",
         .begin = [](const json& q, const std::string&) -> std::optional<std::string> {
           say(refusal(q, "unsupported", "not in this build"));
           return std::nullopt;
         }},
        {.name = "refuses-with-escapes",
         .begin = [](const json& q, const std::string&) -> std::optional<std::string> {
           say(refusal(q, "failed",
                       "\x1b[2J\x1b]0;owned\x07\xc2\x9b"
                       "31m\x7f</failure>]]><script>"));
           return std::nullopt;
         }},
        {.name = "publishes-nothing",
         .begin = [](const json& q, const std::string&) -> std::optional<std::string> {
           say(ok(q));
           return std::nullopt;
         }},

        // Ends in an operation
        {.name = "exits-0", .begin = leave<0>},
        {.name = "exits-7", .begin = leave<7>},
        {.name = "dies-of-segv", .begin = die_by<SIGSEGV>},
        {.name = "dies-of-abrt", .begin = die_by<SIGABRT>},
        {.name = "dies-of-bus", .begin = die_by<SIGBUS>},
        {.name = "dies-of-fpe", .begin = die_by<SIGFPE>},
        {.name = "dies-of-kill", .begin = die_by<SIGKILL>},
        {.name = "dies-of-term", .begin = die_by<SIGTERM>},
        {.name = "dies-of-trap", .begin = die_by<SIGTRAP>},
        {.name = "dies-with-escapes",
         .begin =
             [](const json& q, const std::string& r) {
               complain(kEscapes);
               return die_by<SIGABRT>(q, r);
             }},
        {.name = "dies-in-update",
         .begin =
             [](const json& q, const std::string& r) {
               return q.at("op") == "process.update" ? die_by<SIGSEGV>(q, r) : std::optional(r);
             }},
        {.name = "dies-after-reply", .after = [] { raise(SIGSEGV); }},
        {.name = "becomes-another",
         .begin = [](const json&, const std::string&) -> std::optional<std::string> {
           execl("/bin/true", "true", nullptr);
           _exit(1);
         }},
        {.name = "daemonises-later",
         .begin =
             [](const json&, const std::string& r) {
               daemonise();
               return std::optional(r);
             }},
        {.name = "main-thread-ends",
         .begin = [](const json&, const std::string&) -> std::optional<std::string> {
           std::thread([] { sleep_for_ever(); }).detach();
           pthread_exit(nullptr);
         }},

        // Its own descriptors, signals, folders and rights
        {.name = "closes-stdout",
         .begin = [](const json&, const std::string&) -> std::optional<std::string> {
           close_channel();
           sleep_for_ever();
         }},
        {.name = "closes-stdin",
         .after =
             [] {
               close(g_in);
               sleep_for_ever();
             }},
        {.name = "stops-reading", .after = [] { sleep_for_ever(); }},
        {.name = "exhausts-descriptors",
         .begin =
             [](const json&, const std::string& r) {
               exhaust_descriptors();
               return std::optional(r);
             }},
        {.name = "ignores-sigterm",
         .begin = [](const json&, const std::string&) -> std::optional<std::string> {
           signal(SIGTERM, SIG_IGN);
           sleep_for_ever();
         }},
        {.name = "blocks-signals",
         .begin = [](const json&, const std::string&) -> std::optional<std::string> {
           sigset_t all;
           sigfillset(&all);
           sigprocmask(SIG_BLOCK, &all, nullptr);
           sleep_for_ever();
         }},
        {.name = "stops-itself",
         .begin =
             [](const json&, const std::string& r) {
               raise(SIGSTOP);
               return std::optional(r);
             }},
        {.name = "spins",
         .begin = [](const json&, const std::string&) -> std::optional<std::string> {
           while (true) asm volatile("");
         }},
        {.name = "hangs-under-a-bad-name",
         .begin = [](const json&, const std::string&) -> std::optional<std::string> {
           prctl(PR_SET_NAME, "\x1b[31m) S\n\x07");
           sleep_for_ever();
         }},
        {.name = "deletes-its-folder", .start = delete_working_directory},
        {.name = "joins-our-group", .start = [] { setpgid(0, getpgid(getppid())); }},
        {.name = "traces-itself", .start = [] { ptrace(PTRACE_TRACEME, 0, nullptr, nullptr); }},
        {.name = "changes-user",
         .start =
             [] {
               (void)!setresgid(65534, 65534, 65534);
               (void)!setresuid(65534, 65534, 65534);
             }},
        {.name = "changes-root", .start = change_root},
        {.name = "mounts", .start = mount_something},

        // Its children
        {.name = "leaves-children", .after = leave_a_child},
        {.name = "leaves-clean-children", .after = leave_a_clean_child},
        {.name = "vforks",
         .begin =
             [](const json&, const std::string& r) {
               if (vfork() == 0 /* NOLINT(bugprone-unsafe-functions) */) {
                 execl("/bin/true", "true", nullptr);
                 _exit(1);
               }
               return std::optional(r);
             }},
        {.name = "vforks-and-hangs",
         .begin =
             [](const json&, const std::string& r) {
               if (vfork() == 0 /* NOLINT(bugprone-unsafe-functions) */)
                 syscall(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
               return std::optional(r);
             }},

        // A reader
        {.name = "answers-with-wrong-types",
         .reply =
             [](const json&, const std::string& r) {
               return with_member(r, "result", {{"accept", true}});
             }},
        {.name = "context-of-wrong-types",
         .reply =
             [](const json&, const std::string& r) {
               return with_member(r, "context", json::array({1, "attributes", nullptr}));
             }},
        {.name = "answers-without-a-result",
         .reply =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               reply.erase("result");
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "answers-for-another-process",
         .reply =
             [](const json&, const std::string& r) {
               const json name = {{"key", "service.name"}, {"value", {{"stringValue", "another"}}}};
               json reply = json::parse(r);
               reply["result"] = "accept";
               reply["context"] = {{"resource", {{"attributes", json::array({name})}}}};
               return std::optional(reply.dump() + "\n");
             }},
        {.name = "sees-without-a-watch",
         .reply =
             [](const json&, const std::string& r) {
               for (int i = 0; i < 20'000; ++i) say(saw(getppid()));
               return std::optional(r);
             }},
        {.name = "sees-another-process",
         .hello = declare_watch,
         .reply =
             [](const json& q, const std::string& r) {
               if (q.at("op") != "reader.watch") return std::optional(r);
               return std::optional(r + saw(q.at("pid").get<pid_t>()) + saw(getppid()));
             }},
        {.name = "sees-too-many-threads",
         .hello = declare_watch,
         .reply =
             [](const json& q, const std::string& r) {
               if (q.at("op") != "reader.watch") return std::optional(r);
               std::string out = r;
               for (pid_t i = 1; i <= 20'000; ++i) out += saw(q.at("pid").get<pid_t>(), i);
               return std::optional(out);
             }},
        {.name = "ends-its-target",
         .begin =
             [](const json& q, const std::string& r) {
               if (q.contains("pid")) end_process(q.at("pid").get<pid_t>());
               return std::optional(r);
             }},
        {.name = "stops-its-target",
         .begin =
             [](const json& q, const std::string& r) {
               if (q.contains("pid")) kill(q.at("pid").get<pid_t>(), SIGSTOP);
               return std::optional(r);
             }},
        {.name = "keeps-its-target-stopped",
         .begin =
             [](const json& q, const std::string& r) {
               const pid_t pid = q.value("pid", 0);
               if (pid != 0 && ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0) {
                 ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr);
                 waitpid(pid, nullptr, __WALL);
               }
               return std::optional(r);
             }},

        {.name = "stays-tracer-of-its-target", .begin = become_tracer},
        {.name = "writes-into-its-target",
         .begin =
             [](const json& q, const std::string& r) {
               write_last_of_code(q.value("pid", 0), /*restores=*/false);
               return std::optional(r);
             }},
        {.name = "restores-its-target",
         .begin =
             [](const json& q, const std::string& r) {
               write_last_of_code(q.value("pid", 0), /*restores=*/true);
               return std::optional(r);
             }},
        {.name = "stays-tracer-as-declared",
         .hello =
             [](const json&, const std::string& r) {
               json reply = json::parse(r);
               reply["caps"]["reader"] = {{"keeps_tracing", true}};
               return std::optional(reply.dump() + "\n");
             },
         .begin = become_tracer},

        // Its context
        {.name = "unmaps-before-reply",
         .reply =
             [](const json&, const std::string& r) {
               unmap_context();
               return std::optional(r);
             }},
        {.name = "unmaps-after-reply", .after = unmap_context},

        // Bye
        {.name = "bye-ignored", .bye = hang},
        {.name = "bye-twice",
         .bye = [](const json&, const std::string& r) { return std::optional(r + r); }},
        {.name = "bye-then-dies", .end = [] { raise(SIGSEGV); }},
        {.name = "bye-then-exits-5", .end = [] { _exit(5); }},
        {.name = "bye-then-stays", .end = [] { sleep_for_ever(); }},
        {.name = "bye-then-prints", .end = [] { say("gone\n"); }},
};

// The given attributes as a ProcessContext message (OTEP 4719, "payload"): field 1 is the Resource,
// its field 1 a KeyValue of key (1) and AnyValue (2) with a string (1).
std::string field(int number, const std::string& bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  std::size_t length = bytes.size();
  for (; length > 127; length >>= 7) out += static_cast<char>((length & 127) | 128);
  return out + static_cast<char>(length) + bytes;
}

std::string payload_of(const json& resource) {
  std::string attributes;
  for (const auto& a : resource.at("attributes")) {
    const auto value = a.at("value").value("stringValue", std::string());
    attributes += field(1, field(1, a.at("key").get<std::string>()) + field(2, field(1, value)));
  }
  return field(1, attributes);
}

bool is_for_a_reader(const json& request) {
  return request.at("op").get<std::string>().starts_with("reader.");
}

std::string done(const json& request) {
  if (request.at("op") == "reader.process") {
    static auto* const agent = new ctxconf::testees::Agent();
    return ok(request, ctxconf::testees::json_of(agent->process(request.at("pid").get<pid_t>())));
  }
  if (request.at("op") == "reader.watch") return ok(request);
  if (is_for_a_reader(request)) return ok(request, {{"result", "absent"}});
  if (request.contains("attributes")) return refusal(request, "rejected", "only a Resource");
  otel_ctx_error error{};
  const std::string payload = payload_of(request.at("resource"));
  const auto put = request.at("op") == "process.update" ? otel_ctx_update : otel_ctx_publish;
  if (put(payload.data(), payload.size(), &error) == OTEL_CTX_OK) return ok(request);
  std::array<char, 256> text{};
  otel_ctx_describe(&error, text.data(), text.size());
  return refusal(request, "failed", text.data());
}

void pass(Step step, const json& request, const std::string& reply) {
  if (step != nullptr) {
    if (const auto changed = step(request, reply)) say(*changed);
  } else {
    say(reply);
  }
}

int run(const Kind& kind) {
  if (kind.start != nullptr) kind.start();
  while (const auto line = read_line()) {
    const json request = json::parse(*line);
    const std::string op = request.at("op");
    if (op == "hello") {
      const json empty = json::object();
      pass(kind.hello, request,
           ok(request, {{"v", 1},
                        {"pid", getpid()},
                        {"adapter", {{"name", "bad_adapter"}, {"version", "1"}}},
                        {"caps",
                         {{"process.publish", empty},
                          {"process.update", empty},
                          {"reader.process", empty},
                          {"reader.record", empty}}}}));
    } else if (op == "bye") {
      pass(kind.bye, request, ok(request));
      if (kind.end != nullptr) kind.end();
      _exit(0);
    } else if (op == "process.publish" || op == "process.update" || op == "reader.process" ||
               op == "reader.record" || op == "reader.watch") {
      if (kind.begin != nullptr && !kind.begin(request, {})) continue;
      pass(kind.reply, request, done(request));
      if (kind.after != nullptr) kind.after();
    } else {
      say(refusal(request, "unsupported", "no operation " + op));
    }
  }
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc == 2 ? argv[1] : "";
  if (name == "--list") {
    for (const auto& kind : kKinds) puts(kind.name);
    return 0;
  }
  const char* const channel = getenv("CTXCONF_CHANNEL");
  if (channel != nullptr && std::string_view(channel) == "fd3") g_in = g_out = 3;
  for (const auto& kind : kKinds) {
    if (name != kind.name) continue;
    try {
      return run(kind);
    } catch (const std::exception& e) {
      fprintf(stderr, "bad_adapter: %s\n", e.what());
      return 3;
    }
  }
  fprintf(stderr, "usage: bad_adapter KIND | --list\n");
  return 2;
}
