#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "abi/process_header.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/rule.h"

namespace ctxconf::conformance {
namespace {

constexpr std::uint32_t kReadImpliesExec = 0x0400000;  // personality(2)

Finding mapping_private(const ImageEvidence& e) {
  for (const Context* c : e.judged) {
    for (const auto& entry : c->candidate->entries) {
      if (!entry.shared) continue;
      Finding f = failed("the mapping of the context is shared", "shared mapping");
      f.evidence = {"maps: " + to_maps_line(entry)};
      return f;
    }
  }
  return e.judged.empty() ? no_valid_header() : passed();
}

Finding mapping_protection(const ImageEvidence& e) {
  const bool read_implies_exec = (e.image->personality & kReadImpliesExec) != 0;
  bool read_only = false;
  for (const Context* c : e.judged) {
    read_only = read_only || !c->candidate->entries.front().writable;
    for (const auto& entry : c->candidate->entries) {
      if (!entry.executable || read_implies_exec) continue;
      Finding f = failed("the mapping of the context is executable", "executable mapping");
      f.evidence = {"maps: " + to_maps_line(entry),
                    fmt::format("personality: {:#x}", e.image->personality)};
      return f;
    }
  }
  for (const Publication& p : publications_of(e)) {
    if (p.map == nullptr || p.map->name != "mmap" || (p.map->args[2] & PROT_EXEC) == 0) continue;
    Finding f = failed("the mapping of the context was created executable", "executable mapping");
    f.level = "syscalls";
    f.evidence = call_lines({p.create, p.map});
    f.event = EventLocation{p.start, p.map->entered_order, {}};
    return f;
  }
  if (e.judged.empty()) return no_valid_header();
  if (read_only)
    return info("the mapping was write-protected after publication", "read-only mapping");
  return passed();
}

Finding memfd_closed(const ImageEvidence& e) {
  constexpr std::uint64_t kMoment = 80'000'000;  // open for less is open for a moment
  std::uint64_t open_since = 0;                  // 0: closed at the last snapshot
  bool valid_since = false;
  const Snapshot* last = nullptr;
  for (std::size_t i = 0; i < e.contexts.size(); ++i) {
    const Snapshot& s = e.image->snapshots[i];
    const bool valid = std::ranges::any_of(
        e.contexts[i], [](const Context& c) { return c.candidate->named && c.usable(); });
    if (!valid) continue;
    valid_since = true;
    last = &s;
    if (s.descriptors.empty()) {
      open_since = 0;
    } else if (open_since == 0) {
      open_since = s.first_seen_ns;
    }
  }
  if (!valid_since) return no_valid_header();
  if (open_since == 0) return passed();
  // At exec and exit nothing more will be closed.
  const bool final = std::ranges::any_of(
      last->moments, [](Moment m) { return m == Moment::kExecEntry || m == Moment::kExit; });
  if (!final && last->last_seen_ns - open_since < kMoment) {
    return unobservable(
        "the memfd was still open at the last snapshot, which was soon after the publication",
        "a program that runs for at least 100 ms after publication");
  }
  Finding f = failed(fmt::format("file descriptor {} still is {}", last->descriptors.front().fd,
                                 last->descriptors.front().link),
                     "memfd left open");
  for (const auto& d : last->descriptors) {
    if (f.evidence.size() >= 8) break;
    f.evidence.push_back(fmt::format("/proc/{}/fd/{} -> {}", e.image->key.pid, d.fd, d.link));
  }
  return f;
}

Finding named_otherwise(const Context& c) {
  Finding f = failed(fmt::format("a valid header is in a mapping named {}, where no reader looks",
                                 c.candidate->entries.front().name),
                     "mapping has another name");
  f.evidence = {maps_line(c), "wanted: [anon_shmem:OTEL_CTX], [anon:OTEL_CTX] or /memfd:OTEL_CTX"};
  f.hexdumps = {header_dump(c, {})};
  return f;
}

Finding nameless() {
  return unobservable(
      "a valid header is in unnamed memory, which no reader finds: a leftover, or a publication "
      "whose naming failed",
      "level syscalls, which sees whether the calls succeeded (pctx.publish.no-name-at-all)");
}

Finding discoverable(const ImageEvidence& e) {
  if (e.has_usable) {
    const auto hidden = hidden_after_usable_ones(e);
    if (hidden.empty()) return passed();
    const auto named = std::ranges::find_if(
        hidden, [](const Context* c) { return !c->candidate->entries.front().name.empty(); });
    return named == hidden.end() ? nameless() : named_otherwise(**named);
  }
  if (e.has_named) {
    return unobservable(
        "a mapping has the name, but no valid header: another requirement reports it",
        "a valid header");
  }
  bool is_nameless = false;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      if (c.candidate->named || !c.usable()) continue;
      // A header in memory that never got a name may be the rest of a publication that
      // failed; a file or a name of its own says that it was meant to be found.
      if (c.candidate->entries.front().name.empty()) {
        is_nameless = true;
        continue;
      }
      if (c.is_decoded()) return named_otherwise(c);
    }
  }
  return is_nameless ? nameless() : no_valid_header();
}

Finding fields_nonzero(const ImageEvidence& e) {
  for (const Context* c : e.first_sights) {
    const auto& h = c->header;
    if (h.payload != 0 && h.payload_size != 0) continue;
    Finding f = failed(fmt::format("timestamp {}, but payload_size {} and payload {:#x}",
                                   h.monotonic_published_at_ns, h.payload_size, h.payload),
                       "zero size or pointer");
    f.evidence = {maps_line(*c)};
    std::vector<Hexdump::Mark> marks;
    if (h.payload_size == 0) marks.push_back({12, 4, "payload_size: 0"});
    if (h.payload == 0) marks.push_back({24, 8, "payload: 0"});
    f.hexdumps = {header_dump(*c, std::move(marks))};
    return f;
  }
  return e.first_sights.empty() ? no_valid_header() : passed();
}

constexpr int kSigxfsz = 25;

// run: the limit held while it was asked to publish.
Finding survives_file_size_limit_when_asked(const ImageEvidence& e) {
  const auto& faults = e.session->session->faults;
  if (std::ranges::find(faults, kFileSizeLimit) == faults.end()) {
    return unobservable("it was not asked to publish under a file size limit",
                        "a host where ctxconf can stop calls, and may set limits");
  }
  const auto cut = std::ranges::find_if(e.image->calls, [](const SystemCall& c) {
    return c.name == "ftruncate" && c.file.starts_with(abi::kMemfdFile) && c.result == -EFBIG;
  });
  if (!e.process->killed_by || e.process->ended_by_us || e.image != &e.process->images.back()) {
    return passed(e.published() ? "a context was published under the limit"
                                : "no context was published under the limit, which is legal");
  }
  if (e.process->killed_by != kSigxfsz || cut == e.image->calls.end()) {
    return unobservable(fmt::format("under the limit signal {} ended the program, and not where it "
                                    "sized a memfd",
                                    *e.process->killed_by),
                        "an adapter that writes no files while it publishes");
  }
  Finding f = failed("SIGXFSZ ended the program while it sized the memfd", "killed by SIGXFSZ");
  f.level = "syscalls";
  f.evidence = {fmt::format("under {}: {}", kFileSizeLimit, call_line(*cut))};
  return f;
}

Finding survives_file_size_limit(const ImageEvidence& e) {
  if (e.session != nullptr) return survives_file_size_limit_when_asked(e);
  if (e.cell != nullptr) return unobservable("it was run under another fault", "--faults");
  const Timeline& t = *e.timeline;
  const auto run = std::ranges::find(t.faults, std::string("RLIMIT_FSIZE=0"), &FaultRun::fault);
  if (run == t.faults.end()) {
    return unobservable(t.faults_asked ? "there was no run under a file size limit"
                                       : "the program was not run under a file size limit",
                        "--faults");
  }
  const std::string where = run->last_syscall.empty()
                                ? "no call was cut short"
                                : fmt::format("{} on {}", run->last_syscall, run->last_file);
  if (run->killed_by == kSigxfsz) {
    if (!run->last_file.starts_with(abi::kMemfdFile)) {
      return unobservable("SIGXFSZ ended the program while it wrote a file of its own: " + where,
                          "a program that writes no files");
    }
    Finding f = failed("SIGXFSZ ended the program while it sized the memfd", "killed by SIGXFSZ");
    f.evidence = {"under RLIMIT_FSIZE=0: " + where};
    return f;
  }
  if (run->killed_by && !run->ended_by_us) {
    return unobservable(fmt::format("under the limit signal {} ended the program", *run->killed_by),
                        "a program that keeps running under RLIMIT_FSIZE=0 without publishing");
  }
  if (run->ended_by_us && !run->published) {
    return unobservable(
        "under the limit, the program kept running and published nothing until it was ended",
        "a program that publishes soon after its start, or a longer --for");
  }
  return passed(run->published ? "a context was published under the limit"
                               : "no context was published under the limit, which is legal");
}

Finding singleton(const ImageEvidence& e) {
  for (const auto& list : e.contexts) {
    std::vector<const Context*> active;
    for (const Context& c : list) {
      if (c.candidate->named && c.usable()) active.push_back(&c);
    }
    if (active.size() < 2) continue;
    Finding f = failed(
        fmt::format("the process has {} active contexts at once; its components may be unrelated",
                    active.size()),
        "several active contexts");
    for (const Context* c : active) {
      if (f.evidence.size() >= 8) break;
      f.evidence.push_back(maps_line(*c));
      f.hexdumps.push_back(header_dump(*c, {{16, 8, "timestamp: not zero"}}));
    }
    return f;
  }
  return e.has_usable ? passed() : no_valid_header();
}

// For a driven program, what it was given to publish is added.
std::uint64_t usual_payload(const ImageEvidence& e) {
  std::uint64_t most = abi::kUsualPayloadBytes;
  if (e.session == nullptr) return most;
  for (const DrivenOperation& d : e.session->operations) {
    most = std::max(most, abi::kUsualPayloadBytes + d.operation->request.size());
  }
  return most;
}

Finding footprint(const ImageEvidence& e) {
  const std::uint64_t most = usual_payload(e);
  for (const Context* c : e.first_sights) {
    const std::uint64_t mapping = c->candidate->entries.back().range.end().raw() - c->start();
    const std::uint64_t payload = c->header.payload_size;
    const bool inline_payload =
        c->header.payload >= c->start() && c->header.payload - c->start() < mapping;
    const bool large_payload = payload > most;
    // A mapping that holds its payload may be as large as that needs.
    const std::uint64_t usual =
        abi::kUsualMappingPages * e.timeline->page_size + (inline_payload ? payload : 0);
    if (mapping <= usual && !large_payload) continue;
    Finding f =
        failed(fmt::format("the header mapping has {} bytes, the payload {}", mapping, payload),
               "large footprint");
    f.evidence = {maps_line(*c)};
    return f;
  }
  return e.first_sights.empty() ? no_valid_header() : passed();
}

constexpr auto kPublishRules = std::to_array<RequirementRule>({
    {"pctx.publish.mapping-private", mapping_private, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.publish.mapping-protection", mapping_protection, AskedOf::kImages, RestsOn::kStates,
     UnderFaults::kJudged},
    {"pctx.publish.memfd-closed", memfd_closed, AskedOf::kImages, RestsOn::kStates},
    {"pctx.publish.discoverable", discoverable, AskedOf::kImages, RestsOn::kStates},
    {"pctx.publish.fields-nonzero", fields_nonzero, AskedOf::kImages, RestsOn::kStates},
    {.id = "pctx.publish.survives-file-size-limit",
     .rule = survives_file_size_limit,
     .rests_on = RestsOn::kStates,
     .under_faults = UnderFaults::kItsSubject,
     .holds_without_context = true,
     .is_of_file_size_limit = true},
    {"pctx.publish.singleton", singleton, AskedOf::kImages, RestsOn::kStates},
    {"pctx.publish.footprint", footprint, AskedOf::kImages, RestsOn::kStates},
});

}  // namespace

std::span<const RequirementRule> publish_rules() { return kPublishRules; }

}  // namespace ctxconf::conformance
