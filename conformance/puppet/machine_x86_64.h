/* The x86-64 part of the scripted process. */
#ifndef CONFORMANCE_PUPPET_MACHINE_X86_64_H_
#define CONFORMANCE_PUPPET_MACHINE_X86_64_H_

#include <asm/prctl.h>
#include <asm/unistd.h>
#include <cpuid.h>
#include <errno.h>
#include <stdint.h>

static inline long machine_syscall(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                   uint64_t e, uint64_t f) {
  register uint64_t r10 __asm__("r10") = d;
  register uint64_t r8 __asm__("r8") = e;
  register uint64_t r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

/* The new task runs entry(argument) on its own stack; entry does not return. */
long machine_clone(uint64_t flags, void* stack, void* tls, void (*entry)(void*), void* argument);
__asm__(
    ".text\n"
    ".globl machine_clone\n"
    ".hidden machine_clone\n"
    ".type machine_clone, @function\n"
    "machine_clone:\n"
    "  sub $16, %rsi\n"
    "  mov %rcx, 0(%rsi)\n"
    "  mov %r8, 8(%rsi)\n"
    "  mov %rdx, %r8\n"
    "  xor %edx, %edx\n"
    "  xor %r10d, %r10d\n"
    "  mov $56, %eax\n"
    "  syscall\n"
    "  test %rax, %rax\n"
    "  jnz 1f\n"
    "  xor %ebp, %ebp\n"
    "  pop %rax\n"
    "  pop %rdi\n"
    "  call *%rax\n"
    "  hlt\n"
    "1: ret\n"
    ".size machine_clone, . - machine_clone\n");

#ifndef PUPPET_LIBC
/* The kernel starts a program here: its arguments are on the stack. */
void machine_main(void* stack);
__asm__(
    ".text\n"
    ".globl _start\n"
    ".type _start, @function\n"
    "_start:\n"
    "  xor %ebp, %ebp\n"
    "  mov %rsp, %rdi\n"
    "  and $-16, %rsp\n"
    "  call machine_main\n"
    "  hlt\n"
    ".size _start, . - _start\n");
#endif

/* Runs entry(argument) on another stack; entry does not return. */
static inline void machine_go_to(void* stack, void (*entry)(void*), void* argument) {
  __asm__ volatile(
      "mov %0, %%rsp\n"
      "xor %%ebp, %%ebp\n"
      "call *%1\n"
      "hlt\n"
      :
      : "r"(stack), "r"(entry), "D"(argument)
      : "memory");
  __builtin_unreachable();
}

static inline uint64_t machine_stack(void) {
  uint64_t at;
  __asm__("mov %%rsp, %0" : "=r"(at));
  return at;
}

void machine_return_from_signal(void);
__asm__(
    ".text\n"
    ".globl machine_return_from_signal\n"
    ".hidden machine_return_from_signal\n"
    ".type machine_return_from_signal, @function\n"
    "machine_return_from_signal:\n"
    "  mov $15, %eax\n"
    "  syscall\n"
    ".size machine_return_from_signal, . - machine_return_from_signal\n");

static inline void machine_set_thread_pointer(void* pointer) {
  machine_syscall(__NR_arch_prctl, ARCH_SET_FS, (uint64_t)pointer, 0, 0, 0, 0);
}

/* Not from memory at the pointer: a thread may have no block. */
static inline void* machine_thread_pointer_now(void) {
  void* pointer = 0;
  machine_syscall(__NR_arch_prctl, ARCH_GET_FS, (uint64_t)&pointer, 0, 0, 0, 0);
  return pointer;
}

/* The largest width of one load or store. */
static inline int machine_has_32_bytes(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  if (!(c & bit_OSXSAVE) || !(c & bit_AVX)) return 0;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 6) == 6;
}

static inline void machine_store_16(uint64_t at, const unsigned char* value) {
  __asm__ volatile(
      "movdqu (%1), %%xmm0\n"
      "movdqu %%xmm0, (%0)\n"
      :
      : "r"(at), "r"(value)
      : "xmm0", "memory");
}

static inline void machine_store_32(uint64_t at, const unsigned char* value) {
  __asm__ volatile(
      "vmovdqu (%1), %%ymm0\n"
      "vmovdqu %%ymm0, (%0)\n"
      "vzeroupper\n"
      :
      : "r"(at), "r"(value)
      : "xmm0", "memory");
}

/* seq_cst: xchg, which locks the bus. */
static inline long machine_exchange(uint64_t at, uint64_t width, const unsigned char* value) {
  uint64_t word = 0;
  for (unsigned i = 0; i < width && i < 8; ++i) word |= (uint64_t)value[i] << (8 * i);
  switch (width) {
    case 1: {
      uint8_t v = (uint8_t)word;
      __asm__ volatile("xchg %0, (%1)" : "+q"(v) : "r"(at) : "memory");
      return 0;
    }
    case 2: {
      uint16_t v = (uint16_t)word;
      __asm__ volatile("xchg %0, (%1)" : "+r"(v) : "r"(at) : "memory");
      return 0;
    }
    case 4: {
      uint32_t v = (uint32_t)word;
      __asm__ volatile("xchg %0, (%1)" : "+r"(v) : "r"(at) : "memory");
      return 0;
    }
    case 8:
      __asm__ volatile("xchg %0, (%1)" : "+r"(word) : "r"(at) : "memory");
      return 0;
    case 16: {
      unsigned a, b, c, d;
      if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_CMPXCHG16B)) return -ENOTSUP;
      if (at % 16 != 0) return -EINVAL;
      uint64_t high = 0;
      for (unsigned i = 0; i < 8; ++i) high |= (uint64_t)value[8 + i] << (8 * i);
      uint64_t old_low = *(volatile uint64_t*)at;
      uint64_t old_high = *(volatile uint64_t*)(at + 8);
      uint8_t done = 0;
      while (!done) {
        __asm__ volatile("lock cmpxchg16b (%3)\nsetz %0"
                         : "=q"(done), "+a"(old_low), "+d"(old_high)
                         : "r"(at), "b"(word), "c"(high)
                         : "cc", "memory");
      }
      return 0;
    }
    default:
      return -ENOTSUP;
  }
}

static inline void machine_rep_bytes(uint64_t to, uint64_t from, uint64_t size) {
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

static inline void machine_rep_words(uint64_t to, uint64_t from, uint64_t words) {
  __asm__ volatile("rep movsq" : "+D"(to), "+S"(from), "+c"(words) : : "memory");
}

static inline void machine_fence(void) { __asm__ volatile("mfence" : : : "memory"); }
/* Every store releases. */
static inline void machine_release(void) { __asm__ volatile("" : : : "memory"); }
static inline void machine_pause(void) { __asm__ volatile("pause" : : : "memory"); }

/* The TLS block ends where the thread pointer points; a pointer to itself is there. */
static inline void* machine_thread_pointer(unsigned char* middle) {
  *(void**)middle = middle;
  return middle;
}

#endif /* CONFORMANCE_PUPPET_MACHINE_X86_64_H_ */
