// Cases about the naming call, and about names.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

// Where the kernel names mappings, the label is enough to hide the memfd; where it does not, the
// memfd itself has the wrong name.
void bad_discoverable() {
  publish_and_hold(usual_message(), {.memfd_name = "otel", .label = "otel"});
}

void bad_discoverable_second() {
  const Region old = publish();
  pause();
  withdraw(old);
  bad_discoverable();
}

void bad_memfd_name() { publish_and_hold(usual_message(), {.memfd_name = "otel_ctx"}); }

void bad_name_always() {
  const Region r = make_region();
  fill(r, on_heap(usual_message()));
  hold(r);
}

// The memory is anonymous, because no descriptor is free for a memfd.
Region make_anonymous_region() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) die("getrlimit");
  const rlimit none{0, files.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &none) != 0) die("setrlimit");
  const Region r = make_region();
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) die("setrlimit");
  return r;
}

void bad_name_always_second() {
  const Region old = publish();
  pause();
  withdraw(old);
  const Region r = make_anonymous_region();
  fill(r, on_heap(usual_message()));
  announce(r);
  wait_for_the_end();
}

// The kernel may refuse the name: then readers find nothing, and the writer knows.
void good_named_in_vain_second() {
  const Region old = publish();
  announce(old);
  pause();
  withdraw(old);
  const Region r = make_anonymous_region();
  fill(r, on_heap(usual_message()));
  (void)name_memory(r.at, r.size, r.label);
  wait_for_the_end();
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
  (void)name_memory(r.at, r.size, "app-cache");
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

void bad_update_name_always() {
  const Region r = publish();
  for (int i = 1; i <= 3; ++i) {
    pause();
    change(r, numbered_payload(i));
  }
  hold(r);
}

void bad_update_name_always_in_our_memory() {
  const Region r = publish();
  for (int i = 1; i <= 3; ++i) {
    pause();
    in_a_process_with_our_memory([&] { change(r, numbered_payload(i)); });
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
  const auto name_it = [&](const char* name) { (void)name_memory(other, page(), name); };
  name_it("arena");
  const Region r = publish();
  name_it("otel buffers");
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

// The copy is the program's own affair: it was not marked, and no naming call was for it.
void good_copy_under_another_name() {
  const Region r = publish();
  announce(r);
  pause();
  const Region copy = make_region({.memfd_name = "state", .advice = MADV_NORMAL});
  std::memcpy(copy.at, r.at, r.size);
  withdraw(r);
  wait_for_the_end();
}

void good_named_in_our_memory() {
  const Region r = make_region();
  fill(r, on_heap(usual_message()));
  in_a_process_with_our_memory([&] { set_name(r); });
  pause();
  in_a_process_with_our_memory([&] { update(r, numbered_payload(1)); });
  pause();
  change(r, numbered_payload(2));
  in_a_process_with_our_memory([&] { set_name(r); });
  hold(r);
}

constexpr Case kBadNaming[] = {
    {"pctx.publish.discoverable", "calls the mapping otel", bad_discoverable},
    {"pctx.publish.discoverable:second", "does so when it publishes again",
     bad_discoverable_second},
    {"pctx.publish.memfd-name", "calls the memfd otel_ctx", bad_memfd_name},
    {"pctx.publish.name-always", "makes no naming call where a memfd has the name",
     bad_name_always},
    {"pctx.publish.name-always:second", "makes none for anonymous memory when it publishes again",
     bad_name_always_second, 2800},
    {"pctx.publish.name-arguments", "gives the naming call the address of the payload",
     bad_name_arguments},
    {"pctx.publish.name-arguments:later", "gives the context another name later",
     bad_name_arguments_later},
    {"pctx.publish.name-whole-mapping", "names the first of two pages", bad_name_whole_mapping},
    {"pctx.publish.name-after-timestamp", "makes the naming call only before the fields",
     bad_name_after_timestamp},
    {"pctx.update.name-always", "makes three updates without a naming call",
     bad_update_name_always},
    {"pctx.update.name-always:in-our-memory",
     "lets CLONE_VM children make three updates without a naming call",
     bad_update_name_always_in_our_memory},
    {"pctx.update.name-after-timestamp", "makes the naming call while the timestamp is zero",
     bad_update_name_after_timestamp},
};

constexpr Case kGoodNaming[] = {
    {"named-long-before", "names the mapping with its signature, and ends before it publishes",
     good_named_long_before, 2800},
    {"named-early", "makes the naming call before the fields as well", good_named_early},
    {"named-twice", "makes two naming calls each time, one of them early in updates",
     good_named_twice},
    {"named-in-vain-second", "publishes again in anonymous memory, where the kernel may name none",
     good_named_in_vain_second, 2800},
    {"names-other-memory", "gives other memory other names", good_names_other_memory},
    {"copy-under-another-name", "withdraws its context and keeps a copy of the header",
     good_copy_under_another_name},
    {"named-in-our-memory", "lets CLONE_VM children make the naming calls, and an update",
     good_named_in_our_memory},
    {"naming-denied", "has a seccomp filter that refuses the naming call", good_naming_denied},
};

}  // namespace

const Topic kNamingCases{kBadNaming, kGoodNaming};

}  // namespace ctxconf::testees
