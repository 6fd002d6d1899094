// Prints the address of the thread-local variable for its threads, and waits for the end of stdin.
//  tls_testee [[local:]LIBRARY...]   loads these late, when the threads already exist; "local:"
//    loads with RTLD_LOCAL and searches in that library
// Lines: "main TID ADDRESS", "thread TID ADDRESS", "untouched TID 0", "ready"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef void* (*AddressOf)(void);

#if defined(OWN_SLOT)
void* ctx_test_slot_address(void);
static AddressOf find(void) { return ctx_test_slot_address; }
static int load(const char* path) { return path == NULL; }
#elif defined(FOREIGN_SLOT)
extern _Thread_local void* ctx_test_slot;
static void* address(void) { return &ctx_test_slot; }
static AddressOf find(void) { return address; }
static int load(const char* path) { return path == NULL; }
#else
static void* where = RTLD_DEFAULT;
static AddressOf find(void) { return (AddressOf)dlsym(where, "ctx_test_slot_address"); }
static int load(const char* path) {
  if (strncmp(path, "local:", 6) != 0) return dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL;
  where = dlopen(path + 6, RTLD_NOW | RTLD_LOCAL);
  return where != NULL;
}
#endif

static sem_t started, loaded, printed;

static void* touches(void* unused) {
  sem_post(&started);
  sem_wait(&loaded);
  printf("thread %d %p\n", gettid(), find()());
  sem_post(&printed);
  pause();
  return unused;
}

static void* leaves_alone(void* unused) {
  printf("untouched %d 0\n", gettid());
  sem_post(&started);
  pause();
  return unused;
}

int main(int argc, char** argv) {
  pthread_t threads[2];
  pthread_create(&threads[0], NULL, touches, NULL);
  pthread_create(&threads[1], NULL, leaves_alone, NULL);
  sem_wait(&started);
  sem_wait(&started);
  for (int i = 1; i < argc; ++i) {
    if (!load(argv[i])) return 2;
  }
  if (find() == NULL) return 3;
  printf("main %d %p\n", gettid(), find()());
  sem_post(&loaded);
  sem_wait(&printed);
  puts("ready");
  fflush(stdout);
  char c;
  while (read(0, &c, 1) > 0) {
  }
  return 0;
}
