#include "conformance/judge/judge.h"

#include <utility>

#include "conformance/judge/gather.h"
#include "conformance/judge/settle.h"
#include "conformance/judge/summarise.h"
#include "conformance/rules/evidence.h"
#include "conformance/rules/reader_rules.h"

namespace ctxconf::conformance {

RunResult judge(const Timeline& t, const std::vector<const Requirement*>& selected) {
  return judge(t, evidence_of(t), selected);
}

RunResult judge(const Timeline& t, const std::vector<ImageEvidence>& evidence,
                const std::vector<const Requirement*>& selected) {
  const auto scenes = scenes_of(t);
  RunResult out;
  Told told;
  for (const Requirement* r : selected) {
    auto decided = decided_by_run(*r, t.mode);
    std::vector<Finding> findings;
    if (!decided) {
      findings = t.mode == Mode::kReader ? gather_scenes(t, scenes, *r) : gather(t, evidence, *r);
    }
    out.results.push_back(settle(t, evidence, *r, std::move(decided), std::move(findings), told));
  }
  summarise(t, evidence, scenes, selected, told, out);
  return out;
}

}  // namespace ctxconf::conformance
