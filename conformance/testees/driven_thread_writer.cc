// An adapter with a writer of its own for thread context (OTEP 4947), legal in one way or another
// or wrong in exactly one: `--bad ROW`, `--good NAME`; `--list` names them.
// driven_thread_mutants.json says which rows of the catalogue each is about. As in thread_writer
// nothing is shared with the judge.
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "conformance/testees/adapter_loop.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

extern "C" {
__attribute__((visibility("default"), used)) __thread void* otel_thread_ctx_v1 = nullptr;
}

namespace ctxconf::adapter {
namespace {

using Bytes = std::string;

std::string bad;   // a row of the catalogue, perhaps "ROW:KIND"
std::string good;  // a variant

bool is_bad(std::string_view row) { return bad == row; }
bool is_good(std::string_view name) { return good == name; }

// As the switch, the pointer staying where it is.
bool uses_valid_byte() {
  return is_good("valid-byte") || is_good("record-from-the-start") ||
         is_bad("tctx.tls.per-thread") || is_bad("tctx.attach.fixed-record-pointer");
}

std::unexpected<Refusal> refuse(const char* kind, std::string message, int err = 0) {
  return std::unexpected(Refusal{kind, std::move(message), err});
}

[[noreturn]] void die(const char* step) {
  fprintf(stderr, "driven_thread_writer: %s: %s\n", step, strerror(errno));
  _exit(1);
}

// ---- process context

Bytes varint(std::uint64_t value) {
  Bytes out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(0x80 | (value & 0x7f)));
  out.push_back(static_cast<char>(value));
  return out;
}
Bytes field(std::uint32_t number, const Bytes& content) {
  return varint(number << 3 | 2) + varint(content.size()) + content;
}
Bytes text(const Bytes& value) { return field(1, value); }  // AnyValue
Bytes pair(const Bytes& key, const Bytes& any_value) { return field(1, key) + field(2, any_value); }

template <class T>
void store(char* at, T value) {
  __atomic_store_n(reinterpret_cast<T*>(at), value, __ATOMIC_RELAXED);
}
void fence() { std::atomic_signal_fence(std::memory_order_seq_cst); }

constexpr std::size_t kRegionSize = 4096;
constexpr std::size_t kSizeAt = 12;
constexpr std::size_t kTimestampAt = 16;
constexpr std::size_t kPointerAt = 24;

class Region {
 public:
  bool is_there() const { return at_ != nullptr; }

  void publish(const Bytes& bytes) {
    constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    auto fd = static_cast<int>(syscall(SYS_memfd_create, "OTEL_CTX", kFlags | MFD_NOEXEC_SEAL));
    if (fd < 0) fd = static_cast<int>(syscall(SYS_memfd_create, "OTEL_CTX", kFlags));
    if (fd >= 0 && ftruncate(fd, kRegionSize) != 0) die("ftruncate");
    void* p = mmap(nullptr, kRegionSize, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    if (p == MAP_FAILED) die("mmap");
    if (fd >= 0) close(fd);
    at_ = static_cast<char*>(p);
    if (madvise(at_, kRegionSize, MADV_DONTFORK) != 0) die("madvise");
    memcpy(at_, "OTEL_CTX", 8);
    store<std::uint32_t>(at_ + 8, 2);
    set_payload(copy_of(bytes), bytes.size());
    set_timestamp(next_timestamp());
    set_name();
  }

  void update(const Bytes& bytes) {
    if (is_bad("tctx.keymap.update-protocol") && bytes.size() < kRoom) {
      // Over the old message, of which it is a continuation.
      bytes.copy(payload_, bytes.size());
      store<std::uint32_t>(at_ + kSizeAt, static_cast<std::uint32_t>(bytes.size()));
      set_timestamp(next_timestamp());
      set_name();
      return;
    }
    char* const copy = copy_of(bytes);
    const std::uint64_t timestamp = next_timestamp();
    set_timestamp(0);
    set_payload(copy, bytes.size());
    set_timestamp(timestamp);
    set_name();
  }

  void drop() {
    set_timestamp(0);
    if (munmap(at_, kRegionSize) != 0) die("munmap");
    at_ = nullptr;
  }

  void forget() { at_ = nullptr; }  // in a child it is not mapped

 private:
  static std::uint64_t next_timestamp() {
    static std::uint64_t last = 0;
    timespec t{};
    if (clock_gettime(CLOCK_BOOTTIME, &t) != 0) die("clock_gettime");
    last = std::max(last + 1, static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
                                  static_cast<std::uint64_t>(t.tv_nsec));
    return last;
  }
  // Messages are never freed: a reader may still copy the one before.
  static char* copy_of(const Bytes& bytes) {
    auto* copy = static_cast<char*>(malloc(std::max(bytes.size(), kRoom)));
    if (copy == nullptr) die("malloc");
    bytes.copy(copy, bytes.size());
    return copy;
  }
  void set_payload(char* payload, std::size_t size) {
    payload_ = payload;
    store<std::uint32_t>(at_ + kSizeAt, static_cast<std::uint32_t>(size));
    store<std::uint64_t>(at_ + kPointerAt, reinterpret_cast<std::uintptr_t>(payload));
  }
  void set_timestamp(std::uint64_t value) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    store<std::uint64_t>(at_ + kTimestampAt, value);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void set_name() { prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, at_, kRegionSize, "OTEL_CTX"); }

  static constexpr std::size_t kRoom = 1024;  // of a message, for the next one

  char* at_ = nullptr;
  char* payload_ = nullptr;
};

constexpr std::size_t kMostNames = 256;

class Process {
 public:
  Process() {
    if (is_bad("tctx.attrs.length-not-wrapped")) {  // the index of every letter
      for (int i = 0; i < 128; ++i) names_.push_back("early_" + std::to_string(i));
    }
    if (is_good("names-at-start") || is_good("fixed-names")) {
      names_ = {"http_route", "user_tier", "db_table"};
    }
  }

  Reply publish(const json& request) {
    if (!request.value("attributes", json::array()).empty()) {
      return refuse("rejected", "no pairs beside the Resource");
    }
    const std::lock_guard guard(lock_);
    resource_ = attributes_of(request);
    send(is_good("reference-data-later") && names_.empty() ? without_threads() : whole());
    return json();
  }

  Reply update(const json& request) {
    std::unique_lock guard(lock_);
    if (!region_.is_there()) return refuse("failed", "nothing is published");
    if (request.contains("resource")) resource_ = attributes_of(request);
    if (is_good("names-in-the-same-update")) {
      names_.push_back("with_update_" + std::to_string(names_.size()));
    }
    if (is_bad("tctx.keymap.survives-other-updates:at-once")) return update_late(guard);
    const bool forgets = is_bad("tctx.keymap.survives-other-updates");
    send(forgets ? without_threads() : whole());
    said_ = !forgets;
    return json();
  }

  Reply drop(bool attached) {
    const std::lock_guard guard(lock_);
    if (!region_.is_there()) return refuse("failed", "nothing is published");
    region_.drop();
    const bool starts_anew = is_bad("tctx.keymap.stable-across-republish") ||
                             (is_good("starts-anew-without-records") && !attached);
    if (starts_anew) names_.clear();
    return json();
  }

  // The indexes, -1 where there is none, once readers can look them up.
  std::vector<int> indexes_of(const std::vector<std::string>& names) {
    if (is_bad("tctx.keymap.single-writer") && threads_ >= kManyThreads) {
      return indexes_without_lock(names);
    }
    std::unique_lock guard(lock_);
    const bool is_beside = !names.empty() && names.front().starts_with("name_beside");
    if (is_beside && is_bad("tctx.keymap.survives-other-updates:at-once")) {
      all_there_.wait_for(guard, std::chrono::seconds(1), [&] { return encoded_; });
    }
    std::vector<int> out;
    const bool checks_once = is_bad("tctx.keymap.at-most-256");
    const bool room = names_.size() < kMostNames;
    bool news = !said_ && !is_good("reference-data-later");
    for (const auto& name : names) {
      const auto it = std::ranges::find(names_, name);
      if (it != names_.end()) {
        out.push_back(static_cast<int>(it - names_.begin()));
      } else if (is_good("fixed-names")) {
        out.push_back(-1);
      } else if (checks_once ? room : names_.size() < kMostNames) {
        out.push_back(names_.size() < kMostNames ? static_cast<int>(names_.size()) : -1);
        names_.push_back(name);
        all_there_.notify_all();
        news = true;
      } else {
        out.push_back(is_bad("tctx.keymap.index-not-wrapped") ? 0 : -1);  // 256 as a byte
      }
    }
    const bool once = is_bad("tctx.keymap.append-updates-context") && published_names_ > 0;
    if (news && region_.is_there() && !once) {
      send(whole());
      said_ = true;
      published_names_ = names_.size();
    }
    return out;
  }

  void add_thread(int count) { threads_ += count; }

  void say_now() {
    const std::lock_guard guard(lock_);
    if (said_ || !region_.is_there()) return;
    send(whole());
    said_ = true;
  }

  // In a child, which has no other thread.
  void publish_in_child(const json& request) {
    region_.forget();
    resource_ = attributes_of(request);
    send(whole());
  }

 private:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  // Encodes, and sends when another thread has had the time to give a name.
  Reply update_late(std::unique_lock<std::mutex>& guard) {
    const Bytes encoded = whole();
    const std::size_t before = names_.size();
    encoded_ = true;
    all_there_.notify_all();
    all_there_.wait_for(guard, std::chrono::seconds(1), [&] { return names_.size() > before; });
    encoded_ = false;
    send(encoded);
    return json();
  }

  // Every thread takes the next index before any has used it. Where fewer come, they wait a while.
  std::vector<int> indexes_without_lock(const std::vector<std::string>& names) {
    std::unique_lock guard(lock_);
    const auto wait_for_all = [&](int& arrived) {
      ++arrived;
      all_there_.notify_all();
      all_there_.wait_for(guard, std::chrono::seconds(1), [&] { return arrived >= threads_; });
    };
    const std::size_t first = names_.size();
    wait_for_all(took_index_);
    names_.resize(std::max(names_.size(), first + names.size()));
    std::vector<int> out;
    for (std::size_t i = 0; i < names.size(); ++i) {
      names_[first + i] = names[i];
      out.push_back(static_cast<int>(first + i));
    }
    wait_for_all(wrote_name_);
    if (region_.is_there() && published_names_ != names_.size()) {
      send(whole());
      said_ = true;
      published_names_ = names_.size();
    }
    return out;
  }

  static Pairs attributes_of(const json& request) {
    Pairs out;
    if (!request.contains("resource")) return out;
    for (const auto& a : request["resource"].at("attributes")) {
      out.emplace_back(a.at("key"), a.at("value").value("stringValue", ""));
    }
    return out;
  }

  Bytes without_threads() const {
    Bytes attributes;
    for (const auto& [key, value] : resource_) attributes += field(1, pair(key, text(value)));
    return field(1, attributes);
  }

  Bytes whole() const {
    Bytes elements;
    const bool once = is_bad("tctx.keymap.append-updates-context") && published_names_ > 0;
    for (std::size_t i = 0; i < (once ? published_names_ : names_.size()); ++i) {
      elements += field(1, text(names_[i]));
    }
    return without_threads() +
           field(2, pair("threadlocal.schema_version", text("tlsdesc_v1_dev"))) +
           field(2, pair("threadlocal.attribute_key_map", field(5, elements)));
  }

  void send(const Bytes& bytes) {
    if (region_.is_there()) return region_.update(bytes);
    region_.publish(bytes);
  }

  static constexpr int kManyThreads = 5;

  std::mutex lock_;               // from a new name to the end of its publication
  std::atomic<int> threads_ = 0;  // beside the first
  std::condition_variable all_there_;
  int took_index_ = 0;
  bool encoded_ = false;
  int wrote_name_ = 0;
  Region region_;
  Pairs resource_;
  std::vector<std::string> names_;
  std::size_t published_names_ = 0;
  bool said_ = false;  // the map that is published is the last one
};

// ---- records

constexpr std::size_t kRecordBytes = 640;
constexpr std::size_t kHead = 28;
constexpr std::size_t kValidAt = 24;
constexpr std::size_t kFlagsAt = 25;
constexpr std::size_t kAttributesSizeAt = 26;
constexpr std::size_t kLongestValue = 255;
constexpr std::size_t kOwnLimit = 100;

// Never freed: a reader may come late.
char* new_record() {
  if (is_bad("tctx.exit.no-dangling")) {
    void* p =
        mmap(nullptr, kRecordBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("mmap");
    return static_cast<char*>(p);
  }
  auto* record = static_cast<char*>(aligned_alloc(64, kRecordBytes));
  if (record == nullptr) die("aligned_alloc");
  memset(record, 0, kRecordBytes);
  return record;
}

Bytes entry(int key, const Bytes& value) {
  return Bytes(1, static_cast<char>(key)) + Bytes(1, static_cast<char>(value.size())) + value;
}

void set_valid(char* record, char value) {
  fence();
  store<char>(record + kValidAt, value);
  fence();
}
void set_size(char* record, std::size_t size) {
  fence();
  store<std::uint16_t>(record + kAttributesSizeAt, static_cast<std::uint16_t>(size));
  fence();
}

Bytes bytes_of_hex(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned value = 0;
    const char* const end = hex.data() + i + 2;
    if (std::from_chars(hex.data() + i, end, value, 16).ptr != end) {
      throw std::invalid_argument("not hexadecimal: '" + hex + "'");
    }
    out.push_back(static_cast<char>(value));
  }
  return out;
}

std::string hex_of(const Bytes& bytes) {
  std::string out;
  for (const char c : bytes) {
    for (const int shift : {4, 0})
      out += "0123456789abcdef"[static_cast<unsigned char>(c) >> shift & 15];
  }
  return out;
}

struct Content {
  std::string name;
  Bytes trace = Bytes(16, '\0');
  Bytes span = Bytes(8, '\0');
  bool traced = false;
  unsigned flags = 0;
  std::vector<Bytes> entries;
  char* record = nullptr;  // its own, where the pointer is the switch

  std::size_t size() const {
    std::size_t out = 0;
    for (const auto& e : entries) out += e.size();
    return out;
  }
  // False: it does not fit.
  bool add(Bytes e) {
    const std::size_t room = kRecordBytes - kHead - size();
    if (e.size() > room && room > 2 && is_bad("tctx.attrs.utf8:at-the-end")) {
      e.resize(room);
      e[1] = static_cast<char>(room - 2);
    }
    if (e.size() > room) return false;
    entries.push_back(std::move(e));
    return true;
  }
};

void fill(char* record, const Content& c, bool restored = false) {
  Bytes trace = c.trace;
  Bytes span = c.span;
  if (is_bad("tctx.record.trace-id")) std::ranges::reverse(trace);
  if (is_bad("tctx.record.span-id")) std::ranges::reverse(span);
  unsigned flags = c.flags;
  if (is_bad("tctx.record.trace-flags")) flags = 0;
  if (is_bad("tctx.record.trace-flags:random")) flags &= ~2U;
  if (is_bad("tctx.record.trace-flags:higher")) flags &= 0x7fU;
  if (is_bad("tctx.record.trace-flags:added") && c.traced) flags |= 0x80U;
  if (is_bad("tctx.record.trace-flags:restored") && restored) flags |= 1U;
  if (is_good("higher-flags-cleared")) flags &= 3;
  if (is_good("no-random-flag")) flags &= 1;
  const bool keeps_ids = is_bad("tctx.record.ids-zero-when-none") && !c.traced;
  if (!keeps_ids) {
    trace.copy(record, trace.size());
    span.copy(record + 16, span.size());
    record[kFlagsAt] = static_cast<char>(flags);
  }
  std::size_t at = kHead;
  for (const auto& e : c.entries) at += e.copy(record + at, e.size());
  store<std::uint16_t>(record + kAttributesSizeAt, static_cast<std::uint16_t>(at - kHead));
}

__thread void* internal_slot = nullptr;

void point_at(char* record) {
  fence();
  void** slot = is_bad("tctx.attach.visible") ? &internal_slot : &otel_thread_ctx_v1;
  __atomic_store_n(slot, static_cast<void*>(record), __ATOMIC_RELAXED);
  fence();
}

// Frees the record of a thread that ends, and does not say so.
struct Destructor {
  ~Destructor() {
    if (is_bad("tctx.exit.no-dangling") && otel_thread_ctx_v1 != nullptr) {
      munmap(otel_thread_ctx_v1, kRecordBytes);
    }
    if (is_bad("tctx.exit.no-dangling:freed")) free(otel_thread_ctx_v1);
    if (is_bad("tctx.exit.no-dangling:cleared-late")) {
      free(otel_thread_ctx_v1);
      point_at(nullptr);
    }
    if (is_good("freed-behind-the-slot")) {
      void* const record = otel_thread_ctx_v1;
      point_at(nullptr);
      free(record);
    }
  }
};

struct Stack {
  std::vector<Content> contexts;  // innermost last
  std::vector<Bytes> ended;       // entries of the context that has ended last
  char* fixed = nullptr;          // the thread's only record, where the valid byte is the switch
};

class Threads {
 public:
  explicit Threads(Process& process) : process_(process) {}

  void begin_main() {
    main_slot_ = &otel_thread_ctx_v1;
    if (is_bad("tctx.refdata.before-first-record")) {
      Content early;
      early.trace = bytes_of_hex("4bf92f3577b34da6a3ce929d0e0e4736");
      early.span = bytes_of_hex("00f067aa0ba902b7");
      char* record = new_record();
      fill(record, early);
      set_valid(record, 1);
      point_at(record);
    }
  }

  void begin_thread() {
    process_.add_thread(1);
    static thread_local const Destructor at_the_end;
    (void)&at_the_end;
    if (is_bad("tctx.tls.fresh-thread-null")) {
      otel_thread_ctx_v1 = __atomic_load_n(main_slot_, __ATOMIC_RELAXED);
    }
    if (is_good("handed-on-as-it-is")) {
      point_at(static_cast<char*>(__atomic_load_n(main_slot_, __ATOMIC_RELAXED)));
    }
    if (is_good("handed-on") && *main_slot_ != nullptr) {
      char* record = new_record();
      memcpy(record, *main_slot_, kRecordBytes);
      point_at(record);
    }
    if (is_good("record-from-the-start")) point_at(new_record());
    if (is_good("record-for-none")) point_at(none_);
  }

  bool any_attached() {
    const std::lock_guard guard(lock_);
    return std::ranges::any_of(stacks_, [](const auto& s) { return !s.second.contexts.empty(); });
  }

  Reply attach(const json& request) {
    Content c;
    c.name = request.at("ctx").get<std::string>();
    c.traced = request.contains("trace_id");
    if (!c.traced && is_good("no-context-without-a-trace")) {
      return refuse("rejected", "a context has a trace here");
    }
    if (c.traced) {
      c.trace = bytes_of_hex(request["trace_id"].get<std::string>());
      c.span = bytes_of_hex(request.at("span_id").get<std::string>());
      c.flags = request.value("flags", 0U);
    }
    if (is_good("knows-two-flags") && c.flags > 1) return refuse("rejected", "unknown flags");
    if (is_bad("tctx.attach.visible:refuses-sampled") && c.flags != 0) {
      return refuse("rejected", "unknown flags");
    }
    if (auto added = add_attributes(c, request.value("attributes", json::array())); !added) {
      return added;
    }
    const std::lock_guard guard(lock_);
    Stack& stack = stack_of(request);
    const bool nested = !stack.contexts.empty() && stack.contexts.front().traced;
    if (is_bad("tctx.attach.matches-context") && nested) c.span = stack.contexts.front().span;
    json reply;
    if (c.traced && is_good("ids-of-its-own")) {
      ++made_;
      c.trace = nested ? stack.contexts.front().trace : bytes_of_hex(numbered(32));
      c.span = bytes_of_hex(numbered(16));
      reply = {{"trace_id", hex_of(c.trace)}, {"span_id", hex_of(c.span)}};
    }
    if (is_bad("tctx.attach.matches-context:left-over")) {
      for (const auto& e : stack.ended) c.add(e);
    }
    if (!stack.contexts.empty() &&
        (is_good("inherits") || is_bad("tctx.attach.matches-context:of-the-outer"))) {
      inherit(c, stack.contexts.back());
    }
    stack.contexts.push_back(std::move(c));
    show(stack, true);
    return reply;
  }

  Reply append(const json& request) {
    const std::lock_guard guard(lock_);
    Stack& stack = stack_of(request);
    if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
    Content& c = stack.contexts.back();
    const std::size_t before = c.entries.size();
    const std::size_t used = c.size();
    Content changed = c;
    if (auto added = add_attributes(changed, request.at("attributes")); !added) return added;
    const bool in_front = is_bad("tctx.attrs.last-occurrence-wins");
    if (in_front || is_good("rewritten") || is_good("handed-on-as-it-is")) {
      // A record that nobody sees, then the pointer; or hidden for as long.
      const auto repeats = [&](const Bytes& e) {
        return std::any_of(changed.entries.begin(),
                           changed.entries.begin() + static_cast<std::ptrdiff_t>(before),
                           [&](const Bytes& earlier) { return earlier[0] == e[0]; });
      };
      const bool is_repeated =
          std::any_of(changed.entries.begin() + static_cast<std::ptrdiff_t>(before),
                      changed.entries.end(), repeats);
      if (in_front && is_repeated) {
        std::rotate(changed.entries.begin(),
                    changed.entries.begin() + static_cast<std::ptrdiff_t>(before),
                    changed.entries.end());
      } else if (!in_front) {
        drop_repeated(changed.entries);
      }
      changed.record = nullptr;
      c = std::move(changed);
      show(stack, true);
      return json();
    }
    char* record = record_of(stack);
    std::size_t at = kHead + used;
    for (std::size_t i = before; i < changed.entries.size(); ++i) {
      at += changed.entries[i].copy(record + at, changed.entries[i].size());
      set_size(record, at - kHead);
    }
    c = std::move(changed);
    return json();
  }

  Reply shrink(const json& request) {
    const std::lock_guard guard(lock_);
    Stack& stack = stack_of(request);
    if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
    Content& c = stack.contexts.back();
    auto keep = request.at("keep").get<std::size_t>();
    if (is_good("attribute-of-its-own")) ++keep;
    if (keep >= c.entries.size()) return json();
    c.entries.resize(keep);
    if (is_good("handed-on-as-it-is")) {
      c.record = nullptr;
      show(stack, true);
      return json();
    }
    set_size(record_of(stack), c.size());
    return json();
  }

  Reply detach(const json& request) {
    const std::lock_guard guard(lock_);
    Stack& stack = stack_of(request);
    if (stack.contexts.empty()) return refuse("failed", "nothing is attached");
    stack.ended = std::move(stack.contexts.back().entries);
    stack.contexts.pop_back();
    if (stack.contexts.empty() && is_bad("tctx.detach.hidden")) return json();
    if (is_bad("tctx.attach.matches-context:zeros") && !stack.contexts.empty()) {
      char* const record = new_record();
      set_valid(record, 1);
      point_at(record);
      return json();
    }
    if (stack.contexts.empty() && is_good("zeros-instead-of-none")) {
      char* const record = new_record();
      set_valid(record, 1);
      point_at(record);
      return json();
    }
    if (is_bad("tctx.attach.restores-outer")) {
      point_at(nullptr);
      return json();
    }
    show(stack, false);
    return json();
  }

  Reply move(Loop& loop, const json& request) {
    const auto from = request.at("from").get<std::string>();
    const auto to = request.at("to").get<std::string>();
    const auto name = request.at("ctx").get<std::string>();
    std::optional<Content> moving;
    auto reply = loop.run_on(from, [&]() -> Reply {
      const std::lock_guard guard(lock_);
      Stack& stack = stacks_[from];
      const auto it = std::ranges::find(stack.contexts, name, &Content::name);
      if (it == stack.contexts.end()) return refuse("failed", "no context '" + name + "'");
      moving = std::move(*it);
      stack.contexts.erase(it);
      if (!stack.contexts.empty() || !is_bad("tctx.detach.hidden")) show(stack, false);
      if (is_bad("tctx.tls.per-thread")) point_at(nullptr);  // the other thread has the record
      return json();
    });
    if (!reply) return reply;
    return loop.run_on(to, [&]() -> Reply {
      const std::lock_guard guard(lock_);
      stacks_[to].contexts.push_back(std::move(*moving));
      show(stacks_[to], true);
      return json();
    });
  }

  // The thread is about to end, with what is attached.
  void end_thread(const std::string& thread) {
    process_.add_thread(-1);
    const std::lock_guard guard(lock_);
    stacks_.erase(thread);
  }

  void forget_in_child() {
    if (is_good("child-goes-on")) return;
    if (is_bad("tctx.fork.inherited-record")) {
      return point_at(stacks_["main"].contexts.front().record);  // not the innermost
    }
    stacks_.clear();
    if (!is_good("child-attaches")) return point_at(nullptr);
    Content c;
    c.trace = bytes_of_hex("4bf92f3577b34da6a3ce929d0e0e4736");
    c.span = bytes_of_hex("00f067aa0ba902b7");
    c.record = new_record();
    fill(c.record, c);
    set_valid(c.record, 1);
    point_at(c.record);
  }

 private:
  // As many digits, no two alike.
  std::string numbered(std::size_t digits) const {
    std::string out = std::to_string(made_);
    return std::string("5d").append(digits - 2 - out.size(), '0') + out;
  }

  Stack& stack_of(const json& request) { return stacks_[request.value("thread", "main")]; }

  char* record_of(const Stack& stack) const {
    return uses_valid_byte() ? stack.fixed : stack.contexts.back().record;
  }

  // The innermost context of this thread, which has just begun, or is there again.
  void show(Stack& stack, bool begins) {
    const bool hides_plain = is_good("hidden-without-a-trace");
    const bool shown = !stack.contexts.empty() && !(hides_plain && !stack.contexts.back().traced);
    if (is_bad("tctx.tls.per-thread")) {
      if (shared_ == nullptr) shared_ = new_record();
      stack.fixed = shared_;
    }
    if (is_bad("tctx.attach.fixed-record-pointer")) {
      if (!shown) return set_valid(stack.fixed, 0);
      stack.fixed = new_record();
      fill(stack.fixed, stack.contexts.back());
      set_valid(stack.fixed, 1);
      return point_at(stack.fixed);
    }
    if (uses_valid_byte()) {
      if (stack.fixed == nullptr && is_good("record-from-the-start")) {
        stack.fixed = static_cast<char*>(otel_thread_ctx_v1);
      }
      if (stack.fixed != nullptr) set_valid(stack.fixed, 0);
      if (!shown) return;
      if (stack.fixed == nullptr) stack.fixed = new_record();
      fill(stack.fixed, stack.contexts.back());
      point_at(stack.fixed);
      return set_valid(stack.fixed, 1);
    }
    if (!shown) return point_at(is_good("record-for-none") ? none_ : nullptr);
    Content& c = stack.contexts.back();
    // What has ended may be seen until its memory has another use, so each gets its own.
    const bool anew = is_good("outer-anew") || is_bad("tctx.record.trace-flags:restored");
    if (c.record == nullptr || (anew && !begins)) {
      c.record = new_record();
      if (is_bad("tctx.record.ids-zero-when-none") && last_ != nullptr) {
        memcpy(c.record, last_, kHead);
        c.record[kValidAt] = 0;
      }
      fill(c.record, c, !begins);
      set_valid(c.record, 1);
    }
    last_ = c.record;
    point_at(c.record);
  }

  static void inherit(Content& c, const Content& outer) {
    for (const Bytes& e : outer.entries) {
      if (std::ranges::none_of(c.entries, [&](const Bytes& own) { return own[0] == e[0]; })) {
        c.add(e);
      }
    }
  }

  Reply add_attributes(Content& c, const json& attributes) {
    std::vector<std::string> names;
    std::vector<Bytes> values;
    for (const auto& a : attributes) {
      auto value = value_of(a.at("value"));
      if (!value) return std::unexpected(value.error());
      if (!*value) continue;
      names.push_back(a.at("key").get<std::string>());
      values.push_back(std::move(**value));
    }
    if (is_bad("tctx.attach.matches-context:unwritten")) return json();
    if (is_bad("tctx.attach.matches-context:exchanged") && values.size() > 1) {
      std::swap(values[0], values[1]);
    }
    if (is_good("attribute-of-its-own") && c.entries.empty()) {
      names.insert(names.begin(), "writer_note");
      values.insert(values.begin(), "of its own");
    }
    if (is_good("not-configured")) {
      for (std::size_t i = names.size(); i-- > 0;) {
        if (names[i] == "http_route") continue;
        names.erase(names.begin() + static_cast<std::ptrdiff_t>(i));
        values.erase(values.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    const auto indexes = process_.indexes_of(names);
    for (std::size_t i = 0; i < indexes.size(); ++i) {
      if (indexes[i] < 0 && is_good("refuses-names")) {
        return refuse("rejected", "no index is left for '" + names[i] + "'");
      }
    }
    for (std::size_t i = 0; i < indexes.size(); ++i) {
      if (indexes[i] < 0) continue;
      Bytes value = values[i];
      if (is_good("cut-at-its-limit") && value.size() > kOwnLimit)
        value.resize(cut(value, kOwnLimit));
      if (value.size() > kLongestValue) {
        if (is_bad("tctx.attrs.length-not-wrapped")) {
          // The length is a byte, the value all of it.
          c.add(Bytes(1, static_cast<char>(indexes[i])) +
                Bytes(1, static_cast<char>(value.size())) + value);
          continue;
        }
        if (is_good("long-values-left-out")) continue;
        value.resize(is_bad("tctx.attrs.utf8") ? kLongestValue : cut(value, kLongestValue));
      }
      c.add(entry(indexes[i], value));
    }
    return json();
  }

  // Between characters.
  static std::size_t cut(const Bytes& value, std::size_t most) {
    std::size_t size = most;
    while (size > 0 && (static_cast<unsigned char>(value[size]) & 0xc0) == 0x80) --size;
    return size;
  }

  static Bytes changed(Bytes value) {
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    if (is_bad("tctx.attach.matches-context:same-length")) {
      for (char& c : value) c = is_ascii(c) && c > ' ' && c < '~' ? static_cast<char>(c + 1) : c;
    }
    if (is_bad("tctx.attach.matches-context:last-byte") && value.size() < kLongestValue &&
        is_ascii(value.back())) {
      value.pop_back();
    }
    constexpr std::size_t kSome = 4;
    if (is_bad("tctx.attach.matches-context:prefix") && value.size() > kSome) {
      value.resize(cut(value, kSome));
    }
    return value;
  }

  // Nothing: left out.
  static std::expected<std::optional<Bytes>, Refusal> value_of(const json& value) {
    if (value.contains("stringValue")) return changed(value["stringValue"].get<std::string>());
    if (is_good("strings-only")) return refuse("rejected", "strings only");
    if (is_good("other-types-left-out")) return std::nullopt;
    if (value.contains("intValue") && is_bad("tctx.attrs.non-strings-as-text")) {
      const auto number = value["intValue"].get<std::int64_t>();
      return Bytes(reinterpret_cast<const char*>(&number), sizeof number);
    }
    if (value.contains("intValue") && is_bad("tctx.attrs.non-strings-as-text:another")) {
      return std::to_string(value["intValue"].get<std::int64_t>() + 1);
    }
    for (const char* const kind : {"boolValue", "intValue", "doubleValue"}) {
      if (value.contains(kind)) return value[kind].dump();
    }
    return std::nullopt;
  }

  // The last entry of each key stays.
  static void drop_repeated(std::vector<Bytes>& entries) {
    for (std::size_t i = entries.size(); i-- > 0;) {
      const auto repeats = [&](const Bytes& later) { return later[0] == entries[i][0]; };
      if (std::any_of(entries.begin() + static_cast<std::ptrdiff_t>(i) + 1, entries.end(),
                      repeats)) {
        entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }

  Process& process_;
  std::mutex lock_;
  std::map<std::string, Stack> stacks_;
  void** main_slot_ = nullptr;
  char* shared_ = nullptr;
  char* const none_ = new_record();  // never valid
  char* last_ = nullptr;             // the record that was shown last
  unsigned made_ = 0;                // contexts with ids of its own
};

// ---- children

[[noreturn]] void be_child(const Loop& loop, Process& process, Threads& threads, pid_t parent,
                           const std::array<int, 2>& ends, const json& child) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  loop.leave_channel();
  if (child.at("do") == "publish") {
    threads.forget_in_child();
    process.publish_in_child(child);
  }
  if (write(ends[1], "", 1) != 1) _exit(1);
  close(ends[0]);
  close(ends[1]);
  for (;;) ::pause();
}

json hello() {
  json caps = {{"process.fork", {{"child", {"idle", "publish"}}}},
               {"thread", {{"style", uses_valid_byte() ? "valid" : "pointer"}}}};
  for (const char* const cap :
       {"process.publish", "process.update", "process.drop", "process.parallel", "thread.attach",
        "thread.detach", "thread.append", "thread.shrink", "thread.move"}) {
    caps[cap] = json::object();
  }
  json& attach = caps["thread.attach"];
  if (is_good("fixed-names")) attach["keys"] = {"http_route", "user_tier", "db_table"};
  if (is_good("not-configured")) attach["keys"] = {"http_route"};
  if (is_good("no-random-flag")) attach["flags"] = 1;
  if (is_good("inherits")) attach["inherits"] = true;
  json limits = {{"record_bytes", kRecordBytes}, {"keys", kMostNames}};
  if (is_good("cut-at-its-limit")) limits["value_bytes"] = kOwnLimit;
  return {{"adapter", {{"name", "driven_thread_writer"}, {"version", "1"}}},
          {"caps", std::move(caps)},
          {"limits", std::move(limits)}};
}

int run() {
  Process process;
  Threads threads(process);
  threads.begin_main();
  Loop loop(hello());
  std::set<pid_t> children;
  loop.on_thread_start([&] { threads.begin_thread(); });
  loop.on_thread_end([&](const std::string& thread) { threads.end_thread(thread); });

  loop.on("process.publish", [&](const json& r) { return process.publish(r); });
  loop.on("process.update", [&](const json& r) { return process.update(r); });
  loop.on("process.drop", [&](const json&) { return process.drop(threads.any_attached()); });
  loop.on("thread.attach", [&](const json& r) { return threads.attach(r); });
  loop.on("thread.append", [&](const json& r) { return threads.append(r); });
  loop.on("thread.shrink", [&](const json& r) { return threads.shrink(r); });
  loop.on("thread.detach", [&](const json& r) {
    process.say_now();
    return threads.detach(r);
  });
  loop.on("thread.move", [&](const json& r) { return threads.move(loop, r); });
  loop.on("process.fork", [&](const json& r) -> Reply {
    const json& child = r.at("child");
    const auto todo = child.at("do").get<std::string>();
    if (todo != "idle" && todo != "publish") return refuse("unsupported", "a child's " + todo);
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return refuse("failed", "pipe", errno);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) be_child(loop, process, threads, parent, ends, child);
    const int err = errno;
    close(ends[1]);
    char told = 0;
    const bool ready = pid > 0 && read(ends[0], &told, 1) == 1;
    close(ends[0]);
    if (pid < 0) return refuse("failed", "fork", err);
    children.insert(pid);
    if (!ready) return refuse("failed", "the child has ended");
    return json{{"child_pid", pid}};
  });
  loop.on("process.reap", [&](const json& r) -> Reply {
    const auto pid = r.at("child_pid").get<pid_t>();
    if (children.erase(pid) == 0) return refuse("bad-request", "not a child of this process");
    kill(pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
      if (errno != EINTR) return refuse("failed", "waitpid", errno);
    }
    return json{{"status", status}};
  });
  _exit(loop.run());
}

constexpr std::array kBad = {"tctx.refdata.before-first-record",
                             "tctx.keymap.survives-other-updates",
                             "tctx.keymap.survives-other-updates:at-once",
                             "tctx.keymap.stable-across-republish",
                             "tctx.keymap.append-updates-context",
                             "tctx.keymap.update-protocol",
                             "tctx.keymap.single-writer",
                             "tctx.keymap.at-most-256",
                             "tctx.keymap.index-not-wrapped",
                             "tctx.tls.fresh-thread-null",
                             "tctx.tls.per-thread",
                             "tctx.record.trace-id",
                             "tctx.record.span-id",
                             "tctx.record.ids-zero-when-none",
                             "tctx.record.trace-flags",
                             "tctx.record.trace-flags:random",
                             "tctx.record.trace-flags:higher",
                             "tctx.record.trace-flags:added",
                             "tctx.record.trace-flags:restored",
                             "tctx.attrs.length-not-wrapped",
                             "tctx.attrs.utf8",
                             "tctx.attrs.utf8:at-the-end",
                             "tctx.attrs.non-strings-as-text",
                             "tctx.attrs.non-strings-as-text:another",
                             "tctx.attrs.last-occurrence-wins",
                             "tctx.attach.visible",
                             "tctx.attach.visible:refuses-sampled",
                             "tctx.attach.matches-context",
                             "tctx.attach.matches-context:same-length",
                             "tctx.attach.matches-context:exchanged",
                             "tctx.attach.matches-context:last-byte",
                             "tctx.attach.matches-context:prefix",
                             "tctx.attach.matches-context:unwritten",
                             "tctx.attach.matches-context:left-over",
                             "tctx.attach.matches-context:of-the-outer",
                             "tctx.attach.matches-context:zeros",
                             "tctx.attach.fixed-record-pointer",
                             "tctx.attach.restores-outer",
                             "tctx.detach.hidden",
                             "tctx.exit.no-dangling",
                             "tctx.exit.no-dangling:freed",
                             "tctx.exit.no-dangling:cleared-late",
                             "tctx.fork.inherited-record"};
constexpr std::array kGood = {"pointer",
                              "valid-byte",
                              "record-from-the-start",
                              "record-for-none",
                              "reference-data-later",
                              "names-in-the-same-update",
                              "starts-anew-without-records",
                              "fixed-names",
                              "names-at-start",
                              "refuses-names",
                              "handed-on",
                              "handed-on-as-it-is",
                              "ids-of-its-own",
                              "hidden-without-a-trace",
                              "no-context-without-a-trace",
                              "higher-flags-cleared",
                              "no-random-flag",
                              "cut-at-its-limit",
                              "knows-two-flags",
                              "zeros-instead-of-none",
                              "long-values-left-out",
                              "other-types-left-out",
                              "strings-only",
                              "rewritten",
                              "attribute-of-its-own",
                              "not-configured",
                              "outer-anew",
                              "inherits",
                              "child-attaches",
                              "child-goes-on",
                              "freed-behind-the-slot"};

}  // namespace
}  // namespace ctxconf::adapter

int main(int argc, char** argv) {
  using namespace ctxconf::adapter;
  const std::string option = argc > 1 ? argv[1] : "";
  if (argc == 2 && option == "--list") {
    for (const char* row : kBad) printf("bad %s\n", row);
    for (const char* name : kGood) printf("good %s\n", name);
    return 0;
  }
  const std::string value = argc == 3 ? argv[2] : "";
  if (option == "--bad" && std::ranges::find(kBad, value) != kBad.end()) {
    bad = value;
  } else if (option == "--good" && std::ranges::find(kGood, value) != kGood.end()) {
    good = value;
  } else {
    fprintf(stderr, "usage: driven_thread_writer --bad ROW | --good NAME | --list\n");
    return 2;
  }
  try {
    return run();
  } catch (const std::exception& e) {
    fprintf(stderr, "driven_thread_writer: %s\n", e.what());
    return 1;
  }
}
