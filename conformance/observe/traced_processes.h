// The living processes and threads of a recording, and what is kept of the processes that have
// ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/evidence/timeline.h"
#include "conformance/observe/image_recorder.h"
#include "conformance/observe/known_files.h"
#include "conformance/observe/watched_threads.h"
#include "conformance/observe/wrap.h"
#include "sys/tracer.h"

namespace ctxconf::conformance {

struct TracedProcess {
  Process process;
  std::unique_ptr<ImageRecorder> image;  // null: not recorded
  std::uint32_t next_image = 0;
  bool shares_memory = false;         // a vfork child sees its parent's memory until it execs
  std::optional<ImageKey> memory_of;  // while it shares memory: the image to which that belongs
};

class TracedProcesses {
 public:
  // Both must outlive this.
  TracedProcesses(const WrapOptions& options, sys::Tracer& tracer);

  std::map<pid_t, TracedProcess>& alive() { return alive_; }
  const std::map<pid_t, TracedProcess>& alive() const { return alive_; }
  WatchedThreads& threads() { return threads_; }
  const WatchedThreads& threads() const { return threads_; }
  std::size_t started() const { return started_; }  // in total
  // The image that a process runs now; null: not recorded.
  ImageRecorder* image(pid_t pid) const;
  // The image of another process whose memory this one works in; null: none, or not recorded.
  ImageRecorder* lender(pid_t pid) const;
  std::optional<ImageKey> image_of(pid_t pid) const;
  // See Recording::process_of().
  std::optional<pid_t> process_of(std::int64_t number) const;
  // Whether no other task runs in the memory of this thread.
  bool is_alone(pid_t pid, pid_t tid) const;
  // Instructions of the longest step trace in progress.
  std::uint64_t steps_under_way() const;
  // Seccomp filters at the program's first instruction; nothing: unknown.
  std::optional<unsigned> filters() const { return filters_; }

  // A process was born; its first thread follows. Its first image begins, unless it shares memory.
  void add(pid_t pid, pid_t parent, bool shares_memory);
  void start_image(TracedProcess& w);
  // Does nothing if no image is recorded.
  void end_image(TracedProcess& w, const std::string& ending);
  void forget_threads(pid_t pid);
  // The process has ended, and so has its image.
  void keep(Process process);
  // Appends the processes, and notes about those that were not kept; call once, when none lives.
  void add_to(Timeline& timeline);

  // Threads in execve: during that call the memory becomes that of the next image. Until the image
  // is known, nobody looks.
  void begins_exec(pid_t pid, pid_t tid) { in_exec_[tid] = pid; }
  bool ends_exec(pid_t tid) { return in_exec_.erase(tid) > 0; }  // whether it was in one
  void ends_all_execs(pid_t pid);
  bool is_thread_in_exec(pid_t tid) const { return in_exec_.contains(tid); }
  bool is_in_exec(pid_t pid) const;

 private:
  const WrapOptions& options_;
  sys::Tracer& tracer_;
  std::shared_ptr<KnownFiles> known_files_;
  CodeFiles code_files_;
  std::shared_ptr<CopyBudget> copies_ = std::make_shared<CopyBudget>();
  WatchedThreads threads_;
  SharedBySlotTurns slot_turns_;
  std::map<pid_t, TracedProcess> alive_;
  std::map<pid_t, pid_t> in_exec_;  // threads, and their processes
  std::vector<Process> ended_;
  std::optional<unsigned> filters_;
  std::size_t started_ = 0;
  std::size_t not_kept_ = 0;
  std::size_t not_judged_ = 0;  // the ones of them with a context
  std::uint64_t stored_ = 0;    // bytes of memory in ended images
};

}  // namespace ctxconf::conformance
