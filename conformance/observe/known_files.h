// What was found out about files, for recordings that follow one another in this process.
#pragma once

#include "conformance/observe/code_places.h"
#include "conformance/observe/threads.h"

namespace ctxconf::conformance {

struct KnownFiles {
  ModuleCache modules;
  KnownPlaces places;
};

}  // namespace ctxconf::conformance
