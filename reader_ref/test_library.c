// A library that defines the variable too, for loading late.
__attribute__((visibility("default"))) __thread void* otel_thread_ctx_v1 = 0;

__attribute__((visibility("default"))) void* slot_address(void);
void* slot_address(void) { return &otel_thread_ctx_v1; }
