// Level syscalls: the calls with which one image creates, sizes, maps, marks and names a
// publication, each with its arguments, its result and its subject.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/evidence/memory_calls.h"
#include "conformance/evidence/timeline.h"
#include "conformance/observe/instrument.h"
#include "sys/memory_reader.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

inline constexpr std::uint64_t kLargestAnonymous = std::uint64_t{1} << 20U;

struct CallLimits {
  std::size_t calls = kMaxCalls;
  std::size_t marks = 1024;                       // madvise of other memory than a memfd's mapping
  std::size_t others = 512;                       // of `calls`: munmap, mprotect and new processes
  std::uint64_t bytes = std::uint64_t{2} << 20U;  // stored
};

// Numbers the observations of one image in the order in which they happened.
class EventOrder {
 public:
  std::uint64_t next() { return ++last_; }
  std::uint64_t last() const { return last_; }

 private:
  std::uint64_t last_ = 0;
};

// Whether the error means that ctxconf may not examine the process. That is not a fault of the
// process.
bool is_refused(const sys::Error& error);

// The thread is stopped before or after the call when these functions are called.
class CallRecorder : public Instrument {
 public:
  // `filters`: seccomp filters that existed before the program did anything; nothing: unknown.
  // `order`: the image's.
  CallRecorder(std::optional<unsigned> filters, std::shared_ptr<EventOrder> order,
               CallLimits limits = {});

  // The call, if it concerns a publication or may do so: every memfd_create; ftruncate and mmap of
  // a memfd; MADV_DONTFORK of anything, until there were too many; mremap of memory that was in one
  // of those, and names given to it or that look like OTEL_CTX; exec after any of these; munmap and
  // mprotect of what may be a context's mapping. If the filter stops them, also: anonymous private
  // memory that a thread maps between its memfd_create for OTEL_CTX and its naming call, up to
  // kLargestAnonymous, and clock_gettime. Also ptrace and prctl(PR_SET_DUMPABLE), which become
  // notes and are not listed.
  std::optional<SystemCall> describe(const sys::SyscallEntry& e);
  // The call begins now; pass its result to left().
  void entered(SystemCall call, bool short_time = false);
  // A thread of the image made a process: "fork", "vfork" or "clone".
  void made_process(pid_t tid, const std::string& how, pid_t child);
  // The call that returned, if entered() got it: "prctl".
  std::string left(const sys::SyscallExit& e);
  // The thread is about to publish or to update: anonymous memory that it maps from now on counts
  // as if it had called memfd_create.
  void begins_to_publish(pid_t tid);
  // The time that the thread's clock_gettime returned, directly after left().
  std::optional<std::uint64_t> last_reading(pid_t tid) const;

  // Whether the thread has filters of its own, which may answer calls before they stop.
  void look_at_filters(pid_t tid);
  // Some or all calls are not seen; keeps the first reason.
  void unseen(const std::string& why);

  // Adds the calls that concerned a publication. If the image has no context in its snapshots and
  // never tried to name one, its calls are not evidence.
  // Keeps the clock readings directly before a call of their thread, those whose time is in a
  // header that gets a name, and those that were injected.
  void add_to(Image& image, bool saw_context) override;
  std::uint64_t stored_bytes() const override { return bytes_; }
  // Whether these bytes overlap memory that has, or may get, a context.
  bool overlaps_context(std::uint64_t address, std::uint64_t size) const;

 private:
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    bool context = false;  // small, or of a memfd with a context's name
  };
  struct InProgress {
    std::string name;
    std::optional<SystemCall> call;    // nothing: over the limit, or already listed
    std::optional<std::size_t> index;  // of an exec, which is listed when it begins
    Span memory;                       // known when the call succeeds
    bool short_time = false;
  };

  bool knows(std::uint64_t address) const;
  void learn(Span span);
  void forget(std::uint64_t begin, std::uint64_t size);
  void note(const std::string& text);
  bool keep_other(SystemCall call);
  bool keep(SystemCall call);
  void keep_reading(SystemCall call);
  void keep_readings(pid_t tid);                   // of that thread
  void keep_readings_of(std::uint64_t timestamp);  // of all threads
  std::vector<std::byte> header_at(pid_t tid, std::uint64_t address);
  std::string name_at(pid_t tid, std::uint64_t address);
  std::optional<std::string> memfd_behind(pid_t tid, std::uint64_t fd);

  std::optional<unsigned> filters_;
  std::shared_ptr<EventOrder> order_;
  CallLimits limits_;
  std::vector<SystemCall> calls_;
  std::map<pid_t, InProgress> in_progress_;
  std::map<pid_t, std::size_t> publishing_;           // anonymous mappings of each so far
  std::map<pid_t, std::deque<SystemCall>> readings_;  // the latest ones of each thread
  std::size_t injected_readings_ = 0;
  std::size_t kept_readings_ = 0;
  std::vector<Span> known_;
  bool had_context_ = false;
  std::size_t marks_ = 0;
  std::size_t others_ = 0;
  std::size_t others_dropped_ = 0;
  std::vector<std::string> notes_;
  std::uint64_t bytes_ = 0;
  std::uint64_t dropped_ = 0;
  std::string unseen_;
};

}  // namespace ctxconf::conformance
