#include "conformance/reader/call_recorder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <span>
#include <string_view>
#include <utility>

#include "conformance/evidence/timeline.h"
#include "sys/memory_reader.h"
#include "sys/process.h"
#include "sys/remote_addr.h"
#include "sys/tracing_thread.h"

namespace ctxconf::conformance::reader {
namespace {

constexpr std::size_t kMostRanges = 64;     // of one call
constexpr std::size_t kMostWritten = 4096;  // bytes, of one call and of all of a scene
constexpr std::size_t kLongestPath = 512;   // what is kept of it
constexpr std::string_view kProc = "/proc/";

constexpr std::array<std::pair<long, std::string_view>, 19> kNames = {{
    {SYS_process_vm_readv, "process_vm_readv"},
    {SYS_process_vm_writev, "process_vm_writev"},
    {SYS_pwrite64, "pwrite64"},
    {SYS_pwritev, "pwritev"},
    {SYS_pwritev2, "pwritev2"},
    {SYS_read, "read"},
    {SYS_readv, "readv"},
    {SYS_pread64, "pread64"},
    {SYS_preadv, "preadv"},
    {SYS_preadv2, "preadv2"},
    {SYS_ptrace, "ptrace"},
    {SYS_openat, "openat"},
    {SYS_openat2, "openat2"},
    {SYS_mmap, "mmap"},
    {SYS_kill, "kill"},
    {SYS_tkill, "tkill"},
    {SYS_tgkill, "tgkill"},
    {SYS_pidfd_send_signal, "pidfd_send_signal"},
#ifdef SYS_open
    {SYS_open, "open"},
#else
    {-1, ""},
#endif
}};

constexpr std::array<std::pair<std::uint64_t, std::string_view>, 16> kRequests = {{
    {PTRACE_TRACEME, "PTRACE_TRACEME"},
    {PTRACE_PEEKTEXT, "PTRACE_PEEKTEXT"},
    {PTRACE_PEEKDATA, "PTRACE_PEEKDATA"},
    {PTRACE_POKETEXT, "PTRACE_POKETEXT"},
    {PTRACE_POKEDATA, "PTRACE_POKEDATA"},
    {PTRACE_CONT, "PTRACE_CONT"},
    {PTRACE_ATTACH, "PTRACE_ATTACH"},
    {PTRACE_DETACH, "PTRACE_DETACH"},
    {PTRACE_SYSCALL, "PTRACE_SYSCALL"},
    {PTRACE_SINGLESTEP, "PTRACE_SINGLESTEP"},
    {PTRACE_SEIZE, "PTRACE_SEIZE"},
    {PTRACE_INTERRUPT, "PTRACE_INTERRUPT"},
    {PTRACE_LISTEN, "PTRACE_LISTEN"},
    {PTRACE_GETREGSET, "PTRACE_GETREGSET"},
    {PTRACE_SETREGSET, "PTRACE_SETREGSET"},
    {PTRACE_SETOPTIONS, "PTRACE_SETOPTIONS"},
}};

template <class Key, std::size_t N>
std::string word_for(const std::array<std::pair<Key, std::string_view>, N>& words, Key key) {
  const auto at = std::ranges::find(words, key, &std::pair<Key, std::string_view>::first);
  return at == words.end() ? std::to_string(key) : std::string(at->second);
}

// The process of "/proc/123/mem"; 0: not such a file.
pid_t process_of_file(std::string_view path) {
  if (!path.starts_with(kProc)) return 0;
  path.remove_prefix(kProc.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), pid);
  return error == std::errc() && (end == path.data() + path.size() || *end == '/') ? pid : 0;
}

bool is_memory_file(std::string_view path) {
  return process_of_file(path) != 0 && path.ends_with("/mem");
}

std::uint64_t file_position(pid_t tid, int fd) {
  std::ifstream file("/proc/" + std::to_string(tid) + "/fdinfo/" + std::to_string(fd));
  std::string word;
  std::uint64_t position = 0;
  while (file >> word) {
    if (word == "pos:" && file >> position) return position;
  }
  return 0;
}

std::vector<iovec> vectors_at(pid_t process, std::uint64_t at, std::uint64_t count) {
  std::vector<iovec> out(std::min<std::uint64_t>(count, kMostRanges));
  const sys::ProcessMemory memory(process);
  if (!memory.read_exact(sys::RemoteAddr(at), std::as_writable_bytes(std::span(out)))) out.clear();
  return out;
}

bool writes(const sys::SyscallEntry& e) {
  return e.nr == SYS_process_vm_writev || e.nr == SYS_pwrite64 || e.nr == SYS_pwritev ||
         e.nr == SYS_pwritev2 ||
         (e.nr == SYS_ptrace && (e.args[0] == PTRACE_POKETEXT || e.args[0] == PTRACE_POKEDATA));
}

std::string text_at(pid_t process, std::uint64_t at) {
  std::array<char, kLongestPath> text{};
  const sys::ProcessMemory memory(process);
  const auto got = memory.read_some(sys::RemoteAddr(at), std::as_writable_bytes(std::span(text)));
  const std::string_view found(text.data(), got.value_or(0));
  return std::string(found.substr(0, found.find('\0')));
}

// Puts the name of the folder that `fd` is before a path that is relative to it.
std::string whole_path(pid_t tid, int fd, std::string path) {
  if (path.starts_with('/') || fd == AT_FDCWD) return path;
  const auto folder = sys::descriptor_link(tid, fd);
  return folder ? *folder + "/" + path : path;
}

}  // namespace

std::uint64_t number_at(pid_t pid, std::uint64_t at) {
  std::uint64_t value = 0;
  const sys::ProcessMemory memory(pid);
  (void)memory.read_some(sys::RemoteAddr(at), std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

void ReaderCallRecorder::begin(Watch watch) {
  watch_ = std::move(watch);
  matched_.clear();
  held_.clear();
  in_progress_.clear();
  writing_.clear();
  calls_.clear();
  dropped_ = 0;
  first_.reset();
  firsts_ = 0;
  copies_ = 0;
}

void ReaderCallRecorder::end(ReaderQuestion& question) {
  if (!watch_) return;
  for (const ArmedHold& h : watch_->holds) {
    if (!held_.contains(h.name)) question.missed.push_back(h.name);
  }
  question.calls = std::move(calls_);
  question.calls_dropped = dropped_;
  calls_.clear();
  in_progress_.clear();
  watch_.reset();
}

std::optional<ReaderCall> ReaderCallRecorder::describe(const sys::SyscallEntry& e) const {
  ReaderCall call;
  call.tid = e.tid;
  call.name = word_for(kNames, e.nr);
  call.entered_ns = sys::boottime_now_ns();
  const auto& args = e.args;
  const int fd = static_cast<int>(args[0]);
  switch (e.nr) {
    case SYS_process_vm_readv:
    case SYS_process_vm_writev:
      call.target = static_cast<pid_t>(args[0]);
      for (const iovec& v : vectors_at(e.process, args[3], args[4])) {
        call.ranges.push_back({reinterpret_cast<std::uint64_t>(v.iov_base), v.iov_len});
      }
      return call;
    case SYS_read:
    case SYS_readv:
    case SYS_pread64:
    case SYS_preadv:
    case SYS_preadv2:
    case SYS_pwrite64:
    case SYS_pwritev:
    case SYS_pwritev2: {
      const auto link = sys::descriptor_link(e.tid, fd);
      if (!link || !is_memory_file(*link)) return std::nullopt;
      call.detail = *link;
      call.target = process_of_file(*link);
      std::uint64_t size = args[2];
      if (e.nr != SYS_read && e.nr != SYS_pread64 && e.nr != SYS_pwrite64) {
        size = 0;
        for (const iovec& v : vectors_at(e.process, args[1], args[2])) size += v.iov_len;
      }
      const bool at_position = e.nr == SYS_read || e.nr == SYS_readv;
      call.ranges.push_back({at_position ? file_position(e.tid, fd) : args[3], size});
      return call;
    }
    case SYS_ptrace:
      call.detail = word_for(kRequests, args[0]);
      call.target = static_cast<pid_t>(args[1]);
      if (args[0] == PTRACE_PEEKDATA || args[0] == PTRACE_PEEKTEXT || writes(e)) {
        call.ranges.push_back({args[2], sizeof(long)});
      }
      return call;
    case SYS_openat:
    case SYS_openat2:
      call.detail = whole_path(e.tid, fd, text_at(e.process, args[1]));
      break;
    case SYS_mmap: {
      const auto link = sys::descriptor_link(e.tid, static_cast<int>(args[4]));
      if (!link) return std::nullopt;
      call.detail = *link;
      call.ranges.push_back({args[5], args[1]});  // of the file
      return call.detail.starts_with(kProc) || call.detail.contains("OTEL_CTX")
                 ? std::optional(std::move(call))
                 : std::nullopt;
    }
    case SYS_kill:
    case SYS_tkill:
    case SYS_tgkill: {
      const std::size_t signal = e.nr == SYS_tgkill ? 2 : 1;
      call.target = static_cast<pid_t>(args[signal - 1]);
      call.detail = signal_name(static_cast<int>(args[signal]));
      // Runtimes signal their own threads.
      if (call.target == e.process || (e.nr == SYS_tgkill && fd == e.process)) return std::nullopt;
      return call;
    }
    case SYS_pidfd_send_signal:
      call.detail = signal_name(static_cast<int>(args[1]));
      return call;
#ifdef SYS_open
    case SYS_open:
      call.detail = text_at(e.process, args[0]);
      break;
#endif
    default:
      return std::nullopt;
  }
  // A file that it opens.
  call.target = process_of_file(call.detail);
  return call;
}

void ReaderCallRecorder::look_at_thread(ReaderCall& call, std::uint64_t& ran) const {
  if (watch_->thread == 0 || call.ranges.empty()) return;
  call.state = std::string(1, sys::thread_state(watch_->thread));
  if (watch_->counter) ran = number_at(watch_->process, *watch_->counter);
}

// Plays what is to happen at this moment.
void ReaderCallRecorder::hold(ReaderCall& call, bool before) {
  for (const ArmedHold& h : watch_->holds) {
    if (h.before != before || held_.contains(h.name)) continue;
    const bool matches =
        std::ranges::any_of(call.ranges, [&](const MemoryRange& r) { return r.touches(h.part); });
    if (!matches || ++matched_[h.name] < h.nth) continue;
    held_.insert(h.name);
    call.held = h.name;
    h.play();
  }
}

std::optional<bool> ReaderCallRecorder::has_looked() const {
  if (!is_seen_) return std::nullopt;
  // The first copies may be of a look that had begun before.
  constexpr std::uint64_t kOfSlot = 3;
  constexpr std::uint64_t kOfHeader = 6;
  // The same calls, some of them several times in one look.
  constexpr std::uint64_t kOfOthers = 20;
  if (copies_ == 0) return firsts_ >= kOfOthers;
  return copies_ >= (watch_ && watch_->thread != 0 ? kOfSlot : kOfHeader);
}

void ReaderCallRecorder::count_looks(const ReaderCall& call) {
  is_seen_ = true;
  if (call.target != watch_->process && (call.target != watch_->thread || call.target == 0)) return;
  if (!first_) first_ = call;
  const bool same = call.name == first_->name && call.detail == first_->detail &&
                    call.target == first_->target && call.ranges == first_->ranges;
  if (same) ++firsts_;
  const auto touches = [&](const MemoryRange& r) { return r.touches(watch_->looked_at); };
  if (std::ranges::any_of(call.ranges, touches)) ++copies_;
}

ReaderCallRecorder::Write ReaderCallRecorder::before_write(pid_t target,
                                                           std::vector<MemoryRange> ranges) {
  Write out{.target = target, .ranges = std::move(ranges), .before = {}};
  const sys::ProcessMemory memory(out.target);
  for (MemoryRange& r : out.ranges) {
    r.size = std::min<std::uint64_t>(r.size, kMostWritten - out.before.size());
    std::vector<std::uint8_t> bytes(r.size);
    const auto got =
        memory.read_some(sys::RemoteAddr(r.at), std::as_writable_bytes(std::span(bytes)));
    r.size = got.value_or(0);
    out.before.insert(out.before.end(), bytes.begin(),
                      bytes.begin() + static_cast<std::ptrdiff_t>(r.size));
  }
  return out;
}

void ReaderCallRecorder::keep_write(const Write& write) {
  const sys::ProcessMemory memory(write.target);
  std::size_t begin = 0;
  for (const MemoryRange& r : write.ranges) {
    std::vector<std::uint8_t> now(r.size);
    const auto got =
        memory.read_some(sys::RemoteAddr(r.at), std::as_writable_bytes(std::span(now)));
    for (std::size_t i = 0; i < got.value_or(0); ++i) {
      const std::pair key(write.target, r.at + i);
      if (const auto known = written_.find(key); known != written_.end()) {
        known->second.after = now[i];
      } else if (written_.size() < kMostWritten) {
        written_[key] = {.before = write.before[begin + i], .after = now[i]};
      }
    }
    begin += r.size;
  }
}

std::size_t ReaderCallRecorder::changed_by_reader(pid_t process) const {
  std::size_t out = 0;
  for (const auto& [key, bytes] : written_) {
    const auto& [target, at] = key;
    if (target != process && !sys::is_thread_of(target, process)) continue;
    std::uint8_t now = 0;
    const sys::ProcessMemory memory(process);
    const auto got =
        memory.read_some(sys::RemoteAddr(at), std::as_writable_bytes(std::span(&now, 1)));
    // Another value is what the process itself has written since.
    if (got.value_or(0) == 1 && now == bytes.after && now != bytes.before) ++out;
  }
  return out;
}

bool ReaderCallRecorder::entered(const sys::SyscallEntry& e) {
  if (!watch_) return false;
  auto call = describe(e);
  if (!call) return false;
  // The ranges of a call are what it reads.
  std::vector<MemoryRange> written;
  if (writes(e)) written.swap(call->ranges);
  count_looks(*call);
  if (calls_.size() >= kMaxReaderCalls) {
    ++dropped_;
    return false;
  }
  if (call->name != "mmap") {
    look_at_thread(*call, call->ran_before);
    hold(*call, /*before=*/true);
  }
  if (writes(e)) writing_[e.tid] = before_write(call->target, std::move(written));
  in_progress_[e.tid] = calls_.size();
  calls_.push_back(std::move(*call));
  return true;
}

void ReaderCallRecorder::left(const sys::SyscallExit& e) {
  const auto at = in_progress_.find(e.tid);
  if (!watch_ || at == in_progress_.end()) return;
  if (const auto writing = writing_.extract(e.tid); writing && !sys::is_error_result(e.result)) {
    keep_write(writing.mapped());
  }
  ReaderCall& call = calls_[at->second];
  in_progress_.erase(at);
  call.result = e.result;
  if (call.name == "mmap") return;
  look_at_thread(call, call.ran_after);
  if (!sys::is_error_result(e.result)) hold(call, /*before=*/false);
}

}  // namespace ctxconf::conformance::reader
