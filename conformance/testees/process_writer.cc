// Programs that publish process context (OTEP 4719), each legal in its own way
// or wrong in exactly one. `--list` names them; mutants.json says which rows of
// the catalogue each of them is about.
//
// Encoder and publisher are written out here and share nothing with the judge
// or with the reference library, so that a misreading there does not hide here.
// A failing system call ends the program: 77 where the host cannot show the
// case, 1 otherwise.

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
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
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
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
};
Options options;
char** arguments;
char** case_name;  // which of them names the case

// ---- talking

std::uint64_t file_size_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  return limit.rlim_cur;
}

[[gnu::format(printf, 2, 3)]] void say(FILE* to, const char* format, ...) {
  // Standard output may be a file, and a write beyond the limit is deadly too.
  if (file_size_limit() < 4096) return;
  va_list values;
  va_start(values, format);
  std::vfprintf(to, format, values);
  va_end(values);
  std::fflush(to);
}

[[noreturn]] void die(const char* step) {
  say(stderr, "process_writer: %s: %s\n", step, std::strerror(errno));
  std::exit(1);
}

[[noreturn]] void cannot_be_shown(const char* why) {
  say(stderr, "process_writer: cannot be shown here: %s: %s\n", why, std::strerror(errno));
  std::exit(kCannotBeShownHere);
}

// ---- time

std::uint64_t now_ns(clockid_t clock) {
  timespec t{};
  if (clock_gettime(clock, &t) != 0) die("clock_gettime");
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(t.tv_nsec);
}

std::uint64_t boot_ns() { return now_ns(CLOCK_BOOTTIME); }

// Later than every value it gave before.
std::uint64_t next_timestamp() {
  static std::atomic<std::uint64_t> last{0};
  std::uint64_t before = last;
  std::uint64_t value;
  do value = std::max(boot_ns(), before + 1);
  while (!last.compare_exchange_weak(before, value));
  return value;
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

// ---- protobuf

Bytes varint(std::uint64_t value, std::size_t at_least = 1) {
  Bytes out;
  while (value >= 0x80 || out.size() + 1 < at_least) {
    out.push_back(static_cast<char>(0x80 | (value & 0x7f)));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
  return out;
}

// A length-delimited field: a string, bytes or a message.
Bytes field(std::uint32_t number, const Bytes& content, std::size_t length_bytes = 1) {
  return varint(number << 3 | 2) + varint(content.size(), length_bytes) + content;
}
Bytes varint_field(std::uint32_t number, std::uint64_t value, std::size_t at_least = 1) {
  return varint(number << 3) + varint(value, at_least);
}

Bytes joined(std::uint32_t number, const std::vector<Bytes>& messages) {
  Bytes out;
  for (const auto& m : messages) out += field(number, m);
  return out;
}

// AnyValue
Bytes text(const Bytes& value) { return field(1, value); }
Bytes boolean(bool value) { return varint_field(2, value ? 1 : 0); }
Bytes integer(std::int64_t value) { return varint_field(3, static_cast<std::uint64_t>(value)); }
Bytes number(double value) {
  Bytes out = varint(4 << 3 | 1);
  out.resize(out.size() + sizeof value);
  std::memcpy(out.data() + out.size() - sizeof value, &value, sizeof value);
  return out;
}
Bytes array(const std::vector<Bytes>& values) { return field(5, joined(1, values)); }
Bytes list(const std::vector<Bytes>& pairs) { return field(6, joined(1, pairs)); }
Bytes raw(const Bytes& value) { return field(7, value); }

// KeyValue
Bytes pair(const Bytes& key, const Bytes& any_value) { return field(1, key) + field(2, any_value); }

// Resource
Bytes resource(const std::vector<Bytes>& pairs) { return joined(1, pairs); }

// EntityRef
Bytes entity(const Bytes& type, const std::vector<Bytes>& id_keys,
             const std::vector<Bytes>& description_keys = {}) {
  return (type.empty() ? Bytes() : field(2, type)) + joined(3, id_keys) +
         joined(4, description_keys);
}

// ProcessContext
Bytes message(const Bytes& resource_bytes, const std::vector<Bytes>& pairs) {
  return field(1, resource_bytes) + joined(2, pairs);
}

std::vector<Bytes> usual_resource() {
  return {pair("service.name", text("ctxconf-testee")),
          pair("service.version", text("1.0.0")),
          pair("service.instance.id", text("5a2f3c1e-9d47-4f1b-8c60-2b7f0e6d9a13")),
          pair("telemetry.sdk.language", text("cpp")),
          pair("telemetry.sdk.name", text("ctxconf")),
          pair("telemetry.sdk.version", text("0.1.0"))};
}
std::vector<Bytes> usual_attributes() { return {pair("ctxconf.example", text("field two"))}; }
Bytes usual_message() { return message(resource(usual_resource()), usual_attributes()); }

std::vector<Bytes> with(std::vector<Bytes> pairs, const std::vector<Bytes>& more) {
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs;
}
Bytes message_with(const std::vector<Bytes>& more_in_resource) {
  return message(resource(with(usual_resource(), more_in_resource)), usual_attributes());
}

Bytes message_with_entity(const Bytes& entity) {
  return message(resource(usual_resource()) + field(3, entity), usual_attributes());
}
// More than a state of the recording holds, and less than 64 MiB.
Bytes large_message(const Bytes& last_value) {
  auto pairs = usual_resource();
  for (int i = 0; i < 40; ++i) {
    pairs.push_back(pair("ctxconf.large" + std::to_string(i), text(Bytes(1U << 16U, 'x'))));
  }
  pairs.push_back(pair("ctxconf.last", text(last_value)));
  return message(resource(pairs), usual_attributes());
}

// ---- memory

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// Never freed unless a case says so: a published payload has to stay.
struct Buffer {
  char* at = nullptr;
  std::size_t size = 0;
};

Buffer copy_to(char* where, const Bytes& bytes) {
  bytes.copy(where, bytes.size());
  return {where, bytes.size()};
}

Buffer on_heap(const Bytes& bytes) {
  auto* p = static_cast<char*>(std::malloc(std::max<std::size_t>(bytes.size(), 1)));
  if (p == nullptr) die("malloc");
  return copy_to(p, bytes);
}

char* map_anonymous(std::size_t size, int protection = PROT_READ | PROT_WRITE) {
  void* p = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) die("mmap");
  return static_cast<char*>(p);
}

int make_memfd(const char* name) {
  const auto fd = syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) die("memfd_create");
  return static_cast<int>(fd);
}

// ---- publishing

constexpr std::size_t kSignatureAt = 0;
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kSizeAt = 12;
constexpr std::size_t kTimestampAt = 16;
constexpr std::size_t kPointerAt = 24;
constexpr std::size_t kHeaderSize = 32;

constexpr std::string_view kSignature = "OTEL_CTX";

// How the header gets its memory; the defaults are legal.
struct Plan {
  std::size_t size = page();
  const char* memfd_name = "OTEL_CTX";
  const char* label = "OTEL_CTX";  // what prctl is told
  int protection = PROT_READ | PROT_WRITE;
  int flags = MAP_PRIVATE;
  int advice = MADV_DONTFORK;
  unsigned memfd_flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL;  // first attempt
  bool may_use_memfd = true;
  bool close_memfd = true;
  bool heed_file_size_limit = true;
};

struct Region {
  char* at = nullptr;
  std::size_t size = 0;
  const char* label = nullptr;
  int fd = -1;  // while it is open
  bool anonymous = false;
};

// As a publication asks for it; negative when there is none.
int ask_for_memfd(const Plan& plan) {
  auto fd = syscall(SYS_memfd_create, plan.memfd_name, plan.memfd_flags);
  if (fd < 0) {
    fd = syscall(SYS_memfd_create, plan.memfd_name, plan.memfd_flags & ~MFD_NOEXEC_SEAL);
  }
  return static_cast<int>(fd);
}

// Zeroed memory that holds no context yet.
Region make_region(const Plan& plan = {}) {
  Region r{.size = plan.size, .label = plan.label};
  if (plan.may_use_memfd && (!plan.heed_file_size_limit || plan.size <= file_size_limit())) {
    r.fd = ask_for_memfd(plan);
  }
  r.anonymous = r.fd < 0;
  int flags = plan.flags;
  if (r.anonymous) {
    flags |= MAP_ANONYMOUS;
  } else if (ftruncate(r.fd, static_cast<off_t>(r.size)) != 0) {
    die("ftruncate");
  }
  void* p = mmap(nullptr, r.size, plan.protection, flags, r.fd, 0);
  if (p == MAP_FAILED) {
    if (plan.flags != MAP_PRIVATE) cannot_be_shown("mmap with further flags");
    die("mmap");
  }
  r.at = static_cast<char*>(p);
  if (!r.anonymous && plan.close_memfd) {
    close(r.fd);
    r.fd = -1;
  }
  if (madvise(r.at, r.size, plan.advice) != 0 && plan.advice == MADV_DONTFORK) die("madvise");
  return r;
}

template <class T>
void store(char* at, T value) {
  typedef T Aligned __attribute__((aligned(sizeof(T))));  // also where eight bytes need only four
  __atomic_store_n(reinterpret_cast<Aligned*>(at), value, __ATOMIC_RELAXED);
}

void set_payload(const Region& r, std::uint64_t address, std::size_t size) {
  store<std::uint32_t>(r.at + kSizeAt, static_cast<std::uint32_t>(size));
  store<std::uint64_t>(r.at + kPointerAt, address);
}

// Everything but the timestamp.
void set_fields(const Region& r, std::uint64_t address, std::size_t size,
                std::uint32_t version = 2) {
  std::memcpy(r.at + kSignatureAt, kSignature.data(), kSignature.size());
  store<std::uint32_t>(r.at + kVersionAt, version);
  set_payload(r, address, size);
}

// The timestamp is the lock: fenced from the other fields on both sides.
void set_timestamp(const Region& r, std::uint64_t value) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  store<std::uint64_t>(r.at + kTimestampAt, value);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// The name is needed only where there is no memfd. The call is made always: it
// also tells watchers that something has changed.
void set_name(const Region& r) {
  if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, r.at, r.size, r.label) == 0 || !r.anonymous) return;
  const int why = errno;
  munmap(r.at, r.size);
  errno = why;
  if (file_size_limit() < page()) std::exit(0);  // a program goes on without context
  cannot_be_shown("this kernel names no anonymous memory");
}

void publish_in(const Region& r, const Buffer& payload,
                std::uint64_t timestamp = next_timestamp()) {
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, timestamp);
  set_name(r);
}

Region publish(const Bytes& bytes = usual_message(), const Plan& plan = {}) {
  const Buffer payload = on_heap(bytes);
  const Region r = make_region(plan);
  publish_in(r, payload);
  return r;
}

void update(const Region& r, const Buffer& payload, std::uint64_t timestamp = next_timestamp()) {
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, timestamp);
  set_name(r);
}

void announce(const Region& r) {
  if (options.quiet) return;
  say(stdout, "published pid=%d header=0x%llx\n", static_cast<int>(getpid()),
      static_cast<unsigned long long>(address_of(r.at)));
}

void hold(const Region& r) {
  announce(r);
  wait_for_the_end();
}

void publish_and_hold(const Bytes& bytes, const Plan& plan = {}) { hold(publish(bytes, plan)); }

// The message follows the header after `gap` bytes.
Region publish_inline(const Bytes& bytes, std::size_t gap, const Plan& plan) {
  const Region r = make_region(plan);
  publish_in(r, copy_to(r.at + kHeaderSize + gap, bytes));
  return r;
}

// ---- wrong in one way: the header

void bad_signature() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_fields(r, address_of(payload.at), payload.size);
  std::memcpy(r.at + kSignatureAt, "OTEL-CTX", 8);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_version() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  store<std::uint32_t>(r.at + kVersionAt, 2);
  std::memcpy(r.at + kSignatureAt, kSignature.data(), kSignature.size() + 1);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_version_development() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_fields(r, address_of(payload.at), payload.size, 1);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_payload_size() {
  Buffer payload = on_heap(usual_message() + '\0');
  const Region r = make_region();
  publish_in(r, payload);
  hold(r);
}

void bad_payload_size_short() {
  Buffer payload = on_heap(usual_message());
  payload.size -= 1;
  const Region r = make_region();
  publish_in(r, payload);
  hold(r);
}

void bad_layout() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  std::memcpy(r.at, kSignature.data(), kSignature.size());
  store<std::uint32_t>(r.at + 8, 2);
  store<std::uint32_t>(r.at + 20, static_cast<std::uint32_t>(payload.size));
  store<std::uint64_t>(r.at + 24, address_of(payload.at));
  // The low half lies where the size belongs today: not a plausible one.
  std::uint64_t timestamp;
  while (timestamp = boot_ns(), (timestamp & 0xffffffff) < 0x40000000) sleep_ms(10);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::memcpy(r.at + 12, &timestamp, sizeof timestamp);
  set_name(r);
  hold(r);
}

void bad_payload_pointer() {
  const Region r = make_region();
  const Buffer payload = copy_to(r.at + kHeaderSize, usual_message());
  set_fields(r, kHeaderSize, payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_at_mapping_start() {
  const Buffer payload = on_heap(usual_message());
  const Region whole = make_region();
  store<std::uint32_t>(whole.at, 1);  // the lock
  Region r = whole;
  r.at += 64;
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(whole);
  hold(r);
}

void bad_native_byte_order() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  std::memcpy(r.at, kSignature.data(), kSignature.size());
  store(r.at + kVersionAt, __builtin_bswap32(2));
  store(r.at + kSizeAt, __builtin_bswap32(static_cast<std::uint32_t>(payload.size)));
  store(r.at + kPointerAt, std::uint64_t{__builtin_bswap64(address_of(payload.at))});
  set_timestamp(r, __builtin_bswap64(next_timestamp()));
  set_name(r);
  hold(r);
}

void needs_32_bits() {
  if (sizeof(void*) == 4) return;
  errno = EINVAL;
  cannot_be_shown("this is a 64-bit build");
}

void bad_wide_fields_on_32_bit() {
  needs_32_bits();
  constexpr std::size_t size_of_narrow_header = 28;
  const Region r = make_region();
  const Buffer payload = copy_to(r.at + size_of_narrow_header, usual_message());
  std::memcpy(r.at, kSignature.data(), kSignature.size());
  store<std::uint32_t>(r.at + kVersionAt, 2);
  store<std::uint32_t>(r.at + kSizeAt, static_cast<std::uint32_t>(payload.size));
  store<std::uint32_t>(r.at + kPointerAt, static_cast<std::uint32_t>(address_of(payload.at)));
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_timestamp_nanoseconds() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  publish_in(r, payload, boot_ns() / 1000);
  hold(r);
}

void bad_timestamp_nonzero_at_rest() {
  const Region r = publish();
  pause();
  // "Nothing has changed": back before the timestamp is restored.
  set_timestamp(r, 0);
  set_name(r);
  hold(r);
}

// ---- wrong in one way: the payload

void bad_process_context_message() { publish_and_hold(resource(usual_resource())); }

void bad_field_numbers() {
  publish_and_hold(field(2, resource(usual_resource())) + joined(1, usual_attributes()));
}

void bad_resource_keys_unique() {
  publish_and_hold(message_with({pair("service.name", text("named-by-the-user"))}));
}

void bad_attribute_keys_unique() {
  const Bytes schema = pair("threadlocal.schema_version", text("go_pprof_labels_v1"));
  std::vector<Bytes> attributes = with(usual_attributes(), {schema});
  const Region r = publish(message(resource(usual_resource()), attributes));
  pause();
  attributes.push_back(schema);
  update(r, on_heap(message(resource(usual_resource()), attributes)));
  hold(r);
}

void bad_nested_keys_unique() {
  publish_and_hold(message_with({pair(
      "ctxconf.list", list({pair("a", text("1")), pair("b", text("2")), pair("a", text("3"))}))}));
}

void bad_utf8() {
  Bytes value = "x";
  while (value.size() < 4096) value += "\xc3\xa9";
  value.resize(4096);
  publish_and_hold(message_with({pair("ctxconf.text", text(value))}));
}

void bad_utf8_surrogates() {
  publish_and_hold(message_with({pair("ctxconf.text", text("\xed\xa0\xbd\xed\xb8\x80"))}));
}

void bad_no_dictionary_references() {
  publish_and_hold(message_with({pair("ctxconf.text", text("a")) + varint_field(3, 7)}));
}

void bad_entity_keys_exist() {
  publish_and_hold(message_with_entity(entity("service", {"service.name", "host.id"})));
}
void bad_entity_keys_exist_description() {
  publish_and_hold(message_with_entity(entity("service", {"service.name"}, {"host.id"})));
}
void bad_entity_type() { publish_and_hold(message_with_entity(entity("", {"service.name"}))); }
void bad_entity_id_keys() {
  publish_and_hold(message_with_entity(entity("service", {}, {"service.version"})));
}
void bad_utf8_large() { publish_and_hold(large_message("caf\xc3")); }

void bad_semantic_conventions() {
  auto pairs = usual_resource();
  pairs.front() = pair("serviceName", text("ctxconf-testee"));
  publish_and_hold(message(resource(pairs), usual_attributes()));
}

void bad_resource_matches_sdk() {
  Bytes value(16384 + 3, 'x');
  value.resize(value.size() & 0x3fff);  // what fits into two bytes of a varint
  auto pairs = usual_resource();
  pairs[1] = pair("service.version", text(value));
  publish_and_hold(message(resource(pairs), usual_attributes()));
}

void bad_readable_secret_memory() {
  const auto fd = static_cast<int>(syscall(SYS_memfd_secret, O_CLOEXEC));
  if (fd < 0) cannot_be_shown("memfd_secret");
  if (ftruncate(fd, static_cast<off_t>(page())) != 0) die("ftruncate");
  void* p = mmap(nullptr, page(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) cannot_be_shown("mmap of secret memory");
  close(fd);
  const Buffer payload = copy_to(static_cast<char*>(p), usual_message());
  const Region r = make_region();
  publish_in(r, payload);
  hold(r);
}

// A file of the process's own that holds `bytes`, with no other name.
int make_file(const char* directory, const Bytes& bytes) {
  const int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) cannot_be_shown("open with O_TMPFILE");
  if (write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) die("write");
  return fd;
}

void bad_readable_truncated_file() {
  const Bytes bytes = usual_message();
  const int fd = make_memfd("payload");
  if (write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) die("write");
  void* p = mmap(nullptr, page(), PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) die("mmap");
  if (ftruncate(fd, 0) != 0) die("ftruncate");
  close(fd);
  const Region r = make_region();
  publish_in(r, {static_cast<char*>(p), bytes.size()});
  hold(r);
}

[[gnu::noinline]] void publish_from_the_stack(const Region& r) {
  // The low end of a large frame: short calls made later do not reach it.
  char frame[16 * 1024];
  publish_in(r, copy_to(frame, usual_message()));
  asm volatile("" : : "r"(frame) : "memory");
}

[[gnu::noinline]] void call_deeply(int depth) {
  char frame[4096];
  std::memset(frame, 0xa5, sizeof frame);
  asm volatile("" : : "r"(frame) : "memory");
  if (depth > 0) call_deeply(depth - 1);
  asm volatile("" : : "r"(frame) : "memory");  // or the call above could reuse this frame
}

void bad_stays_alive() {
  const Region r = make_region();
  publish_from_the_stack(r);
  pause();
  call_deeply(16);
  hold(r);
}

// ---- wrong in one way: publishing

void bad_mapping_private() { publish_and_hold(usual_message(), {.flags = MAP_SHARED}); }

void bad_mapping_protection() {
  publish_and_hold(usual_message(), {.protection = PROT_READ | PROT_WRITE | PROT_EXEC});
}

void bad_memfd_closed() { publish_and_hold(usual_message(), {.close_memfd = false}); }

// Where the kernel names mappings the label is enough to hide the memfd; where
// it does not, the memfd has the wrong name itself.
void bad_discoverable() {
  publish_and_hold(usual_message(), {.memfd_name = "otel", .label = "otel"});
}

void bad_fields_nonzero() {
  const Region r = make_region();
  publish_in(r, {});
  hold(r);
}

void bad_survives_file_size_limit() {
  publish_and_hold(usual_message(), {.heed_file_size_limit = false});
}

// How many descriptors it may have from now on.
void limit_descriptors(rlim_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) die("getrlimit");
  limit.rlim_cur = std::min(most, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) die("setrlimit");
}

// Header and timestamp, and no naming call.
void fill(const Region& r, const Buffer& payload) {
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
}

void change(const Region& r, const Buffer& payload) {
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
}

Buffer numbered_payload(int number) {
  return on_heap(message_with({pair("ctxconf.update", integer(number))}));
}

void bad_memfd_name() { publish_and_hold(usual_message(), {.memfd_name = "otel_ctx"}); }

void bad_memfd_flags() { publish_and_hold(usual_message(), {.memfd_flags = 0}); }

// The mapping of a memfd, sized by `size` before or after it is mapped.
template <class Size>
Region make_region_sized(bool before, Size size) {
  Region r{.size = page(), .label = "OTEL_CTX"};
  r.fd = ask_for_memfd({});
  if (r.fd < 0) die("memfd_create");
  if (before) size(r.fd);
  void* p = mmap(nullptr, r.size, PROT_READ | PROT_WRITE, MAP_PRIVATE, r.fd, 0);
  if (p == MAP_FAILED) die("mmap");
  if (!before) size(r.fd);
  close(r.fd);
  r.fd = -1;
  r.at = static_cast<char*>(p);
  if (madvise(r.at, r.size, MADV_DONTFORK) != 0) die("madvise");
  return r;
}

sigjmp_buf after_a_fault;

// The first store faults; a handler of the application's own carries on behind it.
void bad_memfd_sized() {
  const Region r = make_region_sized(true, [](int) {});
  struct sigaction action{};
  action.sa_handler = [](int) { siglongjmp(after_a_fault, 1); };
  if (sigaction(SIGBUS, &action, nullptr) != 0) die("sigaction");
  if (sigsetjmp(after_a_fault, 1) == 0) fill(r, on_heap(usual_message()));
  set_name(r);
  hold(r);
}

void bad_memfd_first() {
  Region r = make_region({.may_use_memfd = false});
  r.anonymous = false;  // it stays where the kernel has no name for it
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void bad_name_always() {
  const Region r = make_region();
  fill(r, on_heap(usual_message()));
  hold(r);
}

void bad_name_arguments() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  fill(r, payload);
  Region other = r;
  other.at = payload.at;
  set_name(other);
  hold(r);
}

void bad_name_arguments_later() {
  const Region r = publish();
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, r.at, r.size, "app-cache");
  hold(r);
}

void bad_name_whole_mapping() {
  const Region r = make_region({.size = 2 * page()});
  fill(r, on_heap(usual_message()));
  Region first_page = r;
  first_page.size = page();
  set_name(first_page);
  hold(r);
}

void bad_name_after_timestamp() {
  const Region r = make_region();
  set_name(r);
  fill(r, on_heap(usual_message()));
  hold(r);
}

void bad_dontfork_before_header() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region({.advice = MADV_NORMAL});
  fill(r, payload);
  if (madvise(r.at, r.size, MADV_DONTFORK) != 0) die("madvise");
  set_name(r);
  hold(r);
}

// A file of two pages of which the first is mapped, so that the mapping can grow.
Region make_region_that_grows() {
  Region r = make_region({.size = 2 * page()});
  if (munmap(r.at + page(), page()) != 0) die("munmap");
  r.size = page();
  return r;
}

void bad_same_mapping() {
  Region r = make_region_that_grows();
  publish_in(r, on_heap(usual_message()));
  pause();
  char* there = map_anonymous(2 * page(), PROT_NONE);
  set_timestamp(r, 0);
  void* p = mremap(r.at, r.size, 2 * page(), MREMAP_MAYMOVE | MREMAP_FIXED, there);
  if (p == MAP_FAILED) die("mremap");
  r.at = static_cast<char*>(p);
  r.size = 2 * page();
  const Buffer payload = copy_to(r.at + page(), message_with({pair("ctxconf.update", integer(1))}));
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_update_name_always() {
  const Region r = publish();
  for (int i = 1; i <= 3; ++i) {
    pause();
    change(r, numbered_payload(i));
  }
  hold(r);
}

void bad_update_name_after_timestamp() {
  const Region r = publish();
  for (int i = 1; i <= 3; ++i) {
    pause();
    const Buffer payload = numbered_payload(i);
    set_timestamp(r, 0);
    set_payload(r, address_of(payload.at), payload.size);
    set_name(r);
    set_timestamp(r, next_timestamp());
  }
  hold(r);
}

void bad_singleton() {
  Region first;
  std::thread other([&] { first = publish(); });
  const Region second = publish();
  other.join();
  announce(first);
  hold(second);
}

void bad_footprint() {
  publish_and_hold(usual_message(),
                   {.size = std::size_t{1} << 30, .flags = MAP_PRIVATE | MAP_NORESERVE});
}

// ---- wrong in one way: updating, forking

void bad_timestamp_distinct() {
  const std::uint64_t cached = boot_ns();
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), cached);
  for (int i = 1; i <= 3; ++i) {
    if (options.pause_for_byte) pause();
    update(r, on_heap(message_with({pair("ctxconf.update", integer(i))})), cached);
  }
  hold(r);
}

void bad_no_silent_change() {
  const Bytes bytes = usual_message();
  const Buffer payload = on_heap(bytes);
  const Region r = make_region();
  publish_in(r, payload);
  pause();
  payload.at[bytes.find("1.0.0")] = '2';
  hold(r);
}

void bad_dontfork() {
  // Refused for a memfd, and nobody looks.
  publish_and_hold(usual_message(), {.advice = MADV_WIPEONFORK});
}

void bad_dontfork_partial() {
  const Region r = make_region({.size = 2 * page(), .advice = MADV_NORMAL});
  if (madvise(r.at + page(), page(), MADV_DONTFORK) != 0) die("madvise");
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

// ---- wrong in one way: the order of stores

// A timestamp in two stores, its upper half first: what is seen between them is not far off.
void store_in_halves(const Region& r, std::uint64_t value) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  store(r.at + kTimestampAt + 4, static_cast<std::uint32_t>(value >> 32));
  store(r.at + kTimestampAt, static_cast<std::uint32_t>(value));
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void clear_in_halves(const Region& r) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  store(r.at + kTimestampAt, std::uint32_t{0});
  store(r.at + kTimestampAt + 4, std::uint32_t{0});
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// 32 bytes as a publication leaves them.
std::string finished_header(const Buffer& payload, std::uint64_t timestamp) {
  std::string out(kHeaderSize, '\0');
  const auto put = [&out](std::size_t at, auto value) {
    std::memcpy(out.data() + at, &value, sizeof value);
  };
  kSignature.copy(out.data(), kSignature.size());
  put(kVersionAt, std::uint32_t{2});
  put(kSizeAt, static_cast<std::uint32_t>(payload.size));
  put(kTimestampAt, timestamp);
  put(kPointerAt, address_of(payload.at));
  return out;
}

void bad_timestamp_last() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  const auto header = finished_header(payload, next_timestamp());
  for (std::size_t at = 0; at < kHeaderSize; at += sizeof(std::uint64_t)) {
    std::uint64_t word;
    std::memcpy(&word, header.data() + at, sizeof word);
    store(r.at + at, word);
  }
  set_name(r);
  hold(r);
}

// As libc copies it; the compiler is not to know the size.
void copy_by_libc(char* to, const std::string& from) {
  std::size_t size = from.size();
  asm volatile("" : "+r"(size) : : "memory");
  // NOLINTNEXTLINE(bugprone-not-null-terminated-result): these are bytes, not a text
  std::memcpy(to, from.data(), size);
  asm volatile("" : : : "memory");
}

void bad_timestamp_last_memcpy() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  copy_by_libc(r.at, finished_header(payload, next_timestamp()));
  set_name(r);
  hold(r);
}

void bad_payload_before_timestamp() {
  const Bytes bytes = usual_message();
  const Buffer payload = on_heap(Bytes(bytes.size(), '\0'));
  const Region r = make_region();
  fill(r, payload);
  copy_to(payload.at, bytes);
  set_name(r);
  hold(r);
}

void bad_payload_before_timestamp_large() {
  const Bytes bytes = large_message("end");
  Bytes begun = bytes;
  const std::size_t late = bytes.rfind("end");
  std::fill_n(begun.begin() + static_cast<std::ptrdiff_t>(late), 3, '-');
  const Buffer payload = on_heap(begun);
  const Region r = make_region();
  fill(r, payload);
  copy_to(payload.at, bytes);
  set_name(r);
  hold(r);
}

void bad_timestamp_single_store() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_fields(r, address_of(payload.at), payload.size);
  store_in_halves(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_prepare_before_zero() {
  const Region r = publish();
  set_timestamp(r, 0);
  const Buffer payload = numbered_payload(1);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_zero_timestamp_first() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_fields_while_zero() {
  const Bytes bytes = usual_message();
  const Region r = publish(bytes);
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), bytes.size());
  set_timestamp(r, next_timestamp());
  store(r.at + kSizeAt, static_cast<std::uint32_t>(payload.size));
  set_name(r);
  hold(r);
}

void bad_update_timestamp_single_store() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), payload.size);
  store_in_halves(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_zero_single_store() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  clear_in_halves(r);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_signature_untouched() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  store(r.at + kSignatureAt, std::uint64_t{0});
  set_payload(r, address_of(payload.at), payload.size);
  copy_by_libc(r.at + kSignatureAt, std::string(kSignature));
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void bad_old_payload_until_zero() {
  const Buffer old = on_heap(usual_message());
  const Region r = make_region();
  publish_in(r, old);
  const Buffer payload = numbered_payload(1);
  std::memset(old.at, 0xdd, old.size);
  asm volatile("" : : "r"(old.at) : "memory");
  std::free(old.at);
  update(r, payload);
  hold(r);
}

void bad_old_payload_until_zero_unmapped() {
  const Buffer old = copy_to(map_anonymous(page()), usual_message());
  const Region r = make_region();
  publish_in(r, old);
  const Buffer payload = numbered_payload(1);
  if (munmap(old.at, page()) != 0) die("munmap");
  update(r, payload);
  hold(r);
}

// ---- legal: the header

void good_default() { publish_and_hold(usual_message()); }

void good_slow_first_publish() {
  const Region r = make_region();
  pause();
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void good_named_early() {
  const Region r = make_region();
  set_name(r);
  pause();
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void good_named_long_before() {
  const Region r = make_region();
  copy_to(r.at, std::string(kSignature) + std::string("\2\0\0\0", 4));
  set_name(r);
  wait_for_the_end();
}

void good_signature_with_terminator() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  std::memcpy(r.at + kSignatureAt, kSignature.data(), kSignature.size() + 1);
  store<std::uint32_t>(r.at + kVersionAt, 2);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_larger_buffer() {
  const Bytes bytes = usual_message();
  const Buffer buffer = on_heap(bytes + Bytes(1024, '\xff'));
  const Region r = make_region();
  publish_in(r, {buffer.at, bytes.size()});
  hold(r);
}

void good_leftover_bytes() {
  const Buffer buffer = on_heap(message_with({pair("ctxconf.text", text(Bytes(500, 'x')))}));
  const Region r = make_region();
  publish_in(r, buffer);
  pause();
  const Bytes shorter = usual_message();
  set_timestamp(r, 0);
  copy_to(buffer.at, shorter);
  set_payload(r, address_of(buffer.at), shorter.size());
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_data_after_header() {
  const Region r = make_region();
  std::memset(r.at + kHeaderSize, 0xc3, r.size - kHeaderSize);
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void good_one_page() { publish_and_hold(usual_message(), {.size = page()}); }
void good_several_pages() { publish_and_hold(usual_message(), {.size = 3 * page()}); }
void good_32_bytes() { publish_and_hold(usual_message(), {.size = kHeaderSize}); }

void good_upper_half_untouched() {
  needs_32_bits();
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  std::memcpy(r.at, kSignature.data(), kSignature.size());
  store<std::uint32_t>(r.at + kVersionAt, 2);
  store<std::uint32_t>(r.at + kSizeAt, static_cast<std::uint32_t>(payload.size));
  store<std::uint32_t>(r.at + kPointerAt, static_cast<std::uint32_t>(address_of(payload.at)));
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_sign_extended() {
  needs_32_bits();
  const Buffer payload = copy_to(map_anonymous(page()), usual_message());
  const auto low = static_cast<std::int32_t>(address_of(payload.at));
  if (low >= 0) cannot_be_shown("no memory in the upper half");
  const Region r = make_region();
  set_fields(r, static_cast<std::uint64_t>(std::int64_t{low}), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

// ---- legal: where the payload is

void good_payload_inline() { hold(publish_inline(usual_message(), 0, {})); }
void good_payload_gap() { hold(publish_inline(usual_message(), 992, {})); }

void good_payload_inline_large() {
  const Bytes bytes = message_with({pair("ctxconf.text", text(Bytes(40'000, 'x')))});
  hold(publish_inline(bytes, 0, {.size = 12 * page()}));
}

void good_payload_heap() { publish_and_hold(usual_message()); }

void good_dontfork_header_page() {
  const Region r = make_region({.size = 2 * page(), .advice = MADV_NORMAL});
  if (madvise(r.at, page(), MADV_DONTFORK) != 0) die("madvise");
  const Bytes bytes = message_with({pair("ctxconf.long", text(Bytes(page(), 'x')))});
  const Buffer payload{r.at + kHeaderSize, bytes.size()};
  copy_to(payload.at, bytes);
  publish_in(r, payload);
  hold(r);
}

void good_fields_before_dontfork() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region({.advice = MADV_NORMAL});
  set_fields(r, address_of(payload.at), payload.size);
  if (madvise(r.at, r.size, MADV_DONTFORK) != 0) die("madvise");
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_payload_rodata() {
  // Resource { service.name = "frozen" }
  static constexpr char frozen[] =
      "\x0a\x1a"
      "\x0a\x18"
      "\x0a\x0c"
      "service.name"
      "\x12\x08"
      "\x0a\x06"
      "frozen";
  const Region r = make_region();
  set_fields(r, address_of(frozen), sizeof frozen - 1);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_payload_own_mapping() {
  const Bytes bytes = message_with({pair("ctxconf.text", text(Bytes(10'000, 'x')))});
  const Buffer payload = copy_to(map_anonymous(4 * page()), bytes);
  const Region r = make_region();
  publish_in(r, payload);
  hold(r);
}

void good_payload_crosses_mappings() {
  // Memory of two kinds side by side, so that the kernel keeps two entries.
  char* two_pages = map_anonymous(2 * page());
  const int fd = make_memfd("payload");
  if (ftruncate(fd, static_cast<off_t>(page())) != 0) die("ftruncate");
  void* second =
      mmap(two_pages + page(), page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
  if (second == MAP_FAILED) die("mmap");
  close(fd);
  const Bytes bytes = usual_message();
  const Buffer payload = copy_to(two_pages + page() - bytes.size() / 2, bytes);
  const Region r = make_region();
  publish_in(r, payload);
  hold(r);
}

void good_payload_readonly() {
  const Buffer payload = copy_to(map_anonymous(page()), usual_message());
  if (mprotect(payload.at, page(), PROT_READ) != 0) die("mprotect");
  const Region r = make_region();
  publish_in(r, payload);
  hold(r);
}

void good_payload_shares_page() {
  const Buffer payload = copy_to(map_anonymous(page()), usual_message());
  const Region r = make_region();
  publish_in(r, payload);
  std::atomic<bool> stop{false};
  std::thread neighbour([&, at = payload.at + payload.size] {
    for (char c = 1; !stop; ++c) {
      store(at, c);
      sleep_ms(5);
    }
  });
  hold(r);
  stop = true;
  neighbour.join();
}

void good_payload_paged_out() {
  const Bytes bytes = usual_message();
  const int fd = make_file("/var/tmp", bytes);
  if (fsync(fd) != 0) die("fsync");
  void* p = mmap(nullptr, page(), PROT_READ, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED) die("mmap");
  close(fd);
  const auto page_out = [&] {
    (void)*static_cast<const volatile char*>(p);  // the kernel drops only what is mapped
    if (madvise(p, page(), MADV_PAGEOUT) != 0) cannot_be_shown("madvise(MADV_PAGEOUT)");
    unsigned char resident = 1;
    if (mincore(p, page(), &resident) != 0) die("mincore");
    return (resident & 1) == 0;
  };
  if (!page_out()) {
    errno = EAGAIN;
    cannot_be_shown("the page stays in memory");
  }
  const Region r = make_region();
  publish_in(r, {static_cast<char*>(p), bytes.size()});
  pause();
  (void)page_out();  // a reader may have it in use at this moment
  hold(r);
}

// ---- legal: how the payload is encoded

void good_field_order() {
  std::vector<Bytes> pairs;
  for (const auto& [key, value] :
       {std::pair{"service.version", "1.0.0"}, std::pair{"service.name", "ctxconf-testee"}}) {
    pairs.push_back(field(2, text(value)) + field(1, key));
  }
  publish_and_hold(joined(2, usual_attributes()) + field(1, resource(pairs)));
}

void good_split_messages() {
  const auto pairs = usual_resource();
  Bytes bytes;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    bytes += field(1, resource({pairs[i], pairs[i + 1]}));
    bytes += field(2, pair("ctxconf.part" + std::to_string(i), integer(1)));
  }
  // A value in two parts: the later string replaces the earlier one.
  bytes += field(2, field(1, "ctxconf.split") + field(2, text("a")) + field(2, text("b")));
  publish_and_hold(bytes);
}

void good_longer_varints() {
  const auto long_pair = [](const Bytes& key, const Bytes& any) {
    return field(1, key, 2) + field(2, any, 5);
  };
  const Bytes resource_bytes =
      field(1, long_pair("service.name", field(1, "ctxconf-testee", 3)), 4) +
      field(1, long_pair("ctxconf.small", varint_field(3, 5, 10)), 2);
  publish_and_hold(field(1, resource_bytes, 5) + joined(2, usual_attributes()));
}

void good_unknown_fields() {
  publish_and_hold(usual_message() + field(15, "later") + varint_field(3000, 1));
}

void good_unknown_nested_fields() {
  const Bytes fixed32 = varint(21 << 3 | 5) + Bytes("\x01\x02\x03\x04", 4);
  const auto odd = [](const Bytes& key) {
    return pair(key, text("a") + field(90, "later")) + field(77, "later");
  };
  publish_and_hold(message(resource(with(usual_resource(), {odd("ctxconf.text")})) + fixed32,
                           with(usual_attributes(), {odd("ctxconf.other")})));
}

void good_no_attributes() { publish_and_hold(message(resource(usual_resource()), {})); }
void good_no_resource() { publish_and_hold(joined(2, usual_attributes())); }
void good_empty_resource() { publish_and_hold(field(1, "")); }

void good_entity() {
  publish_and_hold(message_with_entity(
      entity("service", {"service.instance.id"}, {"service.name", "service.version"})));
}
void good_entity_of_own_type() {
  publish_and_hold(message_with_entity(entity("ctxconf.testee", {"service.instance.id"})));
}
void good_payload_large() {
  const Region r = publish(large_message("end"));
  for (int i = 0; i < 3; ++i) {
    pause();
    update(r, on_heap(large_message("end")));
  }
  hold(r);
}

void good_split_resource() {
  const auto pairs = usual_resource();
  Bytes bytes;
  for (const auto& p : pairs) bytes += field(1, resource({p}));
  publish_and_hold(bytes);
}

void good_key_in_both() {
  publish_and_hold(
      message(resource(usual_resource()),
              with(usual_attributes(), {pair("service.name", text("ctxconf-testee"))})));
}

void good_bytes_value() {
  Bytes all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(255 - i));
  publish_and_hold(message_with({pair("ctxconf.bytes", raw(all))}));
}

void good_value_kinds() {
  const Bytes inner = list({pair("a", integer(1)), pair("b", list({pair("a", integer(2))}))});
  publish_and_hold(message_with({
      pair("ctxconf.text", text("gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf")),
      pair("ctxconf.true", boolean(true)),
      pair("ctxconf.negative", integer(-5)),
      pair("ctxconf.double", number(0.5)),
      pair("ctxconf.array", array({text("a"), text("a"), inner, inner, Bytes()})),
      pair("ctxconf.list", inner),
      pair("ctxconf.bytes", raw(Bytes(3, '\0'))),
      pair("ctxconf.nothing", Bytes()),
      Bytes(field(1, "ctxconf.absent")),
  }));
}

void good_many_attributes() {
  std::vector<Bytes> pairs;
  for (const std::size_t size : {0, 1, 127, 128, 16383, 16384}) {
    pairs.push_back(pair("ctxconf.text" + std::to_string(size), text(Bytes(size, 'x'))));
  }
  for (int i = 0; i < 300; ++i) {
    pairs.push_back(pair("ctxconf.n" + std::to_string(i), integer(i)));
  }
  publish_and_hold(message_with(pairs));
}

void good_own_names() {
  publish_and_hold(message_with({pair("acme.warehouse.aisle", text("7")),
                                 pair("Lagerhalle", text("Nord")), pair("x", text("y"))}));
}

// ---- legal: how it is published

void good_map_populate() {
  publish_and_hold(usual_message(), {.flags = MAP_PRIVATE | MAP_POPULATE});
}
void good_map_locked() { publish_and_hold(usual_message(), {.flags = MAP_PRIVATE | MAP_LOCKED}); }

void good_read_implies_exec() {
  // On this process alone: x86-64 forgets it at exec.
  if (personality(READ_IMPLIES_EXEC) == -1) cannot_be_shown("personality");
  publish_and_hold(usual_message());
}

void good_read_only_between_updates() {
  const Region r = publish();
  const auto protect = [&](int protection) {
    if (mprotect(r.at, r.size, protection) != 0) die("mprotect");
  };
  protect(PROT_READ);
  pause();
  const Buffer payload = on_heap(message_with({pair("ctxconf.update", integer(1))}));
  protect(PROT_READ | PROT_WRITE);
  update(r, payload);
  protect(PROT_READ);
  hold(r);
}

void good_fd_open_for_a_moment() {
  Region r = make_region({.close_memfd = false});
  pause();
  if (r.fd >= 0) close(r.fd);
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

// No descriptor is left for a memfd.
void good_anonymous_memory() {
  limit_descriptors(0);
  publish_and_hold(usual_message());
}

void good_memfd_retry() {
  Plan plan;
  limit_descriptors(0);
  if (syscall(SYS_memfd_create, plan.memfd_name, plan.memfd_flags) >= 0) die("memfd_create");
  limit_descriptors(RLIM_INFINITY);
  plan.memfd_flags &= ~MFD_NOEXEC_SEAL;
  publish_and_hold(usual_message(), plan);
}

void good_memfd_sized_by_writing() {
  const Region r = make_region_sized(true, [](int fd) {
    const Bytes zeros(page(), '\0');
    if (write(fd, zeros.data(), zeros.size()) != std::ssize(zeros)) die("write");
  });
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void good_memfd_sized_late() {
  const Region r = make_region_sized(false, [](int fd) {
    if (ftruncate(fd, static_cast<off_t>(page())) != 0) die("ftruncate");
  });
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void good_named_twice() {
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()));
  set_name(r);
  for (int i = 1; i <= 3; ++i) {
    pause();
    const Buffer payload = numbered_payload(i);
    set_timestamp(r, 0);
    set_name(r);
    set_payload(r, address_of(payload.at), payload.size);
    set_timestamp(r, next_timestamp());
    set_name(r);
  }
  hold(r);
}

void good_names_other_memory() {
  char* other = map_anonymous(page());
  const auto name_it = [&](const char* name) {
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, other, page(), name);
  };
  name_it("arena");
  const Region r = publish();
  name_it("otel buffers");
  hold(r);
}

void good_grown_in_place() {
  Region r = make_region_that_grows();
  publish_in(r, on_heap(usual_message()));
  pause();
  set_timestamp(r, 0);
  if (mremap(r.at, r.size, 2 * page(), 0) != r.at) die("mremap");
  r.size = 2 * page();
  const Buffer payload = copy_to(r.at + page(), message_with({pair("ctxconf.update", integer(1))}));
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_naming_denied() {
  constexpr auto first_argument = static_cast<std::uint32_t>(offsetof(seccomp_data, args));
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, first_argument),  // its low half
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_VMA, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
    cannot_be_shown("seccomp");
  }
  publish_and_hold(usual_message());
}

void good_split_by_madvise() {
  const Region r = publish(usual_message(), {.size = 4 * page()});
  if (madvise(r.at + 2 * page(), 2 * page(), MADV_DONTDUMP) != 0) die("madvise");
  hold(r);
}

void good_split_by_mlock() {
  const Region r = publish(usual_message(), {.size = 3 * page()});
  if (mlock(r.at + page(), page()) != 0) cannot_be_shown("mlock");
  hold(r);
}

void good_split_by_mprotect() {
  const Region r = publish(usual_message(), {.size = 3 * page()});
  if (mprotect(r.at + 2 * page(), page(), PROT_READ) != 0) die("mprotect");
  hold(r);
}

void good_additional_advice() {
  const Region r = make_region();
  if (madvise(r.at, r.size, MADV_DONTDUMP) != 0) die("madvise");
  if (madvise(r.at, r.size, MADV_WILLNEED) != 0) die("madvise");
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void good_publish_nothing() { wait_for_the_end(); }

void good_second_mapping_inactive() {
  const Region old = publish();
  pause();
  set_timestamp(old, 0);
  publish_and_hold(message_with({pair("ctxconf.update", integer(1))}));
}

void good_second_mapping_foreign() {
  const Region other = make_region();
  std::memcpy(other.at, "OTHERCTX", 8);
  store<std::uint32_t>(other.at + kVersionAt, 1);
  store<std::uint32_t>(other.at + kSizeAt, 4096);
  store<std::uint64_t>(other.at + kPointerAt, 0x1000);
  publish_and_hold(usual_message());
}

void good_publish_from_thread() {
  Region r;
  std::thread([&] { r = publish(); }).join();
  hold(r);
}

// ---- legal: clocks

void good_wall_clock() {
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), now_ns(CLOCK_REALTIME));
  hold(r);
}

void good_time_namespace() {
  if (unshare(CLONE_NEWTIME) != 0) cannot_be_shown("unshare(CLONE_NEWTIME)");
  const int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
  constexpr std::string_view one_day = "boottime 86400 0\n";
  if (fd < 0 || write(fd, one_day.data(), one_day.size()) != std::ssize(one_day)) {
    cannot_be_shown("/proc/self/timens_offsets");
  }
  close(fd);
  // The new namespace is for children.
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    publish_and_hold(usual_message());
    return;
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) die("waitpid");
  std::exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

// ---- legal: updates and the end of a context

void good_updates() {
  const Region r = publish();
  for (int i = 1; i <= 3; ++i) {
    pause();
    update(r, on_heap(message_with({pair("ctxconf.update", integer(i))})));
  }
  hold(r);
}

void good_timestamp_plus_one() {
  // The clock stands still: several updates fall into one tick.
  const std::uint64_t tick = boot_ns();
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), tick);
  for (int i = 1; i <= 3; ++i) {
    if (options.pause_for_byte) pause();
    update(r, on_heap(message_with({pair("ctxconf.update", integer(i))})),
           tick + static_cast<std::uint64_t>(i));
  }
  hold(r);
}

void good_rewrite_in_place() {
  const Region r = publish_inline(usual_message(), 0, {});
  pause();
  Bytes changed = usual_message();
  changed[changed.find("1.0.0")] = '2';
  set_timestamp(r, 0);
  copy_to(r.at + kHeaderSize, changed);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_slow_update() {
  const Region r = publish();
  pause();
  const Buffer payload = on_heap(message_with({pair("ctxconf.update", integer(1))}));
  set_timestamp(r, 0);
  pause();
  set_payload(r, address_of(payload.at), payload.size);
  pause();
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_withdrawn_unmap() {
  const Region r = publish();
  announce(r);
  pause();
  munmap(r.at, r.size);
  wait_for_the_end();
}

void good_withdrawn_zero_unmap() {
  const Region r = publish();
  announce(r);
  pause();
  set_timestamp(r, 0);
  munmap(r.at, r.size);
  wait_for_the_end();
}

void good_withdrawn_zero() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  publish_in(r, payload);
  announce(r);
  pause();
  set_timestamp(r, 0);
  std::memset(payload.at, 0, payload.size);
  std::free(payload.at);
  wait_for_the_end();
}

void take_name_away(const Region& r) {
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, r.at, r.size, nullptr);
}

void good_withdrawn_unnamed() {
  const Region r = publish();
  announce(r);
  pause();
  set_timestamp(r, 0);
  take_name_away(r);
  wait_for_the_end();
}

void good_withdrawn_name_first() {
  const Region r = publish();
  announce(r);
  pause();
  take_name_away(r);
  set_timestamp(r, 0);
  munmap(r.at, r.size);
  wait_for_the_end();
}

void good_withdrawn_for_other_use() {
  const Region r = publish();
  announce(r);
  pause();
  set_timestamp(r, 0);
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, r.at, r.size, "app-cache");
  std::memset(r.at, 0xa5, r.size);
  wait_for_the_end();
}

void good_withdrawn_zero_again() {
  const Region r = publish();
  pause();
  set_timestamp(r, 0);
  pause();
  publish_in(r, on_heap(message_with({pair("ctxconf.update", integer(1))})));
  hold(r);
}

void good_withdrawn_unnamed_again() {
  const Region r = publish();
  pause();
  set_timestamp(r, 0);
  take_name_away(r);
  pause();
  publish_in(r, on_heap(message_with({pair("ctxconf.update", integer(1))})));
  hold(r);
}

void good_withdrawn_zero_republish() {
  const Region old = publish();
  pause();
  set_timestamp(old, 0);
  pause();
  publish_and_hold(message_with({pair("ctxconf.update", integer(1))}));
}

void good_republish() {
  const Region old = publish();
  pause();
  set_timestamp(old, 0);
  munmap(old.at, old.size);
  pause();
  publish_and_hold(message_with({pair("ctxconf.update", integer(1))}));
}

// ---- legal: the order of stores

void good_stores_in_any_order() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  store(r.at + kPointerAt, address_of(payload.at));
  store(r.at + kSizeAt, static_cast<std::uint32_t>(payload.size));
  store(r.at + kVersionAt, std::uint32_t{2});
  copy_by_libc(r.at + kSignatureAt, std::string(kSignature));
  set_timestamp(r, next_timestamp());
  set_name(r);
  const Buffer next = numbered_payload(1);
  set_timestamp(r, 0);
  store(r.at + kPointerAt, address_of(next.at));
  store(r.at + kSizeAt, static_cast<std::uint32_t>(next.size));
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_stores_repeated() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_timestamp(r, 0);
  set_fields(r, address_of(r.at), 1);
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, 0);
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  const Buffer next = numbered_payload(1);
  set_timestamp(r, 0);
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), 0);
  set_fields(r, address_of(next.at), next.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_stores_of_many_words() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  copy_by_libc(r.at, finished_header(payload, 0));
  set_timestamp(r, next_timestamp());
  set_name(r);
  const Buffer next = numbered_payload(1);
  set_timestamp(r, 0);
  copy_by_libc(r.at, finished_header(next, 0));
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

// Aligned to eight bytes in a 32-bit program as well, unlike its integers.
template <class T>
std::atomic<T>& atomic_at(const Region& r, std::size_t offset) {
  return *reinterpret_cast<std::atomic<T>*>(r.at + offset);
}

void good_zero_by_compare_exchange() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  auto& timestamp = atomic_at<std::uint64_t>(r, kTimestampAt);
  std::uint64_t found = 1;
  if (timestamp.compare_exchange_strong(found, 0)) die("compare and exchange");
  if (!timestamp.compare_exchange_strong(found, 0)) die("compare and exchange");
  set_payload(r, address_of(payload.at), payload.size);
  timestamp.exchange(next_timestamp());
  set_name(r);
  hold(r);
}

void good_copied_to_new_memory() {
  const Region r = publish();
  const Bytes bytes = message_with({pair("ctxconf.update", integer(1))});
  set_timestamp(r, 0);
  const Buffer payload = on_heap(bytes);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_update_from_thread() {
  const Region r = publish();
  std::thread([&] { update(r, numbered_payload(1)); }).join();
  update(r, numbered_payload(2));
  hold(r);
}

void good_store_release() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  const auto announce_it = [&r](const Buffer& p) {
    auto& timestamp = atomic_at<std::uint64_t>(r, kTimestampAt);
    auto& size = atomic_at<std::uint32_t>(r, kSizeAt);
    auto& pointer = atomic_at<std::uint64_t>(r, kPointerAt);
    timestamp.store(0);
    size.store(static_cast<std::uint32_t>(p.size), std::memory_order_release);
    pointer.store(address_of(p.at), std::memory_order_release);
    timestamp.store(next_timestamp(), std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    set_name(r);
  };
  store(r.at + kVersionAt, std::uint32_t{2});
  copy_by_libc(r.at + kSignatureAt, std::string(kSignature));
  announce_it(payload);
  announce_it(numbered_payload(1));
  hold(r);
}

// The kernel stores `bytes`.
void store_by_read(char* at, const std::string& bytes) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) die("pipe2");
  if (write(ends[1], bytes.data(), bytes.size()) != std::ssize(bytes)) die("write");
  if (read(ends[0], at, bytes.size()) != std::ssize(bytes)) die("read");
  close(ends[0]);
  close(ends[1]);
}

void good_header_by_read() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  store_by_read(r.at, finished_header(payload, 0));
  set_timestamp(r, next_timestamp());
  set_name(r);
  const Buffer next = numbered_payload(1);
  set_timestamp(r, 0);
  store_by_read(r.at, finished_header(next, 0));
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_all_by_read() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  const auto header = finished_header(payload, next_timestamp());
  store_by_read(r.at, header.substr(0, kTimestampAt));
  store_by_read(r.at + kPointerAt, header.substr(kPointerAt));
  store_by_read(r.at + kTimestampAt, header.substr(kTimestampAt, 8));
  set_name(r);
  hold(r);
}

// Runs `work` in a process that shares our memory, and waits.
template <class Work>
void in_a_process_with_our_memory(Work work) {
  alignas(16) static char stack[64 * 1024];
  const auto run = [](void* w) {
    (*static_cast<Work*>(w))();
    return 0;
  };
  const pid_t child = clone(run, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &work);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) die("clone");
}

void good_fields_from_process_with_our_memory() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  in_a_process_with_our_memory([&] { set_fields(r, address_of(payload.at), payload.size); });
  set_timestamp(r, next_timestamp());
  set_name(r);
  const Buffer next = numbered_payload(1);
  set_timestamp(r, 0);
  in_a_process_with_our_memory([&] { set_payload(r, address_of(next.at), next.size); });
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_timestamps_in_halves() {
  needs_32_bits();
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_fields(r, address_of(payload.at), payload.size);
  store_in_halves(r, next_timestamp());
  set_name(r);
  const Buffer next = numbered_payload(1);
  clear_in_halves(r);
  set_payload(r, address_of(next.at), next.size);
  store_in_halves(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_stores_beside_header() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  store(r.at + kHeaderSize, std::uint32_t{1});  // a lock
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), payload.size);
  store(r.at + kHeaderSize, std::uint32_t{2});
  set_timestamp(r, next_timestamp());
  set_name(r);
  store(r.at + kHeaderSize, std::uint32_t{0});
  hold(r);
}

void good_copied_inline() {
  const Region r = publish_inline(usual_message(), 0, {});
  const Bytes bytes = message_with({pair("ctxconf.update", integer(1))});
  set_timestamp(r, 0);
  const Buffer payload = copy_to(r.at + page() / 2, bytes);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_freed_in_the_window() {
  const Buffer old = on_heap(usual_message());
  const Region r = make_region();
  publish_in(r, old);
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  std::memset(old.at, 0xdd, old.size);
  std::free(old.at);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  set_name(r);
  hold(r);
}

void good_freed_afterwards() {
  const Buffer old = copy_to(map_anonymous(page()), usual_message());
  const Region r = make_region();
  publish_in(r, old);
  update(r, numbered_payload(1));
  munmap(old.at, page());
  hold(r);
}

// ---- legal: processes

void reap(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) die("waitpid");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) std::exit(1);
}

void good_fork_idle_child() {
  const Region r = publish();
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) return wait_for_the_end();
  hold(r);
  reap(child);
}

void good_fork_child_publishes() {
  const Region r = publish();
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) return publish_and_hold(message_with({pair("ctxconf.child", boolean(true))}));
  hold(r);
  reap(child);
}

void good_traces_itself() {
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  publish_and_hold(usual_message());
}

void good_not_dumpable() {
  if (prctl(PR_SET_DUMPABLE, 0) != 0) die("prctl");
  errno = EACCES;
  if (geteuid() != 0) cannot_be_shown("reading what is not dumpable");
  publish_and_hold(usual_message());
}

void good_exec_self() {
  publish();
  pause();
  static char plain[] = "default";
  *case_name = plain;
  execv("/proc/self/exe", arguments);
  die("execv");
}

void good_launcher() {
  const Region r = publish();
  announce(r);
  pause();
  if (options.hold_to_eof) {
    execlp("cat", "cat", nullptr);
  } else {
    const auto seconds = std::to_string(options.hold_ms / 1000.0);
    execlp("sleep", "sleep", seconds.c_str(), nullptr);
  }
  die("execlp");
}

// ---- when calls fail

// A writer that lives with each failure; every member is legal.
struct Care {
  int attempts = 2;           // to get a memfd: the first with the seal
  bool falls_back = false;    // to anonymous memory also when a memfd is of no use
  bool leaves_blank = false;  // where it gives up, the mapping stays with a zero header
  bool other_clock = false;   // where CLOCK_BOOTTIME fails
  bool logs = false;
  bool names = true;
};

void log_failure(const Care& care, const char* step) {
  if (care.logs) say(stderr, "process_writer: warning: %s: %s\n", step, std::strerror(errno));
}

// Null without a memfd.
void* map_memfd_carefully(const Care& care) {
  int fd = -1;
  for (int i = 0; i < care.attempts && fd < 0; ++i) {
    const unsigned seal = i == 0 ? MFD_NOEXEC_SEAL : 0;
    fd = static_cast<int>(
        syscall(SYS_memfd_create, "OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING | seal));
  }
  if (fd < 0) {
    log_failure(care, "memfd_create");
    return nullptr;
  }
  void* p = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(page())) != 0) {
    log_failure(care, "ftruncate");
  } else {
    p = mmap(nullptr, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) log_failure(care, "mmap");
  }
  close(fd);
  return p;
}

void give_up(const Care& care, const Region& r) {
  if (!care.leaves_blank) {
    munmap(r.at, r.size);
    return;
  }
  set_timestamp(r, 0);
  std::memset(r.at, 0, kHeaderSize);
}

void publish_carefully(const Care& care) {
  Region r{.size = page(), .label = "OTEL_CTX"};
  void* p = map_memfd_carefully(care);
  if (p == nullptr || (p == MAP_FAILED && care.falls_back)) {
    r.anonymous = true;
    p = mmap(nullptr, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (p == MAP_FAILED) return log_failure(care, "mmap");
  r.at = static_cast<char*>(p);
  if (madvise(r.at, r.size, MADV_DONTFORK) != 0) {
    log_failure(care, "madvise");
    return give_up(care, r);
  }
  timespec now{};
  if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
    log_failure(care, "clock_gettime");
    if (!care.other_clock || clock_gettime(CLOCK_MONOTONIC, &now) != 0) return give_up(care, r);
  }
  const Buffer payload = on_heap(usual_message());
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
                       static_cast<std::uint64_t>(now.tv_nsec));
  if (care.names && prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, r.at, r.size, r.label) != 0) {
    log_failure(care, "prctl");
    if (r.anonymous) give_up(care, r);
  }
}

template <Care kCare>
void good_careful() {
  publish_carefully(kCare);
  wait_for_the_end();
}

void good_monotonic_clock() {
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), now_ns(CLOCK_MONOTONIC));
  hold(r);
}

void require_naming() {
  char* p = map_anonymous(page());
  if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, p, page(), "ctxconf probe") != 0) {
    cannot_be_shown("this kernel names no anonymous memory");
  }
  munmap(p, page());
}

void bad_memfd_retry() { good_careful<Care{.attempts = 1}>(); }

void bad_memfd_retry_flags() {
  auto fd = static_cast<int>(syscall(SYS_memfd_create, "OTEL_CTX", Plan().memfd_flags));
  if (fd < 0) fd = static_cast<int>(syscall(SYS_memfd_create, "OTEL_CTX", 0));
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(page())) != 0) die("memfd");
  void* p = mmap(nullptr, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) die("mmap");
  close(fd);
  const Region r{.at = static_cast<char*>(p), .size = page(), .label = "OTEL_CTX"};
  if (madvise(r.at, r.size, MADV_DONTFORK) != 0) die("madvise");
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void bad_fallback_anon() {
  require_naming();
  if (ask_for_memfd({}) >= 0) die("memfd_create worked");
  say(stderr, "process_writer: warning: no process context\n");
  wait_for_the_end();
}

void bad_fallback_anon_exhausted() {
  require_naming();
  if (ask_for_memfd({}) >= 0) die("memfd_create worked");
  if (errno == EPERM) return publish_and_hold(usual_message(), {.may_use_memfd = false});
  wait_for_the_end();
}

void bad_name_failure_ignored() {
  const Buffer payload = on_heap(usual_message());
  for (int attempt = 0; attempt < 10; ++attempt) {
    const Region r = make_region();
    set_fields(r, address_of(payload.at), payload.size);
    set_timestamp(r, next_timestamp());
    if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, r.at, r.size, r.label) == 0) break;
    munmap(r.at, r.size);
  }
  wait_for_the_end();
}

// Without a look at what the calls return.
void publish_blindly() {
  const int fd = ask_for_memfd({});
  const int sized = ftruncate(fd, static_cast<off_t>(page()));
  void* p = mmap(nullptr, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) {
    p = mmap(nullptr, page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  const int closed = close(fd);
  const Region r{.at = static_cast<char*>(p), .size = page(), .label = "OTEL_CTX"};
  const int advised = madvise(r.at, r.size, MADV_DONTFORK);
  publish_in(r, on_heap(usual_message()));
  if (sized + closed + advised != 0) say(stderr, "process_writer: never mind\n");
  wait_for_the_end();
}

void bad_failure_other_steps() {
  timespec now{};
  if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) std::abort();
  publish_and_hold(usual_message());
}

void bad_failure_leaves_nothing_valid() {
  const Region r = make_region();
  const Buffer payload = on_heap(usual_message());
  set_fields(r, address_of(payload.at), payload.size);
  timespec now{};
  const bool works = clock_gettime(CLOCK_BOOTTIME, &now) == 0;
  if (!works) clock_gettime(CLOCK_MONOTONIC, &now);
  set_timestamp(r, static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
                       static_cast<std::uint64_t>(now.tv_nsec));
  if (!works) {
    say(stderr, "process_writer: warning: no process context\n");
    return wait_for_the_end();
  }
  set_name(r);
  hold(r);
}

void bad_no_name_at_all() {
  const Region r = make_region();
  const Buffer payload = on_heap(usual_message());
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, r.at, r.size, r.label);
  hold(r);
}

void bad_survives_total_denial() {
  if (ask_for_memfd({}) < 0) std::terminate();
  publish_and_hold(usual_message());
}

void bad_timestamp_later() {
  std::uint64_t last = 0;
  const auto next = [&last] {
    const std::uint64_t now = boot_ns();
    return last = now == last ? last + 1 : now;
  };
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), next());
  for (int i = 1; i <= 2; ++i) {
    pause();
    update(r, on_heap(message_with({pair("ctxconf.update", integer(i))})), next());
  }
  hold(r);
}

// ---- the table

constexpr int kUsualHoldMs = 350;

struct Case {
  const char* name;
  const char* about;
  void (*run)();
  int hold_ms = kUsualHoldMs;
};

// Named after the row that each of them breaks, with a suffix for a second way.
constexpr Case kBad[] = {
    {"pctx.header.signature", "stores OTEL-CTX", bad_signature},
    {"pctx.header.version", "the signature's terminator turns version 2 into 0", bad_version},
    {"pctx.header.version-development", "announces version 1", bad_version_development},
    {"pctx.header.payload-size", "counts a terminating zero", bad_payload_size},
    {"pctx.header.payload-size:short", "leaves out the last byte", bad_payload_size_short},
    {"pctx.header.layout", "timestamp at 12, size at 20", bad_layout},
    {"pctx.header.payload-pointer", "stores the offset 32", bad_payload_pointer},
    {"pctx.header.at-mapping-start", "header 64 bytes into the mapping", bad_at_mapping_start},
    {"pctx.header.native-byte-order", "numbers in the other byte order", bad_native_byte_order},
    {"pctx.header.wide-fields-on-32-bit", "a pointer of four bytes, payload at 28",
     bad_wide_fields_on_32_bit},
    {"pctx.header.timestamp-nanoseconds", "microseconds since boot", bad_timestamp_nanoseconds},
    {"pctx.header.timestamp-nonzero-at-rest", "an update without a change leaves zero",
     bad_timestamp_nonzero_at_rest, 2800},
    {"pctx.payload.process-context-message", "a bare Resource", bad_process_context_message},
    {"pctx.payload.field-numbers", "fields 1 and 2 swapped", bad_field_numbers},
    {"pctx.payload.resource-keys-unique", "service.name twice", bad_resource_keys_unique},
    {"pctx.payload.attribute-keys-unique", "each update adds threadlocal.schema_version again",
     bad_attribute_keys_unique},
    {"pctx.payload.nested-keys-unique", "a list with the key a twice", bad_nested_keys_unique},
    {"pctx.payload.utf8", "a value cut in the middle of a character", bad_utf8},
    {"pctx.payload.utf8:surrogates", "a character as two encoded surrogates", bad_utf8_surrogates},
    {"pctx.payload.no-dictionary-references", "key_strindex is set", bad_no_dictionary_references},
    {"pctx.payload.utf8:large", "a character is cut at the end of 2.5 MiB", bad_utf8_large},
    {"pctx.payload.entity-keys-exist", "id_keys name host.id, which is no attribute",
     bad_entity_keys_exist},
    {"pctx.payload.entity-keys-exist:description", "description_keys name host.id",
     bad_entity_keys_exist_description},
    {"pctx.payload.entity-type", "an entity without a type", bad_entity_type},
    {"pctx.payload.entity-id-keys", "an entity without id_keys", bad_entity_id_keys},
    {"pctx.payload.semantic-conventions", "serviceName", bad_semantic_conventions},
    {"pctx.payload.resource-matches-sdk", "service.version of 16387 bytes is cut to 3",
     bad_resource_matches_sdk},
    {"pctx.payload.readable", "payload in secret memory", bad_readable_secret_memory},
    {"pctx.payload.readable:truncated-file", "payload in a file that was truncated",
     bad_readable_truncated_file},
    {"pctx.payload.stays-alive", "payload on the stack of a function that returned",
     bad_stays_alive},
    {"pctx.publish.mapping-private", "MAP_SHARED", bad_mapping_private},
    {"pctx.publish.mapping-protection", "PROT_EXEC", bad_mapping_protection},
    {"pctx.publish.memfd-closed", "keeps the descriptor", bad_memfd_closed},
    {"pctx.publish.discoverable", "the mapping is called otel", bad_discoverable},
    {"pctx.publish.fields-nonzero", "no message: size 0, null pointer", bad_fields_nonzero},
    {"pctx.publish.survives-file-size-limit", "ftruncate without a look at the limit",
     bad_survives_file_size_limit},
    {"pctx.publish.memfd-name", "the memfd is called otel_ctx", bad_memfd_name},
    {"pctx.publish.memfd-flags", "no flags for memfd_create", bad_memfd_flags},
    {"pctx.publish.memfd-sized", "no ftruncate, and a handler for the fault", bad_memfd_sized},
    {"pctx.publish.memfd-first", "anonymous memory at once", bad_memfd_first},
    {"pctx.publish.name-always", "no naming call where a memfd has the name", bad_name_always},
    {"pctx.publish.name-arguments", "the naming call has the payload's address",
     bad_name_arguments},
    {"pctx.publish.name-arguments:later", "a later call gives the context another name",
     bad_name_arguments_later},
    {"pctx.publish.name-whole-mapping", "names the first of two pages", bad_name_whole_mapping},
    {"pctx.publish.name-after-timestamp", "the naming call comes before the fields only",
     bad_name_after_timestamp},
    {"pctx.publish.singleton", "two threads publish one each", bad_singleton},
    {"pctx.publish.footprint", "one gigabyte for the header", bad_footprint},
    {"pctx.update.timestamp-distinct", "four publications with one timestamp",
     bad_timestamp_distinct},
    {"pctx.update.no-silent-change", "a value patched in place", bad_no_silent_change},
    {"pctx.update.same-mapping", "mremap moves the mapping as it grows", bad_same_mapping},
    {"pctx.update.name-always", "three updates without a naming call", bad_update_name_always},
    {"pctx.update.name-after-timestamp", "the naming call while the timestamp is zero",
     bad_update_name_after_timestamp},
    {"pctx.publish.timestamp-last", "a finished header word by word, so the pointer lands last",
     bad_timestamp_last, 50},
    {"pctx.publish.timestamp-last:memcpy", "a finished header by memcpy", bad_timestamp_last_memcpy,
     50},
    {"pctx.publish.payload-before-timestamp", "serialises into the buffer that is announced",
     bad_payload_before_timestamp, 50},
    {"pctx.publish.payload-before-timestamp:large", "the end of 2.5 MiB behind the timestamp",
     bad_payload_before_timestamp_large, 50},
    {"pctx.publish.timestamp-single-store", "the timestamp in two halves",
     bad_timestamp_single_store, 50},
    {"pctx.update.prepare-before-zero", "serialises while the timestamp is zero",
     bad_prepare_before_zero, 50},
    {"pctx.update.zero-timestamp-first", "size and pointer, then another timestamp",
     bad_zero_timestamp_first, 50},
    {"pctx.update.fields-while-zero", "corrects the size behind the timestamp",
     bad_fields_while_zero, 50},
    {"pctx.update.timestamp-single-store", "the closing timestamp in two halves",
     bad_update_timestamp_single_store, 50},
    {"pctx.update.zero-single-store", "clears the timestamp in two halves", bad_zero_single_store,
     50},
    {"pctx.update.signature-untouched", "blanks the signature during the update",
     bad_signature_untouched, 50},
    {"pctx.update.old-payload-until-zero", "poisons and frees the old message, then zero",
     bad_old_payload_until_zero, 50},
    {"pctx.update.old-payload-until-zero:unmapped", "unmaps the old message, then zero",
     bad_old_payload_until_zero_unmapped, 50},
    {"pctx.fork.dontfork-before-header", "fills the header, then MADV_DONTFORK",
     bad_dontfork_before_header},
    {"pctx.fork.dontfork", "MADV_WIPEONFORK instead", bad_dontfork},
    {"pctx.fork.dontfork:partial", "MADV_DONTFORK for the second of two pages",
     bad_dontfork_partial},
    {"pctx.publish.memfd-retry", "anonymous memory after one refused memfd", bad_memfd_retry},
    {"pctx.publish.memfd-retry-flags", "the second memfd_create has no flags",
     bad_memfd_retry_flags},
    {"pctx.publish.fallback-anon", "gives up without a memfd", bad_fallback_anon},
    {"pctx.publish.fallback-anon-exhausted", "anonymous memory for EPERM only",
     bad_fallback_anon_exhausted},
    {"pctx.publish.name-failure-ignored", "unmaps everything when the naming call fails",
     bad_name_failure_ignored, 2800},
    {"pctx.publish.failure-madvise", "publishes when madvise fails", publish_blindly},
    {"pctx.publish.failure-mmap", "stores through MAP_FAILED", publish_blindly},
    {"pctx.publish.failure-ftruncate", "stores behind the end of the file", publish_blindly},
    {"pctx.publish.failure-ftruncate:nameless", "anonymous memory instead, without a name",
     good_careful<Care{.falls_back = true, .names = false}>},
    {"pctx.publish.failure-other-steps", "aborts when the clock fails", bad_failure_other_steps},
    {"pctx.publish.failure-leaves-nothing-valid", "gives up with a valid header in place",
     bad_failure_leaves_nothing_valid},
    {"pctx.publish.no-name-at-all", "a context without any name", bad_no_name_at_all},
    {"pctx.publish.survives-total-denial", "terminates when there is no memfd",
     bad_survives_total_denial},
    {"pctx.header.timestamp-clock", "the wall clock", good_wall_clock},
    {"pctx.update.timestamp-later", "adds one only to an equal reading", bad_timestamp_later},
};

constexpr Case kGood[] = {
    {"default", "one page, payload on the heap", good_default},
    {"slow-first-publish", "the mapping exists long before its header", good_slow_first_publish},
    {"named-long-before", "named with its signature, and to be published later than it lives",
     good_named_long_before, 2800},
    {"named-early", "the naming call comes before the fields as well", good_named_early},
    {"signature-with-terminator", "nine bytes, then the version", good_signature_with_terminator},
    {"larger-buffer", "the payload's buffer goes on behind its end", good_larger_buffer},
    {"leftover-bytes", "behind the end is the end of a longer message", good_leftover_bytes},
    {"data-after-header", "other data from offset 32 on", good_data_after_header},
    {"one-page", "a mapping of one page", good_one_page},
    {"several-pages", "a mapping of three pages", good_several_pages},
    {"32-bytes", "a mapping of 32 bytes, rounded up by the kernel", good_32_bytes},
    {"upper-half-untouched", "32 bits: only the lower half of the pointer is stored",
     good_upper_half_untouched},
    {"sign-extended", "32 bits: the pointer is sign-extended", good_sign_extended},
    {"payload-inline", "payload right behind the header", good_payload_inline},
    {"payload-gap", "payload 1024 bytes into the mapping", good_payload_gap},
    {"payload-inline-large", "40 KB behind the header, twelve pages", good_payload_inline_large},
    {"payload-heap", "payload on the heap", good_payload_heap},
    {"dontfork-header-page", "the payload goes on behind the page that has MADV_DONTFORK",
     good_dontfork_header_page},
    {"fields-before-dontfork", "all fields but the timestamp, then MADV_DONTFORK",
     good_fields_before_dontfork},
    {"payload-rodata", "payload in read-only data", good_payload_rodata},
    {"payload-own-mapping", "payload of several pages in its own mapping",
     good_payload_own_mapping},
    {"payload-crosses-mappings", "payload over the border of two mappings",
     good_payload_crosses_mappings},
    {"payload-readonly", "payload write-protected", good_payload_readonly},
    {"payload-shares-page", "the byte behind the payload keeps changing", good_payload_shares_page},
    {"payload-paged-out", "payload not resident", good_payload_paged_out},
    {"field-order", "field 2 before 1, values before keys", good_field_order},
    {"split-messages", "the Resource in three parts, between them field 2", good_split_messages},
    {"longer-varints", "lengths and numbers in more bytes than needed", good_longer_varints},
    {"unknown-fields", "further fields on the top level", good_unknown_fields},
    {"unknown-nested-fields", "further fields in nested messages", good_unknown_nested_fields},
    {"no-attributes", "no field 2", good_no_attributes},
    {"no-resource", "no field 1", good_no_resource},
    {"empty-resource", "an empty Resource in two bytes", good_empty_resource},
    {"entity", "an entity whose keys are all there", good_entity},
    {"entity-of-own-type", "an entity of the user's own type", good_entity_of_own_type},
    {"payload-large", "2.5 MiB, announced four times", good_payload_large},
    {"split-resource", "one field 1 for each attribute", good_split_resource},
    {"key-in-both", "service.name in the Resource and in field 2", good_key_in_both},
    {"bytes-value", "a bytes value with every byte there is", good_bytes_value},
    {"value-kinds", "one attribute of each kind", good_value_kinds},
    {"many-attributes", "strings of 0 to 16384 bytes, 300 attributes", good_many_attributes},
    {"own-names", "attribute names of the user's own", good_own_names},
    {"map-populate", "MAP_POPULATE", good_map_populate},
    {"map-locked", "MAP_LOCKED", good_map_locked},
    {"read-implies-exec", "a personality that adds execute", good_read_implies_exec},
    {"read-only-between-updates", "write-protected when nothing is written",
     good_read_only_between_updates},
    {"fd-open-for-a-moment", "the memfd is closed before the header is filled in",
     good_fd_open_for_a_moment},
    {"anonymous-memory", "no descriptor is left for a memfd", good_anonymous_memory},
    {"memfd-retry", "refused once, then without the seal", good_memfd_retry},
    {"memfd-sized-by-writing", "a page is written to the memfd", good_memfd_sized_by_writing},
    {"memfd-sized-late", "the memfd is mapped, then sized", good_memfd_sized_late},
    {"named-twice", "two naming calls each, in updates one early", good_named_twice},
    {"names-other-memory", "gives other memory other names", good_names_other_memory},
    {"grown-in-place", "mremap lets the mapping grow where it is", good_grown_in_place},
    {"naming-denied", "a seccomp filter refuses the naming call", good_naming_denied},
    {"split-by-madvise", "two maps entries for one mapping, by advice", good_split_by_madvise},
    {"split-by-mlock", "three maps entries for one mapping, by mlock", good_split_by_mlock},
    {"split-by-mprotect", "two maps entries for one mapping, by mprotect", good_split_by_mprotect},
    {"additional-advice", "MADV_DONTDUMP and MADV_WILLNEED as well", good_additional_advice},
    {"publish-nothing", "has nothing to say and stays silent", good_publish_nothing},
    {"second-mapping-inactive", "an older mapping with timestamp zero",
     good_second_mapping_inactive},
    {"second-mapping-foreign", "another mapping with a foreign signature",
     good_second_mapping_foreign},
    {"publish-from-thread", "the thread that published is gone", good_publish_from_thread},
    {"wall-clock", "timestamp from the wall clock", good_wall_clock},
    {"time-namespace", "a child in another time namespace publishes", good_time_namespace},
    {"updates", "three updates", good_updates},
    {"timestamp-plus-one", "updates in one tick add one each", good_timestamp_plus_one},
    {"rewrite-in-place", "the payload is overwritten while the timestamp is zero",
     good_rewrite_in_place},
    {"slow-update", "zero for a while during an update", good_slow_update},
    {"withdrawn-unmap", "withdrawn by unmapping", good_withdrawn_unmap},
    {"withdrawn-zero-unmap", "withdrawn by zero, then unmapped", good_withdrawn_zero_unmap},
    {"withdrawn-zero", "withdrawn by zero, payload freed", good_withdrawn_zero, 2800},
    {"withdrawn-unnamed", "withdrawn by zero, then its name taken away", good_withdrawn_unnamed,
     2800},
    {"withdrawn-name-first", "its name taken away, withdrawn by zero, unmapped",
     good_withdrawn_name_first},
    {"withdrawn-for-other-use", "withdrawn by zero, its memory renamed and used again",
     good_withdrawn_for_other_use},
    {"withdrawn-zero-again", "withdrawn by zero, then published in the same mapping",
     good_withdrawn_zero_again},
    {"withdrawn-unnamed-again", "the same, without a name meanwhile", good_withdrawn_unnamed_again},
    {"withdrawn-zero-republish", "withdrawn by zero, then published elsewhere",
     good_withdrawn_zero_republish, 2800},
    {"republish", "withdrawn, then published in a new mapping", good_republish},
    {"stores-in-any-order", "pointer, size, version, signature", good_stores_in_any_order, 50},
    {"stores-repeated", "fields stored again and again, zero over zero", good_stores_repeated, 50},
    {"stores-of-many-words", "all but the timestamp by memcpy", good_stores_of_many_words, 50},
    {"zero-by-compare-exchange", "one that fails, one that zeroes the timestamp",
     good_zero_by_compare_exchange, 50},
    {"copied-to-new-memory", "an encoded message is copied to the heap during the update",
     good_copied_to_new_memory, 50},
    {"update-from-thread", "another thread updates, then the first", good_update_from_thread, 50},
    {"store-release", "C++ atomics, zero over zero at first", good_store_release, 50},
    {"header-by-read", "read(2) stores the fields", good_header_by_read, 50},
    {"all-by-read", "read(2) stores the fields, then the timestamp", good_all_by_read, 50},
    {"fields-from-process-with-our-memory", "a CLONE_VM child stores the fields",
     good_fields_from_process_with_our_memory, 50},
    {"timestamps-in-halves", "32 bits: timestamps in two stores of four bytes",
     good_timestamps_in_halves, 50},
    {"stores-beside-header", "a lock behind the header", good_stores_beside_header, 50},
    {"copied-inline", "an encoded message is copied behind the header during the update",
     good_copied_inline, 50},
    {"freed-in-the-window", "the old message is freed while the timestamp is zero",
     good_freed_in_the_window, 50},
    {"freed-afterwards", "the old message is unmapped after the update", good_freed_afterwards, 50},
    {"fork-idle-child", "a forked child does nothing", good_fork_idle_child},
    {"fork-child-publishes", "a forked child publishes its own", good_fork_child_publishes},
    {"traces-itself", "asks to be traced, to find out whether it is", good_traces_itself},
    {"not-dumpable", "makes itself not dumpable", good_not_dumpable},
    {"exec-self", "publishes, executes itself, publishes again", good_exec_self},
    {"launcher", "publishes, then executes another program", good_launcher},
    {"careful", "gives up where a call fails", good_careful<Care{}>},
    {"careful-with-log", "... and says so", good_careful<Care{.logs = true}>},
    {"careful-leaves-blank", "... and leaves a mapping with a zero header",
     good_careful<Care{.leaves_blank = true}>},
    {"careful-falls-back", "anonymous memory where a memfd is of no use",
     good_careful<Care{.falls_back = true}>},
    {"careful-other-clock", "CLOCK_MONOTONIC where the other fails",
     good_careful<Care{.other_clock = true}>},
    {"careful-unnamed", "... and makes no naming call",
     good_careful<Care{.other_clock = true, .names = false}>},
    {"careful-attempts", "asks for a memfd four times", good_careful<Care{.attempts = 4}>},
    {"careful-one-attempt", "asks for a memfd once", good_careful<Care{.attempts = 1}>},
    {"monotonic-clock", "timestamp from CLOCK_MONOTONIC", good_monotonic_clock},
};

void print_usage(FILE* to) {
  std::fputs(
      "usage: process_writer --good NAME | --bad RULE-ID [options]\n"
      "       process_writer --list\n"
      "  --hold MS|eof   how long to stay at the end; eof: until standard input ends\n"
      "  --pause MS|byte between the steps of a case (default 350); byte: until one is read from\n"
      "                  standard input\n"
      "  --quiet         no line on standard output\n"
      "exit: 0 done, 2 usage, 77 cannot be shown on this host, 1 anything else\n",
      to);
}

[[noreturn]] void usage_error(const char* what, const char* argument) {
  std::fprintf(stderr, "process_writer: %s: %s\n", what, argument);
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
  arguments = argv;
  const Case* chosen = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&] {
      if (++i == argc) usage_error("a value is missing", argv[i - 1]);
      return argv[i];
    };
    if (option == "--good") {
      chosen = &find(kGood, value());
      case_name = &argv[i];
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
  if (options.hold_ms < 0) {
    const bool usual = chosen->hold_ms == kUsualHoldMs;
    options.hold_ms = usual ? std::max(kUsualHoldMs, options.pause_ms) : chosen->hold_ms;
  }
  chosen->run();
  return 0;
}
