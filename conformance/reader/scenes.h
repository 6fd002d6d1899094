// The scenes, a function for each topic.
#pragma once

#include "conformance/reader/scene.h"

namespace ctxconf::conformance::reader {

SceneGroup name_scenes();

}  // namespace ctxconf::conformance::reader
