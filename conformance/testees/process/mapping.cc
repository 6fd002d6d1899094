// Cases about the mapping of the header: memfd, protection, size, entries in maps.
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <thread>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

void bad_mapping_private() { publish_and_hold(usual_message(), {.flags = MAP_SHARED}); }

void bad_mapping_protection() {
  publish_and_hold(usual_message(), {.protection = PROT_READ | PROT_WRITE | PROT_EXEC});
}

void bad_mapping_protection_created() {
  const Region r = make_region({.protection = PROT_READ | PROT_WRITE | PROT_EXEC});
  if (mprotect(r.at, r.size, PROT_READ | PROT_WRITE) != 0) die("mprotect");
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void bad_memfd_closed() { publish_and_hold(usual_message(), {.close_memfd = false}); }

void bad_survives_file_size_limit() {
  publish_and_hold(usual_message(), {.heed_file_size_limit = false});
}

// Limits how many descriptors it may have from now on.
void limit_descriptors(rlim_t most) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) die("getrlimit");
  limit.rlim_cur = std::min(most, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) die("setrlimit");
}

void bad_memfd_flags() { publish_and_hold(usual_message(), {.memfd_flags = 0}); }

// Maps a memfd, to which `size` gives a size before or after that.
template <class Size>
Region make_region_sized(bool before, Size size) {
  Region r{.size = page(), .label = "OTEL_CTX"};
  r.fd = ask_for_memfd();
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

// The first store faults, and a handler of the application carries on after it.
void bad_memfd_sized() {
  const Region r = make_region_sized(true, [](int) {});
  struct sigaction action{};
  action.sa_handler = [](int) { siglongjmp(after_a_fault, 1); };
  if (sigaction(SIGBUS, &action, nullptr) != 0) die("sigaction");
  if (sigsetjmp(after_a_fault, 1) == 0) fill(r, on_heap(usual_message()));
  name_and_hold(r);
}

void bad_memfd_first() {
  Region r = make_region({.may_use_memfd = false});
  r.anonymous = false;  // it stays where the kernel has no name for it
  publish_in(r, on_heap(usual_message()));
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

void good_one_page() { publish_and_hold(usual_message(), {.size = page()}); }

void good_several_pages() { publish_and_hold(usual_message(), {.size = 3 * page()}); }

void good_32_bytes() { publish_and_hold(usual_message(), {.size = kHeaderSize}); }

void good_map_populate() {
  publish_and_hold(usual_message(), {.flags = MAP_PRIVATE | MAP_POPULATE});
}

void good_map_locked() { publish_and_hold(usual_message(), {.flags = MAP_PRIVATE | MAP_LOCKED}); }

void good_read_implies_exec() {
  // It holds for this process alone: x86-64 forgets it at exec.
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
  const Buffer payload = numbered_payload(1);
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

void good_anonymous_memory() {
  limit_descriptors(0);
  publish_and_hold(usual_message());
}

void good_memfd_retry() {
  Plan plan;
  limit_descriptors(0);
  if (create_memfd(plan.memfd_name, plan.memfd_flags) >= 0) die("memfd_create");
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

void good_second_mapping_inactive() {
  const Region old = publish();
  pause();
  set_timestamp(old, 0);
  publish_and_hold(numbered_message(1));
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

constexpr Case kBadMapping[] = {
    {"pctx.publish.mapping-private", "maps with MAP_SHARED", bad_mapping_private},
    {"pctx.publish.mapping-protection", "maps with PROT_EXEC", bad_mapping_protection},
    {"pctx.publish.mapping-protection:created", "maps with PROT_EXEC, which mprotect takes away",
     bad_mapping_protection_created},
    {"pctx.publish.memfd-closed", "keeps the descriptor open", bad_memfd_closed},
    {"pctx.publish.survives-file-size-limit", "calls ftruncate without a look at the limit",
     bad_survives_file_size_limit},
    {"pctx.publish.memfd-flags", "gives memfd_create no flags", bad_memfd_flags},
    {"pctx.publish.memfd-sized", "calls no ftruncate, and handles the fault", bad_memfd_sized},
    {"pctx.publish.memfd-first", "uses anonymous memory at once", bad_memfd_first},
    {"pctx.publish.singleton", "publishes once in each of two threads", bad_singleton},
    {"pctx.publish.footprint", "maps one gigabyte for the header", bad_footprint},
};

constexpr Case kGoodMapping[] = {
    {"one-page", "has a mapping of one page", good_one_page},
    {"several-pages", "has a mapping of three pages", good_several_pages},
    {"32-bytes", "asks for a mapping of 32 bytes, which the kernel rounds up", good_32_bytes},
    {"map-populate", "maps with MAP_POPULATE", good_map_populate},
    {"map-locked", "maps with MAP_LOCKED", good_map_locked},
    {"read-implies-exec", "has a personality that adds execute", good_read_implies_exec},
    {"read-only-between-updates", "write-protects the header while nothing is written",
     good_read_only_between_updates},
    {"fd-open-for-a-moment", "closes the memfd before it fills in the header",
     good_fd_open_for_a_moment},
    {"anonymous-memory", "has no descriptor left for a memfd", good_anonymous_memory},
    {"memfd-retry", "is refused a memfd once, and asks again without the seal", good_memfd_retry},
    {"memfd-sized-by-writing", "writes a page to the memfd", good_memfd_sized_by_writing},
    {"memfd-sized-late", "maps the memfd before it has a size", good_memfd_sized_late},
    {"split-by-madvise", "splits one mapping into two maps entries by advice",
     good_split_by_madvise},
    {"split-by-mlock", "splits one mapping into three maps entries by mlock", good_split_by_mlock},
    {"split-by-mprotect", "splits one mapping into two maps entries by mprotect",
     good_split_by_mprotect},
    {"additional-advice", "gives the advice MADV_DONTDUMP and MADV_WILLNEED as well",
     good_additional_advice},
    {"second-mapping-inactive", "keeps an older mapping with timestamp zero",
     good_second_mapping_inactive},
    {"second-mapping-foreign", "has another mapping with a foreign signature",
     good_second_mapping_foreign},
    {"publish-from-thread", "publishes in a thread that ends", good_publish_from_thread},
};

}  // namespace

const Topic kMappingCases{kBadMapping, kGoodMapping};

}  // namespace ctxconf::testees
