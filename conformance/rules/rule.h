// A rule: a pure function from the evidence about one image to a finding. Each file of rules has a
// table with one record for each of its requirements. Level, severity and modes are in the
// catalogue.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "conformance/requirements/catalogue.h"
#include "conformance/rules/evidence.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

using RuleFunction = Finding (*)(const ImageEvidence& evidence);

enum class AskedOf : std::uint8_t {
  // Those that published a process context; for OTEP 4947, those that use thread context.
  kImages,
  // In a recording of `run`, only the process that hello named: ImageEvidence::session is there. In
  // other recordings as kImages, without a session.
  kTestee,
};

// The part of a recording that must be whole before a pass counts. Its size is limited.
enum class RestsOn : std::uint8_t {
  kEvents,      // calls, stores, steps, files
  kStates,      // snapshots
  kSamples,     // of threads
  kOperations,  // what was seen after the operations of `run`
};

// Whether the rule judges an image in which a call was answered by fault injection: the fault may
// explain what it sees.
enum class UnderFaults : std::uint8_t {
  kNotJudged,
  kJudged,             // what the image published is still held to it
  kJudgedIfPublished,  // ... if it published everything in spite of the fault
  kJudgedIfOnlyTimes,  // ... if no call failed, and the clock was answered
  kItsSubject,         // the rule is about such images, and about the clock that they read
};

// Whether the rule judges a cell in which no call fails and only the clock is read by system calls.
enum class ClockCell : std::uint8_t { kNotJudged, kJudged };

struct RequirementRule {
  std::string_view id;
  RuleFunction rule = nullptr;
  AskedOf asked_of = AskedOf::kImages;
  RestsOn rests_on = RestsOn::kEvents;
  UnderFaults under_faults = UnderFaults::kNotJudged;
  ClockCell clock_cell = ClockCell::kNotJudged;
  // A pass rests on the naming calls, as at the levels syscalls, stores and steps of OTEP 4719:
  // they tell which stores are an operation, and where a step trace begins and ends.
  bool rests_on_naming_calls = false;
  // Whether memory was unmapped meanwhile decides it.
  bool rests_on_other_calls = false;
  // A program that publishes no process context may decide it.
  bool holds_without_context = false;
  // Judges the program under RLIMIT_FSIZE=0, in a run of its own.
  bool is_of_file_size_limit = false;
  // Reports that a context was refused which every SDK takes, whatever was to be shown with it.
  bool reports_refused_contexts = false;
  // It is about an ELF file; where it is broken, readers find the variable all the same.
  bool leaves_variable_findable = false;

  bool is_about_faults() const { return under_faults == UnderFaults::kItsSubject; }
};

// The one that reports_refused_contexts.
const RequirementRule& rule_of_refused_contexts();
// Null when this version has no check for the requirement.
const RequirementRule* rule_of(std::string_view id);
std::span<const RequirementRule> all_rules();

// The groups, in the order of the catalogue.
std::span<const RequirementRule> header_rules();
std::span<const RequirementRule> payload_rules();
std::span<const RequirementRule> publish_rules();
std::span<const RequirementRule> update_rules();
std::span<const RequirementRule> call_rules();   // level syscalls, without injected faults
std::span<const RequirementRule> store_rules();  // level stores
std::span<const RequirementRule> step_rules();   // level steps
std::span<const RequirementRule> fault_rules();  // level syscalls: injected faults, the clock
std::span<const RequirementRule> tls_rules();    // OTEP 4947: the variable in its ELF files
std::span<const RequirementRule> reference_data_rules();  // ... threadlocal.* and Go's own schema
std::span<const RequirementRule> record_rules();          // ... records and attribute entries
// About testees of `run`.
std::span<const RequirementRule> driven_resource_rules();
std::span<const RequirementRule> driven_process_rules();
std::span<const RequirementRule> driven_fork_rules();
std::span<const RequirementRule> driven_thread_rules();
std::span<const RequirementRule> driven_record_rules();
std::span<const RequirementRule> driven_key_map_rules();
std::span<const RequirementRule> record_store_rules();  // level stores
std::span<const RequirementRule> slot_step_rules();     // level steps

// Whether the rule judges this image, in which a call was answered by fault injection.
bool is_judged_under_faults(const RequirementRule& rule, const ImageEvidence& evidence);

// What rules return. A failure leaves its outcome to the requirement's severity:
// kFail here becomes warn or info for such a requirement.
Finding passed(std::string saw = {});
Finding failed(std::string saw, std::string signature);
Finding info(std::string saw, std::string signature);    // info, whatever the severity
Finding warned(std::string saw, std::string signature);  // a warning, whatever the severity
// A failure that no reader of the protocol can notice: a warning, or what the severity is with
// --reading strict.
Finding unnoticed(Finding failure);
Finding unobservable(std::string why, std::string remedy);
Finding no_valid_header();  // unobservable
Finding not_applicable(NaReason reason, std::string why);

// Evidence to print.
inline constexpr std::size_t kMaxListed = 8;         // items of one list
inline constexpr std::size_t kShownValueBytes = 48;  // of a value of an attribute
std::string hex_text(std::uint64_t value);           // "0x1f"
std::string maps_line(const Context& context);
Hexdump header_dump(const Context& context, std::vector<Hexdump::Mark> marks);
// Shows at most 64 bytes around `offset` of the payload, and marks `length` bytes there.
Hexdump payload_dump(const Context& context, std::uint64_t offset, std::uint64_t length,
                     std::string label);

}  // namespace ctxconf::conformance
