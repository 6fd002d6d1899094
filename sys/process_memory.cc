#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "sys/access_watchdog.h"
#include "sys/fd.h"
#include "sys/memory_reader.h"
#include "sys/process.h"
#include "sys/shaking.h"

namespace ctxconf::sys {
namespace {

constexpr std::size_t kThreadsTried = 16;

// One call, at most 256 KiB: bytes copied, or -errno.
ssize_t copy_pages(pid_t tid, std::uint64_t from, std::span<std::byte> out) {
  static const auto page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  // process_vm_readv(2) promises partial transfers between iovecs only, so each page has one.
  std::array<iovec, 64> pages;
  std::size_t count = 0;
  std::size_t total = 0;
  while (total < out.size() && count < pages.size()) {
    const std::uint64_t at = from + total;
    const auto length = static_cast<std::size_t>(
        std::min<std::uint64_t>(out.size() - total, page_size - at % page_size));
    // An address of the other process, never used here.
    pages[count++] = {reinterpret_cast<void*>(at), length};  // NOLINT(performance-no-int-to-ptr)
    total += length;
  }
  const iovec local{out.data(), total};
  shake();
  const ProcessAccess access(tid);
  const ssize_t copied = process_vm_readv(tid, &local, 1, pages.data(), count, 0);
  return copied < 0 ? -errno : copied;
}

// The errors of a system call filter, of a kernel without CONFIG_CROSS_MEMORY_ATTACH, and of a
// kernel that does not let us read the process.
bool is_refused(ssize_t copied) { return copied == -EPERM || copied == -ENOSYS; }

// Through /proc/PID/mem: bytes copied, or -errno. Needs the same right, but also copies memory that
// the process itself may not read.
ssize_t copy_from_file(pid_t tid, std::uint64_t from, std::span<std::byte> out) {
  const ProcessAccess access(tid);
  const Fd memory(open(("/proc/" + std::to_string(tid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  if (!memory.is_open()) return errno == ENOENT ? -ESRCH : -errno;
  std::size_t done = 0;
  while (done < out.size()) {
    // Addresses are file offsets here; no process has an address that would be a negative offset.
    const std::uint64_t at = from + done;
    if (at > INT64_MAX) break;
    const ssize_t n =
        pread(memory.get(), out.data() + done, out.size() - done, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EIO && errno != EFAULT) return -errno;
    // The end of this file is the end of the process.
    if (n == 0) return -ESRCH;
    if (n < 0) break;
    done += static_cast<std::size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

// The same, but only for memory that the process itself may read.
ssize_t copy_readable(pid_t tid, std::uint64_t from, std::span<std::byte> out) {
  const auto text = read_maps_text(tid);
  if (!text) return -text.error().err;
  if (text->empty()) return -ESRCH;
  std::uint64_t end = from;
  for_each_mapping(*text, [&](const Result<MapEntry>& e) {
    if (!e || e->range.end().raw() <= end) return true;
    if (e->range.begin().raw() > end || !e->readable) return false;
    end = e->range.end().raw();
    return end - from < out.size();
  });
  return copy_from_file(tid, from, out.first(std::min<std::uint64_t>(out.size(), end - from)));
}

Result<std::size_t> copy_memory(pid_t tid, RemoteAddr from, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t copied = copy_pages(tid, from.raw() + done, out.subspan(done));
    if (copied == -EFAULT || copied == 0) break;  // nothing is readable from here on
    if (is_refused(copied)) {
      const ssize_t rest = copy_readable(tid, from.raw() + done, out.subspan(done));
      if (rest >= 0) return done + static_cast<std::size_t>(rest);
      if (rest == -ESRCH) return fail("open", ESRCH, "memory of pid " + std::to_string(tid));
    }
    if (copied < 0) {
      return fail("process_vm_readv", static_cast<int>(-copied), "pid " + std::to_string(tid));
    }
    done += static_cast<std::size_t>(copied);
  }
  return done;
}

// Whether the process itself may write to all of it; EFAULT: it may not.
Result<> check_writable(pid_t tid, RemoteAddr to, std::size_t size) {
  CTX_ASSIGN_OR_RETURN(text, read_maps_text(tid));
  std::uint64_t end = to.raw();
  for_each_mapping(text, [&](const Result<MapEntry>& e) {
    if (!e || e->range.end().raw() <= end) return true;
    if (e->range.begin().raw() > end || !e->writable) return false;
    end = e->range.end().raw();
    return end - to.raw() < size;
  });
  if (end - to.raw() >= size) return {};
  return fail("write memory", EFAULT, "pid " + std::to_string(tid));
}

Result<> write_to_file(pid_t tid, RemoteAddr to, std::span<const std::byte> bytes) {
  const ProcessAccess access(tid);
  const Fd memory(open(("/proc/" + std::to_string(tid) + "/mem").c_str(), O_WRONLY | O_CLOEXEC));
  if (!memory.is_open()) return fail("open mem", errno, "pid " + std::to_string(tid));
  const ssize_t n = pwrite(memory.get(), bytes.data(), bytes.size(), static_cast<off_t>(to.raw()));
  if (n < 0) return fail("write mem", errno, "pid " + std::to_string(tid));
  if (static_cast<std::size_t>(n) == bytes.size()) return {};
  return fail("write mem", EFAULT, "pid " + std::to_string(tid));
}

// Whole aligned words, which never cross a page.
Result<> write_words(pid_t tid, RemoteAddr to, std::span<const std::byte> bytes) {
  constexpr std::size_t kWord = sizeof(long);
  const ProcessAccess access(tid);
  for (std::size_t done = 0; done < bytes.size();) {
    const std::uint64_t at = to.raw() + done;
    const std::size_t skipped = at % kWord;
    const std::size_t count = std::min(kWord - skipped, bytes.size() - done);
    long word = 0;
    if (count < kWord) {
      errno = 0;
      word = ptrace(PTRACE_PEEKDATA, tid, at - skipped, nullptr);
      if (word == -1 && errno != 0) {
        return fail("PTRACE_PEEKDATA", errno, "pid " + std::to_string(tid));
      }
    }
    std::memcpy(reinterpret_cast<std::byte*>(&word) + skipped, bytes.data() + done, count);
    if (ptrace(PTRACE_POKEDATA, tid, at - skipped, word) != 0) {
      return fail("PTRACE_POKEDATA", errno, "pid " + std::to_string(tid));
    }
    done += count;
  }
  return {};
}

}  // namespace

Result<std::size_t> ProcessMemory::read_some(RemoteAddr from, std::span<std::byte> out) const {
  out = out.first(from.addressable(out.size()));
  auto copied = copy_memory(pid_, from, out);
  if (copied || copied.error().err != ESRCH) return copied;
  // If the leader has ended, the memory of its threads cannot be reached under its id.
  const auto threads = thread_list(pid_);
  if (!threads) return copied;
  for (std::size_t i = 0; i < std::min(threads->size(), kThreadsTried); ++i) {
    if ((*threads)[i] == pid_) continue;
    auto through_thread = copy_memory((*threads)[i], from, out);
    if (through_thread || through_thread.error().err != ESRCH) return through_thread;
  }
  return copied;
}

Result<std::size_t> ProcessMemory::read_mapped(RemoteAddr from, std::span<std::byte> out) const {
  out = out.first(from.addressable(out.size()));
  const ssize_t copied = copy_pages(pid_, from.raw(), out);
  if (is_refused(copied)) {
    const ssize_t through_file = copy_from_file(pid_, from.raw(), out);
    if (through_file >= 0) return static_cast<std::size_t>(through_file);
  }
  return read_some(from, out);
}

Result<std::array<std::size_t, 2>> ProcessMemory::read_two(const Part& first,
                                                           const Part& second) const {
  const std::array<iovec, 2> local{
      {{first.out.data(), first.out.size()}, {second.out.data(), second.out.size()}}};
  const auto remote = [](const Part& part) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process
    return iovec{reinterpret_cast<void*>(part.from.raw()), part.out.size()};
  };
  const std::array<iovec, 2> theirs{remote(first), remote(second)};
  const ssize_t copied = [&] {
    const ProcessAccess access(pid_);
    return process_vm_readv(pid_, local.data(), local.size(), theirs.data(), theirs.size(), 0);
  }();
  if (std::cmp_equal(copied, first.out.size() + second.out.size())) {
    return std::array{first.out.size(), second.out.size()};
  }
  return MemoryReader::read_two(first, second);
}

Result<> write_memory(pid_t tid, RemoteAddr to, std::span<const std::byte> bytes) {
  const iovec ours{const_cast<std::byte*>(bytes.data()), bytes.size()};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process
  const iovec theirs{reinterpret_cast<void*>(to.raw()), bytes.size()};
  ssize_t wrote = 0;
  {
    const ProcessAccess access(tid);
    wrote = process_vm_writev(tid, &ours, 1, &theirs, 1, 0);
  }
  if (wrote < 0 && is_refused(-errno)) {
    // What follows also writes where the process itself may not.
    if (auto writable = check_writable(tid, to, bytes.size()); !writable) return writable;
    if (write_to_file(tid, to, bytes)) return {};
    return write_words(tid, to, bytes);
  }
  if (wrote < 0) return fail("process_vm_writev", errno, "pid " + std::to_string(tid));
  if (static_cast<std::size_t>(wrote) == bytes.size()) return {};
  return fail("process_vm_writev", EFAULT, "pid " + std::to_string(tid));
}

}  // namespace ctxconf::sys
