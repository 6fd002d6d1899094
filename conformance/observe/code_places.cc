#include "conformance/observe/code_places.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "sys/process.h"

namespace ctxconf::conformance {
namespace {

// What lies in exactly this range; empty without a file. Needs no privileges, unlike to open it.
std::string link_of(pid_t tid, const sys::MapEntry& entry) {
  std::error_code error;
  const auto link = std::filesystem::read_symlink(
      "/proc/" + std::to_string(tid) + "/map_files/" + sys::map_files_name(entry), error);
  return error ? std::string() : link.string();
}

}  // namespace

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

std::vector<std::string> CodeFiles::name_places(std::span<Process> processes) const {
  std::map<std::string, std::vector<CodePlace*>> by_module;
  for (Process& process : processes) {
    for (Image& image : process.images) {
      for (CodePlace& place : image.places) {
        if (!place.module.empty()) by_module[place.module].push_back(&place);
      }
    }
  }
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + limits_.all_files;
  std::vector<std::string> problems;
  for (const auto& [path, places] : by_module) {
    const auto it = files_.find(path);
    if (it == files_.end()) continue;
    std::string problem = it->second.problem;
    if (it->second.file) {
      sys::CodeLookUpLimits limits = limits_.file;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      limits.time = std::clamp(left, std::chrono::milliseconds(0), limits.time);
      std::vector<std::uint64_t> offsets;
      for (const CodePlace* place : places) offsets.push_back(place->offset);
      auto at = sys::locate_code(*it->second.file, path, offsets, limits);
      problem = std::move(at.problem);
      for (std::size_t i = 0; i < places.size(); ++i) {
        places[i]->symbol = std::move(at.found[i].symbol);
        places[i]->symbol_offset = at.found[i].symbol_offset;
        places[i]->source_file = std::move(at.found[i].source_file);
        places[i]->source_line = at.found[i].source_line;
      }
    }
    if (problem.empty()) continue;
    problems.push_back(std::string("functions of ").append(path).append(": ").append(problem));
  }
  return problems;
}

std::vector<CodePlaces::Mapping>::iterator CodePlaces::known_at(std::uint64_t address) {
  return std::ranges::find_if(mappings_, [&](const Mapping& m) {
    return m.entry.range.contains(sys::RemoteAddr(address));
  });
}

// Libraries come and go at the same address.
void CodePlaces::forget_replaced(pid_t tid, std::uint64_t address) {
  const auto it = known_at(address);
  if (it == mappings_.end() || it->link.empty() || link_of(tid, it->entry) == it->link) return;
  by_address_.erase(by_address_.lower_bound(it->entry.range.begin().raw()),
                    by_address_.lower_bound(it->entry.range.end().raw()));
  mappings_.erase(it);
}

const sys::MapEntry* CodePlaces::mapping_of(pid_t tid, std::uint64_t address) {
  if (const auto known = known_at(address); known != mappings_.end()) return &known->entry;
  if (++maps_reads_ > files_->limits().maps_reads) return nullptr;
  auto entry = sys::mapping_at(tid, sys::RemoteAddr(address));
  if (!entry) return nullptr;
  auto link = link_of(tid, *entry);
  mappings_.push_back({*std::move(entry), std::move(link)});
  return &mappings_.back().entry;
}

std::optional<std::uint32_t> CodePlaces::place_of(pid_t tid, std::uint64_t pc, std::uint64_t code) {
  if (pc == 0) return std::nullopt;
  const std::uint64_t address = pc - 1;
  const auto is_current = [&](const Known& k) {
    return k.code == code && code != 0 && k.look == looks_;
  };
  auto it = by_address_.find(address);
  if (it != by_address_.end() && is_current(it->second)) return it->second.place;
  forget_replaced(tid, address);
  it = by_address_.find(address);
  if (it != by_address_.end()) {
    it->second.code = code;
    it->second.look = looks_;
    return it->second.place;
  }
  if (places_.size() >= files_->limits().places) return std::nullopt;
  CodePlace place;
  place.address = address;
  const auto* entry = mapping_of(tid, address);
  if (entry != nullptr && entry->inode != 0) {
    place.module = sys::path_of(*entry);
    place.offset = address - entry->range.begin().raw() + entry->offset;
    files_->hold(tid, *entry);
  }
  places_.push_back(std::move(place));
  const auto index = static_cast<std::uint32_t>(places_.size() - 1);
  by_address_[address] = {index, code, looks_};
  return index;
}

}  // namespace ctxconf::conformance
