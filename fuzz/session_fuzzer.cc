// The requests to an adapter and its replies: one of the sessions of timeline.json. Every image
// that it names exists and has published.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "conformance/evidence/session_json.h"
#include "conformance/evidence/timeline.h"
#include "conformance/judge/judge.h"
#include "conformance/report/result_json.h"
#include "fuzz/agree.h"
#include "fuzz/all_rows.h"
#include "sys/result.h"

namespace {

using namespace ctxconf;
using namespace ctxconf::conformance;
using namespace ctxconf::fuzz;

constexpr std::size_t kMostImages = 8;
constexpr std::size_t kSnapshots = 3;
constexpr std::uint64_t kMapping = 0x7f0000000000;

sys::Result<Session> session_of(std::string_view text) {
  const auto json = JsonReader::Json::parse(text, nullptr, /*allow_exceptions=*/false);
  std::string problem;
  Session session = session_from(JsonReader(json, "", &problem));
  if (!problem.empty()) return sys::fail("read session", EINVAL, problem);
  return session;
}

MemoryBlock block(std::uint64_t at, std::vector<std::byte> bytes) {
  return {sys::RemoteAddr(at), bytes.size(), bytes.size(), std::move(bytes), 0};
}

Snapshot snapshot(std::uint64_t at_ns) {
  constexpr std::string_view kPayload =
      "\x0a\x15\x0a\x13\x0a\x0cservice.name\x12\x03\x0a\x01"
      "a";
  const abi::ProcessHeader header{abi::kSignature, abi::kVersion, kPayload.size(), at_ns,
                                  kMapping + abi::kHeaderBytes};
  std::vector<std::byte> bytes(sizeof(header));
  std::memcpy(bytes.data(), &header, sizeof(header));
  const auto payload = std::as_bytes(std::span(kPayload));
  Candidate candidate;
  sys::MapEntry entry;
  entry.range = *sys::RemoteRange::from_size(sys::RemoteAddr(kMapping), 4096);
  entry.readable = true;
  entry.name = "/memfd:OTEL_CTX (deleted)";
  candidate.entries = {entry};
  candidate.vm_flags = {"rd mr mw me dc"};
  candidate.memory = {block(kMapping, bytes),
                      block(header.payload, {payload.begin(), payload.end()})};
  Snapshot out;
  out.moment = Moment::kOperation;
  out.moments = {out.moment};
  out.first_seen_ns = out.last_seen_ns = at_ns;
  out.candidates = {std::move(candidate)};
  return out;
}

Image image(const ImageKey& key, const std::set<std::int32_t>& threads) {
  Image out;
  out.key = key;
  out.executable = "/bin/adapter";
  for (std::size_t i = 1; i <= kSnapshots; ++i) out.snapshots.push_back(snapshot(1000 * i));
  out.modules.resize(1);
  out.modules[0].path = "/bin/adapter";
  std::vector<std::byte> record(28);
  record[24] = std::byte{1};
  for (const std::int32_t tid : threads) {
    ThreadSample sample;
    sample.tid = tid;
    sample.first_seen_ns = sample.last_seen_ns = 1000;
    sample.slot = kMapping + 0x10000;
    sample.value = kMapping + 0x20000;
    sample.record = block(sample.value, record);
    out.threads.push_back(std::move(sample));
  }
  return out;
}

Timeline recording_of(const Session& session) {
  std::set<ImageKey> images = {session.root};
  std::set<std::int32_t> threads = {1};
  for (const Operation& operation : session.operations) {
    for (const ImageView& view : operation.after) {
      if (images.size() < kMostImages) images.insert(view.image);
      for (const ThreadView& thread : view.threads) {
        if (threads.size() < kMostImages) threads.insert(thread.tid);
      }
    }
  }
  Timeline out;
  const bool asked = std::ranges::any_of(session.operations, [](const Operation& operation) {
    return operation.question.has_value();
  });
  out.mode = asked ? Mode::kReader : Mode::kRun;
  out.arch = "x86_64";
  out.sessions = {session};
  for (const ImageKey& key : images) {
    if (key.pid == 0) continue;
    if (out.processes.empty() || out.processes.back().pid != key.pid) {
      out.processes.emplace_back();
      out.processes.back().pid = key.pid;
      out.processes.back().session = session.root.session;
    }
    out.processes.back().images.push_back(image(key, threads));
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [session, again] = check_read_again(
      text_of(data, size), session_of, [](const Session& s) { return json_of(s).dump(); });
  if (!session) {
    FUZZ_CHECK(!session.error().detail.empty());
    return 0;
  }
  FUZZ_CHECK(*again == *session);
  // A recording is refused if it lacks what a view names.
  const auto timeline = timeline_from_json(to_json(recording_of(*session)));
  if (!timeline) return 0;
  FUZZ_CHECK(timeline->sessions.front() == *session);
  FUZZ_CHECK(result_from_json(to_result_json(judge(*timeline, all_rows(timeline->mode))),
                              Catalogue::builtin())
                 .has_value());
  return 0;
}
