// What the reports for people say alike: names, commands, and which bytes of a dump to look at.
// All text that these return is inert on a terminal, and still has to be quoted as markup.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/report/run_result.h"
#include "golden/hexdump.h"

namespace ctxconf::conformance {

// As on a terminal, on one line, of at most `limit` bytes.
std::string inert(std::string_view text, std::size_t limit = 1000);
// The same, for between tags and for attributes.
std::string quote(std::string_view text, std::size_t limit = 1000);
std::string_view or_else(std::string_view text, std::string_view otherwise);

// "FAIL", "N/A"
std::string_view label_of(Outcome outcome);

// Crash, timeout, harness-error, fail, warn or info: something to read about.
bool is_problem(Outcome outcome);

// Of `ctxconf elf`: the images are files.
bool is_about_files(const RunResult& run);

// "4242", or "4242#1" for a later image of the process.
std::string image_key(const ImageKey& key);
// "4242 /usr/bin/app"
std::string image_label(const ImageSummary& image);
std::string finding_image(const Finding& finding);
// The command line of an image, as a shell reads it; bounded.
std::string command_of(const ImageSummary& image);

// "1 image", "2 images"
std::string counted(std::size_t n, std::string_view what, std::string_view plural_end = "s");

// "OTEP 4719@2026-04-07, OTEP 4947@2026-07-17"
std::string reading_label(Reading reading);  // "reading strict"
std::string spec_label(const SpecSelection& spec);

// "18 passed, 1 failed, 10 unobservable of 29 selected"
std::string totals_line(const Totals& totals);
// "18 passed, 1 failed, 10 unobservable of 29 selected (OTEP 4719@2026-04-07)"
std::string summary_line(const RunResult& run);

// This run's own command with only the one requirement selected, and of a fault matrix with only
// the fault under which it is broken; empty when it is not known.
std::string again_for(const RunResult& run, const RequirementResult& result);
// The same, with a debugger where it fails; empty: no store and no call did it.
std::string debug_for(const RunResult& run, const RequirementResult& result);
// The command that judges the requirement's recording without the program; empty: there is none.
std::string replay_for(const RunResult& run, const RequirementResult& result);

// Those of a dump's marks that are shown.
std::span<const Hexdump::Mark> shown_marks(const Hexdump& dump);
// The part of a mark that lies in [from, to); empty when both are the same.
std::pair<std::size_t, std::size_t> part_in(const Hexdump::Mark& mark, std::size_t from,
                                            std::size_t to);
// Does one of the shown marks lie in [from, to)?
bool is_marked(const Hexdump& dump, std::size_t from, std::size_t to);

// The fields of what a golden vector has there, of at most `limit` bytes: those of the fixed part,
// and what follows it as one.
std::vector<golden::Annotation> fields_of(const Hexdump::Expected& expected,
                                          std::size_t limit = 4096);

// Where a long dump is cut: the rows of 16 bytes that are shown, those with marks and their
// neighbours before others, in order and at most `most`.
inline constexpr std::size_t kRowBytes = 16;
std::vector<std::size_t> rows_to_show(const Hexdump& dump, std::size_t most);
// Digits of the addresses of a dump: 12, or 16 where one is that long.
std::size_t address_width(const Hexdump& dump);

}  // namespace ctxconf::conformance
