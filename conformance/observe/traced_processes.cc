#include "conformance/observe/traced_processes.h"

#include <algorithm>
#include <utility>

#include "sys/process.h"

namespace ctxconf::conformance {

TracedProcesses::TracedProcesses(const WrapOptions& options, sys::Tracer& tracer)
    : options_(options),
      tracer_(tracer),
      known_files_(options.known_files ? options.known_files : std::make_shared<KnownFiles>()),
      code_files_{{}, &known_files_->locations},
      slot_turns_{.tracer = tracer, .threads = threads_} {}

ImageRecorder* TracedProcesses::image(pid_t pid) const {
  const auto it = alive_.find(pid);
  return it == alive_.end() ? nullptr : it->second.image.get();
}

ImageRecorder* TracedProcesses::lender(pid_t pid) const {
  const auto it = alive_.find(pid);
  if (it == alive_.end() || !it->second.memory_of) return nullptr;
  // If the lender has called exec, it has other memory.
  ImageRecorder* const i = image(it->second.memory_of->pid);
  return i != nullptr && i->image().key == *it->second.memory_of ? i : nullptr;
}

std::optional<ImageKey> TracedProcesses::image_of(pid_t pid) const {
  const ImageRecorder* const i = image(pid);
  return i == nullptr ? std::nullopt : std::optional(i->image().key);
}

std::optional<pid_t> TracedProcesses::process_of(std::int64_t number) const {
  for (const auto& [pid, w] : alive_) {
    if ((options_.pid_namespace ? w.process.own_pid : pid) == number && w.image) return pid;
  }
  return std::nullopt;
}

bool TracedProcesses::is_alone(pid_t pid, pid_t tid) const {
  return std::ranges::none_of(
             threads_, [&](const auto& t) { return t.second.process == pid && t.first != tid; }) &&
         std::ranges::none_of(alive_, [&](const auto& p) {
           return p.second.shares_memory && p.second.process.parent == pid;
         });
}

std::uint64_t TracedProcesses::steps_under_way() const {
  std::uint64_t steps = 0;
  for (const auto& [pid, w] : alive_) {
    if (!w.image) continue;
    for (const auto& i : w.image->instruments()) steps = std::max(steps, i->steps_under_way());
  }
  return steps;
}

void TracedProcesses::add(pid_t pid, pid_t parent, bool shares_memory) {
  ++started_;
  TracedProcess& w = alive_[pid];
  w.process.pid = pid;
  w.process.parent = parent;
  w.process.session = options_.session;
  if (options_.pid_namespace) w.process.own_pid = sys::own_number(pid).value_or(0);
  w.shares_memory = shares_memory;
  if (shares_memory) {
    w.memory_of = image_of(parent);
    if (const auto it = alive_.find(parent); !w.memory_of && it != alive_.end()) {
      w.memory_of = it->second.memory_of;
    }
  }
  if (!shares_memory) start_image(w);
}

void TracedProcesses::start_image(TracedProcess& w) {
  // The running images share the limit for stored memory.
  SnapshotLimits limits = options_.limits;
  limits.descriptors_always = options_.keep_all || !options_.injections.empty();
  const auto left = options_.max_stored - std::min(options_.max_stored, stored_);
  limits.image_bytes =
      std::min(limits.image_bytes,
               std::max<std::uint64_t>(left / (alive_.size() + 1), std::uint64_t{64} << 10U));
  if (!filters_ && !options_.no_filter) {
    if (const auto count = sys::seccomp_filters(w.process.pid)) filters_ = *count;
  }
  w.image = std::make_unique<ImageRecorder>(
      ImageKey{w.process.pid, w.next_image++, options_.session}, options_, limits, filters_,
      SharedByImages{*known_files_, code_files_, copies_, slot_turns_});
}

void TracedProcesses::end_image(TracedProcess& w, const std::string& ending) {
  if (!w.image) return;
  stored_ += w.image->stored_bytes();
  w.process.images.push_back(std::move(*w.image).finish(ending));
  w.image.reset();
}

void TracedProcesses::forget_threads(pid_t pid) {
  std::erase_if(threads_, [&](const auto& t) { return t.second.process == pid; });
}

void TracedProcesses::keep(Process process) {
  const bool evidence = std::ranges::any_of(process.images, [](const Image& i) {
    return !i.snapshots.empty() || !i.notes.empty() || !i.modules.empty() || !i.calls.empty() ||
           !i.stores.empty();
  });
  const bool root = process.pid == tracer_.root();
  if (root || ((evidence || ended_.size() < 64) && ended_.size() < options_.max_recorded)) {
    ended_.push_back(std::move(process));
    return;
  }
  ++not_kept_;
  const bool has_context = std::ranges::any_of(process.images, [](const Image& i) {
    return !i.threads.empty() || std::ranges::any_of(i.snapshots, [](const Snapshot& s) {
      return !s.candidates.empty();
    });
  });
  if (has_context) ++not_judged_;
}

void TracedProcesses::add_to(Timeline& timeline) {
  if (not_judged_ > 0 && timeline.incomplete.empty()) {
    timeline.incomplete = std::to_string(not_judged_) +
                          " more processes had a context and were not judged: at most " +
                          std::to_string(options_.max_recorded) + " are";
  }
  if (not_kept_ > 0) {
    timeline.notes.push_back(std::to_string(not_kept_) + " more processes ran and are not listed" +
                             (not_judged_ == 0 ? ""
                                               : "; " + std::to_string(not_judged_) +
                                                     " of them had a context and were not judged"));
  }
  std::ranges::sort(ended_, {}, [this](const Process& p) {
    return std::pair(p.pid == tracer_.root() ? 0 : 1, p.pid);
  });
  for (auto& problem : code_files_.name_locations(ended_)) {
    timeline.notes.push_back(std::move(problem));
  }
  for (auto& p : ended_) timeline.processes.push_back(std::move(p));
}

void TracedProcesses::ends_all_execs(pid_t pid) {
  std::erase_if(in_exec_, [&](const auto& in) { return in.second == pid; });
}

bool TracedProcesses::is_in_exec(pid_t pid) const {
  return std::ranges::any_of(in_exec_, [&](const auto& e) { return e.second == pid; });
}

}  // namespace ctxconf::conformance
