// Defines the thread-local pointer that tls_variable_test searches for, and a function that returns
// its address. Compiler and linker options choose the access model and the visibility.
#ifndef SLOT_ALIGNMENT
#define SLOT_ALIGNMENT 8
#endif
#ifndef SLOT_FILLER
#define SLOT_FILLER 3
#endif
#ifndef SLOT_VISIBILITY
#define SLOT_VISIBILITY "default"
#endif

#ifndef TLS_ADDRESS  // the compiler knows the access model
#define TLS_ADDRESS(variable) (&(variable))
#define TLS_LOCAL_ADDRESS(variable) (&(variable))
#endif

// Ensures that the slot is not the first variable of its segment.
__attribute__((used)) static _Thread_local volatile long filler[SLOT_FILLER] = {1, 2, 3};

__attribute__((visibility(SLOT_VISIBILITY), aligned(SLOT_ALIGNMENT)))  //
_Thread_local void* ctx_test_slot;

#ifndef SLOT_ONLY
__attribute__((visibility("default"))) void* ctx_test_slot_address(void);
void* ctx_test_slot_address(void) { return TLS_ADDRESS(ctx_test_slot); }
#endif

__attribute__((visibility("default"))) long ctx_test_filler(void);
long ctx_test_filler(void) { return (*TLS_LOCAL_ADDRESS(filler))[0]; }
