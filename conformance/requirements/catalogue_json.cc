// The only file of the catalogue that uses the JSON library.
#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "conformance/requirements/catalogue.h"
#include "conformance/requirements/render.h"
#include "golden/json_check.h"

namespace ctxconf::conformance {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepest = 64;  // levels of nesting in a file

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_hex(std::string_view s, std::size_t length) {
  return s.size() == length && s.find_first_not_of("0123456789abcdef") == s.npos;
}

// 2026-04-07
bool is_revision(std::string_view s) {
  if (s.size() != 10) return false;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const bool dash = i == 4 || i == 7;
    if (dash ? s[i] != '-' : (s[i] < '0' || s[i] > '9')) return false;
  }
  return true;
}

// (pctx|tctx) and two or three groups of lower-case words, joined by single dashes.
bool is_id(std::string_view s) {
  if (!s.starts_with("pctx.") && !s.starts_with("tctx.")) return false;
  int groups = 0;
  char before = '.';
  for (const char c : s.substr(4)) {
    if (c == '.') {
      ++groups;
      if (groups > 1 && !is_lower_or_digit(before)) return false;
    } else if (c == '-') {
      if (!is_lower_or_digit(before)) return false;
    } else if (!is_lower_or_digit(c)) {
      return false;
    }
    before = c;
  }
  return is_lower_or_digit(before) && (groups == 2 || groups == 3);
}

bool is_anchor(std::string_view s) {
  return !s.empty() && std::ranges::all_of(
                           s, [](char c) { return is_lower_or_digit(c) || c == '_' || c == '-'; });
}

// The length in code points, as JSON Schema counts it.
std::size_t length_of(std::string_view s) {
  return static_cast<std::size_t>(std::ranges::count_if(
      s, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// A JSON object, and its name for error messages.
class Object {
 public:
  Object(const json& object, std::string name) : object_(object), name_(std::move(name)) {}

  std::unexpected<sys::Error> wrong(std::string_view member, const std::string& what) const {
    return sys::fail("catalogue", 0, name_ + ": " + std::string(member) + ": " + what);
  }

  // Checks that the object has all these members, perhaps some of the others, and no more.
  sys::Result<> has_only(std::span<const std::string_view> members,
                         std::span<const std::string_view> others = {}) const {
    if (!object_.is_object()) return sys::fail("catalogue", 0, name_ + ": is not an object");
    for (const std::string_view m : members) {
      if (!object_.contains(m)) return wrong(m, "missing");
    }
    for (const auto& [key, _] : object_.items()) {
      if (std::ranges::find(members, key) == members.end() &&
          std::ranges::find(others, key) == others.end()) {
        return wrong(key, "unknown member");
      }
    }
    return {};
  }

  const json& at(std::string_view member) const { return *object_.find(member); }

  sys::Result<std::string> text(std::string_view member, std::size_t at_least) const {
    return text_of(member, at(member), at_least);
  }

  sys::Result<std::string> text_of(std::string_view member, const json& value,
                                   std::size_t at_least) const {
    if (!value.is_string()) return wrong(member, "is not a string");
    const auto& s = value.get_ref<const std::string&>();
    if (length_of(s) < at_least) {
      return wrong(member, "is shorter than " + std::to_string(at_least) + " characters");
    }
    return s;
  }

  // One line that ends with a full stop.
  sys::Result<std::string> prose(std::string_view member) const {
    CTX_ASSIGN_OR_RETURN(s, text(member, 10));
    if (s.find('\n') != s.npos || !s.ends_with('.')) {
      return wrong(member, "is not one line that ends with a full stop");
    }
    return s;
  }

  template <class E>
  sys::Result<E> one_of(std::string_view member, const json& value, E last) const {
    std::string known;
    for (int i = 0; i <= static_cast<int>(last); ++i) {
      const std::string_view name = to_string(static_cast<E>(i));
      if (value.is_string() && value.get_ref<const std::string&>() == name) {
        return static_cast<E>(i);
      }
      known += (i == 0 ? "" : ", ") + std::string(name);
    }
    return wrong(member, value.dump() + " is not one of " + known);
  }

  sys::Result<std::array<int, 2>> span_of_two(std::string_view member) const {
    const json& value = at(member);
    if (!value.is_array() || value.size() != 2) return wrong(member, "is not a pair of numbers");
    std::array<int, 2> pair{};
    for (std::size_t i = 0; i < 2; ++i) {
      if (!value[i].is_number_unsigned() ||
          value[i].get<std::uint64_t>() > std::numeric_limits<int>::max() ||
          value[i].get<std::uint64_t>() < 1) {
        return wrong(member, value[i].dump() + " is not a number from 1 on");
      }
      pair[i] = value[i].get<int>();
    }
    if (pair[0] > pair[1]) return wrong(member, "the first is after the last");
    return pair;
  }

 private:
  const json& object_;
  std::string name_;
};

constexpr std::string_view kFileMembers[] = {"otep", "revision", "source_blob", "requirements"};
constexpr std::string_view kRequirementMembers[] = {
    "id",   "anchor", "lines", "sentences", "fingerprint", "strength", "basis",    "severity",
    "role", "text",   "why",   "observe",   "check",       "mutant",   "variants", "excluded"};
constexpr std::string_view kRequirementMayHave[] = {"unnoticed", "severity_because"};
constexpr std::string_view kObserveMembers[] = {"level", "modes"};

sys::Result<> read_observe(const Object& requirement, const json& value, const std::string& name,
                           Requirement& r) {
  const Object observe(value, name + ": observe");
  CTX_RETURN_IF_ERROR(observe.has_only(kObserveMembers));
  CTX_ASSIGN_OR_RETURN(level, requirement.one_of("observe.level", value["level"], Level::kNone));
  r.level = level;
  if (!value["modes"].is_array()) return requirement.wrong("observe.modes", "is not a list");
  for (const json& m : value["modes"]) {
    CTX_ASSIGN_OR_RETURN(mode, requirement.one_of("observe.modes", m, Mode::kReader));
    if (r.has_mode(mode)) {
      return requirement.wrong("observe.modes", std::string(to_string(mode)) + " is repeated");
    }
    r.modes.push_back(mode);
  }
  return {};
}

sys::Result<> read_origin(const Object& requirement, Requirement& r) {
  CTX_ASSIGN_OR_RETURN(anchor, requirement.text("anchor", 1));
  if (!is_anchor(anchor))
    return requirement.wrong("anchor", "\"" + anchor + "\" is not a heading slug");
  r.anchor = anchor;
  CTX_ASSIGN_OR_RETURN(lines, requirement.span_of_two("lines"));
  r.lines = lines;
  if (!requirement.at("sentences").is_null()) {
    CTX_ASSIGN_OR_RETURN(sentences, requirement.span_of_two("sentences"));
    r.sentences = sentences;
  }
  if (!requirement.at("fingerprint").is_null()) {
    CTX_ASSIGN_OR_RETURN(fingerprint, requirement.text("fingerprint", 0));
    if (!is_hex(fingerprint, 64))
      return requirement.wrong("fingerprint", "is not 64 lower-case hex digits");
    r.fingerprint = fingerprint;
  }
  return {};
}

sys::Result<> read_prose(const Object& requirement, Requirement& r) {
  CTX_ASSIGN_OR_RETURN(text, requirement.prose("text"));
  CTX_ASSIGN_OR_RETURN(why, requirement.prose("why"));
  CTX_ASSIGN_OR_RETURN(check, requirement.text("check", 20));
  if (check.find("Print ") == check.npos && check.find("Prints ") == check.npos) {
    return requirement.wrong("check", "does not say what it prints (\"Prints ...\")");
  }
  CTX_ASSIGN_OR_RETURN(mutant, requirement.text("mutant", 10));
  r.text = text;
  r.why = why;
  r.check = check;
  r.mutant = mutant;
  const json& variants = requirement.at("variants");
  if (!variants.is_array()) return requirement.wrong("variants", "is not a list");
  for (const json& v : variants) {
    CTX_ASSIGN_OR_RETURN(variant, requirement.text_of("variants", v, 3));
    if (std::ranges::find(r.variants, variant) != r.variants.end()) {
      return requirement.wrong("variants", "\"" + variant + "\" is repeated");
    }
    r.variants.push_back(variant);
  }
  if (!requirement.at("excluded").is_null()) {
    CTX_ASSIGN_OR_RETURN(excluded, requirement.text("excluded", 10));
    r.excluded = excluded;
  }
  return {};
}

// Checks what the schema cannot express.
sys::Result<> check_meaning(const Object& requirement, const Requirement& r) {
  if (!r.id.starts_with(r.otep == 4719 ? "pctx." : "tctx.")) {
    return requirement.wrong("id", "belongs to the other OTEP's file");
  }
  const std::string_view group = std::string_view(r.id).substr(5);
  if ((r.role == Role::kReader) != group.starts_with("reader.")) {
    return requirement.wrong("role", std::string(to_string(r.role)) + " does not fit the id");
  }
  if (r.sentences.has_value() != r.fingerprint.has_value()) {
    return requirement.wrong("fingerprint", "is null exactly when sentences is null");
  }
  const bool open = r.basis == Basis::kImplied || r.basis == Basis::kUndecided;
  if (!r.sentences && !open) {
    return requirement.wrong("basis", std::string(to_string(r.basis)) + " needs a sentence");
  }
  if (r.severity == Severity::kError) {
    if (open) {
      return requirement.wrong("severity",
                               "basis " + std::string(to_string(r.basis)) + " cannot be an error");
    }
    if (r.strength == Strength::kMay)
      return requirement.wrong("severity", "a MAY cannot be an error");
    if (r.strength == Strength::kShould &&
        !(r.role == Role::kReader && r.basis == Basis::kKeyword)) {
      return requirement.wrong("severity", "a SHOULD is an error only as a reader's keyword");
    }
  }
  if (r.unnoticed && (r.basis != Basis::kStep || r.strength != Strength::kMust)) {
    return requirement.wrong("unnoticed", "only a MUST that is a step can go unnoticed");
  }
  const Severity by_rule =
      severity_by_rule(r.strength, r.basis, r.unnoticed.has_value(), Reading::kReaderVisible);
  if (r.severity_because && r.severity == by_rule) {
    return requirement.wrong("severity_because", "the severity follows from strength and basis");
  }
  if (!r.severity_because && r.severity != by_rule) {
    return requirement.wrong("severity", "a " + std::string(to_string(r.strength)) +
                                             " with basis " + std::string(to_string(r.basis)) +
                                             " is of severity " + std::string(to_string(by_rule)) +
                                             ", and severity_because gives no reason for another");
  }
  if (r.excluded) {
    if (r.level != Level::kNone || !r.modes.empty()) {
      return requirement.wrong("excluded", "an excluded requirement has level none and no mode");
    }
  } else if (r.level == Level::kNone || r.modes.empty()) {
    return requirement.wrong("observe",
                             "a requirement that is not excluded needs a level and a mode");
  }
  for (const Mode m : r.modes) {
    if ((r.role == Role::kReader) != (m == Mode::kReader)) {
      return requirement.wrong("observe.modes", "a " + std::string(to_string(r.role)) +
                                                    " requirement does not run in mode " +
                                                    std::string(to_string(m)));
    }
  }
  if (r.has_mode(Mode::kElf) && r.level != Level::kStatic) {
    return requirement.wrong("observe.modes", "elf proves static requirements only");
  }
  if (r.has_mode(Mode::kAttach) && r.level > Level::kSnapshot) {
    return requirement.wrong("observe.modes",
                             "attach does not reach level " + std::string(to_string(r.level)));
  }
  return {};
}

sys::Result<Requirement> read_requirement(const json& value, const std::string& name,
                                          const Specification& s) {
  const Object requirement(value, name);
  CTX_RETURN_IF_ERROR(requirement.has_only(kRequirementMembers, kRequirementMayHave));
  Requirement r;
  r.otep = s.otep;
  r.revision = s.revision;
  CTX_ASSIGN_OR_RETURN(id, requirement.text("id", 1));
  if (!is_id(id)) return requirement.wrong("id", "is not pctx.GROUP.NAME or tctx.GROUP.NAME");
  r.id = id;
  CTX_RETURN_IF_ERROR(read_origin(requirement, r));
  CTX_ASSIGN_OR_RETURN(strength,
                       requirement.one_of("strength", requirement.at("strength"), Strength::kMay));
  CTX_ASSIGN_OR_RETURN(basis,
                       requirement.one_of("basis", requirement.at("basis"), Basis::kUndecided));
  CTX_ASSIGN_OR_RETURN(severity,
                       requirement.one_of("severity", requirement.at("severity"), Severity::kInfo));
  CTX_ASSIGN_OR_RETURN(role, requirement.one_of("role", requirement.at("role"), Role::kReader));
  r.strength = strength;
  r.basis = basis;
  r.severity = severity;
  r.role = role;
  for (const auto& [member, to] :
       {std::pair{"unnoticed", &r.unnoticed}, std::pair{"severity_because", &r.severity_because}}) {
    if (!value.contains(member)) continue;
    CTX_ASSIGN_OR_RETURN(reason, requirement.prose(member));
    *to = reason;
  }
  CTX_RETURN_IF_ERROR(read_prose(requirement, r));
  CTX_RETURN_IF_ERROR(read_observe(requirement, requirement.at("observe"), name, r));
  CTX_RETURN_IF_ERROR(check_meaning(requirement, r));
  return r;
}

// The JSON library keeps the last of two members with the same name; refuse such a file.
sys::Result<> check_text(std::string_view text, const std::string& file) {
  const golden::JsonCheck check(text, kDeepest);
  if (check.too_deep()) {
    return sys::fail("catalogue", 0,
                     file + ": is nested deeper than " + std::to_string(kDeepest) + " levels");
  }
  if (check.repeated()) {
    return sys::fail("catalogue", 0, file + ": " + *check.repeated() + ": member given twice");
  }
  return {};
}

sys::Result<json> parse_json(std::string_view text, const std::string& file) {
  try {
    return json::parse(text);
  } catch (const json::exception& e) {
    return sys::fail("catalogue", 0, file + ": " + e.what());
  }
}

}  // namespace

sys::Result<Specification> parse_specification(std::string_view text, std::string_view file) {
  CTX_RETURN_IF_ERROR(check_text(text, std::string(file)));
  return parse_checked_specification(text, file);
}

sys::Result<Specification> parse_checked_specification(std::string_view text,
                                                       std::string_view file) {
  const std::string name(file);
  CTX_ASSIGN_OR_RETURN(document, parse_json(text, name));
  const Object top(document, name);
  CTX_RETURN_IF_ERROR(top.has_only(kFileMembers));
  Specification s;
  const json& otep = document["otep"];
  if (otep != 4719 && otep != 4947) return top.wrong("otep", otep.dump() + " is not 4719 or 4947");
  s.otep = otep.get<int>();
  CTX_ASSIGN_OR_RETURN(revision, top.text("revision", 0));
  if (!is_revision(revision))
    return top.wrong("revision", "\"" + revision + "\" is not YYYY-MM-DD");
  s.revision = revision;
  CTX_ASSIGN_OR_RETURN(blob, top.text("source_blob", 0));
  if (!is_hex(blob, 40)) return top.wrong("source_blob", "is not 40 lower-case hex digits");
  s.source_blob = blob;
  const json& requirements = document["requirements"];
  if (!requirements.is_array() || requirements.empty())
    return top.wrong("requirements", "is not a list of requirements");

  std::set<std::string> ids;
  std::map<std::string, std::string> mutants;
  for (std::size_t i = 0; i < requirements.size(); ++i) {
    std::string requirement_name = name + ": requirement " + std::to_string(i + 1);
    if (requirements[i].is_object() && requirements[i].contains("id") &&
        requirements[i]["id"].is_string()) {
      requirement_name = name + ": " + requirements[i]["id"].get<std::string>();
    }
    CTX_ASSIGN_OR_RETURN(requirement, read_requirement(requirements[i], requirement_name, s));
    if (!ids.insert(requirement.id).second) {
      return sys::fail("catalogue", 0, requirement_name + ": id: used twice");
    }
    if (!requirement.excluded) {
      const auto [first, fresh] = mutants.emplace(requirement.mutant, requirement.id);
      if (!fresh) {
        return sys::fail("catalogue", 0,
                         requirement_name + ": mutant: the same as that of " + first->second);
      }
    }
    s.requirements.push_back(std::move(requirement));
  }
  // Checks what the requirements of this file say about each other.
  if (const auto checked = Catalogue::from({s}); !checked) {
    return sys::fail("catalogue", 0, name + ": " + checked.error().detail);
  }
  return s;
}

std::string list_json(std::span<const Requirement* const> requirements) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Requirement* r : requirements) {
    nlohmann::ordered_json requirement = {{"id", r->id},
                                          {"otep", r->otep},
                                          {"revision", r->revision},
                                          {"anchor", r->anchor},
                                          {"lines", r->lines},
                                          {"strength", to_string(r->strength)},
                                          {"basis", to_string(r->basis)},
                                          {"severity", to_string(r->severity)},
                                          {"role", to_string(r->role)},
                                          {"level", to_string(r->level)},
                                          {"modes", nlohmann::ordered_json::array()},
                                          {"text", r->text}};
    for (const Mode m : r->modes) requirement["modes"].push_back(to_string(m));
    if (r->excluded) requirement["excluded"] = *r->excluded;
    if (r->unnoticed) requirement["unnoticed"] = *r->unnoticed;
    if (r->severity_because) requirement["severity_because"] = *r->severity_because;
    list.push_back(std::move(requirement));
  }
  return list.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace ctxconf::conformance
