/* Types and functions shared by the files of the supervisor. Each file uses only those below
 * it:
 *   supervisor_loop.c     loop; begin and end of the launch
 *   supervisor.c          phases of a generation
 *   supervisor_events.c   machines that arrive or are lost, messages of agents
 *   supervisor_members.c  members of a generation, machines that cannot be used
 *   supervisor_network.c  test of the networks between the members
 *   supervisor_peer.c     in-memory copies on a second machine
 *   supervisor_start.c    messages that begin a generation
 *   supervisor_phase.c    messages to machines, changes of phase */
#ifndef LAUNCH_SUPERVISOR_INTERNAL_H
#define LAUNCH_SUPERVISOR_INTERNAL_H

#include "launch/generation.h"
#include "launch/machine.h"
#include "launch/network_proof.h"
#include "launch/policy.h"
#include "launch/standing.h"
#include "launch/supervisor.h"

typedef enum {
  PHASE_GATHER,   /* waiting until enough machines have arrived */
  PHASE_CONNECT,  /* the members are testing the networks between them */
  PHASE_RUN,      /* the workers are running */
  PHASE_STOP,     /* workers were asked to save and stop */
  PHASE_CLEAR,    /* all processes are being killed; waiting for the agents' MSG_CLEAR */
  PHASE_FINISHED, /* the launch is over and `result` is set */
} Phase;

/* The in-memory checkpoint copy that is being transferred to a second machine, and the next one
 * (supervisor_peer.c). */
typedef struct {
  uint64_t copies;    /* number of copies reported so far; numbers the copies */
  uint32_t last_id;   /* id of the last transfer */
  uint32_t id;        /* id of the current transfer; 0: none */
  Channel *from, *to; /* channels of its sender and its receiver */
  uint64_t number;    /* number of the copy being transferred */
  int asked;          /* parts that were requested and have not arrived */
  bool is_warned;     /* a failure has been reported; later ones are not */
  Channel *next_from; /* sender of the next copy; NULL: no copy is waiting */
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
  double
      gather_start; /* time when the wait for machines began; network tests do not change it */
  double announced_wait; /* gather_start of the last wait that was printed; 0: none */
  double last_arrival;
  uint64_t arrivals;  /* number of machines that have connected */
  double last_output; /* time of the last output or report of a rank, for --stall-timeout */
  double start_time;  /* time when the generation began */
  double begun_time;  /* time when its last rank began */
  bool has_run;       /* in an earlier generation ranks have begun */
  Generation generation;
  uint32_t last_good; /* number of the last generation that completed a step; 0: none */
  PeerRelay peer;
  Policy policy;
  bool has_named_logs; /* the log directory was printed, or that there is none */
  double run_time;     /* when rank 0 created or locked the run; 0: not yet */
  int restarts;        /* number of generations begun after the first */
  char reason[512];    /* reason of the last restart */
  double fault_time;   /* time of the last fault; 0 after a worker has completed a step */
  StandingList standing;
  int signals;        /* number of signals received so far */
  bool is_regrouping; /* workers were stopped because machines join or leave */
  double leave_time;  /* time when a member sent MSG_LEAVE; 0: none has */
  bool has_departed;  /* a machine has sent MSG_LEAVE since the last generation began */
  /* Workers were stopped because machines leave and too few can take their place: the launch ends
   * as after a signal. */
  bool lacks_machines;
  Outcome outcome; /* outcome of the generation that is being killed (PHASE_CLEAR) */

  Err result;
  ErrRecord error;
  bool is_reported;
  NetworkProof *proof;          /* network test of PHASE_CONNECT; NULL: none */
  NetworkMachine *proof_member; /* the machines of the test, with copies of their addresses */
  NetworkList *proof_list;
  size_t proof_members;
  char network[NETWORK_TEXT_MAX]; /* CIDR of the network selected last; "": none */
  char refusal[1200];             /* last machine that could not be used, and why; "": none */
  bool is_extended;         /* a machine arrived during the network test, which was repeated */
  double unconnected_since; /* time since which no network connects the members; 0: connected */
  double next_test;         /* time before which no network test begins; 0: at once */

  struct pollfd *fds;
  size_t fd_capacity;
  bool is_closing; /* MSG_END was sent to the agents */
};

#define ID_MPIRUN    1    /* id of mpirun in MSG_START */
#define ID_FIRST_RSH 1000 /* id of a daemon in MSG_START: this number + the id of its MSG_RSH */
#define ID_LAST_RSH  1000000000

/* Functions of supervisor_phase.c: */
/* Sends a message to a machine and frees `body`. If the machine cannot be reached, its channel
 * will report that. */
void supervisor_send(Machine *m, uint8_t type, json_t *body);
void supervisor_enter(Supervisor *s, Phase phase, double now);
/* Ends the launch. Unless `is_reported`, the current error becomes its message. */
void supervisor_finish(Supervisor *s, Err result, bool is_reported);
/* Tells an agent why its machine is not used. */
void supervisor_tell_aside(Machine *m, const char *why);
/* Sends a message that contains only the number of the generation to every machine that takes
 * part in it. */
void supervisor_send_all(Supervisor *s, uint8_t type);
void supervisor_stop_workers(Supervisor *s, double now);
/* Answers a signal of the user, unless the workers have ended. */
void supervisor_say_stopping(Supervisor *s);
/* Lets the workers save and stop because machines join or leave (only in PHASE_RUN). */
void supervisor_regroup(Supervisor *s, const char *why, double now);
/* Lets the workers save and stop because a machine leaves and too few can take its place. */
void supervisor_stop_launch(Supervisor *s, const char *why, double now);
int supervisor_count_ready(const Supervisor *s);
/* Returns true if --nnodes MIN machines take part or may still come. */
bool supervisor_can_gather(const Supervisor *s);
/* The same, without machines that are set aside: they are used again only if a user starts their
 * agents again. */
bool supervisor_can_replace(const Supervisor *s);
/* Returns NULL if no machine has the rank. */
Machine *supervisor_find_machine(Supervisor *s, int rank);
/* Returns the name of a machine that may be blamed for a fault and later be excluded. Returns
 * NULL for this machine (the run directory may be on its disk), for a machine that is leaving,
 * and if fewer than --nnodes machines would remain. */
const char *supervisor_blame(const Supervisor *s, const Machine *m);

/* Functions of supervisor_events.c: */
/* Takes over machines that have arrived. */
NODISCARD Err supervisor_serve_sources(Supervisor *s, double now);
/* Handles messages of machines and their loss. */
void supervisor_serve_machines(Supervisor *s, double now);
void supervisor_remove_machine(Supervisor *s, size_t i, double now);

/* Functions of supervisor_start.c: */
/* Prints the log directory, once, as soon as it has log files; or that the run is not visible here,
 * a minute after rank 0 has created it. */
void supervisor_name_logs(Supervisor *s, double now);
/* Starts the workers on the members, whose addresses must be set. `include`: network for MPI
 * (mpirun.h); NULL if there is one machine. */
NODISCARD Err supervisor_start_generation(Supervisor *s, const char *include, double now);
/* Forwards mpirun's request for a daemon to the machine that it names. */
void supervisor_pass_rsh(Supervisor *s, Machine *from, const json_t *body);

/* Functions of supervisor_members.c: */
/* Chooses the members of a new generation and assigns their ranks. Machines that cannot be
 * used are excluded. Sets *members to 0 if too few remain and the supervisor must wait for
 * others. */
NODISCARD Err supervisor_choose_members(Supervisor *s, int *members);
/* Called after the network test has failed with the current error. Excludes machines that
 * cannot connect to the others; those that took part before are tried again for a while. Fails
 * if the launch cannot continue. */
NODISCARD Err supervisor_exclude_unconnected(Supervisor *s, double now);
/* Called when a generation has ended with status 2 (wrong options) before its first step. If an
 * earlier one completed steps, excludes the machines that were not part of it: with them the
 * run may have too many ranks, or their data or options differ. *excluded: their number. */
NODISCARD Err supervisor_exclude_newcomers(Supervisor *s, int *excluded);
/* Returns a machine that is ready and could take part, but does not; NULL if there is none. */
const Machine *supervisor_find_waiting(const Supervisor *s);

/* Functions of supervisor_network.c: */
/* Starts the test of the networks between the members. */
NODISCARD Err supervisor_begin_proof(Supervisor *s, size_t members, double now);
/* Continues the test. When it is complete, sets the members' addresses and `include`, the
 * network for MPI. */
NODISCARD Err supervisor_continue_proof(Supervisor *s, double now, bool *is_done, char *include,
                                        size_t room);
/* Handles a member's answer in the network test. */
NODISCARD Err supervisor_handle_proof(Supervisor *s, const Machine *m, uint8_t type,
                                      const json_t *body, double now);
void supervisor_end_proof(Supervisor *s);
/* Cancels the test, because the members have changed. */
void supervisor_abandon_proof(Supervisor *s, double now);

/* Functions of supervisor_peer.c: */
/* Called when a worker on `m` has completed an in-memory copy. */
void supervisor_note_copy(Supervisor *s, Machine *m, const json_t *event);
void supervisor_pass_part(Supervisor *s, const Machine *from, const Frame *f);
void supervisor_handle_peer(Supervisor *s, Machine *m, uint8_t type, const json_t *body);
/* Requests further parts, at the speed of the receiver. */
void supervisor_continue_copy(Supervisor *s);
void supervisor_forget_copy(Supervisor *s, const Channel *lost);
void supervisor_cancel_copy(Supervisor *s); /* called when a generation has ended */

#endif
