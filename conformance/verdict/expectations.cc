#include "conformance/verdict/expectations.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "conformance/text/ascii.h"

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kFirstLine = "# ctxconf-expect 1";
constexpr std::string_view kVerbs[] = {"fail", "crash", "flaky", "na-ok"};
constexpr std::string_view kJudged = "judged";
constexpr std::string_view kKeys[] = {"issue", "until", "saw", "reason", "image"};
constexpr std::size_t kMaxLine = 4096;
constexpr std::size_t kMaxPattern = 100;
constexpr std::size_t kMaxQuoted = 120;
constexpr std::size_t kMaxValue = 200;
constexpr int kMaxSuggestions = 64;  // of one file; each compares the pattern with every id

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Quotes text for a message, on one short line.
std::string short_quote(std::string_view s) {
  std::string out = "\"";
  for (const char c : s.substr(0, kMaxQuoted)) out += is_control(c) ? '?' : c;
  return out + (s.size() > kMaxQuoted ? "...\"" : "\"");
}

std::string for_shell(std::string_view word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./+:@,").find(c) != std::string_view::npos;
  };
  if (!word.empty() && word.front() != '-' && std::ranges::all_of(word, plain)) {
    return std::string(word);
  }
  return single_quoted(word);
}

std::string edit(std::string_view file, int line, std::string_view what) {
  return "${EDITOR:-vi} +" + std::to_string(line) + " " + for_shell(file) + "  # " +
         std::string(what);
}

// These commands do not change line numbers, so that several of them can follow each other.
std::string sed(std::string_view file, const std::string& script, std::string_view what = "") {
  return "sed -E -i " + for_shell(script) + " " + for_shell(file) +
         (what.empty() ? "" : "  # " + std::string(what));
}

// Escapes text for the right side of sed's s///.
std::string for_sed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '/' || c == '&') out += '\\';
    out += c;
  }
  return out;
}

std::string date_text(Date d) {
  const auto two = [](unsigned n) { return (n < 10 ? "-0" : "-") + std::to_string(n); };
  std::string year = std::to_string(static_cast<int>(d.year()));
  if (year.size() < 4) year.insert(0, 4 - year.size(), '0');
  return year + two(static_cast<unsigned>(d.month())) + two(static_cast<unsigned>(d.day()));
}

std::optional<Date> date_from(std::string_view s) {
  if (s.size() != 10 || s[4] != '-' || s[7] != '-') return std::nullopt;
  std::array<unsigned, 10> digits{};
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (i == 4 || i == 7) continue;
    if (s[i] < '0' || s[i] > '9') return std::nullopt;
    digits[i] = static_cast<unsigned>(s[i] - '0');
  }
  const unsigned y = digits[0] * 1000 + digits[1] * 100 + digits[2] * 10 + digits[3];
  const Date d{std::chrono::year(static_cast<int>(y)),
               std::chrono::month(digits[5] * 10 + digits[6]),
               std::chrono::day(digits[8] * 10 + digits[9])};
  if (!d.ok()) return std::nullopt;
  return d;
}

bool is_failure(Outcome o) {
  return o == Outcome::kFail || o == Outcome::kTimeout || o == Outcome::kCrash;
}
bool is_broken(Outcome o) { return o == Outcome::kWarn || is_failure(o); }

bool is_placeholder(std::string_view issue) {
  return std::ranges::equal(issue, kIssuePlaceholder,
                            [](char a, char b) { return (a & ~0x20) == b; });
}

// Splits one line into words; `problem` stays empty when it is well formed.
struct Words {
  std::vector<std::pair<std::string, std::string>> keys;  // after verb and pattern
  std::string verb;
  std::string pattern;
  std::string problem;
};

// Reads a value with or without quotes; `rest` then starts after it.
std::string take_value(std::string_view& rest, const std::string& key, std::string& problem) {
  std::string value;
  if (rest.empty() || rest.front() != '"') {
    while (!rest.empty() && !is_blank(rest.front())) {
      if (rest.front() == '"') problem = "a quote inside the value of " + key + "; quote all of it";
      value += rest.front();
      rest.remove_prefix(1);
    }
    return value;
  }
  rest.remove_prefix(1);
  while (!rest.empty() && rest.front() != '"') {
    if (rest.front() == '\\') {
      rest.remove_prefix(1);
      if (rest.empty() || (rest.front() != '"' && rest.front() != '\\')) {
        problem = "in the value of " + key + " a backslash must be followed by \" or \\";
        return value;
      }
    }
    value += rest.front();
    rest.remove_prefix(1);
  }
  if (rest.empty()) {
    problem = "the value of " + key + " has no closing quote";
    return value;
  }
  rest.remove_prefix(1);
  if (!rest.empty() && !is_blank(rest.front())) {
    problem = "a blank is missing after the value of " + key;
  }
  return value;
}

Words split(std::string_view rest) {
  Words words;
  const auto word = [&] {
    rest = trimmed(rest);
    const std::size_t end = std::min(rest.find_first_of(" \t"), rest.size());
    const std::string_view w = rest.substr(0, end);
    rest.remove_prefix(end);
    return std::string(w);
  };
  words.verb = word();
  words.pattern = word();
  while (words.problem.empty()) {
    rest = trimmed(rest);
    if (rest.empty() || rest.front() == '#') return words;
    const std::size_t equals = rest.find_first_of("= \t");
    if (equals == rest.npos || rest[equals] != '=') {
      words.problem =
          short_quote(rest.substr(0, std::min(equals, rest.size()))) + " is not KEY=VALUE";
      return words;
    }
    const std::string key(rest.substr(0, equals));
    rest.remove_prefix(equals + 1);
    std::string value = take_value(rest, key, words.problem);
    if (words.problem.empty() && trimmed(value).empty()) {
      words.problem = "the value of " + short_quote(key) + " is empty";
    }
    words.keys.emplace_back(key, std::move(value));
  }
  return words;
}

class Parser {
 public:
  Parser(std::string_view file, const Catalogue& catalogue) : catalogue_(catalogue) {
    out_.file = file;
  }

  Expectations parse(std::string_view text) {
    if (text.size() > kMaxExpectationBytes) {
      problem(0, 2, "the file is larger than 1 MiB", "ls -l " + for_shell(out_.file));
      return std::move(out_);
    }
    int number = 0;
    while (number == 0 || !text.empty()) {
      ++number;
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (number == 1) {
        if (trimmed(line) != kFirstLine) {
          const std::string first(kFirstLine);
          // sed cannot insert into an empty file.
          const bool empty = line.empty() && text.empty();
          problem(1, 2, "the first line is not `" + first + "`",
                  empty ? "echo '" + first + "' > " + for_shell(out_.file)
                        : "sed -i '1i " + first + "' " + for_shell(out_.file));
          return std::move(out_);
        }
        continue;
      }
      if (number > kMaxExpectationLines) {
        problem(number, 2, "more than " + std::to_string(kMaxExpectationLines) + " lines",
                edit(out_.file, number, "remove lines"));
        break;
      }
      one_line(number, line);
    }
    find_conflicts();
    return std::move(out_);
  }

 private:
  void problem(int line, int code, std::string text, std::string mend) {
    out_.problems.push_back({line, code, std::move(text), std::move(mend)});
  }

  void one_line(int number, std::string_view line) {
    const auto syntax = [&](const std::string& text) {
      problem(number, 2, text, edit(out_.file, number, "VERB PATTERN KEY=VALUE..."));
    };
    if (line.size() > kMaxLine) {
      return syntax("the line is longer than " + std::to_string(kMaxLine) + " bytes");
    }
    if (std::ranges::any_of(line, [](char c) { return is_control(c) && c != '\t'; })) {
      return syntax("the line has a control character");
    }
    line = trimmed(line);
    if (line.empty() || line.front() == '#') return;
    const Words words = split(line);
    Expectation e;
    e.line = number;
    const bool is_judged = words.verb == kJudged;
    const auto* verb = std::ranges::find(kVerbs, words.verb);
    if (verb == std::end(kVerbs) && !is_judged) {
      return syntax(short_quote(words.verb) + " is not fail, crash, flaky, na-ok or judged");
    }
    if (!is_judged) e.verb = static_cast<ExpectVerb>(verb - kVerbs);
    e.pattern = words.pattern;
    if (e.pattern.empty() || e.pattern.front() == '#' || e.pattern.find('=') != e.pattern.npos) {
      return syntax(words.verb + " needs the id of a requirement");
    }
    if (e.pattern.size() > kMaxPattern) return syntax("the pattern is too long for any id");
    if (!words.problem.empty()) return syntax(words.problem);
    if (is_judged) {
      if (!words.keys.empty()) return syntax("judged takes no KEY=VALUE");
      return judged_line(number, e.pattern);
    }
    std::set<std::string> seen;
    for (const auto& [key, value] : words.keys) {
      if (std::ranges::find(kKeys, key) == std::end(kKeys)) {
        return syntax(short_quote(key) + " is not issue, until, saw, reason or image");
      }
      if (!seen.insert(key).second) return syntax(key + " is given twice");
      if (key == "until") {
        e.until = date_from(value);
        if (!e.until) return syntax("until=" + short_quote(value) + " is not a day as YYYY-MM-DD");
      } else if (key == "issue") {
        if (!is_placeholder(value)) e.issue = value;
      } else if (key == "saw") {
        e.saw = trimmed(value);
      } else if (key == "reason") {
        e.reason = value;
      } else {
        e.image = value;
      }
    }
    meaning(std::move(e));
  }

  void meaning(Expectation e) {
    const std::string verb(to_string(e.verb));
    const bool na_ok = e.verb == ExpectVerb::kNaOk;
    if (!na_ok && e.pattern.find_first_of("*?") != e.pattern.npos) {
      return problem(e.line, 2, verb + " " + e.pattern + ": only na-ok takes a pattern",
                     edit(out_.file, e.line, "name each requirement on a line of its own"));
    }
    if (na_ok && e.saw) {
      return problem(e.line, 2, "na-ok does not take saw",
                     edit(out_.file, e.line, "remove saw=..."));
    }
    const bool known =
        na_ok ? catalogue_.has_match(e.pattern) : catalogue_.find(e.pattern) != nullptr;
    if (!known) return unknown(e.line, e.pattern);
    if (na_ok ? !e.reason : !e.issue) {
      out_.unexplained.push_back(
          {e.line, 2, verb + " " + e.pattern + (na_ok ? " has no reason" : " has no issue"),
           edit(out_.file, e.line, na_ok ? "reason=\"...\"" : "issue=URL")});
    }
    out_.lines.push_back(std::move(e));
  }

  void unknown(int line, const std::string& pattern) {
    const std::string near =
        ++unknown_ > kMaxSuggestions ? std::string() : catalogue_.nearest(pattern);
    // Other characters have a meaning in sed or the shell.
    const bool plain =
        pattern.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") == pattern.npos;
    problem(line, 5,
            "no requirement is called " + short_quote(pattern) +
                (near.empty() ? "" : "; did you mean " + near + "?"),
            near.empty() || !plain
                ? comment_out(out_.file, line)
                : sed(out_.file, std::to_string(line) + "s/" + pattern + "/" + near + "/"));
  }

  void judged_line(int line, const std::string& pattern) {
    const auto twice = std::ranges::find(out_.judged, pattern, &JudgedLine::pattern);
    if (twice != out_.judged.end()) {
      return problem(line, 2, "judged " + pattern + " repeats line " + std::to_string(twice->line),
                     comment_out(out_.file, line));
    }
    if (!catalogue_.has_match(pattern)) return unknown(line, pattern);
    out_.judged.push_back({line, pattern});
  }

  // Two lines must not name the same requirement in the same image. Patterns of na-ok may overlap,
  // because they excuse nothing.
  void find_conflicts() {
    std::map<std::pair<std::string, std::string>, const Expectation*> patterns;
    std::map<std::string, std::vector<const Expectation*>, std::less<>> by_id;
    std::vector<const Expectation*> na_ok;
    for (const Expectation& e : out_.lines) {
      if (e.verb != ExpectVerb::kNaOk) {
        by_id[e.pattern].push_back(&e);
        continue;
      }
      na_ok.push_back(&e);
      const auto [first, fresh] = patterns.emplace(std::pair(e.pattern, e.image.value_or("")), &e);
      if (!fresh) conflict(*first->second, e);
    }
    for (auto& [id, lines] : by_id) {
      std::map<std::string, const Expectation*, std::less<>> images;
      const Expectation* everywhere = nullptr;
      const auto clash = [&](const Expectation& e) -> const Expectation* {
        if (everywhere != nullptr) return everywhere;
        if (!e.image) return images.empty() ? nullptr : images.begin()->second;
        const auto at = images.find(*e.image);
        return at == images.end() ? nullptr : at->second;
      };
      for (const Expectation* e : lines) {
        if (const Expectation* other = clash(*e); other != nullptr) {
          conflict(*other, *e);
          continue;
        }
        if (e->image) {
          images.emplace(*e->image, e);
        } else {
          everywhere = e;
        }
      }
      for (const Expectation* e : na_ok) {
        if (!e->names(id)) continue;
        if (const Expectation* other = clash(*e); other != nullptr) conflict(*other, *e);
      }
    }
  }

  void conflict(const Expectation& a, const Expectation& b) {
    const Expectation& first = a.line < b.line ? a : b;
    const Expectation& second = a.line < b.line ? b : a;
    problem(second.line, 2,
            std::string(to_string(second.verb)) + " " + second.pattern +
                (first.verb == second.verb ? " repeats line " : " contradicts line ") +
                std::to_string(first.line) + " (" + std::string(to_string(first.verb)) + " " +
                first.pattern + ")",
            comment_out(out_.file, second.line, "or give each its image=GLOB"));
  }

  Expectations out_;
  const Catalogue& catalogue_;
  int unknown_ = 0;  // patterns that match no id
};

bool matches(const Expectation& e, const Observed& o) {
  switch (e.verb) {
    case ExpectVerb::kNaOk:
      return o.outcome == Outcome::kNa;
    case ExpectVerb::kCrash:
      if (o.outcome != Outcome::kCrash && o.outcome != Outcome::kTimeout) return false;
      break;
    case ExpectVerb::kFail:
    case ExpectVerb::kFlaky:
      if (o.outcome != Outcome::kFail && o.outcome != Outcome::kWarn) return false;
      break;
  }
  return !e.saw || glob_matches(*e.saw, trimmed(o.signature));
}

Fate fate_of_one(const Expectation& e, const Observed& o) {
  if (o.outcome == Outcome::kHarnessError) return Fate::kHarnessError;
  if (matches(e, o)) return Fate::kHolds;
  if (o.outcome == Outcome::kUnobservable) return Fate::kUnobservable;
  if (o.outcome == Outcome::kNa) return Fate::kNotApplicable;
  if (e.verb == ExpectVerb::kNaOk) return Fate::kPassed;
  if (is_broken(o.outcome)) return Fate::kDiffers;
  return e.verb == ExpectVerb::kFlaky ? Fate::kHolds : Fate::kPassed;
}

std::string note_of(const Expectation& e) {
  std::string note;
  const auto add = [&](const char* key, const std::string& value) {
    note += (note.empty() ? "" : " ") + std::string(key) + value;
  };
  if (e.issue) add("issue=", *e.issue);
  if (e.until) add("until=", date_text(*e.until));
  if (e.reason) add("reason=", *e.reason);
  return note;
}

std::string in_image(const Observed& o) {
  return o.image.empty() ? "" : " in " + short_quote(o.image);
}

// `ctxconf expect prune` or `update`, with the results of the run.
std::string from_result(const ApplyOptions& options, std::string_view action,
                        std::string_view file) {
  return for_shell(options.program) + " expect " + std::string(action) + " " + for_shell(file) +
         " --from " + for_shell(options.result.value_or(""));
}

// The edit that adapts a line to the way in which all of `all` failed.
std::string accept(const Expectation& e, std::span<const Observed> all, const std::string& file) {
  bool died = false;
  bool failed = false;
  std::set<std::string_view> signatures;
  for (const Observed& o : all) {
    if (!e.names(o.id) || !e.covers_image(o.image) || !is_broken(o.outcome)) continue;
    const bool dies = o.outcome == Outcome::kCrash || o.outcome == Outcome::kTimeout;
    (dies ? died : failed) = true;
    signatures.insert(trimmed(o.signature));
  }
  if (died && failed) return edit(file, e.line, "one image=GLOB for each way to fail");
  const std::string line = std::to_string(e.line);
  const ExpectVerb verb = died ? ExpectVerb::kCrash : ExpectVerb::kFail;
  std::string script;
  if (died != (e.verb == ExpectVerb::kCrash)) {
    script =
        line + "s/" + std::string(to_string(e.verb)) + "/" + std::string(to_string(verb)) + "/";
  }
  if (e.saw) {
    script += (script.empty() ? "" : ";") + line + R"(s/[ \t]saw=("(\\.|[^"\\])*"|[^" \t]+)/)";
    // Several signatures have no common text to compare with.
    if (signatures.size() == 1 && !signatures.begin()->empty()) {
      script += " saw=" + for_sed(quoted_glob(*signatures.begin()));
    }
    script += "/";
  }
  return sed(file, script, "if this failure is also known");
}

// The problem of a line with fate `f`, if there is one.
std::optional<ExpectationProblem> problem_of(const Expectation& e, const LineFate& f,
                                             std::span<const Observed> all,
                                             const ApplyOptions& options, const std::string& file) {
  const std::string listed = std::string(to_string(e.verb)) + " " + e.pattern;
  const bool required = any_glob_matches(options.require_observable, e.pattern);
  const int unseen = required && !options.partial ? 4 : 0;
  switch (f.fate) {
    case Fate::kNotRun:
    case Fate::kHolds:
    case Fate::kHarnessError:
      return std::nullopt;
    case Fate::kNoImage:
      return ExpectationProblem{
          e.line, unseen, listed + ": no image that matches " + short_quote(*e.image) + " was seen",
          options.partial ? "" : edit(file, e.line, "fix image=GLOB, or remove the line")};
    case Fate::kUnobservable:
      return ExpectationProblem{e.line, unseen, listed + ": could not be observed in this run",
                                options.partial ? ""
                                                : for_shell(options.program) +
                                                      " doctor  # what would make it observable"};
    case Fate::kNotApplicable:
      return ExpectationProblem{
          e.line, 0, listed + ": does not apply to this run",
          options.partial ? "" : edit(file, e.line, "remove the line if it never applies")};
    case Fate::kPassed:
      if (options.partial) {
        return ExpectationProblem{e.line, 0, listed + ": not seen, and the run is incomplete", ""};
      }
      return ExpectationProblem{
          e.line, 5,
          listed +
              (e.verb == ExpectVerb::kNaOk ? ": applies now, it ended as "
                                           : ": does not fail any more, it ended as ") +
              std::string(to_string(f.because->outcome)) + in_image(*f.because),
          comment_out(file, e.line)};
    case Fate::kDiffers:
      break;
  }
  const Observed& o = *f.because;
  const bool fails = is_failure(o.outcome) || options.strict;
  const int code = fails ? 1 : (options.partial ? 0 : 5);
  const std::string mend = code == 0 ? "" : accept(e, all, file);
  std::string text = listed + ": ended as " + std::string(to_string(o.outcome)) + in_image(o);
  const bool died = o.outcome == Outcome::kCrash || o.outcome == Outcome::kTimeout;
  if (died != (e.verb == ExpectVerb::kCrash)) {
    return ExpectationProblem{e.line, code, text, mend};
  }
  text += " with " + short_quote(trimmed(o.signature)) + ", listed is " + short_quote(*e.saw);
  return ExpectationProblem{e.line, code, text, mend};
}

// What the lines say about one result. All of `lines` name it.
void judge_result(std::span<const Expectation* const> lines, const ApplyOptions& options,
                  const std::string& file, RequirementResult& result,
                  std::vector<ExpectationProblem>& problems) {
  const std::vector<Observed> all = observed(result);
  bool failed = false;
  bool excused = true;
  bool na = false;
  for (const Observed& o : all) {
    const Expectation* by = nullptr;
    for (const Expectation* e : lines) {
      if (e->covers_image(o.image)) {
        if (by == nullptr || matches(*e, o)) by = e;
      }
    }
    if (by != nullptr && result.expectation_note.empty()) result.expectation_note = note_of(*by);
    na = na || (o.outcome == Outcome::kNa && by != nullptr && by->verb == ExpectVerb::kNaOk);
    if (!is_broken(o.outcome)) continue;
    failed = true;
    const bool known = by != nullptr && by->verb != ExpectVerb::kNaOk && matches(*by, o);
    excused = excused && known;
    const auto listed = std::ranges::find_if(
        lines, [](const Expectation* e) { return e->verb != ExpectVerb::kNaOk; });
    if (by != nullptr || listed == lines.end()) continue;
    if (!is_failure(o.outcome) && !options.strict) continue;
    problems.push_back({(*listed)->line, 1,
                        std::string(to_string((*listed)->verb)) + " " + (*listed)->pattern +
                            ": listed for other images, but it also ended as " +
                            std::string(to_string(o.outcome)) + in_image(o),
                        options.result ? from_result(options, "update", file)
                                       : edit(file, (*listed)->line, "add a line for that image")});
  }
  if (failed) {
    result.expected = excused ? Expected::kAsExpected : Expected::kUnexpected;
    return;
  }
  if (na && result.outcome == Outcome::kNa) {
    result.expected = Expected::kAsExpected;
    return;
  }
  for (const Expectation* e : lines) {
    // A pattern of na-ok is judged over all requirements that it matches.
    if (options.partial || e->pattern != result.requirement->id) continue;
    if (fate_of(*e, all).fate == Fate::kPassed) result.expected = Expected::kUnexpected;
  }
}

}  // namespace

std::string comment_out(std::string_view file, int line, std::string_view what) {
  return sed(file, std::to_string(line) + "s/^/# /", what);
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

std::string_view to_string(ExpectVerb v) { return kVerbs[static_cast<std::size_t>(v)]; }

const JudgedLine* Expectations::judged_line(std::string_view id) const {
  const auto line = std::ranges::find_if(
      judged, [&](const JudgedLine& l) { return glob_matches(l.pattern, id); });
  return line == judged.end() ? nullptr : &*line;
}

bool Expectation::names(std::string_view id) const {
  return verb == ExpectVerb::kNaOk ? glob_matches(pattern, id) : pattern == id;
}

bool Expectation::covers_image(std::string_view image_name) const {
  return !image || glob_matches(*image, image_name);
}

const ExpectationProblem* Expectations::usage_error() const {
  const auto at = std::ranges::find(problems, 2, &ExpectationProblem::exit_code);
  if (at != problems.end()) return &*at;
  return unexplained.empty() ? nullptr : &unexplained.front();
}

Expectations parse_expectations(std::string_view text, std::string_view file,
                                const Catalogue& catalogue) {
  return Parser(file, catalogue).parse(text);
}

std::vector<ExpectationProblem> expired(const Expectations& expectations, Date today) {
  std::vector<ExpectationProblem> problems;
  for (const Expectation& e : expectations.lines) {
    if (!e.until || *e.until >= today) continue;
    problems.push_back({e.line, 5,
                        std::string(to_string(e.verb)) + " " + e.pattern + ": expired after " +
                            date_text(*e.until),
                        edit(expectations.file, e.line, "a later until=, or remove the line")});
  }
  return problems;
}

std::string quoted_glob(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxValue)) {
    if (c == '"' || c == '\\') out += '\\';
    out += is_control(c) ? '?' : c;
  }
  return out + (text.size() > kMaxValue ? "*\"" : "\"");
}

std::vector<Observed> observed(const RequirementResult& result) {
  std::vector<Observed> all;
  all.reserve(result.findings.size());
  for (const Finding& f : result.findings) {
    all.push_back({result.requirement->id, f.image_name, f.outcome, f.signature});
  }
  if (all.empty()) all.push_back({result.requirement->id, "", result.outcome, ""});
  return all;
}

std::vector<Observed> observed(const RunResult& run) {
  std::vector<Observed> all;
  for (const RequirementResult& r : run.results) {
    for (Observed& o : observed(r)) all.push_back(std::move(o));
  }
  return all;
}

namespace {

// Whether the line names requirements that were not selected; it may hold for these.
bool names_others(const Expectation& line, std::span<const Observed> all) {
  if (line.pattern.find_first_of("*?") == line.pattern.npos) return false;
  const auto selectable = select(Catalogue::builtin(), {});
  return selectable && std::ranges::any_of(*selectable, [&](const Requirement* r) {
           return line.names(r->id) && std::ranges::find(all, r->id, &Observed::id) == all.end();
         });
}

}  // namespace

LineFate fate_of(const Expectation& line, std::span<const Observed> all) {
  std::array<const Observed*, static_cast<std::size_t>(Fate::kHarnessError) + 1> first{};
  bool run = false;
  bool passed = false;
  for (const Observed& o : all) {
    if (!line.names(o.id)) continue;
    run = true;
    if (!line.covers_image(o.image)) continue;
    const Fate fate = fate_of_one(line, o);
    auto& at = first[static_cast<std::size_t>(fate)];
    if (at == nullptr) at = &o;
    passed = passed || fate == Fate::kPassed;
  }
  // The most important fate first. For a failure, unobservable comes early: it may still fail
  // there.
  for (const Fate fate : {Fate::kDiffers, Fate::kHolds, Fate::kHarnessError, Fate::kUnobservable,
                          Fate::kPassed, Fate::kNotApplicable}) {
    if (line.verb == ExpectVerb::kNaOk && fate == Fate::kUnobservable && passed) continue;
    const Observed* o = first[static_cast<std::size_t>(fate)];
    if (o == nullptr) continue;
    if (fate == Fate::kPassed && names_others(line, all)) return {};
    return {fate, o};
  }
  return {run ? Fate::kNoImage : Fate::kNotRun, nullptr};
}

void apply(const Expectations& expectations, Date today, const ApplyOptions& options,
           RunResult& run) {
  std::vector<ExpectationProblem>& problems = run.expectation_problems;
  problems.insert(problems.end(), expectations.problems.begin(), expectations.problems.end());
  problems.insert(problems.end(), expectations.unexplained.begin(), expectations.unexplained.end());
  for (ExpectationProblem& p : expired(expectations, today)) problems.push_back(std::move(p));
  const std::vector<Observed> all = observed(run);
  bool is_gone = false;
  for (const Expectation& e : expectations.lines) {
    const LineFate fate = fate_of(e, all);
    is_gone = is_gone || fate.fate == Fate::kPassed;
    if (auto p = problem_of(e, fate, all, options, expectations.file)) {
      problems.push_back(*std::move(p));
    }
  }
  // This command moves lines, so it must come last.
  if (is_gone && !options.partial && options.result) {
    run.notes.push_back("finally, remove all lines that no longer hold: " +
                        from_result(options, "prune", expectations.file));
  }
  for (RequirementResult& result : run.results) {
    std::vector<const Expectation*> lines;
    for (const Expectation& e : expectations.lines) {
      if (e.names(result.requirement->id)) lines.push_back(&e);
    }
    if (!lines.empty()) judge_result(lines, options, expectations.file, result, problems);
  }
}

}  // namespace ctxconf::conformance
