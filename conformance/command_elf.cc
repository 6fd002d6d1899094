// The static audit: what readers of thread context will make of ELF files.
#include <elf.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "conformance/command_judge.h"
#include "conformance/commands.h"
#include "conformance/elf_facts.h"
#include "conformance/judge.h"
#include "conformance/report/escape.h"
#include "conformance/report/result_json.h"
#include "conformance/rules/tls_access.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/verdict/floor.h"
#include "conformance/version.h"

namespace ctxconf::conformance {
namespace {

constexpr int kThreadContext = 4947;
constexpr std::size_t kMostRelocations = 12;  // shown of a file

std::string shown_path(const std::string& path) { return escape(path, Escape::kTerminal, 300); }

// The rows that a file alone can break.
std::vector<const Requirement*> rows_about_files(const std::vector<const Requirement*>& all) {
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

// What cannot be audited is said on stderr; false then.
bool complain_unless_linked(const sys::ElfImage& image, const std::string& path) {
  if (image.type() == ET_EXEC || image.type() == ET_DYN) return true;
  complain(kExitUsage,
           fmt::format("elf: {}: {}", shown_path(path),
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
  complain(kExitUsage, "elf: " + escape(text, Escape::kTerminal, 600),
           no_elf ? "an executable or a shared library is wanted; of a static library, name what "
                    "is linked from it"
                  : "");
}

// The facts of all files that have any; the others were complained of.
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
      complain(kExitUsage,
               fmt::format("elf: {}: its tables contradict themselves: {}", shown_path(path),
                           escape(m.problem, Escape::kTerminal, 500)));
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

// What the rows found in one file that keeps readers from its variable; null: nothing.
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
  return f.requirement == "tctx.tls.symbol-type" || f.requirement == "tctx.tls.is-pointer";
}

// How the file could come to have the variable.
std::string advice_for_absent(const ModuleFacts& m) {
  std::string options = "-Wl,-u,otel_thread_ctx_v1";
  if (m.executable) options += " -Wl,--export-dynamic-symbol=otel_thread_ctx_v1";
  if (m.executable && !m.has_dynamic_section) options = "-static-pie " + options;
  return "if it should have it: a linker drops what nobody refers to in a static library; link "
         "with " +
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

// The verdict in one line, then what it rests on.
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
                              leaves_it_findable(*f) ? "find otel_thread_ctx_v1 and cannot use it"
                                                     : "not find otel_thread_ctx_v1",
                              f->saw));
  } else if (!accesses.empty()) {
    out.push_back((m.elf64
                       ? "a profiler will find otel_thread_ctx_v1: "
                       : "a profiler that knows 32-bit programs will find otel_thread_ctx_v1: ") +
                  models_of(accesses));
  } else if (slot_definition(m) != nullptr) {
    out.emplace_back(m.local_dynamic_code.empty()
                         ? "a profiler will find otel_thread_ctx_v1; how it is reached is not to "
                           "be seen here: another module may hold the relocation"
                         : "a profiler may not find otel_thread_ctx_v1: whether the code reaches "
                           "it as local dynamic cannot be told");
  } else if (!m.dynamic_symbols.empty()) {
    out.emplace_back(elsewhere ? "uses otel_thread_ctx_v1, which another of these files defines"
                               : "uses otel_thread_ctx_v1 and does not define it: name the module "
                                 "that does as well");
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
    out.push_back(fmt::format("… and {} relocations more", accesses.size() - kMostRelocations));
  }
  return out;
}

bool is_found(const Timeline& t) {
  return std::ranges::any_of(t.processes, [](const Process& p) {
    return slot_definition(file_of(p)) != nullptr || hidden_definition(file_of(p)) != nullptr;
  });
}

// A finding, a warning too, or nothing to find is 1; 3 and 5 are about processes, and 4
// is for what had to be judged.
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
                                "otel_thread_ctx_v1: nobody will find it there";
  }
  if (refused > 0 && run.exit_code != kExitHarnessError) {
    run.exit_code = kExitUsage;
    run.exit_reason =
        fmt::format("{} of {} files could not be read", refused, refused + t.processes.size());
  }
}

}  // namespace

int command_elf(const JudgeOptions& options, const std::vector<std::string>& files, bool json) {
  const Selection selection = selection_of(options);
  auto selected = select(Catalogue::builtin(), selection);
  if (selected) {
    *selected = rows_about_files(*selected);
    if (selected->empty()) selected = sys::fail("--only", EINVAL, "no row about files is left");
  }
  if (!selected) {
    return complain(kExitUsage, "elf: " + selected.error().detail,
                    "`ctxconf elf --only 'tctx.tls.*' FILE` judges them all");
  }
  Floor floor;
  if (const int code = read_floor(options, floor); code != 0) return code;
  auto facts = facts_of(files);
  if (facts.empty()) return kExitUsage;
  const std::size_t refused = files.size() - facts.size();
  const Timeline timeline = timeline_of(std::move(facts));

  // The verdicts rest on all rows, whatever was selected.
  Selection whole = selection;
  whole.only.clear();
  whole.skip.clear();
  const auto all_rows = select(Catalogue::builtin(), whole);
  const RunResult all = judge(timeline, all_rows ? rows_about_files(*all_rows) : *selected);

  RunResult run = judge(timeline, *selected);
  run.spec = selection.spec;
  run.level = to_string(Level::kStatic);
  run.suite_commit = kCommitText;
  run.command_line = options.command_line;
  const auto modules = files_of(timeline);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    run.images[i].notes = lines_about(*modules[i], run.images[i].key, all, modules);
  }
  apply_floor(floor, nullptr, run);
  conclude_files(timeline, refused, run);
  if (!options.out.empty()) {
    const auto folder = OutputFolder::make(options.out);
    const auto written =
        folder ? write_reports(*folder, run, true) : std::unexpected(folder.error());
    if (!written && unwritten_code(run.exit_code) != run.exit_code) {
      run.exit_code = unwritten_code(run.exit_code);
      run.exit_reason = "--out: " + sys::to_string(written.error());
    }
  }
  const int code = run.exit_code;
  return print(json ? to_result_json(run) : to_console(run, options.console), code);
}

}  // namespace ctxconf::conformance
