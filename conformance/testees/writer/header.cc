#include "conformance/testees/writer/header.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "conformance/testees/writer/program.h"

namespace ctxconf::testees {

Region make_region(const Plan& plan) {
  Region r{.size = plan.size, .label = plan.label};
  if (plan.may_use_memfd && (!plan.heed_file_size_limit || plan.size <= file_size_limit())) {
    r.fd = ask_for_memfd(plan.memfd_name, plan.memfd_flags);
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

void set_name(const Region& r) {
  if (name_memory(r.at, r.size, r.label) || !r.anonymous) return;
  const int why = errno;
  munmap(r.at, r.size);
  errno = why;
  if (file_size_limit() < page()) std::exit(0);  // a program goes on without context
  cannot_be_shown("this kernel names no anonymous memory");
}

void fill(const Region& r, const Buffer& payload) {
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
}

void publish_in(const Region& r, const Buffer& payload, std::uint64_t timestamp) {
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, timestamp);
  set_name(r);
}

void change(const Region& r, const Buffer& payload) {
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
}

void update(const Region& r, const Buffer& payload, std::uint64_t timestamp) {
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, timestamp);
  set_name(r);
}

Region publish(const Bytes& bytes, const Plan& plan) {
  const Buffer payload = on_heap(bytes);
  const Region r = make_region(plan);
  publish_in(r, payload);
  return r;
}

void announce(const Region& r) {
  if (options.quiet) return;
  say(stdout, "published pid=%d header=0x%llx\n", static_cast<int>(getpid()),
      static_cast<unsigned long long>(address_of(r.at)));
}

}  // namespace ctxconf::testees
