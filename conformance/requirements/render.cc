#include "conformance/requirements/render.h"

#include <algorithm>
#include <cerrno>

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kLabel = 12;

std::string_view meaning(Strength s) {
  switch (s) {
    case Strength::kMust:
      return "an obligation, or a step that readers rely on";
    case Strength::kShould:
      return "a recommendation";
    case Strength::kMay:
      return "a permission";
  }
  return "";
}

std::string_view meaning(Basis b) {
  switch (b) {
    case Basis::kKeyword:
      return "the sentence has an obligation word";
    case Basis::kStep:
      return "a step of a protocol, or a sentence that says what happens in it";
    case Basis::kTable:
      return "a layout, a schema or a definition fixes it";
    case Basis::kImplied:
      return "it follows from the text, but no sentence states it";
    case Basis::kUndecided:
      return "the text can be read in more than one way";
  }
  return "";
}

std::string_view meaning(Severity s) {
  switch (s) {
    case Severity::kError:
      return "breaking it fails the run";
    case Severity::kWarning:
      return "breaking it is reported, and fails the run with --strict";
    case Severity::kInfo:
      return "it is only mentioned";
  }
  return "";
}

std::string_view meaning(Level l) {
  switch (l) {
    case Level::kStatic:
      return "the ELF file";
    case Level::kSnapshot:
      return "what another process can copy at one moment";
    case Level::kSyscalls:
      return "the system calls, their order and arguments";
    case Level::kStores:
      return "every store into the watched bytes";
    case Level::kSteps:
      return "the state after every instruction";
    case Level::kRace:
      return "a sampling reader against constant updates";
    case Level::kPuppet:
      return "a process that shows scripted bytes to a reader";
    case Level::kNone:
      return "no check can exist";
  }
  return "";
}

std::string pair_text(const char* one, const char* many, const std::array<int, 2>& pair) {
  if (pair[0] == pair[1]) return std::string(one) + " " + std::to_string(pair[0]);
  return std::string(many) + " " + std::to_string(pair[0]) + "-" + std::to_string(pair[1]);
}

std::string joined_modes(const Requirement& r, std::string_view separator) {
  std::string modes;
  for (const Mode m : r.modes) {
    if (!modes.empty()) modes += separator;
    modes += to_string(m);
  }
  return modes.empty() ? "-" : modes;
}

std::string padded(std::string_view text, std::size_t width) {
  std::string s(text);
  if (s.size() < width) s.append(width - s.size(), ' ');
  return s;
}

// Wraps words into lines; the first line begins with `first`, the others are indented as far.
void add_wrapped(std::string& out, const std::string& first, std::string_view text) {
  std::string line = first;
  bool empty = true;
  while (!text.empty()) {
    const std::size_t end = text.find(' ');
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (word.empty()) continue;
    if (!empty && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line.assign(first.size(), ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  out += line + "\n";
}

void add_part(std::string& out, std::string_view label, const std::string& text) {
  add_wrapped(out, "  " + padded(label, kLabel - 2), text);
}

std::string named(std::string_view name, std::string_view meaning) {
  return std::string(name) + ": " + std::string(meaning);
}

// Escapes text for a table cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("|<*\\`").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// pctx.reader from pctx.reader.name
std::string_view group_of(std::string_view id) { return id.substr(0, id.find('.', 5)); }

void add_markdown_rows(std::string& out, const Specification& s) {
  std::vector<std::string_view> groups;
  for (const Requirement& r : s.requirements) {
    if (std::ranges::find(groups, group_of(r.id)) == groups.end()) groups.push_back(group_of(r.id));
  }
  for (const std::string_view group : groups) {
    out += "\n### " + std::string(group) +
           "\n\n| id | requirement | strength | severity | level | modes |\n"
           "|---|---|---|---|---|---|\n";
    for (const Requirement& r : s.requirements) {
      if (group_of(r.id) != group) continue;
      out += "| `" + r.id + "` | " + cell(r.text);
      if (r.excluded) out += " Not checked: " + cell(*r.excluded);
      out += " | " + std::string(to_string(r.strength)) + " (" + std::string(to_string(r.basis)) +
             ") | " + std::string(to_string(r.severity)) + " | " + std::string(to_string(r.level)) +
             " | " + joined_modes(r, ", ") + " |\n";
    }
  }
}

}  // namespace

std::vector<const Requirement*> requirements_of(const Catalogue& catalogue,
                                                const SpecSelection& spec) {
  std::vector<const Requirement*> requirements;
  for (const Specification& s : catalogue.specifications()) {
    if (std::ranges::find(spec.revisions, std::pair(s.otep, s.revision)) == spec.revisions.end()) {
      continue;
    }
    for (const Requirement& r : s.requirements) requirements.push_back(&r);
  }
  return requirements;
}

SpecSelection all_specs(const Catalogue& catalogue) {
  SpecSelection all;
  for (const Specification& s : catalogue.specifications()) {
    all.revisions.emplace_back(s.otep, s.revision);
  }
  return all;
}

std::string list_text(std::span<const Requirement* const> requirements) {
  std::size_t widest = 0;
  for (const Requirement* r : requirements) widest = std::max(widest, r->id.size());
  std::string out;
  for (const Requirement* r : requirements) {
    out += padded(r->id, widest) + "  " + padded(to_string(r->strength), 6) + "  " +
           padded(to_string(r->severity), 7) + "  " + padded(to_string(r->level), 8) + "  " +
           joined_modes(*r, ",") + "\n";
  }
  return out + std::to_string(requirements.size()) +
         (requirements.size() == 1 ? " requirement\n" : " requirements\n");
}

sys::Result<std::string> explain(const Catalogue& catalogue, std::string_view id) {
  const Requirement* r = catalogue.find(id);
  if (r == nullptr) {
    const std::string near = catalogue.nearest(id);
    return sys::fail(
        "explain", EINVAL,
        "no requirement is called \"" + std::string(id.substr(0, 200)) + "\"; " +
            (near.empty() ? "`ctxconf list` shows all" : "did you mean " + near + "?"));
  }
  std::string blob;
  for (const Specification& s : catalogue.specifications()) {
    if (s.otep == r->otep && s.revision == r->revision) blob = s.source_blob;
  }
  std::string out = r->id + "\n";
  add_wrapped(out, "  ", r->text);
  out += "\n";
  add_part(out, "why", r->why);
  add_part(out, "strength", named(to_string(r->strength), meaning(r->strength)));
  add_part(out, "basis", named(to_string(r->basis), meaning(r->basis)));
  add_part(out, "severity", named(to_string(r->severity), meaning(r->severity)));
  if (r->severity_because) add_part(out, "exception", *r->severity_because);
  if (r->unnoticed) {
    const Severity strict = severity_in(*r, Reading::kStrict);
    add_part(out, "unnoticed",
             *r->unnoticed + " With --reading strict it is of severity " +
                 std::string(to_string(strict)) + ".");
  }
  std::string source = "OTEP " + std::to_string(r->otep) + " at revision " + r->revision + ", #" +
                       r->anchor + ", " + pair_text("line", "lines", r->lines);
  if (r->sentences) {
    source += ", " + pair_text("sentence", "sentences", *r->sentences) + " counted from line " +
              std::to_string(r->lines[0]);
  }
  add_part(out, "source", source + " (git blob " + blob + ")");
  add_part(out, "judges", r->role == Role::kWriter ? "programs that publish" : "readers");
  add_part(out, "level", named(to_string(r->level), meaning(r->level)));
  add_part(out, "modes", joined_modes(*r, ", "));
  add_part(out, r->excluded ? "excluded" : "check", r->excluded ? *r->excluded : r->check);
  add_part(out, "mutant", "a program that breaks it: " + r->mutant);
  for (const std::string& v : r->variants) add_part(out, "legal", v);
  return out;
}

std::string requirements_markdown(const Catalogue& catalogue) {
  std::string out =
      "# Requirements\n\n"
      "Generated from `conformance/requirements/` by `ctxconf list --markdown`; do not edit.\n"
      "`ctxconf explain ID` shows everything about one requirement.\n\n"
      "| level | rests on |\n|---|---|\n";
  for (int i = 0; i <= static_cast<int>(Level::kNone); ++i) {
    const auto level = static_cast<Level>(i);
    out += "| " + std::string(to_string(level)) + " | " + std::string(meaning(level)) + " |\n";
  }
  out += "\n| basis | why the requirement exists |\n|---|---|\n";
  for (int i = 0; i <= static_cast<int>(Basis::kUndecided); ++i) {
    const auto basis = static_cast<Basis>(i);
    out += "| " + std::string(to_string(basis)) + " | " + std::string(meaning(basis)) + " |\n";
  }
  out += "\n| severity | effect |\n|---|---|\n";
  for (int i = 0; i <= static_cast<int>(Severity::kInfo); ++i) {
    const auto severity = static_cast<Severity>(i);
    out +=
        "| " + std::string(to_string(severity)) + " | " + std::string(meaning(severity)) + " |\n";
  }
  for (const Specification& s : catalogue.specifications()) {
    out += "\n## OTEP " + std::to_string(s.otep) + " at " + s.revision + "\n\n" +
           std::to_string(s.requirements.size()) + " requirements, from git blob `" +
           s.source_blob + "`.\n";
    add_markdown_rows(out, s);
  }
  return out;
}

}  // namespace ctxconf::conformance
