// Which images a requirement is asked of, and what its rule says of each.
#pragma once

#include <string>
#include <vector>

#include "conformance/evidence/session.h"
#include "conformance/evidence/timeline.h"
#include "conformance/requirements/catalogue.h"
#include "conformance/rules/evidence.h"
#include "conformance/rules/reader_rules.h"
#include "conformance/verdict/finding.h"

namespace ctxconf::conformance {

bool is_about_threads(const Requirement& r);

// The name of the image in findings about a reader: "lifetimes/late-publication".
std::string scene_name(const Session& session, const CheckRun& scene);

// One finding for each image that is asked; empty: none is asked. The requirement must have a rule.
std::vector<Finding> gather(const Timeline& timeline, const std::vector<ImageEvidence>& evidence,
                            const Requirement& r);

// The same for a requirement of readers: one finding for each scene that is about it.
std::vector<Finding> gather_scenes(const Timeline& timeline,
                                   const std::vector<SceneEvidence>& scenes, const Requirement& r);

}  // namespace ctxconf::conformance
