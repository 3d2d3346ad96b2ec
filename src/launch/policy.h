/* Decides when to restart after a generation of workers has ended, and which machines to
 * exclude; supervisor.c acts on it. A generation is one attempt to run all workers. Depends on
 * nothing. */
#ifndef LAUNCH_POLICY_H
#define LAUNCH_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* How a generation has ended. */
typedef enum {
  OUTCOME_DONE,      /* every worker has exit status 0 */
  OUTCOME_STATUS,    /* exit status 2 (wrong options) or 3 (stopped and saved): no restart */
  OUTCOME_FAILED,    /* a worker failed or was killed, a machine was lost, or mpirun ended */
  OUTCOME_NO_RANK,   /* a machine failed or was lost before any rank began */
  OUTCOME_NOT_BEGUN, /* failed before the first step, so that it would fail again */
  OUTCOME_FINAL,     /* a worker failed and reported that it would fail again (event_final) */
  OUTCOME_MEMBERS,   /* stopped because machines join or leave, or one cannot take part */
  OUTCOME_USER,      /* stopped by a signal from the user */
} Outcome;

typedef enum {
  POLICY_END,     /* end the launch with the workers' status */
  POLICY_FAIL,    /* end the launch as failed */
  POLICY_RESTART, /* start another generation */
} Decision;

typedef struct {
  int max_restarts;
  int failures;       /* number of failures in a row without progress */
  uint64_t last_step; /* first step of the last generation that completed one; 0: none */
} Policy;

/* Number of restarts that are allowed, even if max_restarts is lower, as long as no rank has
 * begun: until then a command has had no effect that could be repeated. */
#define POLICY_NO_RANK_RESTARTS 3

Decision policy_judge(Policy *p, Outcome outcome);
/* Called when a worker has completed its first step. A later step than in the previous
 * generation shows that training has advanced, so earlier failures are forgotten. */
void policy_note_step(Policy *p, uint64_t step);

/* Returns true if a machine that caused `failures` generations in a row to fail should be
 * excluded, given that `others` remain and at least `min` are needed. */
bool policy_sets_aside(int failures, int others, int min);

/* Arguments of the decision whether a generation may begin. */
typedef struct {
  int min, max;        /* smallest and largest number of machines (--nnodes) */
  int ready;           /* number of machines that are ready */
  bool is_first;       /* no generation has begun yet */
  double waited;       /* seconds since the wait began */
  double since_change; /* seconds since the last machine arrived */
  double join_timeout; /* value of --join-timeout in seconds */
} Gathering;
typedef enum { GATHER_WAIT, GATHER_BEGIN, GATHER_GIVE_UP } GatherDecision;
#define GATHER_LAST_CALL 10.0 /* seconds to wait at the start for machines beyond `min` */
GatherDecision policy_gather(const Gathering *g);

#endif
