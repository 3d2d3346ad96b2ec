/* Shared by the files of the supervisor, each of which uses only those further down in this list:
 *   supervisor.c          loop and phases
 *   supervisor_events.c   machines that come and go, messages of agents
 *   supervisor_network.c  test of the networks between the members
 *   supervisor_peer.c     in-memory copies on a second machine
 *   supervisor_phase.c    changes of phase
 *   supervisor_start.c    messages that begin a generation */
#ifndef LAUNCH_SUPERVISOR_INTERNAL_H
#define LAUNCH_SUPERVISOR_INTERNAL_H

#include "launch/generation.h"
#include "launch/machine.h"
#include "launch/network_proof.h"
#include "launch/policy.h"
#include "launch/standing.h"
#include "launch/supervisor.h"

typedef enum {
  PHASE_GATHER,   /* waiting for machines */
  PHASE_CONNECT,  /* the members test the networks between them */
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
  NetworkProof *proof;          /* in PHASE_CONNECT; NULL: none */
  NetworkMachine *proof_member; /* the machines of the proof, copies */
  NetworkList *proof_list;
  size_t proof_members;
  char network[NETWORK_TEXT_MAX]; /* CIDR that was chosen last; "": none */
  double unconnected_since;       /* no network has connected the members since; 0: not so */

  struct pollfd *fds;
  size_t fd_capacity;
};

#define ID_MPIRUN    1    /* id of mpirun in MSG_START */
#define ID_FIRST_RSH 1000 /* ids of its daemons: this + the id of their MSG_RSH */

/* supervisor_phase.c */
void supervisor_enter(Supervisor *s, Phase phase, double now);
/* Ends the launch. Unless `is_reported`, the recorded error is its message. */
void supervisor_finish(Supervisor *s, Err result, bool is_reported);
/* Sends a message without further content to every member. */
void supervisor_send_all(Supervisor *s, uint8_t type);
void supervisor_stop_workers(Supervisor *s, double now);
/* Stops the workers in order because machines join or leave. */
void supervisor_regroup(Supervisor *s, const char *why, double now);
int supervisor_count_ready(const Supervisor *s);
Machine *supervisor_find_machine(Supervisor *s, int rank); /* NULL: the rank has none */

/* supervisor_events.c */
/* Takes machines that arrive. */
NODISCARD Err supervisor_serve_sources(Supervisor *s, double now);
/* Handles messages, and the loss of machines. */
void supervisor_serve_machines(Supervisor *s, double now);
void supervisor_remove_machine(Supervisor *s, size_t i, double now);

/* supervisor_start.c */
/* Sends to a machine; one that cannot be reached is found by its Channel. */
void supervisor_send(Machine *m, uint8_t type, json_t *body);
/* Chooses the members of a new generation and assigns their ranks. */
NODISCARD Err supervisor_choose_members(Supervisor *s, int *members);
/* Starts the workers on the members, whose addresses are set. `include`: the network for MPI; NULL:
 * one machine. */
NODISCARD Err supervisor_start_generation(Supervisor *s, const char *include, double now);
/* Passes mpirun's wish for a daemon on to the machine it names. */
void supervisor_pass_rsh(Supervisor *s, Machine *from, const json_t *body);

/* supervisor_network.c */
/* Begins the test of the networks between the members. */
NODISCARD Err supervisor_begin_proof(Supervisor *s, size_t members, double now);
/* Continues it. When a network was found, sets the members' addresses and `include`, for MPI. */
NODISCARD Err supervisor_continue_proof(Supervisor *s, double now, bool *is_done, char *include,
                                        size_t room);
/* Handles a member's answer. */
NODISCARD Err supervisor_handle_proof(Supervisor *s, const Machine *m, uint8_t type,
                                      const json_t *body, double now);
void supervisor_end_proof(Supervisor *s);
/* Gives the test up: the members have changed. */
void supervisor_abandon_proof(Supervisor *s, double now);

/* supervisor_peer.c */
/* A worker on `m` has completed an in-memory copy. */
void supervisor_note_copy(Supervisor *s, Machine *m, const json_t *event);
void supervisor_pass_part(Supervisor *s, const Machine *from, const Frame *f);
void supervisor_handle_peer(Supervisor *s, Machine *m, uint8_t type, const json_t *body);
void supervisor_continue_copy(Supervisor *s); /* as far as the receiver keeps up */
void supervisor_forget_copy(Supervisor *s, const Channel *lost);
void supervisor_cancel_copy(Supervisor *s); /* when a generation is over */

#endif
