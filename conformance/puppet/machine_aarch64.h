/* The aarch64 part of the scripted process. */
#ifndef CONFORMANCE_PUPPET_MACHINE_AARCH64_H_
#define CONFORMANCE_PUPPET_MACHINE_AARCH64_H_

#include <asm/unistd.h>
#include <errno.h>
#include <stdint.h>

static inline long machine_syscall(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                   uint64_t e, uint64_t f) {
  register long x8 __asm__("x8") = number;
  register uint64_t x0 __asm__("x0") = a;
  register uint64_t x1 __asm__("x1") = b;
  register uint64_t x2 __asm__("x2") = c;
  register uint64_t x3 __asm__("x3") = d;
  register uint64_t x4 __asm__("x4") = e;
  register uint64_t x5 __asm__("x5") = f;
  __asm__ volatile("svc #0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return (long)x0;
}

/* The new task runs entry(argument) on its own stack; entry does not return. */
long machine_clone(uint64_t flags, void* stack, void* tls, void (*entry)(void*), void* argument);
__asm__(
    ".text\n"
    ".globl machine_clone\n"
    ".hidden machine_clone\n"
    ".type machine_clone, %function\n"
    "machine_clone:\n"
    "  stp x3, x4, [x1, #-16]!\n"
    "  mov x3, x2\n"
    "  mov x2, xzr\n"
    "  mov x4, xzr\n"
    "  mov x8, #220\n"
    "  svc #0\n"
    "  cbnz x0, 1f\n"
    "  mov x29, xzr\n"
    "  mov x30, xzr\n"
    "  ldp x1, x0, [sp], #16\n"
    "  blr x1\n"
    "  brk #1\n"
    "1: ret\n"
    ".size machine_clone, . - machine_clone\n");

#ifndef PUPPET_LIBC
/* The kernel starts a program here: its arguments are on the stack. */
void machine_main(void* stack);
__asm__(
    ".text\n"
    ".globl _start\n"
    ".type _start, %function\n"
    "_start:\n"
    "  mov x29, xzr\n"
    "  mov x30, xzr\n"
    "  mov x0, sp\n"
    "  bl machine_main\n"
    "  brk #1\n"
    ".size _start, . - _start\n");
#endif

/* Runs entry(argument) on another stack; entry does not return. */
static inline void machine_go_to(void* stack, void (*entry)(void*), void* argument) {
  register void* x0 __asm__("x0") = argument;
  register void* x1 __asm__("x1") = stack;
  register void (*x2)(void*) __asm__("x2") = entry;
  __asm__ volatile(
      "mov sp, x1\n"
      "mov x29, xzr\n"
      "mov x30, xzr\n"
      "blr x2\n"
      "brk #1\n"
      :
      : "r"(x0), "r"(x1), "r"(x2)
      : "memory");
  __builtin_unreachable();
}

static inline uint64_t machine_stack(void) {
  uint64_t at;
  __asm__("mov %0, sp" : "=r"(at));
  return at;
}

/* The kernel would use the vDSO instead, which a script may unmap. */
__attribute__((visibility("hidden"))) void machine_return_from_signal(void); /* not by the GOT */
__asm__(
    ".text\n"
    ".globl machine_return_from_signal\n"
    ".hidden machine_return_from_signal\n"
    ".type machine_return_from_signal, %function\n"
    "machine_return_from_signal:\n"
    "  mov x8, #139\n"
    "  svc #0\n"
    ".size machine_return_from_signal, . - machine_return_from_signal\n");

static inline void machine_set_thread_pointer(void* pointer) {
  __asm__ volatile("msr tpidr_el0, %0" : : "r"(pointer) : "memory");
}

static inline void* machine_thread_pointer_now(void) {
  void* pointer;
  __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
  return pointer;
}

static inline void machine_fence(void) { __asm__ volatile("dmb ish" : : : "memory"); }
static inline void machine_release(void) { machine_fence(); }
static inline void machine_pause(void) { __asm__ volatile("yield" : : : "memory"); }

/* The largest width of one load or store. */
static inline int machine_has_32_bytes(void) { return 1; }

static inline void machine_store_16(uint64_t at, const unsigned char* value) {
  __asm__ volatile(
      "ldr q0, [%1]\n"
      "str q0, [%0]\n"
      :
      : "r"(at), "r"(value)
      : "v0", "memory");
}

static inline void machine_store_32(uint64_t at, const unsigned char* value) {
  __asm__ volatile(
      "ldp q0, q1, [%1]\n"
      "stp q0, q1, [%0]\n"
      :
      : "r"(at), "r"(value)
      : "v0", "v1", "memory");
}

/* LSE. */
static inline int machine_has_cas(void) {
  uint64_t features;
  __asm__("mrs %0, id_aa64isar0_el1" : "=r"(features)); /* the kernel emulates it */
  return (features >> 20 & 15) >= 2;
}

/* seq_cst: stlr, as compilers do. */
static inline long machine_exchange(uint64_t at, uint64_t width, const unsigned char* value) {
  uint64_t word = 0;
  for (unsigned i = 0; i < width && i < 8; ++i) word |= (uint64_t)value[i] << (8 * i);
  if (width <= 8 && at % width != 0) { /* stlr may fault */
    machine_fence();
    if (width == 2) __asm__ volatile("strh %w0, [%1]" : : "r"(word), "r"(at) : "memory");
    if (width == 4) __asm__ volatile("str %w0, [%1]" : : "r"(word), "r"(at) : "memory");
    if (width == 8) __asm__ volatile("str %0, [%1]" : : "r"(word), "r"(at) : "memory");
    machine_fence();
    return 0;
  }
  switch (width) {
    case 1:
      __asm__ volatile("stlrb %w0, [%1]" : : "r"(word), "r"(at) : "memory");
      return 0;
    case 2:
      __asm__ volatile("stlrh %w0, [%1]" : : "r"(word), "r"(at) : "memory");
      return 0;
    case 4:
      __asm__ volatile("stlr %w0, [%1]" : : "r"(word), "r"(at) : "memory");
      return 0;
    case 8:
      __asm__ volatile("stlr %0, [%1]" : : "r"(word), "r"(at) : "memory");
      return 0;
    case 16: {
      if (!machine_has_cas()) return -ENOTSUP;
      if (at % 16 != 0) return -EINVAL;
      uint64_t high = 0;
      for (unsigned i = 0; i < 8; ++i) high |= (uint64_t)value[8 + i] << (8 * i);
      register uint64_t x0 __asm__("x0") = *(volatile uint64_t*)at;
      register uint64_t x1 __asm__("x1") = *(volatile uint64_t*)(at + 8);
      register uint64_t x2 __asm__("x2") = word;
      register uint64_t x3 __asm__("x3") = high;
      uint64_t seen_low;
      uint64_t seen_high;
      do {
        seen_low = x0;
        seen_high = x1;
        __asm__ volatile(
            ".arch_extension lse\n"
            "caspal x0, x1, x2, x3, [%2]\n"
            : "+r"(x0), "+r"(x1)
            : "r"(at), "r"(x2), "r"(x3)
            : "memory");
      } while (x0 != seen_low || x1 != seen_high);
      return 0;
    }
    default:
      return -ENOTSUP;
  }
}

/* There is no rep; the assembler keeps the compiler from calling memcpy. */
static inline void machine_rep_bytes(uint64_t to, uint64_t from, uint64_t size) {
  for (uint64_t byte; size > 0; --size) {
    __asm__ volatile(
        "ldrb %w0, [%2], #1\n"
        "strb %w0, [%1], #1\n"
        : "=&r"(byte), "+r"(to), "+r"(from)
        :
        : "memory");
  }
}

static inline void machine_rep_words(uint64_t to, uint64_t from, uint64_t words) {
  for (uint64_t word; words > 0; --words) {
    __asm__ volatile(
        "ldr %0, [%2], #8\n"
        "str %0, [%1], #8\n"
        : "=&r"(word), "+r"(to), "+r"(from)
        :
        : "memory");
  }
}

/* The TLS block begins 16 bytes after the thread pointer. */
static inline void* machine_thread_pointer(unsigned char* middle) { return middle; }

#endif /* CONFORMANCE_PUPPET_MACHINE_AARCH64_H_ */
