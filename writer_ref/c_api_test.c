/* The C header from C11, linked statically and dynamically, without a C++ run time. */
#include <otel_ctx.h>
#include <stdio.h>
#include <string.h>

#define REQUIRE(condition)                                    \
  do {                                                        \
    if (!(condition)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      return 1;                                               \
    }                                                         \
  } while (0)

static int contexts_in_maps(const char* name) {
  char line[4352];
  int count = 0;
  FILE* maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) return -1;
  while (fgets(line, sizeof line, maps) != NULL) count += strstr(line, name) != NULL;
  fclose(maps);
  return count;
}

int main(void) {
  static const unsigned char kEmptyResource[] = {0x0a, 0x00};
  struct otel_ctx_error error;
  struct otel_ctx_info info;

  REQUIRE(otel_ctx_update(kEmptyResource, sizeof kEmptyResource, &error) == OTEL_CTX_NOT_PUBLISHED);
  REQUIRE(error.status == OTEL_CTX_NOT_PUBLISHED);
  otel_ctx_get_info(&info);
  REQUIRE(info.published == 0 && info.name_in_maps == NULL);

  REQUIRE(otel_ctx_publish(kEmptyResource, sizeof kEmptyResource, &error) == OTEL_CTX_OK);
  otel_ctx_get_info(&info);
  REQUIRE(info.published == 1 && info.payload_size == 2);
  REQUIRE(contexts_in_maps(info.name_in_maps) == 1);
  REQUIRE(memcmp((const void*)(uintptr_t)info.header, "OTEL_CTX", 8) == 0);
  REQUIRE(memcmp((const void*)(uintptr_t)info.payload, kEmptyResource, 2) == 0);

  REQUIRE(otel_ctx_update(kEmptyResource, sizeof kEmptyResource, NULL) == OTEL_CTX_OK);
  REQUIRE(otel_ctx_drop(NULL) == OTEL_CTX_OK);
  REQUIRE(contexts_in_maps("OTEL_CTX") == 0);
  return 0;
}
