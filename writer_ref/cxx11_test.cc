// The C headers are valid C++11, also with pedantic warnings.
#include <otel_ctx.h>
#include <otel_thread_ctx.h>

int main() {
  otel_ctx_error error;
  otel_ctx_info info;
  const char empty_resource[] = {0x0a, 0x00};
  if (otel_ctx_publish(empty_resource, sizeof empty_resource, &error) != OTEL_CTX_OK) return 1;
  otel_ctx_get_info(&info);
  otel_thread_ctx_record record;
  otel_thread_ctx_begin_inline(&record, nullptr, nullptr, 0);
  otel_thread_ctx_append_inline(&record, sizeof record, 0, "x", 1);
  otel_thread_ctx_end_inline(&record);
  if (otel_thread_ctx_attach_inline(&record) != nullptr) return 1;
  if (otel_thread_ctx_attach(nullptr) != &record) return 1;
  return info.published == 1 && otel_ctx_drop(nullptr) == OTEL_CTX_OK ? 0 : 1;
}
