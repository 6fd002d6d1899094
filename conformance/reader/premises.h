// What scenes take for granted, as scenes of their own: the last question of each has a premise.
#pragma once

#include "conformance/reader/scene.h"

namespace ctxconf::conformance::reader {

// Made once. Its `about` completes "the reader does not report".
const Scene& premise_scene(Premise premise);

}  // namespace ctxconf::conformance::reader
