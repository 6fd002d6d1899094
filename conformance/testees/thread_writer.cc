// Programs that publish thread context (OTEP 4947) beside a process context, each legal in
// its own way or wrong in exactly one. `--list` names them; mutants.json says which rows of
// the catalogue each of them is about.
//
// One source, several programs: thread_writer has the slot itself, others say in
// THREAD_WRITER_FORM how they come by theirs. As in process_writer everything is written
// out here and nothing shared with the judge. A failing system call ends the program: 77
// where the host cannot show the case, 1 otherwise.

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // Linux 6.3
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#define FORM_DEFINES 1  // has the slot; whether it is exported is the linker's part
#define FORM_LOADS 2    // has none, and loads a library with one
#define FORM_GO 3       // the same, and passes for a Go program

#ifndef THREAD_WRITER_FORM
#define THREAD_WRITER_FORM FORM_DEFINES
#endif
#define HAS_SLOT (THREAD_WRITER_FORM == FORM_DEFINES)

#if HAS_SLOT
extern "C" {
__attribute__((visibility("default"))) __thread void* otel_thread_ctx_v1 = nullptr;
}
#endif

#if THREAD_WRITER_FORM == FORM_GO
// What the Go linker leaves for debug/buildinfo: magic, pointer size, flags (strings inline),
// then version and modules with their lengths.
__attribute__((section(".go.buildinfo"), used, aligned(16))) const char kBuildInfo[64] =
    "\xff Go buildinf:\x08\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x06go1.23\x00";
#endif

namespace {

using Bytes = std::string;

constexpr int kCannotBeShownHere = 77;

struct Options {
  int hold_ms = -1;  // the last wait; negative: what the case asks for
  bool hold_to_eof = false;
  int pause_ms = 350;  // between the steps of a case: three looks at 100 ms each
  bool pause_for_byte = false;
  bool quiet = false;
  char** arguments = nullptr;
};
Options options;

[[noreturn]] void die(const char* step) {
  std::fprintf(stderr, "thread_writer: %s: %s\n", step, std::strerror(errno));
  std::exit(1);
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// False at the end of standard input.
bool read_a_byte() {
  char byte;
  ssize_t got;
  do got = read(STDIN_FILENO, &byte, 1);
  while (got < 0 && errno == EINTR);
  return got > 0;
}

void pause() {
  if (!options.pause_for_byte) return sleep_ms(options.pause_ms);
  (void)read_a_byte();
}

void wait_for_the_end() {
  if (!options.hold_to_eof) return sleep_ms(options.hold_ms);
  while (read_a_byte()) {
  }
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
Bytes joined(std::uint32_t number, const std::vector<Bytes>& messages) {
  Bytes out;
  for (const auto& m : messages) out += field(number, m);
  return out;
}

// AnyValue
Bytes text(const Bytes& value) { return field(1, value); }
Bytes integer(std::uint64_t value) { return varint(3 << 3) + varint(value); }
Bytes array(const std::vector<Bytes>& values) { return field(5, joined(1, values)); }
Bytes list(const std::vector<Bytes>& pairs) { return field(6, joined(1, pairs)); }

Bytes pair(const Bytes& key, const Bytes& any_value) { return field(1, key) + field(2, any_value); }

using Names = std::vector<Bytes>;

// Not in the order of the alphabet.
Names usual_names() { return {"http.route", "http.request.method", "user.id", "enduser.note"}; }

Bytes array_of(const Names& names) {
  std::vector<Bytes> values;
  for (const auto& n : names) values.push_back(text(n));
  return array(values);
}

const Bytes kDevelopmentSchema = "tlsdesc_v1_dev";
const Bytes kGoSchema = "go_pprof_labels_v1";

Bytes version_entry(const Bytes& any_value) {
  return pair("threadlocal.schema_version", any_value);
}
Bytes map_entry(const Bytes& any_value) { return pair("threadlocal.attribute_key_map", any_value); }
std::vector<Bytes> reference_data(const Names& names, const Bytes& version = kDevelopmentSchema) {
  return {version_entry(text(version)), map_entry(array_of(names))};
}

Bytes message(const std::vector<Bytes>& attributes, const std::vector<Bytes>& more_resource = {}) {
  std::vector<Bytes> resource = {pair("service.name", text("ctxconf-testee")),
                                 pair("telemetry.sdk.language", text("cpp")),
                                 pair("telemetry.sdk.name", text("ctxconf"))};
  resource.insert(resource.end(), more_resource.begin(), more_resource.end());
  return field(1, joined(1, resource)) + joined(2, attributes);
}
Bytes usual_message() { return message(reference_data(usual_names())); }

constexpr std::size_t kRegionSize = 4096;
constexpr std::size_t kSizeAt = 12;
constexpr std::size_t kTimestampAt = 16;
constexpr std::size_t kPointerAt = 24;

template <class T>
void store(char* at, T value) {
  __atomic_store_n(reinterpret_cast<T*>(at), value, __ATOMIC_RELAXED);
}

std::uint64_t next_timestamp() {
  static std::uint64_t last = 0;
  timespec t{};
  if (clock_gettime(CLOCK_BOOTTIME, &t) != 0) die("clock_gettime");
  last = std::max(last + 1, static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
                                static_cast<std::uint64_t>(t.tv_nsec));
  return last;
}

struct Region {
  char* at = nullptr;
};

void set_timestamp(const Region& r, std::uint64_t value) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  store<std::uint64_t>(r.at + kTimestampAt, value);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Payloads are never freed: a published one has to stay.
const char* on_heap(const Bytes& bytes) {
  auto* copy = static_cast<char*>(std::malloc(bytes.size()));
  if (copy == nullptr) die("malloc");
  bytes.copy(copy, bytes.size());
  return copy;
}

void set_payload(const Region& r, const char* payload, std::size_t size) {
  store<std::uint32_t>(r.at + kSizeAt, static_cast<std::uint32_t>(size));
  store<std::uint64_t>(r.at + kPointerAt, reinterpret_cast<std::uintptr_t>(payload));
}

void set_name(const Region& r, bool needed) {
  if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, r.at, kRegionSize, "OTEL_CTX") == 0 || !needed)
    return;
  std::fprintf(stderr, "thread_writer: this kernel names no anonymous memory\n");
  std::exit(kCannotBeShownHere);
}

Region publish(const Bytes& bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  auto fd = static_cast<int>(syscall(SYS_memfd_create, "OTEL_CTX", kFlags | MFD_NOEXEC_SEAL));
  if (fd < 0) fd = static_cast<int>(syscall(SYS_memfd_create, "OTEL_CTX", kFlags));
  if (fd >= 0 && ftruncate(fd, kRegionSize) != 0) die("ftruncate");
  void* p = mmap(nullptr, kRegionSize, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
  if (p == MAP_FAILED) die("mmap");
  if (fd >= 0) close(fd);
  const Region r{static_cast<char*>(p)};
  if (madvise(r.at, kRegionSize, MADV_DONTFORK) != 0) die("madvise");
  std::memcpy(r.at, "OTEL_CTX", 8);
  store<std::uint32_t>(r.at + 8, 2);
  set_payload(r, on_heap(bytes), bytes.size());
  set_timestamp(r, next_timestamp());
  set_name(r, fd < 0);
  return r;
}

void update(const Region& r, const Bytes& bytes) {
  const char* payload = on_heap(bytes);
  set_timestamp(r, 0);
  set_payload(r, payload, bytes.size());
  set_timestamp(r, next_timestamp());
  set_name(r, false);
}

// ---- records

constexpr std::size_t kHead = 28;
constexpr std::size_t kSpanAt = 16;
constexpr std::size_t kValidAt = 24;
constexpr std::size_t kFlagsAt = 25;
constexpr std::size_t kAttributesSizeAt = 26;

Bytes two_bytes(std::uint16_t value) {
  Bytes out(2, '\0');
  std::memcpy(out.data(), &value, 2);
  return out;
}

Bytes entry(int key, const Bytes& value) {
  return Bytes(1, static_cast<char>(key)) + Bytes(1, static_cast<char>(value.size())) + value;
}

struct Record {
  Bytes trace = Bytes("\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36", 16);
  Bytes span = Bytes("\xb7\xad\x6b\x71\x69\x20\x33\x31", 8);
  char valid = 1;
  char flags = 1;
  std::vector<Bytes> entries;

  Bytes area() const {
    Bytes out;
    for (const auto& e : entries) out += e;
    return out;
  }
  // The fixed part says `size`, whatever follows.
  Bytes with(std::size_t size, const Bytes& area) const {
    return trace + span + valid + flags + two_bytes(static_cast<std::uint16_t>(size)) + area;
  }
  Bytes bytes() const { return with(area().size(), area()); }
};

// One for the main thread, one for a thread that sleeps, one for a thread that does not.
std::vector<Record> usual_records() {
  Record main;
  main.entries = {entry(0, "/cart"), entry(1, "GET"), entry(2, "4711")};
  Record sleeper;
  sleeper.span[0] = '\x11';
  sleeper.flags = 0;
  sleeper.entries = {entry(0, "/checkout/payment"), entry(1, "POST")};
  Record busy;
  busy.span[0] = '\x22';
  busy.flags = 3;
  busy.entries = {entry(3, "never sleeps")};
  return {main, sleeper, busy};
}

std::vector<Bytes> bytes_of(const std::vector<Record>& records) {
  std::vector<Bytes> out;
  out.reserve(records.size());
  for (const auto& r : records) out.push_back(r.bytes());
  return out;
}

// With the same change in each of the usual records.
template <class Change>
std::vector<Bytes> usual_with(const Change& change) {
  auto records = usual_records();
  for (auto& r : records) change(r);
  return bytes_of(records);
}
std::vector<Bytes> usual_bytes() { return bytes_of(usual_records()); }

// Each in a block of its own with zeros behind it; never freed.
char* in_block(const Bytes& bytes) {
  constexpr std::size_t kBlock = 4096;
  auto* p = static_cast<char*>(std::aligned_alloc(64, kBlock));
  if (p == nullptr || bytes.size() > kBlock) die("aligned_alloc");
  std::memset(p, 0, kBlock);
  bytes.copy(p, bytes.size());
  return p;
}

// ---- the slot

#if HAS_SLOT
void** slot() { return &otel_thread_ctx_v1; }
#else
void* (*slot_function)() = nullptr;
void* library = nullptr;
bool by_name = false;

void** slot() {
  void* at = by_name ? dlsym(library, "otel_thread_ctx_v1") : slot_function();
  if (at == nullptr) {
    std::fprintf(stderr, "thread_writer: no slot: %s\n", dlerror());
    std::exit(1);
  }
  return static_cast<void**>(at);
}

void* open_library(const char* file, int flags = RTLD_LOCAL) {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  if (size < 0 || size == sizeof path) die("readlink");
  const std::string self(path, static_cast<std::size_t>(size));
  void* handle = dlopen((self.substr(0, self.rfind('/') + 1) + file).c_str(), RTLD_NOW | flags);
  if (handle == nullptr) {
    std::fprintf(stderr, "thread_writer: %s\n", dlerror());
    std::exit(kCannotBeShownHere);
  }
  return handle;
}

void take_slot_of(const char* file) {
  library = open_library(file);
  slot_function = reinterpret_cast<void* (*)()>(dlsym(library, "slot_place"));
  by_name = slot_function == nullptr;
}
#endif

// One store; the compiler must not move what fills the record behind it.
void attach(char* record) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  __atomic_store_n(slot(), static_cast<void*>(record), __ATOMIC_RELAXED);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
void detach() { attach(nullptr); }

void set_valid(char* record, char value) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  store<char>(record + kValidAt, value);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}
void set_size(char* record, std::size_t size) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  store<std::uint16_t>(record + kAttributesSizeAt, static_cast<std::uint16_t>(size));
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// ---- threads

std::atomic<bool> done{false};
std::atomic<int> attached{0};
std::mutex output;

// For whoever looks from outside whether the program is what it says.
void tell_thread(const char* style) {
  if (options.quiet) return;
  const std::scoped_lock lock(output);
  std::printf("%s tid=%d slot=0x%llx record=0x%llx\n", style, static_cast<int>(syscall(SYS_gettid)),
              static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(slot())),
              static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(*slot())));
}

enum class Stay { kAsleep, kBusy };

void stay(Stay how) {
  if (how == Stay::kAsleep) return done.wait(false);
  while (!done.load(std::memory_order_relaxed)) {
  }
}

// A thread whose record stands still.
void hold_record(char* record, Stay how) {
  attach(record);
  tell_thread("still");
  ++attached;
  stay(how);
  detach();
}

class Threads {
 public:
  // `body` adds one to `attached` when there is something to look at, and returns soon after
  // `done`.
  void start(std::function<void()> body) {
    threads_.emplace_back(std::move(body));
    while (attached.load() < static_cast<int>(threads_.size())) sleep_ms(1);
  }
  ~Threads() {
    done = true;
    done.notify_all();
    for (auto& t : threads_) t.join();
  }

 private:
  std::vector<std::thread> threads_;
};

void announce(const Region* r) {
  if (options.quiet) return;
  const std::scoped_lock lock(output);
  if (r != nullptr) {
    std::printf("published pid=%d header=0x%llx\n", static_cast<int>(getpid()),
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(r->at)));
  }
  std::printf("ready pid=%d\n", static_cast<int>(getpid()));
  std::fflush(stdout);
}

// What most cases differ in.
struct Scene {
  Bytes context = usual_message();                         // empty: none is published
  std::vector<Bytes> records = usual_bytes();              // of main and further threads
  char* (*place)(const Bytes& record) = in_block;          // where a record goes
  std::function<void(const Region&)> meanwhile = nullptr;  // once all are attached
};

void play(const Scene& scene) {
  Region r;
  const bool publishes = !scene.context.empty();
  if (publishes) r = publish(scene.context);
  if (!scene.records.empty()) {
    attach(scene.place(scene.records[0]));
    tell_thread("still");
  }
  {
    Threads threads;
    for (std::size_t i = 1; i < scene.records.size(); ++i) {
      char* record = scene.place(scene.records[i]);
      const Stay how = i % 2 == 1 ? Stay::kAsleep : Stay::kBusy;
      threads.start([record, how] { hold_record(record, how); });
    }
    if (scene.meanwhile) scene.meanwhile(r);
    announce(publishes ? &r : nullptr);
    wait_for_the_end();
  }
  if (!scene.records.empty()) detach();
}

void play_context(const std::vector<Bytes>& attributes) { play({.context = message(attributes)}); }
void play_records(std::vector<Bytes> records) { play({.records = std::move(records)}); }

#if HAS_SLOT

void good_default() { play({}); }

// ---- wrong in one way: reference data

void bad_in_attributes() { play({.context = message({}, reference_data(usual_names()))}); }
void bad_schema_version_present() { play_context({map_entry(array_of(usual_names()))}); }
void bad_key_map_present() { play_context({version_entry(text(kDevelopmentSchema))}); }
void bad_schema_version_string() {
  play_context({version_entry(integer(1)), map_entry(array_of(usual_names()))});
}
void bad_schema_version_value() { play_context(reference_data(usual_names(), "tlsdesc")); }

void bad_key_map_array() {
  std::vector<Bytes> pairs;
  for (const auto& name : usual_names()) pairs.push_back(pair(name, integer(pairs.size())));
  play_context({version_entry(text(kDevelopmentSchema)), map_entry(list(pairs))});
}

void bad_key_map_strings() {
  std::vector<Bytes> values;
  for (const auto& name : usual_names()) values.push_back(text(name));
  values.push_back(Bytes());  // of a key that was in use once
  values.push_back(text("http.status"));
  play_context({version_entry(text(kDevelopmentSchema)), map_entry(array(values))});
}

void bad_key_map_names_usable() {
  auto names = usual_names();
  names.push_back(names[1]);
  play_context(reference_data(names));
}

void bad_never_removed() {
  auto names = usual_names();
  names.emplace_back("unused.lately");
  play({.context = message(reference_data(names)), .meanwhile = [](const Region& r) {
          pause();
          update(r, usual_message());
        }});
}

void bad_never_reordered() {
  play({.meanwhile = [](const Region& r) {
    pause();
    auto names = usual_names();
    names.emplace_back("another.name");
    std::ranges::sort(names);
    update(r, message(reference_data(names)));
  }});
}

Names many_names(int count) {
  auto names = usual_names();
  while (static_cast<int>(names.size()) < count) {
    names.push_back("key.number_" + std::to_string(names.size()));
  }
  return names;
}
void bad_at_most_256() { play_context(reference_data(many_names(300))); }

// ---- wrong in one way: the record

void bad_layout() {
  std::vector<Bytes> records;
  for (const auto& r : usual_records()) {
    const Bytes root("\xb7\x5d\x02\x6b\x16\x92\x03\x13", 8);
    records.push_back(r.trace + r.span + root + '\1' + static_cast<char>(r.entries.size()) +
                      r.area());
  }
  play_records(records);
}

void bad_byte_order() {
  std::vector<Bytes> records;
  for (const auto& r : usual_records()) {
    const auto size = static_cast<std::uint16_t>(r.area().size());
    records.push_back(r.with(__builtin_bswap16(size), r.area()));
  }
  play_records(records);
}

void bad_ids_both_or_neither() {
  auto records = usual_records();
  records[1].trace.assign(16, '\0');
  play_records(bytes_of(records));
}

void bad_valid_is_one() {
  play_records(usual_with([](Record& r) { r.valid = '\xff'; }));
}

void bad_valid_reserved_values() {
  auto records = usual_records();
  records[1].valid = 2;
  play_records(bytes_of(records));
}

void bad_trace_flags_without_ids() {
  auto records = usual_records();
  records[2].trace.assign(16, '\0');
  records[2].span.assign(8, '\0');
  records[2].flags = 1;
  play_records(bytes_of(records));
}

void bad_attrs_data_size() {
  std::vector<Bytes> records;
  for (const auto& r : usual_records()) records.push_back(r.with(r.entries.size(), r.area()));
  play_records(records);
}

void bad_attrs_data_size_with_head() {
  std::vector<Bytes> records;
  for (const auto& r : usual_records())
    records.push_back(r.with(kHead + r.area().size(), r.area()));
  play_records(records);
}

// One behind the other in one array, whatever their lengths.
char* in_array(const Bytes& record) {
  static char* next = in_block({});
  char* at = next;
  record.copy(at, record.size());
  next += record.size();
  return at;
}
void bad_aligned() {
  auto records = usual_records();
  records[0].entries = {entry(0, "/cart")};  // 35 bytes
  records[1].entries = {entry(0, "/checkout/payment"), entry(1, "POST")};
  play({.records = bytes_of(records), .place = in_array});
}

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

char* map_pages(std::size_t size) {
  void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) die("mmap");
  return static_cast<char*>(p);
}

// The last bytes before a page that nobody can read.
char* before_guard(std::size_t size) {
  char* p = map_pages(2 * page());
  if (mprotect(p + page(), page(), PROT_NONE) != 0) die("mprotect");
  return p + page() - size;
}

// ---- ids that the program was told, or prints

Bytes hex(const Bytes& bytes) {
  Bytes out;
  for (const char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    out += kDigits[static_cast<unsigned char>(c) >> 4U];
    out += kDigits[static_cast<unsigned char>(c) & 15U];
  }
  return out;
}
Bytes traceparent(const Record& r) { return "00-" + hex(r.trace) + "-" + hex(r.span) + "-01"; }

void print_traceparents(const std::vector<Record>& records) {
  for (const auto& r : records) std::printf("context %s\n", traceparent(r).c_str());
}
void print_trace_ids(const std::vector<Record>& records) {
  for (const auto& r : records) std::printf("context trace_id=%s, begins\n", hex(r.trace).c_str());
}

// As whoever starts it would have told it: the program is there anew where it was not.
void be_told(const Record& parent) {
  if (std::getenv("TRACEPARENT") != nullptr) return;
  setenv("TRACEPARENT", traceparent(parent).c_str(), 1);
  execv("/proc/self/exe", options.arguments);
  die("execv");
}
Record told_parent() {
  Record parent;
  parent.span.assign("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8);
  return parent;
}

Bytes with_words_reversed(const Bytes& bytes, std::size_t word) {
  Bytes out;
  for (std::size_t at = 0; at < bytes.size(); at += word) {
    const Bytes part = bytes.substr(at, word);
    out.append(part.rbegin(), part.rend());
  }
  return out;
}
void play_with_trace_in_words(std::size_t word) {
  play_records(usual_with([&](Record& r) { r.trace = with_words_reversed(r.trace, word); }));
}

void bad_trace_id() {
  print_traceparents(usual_records());
  play_with_trace_in_words(16);
}
void bad_trace_id_in_halves() {
  print_trace_ids(usual_records());
  play_with_trace_in_words(8);
}
void bad_trace_id_as_told() {
  be_told(told_parent());
  play_with_trace_in_words(16);
}
void bad_span_id() {
  print_traceparents(usual_records());
  play_records(usual_with([](Record& r) { r.span = with_words_reversed(r.span, 8); }));
}

void good_prints_traceparents() {
  print_traceparents(usual_records());
  play({});
}
// The same id both ways, as who prints numbers may do it.
void good_prints_trace_ids() {
  auto records = usual_records();
  print_trace_ids(records);
  for (auto& r : records) r.trace = with_words_reversed(r.trace, 8);
  print_trace_ids(records);
  play({});
}
void good_continues_a_trace() {
  be_told(told_parent());
  play({});
}
void good_begins_a_trace() {
  Record parent = told_parent();
  parent.trace.assign("\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c", 16);
  be_told(parent);
  play({});
}
// Ids that somebody counts; those of another one are the same numbers in another byte order.
void good_counted_ids() {
  Record parent;
  parent.trace = Bytes(15, '\0') + '\1';
  parent.span = Bytes(7, '\0') + '\1';
  be_told(parent);
  play_records(usual_with([](Record& r) {
    r.trace = '\1' + Bytes(15, '\0');
    r.span = '\1' + Bytes(7, '\0');
  }));
}

Bytes pointer_to(const char* at) {
  const auto value = reinterpret_cast<std::uintptr_t>(at);
  return Bytes(reinterpret_cast<const char*>(&value), sizeof value);
}

// A record of 36 bytes: the fixed part and the address of a buffer with the attributes.
void bad_contiguous() {
  const Record r = usual_records()[0];
  const Bytes area = r.area();
  play({.records = {r.with(area.size(), pointer_to(in_block(area)))},
        .place = [](const Bytes& bytes) {
          char* at = before_guard(bytes.size());
          bytes.copy(at, bytes.size());
          return at;
        }});
}

// The same with readable memory behind it. The address has to have low bytes that are no
// entry: index 2, and a length beyond the end.
void bad_contiguous_readable() {
  constexpr std::uintptr_t kStep = 0x10000;
  char* p = map_pages(3 * kStep);
  char* base = p + (kStep - reinterpret_cast<std::uintptr_t>(p) % kStep);
  const Record r = usual_records()[0];
  char* buffer = base + 0xfe02;
  const Bytes area = r.area();
  area.copy(buffer, area.size());
  static char* at = base;
  play({.records = {r.with(area.size(), pointer_to(buffer))}, .place = [](const Bytes& bytes) {
          bytes.copy(at, bytes.size());
          return at;
        }});
}

void bad_recommended_size() {
  auto records = usual_records();
  for (int i = 0; i < 8; ++i) records[1].entries.push_back(entry(i % 4, Bytes(240, 'x')));
  play_records(bytes_of(records));
}

// ---- wrong in one way: entries

void bad_entry_format() {
  auto records = usual_records();
  const Bytes value(200, 'v');
  records[0].entries[1] = Bytes(1, '\1') + varint(value.size()) + value;
  play_records(bytes_of(records));
}

void bad_packed() {
  play_records(usual_with([](Record& r) {
    for (auto& e : r.entries) e.resize((e.size() + 1) / 2 * 2);
  }));
}

void bad_ends_on_boundary() {
  auto records = usual_records();
  records[0].entries.clear();
  for (int i = 0; i < 4; ++i) records[0].entries.push_back(entry(i, Bytes(200, 'v')));
  const Bytes area = records[0].area().substr(0, 612);
  auto bytes = bytes_of(records);
  bytes[0] = records[0].with(area.size(), area);
  play_records(bytes);
}

void bad_key_in_map() {
  play_records(usual_with([](Record& r) {
    for (auto& e : r.entries) ++e[0];
  }));
}

void bad_utf8() {
  auto records = usual_records();
  records[1].entries = {entry(0, "/caf\xe9/men\xfc")};
  play_records(bytes_of(records));
}

// ---- legal: reference data

void good_schema_tls_v1() { play_context(reference_data(usual_names(), "tls_v1")); }

void good_late_reference_data() {
  play({.context = message({}), .meanwhile = [](const Region& r) {
          pause();
          update(r, usual_message());
        }});
}

void good_no_thread_context() { play({.context = message({}), .records = {}}); }

void good_empty_key_map() {
  play({.context = message(reference_data({})),
        .records = usual_with([](Record& r) { r.entries.clear(); })});
}

void good_no_key_map() {
  play({.context = message({version_entry(text(kDevelopmentSchema))}),
        .records = usual_with([](Record& r) { r.entries.clear(); })});
}

// Node.js beside a native component, with the names of that or without.
void good_node_native_records() { play_context(reference_data(usual_names(), "nodejs_v1_dev")); }
void good_node_no_key_map() { play_context({version_entry(text("nodejs_v1_dev"))}); }

void good_other_schema() {
  play({.context = message({version_entry(text("somebody_elses_v3"))}), .records = {}});
}

void good_256_names() {
  auto records = usual_records();
  records[1].entries.push_back(entry(255, "last"));
  play({.context = message(reference_data(many_names(256))), .records = bytes_of(records)});
}

void good_growing_key_map() {
  play({.meanwhile = [](const Region& r) {
    auto names = usual_names();
    for (const char* more : {"z.name", "a.name", "m.name"}) {
      pause();
      names.emplace_back(more);
      update(r, message(reference_data(names)));
    }
  }});
}

void good_key_map_unchanged() {
  play({.meanwhile = [](const Region& r) {
    pause();
    update(r, message(reference_data(usual_names()), {pair("service.version", text("2.0.0"))}));
  }});
}

// An index whose name is published a moment later.
void good_key_after_use() {
  auto records = usual_records();
  records[1].entries.push_back(entry(4, "early"));
  play({.records = bytes_of(records), .meanwhile = [](const Region& r) {
          pause();
          auto names = usual_names();
          names.emplace_back("late.name");
          update(r, message(reference_data(names)));
        }});
}

// Withdrawn and published anew, with indexes of its own; nothing is attached meanwhile.
void good_republished() {
  const Region old = publish(message(reference_data({"old.name", "older.name"})));
  pause();
  set_timestamp(old, 0);
  munmap(old.at, kRegionSize);
  pause();
  play({});
}

// ---- legal: records

struct Private {
  std::uint64_t generation = 7;
  void* next = nullptr;
  char record[1024] = {};
  std::uint64_t checksum = 0x0123456789abcdef;
};
void good_inside_a_structure() {
  play({.place = [](const Bytes& bytes) {
    auto* p = new Private;
    bytes.copy(p->record, bytes.size());
    return p->record;
  }});
}

void good_unused_capacity() {
  play({.place = [](const Bytes& bytes) {
    char* at = in_block(bytes);
    std::memset(at + bytes.size(), 0xa5, 640 - bytes.size());
    return at;
  }});
}

// Behind the size lies the rest of a longer record.
void good_leftover_entries() {
  play({.place = [](const Bytes& bytes) {
    char* at = in_block(bytes);
    const Bytes rest = entry(3, "of another request").substr(5) + entry(0, "/old/route");
    rest.copy(at + bytes.size(), rest.size());
    return at;
  }});
}

void good_crosses_a_page() {
  play({.place = [](const Bytes& bytes) {
    char* at = map_pages(2 * page()) + page() - 30;
    bytes.copy(at, bytes.size());
    return at;
  }});
}

void good_at_the_end_of_memory() {
  play({.place = [](const Bytes& bytes) {
    char* at = before_guard((bytes.size() + 1) / 2 * 2);
    bytes.copy(at, bytes.size());
    return at;
  }});
}

void good_exactly_640() {
  auto records = usual_records();
  records[0].entries = {entry(0, Bytes(255, 'a')), entry(1, Bytes(255, 'b')),
                        entry(2, Bytes(96, 'c'))};
  play_records(bytes_of(records));
}

void good_long_values() {
  auto records = usual_records();
  records[0].entries = {entry(0, Bytes(255, 'a')), entry(3, Bytes(128, 'b')), entry(1, "")};
  records[1].entries = {entry(2, Bytes(127, 'c')), entry(0, "x"), entry(3, Bytes(200, 'd'))};
  play_records(bytes_of(records));
}

void good_utf8_cut_at_the_limit() {
  auto records = usual_records();
  records[1].entries = {entry(3, Bytes(254, 'a') + "\xc3")};
  play_records(bytes_of(records));
}

void good_utf8() {
  auto records = usual_records();
  records[1].entries = {entry(0, "/\xc3\xa9t\xc3\xa9/\xe2\x82\xac/\xf0\x9f\x90\xb1")};
  play_records(bytes_of(records));
}

void good_no_attributes() {
  auto records = usual_records();
  records[0].entries.clear();
  play_records(bytes_of(records));
}

void good_attributes_without_trace() {
  play_records(usual_with([](Record& r) {
    r.trace.assign(16, '\0');
    r.span.assign(8, '\0');
    r.flags = 0;
  }));
}

void good_repeated_index() {
  auto records = usual_records();
  records[1].entries.push_back(entry(0, "/checkout/done"));
  play_records(bytes_of(records));
}

void good_all_flags() {
  play_records(usual_with([](Record& r) { r.flags = '\xff'; }));
}

// All threads have records that say nothing: not valid, and full of anything.
void good_hidden_records() {
  play_records(usual_with([](Record& r) {
    r.trace.assign(16, '\0');
    r.valid = 0;
    r.entries = {entry(200, "\xff\xfe"), "\x01"};
  }));
}

// Memory of a record with any value in it that no slot points at.
void good_unreachable_record() {
  play({.meanwhile = [](const Region&) {
    Record r = usual_records()[1];
    r.valid = 0x7e;
    (void)in_block(r.bytes());
  }});
}

void good_detached() {
  play({.records = {}, .meanwhile = [](const Region&) {
          Record r = usual_records()[0];
          attach(in_block(r.bytes()));
          detach();
        }});
}

// ---- legal: records that change

// A thread that works on its record until the end.
void play_moving(const std::function<void()>& step_forever) {
  const Region r = publish(usual_message());
  Threads threads;
  threads.start([&] {
    step_forever();
    detach();
  });
  threads.start([] { hold_record(in_block(usual_records()[1].bytes()), Stay::kAsleep); });
  announce(&r);
  wait_for_the_end();
}

void attached_now() {
  tell_thread("moving");
  ++attached;
}
bool go_on() { return !done.load(std::memory_order_relaxed); }

// So much between two changes that they do not pass for one.
void work() {
  volatile int left = 1000;
  while (left > 0) left = left - 1;
}

Record numbered(unsigned i) {
  Record r = usual_records()[i % 3];
  r.span[7] = static_cast<char>(i | 1U);
  r.trace[15] = static_cast<char>(i | 1U);
  r.entries.push_back(entry(2, std::to_string(i)));
  return r;
}

// One record, hidden while it is rewritten.
void good_toggled() {
  play_moving([] {
    char* at = in_block(numbered(0).bytes());
    attach(at);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      const Bytes bytes = numbered(i).bytes();
      set_valid(at, 0);
      bytes.copy(at, kValidAt);
      bytes.copy(at + kFlagsAt, bytes.size() - kFlagsAt, kFlagsAt);
      set_valid(at, 1);
    }
  });
}

// Two records in turn; the one that is not attached is rewritten.
void good_switched() {
  play_moving([] {
    char* at[2] = {in_block(numbered(0).bytes()), in_block({})};
    attach(at[0]);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      const Bytes bytes = numbered(i).bytes();
      bytes.copy(at[i % 2], bytes.size());
      attach(at[i % 2]);
    }
  });
}

// The same with null in between.
void good_switched_through_null() {
  play_moving([] {
    char* at = in_block(numbered(0).bytes());
    attach(at);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      const Bytes bytes = numbered(i).bytes();
      detach();
      bytes.copy(at, bytes.size());
      attach(at);
    }
  });
}

// Records of calls within calls, on the stack.
void nested(unsigned depth) {
  char record[128] __attribute__((aligned(2))) = {};
  const Bytes bytes = numbered(depth).bytes();
  bytes.copy(record, bytes.size());
  void* outer = *slot();
  attach(record);
  if (depth < 8) nested(depth + 1);
  attach(static_cast<char*>(outer));
}
void good_nested() {
  play_moving([] {
    attach(in_block(numbered(0).bytes()));
    attached_now();
    while (go_on()) nested(1);
  });
}

// Entries are added behind the visible ones and then shown, and taken away again.
void good_appended() {
  play_moving([] {
    const Record r = usual_records()[0];
    char* at = in_block(r.bytes());
    const std::size_t size = r.area().size();
    attach(at);
    attached_now();
    while (go_on()) {
      const Bytes more = entry(3, "appended") + entry(1, "PUT");
      more.copy(at + kHead + size, more.size());
      set_size(at, size + more.size());
      set_size(at, size);
    }
  });
}

// Its tail is cut off right after it was attached.
void good_shrunk_at_once() {
  play_moving([] {
    const Record r = usual_records()[0];
    char* at = in_block(r.bytes());
    attach(at);
    attached_now();
    while (go_on()) {
      detach();
      set_size(at, r.area().size());
      attach(at);
      set_size(at, r.entries[0].size());
      work();
    }
  });
}

// ---- wrong in one way: records that change

void bad_complete_before_visible() {
  play_moving([] {
    char* at[2] = {in_block(numbered(0).bytes()), in_block(numbered(0).bytes())};
    attach(at[0]);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      const Bytes ids = numbered(3 * i).bytes().substr(0, kValidAt);
      work();
      attach(at[i % 2]);
      ids.copy(at[i % 2], ids.size());
    }
  });
}
void bad_no_change_while_visible() {
  play_moving([] {
    char* at = in_block(numbered(0).bytes());
    attach(at);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      const Bytes ids = numbered(3 * i).bytes().substr(0, kValidAt);
      work();
      ids.copy(at, ids.size());
    }
  });
}
void play_toggled(const std::function<void(char* at, const Bytes& ids)>& rewrite) {
  play_moving([&] {
    char* at = in_block(numbered(0).bytes());
    attach(at);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      const Bytes ids = numbered(3 * i).bytes().substr(0, kValidAt);
      work();
      rewrite(at, ids);
    }
  });
}
void bad_valid_cleared_first() {
  play_toggled([](char* at, const Bytes& ids) {
    ids.copy(at + kSpanAt, 8, kSpanAt);
    set_valid(at, 0);
    ids.copy(at, kSpanAt);
    set_valid(at, 1);
  });
}
void bad_valid_set_last() {
  play_toggled([](char* at, const Bytes& ids) {
    set_valid(at, 0);
    ids.copy(at, kSpanAt);
    set_valid(at, 1);
    ids.copy(at + kSpanAt, 8, kSpanAt);
  });
}
void bad_slot_always_sound() {
  play_moving([] {
    alignas(8192) static char memory[8192];
    char* at[2] = {memory + 0x40, memory + 0x1180};
    for (unsigned i = 0; i < 2; ++i) {
      const Bytes bytes = numbered(i).bytes();
      bytes.copy(at[i], bytes.size());
    }
    attach(at[0]);
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      work();
      const auto* from = reinterpret_cast<const char*>(&at[i % 2]);
      auto* to = reinterpret_cast<volatile char*>(slot());
      for (std::size_t b = 0; b < sizeof(char*); ++b) to[b] = from[b];
    }
  });
}

// Threads come and go, each with a record that it frees at its end.
void good_thread_churn() {
  play_moving([] {
    attach(in_block(numbered(0).bytes()));
    attached_now();
    for (unsigned i = 1; go_on(); ++i) {
      std::thread([i] {
        const Bytes bytes = numbered(i).bytes();
        auto* at = static_cast<char*>(std::malloc(bytes.size()));
        if (at == nullptr) die("malloc");
        bytes.copy(at, bytes.size());
        attach(at);
        sleep_ms(2);
        detach();
        std::free(at);
      }).join();
    }
  });
}

// A record that goes from thread to thread with its work.
void good_handed_over() {
  play_moving([] {
    char* at = in_block(numbered(0).bytes());
    attach(at);
    attached_now();
    while (go_on()) {
      detach();
      std::thread([at] {
        attach(at);
        sleep_ms(2);
        detach();
      }).join();
      attach(at);
      sleep_ms(2);
    }
  });
}

// ---- legal: processes

void reap(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) die("waitpid");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) std::exit(1);
}

// The child has the record of its parent and no process context.
void good_fork_inherits() {
  play({.records = {usual_bytes()[0]}, .meanwhile = [](const Region&) {
          const pid_t child = fork();
          if (child < 0) die("fork");
          if (child == 0) {
            wait_for_the_end();
            _exit(0);
          }
          static pid_t to_reap;
          to_reap = child;
          std::atexit([] { reap(to_reap); });
        }});
}

// A span that is open for a moment, in the middle of which the program forks; the child does
// nothing, or forks once more and does nothing.
void fork_in_spans(bool twice) {
  play({.records = {usual_bytes()[0]}, .meanwhile = [twice](const Region&) {
          static std::vector<pid_t> to_reap;
          auto* const outer = static_cast<char*>(*slot());
          for (char i = 1; i <= 3; ++i) {
            Record r = usual_records()[0];
            r.span.back() = i;
            attach(in_block(r.bytes()));
            const pid_t child = fork();
            if (child < 0) die("fork");
            if (child == 0) {
              if (twice && fork() > 0) _exit(0);
              wait_for_the_end();
              _exit(0);
            }
            to_reap.push_back(child);
            attach(outer);
          }
          std::atexit([] {
            for (const pid_t child : to_reap) reap(child);
          });
        }});
}

void reap_at_exit(pid_t child) {
  static pid_t to_reap;
  to_reap = child;
  std::atexit([] { reap(to_reap); });
}

// The child ends the span that was open, and goes back to the one around it.
void good_fork_pops() {
  play({.records = {usual_bytes()[0]}, .meanwhile = [](const Region&) {
          auto* const outer = static_cast<char*>(*slot());
          Record r = usual_records()[0];
          r.span.back() = 7;
          attach(in_block(r.bytes()));
          const pid_t child = fork();
          if (child < 0) die("fork");
          attach(outer);
          if (child == 0) {
            wait_for_the_end();
            _exit(0);
          }
          reap_at_exit(child);
        }});
}

// The same with a span around it that no look of a reader has met.
void good_fork_pops_to_an_unseen_span() {
  play({.records = {usual_bytes()[0]}, .meanwhile = [](const Region&) {
          Record r = usual_records()[0];
          r.span.back() = 6;
          char* const around = in_block(r.bytes());
          attach(around);
          r.span.back() = 7;
          attach(in_block(r.bytes()));
          const pid_t child = fork();
          if (child < 0) die("fork");
          attach(around);
          if (child == 0) {
            wait_for_the_end();
            _exit(0);
          }
          reap_at_exit(child);
        }});
}

void good_fork_in_a_span() { fork_in_spans(false); }
void good_fork_twice_in_a_span() { fork_in_spans(true); }

// The child goes on with a context and names of its own.
void good_fork_child_publishes() {
  play({.records = {usual_bytes()[0]}, .meanwhile = [](const Region&) {
          const pid_t child = fork();
          if (child < 0) die("fork");
          if (child == 0) {
            publish(message(reference_data({"child.name"})));
            Record r = usual_records()[0];
            r.entries = {entry(0, "of the child")};
            attach(in_block(r.bytes()));
            wait_for_the_end();
            _exit(0);
          }
          static pid_t to_reap;
          to_reap = child;
          std::atexit([] { reap(to_reap); });
        }});
}

// The parent has no context of either kind, so the child's record is its own.
void bad_fork_attaches() {
  play({.context = {}, .records = {}, .meanwhile = [](const Region&) {
          tell_thread("still");
          std::array<int, 2> ends{};
          if (pipe2(ends.data(), O_CLOEXEC) != 0) die("pipe");
          const pid_t child = fork();
          if (child < 0) die("fork");
          if (child == 0) {
            attach(in_block(usual_bytes()[0]));
            if (write(ends[1], "", 1) != 1) _exit(1);
            wait_for_the_end();
            _exit(0);
          }
          char attached = 0;
          if (read(ends[0], &attached, 1) != 1) die("read");
          for (const int end : ends) close(end);
          reap_at_exit(child);
        }});
}

#elif THREAD_WRITER_FORM == FORM_LOADS

// ---- where the slot comes from

void with_library(const char* file) {
  take_slot_of(file);
  play({});
}

// Nothing is attached: there is no slot that could be.
void without_slot(const char* file) {
  library = open_library(file);
  play({.records = {}});
}

void bad_dynsym_exported() { with_library("slot_hidden.so"); }
void bad_symbol_type() { without_slot("slot_ordinary.so"); }
void bad_symbol_defined() { without_slot("slot_undefined.so"); }
void bad_access_model() { with_library("slot_only.so"); }
void bad_not_local_dynamic() { with_library("slot_local_dynamic.so"); }
void bad_prefers_tlsdesc() { with_library("slot_general_dynamic.so"); }

void bad_is_pointer() {
  take_slot_of("slot_record.so");
  const Region r = publish(usual_message());
  const Bytes bytes = usual_bytes()[0];
  bytes.copy(reinterpret_cast<char*>(slot()), bytes.size());
  announce(&r);
  wait_for_the_end();
}

// Two copies of an SDK: main uses one, another thread the other.
void bad_one_definition() {
  void* second = open_library("slot_initial_exec.so");
  auto* second_slot = reinterpret_cast<void* (*)()>(dlsym(second, "slot_place"));
  take_slot_of("slot_tlsdesc.so");
  const Region r = publish(usual_message());
  attach(in_block(usual_bytes()[0]));
  tell_thread("still");
  {
    Threads threads;
    threads.start([second_slot] {
      *static_cast<void**>(second_slot()) = in_block(usual_bytes()[1]);
      ++attached;
      stay(Stay::kAsleep);
    });
    announce(&r);
    wait_for_the_end();
  }
  detach();
}

// One copy of an SDK is exported, the other one is not.
void bad_second_copy_hidden() {
  void* hidden = open_library("slot_hidden.so");
  auto* hidden_slot = reinterpret_cast<void* (*)()>(dlsym(hidden, "slot_place"));
  take_slot_of("slot_tlsdesc.so");
  const Region r = publish(usual_message());
  attach(in_block(usual_bytes()[0]));
  {
    Threads threads;
    threads.start([hidden_slot] {
      *static_cast<void**>(hidden_slot()) = in_block(usual_bytes()[1]);
      ++attached;
      stay(Stay::kAsleep);
    });
    announce(&r);
    wait_for_the_end();
  }
  detach();
}

// Libraries that have something of that name, in a program without thread context.
void without_thread_context(const char* file) {
  library = open_library(file);
  play({.context = message({}), .records = {}});
}
void good_asks_only() { without_thread_context("slot_undefined.so"); }
void good_unused_definition() { without_thread_context("slot_only.so"); }
void good_unused_hidden_definition() { without_thread_context("slot_hidden.so"); }

// The same beside a slot in use.
void good_unused_copy() {
  (void)open_library("slot_only.so");
  with_library("slot_tlsdesc.so");
}
void good_unused_hidden_copy() {
  (void)open_library("slot_hidden.so");
  with_library("slot_tlsdesc.so");
}
// Both copies are in the global scope, where the loader binds all to the first.
void good_interposed() {
  (void)open_library("slot_tlsdesc.so", RTLD_GLOBAL);
  with_library("slot_general_dynamic.so");
}

void good_tlsdesc() { with_library("slot_tlsdesc.so"); }
void good_general_dynamic() { with_library("slot_general_dynamic.so"); }
void good_initial_exec() { with_library("slot_initial_exec.so"); }
void good_symbolic() { with_library("slot_symbolic.so"); }
void good_symbolic_general_dynamic() { with_library("slot_symbolic_general_dynamic.so"); }

// One module defines the variable, another one has all the relocations.
void good_used_elsewhere() {
  (void)open_library("slot_only.so", RTLD_GLOBAL);
  with_library("slot_undefined.so");
}

// The library comes when threads are there already, whose blocks are made on demand.
void good_late_library() {
  const Region r = publish(usual_message());
  std::atomic<bool> loaded{false};
  Threads threads;
  std::thread early([&] {
    loaded.wait(false);
    hold_record(in_block(usual_bytes()[2]), Stay::kAsleep);
  });
  std::thread idle([] { stay(Stay::kAsleep); });
  pause();
  take_slot_of("slot_tlsdesc.so");
  loaded = true;
  loaded.notify_all();
  while (attached.load() < 1) sleep_ms(1);
  announce(&r);
  wait_for_the_end();
  done = true;
  done.notify_all();
  early.join();
  idle.join();
}

#elif THREAD_WRITER_FORM == FORM_GO

void bad_go_value() { play({.records = {}}); }
void bad_go_no_key_map() {
  play({.context = message(reference_data({"a.label", "b.label"}, kGoSchema)), .records = {}});
}

void good_go() { play({.context = message({version_entry(text(kGoSchema))}), .records = {}}); }
void good_go_empty_key_map() {
  play({.context = message(reference_data({}, kGoSchema)), .records = {}});
}
void good_go_native_records() {
  take_slot_of("slot_tlsdesc.so");
  std::vector<Bytes> records;
  for (auto r : usual_records()) {
    r.entries.clear();
    records.push_back(r.bytes());
  }
  play({.context = message({version_entry(text(kGoSchema))}), .records = records});
}
void good_go_native_schema() {
  take_slot_of("slot_tlsdesc.so");
  play({});
}

#endif

// ---- the table

constexpr int kUsualHoldMs = 350;

struct Case {
  const char* name;
  const char* about;
  void (*run)();
};

#if HAS_SLOT
// Named after the row that each of them breaks, with a suffix for a second way.
constexpr Case kBad[] = {
    {"tctx.refdata.in-attributes", "entries in the Resource", bad_in_attributes},
    {"tctx.refdata.schema-version-present", "only a key map", bad_schema_version_present},
    {"tctx.refdata.schema-version-present:fork", "a forked child attaches and publishes nothing",
     bad_fork_attaches},
    {"tctx.refdata.key-map-present", "only a schema version", bad_key_map_present},
    {"tctx.refdata.schema-version-string", "the integer 1", bad_schema_version_string},
    {"tctx.refdata.schema-version-value", "tlsdesc", bad_schema_version_value},
    {"tctx.refdata.key-map-array", "a list from name to index", bad_key_map_array},
    {"tctx.refdata.key-map-strings", "an empty value for a key no longer used",
     bad_key_map_strings},
    {"tctx.refdata.key-map-names-usable", "a name twice", bad_key_map_names_usable},
    {"tctx.keymap.never-removed", "drops a key that is not used", bad_never_removed},
    {"tctx.keymap.never-reordered", "sorts the names at each update", bad_never_reordered},
    {"tctx.keymap.at-most-256", "300 names", bad_at_most_256},
    {"tctx.record.layout", "a root span id before the valid byte", bad_layout},
    {"tctx.record.byte-order", "the size in the other byte order", bad_byte_order},
    {"tctx.record.trace-id", "prints its ids and stores trace ids in reverse", bad_trace_id},
    {"tctx.record.trace-id:in-halves", "stores trace ids as two numbers", bad_trace_id_in_halves},
    {"tctx.record.trace-id:as-told", "reverses the one in its environment", bad_trace_id_as_told},
    {"tctx.record.span-id", "stores span ids as numbers", bad_span_id},
    {"tctx.record.ids-both-or-neither", "a span id without a trace id", bad_ids_both_or_neither},
    {"tctx.record.valid-is-one", "0xff for true", bad_valid_is_one},
    {"tctx.record.valid-reserved-values", "2 for a record with an extension",
     bad_valid_reserved_values},
    {"tctx.record.trace-flags-without-ids", "clears the ids but not the flags",
     bad_trace_flags_without_ids},
    {"tctx.record.attrs-data-size", "counts entries", bad_attrs_data_size},
    {"tctx.record.attrs-data-size:with-head", "counts the fixed part too",
     bad_attrs_data_size_with_head},
    {"tctx.record.aligned", "records of odd length one behind the other", bad_aligned},
    {"tctx.record.contiguous", "a pointer instead of entries, at the end of a mapping",
     bad_contiguous},
    {"tctx.record.contiguous:readable", "the same with memory behind it", bad_contiguous_readable},
    {"tctx.record.recommended-size", "2000 bytes", bad_recommended_size},
    {"tctx.attrs.entry-format", "lengths as varints", bad_entry_format},
    {"tctx.attrs.packed", "entries at even addresses", bad_packed},
    {"tctx.attrs.ends-on-boundary", "cut at 612 bytes", bad_ends_on_boundary},
    {"tctx.attrs.key-in-map", "counts indexes from 1", bad_key_in_map},
    {"tctx.attrs.utf8", "Latin-1", bad_utf8},
    {"tctx.attach.complete-before-visible", "the pointer first, the ids behind it",
     bad_complete_before_visible},
    {"tctx.attach.no-change-while-visible", "writes over the ids that are attached",
     bad_no_change_while_visible},
    {"tctx.attach.valid-cleared-first", "the span id, and then the valid byte",
     bad_valid_cleared_first},
    {"tctx.attach.valid-set-last", "the valid byte, and then the span id", bad_valid_set_last},
    {"tctx.attach.slot-always-sound", "copies the pointer byte by byte", bad_slot_always_sound},
};

constexpr Case kGood[] = {
    {"default", "three records that stand still", good_default},
    {"prints-traceparents", "says which contexts it has", good_prints_traceparents},
    {"prints-trace-ids", "the same, and as numbers", good_prints_trace_ids},
    {"continues-a-trace", "has the trace that it was told", good_continues_a_trace},
    {"begins-a-trace", "was told another trace", good_begins_a_trace},
    {"counted-ids", "was told the reverse of its ids, which are ones", good_counted_ids},
    {"schema-tls-v1", "the other schema version", good_schema_tls_v1},
    {"late-reference-data", "records come before their reference data", good_late_reference_data},
    {"no-thread-context", "has the slot and does not use it", good_no_thread_context},
    {"empty-key-map", "no names and no attributes", good_empty_key_map},
    {"no-key-map", "no key map and no attributes", good_no_key_map},
    {"node-native-records", "Node's schema, a native component with records",
     good_node_native_records},
    {"node-no-key-map", "the same without a key map", good_node_no_key_map},
    {"other-schema", "announces a mechanism of its own", good_other_schema},
    {"256-names", "as many names as there may be", good_256_names},
    {"growing-key-map", "names are appended one by one", good_growing_key_map},
    {"key-map-unchanged", "an update for another reason", good_key_map_unchanged},
    {"key-after-use", "an index before its name", good_key_after_use},
    {"republished", "withdrawn and published anew with other names", good_republished},
    {"inside-a-structure", "records are members of something larger", good_inside_a_structure},
    {"unused-capacity", "anything behind the attributes", good_unused_capacity},
    {"leftover-entries", "the rest of a longer record behind the attributes",
     good_leftover_entries},
    {"crosses-a-page", "the fixed part on one page, the attributes on two", good_crosses_a_page},
    {"at-the-end-of-memory", "nothing readable behind the record", good_at_the_end_of_memory},
    {"exactly-640", "as large as recommended", good_exactly_640},
    {"long-values", "values of 0, 1, 127, 128, 200 and 255 bytes", good_long_values},
    {"utf8", "characters of two, three and four bytes", good_utf8},
    {"utf8-cut-at-the-limit", "a character cut at byte 255", good_utf8_cut_at_the_limit},
    {"no-attributes", "one record without attributes", good_no_attributes},
    {"attributes-without-trace", "attributes and no ids", good_attributes_without_trace},
    {"repeated-index", "an index twice: the last one counts", good_repeated_index},
    {"all-flags", "bits that no document has given a meaning", good_all_flags},
    {"hidden-records", "records that are not valid", good_hidden_records},
    {"unreachable-record", "a reserved value where nobody looks", good_unreachable_record},
    {"detached", "null slots", good_detached},
    {"toggled", "one record, rewritten in place all the time", good_toggled},
    {"switched", "two records in turn all the time", good_switched},
    {"switched-through-null", "null while the record is rewritten", good_switched_through_null},
    {"nested", "calls within calls, records on the stack", good_nested},
    {"appended", "entries appended and taken away all the time", good_appended},
    {"shrunk-at-once", "attached and shrunk in one go", good_shrunk_at_once},
    {"thread-churn", "threads come and go", good_thread_churn},
    {"handed-over", "a record that moves between threads", good_handed_over},
    {"fork-inherits", "a forked child does nothing", good_fork_inherits},
    {"fork-in-a-span", "spans are open for a moment, and the program forks in them",
     good_fork_in_a_span},
    {"fork-twice-in-a-span", "the same, and the child forks once more", good_fork_twice_in_a_span},
    {"fork-pops", "a forked child goes back to the span around that of the fork", good_fork_pops},
    {"fork-pops-unseen", "the same, and that span was open for a moment only",
     good_fork_pops_to_an_unseen_span},
    {"fork-child-publishes", "a forked child has a context of its own", good_fork_child_publishes},
};
#elif THREAD_WRITER_FORM == FORM_LOADS
constexpr Case kBad[] = {
    {"tctx.tls.dynsym-exported", "the slot in .symtab only", bad_dynsym_exported},
    {"tctx.tls.dynsym-exported:second-copy", "an exported slot in use and a hidden one",
     bad_second_copy_hidden},
    {"tctx.tls.symbol-type", "an ordinary pointer of that name", bad_symbol_type},
    {"tctx.tls.symbol-defined", "nothing but an undefined entry", bad_symbol_defined},
    {"tctx.tls.access-model", "reached through dlsym only", bad_access_model},
    {"tctx.tls.not-local-dynamic", "local dynamic", bad_not_local_dynamic},
    {"tctx.tls.prefers-tlsdesc", "traditional general dynamic", bad_prefers_tlsdesc},
    {"tctx.tls.is-pointer", "the record itself is thread-local", bad_is_pointer},
    {"tctx.tls.one-definition", "two libraries with a copy each", bad_one_definition},
};
constexpr Case kGood[] = {
    {"tlsdesc", "TLSDESC", good_tlsdesc},
    {"general-dynamic", "module and offset", good_general_dynamic},
    {"initial-exec", "an offset from the thread pointer", good_initial_exec},
    {"symbolic", "TLSDESC, bound inside the library", good_symbolic},
    {"symbolic-general-dynamic", "the same with module and offset", good_symbolic_general_dynamic},
    {"used-elsewhere", "relocations in another module than the definition", good_used_elsewhere},
    {"late-library", "loaded when threads are there already", good_late_library},
    {"asks-only", "a weak reference that nothing defines", good_asks_only},
    {"unused-definition", "a slot that nothing refers to", good_unused_definition},
    {"unused-hidden-definition", "the slot in .symtab only, not used",
     good_unused_hidden_definition},
    {"unused-copy", "a slot in use and one that nothing refers to", good_unused_copy},
    {"unused-hidden-copy", "an exported slot in use and a hidden one without use",
     good_unused_hidden_copy},
    {"interposed", "two definitions, of which the loader takes one", good_interposed},
};
#else
constexpr Case kBad[] = {
    {"tctx.altschema.go-value", "announces tlsdesc_v1_dev without the slot", bad_go_value},
    {"tctx.altschema.go-no-key-map", "two names with Go's schema", bad_go_no_key_map},
};
constexpr Case kGood[] = {
    {"go", "Go's schema", good_go},
    {"go-empty-key-map", "Go's schema, an empty key map", good_go_empty_key_map},
    {"go-native-records", "Go's schema, a native library with records", good_go_native_records},
    {"go-native-schema", "the schema of a native library", good_go_native_schema},
};
#endif

void print_usage(FILE* to) {
  std::fputs(
      "usage: thread_writer --good NAME | --bad RULE-ID [options]\n"
      "       thread_writer --list\n"
      "  --hold MS|eof   how long to stay at the end; eof: until standard input ends\n"
      "  --pause MS|byte between the steps of a case (default 350); byte: until one is read from\n"
      "                  standard input\n"
      "  --quiet         no lines on standard output\n"
      "exit: 0 done, 2 usage, 77 cannot be shown on this host, 1 anything else\n",
      to);
}

[[noreturn]] void usage_error(const char* what, const char* argument) {
  std::fprintf(stderr, "thread_writer: %s: %s\n", what, argument);
  print_usage(stderr);
  std::exit(2);
}

int milliseconds(const char* argument) {
  char* end = nullptr;
  const long value = std::strtol(argument, &end, 10);
  if (end == argument || *end != '\0' || value < 0 || value > 3'600'000) {
    usage_error("not a number of milliseconds", argument);
  }
  return static_cast<int>(value);
}

const Case& find(std::span<const Case> cases, const char* name) {
  for (const Case& c : cases) {
    if (std::string_view(c.name) == name) return c;
  }
  usage_error("no such case", name);
}

void print_list() {
  for (const Case& c : kBad) std::printf("bad   %-40s %s\n", c.name, c.about);
  for (const Case& c : kGood) std::printf("good  %-40s %s\n", c.name, c.about);
}

}  // namespace

int main(int argc, char** argv) {
  const Case* chosen = nullptr;
  options.arguments = argv;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&] {
      if (++i == argc) usage_error("a value is missing", argv[i - 1]);
      return argv[i];
    };
    if (option == "--good") {
      chosen = &find(kGood, value());
    } else if (option == "--bad") {
      chosen = &find(kBad, value());
    } else if (option == "--hold") {
      const char* how_long = value();
      options.hold_to_eof = std::string_view(how_long) == "eof";
      if (!options.hold_to_eof) options.hold_ms = milliseconds(how_long);
    } else if (option == "--pause") {
      const char* how_long = value();
      options.pause_for_byte = std::string_view(how_long) == "byte";
      if (!options.pause_for_byte) options.pause_ms = milliseconds(how_long);
    } else if (option == "--quiet") {
      options.quiet = true;
    } else if (option == "--list") {
      print_list();
      return 0;
    } else if (option == "--help") {
      print_usage(stdout);
      return 0;
    } else {
      usage_error("unknown option", argv[i]);
    }
  }
  if (chosen == nullptr) usage_error("what to do is missing", "--good or --bad");
  if (options.hold_ms < 0) options.hold_ms = std::max(kUsualHoldMs, options.pause_ms);
  chosen->run();
  return 0;
}
