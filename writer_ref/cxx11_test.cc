// The C header is C++11, also for compilers that are pedantic about it.
#include <otel_ctx.h>

int main() {
  otel_ctx_error error;
  otel_ctx_info info;
  const char empty_resource[] = {0x0a, 0x00};
  if (otel_ctx_publish(empty_resource, sizeof empty_resource, &error) != OTEL_CTX_OK) return 1;
  otel_ctx_get_info(&info);
  return info.published == 1 && otel_ctx_drop(nullptr) == OTEL_CTX_OK ? 0 : 1;
}
