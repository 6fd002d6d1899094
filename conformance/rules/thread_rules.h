// Findings and lines that the rules about thread context (OTEP 4947) share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/record_faults.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {

// Not applicable: no thread context here, or one of another kind.
std::optional<Finding> no_thread_context(const ImageEvidence& evidence);

// Unobservable: no slot held a record, or none that readers use.
Finding no_record(const ImageEvidence& evidence);

// "thread 12, slot 0x7f..., record 0x55..., valid 1, flags 0x00, size 34"
std::string record_line(const Record& record);
// The same line and the mapping that holds the record.
std::vector<std::string> record_lines(const Record& record);

// The fixed part and the first entries; the bytes around the first mark when that is further in.
Hexdump record_dump(const Record& record, std::vector<Hexdump::Mark> marks);

// For driven programs. The name of a given attribute whose value the record has under an index that
// no key map of the session ever named.
std::optional<std::string> never_named(const ImageEvidence& evidence, const Record& record,
                                       const abi::AttributeEntry& entry);
// Whether this state of the process context is what the operation `op` left, such as
// "process.update".
bool is_left_by(std::string_view op, const ImageEvidence& evidence, const Context& context);

}  // namespace ctxconf::conformance
