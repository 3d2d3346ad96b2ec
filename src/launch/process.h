/* Starts processes that are killed when this process ends, and kills its whole process tree.
 * Depends on base, Linux. */
#ifndef LAUNCH_PROCESS_H
#define LAUNCH_PROCESS_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

#define PROCESS_EVENT_FD 3

typedef struct {
  char *const *argv;
  char *const *env; /* environment; NULL: that of this process */
  const char *dir;  /* working directory; NULL: that of this process */
  /* Descriptors for standard input, output and error; -1: /dev/null. The caller keeps them
   * open. */
  int in, out, err;
  int event;              /* becomes descriptor 3 (PROCESS_EVENT_FD); 0 or -1: none */
  const cpu_set_t *cores; /* CPU affinity; NULL: that of this process */
  bool outlives;          /* do not kill the process when the calling thread ends */
} ProcessSpec;

/* Starts argv[0] (a path, or a name searched in PATH) in its own process group, with default
 * signal handling. The kernel kills it when the calling thread ends, unless `outlives`.
 * Failures up to and including exec are returned. */
NODISCARD Err process_start(const ProcessSpec *spec, pid_t *pid);

/* Makes this process the parent of orphans among its descendants, so that all of them can be
 * found and killed. */
NODISCARD Err process_adopt_orphans(void);
/* Sends SIGKILL to all children and returns their number. Their children become children of
 * this process; repeating the call until waitpid reports ECHILD ends the whole tree. */
int process_kill_children(void);
/* Lists children as "pid (command), ..." in at most `room` bytes, for a message. */
void process_list_children(char *out, size_t room);

/* Closes *fd unless it is -1, and sets it to -1. */
void process_close(int *fd);
/* Returns the name of a signal, such as "SIGKILL". */
const char *process_signal_name(int signal_number);
/* Writes "exit status 1" or "killed by SIGKILL". `status` is -1 for a signal. */
void process_describe_end(char *out, size_t room, int status, int signal_number);

#endif
