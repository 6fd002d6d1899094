// The scenes, a function for each topic.
#pragma once

#include <cstdint>

#include "conformance/reader/scene.h"

namespace ctxconf::conformance::reader {

SceneGroup record_vectors();   // reader.record
SceneGroup context_vectors();  // golden process contexts
SceneGroup name_scenes();
SceneGroup header_scenes();
SceneGroup payload_scenes();
SceneGroup lifetime_scenes();
SceneGroup window_scenes();
SceneGroup thread_vectors();  // golden records in a thread
SceneGroup thread_scenes();
SceneGroup crowd_scenes();   // very many threads
SceneGroup record_scenes();  // what is in a record
SceneGroup reference_data_scenes();
SceneGroup tls_scenes();
SceneGroup early_scenes();       // published before the reader starts
SceneGroup permission_scenes();  // processes that the reader may not read

// Legal programs of the grammar of `ctxconf selftest --generate`, with questions between their
// acts. The same seed gives the same scenes on every host of one kind.
SceneGroup generated_scenes(std::uint64_t count, std::uint64_t seed, bool host_names_memory);

}  // namespace ctxconf::conformance::reader
