/* The supervisor, on the head: gathers machines, runs generations of workers on them until one
 * ends well or the restart policy gives up, and ends everything. Depends on source, generation,
 * policy, console. */
#ifndef LAUNCH_SUPERVISOR_H
#define LAUNCH_SUPERVISOR_H

#include <stdbool.h>

#include "base/err.h"
#include "launch/console.h"
#include "launch/source.h"

typedef struct {
  const char *const *argv; /* the workers' command: "train", "--data", ... */
  int args;
  int nproc;        /* ranks on each machine, or NPROC_AUTO … of machine.h */
  int min, max;     /* machines; 0: as many as the sources expect */
  int max_restarts; /* failures in a row without progress */
  double join_timeout;
  const char *network; /* --network: a CIDR or a card; NULL: chosen */
  const char *log_dir; /* for messages */
  bool has_terminal;   /* rank 0 draws its status line */
} LaunchSpec;

typedef struct Supervisor Supervisor;

/* The sources are closed by supervisor_close. */
NODISCARD Err supervisor_open(Supervisor **s, const LaunchSpec *spec, Console *console,
                              Source *source, int sources);
/* Runs to the end. ERR_OK: all workers ended well; otherwise the status of the workers (2, 3) or
 * ERR_WORK. *is_reported: the workers or the console have printed the reason already. */
NODISCARD Err supervisor_run(Supervisor *s, bool *is_reported);
void supervisor_close(Supervisor *s);

/* For tests: one round of supervisor_run without waiting for events. `signals`: how many SIGINT or
 * SIGTERM have arrived in all. Returns true when the launch is over. */
bool supervisor_advance(Supervisor *s, double now, int signals);
Err supervisor_result(Supervisor *s, bool *is_reported);

#endif
