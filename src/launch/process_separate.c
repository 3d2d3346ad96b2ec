/* Runs the program in a child of a small supervising parent, like the init programs of
 * containers (tini). Depends on process.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "launch/process.h"

/* Converts the child's exit status to an Err, which main.c uses as exit status. */
static Err judge_status(int wait_status) {
  char end[64];
  bool is_killed = WIFSIGNALED(wait_status);
  int status = is_killed ? -1 : WEXITSTATUS(wait_status);
  if (status == ERR_OK) return ERR_OK;
  process_describe_end(end, sizeof end, status, is_killed ? WTERMSIG(wait_status) : 0);
  if (!is_killed) log_mute(); /* do not print an error: the child has printed it */
  bool is_known = status == ERR_USAGE || status == ERR_STOPPED;
  return err_set(is_known ? (Err)status : ERR_WORK, "the agent's process ended: %s", end);
}

/* Reaps all children until `child` has ended, and forwards signals to it. `set`: the forwarded
 * signals, which must be blocked. */
static Err await_child(pid_t child, const sigset_t *set) {
  for (;;) {
    siginfo_t info;
    int wait_status;
    pid_t ended;
    int signal_number = sigwaitinfo(set, &info);
    if (signal_number < 0) continue; /* interrupted by a signal */
    if (signal_number != SIGCHLD) kill(child, signal_number);
    while ((ended = waitpid(-1, &wait_status, WNOHANG)) > 0)
      if (ended == child) return judge_status(wait_status);
  }
}

/* The child gets its own process group, so that signals of a terminal reach it only once,
 * through the parent. */
static Err enter_child(pid_t parent, const sigset_t *mask) {
  if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
    return err_errno("cannot create a process group or set the parent-death signal for",
                     "the agent's process");
  if (getppid() != parent) raise(SIGKILL); /* the parent ended before prctl */
  sigprocmask(SIG_SETMASK, mask, NULL);
  return ERR_OK;
}

Err process_separate(bool *is_parent) {
  static const int passed_on[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
  sigset_t set;
  sigset_t mask;
  *is_parent = false;
  if (getpid() != 1 && !process_has_children()) return ERR_OK;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++)
    sigaddset(&set, passed_on[i]);
  signal(SIGUSR1, SIG_IGN);
  sigprocmask(SIG_BLOCK, &set, &mask);
  fflush(NULL); /* flush before fork, so that buffered output is not printed twice */
  pid_t parent = getpid();
  pid_t child = fork();
  if (child < 0) return err_errno("cannot fork for", "the agent");
  if (child == 0) return enter_child(parent, &mask);
  *is_parent = true;
  return await_child(child, &set);
}
