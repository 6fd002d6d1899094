// The variable that readers of thread context look for, in each way in which a module can come
// to have it; which one is a matter of macros, compiler options and linker options.
#ifndef SLOT_VISIBILITY
#define SLOT_VISIBILITY default
#endif
#define AS_TEXT(word) #word
#define WITH_VISIBILITY(word) __attribute__((visibility(AS_TEXT(word))))
#define VISIBLE WITH_VISIBILITY(SLOT_VISIBILITY)

// This is in .tdata, which precedes .tbss: the slot's offset is then not zero.
static __thread long other = 1;

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
#define otel_thread_ctx_v1 slot_alias
#endif

long* slot_other(void);
long* slot_other(void) { return &other; }

#ifndef SLOT_ONLY
void* slot_place(void);
void* slot_place(void) { return (void*)&otel_thread_ctx_v1; }

void* slot_exchange(void* record);
void* slot_exchange(void* record) {
#ifdef SLOT_RECORD
  void* before = (void*)otel_thread_ctx_v1.bytes;
  otel_thread_ctx_v1.bytes[24] = (char)(record != 0);
#else
  void* before = otel_thread_ctx_v1;
  otel_thread_ctx_v1 = record;
#endif
  return before;
}
#endif
