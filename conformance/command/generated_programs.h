// Judges generated programs, legal ones and ones that deviate in one way, and checks the judge.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ctxconf::conformance {

struct GeneratedProgramsCommand {
  std::uint64_t count = 0;           // of legal programs; as many deviate
  std::string seed;                  // hexadecimal
  std::vector<std::string> scripts;  // files or folders of scripts, instead
  std::vector<std::string> only;     // globs over names of deviations, and "legal"
  std::string keep;                  // folder for scripts that are judged wrongly; empty: none
  bool show = false;                 // print the scripts and run nothing
  unsigned jobs = 0;                 // 0: one per processor
  bool verbose = false;
};
int command_generated_programs(const GeneratedProgramsCommand& command);

}  // namespace ctxconf::conformance
