/* Starts processes that are killed when this process ends, and kills its whole process tree
 * (process.c). process_separate.c keeps processes of other origin out of that tree. Depends on
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
  char *const *env; /* environment; NULL: that of this process */
  const char *dir;  /* working directory; NULL: that of this process */
  /* Descriptors for standard input, output and error; -1: /dev/null. The caller keeps them
   * open. */
  int in, out, err;
  int event;              /* becomes descriptor 3 (PROCESS_EVENT_FD); 0 or -1: none */
  const cpu_set_t *cores; /* CPU affinity; NULL: that of this process */
  bool outlives;          /* do not kill the process when the calling thread ends */
  bool blocks_stops;      /* SIGTERM and SIGUSR1 stay blocked in the process */
} ProcessSpec;

/* Starts argv[0] (a path, or a name searched in PATH) in its own process group, with SIGHUP
 * ignored and default handling of all other signals, except as `blocks_stops` says. The kernel kills
 * it when the calling thread ends, unless `outlives`. Blocks until exec has succeeded or failed; failures are returned. */
NODISCARD Err process_start(const ProcessSpec *spec, pid_t *pid);
/* process_start without blocking: on a file server that does not answer, chdir and exec may
 * block for ever. Sets *start to a descriptor for process_check_start. */
NODISCARD Err process_begin(const ProcessSpec *spec, pid_t *pid, int *start);
/* Reads the result of exec from *start, which the caller polls for POLLIN. Sets *is_known when exec
 * has succeeded, or failed with the error that is returned; then *start is closed. Blocks unless
 * *start has O_NONBLOCK. */
NODISCARD Err process_check_start(int *start, bool *is_known);

/* Makes this process the parent of orphans among its descendants, so that all of them can be
 * found and killed. */
NODISCARD Err process_adopt_orphans(void);
/* Forks if this process has, or may get, children that it did not start: process 1 of a container
 * is given every orphan of the container, and `exec` in a shell keeps the shell's children. The
 * child has no other children than those it starts, so that it may kill all of them.
 *   *is_parent false  in the child, or no child was needed: continue
 *   *is_parent true   in the parent, after the child has ended; returns the child's exit status as
 *                     an Err, whose message the child has printed
 * Until then the parent forwards SIGINT, SIGTERM and SIGHUP to the child and reaps orphans. */
NODISCARD Err process_separate(bool *is_parent);
bool process_has_children(void); /* true also if there are only zombies */
/* Sends SIGKILL to all children and returns their number. Their children become children of
 * this process; repeating the call until waitpid reports ECHILD ends the whole tree. */
int process_kill_children(void);
/* Lists children as "pid (command), ..." in at most `room` bytes, for a message. */
void process_list_children(char *out, size_t room);

/* The lines that a process prints, read from a non-blocking descriptor. */
#define PROCESS_LINE_MAX 1024
typedef struct {
  int fd;                       /* descriptor; -1: closed, because the output has ended */
  char bytes[PROCESS_LINE_MAX]; /* bytes that were read, but not returned as a line yet */
  size_t len;
} ProcessLines;

/* Copies the next line, without its line break, to `line`; a line that is too long is returned
 * in pieces. Returns false if there is no line now. Closes the descriptor at the end of the
 * output. */
bool process_next_line(ProcessLines *l, char line[PROCESS_LINE_MAX + 1]);
/* Closes *fd unless it is -1, and sets it to -1. */
void process_close(int *fd);
/* Returns the name of a signal, such as "SIGKILL". */
const char *process_signal_name(int signal_number);
/* Writes "exit status 1" or "killed by SIGKILL". `status` is -1 for a signal. */
void process_describe_end(char *out, size_t room, int status, int signal_number);

#endif
