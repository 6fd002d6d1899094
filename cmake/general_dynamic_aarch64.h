// The address of a thread-local variable by the traditional models of aarch64, General Dynamic and
// local dynamic, with the code that gcc makes for -mtls-dialect=trad. clang makes only descriptors,
// and only GNU as and ld know these relocations. The command line includes this.
#define TLS_TEXT(word) #word

#define TLS_ADDRESS(variable) \
  TLS_CALL(variable,                                       \
           "adrp x0, :tlsgd:" TLS_TEXT(variable) "\n"      \
           "add x0, x0, :tlsgd_lo12:" TLS_TEXT(variable) "\n" \
           "bl __tls_get_addr\n"                           \
           "nop\n")

#define TLS_LOCAL_ADDRESS(variable) \
  TLS_CALL(variable,                                             \
           "adrp x0, :tlsldm:" TLS_TEXT(variable) "\n"           \
           "add x0, x0, :tlsldm_lo12_nc:" TLS_TEXT(variable) "\n" \
           "bl __tls_get_addr\n"                                 \
           "nop\n"                                               \
           "add x0, x0, :dtprel_hi12:" TLS_TEXT(variable) "\n"   \
           "add x0, x0, :dtprel_lo12_nc:" TLS_TEXT(variable) "\n")

// All registers that a call does not keep.
#define TLS_CALL(variable, code)                                                                   \
  __extension__({                                                                                  \
    register void* tls_address __asm__("x0");                                                      \
    __asm__ volatile(code                                                                          \
                     : "=r"(tls_address)                                                           \
                     :                                                                             \
                     : "memory", "cc", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9",       \
                       "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x30", "v0", \
                       "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",  \
                       "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22",       \
                       "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");             \
    (__typeof__(variable)*)tls_address;                                                            \
  })
