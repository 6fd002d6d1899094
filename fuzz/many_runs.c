// For scripts/hostile-files: preloaded into ctxconf, it runs main() in a child for each line of
// standard input. A child costs far less than a new process, which loads libraries, starts
// sanitizers and reads the catalogue.
//
// A line is USER\0FOLDER\0ERRORS\0WORD\0...WORD\0: the user and group to run as, or nothing; the
// working directory; the file for standard error; the command line. A run as another user has
// namespaces of its own for processes, mounts and networks, and ends with 128 plus the number of a
// signal, as under a shell. The answer is a line with the pid, and after the end one with the wait
// status, the microseconds of user and system time, and the KiB of memory.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMostWords = 256, kCpuSeconds = 20 };

typedef int Main(int, char**, char**);
typedef int StartMain(Main*, int, char**, void (*)(void), void (*)(void), void (*)(void), void*);
static Main* ctxconf;

static void must(int done) {
  if (done >= 0) return;
  perror("many_runs");
  _exit(125);
}

static void redirect(const char* path, int flags, int to) {
  const int fd = open(path, flags, 0600);
  must(fd);
  must(dup2(fd, to));
  if (fd != to) close(fd);
}

// Goes on in a child that sees only processes of its own.
static void confine(uid_t user) {
  must(unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET));
  const pid_t pid = fork();
  must(pid);
  if (pid != 0) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) must(errno == EINTR ? 0 : -1);
    _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  }
  must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
  must(mount("proc", "/proc", "proc", 0, NULL));
  must(setgroups(0, NULL));
  must(setresgid(user, user, user));
  must(setresuid(user, user, user));
  must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  // A new user id clears both; without the first the files of /proc/self belong to root.
  must(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
  must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
}

static void child(char* line, size_t size) {
  char* words[kMostWords + 1];
  int count = 0;
  for (char* at = line; at < line + size && count < kMostWords; at += strlen(at) + 1) {
    words[count++] = at;
  }
  words[count] = NULL;
  if (count < 4) _exit(125);
  must(setsid());
  must(chdir(words[1]));
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect("/dev/null", O_WRONLY, STDOUT_FILENO);
  redirect(words[2], O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  const struct rlimit cpu = {kCpuSeconds, kCpuSeconds + 5};
  const struct rlimit core = {0, 0};
  must(setrlimit(RLIMIT_CPU, &cpu));
  must(setrlimit(RLIMIT_CORE, &core));
  if (words[0][0] != 0) confine((uid_t)strtoul(words[0], NULL, 10));
  exit(ctxconf(count - 3, words + 3, environ));
}

static int many_runs(int argc, char** argv, char** env) {
  (void)argc;
  unsetenv("LD_PRELOAD");
  const int answers = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 100);
  must(answers);
  redirect("/dev/null", O_WRONLY, STDOUT_FILENO);
  char list[] = "list";
  char* warm[] = {argv[0], list, NULL};  // reads the catalogue
  if (ctxconf(2, warm, env) != 0) _exit(125);
  char* line = NULL;
  size_t room = 0;
  for (ssize_t size = 0; (size = getline(&line, &room, stdin)) > 0;) {
    line[size - 1] = 0;
    const pid_t pid = fork();
    must(pid);
    if (pid == 0) child(line, (size_t)size - 1);
    dprintf(answers, "%d\n", pid);
    int status = 0;
    struct rusage used;
    siginfo_t ended;
    while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) < 0) must(errno == EINTR ? 0 : -1);
    kill(-pid, SIGKILL);  // what it started, while no other process can have its id
    while (wait4(pid, &status, 0, &used) < 0) must(errno == EINTR ? 0 : -1);
    dprintf(answers, "%d %ld %ld %ld\n", status,
            used.ru_utime.tv_sec * 1000000 + used.ru_utime.tv_usec,
            used.ru_stime.tv_sec * 1000000 + used.ru_stime.tv_usec, used.ru_maxrss);
  }
  _exit(0);
}

int __libc_start_main(Main* main, int argc, char** argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void* stack_end) {
  StartMain* start = NULL;
  *(void**)&start = dlsym(RTLD_NEXT, "__libc_start_main");
  if (start == NULL) _exit(125);
  ctxconf = main;
  return start(many_runs, argc, argv, init, fini, rtld_fini, stack_end);
}
