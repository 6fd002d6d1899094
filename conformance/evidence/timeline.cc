#include "conformance/evidence/timeline.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "conformance/text/ascii.h"
#include "conformance/text/words.h"

namespace ctxconf::conformance {
namespace {

constexpr std::array<Word<Moment>, 8> kMoments = {{
    {Moment::kStart, "start"},
    {Moment::kPeriodic, "periodic"},
    {Moment::kNaming, "naming"},
    {Moment::kNamed, "named"},
    {Moment::kExecEntry, "exec-entry"},
    {Moment::kExit, "exit"},
    {Moment::kEnd, "end"},
    {Moment::kOperation, "operation"},
}};

}  // namespace

std::string_view to_string(Moment m) { return word_of(kMoments, m); }

std::optional<Moment> moment_from(std::string_view word) { return value_of(kMoments, word); }

std::string signal_name(int signo) {
  const char* abbreviation = sigabbrev_np(signo);
  return abbreviation == nullptr ? "signal " + std::to_string(signo)
                                 : std::string("SIG") + abbreviation;
}

bool looks_like_the_name(std::string_view text) {
  constexpr std::string_view kStart = "otel";
  return lower_case(text.substr(0, kStart.size())) == kStart;
}

bool is_root(const Timeline& timeline, const Process& process) {
  return &*std::ranges::find(timeline.processes, process.session, &Process::session) == &process;
}

const FaultCell* cell_of(const Timeline& timeline, std::uint32_t session) {
  const auto cell = std::ranges::find(timeline.cells, session, &FaultCell::session);
  return cell == timeline.cells.end() ? nullptr : &*cell;
}

std::span<const std::byte> kept_bytes(const Image& image, const MemoryBlock& block) {
  if (block.bytes.size() == block.wanted || block.readable < block.wanted) return block.bytes;
  const auto kept = std::ranges::find_if(image.payloads, [&](const LargePayload& p) {
    return p.hash == block.hash && p.bytes->size() == block.wanted;
  });
  return kept == image.payloads.end() ? std::span(block.bytes) : std::span(*kept->bytes);
}

std::string exit_text(int code) { return "exited " + std::to_string(code); }

std::string why_unseen(const Process& process) {
  const bool is_unseen = std::ranges::all_of(
      process.images, [](const Image& image) { return image.snapshots.empty(); });
  return is_unseen ? "ended before it could be examined" : "";
}

std::string ending_of(const Process& p) {
  if (p.killed_by) {
    return "killed by " + signal_name(*p.killed_by) + (p.ended_by_us ? " (by ctxconf)" : "");
  }
  return p.exit_code ? exit_text(*p.exit_code) : "";
}

AdapterEnding adapter_ending_of(const Process& p) {
  using enum AdapterEnding::How;
  AdapterEnding out;
  out.text = ending_of(p);
  if (p.killed_by) {
    out.how = p.ended_by_us ? kKilledByUs : kKilled;
  } else if (p.exit_code) {
    out.how = *p.exit_code == 0 ? kExitedZero : kExited;
  }
  return out;
}

}  // namespace ctxconf::conformance
