#include "sys/process.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "sys/access_watchdog.h"
#include "sys/fd.h"
#include "sys/proc_dir.h"
#include "sys/proc_text.h"

namespace ctxconf::sys {
namespace {

constexpr std::uint64_t kMapsLimit = 256ULL << 20U;
constexpr std::uint64_t kSmapsLimit = 1ULL << 30U;
constexpr std::size_t kCommandLineLimit = 64U << 10U;
constexpr std::size_t kSmallFileLimit = 64U << 10U;
constexpr std::size_t kEnvironmentLimit = 256U << 10U;
// A process can add mappings as fast as they are walked, so the walk is bounded; so is the text.
constexpr std::uint64_t kMostQueries = kMapsLimit / 64;
constexpr int kWalksTried = 5;
constexpr std::string_view kVmFlagsKey = "VmFlags:";
constexpr std::size_t kProcessListLimit = 1U << 22U;  // PID_MAX_LIMIT of the kernel

template <class T>
bool to_number(std::string_view text, int base, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size();
}

// How a walk over the mappings of one program image ended.
enum class Walk {
  kComplete,
  kNoMemory,  // a zombie, a kernel thread
  kLost,      // the image disappeared: the process ended or executed another program
};

// One open in the usual case; the rest finds the right errno.
Result<Fd> open_file_of(pid_t pid, const char* name) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
  if (Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)); fd.is_open()) return fd;
  CTX_ASSIGN_OR_RETURN(dir, ProcDir::open(pid));
  return dir.open_file(name);
}

// Opens `name` and walks it; starts again if an exec replaced the image meanwhile.
Result<> walk_image(pid_t pid, const char* name,
                    const std::function<Result<Walk>(const Fd&)>& walk) {
  for (int attempt = 0; attempt < kWalksTried; ++attempt) {
    CTX_ASSIGN_OR_RETURN(fd, open_file_of(pid, name));
    CTX_ASSIGN_OR_RETURN(outcome, walk(fd));
    // Most leaders live: check the leader only if it shows no memory.
    if (outcome == Walk::kNoMemory) {
      CTX_ASSIGN_OR_RETURN(living, ProcDir::open_living(pid));
      CTX_ASSIGN_OR_RETURN(its, living.open_file(name));
      CTX_ASSIGN_OR_RETURN(again, walk(its));
      outcome = again;
    }
    if (outcome == Walk::kComplete) return {};
    if (outcome == Walk::kNoMemory && attempt == 0) return {};
    if (outcome == Walk::kNoMemory) {
      return fail("read mappings", ESRCH, process_subject(pid) + " ended while it was read");
    }
  }
  return fail("read mappings", EAGAIN, process_subject(pid) + " keeps executing new programs");
}

// A descriptor of maps stays with the memory that it was opened for. When that memory is gone, a
// read ends early without an error, and a read from the start returns nothing.
Result<Walk> outcome_of_text(const Fd& fd, bool had_text) {
  if (!had_text) return Walk::kNoMemory;
  char c = 0;
  const ssize_t n = pread(fd.get(), &c, 1, 0);
  return n == 1 ? Walk::kComplete : Walk::kLost;
}

// Passes all of a text on as whole lines until `take` returns false.
Result<Walk> walk_lines(const Fd& fd, std::uint64_t limit,
                        const std::function<bool(std::string_view)>& take) {
  LinePieces pieces;
  std::uint64_t total = 0;
  while (true) {
    const auto n = read_piece(fd, pieces.space());
    if (!n && n.error().err == ESRCH) return total == 0 ? Walk::kNoMemory : Walk::kLost;
    if (!n) return std::unexpected(n.error());
    if (*n == 0) break;
    total += *n;
    if (total > limit) return fail("read mappings", E2BIG, std::to_string(limit) + " bytes");
    if (!take(pieces.added(*n))) return Walk::kComplete;
  }
  take(pieces.rest());
  return outcome_of_text(fd, total != 0);
}

// include/uapi/linux/fs.h of Linux 6.11.
struct procmap_query {
  std::uint64_t size;
  std::uint64_t query_flags;
  std::uint64_t query_addr;
  std::uint64_t vma_start;
  std::uint64_t vma_end;
  std::uint64_t vma_flags;
  std::uint64_t vma_page_size;
  std::uint64_t vma_offset;
  std::uint64_t inode;
  std::uint32_t dev_major;
  std::uint32_t dev_minor;
  std::uint32_t vma_name_size;
  std::uint32_t build_id_size;
  std::uint64_t vma_name_addr;
  std::uint64_t build_id_addr;
};
static_assert(sizeof(procmap_query) == 104);

constexpr unsigned long kProcmapQuery = _IOWR('f', 17, procmap_query);
constexpr std::uint64_t kVmaReadable = 0x01;
constexpr std::uint64_t kVmaWritable = 0x02;
constexpr std::uint64_t kVmaExecutable = 0x04;
constexpr std::uint64_t kVmaShared = 0x08;
constexpr std::uint64_t kCoveringOrNextVma = 0x10;
constexpr std::uint64_t kFileBackedVma = 0x20;

// maps escapes the newlines of a path; the query does not.
std::string escaped(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '\n') {
      out += "\\012";
    } else {
      out += c;
    }
  }
  return out;
}

// Nothing if the kernel cannot answer everything, so that the text must be read.
Result<std::optional<Walk>> walk_query(const Fd& maps, const MappingFinder& finder,
                                       std::vector<MapEntry>& found) {
  std::array<char, PATH_MAX> name;
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < kMostQueries; ++i) {
    procmap_query query{};
    query.size = sizeof query;
    query.query_flags = kVmaReadable | kVmaWritable | kFileBackedVma | kCoveringOrNextVma;
    query.query_addr = next;
    query.vma_name_size = name.size();
    query.vma_name_addr = reinterpret_cast<std::uintptr_t>(name.data());
    if (ioctl(maps.get(), kProcmapQuery, &query) != 0) {
      switch (errno) {
        case EINTR:
          continue;
        case ENOENT:  // no mapping at or after this address
          return Walk::kComplete;
        case ESRCH:
          return i == 0 ? Walk::kNoMemory : Walk::kLost;
        case ENOTTY:        // before Linux 6.11
        case EINVAL:        // not this kernel's /proc
        case ENAMETOOLONG:  // a path of more than PATH_MAX
          return std::nullopt;
        default:
          return fail("PROCMAP_QUERY", errno, "");
      }
    }
    if (query.vma_end <= next) return std::nullopt;
    next = query.vma_end;
    const std::size_t size = std::min<std::size_t>(query.vma_name_size, name.size());
    const std::string_view raw(name.data(), size == 0 ? 0 : size - 1);  // the size includes the NUL
    const auto range =
        RemoteRange::from_bounds(RemoteAddr(query.vma_start), RemoteAddr(query.vma_end));
    if (!range) return std::nullopt;
    std::string shown = escaped(raw);
    if (!finder.matches(shown)) continue;
    found.push_back({*range, (query.vma_flags & kVmaReadable) != 0,
                     (query.vma_flags & kVmaWritable) != 0, (query.vma_flags & kVmaExecutable) != 0,
                     (query.vma_flags & kVmaShared) != 0, query.vma_offset, query.dev_major,
                     query.dev_minor, query.inode, std::move(shown)});
  }
  return fail("PROCMAP_QUERY", E2BIG, std::to_string(kMostQueries) + " mappings");
}

bool is_file_backed(const MapEntry& e) {
  return e.inode != 0 || e.dev_major != 0 || e.dev_minor != 0;
}

// The value in a line of `status`-like text: "boottime       100000         0".
std::string_view line_after(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) return line.substr(key.size());
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return {};
}

std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

// CLOCK_BOOTTIME in the time namespace for the children of `dir`, relative to the machine's.
std::int64_t boottime_offset(const ProcDir& dir) {
  const auto text = dir.read_file("timens_offsets", kSmallFileLimit);
  if (!text) return 0;
  std::string_view line = line_after(*text, "boottime ");
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;
  if (!to_number(take_word(line), 10, seconds) || !to_number(take_word(line), 10, nanoseconds)) {
    return 0;
  }
  std::int64_t total = 0;
  if (__builtin_mul_overflow(seconds, 1'000'000'000, &total) ||
      __builtin_add_overflow(total, nanoseconds, &total)) {
    return 0;
  }
  return total;
}

// Theirs - ours. The kernel gives the offsets of the namespace for children. That is the process's
// own namespace unless it has unshared one without executing a program since.
std::int64_t boottime_difference(const ProcDir& dir) {
  const auto self = ProcDir::open(getpid());
  if (!self) return 0;
  const auto theirs = dir.read_link("ns/time");
  const auto ours = self->read_link("ns/time");
  if (!theirs || !ours || *theirs == *ours) return 0;
  std::int64_t difference = 0;
  return __builtin_sub_overflow(boottime_offset(dir), boottime_offset(*self), &difference)
             ? 0
             : difference;
}

std::uint32_t personality_in(const ProcDir& dir) {
  const auto text = dir.read_file("personality", kSmallFileLimit);
  if (!text) return 0;
  std::uint32_t personality = 0;
  const std::string_view digits = std::string_view(*text).substr(0, text->find('\n'));
  return to_number(digits, 16, personality) ? personality : 0;
}

std::vector<std::string> split_at_nul(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find('\0'));
    out.emplace_back(word);
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return out;
}

// Collects the VmFlags lines of some entries from smaps text that arrives in whole lines.
class VmFlagsReader {
 public:
  explicit VmFlagsReader(const std::vector<MapEntry>& entries)
      : entries_(&entries), by_address_(entries.size()), flags_(entries.size()) {
    std::iota(by_address_.begin(), by_address_.end(), std::size_t{0});
    std::sort(by_address_.begin(), by_address_.end(), [&](std::size_t a, std::size_t b) {
      return entries[a].range.begin() < entries[b].range.begin();
    });
  }

  // False when nothing more can be found.
  bool add(std::string_view lines) {
    while (!lines.empty() && !done_) {
      const std::string_view line = lines.substr(0, lines.find('\n'));
      add_line(line);
      lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    }
    return !done_;
  }

  std::vector<std::optional<std::string>> take() && { return std::move(flags_); }

 private:
  void add_line(std::string_view line) {
    if (line.empty()) return;
    const bool is_header = (line.front() >= '0' && line.front() <= '9') ||
                           (line.front() >= 'a' && line.front() <= 'f');
    if (is_header) {
      current_.reset();
      if (auto entry = parse_maps_line(line)) current_ = std::move(*entry);
      done_ = by_address_.empty() ||
              (current_ && (*entries_)[by_address_.back()].range.begin() < current_->range.begin());
      return;
    }
    if (!current_ || !line.starts_with(kVmFlagsKey)) return;
    line.remove_prefix(std::min(line.find_first_not_of(' ', kVmFlagsKey.size()), line.size()));
    line = line.substr(0, line.find_last_not_of(' ') + 1);
    auto i = std::partition_point(by_address_.begin(), by_address_.end(), [&](std::size_t e) {
      return (*entries_)[e].range.begin() < current_->range.begin();
    });
    for (; i != by_address_.end(); ++i) {
      const MapEntry& wanted = (*entries_)[*i];
      if (wanted.range.begin() != current_->range.begin()) break;
      if (wanted.range == current_->range && wanted.inode == current_->inode) flags_[*i] = line;
    }
  }

  const std::vector<MapEntry>* entries_;
  std::vector<std::size_t> by_address_;
  std::vector<std::optional<std::string>> flags_;
  std::optional<MapEntry> current_;
  bool done_ = false;
};

std::uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

Result<ProcessFacts> process_facts(pid_t pid) {
  CTX_ASSIGN_OR_RETURN(process, ProcDir::open(pid));
  CTX_ASSIGN_OR_RETURN(stat, process.read_stat());
  CTX_ASSIGN_OR_RETURN(living, ProcDir::open_living(pid));
  CTX_ASSIGN_OR_RETURN(living_stat, living.read_stat());

  ProcessFacts facts;
  facts.pid = pid;
  facts.parent = stat.parent;
  facts.start_ticks = stat.start_ticks;
  facts.state = living_stat.state;

  auto executable = living.read_link("exe");
  if (executable) {
    facts.executable = std::move(*executable);
  } else if (const int err = executable.error().err; err == EACCES || err == EPERM) {
    return std::unexpected(std::move(executable).error());
  } else if (err == ENOENT && !is_kernel_thread(living_stat)) {
    // A process that is becoming a zombie has lost its memory, and with it this link.
    facts.state = 'Z';
  }  // else a kernel thread or a path longer than PATH_MAX: no name

  if (const auto ident = living.read_file("exe", 6); ident && ident->starts_with("\177ELF")) {
    facts.elf64 = ident->size() <= 4 || (*ident)[4] != 1;          // ELFCLASS32
    facts.little_endian = ident->size() <= 5 || (*ident)[5] != 2;  // ELFDATA2MSB
  }
  const ProcessAccess access(pid);  // its command line is in its memory
  if (const auto text = living.read_file("cmdline", kCommandLineLimit)) {
    facts.command_line = split_at_nul(*text);
  }
  facts.personality = personality_in(living);
  facts.boottime_offset_ns = boottime_difference(living);

  CTX_RETURN_IF_ERROR(
      process.read_stat());  // check that nothing was missing above only because the process ended
  return facts;
}

std::uint32_t personality_of(pid_t pid) {
  const auto living = ProcDir::open_living(pid);
  return living ? personality_in(*living) : 0;
}

std::string command_name(pid_t pid) {
  const auto process = ProcDir::open(pid);
  if (!process) return {};
  auto name = process->read_file("comm", kSmallFileLimit);
  if (!name) return {};
  if (name->ends_with('\n')) name->pop_back();
  return *std::move(name);
}

char thread_state(pid_t tid) {
  const auto thread = ProcDir::open(tid);
  if (!thread) return '?';
  const auto stat = thread->read_stat();
  return stat ? stat->state : '?';
}

std::optional<std::string> environment_variable(pid_t pid, std::string_view name) {
  const auto living = ProcDir::open_living(pid);
  if (!living) return std::nullopt;
  const ProcessAccess access(pid);
  const auto text = living->read_file("environ", kEnvironmentLimit);
  if (!text) return std::nullopt;
  for (std::string& variable : split_at_nul(*text)) {
    if (variable.starts_with(name) && variable.substr(name.size(), 1) == "=") {
      return variable.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

Result<std::string> read_maps_text(pid_t pid) {
  std::string text;
  CTX_RETURN_IF_ERROR(walk_image(pid, "maps", [&](const Fd& fd) -> Result<Walk> {
    CTX_ASSIGN_OR_RETURN(whole, read_start(fd, kMapsLimit + 1));
    if (whole.size() > kMapsLimit) {
      return fail("read mappings", E2BIG, std::to_string(kMapsLimit) + " bytes");
    }
    text = std::move(whole);
    return outcome_of_text(fd, !text.empty());
  }));
  return text;
}

std::optional<MapEntry> mapping_at(pid_t pid, RemoteAddr at) {
  std::optional<MapEntry> found;
  const auto walked = walk_image(pid, "maps", [&](const Fd& fd) -> Result<Walk> {
    found.reset();
    return walk_lines(fd, kMapsLimit, [&](std::string_view lines) {
      bool beyond = false;
      for_each_mapping(lines, [&](Result<MapEntry> entry) {
        if (!entry) return true;
        beyond = entry->range.end() > at;
        if (entry->range.contains(at)) found = *std::move(entry);
        return !beyond;
      });
      return !beyond;
    });
  });
  return walked ? found : std::nullopt;
}

Result<std::vector<MapEntry>> find_memfd_mappings(pid_t pid,
                                                  const std::vector<std::string>& prefixes,
                                                  MapSearch how) {
  std::vector<MapEntry> found;
  if (how == MapSearch::kQuery) {
    const MappingFinder finder(prefixes);
    bool answered = true;
    CTX_RETURN_IF_ERROR(walk_image(pid, "maps", [&](const Fd& fd) -> Result<Walk> {
      found.clear();
      CTX_ASSIGN_OR_RETURN(outcome, walk_query(fd, finder, found));
      answered = outcome.has_value();
      return outcome.value_or(Walk::kComplete);
    }));
    if (answered) return found;
  }
  CTX_ASSIGN_OR_RETURN(all, find_all_mappings(pid, prefixes));
  std::erase_if(all,
                [](const MapEntry& e) { return !e.readable || !e.writable || !is_file_backed(e); });
  return std::move(all);
}

Result<std::vector<MapEntry>> find_all_mappings(pid_t pid,
                                                const std::vector<std::string>& prefixes) {
  const MappingFinder finder(prefixes);
  std::vector<MapEntry> found;
  CTX_RETURN_IF_ERROR(walk_image(pid, "maps", [&](const Fd& fd) -> Result<Walk> {
    found.clear();
    return walk_lines(fd, kMapsLimit, [&](std::string_view lines) {
      finder.find_in(lines, found);
      return true;
    });
  }));
  return found;
}

std::vector<std::optional<std::string>> parse_vm_flags(std::string_view smaps_text,
                                                       const std::vector<MapEntry>& entries) {
  VmFlagsReader reader(entries);
  reader.add(smaps_text);
  return std::move(reader).take();
}

Result<std::vector<std::optional<std::string>>> vm_flags(pid_t pid,
                                                         const std::vector<MapEntry>& entries) {
  std::vector<std::optional<std::string>> flags(entries.size());
  const auto walked = walk_image(pid, "smaps", [&](const Fd& fd) -> Result<Walk> {
    VmFlagsReader reader(entries);
    const auto outcome =
        walk_lines(fd, kSmapsLimit, [&](std::string_view lines) { return reader.add(lines); });
    flags = std::move(reader).take();
    return outcome;
  });
  // ENOENT: a kernel without CONFIG_PROC_PAGE_MONITOR.
  if (!walked && walked.error().err != ENOENT) return std::unexpected(walked.error());
  return flags;
}

Result<std::vector<RemoteRange>> filled_pages(pid_t pid, RemoteRange range) {
  constexpr std::uint64_t present_or_swapped = std::uint64_t{3} << 62U;
  CTX_ASSIGN_OR_RETURN(living, ProcDir::open_living(pid));
  CTX_ASSIGN_OR_RETURN(pagemap, living.open_file("pagemap"));
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  std::array<std::uint64_t, 4096> words;
  std::vector<RemoteRange> out;
  std::uint64_t at = range.begin().raw() - range.begin().raw() % page;
  while (at < range.end().raw()) {
    const auto left = (range.end().raw() - at + page - 1) / page;
    const auto ask = std::min<std::uint64_t>(left, words.size());
    const ssize_t n = pread(pagemap.get(), words.data(), ask * sizeof words[0],
                            static_cast<off_t>(at / page * sizeof words[0]));
    if (n < 0) return fail("read pagemap", errno, process_subject(pid));
    const auto got = static_cast<std::size_t>(n) / sizeof words[0];
    if (got == 0) return fail("read pagemap", ESRCH, process_subject(pid));
    for (std::size_t i = 0; i < got; ++i, at += page) {
      if ((words[i] & present_or_swapped) == 0) continue;
      const auto begin = std::max(RemoteAddr(at), range.begin());
      const auto end = std::min(RemoteAddr(at + page), range.end());
      if (!out.empty() && out.back().end() == begin) {
        out.back() = *RemoteRange::from_bounds(out.back().begin(), end);
      } else {
        out.push_back(*RemoteRange::from_bounds(begin, end));
      }
    }
  }
  return out;
}

Result<std::vector<FdLink>> descriptors_to(pid_t pid, std::string_view prefix) {
  CTX_ASSIGN_OR_RETURN(living, ProcDir::open_living(pid));
  CTX_ASSIGN_OR_RETURN(descriptors, living.numbers_in("fd", kMostListed));
  std::vector<FdLink> out;
  for (const int fd : descriptors) {
    auto link = living.read_link(("fd/" + std::to_string(fd)).c_str());
    // Closed meanwhile, or a path longer than PATH_MAX.
    if (link && link->starts_with(prefix)) out.push_back({fd, std::move(*link)});
  }
  return out;
}

Result<std::string> descriptor_link(pid_t pid, int fd) {
  CTX_ASSIGN_OR_RETURN(process, ProcDir::open(pid));
  return process.read_link(("fd/" + std::to_string(fd)).c_str());
}

Result<unsigned> seccomp_filters(pid_t tid) {
  CTX_ASSIGN_OR_RETURN(process, ProcDir::open(tid));
  CTX_ASSIGN_OR_RETURN(status, process.read_file("status", kSmallFileLimit));
  const auto count = status_number<unsigned>(status, "Seccomp_filters");
  if (!count) return fail("count seccomp filters", ENOTSUP, process_subject(tid));
  return *count;
}

Result<pid_t> own_number(pid_t pid) {
  CTX_ASSIGN_OR_RETURN(process, ProcDir::open(pid));
  CTX_ASSIGN_OR_RETURN(status, process.read_file("status", kSmallFileLimit));
  // One number per namespace, its own last.
  const std::string_view numbers = status_field(status, "NSpid").value_or("");
  const auto number = leading_number<pid_t>(numbers.substr(numbers.rfind('\t') + 1));
  if (!number) return fail("number in a pid namespace", ENOTSUP, process_subject(pid));
  return *number;
}

Result<bool> has_default_action(pid_t tid, int signo) {
  CTX_ASSIGN_OR_RETURN(process, ProcDir::open(tid));
  CTX_ASSIGN_OR_RETURN(status, process.read_file("status", kSmallFileLimit));
  for (const std::string_view key : {"SigIgn", "SigCgt"}) {
    const auto set = status_number<std::uint64_t>(status, key, 16);
    if (!set) return fail("action of a signal", ENOTSUP, process_subject(tid));
    if ((*set >> (static_cast<unsigned>(signo) - 1) & 1U) != 0) return false;
  }
  return true;
}

Result<std::vector<pid_t>> thread_list(pid_t pid) {
  CTX_ASSIGN_OR_RETURN(process, ProcDir::open(pid));
  return process.numbers_in("task", kMostListed);
}

// The kernel counts each thread as a link to the directory, in addition to its own two.
Result<std::size_t> thread_count(pid_t tid) {
  struct stat directory{};
  if (tid <= 0) return fail("count threads", ESRCH, process_subject(tid));
  if (stat(("/proc/" + std::to_string(tid) + "/task").c_str(), &directory) != 0) {
    return fail("count threads", errno == ENOENT ? ESRCH : errno, process_subject(tid));
  }
  if (directory.st_nlink <= 2) return fail("count threads", ENOTSUP, process_subject(tid));
  return directory.st_nlink - 2;
}

Result<std::vector<pid_t>> process_list() {
  CTX_ASSIGN_OR_RETURN(all, ProcDir::open_root());
  return all.numbers_in(".", kProcessListLimit);
}

std::uint64_t boottime_now_ns() { return now_ns(CLOCK_BOOTTIME); }
std::uint64_t realtime_now_ns() { return now_ns(CLOCK_REALTIME); }

}  // namespace ctxconf::sys
