/* Threads that attach records of their own, in C with nothing else than libc and the slot of
 * slot_library.c, which is linked to the program or opened while it runs.
 *
 * usage: attaching_threads PAYLOAD [LIBRARY|-] [exec]
 *
 * Publishes what is in the file PAYLOAD. LIBRARY is opened after the first of two threads has
 * begun; without it the slot is the linked one. Prints the address of the slot of each thread and
 * its id, and waits for the end of its input. With BAD=word in the environment it breaks a
 * requirement; with exec it executes itself before it publishes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "writer_ref/otel_ctx.h"

void* slot_place(void) __attribute__((weak));
void* slot_exchange(void* record) __attribute__((weak));

struct record {
  _Alignas(8) unsigned char bytes[64];
};

static void* (*place)(void);
static void* (*exchange)(void* record);
static const char* bad;
static pthread_barrier_t loaded, attached, over;
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static int is_bad(const char* word) { return bad != NULL && strcmp(bad, word) == 0; }

static void attach(int number) {
  static struct record records[3];
  unsigned char* const r = records[number].bytes + (is_bad("misaligned") ? 1 : 0);
  memset(r, 0x10 + number, 16);     /* trace id */
  memset(r + 16, 0x20 + number, 8); /* span id */
  if (is_bad("ids")) memset(r + 16, 0, 8);
  r[24] = 1;
  r[25] = 1;
  r[26] = 2 + 4;
  r[28] = is_bad("key") ? 9 : 0;
  r[29] = 4;
  memcpy(r + 30, "/pay", 4);
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  exchange(r);
  pthread_mutex_lock(&printing);
  printf("thread %d tid=%ld slot=%p\n", number, syscall(SYS_gettid), place());
  fflush(stdout);
  pthread_mutex_unlock(&printing);
}

static void* run(void* argument) {
  pthread_barrier_wait(&loaded);
  attach(*(int*)argument);
  pthread_barrier_wait(&attached);
  pthread_barrier_wait(&over);
  exchange(NULL);
  return NULL;
}

static int publish(const char* path) {
  static char payload[4096];
  FILE* const file = fopen(path, "r");
  if (file == NULL) return 1;
  const size_t size = fread(payload, 1, sizeof payload, file);
  fclose(file);
  return otel_ctx_publish(payload, size, NULL) != OTEL_CTX_OK;
}

static int open_library(const char* path) {
  void* const library = dlopen(path, RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  *(void**)&place = dlsym(library, "slot_place");
  *(void**)&exchange = dlsym(library, "slot_exchange");
  return place == NULL || exchange == NULL;
}

int main(int argc, char** argv) {
  static int numbers[3] = {0, 1, 2};
  pthread_t before, after;
  if (argc < 2) return 2;
  if (argc > 3) {
    argv[3] = NULL;
    execv("/proc/self/exe", argv);
    return 1;
  }
  bad = getenv("BAD");
  if (publish(argv[1]) != 0) return 3;
  pthread_barrier_init(&loaded, NULL, 3);
  pthread_barrier_init(&attached, NULL, 3);
  pthread_barrier_init(&over, NULL, 3);
  pthread_create(&before, NULL, run, &numbers[1]);
  place = slot_place;
  exchange = slot_exchange;
  if (argc > 2 && strcmp(argv[2], "-") != 0 && open_library(argv[2]) != 0) return 4;
  if (exchange == NULL) return 4;
  pthread_create(&after, NULL, run, &numbers[2]);
  pthread_barrier_wait(&loaded);
  attach(0);
  pthread_barrier_wait(&attached);
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {
  }
  pthread_barrier_wait(&over);
  exchange(NULL);
  pthread_join(before, NULL);
  pthread_join(after, NULL);
  return 0;
}
