#include "conformance/testees/reader/context_reader.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace ctxconf::testees {
namespace {

constexpr Choice kBadSearch[] = {
    {"pctx.reader.mapping-established",
     "takes a zero timestamp for no context when there is another candidate"},
    {"pctx.reader.decodes-process-context:merges",
     "keeps the attributes that an update does not have"},
    {"pctx.reader.skip-and-continue", "stops at the first candidate"},
    {"pctx.reader.skip-and-continue:last", "looks at the last candidate only"},
    {"pctx.reader.two-valid-contexts", "merges the attributes of two contexts"},
    {"pctx.reader.skip-not-forever", "ignores a process whose mapping was not ready once"},
    {"pctx.reader.skip-not-forever:mapping", "ignores a mapping that was not ready once"},
    {"pctx.reader.late-publication", "looks for a context in each process once"},
    {"pctx.reader.late-publication:start", "looks for a context in the first 50 ms only"},
    {"pctx.reader.hook-not-only-source", "waits for an update of what was there before it started"},
    {"pctx.reader.zero-timestamp-not-used", "ignores the timestamp"},
    {"pctx.reader.zero-timestamp-not-used:late", "uses a zero timestamp after some retries"},
    {"pctx.reader.retries-after-zero", "gives up on a process after one zero"},
    {"pctx.reader.retries-after-zero:retries", "gives up on a process after some retries"},
    {"pctx.reader.bounded-retry", "loops without a pause until the timestamp is not zero"},
    {"pctx.reader.bounded-retry:busy",
     "does not sleep before the second look, but waits for 600 ms of processor time"},
    {"pctx.reader.new-timestamp-new-read", "reads a context once"},
    {"pctx.reader.new-timestamp-new-read:size", "reads again when pointer or size change"},
    {"pctx.reader.exec-drops-context", "keeps attributes by process number"},
    {"pctx.reader.reused-address", "checks the signature once"},
};

constexpr Choice kGoodSearch[] = {
    {"last-context", "uses the last of several contexts"},
    {"refuses-two-contexts", "uses none of several contexts"},
    {"cached-address", "looks at a known address first, and searches when nothing is there"},
    {"rereads-everything", "copies the payload at each look"},
    {"one-try", "answers after the first look at a context that changes"},
    {"many-tries", "looks 12 times at a context that changes"},
    {"keeps-last", "reports the last good state while the context is being changed"},
};

}  // namespace

const Choices kSearchChoices{kBadSearch, kGoodSearch};

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr unsigned kTries = 5;
constexpr unsigned kManyTries = 12;
constexpr milliseconds kLongestPause{100};
constexpr milliseconds kStart{50};
constexpr milliseconds kBusy{600};  // of processor time

unsigned tries() {
  if (is_good("one-try")) return 1;
  return is_good("many-tries") ? kManyTries : kTries;
}

milliseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::duration_cast<milliseconds>(std::chrono::seconds(time.tv_sec) +
                                                  std::chrono::nanoseconds(time.tv_nsec));
}

// Whether another look follows at once.
bool loops(const SearchResult& found, bool zero) {
  if (found.result != Result::kRetry) return false;
  return zero && is_bad("pctx.reader.bounded-retry");
}

}  // namespace

void ContextReader::miss_call() { missed_call_ = is_bad("pctx.reader.hook-not-only-source"); }

SearchResult ContextReader::read() {
  const auto begin = steady_clock::now();
  if (!begin_) begin_ = begin;
  retried_ = false;
  milliseconds pause{1};
  for (unsigned i = 1;; ++i) {
    zero_ = false;
    SearchResult out = look();
    if (loops(out, zero_)) continue;
    if (out.result != Result::kRetry || i >= tries()) {
      if (out.result == Result::kRetry && is_bad("pctx.reader.retries-after-zero:retries")) {
        kept_.given_up = true;
      }
      return out;
    }
    if (retried_ || !is_bad("pctx.reader.bounded-retry:busy")) {
      std::this_thread::sleep_for(pause);
    } else {
      const auto end = processor_time() + kBusy;
      while (processor_time() < end) continue;
    }
    pause = std::min(pause * 2, kLongestPause);
    retried_ = true;
  }
}

bool ContextReader::must_not_look() const {
  return kept_.given_up || (is_bad("pctx.reader.late-publication:start") && !had_candidates_ &&
                            begin_ && steady_clock::now() - *begin_ > kStart);
}

SearchResult ContextReader::look() {
  if (must_not_look()) return {};
  const Memory memory(pid_);
  if (auto known = look_at_known(memory)) return *std::move(known);
  auto mappings = mappings_of(pid_);
  if (!mappings) return remembered({.error = mappings.error()}, memory);
  mappings_ = *std::move(mappings);
  const Mappings candidates = candidates_of(mappings_);
  if (candidates.empty()) {
    kept_.given_up = is_bad("pctx.reader.late-publication");
    return remembered({}, memory);
  }
  had_candidates_ = true;
  if (waits_for_other_ == candidates) return {.result = Result::kReject, .has_candidates = true};
  auto out = choose(memory, candidates, valid_ones(memory, candidates));
  out.has_candidates = true;
  return remembered(std::move(out), memory);
}

// What is cached, where this reader relies on it.
std::optional<SearchResult> ContextReader::look_at_known(const Memory& memory) {
  const bool unchecked = is_bad("pctx.reader.reused-address");
  if (!known_ || (!unchecked && !is_good("cached-address"))) return std::nullopt;
  const auto header = copy_header(memory, {pid_, known_->mapping});
  if (!header || (!unchecked && !is_context(*header))) return std::nullopt;
  return remembered(use(memory, {known_->mapping, *header}), memory);
}

// Those of the candidates that the first checks leave.
std::vector<ContextReader::Candidate> ContextReader::valid_ones(const Memory& memory,
                                                                const Mappings& candidates) {
  std::vector<Candidate> out;
  for (const Mapping& m : candidates) {
    if (is_bad("pctx.reader.skip-and-continue:last") && &m != &candidates.back()) continue;
    if (ignored_.contains(m.begin)) continue;
    errno = 0;
    const auto header = copy_header(memory, {pid_, m});
    if (!header) error_ = errno;
    if (header && is_context(*header)) {
      out.push_back({m, *header});
    } else if (is_bad("pctx.reader.skip-not-forever:mapping")) {
      ignored_.insert(m.begin);
    }
    if (is_bad("pctx.reader.skip-and-continue")) break;
  }
  return out;
}

SearchResult ContextReader::choose(const Memory& memory, const Mappings& candidates,
                                   std::vector<Candidate> valid) {
  const bool passes_zero = is_bad("pctx.reader.mapping-established") && candidates.size() > 1;
  if (passes_zero && !valid.empty()) {
    std::erase_if(valid, [](const Candidate& c) { return c.header.timestamp == 0; });
    if (valid.empty()) waits_for_other_ = candidates;
  }
  if (valid.empty()) return nothing_valid();
  if (valid.size() > 1) {
    if (is_good("refuses-two-contexts")) return {.result = Result::kReject};
    if (is_good("last-context")) return use(memory, valid.back());
    if (is_bad("pctx.reader.two-valid-contexts")) return merged(memory, valid);
  }
  return use(memory, valid.front());
}

SearchResult ContextReader::nothing_valid() {
  if (is_bad("pctx.reader.skip-not-forever")) kept_.given_up = true;
  return {.result = Result::kReject, .error = error_};
}

SearchResult ContextReader::use(const Memory& memory, const Candidate& candidate) {
  const auto& [mapping, header] = candidate;
  const bool is_known = known_ && known_->mapping.begin == mapping.begin;
  if (missed_call_) {
    if (!since_call_) since_call_ = header.timestamp;
    if (since_call_ == header.timestamp) return {};
    missed_call_ = false;
  }
  if (is_known && is_bad("pctx.reader.new-timestamp-new-read")) {
    return {.result = Result::kAccept, .context = known_};
  }
  if (header.timestamp == 0) {
    zero_ = true;
    if (is_bad("pctx.reader.retries-after-zero")) kept_.given_up = true;
    const bool uses = is_bad("pctx.reader.zero-timestamp-not-used") ||
                      (is_bad("pctx.reader.zero-timestamp-not-used:late") && retried_);
    if (!uses) return {.result = Result::kRetry};
  } else if (!is_plausible(header, pid_)) {
    return {.result = Result::kReject};
  }
  const bool same_place =
      is_known && known_->header.pointer == header.pointer && known_->header.size == header.size;
  const bool need_not = (is_known && known_->header == header && !is_good("rereads-everything")) ||
                        (same_place && is_bad("pctx.reader.new-timestamp-new-read:size"));
  if (need_not) return {.result = Result::kAccept, .context = known_};
  auto context = std::make_shared<Context>(Context{mapping, header, {}});
  switch (copy_message(memory, {pid_, mapping}, header, mappings_, kept_, context->message)) {
    case CopyResult::kGood:
      if (is_known && is_bad("pctx.reader.decodes-process-context:merges")) {
        Pairs& pairs = context->message.resource;
        for (const Pair& old : known_->message.resource) {
          if (find(pairs, old.key) == nullptr) pairs.push_back(old);
        }
      }
      return {.result = Result::kAccept, .context = std::move(context)};
    case CopyResult::kChanging:
      return {.result = Result::kRetry};
    case CopyResult::kBad:
      break;
  }
  return {.result = Result::kReject};
}

SearchResult ContextReader::merged(const Memory& memory, const std::vector<Candidate>& valid) {
  auto out = std::make_shared<Context>();
  for (const Candidate& c : valid) {
    const SearchResult one = use(memory, c);
    if (one.result != Result::kAccept) continue;
    const Message& part = one.context->message;
    Message& whole = out->message;
    whole.has_resource = whole.has_resource || part.has_resource;
    whole.resource.insert(whole.resource.end(), part.resource.begin(), part.resource.end());
    whole.attributes.insert(whole.attributes.end(), part.attributes.begin(), part.attributes.end());
    out->mapping = one.context->mapping;
  }
  return {.result = Result::kAccept, .context = std::move(out)};
}

// Remembers what was found, or forgets it.
SearchResult ContextReader::remembered(SearchResult found, const Memory& memory) {
  if (found.result == Result::kAccept) {
    known_ = found.context;
  } else if (found.result == Result::kRetry) {
    if (known_ && is_good("keeps-last")) return {.result = Result::kAccept, .context = known_};
  } else {
    const bool is_gone =
        known_ && !found.has_candidates && !memory.value<char>(known_->mapping.begin);
    if (is_gone && is_bad("pctx.reader.exec-drops-context") && start_ticks_of(pid_) != 0) {
      return {.result = Result::kAccept, .context = known_};
    }
    known_.reset();
  }
  return found;
}

}  // namespace ctxconf::testees
