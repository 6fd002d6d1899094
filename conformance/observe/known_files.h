// Facts about files, shared by the recordings that follow one another in this process.
#pragma once

#include "conformance/observe/code_locations.h"
#include "conformance/observe/threads.h"

namespace ctxconf::conformance {

struct KnownFiles {
  ModuleCache modules;
  KnownLocations locations;
};

}  // namespace ctxconf::conformance
