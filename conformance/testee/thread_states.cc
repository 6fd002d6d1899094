#include "conformance/testee/thread_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>

#include "conformance/text/counts.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostThreads = 32;
constexpr int kMostFrames = 8;

constexpr std::size_t kMostOfLine = 256;

// Reads more than a line, because a thread's name may contain line feeds.
std::string start_of(const std::string& path) {
  constexpr std::size_t kMost = 4096;
  std::ifstream in(path, std::ios::binary);
  std::string out(kMost, '\0');
  in.read(out.data(), static_cast<std::streamsize>(out.size()));
  out.resize(static_cast<std::size_t>(in.gcount()));
  return out;
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, std::min(text.find('\n'), kMostOfLine));
}

// "[<0>] futex_wait_queue+0x5e/0x90" becomes "futex_wait_queue"; the innermost frame is first.
std::string kernel_stack(std::string_view text) {
  std::string out;
  for (int frame = 0; frame < kMostFrames && !text.empty(); ++frame) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto begin = line.find("] ");
    if (begin == line.npos) continue;
    const auto symbol = line.substr(begin + 2);
    out += out.empty() ? "" : " < ";
    out += symbol.substr(0, symbol.find('+'));
  }
  return out;
}

}  // namespace

std::optional<std::string> thread_state(pid_t tid, const ThreadTexts& texts) {
  // "12 (its name) S ..."
  const std::string_view stat = texts.stat;
  const auto name = stat.find('(');
  const auto name_end = stat.rfind(") ");
  if (name == stat.npos || name_end == stat.npos || name_end < name) return std::nullopt;
  std::string line = fmt::format("{} {}: {}", tid, stat.substr(name, name_end + 1 - name),
                                 stat.substr(name_end + 2, 1));
  const auto channel = first_line(texts.wchan);
  if (!channel.empty() && channel != "0") line += fmt::format(", {}", channel);
  // "running", or the number of the system call and its arguments.
  const auto call = first_line(texts.syscall);
  if (call == "running") line += ", running";
  if (!call.empty() && call != "running") {
    line += fmt::format(", system call {}", call.substr(0, call.find(' ')));
  }
  if (const auto stack = kernel_stack(texts.stack); !stack.empty()) line += ", stack " + stack;
  return line;
}

std::vector<std::string> thread_states(pid_t pid) {
  std::vector<std::string> out;
  const auto tids = sys::thread_list(pid);
  if (!tids) return out;
  for (const pid_t tid : *tids) {
    if (out.size() == kMostThreads) {
      out.push_back("and " + counted(tids->size() - kMostThreads, "more thread"));
      break;
    }
    const std::string folder = fmt::format("/proc/{}/task/{}/", pid, tid);
    const ThreadTexts texts{start_of(folder + "stat"), start_of(folder + "wchan"),
                            start_of(folder + "syscall"), start_of(folder + "stack")};
    if (auto line = thread_state(tid, texts)) out.push_back(*std::move(line));
  }
  return out;
}

}  // namespace ctxconf::conformance
