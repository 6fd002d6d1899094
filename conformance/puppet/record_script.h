// Moves a scripted process through a script, and records it as `wrap` records any program.
#pragma once

#include <string>

#include "conformance/evidence/timeline.h"
#include "conformance/observe/wrap.h"
#include "conformance/puppet/player.h"
#include "conformance/puppet/script.h"
#include "sys/result.h"

namespace ctxconf::conformance::puppet {

struct PuppetOptions {
  WrapOptions wrap;           // how to record; this file sets the command line
  PlayerOptions player;       // timeout_scale is that of `wrap`
  bool shows_output = false;  // its output goes to our stdout; false: it is discarded
};

// Appends the recording to `timeline`, as record_wrap() does, whatever the script does. Leaves
// nothing of the process. An error is one of the harness: the process could not be started. One at
// a time per process.
sys::Result<Played> record_script(const Script& script, const PuppetOptions& options,
                                  Timeline& timeline);

// The folder of ctxconf-puppet: next to the running program or in ../libexec/ctxconf.
sys::Result<std::string> find_puppets();
inline constexpr const char* kHowToInstallPuppets =
    "install ctxconf-puppet and the other files of libexec/ctxconf/ next to ctxconf, or in "
    "../libexec/ctxconf from there";

}  // namespace ctxconf::conformance::puppet
