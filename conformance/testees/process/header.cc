// Cases about the header: its fields, and when it is filled in.
#include "conformance/testees/writer/header.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

Region publish_with_dash() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_fields(r, address_of(payload.at), payload.size);
  std::memcpy(r.at + kSignatureAt, "OTEL-CTX", 8);
  set_timestamp(r, next_timestamp());
  set_name(r);
  return r;
}

void bad_signature() { hold(publish_with_dash()); }

void bad_version() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  store<std::uint32_t>(r.at + kVersionAt, 2);
  std::memcpy(r.at + kSignatureAt, kSignature.data(), kSignature.size() + 1);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

// Nothing but the first publication is as it should be.
void bad_version_of_the_second() {
  const Region old = publish();
  pause();
  withdraw(old);
  bad_version();
}

// Withdraws it after a while, and publishes a good one where it was.
void replace_and_hold(const Region& old) {
  pause();
  withdraw(old);
  const Region next = publish();
  if (next.at != old.at) die("not at the same address");
  hold(next);
}

void bad_version_of_the_first() { replace_and_hold(publish_version(3)); }

void bad_signature_of_the_second_of_three() {
  const Region r = publish();
  pause();
  withdraw(r);
  replace_and_hold(publish_with_dash());
}

// The update stores the right version.
void bad_version_until_the_update() {
  const Region r = publish_version(3);
  pause();
  const Buffer next = numbered_payload(1);
  set_timestamp(r, 0);
  set_fields(r, address_of(next.at), next.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void bad_version_development() { hold(publish_version(1)); }

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
  // The low half is where the size is today, and must not pass for one.
  std::uint64_t timestamp;
  while (timestamp = boot_ns(), (timestamp & 0xffffffff) < 0x40000000) sleep_ms(10);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::memcpy(r.at + 12, &timestamp, sizeof timestamp);
  name_and_hold(r);
}

void bad_payload_pointer() {
  const Region r = make_region();
  const Buffer payload = copy_to(r.at + kHeaderSize, usual_message());
  set_fields(r, kHeaderSize, payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void bad_at_mapping_start() {
  const Buffer payload = on_heap(usual_message());
  const Region whole = make_region();
  store<std::uint32_t>(whole.at, 1);  // the lock
  Region r = whole;
  r.at += 64;
  fill(r, payload);
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
  name_and_hold(r);
}

// Stores the lower half of the pointer and leaves the upper half as it is.
void publish_narrow_pointer(const Region& r, const Buffer& payload) {
  std::memcpy(r.at, kSignature.data(), kSignature.size());
  store<std::uint32_t>(r.at + kVersionAt, 2);
  store<std::uint32_t>(r.at + kSizeAt, static_cast<std::uint32_t>(payload.size));
  store<std::uint32_t>(r.at + kPointerAt, static_cast<std::uint32_t>(address_of(payload.at)));
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void bad_wide_fields_on_32_bit() {
  needs_32_bits();
  constexpr std::size_t size_of_narrow_header = 28;
  const Region r = make_region();
  const Buffer payload = copy_to(r.at + size_of_narrow_header, usual_message());
  publish_narrow_pointer(r, payload);
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
  // Nothing has changed, so it returns before it restores the timestamp.
  set_timestamp(r, 0);
  name_and_hold(r);
}

void bad_fields_nonzero() {
  const Region r = make_region();
  publish_in(r, {});
  hold(r);
}

void good_default() { publish_and_hold(usual_message()); }

void good_slow_first_publish() {
  const Region r = make_region();
  pause();
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void good_signature_with_terminator() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  std::memcpy(r.at + kSignatureAt, kSignature.data(), kSignature.size() + 1);
  store<std::uint32_t>(r.at + kVersionAt, 2);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void good_data_after_header() {
  const Region r = make_region();
  std::memset(r.at + kHeaderSize, 0xc3, r.size - kHeaderSize);
  publish_in(r, on_heap(usual_message()));
  hold(r);
}

void good_upper_half_untouched() {
  needs_32_bits();
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  publish_narrow_pointer(r, payload);
}

void good_sign_extended() {
  needs_32_bits();
  const Buffer payload = copy_to(map_anonymous(page()), usual_message());
  const auto low = static_cast<std::int32_t>(address_of(payload.at));
  if (low >= 0) cannot_be_shown("no memory in the upper half");
  const Region r = make_region();
  set_fields(r, static_cast<std::uint64_t>(std::int64_t{low}), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void good_publish_nothing() { wait_for_the_end(); }

constexpr Case kBadHeader[] = {
    {"pctx.header.signature", "stores OTEL-CTX", bad_signature},
    {"pctx.header.version", "overwrites version 2 with the terminator of the signature",
     bad_version},
    {"pctx.header.version:second", "does so when it publishes again", bad_version_of_the_second},
    {"pctx.header.version:first", "has version 3 only in the first of two publications",
     bad_version_of_the_first},
    {"pctx.header.version:until-update", "has version 3 until an update",
     bad_version_until_the_update},
    {"pctx.header.signature:middle", "has OTEL-CTX only in the second of three publications",
     bad_signature_of_the_second_of_three},
    {"pctx.header.version-development", "announces version 1", bad_version_development},
    {"pctx.header.payload-size", "counts a terminating zero", bad_payload_size},
    {"pctx.header.payload-size:short", "leaves out the last byte", bad_payload_size_short},
    {"pctx.header.layout", "puts the timestamp at 12 and the size at 20", bad_layout},
    {"pctx.header.payload-pointer", "stores the offset 32", bad_payload_pointer},
    {"pctx.header.at-mapping-start", "puts the header 64 bytes into the mapping",
     bad_at_mapping_start},
    {"pctx.header.native-byte-order", "stores numbers in the other byte order",
     bad_native_byte_order},
    {"pctx.header.wide-fields-on-32-bit", "stores a pointer of four bytes and the payload at 28",
     bad_wide_fields_on_32_bit},
    {"pctx.header.timestamp-nanoseconds", "counts microseconds since boot",
     bad_timestamp_nanoseconds},
    {"pctx.header.timestamp-nonzero-at-rest", "leaves zero after an update that changes nothing",
     bad_timestamp_nonzero_at_rest, 2800},
    {"pctx.publish.fields-nonzero", "publishes no message: size 0 and a null pointer",
     bad_fields_nonzero},
};

constexpr Case kGoodHeader[] = {
    {"default", "has one page, and its payload is on the heap", good_default},
    {"slow-first-publish", "makes the mapping long before its header", good_slow_first_publish},
    {"signature-with-terminator", "stores nine bytes, and then the version",
     good_signature_with_terminator},
    {"data-after-header", "has other data from offset 32 on", good_data_after_header},
    {"upper-half-untouched", "on 32 bits, stores only the lower half of the pointer",
     good_upper_half_untouched},
    {"sign-extended", "on 32 bits, extends the sign of the pointer", good_sign_extended},
    {"publish-nothing", "has nothing to say and publishes nothing", good_publish_nothing},
};

}  // namespace

const Topic kHeaderCases{kBadHeader, kGoodHeader};

}  // namespace ctxconf::testees
