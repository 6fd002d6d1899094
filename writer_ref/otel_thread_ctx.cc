#include "writer_ref/otel_thread_ctx.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "abi/thread_record.h"

using Record = otel_thread_ctx_record;

static_assert(sizeof(Record) == ctxconf::abi::kRecommendedRecordBytes);
static_assert(alignof(Record) == alignof(ctxconf::abi::ThreadRecordHead));
static_assert(offsetof(Record, span_id) == offsetof(ctxconf::abi::ThreadRecordHead, span_id));
static_assert(offsetof(Record, valid) == offsetof(ctxconf::abi::ThreadRecordHead, valid));
static_assert(offsetof(Record, trace_flags) ==
              offsetof(ctxconf::abi::ThreadRecordHead, trace_flags));
static_assert(offsetof(Record, attrs_data_size) ==
              offsetof(ctxconf::abi::ThreadRecordHead, attrs_data_size));
static_assert(offsetof(Record, attrs_data) == sizeof(ctxconf::abi::ThreadRecordHead));
static_assert(OTEL_THREAD_CTX_MAX_KEYS == ctxconf::abi::kMaxKeys);
static_assert(OTEL_THREAD_CTX_MAX_VALUE_BYTES == ctxconf::abi::kMaxValueBytes);

namespace ctxconf::writer {
namespace {

// Filled from the front and never changed: nothing here waits for another thread, so a forked child
// can use it at any moment.
constinit std::array<std::atomic<const char*>, abi::kMaxKeys> keys{};

// How many bytes follow the first byte of a character, and the allowed values of the first of them:
// no overlong forms, no surrogates, nothing above U+10FFFF.
struct Continuation {
  std::size_t count;
  unsigned char least;
  unsigned char most;
};

Continuation after(unsigned char first) {
  constexpr unsigned char none = 1;  // least > most: no byte is valid
  if (first < 0x80) return {0, 0, 0};
  if (first < 0xc2 || first > 0xf4) return {1, none, 0};
  if (first < 0xe0) return {1, 0x80, 0xbf};
  if (first < 0xf0) {
    return {2, static_cast<unsigned char>(first == 0xe0 ? 0xa0 : 0x80),
            static_cast<unsigned char>(first == 0xed ? 0x9f : 0xbf)};
  }
  return {3, static_cast<unsigned char>(first == 0xf0 ? 0x90 : 0x80),
          static_cast<unsigned char>(first == 0xf4 ? 0x8f : 0xbf)};
}

bool is_utf8(const char* text, std::size_t length) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text);
  for (std::size_t i = 0; i < length;) {
    Continuation next = after(bytes[i++]);
    for (; next.count > 0; --next.count) {
      if (i == length || bytes[i] < next.least || bytes[i] > next.most) return false;
      ++i;
      next.least = 0x80;
      next.most = 0xbf;
    }
  }
  return true;
}

bool is_name(const char* key, const char* name, size_t length) {
  return strncmp(key, name, length) == 0 && key[length] == '\0';
}

char* copy_of(const char* name, size_t length) {
  const int kept = errno;
  auto* const copy = static_cast<char*>(malloc(length + 1));
  errno = kept;
  if (copy == nullptr) return nullptr;
  memcpy(copy, name, length);
  copy[length] = '\0';
  return copy;
}

int register_key(const char* name, size_t length) {
  char* ours = nullptr;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const char* key = keys[i].load(std::memory_order_acquire);
    if (key == nullptr) {
      if (ours == nullptr) ours = copy_of(name, length);
      if (ours == nullptr) return OTEL_THREAD_CTX_NO_MEMORY;
      if (keys[i].compare_exchange_strong(key, ours, std::memory_order_acq_rel)) {
        return static_cast<int>(i);
      }
    }
    if (is_name(key, name, length)) {
      free(ours);
      return static_cast<int>(i);
    }
  }
  free(ours);
  return OTEL_THREAD_CTX_FULL;
}

constinit pthread_once_t exit_key_once = PTHREAD_ONCE_INIT;
pthread_key_t exit_key;
int exit_key_error;

// Destructors run in rounds; a later one may attach again.
void thread_ends(void* round) {
  otel_thread_ctx_attach_inline(nullptr);
  const auto next = std::bit_cast<std::uintptr_t>(round) + 1;
  if (next <= PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(exit_key, std::bit_cast<void*>(next));
  }
}

}  // namespace
}  // namespace ctxconf::writer

extern "C" {

// No dynamic initialisation, which would put a call before each access.
__thread otel_thread_ctx_record* otel_thread_ctx_v1 = nullptr;

int otel_thread_ctx_init_thread() {
  using namespace ctxconf::writer;
  pthread_once(&exit_key_once, [] { exit_key_error = pthread_key_create(&exit_key, thread_ends); });
  if (exit_key_error != 0) return OTEL_THREAD_CTX_NO_MEMORY;
  const int error = pthread_setspecific(exit_key, std::bit_cast<void*>(std::uintptr_t{1}));
  return error == 0 ? OTEL_THREAD_CTX_OK : OTEL_THREAD_CTX_NO_MEMORY;
}

int otel_thread_ctx_register_key(const char* name, size_t length) {
  if (name == nullptr || length == 0 || memchr(name, '\0', length) != nullptr ||
      !ctxconf::writer::is_utf8(name, length)) {
    return OTEL_THREAD_CTX_BAD_NAME;
  }
  return ctxconf::writer::register_key(name, length);
}

size_t otel_thread_ctx_key_count() {
  size_t count = 0;
  while (otel_thread_ctx_key(count) != nullptr) ++count;
  return count;
}

const char* otel_thread_ctx_key(size_t index) {
  using ctxconf::writer::keys;
  return index < keys.size() ? keys[index].load(std::memory_order_acquire) : nullptr;
}

otel_thread_ctx_record* otel_thread_ctx_attach(otel_thread_ctx_record* record) {
  return otel_thread_ctx_attach_inline(record);
}

void otel_thread_ctx_begin(otel_thread_ctx_record* record, const uint8_t* trace_id,
                           const uint8_t* span_id, uint8_t trace_flags) {
  otel_thread_ctx_begin_inline(record, trace_id, span_id, trace_flags);
}

int otel_thread_ctx_append(otel_thread_ctx_record* record, size_t record_bytes, int key,
                           const char* value, size_t length) {
  return otel_thread_ctx_append_inline(record, record_bytes, key, value, length);
}

void otel_thread_ctx_end(otel_thread_ctx_record* record) { otel_thread_ctx_end_inline(record); }

void otel_thread_ctx_shrink(otel_thread_ctx_record* record, uint16_t size) {
  otel_thread_ctx_shrink_inline(record, size);
}

}  // extern "C"
