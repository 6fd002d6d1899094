#include "conformance/testees/reader/mappings.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

namespace ctxconf::testees {
namespace {

constexpr Choice kBadMappings[] = {
    {"pctx.reader.name-anon-shmem", "does not know the name [anon_shmem:OTEL_CTX]"},
    {"pctx.reader.name-anon", "does not know the name [anon:OTEL_CTX]"},
    {"pctx.reader.name-memfd", "compares the whole name with /memfd:OTEL_CTX"},
    {"pctx.reader.name-memfd:no-suffix", "leaves out the files that are marked as deleted"},
    {"pctx.reader.name-memfd:writable", "takes mappings that can be written only"},
    {"pctx.reader.name-prefix-only", "searches the whole line for the names"},
    {"pctx.reader.name-prefix-only:file", "compares the last part of a path with the names"},
    {"pctx.reader.name-suffix", "aborts at a name that goes on in an unexpected way"},
    {"pctx.reader.many-mappings", "reads lines into a buffer of 256 bytes"},
    {"pctx.reader.many-mappings:whole", "reads the first 64 KiB of the mappings only"},
};

constexpr Choice kGoodMappings[] = {
    {"refuses-suffixes", "takes a name only as it is, or with the mark of a deleted file"},
    {"scans-20000-mappings", "looks at the first 20000 mappings of a process"},
};

constexpr std::array<std::string_view, 3> kNames = {"[anon_shmem:OTEL_CTX]", "[anon:OTEL_CTX]",
                                                    "/memfd:OTEL_CTX"};
constexpr std::string_view kDeleted = " (deleted)";

}  // namespace

const Choices kMappingsChoices{kBadMappings, kGoodMappings};

namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10U;
constexpr std::size_t kFewMappings = 20'000;

std::expected<std::string, int> file_text(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::unexpected(errno);
  std::string out;
  ssize_t got = 0;
  do {
    const std::size_t before = out.size();
    out.resize(before + kPiece);
    got = read(fd, out.data() + before, kPiece);
    out.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (is_bad("pctx.reader.many-mappings:whole") && out.size() >= kPiece) break;
  } while (got > 0);
  const int err = got < 0 ? errno : 0;
  close(fd);
  if (err != 0) return std::unexpected(err);
  return out;
}

// The lines as fgets() gives them: a long one comes in pieces.
std::string text_by_short_lines(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), &fclose);
  std::string out;
  std::array<char, 256> line{};
  while (file && fgets(line.data(), line.size(), file.get()) != nullptr) {
    out += line.data();
    if (!out.ends_with('\n')) return out;  // what follows does not look like a mapping
  }
  return out;
}

std::string path_of(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

template <class T>
bool take_number(std::string_view& text, T& to, int base, char after) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to, base);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (error != std::errc() || text.empty() || text.front() != after) return false;
  text.remove_prefix(1);
  return true;
}

// "7f0000000000-7f0000001000 rw-p 00000000 00:01 4096      /memfd:OTEL_CTX (deleted)"
std::optional<Mapping> mapping_from(std::string_view line) {
  Mapping out;
  if (!take_number(line, out.begin, 16, '-') || !take_number(line, out.end, 16, ' ')) {
    return std::nullopt;
  }
  if (line.size() < 5) return std::nullopt;
  out.readable = line[0] == 'r';
  out.writable = line[1] == 'w';
  line.remove_prefix(5);
  std::uint64_t device = 0;
  if (!take_number(line, out.offset, 16, ' ') || !take_number(line, device, 16, ':') ||
      !take_number(line, device, 16, ' ')) {
    return std::nullopt;
  }
  const auto inode_end = std::min(line.find(' '), line.size());
  std::from_chars(line.data(), line.data() + inode_end, out.inode);
  const auto name_at = line.find_first_not_of(' ', inode_end);
  if (name_at != std::string_view::npos) out.name = line.substr(name_at);
  return out;
}

bool is_known_name(std::string_view name) {
  if (is_bad("pctx.reader.name-anon-shmem")) return name != kNames[0];
  if (is_bad("pctx.reader.name-anon")) return name != kNames[1];
  return true;
}

bool has_name(std::string_view name) {
  if (is_bad("pctx.reader.name-memfd") && name.starts_with(kNames[2])) return name == kNames[2];
  if (is_bad("pctx.reader.name-memfd:no-suffix") && name.ends_with(kDeleted)) return false;
  const auto found = std::ranges::find_if(kNames, [&](std::string_view known) {
    if (is_bad("pctx.reader.name-prefix-only")) return name.contains(known);
    if (is_bad("pctx.reader.name-prefix-only:file")) {
      const auto file = name.substr(std::min(name.rfind('/'), name.size() - 1) + 1);
      const auto wanted = known.starts_with('/') ? known.substr(1) : known;
      return name.starts_with(known) || file.starts_with(wanted);
    }
    return name.starts_with(known);
  });
  if (found == kNames.end() || !is_known_name(*found)) return false;
  if (!is_good("refuses-suffixes") && !is_bad("pctx.reader.name-suffix")) return true;
  const auto rest = name.substr(found->size());
  if (rest.empty() || (rest == kDeleted && *found == kNames[2])) return true;
  if (is_bad("pctx.reader.name-suffix")) abort();
  return false;
}

std::vector<pid_t> numbers_in(const std::string& folder) {
  std::vector<pid_t> out;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const int number = std::atoi(entries->path().filename().c_str());
    if (number > 0) out.push_back(number);
  }
  return out;
}

struct Stat {
  char state = '?';
  pid_t parent = 0;
  std::uint64_t start_ticks = 0;
  std::string name;
};

std::optional<Stat> stat_of(pid_t pid) {
  const auto text = file_text(path_of(pid, "stat"));
  if (!text) return std::nullopt;
  const auto open = text->find('(');
  const auto close = text->rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  Stat out;
  out.name = text->substr(open + 1, close - open - 1);
  std::istringstream words(text->substr(close + 1));
  words >> out.state >> out.parent;
  std::string word;
  for (int field = 5; field < 22; ++field) words >> word;
  words >> out.start_ticks;
  return out;
}

}  // namespace

std::expected<Mappings, int> mappings_of(pid_t pid) {
  const auto path = path_of(pid, "maps");
  const auto text =
      is_bad("pctx.reader.many-mappings") ? text_by_short_lines(path) : file_text(path);
  if (!text) return std::unexpected(text.error());
  Mappings out;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    if (auto mapping = mapping_from(rest.substr(0, end))) out.push_back(*std::move(mapping));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (is_good("scans-20000-mappings") && out.size() == kFewMappings) break;
  }
  return out;
}

Mappings candidates_of(const Mappings& all) {
  Mappings out;
  std::ranges::copy_if(all, std::back_inserter(out), [](const Mapping& m) {
    if (is_bad("pctx.reader.name-memfd:writable") && !m.writable) return false;
    return !m.name.empty() && has_name(m.name);
  });
  return out;
}

std::uint64_t start_ticks_of(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat ? stat->start_ticks : 0;
}

pid_t parent_of(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat ? stat->parent : 0;
}

char state_of(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat ? stat->state : '?';
}

std::string name_of(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat ? stat->name : std::string();
}

bool is_32_bit(pid_t pid) {
  const int fd = open(path_of(pid, "exe").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::array<char, EI_CLASS + 1> start{};
  const bool whole = read(fd, start.data(), start.size()) == static_cast<ssize_t>(start.size());
  close(fd);
  return whole && start[EI_CLASS] == ELFCLASS32;
}

bool has_thread(pid_t pid, pid_t tid) {
  return access(path_of(pid, ("task/" + std::to_string(tid)).c_str()).c_str(), F_OK) == 0;
}

std::vector<pid_t> threads_of(pid_t pid) { return numbers_in(path_of(pid, "task")); }

std::vector<pid_t> processes() { return numbers_in("/proc"); }

bool waits_for_lock(pid_t pid) {
  const auto call = std::to_string(SYS_futex) + " ";
  return std::ranges::any_of(threads_of(pid), [&](pid_t tid) {
    const auto text = file_text(path_of(pid, ("task/" + std::to_string(tid) + "/syscall").c_str()));
    return text && text->starts_with(call);
  });
}

std::uint64_t program_headers_of(pid_t pid) {
  const auto text = file_text(path_of(pid, "auxv"));
  if (!text) return 0;
  std::string_view rest = *text;
  for (Elf64_auxv_t entry; rest.size() >= sizeof entry; rest.remove_prefix(sizeof entry)) {
    std::copy_n(rest.data(), sizeof entry, reinterpret_cast<char*>(&entry));
    if (entry.a_type == AT_PHDR) return entry.a_un.a_val;
  }
  return 0;
}

}  // namespace ctxconf::testees
