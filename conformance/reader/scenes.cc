#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {

const std::deque<SceneGroup>& scene_groups() {
  static const auto* const kGroups = new std::deque<SceneGroup>{
      record_vectors(),
      context_vectors(),
      name_scenes(),
  };
  return *kGroups;
}

}  // namespace ctxconf::conformance::reader
