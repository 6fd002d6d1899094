// The static audit: whether readers of thread context can find the slot in ELF files.
#include <elf.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/files.h"
#include "conformance/command/judging.h"
#include "conformance/command/options.h"
#include "conformance/command/print.h"
#include "conformance/command/source_root.h"
#include "conformance/elf/elf_facts.h"
#include "conformance/elf/tls_access.h"
#include "conformance/judge/judge.h"
#include "conformance/report/result_json.h"
#include "conformance/report/wording.h"
#include "conformance/rules/rule.h"
#include "conformance/text/counts.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/verdict/floor.h"
#include "conformance/version.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostRelocations = 12;  // shown per file
constexpr std::size_t kMostFiles = 2048;      // each is judged with all the others

// The requirements that a file alone can break.
std::vector<const Requirement*> requirements_about_files(
    const std::vector<const Requirement*>& all) {
  std::vector<const Requirement*> out;
  std::ranges::copy_if(all, std::back_inserter(out),
                       [](const Requirement* r) { return r->has_mode(Mode::kElf); });
  return out;
}

Selection selection_of(const JudgeOptions& options) {
  Selection s;
  s.spec.revisions.clear();
  for (const Specification& spec : Catalogue::builtin().specifications()) {
    if (spec.otep == kThreadContext) s.spec.revisions.emplace_back(spec.otep, spec.revision);
  }
  s.only = options.only;
  s.skip = options.skip;
  return s;
}

// Complains on stderr and returns false if the file cannot be audited.
bool complain_unless_linked(const sys::ElfImage& image, const std::string& path) {
  if (image.type() == ET_EXEC || image.type() == ET_DYN) return true;
  complain(kExitUsage,
           fmt::format("elf: {}: {}", inert(path, 300),
                       image.type() == ET_REL    ? "an object file, not linked yet"
                       : image.type() == ET_CORE ? "a core dump"
                                                 : "neither an executable nor a shared library"),
           "name the executable or the shared library that it becomes part of");
  return false;
}

void complain_of(const sys::Error& error, const std::string& path) {
  std::string text = error.detail.empty() ? std::string(error.op) : error.detail;
  if (!text.starts_with(path)) text = path + ": " + text;
  if (error.err != 0 && error.err != ENOEXEC) text += std::string(": ") + std::strerror(error.err);
  const bool no_elf = error.err == ENOEXEC;
  complain(kExitUsage, "elf: " + inert(text, 600),
           no_elf ? "name an executable or a shared library; for a static library, name the "
                    "program linked from it"
                  : "");
}

// The facts of all usable files; complains of the others.
std::vector<ModuleFacts> facts_of(const std::vector<std::string>& files) {
  std::vector<ModuleFacts> out;
  for (const std::string& path : files) {
    const auto image = sys::ElfImage::open(path);
    if (!image) {
      complain_of(image.error(), path);
      continue;
    }
    if (!complain_unless_linked(*image, path)) continue;
    ModuleFacts m = module_facts(*image, path, image->is_executable());
    if (!m.problem.empty()) {
      complain(kExitUsage, fmt::format("elf: {}: its tables contradict themselves: {}",
                                       inert(path, 300), inert(m.problem, 500)));
      continue;
    }
    out.push_back(std::move(m));
  }
  return out;
}

Timeline timeline_of(std::vector<ModuleFacts> files) {
  Timeline t;
  t.suite_version = kVersionText;
  t.mode = Mode::kElf;
  utsname name{};
  uname(&name);
  t.kernel = name.release;
  t.arch = name.machine;
  t.libc = std::string("glibc ") + gnu_get_libc_version();
  for (ModuleFacts& m : files) {
    t.target.push_back(m.path);
    Process p;
    p.pid = static_cast<std::int32_t>(t.processes.size() + 1);
    Image i;
    i.key = {p.pid, 0};
    i.executable = m.path;
    i.elf64 = m.elf64;
    i.little_endian = m.little_endian;
    i.modules.push_back(std::move(m));
    p.images.push_back(std::move(i));
    t.processes.push_back(std::move(p));
  }
  return t;
}

const ModuleFacts& file_of(const Process& p) { return p.images.front().modules.front(); }

std::vector<const ModuleFacts*> files_of(const Timeline& t) {
  std::vector<const ModuleFacts*> out;
  out.reserve(t.processes.size());
  for (const Process& p : t.processes) out.push_back(&file_of(p));
  return out;
}

// The finding that keeps readers from the variable of one file, or null.
const Finding* obstacle(const RunResult& run, const ImageKey& key) {
  for (const RequirementResult& r : run.results) {
    for (const Finding& f : r.findings) {
      const bool wrong = f.outcome == Outcome::kFail || f.outcome == Outcome::kWarn;
      if (f.image == key && wrong) return &f;
    }
  }
  return nullptr;
}

bool leaves_it_findable(const Finding& f) {
  const RequirementRule* rule = rule_of(f.requirement);
  return rule != nullptr && rule->leaves_variable_findable;
}

// How the file could get the variable.
std::string advice_for_absent(const ModuleFacts& m) {
  std::string options = "-Wl,-u,otel_thread_ctx_v1";
  if (m.executable) options += " -Wl,--export-dynamic-symbol=otel_thread_ctx_v1";
  if (m.executable && !m.has_dynamic_section) options = "-static-pie " + options;
  return "if this file should define it: the linker drops unreferenced symbols of a static "
         "library; link with " +
         options;
}

std::string models_of(const std::vector<SlotAccess>& accesses) {
  std::vector<std::string_view> names;
  std::string out;
  for (const SlotAccess& a : accesses) {
    const auto name = sys::to_string(a.model);
    if (std::ranges::find(names, name) != names.end()) continue;
    names.push_back(name);
    out += (out.empty() ? "" : ", ") + std::string(name);
  }
  return out;
}

// The verdict in one line, then its evidence.
std::vector<std::string> lines_about(const ModuleFacts& m, const ImageKey& key,
                                     const RunResult& run,
                                     const std::vector<const ModuleFacts*>& all) {
  std::vector<std::string> out = {describe(m)};
  const auto accesses = accesses_of(m, all);
  const bool elsewhere =
      std::ranges::any_of(all, [](const ModuleFacts* o) { return slot_definition(*o) != nullptr; });
  const auto* hidden = hidden_definition(m);
  if (const Finding* f = obstacle(run, key)) {
    out.push_back(fmt::format("a profiler will {}: {}",
                              leaves_it_findable(*f) ? "find otel_thread_ctx_v1 but cannot use it"
                                                     : "not find otel_thread_ctx_v1",
                              f->saw));
  } else if (!accesses.empty()) {
    out.push_back((m.elf64
                       ? "a profiler will find otel_thread_ctx_v1: "
                       : "a profiler that knows 32-bit programs will find otel_thread_ctx_v1: ") +
                  models_of(accesses));
  } else if (slot_definition(m) != nullptr) {
    out.emplace_back(m.local_dynamic_code.empty()
                         ? "a profiler will find otel_thread_ctx_v1; its access is not "
                           "visible here: another module may hold the relocation"
                         : "a profiler may not find otel_thread_ctx_v1: the code may use local "
                           "dynamic, and this file does not show whether it does");
  } else if (!m.dynamic_symbols.empty()) {
    out.emplace_back(elsewhere ? "uses otel_thread_ctx_v1, which another of these files defines"
                               : "uses otel_thread_ctx_v1 and does not define it: also name the "
                                 "module that does");
  } else {
    out.emplace_back("does not define otel_thread_ctx_v1");
    if (!elsewhere) out.push_back(advice_for_absent(m));
  }
  for (const auto& s : m.dynamic_symbols) out.push_back(describe(s, ".dynsym"));
  if (hidden != nullptr) out.push_back(describe(*hidden, ".symtab"));
  std::size_t relocations = 0;
  for (const SlotAccess& a : accesses) {
    if (relocations++ == kMostRelocations) break;
    out.push_back((a.module == &m ? "" : a.module->path + ": ") + describe(a));
  }
  if (accesses.size() > kMostRelocations) {
    out.push_back(and_more(accesses.size() - kMostRelocations, "relocation"));
  }
  return out;
}

bool is_found(const Timeline& t) {
  return std::ranges::any_of(t.processes, [](const Process& p) {
    return slot_definition(file_of(p)) != nullptr || hidden_definition(file_of(p)) != nullptr;
  });
}

// Exit code 1 also means a warning, or that no file has the variable. 3 and 5 are about processes;
// 4 is for floors.
void conclude_files(const Timeline& t, std::size_t refused, RunResult& run) {
  ExitOptions options;
  options.strict = true;
  conclude(options, run);
  const bool unjudged = run.exit_code == kExitNotJudged && run.floor.empty();
  if (unjudged || (run.exit_code == kExitClean && !is_found(t))) {
    run.exit_code = kExitFailed;
    run.exit_reason = is_found(t)
                          ? "no requirement could be judged"
                          : std::string(t.processes.size() == 1 ? "the file does not define "
                                                                : "none of the files defines ") +
                                "otel_thread_ctx_v1: no reader will find it there";
  }
  if (refused > 0 && run.exit_code != kExitHarnessError) {
    run.exit_code = kExitUsage;
    run.exit_reason =
        fmt::format("{} of {} files could not be read", refused, refused + t.processes.size());
  }
}

int judge_files(const JudgeOptions& options, const std::vector<std::string>& files, bool json) {
  const Selection selection = selection_of(options);
  auto selected = select(Catalogue::builtin(), selection);
  if (selected) {
    *selected = requirements_about_files(*selected);
    if (selected->empty())
      selected = sys::fail("--only", EINVAL, "no selected requirement is about files");
  }
  if (!selected) {
    return complain(kExitUsage, "elf: " + selected.error().detail,
                    "`ctxconf elf --only 'tctx.tls.*' FILE` judges them all");
  }
  if (files.size() > kMostFiles) {
    return complain(
        kExitUsage,
        fmt::format("elf: {} files; at most {} are judged together", files.size(), kMostFiles),
        "name the files of one program, and run the command once for each program");
  }
  Floor floor;
  if (const int code = read_floor(options, floor); code != 0) return code;
  auto facts = facts_of(files);
  if (facts.empty()) return kExitUsage;
  const std::size_t refused = files.size() - facts.size();
  const Timeline timeline = timeline_of(std::move(facts));

  // The verdicts rest on all requirements, whatever was selected.
  Selection whole = selection;
  whole.only.clear();
  whole.skip.clear();
  const auto all_requirements = select(Catalogue::builtin(), whole);
  const RunResult all =
      judge(timeline, all_requirements ? requirements_about_files(*all_requirements) : *selected);

  RunResult run = judge(timeline, *selected);
  run.spec = selection.spec;
  run.level = to_string(Level::kStatic);
  run.suite_commit = kCommitText;
  run.command_line = options.command_line;
  const auto modules = files_of(timeline);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    run.images[i].notes = lines_about(*modules[i], run.images[i].key, all, modules);
  }
  find_sources(options, run);
  apply_floor(floor, nullptr, run);
  conclude_files(timeline, refused, run);
  const auto write_out = [&]() -> sys::Result<> {
    if (options.out.empty()) return {};
    CTX_ASSIGN_OR_RETURN(folder, OutputFolder::make(options.out));
    return write_reports(folder, run, true);
  };
  const auto written = write_out();
  if (!written && unwritten_code(run.exit_code) != run.exit_code) {
    run.exit_code = unwritten_code(run.exit_code);
    run.exit_reason = "--out: " + sys::to_string(written.error());
  }
  const int code =
      print(json ? to_result_json(run) : to_console(run, options.console), run.exit_code);
  if (code != run.exit_code) {
    // The reports have the same exit code.
    run.exit_code = code;
    run.exit_reason = kNotPrinted;
    (void)write_out();
  }
  return code;
}

struct ElfCommand {
  CommonOptions common;
  std::vector<std::string> files;
  bool json = false;
};

}  // namespace

Command elf_command(CLI::App& app, const Words& command_line) {
  const auto o = std::make_shared<ElfCommand>();
  CLI::App* sub = app.add_subcommand(
      "elf", "will a profiler find the thread context of these programs and libraries?");
  add_selection_and_report(*sub, o->common);
  sub->add_option(
      "--out", o->common.judge.out,
      "write result.json, junit.xml, report.html, summary.md and results.sarif to this directory");
  sub->add_flag("--json", o->json, "print result.json instead of the report");
  sub->add_option("FILE", o->files, "executables and shared libraries; they are not run")
      ->required();
  sub->footer(
      "Files named together count as modules of one program: one may define\n"
      "otel_thread_ctx_v1 and another hold the relocations.\n"
      "Exit codes: 0 it will be found, 1 a finding (a warning too), or no file defines\n"
      "otel_thread_ctx_v1, 2 usage, or a file that is not a valid ELF file, 3 output could not be\n"
      "written, 4 --require-observable or --baseline asks for more than was judged, 70 a bug in\n"
      "ctxconf.");

  return {.app = sub,
          .run =
              [o, command_line](const Words& /*program*/) {
                if (const int code = settle(o->common, command_line); code != 0) return code;
                return judge_files(o->common.judge, o->files, o->json);
              },
          .takes = nullptr};
}

}  // namespace ctxconf::conformance
