// The catalogue of requirements: every testable statement of both OTEPs, frozen by revision. It is
// built into the program from conformance/requirements/*.json.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sys/result.h"

namespace ctxconf::conformance {

// The OTEPs, by number.
inline constexpr int kProcessContext = 4719;
inline constexpr int kThreadContext = 4947;

enum class Level { kStatic, kSnapshot, kSyscalls, kStores, kSteps, kRace, kPuppet, kNone };
enum class Mode { kAttach, kWrap, kRun, kElf, kReader };
enum class Strength { kMust, kShould, kMay };
enum class Basis { kKeyword, kStep, kTable, kImplied, kUndecided };
enum class Severity { kError, kWarning, kInfo };
enum class Role { kWriter, kReader };
// How the numbered steps of the protocols are read: every step binds (strict), or a step binds only
// if a reader can notice that it was left out (reader-visible).
enum class Reading { kReaderVisible, kStrict };
std::string_view to_string(Level);
std::string_view to_string(Mode);
std::string_view to_string(Strength);  // "MUST"
std::string_view to_string(Basis);
std::string_view to_string(Severity);
std::string_view to_string(Role);
std::string_view to_string(Reading);  // "reader-visible"
std::optional<Reading> reading_from(std::string_view);
std::optional<Level> level_from(std::string_view);

// One requirement. Lines, sentences and the fingerprint refer to the pinned text of the OTEP
// (`source_blob` of its Specification).
struct Requirement {
  int otep = 0;
  std::string revision;
  std::string id;
  std::string anchor;
  std::array<int, 2> lines{};
  std::optional<std::array<int, 2>> sentences;
  std::optional<std::string> fingerprint;
  Strength strength = Strength::kMust;
  Basis basis = Basis::kKeyword;
  Severity severity = Severity::kError;  // under the reading reader-visible
  // Only for steps: why no reader can notice that the step was left out.
  std::optional<std::string> unnoticed;
  std::optional<std::string> severity_because;  // the reason for an exception to severity_by_rule()
  Role role = Role::kWriter;
  std::string text;
  std::string why;
  Level level = Level::kNone;
  std::vector<Mode> modes;
  std::string check;
  std::string mutant;
  std::vector<std::string> variants;
  std::optional<std::string> excluded;  // why no check can exist

  bool has_mode(Mode m) const;
};

// The severity that follows from strength and basis: docs/severities.md. `unnoticed`: no reader can
// notice that the requirement was broken.
Severity severity_by_rule(Strength strength, Basis basis, bool unnoticed, Reading reading);
Severity severity_in(const Requirement& requirement, Reading reading);
// The severity of a break that no reader can notice.
Severity severity_unnoticed(const Requirement& requirement, Reading reading);

struct Specification {
  int otep = 0;
  std::string revision;
  std::string source_blob;
  std::vector<Requirement> requirements;
};

// Reads and validates one file of the catalogue, by schema.json next to it and by rules that a
// schema cannot express (a role that does not fit its id, an error on a reading that the text
// leaves open, ...). The error names the file, the requirement and the member.
sys::Result<Specification> parse_specification(std::string_view json,
                                               std::string_view file = "catalogue");
// The same for a text in which no object has a member twice and nothing nests deeply: it does not
// look for that, which takes two thirds as long as parsing.
sys::Result<Specification> parse_checked_specification(std::string_view json,
                                                       std::string_view file);

class Catalogue {
 public:
  // The built-in catalogue. Aborts if it is damaged, which is a bug in ctxconf.
  static const Catalogue& builtin();
  // The ids must be unique over all specifications. Every requirement that another one mentions
  // must exist if its OTEP is among them.
  static sys::Result<Catalogue> from(std::vector<Specification> specifications);

  const std::vector<Specification>& specifications() const { return specifications_; }
  const Requirement* find(std::string_view id) const;
  bool has_match(std::string_view glob) const;  // whether it matches an id
  // The id nearest to `id` by edit distance, for "did you mean"; empty if none is near.
  std::string nearest(std::string_view id) const;

 private:
  std::vector<Specification> specifications_;
};

// `*` is any run of characters, `?` is one character; the whole text must match.
bool glob_matches(std::string_view pattern, std::string_view text);
template <class Patterns>
bool any_glob_matches(const Patterns& patterns, std::string_view text) {
  return std::ranges::any_of(patterns, [&](const auto& p) { return glob_matches(p, text); });
}

// `--spec 4719=2026-04-07,4947=...`: the revisions to judge by.
struct SpecSelection {
  std::vector<std::pair<int, std::string>> revisions;  // OTEP number, revision
};
// The only place that knows the default.
SpecSelection default_spec();
sys::Result<SpecSelection> parse_spec(const Catalogue& catalogue, std::string_view text);

// The requirements of a run. `only` and `skip` are globs over ids; empty `only` means all. Excluded
// requirements are never selected. Fails with EINVAL if a glob matches no requirement of the
// catalogue or nothing is left.
struct Selection {
  SpecSelection spec = default_spec();
  std::vector<std::string> only;
  std::vector<std::string> skip;
  Role role = Role::kWriter;
  Level deepest = Level::kRace;  // deeper levels are not selected; puppet always is
};
sys::Result<std::vector<const Requirement*>> select(const Catalogue& catalogue,
                                                    const Selection& selection);

}  // namespace ctxconf::conformance
