#include "conformance/observe/threads.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "abi/thread_record.h"
#include "conformance/elf/elf_facts.h"
#include "conformance/elf/tls_access.h"
#include "conformance/observe/memory_block.h"
#include "sys/access_watchdog.h"
#include "sys/c_library.h"
#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

using sys::RemoteAddr;

constexpr std::uint64_t kAfter = 1024;
constexpr std::size_t kMostFacts = 16384;  // files in the cache
constexpr std::size_t kMostHidden = 64;    // variables that are in no .dynsym
constexpr std::size_t kMostBeyond = 65536;

std::uint64_t hash_of_files(const std::string& maps_text) {
  std::uint64_t hash = kFnvBasis;
  sys::for_each_mapping(maps_text, [&](sys::Result<sys::MapEntry> e) {
    if (e && e->executable && e->inode != 0) {
      const std::array<std::uint64_t, 3> facts = {e->range.begin().raw(), e->inode, e->offset};
      hash = fnv1a(hash, std::as_bytes(std::span(facts)));
    }
    return true;
  });
  return hash;
}

bool has_variable(const ModuleFacts& m) {
  return !m.dynamic_symbols.empty() || !m.static_symbols.empty();
}

// A library that is deleted or replaced while it is mapped counts as the same one.
bool is_same_file(const ModuleFacts& a, const ModuleFacts& b) {
  constexpr std::string_view kDeleted = " (deleted)";
  const auto plain = [&](std::string_view path) {
    if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
    return path;
  };
  if (plain(a.path) != plain(b.path)) return false;
  ModuleFacts as_b = a;
  as_b.path = b.path;
  return as_b == b;
}

bool same_look(const ThreadSample& a, const ThreadSample& b) {
  return a.slot == b.slot && a.value == b.value && a.record == b.record;
}

bool is_whole(const ThreadSample& s) { return !s.record || s.record->readable == s.record->wanted; }

std::uint64_t bytes_of(const ThreadSample& s) {
  return (s.record ? s.record->bytes.size() : 0) + (s.after ? s.after->bytes.size() : 0);
}

// Files that were read from the memory of a process have none.
bool has_identity(const sys::FileIdentity& file) { return file.inode != 0; }

// If the leader has ended, the process shows no memory under its id.
pid_t thread_with_memory(pid_t pid, RemoteAddr readable) {
  constexpr std::size_t kMostThreads = 16;
  std::array<std::byte, 1> out;
  if (sys::ProcessMemory(pid).read_exact(readable, out)) return pid;
  const auto tids = sys::thread_list(pid);
  for (std::size_t i = 0; tids && i < std::min(tids->size(), kMostThreads); ++i) {
    if (sys::ProcessMemory((*tids)[i]).read_exact(readable, out)) return (*tids)[i];
  }
  return pid;
}

}  // namespace

std::optional<ModuleFacts> ModuleCache::facts_of(const sys::Module& module) {
  const auto read = [&] {
    auto facts = module_facts(*module.image, module.path, module.main_executable);
    return module.main_executable || has_variable(facts) ? std::optional(std::move(facts))
                                                         : std::nullopt;
  };
  const auto& file = module.image->identity();
  if (!has_identity(file)) return read();
  if (facts_.size() >= kMostFacts) facts_.clear();
  const auto [it, added] = facts_.try_emplace({file, module.main_executable});
  if (added) it->second = read();
  auto facts = it->second;
  if (facts) facts->path = module.path;
  return facts;
}

sys::Result<std::string> ModuleCache::library_in(const sys::ElfImage& image) {
  const auto& file = image.identity();
  if (const auto known = libraries_.find(file); known != libraries_.end()) return known->second;
  CTX_ASSIGN_OR_RETURN(library, sys::c_library_in(image));
  if (libraries_.size() >= kMostFacts) libraries_.clear();
  if (has_identity(file)) libraries_[file] = library;
  return library;
}

std::string ModuleCache::libc_of(const sys::Modules& modules) {
  const std::string_view name = modules.musl ? "musl" : "glibc";
  for (const sys::Module* module : sys::possible_c_libraries(modules.modules)) {
    auto library = library_in(*module->image);
    if (library && library->starts_with(name)) return *std::move(library);
  }
  if (modules.musl) return std::string(name);
  const auto main = std::ranges::find_if(modules.modules, &sys::Module::main_executable);
  const bool is_static = main != modules.modules.end() && !main->image->has_interpreter();
  return std::string(is_static ? sys::kNoInterpreter : std::string_view());
}

ThreadRecorder::ThreadRecorder(pid_t pid, ModuleCache& cache, const SnapshotRecorder& context,
                               ThreadLimits limits)
    : pid_(pid), cache_(&cache), context_(&context), limits_(limits) {}

void ThreadRecorder::look_at_modules() {
  const sys::ProcessAccess access(pid_);
  find_definitions();
  find_locations();
}

void ThreadRecorder::find_locations() {
  locations_.clear();
  hidden_locations_.clear();
  if (!wants_threads()) return;
  const auto& any = definitions_.empty() ? hidden_.front() : definitions_.front();
  const RemoteAddr readable = modules_.modules[any.module].start;
  const sys::ProcessMemory memory(thread_with_memory(pid_, readable));
  for (const sys::TlsDefinition& d : definitions_) {
    locations_.push_back(sys::tls_location(modules_, d, memory));
  }
  for (const sys::TlsDefinition& d : hidden_) {
    hidden_locations_.push_back(sys::tls_location(modules_, d, memory));
  }
}

void ThreadRecorder::find_definitions() {
  const auto text = sys::read_maps_text(pid_);
  if (!text || text->empty()) return;  // a zombie has none
  const std::uint64_t hash = hash_of_files(*text);
  if (hash == mappings_hash_) return;
  auto modules = sys::modules_of(pid_, cache_->files);
  if (!modules) {
    // ESRCH: the process ended meanwhile, which is not a fault.
    if (modules.error().err != ESRCH) unread(sys::to_string(modules.error()));
    return;
  }
  mappings_hash_ = hash;
  set_modules(std::move(*modules));
}

void ThreadRecorder::set_modules(sys::Modules modules) {
  modules_ = std::move(modules);
  definitions_.clear();
  hidden_.clear();
  facts_index_.clear();
  slept_.clear();
  last_.clear();
  for (std::size_t i = 0; i < modules_.modules.size(); ++i) {
    const sys::Module& module = modules_.modules[i];
    const auto facts = cache_->facts_of(module);
    if (!facts) continue;
    if (module.main_executable) little_endian_ = facts->little_endian;
    // A loader that was executed has not mapped the program yet.
    if (!module.image->is_executable() && !has_variable(*facts)) continue;
    auto it = std::ranges::find_if(facts_, [&](const auto& f) { return is_same_file(f, *facts); });
    if (it == facts_.end()) {
      if (facts_.size() >= limits_.modules) continue;
      it = facts_.insert(facts_.end(), *facts);
    }
    facts_index_[i] = static_cast<std::uint32_t>(it - facts_.begin());
    const sys::ElfSymbol* hidden = hidden_definition(*facts);
    if (hidden != nullptr && hidden_.size() < kMostHidden) {
      hidden_.push_back(sys::find_hidden_tls_variable(modules_, i, *hidden));
    }
  }
  auto definitions = sys::find_tls_variable(modules_, abi::kThreadSlotSymbol);
  // After what matters more, because the limits of one process are for both.
  if (auto libc = cache_->libc_of(modules_); !libc.empty()) libc_ = std::move(libc);
  if (!definitions) return unread(sys::to_string(definitions.error()));
  definitions_ = std::move(*definitions);
  std::vector<std::uint32_t> defining;
  for (const auto& d : definitions_) {
    const auto it = facts_index_.find(d.module);
    if (it != facts_index_.end() && std::ranges::find(defining, it->second) == defining.end()) {
      defining.push_back(it->second);
    }
  }
  if (defining.size() > defined_together_.size()) defined_together_ = std::move(defining);
}

void ThreadRecorder::look_at_birth(const ThreadRecorder* parent, RemoteAddr thread_pointer) {
  if (parent != nullptr) {
    mappings_hash_ = parent->mappings_hash_;
    set_modules(parent->modules_);
    find_locations();
  } else {
    look_at_modules();
  }
  auto samples = look(pid_, thread_pointer);
  for (auto& s : samples) s.inherited = true;
  keep(std::move(samples));
}

void ThreadRecorder::unread(const std::string& why) {
  ++unread_times_;
  if (unread_.empty()) unread_ = why;
}

std::vector<ThreadSample> ThreadRecorder::look(pid_t tid, RemoteAddr thread_pointer) {
  // If the leader has ended, the process shows no memory under its id.
  const sys::ProcessMemory memory(tid);
  std::vector<ThreadSample> out;
  for (std::size_t i = 0; i < locations_.size(); ++i) {
    const auto index = facts_index_.find(definitions_[i].module);
    if (index == facts_index_.end()) continue;
    const auto slot = sys::tls_address(locations_[i], thread_pointer, memory);
    if (!slot) {
      if (slot.error().err != ESRCH) unread(sys::to_string(slot.error()));
      continue;
    }
    ThreadSample s;
    s.tid = tid;
    s.module = index->second;
    s.first_seen_ns = s.last_seen_ns = sys::boottime_now_ns();
    if (*slot) {
      const auto value = memory.read(sys::RemotePtr<std::uint64_t>{**slot});
      if (!value) {
        if (value.error().err != ESRCH) unread(sys::to_string(value.error()));
        continue;
      }
      s.slot = (*slot)->raw();
      s.value = *value;
      if (!little_endian_) s.value = std::byteswap(s.value);
    }
    looked_ = true;
    if (s.value != 0) {
      const RemoteAddr at(s.value);
      s.record = read_block(memory, at, abi::kRecordHeadBytes, abi::kRecordHeadBytes,
                            abi::kRecordHeadBytes);
      if (const auto head = abi::decode_thread_record(s.record->bytes)) {
        const bool native = little_endian_ == (std::endian::native == std::endian::little);
        const std::uint64_t size =
            native ? head->attrs_data_size : std::byteswap(head->attrs_data_size);
        const std::uint64_t whole = abi::kRecordHeadBytes + size;
        s.record = read_block(memory, at, whole, whole, whole);
        if (const auto end = at.plus(whole); end && s.record->readable == whole) {
          s.after = read_block(memory, *end, kAfter, kAfter, kAfter);
        }
      }
    }
    out.push_back(std::move(s));
  }
  look_at_hidden(tid, thread_pointer, memory);
  return out;
}

// No reader finds these, so one value of each is enough: it shows that the program uses it.
void ThreadRecorder::look_at_hidden(pid_t tid, RemoteAddr thread_pointer,
                                    const sys::MemoryReader& memory) {
  for (std::size_t i = 0; i < hidden_locations_.size(); ++i) {
    const auto index = facts_index_.find(hidden_[i].module);
    if (index == facts_index_.end()) continue;
    const auto seen = std::ranges::find(hidden_seen_, index->second, &ThreadSample::module);
    if (seen != hidden_seen_.end()) continue;
    const auto slot = sys::tls_address(hidden_locations_[i], thread_pointer, memory);
    if (!slot || !*slot) continue;
    const auto value = memory.read(sys::RemotePtr<std::uint64_t>{**slot});
    if (!value || *value == 0) continue;
    ThreadSample s;
    s.tid = tid;
    s.module = index->second;
    s.first_seen_ns = s.last_seen_ns = sys::boottime_now_ns();
    s.slot = (*slot)->raw();
    s.value = little_endian_ ? *value : std::byteswap(*value);
    hidden_seen_.push_back(std::move(s));
  }
}

std::vector<ThreadView> ThreadRecorder::keep(std::vector<ThreadSample> samples) {
  std::vector<ThreadView> views;
  views.reserve(samples.size());
  for (ThreadSample& s : samples) {
    auto& view = views.emplace_back();
    view.tid = s.tid;
    view.module = s.module;
    view.null = s.value == 0;
    const std::pair key(s.tid, s.module);
    const auto last = last_.find(key);
    const bool known = last != last_.end();
    if (known && same_look(samples_[last->second], s)) {
      ThreadSample& before = samples_[last->second];
      before.last_seen_ns = s.last_seen_ns;
      ++before.times;
      view.sample = last->second;
      continue;
    }
    // Threads that never have a record must not fill the recording.
    if (s.value == 0 && (!known || samples_[last->second].value == 0)) continue;
    const std::uint64_t bytes = bytes_of(s);
    if (samples_.size() >= limits_.samples || bytes_ + bytes > limits_.bytes) {
      keep_beyond(std::move(s));
      continue;
    }
    if (!is_whole(s)) find_mapping(s);
    bytes_ += bytes;
    last_beyond_.erase(key);
    last_[key] = samples_.size();
    view.sample = samples_.size();
    samples_.push_back(std::move(s));
  }
  return views;
}

void ThreadRecorder::find_mapping(ThreadSample& s) const {
  const auto text = sys::read_maps_text(pid_);
  if (!text) return;
  const auto table = sys::MapTable::parse(*text);
  if (!table) return;
  if (const auto* e = table->find(RemoteAddr(s.value))) s.mapping = *e;
}

void ThreadRecorder::keep_beyond(ThreadSample s) {
  if (last_beyond_.size() >= kMostBeyond) last_beyond_.clear();
  const std::uint64_t hash = s.record ? s.record->hash : 0;
  Beyond& last = last_beyond_[{s.tid, s.module}];
  const bool again =
      last.times > 0 && last.slot == s.slot && last.value == s.value && last.hash == hash;
  last = {.slot = s.slot, .value = s.value, .hash = hash, .times = again ? last.times + 1 : 1};
  // A record that cannot be copied counts only if that happens twice.
  if (again && (is_whole(s) || last.times > 2)) return;
  s.times = last.times;
  if (!again) ++dropped_;
  if (!is_whole(s)) find_mapping(s);
  const std::uint64_t bytes = bytes_of(s);
  const bool judges = context_->state_judge() != nullptr && limits_.broken > 0;
  const std::size_t most = judges ? limits_.judged : 0;
  if (!judged_.takes(bytes, most, limits_.judged_bytes)) {
    ++unjudged_;
    return;
  }
  beyond_.push_back(std::move(s));
  if (beyond_.size() >= limits_.judged_together) judge_beyond(context_->image());
}

// Judges all at once, and one by one if they break a requirement. Keeps those that show a broken
// requirement that the kept samples do not show often enough.
void ThreadRecorder::judge_beyond(const Image& context) {
  const auto beyond = std::exchange(beyond_, {});
  if (beyond.empty()) return;
  const StateJudge& judge = *context_->state_judge();
  if (judge.broken_by_records(context, facts_, beyond).empty()) return;
  for (const ThreadSample& s : beyond) {
    const auto broken = judge.broken_by_records(context, facts_, std::span(&s, 1));
    const auto unshown = broken_.unshown(broken);
    const std::uint64_t bytes = bytes_of(s);
    if (unshown.empty() || kept_beyond_.size() >= limits_.broken ||
        kept_beyond_bytes_ + bytes > limits_.bytes / 4) {
      add_dropped(broken, requirements_dropped_);
      continue;
    }
    broken_.shown(unshown);
    kept_beyond_bytes_ += bytes;
    kept_beyond_.push_back(s);
    --dropped_;
  }
}

std::vector<ThreadView> ThreadRecorder::sample(pid_t tid, RemoteAddr thread_pointer) {
  slept_.erase(tid);
  return keep(look(tid, thread_pointer));
}

void ThreadRecorder::sample_at_exit(pid_t tid, RemoteAddr thread_pointer) {
  slept_.erase(tid);
  for (ThreadSample& s : look(tid, thread_pointer)) {
    const std::uint64_t bytes = bytes_of(s);
    if (exits_.size() >= kMaxExits || bytes_ + bytes > limits_.bytes) return;
    bytes_ += bytes;
    exits_.push_back(std::move(s));
  }
}

std::optional<std::vector<ThreadView>> ThreadRecorder::sample_if_asleep(pid_t tid,
                                                                        RemoteAddr thread_pointer) {
  const auto before = sys::thread_activity(pid_, tid);
  if (!before || !before->sleeping) return std::nullopt;
  // The thread has not run since the last look, so nothing of its own has changed.
  if (const auto slept = slept_.find(tid);
      slept != slept_.end() && slept->second.activity == *before) {
    const std::uint64_t now = sys::boottime_now_ns();
    for (const ThreadView& view : slept->second.views) {
      if (!view.sample) continue;
      samples_[*view.sample].last_seen_ns = now;
      ++samples_[*view.sample].times;
    }
    return slept->second.views;
  }
  auto samples = look(tid, thread_pointer);
  const auto after = sys::thread_activity(pid_, tid);
  if (!after || *after != *before) return std::nullopt;
  const auto& kept = slept_[tid] = {*before, keep(std::move(samples))};
  return kept.views;
}

std::optional<ThreadRecorder::Slot> ThreadRecorder::slot_of(pid_t tid) const {
  for (const auto& [key, index] : last_) {
    const ThreadSample& s = samples_[index];
    if (key.first != tid || s.slot == 0 || s.value == 0) continue;
    return Slot{RemoteAddr(s.slot), RemoteAddr(s.value)};
  }
  return std::nullopt;
}

std::optional<RemoteAddr> ThreadRecorder::variable_of(pid_t tid, RemoteAddr thread_pointer) const {
  const sys::ProcessMemory memory(tid);
  for (const auto& location : locations_) {
    const auto slot = sys::tls_address(location, thread_pointer, memory);
    if (slot && *slot) return *slot;
  }
  return std::nullopt;
}

void ThreadRecorder::add_to(Image& image, bool /*saw_context*/) {
  judge_beyond(image);
  // Without the variable nothing here is evidence.
  if (std::ranges::any_of(facts_, has_variable) || !image.snapshots.empty()) {
    image.modules = std::move(facts_);
  }
  image.libc = std::move(libc_);
  image.defined_together = std::move(defined_together_);
  image.threads = std::move(samples_);
  std::ranges::move(kept_beyond_, std::back_inserter(image.threads));
  image.hidden_slots = std::move(hidden_seen_);
  image.exits = std::move(exits_);
  image.threads_dropped = dropped_;
  image.threads_judged = dropped_ - std::min(dropped_, unjudged_);
  for (auto& id : requirements_dropped_) {
    if (std::ranges::find(image.requirements_dropped, id) == image.requirements_dropped.end()) {
      image.requirements_dropped.push_back(std::move(id));
    }
  }
  if (dropped_ > 0) {
    image.notes.push_back(std::to_string(dropped_) + " thread samples were not kept");
  }
  if (unread_times_ == 0) return;
  if (!looked_) {
    image.threads_unread = std::move(unread_);
  } else {
    image.notes.push_back(std::to_string(unread_times_) +
                          " samples of threads failed, first: " + unread_);
  }
}

}  // namespace ctxconf::conformance
