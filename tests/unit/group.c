/* Runs the unit tests of several files in one process, one file after the other. The arguments are
 * the names of the files, whose functions main have these names here (see unit_group in the Makefile).
 * Each file begins with the environment, the working directory, the limits of files and the signal
 * handlers that the process had at its start. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIGNALS 32 /* the standard ones; the tests use no others */

typedef struct {
  char **environment;
  int directory;
  struct rlimit open_files, file_size;
  mode_t mask;
  sigset_t blocked;
  struct sigaction handlers[SIGNALS];
} Start;

static char **copy_environment(void) {
  size_t n = 0;
  while (environ[n] != NULL) n++;
  char **copy = calloc(n + 1, sizeof *copy);
  for (size_t i = 0; copy != NULL && i < n; i++) copy[i] = strdup(environ[i]);
  return copy;
}

static void save_start(Start *s) {
  s->environment = copy_environment();
  s->directory = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  getrlimit(RLIMIT_NOFILE, &s->open_files);
  getrlimit(RLIMIT_FSIZE, &s->file_size);
  s->mask = umask(0);
  umask(s->mask);
  sigprocmask(SIG_SETMASK, NULL, &s->blocked);
  for (int i = 1; i < SIGNALS; i++) sigaction(i, NULL, &s->handlers[i]);
}

static void restore_start(const Start *s) {
  clearenv();
  for (char **e = s->environment; *e != NULL; e++) putenv(*e);
  if (fchdir(s->directory) != 0) {
    fprintf(stderr, "cannot return to the working directory: %s\n", strerror(errno));
    exit(1);
  }
  alarm(0);
  setrlimit(RLIMIT_NOFILE, &s->open_files);
  setrlimit(RLIMIT_FSIZE, &s->file_size);
  umask(s->mask);
  sigprocmask(SIG_SETMASK, &s->blocked, NULL);
  for (int i = 1; i < SIGNALS; i++)
    if (i != SIGKILL && i != SIGSTOP) sigaction(i, &s->handlers[i], NULL);
}

int main(int argc, char **argv) {
  static Start start;
  int failed = 0;
  save_start(&start);
  for (int i = 1; i < argc; i++) {
    int (*run)(int, char **) = (int (*)(int, char **))dlsym(RTLD_DEFAULT, argv[i]);
    if (run == NULL) {
      fprintf(stderr, "there is no unit test %s in this program\n", argv[i]);
      return 1;
    }
    printf("# %s\n", argv[i]);
    fflush(stdout);
    if (run(1, (char *[]){argv[i], NULL}) != 0) failed++;
    fflush(stdout);
    restore_start(&start);
  }
  printf("# all files have run\n"); /* run-tests looks for this line */
  return failed > 0;
}
