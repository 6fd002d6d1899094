#include "conformance/report/result_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "conformance/report/result_members.h"
#include "conformance/text/json_limits.h"
#include "conformance/text/json_members.h"
#include "conformance/text/words.h"

namespace ctxconf::conformance {

namespace {

constexpr std::array<Word<TargetEnd::How>, 3> kTargetEnds = {{
    {TargetEnd::How::kExited, "exited"},
    {TargetEnd::How::kKilled, "killed"},
    {TargetEnd::How::kKilledByUs, "killed-by-us"},
}};

std::optional<TargetEnd::How> target_end_from(std::string_view word) {
  return value_of(kTargetEnds, word);
}

}  // namespace

// Not in the namespace below, so that the writer finds it by its argument.
std::string_view to_string(Expected e) {
  switch (e) {
    case Expected::kNone:
      return "none";
    case Expected::kAsExpected:
      return "as-expected";
    case Expected::kUnexpected:
      return "unexpected";
  }
  return "none";
}

std::string_view to_string(TargetEnd::How how) { return word_of(kTargetEnds, how); }

namespace {

using nlohmann::json;

constexpr const char* kStep = "read result.json";
constexpr std::string_view kFormat = "ctxconf-result";
constexpr std::size_t kMostEvidence = 256;
constexpr std::size_t kMostDumps = 32;
constexpr std::size_t kMostMarks = 64;
constexpr std::size_t kShort = 500;   // bytes of a name
constexpr std::size_t kLabel = 1000;  // and of what stands at a dump
// Bytes of text and dumps in one file, before quoting, which turns one character into up to six.
// The worst finding of a requirement is written even if no budget is left.
constexpr std::size_t kFindingsBudget = std::size_t{2} << 20;
constexpr std::size_t kListsBudget = std::size_t{1} << 20;  // images, command lines, notes
constexpr std::size_t kDeepest = 16;

std::size_t cost(const Hexdump& dump) {
  std::size_t texts = std::min(kMostMarks, dump.marks.size()) + 1;
  std::size_t bytes = std::min(dump.bytes.size(), kMostDumpBytes);
  if (dump.expected) {
    texts += 2 * std::min(kMostMarks, dump.expected->masks.size()) + 1;
    bytes += std::min(dump.expected->bytes.size(), kMostDumpBytes);
  }
  return texts * (kFixedCost + kLabel) + bytes;
}

std::size_t cost(const OperationPicture& picture) {
  std::size_t out = kFixedCost;
  for (const PictureStep& step : picture.steps) {
    out += kFixedCost * (1 + step.changes.size()) + bounded(step.text, kShort) +
           bounded(step.at, kShort);
  }
  return out;
}

std::size_t cost(const Finding& f) {
  std::size_t out = kFixedCost + bounded(f.image_name, kShort) + bounded(f.saw) +
                    bounded(f.signature, kShort) + bounded(f.at, kShort) +
                    bounded(f.remedy, kShort);
  for (std::size_t i = 0; i < std::min(f.code.size(), kMaxCodeFrames); ++i) {
    out += kFixedCost + bounded(f.code[i].function, kShort) + bounded(f.code[i].source_file) +
           bounded(f.code[i].module) + bounded(f.code[i].path);
  }
  return out;
}

std::size_t cost(const ImageSummary& image) {
  return kFixedCost + bounded(image.executable) + bounded(image.context);
}

std::size_t cost(const OperationSummary& operation) {
  return kFixedCost + bounded(operation.image_name, kShort) + cost(operation.picture);
}

std::size_t cost(const ExpectationProblem& problem) {
  return kFixedCost + bounded(problem.text) + bounded(problem.mend);
}

std::size_t cost(const FloorProblem& problem) {
  return kFixedCost + bounded(problem.why) + bounded(problem.now) + bounded(problem.remedy, kShort);
}

constexpr auto kCost = [](const auto& value) { return cost(value); };

std::optional<Expected> expected_from(std::string_view name) {
  for (const Expected e : {Expected::kNone, Expected::kAsExpected, Expected::kUnexpected}) {
    if (name == to_string(e)) return e;
  }
  return std::nullopt;
}

// Which operation a picture shows, as a word.
enum class PictureKind { kPublication, kUpdate };

std::string_view to_string(PictureKind kind) {
  return kind == PictureKind::kUpdate ? "update" : "publication";
}

std::optional<PictureKind> operation_kind_from(std::string_view word) {
  if (word == "update") return PictureKind::kUpdate;
  if (word == "publication") return PictureKind::kPublication;
  return std::nullopt;
}

constexpr std::array<std::pair<const char*, int Totals::*>, 11> kTotals = {{
    {"pass", &Totals::pass},
    {"fail", &Totals::fail},
    {"warn", &Totals::warn},
    {"info", &Totals::info},
    {"na", &Totals::na},
    {"unobservable", &Totals::unobservable},
    {"crash", &Totals::crash},
    {"timeout", &Totals::timeout},
    {"harness_error", &Totals::harness_error},
    {"expected_failures", &Totals::expected_failures},
    {"selected", &Totals::selected},
}};

void key_members(auto& m, auto& key) {
  m.number("pid", key.pid);
  m.number("image", key.image);
  m.number_if_any("session", key.session);
}

// What the catalogue says of the requirement, for those who read the file without it.
void note_requirement(ResultWriter& m, const Requirement& r, Reading reading) {
  m.number("otep", r.otep);
  m.plain("anchor", r.anchor);
  m.plain("strength", to_string(r.strength));
  m.plain("basis", to_string(r.basis));
  m.plain("severity", to_string(severity_in(r, reading)));
  m.plain("role", to_string(r.role));
  m.text("text", r.text);
  m.text("why", r.why);
}

// Null, with a complaint: this catalogue has no such requirement of this revision.
const Requirement* find_requirement(const ResultReader& m, const std::string& id,
                                    const std::string& revision) {
  const Requirement* const found = m.catalogue().find(id);
  if (found == nullptr) {
    m.wrong("id", fmt::format("is not in the catalogue of this ctxconf: '{}'", Node::quoted(id)));
  } else if (found->revision != revision) {
    m.wrong("revision", fmt::format("is '{}', but this ctxconf knows {} of {}",
                                    Node::quoted(revision), id, found->revision));
  }
  return found;
}

}  // namespace

// ---- one list of members for each type

void members(auto& m, Is<Hexdump::Mark> auto& mark) {
  m.number("offset", mark.offset);
  m.number("length", mark.length);
  m.text("label", mark.label, kLabel);
}

void members(auto& m, Is<Hexdump::Expected::Mask> auto& mask) {
  m.number("offset", mask.offset);
  m.number("length", mask.length);
  m.text("name", mask.name, kLabel);
  m.text("rule", mask.rule, kLabel);
}

void members(auto& m, Is<Hexdump::Expected> auto& expected) {
  m.text("vector", expected.vector, kLabel);
  m.bytes("bytes", expected.bytes);
  m.list("masks", expected.masks, {.most = kMostMarks});
}

void members(auto& m, Is<Hexdump> auto& dump) {
  m.text("title", dump.title, kLabel);
  m.address("address", dump.address);
  m.bytes("bytes", dump.bytes);
  m.omitted("bytes_omitted", dump.bytes.size(), std::min(dump.bytes.size(), kMostDumpBytes));
  m.list("marks", dump.marks, {.most = kMostMarks, .omitted = "marks_omitted"});
  m.object_if_there("expected", dump.expected);
}

void members(auto& m, Is<PictureStep::Change> auto& change) {
  constexpr std::size_t kValue = 100;
  m.word("lane", change.lane, lane_from, Lane::kTimestamp);
  m.text("was", change.was, kValue);
  m.text("is", change.is, kValue);
}

void members(auto& m, Is<PictureStep> auto& step) {
  m.word("kind", step.kind, picture_kind_from, PictureStep::Kind::kStore);
  m.word("finds", step.finds, finds_from, Finds::kUnknown);
  m.list("changes", step.changes, {.most = kLanes.size(), .if_any = true});
  m.text_if_any("text", step.text, kShort);
  m.text_if_any("at", step.at, kShort);
  m.number_if_any("thread", step.tid);
  m.flag_if_set("wrong", step.wrong);
}

void members(auto& m, Is<OperationPicture> auto& picture) {
  auto kind = picture.is_update ? PictureKind::kUpdate : PictureKind::kPublication;
  // Steps that are left out here are left out after the others.
  std::uint64_t after = picture.steps_behind + picture.steps.size() -
                        std::min(picture.steps.size(), kMaxPictureSteps);
  m.word("kind", kind, operation_kind_from, PictureKind::kPublication);
  m.address("header", picture.header);
  m.word("before", picture.before, finds_from, Finds::kUnknown);
  m.number_if_any("steps_before", picture.steps_before);
  m.number_if_any("steps_behind", after);
  m.list("steps", picture.steps, {.most = kMaxPictureSteps, .refused = "has too many steps"});
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) {
    picture.is_update = kind == PictureKind::kUpdate;
    picture.steps_behind = after;
  }
}

void members(auto& m, Is<CodeFrame> auto& frame) {
  m.text_if_any("function", frame.function, kShort);
  m.text_if_any("file", frame.source_file);
  m.number_if_any("line", frame.source_line);
  m.text_if_any("module", frame.module);
  m.number("offset", frame.offset);
  m.text_if_any("path", frame.path);
}

void members(auto& m, Is<Finding> auto& f) {
  constexpr std::size_t kLevel = 100;
  key_members(m, f.image);
  m.text("image_name", f.image_name, kShort);
  m.word("outcome", f.outcome, outcome_from, Outcome::kHarnessError);
  if (f.outcome == Outcome::kNa) {
    m.word("na_reason", f.na_reason, na_reason_from, NaReason::kCapability);
  }
  m.text("saw", f.saw);
  m.text("signature", f.signature, kShort);
  m.text_if_any("at", f.at, kShort);
  m.list("code", f.code,
         {.most = kMaxCodeFrames, .if_any = true, .refused = "has too many frames"});
  m.text("remedy", f.remedy, kShort);
  m.text("level", f.level, kLevel);
  m.texts("evidence", f.evidence, {.most = kMostEvidence, .omitted = "evidence_omitted"},
          PaidBy::kFindings);
  m.paid_list("hexdumps", f.hexdumps, {.most = kMostDumps, .omitted = "hexdumps_omitted"}, kCost,
              PaidBy::kFindings);
  m.paid_object_if_there("operation", f.operation, kCost, PaidBy::kFindings);
}

// The reading decides the severity that is written.
void result_members(auto& m, Is<RequirementResult> auto& r, Reading reading) {
  std::string id = r.requirement == nullptr ? std::string() : r.requirement->id;
  std::string revision = r.requirement == nullptr ? std::string() : r.requirement->revision;
  m.plain("id", id);
  m.plain("revision", revision);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) {
    r.requirement = find_requirement(m, id, revision);
  } else {
    note_requirement(m, *r.requirement, reading);
  }
  m.word("outcome", r.outcome, outcome_from, Outcome::kHarnessError);
  m.word("expected", r.expected, expected_from, Expected::kNone);
  m.text("expectation_note", r.expectation_note, kShort);
  m.text_if_any("trace", r.trace_path);
  m.paid_list_with_first("findings", r.findings,
                         {.most = kMostItems, .omitted = "findings_omitted"}, kCost,
                         PaidBy::kFindings);
  if constexpr (std::remove_cvref_t<decltype(m)>::kReads) {
    for (Finding& f : r.findings) f.requirement = id;
  }
}

void members(auto& m, Is<ImageSummary> auto& image) {
  key_members(m, image.key);
  m.number("parent", image.parent);
  m.text("executable", image.executable);
  m.text_if_any("path", image.path);
  m.texts("command_line", image.command_line);
  m.text_if_any("libc", image.libc, kShort);
  m.text("ending", image.ending, kShort);
  m.flag("published", image.published);
  m.text("context", image.context);
  m.number("snapshots", image.snapshots);
  m.texts("notes", image.notes);
}

void members(auto& m, Is<OperationSummary> auto& operation) {
  key_members(m, operation.image);
  m.text("image_name", operation.image_name, kShort);
  m.object("operation", [&](auto& of_it) { members(of_it, operation.picture); });
}

void members(auto& m, Is<RunProblem> auto& problem) {
  m.word("outcome", problem.outcome, outcome_from, Outcome::kCrash);
  key_members(m, problem.image);
  m.text("text", problem.text);
  m.text_if_any("harm", problem.harm, kShort);
}

void members(auto& m, Is<TargetEnd> auto& end) {
  m.word("how", end.how, target_end_from, TargetEnd::How::kExited);
  m.number(end.how == TargetEnd::How::kExited ? "exit_code" : "signal", end.number);
}

void members(auto& m, Is<FaultOutcome> auto& fault) {
  m.text("step", fault.step);
  m.text("fault", fault.fault);
  m.word("outcome", fault.outcome, outcome_from, Outcome::kHarnessError);
  m.texts("requirements", fault.requirements);
  m.text("text", fault.text);
  m.text("output", fault.output);
  m.number("session", fault.session);
  m.texts("options", fault.options);
}

void members(auto& m, Is<ExpectationProblem> auto& problem) {
  m.number("line", problem.line);
  m.number("exit_code", problem.exit_code);
  m.text("text", problem.text);
  m.text("mend", problem.mend);
}

void members(auto& m, Is<FloorProblem> auto& problem) {
  m.text("requirement", problem.requirement, kShort);
  m.text("why", problem.why);
  m.text("now", problem.now);
  m.text("remedy", problem.remedy, kShort);
}

void members(auto& m, Is<sys::HostFact> auto& fact) {
  m.text("name", fact.name);
  m.flag("available", fact.available);
  m.text("detail", fact.detail);
  m.text("remedy", fact.remedy);
}

void members(auto& m, Is<SourceTree> auto& source) {
  m.text_if_any("root", source.root);
  m.text_if_any("program", source.program);
  m.text_if_any("expectations", source.expectations);
}

namespace {

void run_members(auto& m, auto& run) {
  m.text("mode", run.mode);
  m.texts("command_line", run.command_line);
  m.texts("target", run.target);
  m.text("level", run.level);
  m.word_may_lack("reading", run.reading, reading_from, Reading::kReaderVisible);
  m.text("started_at", run.started_at);
  m.real("seconds", run.seconds);
  m.texts("injections", run.injections, {.most = kMostItems, .may_lack = true});
  m.texts("notes", run.notes);
  m.text("trace", run.trace_path);
  m.text("again", run.again);
  m.object_if_there("source", run.source);
  m.text_if_any("seed", run.seed);
  m.flag_if_set("partial", run.partial);
  m.text_if_there("target_ending", run.target_ending);
  m.object_if_there("target_ended", run.target_ended);
}

void host_members(auto& m, auto& run) {
  m.text("kernel", run.kernel);
  m.text("arch", run.arch);
  m.text("libc", run.libc);
  m.list("facts", run.host, {.most = kMostItems});
}

}  // namespace

// All but the format and its version.
void members(auto& m, Is<RunResult> auto& run) {
  m.object("suite", [&](auto& suite) {
    suite.text("version", run.suite_version);
    suite.text("commit", run.suite_commit);
    if constexpr (std::remove_cvref_t<decltype(suite)>::kReads) {
      suite.text_if_any("libc", run.suite_libc);
    } else {
      suite.text("libc", run.suite_libc);
    }
  });
  m.list("spec", run.spec.revisions, {}, [](auto& spec, auto& revision) {
    spec.number("otep", revision.first);
    spec.text("revision", revision.second);
  });
  m.object("run", [&](auto& about) { run_members(about, run); });
  m.object("host", [&](auto& host) { host_members(host, run); });
  // The order in which lists are paid for decides what is cut.
  m.paid_list("images", run.images, {.most = kMostItems, .omitted = "images_omitted"}, kCost,
              PaidBy::kLists);
  m.paid_list("operations", run.operations, {.may_lack = true}, kCost, PaidBy::kLists);
  m.list("problems", run.problems, {.most = kMostItems});
  m.list("results", run.results, {},
         [&](auto& of_one, auto& result) { result_members(of_one, result, run.reading); });
  m.paid_list("expectation_problems", run.expectation_problems,
              {.most = kMostItems, .omitted = "expectation_problems_omitted"}, kCost,
              PaidBy::kLists);
  m.paid_list("floor", run.floor, {.most = kMostItems, .omitted = "floor_omitted", .if_any = true},
              kCost, PaidBy::kLists);
  m.list("faults", run.faults, {.most = kMostItems, .if_any = true});
  m.object("totals", [&](auto& totals) {
    for (const auto& [name, member] : kTotals) totals.number(name, run.totals.*member);
  });
  m.object("exit", [&](auto& exit) {
    exit.number("code", run.exit_code);
    exit.text("reason", run.exit_reason);
  });
}

std::string to_result_json(const RunResult& run) {
  Budget findings(kFindingsBudget);
  Budget lists(kListsBudget);
  json out = {{"format", kFormat}, {"version", kResultVersion}};
  ResultWriter writer(out, findings, lists);
  members(writer, run);
  return json_without_markup(out.dump(1, ' ', true)) + "\n";
}

sys::Result<RunResult> result_from_json(std::string_view text, const Catalogue& catalogue) {
  if (text.size() > kLongestResultJson) {
    return sys::fail(kStep, 0,
                     fmt::format("{} bytes are more than {}", text.size(), kLongestResultJson));
  }
  if (nests_deeper(text, kDeepest)) {
    return sys::fail(kStep, 0, fmt::format("nested deeper than {}", kDeepest));
  }
  const json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) return sys::fail(kStep, 0, "is not JSON");
  std::string error;
  const Node root(&value, &error);
  if (const std::string format = root["format"].plain_text(); error.empty() && format != kFormat) {
    root["format"].wrong(fmt::format("is '{}', not '{}'", Node::quoted(format), kFormat));
  }
  if (const int version = root["version"].integer<int>();
      error.empty() && version != kResultVersion) {
    root["version"].wrong(
        fmt::format("is {}, but this ctxconf reads only {}", version, kResultVersion));
  }
  if (!error.empty()) return sys::fail(kStep, 0, error);
  RunResult out;
  ResultReader reader(root, catalogue);
  members(reader, out);
  if (!error.empty()) return sys::fail(kStep, 0, error);
  // Earlier results have the C library of ctxconf in host.
  if (!root["suite"].maybe("libc").present()) std::swap(out.libc, out.suite_libc);
  return out;
}

}  // namespace ctxconf::conformance
