// Reads through io_uring: a thread of the kernel makes them, as the probes of a reader in the
// kernel do, so that no system call tells when.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "conformance/testees/reader/memory.h"

namespace ctxconf::testees {
namespace {

// A ring of one entry, used by one thread at a time.
class Ring {
 public:
  Ring() {
    io_uring_params p{};
    fd_ = static_cast<int>(syscall(SYS_io_uring_setup, 1, &p));
    if (fd_ < 0) return;
    submissions_ = map(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    completions_ = map(p.cq_off.cqes + p.cq_entries * sizeof(io_uring_cqe), IORING_OFF_CQ_RING);
    entry_ = reinterpret_cast<io_uring_sqe*>(map(sizeof(io_uring_sqe), IORING_OFF_SQES));
    if (submissions_ == nullptr || completions_ == nullptr || entry_ == nullptr) fd_ = -1;
    offsets_ = p;
  }

  bool works() const { return fd_ >= 0; }

  // What read() would return.
  std::int64_t read(int file, std::uint64_t at, void* to, std::uint32_t size) {
    *entry_ = {};
    entry_->opcode = IORING_OP_READ;
    entry_->fd = file;
    entry_->off = at;
    entry_->addr = reinterpret_cast<std::uintptr_t>(to);
    entry_->len = size;
    word(submissions_, offsets_.sq_off.array).store(0);
    word(submissions_, offsets_.sq_off.tail).fetch_add(1);
    if (syscall(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0) < 0) return -1;
    const auto head = word(completions_, offsets_.cq_off.head).load();
    if (head == word(completions_, offsets_.cq_off.tail).load()) return -1;
    const auto* const all =
        reinterpret_cast<const io_uring_cqe*>(completions_ + offsets_.cq_off.cqes);
    const auto mask = word(completions_, offsets_.cq_off.ring_mask).load();
    const std::int64_t result = all[head & mask].res;
    word(completions_, offsets_.cq_off.head).store(head + 1);
    return result;
  }

 private:
  char* map(std::size_t size, off_t what) const {
    void* const at =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, what);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
  }
  static std::atomic_ref<std::uint32_t> word(char* ring, std::uint32_t offset) {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(ring + offset));
  }

  int fd_ = -1;
  char* submissions_ = nullptr;
  char* completions_ = nullptr;
  io_uring_sqe* entry_ = nullptr;
  io_uring_params offsets_{};
};

// The only ring of this process.
Ring& ring() {
  static Ring only;
  return only;
}

}  // namespace

bool ring_is_available() { return ring().works(); }

bool ring_copy(int file, std::uint64_t at, void* to, std::size_t size) {
  return file >= 0 && ring().works() &&
         ring().read(file, at, to, static_cast<std::uint32_t>(size)) ==
             static_cast<std::int64_t>(size);
}

}  // namespace ctxconf::testees
