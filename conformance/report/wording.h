// Wording that the reports for people share: names, commands, and the bytes of a dump to show. All
// returned text is inert on a terminal, but still needs quoting as markup.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/verdict/run_result.h"
#include "golden/hexdump.h"

namespace ctxconf::conformance {

// Makes text safe for a terminal: on one line, at most `limit` bytes.
std::string inert(std::string_view text, std::size_t limit = 1000);
// The same, quoted for markup between tags and in attributes.
std::string quote(std::string_view text, std::size_t limit = 1000);
std::string_view or_else(std::string_view text, std::string_view otherwise);

// "FAIL", "N/A"
std::string_view label_of(Outcome outcome);

// Crash, timeout, harness-error, fail, warn or info: an outcome to read about.
bool is_problem(Outcome outcome);

// RunResult::libc as a text of its own: "musl 1.2.3, statically linked".
std::string libc_label(std::string_view libc);

// "2026-01-02T03:04:05Z"
bool is_utc_time(std::string_view text);

// Whether the run is of `ctxconf elf`, whose images are files.
bool is_about_files(const RunResult& run);

// "4242", or "4242#1" for a later image of the process.
std::string image_key(const ImageKey& key);
// "4242 /usr/bin/app"
std::string image_label(const ImageSummary& image);
std::string finding_image(const Finding& finding);
// The command line of an image in shell syntax; bounded.
std::string command_of(const ImageSummary& image);

// "OTEP 4719@2026-04-07, OTEP 4947@2026-07-17"
std::string reading_label(Reading reading);  // "reading strict"
std::string spec_label(const SpecSelection& spec);

// "18 passed, 1 failed, 10 unobservable of 29 selected"
std::string totals_line(const Totals& totals);
// "18 passed, 1 failed, 10 unobservable of 29 selected (OTEP 4719@2026-04-07)"
std::string summary_line(const RunResult& run);

// The command of this run with only this requirement, and of a fault matrix only the fault that
// breaks it; empty if unknown.
std::string again_for(const RunResult& run, const RequirementResult& result);
// The same, with a debugger at the failure; empty if no store or call caused it.
std::string debug_for(const RunResult& run, const RequirementResult& result);
// The command that judges the requirement's recording again without the program, or empty.
std::string replay_for(const RunResult& run, const RequirementResult& result);

// The marks of a dump that are shown.
std::span<const Hexdump::Mark> shown_marks(const Hexdump& dump);
// The part of a mark that lies in [from, to); empty if both ends are equal.
std::pair<std::size_t, std::size_t> part_in(const Hexdump::Mark& mark, std::size_t from,
                                            std::size_t to);
// Whether one of the shown marks lies in [from, to).
bool is_marked(const Hexdump& dump, std::size_t from, std::size_t to);

// The fields of a golden vector, of at most `limit` bytes: each field of the fixed part, and the
// rest as one field.
std::vector<golden::Annotation> fields_of(const Hexdump::Expected& expected,
                                          std::size_t limit = 4096);

// Where a long dump is cut: the rows of 16 bytes to show, in order and at most `most`. Rows with
// marks and their neighbours come before others.
inline constexpr std::size_t kRowBytes = 16;
std::vector<std::size_t> rows_to_show(const Hexdump& dump, std::size_t most);
// Digits of the addresses of a dump: 12, or 16 if an address needs that many.
std::size_t address_width(const Hexdump& dump);

}  // namespace ctxconf::conformance
