// Cases about the end of a context.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

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
  withdraw(r);
  wait_for_the_end();
}

void good_withdrawn_zero() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  publish_in(r, payload);
  announce(r);
  pause();
  set_timestamp(r, 0);
  overwrite_and_free(payload, 0);
  wait_for_the_end();
}

void take_name_away(const Region& r) { (void)name_memory(r.at, r.size, nullptr); }

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
  withdraw(r);
  wait_for_the_end();
}

void good_withdrawn_for_other_use() {
  const Region r = publish();
  announce(r);
  pause();
  set_timestamp(r, 0);
  (void)name_memory(r.at, r.size, "app-cache");
  std::memset(r.at, 0xa5, r.size);
  wait_for_the_end();
}

void good_withdrawn_zero_again() {
  const Region r = publish();
  pause();
  set_timestamp(r, 0);
  pause();
  publish_in(r, numbered_payload(1));
  hold(r);
}

void good_withdrawn_zero_soon_again() {
  const Region r = publish();
  pause();
  set_timestamp(r, 0);
  sleep_ms(600);
  publish_in(r, numbered_payload(1));
  hold(r);
}

void good_withdrawn_signature_again() {
  const Region r = publish();
  pause();
  store<std::uint64_t>(r.at + kSignatureAt, 0);
  pause();
  munmap(r.at, r.size);
  publish_and_hold(numbered_message(1));
}

void good_withdrawn_unnamed_again() {
  const Region r = publish();
  pause();
  set_timestamp(r, 0);
  take_name_away(r);
  pause();
  publish_in(r, numbered_payload(1));
  hold(r);
}

void good_withdrawn_zero_republish() {
  const Region old = publish();
  pause();
  set_timestamp(old, 0);
  pause();
  publish_and_hold(numbered_message(1));
}

void good_republish() {
  const Region old = publish();
  pause();
  withdraw(old);
  pause();
  publish_and_hold(numbered_message(1));
}

constexpr Case kGoodWithdrawal[] = {
    {"withdrawn-unmap", "withdraws by unmapping", good_withdrawn_unmap},
    {"withdrawn-zero-unmap", "withdraws by zero, then unmaps", good_withdrawn_zero_unmap},
    {"withdrawn-zero", "withdraws by zero, and frees the payload", good_withdrawn_zero, 2800},
    {"withdrawn-unnamed", "withdraws by zero, then takes the name away", good_withdrawn_unnamed,
     2800},
    {"withdrawn-name-first", "takes the name away, withdraws by zero, and unmaps",
     good_withdrawn_name_first},
    {"withdrawn-for-other-use", "withdraws by zero, then renames the memory and uses it again",
     good_withdrawn_for_other_use},
    {"withdrawn-zero-again", "withdraws by zero, then publishes in the same mapping",
     good_withdrawn_zero_again},
    {"withdrawn-zero-soon-again", "does the same 0.6 seconds after the zero",
     good_withdrawn_zero_soon_again},
    {"withdrawn-signature-again",
     "withdraws by clearing the signature, unmaps, and publishes again",
     good_withdrawn_signature_again},
    {"withdrawn-unnamed-again", "does the same, without a name meanwhile",
     good_withdrawn_unnamed_again},
    {"withdrawn-zero-republish", "withdraws by zero, then publishes elsewhere",
     good_withdrawn_zero_republish, 2800},
    {"republish", "withdraws, then publishes in a new mapping", good_republish},
};

}  // namespace

const Topic kWithdrawalCases{{}, kGoodWithdrawal};

}  // namespace ctxconf::testees
