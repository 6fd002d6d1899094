#include "conformance/report/result_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "conformance/report/escape.h"
#include "conformance/text/json_limits.h"
#include "conformance/text/json_text.h"

namespace ctxconf::conformance {
namespace {

using nlohmann::json;

constexpr const char* kStep = "read result.json";
constexpr std::string_view kFormat = "ctxconf-result";
constexpr std::size_t kMostItems = 1000;  // of every list except the results
constexpr std::size_t kMostEvidence = 256;
constexpr std::size_t kMostDumps = 32;
constexpr std::size_t kMostDumpBytes = 4096;
constexpr std::size_t kMostMarks = 64;
// Bytes of text and dumps in one file, before quoting, which turns one character into up to six.
// The worst finding of a requirement is written even if no budget is left.
constexpr std::size_t kFindingsBudget = std::size_t{2} << 20;
constexpr std::size_t kListsBudget = std::size_t{1} << 20;  // images, command lines, notes
constexpr std::size_t kFixedCost = 256;                     // the members around the text
constexpr std::size_t kDeepest = 16;

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

std::size_t bounded(std::string_view text, std::size_t limit = kTextLimit) {
  return std::min(text.size(), limit);
}

// Takes bytes from the budget; if there are too few, takes nothing and returns false.
class Budget {
 public:
  explicit Budget(std::size_t bytes) : left_(bytes) {}
  bool spend(std::size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

 private:
  std::size_t left_;
};

json text_list(const std::vector<std::string>& texts, Budget& budget) {
  json out = json::array();
  for (const std::string& text : texts) {
    if (out.size() == kMostItems || !budget.spend(kFixedCost + bounded(text))) break;
    out.push_back(json_text(text));
  }
  return out;
}

void note_omitted(json& in, const char* member, std::size_t all, std::size_t kept) {
  if (all > kept) in[member] = all - kept;
}

void note_session(json& in, const ImageKey& image) {
  if (image.session != 0) in["session"] = image.session;
}

std::string shown_hex(std::span<const std::uint8_t> bytes) {
  return hex(std::as_bytes(bytes.first(std::min(bytes.size(), kMostDumpBytes))));
}

json expected_json(const Hexdump::Expected& expected) {
  json masks = json::array();
  for (const auto& mask : expected.masks) {
    if (masks.size() == kMostMarks) break;
    masks.push_back({{"offset", mask.offset},
                     {"length", mask.length},
                     {"name", json_text(mask.name, 1000)},
                     {"rule", json_text(mask.rule, 1000)}});
  }
  return {{"vector", json_text(expected.vector, 1000)},
          {"bytes", shown_hex(expected.bytes)},
          {"masks", std::move(masks)}};
}

json hexdump_json(const Hexdump& dump) {
  const std::size_t size = std::min(dump.bytes.size(), kMostDumpBytes);
  json marks = json::array();
  for (std::size_t i = 0; i < std::min(kMostMarks, dump.marks.size()); ++i) {
    const Hexdump::Mark& mark = dump.marks[i];
    marks.push_back(
        {{"offset", mark.offset}, {"length", mark.length}, {"label", json_text(mark.label, 1000)}});
  }
  json out = {{"title", json_text(dump.title, 1000)},
              {"address", fmt::format("0x{:x}", dump.address)},
              {"bytes", shown_hex(dump.bytes)},
              {"marks", std::move(marks)}};
  if (dump.expected) out["expected"] = expected_json(*dump.expected);
  note_omitted(out, "bytes_omitted", dump.bytes.size(), size);
  note_omitted(out, "marks_omitted", dump.marks.size(), std::min(kMostMarks, dump.marks.size()));
  return out;
}

std::size_t cost(const Hexdump& dump) {
  std::size_t texts = std::min(kMostMarks, dump.marks.size()) + 1;
  std::size_t bytes = std::min(dump.bytes.size(), kMostDumpBytes);
  if (dump.expected) {
    texts += 2 * std::min(kMostMarks, dump.expected->masks.size()) + 1;
    bytes += std::min(dump.expected->bytes.size(), kMostDumpBytes);
  }
  return texts * (kFixedCost + 1000) + bytes;
}

constexpr std::size_t kShort = 500;  // for names

std::size_t cost(const OperationPicture& picture) {
  std::size_t out = kFixedCost;
  for (const PictureStep& step : picture.steps) {
    out += kFixedCost * (1 + step.changes.size()) + bounded(step.text, kShort) +
           bounded(step.at, kShort);
  }
  return out;
}

json picture_json(const OperationPicture& picture) {
  json steps = json::array();
  for (const PictureStep& step : picture.steps) {
    if (steps.size() == kMaxPictureSteps) break;
    json changes = json::array();
    for (const PictureStep::Change& change : step.changes) {
      if (changes.size() == kLanes.size()) break;
      changes.push_back({{"lane", to_string(change.lane)},
                         {"was", json_text(change.was, 100)},
                         {"is", json_text(change.is, 100)}});
    }
    json out = {{"kind", to_string(step.kind)}, {"finds", to_string(step.finds)}};
    if (!changes.empty()) out["changes"] = std::move(changes);
    if (!step.text.empty()) out["text"] = json_text(step.text, kShort);
    if (!step.at.empty()) out["at"] = json_text(step.at, kShort);
    if (step.tid != 0) out["thread"] = step.tid;
    if (step.wrong) out["wrong"] = true;
    steps.push_back(std::move(out));
  }
  json out = {{"kind", picture.is_update ? "update" : "publication"},
              {"header", fmt::format("0x{:x}", picture.header)},
              {"before", to_string(picture.before)}};
  if (picture.steps_before > 0) out["steps_before"] = picture.steps_before;
  const std::uint64_t behind = picture.steps_behind + picture.steps.size() - steps.size();
  if (behind > 0) out["steps_behind"] = behind;
  out["steps"] = std::move(steps);
  return out;
}

std::size_t cost(const Finding& f) {
  return kFixedCost + bounded(f.image_name, kShort) + bounded(f.saw) +
         bounded(f.signature, kShort) + bounded(f.at, kShort) + bounded(f.remedy, kShort);
}

json finding_json(const Finding& f, Budget& budget) {
  json evidence = json::array();
  for (const std::string& line : f.evidence) {
    if (evidence.size() == kMostEvidence) break;
    if (!budget.spend(kFixedCost + bounded(line))) break;
    evidence.push_back(json_text(line));
  }
  json dumps = json::array();
  for (const Hexdump& dump : f.hexdumps) {
    if (dumps.size() == kMostDumps) break;
    if (!budget.spend(cost(dump))) break;
    dumps.push_back(hexdump_json(dump));
  }
  json out = {{"pid", f.image.pid},
              {"image", f.image.image},
              {"image_name", json_text(f.image_name, kShort)},
              {"outcome", to_string(f.outcome)},
              {"saw", json_text(f.saw)},
              {"signature", json_text(f.signature, kShort)},
              {"remedy", json_text(f.remedy, kShort)},
              {"level", json_text(f.level, 100)}};
  note_session(out, f.image);
  if (f.outcome == Outcome::kNa) out["na_reason"] = to_string(f.na_reason);
  if (!f.at.empty()) out["at"] = json_text(f.at, kShort);
  if (f.operation && budget.spend(cost(*f.operation))) {
    out["operation"] = picture_json(*f.operation);
  }
  note_omitted(out, "evidence_omitted", f.evidence.size(), evidence.size());
  note_omitted(out, "hexdumps_omitted", f.hexdumps.size(), dumps.size());
  out["evidence"] = std::move(evidence);
  out["hexdumps"] = std::move(dumps);
  return out;
}

json result_entry(const RequirementResult& r, Reading reading, Budget& budget) {
  const Requirement& requirement = *r.requirement;
  json findings = json::array();
  for (const Finding& f : r.findings) {
    const bool worst = findings.empty();
    if (findings.size() == kMostItems || (!budget.spend(cost(f)) && !worst)) break;
    findings.push_back(finding_json(f, budget));
  }
  json out = {{"id", requirement.id},
              {"otep", requirement.otep},
              {"revision", requirement.revision},
              {"anchor", requirement.anchor},
              {"strength", to_string(requirement.strength)},
              {"basis", to_string(requirement.basis)},
              {"severity", to_string(severity_in(requirement, reading))},
              {"role", to_string(requirement.role)},
              {"text", json_text(requirement.text)},
              {"why", json_text(requirement.why)},
              {"outcome", to_string(r.outcome)},
              {"expected", to_string(r.expected)},
              {"expectation_note", json_text(r.expectation_note, kShort)}};
  if (!r.trace_path.empty()) out["trace"] = json_text(r.trace_path);
  note_omitted(out, "findings_omitted", r.findings.size(), findings.size());
  out["findings"] = std::move(findings);
  return out;
}

json image_json(const ImageSummary& image, Budget& budget) {
  json out = {{"pid", image.key.pid},
              {"image", image.key.image},
              {"parent", image.parent},
              {"executable", json_text(image.executable)},
              {"command_line", text_list(image.command_line, budget)},
              {"ending", json_text(image.ending, kShort)},
              {"published", image.published},
              {"context", json_text(image.context)},
              {"snapshots", image.snapshots},
              {"notes", text_list(image.notes, budget)}};
  note_session(out, image.key);
  return out;
}

// One value of the file and its path. The first problem is kept for the whole file; after that all
// values read as empty.
class Node {
 public:
  Node(const json* value, std::string* error) : value_(value), error_(error) {}

  // A member that must exist.
  Node operator[](const char* key) const {
    Node out = maybe(key);
    if (out.value_ == nullptr) out.wrong("is missing");
    return out;
  }
  Node maybe(const char* key) const {
    Node out(nullptr, error_);
    out.parent_ = this;
    out.key_ = key;
    if (value_ == nullptr) return out;
    if (!value_->is_object()) {
      wrong("is not an object");
      return out;
    }
    if (const auto found = value_->find(key); found != value_->end()) out.value_ = &*found;
    return out;
  }
  bool present() const { return value_ != nullptr; }

  template <class F>
  void each(F&& use) const {
    if (value_ == nullptr) return;
    if (!value_->is_array()) return wrong("is not a list");
    for (std::size_t i = 0; i < value_->size() && error_->empty(); ++i) {
      Node item(&(*value_)[i], error_);
      item.parent_ = this;
      item.index_ = i;
      use(item);
    }
  }
  std::string plain_text() const {
    if (value_ == nullptr) return {};
    if (value_->is_string()) return value_->get_ref<const std::string&>();
    wrong("is not a string");
    return {};
  }
  std::string text() const { return bytes_of_json_text(plain_text()); }
  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    each([&out](const Node& item) { out.push_back(item.text()); });
    return out;
  }
  bool boolean() const {
    if (value_ == nullptr) return false;
    if (value_->is_boolean()) return value_->get<bool>();
    wrong("is not true or false");
    return false;
  }
  double number() const {
    if (value_ == nullptr) return 0;
    if (value_->is_number()) return value_->get<double>();
    wrong("is not a number");
    return 0;
  }
  template <class T>
  T integer() const {
    if (value_ == nullptr) return 0;
    if (value_->is_number_unsigned()) {
      const auto v = value_->get<std::uint64_t>();
      if (std::in_range<T>(v)) return static_cast<T>(v);
    } else if (value_->is_number_integer()) {
      const auto v = value_->get<std::int64_t>();
      if (std::in_range<T>(v)) return static_cast<T>(v);
    } else {
      wrong("is not a whole number");
      return 0;
    }
    wrong("is out of range");
    return 0;
  }
  // A word of a fixed list.
  template <class T, class From>
  T word(From from, T otherwise) const {
    if (value_ == nullptr) return otherwise;
    const std::string name = plain_text();
    if (const auto found = from(std::string_view(name))) return *found;
    wrong(fmt::format("is not one of the known words: '{}'", quoted(name)));
    return otherwise;
  }

  static std::string quoted(std::string_view text) { return escape(text, Escape::kTerminal, 80); }

  void wrong(std::string_view how) const {
    if (!error_->empty()) return;
    const std::string where = path();
    *error_ = fmt::format("{} {}", where.empty() ? "the file" : where, how);
  }

 private:
  std::string path() const {
    if (parent_ == nullptr) return {};
    const std::string before = parent_->path();
    if (key_ == nullptr) return fmt::format("{}[{}]", before, index_);
    return before.empty() ? std::string(key_) : fmt::format("{}.{}", before, key_);
  }

  const json* value_;
  std::string* error_;
  const Node* parent_ = nullptr;
  const char* key_ = nullptr;
  std::size_t index_ = 0;
};

std::optional<Expected> expected_from(std::string_view name) {
  for (const Expected e : {Expected::kNone, Expected::kAsExpected, Expected::kUnexpected}) {
    if (name == to_string(e)) return e;
  }
  return std::nullopt;
}

std::uint64_t address_of(const Node& node) {
  const std::string text = node.plain_text();
  std::uint64_t out = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with("0x") && text.size() > 2) {
    const auto [stop, failed] = std::from_chars(text.data() + 2, end, out, 16);
    if (failed == std::errc() && stop == end) return out;
  }
  node.wrong("is not an address");
  return 0;
}

std::vector<std::uint8_t> bytes_of(const Node& node) {
  const std::string text = node.plain_text();
  std::vector<std::uint8_t> out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    std::uint8_t byte = 0;
    const char* const end = text.data() + i + 2;
    const auto [stop, failed] = std::from_chars(text.data() + i, end, byte, 16);
    if (failed != std::errc() || stop != end) break;
    out.push_back(byte);
  }
  if (2 * out.size() != text.size()) node.wrong("is not bytes in hexadecimal");
  return out;
}

Hexdump hexdump_from(const Node& node) {
  Hexdump out;
  out.title = node["title"].text();
  out.address = address_of(node["address"]);
  out.bytes = bytes_of(node["bytes"]);
  node["marks"].each([&out](const Node& mark) {
    out.marks.push_back({.offset = mark["offset"].integer<std::uint64_t>(),
                         .length = mark["length"].integer<std::uint64_t>(),
                         .label = mark["label"].text()});
  });
  if (const Node expected = node.maybe("expected"); expected.present()) {
    out.expected.emplace();
    out.expected->vector = expected["vector"].text();
    out.expected->bytes = bytes_of(expected["bytes"]);
    expected["masks"].each([&out](const Node& mask) {
      out.expected->masks.push_back({.offset = mask["offset"].integer<std::uint64_t>(),
                                     .length = mask["length"].integer<std::uint64_t>(),
                                     .name = mask["name"].text(),
                                     .rule = mask["rule"].text()});
    });
  }
  return out;
}

OperationPicture picture_from(const Node& node) {
  OperationPicture out;
  out.is_update = node["kind"].word(
      [](std::string_view word) -> std::optional<bool> {
        if (word != "update" && word != "publication") return std::nullopt;
        return word == "update";
      },
      false);
  out.header = address_of(node["header"]);
  out.before = node["before"].word(finds_from, Finds::kUnknown);
  out.steps_before = node.maybe("steps_before").integer<std::uint64_t>();
  out.steps_behind = node.maybe("steps_behind").integer<std::uint64_t>();
  const Node steps = node["steps"];
  steps.each([&](const Node& step) {
    if (out.steps.size() == kMaxPictureSteps) return steps.wrong("has too many steps");
    PictureStep& to = out.steps.emplace_back();
    to.kind = step["kind"].word(picture_kind_from, PictureStep::Kind::kStore);
    to.finds = step["finds"].word(finds_from, Finds::kUnknown);
    step.maybe("changes").each([&](const Node& change) {
      to.changes.push_back({.lane = change["lane"].word(lane_from, Lane::kTimestamp),
                            .was = change["was"].text(),
                            .is = change["is"].text()});
    });
    to.text = step.maybe("text").text();
    to.at = step.maybe("at").text();
    to.tid = step.maybe("thread").integer<std::int32_t>();
    to.wrong = step.maybe("wrong").boolean();
  });
  return out;
}

ImageKey key_from(const Node& node) {
  const Node session = node.maybe("session");
  return {.pid = node["pid"].integer<std::int32_t>(),
          .image = node["image"].integer<std::uint32_t>(),
          .session = session.present() ? session.integer<std::uint32_t>() : 0};
}

Finding finding_from(const Node& node, const std::string& id) {
  Finding out;
  out.requirement = id;
  out.image = key_from(node);
  out.image_name = node["image_name"].text();
  out.outcome = node["outcome"].word(outcome_from, Outcome::kHarnessError);
  if (out.outcome == Outcome::kNa) {
    out.na_reason = node["na_reason"].word(na_reason_from, NaReason::kCapability);
  }
  out.saw = node["saw"].text();
  out.signature = node["signature"].text();
  out.at = node.maybe("at").text();
  out.remedy = node["remedy"].text();
  out.level = node["level"].text();
  out.evidence = node["evidence"].texts();
  node["hexdumps"].each([&out](const Node& dump) { out.hexdumps.push_back(hexdump_from(dump)); });
  if (const Node operation = node.maybe("operation"); operation.present()) {
    out.operation = picture_from(operation);
  }
  return out;
}

RequirementResult requirement_result_from(const Node& node, const Catalogue& catalogue) {
  RequirementResult out;
  const std::string id = node["id"].plain_text();
  const std::string revision = node["revision"].plain_text();
  out.requirement = catalogue.find(id);
  if (out.requirement == nullptr) {
    node["id"].wrong(
        fmt::format("is not in the catalogue of this ctxconf: '{}'", Node::quoted(id)));
    return out;
  }
  if (out.requirement->revision != revision) {
    node["revision"].wrong(fmt::format("is '{}', but this ctxconf knows {} of {}",
                                       Node::quoted(revision), id, out.requirement->revision));
    return out;
  }
  out.outcome = node["outcome"].word(outcome_from, Outcome::kHarnessError);
  out.expected = node["expected"].word(expected_from, Expected::kNone);
  out.expectation_note = node["expectation_note"].text();
  out.trace_path = node.maybe("trace").text();
  node["findings"].each(
      [&](const Node& finding) { out.findings.push_back(finding_from(finding, id)); });
  return out;
}

ImageSummary image_from(const Node& node) {
  ImageSummary out;
  out.key = key_from(node);
  out.parent = node["parent"].integer<std::int32_t>();
  out.executable = node["executable"].text();
  out.command_line = node["command_line"].texts();
  out.ending = node["ending"].text();
  out.published = node["published"].boolean();
  out.context = node["context"].text();
  out.snapshots = node["snapshots"].integer<std::uint64_t>();
  out.notes = node["notes"].texts();
  return out;
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

FaultOutcome fault_from(const Node& node) {
  FaultOutcome out;
  out.step = node["step"].text();
  out.fault = node["fault"].text();
  out.outcome = node["outcome"].word(outcome_from, Outcome::kHarnessError);
  out.requirements = node["requirements"].texts();
  out.text = node["text"].text();
  out.output = node["output"].text();
  out.session = node["session"].integer<std::uint32_t>();
  out.options = node["options"].texts();
  return out;
}

RunResult run_from(const Node& root, const Catalogue& catalogue) {
  RunResult out;
  const Node suite = root["suite"];
  out.suite_version = suite["version"].text();
  out.suite_commit = suite["commit"].text();
  root["spec"].each([&out](const Node& spec) {
    out.spec.revisions.emplace_back(spec["otep"].integer<int>(), spec["revision"].text());
  });
  const Node run = root["run"];
  out.mode = run["mode"].text();
  out.command_line = run["command_line"].texts();
  out.target = run["target"].texts();
  out.level = run["level"].text();
  if (const Node reading = run.maybe("reading"); reading.present()) {
    out.reading = reading.word(reading_from, Reading::kReaderVisible);
  }
  out.started_at = run["started_at"].text();
  out.seconds = run["seconds"].number();
  if (const Node injections = run.maybe("injections"); injections.present()) {
    out.injections = injections.texts();
  }
  out.notes = run["notes"].texts();
  if (const Node ending = run.maybe("target_ending"); ending.present()) {
    out.target_ending = ending.text();
  }
  out.trace_path = run["trace"].text();
  out.again = run["again"].text();
  if (const Node seed = run.maybe("seed"); seed.present()) out.seed = seed.text();
  if (const Node partial = run.maybe("partial"); partial.present()) {
    out.partial = partial.boolean();
  }
  const Node host = root["host"];
  out.kernel = host["kernel"].text();
  out.arch = host["arch"].text();
  out.libc = host["libc"].text();
  host["facts"].each([&out](const Node& fact) {
    out.host.push_back({.name = fact["name"].text(),
                        .available = fact["available"].boolean(),
                        .detail = fact["detail"].text(),
                        .remedy = fact["remedy"].text()});
  });
  root["images"].each([&out](const Node& image) { out.images.push_back(image_from(image)); });
  root.maybe("operations").each([&out](const Node& operation) {
    out.operations.push_back({.image = key_from(operation),
                              .image_name = operation["image_name"].text(),
                              .picture = picture_from(operation["operation"])});
  });
  root["problems"].each([&out](const Node& problem) {
    out.problems.push_back({.outcome = problem["outcome"].word(outcome_from, Outcome::kCrash),
                            .image = key_from(problem),
                            .text = problem["text"].text()});
  });
  if (const Node faults = root.maybe("faults"); faults.present()) {
    faults.each([&out](const Node& fault) { out.faults.push_back(fault_from(fault)); });
  }
  root["results"].each([&](const Node& result) {
    out.results.push_back(requirement_result_from(result, catalogue));
  });
  root["expectation_problems"].each([&out](const Node& problem) {
    out.expectation_problems.push_back({.line = problem["line"].integer<int>(),
                                        .exit_code = problem["exit_code"].integer<int>(),
                                        .text = problem["text"].text(),
                                        .mend = problem["mend"].text()});
  });
  root.maybe("floor").each([&out](const Node& problem) {
    out.floor.push_back({.requirement = problem["requirement"].text(),
                         .why = problem["why"].text(),
                         .now = problem["now"].text(),
                         .remedy = problem["remedy"].text()});
  });
  const Node totals = root["totals"];
  for (const auto& [name, member] : kTotals) out.totals.*member = totals[name].integer<int>();
  const Node exit = root["exit"];
  out.exit_code = exit["code"].integer<int>();
  out.exit_reason = exit["reason"].text();
  return out;
}

}  // namespace

std::string to_result_json(const RunResult& run) {
  Budget budget(kFindingsBudget);
  Budget lists(kListsBudget);
  json spec = json::array();
  for (const auto& [otep, revision] : run.spec.revisions) {
    spec.push_back({{"otep", otep}, {"revision", json_text(revision)}});
  }
  json facts = json::array();
  for (std::size_t i = 0; i < std::min(kMostItems, run.host.size()); ++i) {
    const sys::HostFact& fact = run.host[i];
    facts.push_back({{"name", json_text(fact.name)},
                     {"available", fact.available},
                     {"detail", json_text(fact.detail)},
                     {"remedy", json_text(fact.remedy)}});
  }
  json about = {{"mode", json_text(run.mode)},
                {"command_line", text_list(run.command_line, lists)},
                {"target", text_list(run.target, lists)},
                {"level", json_text(run.level)},
                {"reading", to_string(run.reading)},
                {"started_at", json_text(run.started_at)},
                {"seconds", std::isfinite(run.seconds) ? run.seconds : 0.0},
                {"injections", text_list(run.injections, lists)},
                {"notes", text_list(run.notes, lists)},
                {"trace", json_text(run.trace_path)},
                {"again", json_text(run.again)}};
  if (!run.seed.empty()) about["seed"] = json_text(run.seed);
  if (run.partial) about["partial"] = true;
  if (run.target_ending) about["target_ending"] = json_text(*run.target_ending);
  json results = json::array();
  for (const RequirementResult& result : run.results) {
    results.push_back(result_entry(result, run.reading, budget));
  }
  json images = json::array();
  for (const ImageSummary& image : run.images) {
    const std::size_t own = kFixedCost + bounded(image.executable) + bounded(image.context);
    if (images.size() == kMostItems || !lists.spend(own)) break;
    images.push_back(image_json(image, lists));
  }
  json operations = json::array();
  for (const OperationSummary& operation : run.operations) {
    const std::size_t own = kFixedCost + bounded(operation.image_name, kShort);
    if (!lists.spend(own + cost(operation.picture))) break;
    json entry = {{"pid", operation.image.pid},
                  {"image", operation.image.image},
                  {"image_name", json_text(operation.image_name, kShort)},
                  {"operation", picture_json(operation.picture)}};
    note_session(entry, operation.image);
    operations.push_back(std::move(entry));
  }
  json problems = json::array();
  for (const ExpectationProblem& problem : run.expectation_problems) {
    const std::size_t own = kFixedCost + bounded(problem.text) + bounded(problem.mend);
    if (problems.size() == kMostItems || !lists.spend(own)) break;
    problems.push_back({{"line", problem.line},
                        {"exit_code", problem.exit_code},
                        {"text", json_text(problem.text)},
                        {"mend", json_text(problem.mend)}});
  }
  json floor = json::array();
  for (const FloorProblem& problem : run.floor) {
    const std::size_t own =
        kFixedCost + bounded(problem.why) + bounded(problem.now) + bounded(problem.remedy, kShort);
    if (floor.size() == kMostItems || !lists.spend(own)) break;
    floor.push_back({{"requirement", json_text(problem.requirement, kShort)},
                     {"why", json_text(problem.why)},
                     {"now", json_text(problem.now)},
                     {"remedy", json_text(problem.remedy, kShort)}});
  }
  json totals = json::object();
  for (const auto& [name, member] : kTotals) totals[name] = run.totals.*member;
  json out = {
      {"format", kFormat},
      {"version", kResultVersion},
      {"suite",
       {{"version", json_text(run.suite_version)}, {"commit", json_text(run.suite_commit)}}},
      {"spec", std::move(spec)},
      {"run", std::move(about)},
      {"host",
       {{"kernel", json_text(run.kernel)},
        {"arch", json_text(run.arch)},
        {"libc", json_text(run.libc)},
        {"facts", std::move(facts)}}},
      {"totals", std::move(totals)},
      {"exit", {{"code", run.exit_code}, {"reason", json_text(run.exit_reason)}}}};
  note_omitted(out, "images_omitted", run.images.size(), images.size());
  note_omitted(out, "expectation_problems_omitted", run.expectation_problems.size(),
               problems.size());
  json run_problems = json::array();
  for (std::size_t i = 0; i < std::min(kMostItems, run.problems.size()); ++i) {
    const RunProblem& problem = run.problems[i];
    json entry = {{"outcome", to_string(problem.outcome)},
                  {"pid", problem.image.pid},
                  {"image", problem.image.image},
                  {"text", json_text(problem.text)}};
    note_session(entry, problem.image);
    run_problems.push_back(std::move(entry));
  }
  out["problems"] = std::move(run_problems);
  json faults = json::array();
  for (std::size_t i = 0; i < std::min(kMostItems, run.faults.size()); ++i) {
    const FaultOutcome& f = run.faults[i];
    faults.push_back({{"step", json_text(f.step)},
                      {"fault", json_text(f.fault)},
                      {"outcome", to_string(f.outcome)},
                      {"requirements", text_list(f.requirements, lists)},
                      {"text", json_text(f.text)},
                      {"output", json_text(f.output)},
                      {"session", f.session},
                      {"options", text_list(f.options, lists)}});
  }
  if (!faults.empty()) out["faults"] = std::move(faults);
  out["images"] = std::move(images);
  out["operations"] = std::move(operations);
  out["results"] = std::move(results);
  out["expectation_problems"] = std::move(problems);
  note_omitted(out, "floor_omitted", run.floor.size(), floor.size());
  if (!floor.empty()) out["floor"] = std::move(floor);

  const std::string plain = out.dump(1, ' ', true);
  std::string safe;
  safe.reserve(plain.size() + 1);
  for (const char c : plain) {
    // These characters occur only in strings.
    if (c == '<' || c == '>' || c == '&') {
      safe += fmt::format("\\u{:04x}", c);
    } else {
      safe += c;
    }
  }
  safe += '\n';
  return safe;
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
  RunResult out = run_from(root, catalogue);
  if (!error.empty()) return sys::fail(kStep, 0, error);
  return out;
}

}  // namespace ctxconf::conformance
