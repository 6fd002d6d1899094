#include "conformance/testees/reader/agent.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "conformance/testees/reader/mappings.h"
#include "conformance/testees/reader/memory.h"
#include "conformance/testees/reader/stopped_thread.h"
#include "conformance/testees/reader/thread_sample.h"

namespace ctxconf::testees {
namespace {

constexpr Choice kBadAgent[] = {
    {"pctx.reader.no-context", "ends at a process without a context"},
    {"pctx.reader.no-context:gone", "ends at a process that has ended"},
    {"pctx.reader.no-context:error", "answers with an error for a process without a context"},
    {"pctx.reader.no-context:memory", "fills 128 MiB at the first look at a process"},
    {"pctx.reader.no-permission", "ends when it may not open the mappings"},
    {"pctx.reader.no-permission:error", "answers with an error when it may not open the mappings"},
    {"pctx.reader.default-detection", "gives no defaults for a payload that does not decode"},
    {"pctx.reader.default-detection:absent", "gives no defaults without a context"},
    {"pctx.reader.target-may-be-stopped", "passes over a process whose threads wait for a lock"},
    {"pctx.reader.target-may-be-stopped:state", "passes over a process that is stopped"},
    {"pctx.reader.target-may-be-stopped:resumes", "lets a process run that is stopped"},
    {"pctx.reader.applies-to-this-process", "gives a child the attributes of its parent"},
    {"tctx.reader.late-reference-data", "decides once whether there are thread contexts"},
    {"tctx.reader.late-libraries", "keeps its first list of mappings"},
    {"tctx.reader.fork-key-map", "resolves the names of a child with the key map of its parent"},
    {"tctx.reader.fork-key-map:none", "uses the reference data of the parent without a context"},
    {"tctx.reader.unknown-index-refreshes", "reads the key map again after 60 seconds"},
    {"tctx.reader.authoritative", "prefers the ids of another source"},
    {"tctx.reader.authoritative:unsampled", "prefers the ids of another source without sampling"},
};

constexpr Choice kGoodAgent[] = {
    {"usual", "does nothing unusual"},
    {"one-shot", "keeps nothing from one request to the next"},
    {"polls-slowly", "with --watch, looks once a second"},
    {"reports-each-look", "with --watch, reports also what has not changed"},
    {"refuses-to-forget", "refuses to forget a process that has ended"},
    {"defaults", "finds out about a process in other ways as well"},
    {"second-source", "uses another source where a thread has no context"},
    {"traces-stopped", "traces a process that is stopped while it looks at it"},
    {"64-bit-only", "passes over 32-bit processes"},
    {"early-modules", "looks for the variable before there is reference data"},
    {"renews-on-update", "looks for the variable again when the process context changes"},
    {"cached-key-map", "reads the process context again for a sample only if an index has no name"},
    {"limits-refreshes", "reads the process context once a second for indexes without a name"},
};

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr seconds kRefreshes{1};
constexpr std::size_t kMuchMemory = std::size_t{128} << 20U;

bool is_permission_error(int error) { return error == EACCES || error == EPERM; }

}  // namespace

const Choices kAgentChoices{kBadAgent, kGoodAgent};

struct Agent::Process {
  explicit Process(pid_t pid) : start_ticks(start_ticks_of(pid)), context(pid) {}

  std::uint64_t start_ticks;
  ContextReader context;
  // The variable, as it was found in these files with this context.
  std::optional<Mappings> files;
  std::uint64_t found_for = 0;
  std::vector<Access> accesses;
  // Used by readers that do not look for new names at each sample.
  SharedContext names_from;
  std::optional<steady_clock::time_point> refreshed;
  // What a broken reader keeps.
  std::optional<bool> has_records;
  SharedContext inherited;
  bool given_up = false;
};

Agent::Agent() {
  if (!is_bad("pctx.reader.hook-not-only-source")) return;
  for (const pid_t pid : processes()) is_missed_.insert(pid);
}

Agent::~Agent() = default;

Agent::Process& Agent::known(pid_t pid) {
  auto& process = processes_[pid];
  if (!process || process->start_ticks != start_ticks_of(pid)) {
    process = std::make_unique<Process>(pid);
    if (is_missed_.contains(pid)) process->context.miss_call();
    if (is_bad("pctx.reader.no-context:memory")) {
      waste_.assign(kMuchMemory, 1);
      std::vector<std::uint8_t>().swap(waste_);
    }
  }
  return *process;
}

void Agent::forget(pid_t pid) { processes_[pid] = std::make_unique<Process>(pid); }

void Agent::end_request(pid_t pid) {
  if (is_good("one-shot")) processes_.erase(pid);
}

SearchResult Agent::look(pid_t pid) {
  if (is_bad("pctx.reader.target-may-be-stopped:state") && state_of(pid) == 'T') return {};
  if (is_bad("pctx.reader.target-may-be-stopped") && waits_for_lock(pid)) return {};
  if (is_bad("pctx.reader.target-may-be-stopped:resumes") && state_of(pid) == 'T') {
    kill(pid, SIGCONT);
  }
  const bool traces = is_good("traces-stopped") && state_of(pid) == 'T';
  const auto traced = traces ? StoppedThread::stop(pid) : nullptr;
  if (is_good("64-bit-only") && is_32_bit(pid)) return {};
  return known(pid).context.read();
}

Answer Agent::parent_answer(pid_t pid) {
  const pid_t parent = parent_of(pid);
  if (parent <= 1) return {};
  const SearchResult found = known(parent).context.read();
  return {.result = found.result, .context = found.context};
}

Answer Agent::process(pid_t pid) {
  const SearchResult found = this->look(pid);
  end_request(pid);
  Answer out{.result = found.result, .context = found.context};
  const bool is_refused = is_permission_error(found.error);
  if (found.result != Result::kAbsent && !is_refused) return out;
  const bool is_gone = start_ticks_of(pid) == 0 || state_of(pid) == 'Z';
  if (is_refused) {
    if (is_bad("pctx.reader.no-permission")) _exit(1);
    if (is_bad("pctx.reader.no-permission:error")) out.failure = strerror(found.error);
  } else {
    if (is_bad("pctx.reader.no-context")) _exit(1);
    if (is_bad("pctx.reader.no-context:gone") && is_gone) _exit(1);
    if (is_bad("pctx.reader.no-context:error")) out.failure = "there is no context";
  }
  if (is_bad("pctx.reader.applies-to-this-process")) return parent_answer(pid);
  return out;
}

Pairs Agent::defaults_of(pid_t pid) {
  return {{"service.name", text_value("unknown_service:" + name_of(pid))}};
}

void Agent::find_variable_of(pid_t pid, Process& process, const Context& context) {
  auto mappings = mappings_of(pid);
  if (!mappings) return;
  std::erase_if(*mappings, [](const Mapping& m) { return m.inode == 0 || m.offset != 0; });
  const bool keeps = process.files && is_bad("tctx.reader.late-libraries");
  const bool same_files =
      is_good("renews-on-update") ? process.files.has_value() : process.files == *mappings;
  if (keeps || (same_files && process.found_for == context.header.timestamp)) return;
  const Memory memory(pid);
  process.accesses = find_variable(pid, memory, *mappings);
  process.files = *std::move(mappings);
  process.found_for = context.header.timestamp;
}

// The context whose names a sample uses.
SearchResult Agent::look_for_names(pid_t pid, Process& process) {
  const bool cached = is_good("cached-key-map") || is_good("limits-refreshes") ||
                      is_bad("tctx.reader.unknown-index-refreshes");
  if (cached && process.names_from) {
    return {.result = Result::kAccept, .context = process.names_from};
  }
  const SearchResult out = look(pid);
  process.names_from.reset();
  if (out.context && reference_data_of(out.context->message).reads_variable) {
    process.names_from = out.context;
  }
  return out;
}

Answer Agent::sample_thread(pid_t pid, pid_t tid, Process& process) {
  SearchResult found = look_for_names(pid, process);
  const pid_t parent = parent_of(pid);
  if (found.result == Result::kAbsent && is_bad("tctx.reader.fork-key-map:none")) {
    found = known(parent).context.read();
  }
  if (found.result != Result::kAccept) {
    const bool retries = found.result == Result::kRetry;
    if (is_permission_error(found.error) && is_bad("tctx.reader.no-permission")) _exit(1);
    return {.result = retries ? Result::kRetry : Result::kAbsent};
  }
  const auto needs_refresh = [&](const Record& record) {
    if (!record.has_unknown || is_bad("tctx.reader.unknown-index-refreshes")) return false;
    const auto now = steady_clock::now();
    if (is_good("limits-refreshes") && process.refreshed && now - *process.refreshed < kRefreshes) {
      return false;
    }
    process.refreshed = now;
    return true;
  };
  if (is_good("early-modules")) find_variable_of(pid, process, *found.context);
  ReferenceData reference = reference_data_of(found.context->message);
  if (is_bad("tctx.reader.late-reference-data")) {
    if (!process.has_records) process.has_records = reference.reads_variable;
    reference.reads_variable = *process.has_records;
  }
  if (!reference.reads_variable || process.given_up) return {};
  if (is_bad("tctx.reader.fork-key-map") && parent > 1) {
    if (!process.inherited) process.inherited = known(parent).context.read().context;
    if (process.inherited) reference = reference_data_of(process.inherited->message);
  }
  find_variable_of(pid, process, *found.context);
  RecordCopy copy;
  switch (sample(pid, tid, process.accesses, copy)) {
    case SampleState::kNone:
      return {};
    case SampleState::kFailed:
      return {.failure = "the record cannot be read"};
    case SampleState::kGivenUp:
      process.given_up = true;
      return {};
    case SampleState::kRecord:
      break;
  }
  Record record = parse_record(copy, reference.names);
  if (needs_refresh(record)) {
    process.names_from = this->look(pid).context;
    if (process.names_from) {
      reference = reference_data_of(process.names_from->message);
      record = parse_record(copy, reference.names);
    }
  }
  if (record.is_dropped) return {};
  return {.result = Result::kAccept, .record = std::move(record)};
}

Answer Agent::thread(pid_t pid, pid_t tid, const std::optional<SecondSource>& second) {
  Answer out;
  if (has_thread(pid, tid)) out = sample_thread(pid, tid, known(pid));
  end_request(pid);
  if (!second) return out;
  const bool unsampled = out.record && (out.record->flags & 1U) == 0;
  const bool prefers = is_bad("tctx.reader.authoritative") ||
                       (is_bad("tctx.reader.authoritative:unsampled") && unsampled);
  const bool lacks = !out.record || !out.record->trace_id;
  if (prefers || (lacks && is_good("second-source"))) {
    if (!out.record) out.record.emplace();
    out.result = Result::kAccept;
    out.record->trace_id = second->trace_id;
    out.record->span_id = second->span_id;
  }
  return out;
}

Answer Agent::record(const std::vector<std::uint8_t>& bytes, const KeyMap& names) {
  RecordCopy copy;
  const auto state = copy_record(
      [&](std::size_t offset, void* to, std::size_t size) {
        if (offset > bytes.size() || size > bytes.size() - offset) return false;
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), size,
                    static_cast<std::uint8_t*>(to));
        return true;
      },
      copy);
  if (state == CopyState::kFailed) return {.failure = "the record cannot be read"};
  if (state != CopyState::kValid) return {};
  Record record = parse_record(copy, names);
  if (record.is_dropped) return {};
  return {.result = Result::kAccept, .record = std::move(record)};
}

}  // namespace ctxconf::testees
