#include "conformance/report/redact.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/report/digest.h"
#include "conformance/report/escape.h"
#include "conformance/report/wording.h"
#include "conformance/text/counts.h"
#include "conformance/verdict/exit_code.h"
#include "sys/c_library.h"

namespace ctxconf::conformance {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_digit);
}

bool is_plain_key(std::string_view key) {
  return !key.empty() && key.size() <= 100 && std::ranges::all_of(key, [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view("._-/").find(c) != std::string_view::npos;
  });
}

// Where ", 3 more attributes" begins, or the size if the text does not end so.
std::size_t more_begins(std::string_view context) {
  std::string_view rest = context;
  for (const std::string_view end : {"s", " attribute", " more"}) {
    if (rest.ends_with(end)) rest.remove_suffix(end.size());
  }
  const std::size_t number = rest.find_last_not_of("0123456789");
  const bool found = number != rest.npos && number > 0 && number + 1 < rest.size() &&
                     rest.size() < context.size() && rest.substr(number - 1, 2) == ", ";
  return found ? number - 1 : context.size();
}

constexpr std::string_view kLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_*.";

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find_first_of(kLetters, at);
    if (begin == text.npos) break;
    const std::size_t end = std::min(text.find_first_not_of(kLetters, begin), text.size());
    std::string_view word = text.substr(begin, end - begin);
    while (word.ends_with('.')) word.remove_suffix(1);
    if (!word.empty()) out.push_back(word);
    at = end;
  }
  return out;
}

// The words of the requirements, and further words that rules use.
bool is_our_word(std::string_view word) {
  static const auto words = [] {
    std::set<std::string, std::less<>> all = {"32-bit",
                                              "64-bit",
                                              "announce",
                                              "announcement",
                                              "announcements",
                                              "document",
                                              "elsewhere",
                                              "row",
                                              "otel_thread_ctx_v1",
                                              "threadlocal.*",
                                              "watched",
                                              "judged",
                                              "unobservable",
                                              "signal",
                                              "still",
                                              "ran",
                                              "runaway",
                                              "started",
                                              "s"};
    for (const Specification& specification : Catalogue::builtin().specifications()) {
      for (const Requirement& requirement : specification.requirements) {
        for (const std::string* text : {&requirement.text, &requirement.why, &requirement.check}) {
          for (const std::string_view w : words_of(*text)) all.emplace(w);
        }
      }
    }
    return all;
  }();
  return words.contains(word) || word.find_first_not_of("0123456789.") == word.npos;
}

bool is_signal(std::string_view word) {
  if (!word.starts_with("SIG")) return false;
  for (int signo = 1; signo < NSIG; ++signo) {
    const char* name = sigabbrev_np(signo);
    if (name != nullptr && word.substr(3) == name) return true;
  }
  return false;
}

// A sentence that cannot quote anything: it has no quotes, paths or pairs, and only our words.
bool is_our_sentence(std::string_view text) {
  return text.find_first_not_of(std::string(kLetters) + " ,:;()") == text.npos &&
         std::ranges::all_of(words_of(text), [](std::string_view word) {
           return is_our_word(word) || is_signal(word);
         });
}

class Redactor {
 public:
  Redactor(const RunResult& run, const RedactionKey& key) : key_(key.begin(), key.end()) {
    names_.insert(run.target.begin(), run.target.end());
    for (const ImageSummary& image : run.images) names_.insert(image.executable);
    for (const RunProblem& problem : run.problems) problem_texts_.insert(problem.text);
  }

  std::string hash(std::string_view text) const {
    if (text.empty()) return {};
    return "redacted-" + hex(sha256(std::string(key_).append(text)), 6);
  }

  void words(std::vector<std::string>& words) const {
    for (std::string& word : words) word = hash(word);
  }

  // KEY=VALUE without the value.
  std::string pair(std::string_view text) const {
    const std::size_t equals = text.find('=');
    if (equals == text.npos || !is_plain_key(text.substr(0, equals))) return hash(text);
    return fmt::format("{}={}", text.substr(0, equals), hash(text.substr(equals + 1)));
  }

  // "service.name=checkout, 3 more attributes"
  std::string context(std::string_view text) const {
    if (text.empty() || text == "no attributes") return std::string(text);
    const std::size_t end = more_begins(text);
    return pair(text.substr(0, end)) + std::string(text.substr(end));
  }

  static bool is_id_option(std::string_view word) {
    return word == "--expect-trace-id" || word == "--expect-span-id";
  }

  // Keeps ctxconf's own words, but not the program's.
  std::vector<std::string> command_line(const std::vector<std::string>& line) const {
    constexpr std::string_view kResource = "--expect-resource";
    std::vector<std::string> out;
    out.reserve(line.size());
    bool ours = true;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string& word = line[i];
      if (!ours || (i > 1 && is_name(word))) {
        out.push_back(hash(word));
      } else if (i > 0 && is_id_option(line[i - 1])) {
        out.push_back(hash(word));
      } else if (is_id_option(word.substr(0, word.find('='))) && word.contains('=')) {
        const std::size_t value = word.find('=') + 1;
        out.push_back(word.substr(0, value) + hash(word.substr(value)));
      } else if (i > 0 && line[i - 1] == kResource) {
        out.push_back(pair(word));
      } else if (word.starts_with(std::string(kResource) + "=")) {
        out.push_back(fmt::format("{}={}", kResource, pair(word.substr(kResource.size() + 1))));
      } else {
        ours = word != "--";
        out.push_back(word);
      }
    }
    return out;
  }

  std::vector<std::string> target(const std::vector<std::string>& words) const {
    std::vector<std::string> out;
    out.reserve(words.size());
    for (const std::string& word : words) out.push_back(is_name(word) ? hash(word) : word);
    return out;
  }

  // Replaces the quoted part. A name may hold quotes itself, so from the first quote to the last.
  std::string quotes(std::string_view text) const {
    const std::size_t open = text.find('"');
    const std::size_t close = text.rfind('"');
    if (open == close)
      return std::string(text.substr(0, open)) + hash(text.substr(std::min(open, text.size())));
    return fmt::format("{}{}{}", text.substr(0, open), hash(text.substr(open, close + 1 - open)),
                       text.substr(close + 1));
  }

  // Keeps "unobservable: " and hashes the rest, which may quote the program.
  std::string outcome_text(std::string_view text) const {
    const std::size_t colon = text.find(": ");
    if (colon == text.npos || is_our_sentence(text)) return std::string(text);
    return fmt::format("{}: {}", text.substr(0, colon), hash(text.substr(colon + 2)));
  }

  std::string exit_reason(const RunResult& run) const {
    const bool is_free = run.exit_code == kExitUnreachable || run.exit_code == kExitHarnessError ||
                         problem_texts_.contains(run.exit_reason);
    return is_free ? hash(run.exit_reason) : quotes(run.exit_reason);
  }

  // "musl 1.2.3, glibc 2.36, ..."
  std::string libc(const std::string& text) const {
    const bool is_ours =
        std::ranges::all_of(std::views::split(text, std::string_view(", ")), [](auto part) {
          const std::string_view name(part);
          return name == "..." || sys::is_c_library(name);
        });
    return is_ours ? text : hash(text);
  }

  void image(ImageSummary& image) const {
    image.executable = hash(image.executable);
    image.path.clear();
    words(image.command_line);
    image.libc = libc(image.libc);
    image.context = context(image.context);
    words(image.notes);
  }

  void finding(Finding& finding) const {
    finding.image_name = name(finding.image, finding.image_name);
    finding.saw = saw(finding);
    finding.at = hash(finding.at);
    finding.code.clear();
    const std::size_t lines = finding.evidence.size();
    finding.evidence.clear();
    if (lines > 0) finding.evidence.push_back(counted(lines, "line") + " of evidence left out");
    for (const Hexdump& dump : finding.hexdumps) finding.evidence.push_back(without_bytes(dump));
    finding.hexdumps.clear();
    if (finding.operation) picture(*finding.operation);
  }

  // Keeps sizes, timestamps and addresses; hashes texts that name code or could reveal bytes.
  void picture(OperationPicture& picture) const {
    for (PictureStep& step : picture.steps) {
      step.at = hash(step.at);
      if (step.kind == PictureStep::Kind::kCall) step.text = quotes(step.text);
      for (PictureStep::Change& change : step.changes) {
        if (change.lane != Lane::kSignature && change.lane != Lane::kPayload) continue;
        for (std::string* value : {&change.was, &change.is}) *value = bytes(*value);
      }
    }
  }
  std::string name(const ImageKey& image, std::string_view name) const {
    const std::string key = image_key(image);
    return name.starts_with(key + " ") ? key + " " + hash(name.substr(key.size() + 1)) : hash(name);
  }

 private:
  std::string bytes(const std::string& value) const {
    const bool is_ours = value == "zeros" || value == "\"OTEL_CTX\"";
    return is_ours ? value : hash(value);
  }
  std::string saw(const Finding& finding) const {
    if (!is_problem(finding.outcome) && is_our_sentence(finding.saw)) return finding.saw;
    std::string hashed = hash(finding.saw);
    if (finding.signature.empty() || hashed.empty()) return hashed;
    return fmt::format("{} ({})", finding.signature, hashed);
  }

  bool is_name(const std::string& word) const {
    return names_.contains(word) && !is_number(word) && word != "--all";
  }

  static std::string without_bytes(const Hexdump& dump) {
    std::string out =
        fmt::format("{} at {:#x} left out", counted(dump.bytes.size(), "byte"), dump.address);
    for (const Hexdump::Mark& mark : shown_marks(dump)) {
      out += fmt::format("; marked +{}, {}", mark.offset, counted(mark.length, "byte"));
    }
    return out;
  }

  std::string key_;
  std::set<std::string> names_;  // of programs
  std::set<std::string> problem_texts_;
};

}  // namespace

RedactionKey random_redaction_key() {
  std::random_device random;
  RedactionKey key{};
  for (std::uint8_t& byte : key) byte = static_cast<std::uint8_t>(random() & 0xffU);
  return key;
}

RunResult redacted(RunResult run, const RedactionKey& key) {
  const Redactor redactor(run, key);
  run.exit_reason = redactor.exit_reason(run);
  run.command_line = redactor.command_line(run.command_line);
  run.again = run.command_line.empty() ? redactor.hash(run.again) : shell_command(run.command_line);
  run.target = redactor.target(run.target);
  run.libc = redactor.libc(run.libc);
  // The command line has the name of the expectations file as well.
  if (run.source)
    run.source = {.root = {}, .program = {}, .expectations = run.source->expectations};
  for (ImageSummary& image : run.images) redactor.image(image);
  for (RequirementResult& result : run.results) {
    for (Finding& finding : result.findings) redactor.finding(finding);
  }
  for (OperationSummary& operation : run.operations) {
    operation.image_name = redactor.name(operation.image, operation.image_name);
    redactor.picture(operation.picture);
  }
  for (FaultOutcome& fault : run.faults) {
    if (!fault.output.empty()) fault.output = redactor.hash(fault.output);
    if (!is_our_sentence(fault.text)) fault.text = redactor.hash(fault.text);
  }
  for (RunProblem& problem : run.problems) {
    problem.text = redactor.hash(problem.text);
    problem.harm.clear();
  }
  for (ExpectationProblem& problem : run.expectation_problems) {
    problem.text = redactor.quotes(problem.text);
  }
  for (FloorProblem& problem : run.floor) problem.now = redactor.outcome_text(problem.now);
  redactor.words(run.notes);
  run.notes.insert(
      run.notes.begin(),
      "redacted: text that quotes the program is left out or hashed; within this report the "
      "same text has the same hash");
  return run;
}

}  // namespace ctxconf::conformance
