/* Shared by the files of the supervisor: supervisor.c (loop, phases) and supervisor_start.c
 * (messages that begin a generation). */
#ifndef LAUNCH_SUPERVISOR_INTERNAL_H
#define LAUNCH_SUPERVISOR_INTERNAL_H

#include "launch/generation.h"
#include "launch/machine.h"
#include "launch/policy.h"
#include "launch/supervisor.h"

typedef enum {
  PHASE_GATHER,   /* waiting for machines */
  PHASE_RUN,      /* workers run */
  PHASE_STOP,     /* workers were asked to save and stop */
  PHASE_CLEAR,    /* everything is being killed; waiting for the agents to confirm */
  PHASE_FINISHED, /* result is set */
} Phase;

struct Supervisor {
  LaunchSpec spec;
  Console *console;
  Source *source;
  int sources;
  Machine *machine;
  size_t machines, machine_capacity;

  Phase phase;
  double phase_start;
  double last_arrival;
  Generation generation;
  Policy policy;
  int restarts;      /* generations begun after the first */
  char reason[512];  /* of the last restart */
  double fault_time; /* of the last fault, until a worker has completed a step; 0: none */
  int fault_machine_failures;
  int signals;        /* received so far */
  bool is_regrouping; /* stopped because machines join or leave */
  Outcome outcome;    /* of the generation that is being cleared */

  Err result;
  ErrRecord error;
  bool is_reported;
  struct pollfd *fds;
  size_t fd_capacity;
};

#define ID_MPIRUN    1    /* id of mpirun in MSG_START */
#define ID_FIRST_RSH 1000 /* ids of its daemons: this + the id of their MSG_RSH */

/* Sends to a machine; one that cannot be reached is found by its Channel. */
void supervisor_send(Machine *m, uint8_t type, json_t *body);
/* Assigns the ranks of a new generation to the machines that are ready, and starts them. */
NODISCARD Err supervisor_start_generation(Supervisor *s, double now);
/* Passes mpirun's wish for a daemon on to the machine it names. */
void supervisor_pass_rsh(Supervisor *s, Machine *from, const json_t *body);

#endif
