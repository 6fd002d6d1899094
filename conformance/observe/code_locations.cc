#include "conformance/observe/code_locations.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

// The file mapped in exactly this range; empty without a file. Needs no privileges, unlike opening
// it.
std::string link_of(pid_t tid, const sys::MapEntry& entry) {
  std::error_code error;
  const auto link = std::filesystem::read_symlink(
      "/proc/" + std::to_string(tid) + "/map_files/" + sys::map_files_name(entry), error);
  return error ? std::string() : link.string();
}

void set_location(InstructionLocation& location, sys::CodeLocation found) {
  location.symbol = std::move(found.symbol);
  location.symbol_offset = found.symbol_offset;
  location.source_file = std::move(found.source_file);
  location.source_line = found.source_line;
}

constexpr std::size_t kMostKnown = 65536;

}  // namespace

const sys::CodeLocation* KnownLocations::find(const Key& key) const {
  const auto it = locations_.find(key);
  return it == locations_.end() ? nullptr : &it->second;
}

void KnownLocations::add(Key key, sys::CodeLocation location) {
  if (locations_.size() >= kMostKnown) locations_.clear();
  locations_.insert_or_assign(std::move(key), std::move(location));
}

void CodeFiles::hold(pid_t tid, const sys::MapEntry& entry) {
  const auto [it, is_new] = files_.try_emplace(sys::path_of(entry));
  Held& held = it->second;
  if (is_new) {
    held.inode = entry.inode;
    if (open_ >= limits_.files) {
      held.problem = "more than " + std::to_string(limits_.files) + " files have such code";
      return;
    }
    auto file = sys::HeldFile::of_mapping(tid, entry);
    if (file) {
      held.file = *std::move(file);
      ++open_;
    } else {
      held.problem = sys::to_string(file.error());
    }
  } else if (held.inode != entry.inode) {
    if (held.file) --open_;
    held.file.reset();
    held.problem = "two files had this name";
  }
}

std::uint32_t CodeFiles::keep(sys::StackCopy stack,
                              std::shared_ptr<const std::vector<sys::MapEntry>> code) {
  if (stacks_.size() >= limits_.stacks) return 0;
  stacks_.push_back({std::move(stack), std::move(code)});
  return static_cast<std::uint32_t>(stacks_.size());
}

sys::CodeLookUpLimits CodeFiles::until(Clock::time_point end) const {
  sys::CodeLookUpLimits limits = limits_.file;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
  limits.time = std::clamp(left, std::chrono::milliseconds(0), limits.time);
  return limits;
}

void CodeFiles::name(const ByModule& by_module, Clock::time_point end,
                     std::vector<std::string>& problems) const {
  for (const auto& [path, locations] : by_module) {
    const auto it = files_.find(path);
    if (it == files_.end()) continue;
    std::string problem = it->second.problem;
    if (it->second.file) {
      const sys::HeldFile& file = *it->second.file;
      std::vector<InstructionLocation*> unknown;
      std::vector<std::uint64_t> offsets;
      for (InstructionLocation* location : locations) {
        const auto* known =
            known_ == nullptr ? nullptr : known_->find({file.identity(), path, location->offset});
        if (known != nullptr) {
          set_location(*location, *known);
        } else {
          unknown.push_back(location);
          offsets.push_back(location->offset);
        }
      }
      auto at = sys::locate_code(file, path, offsets, until(end));
      problem = std::move(at.problem);
      for (std::size_t i = 0; i < unknown.size(); ++i) {
        if (known_ != nullptr && problem.empty()) {
          known_->add({file.identity(), path, offsets[i]}, at.found[i]);
        }
        set_location(*unknown[i], std::move(at.found[i]));
      }
    }
    if (problem.empty()) continue;
    problem = std::string("functions of ").append(path).append(": ").append(problem);
    if (std::ranges::find(problems, problem) == problems.end()) {
      problems.push_back(std::move(problem));
    }
  }
}

// The locations that were recorded with the same mappings.
void CodeFiles::add_callers(std::span<InstructionLocation* const> locations, Clock::time_point end,
                            std::vector<std::string>& problems) const {
  const auto& mappings = *stacks_[locations.front()->stack - 1].code;
  std::vector<sys::CodeMapping> code;
  for (const sys::MapEntry& entry : mappings) {
    const auto held = files_.find(sys::path_of(entry));
    if (held == files_.end() || !held->second.file || held->second.inode != entry.inode) continue;
    code.push_back({&*held->second.file, held->first, entry.range.begin().raw(), entry.offset});
  }
  std::vector<sys::StackCopy> stacks;
  for (const InstructionLocation* location : locations)
    stacks.push_back(stacks_[location->stack - 1].copy);
  auto callers = sys::find_callers(code, stacks, until(end));
  if (!callers.problem.empty()) problems.push_back(std::move(callers.problem));
  for (std::size_t i = 0; i < locations.size(); ++i) {
    for (const std::uint64_t address : callers.found[i]) {
      const auto entry = std::ranges::find_if(mappings, [&](const sys::MapEntry& m) {
        return m.range.contains(sys::RemoteAddr(address));
      });
      if (entry == mappings.end()) break;
      InstructionLocation caller;
      caller.address = address;
      caller.module = sys::path_of(*entry);
      caller.offset = address - entry->range.begin().raw() + entry->offset;
      locations[i]->callers.push_back(std::move(caller));
    }
  }
}

std::vector<std::string> CodeFiles::name_locations(std::span<Process> processes) const {
  const auto end = Clock::now() + limits_.all_files;
  std::vector<std::string> problems;
  ByModule by_module;
  std::vector<InstructionLocation*> all;
  for (Process& process : processes) {
    for (Image& image : process.images) {
      for (InstructionLocation& location : image.locations) {
        if (!location.module.empty()) by_module[location.module].push_back(&location);
        all.push_back(&location);
      }
    }
  }
  name(by_module, end, problems);

  const auto is_library = [](const InstructionLocation& p) {
    return sys::is_library_code({p.symbol, p.symbol_offset, p.source_file, p.source_line},
                                p.module);
  };
  std::map<const void*, std::vector<InstructionLocation*>> by_mappings;
  for (InstructionLocation* location : all) {
    if (location->stack == 0 || location->stack > stacks_.size() || !is_library(*location))
      continue;
    by_mappings[stacks_[location->stack - 1].code.get()].push_back(location);
  }
  ByModule callers;
  for (const auto& [mappings, locations] : by_mappings) {
    add_callers(locations, end, problems);
    for (InstructionLocation* location : locations) {
      for (InstructionLocation& caller : location->callers)
        callers[caller.module].push_back(&caller);
    }
  }
  name(callers, end, problems);
  for (InstructionLocation* location : all) {
    location->stack = 0;
    const auto wanted = std::ranges::find_if_not(location->callers, is_library);
    if (wanted != location->callers.end())
      location->callers.erase(wanted + 1, location->callers.end());
  }
  return problems;
}

std::vector<CodeLocations::Mapping>::iterator CodeLocations::known_at(std::uint64_t address) {
  return std::ranges::find_if(mappings_, [&](const Mapping& m) {
    return m.entry.range.contains(sys::RemoteAddr(address));
  });
}

// Libraries may be loaded and unloaded at the same address.
void CodeLocations::forget_replaced(pid_t tid, std::uint64_t address) {
  const auto it = known_at(address);
  if (it == mappings_.end() || it->link.empty() || link_of(tid, it->entry) == it->link) return;
  by_address_.erase(by_address_.lower_bound(it->entry.range.begin().raw()),
                    by_address_.lower_bound(it->entry.range.end().raw()));
  mappings_.erase(it);
}

const sys::MapEntry* CodeLocations::mapping_of(pid_t tid, std::uint64_t address) {
  if (const auto known = known_at(address); known != mappings_.end()) return &known->entry;
  if (++maps_reads_ > files_->limits().maps_reads) return nullptr;
  auto entry = sys::mapping_at(tid, sys::RemoteAddr(address));
  if (!entry) return nullptr;
  auto link = link_of(tid, *entry);
  mappings_.push_back({*std::move(entry), std::move(link)});
  return &mappings_.back().entry;
}

// What may be needed to unwind the stack: files whose code the top of the stack points into.
std::uint32_t CodeLocations::keep_stack(pid_t tid, sys::StackCopy stack) {
  const auto at = [](const std::vector<sys::MapEntry>& code, std::uint64_t address) {
    return std::ranges::find_if(
        code, [&](const sys::MapEntry& m) { return m.range.contains(sys::RemoteAddr(address)); });
  };
  if (code_ == nullptr || at(*code_, stack.pc()) == code_->end()) {
    if (++maps_reads_ > files_->limits().maps_reads) return 0;
    const auto text = sys::read_maps_text(tid);
    if (!text) return 0;
    auto code = std::make_shared<std::vector<sys::MapEntry>>();
    sys::for_each_mapping(*text, [&](sys::Result<sys::MapEntry> entry) {
      if (entry && entry->executable && entry->inode != 0) code->push_back(*std::move(entry));
      return true;
    });
    code_ = std::move(code);
  }
  sys::copy_stack(sys::ProcessMemory(tid), files_->limits().stack_bytes, stack);
  std::set<const sys::MapEntry*> wanted;
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= stack.bytes.size();
       i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, &stack.bytes[i], sizeof word);
    if (const auto entry = at(*code_, word); entry != code_->end()) wanted.insert(&*entry);
  }
  for (const sys::MapEntry* entry : wanted) files_->hold(tid, *entry);
  return files_->keep(std::move(stack), code_);
}

std::uint32_t CodeLocations::with_stack(pid_t tid, std::uint64_t pc, std::uint32_t location) {
  auto stack = sys::copy_registers(tid);
  // If the instruction is unfinished, the location is one byte further.
  if (!stack || (stack->pc() != pc && stack->pc() + 1 != pc)) return location;
  std::uint64_t top = 0;
  (void)sys::ProcessMemory(tid).read_some(sys::RemoteAddr(stack->sp()),
                                          std::as_writable_bytes(std::span(&top, 1)));
  Variants& known = variants_[location];
  const std::pair key(stack->sp(), top);
  if (const auto it = known.locations.find(key); it != known.locations.end()) return it->second;
  const bool too_many = known.locations.size() >= files_->limits().stacks_of_location ||
                        locations_.size() >= files_->limits().locations / 2;
  if (too_many && known.other) return *known.other;
  const std::uint32_t kept = too_many ? 0 : keep_stack(tid, *std::move(stack));
  std::uint32_t index = location;
  if (!known.locations.empty()) {
    if (locations_.size() >= files_->limits().locations) return location;
    InstructionLocation copy = locations_[location];
    index = static_cast<std::uint32_t>(locations_.size());
    locations_.push_back(std::move(copy));
  }
  locations_[index].stack = kept;
  if (too_many) {
    known.other = index;
  } else {
    known.locations[key] = index;
  }
  return index;
}

std::optional<std::uint32_t> CodeLocations::location_of(pid_t tid, std::uint64_t pc,
                                                        std::uint64_t code) {
  const auto location = location_at(tid, pc, code);
  return location ? std::optional(with_stack(tid, pc, *location)) : location;
}

std::optional<std::uint32_t> CodeLocations::location_at(pid_t tid, std::uint64_t pc,
                                                        std::uint64_t code) {
  if (pc == 0) return std::nullopt;
  const std::uint64_t address = pc - 1;
  const auto is_current = [&](const Known& k) {
    return k.code == code && code != 0 && k.look == looks_;
  };
  auto it = by_address_.find(address);
  if (it != by_address_.end() && is_current(it->second)) return it->second.location;
  forget_replaced(tid, address);
  it = by_address_.find(address);
  if (it != by_address_.end()) {
    it->second.code = code;
    it->second.look = looks_;
    return it->second.location;
  }
  if (locations_.size() >= files_->limits().locations) return std::nullopt;
  InstructionLocation location;
  location.address = address;
  const auto* entry = mapping_of(tid, address);
  if (entry != nullptr && entry->inode != 0) {
    location.module = sys::path_of(*entry);
    location.offset = address - entry->range.begin().raw() + entry->offset;
    files_->hold(tid, *entry);
  }
  locations_.push_back(std::move(location));
  const auto index = static_cast<std::uint32_t>(locations_.size() - 1);
  by_address_[address] = {index, code, looks_};
  return index;
}

}  // namespace ctxconf::conformance
