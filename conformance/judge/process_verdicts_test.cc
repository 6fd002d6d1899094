#include "conformance/judge/process_verdicts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rules/literal_recording.h"

namespace ctxconf::conformance {
namespace {

std::vector<const Requirement*> every_requirement() {
  const auto requirements = select(Catalogue::builtin(), Selection{});
  EXPECT_TRUE(requirements);
  return requirements.value_or(std::vector<const Requirement*>());
}

constexpr std::uint64_t kPayload = 0x7f0000100000;

Process process_of_host(std::int32_t pid, std::vector<std::byte> header) {
  Process out;
  out.pid = pid;
  Image image;
  image.key = {pid, 0};
  image.executable = "/bin/app";
  image.ending = "running";
  if (!header.empty()) {
    Snapshot shot;
    shot.moments = {Moment::kStart};
    Candidate candidate =
        mapped_header(0x7f0000000000, "/memfd:OTEL_CTX (deleted)", std::move(header));
    candidate.vm_flags = {"rd wr dc"};
    candidate.memory.push_back(payload_block(kPayload));
    shot.candidates = {std::move(candidate)};
    image.snapshots = {std::move(shot)};
  }
  out.images = {std::move(image)};
  return out;
}

std::vector<std::byte> wrong_signature() {
  auto out = header_bytes(77, kPayload);
  out[4] = std::byte{'-'};
  return out;
}

Timeline host() {
  Timeline t;
  t.mode = Mode::kAttach;
  t.target = {"--all"};
  t.processes = {process_of_host(12, header_bytes(77, kPayload)),
                 process_of_host(13, wrong_signature()), process_of_host(14, {}),
                 process_of_host(15, {})};
  t.processes[3].images[0].unread = "mappings cannot be read";
  return t;
}

bool breaks(const ProcessVerdict& verdict, std::string_view id) {
  return std::ranges::any_of(verdict.broken,
                             [&](const BrokenVerdict& b) { return b.requirement->id == id; });
}

TEST(ProcessVerdicts, AProcessDoesNotAnswerForAnother) {
  Timeline t = host();
  const auto verdicts = judge_each(t, every_requirement(), false);
  ASSERT_EQ(verdicts.size(), 4U);
  EXPECT_EQ(verdicts[0].pid, 12);
  EXPECT_GT(verdicts[0].totals.pass, 0);
  EXPECT_FALSE(breaks(verdicts[0], "pctx.header.signature"));
  EXPECT_EQ(verdicts[1].state, ProcessState::kBroken);
  EXPECT_TRUE(breaks(verdicts[1], "pctx.header.signature"));
  EXPECT_NE(verdicts[1].broken.front().saw, "");
  EXPECT_EQ(verdicts[2].state, ProcessState::kNoContext);
  EXPECT_EQ(verdicts[3].state, ProcessState::kUnread);
  EXPECT_EQ(verdicts[3].unread, "mappings cannot be read");
}

TEST(ProcessVerdicts, TheRecordingStaysAsItWas) {
  Timeline t = host();
  const std::string before = to_json(t);
  judge_each(t, every_requirement(), false);
  EXPECT_EQ(to_json(t), before);
}

TEST(ProcessVerdicts, StrictMakesAWarningAFailure) {
  constexpr std::string_view kWarning = "pctx.publish.fields-nonzero";
  Timeline t = host();
  t.processes = {process_of_host(12, header_bytes(77, 0))};
  auto requirements = every_requirement();
  std::erase_if(requirements, [&](const Requirement* r) { return r->id != kWarning; });
  const auto lax = judge_each(t, requirements, false).front();
  EXPECT_TRUE(breaks(lax, kWarning));
  EXPECT_EQ(lax.totals.warn, 1);
  EXPECT_EQ(lax.state, ProcessState::kClean);
  EXPECT_EQ(judge_each(t, requirements, true).front().state, ProcessState::kBroken);
}

TEST(ProcessVerdicts, CountsAddUp) {
  Timeline t = host();
  ProcessVerdicts verdicts;
  verdicts.processes = judge_each(t, every_requirement(), false);
  verdicts.without_context = 3;
  verdicts.unread_omitted = 2;
  std::size_t all = 0;
  for (const std::size_t number : count(verdicts)) all += number;
  EXPECT_EQ(all, 4U + 3U + 2U);
}

}  // namespace
}  // namespace ctxconf::conformance
