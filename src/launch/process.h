/* Starts processes whose lives are tied to this one, and ends everything below it. Depends on
 * base, Linux. */
#ifndef LAUNCH_PROCESS_H
#define LAUNCH_PROCESS_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

#define PROCESS_EVENT_FD 3

typedef struct {
  char *const *argv;
  char *const *env;       /* NULL: this process's */
  const char *dir;        /* working directory; NULL: this process's */
  int in, out, err;       /* descriptors for 0, 1 and 2; -1: /dev/null. They stay open here. */
  int event;              /* descriptor for 3 (PROCESS_EVENT_FD); 0 or -1: none */
  const cpu_set_t *cores; /* NULL: this process's */
  bool outlives;          /* not killed when the calling thread ends */
} ProcessSpec;

/* Starts argv[0] (a path, or a name in PATH) in a process group of its own, with default signal
 * handling. The kernel kills it when the calling thread ends, unless `outlives`. Failures up to and including the
 * exec are returned here. */
NODISCARD Err process_start(const ProcessSpec *spec, pid_t *pid);

/* Makes orphans of this process's descendants its own children, so that none escapes. */
NODISCARD Err process_adopt_orphans(void);
/* Kills all children with SIGKILL; children of these become children of this process, so calling
 * it until waitpid reports ECHILD ends the whole tree. Returns how many it signalled. */
int process_kill_children(void);
/* Names up to `room` children as "pid (command), ..." for a message. */
void process_list_children(char *out, size_t room);

/* Closes a descriptor that is open, and sets it to -1. */
void process_close(int *fd);
/* The signal's name: "SIGKILL". */
const char *process_signal_name(int signal_number);
/* "exit status 1" or "killed by SIGKILL". `status` is -1 for a signal. */
void process_describe_end(char *out, size_t room, int status, int signal_number);

#endif
