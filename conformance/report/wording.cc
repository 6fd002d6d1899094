#include "conformance/report/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "conformance/report/escape.h"
#include "sys/c_library.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostShownMarks = 16;
constexpr std::size_t kCommandLimit = 1000;

}  // namespace

std::string inert(std::string_view text, std::size_t limit) {
  return escape(text, Escape::kTerminal, limit);
}

std::string quote(std::string_view text, std::size_t limit) {
  return escape(inert(text, limit), Escape::kXmlAttribute, std::string_view::npos);
}

std::string_view or_else(std::string_view text, std::string_view otherwise) {
  return text.empty() ? otherwise : text;
}

std::string libc_label(std::string_view libc) {
  std::string out;
  for (const auto part : std::views::split(inert(libc, 300), std::string_view(", "))) {
    const std::string_view name(part);
    out += out.empty() ? "" : ", ";
    out += name == sys::kNoInterpreter ? "statically linked" : name;
  }
  return out;
}

bool is_utc_time(std::string_view text) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
  return std::ranges::equal(text, kForm, [](char c, char form) {
    return form == 'd' ? c >= '0' && c <= '9' : c == form;
  });
}

bool is_about_files(const RunResult& run) { return run.mode == to_string(Mode::kElf); }

std::string image_key(const ImageKey& key) {
  return key.image == 0 ? fmt::format("{}", key.pid) : fmt::format("{}#{}", key.pid, key.image);
}

// Quotes only the part that will be printed: a testee may have megabytes of arguments.
std::string command_of(const ImageSummary& image) {
  std::string out;
  for (const std::string& word : image.command_line) {
    if (out.size() > kCommandLimit) break;
    out += out.empty() ? "" : " ";
    out += shell_word(std::string_view(word).substr(0, kCommandLimit + 1));
  }
  return inert(out, kCommandLimit);
}

std::string finding_image(const Finding& finding) {
  // The name usually begins with the pid, but it comes from the testee.
  std::string key = image_key(finding.image);
  std::string name = inert(finding.image_name, 200);
  if (name.empty() || name == key) return key;
  if (name.starts_with(key + " ")) return name;
  return key + " " + name;
}

std::string_view label_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPass:
      return "PASS";
    case Outcome::kNa:
      return "N/A";
    case Outcome::kUnobservable:
      return "UNOBSERVABLE";
    case Outcome::kInfo:
      return "INFO";
    case Outcome::kWarn:
      return "WARN";
    case Outcome::kFail:
      return "FAIL";
    case Outcome::kTimeout:
      return "TIMEOUT";
    case Outcome::kCrash:
      return "CRASH";
    case Outcome::kHarnessError:
      return "HARNESS-ERROR";
  }
  return "HARNESS-ERROR";
}

bool is_problem(Outcome outcome) {
  return outcome != Outcome::kPass && outcome != Outcome::kNa && outcome != Outcome::kUnobservable;
}

std::string image_label(const ImageSummary& image) {
  return image_key(image.key) + " " + inert(or_else(image.executable, "(unknown executable)"), 300);
}

std::string spec_label(const SpecSelection& spec) {
  std::string out;
  for (const auto& [otep, revision] : spec.revisions) {
    out += fmt::format("{}OTEP {}@{}", out.empty() ? "" : ", ", otep, inert(revision, 40));
  }
  return out.empty() ? "no specification" : out;
}

std::string reading_label(Reading reading) { return fmt::format("reading {}", to_string(reading)); }

std::string totals_line(const Totals& t) {
  std::string out = fmt::format("{} passed, {} failed", t.pass, t.fail);
  const auto add = [&out](int n, std::string_view one, std::string_view many) {
    if (n != 0) out += fmt::format(", {} {}", n, n == 1 ? one : many);
  };
  add(t.crash, "crash", "crashes");
  add(t.timeout, "timeout", "timeouts");
  add(t.harness_error, "harness error", "harness errors");
  add(t.warn, "warning", "warnings");
  add(t.info, "info", "info");
  add(t.unobservable, "unobservable", "unobservable");
  add(t.na, "n/a", "n/a");
  return out + fmt::format(" of {} selected", t.selected);
}

std::string summary_line(const RunResult& run) {
  std::string out = fmt::format("{} ({})", totals_line(run.totals), spec_label(run.spec));
  if (run.totals.expected_failures != 0) {
    out +=
        fmt::format(", {} of them expected by the expectations file", run.totals.expected_failures);
  }
  return out;
}

namespace {

// The cell of the first finding, or null if the finding was made without a fault.
const FaultOutcome* fault_of(const RunResult& run, const RequirementResult& result) {
  if (result.findings.empty()) return nullptr;
  const std::uint32_t session = result.findings.front().image.session;
  const auto it = std::ranges::find_if(run.faults, [&](const FaultOutcome& f) {
    // The run under a file size limit is judged together with the run without a fault.
    return session != 0
               ? f.session == session
               : std::ranges::find(f.requirements, result.requirement->id) != f.requirements.end();
  });
  return it == run.faults.end() ? nullptr : &*it;
}

// The command line must not be empty; `more` options are added.
std::string only_for(const RunResult& run, const RequirementResult& result,
                     const std::vector<std::string>& more) {
  const auto& words = run.command_line;
  std::vector<std::string> out = {words[0], words[1], "--only", result.requirement->id};
  out.insert(out.end(), more.begin(), more.end());
  constexpr std::string_view kFaults = "--faults";
  if (const FaultOutcome* fault = fault_of(run, result)) {
    out.insert(out.end(), fault->options.begin(), fault->options.end());
  }
  // The new run must not replace the reports of the whole run.
  constexpr std::string_view kReplaced[] = {"--only", "--skip", "--out", "--on-fail"};
  bool ours = true;  // before `--`; after it comes the target's command
  const auto targets = std::ranges::find(words, "--");
  const bool has_seed = std::any_of(words.begin(), targets, [](std::string_view word) {
    return word == "--seed" || word.starts_with("--seed=");
  });
  if (run.mode == to_string(Mode::kRun) && !run.seed.empty() && !has_seed) {
    out.insert(out.end(), {"--seed", run.seed});
  }
  for (std::size_t i = 2; i < words.size(); ++i) {
    const std::string_view word = words[i];
    ours = ours && word != "--";
    if (ours && word == kFaults && i + 1 < words.size() && !words[i + 1].starts_with('-')) ++i;
    if (ours && (word == kFaults || word.starts_with(std::string(kFaults) + "="))) continue;
    if (ours && std::ranges::find(kReplaced, word) != std::end(kReplaced)) {
      ++i;
    } else if (!ours || std::ranges::find(kReplaced, word.substr(0, word.find('='))) ==
                            std::end(kReplaced)) {
      out.push_back(words[i]);
    }
  }
  return inert(shell_command(out), kTextLimit);
}

}  // namespace

std::string again_for(const RunResult& run, const RequirementResult& result) {
  if (run.command_line.size() < 2) return inert(run.again, kTextLimit);
  return only_for(run, result, {});
}

std::string debug_for(const RunResult& run, const RequirementResult& result) {
  const bool is_started = run.mode == to_string(Mode::kRun) || run.mode == to_string(Mode::kWrap);
  if (!is_started || run.command_line.size() < 2 || result.findings.empty()) return {};
  if (!result.findings.front().operation) return {};
  return only_for(run, result, {"--on-fail", "gdb"});
}

std::string replay_for(const RunResult& run, const RequirementResult& result) {
  const std::string& recording = result.trace_path.empty() ? run.trace_path : result.trace_path;
  if (recording.empty() || run.mode == "replay") return {};
  return inert(shell_command(std::vector<std::string>{
                   run.command_line.empty() ? "ctxconf" : run.command_line.front(), "replay",
                   "--only", result.requirement->id, recording}),
               kTextLimit);
}

std::span<const Hexdump::Mark> shown_marks(const Hexdump& dump) {
  return std::span(dump.marks).first(std::min(dump.marks.size(), kMostShownMarks));
}

std::pair<std::size_t, std::size_t> part_in(const Hexdump::Mark& mark, std::size_t from,
                                            std::size_t to) {
  const std::uint64_t end =
      mark.length > UINT64_MAX - mark.offset ? UINT64_MAX : mark.offset + mark.length;
  const auto low = static_cast<std::size_t>(std::clamp<std::uint64_t>(mark.offset, from, to));
  const auto high = static_cast<std::size_t>(std::clamp<std::uint64_t>(end, from, to));
  return {low, high};
}

bool is_marked(const Hexdump& dump, std::size_t from, std::size_t to) {
  return std::ranges::any_of(shown_marks(dump), [from, to](const Hexdump::Mark& mark) {
    const auto [low, high] = part_in(mark, from, to);
    return low != high;
  });
}

std::vector<golden::Annotation> fields_of(const Hexdump::Expected& expected, std::size_t limit) {
  const auto shown = std::span(expected.bytes).first(std::min(expected.bytes.size(), limit));
  const std::string all(shown.begin(), shown.end());
  const std::string_view bytes = all;
  std::vector<golden::Mask> masks;
  masks.reserve(expected.masks.size());
  for (const auto& m : expected.masks) masks.push_back({m.offset, m.length, m.name, m.rule});
  const bool record = expected.vector.starts_with(golden::id_prefix(golden::Kind::kThreadRecord));
  auto out = record ? golden::annotate_record(bytes.substr(0, sizeof(abi::ThreadRecordHead)), masks)
                    : golden::annotate_header(abi::HeaderLayout::kH5,
                                              bytes.substr(0, sizeof(abi::ProcessHeader)), masks);
  const std::size_t at = out.empty() ? 0 : out.back().offset + out.back().length;
  if (at >= bytes.size()) return out;
  golden::Annotation rest{at, bytes.size() - at, "entries", false, 0};
  for (const auto& m : masks) {
    if (m.offset != at || m.length != rest.length) continue;
    rest.masked = true;
    rest.text = m.name + ": " + m.rule;
  }
  out.push_back(std::move(rest));
  return out;
}

std::vector<std::size_t> rows_to_show(const Hexdump& dump, std::size_t most) {
  const std::size_t size = dump.bytes.size();
  const std::size_t rows = size / kRowBytes + (size % kRowBytes == 0 ? 0 : 1);
  std::vector<bool> marked(rows);
  for (const Hexdump::Mark& mark : shown_marks(dump)) {
    const auto [low, high] = part_in(mark, 0, size);
    for (std::size_t row = low / kRowBytes; row * kRowBytes < high && low != high; ++row) {
      marked[row] = true;
    }
  }
  const bool select = rows > most && std::ranges::find(marked, true) != marked.end();
  std::vector<std::size_t> out;
  for (std::size_t row = 0; row < rows && out.size() < most; ++row) {
    const bool near =
        marked[row] || (row > 0 && marked[row - 1]) || (row + 1 < rows && marked[row + 1]);
    if (select && !near) continue;
    out.push_back(row);
  }
  return out;
}

std::size_t address_width(const Hexdump& dump) {
  // The last address may have wrapped around.
  constexpr std::uint64_t kLargest = 0xffffffffffff;
  const bool wide = dump.address > kLargest || dump.address + dump.bytes.size() > kLargest;
  return wide ? 16 : 12;
}

}  // namespace ctxconf::conformance
