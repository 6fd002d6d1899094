// Cases about updates.
#include <sys/mman.h>

#include <cstdint>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

// Maps the first of two pages of a file, so that the mapping can grow.
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
  const Buffer payload = copy_to(r.at + page(), numbered_message(1));
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void bad_timestamp_distinct() {
  const std::uint64_t cached = boot_ns();
  const Region r = make_region();
  publish_in(r, on_heap(usual_message()), cached);
  for (int i = 1; i <= 3; ++i) {
    if (options.pause_for_byte) pause();
    update(r, numbered_payload(i), cached);
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

void good_grown_in_place() {
  Region r = make_region_that_grows();
  publish_in(r, on_heap(usual_message()));
  pause();
  set_timestamp(r, 0);
  if (mremap(r.at, r.size, 2 * page(), 0) != r.at) die("mremap");
  r.size = 2 * page();
  const Buffer payload = copy_to(r.at + page(), numbered_message(1));
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void good_updates() {
  const Region r = publish();
  for (int i = 1; i <= 3; ++i) {
    pause();
    update(r, numbered_payload(i));
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
    update(r, numbered_payload(i), tick + static_cast<std::uint64_t>(i));
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
  name_and_hold(r);
}

void good_slow_update() {
  const Region r = publish();
  pause();
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  pause();
  set_payload(r, address_of(payload.at), payload.size);
  pause();
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

constexpr Case kBadUpdate[] = {
    {"pctx.update.timestamp-distinct", "makes four publications with one timestamp",
     bad_timestamp_distinct},
    {"pctx.update.no-silent-change", "patches a value in place", bad_no_silent_change},
    {"pctx.update.same-mapping", "lets mremap move the mapping as it grows", bad_same_mapping},
};

constexpr Case kGoodUpdate[] = {
    {"grown-in-place", "lets mremap grow the mapping where it is", good_grown_in_place},
    {"updates", "makes three updates", good_updates},
    {"timestamp-plus-one", "adds one for each update in the same tick", good_timestamp_plus_one},
    {"rewrite-in-place", "overwrites the payload while the timestamp is zero",
     good_rewrite_in_place},
    {"slow-update", "has zero for a while during an update", good_slow_update},
};

}  // namespace

const Topic kUpdateCases{kBadUpdate, kGoodUpdate};

}  // namespace ctxconf::testees
