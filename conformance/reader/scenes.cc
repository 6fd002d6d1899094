#include "conformance/reader/scenes.h"

namespace ctxconf::conformance::reader {

const std::deque<SceneGroup>& scene_groups() {
  static const auto* const kGroups = new std::deque<SceneGroup>{
      record_vectors(), context_vectors(),   name_scenes(),           header_scenes(),
      payload_scenes(), lifetime_scenes(),   window_scenes(),         thread_vectors(),
      thread_scenes(),  record_scenes(),     reference_data_scenes(), tls_scenes(),
      early_scenes(),   permission_scenes(), crowd_scenes(),
  };
  return *kGroups;
}

}  // namespace ctxconf::conformance::reader
