#include "conformance/testees/writer/cases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {
namespace {

void print_usage(FILE* to) {
  std::fprintf(
      to,
      "usage: %s --good NAME | --bad RULE-ID [options]\n"
      "       %s --list\n"
      "  --hold MS|eof   how long to stay at the end; eof: until standard input ends\n"
      "  --pause MS|byte between the steps of a case (default 350); byte: until one is read from\n"
      "                  standard input\n"
      "  --quiet         print nothing on standard output\n"
      "exit: 0 done, 2 usage, 77 cannot be shown on this host, 1 anything else\n",
      kProgram, kProgram);
}

[[noreturn]] void usage_error(const char* what, const char* argument) {
  std::fprintf(stderr, "%s: %s: %s\n", kProgram, what, argument);
  print_usage(stderr);
  std::exit(2);
}

int milliseconds(const char* argument) {
  char* end = nullptr;
  const long value = std::strtol(argument, &end, 10);
  if (end == argument || *end != '\0' || value < 0 || value > 3'600'000) {
    usage_error("not a number of milliseconds", argument);
  }
  return static_cast<int>(value);
}

using Cases = std::span<const Case> Topic::*;

const Case& find(std::initializer_list<Topic> topics, Cases cases, const char* name) {
  for (const Topic& topic : topics) {
    for (const Case& c : topic.*cases) {
      if (std::string_view(c.name) == name) return c;
    }
  }
  usage_error("no such case", name);
}

void print_list(std::initializer_list<Topic> topics) {
  for (const auto& [word, cases] :
       {std::pair{"bad ", &Topic::bad}, std::pair{"good", &Topic::good}}) {
    for (const Topic& topic : topics) {
      for (const Case& c : topic.*cases) std::printf("%s  %-40s %s\n", word, c.name, c.about);
    }
  }
}

}  // namespace

int run_cases(int argc, char** argv, std::initializer_list<Topic> topics) {
  options.arguments = argv;
  const Case* chosen = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&] {
      if (++i == argc) usage_error("a value is missing", argv[i - 1]);
      return argv[i];
    };
    if (option == "--good") {
      chosen = &find(topics, &Topic::good, value());
      options.case_name = &argv[i];
    } else if (option == "--bad") {
      chosen = &find(topics, &Topic::bad, value());
    } else if (option == "--hold") {
      const char* how_long = value();
      options.hold_to_eof = std::string_view(how_long) == "eof";
      if (!options.hold_to_eof) options.hold_ms = milliseconds(how_long);
    } else if (option == "--pause") {
      const char* how_long = value();
      options.pause_for_byte = std::string_view(how_long) == "byte";
      if (!options.pause_for_byte) options.pause_ms = milliseconds(how_long);
    } else if (option == "--quiet") {
      options.quiet = true;
    } else if (option == "--list") {
      print_list(topics);
      return 0;
    } else if (option == "--help") {
      print_usage(stdout);
      return 0;
    } else {
      usage_error("unknown option", argv[i]);
    }
  }
  if (chosen == nullptr) usage_error("what to do is missing", "--good or --bad");
  if (options.hold_ms < 0) {
    const bool usual = chosen->hold_ms == kUsualHoldMs;
    options.hold_ms = usual ? std::max(kUsualHoldMs, options.pause_ms) : chosen->hold_ms;
  }
  chosen->run();
  return 0;
}

}  // namespace ctxconf::testees
