#include "conformance/report/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "conformance/report/console.h"
#include "conformance/report/escape.h"
#include "conformance/report/wording.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMessageLimit = 300;
constexpr std::size_t kBodyLimit = std::size_t{64} * 1024;
constexpr std::size_t kAllBodiesLimit = std::size_t{4} << 20;
constexpr std::size_t kMostExpectationProblems = 1000;
constexpr std::size_t kMostFloorProblems = 200;
constexpr std::size_t kMostImages = 200;

std::string attribute(std::string_view text, std::size_t limit = 1000) {
  return escape(text, Escape::kXmlAttribute, limit);
}
std::string body(std::string_view text) { return escape(text, Escape::kXmlText, kBodyLimit); }

// JUnit readers expect a local time without a zone and refuse anything else.
std::string timestamp(std::string_view started) {
  if (!is_utc_time(started)) return {};
  return fmt::format(" timestamp=\"{}\"", started.substr(0, started.size() - 1));
}

class Suite {
 public:
  enum class Kind { kPassed, kSkipped, kFailure, kError };

  // `text` is the body of a failure or an error; otherwise it goes to system-out.
  void add(std::string_view classname, std::string_view name, Kind kind, std::string_view type,
           std::string_view message, std::string_view text) {
    ++tests_;
    cases_ += fmt::format("  <testcase classname=\"{}\" name=\"{}\" time=\"0\"",
                          attribute(classname), attribute(name));
    if (kind == Kind::kPassed && text.empty()) {
      cases_ += "/>\n";
      return;
    }
    cases_ += ">\n";
    switch (kind) {
      case Kind::kPassed:
        break;
      case Kind::kSkipped:
        ++skipped_;
        cases_ += fmt::format("    <skipped message=\"{}\"/>\n", attribute(message, kMessageLimit));
        break;
      case Kind::kFailure:
      case Kind::kError: {
        const std::string_view tag = kind == Kind::kFailure ? "failure" : "error";
        ++(kind == Kind::kFailure ? failures_ : errors_);
        cases_ += fmt::format("    <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n", tag,
                              attribute(type), attribute(message, kMessageLimit), details(text));
        break;
      }
    }
    if (!text.empty() && (kind == Kind::kPassed || kind == Kind::kSkipped)) {
      cases_ += fmt::format("    <system-out>{}</system-out>\n", details(text));
    }
    cases_ += "  </testcase>\n";
  }

  bool is_green() const { return failures_ + errors_ == 0; }

  std::string xml(const RunResult& run) const {
    const std::string counts =
        fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3f}\"", tests_, failures_,
                    errors_, std::isfinite(run.seconds) ? std::max(run.seconds, 0.0) : 0.0);
    std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    out += fmt::format("<testsuites name=\"ctxconf\" {}>\n", counts);
    // Some schemas allow `skipped` only in testsuite.
    out += fmt::format(" <testsuite name=\"ctxconf\"{} {} skipped=\"{}\">\n",
                       timestamp(run.started_at), counts, skipped_);
    out += "  <properties>\n";
    const auto property = [&out](std::string_view name, std::string_view value) {
      out += fmt::format("   <property name=\"{}\" value=\"{}\"/>\n", attribute(name),
                         attribute(value));
    };
    property("ctxconf.version", run.suite_version);
    property("ctxconf.commit", run.suite_commit);
    property("spec", spec_label(run.spec));
    property("kernel", run.kernel);
    property("arch", run.arch);
    if (!run.libc.empty()) property("program.libc", run.libc);
    property("ctxconf.libc", run.suite_libc);
    property("mode", run.mode);
    property("level", run.level);
    property("reading", to_string(run.reading));
    property("command", shell_command(run.command_line));
    std::string lacks;
    for (const sys::HostFact& fact : run.host) {
      if (!fact.available) lacks += (lacks.empty() ? "" : ", ") + fact.name;
    }
    property("host.lacks", lacks);
    for (const auto& injection : run.injections) property("injected", injection);
    property("exit", fmt::format("{}: {}", run.exit_code, run.exit_reason));
    out += "  </properties>\n";
    out += cases_;
    out += fmt::format("  <system-out>{}</system-out>\n", body(summary_line(run)));
    return out + " </testsuite>\n</testsuites>\n";
  }

 private:
  std::string details(std::string_view text) {
    if (bodies_ >= kAllBodiesLimit)
      return "left out because this report is too long; see result.json";
    std::string out = body(text);
    bodies_ += out.size();
    return out;
  }

  std::string cases_;
  std::size_t bodies_ = 0;
  int tests_ = 0;
  int failures_ = 0;
  int errors_ = 0;
  int skipped_ = 0;
};

struct ImageName {
  std::string name;
  bool published = false;
};

// Names that stay the same in the next run: the executable, and a number if there are several.
std::map<ImageKey, ImageName> image_names(const RunResult& run) {
  std::map<ImageKey, ImageName> out;
  std::map<std::pair<std::string_view, bool>, int> seen;
  for (const ImageSummary& image : run.images) {
    const int nth = ++seen[{image.executable, image.published}];
    std::string name = escape(image.executable, Escape::kTerminal, 300);
    if (name.empty()) name = "(unknown executable)";
    if (!image.published && !is_about_readers(run)) name += " (published nothing)";
    if (nth > 1) name += fmt::format(" ({})", nth);
    out.emplace(image.key, ImageName{std::move(name), image.published});
  }
  return out;
}

class Writer {
 public:
  Writer(const RunResult& run, const JunitOptions& options)
      : run_(run), options_(options), images_(image_names(run)) {
    by_image_ = std::ranges::count_if(run.images, &ImageSummary::published) > 1;
  }

  std::string write() {
    for (const RequirementResult& result : run_.results) requirement(result);
    for (const RunProblem& problem : run_.problems) {
      suite_.add("ctxconf.run", fmt::format("{} {}", to_string(problem.outcome), ++runs_),
                 Suite::Kind::kError, to_string(problem.outcome), problem.text, problem.text);
    }
    std::size_t nth = 0;
    for (const ExpectationProblem& problem : run_.expectation_problems) {
      if (nth == kMostExpectationProblems) break;
      const std::string name = problem.line > 0 ? fmt::format("line {}", problem.line)
                                                : fmt::format("problem {}", nth + 1);
      const std::string text = fmt::format("{}\nfix: {}", problem.text, problem.mend);
      suite_.add("ctxconf.expectations", name,
                 problem.exit_code == 0 ? Suite::Kind::kPassed : Suite::Kind::kFailure,
                 "expectations", problem.text, text);
      ++nth;
    }
    nth = 0;
    for (const FloorProblem& problem : run_.floor) {
      if (nth++ == kMostFloorProblems) break;
      std::string text = fmt::format("{}\nnow {}", problem.why, problem.now);
      if (!problem.remedy.empty()) text += "\nto see it: " + problem.remedy;
      suite_.add("ctxconf.floor", inert(problem.requirement, 200), Suite::Kind::kFailure, "floor",
                 fmt::format("{}; now {}", problem.why, problem.now), text);
    }
    if (run_.exit_code != 0 && suite_.is_green()) {
      suite_.add("ctxconf.run", "exit", Suite::Kind::kError, "exit",
                 fmt::format("exit {}: {}", run_.exit_code, run_.exit_reason), summary_line(run_));
    }
    return suite_.xml(run_);
  }

 private:
  void requirement(const RequirementResult& result) {
    const Requirement& requirement = *result.requirement;
    const std::string section = fmt::format("otep{}.{}", requirement.otep, requirement.anchor);
    std::size_t cases = 0;
    for (const Finding& finding : result.findings) {
      if (!by_image_ || cases == kMostImages) break;
      const auto image = images_.find(finding.image);
      const bool published = image != images_.end() && image->second.published;
      // A shell that only starts the program is a test case only if something is wrong with it.
      if (!published && !is_problem(finding.outcome)) continue;
      const std::string_view name =
          image == images_.end() ? std::string_view("(unknown image)") : image->second.name;
      add(fmt::format("{}.{}", section, name), result, &finding);
      ++cases;
    }
    if (cases == 0)
      add(section, result, result.findings.empty() ? nullptr : &result.findings.front());
  }

  void add(const std::string& classname, const RequirementResult& result, const Finding* finding) {
    const Requirement& requirement = *result.requirement;
    const Outcome outcome = finding == nullptr ? result.outcome : finding->outcome;
    const std::string saw = finding == nullptr ? std::string() : finding->saw;
    const std::string text =
        finding == nullptr ? std::string(to_string(outcome)) : finding_text(run_, result, *finding);
    const auto put = [&](Suite::Kind kind, std::string_view message, std::string_view details) {
      suite_.add(classname, requirement.id, kind, to_string(outcome), message, details);
    };
    if (is_problem(outcome) && result.expected == Expected::kAsExpected &&
        outcome == result.outcome) {
      put(Suite::Kind::kSkipped,
          fmt::format("{} as expected: {}", to_string(outcome), result.expectation_note), text);
      return;
    }
    switch (outcome) {
      case Outcome::kPass:
        put(Suite::Kind::kPassed, {}, {});
        break;
      case Outcome::kNa: {
        const std::string_view reason =
            finding == nullptr ? std::string_view("no reason") : to_string(finding->na_reason);
        put(Suite::Kind::kSkipped, fmt::format("n/a ({}): {}", reason, saw), {});
        break;
      }
      case Outcome::kUnobservable: {
        std::string message = "unobservable: " + saw;
        if (finding != nullptr && !finding->remedy.empty()) {
          message += "; to see it: " + finding->remedy;
        }
        put(Suite::Kind::kSkipped, message, {});
        break;
      }
      case Outcome::kInfo:
        put(Suite::Kind::kPassed, saw, text);
        break;
      case Outcome::kWarn:
        put(options_.strict ? Suite::Kind::kFailure : Suite::Kind::kPassed, saw, text);
        break;
      case Outcome::kFail:
        put(Suite::Kind::kFailure, saw, text);
        break;
      case Outcome::kTimeout:
      case Outcome::kCrash:
      case Outcome::kHarnessError:
        put(Suite::Kind::kError, saw, text);
        break;
    }
  }

  const RunResult& run_;
  JunitOptions options_;
  std::map<ImageKey, ImageName> images_;
  int runs_ = 0;  // problems of the run itself
  bool by_image_ = false;
  Suite suite_;
};

}  // namespace

std::string to_junit(const RunResult& run, const JunitOptions& options) {
  return Writer(run, options).write();
}

}  // namespace ctxconf::conformance
