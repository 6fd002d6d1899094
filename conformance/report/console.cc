#include "conformance/report/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "conformance/report/escape.h"
#include "conformance/report/fault_table.h"
#include "conformance/report/wording.h"
#include "conformance/text/counts.h"
#include "conformance/verdict/exit_code.h"
#include "golden/hexdump.h"

namespace ctxconf::conformance {
namespace {

enum class Style { kPlain, kGood, kBad, kWarning, kNote, kDim, kStrong };
constexpr std::array<std::string_view, 7> kSgr = {"", "32", "1;31", "33", "36", "2", "1"};

constexpr std::array kProblemOrder = {Outcome::kCrash, Outcome::kTimeout, Outcome::kHarnessError,
                                      Outcome::kFail,  Outcome::kWarn,    Outcome::kInfo};

constexpr std::string_view kIndent = "         ";  // below the text of a field
constexpr std::size_t kMostNotes = 20;

// How much of a list each verbosity prints.
using Caps = std::array<std::size_t, 3>;
constexpr Caps kEvidenceLines = {8, 40, 400};
constexpr Caps kDumpRows = {8, 32, 256};
constexpr Caps kDumps = {2, 8, 32};
constexpr Caps kComparisonLines = {24, 48, 512};
constexpr Caps kImages = {20, 200, 2000};
constexpr Caps kOtherImages = {4, 40, 400};
constexpr Caps kExpectationProblems = {50, 200, 1000};
constexpr Caps kReasons = {12, 100, 1000};

Style style_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return Style::kGood;
    case Outcome::kNa:
    case Outcome::kUnobservable:
      return Style::kDim;
    case Outcome::kInfo:
      return Style::kNote;
    case Outcome::kWarn:
      return Style::kWarning;
    default:
      return Style::kBad;
  }
}

class Page {
 public:
  explicit Page(const ConsoleOptions& options)
      : verbosity_(static_cast<std::size_t>(std::clamp(options.verbosity, 0, 2))),
        quiet_(options.quiet),
        coloured_(options.colour == Colour::kAlways ||
                  (options.colour == Colour::kAuto && options.is_terminal)),
        width_(options.width) {}

  std::string take() && { return std::move(out_); }

  void report(const RunResult& run);
  void finding_block(const RunResult& run, const RequirementResult& result, const Finding* finding,
                     bool in_full);

 private:
  std::string paint(Style style, std::string_view text) const {
    if (!coloured_ || style == Style::kPlain) return std::string(text);
    return fmt::format("\x1b[{}m{}\x1b[0m", kSgr[static_cast<std::size_t>(style)], text);
  }
  std::size_t cap(const Caps& caps) const { return caps[verbosity_]; }

  void line(std::string_view text) {
    out_ += text;
    out_ += '\n';
  }
  // Prints a label and its text; prose is wrapped below itself.
  void field(std::string_view label, std::string_view text) {
    out_ += paint(Style::kDim, fmt::format("  {:<6}", label));
    out_ += ' ';
    std::string_view rest = text;
    bool first = true;
    do {
      const auto [head, tail] = wrap(rest, width_ > kIndent.size() ? width_ - kIndent.size() : 0);
      if (!first) out_ += kIndent;
      line(head);
      rest = tail;
      first = false;
    } while (!rest.empty());
  }
  void verbatim(std::string_view label, std::string_view text) {
    line(paint(Style::kDim, fmt::format("  {:<6}", label)) + " " + std::string(text));
  }

  // The longest start of `text` that fits and ends at a space, and the rest.
  static std::pair<std::string_view, std::string_view> wrap(std::string_view text,
                                                            std::size_t width) {
    if (width == 0 || display_width(text) <= width) return {text, {}};
    std::size_t cut = std::string_view::npos;
    std::size_t column = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if ((static_cast<unsigned char>(text[i]) & 0xc0) == 0x80) continue;
      if (text[i] == ' ' && i > 0) cut = i;
      if (++column > width && cut != std::string_view::npos) break;
    }
    if (cut == std::string_view::npos) return {text, {}};
    const std::size_t next = text.find_first_not_of(' ', cut);
    return {text.substr(0, text.find_last_not_of(' ', cut) + 1),
            next == std::string_view::npos ? std::string_view() : text.substr(next)};
  }

  void headline(const RunResult& run);
  void host(const RunResult& run);
  void files(const RunResult& run);
  void images(const RunResult& run);
  void faults(const RunResult& run);
  void problems(const RunResult& run);
  void expected(const RunResult& run);
  void expectations(const RunResult& run);
  void below_floor(const RunResult& run);
  void not_judged(const RunResult& run, Outcome outcome);
  void passed(const RunResult& run);
  void summary(const RunResult& run);
  void other_findings(const RequirementResult& result);
  void hexdump(const Hexdump& dump);
  void hexdump_row(const Hexdump& dump, std::size_t from, std::size_t address_width);
  void comparison(const Hexdump& dump);

  std::string out_;
  std::size_t verbosity_;
  bool quiet_;
  bool coloured_;
  std::size_t width_;
};

void Page::headline(const RunResult& run) {
  std::string text = "ctxconf " + inert(or_else(run.suite_version, "(unknown version)"));
  if (!run.suite_commit.empty()) text += fmt::format(" ({})", inert(run.suite_commit, 40));
  text = paint(Style::kStrong, text) + "   " + spec_label(run.spec);
  if (!run.mode.empty()) text += "   " + inert(run.mode);
  if (!run.level.empty()) text += ", level " + inert(run.level);
  text += ", " + reading_label(run.reading);
  line(text);
  // With `ctxconf run`, these are not interesting.
  if (run.mode == to_string(Mode::kRun) && verbosity_ == 0) return;
  for (std::size_t i = 0; i < std::min(run.injections.size(), kMostNotes); ++i) {
    line("injected: " + inert(run.injections[i]));
  }
}

void Page::host(const RunResult& run) {
  std::string can;
  std::string cannot;
  for (const sys::HostFact& fact : run.host) {
    std::string& list = fact.available ? can : cannot;
    if (!list.empty()) list += ", ";
    list += inert(fact.name, 100);
  }
  std::string text =
      fmt::format("{} {}", inert(or_else(run.kernel, "(unknown kernel)")), inert(run.arch));
  if (!run.libc.empty()) text += "; program: " + libc_label(run.libc);
  if (!run.suite_libc.empty()) text += "; ctxconf: " + inert(run.suite_libc);
  if (!can.empty()) text += "; has " + can;
  text += cannot.empty() ? "; no gaps" : "; lacks " + cannot;
  verbatim("host", text);
  if (verbosity_ == 0) return;
  for (const sys::HostFact& fact : run.host) {
    if (fact.available) continue;
    std::string gap = fmt::format("lacks {}: {}", inert(fact.name, 100), inert(fact.detail));
    if (!fact.remedy.empty()) gap += "; to fix: " + inert(fact.remedy);
    field("", gap);
  }
}

// For `ctxconf elf`: the notes of each file say what was seen.
void Page::files(const RunResult& run) {
  const std::size_t most = std::min(cap(kImages), run.images.size());
  for (std::size_t i = 0; i < most; ++i) {
    const ImageSummary& image = run.images[i];
    verbatim("file", paint(Style::kStrong, inert(image.executable, 300)));
    for (std::size_t n = 0; n < std::min(image.notes.size(), kMostNotes); ++n) {
      field("", inert(image.notes[n]));
    }
  }
  if (run.images.size() > most) {
    verbatim("", fmt::format("{}{}", and_more(run.images.size() - most, "file"),
                             verbosity_ < 2 ? " (-v shows more)" : ""));
  }
}

void Page::images(const RunResult& run) {
  // Images that published come first; they matter most among hundreds of helper processes.
  std::vector<const ImageSummary*> shown;
  for (const bool published : {true, false}) {
    for (const ImageSummary& image : run.images) {
      if (image.published == published) shown.push_back(&image);
    }
  }
  const std::size_t most = std::min(cap(kImages), shown.size());
  for (std::size_t i = 0; i < most; ++i) {
    const ImageSummary& image = *shown[i];
    std::string text = image_label(image);
    if (!image.ending.empty()) text += ": " + inert(image.ending, 200);
    if (image.published) {
      text +=
          "; a reader sees " + paint(Style::kStrong, or_else(inert(image.context), "(nothing)"));
    } else if (!is_about_readers(run)) {
      text += "; published nothing";
    }
    if (!is_about_readers(run)) text += fmt::format("; {}", counted(image.snapshots, "snapshot"));
    verbatim(is_about_readers(run) ? "reader" : "image", text);
    if (verbosity_ > 0 && !image.command_line.empty()) {
      verbatim("", command_of(image));
    }
    for (std::size_t n = 0; n < std::min(image.notes.size(), kMostNotes); ++n) {
      field("", inert(image.notes[n]));
    }
  }
  if (shown.size() > most) {
    verbatim("", fmt::format("{}{}", and_more(shown.size() - most, "image"),
                             verbosity_ < 2 ? " (-v shows more)" : ""));
  }
}

std::string text_of(const std::vector<std::uint8_t>& bytes, std::size_t limit) {
  const auto shown = std::span(bytes).first(std::min(bytes.size(), limit));
  return {shown.begin(), shown.end()};
}

// The bytes of a golden vector, and where the testee's bytes differ.
void Page::comparison(const Hexdump& dump) {
  constexpr std::size_t kMostBytes = 4096;
  const std::string want = text_of(dump.expected->bytes, kMostBytes);
  const std::string have = text_of(dump.bytes, want.size());
  verbatim("vector", inert(dump.expected->vector, 200) + ", field by field:");
  std::vector<golden::ByteRange> at_fault;
  for (const Hexdump::Mark& mark : shown_marks(dump)) {
    at_fault.push_back({mark.offset, mark.length});
  }
  for (const auto& text : golden::compare_lines(want, have, fields_of(*dump.expected, kMostBytes),
                                                at_fault, cap(kComparisonLines))) {
    const bool differs = text.starts_with(" found") || text.find_first_not_of(" ^") == text.npos;
    line(std::string(kIndent) + paint(differs ? Style::kBad : Style::kPlain, inert(text, 200)));
  }
}

void Page::hexdump_row(const Hexdump& dump, std::size_t from, std::size_t address_width) {
  const std::size_t to = std::min(from + kRowBytes, dump.bytes.size());
  const auto column = [](std::size_t i) { return i * 3 + (i >= kRowBytes / 2 ? 1 : 0); };
  const auto marks = shown_marks(dump);
  std::string hex;
  std::string text;
  for (std::size_t i = from; i < to; ++i) {
    const Style style = is_marked(dump, i, i + 1) ? Style::kBad : Style::kPlain;
    const std::uint8_t byte = dump.bytes[i];
    if (i - from == kRowBytes / 2) hex += ' ';
    hex += paint(style, fmt::format("{:02x}", byte)) + " ";
    const char shown = byte >= 0x20 && byte < 0x7f ? static_cast<char>(byte) : '.';
    text += paint(style, std::string_view(&shown, 1));
  }
  hex.append(column(kRowBytes) - column(to - from) +
                 (to - from == kRowBytes / 2 ? 1 : 0),  // the gap before a missing byte
             ' ');
  line(fmt::format("{}{:0{}x}  {} |{}|", kIndent, dump.address + from, address_width, hex, text));
  for (const Hexdump::Mark& mark : marks) {
    const auto [low, high] = part_in(mark, from, to);
    if (low == high) continue;
    std::string carets(column(high - 1 - from) + 2, ' ');
    for (std::size_t i = low; i < high; ++i) {
      carets[column(i - from)] = carets[column(i - from) + 1] = '^';
    }
    const std::string gap(kIndent.size() + address_width + 2, ' ');
    std::string under = gap + paint(Style::kBad, carets);
    if (part_in(mark, 0, dump.bytes.size()).first == low) {
      under += " " + inert(mark.label, 200);
    }
    line(under);
  }
}

void Page::hexdump(const Hexdump& dump) {
  if (dump.expected) comparison(dump);
  verbatim("bytes", inert(or_else(dump.title, "memory of the testee"), 200));
  const std::size_t size = dump.bytes.size();
  const auto marks = shown_marks(dump);
  const std::size_t width = address_width(dump);
  const auto rows = rows_to_show(dump, cap(kDumpRows));
  std::size_t next = 0;
  std::size_t shown = 0;
  for (const std::size_t row : rows) {
    if (row != next) line(fmt::format("{}…", kIndent));
    hexdump_row(dump, row * kRowBytes, width);
    next = row + 1;
    shown += std::min(kRowBytes, size - row * kRowBytes);
  }
  if (shown < size) {
    line(fmt::format("{}… {} of {} bytes shown", kIndent, shown, size));
  }
  for (const Hexdump::Mark& mark : marks) {
    const auto [low, high] = part_in(mark, 0, size);
    if (low != high) continue;
    line(fmt::format("{}at +{}: {}", kIndent, mark.offset, inert(mark.label, 200)));
  }
  if (dump.marks.size() > marks.size()) {
    line(fmt::format("{}{}", kIndent, and_more(dump.marks.size() - marks.size(), "mark")));
  }
}

void Page::finding_block(const RunResult& run, const RequirementResult& result,
                         const Finding* finding, bool in_full) {
  const Requirement& requirement = *result.requirement;
  const Outcome outcome = finding == nullptr ? result.outcome : finding->outcome;
  line(fmt::format("{}  {}   {} ({})   OTEP {}@{} #{}",
                   paint(style_of(outcome), fmt::format("{:<4}", label_of(outcome))),
                   paint(Style::kStrong, requirement.id), to_string(requirement.strength),
                   to_string(requirement.basis), requirement.otep, requirement.revision,
                   requirement.anchor));
  if (!quiet_) field("rule", requirement.text);
  std::string saw(finding == nullptr ? "(no finding says what was seen)"
                                     : inert(finding->saw, 2000));
  if (finding != nullptr && !finding->level.empty()) {
    saw += fmt::format("  (level {})", inert(finding->level, 40));
  }
  field("saw", saw);
  if (finding != nullptr && (run.images.size() > 1 || result.findings.size() > 1)) {
    verbatim("in", finding_image(*finding));
  }
  if (quiet_ || !in_full) return;
  if (finding != nullptr) {
    if (!finding->at.empty()) field("at", inert(finding->at, 500));
    const std::size_t lines = std::min(finding->evidence.size(), cap(kEvidenceLines));
    for (std::size_t i = 0; i < lines; ++i) verbatim("", inert(finding->evidence[i], 500));
    if (finding->evidence.size() > lines) {
      verbatim("", and_more(finding->evidence.size() - lines, "line"));
    }
    const std::size_t dumps = std::min(finding->hexdumps.size(), cap(kDumps));
    for (std::size_t i = 0; i < dumps; ++i) hexdump(finding->hexdumps[i]);
    if (finding->hexdumps.size() > dumps) {
      verbatim("", and_more(finding->hexdumps.size() - dumps, "dump"));
    }
    if (!finding->remedy.empty()) field("fix", inert(finding->remedy));
  }
  if (!requirement.why.empty()) field("why", requirement.why);
  if (result.expected == Expected::kUnexpected) {
    field("note", fmt::format("the expectations file expects another outcome: {}",
                              or_else(inert(result.expectation_note), "(no note)")));
  }
  if (const auto again = again_for(run, result); !again.empty()) verbatim("again", again);
  if (const auto replay = replay_for(run, result); !replay.empty()) verbatim("offline", replay);
  if (const auto debug = debug_for(run, result); !debug.empty()) verbatim("debug", debug);
}

// The other images: those with the same finding in one list, the others on a line each.
void Page::other_findings(const RequirementResult& result) {
  const Finding& first = result.findings.front();
  std::vector<const Finding*> same;
  std::vector<const Finding*> different;
  for (std::size_t i = 1; i < result.findings.size(); ++i) {
    const Finding& other = result.findings[i];
    if (!is_problem(other.outcome)) continue;
    const bool equal =
        other.outcome == first.outcome &&
        (first.signature.empty() ? other.saw == first.saw : other.signature == first.signature);
    (equal ? same : different).push_back(&other);
  }
  const std::size_t most = cap(kOtherImages);
  if (!same.empty()) {
    std::string list;
    for (std::size_t i = 0; i < std::min(most, same.size()); ++i) {
      list += (i == 0 ? "" : ", ") + finding_image(*same[i]);
    }
    if (same.size() > most) list += fmt::format(", … and {} more", same.size() - most);
    field("also", fmt::format("in {}: {}", counted(same.size(), "more image"), list));
  }
  for (std::size_t i = 0; i < std::min(most, different.size()); ++i) {
    field("also", fmt::format("{} in {}: {}", to_string(different[i]->outcome),
                              finding_image(*different[i]), inert(different[i]->saw)));
  }
  if (different.size() > most) {
    field("also", and_more(different.size() - most, "image"));
  }
}

void Page::faults(const RunResult& run) {
  if (run.faults.empty()) return;
  line("");
  for (const auto& text : fault_matrix_lines(run.faults)) line(text);
}

void Page::problems(const RunResult& run) {
  for (const RunProblem& problem : run.problems) {
    if (!quiet_) line("");
    line(fmt::format("{}  {}", paint(Style::kBad, label_of(problem.outcome)), inert(problem.text)));
  }
  for (const Outcome outcome : kProblemOrder) {
    for (const RequirementResult& result : run.results) {
      if (result.outcome != outcome || result.expected == Expected::kAsExpected) continue;
      if (quiet_ && outcome == Outcome::kInfo) continue;
      if (!quiet_) line("");
      finding_block(run, result, result.findings.empty() ? nullptr : &result.findings.front(),
                    outcome != Outcome::kInfo || verbosity_ > 0 || is_about_files(run));
      if (!quiet_ && !result.findings.empty()) other_findings(result);
    }
  }
}

void Page::expected(const RunResult& run) {
  bool first = true;
  for (const RequirementResult& result : run.results) {
    if (result.expected != Expected::kAsExpected || !is_problem(result.outcome)) continue;
    if (first) line(paint(Style::kStrong, "\nexpected by the expectations file"));
    first = false;
    line(fmt::format("  {:<7} {}  {}", to_string(result.outcome), result.requirement->id,
                     inert(result.expectation_note)));
  }
}

void Page::expectations(const RunResult& run) {
  if (run.expectation_problems.empty()) return;
  line(paint(Style::kStrong, "\nthe expectations file"));
  const std::size_t most = std::min(cap(kExpectationProblems), run.expectation_problems.size());
  for (std::size_t i = 0; i < most; ++i) {
    const ExpectationProblem& problem = run.expectation_problems[i];
    const std::string where =
        problem.line > 0 ? fmt::format("line {}: ", problem.line) : std::string();
    field(problem.exit_code == 0 ? "warn" : "error", where + inert(problem.text, 300));
    if (!problem.mend.empty()) verbatim("fix", inert(problem.mend, 500));
  }
  if (run.expectation_problems.size() > most) {
    verbatim("", and_more(run.expectation_problems.size() - most, "problem"));
  }
}

void Page::below_floor(const RunResult& run) {
  if (run.floor.empty()) return;
  line(paint(Style::kStrong, "\nrequired but not judged"));
  const std::size_t most = std::min(cap(kExpectationProblems), run.floor.size());
  for (const FloorProblem& problem : std::span(run.floor).first(most)) {
    line(fmt::format("  {}", inert(problem.requirement, 200)));
    field("asked", inert(problem.why, 300));
    field("now", inert(problem.now, 300));
    if (!problem.remedy.empty()) field("to see", inert(problem.remedy, 300));
  }
  if (run.floor.size() > most) {
    verbatim("", fmt::format("… and {} more", run.floor.size() - most));
  }
}

void Page::not_judged(const RunResult& run, Outcome outcome) {
  struct Group {
    std::string text;
    std::string remedy;
    std::vector<std::string_view> ids;
  };
  // Reasons that differ only in an address have the same signature.
  std::map<std::tuple<NaReason, std::string_view, std::string_view>, Group> groups;
  std::size_t total = 0;
  for (const RequirementResult& result : run.results) {
    if (result.outcome != outcome) continue;
    ++total;
    const Finding* finding = result.findings.empty() ? nullptr : &result.findings.front();
    const bool na = outcome == Outcome::kNa && finding != nullptr;
    const NaReason reason = na ? finding->na_reason : NaReason::kCapability;
    const std::string_view key =
        finding == nullptr ? "" : or_else(finding->signature, finding->saw);
    const std::string_view remedy = finding == nullptr ? "" : std::string_view(finding->remedy);
    Group& group = groups[{reason, key, remedy}];
    if (group.ids.empty()) {
      group.text = finding == nullptr ? std::string("no reason was given")
                                      : inert(or_else(finding->saw, key), 300);
      if (na) group.text = fmt::format("{}: {}", to_string(reason), group.text);
      group.remedy = inert(remedy, 300);
    }
    group.ids.push_back(result.requirement->id);
  }
  if (total == 0) return;
  line(paint(Style::kStrong,
             fmt::format("\n{} {}", total, outcome == Outcome::kNa ? "n/a" : "unobservable")));
  std::vector<const Group*> sorted;
  sorted.reserve(groups.size());
  for (const auto& [key, group] : groups) sorted.push_back(&group);
  std::ranges::sort(sorted, [](const Group* a, const Group* b) {
    if (a->ids.size() != b->ids.size()) return a->ids.size() > b->ids.size();
    return a->ids.front() < b->ids.front();
  });
  const std::size_t most = std::min(cap(kReasons), sorted.size());
  for (std::size_t i = 0; i < most; ++i) {
    const Group& group = *sorted[i];
    field(fmt::format("{:>6}", group.ids.size()), group.text);
    if (!group.remedy.empty()) field("", "to see it: " + group.remedy);
    if (verbosity_ == 0) continue;
    for (const std::string_view id : group.ids) verbatim("", fmt::format("  {}", id));
  }
  if (sorted.size() > most) {
    verbatim("", fmt::format("{}{}", and_more(sorted.size() - most, "reason"),
                             verbosity_ < 2 ? " (-v shows more)" : ""));
  }
}

void Page::passed(const RunResult& run) {
  if (verbosity_ < 2 || run.totals.pass == 0) return;
  line(paint(Style::kStrong, fmt::format("\n{} passed", run.totals.pass)));
  for (const RequirementResult& result : run.results) {
    if (result.outcome != Outcome::kPass) continue;
    const std::string level = result.findings.empty() || result.findings.front().level.empty()
                                  ? std::string()
                                  : "  (level " + inert(result.findings.front().level, 40) + ")";
    line(fmt::format("  {}  {}{}", paint(Style::kGood, "pass"), result.requirement->id, level));
  }
}

void Page::summary(const RunResult& run) {
  if (!quiet_) line("");
  const bool published = std::ranges::any_of(run.images, &ImageSummary::published);
  if (!published && !is_about_files(run) && !is_about_readers(run)) {
    const Totals& t = run.totals;
    const std::array verdicts = {t.pass,  t.fail,    t.warn,         t.info,
                                 t.crash, t.timeout, t.harness_error};
    const bool judged = std::ranges::any_of(verdicts, [](int count) { return count > 0; });
    line(paint(
        Style::kWarning,
        fmt::format("no process {}{}", run.images.empty() ? "was observed" : "published a context",
                    judged ? "" : ": nothing could be judged")));
  }
  for (std::size_t i = 0; i < std::min(run.notes.size(), kMostNotes); ++i) {
    line("note: " + inert(run.notes[i]));
  }
  if (run.target_ending && !quiet_) {
    line("the program itself: " + inert(*run.target_ending, 200) +
         (run.problems.empty() ? " (reported, not judged)" : ""));
  }
  if (!run.trace_path.empty() && !quiet_) {
    line("trace saved: " + inert(shell_word(run.trace_path)));
  }
  line(paint(run.exit_code == 0 ? Style::kGood : Style::kStrong, summary_line(run)));
  line(fmt::format(
      "{}: {}",
      paint(run.exit_code == 0 ? Style::kGood : Style::kBad, fmt::format("exit {}", run.exit_code)),
      or_else(inert(run.exit_reason), "(no reason given)")));
}

void Page::report(const RunResult& run) {
  if (!quiet_) {
    headline(run);
    if (is_about_files(run)) {
      files(run);
    } else {
      host(run);
      images(run);
    }
  }
  if (!quiet_) faults(run);
  problems(run);
  if (!quiet_) expected(run);
  expectations(run);
  below_floor(run);
  if (!quiet_) {
    not_judged(run, Outcome::kUnobservable);
    not_judged(run, Outcome::kNa);
    passed(run);
  }
  summary(run);
}

}  // namespace

std::string to_console(const RunResult& run, const ConsoleOptions& options) {
  Page page(options);
  page.report(run);
  return std::move(page).take();
}

std::string finding_text(const RunResult& run, const RequirementResult& result,
                         const Finding& finding) {
  Page page(ConsoleOptions{.verbosity = 1, .colour = Colour::kNever, .width = 100});
  page.finding_block(run, result, &finding, true);
  return std::move(page).take();
}

}  // namespace ctxconf::conformance
