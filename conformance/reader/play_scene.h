// Plays a scene to a reader under test: starts the targets, asks, holds the reader at the moments
// of the scene, and records all of it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "conformance/reader/call_recorder.h"
#include "conformance/reader/scene.h"
#include "conformance/reader/target.h"
#include "conformance/testee/checks.h"
#include "conformance/testee/testee.h"

namespace ctxconf::conformance::reader {

// What a scene needs, and the host or the reader lacks; empty: nothing.
struct Lack {
  std::string what;
  std::string remedy;
};

struct StageOptions {
  std::string programs;  // the folder of the scripted processes
  double timeout_scale = 1;
  // A reader that polls may report this much later than it declares, if it waits for a processor.
  std::chrono::milliseconds longest_wait{180'000};
  // The recorder that observes the adapters' calls (WrapOptions::observer).
  std::shared_ptr<ReaderCallRecorder> calls;
  bool names_memory = true;  // the kernel can name anonymous memory
  bool names_shmem = true;   // and a private mapping of a memfd
  // Targets of scenes that were started before the reader, by the name of the scene.
  std::shared_ptr<std::map<std::string, std::unique_ptr<Target>>> early;
  // The premises that were shown to the reader so far, and what each lacks.
  std::shared_ptr<std::map<Premise, Lack>> premises = std::make_shared<std::map<Premise, Lack>>();
};

Lack lacking(const Scene& scene, const StageOptions& stage);

Driven play(const Scene& scene, const StageOptions& stage, Testee& testee);

// The scenes as checks for a Driver.
std::vector<Group> groups_of(const std::deque<SceneGroup>& scenes, const StageOptions& stage);

}  // namespace ctxconf::conformance::reader
