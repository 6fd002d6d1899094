// A library that defines the variable too, for loading late.
#ifndef TLS_ADDRESS  // the compiler knows the access model
#define TLS_ADDRESS(variable) (&(variable))
#endif

__attribute__((visibility("default"))) __thread void* otel_thread_ctx_v1 = 0;

__attribute__((visibility("default"))) void* slot_address(void);
void* slot_address(void) { return TLS_ADDRESS(otel_thread_ctx_v1); }
