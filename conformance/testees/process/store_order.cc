// Cases about the order of stores.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>

#include "conformance/testees/process/topics.h"
#include "conformance/testees/process/usual.h"
#include "conformance/testees/writer/header.h"
#include "conformance/testees/writer/program.h"
#include "conformance/testees/writer/protobuf.h"

namespace ctxconf::testees {
namespace {

// Stores the upper half first, so that what is seen between the two stores is not far off.
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

// Returns the 32 bytes that a publication leaves.
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
  name_and_hold(r);
}

// Copies as libc does, because the compiler does not know the size.
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
  name_and_hold(r);
}

void bad_payload_before_timestamp() {
  const Bytes bytes = usual_message();
  const Buffer payload = on_heap(Bytes(bytes.size(), '\0'));
  const Region r = make_region();
  fill(r, payload);
  copy_to(payload.at, bytes);
  name_and_hold(r);
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
  name_and_hold(r);
}

void bad_timestamp_single_store() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_fields(r, address_of(payload.at), payload.size);
  store_in_halves(r, next_timestamp());
  name_and_hold(r);
}

void bad_prepare_before_zero() {
  const Region r = publish();
  set_timestamp(r, 0);
  const Buffer payload = numbered_payload(1);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void bad_zero_timestamp_first() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void bad_fields_while_zero() {
  const Bytes bytes = usual_message();
  const Region r = publish(bytes);
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), bytes.size());
  set_timestamp(r, next_timestamp());
  store(r.at + kSizeAt, static_cast<std::uint32_t>(payload.size));
  name_and_hold(r);
}

void bad_update_timestamp_single_store() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), payload.size);
  store_in_halves(r, next_timestamp());
  name_and_hold(r);
}

void bad_zero_single_store() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  clear_in_halves(r);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void bad_signature_untouched() {
  const Region r = publish();
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  store(r.at + kSignatureAt, std::uint64_t{0});
  set_payload(r, address_of(payload.at), payload.size);
  copy_by_libc(r.at + kSignatureAt, std::string(kSignature));
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void bad_old_payload_until_zero() {
  const Buffer old = on_heap(usual_message());
  const Region r = make_region();
  publish_in(r, old);
  const Buffer payload = numbered_payload(1);
  overwrite_and_free(old, 0xdd);
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
  name_and_hold(r);
}

void good_stores_repeated() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  set_timestamp(r, 0);
  set_fields(r, address_of(r.at), 1);
  set_fields(r, address_of(payload.at), payload.size);
  set_timestamp(r, 0);
  fill(r, payload);
  set_name(r);
  const Buffer next = numbered_payload(1);
  set_timestamp(r, 0);
  set_timestamp(r, 0);
  set_payload(r, address_of(payload.at), 0);
  fill(r, next);
  name_and_hold(r);
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
  name_and_hold(r);
}

// It is aligned to eight bytes in a 32-bit program as well, unlike integers there.
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
  name_and_hold(r);
}

void good_copied_to_new_memory() {
  const Region r = publish();
  const Bytes bytes = numbered_message(1);
  set_timestamp(r, 0);
  const Buffer payload = on_heap(bytes);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
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
  name_and_hold(r);
}

void good_all_by_read() {
  const Buffer payload = on_heap(usual_message());
  const Region r = make_region();
  const auto header = finished_header(payload, next_timestamp());
  store_by_read(r.at, header.substr(0, kTimestampAt));
  store_by_read(r.at + kPointerAt, header.substr(kPointerAt));
  store_by_read(r.at + kTimestampAt, header.substr(kTimestampAt, 8));
  name_and_hold(r);
}

void good_published_by_process_with_our_memory() {
  Region r;
  in_a_process_with_our_memory([&] { r = publish(); });
  pause();
  in_a_process_with_our_memory([&] { update(r, numbered_payload(1)); });
  pause();
  update(r, numbered_payload(2));
  hold(r);
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
  name_and_hold(r);
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
  name_and_hold(r);
}

void good_stores_next_to_header() {
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
  const Bytes bytes = numbered_message(1);
  set_timestamp(r, 0);
  const Buffer payload = copy_to(r.at + page() / 2, bytes);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void good_freed_in_the_window() {
  const Buffer old = on_heap(usual_message());
  const Region r = make_region();
  publish_in(r, old);
  const Buffer payload = numbered_payload(1);
  set_timestamp(r, 0);
  overwrite_and_free(old, 0xdd);
  set_payload(r, address_of(payload.at), payload.size);
  set_timestamp(r, next_timestamp());
  name_and_hold(r);
}

void good_freed_afterwards() {
  const Buffer old = copy_to(map_anonymous(page()), usual_message());
  const Region r = make_region();
  publish_in(r, old);
  update(r, numbered_payload(1));
  munmap(old.at, page());
  hold(r);
}

constexpr Case kBadStoreOrder[] = {
    {"pctx.publish.timestamp-last",
     "copies a finished header word by word, so the pointer comes last", bad_timestamp_last, 50},
    {"pctx.publish.timestamp-last:memcpy", "copies a finished header by memcpy",
     bad_timestamp_last_memcpy, 50},
    {"pctx.publish.payload-before-timestamp", "serialises into the buffer that it has announced",
     bad_payload_before_timestamp, 50},
    {"pctx.publish.payload-before-timestamp:large", "writes the end of 2.5 MiB after the timestamp",
     bad_payload_before_timestamp_large, 50},
    {"pctx.publish.timestamp-single-store", "stores the timestamp in two halves",
     bad_timestamp_single_store, 50},
    {"pctx.update.prepare-before-zero", "serialises while the timestamp is zero",
     bad_prepare_before_zero, 50},
    {"pctx.update.zero-timestamp-first", "stores size and pointer, then another timestamp",
     bad_zero_timestamp_first, 50},
    {"pctx.update.fields-while-zero", "corrects the size after the timestamp",
     bad_fields_while_zero, 50},
    {"pctx.update.timestamp-single-store", "stores the closing timestamp in two halves",
     bad_update_timestamp_single_store, 50},
    {"pctx.update.zero-single-store", "clears the timestamp in two halves", bad_zero_single_store,
     50},
    {"pctx.update.signature-untouched", "blanks the signature during the update",
     bad_signature_untouched, 50},
    {"pctx.update.old-payload-until-zero", "overwrites and frees the old message, then stores zero",
     bad_old_payload_until_zero, 50},
    {"pctx.update.old-payload-until-zero:unmapped", "unmaps the old message, then stores zero",
     bad_old_payload_until_zero_unmapped, 50},
};

constexpr Case kGoodStoreOrder[] = {
    {"stores-in-any-order", "stores pointer, size, version, signature", good_stores_in_any_order,
     50},
    {"stores-repeated", "stores fields again and again, and zero over zero", good_stores_repeated,
     50},
    {"stores-of-many-words", "copies all but the timestamp by memcpy", good_stores_of_many_words,
     50},
    {"zero-by-compare-exchange",
     "zeroes the timestamp by compare-and-exchange after one that fails",
     good_zero_by_compare_exchange, 50},
    {"copied-to-new-memory", "copies an encoded message to the heap during the update",
     good_copied_to_new_memory, 50},
    {"update-from-thread", "updates in another thread, then in the first", good_update_from_thread,
     50},
    {"store-release", "uses C++ atomics, and stores zero over zero at first", good_store_release,
     50},
    {"header-by-read", "lets read(2) store the fields", good_header_by_read, 50},
    {"all-by-read", "lets read(2) store the fields, then the timestamp", good_all_by_read, 50},
    {"published-by-process-with-our-memory",
     "lets CLONE_VM children publish and update, with their naming calls",
     good_published_by_process_with_our_memory, 50},
    {"fields-from-process-with-our-memory", "lets a CLONE_VM child store the fields",
     good_fields_from_process_with_our_memory, 50},
    {"timestamps-in-halves", "on 32 bits, stores timestamps in two stores of four bytes",
     good_timestamps_in_halves, 50},
    {"stores-next-to-header", "has a lock after the header", good_stores_next_to_header, 50},
    {"copied-inline", "copies an encoded message after the header during the update",
     good_copied_inline, 50},
    {"freed-in-the-window", "frees the old message while the timestamp is zero",
     good_freed_in_the_window, 50},
    {"freed-afterwards", "unmaps the old message after the update", good_freed_afterwards, 50},
};

}  // namespace

const Topic kStoreOrderCases{kBadStoreOrder, kGoodStoreOrder};

}  // namespace ctxconf::testees
