/* Shared by the files of the supervisor: supervisor.c (loop, phases) and supervisor_start.c
 * (messages that begin a generation). */
#ifndef LAUNCH_SUPERVISOR_INTERNAL_H
#define LAUNCH_SUPERVISOR_INTERNAL_H

#include "launch/generation.h"
#include "launch/machine.h"
#include "launch/policy.h"
#include "launch/standing.h"
#include "launch/supervisor.h"

typedef enum {
  PHASE_GATHER,   /* waiting for machines */
  PHASE_RUN,      /* workers run */
  PHASE_STOP,     /* workers were asked to save and stop */
  PHASE_CLEAR,    /* everything is being killed; waiting for the agents to confirm */
  PHASE_FINISHED, /* result is set */
} Phase;

/* The in-memory copy that is on its way to a second machine, and the next one (supervisor_peer.c). */
typedef struct {
  uint64_t copies;    /* reported in this launch; numbers them */
  uint32_t last_id;   /* of a transfer */
  uint32_t id;        /* of the one under way; 0: none */
  Channel *from, *to; /* of its machines */
  uint64_t number;    /* of the copy */
  int asked;          /* parts asked for */
  bool is_warned;     /* a failure has been reported */
  Channel *next_from; /* NULL: no copy is waiting */
  char next_dir[FILE_PATH_MAX];
} PeerRelay;

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
  PeerRelay peer;
  Policy policy;
  int restarts;      /* generations begun after the first */
  char reason[512];  /* of the last restart */
  double fault_time; /* of the last fault, until a worker has completed a step; 0: none */
  char faulty[SOURCE_NAME_MAX]; /* the machine that was lost in this generation; "": none */
  StandingList standing;
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
/* supervisor_peer.c */
/* A worker on `m` has completed an in-memory copy. */
void supervisor_note_copy(Supervisor *s, Machine *m, const json_t *event);
void supervisor_pass_part(Supervisor *s, const Machine *from, const Frame *f);
void supervisor_handle_peer(Supervisor *s, Machine *m, uint8_t type, const json_t *body);
void supervisor_continue_copy(Supervisor *s); /* as far as the receiver keeps up */
void supervisor_forget_copy(Supervisor *s, const Channel *lost);
void supervisor_cancel_copy(Supervisor *s); /* when a generation is over */

/* Passes mpirun's wish for a daemon on to the machine it names. */
void supervisor_pass_rsh(Supervisor *s, Machine *from, const json_t *body);

#endif
