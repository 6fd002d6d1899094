// A kernel for tests: fails chosen calls, tracks descriptors and mappings, and reads the header as
// a reader would during every call. Memory is real and really unmapped, so a stale access crashes.
#pragma once

#include <errno.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/process_header.h"

namespace ctxconf::writer {

class ScriptedKernel {
 public:
  static constexpr std::size_t kPage = 4096;

  ScriptedKernel() = default;
  ScriptedKernel(const ScriptedKernel&) = delete;
  ScriptedKernel& operator=(const ScriptedKernel&) = delete;
  ~ScriptedKernel() {
    for (const auto& [at, mapping] : mappings_) ::munmap(at, mapping.size);
  }

  // The nth call from now on (0 is the next one), with this name if one is given, returns -err.
  void fail(std::string call, int nth, int err) { faults_.push_back({std::move(call), nth, err}); }
  void fail_always(std::string call, int err) { always_[std::move(call)] = err; }
  void mend() {
    faults_.clear();
    always_.clear();
  }
  // The clock's next values; the last one repeats.
  void set_clock(std::vector<std::uint64_t> values) { clock_ = std::move(values); }
  void set_process_id(pid_t pid) { pid_ = pid; }
  // Called in each call after it was logged.
  void watch(std::function<void(std::string_view)> watcher) { watcher_ = std::move(watcher); }

  const std::vector<std::string>& log() const { return log_; }
  void forget_log() { log_.clear(); }
  std::size_t open() const { return open_.size(); }
  std::size_t mapped() const { return mappings_.size(); }
  void (*fork_handler() const)() { return fork_handler_; }

  // What a reader gets: the payload of the only valid header, if there is one.
  std::optional<std::string> visible() const {
    std::optional<std::string> found;
    for (const auto& [at, mapping] : mappings_) {
      const auto h = header_of(at, mapping);
      if (!h || !abi::is_valid(*h)) continue;
      EXPECT_FALSE(found) << "two contexts";
      EXPECT_TRUE(holds(h->payload, h->payload_size))
          << "a valid header whose payload is not mapped";
      if (!holds(h->payload, h->payload_size)) continue;
      found.emplace(std::bit_cast<const char*>(h->payload), h->payload_size);
    }
    return found;
  }
  std::uint64_t timestamp() const {
    for (const auto& [at, mapping] : mappings_) {
      const auto h = header_of(at, mapping);
      if (h && h->signature == abi::kSignature) return h->monotonic_published_at_ns;
    }
    return 0;
  }

  // What fork does to marked memory; from here on the tracking is for the child.
  void become_child() {
    for (auto it = mappings_.begin(); it != mappings_.end();) {
      if (it->second.dont_fork) {
        ::munmap(it->first, it->second.size);
        it = mappings_.erase(it);
      } else {
        ++it;
      }
    }
  }

  std::size_t page_size() const { return kPage; }

  long memfd_create(const char* name, unsigned flags) {
    EXPECT_STREQ(name, "OTEL_CTX");
    if (const long r = enter("memfd_create " + std::to_string(flags)); r < 0) return r;
    open_.insert(next_fd_);
    return next_fd_++;
  }
  long resize(int fd, std::size_t size) {
    if (const long r = enter("resize"); r < 0) return r;
    EXPECT_TRUE(open_.contains(fd));
    sizes_[fd] = size;
    return 0;
  }
  long map(std::size_t size, int fd, void** at) {
    if (const long r = enter(fd < 0 ? "map anonymous" : "map memfd"); r < 0) return r;
    EXPECT_TRUE(fd < 0 || sizes_[fd] >= size) << "mapped beyond the end of the file";
    void* const mapped =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return -errno;
    mappings_[mapped] = {size, false};
    *at = mapped;
    return 0;
  }
  long unmap(void* at, std::size_t size) {
    if (const long r = enter("unmap"); r < 0) return r;
    const auto it = mappings_.find(at);
    EXPECT_TRUE(it != mappings_.end() && it->second.size == size) << "not a mapping of ours";
    if (it == mappings_.end()) return -EINVAL;
    mappings_.erase(it);
    visible();
    return ::munmap(at, size) == 0 ? 0 : -errno;
  }
  // As on Linux: the descriptor is gone even if this fails.
  long close(int fd) {
    EXPECT_EQ(open_.erase(fd), 1U);
    return enter("close");
  }
  long dont_fork(void* at, std::size_t size) {
    if (const long r = enter("dont_fork"); r < 0) return r;
    const auto it = mappings_.find(at);
    EXPECT_TRUE(it != mappings_.end() && it->second.size == size);
    if (it != mappings_.end()) it->second.dont_fork = true;
    return 0;
  }
  long wipe_on_fork(void*, std::size_t) { return enter("wipe_on_fork"); }
  long name(void* at, std::size_t size, const char* name) {
    EXPECT_STREQ(name, "OTEL_CTX");
    const auto it = mappings_.find(at);
    EXPECT_TRUE(it != mappings_.end() && it->second.size == size) << "not the whole mapping";
    EXPECT_TRUE(visible()) << "named before it could be read";
    return enter("name");
  }
  long boot_time(std::uint64_t* ns) {
    if (const long r = enter("boot_time"); r < 0) return r;
    *ns = clock_.front();
    if (clock_.size() > 1) clock_.erase(clock_.begin());
    return 0;
  }
  pid_t process_id() const { return pid_; }
  long at_fork(void (*in_child)()) {
    if (const long r = enter("at_fork"); r < 0) return r;
    EXPECT_EQ(fork_handler_, nullptr) << "installed twice";
    fork_handler_ = in_child;
    return 0;
  }
  void yield() { ADD_FAILURE() << "waits for a thread that is not there"; }

 private:
  struct Mapping {
    std::size_t size;
    bool dont_fork;
  };
  struct Fault {
    std::string call;
    int nth;
    int err;
  };

  static std::optional<abi::ProcessHeader> header_of(const void* at, const Mapping& mapping) {
    return abi::decode_process_header({static_cast<const std::byte*>(at), mapping.size});
  }
  bool holds(std::uint64_t address, std::uint64_t size) const {
    for (const auto& [at, mapping] : mappings_) {
      const auto start = reinterpret_cast<std::uintptr_t>(at);
      if (address >= start && size <= mapping.size && address - start <= mapping.size - size) {
        return true;
      }
    }
    return false;
  }

  long enter(const std::string& call) {
    log_.push_back(call);
    // A reader may look during any system call.
    visible();
    for (const auto& [at, mapping] : mappings_) {
      if (mapping.dont_fork) continue;
      for (std::size_t i = 0; i < mapping.size; ++i) {
        EXPECT_EQ(static_cast<const unsigned char*>(at)[i], 0)
            << "byte " << i << " written before MADV_DONTFORK";
      }
    }
    if (watcher_) watcher_(call);
    long result = 0;
    for (Fault& fault : faults_) {
      if (call.starts_with(fault.call) && fault.nth-- == 0) result = -fault.err;
    }
    for (const auto& [prefix, err] : always_) {
      if (call.starts_with(prefix)) result = -err;
    }
    return result;
  }

  std::vector<Fault> faults_;
  std::map<std::string, int> always_;
  std::vector<std::uint64_t> clock_ = {1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000};
  std::vector<std::string> log_;
  std::function<void(std::string_view)> watcher_;
  std::set<int> open_;
  std::map<int, std::size_t> sizes_;
  std::map<void*, Mapping> mappings_;
  void (*fork_handler_)() = nullptr;
  int next_fd_ = 3;
  pid_t pid_ = 100;
};

}  // namespace ctxconf::writer
