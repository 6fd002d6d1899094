// An adapter with a small publisher of process context, wrong in one way (--bad ROW-ID[:HOW]) or
// legal in an unusual one (--good NAME); for `ctxconf selftest`.
#include <errno.h>
#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "abi/process_header.h"
#include "conformance/testees/adapter_loop.h"
#include "opentelemetry/proto/processcontext/v1development/process_context.pb.h"

namespace ctxconf::adapter {
namespace {

using opentelemetry::proto::processcontext::v1development::ProcessContext;

constexpr int kPrSetVma = 0x53564d41;
constexpr unsigned long kPrSetVmaAnonName = 0;
constexpr const char* kHandedOver = "CTXCONF_HANDED_OVER";
constexpr int kMapped = 64 << 10;  // bytes; what is larger has a mapping of its own
constexpr std::size_t kSizeAt = offsetof(abi::ProcessHeader, payload_size);
constexpr std::size_t kTimestampAt = offsetof(abi::ProcessHeader, monotonic_published_at_ns);
constexpr std::size_t kPayloadAt = offsetof(abi::ProcessHeader, payload);

std::string chosen;  // "--bad ...", "--good ..."

// Asked in the middle of updates that are moved by single instructions.
bool is_chosen(std::string_view kind, std::string_view name) {
  return chosen.size() == kind.size() + name.size() && chosen.ends_with(name) &&
         chosen.starts_with(kind);
}
bool is_bad(std::string_view name) { return is_chosen("--bad ", name); }
bool is_good(std::string_view name) { return is_chosen("--good ", name); }

constexpr std::array kChoices = {
    "--bad pctx.payload.default-resource",
    "--bad pctx.payload.default-resource:empties",
    "--bad pctx.payload.default-resource:withdraws",
    "--bad pctx.payload.resource-matches-sdk",
    "--bad pctx.payload.resource-matches-sdk:16-bits",
    "--bad pctx.payload.resource-matches-sdk:integer-as-text",
    "--bad pctx.payload.resource-matches-sdk:double-as-integer",
    "--bad pctx.payload.resource-matches-sdk:bytes-as-text",
    "--bad pctx.payload.resource-matches-sdk:field-2",
    "--bad pctx.payload.resource-matches-sdk:taken",
    "--bad pctx.payload.extra-keys-in-attributes",
    "--bad pctx.payload.extra-keys-in-attributes:integer-as-text",
    "--bad pctx.payload.extra-keys-in-attributes:value",
    "--bad pctx.payload.extra-keys-in-attributes:drops",
    "--bad pctx.publish.existing-becomes-update",
    "--bad pctx.publish.singleton",
    "--bad pctx.publish.singleton:second-sdk",
    "--bad pctx.publish.singleton:fork",
    "--bad pctx.publish.on-init",
    "--bad pctx.publish.available-while-idle",
    "--bad pctx.publish.available-while-idle:stopped",
    "--bad pctx.publish.memfd-retry",
    "--bad pctx.publish.memfd-retry-flags",
    "--bad pctx.publish.failure-madvise",
    "--bad pctx.publish.failure-mmap",
    "--bad pctx.publish.failure-mmap:open",
    "--bad pctx.publish.failure-ftruncate",
    "--bad pctx.publish.no-name-at-all",
    "--bad pctx.publish.survives-total-denial",
    "--bad pctx.publish.survives-file-size-limit",
    "--bad pctx.update.timestamp-later",
    "--bad pctx.header.timestamp-clock",
    "--bad pctx.drop.no-dead-payload",
    "--bad pctx.drop.no-dead-payload:left",
    "--bad pctx.update.same-mapping",
    "--bad pctx.update.same-mapping:without-zero",
    "--bad pctx.update.same-mapping:elsewhere",
    "--bad pctx.update.visible",
    "--bad pctx.update.visible:extra-pairs",
    "--bad pctx.update.visible:integer-as-text",
    "--bad pctx.update.visible:second-publish",
    "--bad pctx.update.visible:publish-after-drop",
    "--bad pctx.update.visible:drop",
    "--bad pctx.update.complete-state",
    "--bad pctx.update.complete-state:few-keys",
    "--bad pctx.update.complete-state:size",
    "--bad pctx.update.failure-recoverable",
    "--bad pctx.update.failure-recoverable:memory",
    "--bad pctx.publish.fence-before-timestamp",
    "--bad pctx.update.fence-after-zero",
    "--bad pctx.update.fence-before-timestamp",
    "--bad pctx.update.no-mixed-read",
    "--bad pctx.update.no-mixed-read:pointer",
    "--bad pctx.update.no-mixed-read:bulk",
    "--bad pctx.update.no-mixed-read:before-zero",
    "--bad pctx.update.no-mixed-read:before-zero-and-back",
    "--bad pctx.update.one-writer-at-a-time",
    "--bad pctx.update.one-writer-at-a-time:mixed",
    "--bad pctx.fork.child-has-none",
    "--bad pctx.fork.child-publishes-own",
    "--bad pctx.fork.child-publishes-own:parent",
    "--bad pctx.fork.child-publishes-own:drop",
    "--bad pctx.fork.parent-untouched:drop",
    "--bad pctx.fork.parent-untouched",
    "--bad pctx.fork.parent-untouched:update",
    "--bad pctx.fork.same-pid-namespace",
    "--bad pctx.fork.same-pid-namespace:silent",
    "--bad pctx.fork.child-has-none:update",
    "--bad pctx.fork.dontfork-before-header",
    "--bad pctx.exec.memfd-not-leaked",
    "--bad pctx.exec.memfd-not-leaked:open",
    "--bad pctx.exec.memfd-not-leaked:another",
    "--good default",
    "--good limits",
    "--good no-extra-pairs",
    "--good leaves-out-extra-pairs",
    "--good fixed-room",
    "--good fixed-room-by-design",
    "--good no-nested-namespaces",
    "--good few-keys",
    "--good says-what-it-takes",
    "--good no-keys",
    "--good refuses-second-publish",
    "--good background",
    "--good unmap-only",
    "--good zero-only",
    "--good never-withdraws",
    "--good merged-updates",
    "--good in-place",
    "--good side-by-side",
    "--good unmaps-payloads",
    "--good vfork-child",
    "--good spawns",
    "--good child-of-its-own",
    "--good finds-no-program",
    "--good child-publishes-again",
    "--good withdraws-on-failure",
    "--good keeps-on-failure",
    "--good aborts-without-memory",
    "--good waits-for-a-memfd",
    "--good waits-for-the-clock",
    "--good tries-its-page",
};

std::unexpected<Refusal> refuse(const char* kind, std::string message, int err = 0) {
  return std::unexpected(Refusal{kind, std::move(message), err});
}

json text(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

// ---- one context

struct Content {
  json resource = json::array();
  json attributes = json::array();
};

std::string encode(Content content) {
  if (is_bad("pctx.payload.extra-keys-in-attributes")) {
    for (const json& a : std::exchange(content.attributes, json::array())) {
      content.resource.push_back(a);
    }
  }
  const json whole = {{"resource", {{"attributes", content.resource}}},
                      {"attributes", content.attributes}};
  ProcessContext message;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  if (!google::protobuf::util::JsonStringToMessage(whole.dump(), &message, options).ok()) {
    throw std::invalid_argument("no attributes");
  }
  return message.SerializeAsString();
}

template <class T>
void store(char* at, T value, std::memory_order order = std::memory_order_seq_cst) {
  // In one piece, as a reader has to see it.
  std::atomic_ref(*reinterpret_cast<T*>(at)).store(value, order);
}

std::memory_order relaxed_if_bad(std::string_view name) {
  return is_bad(name) ? std::memory_order_relaxed : std::memory_order_seq_cst;
}

std::optional<std::uint64_t> boot_ns() {
  timespec now{};
  const bool wall = is_bad("pctx.header.timestamp-clock");
  if (clock_gettime(wall ? CLOCK_REALTIME : CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Header and payload of this process. Its callers hold a lock.
class Context {
 public:
  bool exists() const { return at_ != nullptr; }

  Reply publish(const std::string& bytes) {
    const auto now = boot_ns();
    if (!now) return refuse("failed", "clock_gettime", errno);
    if (at_ != nullptr && timestamp() == 0 && withdrawn_) return announce(bytes, *now);
    if (at_ != nullptr) return update(bytes);
    size_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const int fd = make_memfd();
    const bool sized = fd >= 0 && ftruncate(fd, static_cast<off_t>(size_)) == 0;
    if (fd >= 0 && !sized) {
      const int err = errno;
      if (!is_bad("pctx.publish.failure-ftruncate")) close(fd);
      return refuse("failed", "ftruncate", err);
    }
    anonymous_ = fd < 0;
    const int flags = MAP_PRIVATE | (anonymous_ ? MAP_ANONYMOUS : 0);
    void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, fd, 0);
    const int err = errno;
    const bool stays_open = memory == MAP_FAILED ? is_bad("pctx.publish.failure-mmap:open")
                                                 : is_bad("pctx.exec.memfd-not-leaked:open");
    if (fd >= 0 && !stays_open) close(fd);
    if (memory == MAP_FAILED && !is_bad("pctx.publish.failure-mmap")) {
      return refuse("failed", "mmap", err);
    }
    if (is_bad("pctx.fork.dontfork-before-header") && memory != MAP_FAILED) {
      at_ = static_cast<char*>(memory);
      memcpy(at_, abi::kSignature.data(), abi::kSignature.size());
      store(at_ + offsetof(abi::ProcessHeader, version), abi::kVersion);
      set_timestamp(*now);
      memset(at_, 0, sizeof(abi::ProcessHeader));
    }
    if (is_good("tries-its-page") && memory != MAP_FAILED) {
      auto* const first = static_cast<volatile char*>(memory);
      *first = 'O';
      *first = 0;
    }
    if (madvise(memory, size_, MADV_DONTFORK) != 0 && !is_bad("pctx.publish.failure-madvise") &&
        !is_bad("pctx.publish.failure-mmap")) {
      const int why = errno;
      munmap(memory, size_);
      return refuse("failed", "madvise", why);
    }
    at_ = static_cast<char*>(memory);
    return announce(bytes, *now);
  }

  // `in_bulk`: one of many at once.
  Reply update(const std::string& bytes, bool in_bulk = false) {
    const bool late = is_bad("pctx.update.failure-recoverable");
    const bool allocates_late = is_bad("pctx.update.failure-recoverable:memory");
    const bool withdraws = is_good("withdraws-on-failure");
    std::optional<std::uint64_t> now;
    if (!late) now = boot_ns();
    while (is_good("waits-for-the-clock") && now && *now <= last_) now = boot_ns();
    if (!late && !now) {
      const int err = errno;
      if (withdraws) drop();
      return refuse("failed", "clock_gettime", err);
    }
    if (is_good("aborts-without-memory") && !can_allocate(bytes.size())) abort();
    constexpr std::size_t kRoom = 4096;
    const bool by_design = is_good("fixed-room-by-design");
    if ((by_design || is_good("fixed-room")) && bytes.size() > kRoom) {
      return refuse(by_design ? "rejected" : "failed", "no room for so much", ENOSPC);
    }
    auto next = bytes;
    if (is_good("unmaps-payloads")) next.reserve(std::size_t{2} * kMapped);
    if (is_bad("pctx.update.complete-state:size") && payload_.size() > next.size()) {
      next.resize(payload_.size());
    }
    if (is_bad("pctx.update.no-mixed-read:pointer")) set_payload(next);
    if (is_bad("pctx.update.no-mixed-read:before-zero")) overwrite_payload(next);
    if (is_bad("pctx.update.no-mixed-read:before-zero-and-back")) rewrite_payload();
    const char* const prepared = is_good("side-by-side") ? prepare_beside(next) : nullptr;
    const bool skips_zero = in_bulk && is_bad("pctx.update.no-mixed-read:bulk");
    // As if it lost its processor there and below, so that a reader meets both.
    const auto stays = [&] {
      if (skips_zero) std::this_thread::sleep_for(std::chrono::microseconds(500));
    };
    stays();
    const bool shares = is_bad("pctx.fork.child-has-none:update");
    if (shares) (void)madvise(at_, size_, MADV_DOFORK);
    if (!skips_zero) set_timestamp(0, relaxed_if_bad("pctx.update.fence-after-zero"));
    if (shares) (void)madvise(at_, size_, MADV_DONTFORK);
    if (is_good("spawns")) run_a_program();
    if (late) now = boot_ns();
    if (!now) return refuse("failed", "clock_gettime", errno);
    if (allocates_late && !can_allocate(next.size())) return refuse("failed", "mmap", errno);
    if (is_good("in-place") && next.size() <= payload_.size()) {
      std::ranges::copy(next, payload_.begin());
      store(at_ + kSizeAt, static_cast<std::uint32_t>(next.size()));
    } else if (prepared != nullptr) {
      point_to(prepared, next.size());
    } else {
      set_payload(std::move(next));
    }
    stays();
    const bool rewrites = is_bad("pctx.update.no-mixed-read");
    set_timestamp(later(*now), relaxed_if_bad("pctx.update.fence-before-timestamp"));
    if (rewrites) rewrite_payload();
    set_name();
    return json();
  }

  // Two updates at once: the middle of one comes from another thread.
  void update_with_another(std::string bytes) {
    const auto now = boot_ns().value_or(0);
    std::latch zeroed(1);
    std::thread other([&] {
      zeroed.wait();
      set_payload(std::move(bytes));
    });
    set_timestamp(0);
    zeroed.count_down();
    other.join();
    set_timestamp(later(now));
    set_name();
  }

  void drop() {
    if (at_ == nullptr) return;
    const bool dead =
        is_bad("pctx.drop.no-dead-payload") || is_bad("pctx.drop.no-dead-payload:left");
    if (dead) memset(payload_.data(), 0, payload_.size());
    if (is_bad("pctx.drop.no-dead-payload:left")) return;
    if (!is_good("unmap-only")) set_timestamp(0);
    if (is_good("zero-only")) {
      withdrawn_ = true;
      return;
    }
    remove();
  }

  // For a next publication that knows nothing of this one.
  void begin_anew(bool zeroes, bool leaves_mapping) {
    if (zeroes) set_timestamp(0);
    if (!leaves_mapping) munmap(at_, size_);
    at_ = nullptr;
  }

  void remove() {
    munmap(at_, size_);
    at_ = nullptr;
  }

  // What fork left out is not there in the child.
  void forget() { at_ = nullptr; }

  // With the header of the publication before, its timestamp too.
  Reply publish_copy(const std::string& bytes) {
    copied_ = last_;
    return publish(bytes);
  }

  // Like a program that does not know that it was forked.
  void write_anyway() {
    volatile char* const at = at_;
    at[0] = 'O';
  }

 private:
  static constexpr unsigned kMfdNoexecSeal = 8;

  // Its last byte, which belongs to a value, once more.
  void rewrite_payload() {
    volatile char& last = payload_.back();
    const char same = last;
    last = same == '0' ? '1' : '0';
    last = same;
  }

  void overwrite_payload(const std::string& next) {
    std::copy_n(next.begin(), std::min(payload_.size(), next.size()), payload_.begin());
  }

  // In the half of one buffer that the header does not announce; nullptr: too large for it.
  const char* prepare_beside(const std::string& bytes) {
    constexpr std::size_t kHalf = 4096;
    halves_.resize(2 * kHalf);
    if (bytes.size() > kHalf) return nullptr;
    in_second_half_ = !in_second_half_;
    char* const to = halves_.data() + (in_second_half_ ? kHalf : 0);
    bytes.copy(to, bytes.size());
    return to;
  }

  // As what asks a tool for the name of the host.
  static void run_a_program() {
    std::array<char, 5> name{"true"};
    const std::array<char*, 2> argv{name.data(), nullptr};
    pid_t pid = 0;
    if (posix_spawnp(&pid, name.data(), nullptr, nullptr, argv.data(), environ) == 0) {
      waitpid(pid, nullptr, 0);
    }
  }

  // -1: anonymous memory is next. Beyond its limit a file does not grow, and SIGXFSZ says so.
  int make_memfd() const {
    rlimit limit{};
    const bool heeds = !is_bad("pctx.publish.survives-file-size-limit");
    if (heeds && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size_) return -1;
    const int keeps = is_bad("pctx.exec.memfd-not-leaked:open") ? 0 : MFD_CLOEXEC;
    const int flags = keeps | MFD_ALLOW_SEALING;
    int fd = memfd_create("OTEL_CTX", flags | kMfdNoexecSeal);
    if (fd < 0 && !is_bad("pctx.publish.memfd-retry")) {
      fd = memfd_create("OTEL_CTX", is_bad("pctx.publish.memfd-retry-flags") ? 0 : flags);
    }
    if (fd < 0 && is_bad("pctx.publish.survives-total-denial")) abort();
    while (fd < 0 && is_good("waits-for-a-memfd") && errno == EMFILE) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      fd = memfd_create("OTEL_CTX", flags);
    }
    return fd;
  }

  static bool can_allocate(std::size_t size) {
    void* const memory =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    munmap(memory, size);
    return true;
  }

  std::uint64_t timestamp() const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at_ + kTimestampAt)).load();
  }
  void set_timestamp(std::uint64_t value,
                     std::memory_order order = std::memory_order_seq_cst) const {
    store(at_ + kTimestampAt, value, order);
  }
  std::uint64_t later(std::uint64_t now) {
    if (copied_ != 0) return copied_;
    if (is_bad("pctx.update.timestamp-later")) return last_ = now;
    return last_ = std::max(now, last_ + 1);
  }

  void point_to(const char* bytes, std::size_t size) const {
    const auto order = relaxed_if_bad("pctx.update.fence-after-zero");
    store(at_ + kSizeAt, static_cast<std::uint32_t>(size), order);
    store(at_ + kPayloadAt, static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(bytes)),
          order);
  }

  void set_payload(std::string bytes) {
    kept_ = std::exchange(payload_, std::move(bytes));
    point_to(payload_.data(), payload_.size());
    if (is_good("unmaps-payloads")) kept_ = std::string();
  }

  Reply announce(std::string bytes, std::uint64_t now) {
    withdrawn_ = false;
    memcpy(at_, abi::kSignature.data(), abi::kSignature.size());
    if (is_good("spawns")) run_a_program();
    store(at_ + offsetof(abi::ProcessHeader, version), abi::kVersion);
    set_payload(std::move(bytes));
    set_timestamp(later(now), relaxed_if_bad("pctx.publish.fence-before-timestamp"));
    if (!set_name() && anonymous_ && !is_bad("pctx.publish.no-name-at-all")) {
      const int err = errno;
      remove();
      return refuse("failed", "neither a memfd nor a name", err);
    }
    return json();
  }

  // False: the kernel gives none.
  bool set_name() const { return prctl(kPrSetVma, kPrSetVmaAnonName, at_, size_, "OTEL_CTX") == 0; }

  char* at_ = nullptr;
  std::size_t size_ = 0;
  bool anonymous_ = false;
  bool withdrawn_ = false;
  std::string payload_;
  std::string kept_;  // the one before, which a reader may be about to copy
  std::vector<char> halves_;
  bool in_second_half_ = false;
  std::uint64_t last_ = 0;
  std::uint64_t copied_ = 0;  // not 0: the timestamp of what is published
};

// ---- an SDK with it

// What parent and children see alike, where they should not.
struct Shared {
  bool withdrawn = false;
  std::size_t size = 0;
  std::array<char, 4000> resource{};
};

// And says so.
bool has_few_keys() { return is_good("few-keys") || is_bad("pctx.update.complete-state:few-keys"); }

class Sdk {
 public:
  Sdk() {
    void* const memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("mmap");
    shared_ = new (memory) Shared;
  }

  Reply publish(const json& request) {
    const std::lock_guard guard(lock_);
    if (request.value("sdk", 1) == 2) {
      if (is_bad("pctx.publish.singleton:second-sdk"))
        return second_.publish(encode(given({}, request)));
    } else if (is_good("refuses-second-publish") && context_.exists()) {
      return refuse("rejected", "there is a context");
    }
    if (is_good("no-extra-pairs") && !request.value("attributes", json::array()).empty()) {
      return refuse("rejected", "no pairs beside the Resource");
    }
    if (is_bad("pctx.publish.on-init")) return json();  // there is no span yet
    if (is_bad("pctx.update.visible:second-publish") && context_.exists()) return json();
    if (is_bad("pctx.update.visible:publish-after-drop") && dropped_) return json();
    publisher_ = getpid();
    content_ = given({}, request);
    change_extra_pairs(content_.attributes);
    if (is_good("background")) {
      std::thread([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(60));
        const std::lock_guard later(lock_);
        (void)context_.publish(encode(content_));
      }).detach();
      return json();
    }
    if (is_bad("pctx.publish.existing-becomes-update") && context_.exists()) context_.remove();
    return with_taken(request, context_.publish(encode(content_)));
  }

  Reply update(const json& request, const Gate& gate = [] {}) {
    const std::lock_guard guard(lock_);
    return update_locked(request, gate);
  }

  // Every value ends in the number of the iteration.
  Reply churn(const json& request) {
    const std::lock_guard guard(lock_);
    const auto iterations = request.at("iterations").get<std::uint64_t>();
    for (std::uint64_t i = 1; i <= iterations; ++i) {
      content_.resource =
          json::array({text("service.name", numbered("churn", i)),
                       text("ctxconf.churn", numbered(std::string(i % 256, 'x'), i))});
      if (auto reply = context_.update(encode(content_), /*in_bulk=*/true); !reply) return reply;
    }
    return json();
  }

  Reply drop() {
    const std::lock_guard guard(lock_);
    if (is_bad("pctx.update.visible:drop")) return json();
    dropped_ = true;
    context_.drop();
    return json();
  }

  Reply second_resource(const json& request) {
    // As if the last provider owned the context.
    if (is_bad("pctx.payload.default-resource:empties")) {
      return update({{"resource", {{"attributes", json::array()}}}});
    }
    if (is_bad("pctx.payload.default-resource:withdraws")) return drop();
    if (!is_bad("pctx.payload.default-resource")) return json();
    return update({{"resource", request.at("resource")}});
  }

  // A watchdog that takes a blocked process for a dead one.
  void main_thread_blocks() {
    if (!is_bad("pctx.publish.available-while-idle")) return;
    std::thread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      (void)drop();
    }).detach();
  }

  // Takes the end of a stop for a resurrection, and begins with nothing. In the main thread, which
  // is between two requests.
  void watch_for_stops() {
    if (!is_bad("pctx.publish.available-while-idle:stopped")) return;
    static Sdk* self = this;
    struct sigaction action = {};
    action.sa_handler = [](int) { (void)self->drop(); };
    action.sa_flags = SA_RESTART;
    sigaction(SIGCONT, &action, nullptr);
  }

  // One after the other where nothing else was chosen.
  Reply parallel(const json& all) {
    json requests = json::array();  // whether children came beside them matters to no choice here
    for (const json& r : all) {
      if (r.at("op") != "process.fork") requests.push_back(r);
    }
    if (!at_once(requests)) {
      for (const json& r : requests) {
        const auto op = r.at("op").get<std::string>();
        auto reply = op == "process.publish" ? publish(r)
                     : op == "process.drop"  ? drop()
                                             : update(r);
        if (!reply) return reply;
      }
    }
    return json{{"results", std::vector<json>(all.size(), json{{"ok", true}})}};
  }

  // In a child, which has one thread.
  void in_child(const json& child) {
    const bool updates = child.at("do") == "update";
    const bool drops = child.at("do") == "drop";
    if (child.at("do") == "publish" || updates || drops) {
      const bool namesake = getpid() == publisher_;
      if (is_bad("pctx.fork.child-publishes-own") && !namesake) context_.write_anyway();
      if (is_bad("pctx.fork.same-pid-namespace:silent") && namesake) return;
      if (!is_bad("pctx.fork.same-pid-namespace") || !namesake) context_.forget();
      if (is_bad("pctx.fork.child-publishes-own:parent") && !namesake) {
        content_.resource.push_back(text("ctxconf.forked", "yes"));
      } else {
        content_ = given({}, child);
      }
      (void)context_.publish(encode(content_));
      if (updates) {
        auto next = given(content_, child.at("update"));
        (void)context_.update(encode(next));
        content_ = std::move(next);
      }
      if (drops && !is_bad("pctx.fork.child-publishes-own:drop")) context_.drop();
      shared_->withdrawn = drops && is_bad("pctx.fork.parent-untouched:drop");
      if (is_bad("pctx.fork.parent-untouched") ||
          (updates && is_bad("pctx.fork.parent-untouched:update"))) {
        const std::string resource = content_.resource.dump();
        shared_->size = resource.copy(shared_->resource.data(), shared_->resource.size());
      }
      return;
    }
    context_.forget();
    if (is_bad("pctx.fork.child-has-none")) (void)context_.publish_copy(encode(content_));
    if (is_good("child-publishes-again")) (void)context_.publish(encode(content_));
    if (is_good("child-of-its-own")) {
      content_.resource = {text("service.name", "worker"),
                           text("service.instance.id", std::to_string(getpid()))};
      (void)context_.publish(encode(content_));
    }
  }

  // What a reply says of the Resource in its request.
  static Reply with_taken(const json& request, Reply reply) {
    const bool says =
        is_good("says-what-it-takes") || is_bad("pctx.payload.resource-matches-sdk:taken");
    const bool no_pairs = is_good("leaves-out-extra-pairs");
    if ((!says && !no_pairs) || !reply) return reply;
    json answer = {{"left_out", json::array()}};
    if (says) answer["taken"] = json::array();
    const json resource = request.value("resource", json::object());
    for (const json& a : resource.value("attributes", json::array())) {
      if (says) answer[takes(a) ? "taken" : "left_out"].push_back(a.at("key"));
    }
    for (const json& a : request.value("attributes", json::array())) {
      answer[no_pairs ? "left_out" : "taken"].push_back(a.at("key"));
    }
    return answer;
  }

  void before_fork() { lock_.lock(); }
  void after_fork(bool publishes) {
    if (publishes && is_bad("pctx.publish.singleton:fork")) context_.forget();  // in both
    lock_.unlock();
  }

  // In the parent, once the child has done what it was to do.
  void child_is_ready() {
    if (std::exchange(shared_->withdrawn, false)) (void)drop();
    if (shared_->size == 0) return;
    const std::string resource(shared_->resource.data(), std::exchange(shared_->size, 0));
    (void)update({{"resource", {{"attributes", json::parse(resource)}}}});
  }

  void before_exec(bool of_itself) {
    if (!is_bad(of_itself ? "pctx.exec.memfd-not-leaked" : "pctx.exec.memfd-not-leaked:another")) {
      return;
    }
    // What the next program is to go on with.
    (void)drop();
    const int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const int kept = fcntl(fd, F_DUPFD, 0);
    setenv(kHandedOver, std::to_string(kept).c_str(), 1);
  }
  static void after_exec() {
    if (const char* const fd = getenv(kHandedOver)) close(atoi(fd));
  }

 private:
  bool at_once(const json& requests) {
    const std::lock_guard guard(lock_);
    const auto all = [&](const char* op) {
      return std::ranges::all_of(requests, [&](const json& r) { return r.at("op") == op; });
    };
    const bool updates = all("process.update");
    if (all("process.publish") && is_bad("pctx.publish.singleton")) {
      content_ = given({}, requests[0]);
      (void)context_.publish(encode(content_));
      (void)second_.publish(encode(given({}, requests[1])));
    } else if (updates && is_good("merged-updates")) {
      (void)update_locked(requests.back());
    } else if (updates && is_bad("pctx.update.one-writer-at-a-time")) {
      content_ = given(content_, requests.back());
      context_.update_with_another(encode(content_));
    } else if (updates && is_bad("pctx.update.one-writer-at-a-time:mixed")) {
      json mixed = requests[0];
      mixed["resource"]["attributes"].back() = requests[1]["resource"]["attributes"].back();
      (void)update_locked(mixed);
    } else {
      return false;
    }
    return true;
  }

  Reply update_locked(const json& request, const Gate& gate = [] {}) {
    auto next = given(content_, request);
    if (is_bad("pctx.update.complete-state") || is_bad("pctx.update.complete-state:few-keys")) {
      for (const json& old : content_.resource) {
        const auto is_old = [&](const json& a) { return a["key"] == old["key"]; };
        if (std::ranges::none_of(next.resource, is_old)) next.resource.push_back(old);
      }
    }
    if (is_bad("pctx.update.visible:integer-as-text")) {
      for (json& a : next.resource) {
        if (a["value"].contains("intValue")) make_text(a["value"]);
      }
    }
    const auto bytes = encode(next);
    gate();
    if (is_bad("pctx.update.visible")) return json();
    if (is_bad("pctx.update.visible:extra-pairs") && !request.contains("resource")) return json();
    if (context_.exists() && chosen.contains("pctx.update.same-mapping")) {
      context_.begin_anew(!is_bad("pctx.update.same-mapping:without-zero"),
                          is_bad("pctx.update.same-mapping:elsewhere"));
    }
    auto reply = context_.exists() ? context_.update(bytes) : context_.publish(bytes);
    if (reply) content_ = std::move(next);
    return with_taken(request, std::move(reply));
  }

  static bool takes(const json& attribute) {
    if (is_good("no-keys")) return false;
    const auto& key = attribute.at("key").get_ref<const std::string&>();
    return key == "service.name" || key == "service.version";
  }
  static bool takes_few() {
    return has_few_keys() || is_good("says-what-it-takes") || is_good("no-keys") ||
           is_bad("pctx.payload.resource-matches-sdk:taken");
  }
  // Of a configuration with two members; it makes the other attributes itself.
  static void keep_own_keys(json& resource) {
    json kept = {text("service.instance.id", "b4f1c8d2-own"), text("host.name", "of-the-sdk")};
    for (const json& a : resource) {
      if (takes(a)) kept.push_back(a);
    }
    if (kept.size() == 2) kept.push_back(text("service.name", "unknown_service"));
    if (is_bad("pctx.payload.resource-matches-sdk:taken")) {
      kept.back() = text("service.name", "unknown_service");
    }
    resource = std::move(kept);
  }
  // As an SDK that has another place, with other types, for what is beside its Resource.
  static void change_extra_pairs(json& pairs) {
    if (is_bad("pctx.payload.extra-keys-in-attributes:drops")) pairs = json::array();
    for (json& a : pairs) {
      json& value = a["value"];
      if (value.contains("intValue") &&
          is_bad("pctx.payload.extra-keys-in-attributes:integer-as-text")) {
        make_text(value);
      } else if (value.contains("stringValue") &&
                 is_bad("pctx.payload.extra-keys-in-attributes:value")) {
        value = {{"stringValue", "another"}};
      }
    }
  }
  static void make_text(json& value) {
    const json& n = value["intValue"];
    value = {{"stringValue", n.is_string() ? n.get<std::string>() : n.dump()}};
  }
  // As an SDK whose attributes have fewer kinds.
  static void change_kind(json& value) {
    if (value.contains("intValue") && is_bad("pctx.payload.resource-matches-sdk:integer-as-text")) {
      make_text(value);
    } else if (value.contains("doubleValue") &&
               is_bad("pctx.payload.resource-matches-sdk:double-as-integer")) {
      value = {{"intValue", "0"}};
    } else if (value.contains("bytesValue") &&
               is_bad("pctx.payload.resource-matches-sdk:bytes-as-text")) {
      value = {{"stringValue", value["bytesValue"].get<std::string>()}};
    }
  }

  static Content given(Content content, const json& request) {
    if (request.contains("resource")) content.resource = request["resource"].at("attributes");
    if (request.contains("attributes")) content.attributes = request["attributes"];
    if (is_good("leaves-out-extra-pairs")) content.attributes = json::array();
    const bool has_16_bits = is_bad("pctx.payload.resource-matches-sdk:16-bits");
    if (is_bad("pctx.payload.resource-matches-sdk") || has_16_bits) {
      constexpr std::size_t kTwoByteLength = 16383;
      for (json& a : content.resource) {
        if (!a["value"].contains("stringValue")) continue;
        auto value = a["value"]["stringValue"].get<std::string>();
        value.resize(has_16_bits ? value.size() & 0xffffU : std::min(value.size(), kTwoByteLength));
        a["value"]["stringValue"] = value;
      }
    }
    if (takes_few()) keep_own_keys(content.resource);
    for (json& a : content.resource) change_kind(a["value"]);
    if (is_bad("pctx.payload.resource-matches-sdk:field-2")) {
      for (json& a : std::exchange(content.resource, json::array())) {
        content.attributes.push_back(a);
      }
    }
    if (is_good("limits")) {
      constexpr std::size_t kMost = 128;
      constexpr std::size_t kLongest = 16383;
      json kept = json::array();
      for (const json& a : content.resource) {
        const json& value = a.at("value");
        if (value.contains("stringValue") && kept.size() < kMost &&
            value["stringValue"].get_ref<const std::string&>().size() <= kLongest) {
          kept.push_back(a);
        }
      }
      const json own = text("telemetry.sdk.name", "ctxconf");
      if (std::ranges::find(kept, own) == kept.end()) kept.push_back(own);
      content.resource = std::move(kept);
    }
    return content;
  }

  std::mutex lock_;
  pid_t publisher_ = 0;
  bool dropped_ = false;
  Content content_;
  Context context_;
  Context second_;
  Shared* shared_ = nullptr;
};

// ---- its children

class Children {
 public:
  Children(const Loop& loop, Sdk& sdk) : loop_(loop), sdk_(sdk) {}

  Reply fork_child(const json& request) {
    const json& child = request.at("child");
    if (is_good("vfork-child") && child.at("do") == "idle") return share_memory();
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return refuse("failed", "pipe", errno);
    const bool nested = request.value("namespace", "") == "pid";
    if (nested && is_good("no-nested-namespaces")) {
      return refuse("rejected", "the child of process 1 is never process 1");
    }
    const pid_t parent = nested ? 0 : getpid();  // that of process 1 is in another namespace
    if (nested && unshare(CLONE_NEWPID) != 0) return refuse("failed", "unshare", errno);
    sdk_.before_fork();
    const pid_t pid = fork();
    sdk_.after_fork(child.at("do") == "publish");
    if (pid == 0) be_child(parent, ends, child);
    const int err = errno;
    close(ends[1]);
    pid_t last = 0;
    const bool told = pid > 0 && read(ends[0], &last, sizeof last) == sizeof last;
    close(ends[0]);
    if (pid < 0) return refuse("failed", "fork", err);
    children_.insert(pid);
    if (!told) return refuse("failed", "the child has ended");
    sdk_.child_is_ready();
    json reply = {{"child_pid", pid}};
    const bool deeper = child.at("do") == "fork";
    if (deeper) reply["grandchild_pid"] = last;
    auto taken = Sdk::with_taken(deeper ? child.at("child") : child, json::object());
    if (taken) reply.update(*taken);
    return reply;
  }

  Reply reap(const json& request) { return reap_child(children_, request); }

 private:
  [[noreturn]] void be_child(pid_t parent, const std::array<int, 2>& ends,
                             const json& child) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    loop_.leave_channel();
    const pid_t self = getpid();
    if (child.at("do") == "fork") {
      const pid_t pid = fork();
      if (pid == 0) be_child(self, ends, child.at("child"));
      if (pid < 0) _exit(1);
    } else {
      sdk_.in_child(child);
      if (write(ends[1], &self, sizeof self) != sizeof self) _exit(1);
    }
    close(ends[0]);
    close(ends[1]);
    for (;;) pause();
  }

  // Its memory is the parent's, and so is the thread pointer: it makes system calls and nothing
  // else.
  Reply share_memory() {
    constexpr std::size_t kStack = std::size_t{64} << 10U;
    stacks_.emplace_back(kStack);
    const auto idle = [](void*) -> int {
      syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
      for (;;) syscall(SYS_ppoll, nullptr, 0, nullptr, nullptr, 0);
    };
    const pid_t pid = clone(idle, stacks_.back().data() + kStack, CLONE_VM | SIGCHLD, nullptr);
    if (pid < 0) return refuse("failed", "clone", errno);
    children_.insert(pid);
    return json{{"child_pid", pid}};
  }

  const Loop& loop_;
  Sdk& sdk_;
  std::set<pid_t> children_;
  std::vector<std::vector<char>> stacks_;
};

// ---- the adapter

json capabilities() {
  if (is_bad("pctx.publish.on-init") || is_good("background")) {
    return {{"process.publish", json::object()}};
  }
  json caps = {{"process.fork", {{"child", {"idle", "publish", "update", "drop", "fork"}}}},
               {"thread", {{"style", "pointer"}}}};
  for (const char* const cap :
       {"process.publish", "process.update", "process.drop", "process.attributes", "process.exec",
        "process.fork_namespace", "process.parallel", "process.second_resource",
        "process.second_sdk", "gate"}) {
    caps[cap] = json::object();
  }
  if (has_few_keys() || is_good("no-keys")) {
    json& publish = caps["process.publish"];
    publish["keys"] = json::array();
    if (has_few_keys()) publish["keys"] = {"service.name", "service.version"};
    publish["own_keys"] = {"service.instance.id", "host.name"};
  }
  if (is_bad("pctx.update.no-mixed-read:bulk") || is_good("unmaps-payloads")) {
    caps["churn"] = json::object();
  }
  if (is_good("never-withdraws")) caps.erase("process.drop");
  return caps;
}

int run(char** argv) {
  Sdk::after_exec();
  if (is_good("unmaps-payloads")) mallopt(M_MMAP_THRESHOLD, kMapped);
  Sdk sdk;
  Loop loop({{"adapter", {{"name", "driven_process_writer"}, {"version", "1"}}},
             {"caps", capabilities()}});
  Children children(loop, sdk);
  sdk.watch_for_stops();
  loop.on("process.publish", [&](const json& r) { return sdk.publish(r); });
  loop.on_gated("process.update",
                [&](const json& r, const Gate& gate) { return sdk.update(r, gate); });
  loop.on("process.churn", [&](const json& r) { return sdk.churn(r); });
  loop.on("process.drop", [&](const json&) { return sdk.drop(); });
  loop.on("process.second_resource", [&](const json& r) { return sdk.second_resource(r); });
  loop.on("process.fork", [&](const json& r) { return children.fork_child(r); });
  loop.on("process.reap", [&](const json& r) { return children.reap(r); });
  loop.on("process.exec_self", [&](const json&) -> Reply {
    sdk.before_exec(/*of_itself=*/true);
    return std::unexpected(exec_self(argv));
  });
  loop.on("process.exec", [&](const json& r) -> Reply {
    sdk.before_exec(/*of_itself=*/false);
    json program = r.at("argv");
    if (is_good("finds-no-program")) program[0] = "/nowhere/" + program[0].get<std::string>();
    return std::unexpected(exec_program(program, r.at("env")));
  });
  loop.on("sdk.load", [](const json&) { return json(); });
  loop.on("sdk.unload", [](const json&) { return json(); });
  if (chosen.contains("pctx.publish.singleton") || chosen.contains("one-writer-at-a-time") ||
      is_good("merged-updates")) {
    loop.on("parallel", [&](const json& r) { return sdk.parallel(r.at("requests")); });
  }
  loop.on("thread.block", [&](const json&) {
    sdk.main_thread_blocks();
    return json{{"tid", gettid()}};
  });
  _exit(loop.run());
}

}  // namespace
}  // namespace ctxconf::adapter

int main(int argc, char** argv) {
  using namespace ctxconf::adapter;
  if (argc == 3) chosen = std::string(argv[1]) + " " + argv[2];
  if (std::ranges::find(kChoices, chosen) == kChoices.end()) {
    fprintf(stderr, "usage: driven_process_writer --bad ROW-ID[:HOW] | --good NAME; these are\n");
    for (const char* const choice : kChoices) fprintf(stderr, "  %s\n", choice);
    return 2;
  }
  try {
    return run(argv);
  } catch (const std::exception& e) {
    fprintf(stderr, "driven_process_writer: %s\n", e.what());
    return 1;
  }
}
