// A rule: a pure function from the evidence about one image to a finding. One
// file per group of requirements; rule_for() is the only way to reach them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "conformance/requirements/catalogue.h"
#include "conformance/rules/evidence.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

using Rule = Finding (*)(const ImageEvidence& evidence);

struct NamedRule {
  std::string_view requirement;
  Rule rule;
};

// Null when this version has no check for the requirement.
Rule rule_for(std::string_view requirement);

// The groups, in the order of the catalogue.
std::span<const NamedRule> header_rules();
std::span<const NamedRule> payload_rules();
std::span<const NamedRule> publish_rules();
std::span<const NamedRule> update_rules();
std::span<const NamedRule> call_rules();            // level syscalls, without injected faults
std::span<const NamedRule> fault_rules();           // ... with them, and with a clock that calls
std::span<const NamedRule> store_rules();           // level stores
std::span<const NamedRule> step_rules();            // level steps
std::span<const NamedRule> tls_rules();             // OTEP 4947: the variable in its ELF files
std::span<const NamedRule> reference_data_rules();  // ... threadlocal.* and Go's own schema
std::span<const NamedRule> record_rules();          // ... records and attribute entries

// In a recording of `run` asked of the process that hello named alone; ImageEvidence::session is
// there. Some are asked of other recordings, too, where it is not.
std::span<const NamedRule> driven_resource_rules();
std::span<const NamedRule> driven_process_rules();
std::span<const NamedRule> driven_fork_rules();
std::span<const NamedRule> driven_thread_rules();
std::span<const NamedRule> driven_record_rules();
std::span<const NamedRule> driven_key_map_rules();
std::span<const NamedRule> record_store_rules();  // level stores
std::span<const NamedRule> slot_step_rules();     // level steps

// Whether a rule is one of those.
bool is_driven(std::string_view requirement);

// Rows, also driven ones, about what a writer does when calls fail, or about the clock it reads.
// They are asked of the images in which a call was answered by --inject, if there are any.
bool is_about_faults(std::string_view requirement);
// Rows that what this image published keeps, whatever happened to the calls of its writer. Of an
// image with an answered call only these and those about faults are judged: it may explain all
// others.
bool holds_under_faults(const ImageEvidence& evidence, std::string_view requirement);

inline constexpr const char* kNoSuchFault = "no call was made to fail as this needs";  // saw
inline constexpr const char* kDiedOfFault = "died of the fault";  // a signature

// What rules return. A contradiction leaves its outcome to the requirement's severity:
// kFail here becomes warn or info for such a row.
Finding passed(std::string saw = {});
Finding contradicted(std::string saw, std::string signature);
Finding noted(std::string saw, std::string signature);   // info, whatever the severity
Finding warned(std::string saw, std::string signature);  // a warning, whatever the severity
// One that no reader of the protocol can notice: a warning, or what the severity is with --reading
// strict.
Finding unnoticed(Finding contradiction);
Finding unobservable(std::string why, std::string remedy);
Finding no_valid_header();  // unobservable
Finding not_applicable(NaReason reason, std::string why);

// Evidence to print.
inline constexpr std::size_t kMaxListed = 8;         // faults shown of one kind
inline constexpr std::size_t kShownValueBytes = 48;  // of a value of an attribute
std::string hex_text(std::uint64_t value);           // "0x1f"
std::string maps_line(const Context& context);
Hexdump header_dump(const Context& context, std::vector<Hexdump::Mark> marks);
// At most 64 bytes around `offset` of the payload, with `length` bytes there marked.
Hexdump payload_dump(const Context& context, std::uint64_t offset, std::uint64_t length,
                     std::string label);

}  // namespace ctxconf::conformance
