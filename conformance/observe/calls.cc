#include "conformance/observe/calls.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "abi/process_header.h"
#include "sys/process.h"
#include "sys/seccomp_filter.h"

namespace ctxconf::conformance {
namespace {

constexpr std::size_t kNameBytes = 256;
constexpr std::size_t kKnownSpans = 4096;
constexpr std::uint64_t kPrSetVmaAnonName = 0;  // prctl(2)
constexpr std::size_t kReadings = 4;            // of the clock, per thread
constexpr std::size_t kReadingThreads = 4096;
constexpr std::size_t kInjectedReadings = 64;
constexpr std::size_t kPublishingThreads = 256;
constexpr std::size_t kAnonymous = 64;     // mappings per publishing thread
constexpr std::uint64_t kCallBytes = 256;  // of one recorded call, without its texts

std::string_view name_of(long nr) {
  switch (nr) {
    case SYS_memfd_create:
      return "memfd_create";
    case SYS_ftruncate:
      return "ftruncate";
    case SYS_mmap:
      return "mmap";
    case SYS_mremap:
      return "mremap";
    case SYS_madvise:
      return "madvise";
    case SYS_prctl:
      return "prctl";
    case SYS_munmap:
      return "munmap";
    case SYS_mprotect:
      return "mprotect";
    case SYS_ptrace:
      return "ptrace";
    case SYS_clock_gettime:
      return "clock_gettime";
    case SYS_execve:
      return "execve";
    case SYS_execveat:
      return "execveat";
    default:
      return "";
  }
}

const char* request_name(std::uint64_t request) {
  if (request == PTRACE_TRACEME) return "PTRACE_TRACEME";
  return request == PTRACE_SEIZE ? "PTRACE_SEIZE" : "PTRACE_ATTACH";
}

bool is_other(std::string_view name) { return name == "munmap" || name == "mprotect"; }

bool is_exec(std::string_view name) { return name.starts_with("execve"); }

// The address of the memory to which a call applies; 0: none.
std::uint64_t address_in(const SystemCall& c) {
  if (c.name == "prctl") return c.args[2];
  return c.name == "madvise" || c.name == "mremap" || is_other(c.name) ? c.args[0] : 0;
}

std::optional<std::uint64_t> time_at(pid_t tid, std::uint64_t address, bool short_time) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  std::array<std::byte, 16> bytes{};
  const auto wanted = std::span(bytes).first(short_time ? 8 : 16);
  if (!sys::ProcessMemory(tid).read_exact(sys::RemoteAddr(address), wanted)) return std::nullopt;
  std::int64_t seconds = 0;
  std::int64_t rest = 0;
  if (short_time) {
    std::array<std::int32_t, 2> pair{};
    std::memcpy(pair.data(), bytes.data(), sizeof pair);
    seconds = pair[0];
    rest = pair[1];
  } else {
    std::memcpy(&seconds, bytes.data(), sizeof seconds);
    std::memcpy(&rest, bytes.data() + 8, sizeof rest);
  }
  if (seconds < 0 || static_cast<std::uint64_t>(seconds) >= UINT64_MAX / kSecond || rest < 0 ||
      static_cast<std::uint64_t>(rest) >= kSecond) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(seconds) * kSecond + static_cast<std::uint64_t>(rest);
}

std::uint64_t location_of(const SystemCall& c) {
  if (is_exec(c.name)) return c.entered_order;
  return c.result ? c.left_order : UINT64_MAX;
}

}  // namespace

bool is_refused(const sys::Error& e) { return e.err == EPERM || e.err == EACCES; }

CallRecorder::CallRecorder(std::optional<unsigned> filters, std::shared_ptr<EventOrder> order,
                           CallLimits limits)
    : filters_(filters), order_(std::move(order)), limits_(limits) {}

void CallRecorder::unseen(const std::string& why) {
  if (unseen_.empty()) unseen_ = why;
}

void CallRecorder::look_at_filters(pid_t tid) {
  if (!filters_ || !unseen_.empty()) return;
  const auto now = sys::seccomp_filters(tid);
  if (now && *now > *filters_) {
    unseen("it has a seccomp filter of its own, which may answer calls before they are seen");
  }
}

bool CallRecorder::knows(std::uint64_t address) const {
  return std::ranges::any_of(
      known_, [&](Span s) { return address >= s.begin && address - s.begin < s.size; });
}

bool CallRecorder::overlaps_context(std::uint64_t address, std::uint64_t size) const {
  return std::ranges::any_of(known_, [&](Span s) {
    if (!s.context) return false;
    return address < s.begin ? s.begin - address < size : address - s.begin < s.size;
  });
}

void CallRecorder::note(const std::string& text) {
  if (std::ranges::find(notes_, text) == notes_.end()) notes_.push_back(text);
}

void CallRecorder::learn(Span span) {
  had_context_ = had_context_ || span.context;
  const bool known = span.context ? overlaps_context(span.begin, 1) : knows(span.begin);
  if (span.size > 0 && !known && known_.size() < kKnownSpans) known_.push_back(span);
}

void CallRecorder::forget(std::uint64_t begin, std::uint64_t size) {
  std::erase_if(known_, [&](Span s) {
    return s.begin >= begin && s.begin - begin < size && s.size <= size - (s.begin - begin);
  });
}

std::vector<std::byte> CallRecorder::header_at(pid_t tid, std::uint64_t address) {
  std::vector<std::byte> bytes(sizeof(abi::ProcessHeader));
  const auto got = sys::ProcessMemory(tid).read_some(sys::RemoteAddr(address), bytes);
  if (!got && is_refused(got.error())) unseen("memory: " + sys::to_string(got.error()));
  bytes.resize(got.value_or(0));
  return bytes;
}

std::string CallRecorder::name_at(pid_t tid, std::uint64_t address) {
  std::array<char, kNameBytes> bytes{};
  const auto got = sys::ProcessMemory(tid).read_some(sys::RemoteAddr(address),
                                                     std::as_writable_bytes(std::span(bytes)));
  if (!got && is_refused(got.error())) unseen("memory: " + sys::to_string(got.error()));
  return {bytes.data(), strnlen(bytes.data(), got.value_or(0))};
}

std::optional<std::string> CallRecorder::memfd_behind(pid_t tid, std::uint64_t fd) {
  auto link = sys::descriptor_link(tid, static_cast<int>(fd));
  if (link && is_memfd(*link)) return std::move(*link);
  if (!link && is_refused(link.error())) unseen("descriptors: " + sys::to_string(link.error()));
  return std::nullopt;
}

std::optional<SystemCall> CallRecorder::describe(const sys::SyscallEntry& e) {
  SystemCall call;
  call.tid = e.tid;
  call.name = name_of(e.nr);
  call.args = e.args;
  if (is_exec(call.name)) {
    if (calls_.empty() && in_progress_.empty()) return std::nullopt;
  } else if (call.name == "memfd_create") {
    call.text = name_at(e.tid, e.args[0]);
    if (call.text.starts_with(abi::kMemfdName)) begins_to_publish(e.tid);
  } else if (call.name == "mmap" && maps_anonymously(call)) {
    const auto it = publishing_.find(e.tid);
    const bool plain = (e.args[3] & MAP_SHARED) == 0 && e.args[1] <= kLargestAnonymous;
    if (it == publishing_.end() || !plain || ++it->second > kAnonymous) return std::nullopt;
  } else if (call.name == "ftruncate" || call.name == "mmap") {
    auto file = memfd_behind(e.tid, e.args[call.name == "mmap" ? 4 : 0]);
    if (!file) return std::nullopt;
    call.file = std::move(*file);
  } else if (call.name == "mremap") {
    if (!knows(e.args[0])) return std::nullopt;
  } else if (call.name == "madvise") {
    if (static_cast<int>(e.args[2]) != MADV_DONTFORK) return std::nullopt;
    if (!knows(e.args[0]) && ++marks_ > limits_.marks) {
      ++dropped_;
      return std::nullopt;
    }
  } else if (is_other(call.name)) {
    if (!overlaps_context(e.args[0], e.args[1])) return std::nullopt;
  } else if (call.name == "ptrace") {
    return call;
  } else if (call.name == "prctl" && static_cast<std::uint32_t>(e.args[0]) == PR_SET_DUMPABLE) {
    if (e.args[1] == 0) {
      note(
          "it makes itself not dumpable: only a ctxconf or profiler with CAP_SYS_PTRACE can read "
          "its memory");
    }
    return std::nullopt;
  } else if (call.name == "prctl") {
    const bool naming =
        static_cast<std::uint32_t>(e.args[0]) == sys::kPrSetVma && e.args[1] == kPrSetVmaAnonName;
    if (!naming) return std::nullopt;
    call.text = name_at(e.tid, e.args[4]);
    if (!looks_like_the_name(call.text) && !knows(e.args[2])) return std::nullopt;
    if (looks_like_the_name(call.text)) publishing_.erase(e.tid);
  } else if (call.name == "clock_gettime") {
  } else {
    return std::nullopt;
  }
  return call;
}

void CallRecorder::begins_to_publish(pid_t tid) {
  if (publishing_.size() < kPublishingThreads) publishing_.insert_or_assign(tid, 0);
}

void CallRecorder::entered(SystemCall call, bool short_time) {
  const bool reading = call.name == "clock_gettime";
  if (!reading) keep_readings(call.tid);
  call.entered_ns = sys::boottime_now_ns();
  call.entered_order = order_->next();
  if (const auto address = address_in(call)) call.before = header_at(call.tid, address);
  if (const auto h = abi::decode_process_header(call.before); h && call.name == "prctl") {
    keep_readings_of(h->monotonic_published_at_ns);
  }
  InProgress now;
  now.short_time = short_time;
  now.name = call.name;
  if (call.name == "mmap" || call.name == "madvise") now.memory = {call.args[0], call.args[1]};
  if (call.name == "mremap") now.memory.size = call.args[2];
  const auto tid = call.tid;
  if (call.name == "mmap") now.memory.context = is_memfd_of_context(call.file);
  if (call.name == "madvise") now.memory.context = call.args[1] <= sys::kShortUnmap;
  if (call.name == "mremap") now.memory.context = overlaps_context(call.args[0], 1);
  if (call.name == "ptrace") {
    now.memory.begin = call.args[0];
  } else if (is_exec(call.name)) {
    if (keep(std::move(call))) now.index = calls_.size() - 1;
  } else {
    now.call = std::move(call);
  }
  in_progress_.insert_or_assign(tid, std::move(now));
}

std::string CallRecorder::left(const sys::SyscallExit& e) {
  const auto it = in_progress_.find(e.tid);
  if (it == in_progress_.end()) return {};
  InProgress now = std::move(it->second);
  in_progress_.erase(it);
  const auto left_order = order_->next();
  if (now.index) {
    calls_[*now.index].result = e.result;
    calls_[*now.index].left_order = left_order;
  }
  const bool failed = sys::is_error_result(e.result);
  if (now.name == "ptrace" && failed) {
    note(std::string("its ptrace(") + request_name(now.memory.begin) + ") failed (" +
         std::strerror(static_cast<int>(-e.result)) +
         "): a process has one tracer, and under wrap that is ctxconf");
  }
  if (!now.call) return now.name;

  now.call->result = e.result;
  now.call->left_order = left_order;
  if (now.name == "clock_gettime") {
    if (!failed) now.call->clock_ns = time_at(e.tid, now.call->args[1], now.short_time);
    if (now.call->injected && injected_readings_ < kInjectedReadings) {
      ++injected_readings_;
      keep_reading(*now.call);
    }
    if (readings_.size() >= kReadingThreads && !readings_.contains(e.tid)) return now.name;
    auto& last = readings_[e.tid];
    if (last.size() == kReadings) last.pop_front();
    last.push_back(*std::move(now.call));
    return now.name;
  }
  if (const auto address = address_in(*now.call)) now.call->after = header_at(e.tid, address);
  if (!failed && now.memory.size > 0) {
    // The result of a 32-bit caller may be sign-extended.
    if (now.name != "madvise") {
      now.memory.begin = e.result < 0 ? static_cast<std::uint32_t>(e.result)
                                      : static_cast<std::uint64_t>(e.result);
    }
    if (now.name == "mremap") forget(now.call->args[0], now.call->args[1]);
    learn(now.memory);
  }
  if (is_other(now.name)) {
    if (!failed && now.name == "munmap") forget(now.call->args[0], now.call->args[1]);
    keep_other(*std::move(now.call));
  } else {
    keep(*std::move(now.call));
  }
  return now.name;
}

void CallRecorder::made_process(pid_t tid, const std::string& how, pid_t child) {
  if (!had_context_) return;
  SystemCall call;
  call.tid = tid;
  call.name = how;
  call.result = child;
  call.entered_ns = sys::boottime_now_ns();
  call.entered_order = order_->next();
  call.left_order = order_->next();
  keep_other(std::move(call));
}

// These never use the space of a call that a publication needs.
bool CallRecorder::keep_other(SystemCall call) {
  if (others_ < limits_.others && calls_.size() < limits_.calls / 2 && bytes_ < limits_.bytes / 2) {
    ++others_;
    return keep(std::move(call));
  }
  ++others_dropped_;
  return false;
}

std::optional<std::uint64_t> CallRecorder::last_reading(pid_t tid) const {
  const auto it = readings_.find(tid);
  if (it == readings_.end() || it->second.empty()) return std::nullopt;
  return it->second.back().clock_ns;
}

// A missing clock reading does not count as a missing call.
void CallRecorder::keep_reading(SystemCall call) {
  const auto here = [&](const SystemCall& c) { return c.left_order == call.left_order; };
  if (kept_readings_ >= limits_.calls / 2 || calls_.size() + 1 >= limits_.calls ||
      bytes_ + kCallBytes > limits_.bytes || std::ranges::any_of(calls_, here)) {
    return;
  }
  ++kept_readings_;
  keep(std::move(call));
}

void CallRecorder::keep_readings(pid_t tid) {
  const auto it = readings_.find(tid);
  if (it == readings_.end()) return;
  for (SystemCall& c : it->second) keep_reading(std::move(c));
  readings_.erase(it);
}

void CallRecorder::keep_readings_of(std::uint64_t timestamp) {
  for (auto& [tid, last] : readings_) {
    for (const SystemCall& c : last) {
      if (c.clock_ns == timestamp) keep_reading(c);
    }
  }
}

bool CallRecorder::keep(SystemCall call) {
  const auto bytes =
      kCallBytes + call.text.size() + call.file.size() + call.before.size() + call.after.size();
  if (calls_.size() >= limits_.calls || bytes_ + bytes > limits_.bytes) {
    ++dropped_;
    return false;
  }
  bytes_ += bytes;
  calls_.push_back(std::move(call));
  return true;
}

void CallRecorder::add_to(Image& image, bool saw_context) {
  for (auto& [tid, now] : in_progress_) {
    if (!now.call) continue;
    if (is_other(now.name)) {
      keep_other(*std::move(now.call));
    } else {
      keep(*std::move(now.call));
    }
  }
  image.notes.insert(image.notes.end(), notes_.begin(), notes_.end());
  image.calls_unseen = std::move(unseen_);
  for (auto& [tid, last] : readings_) {
    for (SystemCall& c : last) keep_reading(std::move(c));
  }
  const bool tried = std::ranges::any_of(
      calls_, [](const SystemCall& c) { return c.injected || looks_like_the_name(c.text); });
  if (!saw_context && !tried) return;
  if (!image.calls_unseen.empty()) {
    image.notes.push_back("not all system calls were seen: " + image.calls_unseen);
  }
  if (others_dropped_ > 0) {
    image.notes.push_back(std::to_string(others_dropped_) +
                          " more calls of munmap and mprotect and new processes are not listed");
  }
  // The readings were inserted late.
  std::ranges::sort(calls_, {},
                    [](const SystemCall& c) { return std::pair(location_of(c), c.entered_order); });
  image.calls = std::move(calls_);
  image.calls_dropped = dropped_;
  image.other_calls_dropped = others_dropped_;
  for (SystemCall& c : image.calls) {
    // A state that was replaced by a later one is not the state that the call found.
    if (c.snapshot && (*c.snapshot >= image.snapshots.size() ||
                       image.snapshots[*c.snapshot].first_seen_ns > c.entered_ns)) {
      c.snapshot.reset();
    }
  }
}

}  // namespace ctxconf::conformance
