#include "conformance/judge/process_verdicts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/thread_record.h"
#include "conformance/judge/all_requirements.h"
#include "conformance/rules/literal_recording.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint64_t kPayload = 0x7f0000100000;

Process process_of_host(std::int32_t pid, std::vector<std::byte> header) {
  Process out;
  out.pid = pid;
  Image image;
  image.key = {pid, 0};
  image.executable = "/bin/app";
  image.ending = "running";
  image.snapshots.emplace_back().moments = {Moment::kStart};
  if (!header.empty()) {
    Candidate candidate =
        mapped_header(0x7f0000000000, "/memfd:OTEL_CTX (deleted)", std::move(header));
    candidate.vm_flags = {"rd wr dc"};
    candidate.memory.push_back(payload_block(kPayload));
    image.snapshots.front().candidates = {std::move(candidate)};
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
  const auto verdicts = judge_each(t, all_requirements(), false);
  ASSERT_EQ(verdicts.size(), 4U);
  EXPECT_EQ(verdicts[0].pid, 12);
  EXPECT_EQ(verdicts[0].state, ProcessState::kClean) << verdicts[0].incomplete;
  EXPECT_GT(verdicts[0].totals.pass, 0);
  EXPECT_FALSE(breaks(verdicts[0], "pctx.header.signature"));
  EXPECT_EQ(verdicts[1].state, ProcessState::kBroken);
  EXPECT_TRUE(breaks(verdicts[1], "pctx.header.signature"));
  EXPECT_NE(verdicts[1].broken.front().saw, "");
  EXPECT_EQ(verdicts[2].state, ProcessState::kNoContext);
  EXPECT_EQ(verdicts[3].state, ProcessState::kUnread);
  EXPECT_EQ(verdicts[3].unread, "mappings cannot be read");
}

TEST(ProcessVerdicts, WhatNoReaderCanReadIsNotClean) {
  for (const std::byte fill : {std::byte{'x'}, std::byte{0}}) {
    Timeline t = host();
    t.processes = {process_of_host(12, std::vector(sizeof(abi::ProcessHeader), fill))};
    const auto verdict = judge_each(t, all_requirements(), false).front();
    EXPECT_EQ(verdict.state, ProcessState::kNotJudged);
    EXPECT_EQ(verdict.incomplete,
              "process 12 has a context, and no reader can read anything of it");
  }
}

TEST(ProcessVerdicts, NeedsAnOutcomeToBeClean) {
  Timeline t = host();
  t.processes.resize(1);
  const auto verdict = judge_each(t, {}, false).front();
  EXPECT_EQ(verdict.state, ProcessState::kNotJudged);
  EXPECT_EQ(verdict.incomplete, "no requirement could be judged");
}

TEST(ProcessVerdicts, AFaultOfCtxconfLeavesNothingClean) {
  Timeline t = host();
  t.harness_fault = "out of memory";
  const auto verdicts = judge_each(t, all_requirements(), false);
  EXPECT_EQ(verdicts[0].state, ProcessState::kNotJudged);
  EXPECT_THAT(verdicts[0].incomplete, testing::EndsWith("out of memory"));
  EXPECT_EQ(verdicts[1].state, ProcessState::kBroken);
}

TEST(ProcessVerdicts, AProcessThatEndedFirstIsUnread) {
  Timeline t = host();
  t.processes = {process_of_host(12, {})};
  t.processes[0].images[0].snapshots.clear();
  const auto verdict = judge_each(t, all_requirements(), false).front();
  EXPECT_EQ(verdict.state, ProcessState::kUnread);
  EXPECT_EQ(verdict.unread, "ended before it could be examined");
}

// A record of 28 bytes with this state in its byte `valid`.
ThreadSample sample_with(std::byte valid) {
  ThreadSample out;
  out.tid = 12;
  out.value = 0x7f0000200000;
  MemoryBlock record;
  record.at = sys::RemoteAddr(out.value);
  record.wanted = record.readable = abi::kRecordHeadBytes;
  record.bytes.resize(abi::kRecordHeadBytes, std::byte{1});
  record.bytes[24] = valid;
  record.bytes[26] = record.bytes[27] = std::byte{0};
  out.record = std::move(record);
  return out;
}

TEST(ProcessVerdicts, AThreadContextIsAContext) {
  Timeline t = host();
  t.processes = {process_of_host(12, {}), process_of_host(13, {})};
  for (Process& p : t.processes) p.images[0].modules.emplace_back();
  t.processes[0].images[0].threads = {sample_with(std::byte{0})};
  t.processes[1].images[0].threads = {sample_with(std::byte{1})};
  const auto verdicts = judge_each(t, all_requirements(), false);
  EXPECT_EQ(verdicts[0].state, ProcessState::kNotJudged);
  EXPECT_EQ(verdicts[0].incomplete, "no thread with a valid record was seen");
  EXPECT_NE(verdicts[1].state, ProcessState::kNoContext);
  EXPECT_EQ(verdicts[1].incomplete, "");
}

TEST(ProcessVerdicts, HasEachOutcomeExceptNa) {
  Timeline t = host();
  const auto verdict = judge_each(t, all_requirements(), false).at(1);
  const Totals& n = verdict.totals;
  EXPECT_EQ(verdict.outcomes.size(), static_cast<std::size_t>(n.selected - n.na));
  const auto fails = [](const auto& o) {
    return o.first->id == "pctx.header.signature" && o.second == Outcome::kFail;
  };
  EXPECT_TRUE(std::ranges::any_of(verdict.outcomes, fails));
}

TEST(ProcessVerdicts, TheRecordingStaysAsItWas) {
  Timeline t = host();
  const std::string before = to_json(t);
  judge_each(t, all_requirements(), false);
  EXPECT_EQ(to_json(t), before);
}

TEST(ProcessVerdicts, StrictMakesAWarningAFailure) {
  constexpr std::string_view kWarning = "pctx.publish.fields-nonzero";
  const abi::ProcessHeader empty{abi::kSignature, abi::kVersion, 0, 77, 0};
  const auto bytes = std::as_bytes(std::span(&empty, 1));
  Timeline t = host();
  t.processes = {process_of_host(12, {bytes.begin(), bytes.end()})};
  auto requirements = all_requirements();
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
  verdicts.processes = judge_each(t, all_requirements(), false);
  verdicts.without_context = 3;
  verdicts.unread_omitted = 2;
  std::size_t all = 0;
  for (const std::size_t number : count(verdicts)) all += number;
  EXPECT_EQ(all, 4U + 3U + 2U);
}

}  // namespace
}  // namespace ctxconf::conformance
