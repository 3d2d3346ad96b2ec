/* The supervisor, on the head: waits for machines, runs generations of workers on them until
 * one succeeds or the restart policy gives up, and ends everything. Depends on source,
 * generation, policy, console. */
#ifndef LAUNCH_SUPERVISOR_H
#define LAUNCH_SUPERVISOR_H

#include <stdbool.h>

#include "base/err.h"
#include "launch/console.h"
#include "launch/source.h"

typedef struct {
  const char *const *argv; /* command of the workers: "train", "--data", ... */
  int args;
  int nproc;    /* ranks on each machine: a number, or NPROC_AUTO and others of machine.h */
  int min, max; /* value of --nnodes; 0: as many as the sources expect */
  /* Number of failures in a row without progress after which the ranks are still restarted; one
   * more ends the launch. */
  int max_restarts;
  double join_timeout;
  double stall_timeout; /* value of --stall-timeout in seconds; 0: no limit */
  double start_timeout; /* seconds within which all ranks must begin after mpirun was started */
  /* Seconds within which MPI must have started after all ranks have begun; 0: no limit, for
   * commands that may not use MPI. */
  double mpi_timeout;
  const char *network; /* value of --network, a CIDR or a card; NULL: select automatically */
  const char *log_dir; /* log directory, for messages */
  bool has_terminal;   /* standard error is a terminal, so rank 0 prints its status line */
} LaunchSpec;

typedef struct Supervisor Supervisor;

/* supervisor_close closes the sources. */
NODISCARD Err supervisor_open(Supervisor **s, const LaunchSpec *spec, Console *console,
                              Source *source, int sources);
/* Runs the launch to its end. Returns ERR_OK if all workers succeeded, otherwise the status of
 * the workers (2, 3) or ERR_WORK. *is_reported: the workers or the console have already printed
 * the reason. */
NODISCARD Err supervisor_run(Supervisor *s, bool *is_reported);
/* Sends MSG_END to the agents and waits at most `limit` seconds until they have closed their
 * channels. supervisor_close calls it too. */
void supervisor_end_agents(Supervisor *s, double limit);
void supervisor_close(Supervisor *s);

/* For tests: one iteration of supervisor_run without waiting for events. `signals`: number of
 * signals received so far. Returns true when the launch is over. */
bool supervisor_advance(Supervisor *s, double now, int signals);
Err supervisor_result(Supervisor *s, bool *is_reported);

#endif
