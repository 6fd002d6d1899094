#include "conformance/verdict/process_verdict.h"

#include <utility>

#include "conformance/text/words.h"

namespace ctxconf::conformance {
namespace {

constexpr std::array<Word<ProcessState>, kProcessStates.size()> kStateWords = {{
    {ProcessState::kBroken, "broken"},
    {ProcessState::kNotJudged, "not_judged"},
    {ProcessState::kUnread, "unread"},
    {ProcessState::kClean, "clean"},
    {ProcessState::kNoContext, "no_context"},
}};

}  // namespace

std::string_view to_string(ProcessState state) { return word_of(kStateWords, state); }

StateCounts count(const ProcessVerdicts& verdicts) {
  StateCounts out{};
  const auto of = [&](ProcessState state) -> std::size_t& {
    return out[std::to_underlying(state)];
  };
  for (const ProcessVerdict& p : verdicts.processes) ++of(p.state);
  of(ProcessState::kNoContext) += verdicts.without_context;
  of(ProcessState::kUnread) += verdicts.unread_omitted;
  return out;
}

}  // namespace ctxconf::conformance
