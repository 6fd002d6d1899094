// Cases about the memory of the payload.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

int make_memfd(const char* name) {
  const int fd = create_memfd(name, kMemfdFlags);
  if (fd < 0) die("memfd_create");
  return fd;
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

// Makes a file without a name that holds `bytes`.
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
  // This is the low end of a large frame, which short calls made later do not reach.
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
  name_and_hold(r);
}

void good_payload_inline() { hold(publish_inline(usual_message(), 0, {})); }

void good_payload_gap() { hold(publish_inline(usual_message(), 992, {})); }

void good_payload_inline_large() {
  const Bytes bytes = message_with({pair("ctxconf.text", text(Bytes(40'000, 'x')))});
  hold(publish_inline(bytes, 0, {.size = 12 * page()}));
}

void good_payload_heap() { publish_and_hold(usual_message()); }

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
  name_and_hold(r);
}

void good_payload_own_mapping() {
  const Bytes bytes = message_with({pair("ctxconf.text", text(Bytes(10'000, 'x')))});
  const Buffer payload = copy_to(map_anonymous(4 * page()), bytes);
  const Region r = make_region();
  publish_in(r, payload);
  hold(r);
}

void good_payload_crosses_mappings() {
  // The two pages have memory of two kinds, so that the kernel keeps two entries.
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

constexpr Case kBadPlacement[] = {
    {"pctx.payload.readable", "puts the payload in secret memory", bad_readable_secret_memory},
    {"pctx.payload.readable:truncated-file", "puts the payload in a file, which it truncates",
     bad_readable_truncated_file},
    {"pctx.payload.stays-alive", "puts the payload on the stack of a function that returns",
     bad_stays_alive},
};

constexpr Case kGoodPlacement[] = {
    {"larger-buffer", "has a buffer that goes on after the end of the payload", good_larger_buffer},
    {"leftover-bytes", "leaves the end of a longer message after the payload", good_leftover_bytes},
    {"payload-inline", "puts the payload right after the header", good_payload_inline},
    {"payload-gap", "puts the payload 1024 bytes into the mapping", good_payload_gap},
    {"payload-inline-large", "puts 40 KB after the header, in twelve pages",
     good_payload_inline_large},
    {"payload-heap", "puts the payload on the heap", good_payload_heap},
    {"payload-rodata", "puts the payload in read-only data", good_payload_rodata},
    {"payload-own-mapping", "gives a payload of several pages its own mapping",
     good_payload_own_mapping},
    {"payload-crosses-mappings", "puts the payload across the border of two mappings",
     good_payload_crosses_mappings},
    {"payload-readonly", "write-protects the payload", good_payload_readonly},
    {"payload-shares-page", "keeps changing the byte after the payload", good_payload_shares_page},
    {"payload-paged-out", "has the payload paged out", good_payload_paged_out},
};

}  // namespace

const Topic kPlacementCases{kBadPlacement, kGoodPlacement};

}  // namespace ctxconf::testees
