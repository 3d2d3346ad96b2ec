/* Runs a program with two pipes and a time limit. Depends on command.h, POSIX. */
#include "launch/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/progress.h"

/* Runs in the child process between fork and exec; calls only async-signal-safe functions. */
static void become_command(const char *const *argv, int out, int err) {
  int null = open("/dev/null", O_RDONLY);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL); /* unblock all signals, because agents block some */
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_DFL);
  if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(127);
  execvp(argv[0], (char *const *)argv);
  _exit(127);
}

/* Appends the bytes that can be read without blocking; returns false at the end of the
 * stream. */
static bool read_some(int fd, Str *into) {
  char bytes[4096];
  ssize_t n = read(fd, bytes, sizeof bytes);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  size_t room = into->len < COMMAND_OUTPUT_MAX ? COMMAND_OUTPUT_MAX - into->len : 0;
  str_addn(into, bytes, (size_t)n < room ? (size_t)n : room);
  return true;
}

/* Reads both streams until they end or the deadline has passed; returns true if they ended. */
static bool read_streams(int fd[2], CommandResult *r, double deadline) {
  Str *into[2] = {&r->out, &r->err};
  while (fd[0] >= 0 || fd[1] >= 0) {
    double left = deadline - progress_clock();
    if (left <= 0) return false;
    struct pollfd polls[2] = {{.fd = fd[0], .events = POLLIN}, {.fd = fd[1], .events = POLLIN}};
    if (poll(polls, 2, left < 60 ? (int)(left * 1000) + 1 : 60000) < 0 && errno != EINTR)
      return false;
    for (int i = 0; i < 2; i++) {
      if (fd[i] < 0 || !polls[i].revents || read_some(fd[i], into[i])) continue;
      close(fd[i]);
      fd[i] = -1;
    }
  }
  return true;
}

static Err open_pipes(int out[2], int err[2]) {
  if (pipe2(out, O_CLOEXEC) != 0) return err_errno("cannot create", "a pipe");
  if (pipe2(err, O_CLOEXEC) == 0) return ERR_OK;
  Err failed = err_errno("cannot create", "a pipe");
  close(out[0]);
  close(out[1]);
  return failed;
}

/* Waits for the end of the process; returns false if the deadline has passed. */
static bool wait_for_end(pid_t pid, int *status, double deadline) {
  while (waitpid(pid, status, WNOHANG) == 0) {
    if (progress_clock() >= deadline) return false;
    poll(NULL, 0, 5);
  }
  return true;
}

Err command_run(const char *const *argv, double seconds, CommandResult *r) {
  *r = (CommandResult){0};
  int out[2], err[2], status = 0;
  double deadline = progress_clock() + seconds;
  TRY(open_pipes(out, err));
  pid_t pid = fork();
  if (pid == 0) become_command(argv, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  int fd[2] = {out[0], err[0]};
  /* Parent and child both call setpgid, because either may run first. */
  if (pid > 0) setpgid(pid, pid);
  bool ended = pid > 0 && read_streams(fd, r, deadline) && wait_for_end(pid, &status, deadline);
  for (int i = 0; i < 2; i++)
    if (fd[i] >= 0) close(fd[i]);
  if (pid < 0) return err_errno("cannot start", argv[0]);
  if (!ended) {
    kill(-pid, SIGKILL);
    waitpid(pid, &status, 0);
  }
  r->is_timed_out = !ended;
  r->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return ERR_OK;
}

void command_free(CommandResult *r) {
  str_free(&r->out);
  str_free(&r->err);
}

static bool copy_last_line(const Str *text, char *out, size_t size) {
  size_t end = text->len;
  while (end > 0 && strchr(" \t\r\n", text->s[end - 1])) end--;
  size_t begin = end;
  while (begin > 0 && text->s[begin - 1] != '\n') begin--;
  if (begin == end) return false;
  size_t n = end - begin < size ? end - begin : size - 1;
  memcpy(out, text->s + begin, n);
  out[n] = '\0';
  return true;
}

void command_last_line(const CommandResult *r, char *out, size_t size) {
  out[0] = '\0';
  if (!copy_last_line(&r->err, out, size)) copy_last_line(&r->out, out, size);
}
