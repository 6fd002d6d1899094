// A newer text of an OTEP against the sentences that the catalogue was made from.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "conformance/commands.h"
#include "conformance/report/escape.h"
#include "conformance/requirements/drift.h"
#include "conformance/verdict/exit_code.h"

namespace ctxconf::conformance {
namespace {

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

std::string section_of(const RowDrift& d) {
  if (!d.section.empty()) return "#" + d.section;
  return d.before_headings ? "before the first heading" : "under a heading without a name";
}

void show(std::string& out, const RowDrift& d) {
  const auto line = [&](const std::string& text) { out += escape(text, Escape::kTerminal) + "\n"; };
  const Requirement& r = *d.row;
  line(fmt::format("{:<9} {}   was {} #{}", upper(to_string(d.kind)), r.id, lines_of(r.lines),
                   r.anchor));
  if (d.kind == DriftKind::kMoved) {
    line(fmt::format("  now    {} {}, sentences {}-{}", lines_of(d.place.lines), section_of(d),
                     d.place.sentences[0], d.place.sentences[1]));
    return;
  }
  line(fmt::format("  rule   {}", r.text));
  if (d.kind == DriftKind::kChanged && d.text.empty()) {
    line(fmt::format("  now    somewhere in #{}, whose sentences changed their order", d.section));
  } else if (d.kind == DriftKind::kChanged) {
    line(fmt::format("  now    {} #{}: {}", lines_of(d.place.lines), d.section, d.text));
  } else if (d.section.empty()) {
    line("  now    the section is gone");
  } else {
    line(fmt::format("  now    nothing stands there in #{}", d.section));
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
    for (const RowDrift& d : c.drift.rows) {
      if (d.kind == kind) show(out, d);
    }
  }
  const auto count = [&](DriftKind kind) { return c.drift.count(kind); };
  out += fmt::format(
      "{} requirements: {} as pinned, {} moved, {} changed, {} vanished, {} rest on no sentence\n",
      c.drift.rows.size(), count(DriftKind::kAsPinned), count(DriftKind::kMoved),
      count(DriftKind::kChanged), count(DriftKind::kVanished), count(DriftKind::kNoSentence));
  return out;
}

nlohmann::ordered_json json_of(const Compared& c) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  nlohmann::ordered_json totals = {{"requirements", c.drift.rows.size()}};
  for (const DriftKind kind : {DriftKind::kAsPinned, DriftKind::kMoved, DriftKind::kChanged,
                               DriftKind::kVanished, DriftKind::kNoSentence}) {
    totals[to_string(kind)] = c.drift.count(kind);
  }
  for (const RowDrift& d : c.drift.rows) {
    if (d.kind == DriftKind::kAsPinned || d.kind == DriftKind::kNoSentence) continue;
    nlohmann::ordered_json row = {{"id", d.row->id},
                                  {"drift", to_string(d.kind)},
                                  {"anchor", d.row->anchor},
                                  {"lines", d.row->lines}};
    if (d.row->sentences) row["sentences"] = *d.row->sentences;
    if (!d.section.empty()) row["now"]["anchor"] = d.section;
    if (d.place.lines[0] > 0) row["now"]["lines"] = d.place.lines;
    if (d.kind == DriftKind::kMoved) row["now"]["sentences"] = d.place.sentences;
    if (!d.text.empty()) row["now"]["text"] = d.text;
    rows.push_back(std::move(row));
  }
  return {{"otep", c.specification->otep},
          {"revision", c.specification->revision},
          {"source_blob", c.specification->source_blob},
          {"file", json_text(c.file)},
          {"blob", c.blob},
          {"clean", c.drift.is_clean()},
          {"totals", std::move(totals)},
          {"requirements", std::move(rows)}};
}

sys::Result<Catalogue> read_catalogue(const std::vector<std::string>& files) {
  std::vector<Specification> all;
  for (const std::string& file : files) {
    CTX_TRY(text, read_file(file, kLongestCatalogue));
    CTX_TRY(specification, parse_specification(text, file));
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
      return sys::fail("--otep", 0, value + ": no requirements of such an OTEP");
    }
    if (std::ranges::find(out, &*at, &Compared::specification) != out.end()) {
      return sys::fail("--otep", 0, value + ": that OTEP is given twice");
    }
    out.push_back({&*at, value.substr(equals + 1), "", {}});
  }
  return out;
}

}  // namespace

int command_drift(const DriftCommand& command) {
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

}  // namespace ctxconf::conformance
