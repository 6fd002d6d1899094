/* Thread contexts (OTEP 4947, revision 2026-07-17) for C11 and C++11: which
 * trace, span and attributes a thread works on, for a profiler that stops it.
 *
 * The caller owns the records. A thread shows its context in one of two ways;
 * use the same way all the time:
 *
 *  - By pointer. Fill a record that no slot points to (begin, append, end), then
 *    attach it: one store. attach returns the previous record; attach that record
 *    again when the inner context ends, or attach NULL to detach.
 *  - In place. Attach one record for the life of the thread, and fill it again
 *    for each context: between begin and end readers see no context.
 *
 *     struct otel_thread_ctx_record record;
 *     otel_thread_ctx_begin_inline(&record, trace_id, span_id, flags);
 *     otel_thread_ctx_append_inline(&record, sizeof record, route, "/cart", 5);
 *     otel_thread_ctx_end_inline(&record);
 *     struct otel_thread_ctx_record* outer = otel_thread_ctx_attach_inline(&record);
 *     ...
 *     otel_thread_ctx_attach_inline(outer);
 *
 * Requirements for the caller.
 *  - Only the thread to which a record is attached may change it, and nobody may
 *    free an attached record. otel_thread_ctx_init_thread makes the slot NULL
 *    when a thread ends, after the destructors of C++ thread_local objects: if
 *    such a destructor frees records, it must detach them first.
 *  - The process context must contain "threadlocal.schema_version" before the
 *    first record is attached, and "threadlocal.attribute_key_map" must contain
 *    a key before a record uses its index. See otel_thread_ctx_register_key.
 *  - A signal handler may attach its own record and then restore the previous
 *    one. It must not change a record that it interrupted.
 *  - After fork the child's thread still has its context: attach its new context,
 *    or NULL. Keys keep their indexes.
 *
 * Each function exists twice. X_inline is for C and C++ and costs only its stores;
 * X is the same as a call into the library, for other languages.
 *
 * A profiler finds the slot by its name in a dynamic symbol table. An executable
 * that links the static library needs
 *     -Wl,--export-dynamic-symbol=otel_thread_ctx_v1 -Wl,-u,otel_thread_ctx_v1
 * (otel_ctx_writer::static and pkg-config --static add both). A shared library
 * that embeds it must not make the name local in its version script, and must be
 * linked with -z nodelete. docs/thread-context.md has the details.
 */
#ifndef OTEL_THREAD_CTX_H
#define OTEL_THREAD_CTX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "otel_ctx.h"

#ifdef __cplusplus
#define OTEL_THREAD_CTX_TO(type, value) static_cast<type>(value)
extern "C" {
#else
#define OTEL_THREAD_CTX_TO(type, value) ((type)(value))
#endif

#define OTEL_THREAD_CTX_FIXED_BYTES 28
#define OTEL_THREAD_CTX_RECORD_BYTES 640 /* readers support at least this much */
#define OTEL_THREAD_CTX_MAX_KEYS 256
#define OTEL_THREAD_CTX_MAX_VALUE_BYTES 255

/* The record as readers see it. A record that will not grow may have less memory:
 * the functions take its size. They need an even address and at least
 * OTEL_THREAD_CTX_FIXED_BYTES. */
struct otel_thread_ctx_record {
  uint8_t trace_id[16];
  uint8_t span_id[8];
  uint8_t valid; /* 1: readers may use it */
  uint8_t trace_flags;
  uint16_t attrs_data_size; /* of the entries in attrs_data */
  uint8_t attrs_data[OTEL_THREAD_CTX_RECORD_BYTES - OTEL_THREAD_CTX_FIXED_BYTES];
};

/* The slot of this thread. */
extern OTEL_CTX_API __thread struct otel_thread_ctx_record* otel_thread_ctx_v1;

enum otel_thread_ctx_status {
  OTEL_THREAD_CTX_OK = 0,
  OTEL_THREAD_CTX_CUT = 1,       /* the value was cut to 255 bytes, between characters */
  OTEL_THREAD_CTX_LEFT_OUT = 2,  /* does not fit, or not an index */
  OTEL_THREAD_CTX_FULL = -1,     /* 256 keys are registered */
  OTEL_THREAD_CTX_BAD_NAME = -2, /* a process context with it could not be decoded */
  OTEL_THREAD_CTX_NO_MEMORY = -3
};

/* Makes the slot of this thread NULL when the thread ends, even if it is cancelled
 * or the main thread calls pthread_exit, but not when the process exits. Call it
 * once per thread, where the thread initialises its own state; another call has
 * no effect. Threads that detach their last record do not need it. */
OTEL_CTX_API int otel_thread_ctx_init_thread(void);

/* The index of a key, 0 to 255: the same name has the same index for the life of
 * the process. Negative: enum otel_thread_ctx_status. The name is UTF-8, not
 * empty and without NUL; it is copied. Any thread may call this at any time.
 *
 * Before you use the index, the process context must contain the new key map: all
 * names in the order of their indexes. Hold a lock from reading the names to the
 * end of otel_ctx_update; otherwise an older map may replace a longer one:
 *
 *     lock();
 *     count = otel_thread_ctx_key_count();
 *     for (i = 0; i < count; ++i) add(otel_thread_ctx_key(i));
 *     otel_ctx_update(...);
 *     unlock();
 */
OTEL_CTX_API int otel_thread_ctx_register_key(const char* name, size_t length);
OTEL_CTX_API size_t otel_thread_ctx_key_count(void);
/* Terminated by NUL, never freed; NULL if there is no such index. */
OTEL_CTX_API const char* otel_thread_ctx_key(size_t index);

/* A compiler fence: a reader that stops this thread sees the stores before it no
 * later than the stores after it. Emits no instruction. */
static inline void otel_thread_ctx_fence(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

/* Makes `record` the context of this thread; NULL: no context. The record must be
 * complete, and stay valid while attached. Returns the previous record. */
static inline struct otel_thread_ctx_record* otel_thread_ctx_attach_inline(
    struct otel_thread_ctx_record* record) {
  struct otel_thread_ctx_record* const before = otel_thread_ctx_v1;
  otel_thread_ctx_fence();
  __atomic_store_n(&otel_thread_ctx_v1, record, __ATOMIC_RELAXED);
  otel_thread_ctx_fence();
  return before;
}

/* The record is visible from here on. */
static inline void otel_thread_ctx_end_inline(struct otel_thread_ctx_record* record) {
  otel_thread_ctx_fence();
  __atomic_store_n(&record->valid, 1, __ATOMIC_RELAXED);
  otel_thread_ctx_fence();
}

/* Hides the record, new or attached, and gives it ids and no attributes. If an id
 * is all zero or NULL, the record gets no ids: zero ids and flags. */
static inline void otel_thread_ctx_begin_inline(struct otel_thread_ctx_record* record,
                                                const uint8_t* trace_id, const uint8_t* span_id,
                                                uint8_t trace_flags) {
  uint64_t ids[3] = {0, 0, 0};
  __atomic_store_n(&record->valid, 0, __ATOMIC_RELAXED);
  otel_thread_ctx_fence();
  if (trace_id && span_id) {
    memcpy(&ids[0], trace_id, 16);
    memcpy(&ids[2], span_id, 8);
  }
  if ((ids[0] | ids[1]) == 0 || ids[2] == 0) {
    ids[0] = ids[1] = ids[2] = 0;
    trace_flags = 0;
  }
  memcpy(record->trace_id, &ids[0], 16);
  memcpy(record->span_id, &ids[2], 8);
  record->trace_flags = trace_flags;
  __atomic_store_n(&record->attrs_data_size, 0, __ATOMIC_RELAXED);
}

/* memcpy without a call for the usual lengths of attributes. */
static inline void otel_thread_ctx_copy(uint8_t* to, const char* from, size_t size) {
  if (size > 32) {
    memcpy(to, from, size);
  } else if (size >= 16) {
    uint64_t first[2], last[2];
    memcpy(first, from, 16);
    memcpy(last, from + (size - 16), 16);
    memcpy(to, first, 16);
    memcpy(to + (size - 16), last, 16);
  } else if (size >= 8) {
    uint64_t first, last;
    memcpy(&first, from, 8);
    memcpy(&last, from + (size - 8), 8);
    memcpy(to, &first, 8);
    memcpy(to + (size - 8), &last, 8);
  } else if (size >= 4) {
    uint32_t first, last;
    memcpy(&first, from, 4);
    memcpy(&last, from + (size - 4), 4);
    memcpy(to, &first, 4);
    memcpy(to + (size - 4), &last, 4);
  } else if (size != 0) {
    memcpy(to, from, 1);
    memcpy(to + size / 2, from + size / 2, 1);
    memcpy(to + (size - 1), from + (size - 1), 1);
  }
}

/* How many bytes of a longer value to keep, without splitting a UTF-8 character. */
static inline size_t otel_thread_ctx_cut(const char* value) {
  size_t size = OTEL_THREAD_CTX_MAX_VALUE_BYTES;
  while (size > OTEL_THREAD_CTX_MAX_VALUE_BYTES - 4) {
    if ((value[size] & 0xc0) != 0x80) return size;
    --size;
  }
  return OTEL_THREAD_CTX_MAX_VALUE_BYTES; /* four in a row: this is not UTF-8 */
}

/* Adds an attribute after the others. The record may be attached and visible:
 * its size grows last. `key` is what otel_thread_ctx_register_key returned, or
 * its error; `record_bytes` is the memory of the record; the value is UTF-8.
 * If two entries have one key, readers use the later. Returns OK, CUT or LEFT_OUT. */
static inline int otel_thread_ctx_append_inline(struct otel_thread_ctx_record* record,
                                                size_t record_bytes, int key, const char* value,
                                                size_t length) {
  const size_t used = record->attrs_data_size;
  const size_t limit = record_bytes - OTEL_THREAD_CTX_FIXED_BYTES;
  const size_t room = limit < UINT16_MAX ? limit : UINT16_MAX;
  int status = OTEL_THREAD_CTX_OK;
  uint8_t* entry;
  if (record_bytes < OTEL_THREAD_CTX_FIXED_BYTES) return OTEL_THREAD_CTX_LEFT_OUT;
  if (key < 0 || key >= OTEL_THREAD_CTX_MAX_KEYS) return OTEL_THREAD_CTX_LEFT_OUT;
  if (length > OTEL_THREAD_CTX_MAX_VALUE_BYTES) {
    length = otel_thread_ctx_cut(value);
    status = OTEL_THREAD_CTX_CUT;
  }
  if (used + 2 + length > room) return OTEL_THREAD_CTX_LEFT_OUT;
  entry = record->attrs_data + used;
  entry[0] = OTEL_THREAD_CTX_TO(uint8_t, key);
  entry[1] = OTEL_THREAD_CTX_TO(uint8_t, length);
  otel_thread_ctx_copy(entry + 2, value, length);
  otel_thread_ctx_fence();
  __atomic_store_n(&record->attrs_data_size, OTEL_THREAD_CTX_TO(uint16_t, used + 2 + length),
                   __ATOMIC_RELAXED);
  otel_thread_ctx_fence();
  return status;
}

/* Removes the attributes after the first `size` bytes, a value that
 * attrs_data_size had before they were added. The record may be visible. */
static inline void otel_thread_ctx_shrink_inline(struct otel_thread_ctx_record* record,
                                                 uint16_t size) {
  otel_thread_ctx_fence();
  if (size < record->attrs_data_size) {
    __atomic_store_n(&record->attrs_data_size, size, __ATOMIC_RELAXED);
  }
  otel_thread_ctx_fence();
}

/* The same as calls into the library. */
OTEL_CTX_API struct otel_thread_ctx_record* otel_thread_ctx_attach(
    struct otel_thread_ctx_record* record);
OTEL_CTX_API void otel_thread_ctx_begin(struct otel_thread_ctx_record* record,
                                        const uint8_t* trace_id, const uint8_t* span_id,
                                        uint8_t trace_flags);
OTEL_CTX_API int otel_thread_ctx_append(struct otel_thread_ctx_record* record, size_t record_bytes,
                                        int key, const char* value, size_t length);
OTEL_CTX_API void otel_thread_ctx_end(struct otel_thread_ctx_record* record);
OTEL_CTX_API void otel_thread_ctx_shrink(struct otel_thread_ctx_record* record, uint16_t size);

#undef OTEL_THREAD_CTX_TO
#ifdef __cplusplus
}
#endif

#endif /* OTEL_THREAD_CTX_H */
