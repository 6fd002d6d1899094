#include "conformance/testees/reader/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace ctxconf::testees {
namespace {

constexpr Choice kGoodMemory[] = {
    {"reads-mem-file", "reads /proc/PID/mem"},
    {"peeks", "stops the process and reads by ptrace, a word at a time"},
    {"reads-by-ring", "reads without a system call for each read"},
};

}  // namespace

const Choices kMemoryChoices{{}, kGoodMemory};

bool uses_ring() {
  return is_good("reads-by-ring") || is_bad("tctx.reader.one-stop-per-sample:ring");
}

namespace {

bool uses_file() { return is_good("reads-mem-file") || uses_ring(); }

}  // namespace

Memory::Memory(pid_t pid, pid_t stopped) : pid_(pid), stopped_(stopped) {
  if (uses_file()) {
    file_ = open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (is_good("peeks") && stopped == 0) {
    own_stop_ = StoppedThread::stop(pid);
    if (own_stop_) stopped_ = pid;
  }
}

Memory::~Memory() {
  if (file_ >= 0) close(file_);
}

bool Memory::copy(std::uint64_t at, void* to, std::size_t size) const {
  if (size == 0) return true;
  const auto wanted = static_cast<ssize_t>(size);
  if (is_good("peeks")) return peek(at, static_cast<char*>(to), size);
  if (uses_ring()) return ring_copy(file_, at, to, size);
  if (uses_file()) return pread(file_, to, size, static_cast<off_t>(at)) == wanted;
  const iovec local{to, size};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process
  const iovec remote{reinterpret_cast<void*>(at), size};
  return process_vm_readv(pid_, &local, 1, &remote, 1, 0) == wanted;
}

bool Memory::peek(std::uint64_t at, char* to, std::size_t size) const {
  if (stopped_ == 0) return false;
  for (std::size_t done = 0; done < size;) {
    // Whole words, so that no word crosses into another page.
    const std::uint64_t word_at = (at + done) / sizeof(long) * sizeof(long);
    errno = 0;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the other process
    const long word = ptrace(PTRACE_PEEKDATA, stopped_, reinterpret_cast<void*>(word_at), nullptr);
    if (errno != 0) return false;
    const std::size_t skipped = at + done - word_at;
    const std::size_t part = std::min(sizeof word - skipped, size - done);
    std::memcpy(to + done, reinterpret_cast<const char*>(&word) + skipped, part);
    done += part;
  }
  return true;
}

}  // namespace ctxconf::testees
