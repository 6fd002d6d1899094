#include "reader_ref/process_reader.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <thread>
#include <utility>

#include "abi/process_header.h"
#include "abi/thread_record.h"
#include "sys/map_table.h"
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

bool is_file(const sys::MapEntry& mapping) { return mapping.name.starts_with('/'); }

// Loading a library maps a file, which changes this number; the file need not contain code, because
// it may contain only the variable.
class FilesHash {
 public:
  void add(const sys::MapEntry& m) {
    for (const std::uint64_t word : {m.range.begin().raw(), m.range.end().raw(), m.inode,
                                     std::uint64_t{m.dev_major} << 32U | m.dev_minor}) {
      hash_ = (hash_ ^ word) * 0x100000001b3U;
    }
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;  // FNV-1a, by words
};

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

ProcessReader::ProcessReader(pid_t pid, ReaderOptions options, ReaderTools& tools)
    : pid_(pid), options_(std::move(options)), tools_(&tools), memory_(pid) {
  if (!options_.sleep) options_.sleep = sleep_here;
}

Result<ProcessReport> ProcessReader::read(const Wanted& wanted) {
  Reading reading(wanted);
  auto result = go_on(reading, {});
  while (!result) result = go_on(reading, sample_threads(tools_->stopper, pass_of(reading)));
  return *std::move(result);
}

void ProcessReader::read_while(const GoesOn& goes_on) {
  const Reading fresh({.threads = options_.threads, .only = {}});
  Reading reading = fresh;
  sample_while(tools_->stopper, [&](Samples samples) -> std::optional<SamplePass> {
    auto result = go_on(reading, std::move(samples));
    while (result) {
      if (!goes_on(*std::move(result))) return std::nullopt;
      reading = fresh;
      result = go_on(reading, {});
    }
    return pass_of(reading);
  });
}

// Nothing: it needs the samples of `tids` first.
std::optional<Result<ProcessReport>> ProcessReader::go_on(Reading& reading, Samples samples) {
  constexpr int kTries = 2;
  while (reading.tries < kTries) {
    if (std::exchange(reading.needs_samples, false)) {
      add_threads(reading, std::exchange(samples, {}));
    } else {
      CTX_RETURN_IF_ERROR(begin(reading));
      if (reading.needs_samples) return std::nullopt;
    }
    CTX_ASSIGN_OR_RETURN(same, still_holds(reading.report));
    if (same) return std::move(reading.report);
    listing_.reset();
    ++reading.tries;
  }
  return sys::fail(
      "read process", EAGAIN,
      "pid " + std::to_string(pid_) + ": its context was replaced twice while it was read");
}

// The process that has the id now. Nothing is kept of another one that had it.
Result<> ProcessReader::open_process() {
  if (process_ && process_->lives()) return {};
  process_.reset();
  executable_.reset();
  listing_.reset();
  known_ = {};
  loaded_.reset();
  names_.clear();
  CTX_ASSIGN_OR_RETURN(process, sys::ProcessHandle::open(pid_));
  if (!process.lives()) {
    return sys::fail("read process", ESRCH, "pid " + std::to_string(pid_) + " has ended");
  }
  process_ = std::move(process);
  return {};
}

Result<> ProcessReader::begin(Reading& reading) {
  is_fresh_ = false;
  CTX_RETURN_IF_ERROR(open_process());
  CTX_RETURN_IF_ERROR(sample_context());
  if (is_fresh_ || !executable_) {
    CTX_ASSIGN_OR_RETURN(executable, process_->executable());
    executable_ = std::move(executable);
    names_.clear();
  }
  ProcessReport& report = reading.report = {};
  report.pid = pid_;
  report.start_ticks = process_->start_ticks();
  report.executable = *executable_;
  report.context = known_.context;
  report.busy = known_.busy;
  report.notes = known_.notes;
  if (report.context && reading.wanted.threads) prepare_threads(reading);
  return {};
}

// Whether executable, context and threads belong to one program, and that to the process. An exec
// and a process that is ending take the header away; a process that has ended has lost its id.
Result<bool> ProcessReader::still_holds(const ProcessReport& report) {
  // What was known before has been checked by the sample of the context.
  if (report.context && (is_fresh_ || report.threads_read)) {
    CTX_ASSIGN_OR_RETURN(same, is_unchanged(memory_, *report.context));
    if (!same) {
      CTX_ASSIGN_OR_RETURN(updated, is_listed(report.context->mapping));
      CTX_ASSIGN_OR_RETURN(executable, process_->executable());
      if (!updated || executable != report.executable) return false;
    }
  }
  return process_->lives();
}

Result<bool> ProcessReader::is_listed(const sys::MapEntry& mapping) {
  CTX_RETURN_IF_ERROR(list_mappings());
  return std::ranges::any_of(listing_->candidates, [&](const sys::MapEntry& m) {
    return m.range == mapping.range && m.inode == mapping.inode;
  });
}

// Usually one read: of the header.
Result<> ProcessReader::sample_context() {
  const auto begin = Clock::now();
  if (known_.context && listing_ && begin - listing_->at < options_.relist) {
    CTX_ASSIGN_OR_RETURN(same, is_unchanged(memory_, *known_.context));
    if (same) return {};
    listing_.reset();  // an update, or something else lies there now
  }
  CTX_ASSIGN_OR_RETURN(sample, sample_candidates());
  // Believe nothing new at an address that was listed earlier: sample what is listed now.
  if (sample.context && sample.context != known_.context && listing_->at < begin) {
    listing_.reset();
    CTX_ASSIGN_OR_RETURN(again, sample_candidates());
    sample = std::move(again);
  }
  known_ = std::move(sample);
  return {};
}

Result<ContextSample> ProcessReader::sample_candidates() {
  const auto list = [this]() -> Result<std::vector<sys::MapEntry>> {
    const bool is_due = !listing_ || Clock::now() - listing_->at >= options_.relist;
    if (is_due) CTX_RETURN_IF_ERROR(list_mappings());
    return listing_->candidates;
  };
  return read_process_context(memory_, list, known_.context, options_.patience, options_.sleep);
}

Result<> ProcessReader::list_mappings() {
  Listing listing;
  listing.at = Clock::now();
  if (wants_variable()) {
    CTX_ASSIGN_OR_RETURN(mappings, candidates_and_files_of(pid_));
    FilesHash files;
    for (sys::MapEntry& m : mappings) {
      if (abi::is_candidate_name(m.name)) {
        listing.candidates.push_back(std::move(m));
      } else {
        files.add(m);
      }
    }
    listing.files = files.value();
  } else {
    CTX_ASSIGN_OR_RETURN(candidates, candidates_of(pid_));
    listing.candidates = std::move(candidates);
  }
  listing_ = std::move(listing);
  is_fresh_ = true;
  return {};
}

bool ProcessReader::wants_variable() const {
  return options_.threads && known_.context && why_no_threads(*known_.context).empty();
}

// Again if the loaded files may have changed, or what the context says of the variable.
Result<> ProcessReader::find_variable() {
  const std::uint64_t timestamp = known_.context->header.monotonic_published_at_ns;
  if (loaded_ && loaded_->context_timestamp == timestamp &&
      (!listing_->files || *listing_->files == loaded_->files)) {
    return {};
  }
  loaded_.reset();
  CTX_ASSIGN_OR_RETURN(maps, sys::read_maps_text(pid_));
  FilesHash files;
  sys::for_each_mapping(maps, [&](const Result<sys::MapEntry>& m) {
    if (m && is_file(*m) && !abi::is_candidate_name(m->name)) files.add(*m);
    return true;
  });
  CTX_ASSIGN_OR_RETURN(variable, find_thread_variable(pid_, maps, tools_->files));
  if (listing_->files) listing_->files = files.value();
  loaded_ = Loaded{files.value(), timestamp, std::move(variable)};
  return {};
}

// All up to the samples.
void ProcessReader::prepare_threads(Reading& reading) {
  ProcessReport& report = reading.report;
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
  const auto& only = reading.wanted.only;
  auto tids = only ? Result<std::vector<pid_t>>(std::in_place, {*only}) : process_->threads();
  if (!tids) {
    report.threads_why = "the threads cannot be listed: " + sys::to_string(tids.error());
    return;
  }
  report.threads_read = true;
  reading.needs_samples = true;
  reading.tids = *std::move(tids);
}

SamplePass ProcessReader::pass_of(const Reading& reading) const {
  return {.variable = &loaded_->variable,
          .memory = &memory_,
          .attributes = options_.attributes,
          .tids = reading.tids,
          .limits = {options_.stop_deadline, Clock::now() + options_.stop_budget}};
}

// Leaves out those that have ended.
void ProcessReader::add_threads(Reading& reading, Samples samples) {
  ProcessReport& report = reading.report;
  const std::vector<pid_t>& tids = reading.tids;
  // All threads run again: from here on only copies are used.
  std::vector<std::optional<RecordCopy>> records;
  bool unknown = false;
  for (std::size_t i = 0; i < tids.size(); ++i) {
    auto& sample = samples[i];
    if (!sample && sample.error().err == ESRCH) continue;
    ThreadReport& t = report.threads.emplace_back();
    t.tid = tids[i];
    t.name = name_of(t.tid);
    auto& record = records.emplace_back();
    if (!sample) {
      t.why = sample.error().err == ETIME ? "not read: time is up" : sys::to_string(sample.error());
    } else if (!sample->record) {
      t.why = std::move(sample->why);
    } else if (sample->record->state != RecordState::kValid) {
      t.why = describe(sample->record->state);
    } else {
      record = std::move(sample->record);
      t.context = parse_record(*record, report.context->keys);
      unknown = unknown || !t.context->unknown.empty();
    }
  }
  if (unknown) refresh_names(report, records);
}

// An index is not in the map, which may have grown since it was read. Tries once: leaves out
// indexes that the new map does not name either.
void ProcessReader::refresh_names(ProcessReport& report,
                                  const std::vector<std::optional<RecordCopy>>& records) {
  if (!sample_context() || !known_.context || known_.context == report.context) return;
  report.context = known_.context;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i]) report.threads[i].context = parse_record(*records[i], report.context->keys);
  }
}

const std::string& ProcessReader::name_of(pid_t tid) {
  const auto [at, is_new] = names_.try_emplace(tid);
  if (is_new) at->second = thread_name(pid_, tid);
  return at->second;
}

}  // namespace ctxconf::reader
