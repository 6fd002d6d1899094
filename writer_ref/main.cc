// The program writer_ref: publishes a process context, and thread contexts on request, according to
// its command line.
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "abi/process_header.h"
#include "writer_ref/encode.h"
#include "writer_ref/otel_ctx.h"
#include "writer_ref/thread_contexts.h"

namespace ctxconf::writer {
namespace {

using Clock = std::chrono::steady_clock;
using Duration = std::chrono::nanoseconds;

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr const char* kUpdateKey = "writer_ref.update";
constexpr std::size_t kMostThreads = 4096;

struct Settings {
  Context context;
  std::optional<Duration> hold;
  std::optional<Duration> update_every;
  std::optional<std::uint64_t> updates;
  std::optional<Duration> drop_after;
  bool republish = false;
  bool quiet = false;
  ThreadSettings thread;
};

// "250ms"; without a unit only if `plain` names the unit.
std::expected<Duration, std::string> parse_duration(const std::string& text,
                                                    std::optional<Duration> plain) {
  constexpr double longest = 365 * 86400.0 * 1e9;
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [unit_at, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string_view unit(unit_at, end);
  std::optional<Duration> scale;
  if (unit.empty()) scale = plain;
  if (unit == "us") scale = std::chrono::microseconds(1);
  if (unit == "ms") scale = std::chrono::milliseconds(1);
  if (unit == "s") scale = std::chrono::seconds(1);
  if (unit == "m") scale = std::chrono::minutes(1);
  const double ns = scale ? number * static_cast<double>(scale->count()) : -1;
  if (error != std::errc{} || !(ns >= 0 && ns <= longest)) {
    return std::unexpected("'" + text + "': expected a duration such as 250ms, 1.5s or 2m");
  }
  return Duration(static_cast<std::int64_t>(ns));
}

int complain(std::string_view what) {
  fprintf(stderr, "writer_ref: %.*s\n", static_cast<int>(what.size()), what.data());
  return kUsage;
}

int report(const char* action, const otel_ctx_error& error) {
  std::array<char, 256> text{};
  otel_ctx_describe(&error, text.data(), text.size());
  fprintf(stderr, "writer_ref: cannot %s: %s\n", action, text.data());
  if (error.status == OTEL_CTX_NO_NAME) {
    fprintf(stderr,
            "writer_ref: memfd_create was refused or limited (seccomp? RLIMIT_FSIZE?), and this "
            "kernel does not name anonymous memory\n");
  }
  return kFailed;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string out;
  for (const auto byte : bytes) {
    for (const int digit : {byte >> 4, byte & 15}) out.push_back("0123456789abcdef"[digit]);
  }
  return out;
}

class Writer {
 public:
  explicit Writer(Settings settings) : settings_(std::move(settings)) {
    if (settings_.thread.threads != 0) set_up_threads();
  }

  int run() {
    // Blocked, so that they end the wait below and nothing else.
    sigset_t endings;
    sigemptyset(&endings);
    sigaddset(&endings, SIGTERM);
    sigaddset(&endings, SIGINT);
    sigprocmask(SIG_BLOCK, &endings, nullptr);

    const auto start = Clock::now();
    if (const int code = publish(); code != 0) return code;
    if (settings_.hold) end_ = start + *settings_.hold;
    if (settings_.drop_after) drop_ = start + *settings_.drop_after;
    schedule_update(start);
    for (;;) {
      const auto next = earliest();
      if (ending_arrived(endings, next)) return 0;
      if (!next || Clock::now() < *next) continue;
      int code = 0;
      if (next == end_) return 0;
      if (next == drop_) {
        code = drop();
      } else {
        code = update();
      }
      if (code != 0) return code;
    }
  }

 private:
  // Called before the first publication, which announces all keys.
  void set_up_threads() {
    threads_.emplace(settings_.thread);
    for (const auto& complaint : threads_->complaints()) {
      fprintf(stderr, "writer_ref: --thread-attribute %s\n", complaint.c_str());
    }
    std::vector<std::string> keys;
    for (std::size_t i = 0; const char* const key = otel_thread_ctx_key(i); ++i) {
      keys.emplace_back(key);
    }
    auto& attributes = settings_.context.attributes;
    attributes.push_back({std::string(abi::kSchemaVersionKey), std::string("tlsdesc_v1_dev")});
    attributes.push_back({std::string(abi::kAttributeKeyMapKey), std::move(keys)});
  }

  std::optional<Clock::time_point> earliest() const {
    std::optional<Clock::time_point> out;
    for (const auto& at : {end_, drop_, update_}) {
      if (at && (!out || *at < *out)) out = at;
    }
    return out;
  }

  static bool ending_arrived(const sigset_t& endings, std::optional<Clock::time_point> until) {
    if (!until) return sigwaitinfo(&endings, nullptr) > 0;
    const auto left = std::max(Duration(0), Duration(*until - Clock::now()));
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
    return sigtimedwait(&endings, nullptr, &timeout) > 0;
  }

  std::expected<std::string, std::string> payload() const {
    Context context = settings_.context;
    if (settings_.update_every) {
      context.attributes.push_back({kUpdateKey, static_cast<std::int64_t>(updates_)});
    }
    return encode(context);
  }

  int publish() {
    const auto bytes = payload();
    if (!bytes) return complain(bytes.error());
    otel_ctx_error error;
    if (otel_ctx_publish(bytes->data(), bytes->size(), &error) != OTEL_CTX_OK) {
      return report("publish", error);
    }
    otel_ctx_info info;
    otel_ctx_get_info(&info);
    say("published", info);
    if (threads_) start_threads();
    return 0;
  }

  void start_threads() {
    const auto& started = threads_->start();
    if (settings_.quiet) return;
    for (const auto& thread : started) {
      printf("thread %d slot 0x%llx trace %s span %s\n", thread.tid,
             static_cast<unsigned long long>(thread.slot), hex(thread.ids.trace).c_str(),
             hex(thread.ids.span).c_str());
    }
    fflush(stdout);
  }

  int update() {
    ++updates_;
    const auto bytes = payload();
    if (!bytes) return complain(bytes.error());
    otel_ctx_error error;
    if (otel_ctx_update(bytes->data(), bytes->size(), &error) != OTEL_CTX_OK) {
      return report("update", error);
    }
    schedule_update(std::max(*update_, Clock::now() - *settings_.update_every));
    return 0;
  }

  void schedule_update(Clock::time_point last) {
    update_.reset();
    if (!settings_.update_every || (settings_.updates && updates_ >= *settings_.updates)) return;
    update_ = last + *settings_.update_every;
  }

  int drop() {
    drop_.reset();
    if (threads_) threads_->stop();  // no record may exist without the keys that it refers to
    otel_ctx_info info;
    otel_ctx_get_info(&info);
    otel_ctx_error error;
    if (otel_ctx_drop(&error) != OTEL_CTX_OK) return report("drop", error);
    say("dropped", info);
    if (settings_.republish) return publish();
    update_.reset();
    return 0;
  }

  void say(const char* what, const otel_ctx_info& info) const {
    if (settings_.quiet) return;
    printf("%s pid=%d header=0x%llx timestamp=%llu\n", what, static_cast<int>(getpid()),
           static_cast<unsigned long long>(info.header),
           static_cast<unsigned long long>(info.last_timestamp));
    fflush(stdout);
  }

  Settings settings_;
  std::uint64_t updates_ = 0;
  std::optional<Clock::time_point> end_, drop_, update_;
  std::optional<ThreadContexts> threads_;
};

// What the options say, as text.
struct Arguments {
  std::vector<std::string> resource;
  std::vector<std::string> attributes;
  std::string hold;
  std::string update_every;
  std::string drop_after;
  std::vector<std::string> thread_attributes;
  std::string style;
  std::string rotate;
};

constexpr auto kOnce = CLI::MultiOptionPolicy::TakeLast;

void add_process_options(CLI::App& app, Arguments& a, Settings& settings) {
  app.add_option("--resource", a.resource,
                 "an attribute of the Resource (repeatable); service.name is added if missing")
      ->type_name("KEY[:TYPE]=VALUE")
      ->allow_extra_args(false);
  app.add_option("--attribute", a.attributes,
                 "an attribute outside the Resource, in field 2 (repeatable)")
      ->type_name("KEY[:TYPE]=VALUE")
      ->allow_extra_args(false);
  app.add_option("--hold", a.hold, "end after this time; otherwise at SIGTERM or SIGINT")
      ->type_name("DUR")
      ->multi_option_policy(kOnce);
  auto* const every =
      app.add_option("--update-every", a.update_every,
                     std::string("update every MS milliseconds (or DUR); the attribute ") +
                         kUpdateKey + " counts. 0: without a pause")
          ->type_name("MS")
          ->multi_option_policy(kOnce);
  app.add_option("--updates", settings.updates, "stop updating after N updates")
      ->type_name("N")
      ->needs(every);
  auto* const drop =
      app.add_option("--drop-after", a.drop_after, "withdraw the context after this time")
          ->type_name("DUR")
          ->multi_option_policy(kOnce);
  app.add_flag("--republish", settings.republish, "publish again after the withdrawal")
      ->needs(drop);
}

void add_thread_options(CLI::App& app, Arguments& a, Settings& settings) {
  auto* const threads =
      app.add_option("--threads", settings.thread.threads,
                     "run N threads, each with a trace id and a span id: span id = first half "
                     "of the trace id XOR second half")
          ->type_name("N")
          ->check(CLI::Range(std::size_t{1}, kMostThreads))
          ->multi_option_policy(kOnce);
  app.add_option("--thread-attribute", a.thread_attributes,
                 "an attribute of every thread's context (repeatable)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->needs(threads);
  app.add_option("--thread-style", a.style,
                 "how a thread changes its context: pointer (the default) or in-place")
      ->type_name("STYLE")
      ->check(CLI::IsMember({"pointer", "in-place"}))
      ->multi_option_policy(kOnce)
      ->needs(threads);
  app.add_option("--rotate", a.rotate,
                 "every thread begins another trace after this time; 0s: without a pause")
      ->type_name("DUR")
      ->multi_option_policy(kOnce)
      ->needs(threads);
}

std::expected<void, std::string> take_attributes(const Arguments& a, Settings& settings) {
  bool has_service_name = false;
  for (const auto& argument : a.resource) {
    auto attribute = parse_attribute(argument);
    if (!attribute) return std::unexpected("--resource " + attribute.error());
    has_service_name = has_service_name || attribute->key == "service.name";
    settings.context.resource.push_back(std::move(*attribute));
  }
  if (!has_service_name) {
    settings.context.resource.push_back({"service.name", "unknown_service:writer_ref"});
  }
  for (const auto& argument : a.attributes) {
    auto attribute = parse_attribute(argument);
    if (!attribute) return std::unexpected("--attribute " + attribute.error());
    settings.context.attributes.push_back(std::move(*attribute));
  }
  for (const auto& argument : a.thread_attributes) {
    auto attribute = parse_attribute(argument);
    if (!attribute) return std::unexpected("--thread-attribute " + attribute.error());
    auto* const text = std::get_if<std::string>(&attribute->value);
    if (text == nullptr) {
      return std::unexpected("--thread-attribute '" + argument + "': records hold text only");
    }
    settings.thread.attributes.emplace_back(std::move(attribute->key), std::move(*text));
  }
  return {};
}

std::expected<void, std::string> take_durations(const CLI::App& app, const Arguments& a,
                                                Settings& settings) {
  const struct {
    const char* option;
    const std::string& text;
    std::optional<Duration>& to;
    std::optional<Duration> plain;
  } durations[] = {
      {"--hold ", a.hold, settings.hold, {}},
      {"--drop-after ", a.drop_after, settings.drop_after, {}},
      {"--update-every ", a.update_every, settings.update_every, std::chrono::milliseconds(1)},
      {"--rotate ", a.rotate, settings.thread.rotate, {}},
  };
  for (const auto& d : durations) {
    if (d.text.empty() &&
        app.count(std::string(d.option, std::string_view(d.option).size() - 1)) == 0) {
      continue;
    }
    const auto duration = parse_duration(d.text, d.plain);
    if (!duration) return std::unexpected(d.option + duration.error());
    d.to = *duration;
  }
  return {};
}

int main_with(int argc, char** argv) {
  CLI::App app{
      "Publishes an OpenTelemetry process context (OTEP 4719) and holds it; with --threads also\n"
      "thread contexts (OTEP 4947).\n"
      "\n"
      "Prints one line when it has published, and one for each thread that then has a context:\n"
      "  published pid=PID header=0xADDRESS timestamp=NANOSECONDS\n"
      "  thread TID slot 0xADDRESS trace ID span ID\n"};
  app.name("writer_ref");
  app.footer(
      "KEY=VALUE is a string; KEY:TYPE=VALUE with TYPE int, double, bool, bytes (hexadecimal),\n"
      "strings (separated by commas) or string. DUR is 250ms, 1.5s or 2m.\n"
      "\n"
      "Exit codes: 0 held and ended as asked, also by SIGTERM or SIGINT; 1 a publication, update\n"
      "or withdrawal failed; 2 wrong usage.\n"
      "\n"
      "Example: ctxconf wrap -- writer_ref --resource service.name=demo --hold 1s");
  Arguments arguments;
  Settings settings;
  add_process_options(app, arguments, settings);
  add_thread_options(app, arguments, settings);
  app.add_flag("--quiet,-q", settings.quiet, "print errors only");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : kUsage;
  }
  if (const auto taken = take_attributes(arguments, settings); !taken) {
    return complain(taken.error());
  }
  settings.thread.in_place = arguments.style == "in-place";
  if (const auto taken = take_durations(app, arguments, settings); !taken) {
    return complain(taken.error());
  }
  return Writer(std::move(settings)).run();
}

}  // namespace
}  // namespace ctxconf::writer

int main(int argc, char** argv) {
  try {
    return ctxconf::writer::main_with(argc, argv);
  } catch (const std::exception& e) {
    fprintf(stderr, "writer_ref: %s\n", e.what());
    return ctxconf::writer::kFailed;
  }
}
