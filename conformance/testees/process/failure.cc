// Cases about system calls that fail.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

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
  if (care.logs) say(stderr, "%s: warning: %s: %s\n", kProgram, step, std::strerror(errno));
}

// Returns null when there is no memfd.
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
  set_timestamp(r, nanoseconds(now));
  if (care.names && !name_memory(r.at, r.size, r.label)) {
    log_failure(care, "prctl");
    if (r.anonymous) give_up(care, r);
  }
}

template <Care kCare>
void good_careful() {
  publish_carefully(kCare);
  wait_for_the_end();
}

void require_naming() {
  char* p = map_anonymous(page());
  if (!name_memory(p, page(), "ctxconf probe")) {
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
  if (ask_for_memfd() >= 0) die("memfd_create worked");
  say(stderr, "process_writer: warning: no process context\n");
  wait_for_the_end();
}

void bad_fallback_anon_exhausted() {
  require_naming();
  if (ask_for_memfd() >= 0) die("memfd_create worked");
  if (errno == EPERM) return publish_and_hold(usual_message(), {.may_use_memfd = false});
  wait_for_the_end();
}

void bad_name_failure_ignored() {
  const Buffer payload = on_heap(usual_message());
  for (int attempt = 0; attempt < 10; ++attempt) {
    const Region r = make_region();
    fill(r, payload);
    if (name_memory(r.at, r.size, r.label)) break;
    munmap(r.at, r.size);
  }
  wait_for_the_end();
}

// Does not look at what the calls return.
void publish_blindly() {
  const int fd = ask_for_memfd();
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
  set_timestamp(r, nanoseconds(now));
  if (!works) {
    say(stderr, "process_writer: warning: no process context\n");
    return wait_for_the_end();
  }
  name_and_hold(r);
}

void bad_no_name_at_all() {
  const Region r = make_region();
  const Buffer payload = on_heap(usual_message());
  fill(r, payload);
  (void)name_memory(r.at, r.size, r.label);
  hold(r);
}

void bad_survives_total_denial() {
  if (ask_for_memfd() < 0) std::terminate();
  publish_and_hold(usual_message());
}

constexpr Case kBadFailure[] = {
    {"pctx.publish.memfd-retry", "uses anonymous memory after one refused memfd", bad_memfd_retry},
    {"pctx.publish.memfd-retry-flags", "gives the second memfd_create no flags",
     bad_memfd_retry_flags},
    {"pctx.publish.fallback-anon", "gives up without a memfd", bad_fallback_anon},
    {"pctx.publish.fallback-anon-exhausted", "uses anonymous memory for EPERM only",
     bad_fallback_anon_exhausted},
    {"pctx.publish.name-failure-ignored", "unmaps everything when the naming call fails",
     bad_name_failure_ignored, 2800},
    {"pctx.publish.failure-madvise", "publishes when madvise fails", publish_blindly},
    {"pctx.publish.failure-mmap", "stores through MAP_FAILED", publish_blindly},
    {"pctx.publish.failure-ftruncate", "stores after the end of the file", publish_blindly},
    {"pctx.publish.failure-ftruncate:nameless", "uses anonymous memory instead, without a name",
     good_careful<Care{.falls_back = true, .names = false}>},
    {"pctx.publish.failure-other-steps", "aborts when the clock fails", bad_failure_other_steps},
    {"pctx.publish.failure-leaves-nothing-valid", "gives up with a valid header in place",
     bad_failure_leaves_nothing_valid},
    {"pctx.publish.no-name-at-all", "publishes a context without any name", bad_no_name_at_all},
    {"pctx.publish.survives-total-denial", "terminates when there is no memfd",
     bad_survives_total_denial},
};

constexpr Case kGoodFailure[] = {
    {"careful", "gives up where a call fails", good_careful<Care{}>},
    {"careful-with-log", "gives up where a call fails, and says so",
     good_careful<Care{.logs = true}>},
    {"careful-leaves-blank", "gives up, and leaves a mapping with a zero header",
     good_careful<Care{.leaves_blank = true}>},
    {"careful-falls-back", "uses anonymous memory where it cannot use a memfd",
     good_careful<Care{.falls_back = true}>},
    {"careful-other-clock", "reads CLOCK_MONOTONIC where the other clock fails",
     good_careful<Care{.other_clock = true}>},
    {"careful-unnamed", "reads CLOCK_MONOTONIC in that case, and makes no naming call",
     good_careful<Care{.other_clock = true, .names = false}>},
    {"careful-attempts", "asks for a memfd four times", good_careful<Care{.attempts = 4}>},
    {"careful-one-attempt", "asks for a memfd once", good_careful<Care{.attempts = 1}>},
};

}  // namespace

const Topic kFailureCases{kBadFailure, kGoodFailure};

}  // namespace ctxconf::testees
