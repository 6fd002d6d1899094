/* The C header of the thread context from C11, linked statically and dynamically. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <otel_thread_ctx.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define REQUIRE(condition)                                    \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      return 1;                                               \
    }                                                         \
  } while (0)

/* Is it the variable that a reader finds by name, and one for all modules? */
static int is_exported(void) {
  void* const program = dlopen(NULL, RTLD_NOW);
  void* const slot = program == NULL ? NULL : dlsym(program, "otel_thread_ctx_v1");
  if (program != NULL) dlclose(program);
  return slot == (void*)&otel_thread_ctx_v1;
}

static void* other_thread(void* bad) {
  struct otel_thread_ctx_record record;
  if (otel_thread_ctx_init_thread() != OTEL_THREAD_CTX_OK || !is_exported() ||
      otel_thread_ctx_v1 != NULL) {
    return bad;
  }
  otel_thread_ctx_begin_inline(&record, NULL, NULL, 0);
  otel_thread_ctx_end_inline(&record);
  return otel_thread_ctx_attach_inline(&record);
}

int main(void) {
  static const uint8_t kTrace[16] = {1};
  static const uint8_t kSpan[8] = {2};
  static const uint8_t kExpected[] = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                      0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1};
  struct otel_thread_ctx_record record;
  pthread_t thread;
  void* result;
  const int key = otel_thread_ctx_register_key("http.route", 10);

  REQUIRE(key == 0 && otel_thread_ctx_key_count() == 1);
  REQUIRE(strcmp(otel_thread_ctx_key(0), "http.route") == 0);
  REQUIRE(sizeof record == OTEL_THREAD_CTX_RECORD_BYTES);

  otel_thread_ctx_begin_inline(&record, kTrace, kSpan, 1);
  REQUIRE(otel_thread_ctx_append_inline(&record, sizeof record, key, "/cart", 5) ==
          OTEL_THREAD_CTX_OK);
  otel_thread_ctx_end_inline(&record);
  REQUIRE(memcmp(&record, kExpected, sizeof kExpected) == 0);
  REQUIRE(record.attrs_data_size == 7 && memcmp(record.attrs_data, "\0\5/cart", 7) == 0);

  REQUIRE(otel_thread_ctx_attach_inline(&record) == NULL);
  REQUIRE(is_exported());
  REQUIRE(pthread_create(&thread, NULL, other_thread, &record) == 0);
  REQUIRE(pthread_join(thread, &result) == 0 && result == NULL);
  REQUIRE(otel_thread_ctx_attach(NULL) == &record); /* the library has the same variable */
  return 0;
}
