// The scenes, a function for each topic.
#pragma once

#include "conformance/reader/scene.h"

namespace ctxconf::conformance::reader {

SceneGroup record_vectors();   // reader.record
SceneGroup context_vectors();  // golden process contexts
SceneGroup name_scenes();

}  // namespace ctxconf::conformance::reader
