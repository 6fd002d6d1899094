#include "conformance/report/sarif.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "conformance/report/digest.h"
#include "conformance/report/escape.h"
#include "conformance/report/wording.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

using nlohmann::json;

constexpr const char* kSarifSchema = "https://json.schemastore.org/sarif-2.1.0.json";
constexpr std::string_view kRootName = "SRCROOT";
constexpr std::size_t kSarifMessage = 1000;
constexpr std::size_t kSarifName = 500;
constexpr std::size_t kMostPlaces = 20;  // of one requirement
constexpr std::size_t kMostNotifications = 50;
constexpr std::size_t kMostFileResults = 1000;
constexpr std::size_t kMostFloorResults = 200;
constexpr std::size_t kSarifMessages = std::size_t{4} << 20;
constexpr std::size_t kSarifDetails = std::size_t{4} << 20;

// A message may hold links, "[text](target)", and placeholders, "{0}". Ours have neither.
std::string literal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c == '(' && out.ends_with(']')) {
      out += "\\x28";
    } else {
      out += c;
      if (c == '{' || c == '}') out += c;
    }
  }
  return out;
}

std::string message_text(std::string_view text, std::size_t limit = kSarifMessage) {
  return literal(inert(text, limit));
}

json message(std::string_view text) { return {{"text", message_text(text)}}; }

std::string uri_of(std::string_view path) {
  constexpr std::string_view kPlain = "-._~/";
  std::string out;
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || kPlain.find(c) != kPlain.npos;
    if (is_plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<std::uint8_t>(c));
    }
  }
  return out;
}

constexpr std::size_t kLongestUriPath = 4096;
// GitHub refuses a report with a result that is at no file. The file need not exist.
constexpr const char* kNoFile = "ctxconf";

// Where a result is shown.
struct Place {
  std::string path;        // below the source root, or an absolute path; empty: nothing is known
  std::uint32_t line = 0;  // 0: the whole file
  friend auto operator<=>(const Place&, const Place&) = default;
};

json physical(const Place& place) {
  json artifact;
  if (place.path.starts_with('/')) {
    artifact["uri"] = "file://" + uri_of(place.path);
  } else {
    artifact = {{"uri", uri_of(place.path)}, {"uriBaseId", kRootName}};
  }
  json out = {{"artifactLocation", std::move(artifact)}};
  // GitHub needs a line, so a file is its first one.
  out["region"] = {{"startLine", std::max(place.line, std::uint32_t{1})}};
  return out;
}

std::string name_of(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

json logical(const CodeFrame& frame) {
  json out = json::array();
  if (!frame.function.empty()) {
    out.push_back(
        {{"fullyQualifiedName", inert(frame.function, kSarifName)}, {"kind", "function"}});
  }
  if (!frame.module.empty()) {
    out.push_back({{"name", inert(name_of(frame.module), kSarifName)},
                   {"fullyQualifiedName",
                    fmt::format("{}+{:#x}", inert(frame.module, kSarifName), frame.offset)},
                   {"kind", "module"}});
  }
  return out;
}

// result.json may come from anywhere, so a path may lead out of the source root.
bool is_usable(const std::string& path) {
  return !path.empty() && path.size() <= kLongestUriPath &&
         ("/" + path + "/").find("/../") == std::string::npos;
}

Place place_of(const CodeFrame& frame) {
  constexpr std::uint32_t kMostLines = INT32_MAX;
  if (!is_usable(frame.path)) return {};
  return {frame.path, std::min(frame.source_line, kMostLines)};
}

// The innermost one in the repository, or nullptr.
const CodeFrame* frame_in_source(const Finding& finding) {
  const auto at = std::ranges::find_if(
      finding.code, [](const CodeFrame& frame) { return is_usable(frame.path); });
  return at == finding.code.end() ? nullptr : &*at;
}

json location_of_frame(const CodeFrame& frame) {
  json out = json::object();
  if (const Place place = place_of(frame); !place.path.empty()) {
    out["physicalLocation"] = physical(place);
  }
  if (json names = logical(frame); !names.empty()) out["logicalLocations"] = std::move(names);
  return out;
}

const char* level_of(Outcome outcome) {
  if (outcome == Outcome::kWarn) return "warning";
  return outcome == Outcome::kInfo ? "note" : "error";
}

const char* level_of(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kInfo:
      return "note";
  }
  return "error";
}

// GitHub's word for the same.
const char* problem_severity(std::string_view level) {
  if (level == "error") return "error";
  return level == "warning" ? "warning" : "recommendation";
}

bool was_judged(const RequirementResult& result) {
  return result.outcome == Outcome::kPass || is_problem(result.outcome);
}

class SarifLog {
 public:
  explicit SarifLog(const RunResult& run) : run_(run) {
    for (const ImageSummary& image : run.images) images_.emplace(image.key, &image);
  }

  std::string text() {
    for (const RequirementResult& result : run_.results) requirement(result);
    for (const RunProblem& problem : run_.problems) of_run(problem);
    expectations();
    floor();
    if (run_.exit_code != kExitClean && !has_error_) {
      add(rule("run.exit", "The run ends with exit code 0."), "error",
          fmt::format("exit {}: {}", run_.exit_code, run_.exit_reason), whole_run(), "exit");
    }
    const json log = {
        {"$schema", kSarifSchema}, {"version", "2.1.0"}, {"runs", json::array({the_run()})}};
    return json_without_markup(log.dump(1, ' ', true)) + "\n";
  }

 private:
  json the_run() {
    json driver = {{"name", "ctxconf"},
                   {"version", inert(or_else(run_.suite_version, "unknown"), kSarifName)},
                   {"rules", std::move(rules_)}};
    if (!run_.suite_commit.empty()) {
      driver["properties"] = {{"commit", inert(run_.suite_commit, kSarifName)}};
    }
    json out = {{"tool", {{"driver", std::move(driver)}}},
                {"invocations", json::array({invocation()})},
                {"results", std::move(results_)}};
    if (run_.source && run_.source->root.starts_with('/') && is_usable(run_.source->root)) {
      std::string root = uri_of(run_.source->root);
      if (!root.ends_with('/')) root += '/';
      out["originalUriBaseIds"] = {{kRootName, {{"uri", "file://" + root}}}};
    }
    out["properties"] = {{"mode", inert(run_.mode, kSarifName)},
                         {"specification", spec_label(run_.spec)},
                         {"kernel", inert(run_.kernel, kSarifName)},
                         {"architecture", inert(run_.arch, kSarifName)},
                         {"summary", summary_line(run_)}};
    return out;
  }

  json invocation() {
    // Whether ctxconf did its work, and not how it judged.
    const bool works = run_.exit_code != kExitHarnessError && run_.exit_code != kExitUnreachable &&
                       run_.exit_code != kExitUsage;
    json out = {{"executionSuccessful", works},
                {"exitCode", run_.exit_code},
                {"exitCodeDescription", inert(run_.exit_reason, kSarifMessage)},
                {"commandLine", inert(shell_command(run_.command_line), kTextLimit)}};
    if (is_utc_time(run_.started_at)) out["startTimeUtc"] = run_.started_at;
    for (const std::string& note : run_.notes) {
      if (notifications_.size() >= kMostNotifications) break;
      notify("note", note);
    }
    if (!notifications_.empty()) out["toolExecutionNotifications"] = std::move(notifications_);
    return out;
  }

  void notify(const char* level, std::string_view text) {
    notifications_.push_back({{"level", level}, {"message", message(text)}});
  }

  // ---- rules

  // A rule that is not a requirement.
  std::size_t rule(const std::string& id, std::string_view text) {
    const std::string help = fmt::format("{} More: report.html, or the log of the run.", text);
    return rule(id, text, Severity::kError, {{"text", help}, {"markdown", help}});
  }

  // GitHub needs a full description and a help of each rule.
  std::size_t rule(const std::string& id, std::string_view text, Severity severity, json help) {
    const auto [at, is_new] = rule_indices_.try_emplace(id, rules_.size());
    if (is_new) {
      const char* const level = level_of(severity);
      rules_.push_back({{"id", id},
                        {"shortDescription", {{"text", literal(text)}}},
                        {"fullDescription", {{"text", literal(text)}}},
                        {"help", std::move(help)},
                        {"defaultConfiguration", {{"level", level}}},
                        {"properties", {{"problem.severity", problem_severity(level)}}}});
    }
    return at->second;
  }

  std::size_t rule(const Requirement& r) {
    const std::string place =
        fmt::format("{} ({}), OTEP {} of {}, section {}, lines {} to {}", to_string(r.strength),
                    to_string(r.basis), r.otep, r.revision, r.anchor, r.lines[0], r.lines[1]);
    // The number of an OTEP is that of its pull request.
    const std::string url = fmt::format(
        "https://github.com/open-telemetry/opentelemetry-specification/pull/{}", r.otep);
    json help = {
        {"text", literal(fmt::format("{}\nWhy: {}\nHow it is checked: {}\nWhere: {}.\n"
                                     "More: ctxconf explain {}",
                                     r.text, r.why, r.check, place, r.id))},
        {"markdown",
         literal(fmt::format("{}\n\n* **Why**: {}\n* **How it is checked**: {}\n* **Where**: {}\n"
                             "* **More**: `ctxconf explain {}`, {}\n",
                             r.text, r.why, r.check, place, r.id, url))}};
    const std::size_t index = rule(r.id, r.text, severity_in(r, run_.reading), std::move(help));
    json& out = rules_[index];
    out["fullDescription"] = {{"text", literal(fmt::format("{} {}", r.text, r.why))}};
    out["helpUri"] = url;
    out["properties"]["tags"] = {fmt::format("OTEP {}", r.otep), to_string(r.role),
                                 to_string(r.strength)};
    return index;
  }

  // ---- results

  // The first that is known: the line, the executable, the program, the expectations file below the
  // source root; the executable elsewhere.
  Place place_of_finding(const Finding& finding) const {
    if (const CodeFrame* const frame = frame_in_source(finding)) return place_of(*frame);
    const auto image = images_.find(finding.image);
    return of_image(image == images_.end() ? nullptr : image->second);
  }

  Place of_image(const ImageSummary* image) const {
    if (image != nullptr && is_usable(image->path)) return {.path = image->path};
    if (Place place = in_source(); !place.path.empty()) return place;
    const bool is_known =
        image != nullptr && image->executable.starts_with('/') && is_usable(image->executable);
    return is_known ? Place{.path = image->executable} : Place{};
  }

  Place whole_run() const {
    if (run_.images.empty()) return in_source();
    const auto published = std::ranges::find_if(run_.images, &ImageSummary::published);
    return of_image(published == run_.images.end() ? &run_.images.front() : &*published);
  }

  Place in_source() const {
    if (!run_.source) return {};
    const SourceTree& source = *run_.source;
    if (is_usable(source.program)) return {.path = source.program};
    return is_usable(source.expectations) ? Place{.path = source.expectations} : Place{};
  }

  json& add(std::size_t rule_index, const char* level, std::string_view text, const Place& place,
            std::string_view fingerprint) {
    has_error_ = has_error_ || std::string_view(level) == "error";
    const auto& id = rules_[rule_index]["id"].get_ref<const std::string&>();
    std::string shown = message_text(text);
    messages_ += shown.size();
    if (messages_ > kSarifMessages) {
      shown = "left out because this report is too long; see result.json";
    }
    // Readers would look for the mistake there.
    if (place.path.empty()) {
      shown += fmt::format("\nNo file of the program is known, so {} stands for it.", kNoFile);
    } else if (place.line == 0) {
      shown += "\nNo line of code is known, so line 1 stands for the file.";
    }
    std::string print = fingerprint_of(id, place, fingerprint);
    json result = {
        {"ruleId", id},
        {"ruleIndex", rule_index},
        {"level", level},
        {"message", {{"text", std::move(shown)}}},
        {"locations",
         json::array({{{"physicalLocation",
                        physical(place.path.empty() ? Place{.path = kNoFile} : place)}}})}};
    // GitHub makes its own where it finds the file.
    if (place.path.empty() || place.path.starts_with('/')) {
      result["partialFingerprints"]["primaryLocationLineHash"] = print + ":1";
    }
    result["partialFingerprints"]["ctxconf/v1"] = std::move(print);
    results_.push_back(std::move(result));
    return results_.back();
  }

  // Neither line nor process, so that it is the same in the next run.
  static std::string fingerprint_of(std::string_view id, const Place& place,
                                    std::string_view what) {
    return hex(sha256(fmt::format("{}\n{}\n{}", id, place.path, what)), 16);
  }

  void requirement(const RequirementResult& result) {
    if (!was_judged(result)) return;
    const std::size_t index = rule(*result.requirement);
    if (result.outcome == Outcome::kPass) return;
    std::map<std::tuple<Outcome, Place, std::string>, std::size_t> seen;  // index into results_
    bool is_full = false;
    for (const Finding& finding : result.findings) {
      if (!is_problem(finding.outcome)) continue;
      if (finding.outcome == Outcome::kHarnessError) {
        notify("error", fmt::format("{}: {}", result.requirement->id, finding.saw));
        continue;
      }
      auto key = std::tuple(finding.outcome, place_of_finding(finding), finding.signature);
      const auto known = seen.find(key);
      if (known == seen.end() && seen.size() == kMostPlaces) {
        is_full = true;
        continue;
      }
      if (known != seen.end()) {
        json& count = results_[known->second]["occurrenceCount"];
        count = count.get<std::uint64_t>() + 1;
        continue;
      }
      const std::size_t at = results_.size();
      broken(index, result, finding, std::get<Place>(key));
      seen.emplace(std::move(key), at);
    }
    if (is_full) {
      notify("note", fmt::format("{} is broken at more than {} places; the first ones are results",
                                 result.requirement->id, kMostPlaces));
    }
    if (seen.empty() && result.findings.empty()) {
      Finding unknown;
      unknown.outcome = result.outcome;
      broken(index, result, unknown, whole_run());
    }
  }

  void broken(std::size_t index, const RequirementResult& result, const Finding& finding,
              const Place& place) {
    const bool is_expected =
        result.expected == Expected::kAsExpected && finding.outcome == result.outcome;
    const CodeFrame* const frame = finding.code.empty() ? nullptr : &finding.code.front();
    std::string text(or_else(finding.saw, "No finding says what was seen."));
    if (finding.outcome == Outcome::kCrash || finding.outcome == Outcome::kTimeout) {
      text = fmt::format("{}: {}", to_string(finding.outcome), text);
    }
    json& out = add(index, is_expected ? "note" : level_of(finding.outcome), text, place,
                    fmt::format("{}\n{}", finding.signature, frame ? frame->function : ""));
    if (is_expected) {
      out["suppressions"] =
          json::array({{{"kind", "external"},
                        {"status", "accepted"},
                        {"justification",
                         inert(or_else(result.expectation_note, "expected"), kSarifMessage)}}});
    }
    out["occurrenceCount"] = 1;
    if (frame != nullptr) {
      const CodeFrame* const named = frame_in_source(finding);
      if (json names = logical(named != nullptr ? *named : *frame); !names.empty()) {
        out["locations"][0]["logicalLocations"] = std::move(names);
      }
    }
    out["properties"] = {{"outcome", to_string(finding.outcome)},
                         {"image", finding_image(finding)},
                         {"level", inert(finding.level, kSarifName)}};
    // Details are left out of a report that they would make too long.
    if (details_ > kSarifDetails) return;
    details_ += (out["properties"]["again"] = again_for(run_, result)).dump().size();
    if (finding.code.size() < 2) return;
    details_ += (out["stacks"] = json::array({stack_of(finding)})).dump().size();
  }

  static json stack_of(const Finding& finding) {
    json frames = json::array();
    for (std::size_t i = 0; i < std::min(finding.code.size(), kMaxCodeFrames); ++i) {
      frames.push_back({{"location", location_of_frame(finding.code[i])}});
    }
    return {{"frames", std::move(frames)}};
  }

  void of_run(const RunProblem& problem) {
    if (problem.outcome == Outcome::kHarnessError) return notify("error", problem.text);
    const auto image = images_.find(problem.image);
    const Place place = of_image(image == images_.end() ? nullptr : image->second);
    switch (problem.outcome) {
      case Outcome::kCrash:
        add(rule("run.crash", "The program does not crash."), "error", problem.text, place,
            "crash");
        break;
      case Outcome::kTimeout:
        add(rule("run.timeout", "The program does not hang."), "error", problem.text, place,
            "timeout");
        break;
      default:
        add(rule("run.harm", "A reader does no harm to the process that it reads."), "error",
            problem.text, place, problem.harm);
    }
  }

  void expectations() {
    std::size_t nth = 0;
    for (const ExpectationProblem& problem : run_.expectation_problems) {
      if (nth++ == kMostFileResults) break;
      Place place = whole_run();
      if (run_.source && is_usable(run_.source->expectations)) {
        place = {.path = run_.source->expectations,
                 .line = static_cast<std::uint32_t>(std::max(problem.line, 1))};
      }
      std::string text = problem.text;
      if (!problem.mend.empty()) text += "; to fix it: " + problem.mend;
      add(rule("expectations", "The file of expected failures is right."),
          problem.exit_code == 0 ? "warning" : "error", text, place, problem.text);
    }
  }

  void floor() {
    std::size_t nth = 0;
    for (const FloorProblem& problem : run_.floor) {
      if (nth++ == kMostFloorResults) break;
      std::string text =
          fmt::format("{}: {}; now {}", problem.requirement, problem.why, problem.now);
      if (!problem.remedy.empty()) text += "; to see it: " + problem.remedy;
      add(rule("floor", "What has to be judged is judged."), "error", text, whole_run(),
          problem.requirement);
    }
  }

  const RunResult& run_;
  std::map<ImageKey, const ImageSummary*> images_;
  std::map<std::string, std::size_t> rule_indices_;
  json rules_ = json::array();
  json results_ = json::array();
  json notifications_ = json::array();
  std::size_t messages_ = 0;
  std::size_t details_ = 0;
  bool has_error_ = false;
};

}  // namespace

std::string to_sarif(const RunResult& run) { return SarifLog(run).text(); }

}  // namespace ctxconf::conformance
