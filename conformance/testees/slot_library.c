// The variable that readers of thread context look for, in each way in which a module can come
// to have it; which one is a matter of macros, compiler options and linker options.
#ifndef SLOT_VISIBILITY
#define SLOT_VISIBILITY default
#endif
#define AS_TEXT(word) #word
#define WITH_VISIBILITY(word) __attribute__((visibility(AS_TEXT(word))))
#define VISIBLE WITH_VISIBILITY(SLOT_VISIBILITY)

#ifndef TLS_ADDRESS  // the compiler knows the access model
#define TLS_ADDRESS(variable) (&(variable))
#define TLS_LOCAL_ADDRESS(variable) (&(variable))
#endif

// This is in .tdata, which precedes .tbss: the slot's offset is then not zero.
static __thread long other __attribute__((used)) = 1;

#ifdef SLOT_LARGE
// More than the loader has left of static TLS, so that the block is allocated when it is used.
__thread char slot_large[65536];
#endif

#if defined(SLOT_ORDINARY)
VISIBLE void* otel_thread_ctx_v1;
#elif defined(SLOT_RECORD)
VISIBLE __thread struct {
  _Alignas(8) char bytes[640];
} otel_thread_ctx_v1;
#elif defined(SLOT_WEAK)
extern __thread void* otel_thread_ctx_v1 __attribute__((weak));
#elif defined(SLOT_NO_SIZE)
__asm__(
    ".section .tbss,\"awT\",@nobits\n"
    ".balign 8\n"
    ".globl otel_thread_ctx_v1\n"
    ".type otel_thread_ctx_v1, @tls_object\n"
    "otel_thread_ctx_v1: .zero 8\n"
    ".text\n");
extern __thread void* otel_thread_ctx_v1;
#elif defined(SLOT_FOREIGN)
extern __thread void* otel_thread_ctx_v1;
#else
VISIBLE __thread void* otel_thread_ctx_v1;
#endif

#ifdef SLOT_HIDDEN_ALIAS
extern __thread void* slot_alias
    __attribute__((visibility("hidden"), alias("otel_thread_ctx_v1"), tls_model("local-dynamic")));
#ifndef SLOT_ALIAS_ADDRESS
#define SLOT_ALIAS_ADDRESS TLS_LOCAL_ADDRESS
#endif
#define SLOT_ADDRESS SLOT_ALIAS_ADDRESS(slot_alias)
#else
#define SLOT_ADDRESS TLS_ADDRESS(otel_thread_ctx_v1)
#endif

long* slot_other(void);
long* slot_other(void) { return TLS_LOCAL_ADDRESS(other); }

#ifndef SLOT_ONLY
void* slot_place(void);
void* slot_place(void) { return (void*)SLOT_ADDRESS; }

void* slot_exchange(void* record);
void* slot_exchange(void* record) {
#ifdef SLOT_RECORD
  void* before = (void*)SLOT_ADDRESS->bytes;
  SLOT_ADDRESS->bytes[24] = (char)(record != 0);
#else
  void* before = *SLOT_ADDRESS;
  *SLOT_ADDRESS = record;
#endif
  return before;
}
#endif
