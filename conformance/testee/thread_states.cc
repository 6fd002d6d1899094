#include "conformance/testee/thread_states.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <sstream>

#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kMostThreads = 32;
constexpr int kMostFrames = 8;

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  line.resize(std::min<std::size_t>(line.size(), 256));
  return line;
}

// Reads the whole file, because a thread's name may contain line feeds.
std::string whole(const std::string& path) {
  constexpr std::size_t kMost = 4096;
  std::ifstream in(path, std::ios::binary);
  std::string out(kMost, '\0');
  in.read(out.data(), static_cast<std::streamsize>(out.size()));
  out.resize(static_cast<std::size_t>(in.gcount()));
  return out;
}

// "[<0>] futex_wait_queue+0x5e/0x90" becomes "futex_wait_queue"; the innermost frame is first.
std::string kernel_stack(const std::string& path) {
  std::ifstream in(path);
  std::string out;
  std::string line;
  for (int frame = 0; frame < kMostFrames && std::getline(in, line); ++frame) {
    const auto begin = line.find("] ");
    if (begin == std::string::npos) continue;
    const auto name = line.substr(begin + 2, line.find('+') - begin - 2);
    out += (out.empty() ? "" : " < ") + name;
  }
  return out;
}

}  // namespace

std::vector<std::string> thread_states(pid_t pid) {
  std::vector<std::string> out;
  const auto tids = sys::thread_list(pid);
  if (!tids) return out;
  for (const pid_t tid : *tids) {
    if (out.size() == kMostThreads) {
      out.push_back(fmt::format("and {} more threads", tids->size() - kMostThreads));
      break;
    }
    const std::string folder = fmt::format("/proc/{}/task/{}/", pid, tid);
    // "12 (its name) S ..."
    const std::string stat = whole(folder + "stat");
    const auto name = stat.find('(');
    const auto name_end = stat.rfind(") ");
    if (name == std::string::npos || name_end == std::string::npos) continue;
    std::string line = fmt::format("{} {}: {}", tid, stat.substr(name, name_end + 1 - name),
                                   stat.substr(name_end + 2, 1));
    const std::string channel = first_line(folder + "wchan");
    if (!channel.empty() && channel != "0") line += ", " + channel;
    // "running", or the number of the system call and its arguments.
    const std::string call = first_line(folder + "syscall");
    if (call == "running") line += ", running";
    if (!call.empty() && call != "running") {
      line += ", system call " + call.substr(0, call.find(' '));
    }
    if (const std::string stack = kernel_stack(folder + "stack"); !stack.empty()) {
      line += ", stack " + stack;
    }
    out.push_back(std::move(line));
  }
  return out;
}

}  // namespace ctxconf::conformance
