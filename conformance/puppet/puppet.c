/* The scripted process: executes the operations that it gets over a socket, one at a time, and
 * answers with the result. Without a language runtime, so that nothing but the script maps, names,
 * forks or stores to memory that the script has made. It does not know the purpose of the script.
 *
 * With PUPPET_SLOT it exports otel_thread_ctx_v1, and each thread has a TLS block.
 *
 * With PUPPET_LIBC it is an ordinary program of the C library, whose threads are those of the
 * library. It loads libraries, unless PUPPET_STATIC says that there is no loader. */
#include "conformance/puppet/channel.h"

#if defined(__x86_64__)
#include "conformance/puppet/machine_x86_64.h"
#elif defined(__aarch64__)
#include "conformance/puppet/machine_aarch64.h"
#else
#error "this architecture is not supported yet"
#endif

#if defined(PUPPET_LIBC) && !defined(PUPPET_STATIC)
#define PUPPET_LOADS
#include <dlfcn.h>
#endif
#ifdef PUPPET_LIBC
#include <pthread.h>
#include <string.h>
#include <unistd.h>
#endif

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

/* As puppet::CopyHow, StoreOrder, FenceKind and SignalAction (script.h). */
enum { kBytes, kWords, kRepBytes, kRepWords, kVector, kPipe, kProcessVm };
enum { kPlain, kRelease, kSeqCst };
enum { kFenceCompiler, kFenceRelease, kFenceSeqCst, kFenceMembarrier };
enum { kDefault, kIgnore, kReturnAtOnce, kServe };

/* As puppet::LoadCopy (script.h). */
enum { kNoCopy, kMemfdCopy, kFileCopy, kRemovedCopy };

#ifdef PUPPET_SLOT
__attribute__((visibility("default"))) __thread void* otel_thread_ctx_v1;
#endif
#ifdef PUPPET_ALIGNMENT
/* Moves the block away from the thread pointer. */
__thread char aligned_variable[64] __attribute__((aligned(PUPPET_ALIGNMENT), used));
#endif

enum { kTlsSize = 512, kAtOnce = 4096 };
#ifdef PUPPET_LIBC
enum { kStackSize = 256 * 1024 }; /* the loader needs more */
#else
enum { kStackSize = 40 * 1024 };
#endif

/* The state of a thread, found by its stack pointer. */
struct Area {
  _Alignas(4096) unsigned char stack[kStackSize];
  unsigned char tls[kTlsSize]; /* the pointer points to its middle, the block is on one side */
  volatile int tid;            /* of a thread of the C library */
  int channel;
  int returning; /* from a handler */
  int busy;      /* with an operation */
  struct PuppetCommand command;
  unsigned char bytes[kPuppetBytes];
};

static struct Area areas[kPuppetAreas];
static char** environment;

static struct Area* own_area(void) {
  return &areas[(machine_stack() - (uint64_t)areas) / sizeof *areas];
}

static long call3(long number, uint64_t a, uint64_t b, uint64_t c) {
  return machine_syscall(number, a, b, c, 0, 0, 0);
}

#ifndef PUPPET_LIBC
/* The compiler may call these. */
void* memset(void* to, int byte, size_t size) {
  for (volatile unsigned char* p = to; size > 0; --size) *p++ = (unsigned char)byte;
  return to;
}
void* memcpy(void* to, const void* from, size_t size) {
  const unsigned char* q = from;
  for (volatile unsigned char* p = to; size > 0; --size) *p++ = *q++;
  return to;
}
#endif

static void copy_bytes(uint64_t to, uint64_t from, uint64_t size) {
  for (uint64_t i = 0; i < size; ++i) {
    *(volatile unsigned char*)(to + i) = *(const volatile unsigned char*)(from + i);
  }
}

typedef uint64_t __attribute__((aligned(1), may_alias)) Word;

static long copy_by_pipe(uint64_t to, uint64_t from, uint64_t size) {
  int ends[2];
  long result = call3(__NR_pipe2, (uint64_t)ends, O_CLOEXEC, 0);
  if (result < 0) return result;
  while (size > 0) {
    const uint64_t n = size < kAtOnce ? size : kAtOnce;
    result = call3(__NR_write, (uint64_t)ends[1], from, n);
    if (result >= 0) result = call3(__NR_read, (uint64_t)ends[0], to, n);
    if (result <= 0) break;
    to += (uint64_t)result;
    from += (uint64_t)result;
    size -= (uint64_t)result;
  }
  call3(__NR_close, (uint64_t)ends[0], 0, 0);
  call3(__NR_close, (uint64_t)ends[1], 0, 0);
  return size == 0 ? 0 : result;
}

static long copy_by_kernel(uint64_t to, uint64_t from, uint64_t size) {
  const long self = call3(__NR_gettid, 0, 0, 0); /* the first thread may have ended */
  while (size > 0) {
    const struct iovec source = {(void*)from, size};
    const struct iovec target = {(void*)to, size};
    const long n = machine_syscall(__NR_process_vm_writev, (uint64_t)self, (uint64_t)&source, 1,
                                   (uint64_t)&target, 1, 0);
    if (n <= 0) return n == 0 ? -EFAULT : n;
    to += (uint64_t)n;
    from += (uint64_t)n;
    size -= (uint64_t)n;
  }
  return 0;
}

static long copy(uint64_t to, uint64_t from, uint64_t size, uint64_t how) {
  uint64_t done = 0;
  switch (how) {
    case kBytes:
      break;
    case kWords:
      for (; size - done >= 8; done += 8) {
        *(volatile Word*)(to + done) = *(const volatile Word*)(from + done);
      }
      break;
    case kRepBytes:
      machine_rep_bytes(to, from, size);
      return 0;
    case kRepWords:
      machine_rep_words(to, from, size / 8);
      done = size / 8 * 8;
      break;
    case kVector:
      for (; size - done >= 16; done += 16) {
        machine_store_16(to + done, (const unsigned char*)(from + done));
      }
      break;
    case kPipe:
      return copy_by_pipe(to, from, size);
    case kProcessVm:
      return copy_by_kernel(to, from, size);
    default:
      return -EINVAL;
  }
  copy_bytes(to + done, from + done, size - done);
  return 0;
}

/* Repeats the pattern in place, so that each copied piece except the last is long. */
static long fill(struct Area* area, uint64_t at, uint64_t size, uint64_t how) {
  const uint64_t pattern = area->command.bytes;
  if (pattern == 0 || pattern > kAtOnce) return -EINVAL;
  const uint64_t piece = kAtOnce / pattern * pattern;
  for (uint64_t i = pattern; i < piece; ++i) area->bytes[i] = area->bytes[i - pattern];
  while (size > 0) {
    const uint64_t n = size < piece ? size : piece;
    const long result = copy(at, (uint64_t)area->bytes, n, how);
    if (result < 0) return result;
    at += n;
    size -= n;
  }
  return 0;
}

static uint64_t load(uint64_t at, uint64_t width) {
  switch (width) {
    case 1:
      return *(volatile uint8_t*)at;
    case 2:
      return *(volatile uint16_t*)at;
    case 4:
      return *(volatile uint32_t*)at;
    default:
      return *(volatile uint64_t*)at;
  }
}

static long store(uint64_t at, uint64_t width, uint64_t order, const unsigned char* value) {
  if (order == kSeqCst) return machine_exchange(at, width, value);
  __asm__ volatile("" : : : "memory");
  if (order == kRelease) machine_release();
  switch (width) {
    case 1:
      *(volatile uint8_t*)at = *value;
      break;
    case 2:
      *(volatile uint16_t*)at = *(const uint16_t*)value;
      break;
    case 4:
      *(volatile uint32_t*)at = *(const uint32_t*)value;
      break;
    case 8:
      *(volatile uint64_t*)at = *(const uint64_t*)value;
      break;
    case 16:
      machine_store_16(at, value);
      break;
    case 32:
      if (!machine_has_32_bytes()) return -ENOTSUP;
      machine_store_32(at, value);
      break;
    default:
      return -EINVAL;
  }
  __asm__ volatile("" : : : "memory");
  return 0;
}

static void answer(struct Area* area, int64_t result, uint64_t bytes) {
  struct PuppetAnswer head = {result, bytes};
  struct iovec parts[2] = {{&head, sizeof head}, {area->bytes, bytes}};
  struct msghdr message = {0};
  message.msg_iov = parts;
  message.msg_iovlen = bytes == 0 ? 1 : 2;
  long sent;
  do sent = call3(__NR_sendmsg, (uint64_t)area->channel, (uint64_t)&message, MSG_NOSIGNAL);
  while (sent == -EINTR);
}

/* Keeps low descriptor numbers free for the script. */
static int moved_up(int fd) {
  const long moved = call3(__NR_fcntl, (uint64_t)fd, F_DUPFD, kPuppetDescriptors);
  if (moved < 0) return fd;
  call3(__NR_close, (uint64_t)fd, 0, 0);
  return (int)moved;
}

/* The next command; and its descriptor, or -1. */
static int receive(struct Area* area) {
  union {
    struct cmsghdr head;
    unsigned char space[CMSG_SPACE(sizeof(int))];
  } control;
  unsigned char first;
  while (1) {
    /* Waits without taking it: an earlier signal is handled here, and its handler takes
     * the command. */
    long got = machine_syscall(__NR_recvfrom, (uint64_t)area->channel, (uint64_t)&first, 1,
                               MSG_PEEK, 0, 0);
    if (got == -EINTR) continue;
    struct iovec parts[2] = {{&area->command, sizeof area->command}, {area->bytes, kPuppetBytes}};
    struct msghdr message = {0};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    got = call3(__NR_recvmsg, (uint64_t)area->channel, (uint64_t)&message, MSG_DONTWAIT);
    if (got == -EINTR || got == -EAGAIN) continue;
    /* The controller is gone. */
    if (got < (long)sizeof area->command) call3(__NR_exit_group, 0, 0, 0);
    const struct cmsghdr* about = CMSG_FIRSTHDR(&message);
    if (about == NULL || about->cmsg_type != SCM_RIGHTS) return -1;
    int fd;
    memcpy(&fd, CMSG_DATA(about), sizeof fd);
    return moved_up(fd);
  }
}

#if defined(PUPPET_SLOT) && !defined(PUPPET_LIBC)
static void* tls_of(struct Area* area) {
  memset(area->tls, 0, sizeof area->tls);
  return machine_thread_pointer(area->tls + kTlsSize / 2);
}
#endif

static void serve(struct Area* area);

static void run_thread(void* argument) {
  struct Area* area = argument;
  answer(area, PUPPET_HELLO, 0);
  serve(area);
}

static void wipe(struct Area* area) {
  if (area->command.bytes != 0) memset(area->bytes, 0, kPuppetBytes);
}

#ifdef PUPPET_LIBC
static void* run_library_thread(void* argument) {
  struct Area* area = argument;
  area->tid = (int)call3(__NR_gettid, 0, 0, 0);
  run_thread(argument);
  return NULL;
}

static long new_thread(struct Area* area, int channel) {
  const uint64_t* args = area->command.args;
  if (args[0] >= kPuppetAreas || channel < 0) return -EINVAL;
  struct Area* theirs = &areas[args[0]];
  theirs->channel = channel;
  theirs->tid = 0;
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  int result = pthread_attr_setstack(&attributes, theirs->stack, kStackSize);
  if (result == 0) result = pthread_create(&thread, &attributes, run_library_thread, theirs);
  pthread_attr_destroy(&attributes);
  if (result != 0) {
    call3(__NR_close, (uint64_t)channel, 0, 0);
    return -result;
  }
  while (theirs->tid == 0) machine_pause();
  return theirs->tid;
}
#else
static long new_thread(struct Area* area, int channel) {
  const uint64_t* args = area->command.args;
  if (args[0] >= kPuppetAreas || channel < 0) return -EINVAL;
  struct Area* theirs = &areas[args[0]];
  theirs->channel = channel;
  uint64_t flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  void* tls = NULL;
#ifdef PUPPET_SLOT
  flags |= CLONE_SETTLS;
  if (args[1] != 0) tls = tls_of(theirs);
#endif
  const long tid = machine_clone(flags, theirs->stack + kStackSize, tls, run_thread, theirs);
  if (tid < 0) call3(__NR_close, (uint64_t)channel, 0, 0);
  return tid;
}
#endif

/* A child with this pid, or -errno; shares nothing. Linux 5.5. */
static long fork_as(uint64_t exit_signal, int pid) {
  const uint64_t args[11] = {0, 0, 0, 0, exit_signal, 0, 0, 0, (uint64_t)&pid, 1, 0};
  return machine_syscall(435, (uint64_t)args, sizeof args, 0, 0, 0, 0);
}

/* A child that shares no memory continues where its parent is. */
static long fork_with(uint64_t flags) { return machine_syscall(__NR_clone, flags, 0, 0, 0, 0, 0); }

/* In a child without shared memory this returns as in the parent, but with 0 and on its own
 * channel. */
static long new_process(struct Area* area, int channel) {
  const uint64_t flags = area->command.args[0] | SIGCHLD;
  const uint64_t number = area->command.args[1];
  if (number >= kPuppetAreas || channel < 0) return -EINVAL;
  long pid;
  if ((flags & CLONE_VM) != 0) {
    struct Area* theirs = &areas[number];
    theirs->channel = channel;
    pid = machine_clone(flags, theirs->stack + kStackSize, NULL, run_thread, theirs);
  } else {
    const int wanted = (int)area->command.args[2];
    pid = wanted == 0 ? fork_with(flags) : fork_as(SIGCHLD, wanted);
    if (pid == 0) {
      if ((flags & CLONE_FILES) == 0) call3(__NR_close, (uint64_t)area->channel, 0, 0);
      area->channel = channel;
      return 0;
    }
  }
  if (pid < 0 || (flags & CLONE_FILES) == 0) call3(__NR_close, (uint64_t)channel, 0, 0);
  return pid;
}

static void in_handler(int signal) {
  (void)signal;
  struct Area* area = own_area();
  const struct PuppetCommand interrupted = area->command;
  const int busy = area->busy;
  area->busy = 0;
  answer(area, busy ? PUPPET_HANDLER : PUPPET_HANDLER_IDLE, 0);
  serve(area);
  area->returning = 0;
  area->busy = busy;
  area->command = interrupted;
}
static void in_empty_handler(int signal) { (void)signal; }

static long handle(uint64_t signal, uint64_t action) {
  struct {
    void (*handler)(int);
    uint64_t flags;
    void (*restorer)(void);
    uint64_t mask;
  } wanted = {0};
  const uint64_t kRestorer = 0x04000000;
  wanted.flags = SA_RESTART | kRestorer;
  wanted.restorer = machine_return_from_signal;
  if (action == kIgnore) wanted.handler = SIG_IGN;
  if (action == kReturnAtOnce) wanted.handler = in_empty_handler;
  if (action == kServe) wanted.handler = in_handler;
  return machine_syscall(__NR_rt_sigaction, signal, (uint64_t)&wanted, 0, sizeof wanted.mask, 0, 0);
}

/* Decimal digits and a zero byte. */
static void write_number(char* to, int number) {
  int size = 1;
  for (int rest = number; rest >= 10; rest /= 10) ++size;
  to[size] = '\0';
  for (; size > 0; number /= 10) to[--size] = (char)('0' + number % 10);
}

static long execute(struct Area* area) {
  enum { kMost = 64 };
  char* argv[kMost + 2];
  const uint64_t count = area->command.args[0];
  if (count > kMost) return -E2BIG;
  char* at = (char*)area->bytes;
  const char* end = at + area->command.bytes;
  const char* path = at;
  for (uint64_t i = 0; i <= count; ++i) {
    if (i > 0) argv[i - 1] = at;
    while (at < end && *at != '\0') ++at;
    if (at++ == end) return -EINVAL;
  }
  argv[count] = NULL;
  /* The same program: it must use this channel. */
  char channel[16];
  if (area->command.number != 0) {
    write_number(channel, area->channel);
    argv[count] = channel;
    argv[count + 1] = NULL;
  }
  return call3(__NR_execve, (uint64_t)path, (uint64_t)argv, (uint64_t)environment);
}

static long clock_now(uint64_t clock) {
  struct timespec now;
  const long result = call3(__NR_clock_gettime, clock, (uint64_t)&now, 0);
  return result < 0 ? result : now.tv_sec * 1000000000L + now.tv_nsec;
}

static long plain_syscall(struct Area* area) {
  uint64_t args[6];
  for (int i = 0; i < 6; ++i) {
    args[i] = area->command.args[i];
    if ((area->command.pointers >> i & 1U) != 0) {
      if (args[i] >= kPuppetBytes) return -EINVAL;
      args[i] += (uint64_t)area->bytes;
    }
  }
  return machine_syscall(area->command.number, args[0], args[1], args[2], args[3], args[4],
                         args[5]);
}

static long fence(uint64_t kind) {
  __asm__ volatile("" : : : "memory");
  if (kind == kFenceRelease) machine_release();
  if (kind == kFenceSeqCst) machine_fence();
  /* MEMBARRIER_CMD_GLOBAL. */
  if (kind == kFenceMembarrier) return call3(__NR_membarrier, 1, 0, 0);
  return 0;
}

/* The variable of this thread: that of the program, or of a library, which reaches it by its own
 * model. Not inlined: clang would read %fs:0 before it knows the operation, and a thread may have
 * no TLS. */
__attribute__((noinline)) static void** slot_of(uint64_t library) {
#ifdef PUPPET_LOADS
#ifdef PUPPET_SLOT
  if (library == 0) return &otel_thread_ctx_v1;
#endif
  void* place = dlsym(library == 0 ? RTLD_DEFAULT : (void*)library, "slot_place");
  void* (*function)(void);
  memcpy(&function, &place, sizeof function);
  return place == NULL ? NULL : function();
#elif defined(PUPPET_SLOT)
  (void)library;
  return &otel_thread_ctx_v1;
#else
  (void)library;
  return NULL;
#endif
}

static long set_slot(uint64_t value, uint64_t order, uint64_t library) {
  void** slot = slot_of(library);
  if (slot == NULL) return -ENOTSUP;
  if (order == kSeqCst) {
    __atomic_store_n(slot, (void*)value, __ATOMIC_SEQ_CST);
  } else if (order == kRelease) {
    __atomic_store_n(slot, (void*)value, __ATOMIC_RELEASE);
  } else {
    *(void* volatile*)slot = (void*)value;
  }
  return 0;
}

static long slot_address(uint64_t library) {
  void** slot = slot_of(library);
  return slot == NULL ? -ENOTSUP : (long)slot;
}

#ifdef PUPPET_LOADS
/* aarch64 has no open(). */
static long open_file(const char* path, uint64_t flags) {
  return machine_syscall(__NR_openat, (uint64_t)AT_FDCWD, (uint64_t)path, flags, 0700, 0, 0);
}

static long copy_file(const char* from, int to) {
  const long file = open_file(from, O_RDONLY | O_CLOEXEC);
  if (file < 0) return file;
  long sent;
  do sent = machine_syscall(__NR_sendfile, (uint64_t)to, (uint64_t)file, 0, 1 << 20, 0, 0);
  while (sent > 0);
  call3(__NR_close, (uint64_t)file, 0, 0);
  return sent;
}

/* The loader takes a path that it knows for the library that it has: the number is a new one. */
static int moved_to_new_number(int file) {
  enum { kFirst = 100 };
  static int loaded;
  const long moved =
      call3(__NR_fcntl, (uint64_t)file, F_DUPFD_CLOEXEC, (uint64_t)(kFirst + loaded));
  if (moved < 0) return file;
  call3(__NR_close, (uint64_t)file, 0, 0);
  loaded = (int)moved + 1 - kFirst;
  return (int)moved;
}

static long load_library(const char* path, const char* copy, uint64_t how) {
  char link[32] = "/proc/self/fd/";
  long file = -1;
  long result = 0;
  if (how == kMemfdCopy) file = call3(__NR_memfd_create, (uint64_t)copy, 0, 0);
  if (how == kFileCopy) file = open_file(copy, O_RDWR | O_CREAT | O_EXCL);
  if (how == kRemovedCopy) file = open_file(copy, O_RDWR | O_TMPFILE);
  if (how != kNoCopy) {
    if (file < 0) return file;
    result = copy_file(path, (int)file);
  }
  const char* loaded = how == kNoCopy ? path : copy;
  if (how == kMemfdCopy || how == kRemovedCopy) {
    file = moved_to_new_number((int)file);
    write_number(link + strlen(link), (int)file);
    loaded = link;
  }
  if (result == 0) result = (long)dlopen(loaded, RTLD_NOW | RTLD_LOCAL);
  if (file >= 0) call3(__NR_close, (uint64_t)file, 0, 0);
  return result == 0 ? -ELIBACC : result;
}

static long unload_library(uint64_t library) { return dlclose((void*)library) == 0 ? 0 : -EINVAL; }
#else
static long load_library(const char* path, const char* copy, uint64_t how) {
  (void)path;
  (void)copy;
  (void)how;
  return -ENOTSUP;
}
static long unload_library(uint64_t library) {
  (void)library;
  return -ENOTSUP;
}
#endif

static void spin(uint64_t times) {
  for (volatile uint64_t i = 0; i < times; ++i) {
  }
}

static long repeat(const uint64_t* args, const unsigned char* bytes, uint64_t size) {
  const uint64_t count = args[1];
  if (count == 0 || count > size / (4 * sizeof(uint64_t))) return -EINVAL;
  for (uint64_t i = 0; i < args[0]; ++i) {
    for (uint64_t n = 0; n < count; ++n) {
      const Word* each = (const Word*)bytes + 4 * n;
      const uint64_t value = each[2] + i * each[3];
      const long result = store(each[0], each[1], kRelease, (const unsigned char*)&value);
      if (result < 0) return result;
    }
    spin(args[2]);
  }
  return 0;
}

static long split(uint64_t at, uint64_t size) {
  enum { kPage = 4096, kReadOnly = 1 };
  for (uint64_t page = at; page + kPage <= at + size; page += 2 * kPage) {
    const long result = call3(__NR_mprotect, page, kPage, kReadOnly);
    if (result < 0) return result;
  }
  return 0;
}

#if defined(PUPPET_SLOT) && !defined(PUPPET_LIBC)
static void wait_for_ever(void* argument) {
  (void)argument;
  while (1) call3(__NR_ppoll, 0, 0, 0);
}

/* The page of a thread has its TLS block near the end, and its stack below that. */
static long crowd(const uint64_t* args) {
  enum { kPage = 4096 };
  const uint64_t flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                         CLONE_SYSVSEM | CLONE_SETTLS;
  const unsigned char* own = machine_thread_pointer_now();
  const ptrdiff_t offset = (const unsigned char*)slot_of(0) - own;
  for (uint64_t i = 0; i < args[0]; ++i) {
    unsigned char* middle = (unsigned char*)(args[4] + (i + 1) * kPage - kTlsSize / 2);
    void* tls = machine_thread_pointer(middle);
    *(uint64_t*)(middle + offset) = args[1] + i * args[2];
    const long tid = machine_clone(flags, middle - kTlsSize / 2, tls, wait_for_ever, NULL);
    if (tid < 0) return tid;
    *(int*)(args[3] + i * sizeof(int)) = (int)tid;
  }
  return 0;
}
#else
static long crowd(const uint64_t* args) {
  (void)args;
  return -ENOTSUP;
}
#endif

static long alternate(const uint64_t* args) {
  long result = 0;
  for (uint64_t i = 0; i < 2 * args[5] && result >= 0; ++i) {
    result = copy(args[0], args[3 + i % 2], args[2], args[1]);
  }
  return result;
}

/* How many bytes the answer has. */
static uint64_t answered_bytes(const struct PuppetCommand* command) {
  uint64_t bytes = 0;
  if (command->call == kPuppetSyscall) bytes = command->returned;
  if (command->call == kPuppetRead) bytes = command->args[1];
  return bytes < kPuppetBytes ? bytes : kPuppetBytes;
}

static long read_back(struct Area* area) {
  const uint64_t bytes = answered_bytes(&area->command);
  copy_bytes((uint64_t)area->bytes, area->command.args[0], bytes);
  area->command.bytes = (uint32_t)bytes;
  return 0;
}

static long load_named_library(const struct Area* area) {
  const char* path = (const char*)area->bytes;
  const char* end = path;
  while (*end != '\0') ++end;
  return load_library(path, end + 1, area->command.args[0]);
}

/* Returns for a thread of the C library, which ends when its start routine returns. */
static void exit_thread(struct Area* area) {
  wipe(area);
  answer(area, 0, 0);
  call3(__NR_close, (uint64_t)area->channel, 0, 0);
#ifdef PUPPET_LIBC
  if (area != areas) return;
#endif
  call3(__NR_exit, 0, 0, 0);
}

/* Executes the command, and returns its result. */
static long perform(struct Area* area, int channel) {
  const uint64_t* args = area->command.args;
  switch (area->command.call) {
    case kPuppetSyscall:
      return plain_syscall(area);
    case kPuppetClock:
      return clock_now(args[0]);
    case kPuppetStore:
      return store(args[0], args[1], args[2], area->bytes);
    case kPuppetLoad:
      return (long)load(args[0], args[1]);
    case kPuppetWrite:
      return copy(args[0], (uint64_t)area->bytes, area->command.bytes, args[1]);
    case kPuppetFill:
      return fill(area, args[0], args[2], args[1]);
    case kPuppetCopy:
      return copy(args[0], args[3], args[2], args[1]);
    case kPuppetAlternate:
      return alternate(args);
    case kPuppetRepeat:
      return repeat(args, area->bytes, area->command.bytes);
    case kPuppetSplit:
      return split(args[0], args[1]);
    case kPuppetCrowd:
      return crowd(args);
    case kPuppetRead:
      return read_back(area);
    case kPuppetFence:
      return fence(args[0]);
    case kPuppetSpin:
      spin(args[0]);
      return 0;
    case kPuppetAwait:
      while (load(args[0], args[1]) != args[2]) machine_pause();
      return 0;
    case kPuppetThread:
      return new_thread(area, channel);
    case kPuppetHandle:
      return handle(args[0], args[1]);
    case kPuppetReturn:
      area->returning = 1;
      return 0;
    case kPuppetFork: {
      const long pid = new_process(area, channel);
      return pid == 0 ? PUPPET_HELLO : pid;
    }
    case kPuppetExec:
      return execute(area);
    case kPuppetSlot:
      return set_slot(args[0], args[1], args[2]);
    case kPuppetSlotAddress:
      return slot_address(args[0]);
    case kPuppetThreadPointer:
      return (long)machine_thread_pointer_now();
    case kPuppetLoadLibrary:
      return load_named_library(area);
    case kPuppetUnload:
      return unload_library(args[0]);
    default:
      return -ENOSYS;
  }
}

static void serve(struct Area* area) {
  while (area->returning == 0) {
    const int channel = receive(area);
    area->busy = 1;
    if (area->command.tells != 0) answer(area, PUPPET_BEGINS, 0);
    if (area->command.call == kPuppetExitThread) {
      exit_thread(area);
      return;
    }
    const long result = perform(area, channel);
    const uint64_t bytes = answered_bytes(&area->command);
    /* The arguments are nowhere else in memory than where the script wants them. */
    if (bytes == 0) wipe(area);
    area->busy = 0;
    answer(area, result, bytes);
    if (bytes != 0) wipe(area);
  }
}

static int number_in(const char* text) {
  int number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) number = number * 10 + (*text - '0');
  return number;
}

#ifdef PUPPET_LIBC
int main(int argc, char** argv) {
  environment = environ;
  struct Area* area = &areas[0];
  area->channel = argc > 1 ? number_in(argv[1]) : moved_up(kPuppetChannel);
  machine_go_to(area->stack + kStackSize, run_thread, area);
}
#else
__attribute__((used)) void machine_main(void* stack) {
  const long count = *(long*)stack;
  char** arguments = (char**)stack + 1;
  environment = arguments + count + 1;
  struct Area* area = &areas[0];
  area->channel = count > 1 ? number_in(arguments[1]) : moved_up(kPuppetChannel);
#ifdef PUPPET_SLOT
  machine_set_thread_pointer(tls_of(area));
#endif
  machine_go_to(area->stack + kStackSize, run_thread, area);
}
#endif
