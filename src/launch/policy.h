/* When to restart after a generation of workers has ended, and which machines to leave out. Only
 * decisions; supervisor.c carries them out. Depends on nothing. */
#ifndef LAUNCH_POLICY_H
#define LAUNCH_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* How a generation ended. */
typedef enum {
  OUTCOME_DONE,      /* every worker: exit status 0 */
  OUTCOME_STATUS,    /* exit status 2 (wrong options) or 3 (stopped and saved): not repeated */
  OUTCOME_FAILED,    /* a worker failed or was killed, a machine was lost, mpirun ended */
  OUTCOME_NOT_BEGUN, /* failed in a way that would repeat: the run or its MPI never began */
  OUTCOME_MEMBERS,   /* stopped because machines join or leave */
  OUTCOME_USER,      /* stopped by the user's signal */
} Outcome;

typedef enum {
  POLICY_END,     /* the launch is over, with the workers' status */
  POLICY_FAIL,    /* the launch is over and has failed */
  POLICY_RESTART, /* begin another generation */
} Decision;

typedef struct {
  int max_restarts;
  int failures;       /* in a row, without a later step in between */
  uint64_t last_step; /* the first step of the last generation that made one; 0: none yet */
} Policy;

Decision policy_judge(Policy *p, Outcome outcome);
/* A worker has completed its first step. A later one than that of the generation before shows that
 * the state saved in between was advanced, so earlier failures no longer count. */
void policy_note_step(Policy *p, uint64_t step);

/* Should a machine that has failed `failures` generations in a row be left out, if `others` remain
 * and at least `min` are needed? */
bool policy_sets_aside(int failures, int others, int min);

/* May a generation begin? */
typedef struct {
  int min, max;        /* machines */
  int ready;           /* machines that can be used now */
  bool is_first;       /* no generation has begun before */
  double waited;       /* seconds since waiting began */
  double since_change; /* seconds since the last machine arrived */
  double join_timeout; /* seconds */
} Gathering;
typedef enum { GATHER_WAIT, GATHER_BEGIN, GATHER_GIVE_UP } GatherDecision;
#define GATHER_LAST_CALL 10.0 /* seconds to wait for machines beyond `min` at the start */
GatherDecision policy_gather(const Gathering *g);

#endif
