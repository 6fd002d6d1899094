// A program for the tests of the reader: publishes a process context without a library and has
// threads with records of every kind, good and bad.
//
//   test_target [--context KIND] [--schema TEXT|-] [--keys a,b] [THREAD-KIND...]
//
// Prints "thread KIND TID SLOT" for each thread and "ready". Then executes lines from stdin:
//   grow NAME   appends a key to the map and publishes the longer one
//   schema TEXT publishes another schema version
//   drop        unmaps the context
//   publish     the same as a new one
//   load FILE   dlopens it; prints "loaded" if that worked
//   touch       a new thread that sets the variable of the loaded library
//   leave       the main thread ends, the others continue
//   exec        becomes another program
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

#ifdef CTXCONF_NO_SLOT  // not exported: only a library that is loaded later has it
static __thread void* otel_thread_ctx_v1 = NULL;
#else
__attribute__((visibility("default"))) __thread void* otel_thread_ctx_v1 = NULL;
#endif

struct header {
  char signature[8];
  uint32_t version;
  uint32_t payload_size;
  uint64_t timestamp;
  uint64_t payload;
};

struct record {
  uint8_t trace_id[16];
  uint8_t span_id[8];
  uint8_t valid;
  uint8_t flags;
  uint16_t size;
  uint8_t area[];
};

struct bytes {
  unsigned char data[1 << 16];
  size_t size;
};

enum { kPage = 4096 };

static struct header* g_header;
static const char* g_context = "good";
static char g_schema[256] = "tlsdesc_v1_dev";
static char g_keys[256][64];
static size_t g_key_count;
static struct bytes g_payload[2];
static int g_payload_index;

static void die(const char* what) {
  perror(what);
  exit(1);
}

static void* check(void* p) {
  if (p == MAP_FAILED) die("mmap");
  return p;
}

// A page that nobody fills: whoever reads it waits, from another process too.
static void* silent(void* page) {
  const int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  struct uffdio_api api = {.api = UFFD_API};
  if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0) die("userfaultfd");
  struct uffdio_register area = {.range = {(uintptr_t)page, kPage},
                                 .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (ioctl(fd, UFFDIO_REGISTER, &area) != 0) die("UFFDIO_REGISTER");
  return page;
}

// --- the payload, field by field

static void put_byte(struct bytes* b, unsigned value) {
  if (b->size == sizeof b->data) die("payload");
  b->data[b->size++] = (unsigned char)value;
}

static void put_field(struct bytes* b, unsigned number, const void* data, size_t size) {
  put_byte(b, number << 3 | 2);
  size_t n = size;
  for (; n > 127; n >>= 7) put_byte(b, (n & 127) | 128);
  put_byte(b, (unsigned)n);
  for (size_t i = 0; i < size; ++i) put_byte(b, ((const unsigned char*)data)[i]);
}

static void put_pair(struct bytes* out, unsigned field, const char* key,
                     const struct bytes* value) {
  static struct bytes pair;
  pair.size = 0;
  put_field(&pair, 1, key, strlen(key));
  put_field(&pair, 2, value->data, value->size);
  put_field(out, field, pair.data, pair.size);
}

static void put_text(struct bytes* out, unsigned field, const char* key, const char* text) {
  static struct bytes value;
  value.size = 0;
  put_field(&value, 1, text, strlen(text));
  put_pair(out, field, key, &value);
}

static void put_keys(struct bytes* out) {
  static struct bytes array, element, value;
  array.size = value.size = 0;
  for (size_t i = 0; i < g_key_count; ++i) {
    element.size = 0;
    put_field(&element, 1, g_keys[i], strlen(g_keys[i]));
    put_field(&array, 1, element.data, element.size);
  }
  put_field(&value, 5, array.data, array.size);
  put_pair(out, 2, "threadlocal.attribute_key_map", &value);
}

static struct bytes* make_payload(void) {
  static struct bytes resource;
  struct bytes* out = &g_payload[g_payload_index ^= 1];
  out->size = resource.size = 0;
  put_text(&resource, 1, "service.name", "shop");
  if (strcmp(g_context, "hostile") == 0) {
    put_text(&resource, 1, "\x1b[2Jkey", "a\x1b]0;owned\x07\r\nb\xe2\x80\xae");
  }
  put_field(out, 1, resource.data, resource.size);
  if (strcmp(g_schema, "-") != 0) {
    put_text(out, 2, "threadlocal.schema_version", g_schema);
    if (g_key_count > 0) put_keys(out);
  }
  if (strcmp(g_context, "garbage") == 0) memset(out->data, 0xff, out->size);
  return out;
}

// --- the context

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_BOOTTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

static void* map_named(void) {
  const int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, kPage) != 0) die("memfd_create");
  void* at = check(mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
  close(fd);
  return at;
}

static void store_timestamp(uint64_t value) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  __atomic_store_n(&g_header->timestamp, value, __ATOMIC_SEQ_CST);
}

static void update(void) {
  const struct bytes* payload = make_payload();
  store_timestamp(0);
  g_header->payload = (uintptr_t)payload->data;
  g_header->payload_size = (uint32_t)payload->size;
  if (strcmp(g_context, "huge") == 0) g_header->payload_size = 0xffffffffU;
  if (strcmp(g_context, "unmapped") == 0) g_header->payload = 0xdead0000U;
  if (strcmp(g_context, "stuck") != 0) store_timestamp(now());
}

static void publish(void) {
  if (strcmp(g_context, "none") == 0) return;
  if (strcmp(g_context, "two") == 0) map_named();  // all zero
  g_header = map_named();
  if (strcmp(g_context, "silent") == 0) {
    silent(g_header);
    return;
  }
  // A second mapping may be before or after the first.
  if (strcmp(g_context, "two") == 0) map_named();
  madvise(g_header, kPage, MADV_DONTFORK);
  memcpy(g_header->signature, "OTEL_CTX", 8);
  g_header->version = strcmp(g_context, "version") == 0 ? 3 : 2;
  update();
  prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, g_header, kPage, "OTEL_CTX");
}

static void drop(void) {
  if (g_header != NULL) munmap(g_header, kPage);
  g_header = NULL;
}

// --- the records

// Its last bytes are before a page that cannot be read.
static unsigned char* guarded(size_t pages, size_t before_end) {
  unsigned char* at = check(
      mmap(NULL, (pages + 1) * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (mprotect(at + pages * kPage, kPage, PROT_NONE) != 0) die("mprotect");
  return at + pages * kPage - before_end;
}

static void add_entry(struct record* r, unsigned key, const char* value, size_t length) {
  r->area[r->size++] = (uint8_t)key;
  r->area[r->size++] = (uint8_t)length;
  memcpy(r->area + r->size, value, length);
  r->size = (uint16_t)(r->size + length);
}

static struct record* fill(struct record* r) {
  for (int i = 0; i < 16; ++i) r->trace_id[i] = (uint8_t)(0xa0 + i);
  // The thread's own number: each thread has its own ids.
  const uint32_t tid = (uint32_t)gettid();
  for (int i = 0; i < 8; ++i) r->span_id[i] = (uint8_t)(i < 4 ? 0xb0 : tid >> (8 * (7 - i)));
  r->flags = 1;
  r->valid = 1;
  return r;
}

static struct record* good(void) {
  struct record* r = fill(
      check(mmap(NULL, 32 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
  add_entry(r, 0, "/cart", 5);
  return r;
}

static void* record_of(const char* kind) {
  if (strcmp(kind, "null") == 0) return NULL;
  if (strcmp(kind, "low") == 0) return (void*)2;
  if (strcmp(kind, "kernel") == 0) return (void*)0xffff800000000000U;
  if (strcmp(kind, "unmapped") == 0) return (void*)0xdead0000U;
  if (strcmp(kind, "crossing") == 0) return guarded(1, 10);
  if (strcmp(kind, "bare") == 0) return fill((struct record*)guarded(1, 28));
  if (strcmp(kind, "beyond") == 0) {  // claims more than the page has
    struct record* r = fill((struct record*)guarded(1, 28 + 8));
    add_entry(r, 0, "/cart", 5);
    r->size = 600;
    return r;
  }
  if (strcmp(kind, "silent") == 0) {
    return silent(
        check(mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
  }
  struct record* r = good();
  if (strcmp(kind, "odd") == 0) return memmove((char*)r + 1, r, 64);
  if (strcmp(kind, "invalid") == 0) r->valid = 2;
  if (strcmp(kind, "zero") == 0) memset(r, 0, 24);
  if (strcmp(kind, "half") == 0) memset(r->span_id, 0, 8);
  if (strcmp(kind, "twice") == 0) add_entry(r, 0, "/pay", 4);
  if (strcmp(kind, "index1") == 0) add_entry(r, 1, "one", 3);
  if (strcmp(kind, "cut") == 0) r->size += 1;  // a lone index after the entry
  if (strcmp(kind, "utf8") == 0) add_entry(r, 0, "\xff\x1b[31m", 6);
  if (strcmp(kind, "large") == 0) {
    while (r->size < 65535 - 102)
      add_entry(r, 0,
                "0123456789012345678901234567890123456789"
                "0123456789012345678901234567890123456789"
                "01234567890123456789",
                100);
    add_entry(r, 0, "last", 4);
  }
  return r;
}

static pthread_barrier_t g_ready;

static void* end_at_once(void* nothing) { return nothing; }

static void* run(void* kind) {
  prctl(PR_SET_NAME, kind);
  otel_thread_ctx_v1 = record_of(kind);
  printf("thread %s %d %p\n", (const char*)kind, gettid(), (void*)&otel_thread_ctx_v1);
  fflush(stdout);
  pthread_barrier_wait(&g_ready);
  if (strcmp(kind, "spin") == 0) {
    for (volatile unsigned long i = 0;; ++i) {
    }
  }
  if (strcmp(kind, "brief") == 0) {  // threads that come and go
    for (;;) {
      pthread_t t;
      if (pthread_create(&t, NULL, end_at_once, NULL) == 0) pthread_join(t, NULL);
    }
  }
  for (;;) pause();
  return NULL;
}

static void* (*g_library_address)(void);

static void* run_touch(void* unused) {
  prctl(PR_SET_NAME, "touch");
  *(void**)g_library_address() = good();
  printf("thread touch %d %p\n", gettid(), g_library_address());
  fflush(stdout);
  for (;;) pause();
  return unused;
}

static void obey(char* line) {
  char* space = strchr(line, ' ');
  const char* rest = space == NULL ? "" : space + 1;
  if (space != NULL) *space = '\0';
  if (strcmp(line, "grow") == 0) {
    strncpy(g_keys[g_key_count++], rest, 63);
    update();
  } else if (strcmp(line, "schema") == 0) {
    strncpy(g_schema, rest, sizeof g_schema - 1);
    update();
  } else if (strcmp(line, "drop") == 0) {
    drop();
  } else if (strcmp(line, "publish") == 0) {
    publish();
  } else if (strcmp(line, "load") == 0) {
    void* library = dlopen(rest, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    if (library != NULL) g_library_address = (void* (*)(void))dlsym(library, "slot_address");
    puts(g_library_address == NULL ? "not loaded" : "loaded");
    fflush(stdout);
    return;
  } else if (strcmp(line, "touch") == 0) {
    pthread_t t;
    pthread_create(&t, NULL, run_touch, NULL);
    return;
  } else if (strcmp(line, "leave") == 0) {
    puts("done");
    fflush(stdout);
    syscall(SYS_exit, 0);
  } else if (strcmp(line, "exec") == 0) {
    execlp("sleep", "sleep", "60", (char*)NULL);
  }
  puts("done");
  fflush(stdout);
}

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int i = 1;
  for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
    if (strcmp(argv[i], "--context") == 0) g_context = argv[i + 1];
    if (strcmp(argv[i], "--schema") == 0) strncpy(g_schema, argv[i + 1], sizeof g_schema - 1);
    if (strcmp(argv[i], "--keys") == 0) {
      for (char* key = strtok(argv[i + 1], ","); key != NULL && g_key_count < 256;
           key = strtok(NULL, ",")) {
        strncpy(g_keys[g_key_count++], key, 63);
      }
    }
  }
  publish();
  pthread_barrier_init(&g_ready, NULL, (unsigned)(argc - i + 1));
  for (; i < argc; ++i) {
    pthread_t t;
    if (pthread_create(&t, NULL, run, argv[i]) != 0) die("pthread_create");
  }
  pthread_barrier_wait(&g_ready);
  puts("ready");
  fflush(stdout);
  char line[4096];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    obey(line);
  }
  return 0;
}
