// Level syscalls: the calls with which one image makes, sizes, maps, marks and names a
// publication, each with its arguments, its result and what it was about.
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

#include "conformance/timeline.h"
#include "sys/memory_reader.h"
#include "sys/tracee.h"

namespace ctxconf::conformance {

inline constexpr std::uint64_t kLargestAnonymous = std::uint64_t{1} << 20U;

struct CallLimits {
  std::size_t calls = kMaxCalls;
  std::size_t marks = 1024;                       // madvise of what is no memfd's mapping
  std::size_t others = 512;                       // of `calls`: munmap, mprotect and new processes
  std::uint64_t bytes = std::uint64_t{2} << 20U;  // stored
};

// Numbers what is seen of one image in the order in which it happened.
class EventOrder {
 public:
  std::uint64_t next() { return ++last_; }
  std::uint64_t last() const { return last_; }

 private:
  std::uint64_t last_ = 0;
};

bool maps_anonymously(const SystemCall& mmap);
// What a descriptor is ("/memfd:NAME (deleted)"): any memfd, and one that looks like OTEL_CTX.
bool is_memfd(std::string_view file);
bool is_memfd_of_context(std::string_view file);
// The process may not be looked at, which is no fault of its own.
bool is_refused(const sys::Error& error);

// Its thread stands before or after the call while it is asked or told here.
class CallRecorder {
 public:
  // `filters`: seccomp filters that were there before the program did anything; nothing: unknown.
  // `order`: the image's.
  CallRecorder(std::optional<unsigned> filters, std::shared_ptr<EventOrder> order,
               CallLimits limits = {});

  // The call, if it concerns a publication or may: every memfd_create; ftruncate and mmap of a
  // memfd; MADV_DONTFORK of anything, until there were too many; mremap of memory that was in one
  // of those, and names given to it or that look like OTEL_CTX; exec after any of these; munmap
  // and mprotect of what may be a context's mapping. Where they stop: anonymous private memory that
  // a thread maps between its memfd_create for OTEL_CTX and its naming call, up to
  // kLargestAnonymous, and clock_gettime. Also ptrace and prctl(PR_SET_DUMPABLE), which are noted
  // and not listed.
  std::optional<SystemCall> describe(const sys::SyscallEntry& e);
  // It begins now; its result is to be told to left().
  void entered(SystemCall call, bool short_time = false);
  // A process was made by a thread of the image: "fork", "vfork" or "clone".
  void made_process(pid_t tid, const std::string& how, pid_t child);
  // What returned, if entered() was told of it: "prctl".
  std::string left(const sys::SyscallExit& e);
  // The thread is about to publish or to update: anonymous memory that it maps from now on is for
  // that, as if it had called memfd_create.
  void begins_to_publish(pid_t tid);
  // The time that the thread's clock_gettime gave, right after left().
  std::optional<std::uint64_t> last_reading(pid_t tid) const;

  // Has the thread filters of its own, which may answer calls before they stop?
  void look_at_filters(pid_t tid);
  // Calls are not seen, or not all: the first reason is kept.
  void unseen(const std::string& why);

  // Adds what concerned a publication: calls of an image that neither has a context among its
  // snapshots nor tried to name one say nothing.
  // Of the clock's readings those are kept that came right before a call of their thread, or
  // whose time is in a header that gets a name, and those that were injected.
  void add_to(Image& image, bool saw_context) &&;
  std::uint64_t stored_bytes() const { return bytes_; }
  // These bytes share some with memory that has, or may get, a context.
  bool overlaps_context(std::uint64_t address, std::uint64_t size) const;

 private:
  struct Span {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    bool context = false;  // small, or of a memfd that is called like a context
  };
  struct InProgress {
    std::string name;
    std::optional<SystemCall> call;    // nothing: over the limit, or listed already
    std::optional<std::size_t> index;  // of an exec, which is listed when it begins
    Span memory;                       // becomes known when the call works
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
  std::map<pid_t, std::deque<SystemCall>> readings_;  // the last of each thread
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
