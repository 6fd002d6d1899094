#include "conformance/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/report/digest.h"
#include "conformance/report/escape.h"
#include "conformance/report/fault_table.h"
#include "conformance/report/operation_figure.h"
#include "conformance/report/page_parts.h"
#include "conformance/report/wording.h"
#include "conformance/text/counts.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostBytes = std::size_t{8} << 20;  // beyond that, evidence is left out
constexpr std::size_t kMostPageItems = 500;               // per list about the run
constexpr std::size_t kMostPageNotes = 50;
constexpr std::size_t kMostFindings = 8;  // in full, per requirement
constexpr std::size_t kMostOthers = 40;   // ... by name
constexpr std::size_t kMostPageEvidence = 60;
constexpr std::size_t kMostOfSaw = 300;  // bytes above a picture
constexpr std::size_t kMostPageDumps = 8;
constexpr std::size_t kMostPageRows = 64;
constexpr std::size_t kMostOperations = 8;
constexpr std::size_t kMostCompared = 512;  // bytes
constexpr std::size_t kBrief = 160;

constexpr std::array kAllOutcomes = {
    Outcome::kFail,         Outcome::kCrash,        Outcome::kTimeout,
    Outcome::kHarnessError, Outcome::kWarn,         Outcome::kInfo,
    Outcome::kPass,         Outcome::kUnobservable, Outcome::kNa};
constexpr std::array kAttention = {Outcome::kCrash, Outcome::kTimeout, Outcome::kHarnessError,
                                   Outcome::kFail,  Outcome::kWarn,    Outcome::kInfo};

// The texts of wording.h are bounded and inert; they lack only the quoting.
std::string markup(std::string_view text) {
  return escape(text, Escape::kXmlAttribute, std::string_view::npos);
}
// An inert command. Lines do not break inside its options, which begin with hyphens.
std::string command(std::string_view inert) {
  constexpr std::size_t kLongestOption = 40;
  std::string out;
  for (std::size_t at = 0; at <= inert.size();) {
    const std::size_t end = std::min(inert.find(' ', at), inert.size());
    const std::string_view word = inert.substr(at, end - at);
    if (at > 0) out += ' ';
    out += word.starts_with('-') && word.size() <= kLongestOption
               ? fmt::format("<span class=\"option\">{}</span>", markup(word))
               : markup(word);
    at = end + 1;
  }
  return out;
}
std::string code(std::string_view quoted) { return fmt::format("<code>{}</code>", quoted); }

std::string_view part(std::string_view name) {
  for (const BuiltinFile& file : page_parts()) {
    if (file.name == name) return file.text;
  }
  std::abort();  // missing in the build
}

std::string_view class_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "o-pass";
    case Outcome::kNa:
    case Outcome::kUnobservable:
      return "o-quiet";
    case Outcome::kInfo:
      return "o-info";
    case Outcome::kWarn:
      return "o-warn";
    case Outcome::kFail:
    case Outcome::kTimeout:
    case Outcome::kCrash:
    case Outcome::kHarnessError:
      return "o-fail";
  }
  return "o-fail";
}

std::string_view name_of(Outcome outcome) {
  return outcome == Outcome::kNa ? "n/a" : to_string(outcome);
}

std::string badge(Outcome outcome) {
  return fmt::format("<span class=\"badge {}\">{}</span>", class_of(outcome), label_of(outcome));
}

std::string_view word_for(const RunResult& run) {
  switch (run.exit_code) {
    case 0:
      return "Passed";
    case 1:
      return "Failed";
    case 2:
      return "Bad input";
    case 3:
      return "Not reached";
    case 4:
      return "Not judged";
    case 5:
      return "Stale expectations";
    default:
      return "A bug in ctxconf";
  }
}

int count_of(const Totals& t, Outcome outcome) {
  switch (outcome) {
    case Outcome::kNa:
      return t.na;
    case Outcome::kPass:
      return t.pass;
    case Outcome::kUnobservable:
      return t.unobservable;
    case Outcome::kInfo:
      return t.info;
    case Outcome::kWarn:
      return t.warn;
    case Outcome::kFail:
      return t.fail;
    case Outcome::kTimeout:
      return t.timeout;
    case Outcome::kCrash:
      return t.crash;
    case Outcome::kHarnessError:
      return t.harness_error;
  }
  return 0;
}

std::string_view title_of(int otep) {
  if (otep == 4719) return "process context";
  if (otep == 4947) return "thread context";
  return "";
}

const Finding* worst_of(const RequirementResult& result) {
  return result.findings.empty() ? nullptr : &result.findings.front();
}

bool is_expected(const RequirementResult& result) {
  return result.expected == Expected::kAsExpected && is_problem(result.outcome);
}

// The results of a section of an OTEP, and those of an OTEP, in the order of the catalogue.
struct Section {
  std::string_view anchor;
  std::vector<const RequirementResult*> results;
};
struct Document {
  int otep = 0;
  std::string_view revision;
  std::vector<Section> sections;
};

std::vector<Document> documents_of(const RunResult& run) {
  std::vector<Document> out;
  for (const RequirementResult& result : run.results) {
    const Requirement& requirement = *result.requirement;
    auto document = std::ranges::find_if(out, [&requirement](const Document& d) {
      return d.otep == requirement.otep && d.revision == requirement.revision;
    });
    if (document == out.end()) {
      out.push_back({requirement.otep, requirement.revision, {}});
      document = out.end() - 1;
    }
    auto section = std::ranges::find(document->sections, requirement.anchor, &Section::anchor);
    if (section == document->sections.end()) {
      document->sections.push_back({requirement.anchor, {}});
      section = document->sections.end() - 1;
    }
    section->results.push_back(&result);
  }
  return out;
}

// "1 fail, 3 pass"
std::string counts_text(std::span<const RequirementResult* const> results) {
  std::string out;
  for (const Outcome outcome : kAllOutcomes) {
    const auto n = std::ranges::count(results, outcome, &RequirementResult::outcome);
    if (n > 0) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, name_of(outcome));
  }
  return out;
}

// Why requirements are unobservable and how they could be observed, the most frequent reason first.
struct Reason {
  const Finding* finding = nullptr;
  std::size_t rows = 0;
};
std::vector<Reason> reasons_of(const RunResult& run) {
  std::vector<Reason> out;
  for (const RequirementResult& result : run.results) {
    const Finding* finding = worst_of(result);
    if (result.outcome != Outcome::kUnobservable || finding == nullptr) continue;
    auto reason = std::ranges::find_if(out, [finding](const Reason& r) {
      return r.finding->saw == finding->saw && r.finding->remedy == finding->remedy;
    });
    if (reason == out.end()) reason = out.insert(out.end(), {finding, 0});
    ++reason->rows;
  }
  std::ranges::sort(out, [](const Reason& a, const Reason& b) {
    return a.rows != b.rows ? a.rows > b.rows : a.finding->requirement < b.finding->requirement;
  });
  return out;
}

class HtmlPage {
 public:
  explicit HtmlPage(const RunResult& run) : run_(run) {}

  std::string write() {
    head();
    header();
    out_ += "<main id=\"main\">\n";
    summary();
    attention();
    expectation_problems();
    below_floor();
    faults();
    requirements();
    unseen();
    operations();
    images();
    environment();
    out_ += "</main>\n<footer>\n";
    paragraph(
        fmt::format("Made by ctxconf {} from one run. <code>result.json</code> has everything; "
                    "<code>ctxconf explain ID</code> explains a requirement.",
                    quote(run_.suite_version, 100)));
    out_ += fmt::format("</footer>\n<script>{}</script>\n</body>\n</html>\n", script());
    return std::move(out_);
  }

 private:
  static std::string_view style() { return part("report/page.css"); }
  static std::string_view script() { return part("report/page.js"); }

  void paragraph(std::string_view html) { out_ += fmt::format("<p>{}</p>\n", html); }
  // A term and its text; both are markup.
  void entry(std::string_view term, std::string_view html, std::string_view css = "") {
    out_ += fmt::format("<dt>{}</dt><dd{}>{}</dd>\n", term,
                        css.empty() ? std::string() : fmt::format(" class=\"{}\"", css), html);
  }
  void command_entry(std::string_view term, std::string_view inert) {
    if (!inert.empty()) entry(term, command_block(inert));
  }
  void more(std::size_t all, std::size_t shown, std::string_view what) {
    if (all > shown) paragraph(and_more(all - shown, what));
  }
  bool is_full() const { return out_.size() > kMostBytes; }

  static std::string command_block(std::string_view inert) {
    return fmt::format("<pre class=\"cmd\"><code>{}</code></pre>", command(inert));
  }

  std::string target() const { return inert(shell_command(run_.target), 300); }

  void head() {
    out_ += "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
    out_ += fmt::format(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'{}'; script-src '{}'; base-uri 'none'; form-action 'none'\">\n",
        policy_hash(style()), policy_hash(script()));
    out_ += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    out_ += "<meta name=\"color-scheme\" content=\"light dark\">\n";
    out_ += "<meta name=\"referrer\" content=\"no-referrer\">\n";
    out_ += fmt::format("<title>{}: {} of {} failed · {} · ctxconf</title>\n", word_for(run_),
                        run_.totals.fail, run_.totals.selected, markup(target()));
    out_ += fmt::format("<style>{}</style>\n</head>\n<body>\n", style());
    out_ += "<a class=\"skip\" href=\"#main\">Skip to the results</a>\n";
  }

  void header() {
    out_ += "<header>\n";
    out_ += fmt::format("<h1>{}: {}</h1>\n", word_for(run_), code(command(target())));
    std::string about = fmt::format("ctxconf {}", quote(run_.mode, 40));
    if (!run_.level.empty()) about += fmt::format(", level {}", quote(run_.level, 40));
    about += fmt::format(", {}", markup(reading_label(run_.reading)));
    about += fmt::format(" · {}", markup(spec_label(run_.spec)));
    if (!run_.started_at.empty()) about += fmt::format(" · {}", quote(run_.started_at, 40));
    if (std::isfinite(run_.seconds)) about += fmt::format(" · {:.1f} s", run_.seconds);
    out_ += fmt::format("<p class=\"muted\">{}</p>\n", about);
    out_ += "<nav aria-label=\"Parts of this report\"><ul>\n";
    const auto link = [this](std::string_view id, std::string_view text) {
      out_ += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", id, text);
    };
    link("summary", "Summary");
    if (has_attention()) link("attention", "What to look at");
    if (!run_.expectation_problems.empty()) link("expectations", "Expectations");
    if (!run_.floor.empty()) link("floor", "Required but not judged");
    link("requirements", "Requirements");
    if (!reasons_of(run_).empty()) link("unseen", "What could not be seen");
    if (!run_.operations.empty()) link("operations", "What this program did");
    link("images", is_about_files(run_) ? "Files" : "Processes");
    link("environment", "Environment");
    out_ += "</ul></nav>\n</header>\n";
  }

  void bar() {
    double all = 0;
    for (const Outcome outcome : kAllOutcomes) all += std::max(count_of(run_.totals, outcome), 0);
    if (all == 0) return;
    out_ += fmt::format(
        "<svg class=\"bar\" viewBox=\"0 0 1000 8\" preserveAspectRatio=\"none\" role=\"img\" "
        "aria-label=\"{}\">",
        markup(summary_line(run_)));
    double at = 0;
    for (const Outcome outcome : kAllOutcomes) {
      const double width = 1000.0 * std::max(count_of(run_.totals, outcome), 0) / all;
      if (width == 0) continue;
      out_ += fmt::format(
          "<rect class=\"{}\" x=\"{:.2f}\" y=\"0\" width=\"{:.2f}\" height=\"8\"></rect>",
          class_of(outcome), at, width);
      at += width;
    }
    out_ += "</svg>\n";
  }

  void summary() {
    out_ += "<section id=\"summary\" aria-labelledby=\"h-summary\">\n";
    out_ += "<h2 id=\"h-summary\">Summary</h2>\n";
    const std::string_view mood = run_.exit_code == 0                          ? "v-good"
                                  : run_.exit_code == 4 || run_.exit_code == 5 ? "v-open"
                                                                               : "v-bad";
    out_ += fmt::format("<p class=\"reason\"><strong class=\"{}\">Exit {}</strong>: {}</p>\n", mood,
                        run_.exit_code, or_else(quote(run_.exit_reason), "no reason was given"));
    out_ += "<dl class=\"tiles\">\n";
    out_ += fmt::format("<div class=\"all\"><dt>selected</dt><dd>{}</dd></div>\n",
                        run_.totals.selected);
    for (const Outcome outcome : kAllOutcomes) {
      const int n = count_of(run_.totals, outcome);
      if (n == 0 && outcome != Outcome::kPass && outcome != Outcome::kFail) continue;
      out_ += fmt::format("<div class=\"{}\"><dt>{}</dt><dd>{}</dd></div>\n",
                          n == 0 ? "o-quiet" : class_of(outcome), name_of(outcome), n);
    }
    if (run_.totals.expected_failures != 0) {
      out_ += fmt::format("<div class=\"o-quiet\"><dt>of them expected</dt><dd>{}</dd></div>\n",
                          run_.totals.expected_failures);
    }
    out_ += "</dl>\n";
    bar();
    paragraph(markup(summary_line(run_)));
    for (std::size_t i = 0; i < std::min(run_.notes.size(), kMostPageNotes); ++i) {
      paragraph("Note: " + quote(run_.notes[i]));
    }
    more(run_.notes.size(), kMostPageNotes, "note");
    out_ += "<dl class=\"fields\">\n";
    command_entry("again", inert(run_.again.empty() ? shell_command(run_.command_line) : run_.again,
                                 kTextLimit));
    out_ += "</dl>\n</section>\n";
  }

  bool has_attention() const {
    return !run_.problems.empty() ||
           std::ranges::any_of(run_.results, [](const RequirementResult& r) {
             return is_problem(r.outcome) && !is_expected(r);
           });
  }

  // What is wrong, worst first; each requirement has a link to its details.
  void attention() {
    if (!has_attention()) return;
    out_ += "<section id=\"attention\" aria-labelledby=\"h-attention\">\n";
    out_ += "<h2 id=\"h-attention\">What to look at</h2>\n<ul class=\"list\">\n";
    const std::size_t most = std::min(run_.problems.size(), kMostPageItems);
    for (std::size_t i = 0; i < most; ++i) {
      const RunProblem& problem = run_.problems[i];
      out_ += fmt::format("<li>{} {}</li>\n", badge(problem.outcome), quote(problem.text));
    }
    for (const Outcome outcome : kAttention) {
      for (const RequirementResult& result : run_.results) {
        if (result.outcome != outcome || is_expected(result)) continue;
        const Finding* finding = worst_of(result);
        out_ += fmt::format("<li>{0} <a href=\"#{1}\"><code>{1}</code></a> {2}</li>\n",
                            badge(outcome), markup(result.requirement->id),
                            finding == nullptr ? std::string() : quote(finding->saw, 300));
      }
    }
    out_ += "</ul>\n";
    more(run_.problems.size(), most, "problem");
    out_ += "</section>\n";
  }

  void unseen() {
    const auto reasons = reasons_of(run_);
    if (reasons.empty()) return;
    out_ += "<section id=\"unseen\" aria-labelledby=\"h-unseen\">\n";
    out_ += "<h2 id=\"h-unseen\">What could not be seen</h2>\n<ul class=\"list\">\n";
    const std::size_t most = std::min(reasons.size(), kMostPageItems);
    for (const Reason& reason : std::span(reasons).first(most)) {
      out_ +=
          fmt::format("<li><strong>{}</strong> {}", reason.rows, quote(reason.finding->saw, 300));
      if (!reason.finding->remedy.empty()) {
        out_ += fmt::format("<br><span class=\"muted\">to see it: {}</span>",
                            quote(reason.finding->remedy));
      }
      out_ += "</li>\n";
    }
    out_ += "</ul>\n";
    more(reasons.size(), most, "reason");
    out_ += "</section>\n";
  }

  void expectation_problems() {
    const auto& all = run_.expectation_problems;
    if (all.empty()) return;
    out_ += "<section id=\"expectations\" aria-labelledby=\"h-expectations\">\n";
    out_ += "<h2 id=\"h-expectations\">The expectations file</h2>\n<ul class=\"list\">\n";
    const std::size_t most = std::min(all.size(), kMostPageItems);
    for (const ExpectationProblem& problem : std::span(all).first(most)) {
      out_ += fmt::format("<li><span class=\"badge {}\">{}</span> ",
                          problem.exit_code == 0 ? "o-warn" : "o-fail",
                          problem.exit_code == 0 ? "WARN" : "ERROR");
      if (problem.line > 0) out_ += fmt::format("line {}: ", problem.line);
      out_ += quote(problem.text);
      if (!problem.mend.empty()) {
        out_ += command_block(inert(problem.mend));
      }
      out_ += "</li>\n";
    }
    out_ += "</ul>\n";
    more(all.size(), most, "problem");
    out_ += "</section>\n";
  }

  void below_floor() {
    const auto& all = run_.floor;
    if (all.empty()) return;
    out_ += "<section id=\"floor\" aria-labelledby=\"h-floor\">\n";
    out_ += "<h2 id=\"h-floor\">Required but not judged</h2>\n<ul class=\"list\">\n";
    const std::size_t most = std::min(all.size(), kMostPageItems);
    for (const FloorProblem& problem : std::span(all).first(most)) {
      out_ += fmt::format("<li><span class=\"badge o-fail\">ERROR</span> <code>{}</code> {}",
                          quote(problem.requirement, 200), quote(problem.why));
      out_ += fmt::format("<br>now {}", quote(problem.now));
      if (!problem.remedy.empty()) {
        out_ +=
            fmt::format("<br><span class=\"muted\">to see it: {}</span>", quote(problem.remedy));
      }
      out_ += "</li>\n";
    }
    out_ += "</ul>\n";
    more(all.size(), most, "requirement");
    out_ += "</section>\n";
  }

  // Without the script these stay hidden.
  void tools() {
    out_ += "<div id=\"tools\" role=\"search\" aria-label=\"Requirements\" hidden>\n";
    out_ +=
        "<label>Search <input id=\"search\" type=\"search\" autocomplete=\"off\" "
        "spellcheck=\"false\" placeholder=\"id, rule, what was seen\"></label>\n";
    out_ += "<fieldset id=\"outcomes\"><legend>Show</legend>\n";
    for (const Outcome outcome : kAllOutcomes) {
      if (std::ranges::find(run_.results, outcome, &RequirementResult::outcome) ==
          run_.results.end()) {
        continue;
      }
      out_ += fmt::format("<label><input type=\"checkbox\" value=\"{}\" checked> {}</label>\n",
                          to_string(outcome), name_of(outcome));
    }
    out_ += "</fieldset>\n";
    out_ +=
        "<button type=\"button\" id=\"open-all\">Open all</button>\n"
        "<button type=\"button\" id=\"close-all\">Close all</button>\n"
        "<output id=\"shown\" for=\"search outcomes\"></output>\n</div>\n";
  }

  void requirements() {
    out_ += "<section id=\"requirements\" aria-labelledby=\"h-requirements\">\n";
    out_ += "<h2 id=\"h-requirements\">Requirements</h2>\n";
    if (run_.results.empty()) {
      paragraph("None was judged.");
    } else {
      tools();
    }
    for (const Document& document : documents_of(run_)) {
      out_ += "<div class=\"group\">\n";
      out_ += fmt::format("<h3>OTEP {}{}{} <span class=\"counts\">revision {}</span></h3>\n",
                          document.otep, title_of(document.otep).empty() ? "" : ", ",
                          title_of(document.otep), quote(document.revision, 40));
      for (const Section& section : document.sections) {
        out_ +=
            fmt::format("<section class=\"group\">\n<h4>{} <span class=\"counts\">{}</span></h4>\n",
                        code("#" + quote(section.anchor, 200)), counts_text(section.results));
        for (const RequirementResult* result : section.results) row(*result);
        out_ += "</section>\n";
      }
      out_ += "</div>\n";
    }
    out_ += "</section>\n";
  }

  void row(const RequirementResult& result) {
    const Requirement& r = *result.requirement;
    const bool open = is_problem(result.outcome) && result.outcome != Outcome::kInfo &&
                      result.expected != Expected::kAsExpected;
    const Finding* worst = worst_of(result);
    out_ += fmt::format(
        "<details class=\"row {0}\" id=\"{1}\" data-outcome=\"{2}\"{3}>\n<summary><span>{4}{5}"
        "</span> <code class=\"id\">{1}</code> <span class=\"brief\">{6}</span></summary>\n"
        "<div class=\"body\">\n",
        class_of(result.outcome), markup(r.id), to_string(result.outcome), open ? " open" : "",
        badge(result.outcome),
        result.expected == Expected::kAsExpected ? " <span class=\"badge plain\">EXPECTED</span>"
                                                 : "",
        worst == nullptr ? std::string() : quote(worst->saw, kBrief));
    out_ += "<dl class=\"fields\">\n";
    entry("rule", quote(r.text, kTextLimit));
    if (!r.why.empty()) entry("why", quote(r.why, kTextLimit));
    entry("source", fmt::format("{} ({}), OTEP {}@{} {}", to_string(r.strength), to_string(r.basis),
                                r.otep, quote(r.revision, 40), code("#" + quote(r.anchor, 200))));
    if (result.expected != Expected::kNone) {
      entry("expected", (result.expected == Expected::kAsExpected
                             ? "expected by the expectations file: "
                             : "the expectations file expects another outcome: ") +
                            quote(result.expectation_note));
    }
    out_ += "</dl>\n";
    findings(result);
    if (is_problem(result.outcome)) {
      out_ += "<dl class=\"fields\">\n";
      command_entry("again", again_for(run_, result));
      command_entry("offline", replay_for(run_, result));
      command_entry("debug", debug_for(run_, result));
      out_ += "</dl>\n";
    }
    out_ += "</div>\n</details>\n";
  }

  // Findings that say something new in full, the others by the name of their image.
  void findings(const RequirementResult& result) {
    if (result.findings.empty()) paragraph("No finding says what was seen.");
    std::vector<const Finding*> full;
    std::vector<const Finding*> alike;
    for (const Finding& finding : result.findings) {
      const bool known = std::ranges::any_of(full, [&finding](const Finding* other) {
        return other->outcome == finding.outcome &&
               (finding.signature.empty() ? other->saw == finding.saw
                                          : other->signature == finding.signature);
      });
      (known || full.size() == kMostFindings ? alike : full).push_back(&finding);
    }
    const bool name_them = run_.images.size() > 1 || result.findings.size() > 1;
    for (const Finding* finding : full) {
      if (name_them && finding->image.pid != 0) {
        out_ += fmt::format("<h5>{} in {}</h5>\n", badge(finding->outcome),
                            code(markup(finding_image(*finding))));
      }
      this->finding(*finding, result.requirement->why);
    }
    if (alike.empty()) return;
    out_ += "<p>Also:</p>\n<ul>\n";
    const std::size_t most = std::min(alike.size(), kMostOthers);
    for (const Finding* finding : std::span(alike).first(most)) {
      out_ += fmt::format("<li>{} in {}</li>\n", name_of(finding->outcome),
                          code(markup(finding_image(*finding))));
    }
    out_ += "</ul>\n";
    more(alike.size(), most, "image");
  }

  // `why` the requirement matters.
  void finding(const Finding& finding, std::string_view why) {
    out_ += "<dl class=\"fields\">\n";
    const bool na = finding.outcome == Outcome::kNa;
    std::string saw = quote(finding.saw, 2000);
    if (na) saw = fmt::format("{}: {}", to_string(finding.na_reason), saw);
    if (!finding.level.empty()) {
      saw += fmt::format(" <span class=\"muted\">(level {})</span>", quote(finding.level, 40));
    }
    entry(na ? "reason" : "saw", saw, is_problem(finding.outcome) ? "saw" : "");
    if (!finding.at.empty()) entry("at", code(quote(finding.at, 500)));
    if (!finding.remedy.empty()) {
      entry(finding.outcome == Outcome::kUnobservable ? "to see it" : "fix", quote(finding.remedy));
    }
    out_ += "</dl>\n";
    if (finding.evidence.empty() && finding.hexdumps.empty() && !finding.operation) return;
    if (is_full()) {
      paragraph("The evidence is left out because this page is too long; see result.json.");
      return;
    }
    if (finding.operation) {
      // After a semicolon there is a list; leave it out.
      std::string wrong = inert(finding.saw.substr(0, finding.saw.find(';')), kMostOfSaw);
      if (wrong.empty()) wrong = finding.signature;
      if (!why.empty()) wrong.append(wrong.empty() ? "" : ". ").append(why);
      out_ += operation_figure(*finding.operation, wrong);
    }
    evidence(finding);
    const std::size_t dumps = std::min(finding.hexdumps.size(), kMostPageDumps);
    for (const Hexdump& dump : std::span(finding.hexdumps).first(dumps)) hexdump(dump);
    more(finding.hexdumps.size(), dumps, "dump");
  }

  void evidence(const Finding& finding) {
    if (finding.evidence.empty()) return;
    out_ += "<pre class=\"lines\">";
    const std::size_t lines = std::min(finding.evidence.size(), kMostPageEvidence);
    for (const std::string& line : std::span(finding.evidence).first(lines)) {
      out_ += quote(line, 500) + "\n";
    }
    out_ += "</pre>\n";
    more(finding.evidence.size(), lines, "line");
  }

  void hexdump(const Hexdump& dump) {
    const std::string title = quote(or_else(dump.title, "memory of the program"), 200);
    out_ += "<figure>\n";
    if (dump.expected) comparison(*dump.expected, dump, title);
    out_ += fmt::format("<figcaption>{}</figcaption>\n", title);
    out_ += fmt::format("<pre tabindex=\"0\" role=\"region\" aria-label=\"{}\">", title);
    const std::size_t width = address_width(dump);
    const std::size_t size = dump.bytes.size();
    std::size_t next = 0;
    std::size_t shown = 0;
    for (const std::size_t row : rows_to_show(dump, kMostPageRows)) {
      if (row != next) out_ += "…\n";
      hexdump_row(dump, row * kRowBytes, width);
      next = row + 1;
      shown += std::min(kRowBytes, size - row * kRowBytes);
    }
    out_ += "</pre>\n";
    if (shown < size) paragraph(fmt::format("{} of {} bytes shown", shown, size));
    marks(dump);
    out_ += "</figure>\n";
  }

  // Adds `text(i)` for each of [from, to), with each run of marked ones as one element.
  template <class IsMarked, class Text>
  void marked_run(std::size_t from, std::size_t to, std::string_view between, IsMarked&& is_bad,
                  Text&& text) {
    bool inside = false;
    for (std::size_t i = from; i < to; ++i) {
      const bool bad = is_bad(i);
      if (inside && !bad) out_ += "</mark>";
      if (i != from) out_ += between;
      if (!inside && bad) out_ += "<mark>";
      out_ += text(i);
      inside = bad;
    }
    if (inside) out_ += "</mark>";
  }

  void hexdump_row(const Hexdump& dump, std::size_t from, std::size_t width) {
    const std::size_t to = std::min(from + kRowBytes, dump.bytes.size());
    const auto is_bad = [&dump](std::size_t i) { return is_marked(dump, i, i + 1); };
    out_ += fmt::format("<span class=\"addr\">{:0{}x}</span>  ", dump.address + from, width);
    const std::size_t half = std::min(from + kRowBytes / 2, to);
    const auto hex = [&dump](std::size_t i) { return fmt::format("{:02x}", dump.bytes[i]); };
    marked_run(from, half, " ", is_bad, hex);
    if (half < to) out_ += "  ";
    marked_run(half, to, " ", is_bad, hex);
    const std::size_t missing = kRowBytes - (to - from);
    out_.append(3 * missing + (half == to ? 1 : 0), ' ');
    out_ += "  |";
    marked_run(from, to, "", is_bad, [&dump](std::size_t i) {
      const std::uint8_t byte = dump.bytes[i];
      const char shown = byte >= 0x20 && byte < 0x7f ? static_cast<char>(byte) : '.';
      return markup(std::string_view(&shown, 1));
    });
    out_ += "|\n";
  }

  void marks(const Hexdump& dump) {
    std::string items;
    for (const Hexdump::Mark& mark : shown_marks(dump)) {
      const auto [low, high] = part_in(mark, 0, dump.bytes.size());
      if (low == high) continue;
      items += fmt::format("<li><mark>+{}, {}</mark> {}</li>\n", low, counted(high - low, "byte"),
                           quote(mark.label, 200));
    }
    if (!items.empty()) out_ += fmt::format("<ul>\n{}</ul>\n", items);
    more(dump.marks.size(), shown_marks(dump).size(), "mark");
  }

  void comparison(const Hexdump::Expected& expected, const Hexdump& dump, std::string_view title) {
    out_ += fmt::format(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}, field by field\">"
        "<table class=\"compare\">\n<caption>{}, field by field next to the golden vector {}; dots "
        "stand for bytes that depend on the program</caption>\n<thead><tr><th "
        "scope=\"col\">offset</th><th scope=\"col\">field of the vector</th><th "
        "scope=\"col\">vector</th><th scope=\"col\">found</th></tr></thead>\n<tbody>\n",
        title, title, code(quote(expected.vector, 200)));
    for (const golden::Annotation& field : fields_of(expected, kMostCompared)) {
      const std::size_t to = field.offset + field.length;
      const std::size_t have = std::min(to, dump.bytes.size());
      const auto is_bad = [&](std::size_t i) {
        return field.masked ? is_marked(dump, i, i + 1)
                            : i >= expected.bytes.size() || expected.bytes[i] != dump.bytes[i];
      };
      out_ += fmt::format(
          "<tr><td class=\"mono addr\">{:06x}</td><th scope=\"row\">{}</th><td class=\"mono "
          "want\">",
          field.offset, quote(field.text, 300));
      for (std::size_t i = field.offset; i < to; ++i) {
        out_ += i == field.offset ? "" : " ";
        out_ += field.masked ? ".." : fmt::format("{:02x}", expected.bytes[i]);
      }
      out_ += "</td><td class=\"mono have\">";
      if (field.offset < have) {
        marked_run(field.offset, have, " ", is_bad,
                   [&dump](std::size_t i) { return fmt::format("{:02x}", dump.bytes[i]); });
      }
      if (have < to) {
        out_ += field.offset < have ? " " : "";
        out_ += "<mark>(no more bytes)</mark>";
      }
      out_ += "</td></tr>\n";
    }
    out_ += "</tbody>\n</table></div>\n";
  }

  void operations() {
    if (run_.operations.empty()) return;
    out_ += "<section id=\"operations\" aria-labelledby=\"h-operations\">\n";
    out_ += "<h2 id=\"h-operations\">What this program did</h2>\n";
    paragraph(
        "Operations without a problem, as a concurrent reader could "
        "have seen them.");
    const std::size_t most = std::min(run_.operations.size(), kMostOperations);
    for (const OperationSummary& operation : std::span(run_.operations).first(most)) {
      if (is_full()) break;
      out_ += fmt::format("<h3>{}</h3>\n", code(quote(operation.image_name, 300)));
      out_ += operation_figure(operation.picture, {});
    }
    out_ += "</section>\n";
  }

  void faults() {
    const auto lines = fault_matrix_lines(run_.faults);
    if (lines.empty()) return;
    out_ += "<section id=\"faults\" aria-labelledby=\"h-faults\">\n";
    out_ += fmt::format("<h2 id=\"h-faults\">Faults <span class=\"counts\">{}</span></h2>\n",
                        counted(run_.faults.size(), "fault"));
    out_ += "<pre tabindex=\"0\" role=\"region\" aria-label=\"Fault matrix\">";
    for (const auto& line : lines) out_ += markup(line) + "\n";
    out_ += "</pre>\n</section>\n";
  }

  void images() {
    const bool files = is_about_files(run_);
    out_ += "<section id=\"images\" aria-labelledby=\"h-images\">\n";
    out_ += fmt::format("<h2 id=\"h-images\">{} <span class=\"counts\">{}</span></h2>\n",
                        files ? "Files" : "Processes",
                        counted(run_.images.size(), files ? "file" : "image"));
    if (run_.images.empty()) paragraph("None was seen.");
    out_ += "<ul class=\"list\">\n";
    std::size_t shown = 0;
    for (const bool published : {true, false}) {
      for (const ImageSummary& image : run_.images) {
        if (image.published != published || shown == kMostPageItems) continue;
        this->image(image, files);
        ++shown;
      }
    }
    out_ += "</ul>\n";
    more(run_.images.size(), shown, files ? "file" : "image");
    out_ += "</section>\n";
  }

  void image(const ImageSummary& image, bool file) {
    out_ += "<li>";
    if (file) {
      out_ += code(quote(image.executable, 300));
    } else {
      if (!is_about_readers(run_)) {
        out_ +=
            fmt::format("<span class=\"badge {}\">{}</span> ", image.published ? "o-pass" : "plain",
                        image.published ? "PUBLISHED" : "NOTHING PUBLISHED");
      }
      out_ += code(markup(image_label(image)));
      if (image.published) {
        out_ += fmt::format("<br>a reader sees <strong>{}</strong>",
                            or_else(quote(image.context), "nothing"));
      }
      out_ += fmt::format("<br><span class=\"muted\">{}{}{}, child of {}{}{}</span>",
                          quote(image.ending, 200), image.ending.empty() ? "" : ", ",
                          counted(image.snapshots, "snapshot"), image.parent,
                          image.libc.empty() ? "" : ", ", markup(libc_label(image.libc)));
    }
    if (!image.command_line.empty() && !is_full()) {
      out_ += fmt::format("<br>{}", code(command(command_of(image))));
    }
    if (!image.notes.empty()) {
      const std::size_t notes = std::min(image.notes.size(), kMostPageNotes);
      out_ += "<ul>\n";
      for (const std::string& note : std::span(image.notes).first(notes)) {
        out_ += fmt::format("<li>{}</li>\n", quote(note));
      }
      out_ += "</ul>\n";
    }
    out_ += "</li>\n";
  }

  void environment() {
    out_ += "<section id=\"environment\" aria-labelledby=\"h-environment\">\n";
    out_ += "<h2 id=\"h-environment\">Environment</h2>\n<dl class=\"fields wide\">\n";
    entry("ctxconf", fmt::format("{} ({})", or_else(quote(run_.suite_version, 100), "unknown"),
                                 or_else(quote(run_.suite_commit, 100), "no commit")));
    entry("requirements", markup(spec_label(run_.spec)));
    entry("numbered steps", markup(reading_label(run_.reading)));
    entry("command", code(command(inert(shell_command(run_.command_line), kTextLimit))));
    entry("program", code(command(inert(shell_command(run_.target), kTextLimit))));
    if (run_.target_ending) {
      entry("its own ending", quote(*run_.target_ending, 200) + " (reported, not judged)");
    }
    for (std::size_t i = 0; i < std::min(run_.injections.size(), kMostPageNotes); ++i) {
      entry("injected", code(quote(run_.injections[i])));
    }
    entry("kernel", quote(run_.kernel));
    entry("architecture", quote(run_.arch));
    if (!run_.libc.empty()) entry("C library of the program", markup(libc_label(run_.libc)));
    entry("C library of ctxconf", quote(run_.suite_libc));
    if (!run_.trace_path.empty()) entry("recording", code(quote(run_.trace_path)));
    out_ += "</dl>\n";
    if (!run_.host.empty()) {
      out_ +=
          "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"What this host "
          "allows\"><table>\n<caption>What this host allows</caption>\n<thead><tr><th "
          "scope=\"col\">fact</th><th scope=\"col\">here</th><th scope=\"col\">detail</th><th "
          "scope=\"col\">to get it</th></tr></thead>\n<tbody>\n";
      const std::size_t facts = std::min(run_.host.size(), kMostPageItems);
      for (const sys::HostFact& fact : std::span(run_.host).first(facts)) {
        out_ += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                            quote(fact.name, 100), fact.available ? "yes" : "<strong>no</strong>",
                            quote(fact.detail), fact.available ? "" : quote(fact.remedy));
      }
      out_ += "</tbody>\n</table></div>\n";
    }
    out_ += "</section>\n";
  }

  const RunResult& run_;
  std::string out_;
};

}  // namespace

std::string to_html(const RunResult& run) { return HtmlPage(run).write(); }

}  // namespace ctxconf::conformance
