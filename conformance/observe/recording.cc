#include "conformance/observe/recording.h"

#include <csignal>
#include <utility>

#include "conformance/observe/recording_loop.h"

namespace ctxconf::conformance {

namespace {

using Clock = Recording::Clock;

}  // namespace

struct Recording::State {
  State(const WrapOptions& o, Timeline& timeline, sys::Tracer tracer)
      : options(o), loop(options, timeline, std::move(tracer)), dog(watchdog(options)) {}

  WrapOptions options;
  RecordingLoop loop;
  sys::AccessWatchdog dog;
};

sys::AccessWatchdog watchdog(const WrapOptions& options) {
  return {std::chrono::duration_cast<std::chrono::milliseconds>(options.memory_deadline *
                                                                options.timeout_scale),
          [unreachable = options.unreachable](pid_t pid) {
            if (unreachable) unreachable(pid);
          }};
}

Recording::Recording(std::unique_ptr<State> state) : state_(std::move(state)) {}
Recording::Recording(Recording&&) noexcept = default;
Recording::~Recording() = default;

sys::Result<Recording> Recording::start(const WrapOptions& options, sys::Launch launch,
                                        Timeline& timeline) {
  launch.argv = options.argv;
  launch.no_filter = options.no_filter;
  launch.pid_namespace = options.pid_namespace;
  launch.boottime_offset = options.boottime_offset;
  launch.extra_calls = {.clock_gettime = options.hide_vdso,
                        .anonymous_mmap = !options.injections.empty(),
                        .reads_to_header = options.stores};
  launch.own_session = options.pause_at.has_value();
  launch.reader_calls = options.observer != nullptr;
  CTX_ASSIGN_OR_RETURN(tracer, sys::Tracer::launch(launch, options.trampoline));
  return Recording(std::make_unique<State>(options, timeline, std::move(tracer)));
}

pid_t Recording::root() const { return state_->loop.tracer().root(); }
sys::Result<bool> Recording::step(Clock::time_point until) { return state_->loop.step(until); }
bool Recording::was_idle() const { return state_->loop.was_idle(); }
bool Recording::has_single_stepped() const { return state_->loop.has_single_stepped(); }
bool Recording::interrupted() const {
  return state_->loop.tracer().interrupted() || state_->loop.is_paused();
}
bool Recording::paused() const { return state_->loop.is_paused(); }
const std::string& Recording::runaway() const { return state_->loop.runaway(); }
Clock::time_point Recording::begun() const { return state_->loop.begun(); }
std::optional<Clock::time_point> Recording::published() const {
  return state_->loop.sampler().published();
}
Clock::duration Recording::late() const { return state_->loop.late(); }
void Recording::begin_wait() { state_->loop.begin_wait(); }
void Recording::inject(bool on) { state_->loop.set_injecting(on); }
void Recording::probe_forks(bool on) { state_->loop.forks().set(on); }
std::optional<pid_t> Recording::process_of(std::int64_t number) const {
  return state_->loop.processes().process_of(number);
}
void Recording::step_changes(bool on) { state_->loop.set_stepping(on); }
void Recording::step_from_gate(pid_t pid, pid_t tid) { state_->loop.step_from_gate(pid, tid); }
bool Recording::is_held_up(pid_t pid) const { return state_->loop.forks().is_held_up(pid); }
void Recording::begin_race(pid_t pid) {
  if (ImageRecorder* const image = state_->loop.processes().image(pid)) {
    state_->loop.race().begin(*image);
  }
}
void Recording::end_race() { state_->loop.race().end(); }
void Recording::begins_to_publish(pid_t pid, pid_t tid) {
  if (ImageRecorder* const image = state_->loop.processes().image(pid)) {
    image->calls().begins_to_publish(tid);
  }
}
void Recording::look_around(Clock::time_point deadline) { state_->loop.look_around(deadline); }
std::size_t Recording::threads() const { return state_->loop.processes().threads().size(); }
void Recording::last_look() { state_->loop.last_look(); }
void Recording::terminate(bool politely) {
  state_->loop.set_ending();
  if (politely) state_->loop.tracer().signal_all(SIGTERM);
}
sys::Result<> Recording::wake_for(int fd, short events) {
  return state_->loop.tracer().wake_for(fd, events);
}
std::optional<ImageKey> Recording::image_of(pid_t pid) const {
  return state_->loop.processes().image_of(pid);
}
std::vector<pid_t> Recording::processes() const { return state_->loop.tracer().processes(); }
void Recording::watch_thread(pid_t pid, pid_t owner, Clock::time_point deadline) {
  state_->loop.watch_thread(pid, owner, deadline);
}
std::vector<ImageView> Recording::look(SnapshotDepth depth, Clock::time_point deadline) {
  return state_->loop.look(depth, deadline);
}
sys::Result<> Recording::finish() { return state_->loop.finish(); }

}  // namespace ctxconf::conformance
