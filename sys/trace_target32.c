/* A 32-bit program: names memory, stores to it, execs something that is not there, exits. */
static int call(int nr, int a, int b, int c, int d, int e) {
  int result;
  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(nr), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
                   : "memory");
  return result;
}

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the linker knows it
void _start(void) {
  static const char path[] = "/nonexistent/program";
  static const char* const empty[] = {0};
  static volatile unsigned stored[8] __attribute__((aligned(32)));
  enum { kExit = 1, kExecve = 11, kPrctl = 172, kExecveat = 358 };
  call(kPrctl, 3, 0, 0, 0, 0);
  call(kPrctl, 0x53564d41, 0, 0x1000, (int)stored, (int)path);
  for (unsigned i = 0; i < sizeof stored / sizeof stored[0]; ++i) stored[i] = 1;
  call(kExecve, (int)path, (int)empty, (int)empty, 0, 0);
  call(kExecveat, -100, (int)path, (int)empty, (int)empty, 0);
  call(kExit, 7, 0, 0, 0, 0);
  for (;;) {
  }
}
