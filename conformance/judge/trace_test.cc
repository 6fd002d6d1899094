#include "conformance/judge/trace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "abi/process_header.h"
#include "conformance/judge/judge.h"

namespace ctxconf::conformance {
namespace {

constexpr std::string_view kVersionRequirement = "pctx.header.version";
constexpr std::size_t kNoLimit = std::size_t{64} << 20U;

Image image(ImageKey key, std::uint32_t version) {
  const abi::ProcessHeader header{abi::kSignature, version, 0, 77, 0};
  Image out;
  out.key = key;
  out.executable = "/bin/app";
  out.ending = "exited 0";
  Candidate c;
  sys::MapEntry e;
  e.range = *sys::RemoteRange::from_size(sys::RemoteAddr(0x7f0000000000), 4096);
  e.readable = e.writable = true;
  e.name = "/memfd:OTEL_CTX (deleted)";
  c.entries = {e};
  c.vm_flags = {"rd wr dc"};
  MemoryBlock b;
  b.at = e.range.begin();
  b.wanted = b.readable = sizeof header;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  b.bytes.assign(bytes.begin(), bytes.end());
  c.memory = {b};
  Snapshot s;
  s.moments = {Moment::kPeriodic};
  s.candidates = {c};
  out.snapshots = {s};
  return out;
}

Process process_with_versions(std::int32_t pid, const std::vector<std::uint32_t>& versions) {
  Process out;
  out.pid = pid;
  out.exit_code = 0;
  for (std::uint32_t i = 0; i < versions.size(); ++i) {
    out.images.push_back(image({pid, i}, versions[i]));
  }
  return out;
}

std::vector<const Requirement*> the_requirement() {
  return {Catalogue::builtin().find(std::string(kVersionRequirement))};
}

Timeline recording() {
  Timeline t;
  t.target = {"./app"};
  t.notes = {"a note"};
  t.processes = {process_with_versions(10, {2, 7, 2}), process_with_versions(20, {2})};
  return t;
}

TEST(Trace, HasOnlyTheImagesOfTheFinding) {
  Timeline t = recording();
  const auto before = to_json(t);
  const RunResult run = judge(t, the_requirement());
  ASSERT_EQ(run.results.at(0).outcome, Outcome::kFail);
  const auto text = trace_of(t, run.results[0], kNoLimit);
  EXPECT_EQ(to_json(t), before);
  ASSERT_TRUE(text);
  const auto part = timeline_from_json(*text);
  ASSERT_TRUE(part) << part.error().detail;
  ASSERT_EQ(part->processes.size(), 1);
  ASSERT_EQ(part->processes[0].images.size(), 1);
  EXPECT_EQ(part->processes[0].images[0].key, (ImageKey{10, 1}));
  EXPECT_EQ(part->notes, t.notes);
  EXPECT_TRUE(part->partial) << "what it does not show may be in the rest";
  const RunResult again = judge(*part, the_requirement());
  EXPECT_EQ(again.results.at(0).outcome, Outcome::kFail);
  EXPECT_EQ(again.results[0].findings.at(0).saw, run.results[0].findings.at(0).saw);
}

TEST(Trace, HasOnlyTheSessionsOfTheFinding) {
  Timeline t = recording();
  t.mode = Mode::kRun;
  for (std::uint32_t number = 1; number <= 2; ++number) {
    Process& p = t.processes[number - 1];
    p.session = number;
    for (Image& i : p.images) i.key.session = number;
    Session s;
    s.group = "group " + std::to_string(number);
    s.root = p.images[0].key;
    s.checks.emplace_back().name = "publish";
    s.operations.emplace_back().request = "{}";
    t.sessions.push_back(std::move(s));
  }
  const RunResult run = judge(t, the_requirement());
  ASSERT_EQ(run.results.at(0).outcome, Outcome::kFail);
  const auto text = trace_of(t, run.results[0], kNoLimit);
  ASSERT_TRUE(text);
  const auto part = timeline_from_json(*text);
  ASSERT_TRUE(part) << part.error().detail;
  ASSERT_EQ(part->sessions.size(), 1);
  EXPECT_EQ(part->sessions[0], t.sessions[0]);
  ASSERT_EQ(part->processes.size(), 1);
  EXPECT_EQ(part->processes[0].session, 1);
}

TEST(Trace, HasEverythingWhereTheImagesAreNotEnough) {
  Timeline t = recording();
  RunResult run = judge(t, the_requirement());
  run.results.at(0).findings.at(0).image = {};
  const auto text = trace_of(t, run.results[0], kNoLimit);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, to_json(t));
}

TEST(Trace, IsNoneWhereItWouldSayAnotherThing) {
  Timeline t = recording();
  RunResult run = judge(t, the_requirement());
  run.results.at(0).outcome = Outcome::kWarn;
  EXPECT_FALSE(trace_of(t, run.results[0], kNoLimit));
}

TEST(Trace, IsNoneBeyondTheLimit) {
  Timeline t = recording();
  const RunResult run = judge(t, the_requirement());
  EXPECT_FALSE(trace_of(t, run.results.at(0), 100));
}

}  // namespace
}  // namespace ctxconf::conformance
