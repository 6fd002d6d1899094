// Rules about calls that fail and clocks that misbehave (--inject, --hide-vdso). What a program
// says of a failed publication is not seen: they judge what is left and whether it lives.
#include <fmt/format.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "abi/process_header.h"
#include "conformance/rules/driven_evidence.h"
#include "conformance/rules/ending.h"
#include "conformance/rules/header_operations.h"
#include "conformance/rules/publications.h"
#include "conformance/rules/rule.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif

namespace ctxconf::conformance {
namespace {

using Calls = std::vector<const SystemCall*>;

bool call_failed(const SystemCall& c) { return c.result && *c.result < 0; }
bool worked(const SystemCall& c) { return c.result && *c.result >= 0; }

bool is_context_memfd(const SystemCall& c) {
  return c.name == "memfd_create" && c.text.starts_with(abi::kMemfdName);
}
bool maps_memfd(const SystemCall& c) {
  return c.name == "mmap" && c.file.starts_with(abi::kMemfdFile);
}
bool maps_anonymous(const SystemCall& c) {
  return c.name == "mmap" && (c.args[3] & MAP_ANONYMOUS) != 0;
}
bool gives_the_name(const SystemCall& c) { return is_naming(c) && c.text == abi::kMemfdName; }

std::string errno_name(const SystemCall& c) {
  const char* name = strerrorname_np(static_cast<int>(-c.result.value_or(0)));
  return name == nullptr ? std::to_string(c.result.value_or(0)) : name;
}

template <class Which>
Calls calls_that(const ImageEvidence& e, Which which) {
  Calls out;
  for (const SystemCall& c : e.image->calls) {
    if (which(c)) out.push_back(&c);
  }
  return out;
}

// Answered with a failure.
template <class Which>
Calls faults_of(const ImageEvidence& e, Which which) {
  return calls_that(e,
                    [&](const SystemCall& c) { return c.injected && call_failed(c) && which(c); });
}
Calls faults_in(const ImageEvidence& e, std::string_view name) {
  return faults_of(e, [&](const SystemCall& c) { return c.name == name; });
}

bool is_last_image(const ImageEvidence& e) { return e.image == &e.process->images.back(); }

// Whether a driven program did all that it was asked, so that it ended by itself.
bool answered_all(const ImageEvidence& e) {
  return e.session != nullptr &&
         std::ranges::none_of(e.session->operations, [](const DrivenOperation& o) {
           return !o.op.empty() && o.op != "bye" && o.operation->reply.empty();
         });
}

// ... and was there after each answer.
bool lived_on(const ImageEvidence& e) {
  return answered_all(e) &&
         std::ranges::all_of(e.session->operations, [](const DrivenOperation& o) {
           return o.op == "bye" || o.view != nullptr;
         });
}

bool died(const ImageEvidence& e) {
  static constexpr std::array<int, 7> kOfFaults = {SIGSEGV, SIGBUS, SIGILL, SIGFPE,
                                                   SIGABRT, SIGSYS, SIGTRAP};
  return is_last_image(e) && e.process->killed_by && !e.process->ended_by_us && !answered_all(e) &&
         std::ranges::find(kOfFaults, *e.process->killed_by) != kOfFaults.end();
}

// Whether everything that the program did after the fault was recorded.
bool is_concluded(const ImageEvidence& e) {
  const bool ended =
      e.process->exit_code.has_value() || e.process->ended_by_us || !is_last_image(e);
  return ended && is_complete(*e.image) && e.image->calls_unseen.empty();
}

// The session of `run` to which this image belongs; null: no adapter was driven.
const Session* session_of(const ImageEvidence& e) {
  const auto& all = e.timeline->sessions;
  const auto it = std::ranges::find_if(
      all, [&](const Session& s) { return s.root.session == e.process->session; });
  return it == all.end() ? nullptr : &*it;
}

// Its faults were chosen by ctxconf, for one run or operation of several.
bool is_one_of_many(const ImageEvidence& e) {
  return e.cell != nullptr || session_of(e) != nullptr;
}

// Calls of this name were made to fail, whether one came or not.
bool is_denied(const ImageEvidence& e, std::string_view call) {
  const Session* s = session_of(e);
  const auto& injections = e.cell != nullptr ? e.cell->injections : e.timeline->injections;
  return std::ranges::any_of(injections, [&](const Injection& i) {
    const bool holds = s == nullptr || std::ranges::find(s->faults, i.spec) != s->faults.end();
    return holds && i.call == call && i.result < 0;
  });
}

// Every reading of a clock was a system call.
bool has_clock_calls(const ImageEvidence& e) {
  if (e.cell != nullptr) return e.cell->clock_calls;
  const Session* s = session_of(e);
  if (s == nullptr) return e.timeline->clock_calls;
  return !s->faults.empty() && s->faults.front() != kFileSizeLimit;
}

// `options`: of `ctxconf wrap`, for this fault alone.
std::string remedy(const ImageEvidence& e, std::string_view options) {
  if (e.timeline->mode != Mode::kRun) {
    return fmt::format("{}{}", e.cell == nullptr ? "--faults, or " : "", options);
  }
  return fmt::format(
      "an SDK that makes this call when it is asked to publish or to update; for another SDK "
      "ctxconf wrap {} -- CMD",
      options);
}

Finding needs(const ImageEvidence& e, std::string_view options) {
  Finding f = unobservable("needs fault injection: no call failed that this requirement is about",
                           remedy(e, options));
  f.kind = FindingKind::kNoSuchFault;
  return f;
}

Finding not_concluded(const ImageEvidence& e) {
  if (died(e)) {
    return unobservable("the program died", "a program that survives this fault");
  }
  return unobservable("not everything that followed the fault was seen",
                      "a program that is not killed, without a seccomp filter of its own");
}

Finding death(const ImageEvidence& e, std::string_view fault, const Calls& calls) {
  const char* name = sigabbrev_np(*e.process->killed_by);
  Finding f =
      failed(fmt::format("SIG{} ended the program after {}", name == nullptr ? "?" : name, fault),
             "died of the fault");
  f.kind = FindingKind::kDiedOfFault;
  for (const SystemCall* c : calls) {
    if (f.evidence.size() < 4) f.evidence.push_back(call_line(*c));
  }
  return f;
}

// The context stayed so: it was not seen in passing only.
bool at_rest(const Snapshot& s) {
  return s.times > 1 || std::ranges::any_of(s.moments, [](Moment m) {
           return m != Moment::kPeriodic && m != Moment::kStart;
         });
}

// Valid headers, findable or not, that were there after `since_ns`.
std::vector<const Context*> left_after(const ImageEvidence& e, std::uint64_t since_ns) {
  std::vector<const Context*> out;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      const Snapshot& s = *c.snapshot;
      if (c.usable() && s.last_seen_ns > since_ns && at_rest(s)) out.push_back(&c);
    }
  }
  return out;
}

bool is_last_sample(const Snapshot& s) {
  return std::ranges::any_of(
      s.moments, [](Moment m) { return m == Moment::kExit || m == Moment::kExecEntry; });
}

// Open memfds of that name when the image ended.
std::vector<std::string> memfds_left(const ImageEvidence& e) {
  std::vector<std::string> out;
  if (e.image->snapshots.empty() || !is_last_sample(e.image->snapshots.back())) return out;
  for (const auto& d : e.image->snapshots.back().descriptors) {
    if (out.size() < 4) out.push_back(fmt::format("descriptor {}: {}", d.fd, d.link));
  }
  return out;
}

Finding memfd_left_open(const SystemCall& fault, std::vector<std::string> left) {
  Finding f = failed("the memfd was left open when the publication failed", "memfd left open");
  f.evidence = call_lines({&fault});
  f.evidence.insert(f.evidence.end(), left.begin(), left.end());
  return f;
}

void add_context(Finding& f, const Context& c) {
  f.evidence.push_back(maps_line(c));
  f.hexdumps = {header_dump(c, {})};
}

std::optional<abi::ProcessHeader> header_of(const ImageEvidence& e,
                                            std::span<const std::byte> bytes) {
  return header_of(*e.image, bytes);
}
std::optional<abi::ProcessHeader> header_before(const ImageEvidence& e, const SystemCall& c) {
  return header_of(e, c.before);
}

bool host_names_anonymous_memory(const ImageEvidence& e) {
  return host_has(*e.timeline, sys::kHostAnonVmaName).value_or(false);
}

// ---- a refused memfd

const SystemCall* attempt_without_seal(const ImageEvidence& e, const SystemCall& refused) {
  const SystemCall* end = e.image->calls.data() + e.image->calls.size();
  const auto* found = std::find_if(&refused + 1, end, [&](const SystemCall& c) {
    return is_context_memfd(c) && c.tid == refused.tid && (c.args[1] & MFD_NOEXEC_SEAL) == 0;
  });
  return found == end ? nullptr : found;
}

constexpr const char* kRefuseOnce = "--inject memfd_create:error=EINVAL:when=1";

Calls refused_with_seal(const ImageEvidence& e) {
  return faults_of(e, [](const SystemCall& c) {
    return is_context_memfd(c) && (c.args[1] & MFD_NOEXEC_SEAL) != 0;
  });
}

Finding no_refused_seal(const ImageEvidence& e) {
  if (faults_in(e, "memfd_create").empty()) return needs(e, kRefuseOnce);
  return unobservable("no memfd_create with MFD_NOEXEC_SEAL was refused",
                      "a program that asks for MFD_NOEXEC_SEAL first");
}

Finding memfd_retry(const ImageEvidence& e) {
  const Calls refused = refused_with_seal(e);
  if (refused.empty()) return no_refused_seal(e);
  bool judged = false;
  std::optional<Finding> otherwise;
  for (const SystemCall* first : refused) {
    if (const SystemCall* second = attempt_without_seal(e, *first)) {
      const SystemCall* end = e.image->calls.data() + e.image->calls.size();
      const bool mapped =
          call_failed(*second) || e.has_usable || std::any_of(second, end, [](const SystemCall& c) {
            return maps_memfd(c) || (c.name == "ftruncate" && call_failed(c));
          });
      judged = judged || mapped;
      if (mapped || !is_concluded(e)) continue;
      Finding f = failed("the second attempt made a memfd, and nothing mapped it",
                         "second memfd not mapped");
      f.evidence = call_lines({first, second});
      return f;
    }
    if (!is_concluded(e)) continue;
    const std::string saw = fmt::format(
        "after {} for MFD_NOEXEC_SEAL there was no attempt without it", errno_name(*first));
    Finding f = *first->result == -EINVAL ? failed(saw, "no second memfd_create")
                                          : info(saw, "no second memfd_create");
    f.evidence = call_lines({first});
    for (const Context* c : e.judged) {
      if (f.evidence.size() < 3) f.evidence.push_back(maps_line(*c));
    }
    if (f.outcome == Outcome::kFail) return f;
    otherwise = std::move(f);
  }
  if (otherwise) return *otherwise;
  return judged ? passed() : not_concluded(e);
}

Finding memfd_retry_flags(const ImageEvidence& e) {
  constexpr std::uint64_t kKept = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const Calls refused = refused_with_seal(e);
  if (refused.empty()) return no_refused_seal(e);
  bool judged = false;
  std::optional<Finding> otherwise;
  for (const SystemCall* first : refused) {
    const SystemCall* second = attempt_without_seal(e, *first);
    if (second == nullptr) continue;
    judged = true;
    const std::uint64_t flags = second->args[1];
    if (flags == kKept) continue;
    const std::string saw =
        fmt::format("the second attempt has flags {:#x}, want {:#x}", flags, kKept);
    Finding f = (flags & kKept) == kKept ? info(saw, "flags of the second memfd_create")
                                         : failed(saw, "flags of the second memfd_create");
    f.evidence = call_lines({first, second});
    if (f.outcome == Outcome::kFail) return f;
    otherwise = std::move(f);
  }
  if (otherwise) return *otherwise;
  if (judged) return passed();
  return unobservable("there was no attempt without MFD_NOEXEC_SEAL",
                      "a program that tries again: pctx.publish.memfd-retry");
}

// The naming call that found a context in anonymous memory and worked, or seemed to.
const SystemCall* published_anonymously(const ImageEvidence& e, const SystemCall& refused) {
  const SystemCall* end = e.image->calls.data() + e.image->calls.size();
  const auto* found = std::find_if(&refused + 1, end, [&](const SystemCall& c) {
    const auto h = header_before(e, c);
    return gives_the_name(c) && worked(c) && h && abi::is_valid(*h);
  });
  return found == end ? nullptr : found;
}

bool refuses_names(const ImageEvidence& e) { return is_denied(e, "prctl"); }

Finding fallback(const ImageEvidence& e, std::span<const int> errors, std::string_view option) {
  const Calls refused = faults_of(e, [&](const SystemCall& c) {
    return is_context_memfd(c) &&
           std::ranges::find(errors, static_cast<int>(-*c.result)) != errors.end();
  });
  if (refused.empty()) return needs(e, option);
  const Calls made =
      calls_that(e, [](const SystemCall& c) { return is_context_memfd(c) && worked(c); });
  if (!made.empty()) {
    return unobservable("a later memfd_create worked",
                        remedy(e, fmt::format("{} without when=", option)));
  }
  for (const Context* c : e.judged) {
    if (c->usable() && c->candidate->entries.front().name.starts_with("[anon:OTEL_CTX")) {
      return passed("anonymous memory was published instead: " + maps_line(*c));
    }
  }
  if (const SystemCall* named = published_anonymously(e, *refused.front())) {
    return passed("anonymous memory was published instead: " + call_line(*named));
  }
  if (!host_names_anonymous_memory(e) || refuses_names(e)) {
    // A writer may have found out that nobody would find it.
    return unobservable("anonymous memory could not be named, and none was published",
                        fmt::format("a kernel with CONFIG_ANON_VMA_NAME; where writers just try, "
                                    "ctxconf wrap {} --inject 'prctl(PR_SET_VMA):value=0' -- CMD",
                                    option));
  }
  if (!is_concluded(e)) return not_concluded(e);
  Finding f = failed(fmt::format("memfd_create was refused with {}, and no anonymous memory "
                                 "was published",
                                 errno_name(*refused.front())),
                     "no anonymous memory");
  f.evidence = call_lines({refused.front()});
  for (const SystemCall* c : calls_that(e, maps_anonymous)) {
    if (f.evidence.size() < 6) f.evidence.push_back(call_line(*c));
  }
  return f;
}

Finding fallback_anon(const ImageEvidence& e) {
  static constexpr std::array<int, 4> kDenied = {EPERM, EACCES, ENOSYS, EINVAL};
  return fallback(e, kDenied, "--inject memfd_create:error=EPERM");
}

Finding fallback_anon_exhausted(const ImageEvidence& e) {
  static constexpr std::array<int, 3> kExhausted = {EMFILE, ENFILE, ENOMEM};
  const Calls refused = faults_of(e, [](const SystemCall& c) {
    return is_context_memfd(c) &&
           std::ranges::find(kExhausted, static_cast<int>(-*c.result)) != kExhausted.end();
  });
  const bool waited = std::ranges::any_of(e.image->calls, [&](const SystemCall& c) {
    return !refused.empty() && &c > refused.front() && is_context_memfd(c) && worked(c);
  });
  if (waited) return passed("a later memfd_create worked");
  return fallback(e, kExhausted, "--inject memfd_create:error=EMFILE");
}

// ---- a refused name

bool ends_context(const ImageEvidence& e, const SystemCall& c, std::uint64_t start) {
  return c.name == "munmap" && worked(c) && c.args[0] <= start &&
         start - c.args[0] < std::max(c.args[1], e.timeline->page_size);
}

// What the thread did next, of all that is recorded, was to take the context away. Sleep and work
// leave no record: what comes later than a thread needs for its next instructions may have other
// reasons.
bool gives_up_at_once(const ImageEvidence& e, const SystemCall& naming) {
  constexpr std::uint64_t kAtOnce = 1'000'000;
  const std::uint64_t start = naming.args[2];
  const auto follows = [&](std::int32_t tid, std::uint64_t order) {
    return tid == naming.tid && order > naming.entered_order;
  };
  const SystemCall* call = nullptr;
  for (const SystemCall& c : e.image->calls) {
    if (&c == &naming || !follows(c.tid, c.entered_order)) continue;
    if (call == nullptr || c.entered_order < call->entered_order) call = &c;
  }
  const auto store = std::ranges::find_if(e.image->stores,
                                          [&](const Store& s) { return follows(s.tid, s.order); });
  const bool stored =
      store != e.image->stores.end() && (call == nullptr || store->order < call->entered_order);
  std::uint64_t at = 0;
  if (stored) {
    const auto h = header_of(e, store->after);
    if (store->header != start || !h || h->monotonic_published_at_ns != 0) return false;
    at = store->at_ns;
  } else if (call != nullptr && ends_context(e, *call, start)) {
    at = call->entered_ns;
  } else {
    return false;
  }
  // The looks at the context before and after the naming call took time of their own.
  std::uint64_t since = naming.entered_ns;
  for (const Snapshot& s : e.image->snapshots) {
    const bool of_naming = std::ranges::all_of(
        s.moments, [](Moment m) { return m == Moment::kNaming || m == Moment::kNamed; });
    if (of_naming && s.last_seen_ns <= at) since = std::max(since, s.last_seen_ns);
  }
  return at - since < kAtOnce;
}

// Over a limit the call, store or snapshot is missing that would show what the thread did first.
bool is_all_kept(const Image& i) {
  return i.calls_dropped + i.other_calls_dropped + i.stores_dropped + i.snapshots_dropped +
             i.looks_skipped ==
         0;
}

Finding name_failure_ignored(const ImageEvidence& e) {
  constexpr std::uint64_t kRest = 2'000'000'000;
  const bool memfd = std::ranges::any_of(
      e.image->calls, [](const SystemCall& c) { return is_context_memfd(c) && worked(c); });
  const Calls refused = calls_that(e, [&](const SystemCall& c) {
    const auto h = header_before(e, c);
    return gives_the_name(c) && call_failed(c) && h && abi::is_valid(*h);
  });
  if (refused.empty() || !memfd) return needs(e, "--inject 'prctl(PR_SET_VMA):error=EINVAL'");
  const SystemCall& first = *refused.front();
  const bool injected = std::ranges::any_of(refused, &SystemCall::injected);
  if (died(e) && injected) return death(e, "its naming call was refused", refused);
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      const Snapshot& s = *c.snapshot;
      // A look of the clock may fall between those before and after a naming call.
      const auto named = std::ranges::find(s.moments, Moment::kNamed);
      const auto from = named == s.moments.end() ? s.moments.begin() : named + 1;
      const bool later =
          std::any_of(from, s.moments.end(), [](Moment m) { return m != Moment::kNaming; });
      if (c.usable() && c.candidate->named && later && s.last_seen_ns > first.entered_ns) {
        return passed();
      }
    }
  }
  for (const Snapshot& s : e.image->snapshots) {
    const bool gone = s.candidates.empty() && s.first_seen_ns > first.entered_ns;
    if (!gone || s.last_seen_ns - s.first_seen_ns < kRest) continue;
    const auto at_once = std::ranges::find_if(refused, [&](const SystemCall* c) {
      return c->injected && c->entered_ns < s.first_seen_ns && gives_up_at_once(e, *c);
    });
    if (at_once == refused.end()) continue;
    if (!is_all_kept(*e.image)) {
      return unobservable(
          "the context was withdrawn after its naming call was refused; too many events lay "
          "between, and some were not kept",
          "a program that changes its context less often while it is observed");
    }
    Finding f = failed("the context was withdrawn as soon as its naming call was refused",
                       "context withdrawn because it could not be named");
    f.evidence = call_lines({*at_once});
    return f;
  }
  return unobservable("the context was gone before a second snapshot could show it",
                      "a program that keeps its context for some seconds");
}

// What a program that was driven answered when it was last asked to publish.
enum class PublicationReply { kNothing, kPublished, kGaveUp };
PublicationReply reply_to_publication(const ImageEvidence& e) {
  if (e.session == nullptr) return PublicationReply::kNothing;
  PublicationReply out = PublicationReply::kNothing;
  for (const DrivenOperation& o : e.session->operations) {
    if (o.op != "process.publish" || o.operation->reply.empty()) continue;
    if (out == PublicationReply::kPublished && !o.ok)
      continue;  // the context of the request before stands
    out = o.ok ? PublicationReply::kPublished : PublicationReply::kGaveUp;
  }
  return out;
}

// One leftover, one severity, whichever call was refused: it is in nobody's way, and the writer may
// have reported the failure.
Finding left_without_a_name(const ImageEvidence& e, const SystemCall& refused, const Context& c) {
  Finding f = failed("a valid header is left in memory that no reader can find",
                     "valid header without a name");
  f.outcome =
      reply_to_publication(e) == PublicationReply::kGaveUp ? Outcome::kInfo : Outcome::kWarn;
  f.evidence = call_lines({&refused});
  add_context(f, c);
  return f;
}

Finding no_name_at_all(const ImageEvidence& e) {
  constexpr const char* kOptions =
      "--inject memfd_create:error=EPERM --inject 'prctl(PR_SET_VMA):error=EINVAL'";
  const Calls refused = faults_of(e, is_context_memfd);
  const Calls made =
      calls_that(e, [](const SystemCall& c) { return is_context_memfd(c) && worked(c); });
  const Calls named =
      calls_that(e, [](const SystemCall& c) { return gives_the_name(c) && worked(c); });
  if (refused.empty() || !made.empty() || !named.empty() || !refuses_names(e)) {
    return needs(e, kOptions);
  }
  if (!is_concluded(e)) return not_concluded(e);
  for (const Context* c : left_after(e, refused.front()->entered_ns)) {
    return left_without_a_name(e, *refused.front(), *c);
  }
  return passed();
}

// In a cell, of the program itself: its exit code in the first run.
std::optional<int> exit_code_without_faults(const ImageEvidence& e) {
  if (e.cell == nullptr || !is_root(*e.timeline, *e.process)) return {};
  const auto first = std::ranges::find(e.timeline->processes, 0U, &Process::session);
  return first == e.timeline->processes.end() ? std::nullopt : first->exit_code;
}

Finding survives_total_denial(const ImageEvidence& e) {
  const Calls refused = faults_of(e, is_context_memfd);
  if (refused.empty() || !is_denied(e, "madvise") || !is_denied(e, "prctl")) {
    return needs(e,
                 "--inject memfd_create:error=EPERM --inject madvise:error=EPERM --inject "
                 "'prctl(PR_SET_VMA):error=EPERM'");
  }
  if (died(e)) return death(e, "all calls were denied", refused);
  if (lived_on(e)) return passed("it answered every request then and later");
  if (!is_concluded(e)) return not_concluded(e);
  const auto usual = exit_code_without_faults(e);
  if (is_last_image(e) && usual && e.process->exit_code) {
    if (*usual == *e.process->exit_code) return passed();
    return info(
        fmt::format("it exited {}, but {} when no call is denied", *e.process->exit_code, *usual),
        "exits differently when all calls are denied");
  }
  if (is_last_image(e) && e.process->exit_code.value_or(0) != 0) {
    return unobservable(fmt::format("it exited {}; its exit code without denied calls is unknown",
                                    *e.process->exit_code),
                        e.session != nullptr ? "an adapter that keeps running and answers ok:false"
                                             : "compare with the same command without --inject");
  }
  return passed();
}

// ---- other calls that fail

bool is_advice_on(const SystemCall& madvise, std::uint64_t address) {
  return madvise.args[0] <= address &&
         address - madvise.args[0] < std::max<std::uint64_t>(madvise.args[1], 1);
}

bool is_protected(const ImageEvidence& e, const Context& c) {
  const auto& flags = c.candidate->vm_flags;
  if (!flags.empty() && flags.front() && (" " + *flags.front() + " ").contains(" dc ")) return true;
  return std::ranges::any_of(e.image->calls, [&](const SystemCall& call) {
    return call.name == "madvise" && worked(call) && is_advice_on(call, c.start());
  });
}

// What announced the context although a call had been refused: the store of its timestamp, else its
// naming call, else nothing but that call is known.
EventLocation announced_behind(const ImageEvidence& e, const Context& c,
                               const SystemCall& refused) {
  const std::uint64_t since = refused.entered_order;
  const std::uint64_t timestamp = c.header.monotonic_published_at_ns;
  for (const Store& s : e.image->stores) {
    if (s.header != c.start() || s.order < since) continue;
    const auto before = header_of(e, s.before);
    const auto after = header_of(e, s.after);
    if (before && after && before->monotonic_published_at_ns != timestamp &&
        after->monotonic_published_at_ns == timestamp) {
      return {c.start(), s.order, {}};
    }
  }
  for (const SystemCall& call : e.image->calls) {
    if (gives_the_name(call) && call.args[2] == c.start() && call.entered_order > since) {
      return {c.start(), call.entered_order, {}};
    }
  }
  return {c.start(), since, {}};
}

Finding failure_madvise(const ImageEvidence& e) {
  const Calls refused = faults_in(e, "madvise");
  if (refused.empty()) return needs(e, "--inject madvise:error=EINVAL");
  if (died(e)) return death(e, "fork protection was refused", refused);
  const SystemCall& first = *refused.front();
  for (const Context* c : left_after(e, first.entered_ns)) {
    const bool concerned = std::ranges::any_of(
        refused, [&](const SystemCall* m) { return is_advice_on(*m, c->start()); });
    if (!concerned || is_protected(e, *c)) continue;
    Finding f = failed("a context was published although MADV_DONTFORK was refused",
                       "published without fork protection");
    f.evidence = call_lines({&first});
    f.event = announced_behind(e, *c, first);
    add_context(f, *c);
    return f;
  }
  if (!is_concluded(e)) return not_concluded(e);
  if (!e.contexts.empty()) {
    for (const Context& c : e.contexts.back()) {
      if (c.state != HeaderState::kBlank || !is_advice_on(first, c.start())) continue;
      Finding f = info("a mapping whose header is blank is left", "blank mapping left");
      f.evidence.push_back(maps_line(c));
      return f;
    }
  }
  return passed();
}

// Judges what is left after a memfd was refused: anonymous memory in its place needs a name, by
// which a reader finds it.
Finding without_memfd(const ImageEvidence& e, const SystemCall& refused, std::string_view option) {
  if (auto left = memfds_left(e); !left.empty()) return memfd_left_open(refused, std::move(left));
  const bool named = std::ranges::any_of(
      e.image->calls, [](const SystemCall& c) { return gives_the_name(c) && worked(c); });
  bool refused_by_host = false;
  for (const Context* c : left_after(e, refused.entered_ns)) {
    if (c->candidate->named || named) continue;
    const auto call = std::ranges::find_if(e.image->calls, [&](const SystemCall& n) {
      return gives_the_name(n) && n.args[2] == c->start() && !n.injected;
    });
    if (call == e.image->calls.end()) return left_without_a_name(e, refused, *c);
    refused_by_host = true;
  }
  if (refused_by_host) {
    return unobservable("this kernel did not name the memory that was published instead",
                        remedy(e, fmt::format("{} --inject 'prctl(PR_SET_VMA):value=0'", option)));
  }
  return passed(e.has_usable ? "a context was published in another way"
                             : "no context was published");
}

Finding failure_mmap(const ImageEvidence& e) {
  constexpr const char* kOption = "--inject mmap:error=ENOMEM";
  const Calls refused = faults_of(e, maps_memfd);
  if (refused.empty()) {
    return needs(e, fmt::format("{} --inject 'mmap(MAP_ANONYMOUS):error=ENOMEM:when=1'", kOption));
  }
  if (died(e)) return death(e, "its memfd was not mapped", refused);
  if (!is_concluded(e)) return not_concluded(e);
  return without_memfd(e, *refused.front(), kOption);
}

Finding failure_ftruncate(const ImageEvidence& e) {
  constexpr const char* kOption = "--inject ftruncate:error=ENOSPC";
  const Calls refused = faults_in(e, "ftruncate");
  if (refused.empty()) return needs(e, kOption);
  if (died(e)) return death(e, "its memfd was not sized", refused);
  if (!is_concluded(e)) return not_concluded(e);
  return without_memfd(e, *refused.front(), kOption);
}

// Others may read this clock as well; that is not a publication.
bool tried(const ImageEvidence& e) {
  return e.published() || std::ranges::any_of(e.image->calls, is_context_memfd);
}

Finding not_tried() {
  return unobservable("it is not known whether the program was publishing when the call failed",
                      "a program that asks for its memfd before that");
}

// A clock that fails, or memory that a thread asks for while it has its memfd.
Calls other_faults(const ImageEvidence& e) {
  Calls out = faults_in(e, "clock_gettime");
  if (faults_of(e, is_context_memfd).empty() && faults_of(e, maps_memfd).empty()) {
    const Calls memory = faults_of(e, maps_anonymous);
    out.insert(out.end(), memory.begin(), memory.end());
  }
  return out;
}

Finding failure_other_steps(const ImageEvidence& e) {
  const Calls refused = other_faults(e);
  if (refused.empty()) return needs(e, "--inject clock_gettime:error=EINVAL");
  const bool root = is_root(*e.timeline, *e.process);
  if (died(e) && (root || tried(e))) {
    Finding f = death(e, refused.front()->name + " failed", refused);
    // What asked for the memory may be the runtime as well, which has its ways without any.
    const bool memory =
        std::ranges::all_of(refused, [](const SystemCall* c) { return maps_anonymous(*c); });
    // It does not go on with an address that it did not get.
    const bool unchecked = e.timeline->mode == Mode::kWrap &&
                           (e.process->killed_by == SIGSEGV || e.process->killed_by == SIGBUS);
    if (memory && !unchecked && is_one_of_many(e)) f.outcome = Outcome::kInfo;
    return f;
  }
  if (!is_concluded(e)) return not_concluded(e);
  if (!tried(e)) return not_tried();
  for (const Context* c : left_after(e, refused.front()->entered_ns)) {
    if (begins_at_exit(*c->snapshot)) continue;
    if (c->is_decoded()) continue;
    Finding f = failed("a valid header is left whose payload cannot be decoded",
                       "valid header without a payload");
    f.evidence = call_lines({refused.front()});
    add_context(f, *c);
    return f;
  }
  return passed();
}

// Whether the program names what it publishes where no call fails; nothing: it was not seen then.
std::optional<bool> names_its_contexts(const ImageEvidence& e) {
  std::optional<bool> out;
  for (const Process& p : e.timeline->processes) {
    const auto injected = [](const Image& i) {
      return std::ranges::any_of(i.calls, &SystemCall::injected);
    };
    if (std::ranges::any_of(p.images, injected)) continue;
    for (const Image& image : p.images) {
      const bool publishes = std::ranges::any_of(image.calls, is_context_memfd);
      if (!publishes || !is_complete(image) || !image.calls_unseen.empty()) continue;
      out = out.value_or(false) || std::ranges::any_of(image.calls, [&](const SystemCall& c) {
              const auto h = header_of(image, c.before);
              return gives_the_name(c) && h && abi::is_valid(*h);
            });
    }
  }
  return out;
}

// What is left at the end tells whether a publication was given up: an answer that says so, a
// message that cannot be read, or the lack of the naming call that the program makes elsewhere. A
// writer that names nothing leaves the same when it has published.
Finding failure_leaves_nothing_valid(const ImageEvidence& e) {
  const Calls refused = faults_of(e, [](const SystemCall& c) { return c.name != "prctl"; });
  if (refused.empty()) return needs(e, "--inject clock_gettime:error=EINVAL");
  if (!is_concluded(e)) return not_concluded(e);
  if (!tried(e)) return not_tried();
  const PublicationReply told = reply_to_publication(e);
  bool unknown = false;
  for (const Context* c : left_after(e, refused.front()->entered_ns)) {
    if (!c->candidate->named || told == PublicationReply::kPublished) continue;
    const bool announced = std::ranges::any_of(e.image->calls, [&](const SystemCall& call) {
      return is_context_naming(call) && call.args[2] >= c->start() &&
             call.args[2] < c->candidate->entries.back().range.end().raw();
    });
    const bool unprotected = std::ranges::any_of(refused, [&](const SystemCall* call) {
      return call->name == "madvise" && is_advice_on(*call, c->start());
    });
    if (unprotected || (announced && told != PublicationReply::kGaveUp)) continue;
    const auto names = names_its_contexts(e);
    const char* why = nullptr;
    if (told == PublicationReply::kGaveUp) {
      why = "it was answered as failed";
    } else if (!c->is_decoded()) {
      why = "its payload cannot be decoded";
    } else if (names == true) {
      why = "no naming call followed, and the program names what it publishes";
    }
    unknown = unknown || (why == nullptr && !names);
    if (why == nullptr) continue;
    Finding f =
        failed(fmt::format("a valid header is left although its publication was given up: {}", why),
               "valid header of a failed publication");
    f.evidence = call_lines({refused.front()});
    add_context(f, *c);
    return f;
  }
  if (unknown) {
    return unobservable(
        "a complete context without a naming call is left; a writer that never names its contexts "
        "leaves the same",
        "ctxconf wrap --faults -- CMD, which also runs it without a fault");
  }
  if (!e.contexts.empty() && !e.has_usable) {
    for (const Context& c : e.contexts.back()) {
      const bool unprotected = std::ranges::any_of(refused, [&](const SystemCall* m) {
        return m->name == "madvise" && is_advice_on(*m, c.start());
      });
      if (c.state != HeaderState::kBlank || unprotected) continue;
      Finding f = info("a mapping whose header is blank is left", "blank mapping left");
      f.evidence.push_back(maps_line(c));
      return f;
    }
  }
  return passed();
}

// ---- clocks

std::string clock_name(std::uint64_t id) {
  switch (static_cast<clockid_t>(id)) {
    case CLOCK_REALTIME:
      return "CLOCK_REALTIME";
    case CLOCK_MONOTONIC:
      return "CLOCK_MONOTONIC";
    case CLOCK_MONOTONIC_RAW:
      return "CLOCK_MONOTONIC_RAW";
    case CLOCK_REALTIME_COARSE:
      return "CLOCK_REALTIME_COARSE";
    case CLOCK_MONOTONIC_COARSE:
      return "CLOCK_MONOTONIC_COARSE";
    case CLOCK_TAI:
      return "CLOCK_TAI";
    default:
      return fmt::format("clock {}", static_cast<std::int32_t>(id));
  }
}

bool is_boot_clock(const SystemCall& c) {
  const auto id = static_cast<clockid_t>(c.args[0]);
  return id == CLOCK_BOOTTIME || id == CLOCK_BOOTTIME_ALARM;
}

bool is_wall_clock(const SystemCall& c) {
  const auto id = static_cast<clockid_t>(c.args[0]);
  return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE || id == CLOCK_REALTIME_ALARM ||
         id == CLOCK_TAI;
}

Finding timestamp_clock(const ImageEvidence& e) {
  constexpr std::uint64_t kSmallStep = 1000;
  if (!has_clock_calls(e)) {
    return unobservable("clocks were read without system calls", remedy(e, "--hide-vdso"));
  }
  if (is_one_of_many(e) && !faults_in(e, "clock_gettime").empty()) {
    return unobservable("a reading was refused, and another clock may replace it",
                        remedy(e, "--hide-vdso"));
  }
  bool judged = false;
  for (const Publication& p : publications_of(e)) {
    for (std::size_t i = 0; p.own() && i < p.sights.size(); ++i) {
      const std::uint64_t stored = p.sights[i].timestamp;
      const Calls from = calls_that(e, [&](const SystemCall& c) {
        return c.name == "clock_gettime" && c.clock_ns == stored;
      });
      if (from.empty()) {
        const bool step = i > 0 && stored > p.sights[i - 1].timestamp &&
                          stored - p.sights[i - 1].timestamp <= kSmallStep;
        judged = judged || step;
        continue;
      }
      judged = true;
      if (std::ranges::any_of(from, [](const auto* c) { return is_boot_clock(*c); })) continue;
      const SystemCall& c = *from.back();
      const std::string saw = "the timestamp is a reading of " + clock_name(c.args[0]);
      Finding f = failed(
          saw, is_wall_clock(c) ? "timestamp of a wall clock" : "timestamp of another clock");
      f.evidence = call_lines({&c});
      f.evidence.push_back(fmt::format("stored: {}", stored));
      return f;
    }
  }
  if (judged) return passed();
  return unobservable("no stored timestamp equals a clock reading",
                      "a program that stores what clock_gettime gives");
}

std::optional<Finding> not_later(std::uint64_t before, std::uint64_t now) {
  if (now > before) return std::nullopt;
  const bool same = now == before;
  Finding f = failed(same ? "an update stored the timestamp that it replaced"
                          : "an update stored an earlier timestamp than the one it replaced",
                     same ? "timestamp did not rise" : "timestamp went back");
  f.evidence = {fmt::format("timestamps {} and then {}", before, now)};
  return f;
}

bool publishes_nothing(const abi::ProcessHeader& h) {
  return h.signature != abi::kSignature || h.version != abi::kVersion ||
         (h.payload == 0 && h.payload_size == 0);
}

bool has_all_stores(const ImageEvidence& e, std::uint64_t start) {
  if (!e.image->stores_unseen.empty() || e.image->stores_dropped > 0) return false;
  return std::ranges::any_of(e.image->watches, [&](const Watch& w) {
    return w.header == start && (!w.ended_order || w.end == WatchEnd::kUnmapped);
  });
}

bool says_another_message(const HeaderStore& before, const HeaderStore& now) {
  if (before.before.payload_size != now.after.payload_size ||
      before.before.payload != now.after.payload) {
    return true;
  }
  const auto& was = before.store->payload;
  const auto& is = now.store->payload;
  return was && is && was->readable == is->readable && was->hash != is->hash;
}

// A timestamp that is replaced without a zero may come in pieces, and is left to the snapshots.
std::optional<Finding> not_later_by_stores(const ImageEvidence& e, bool or_equal) {
  for (const HeaderOperation& op : header_history_of(e).operations) {
    if (op.kind != HeaderOperation::Kind::kUpdate || !op.is_announced() || !op.was_zeroed()) {
      continue;
    }
    const bool unclear = std::any_of(
        op.stores.begin() + static_cast<std::ptrdiff_t>(op.zero_first),
        op.stores.begin() + static_cast<std::ptrdiff_t>(op.announce) + 1,
        [](const HeaderStore& s) { return s.store->tid == 0 || publishes_nothing(s.after); });
    if (unclear) continue;
    const HeaderStore& zero = op.stores[op.zero_first];
    const std::uint64_t before = zero.before.monotonic_published_at_ns;
    const std::uint64_t now = op.announcing().after.monotonic_published_at_ns;
    if (now == before && !(or_equal && says_another_message(zero, op.announcing()))) continue;
    if (auto f = not_later(before, now)) return f;
  }
  return std::nullopt;
}

// A header as a look or a naming call found it, until the mapping held none that it could be an
// update of.
struct Found {
  std::uint64_t at_ns = 0;
  std::optional<abi::ProcessHeader> header;  // nothing: the context was withdrawn
  bool by_naming = false;
};

std::vector<Found> found_in(const ImageEvidence& e, const Publication& p, std::uint64_t until_ns) {
  std::vector<Found> out;
  const auto add = [&](std::uint64_t at, const abi::ProcessHeader& h, bool by_naming) {
    const bool gone = publishes_nothing(h);
    out.push_back({at, gone ? std::nullopt : std::optional(h), by_naming});
  };
  for (const Naming& n : p.namings) {
    if (n.before) add(n.call->entered_ns, *n.before, true);
  }
  const std::uint64_t since = p.map != nullptr ? p.map->entered_ns : 0;
  for (const auto& list : e.contexts) {
    for (const Context& c : list) {
      if (c.start() != p.start || !c.candidate->stable) continue;
      const bool known = c.state == HeaderState::kValid || c.state == HeaderState::kBlank;
      const Snapshot& sample = *c.snapshot;
      for (const std::uint64_t at : {sample.first_seen_ns, sample.last_seen_ns}) {
        if (at < since || at >= until_ns) continue;
        add(at, known ? c.header : abi::ProcessHeader{}, false);
      }
    }
  }
  std::ranges::sort(out, {}, &Found::at_ns);
  return out;
}

std::optional<Finding> not_later_by_looks(const std::vector<Found>& found, bool or_equal) {
  const Found* before = nullptr;
  const Found* named = nullptr;
  for (const Found& f : found) {
    if (!f.header) before = named = nullptr;
    if (!f.header || f.header->monotonic_published_at_ns == 0) continue;
    const std::uint64_t now = f.header->monotonic_published_at_ns;
    if (before != nullptr && now < before->header->monotonic_published_at_ns) {
      return not_later(before->header->monotonic_published_at_ns, now);
    }
    before = &f;
    if (!f.by_naming) continue;
    const bool same = named != nullptr && now == named->header->monotonic_published_at_ns;
    if (same && or_equal && *f.header != *named->header) return not_later(now, now);
    named = &f;
  }
  return std::nullopt;
}

// A zero may be a withdrawal: a naming call says that the update was done.
std::optional<Finding> left_zero(const std::vector<Found>& found, const Calls& readings) {
  const auto zero_read = std::ranges::find(readings, 0, &SystemCall::clock_ns);
  if (zero_read == readings.end() || found.empty()) return std::nullopt;
  const Found& last = found.back();
  if (!last.header || last.header->monotonic_published_at_ns != 0 || last.by_naming) {
    return std::nullopt;
  }
  const Found* before = nullptr;
  bool named = false;
  for (const Found& f : found) {
    if (!f.header) {
      before = nullptr;
      named = false;
    } else if (f.header->monotonic_published_at_ns != 0) {
      before = &f;
      named = false;
    } else if (f.by_naming && before != nullptr && f.at_ns > (*zero_read)->entered_ns) {
      named = *f.header == *last.header;
    }
  }
  if (!named) return std::nullopt;
  Finding f = failed("an update ended with the timestamp zero", "timestamp zero after an update");
  f.evidence = {fmt::format("timestamps {} and then 0", before->header->monotonic_published_at_ns)};
  return f;
}

std::uint64_t end_of(const ImageEvidence& e, const Publication& p) {
  const SystemCall* next = p.calls.data() + p.calls.size();
  const SystemCall* end = e.image->calls.data() + e.image->calls.size();
  return next < end ? next->entered_ns : UINT64_MAX;
}

Finding timestamp_later(const ImageEvidence& e) {
  const Calls readings = calls_that(
      e, [](const SystemCall& c) { return c.name == "clock_gettime" && c.injected && worked(c); });
  // Without an answered reading a repeated timestamp is a requirement of its own.
  const bool or_equal = !readings.empty();
  auto f = not_later_by_stores(e, or_equal);
  bool judged = false;
  for (const Publication& p : publications_of(e)) {
    if (!p.own()) continue;
    const auto found = found_in(e, p, end_of(e, p));
    if (!f && !has_all_stores(e, p.start)) f = not_later_by_looks(found, or_equal);
    if (!f) f = left_zero(found, readings);
    for (std::size_t i = 1; i < p.sights.size() && or_equal; ++i) {
      judged = judged || (p.sights[i].timestamp > p.sights[i - 1].timestamp &&
                          readings.front()->entered_ns < p.sights[i].first_ns);
    }
  }
  if (f) {
    for (const SystemCall* c : readings) {
      if (f->evidence.size() < 5) f->evidence.push_back(call_line(*c));
    }
    return *f;
  }
  if (readings.empty()) return needs(e, "--inject clock_gettime:value=back");
  if (judged) return passed();
  return unobservable("no update followed an answered reading of the clock",
                      "a program that updates its context while it is watched");
}

template <RuleFunction kRule>
Finding at_faulted_calls(const ImageEvidence& e) {
  Finding f;
  if (e.timeline->mode == Mode::kAttach) {
    f = unobservable("the calls were made before ctxconf observed the program", "ctxconf wrap");
  } else if (!e.image->calls_unseen.empty() && !e.faulted) {
    f = unobservable(e.image->calls_unseen, "ctxconf wrap, on a host where it can stop calls");
  } else {
    f = kRule(e);
  }
  f.level = to_string(Level::kSyscalls);
  return f;
}

constexpr auto kFaultRules = std::to_array<RequirementRule>({
    {"pctx.header.timestamp-clock", at_faulted_calls<timestamp_clock>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.memfd-retry", at_faulted_calls<memfd_retry>, AskedOf::kImages, RestsOn::kEvents,
     UnderFaults::kItsSubject},
    {"pctx.publish.memfd-retry-flags", at_faulted_calls<memfd_retry_flags>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.fallback-anon", at_faulted_calls<fallback_anon>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.fallback-anon-exhausted", at_faulted_calls<fallback_anon_exhausted>,
     AskedOf::kImages, RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.name-failure-ignored", at_faulted_calls<name_failure_ignored>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.failure-madvise", at_faulted_calls<failure_madvise>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.failure-mmap", at_faulted_calls<failure_mmap>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.failure-ftruncate", at_faulted_calls<failure_ftruncate>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.failure-other-steps", at_faulted_calls<failure_other_steps>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.failure-leaves-nothing-valid", at_faulted_calls<failure_leaves_nothing_valid>,
     AskedOf::kImages, RestsOn::kEvents, UnderFaults::kItsSubject},
    {"pctx.publish.no-name-at-all", at_faulted_calls<no_name_at_all>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
    {.id = "pctx.publish.survives-total-denial",
     .rule = at_faulted_calls<survives_total_denial>,
     .under_faults = UnderFaults::kItsSubject,
     .holds_without_context = true},
    {"pctx.update.timestamp-later", at_faulted_calls<timestamp_later>, AskedOf::kImages,
     RestsOn::kEvents, UnderFaults::kItsSubject},
});

// ---- what a fault leaves as it is

bool is_named_as_valid(const ImageEvidence& e, const SystemCall& c) {
  const auto h = header_before(e, c);
  return gives_the_name(c) && h && abi::is_valid(*h);
}

bool is_same_step(const SystemCall& a, const SystemCall& b) {
  if (a.name != b.name) return false;
  if (a.name == "memfd_create") return a.args[1] == b.args[1];   // its flags
  if (a.name == "clock_gettime") return a.args[0] == b.args[0];  // which clock
  return a.file.empty() == b.file.empty();                       // of the memfd, or instead of it
}

// Each answered call was of the first publication, which went on without it and is there at the
// end, or names what there is already. Who begins again may publish something else.
bool published_all_the_same(const ImageEvidence& e) {
  const auto& calls = e.image->calls;
  const auto named =
      std::ranges::find_if(calls, [&](const auto& c) { return is_named_as_valid(e, c); });
  if (named == calls.end() || !is_complete(*e.image) || e.contexts.empty() ||
      std::ranges::none_of(e.contexts.back(), &Context::usable)) {
    return false;
  }
  bool any = false;
  for (auto c = calls.begin(); c != calls.end(); ++c) {
    if (!c->injected) continue;
    any = true;
    if (is_named_as_valid(e, *c)) continue;
    const bool went_on =
        c < named && c->tid == named->tid &&
        std::none_of(
            c + 1, named, [&](const SystemCall& later) { return is_same_step(*c, later); });
    if (!went_on) return false;
  }
  return any;
}

bool only_times_were_answered(const ImageEvidence& e) {
  const auto& calls = e.image->calls;
  return is_complete(*e.image) && std::ranges::any_of(calls, &SystemCall::injected) &&
         std::ranges::all_of(calls, [](const SystemCall& c) {
           return !c.injected || (c.name == "clock_gettime" && c.result.value_or(-1) >= 0);
         });
}

}  // namespace

std::span<const RequirementRule> fault_rules() { return kFaultRules; }

bool is_judged_under_faults(const RequirementRule& rule, const ImageEvidence& e) {
  switch (rule.under_faults) {
    case UnderFaults::kNotJudged:
      return false;
    case UnderFaults::kJudged:
    case UnderFaults::kItsSubject:
      return true;
    case UnderFaults::kJudgedIfPublished:
      return published_all_the_same(e);
    case UnderFaults::kJudgedIfOnlyTimes:
      return only_times_were_answered(e);
  }
  return false;
}

}  // namespace ctxconf::conformance
