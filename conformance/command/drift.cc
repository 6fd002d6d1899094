// Compares a newer text of an OTEP with the sentences of the catalogue.
#include "conformance/requirements/drift.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/print.h"
#include "conformance/report/escape.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

struct DriftCommand {
  std::vector<std::string> oteps;       // 4719=FILE
  std::vector<std::string> catalogues;  // files; empty: the built-in one
  bool json = false;
  std::optional<std::string> cited;  // SECTION or SECTION:FIRST-LAST; else compare
};

constexpr std::size_t kLongestCatalogue = std::size_t{4} << 20U;
constexpr std::size_t kShownOfBlob = 12;

struct Compared {
  const Specification* specification;
  std::string file;
  std::string blob;
  Drift drift;

  bool is_pinned_text() const { return blob == specification->source_blob; }
};

std::string lines_of(std::array<int, 2> lines) {
  return lines[0] == lines[1] ? fmt::format("line {}", lines[0])
                              : fmt::format("lines {}-{}", lines[0], lines[1]);
}

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return out;
}

std::string section_of(const RequirementDrift& d) {
  if (!d.section.empty()) return "#" + d.section;
  return d.before_headings ? "before the first heading" : "under a heading without a name";
}

void show(std::string& out, const RequirementDrift& d) {
  const auto line = [&](const std::string& text) { out += escape(text, Escape::kTerminal) + "\n"; };
  const Requirement& r = *d.requirement;
  line(fmt::format("{:<9} {}   was {} #{}", upper(to_string(d.kind)), r.id, lines_of(r.lines),
                   r.anchor));
  if (d.kind == DriftKind::kMoved) {
    line(fmt::format("  now    {} {}, sentences {}-{}", lines_of(d.location.lines), section_of(d),
                     d.location.sentences[0], d.location.sentences[1]));
    return;
  }
  line(fmt::format("  rule   {}", r.text));
  if (d.kind == DriftKind::kChanged && d.text.empty()) {
    line(fmt::format("  now    somewhere in #{}; its sentences changed their order", d.section));
  } else if (d.kind == DriftKind::kChanged) {
    line(fmt::format("  now    {} #{}: {}", lines_of(d.location.lines), d.section, d.text));
  } else if (d.section.empty()) {
    line("  now    the section is gone");
  } else {
    line(fmt::format("  now    no such sentence in #{}", d.section));
  }
}

std::string text_of(const Compared& c) {
  const Specification& s = *c.specification;
  std::string out =
      escape(fmt::format("OTEP {}@{}: {}: {}", s.otep, s.revision, c.file,
                         c.is_pinned_text() ? "the pinned text"
                                            : fmt::format("blob {}; the pinned text is {}",
                                                          c.blob.substr(0, kShownOfBlob),
                                                          s.source_blob.substr(0, kShownOfBlob))),
             Escape::kTerminal);
  out += "\n";
  for (const DriftKind kind : {DriftKind::kVanished, DriftKind::kChanged, DriftKind::kMoved}) {
    for (const RequirementDrift& d : c.drift.requirements) {
      if (d.kind == kind) show(out, d);
    }
  }
  const auto count = [&](DriftKind kind) { return c.drift.count(kind); };
  out += fmt::format(
      "{} requirements: {} as pinned, {} moved, {} changed, {} vanished, {} rest on no sentence\n",
      c.drift.requirements.size(), count(DriftKind::kAsPinned), count(DriftKind::kMoved),
      count(DriftKind::kChanged), count(DriftKind::kVanished), count(DriftKind::kNoSentence));
  return out;
}

nlohmann::ordered_json json_of(const Compared& c) {
  nlohmann::ordered_json requirements = nlohmann::ordered_json::array();
  nlohmann::ordered_json totals = {{"requirements", c.drift.requirements.size()}};
  for (const DriftKind kind : {DriftKind::kAsPinned, DriftKind::kMoved, DriftKind::kChanged,
                               DriftKind::kVanished, DriftKind::kNoSentence}) {
    totals[to_string(kind)] = c.drift.count(kind);
  }
  for (const RequirementDrift& d : c.drift.requirements) {
    if (d.kind == DriftKind::kAsPinned || d.kind == DriftKind::kNoSentence) continue;
    nlohmann::ordered_json requirement = {{"id", d.requirement->id},
                                          {"drift", to_string(d.kind)},
                                          {"anchor", d.requirement->anchor},
                                          {"lines", d.requirement->lines}};
    if (d.requirement->sentences) requirement["sentences"] = *d.requirement->sentences;
    if (!d.section.empty()) requirement["now"]["anchor"] = d.section;
    if (d.location.lines[0] > 0) requirement["now"]["lines"] = d.location.lines;
    if (d.kind == DriftKind::kMoved) requirement["now"]["sentences"] = d.location.sentences;
    if (!d.text.empty()) requirement["now"]["text"] = d.text;
    requirements.push_back(std::move(requirement));
  }
  return {{"otep", c.specification->otep},
          {"revision", c.specification->revision},
          {"source_blob", c.specification->source_blob},
          {"file", json_text(c.file)},
          {"blob", c.blob},
          {"clean", c.drift.is_clean()},
          {"totals", std::move(totals)},
          {"requirements", std::move(requirements)}};
}

sys::Result<Catalogue> read_catalogue(const std::vector<std::string>& files) {
  std::vector<Specification> all;
  for (const std::string& file : files) {
    CTX_ASSIGN_OR_RETURN(text, read_file(file, kLongestCatalogue));
    CTX_ASSIGN_OR_RETURN(specification, parse_specification(text, file));
    all.push_back(std::move(specification));
  }
  return Catalogue::from(std::move(all));
}

// Each value of --otep names another specification and a file.
sys::Result<std::vector<Compared>> wanted(const std::vector<std::string>& values,
                                          const Catalogue& catalogue) {
  std::vector<Compared> out;
  for (const std::string& value : values) {
    const std::size_t equals = value.find('=');
    if (equals == value.npos || equals + 1 == value.size()) {
      return sys::fail("--otep", 0, value + " is not NUMBER=FILE");
    }
    const auto all = std::span(catalogue.specifications());
    const auto at = std::ranges::find(all, value.substr(0, equals), [](const Specification& s) {
      return std::to_string(s.otep);
    });
    if (at == all.end()) {
      return sys::fail("--otep", 0, value + ": the catalogue has no such OTEP");
    }
    if (std::ranges::find(out, &*at, &Compared::specification) != out.end()) {
      return sys::fail("--otep", 0, value + ": this OTEP is given twice");
    }
    out.push_back({&*at, value.substr(equals + 1), "", {}});
  }
  return out;
}

// The sentences of a section, numbered from 1; or, for some of them, the members that a requirement
// of the catalogue refers to them with.
int cite(const std::string& cited, const std::vector<std::string>& oteps) {
  if (oteps.size() != 1) {
    return complain(kExitUsage, "--cite: name one text", "like --otep 4719=4719-process-ctx.md");
  }
  const auto named = wanted(oteps, Catalogue::builtin());
  if (!named) {
    return complain(kExitUsage, sys::to_string(named.error()),
                    "like --otep 4719=4719-process-ctx.md");
  }
  const auto bytes = read_file(named->front().file, kLongestSourceText);
  if (!bytes) return complain(kExitUsage, "drift: " + sys::to_string(bytes.error()));
  const auto text = SourceText::from(*bytes);
  if (!text) return complain(kExitUsage, "drift: " + text.error().detail);

  const auto colon = cited.find(':');
  const std::string section = cited.substr(0, colon);
  const auto [begin, end] = text->units_of_section(section);
  if (begin == end) {
    return complain(kExitUsage, "--cite: the text has no sentences in the section " + section);
  }
  const auto units = text->units().subspan(begin, end - begin);
  if (colon == std::string::npos) {
    std::string out;
    for (std::size_t i = 0; i < units.size(); ++i) {
      out += escape(fmt::format("{:>3}  {}: {}", i + 1, lines_of({units[i].first, units[i].last}),
                                units[i].text),
                    Escape::kTerminal) +
             "\n";
    }
    return print(out, kExitClean);
  }
  std::size_t first = 0;
  std::size_t last = 0;
  std::istringstream range(cited.substr(colon + 1));
  char dash = '-';
  range >> first;
  last = first;
  if (!range.eof()) range >> dash >> last;
  if (!range || !range.eof() || dash != '-' || first < 1 || last < first || last > units.size()) {
    return complain(kExitUsage, "--cite: " + cited.substr(colon + 1) + " is not a range of " +
                                    fmt::format("the {} sentences of {}", units.size(), section));
  }
  const auto location = text->location_of(begin + first - 1, last - first + 1);
  const nlohmann::ordered_json members = {
      {"anchor", section},
      {"lines", location.lines},
      {"sentences", location.sentences},
      {"fingerprint", fingerprint_of(units.subspan(first - 1, last - first + 1))}};
  return print(members.dump(1) + "\n", kExitClean);
}

int drift(const DriftCommand& command) {
  if (command.cited) return cite(*command.cited, command.oteps);
  std::optional<Catalogue> given;
  if (!command.catalogues.empty()) {
    auto read = read_catalogue(command.catalogues);
    if (!read) return complain(kExitUsage, "--catalogue: " + sys::to_string(read.error()));
    given = std::move(*read);
  }
  auto compared = wanted(command.oteps, given ? *given : Catalogue::builtin());
  if (!compared) {
    return complain(kExitUsage, sys::to_string(compared.error()),
                    "like --otep 4719=4719-process-ctx.md");
  }
  for (Compared& c : *compared) {
    const auto bytes = read_file(c.file, kLongestSourceText);
    if (!bytes) return complain(kExitUsage, "drift: " + sys::to_string(bytes.error()));
    const auto text = SourceText::from(*bytes);
    const auto drift = text ? drift_of(*c.specification, *text) : std::unexpected(text.error());
    if (!drift) {
      return complain(kExitUsage, "drift: " + c.file + ": " + drift.error().detail,
                      fmt::format("name the Markdown file of OTEP {}, as it is in the "
                                  "specification's repository",
                                  c.specification->otep));
    }
    c.blob = text->blob();
    c.drift = *drift;
  }
  const bool clean =
      std::ranges::all_of(*compared, [](const Compared& c) { return c.drift.is_clean(); });
  const int code = clean ? kExitClean : kExitFailed;
  if (command.json) {
    nlohmann::ordered_json texts = nlohmann::ordered_json::array();
    for (const Compared& c : *compared) texts.push_back(json_of(c));
    const nlohmann::ordered_json all = {
        {"format", "ctxconf-drift"}, {"version", 1}, {"texts", texts}};
    return print(all.dump(1) + "\n", code);
  }
  std::string out;
  for (const Compared& c : *compared) out += text_of(c);
  return print(out, code);
}

}  // namespace

Command drift_command(CLI::App& app, const Words& /*command_line*/) {
  const auto o = std::make_shared<DriftCommand>();
  CLI::App* sub = app.add_subcommand("drift", "find requirements whose OTEP text changed");
  sub->add_option("--otep", o->oteps,
                  "NUMBER=FILE: the Markdown text of OTEP 4719 or 4947 (repeatable)")
      ->required()
      ->allow_extra_args(false);
  auto* catalogue =
      sub->add_option("--catalogue", o->catalogues,
                      "use the requirements in this file, not the built-in ones (repeatable)")
          ->allow_extra_args(false);
  auto* json = sub->add_flag("--json", o->json, "as JSON");
  sub->add_option(
         "--cite", o->cited,
         "print the sentences of this section instead of comparing; with :3-5, print what the "
         "catalogue needs to cite sentences 3 to 5")
      ->type_name("SECTION[:FIRST-LAST]")
      ->excludes(catalogue)
      ->excludes(json);
  sub->footer(
      "Exit codes: 0 all sentences are as pinned, or cited, 1 some changed, moved or vanished,\n"
      "2 usage, or a file that cannot be read or is not a text of that OTEP, 3 stdout could not "
      "be\n"
      "written, 70 a bug in ctxconf.");

  return {.app = sub, .run = [o](const Words& /*program*/) { return drift(*o); }, .takes = nullptr};
}

}  // namespace ctxconf::conformance
