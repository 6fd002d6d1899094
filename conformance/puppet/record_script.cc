#include "conformance/puppet/record_script.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "conformance/observe/recording.h"
#include "sys/fd.h"
#include "sys/tracer.h"
#include "sys/trampoline_file.h"

namespace ctxconf::conformance::puppet {
namespace {

class RecordingHost : public PlayerHost {
 public:
  explicit RecordingHost(Recording& recording) : recording_(recording) {}

  pid_t root() const override { return recording_.root(); }
  bool lives(pid_t pid) const override {
    const auto alive = recording_.processes();
    return std::ranges::find(alive, pid) != alive.end();
  }
  std::vector<pid_t> processes() const override { return recording_.processes(); }
  std::size_t threads() const override { return recording_.threads(); }
  std::optional<std::uint32_t> image_of(pid_t pid) const override {
    const auto image = recording_.image_of(pid);
    return image ? std::optional(image->image) : std::nullopt;
  }
  sys::Result<bool> step(Clock::time_point until) override { return recording_.step(until); }
  sys::Result<> wake_for(int fd, short events) override { return recording_.wake_for(fd, events); }
  void look_around(Clock::time_point deadline) override { recording_.look_around(deadline); }
  bool interrupted() const override { return recording_.interrupted(); }
  std::string runaway() const override { return recording_.runaway(); }
  void begin_wait() override { recording_.begin_wait(); }
  Clock::duration late() const override { return recording_.late(); }

 private:
  Recording& recording_;
};

sys::Result<> play_all(const Script& script, Player& player, sys::Fd channel) {
  CTX_RETURN_IF_ERROR(player.start(std::move(channel)));
  for (std::size_t i = 0; i < script.operations.size(); ++i) {
    CTX_ASSIGN_OR_RETURN(goes_on, player.play(i));
    if (!goes_on) return {};
  }
  if (player.played().interrupted) return {};
  return player.wait_for_others();
}

}  // namespace

sys::Result<std::string> find_puppets() {
  return sys::program_folder_with({"ctxconf-puppet", "ctxconf-puppet-slot"}, X_OK);
}

sys::Result<Played> record_script(const Script& script, const PuppetOptions& options,
                                  Timeline& timeline) {
  WrapOptions wrap = options.wrap;
  wrap.argv = {options.player.programs + "/" + std::string(file_of(script.program))};
  wrap.looks_by_itself = false;
  timeline.watches_lifetime = wrap.stores && wrap.watch_lifetime;
  timeline.clock_calls = wrap.hide_vdso;

  CTX_ASSIGN_OR_RETURN(channel, new_channel());
  const sys::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.is_open()) return sys::fail("open", errno, "/dev/null");
  sys::Launch launch;
  launch.third = channel.theirs.get();
  launch.extra_env = environment_of(script, options.player.programs);
  launch.stdio = {null.get(), options.shows_output ? -1 : null.get(),
                  options.shows_output ? -1 : null.get()};
  CTX_ASSIGN_OR_RETURN(recording, Recording::start(wrap, launch, timeline));
  channel.theirs.reset();

  RecordingHost host(recording);
  PlayerOptions how = options.player;
  how.timeout_scale = wrap.timeout_scale;
  Player player(script, std::move(how), host);
  const auto run = play_all(script, player, std::move(channel.ours));
  if (!recording.runaway().empty()) timeline.hang = recording.runaway();
  recording.last_look();
  recording.terminate(/*politely=*/false);
  const auto finished = recording.finish();
  if (!run) return std::unexpected(run.error());
  if (!finished) return std::unexpected(finished.error());
  return player.played();
}

}  // namespace ctxconf::conformance::puppet
