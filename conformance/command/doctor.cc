#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "conformance/command/command.h"
#include "conformance/command/host_facts.h"
#include "conformance/command/judging.h"
#include "conformance/command/print.h"
#include "conformance/verdict/exit_code.h"
#include "sys/capabilities.h"
#include "sys/confinement.h"
#include "sys/trampoline_file.h"

namespace ctxconf::conformance {
std::string facts_text(std::span<const sys::HostFact> facts) {
  std::string out;
  for (const auto& f : facts) {
    out += fmt::format("{:<4} {:<20} {}\n", f.available ? "yes" : "no", f.name, f.detail);
    if (!f.available && !f.remedy.empty())
      out += fmt::format("     {:<20} to get it: {}\n", "", f.remedy);
  }
  return out;
}

namespace {

std::string mapping_names_text(const sys::Capabilities& host) {
  const bool names_anonymous = host.has(sys::kHostAnonVmaName);
  if (names_anonymous && host.has(sys::kHostShmemVmaName)) return {};
  return fmt::format(
      "                this kernel names no {}: a context shows as /memfd:OTEL_CTX (deleted), "
      "which is right{}\n",
      names_anonymous ? "memfd mappings" : "mappings",
      names_anonymous ? ""
                      : ";\n                readers cannot find a context in anonymous memory");
}

// What attach can do if ptrace or process_vm_readv is refused.
std::string reduced_attach_text(const sys::Capabilities& host) {
  const auto c = sys::Confinement::of_this_process();
  const bool yama_allows_others = c.yama_scope <= 0 || c.traces_any_user;
  const bool for_children_too = !host.has(sys::kHostPtrace) || !host.has(sys::kHostProcessVmReadv);
  if (!yama_allows_others || !for_children_too || !sys::try_memory_of_a_child())
    return "does not work here: needs the memory of processes that it did not start";
  return host.has(sys::kHostPtrace) ? "works, but more slowly: reads memory through /proc/PID/mem"
                                    : "works, but sees no thread contexts: needs ptrace";
}

// Most probes need this too, and would blame something else.
int doctor_without(const sys::HostFact& missing, const std::string& wrap,
                   const std::string& attach) {
  return print("What this host lets ctxconf see:\n\n" + facts_text(std::span(&missing, 1)) +
                   "\nctxconf wrap    " + wrap + "\nctxconf attach  " + attach + "\n",
               kExitClean);
}

int doctor() {
  if (const std::string fault = fault_of_proc(); !fault.empty()) {
    const std::string broken = "does not work here: needs /proc";
    return doctor_without({"proc", false, "/proc " + fault, kHowToMountProc}, broken, broken);
  }
  if (const sys::HostFact children = sys::probe_children(); !children.available) {
    return doctor_without(children, "does not work here: needs to start processes",
                          "needs no child; what it can reach was not tried");
  }
  const auto& host = sys::Capabilities::of_this_host();
  const sys::Capabilities reach(sys::probe_reach());
  std::string out = "What this host lets ctxconf see:\n\n" + facts_text(host.facts()) +
                    "\nWhich running processes it lets ctxconf attach reach:\n\n" +
                    facts_text(reach.facts()) + "\n";
  const bool wrap = host.has(sys::kHostPtrace);
  if (const auto trampoline = sys::find_trampoline(); !trampoline) {
    out += fmt::format("ctxconf wrap    does not work here: {}\n                {}\n",
                       sys::to_string(trampoline.error()), kHowToStartPrograms);
  } else {
    out += fmt::format("ctxconf wrap    {}\n", wrap ? "works" : "does not work here: needs ptrace");
  }
  if (reach.has(sys::kReachSameUser)) {
    out +=
        fmt::format("ctxconf attach  works, for processes of {}{}\n",
                    reach.has(sys::kReachAnyUser) ? "any user" : "the same user",
                    reach.has(sys::kReachAllProcesses) ? "" : ", and only those of this container");
  } else {
    out += fmt::format("ctxconf attach  {}\n", reduced_attach_text(host));
  }
  if (!host.has(sys::kHostSeccompTrace)) {
    out +=
        "                without the system call filter a context that is replaced by exec within "
        "100 ms may be missed\n";
  }
  if (!host.has(sys::kHostWatchpoints)) {
    out += "                without watchpoints, requirements of level stores are unobservable\n";
  }
  if (!host.has(sys::kHostSmapsVmFlags)) {
    out += "                without VmFlags, pctx.fork.dontfork is unobservable\n";
  }
  return print(out + mapping_names_text(host), kExitClean);
}

}  // namespace

Command doctor_command(CLI::App& app, const Words& /*command_line*/) {
  CLI::App* sub = app.add_subcommand(
      "doctor", "show what can be observed on this host, and how to close each gap");
  sub->footer(
      "Exit codes: 0 the list was printed, whatever this host allows, 2 usage, 3 stdout could not\n"
      "be written, 70 a bug in ctxconf.");
  return {.app = sub, .run = [](const Words& /*program*/) { return doctor(); }, .takes = nullptr};
}

}  // namespace ctxconf::conformance
