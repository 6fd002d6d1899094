#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <span>

#include "conformance/commands.h"
#include "conformance/judge.h"
#include "conformance/report/escape.h"
#include "conformance/report/html.h"
#include "conformance/report/junit.h"
#include "conformance/report/markdown.h"
#include "conformance/report/redact.h"
#include "conformance/report/result_json.h"
#include "conformance/report/wording.h"
#include "conformance/requirements/render.h"
#include "conformance/rules/rule.h"
#include "conformance/verdict/exit_code.h"
#include "conformance/verdict/expectations.h"
#include "conformance/verdict/expectations_edit.h"
#include "conformance/verdict/floor.h"
#include "sys/capabilities.h"
#include "sys/confinement.h"

namespace ctxconf::conformance {
namespace {

constexpr std::array kReports = {"result.json", "junit.xml", "report.html", "summary.md"};

std::string facts_text(std::span<const sys::HostFact> facts) {
  std::string out;
  for (const auto& f : facts) {
    out += fmt::format("{:<4} {:<20} {}\n", f.available ? "yes" : "no", f.name, f.detail);
    if (!f.available && !f.remedy.empty())
      out += fmt::format("     {:<20} to have it: {}\n", "", f.remedy);
  }
  return out;
}

bool is_checked(const Requirement& r) {
  return r.role == Role::kWriter && is_recorded(r, Mode::kRun) && rule_for(r.id) != nullptr;
}

}  // namespace

int print(const std::string& text, int code) {
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written || errno == EPIPE) return code;
  complain(kExitUnreachable, std::string("cannot write to stdout: ") + std::strerror(errno));
  return unwritten_code(code);
}

int complain(int code, const std::string& text, const std::string& what_to_do) {
  std::string out = "ctxconf: " + escape(text, Escape::kTerminal) + "\n";
  if (!what_to_do.empty()) out += "         " + escape(what_to_do, Escape::kTerminal) + "\n";
  std::fwrite(out.data(), 1, out.size(), stderr);
  return code;
}

sys::Result<std::string> read_file(const std::string& path, std::size_t limit) {
  const bool is_stdin = path == "-";
  const int fd = is_stdin ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return sys::fail("read", errno, path);
  std::string out;
  std::array<char, 65536> piece{};
  int err = 0;
  while (true) {
    const ssize_t n = read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) err = errno;
    if (n <= 0) break;
    out.append(piece.data(), static_cast<std::size_t>(n));
    if (out.size() > limit) {
      err = EFBIG;
      break;
    }
  }
  if (!is_stdin) close(fd);
  if (err != 0) return sys::fail("read", err, path);
  return out;
}

sys::Result<> write_file(const std::string& path, const std::string& text) {
  const auto slash = path.rfind('/');
  const bool here = slash == std::string::npos;
  const auto folder = OutputFolder::open(here ? "." : path.substr(0, slash + 1));
  auto written = folder ? folder->write(here ? path : path.substr(slash + 1), text)
                        : sys::fail("write", folder.error().err, "");
  if (!written) written.error().detail = path;
  return written;
}

sys::Result<> write_reports(const OutputFolder& folder, const RunResult& run, bool strict) {
  const auto write = [&]() -> sys::Result<> {
    CTX_CHECK(folder.write("junit.xml", to_junit(run, {strict})));
    CTX_CHECK(folder.write("report.html", to_html(run)));
    CTX_CHECK(folder.write("summary.md", to_markdown(run)));
    return folder.write("result.json", to_result_json(run));
  };
  auto written = write();
  for (const char* name : kReports) {
    if (!written) (void)folder.remove(name);
  }
  return written;
}

int remove_reports(const std::string& out) {
  if (out.empty()) return 0;
  const auto folder = OutputFolder::open(out);
  if (!folder) return 0;
  for (const char* name : kReports) {
    if (const auto removed = folder->remove(name); !removed) {
      return complain(kExitUsage, "--out: " + sys::to_string(removed.error()),
                      "name a directory that you may write to");
    }
  }
  return 0;
}

int command_list(const std::string& what, const std::string& spec, bool json, bool markdown) {
  const Catalogue& catalogue = Catalogue::builtin();
  if (what == "--capabilities") {
    return print(facts_text(sys::Capabilities::of_this_host().facts()), kExitClean);
  }
  if (markdown) {
    return print(requirements_markdown(catalogue), kExitClean);
  }
  SpecSelection selection = all_specs(catalogue);
  if (!spec.empty()) {
    auto parsed = parse_spec(catalogue, spec);
    if (!parsed) return complain(kExitUsage, "--spec: " + parsed.error().detail);
    selection = std::move(*parsed);
  }
  auto rows = rows_of(catalogue, selection);
  if (what == "--checks") {
    std::erase_if(rows, [](const Requirement* r) { return !is_checked(*r); });
  }
  return print(json ? list_json(rows) : list_text(rows), kExitClean);
}

int command_explain(const std::string& id) {
  const auto text = explain(Catalogue::builtin(), id);
  if (!text) return complain(kExitUsage, text.error().detail, "`ctxconf list` shows the ids");
  return print(*text, kExitClean);
}

int command_doctor() {
  const auto& host = sys::Capabilities::of_this_host();
  const sys::Capabilities reach(sys::probe_reach());
  std::string out = "What this host lets ctxconf see:\n\n" + facts_text(host.facts()) +
                    "\nWhich running processes it lets ctxconf attach reach:\n\n" +
                    facts_text(reach.facts()) + "\n";
  const bool wrap = host.has(sys::kHostPtrace);
  out += fmt::format("ctxconf wrap    {}\n", wrap ? "works" : "does not work here: needs ptrace");
  if (reach.has(sys::kReachSameUser)) {
    out +=
        fmt::format("ctxconf attach  works, for processes of {}{}\n",
                    reach.has(sys::kReachAnyUser) ? "any user" : "the same user",
                    reach.has(sys::kReachAllProcesses) ? "" : ", and only those of this container");
  } else {
    out += fmt::format("ctxconf attach  does not work here: needs {}\n",
                       host.has(sys::kHostProcessVmReadv)
                           ? "ptrace and process_vm_readv of processes that it did not start"
                           : "process_vm_readv");
  }
  if (!host.has(sys::kHostSeccompTrace)) {
    out +=
        "                without the system call filter a context that is replaced by exec within "
        "100 ms may be missed\n";
  }
  if (!host.has(sys::kHostWatchpoints)) {
    out += "                without watchpoints what needs level stores is unobservable\n";
  }
  if (!host.has(sys::kHostSmapsVmFlags)) {
    out += "                without VmFlags pctx.fork.dontfork is unobservable\n";
  }
  if (!host.has(sys::kHostAnonVmaName) || !host.has(sys::kHostShmemVmaName)) {
    out +=
        "                this kernel names no mappings: a context shows as /memfd:OTEL_CTX "
        "(deleted), "
        "which is right;\n"
        "                the two bracketed names, and with them anonymous memory, cannot be "
        "shown\n";
  }
  return print(out, kExitClean);
}

int command_expect(const ExpectCommand& c) {
  const Catalogue& catalogue = Catalogue::builtin();
  std::vector<Observed> seen;
  std::vector<std::string> judged;
  bool partial = false;
  if (c.action != "lint") {
    if (c.from.empty()) {
      return complain(
          kExitUsage, "expect " + c.action + ": no result",
          "--from RESULT.json, which `ctxconf wrap --out DIR` writes to DIR/result.json");
    }
    const auto text = read_file(c.from, kLongestResultJson);
    if (!text) return complain(kExitUsage, "--from: " + sys::to_string(text.error()));
    const auto run = result_from_json(*text, catalogue);
    if (!run) return complain(kExitUsage, "--from: " + c.from + ": " + run.error().detail);
    seen = observed(*run);
    partial = run->partial;
    if (c.floor) {
      for (const auto& [id, outcome] : judged_in(*run)) judged.push_back(id);
    }
  }
  if (c.action == "init") {
    if (access(c.file.c_str(), F_OK) == 0) {
      return complain(kExitUsage, c.file + " exists", "`ctxconf expect update` adds to it");
    }
    const auto written = write_file(c.file, init_expectations(seen, judged, c.strict));
    if (!written) return complain(kExitUsage, sys::to_string(written.error()));
    return print("wrote " + c.file + "; now name an issue in each line\n", kExitClean);
  }
  const auto text = read_file(c.file, kMaxExpectationBytes);
  if (!text) {
    return complain(kExitUsage, sys::to_string(text.error()),
                    "`ctxconf expect init` writes a new one");
  }
  const auto say = [&](const std::vector<ExpectationProblem>& problems) {
    int worst = kExitClean;
    for (const auto& p : problems) {
      complain(0, fmt::format("{}:{}: {}", c.file, p.line, p.text), p.mend);
      if (p.exit_code == kExitUsage || worst == kExitClean) worst = p.exit_code;
    }
    return worst;
  };
  if (c.action == "lint") {
    const Date today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
    const int code = say(lint_expectations(*text, c.file, catalogue, today));
    return code == kExitClean ? print(c.file + " is in order\n", code) : code;
  }
  const Edited edited = c.action == "update"
                            ? update_expectations(*text, c.file, catalogue, seen, judged, c.strict)
                            : prune_expectations(*text, c.file, catalogue, seen, partial);
  if (!edited.problems.empty()) return say(edited.problems);
  if (edited.text != *text) {
    const auto written = write_file(c.file, edited.text);
    if (!written) return complain(kExitUsage, sys::to_string(written.error()));
  }
  std::string out = fmt::format("{}: {} lines added, {} removed\n", c.file, edited.added.size(),
                                edited.removed.size());
  if (!edited.kept.empty()) {
    out += fmt::format("note: kept {} that did not fail: {} has not all of the run\n",
                       counted(edited.kept.size(), "line"), c.from);
  }
  return print(out, kExitClean);
}

int command_report(const ReportCommand& c) {
  const auto text = read_file(c.file, kLongestResultJson);
  if (!text) return complain(kExitUsage, "report: " + sys::to_string(text.error()));
  auto read = result_from_json(*text, Catalogue::builtin());
  if (!read) return complain(kExitUsage, "report: " + c.file + ": " + read.error().detail);
  const RunResult run =
      c.redact ? redacted(*std::move(read), random_redaction_key()) : *std::move(read);
  const auto made = [&] {
    if (c.format == "html") return to_html(run);
    if (c.format == "json") return to_result_json(run);
    if (c.format == "junit") return to_junit(run, {});
    if (c.format == "markdown") return to_markdown(run);
    return to_console(run, c.console);
  };
  return print(made(), kExitClean);
}

}  // namespace ctxconf::conformance
