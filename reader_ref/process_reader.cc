#include "reader_ref/process_reader.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <thread>
#include <utility>

#include "sys/process.h"

namespace ctxconf::reader {
namespace {

using std::chrono::milliseconds;
using sys::Result;

bool sleep_here(milliseconds delay) {
  std::this_thread::sleep_for(delay);
  return true;
}

std::string thread_name(pid_t pid, pid_t tid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/comm");
  std::string name(16, '\0');  // TASK_COMM_LEN, with the newline
  in.read(name.data(), static_cast<std::streamsize>(name.size()));
  name.resize(static_cast<std::size_t>(in.gcount()));
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

// Loading a library maps a file, which changes this number; the file need not contain code, because
// it may contain only the variable.
Result<std::uint64_t> fingerprint_of_files(pid_t pid) {
  CTX_ASSIGN_OR_RETURN(mappings, sys::find_all_mappings(pid, {"/"}));
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a, by words
  for (const sys::MapEntry& m : mappings) {
    for (const std::uint64_t word : {m.range.begin().raw(), m.range.end().raw(), m.inode,
                                     std::uint64_t{m.dev_major} << 32U | m.dev_minor}) {
      hash = (hash ^ word) * 0x100000001b3U;
    }
  }
  return hash;
}

// Why the variable is not read; empty: it is read.
std::string why_no_threads(const ProcessContext& context) {
  if (!context.has_schema) return "the context has no threadlocal.schema_version";
  if (abi::is_thread_schema(context.schema)) return {};
  if (context.schema == abi::kGoSchemaVersion) {
    return "threadlocal.schema_version is go_pprof_labels_v1: labels of the Go run time, which "
           "this reader does not read";
  }
  return "threadlocal.schema_version is not one that this reader knows";
}

std::vector<VariableReport> describe_variables(const ThreadVariable& found) {
  std::vector<VariableReport> out;
  for (const sys::TlsDefinition& definition : found.definitions) {
    VariableReport variable{found.modules.modules[definition.module].path, {}};
    for (const sys::TlsAccess& access : definition.accesses) {
      if (access.borrowed) continue;
      const std::string model(sys::to_string(access.model));
      if (std::ranges::find(variable.models, model) == variable.models.end()) {
        variable.models.push_back(model);
      }
    }
    out.push_back(std::move(variable));
  }
  return out;
}

}  // namespace

ProcessReader::ProcessReader(pid_t pid, ReaderOptions options, sys::ElfCache& files)
    : pid_(pid), options_(std::move(options)), files_(&files), memory_(pid) {
  if (!options_.sleep) options_.sleep = sleep_here;
}

Result<ContextSample> ProcessReader::sample_context() {
  return read_process_context(
      memory_, [&] { return candidates_of(pid_); }, known_, options_.patience, options_.sleep);
}

Result<ProcessReport> ProcessReader::read() {
  CTX_ASSIGN_OR_RETURN(report, read_once());
  CTX_ASSIGN_OR_RETURN(same, still_holds(report));
  if (same) return std::move(report);
  CTX_ASSIGN_OR_RETURN(second, read_once());
  CTX_ASSIGN_OR_RETURN(same_now, still_holds(second));
  if (same_now) return std::move(second);
  return sys::fail(
      "read process", EAGAIN,
      "pid " + std::to_string(pid_) + ": its context was replaced twice while it was read");
}

// Whether executable, context and threads belong to one program. A process that ends meanwhile
// loses threads; after an exec, the same id has other threads.
Result<bool> ProcessReader::still_holds(const ProcessReport& report) {
  if (!report.context) return true;
  CTX_ASSIGN_OR_RETURN(facts, sys::process_facts(pid_));
  if (facts.start_ticks != report.start_ticks || facts.executable != report.executable ||
      facts.state == 'Z') {
    return false;
  }
  CTX_ASSIGN_OR_RETURN(candidates, candidates_of(pid_));
  const sys::MapEntry& mapping = report.context->mapping;
  return std::ranges::any_of(candidates, [&](const sys::MapEntry& m) {
    return m.range == mapping.range && m.inode == mapping.inode;
  });
}

Result<ProcessReport> ProcessReader::read_once() {
  CTX_ASSIGN_OR_RETURN(facts, sys::process_facts(pid_));
  if (facts.state == 'Z') {
    return sys::fail("read process", ESRCH, "pid " + std::to_string(pid_) + " has ended");
  }
  if (facts.start_ticks != start_ticks_) {  // the first time, or the id was reused
    start_ticks_ = facts.start_ticks;
    known_.reset();
    loaded_.reset();
  }
  CTX_ASSIGN_OR_RETURN(sample, sample_context());
  CTX_ASSIGN_OR_RETURN(facts_after, sys::process_facts(pid_));
  // A process that is ending loses its memory, and the link to its executable, before it is a
  // zombie.
  const bool lost = !facts.executable.empty() && facts_after.executable.empty();
  if (facts_after.start_ticks != start_ticks_ || facts_after.state == 'Z' || lost) {
    return sys::fail("read process", ESRCH,
                     "pid " + std::to_string(pid_) + " ended while it was read");
  }
  known_ = sample.context;
  ProcessReport report;
  report.pid = pid_;
  report.start_ticks = start_ticks_;
  report.executable = std::move(facts_after.executable);
  report.context = std::move(sample.context);
  report.busy = sample.busy;
  report.notes = std::move(sample.notes);
  if (report.context && options_.threads) read_threads(report);
  return report;
}

Result<> ProcessReader::find_variable() {
  CTX_ASSIGN_OR_RETURN(mappings, fingerprint_of_files(pid_));
  const std::uint64_t timestamp = known_->header.monotonic_published_at_ns;
  if (loaded_ && loaded_->mappings == mappings && loaded_->context_timestamp == timestamp) {
    return {};
  }
  loaded_.reset();
  CTX_ASSIGN_OR_RETURN(variable, find_thread_variable(pid_, *files_));
  loaded_ = Loaded{mappings, timestamp, std::move(variable)};
  return {};
}

// Nothing: the thread has ended.
std::optional<ProcessReader::Sampled> ProcessReader::sample(pid_t tid, Clock::time_point end) {
  Sampled out;
  out.thread.tid = tid;
  out.thread.name = thread_name(pid_, tid);
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
  if (left <= milliseconds(0)) {
    out.thread.why = "not read: time is up";
    return out;
  }
  auto sampled = sample_thread(tid, loaded_->variable, memory_, options_.attributes,
                               std::min(options_.stop_deadline, left));
  if (!sampled && sampled.error().err == ESRCH) return std::nullopt;
  if (!sampled) {
    out.thread.why = sys::to_string(sampled.error());
  } else if (!sampled->record) {
    out.thread.why = std::move(sampled->why);
  } else if (sampled->record->state != RecordState::kValid) {
    out.thread.why = describe(sampled->record->state);
  } else {
    out.record = std::move(sampled->record);
  }
  return out;
}

void ProcessReader::read_threads(ProcessReport& report) {
  report.threads_why = why_no_threads(*report.context);
  if (!report.threads_why.empty()) return;
  if (const auto found = find_variable(); !found) {
    report.threads_why = "the loaded files cannot be examined: " + sys::to_string(found.error());
    return;
  }
  const ThreadVariable& variable = loaded_->variable;
  report.notes.insert(report.notes.end(), variable.modules.notes.begin(),
                      variable.modules.notes.end());
  if (variable.definitions.empty()) {
    report.threads_why = "no loaded file exports the thread-local variable otel_thread_ctx_v1";
    return;
  }
  report.variables = describe_variables(variable);
  find_locations(loaded_->variable, memory_);
  const auto tids = sys::thread_list(pid_);
  if (!tids) {
    report.threads_why = "the threads cannot be listed: " + sys::to_string(tids.error());
    return;
  }
  report.threads_read = true;
  std::vector<Sampled> samples;
  const auto end = Clock::now() + options_.stop_budget;
  for (const pid_t tid : *tids) {
    if (auto sampled = sample(tid, end)) samples.push_back(std::move(*sampled));
  }
  // All threads run again: from here on only copies are used.
  bool unknown = false;
  for (Sampled& s : samples) {
    if (s.record) s.thread.context = parse_record(*s.record, report.context->keys);
    unknown = unknown || (s.thread.context && !s.thread.context->unknown.empty());
  }
  if (unknown) refresh_names(report, samples);
  for (Sampled& s : samples) report.threads.push_back(std::move(s.thread));
}

// An index is not in the map, which may have grown since it was read. Tries once: leaves out
// indexes that the new map does not name either.
void ProcessReader::refresh_names(ProcessReport& report, std::vector<Sampled>& samples) {
  const auto fresh = sample_context();
  if (!fresh || !fresh->context || fresh->context == known_) return;
  known_ = fresh->context;
  report.context = fresh->context;
  for (Sampled& s : samples) {
    if (s.record) s.thread.context = parse_record(*s.record, report.context->keys);
  }
}

}  // namespace ctxconf::reader
