/* The workers of one generation (one attempt to run all workers): which have begun, which have
 * ended and how, and the first fault. Contains only state; supervisor.c sends the messages.
 * Depends on policy, source (length of names). */
#ifndef LAUNCH_GENERATION_H
#define LAUNCH_GENERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "launch/policy.h"
#include "launch/source.h"

typedef struct {
  bool has_begun, has_joined, has_ended; /* joined: MPI has started in it */
  int status;                            /* exit status; -1: killed by a signal */
} WorkerState;

typedef struct {
  uint32_t number;
  WorkerState *worker; /* (world) state of each worker */
  int world, begun, joined, ended, ended_well;
  bool has_step;    /* a worker has completed a step */
  bool is_stopping; /* workers were asked to stop, so their exit is not a fault */
  /* A worker that was asked to stop failed instead; `fault` describes it. */
  bool has_failed_stop;
  int passed_status;   /* exit status 2 or 3 of a worker; 0: none */
  double mpirun_ended; /* time when mpirun ended; 0: it is running, or not used */
  int mpirun_status, mpirun_signal;
  /* The first daemon of mpirun that failed before the ranks of its machine began, and that
   * machine; "": no daemon failed, or the machine must not be blamed. */
  char daemon_fault[512];
  char daemon_machine[SOURCE_NAME_MAX];

  bool has_fault;
  char fault[512];    /* a sentence that names rank, machine and reason */
  int fault_rank;     /* rank that failed first; -1: none */
  int reporter;       /* rank whose output contains the reason; -1: none */
  bool is_fault_exit; /* the rank exited by itself, so others may also exit with errors */
  bool is_lost;       /* the connection to a machine was lost */
  char culprit[SOURCE_NAME_MAX]; /* machine that is blamed; "": that of fault_rank, or none */
  bool is_loss; /* a worker reported the failure of another one, for example a stall */
  double fault_time;
  char final
      [900]; /* why a worker ends with an error that a restart would repeat; "": none does */
} Generation;

NODISCARD Err generation_begin(Generation *g, uint32_t number, int world);
void generation_free(Generation *g);

/* Events. Ranks out of range and repeated ends are ignored. `where` is the name of the
 * machine. */
void generation_note_begin(Generation *g, int64_t rank);
void generation_note_joined(Generation *g, int64_t rank);
void generation_note_end(Generation *g, int64_t rank, int status, int signal_number,
                         const char *where, double now);
/* Worker `reporter` has reported that it exits because of `rank`. */
void generation_note_loss(Generation *g, int64_t reporter, int64_t rank, const char *text,
                          double now);
/* A worker has reported that it fails, and would fail again after a restart. */
void generation_note_final(Generation *g, const char *text);
void generation_note_mpirun(Generation *g, int status, int signal_number, double now);
/* Records that a daemon of mpirun on `where` failed before its ranks began. It becomes the fault if
 * mpirun exits too, or the ranks do not begin. `blamed` as in generation_blame_machine. */
void generation_note_daemon(Generation *g, int status, int signal_number, const char *where,
                            const char *blamed);
/* Records that ranks did not begin in time. */
void generation_note_late_start(Generation *g, double limit, int64_t rank, const char *where,
                                const char *blamed, double now);
/* Records that MPI did not start in time in a rank that has begun. */
void generation_note_late_mpi(Generation *g, double limit, int64_t rank, const char *where,
                              double now);
/* Blames the machine for the fault that is recorded next, if it is the first; NULL: no machine. A
 * generation that failed because of a machine, before any rank began, may begin again without
 * it. */
void generation_blame_machine(Generation *g, const char *blamed);
/* Records a fault of any other kind. Only the first fault of a generation is kept. */
void generation_note_fault(Generation *g, double now, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Returns true if a worker failed or was lost after the workers were asked to stop, and rank 0
 * has not exited with status 0 or 3. */
bool generation_has_failed_stop(const Generation *g);
/* Returns true if mpirun ended so long ago that reports of its ranks are no longer under way. */
bool generation_has_lost_mpirun(const Generation *g, double now);
/* Returns true if all workers have ended. */
bool generation_is_over(const Generation *g);
/* Returns true if the remaining workers must be killed now. After a worker has exited by
 * itself, the others get EXIT_GRACE seconds to report their errors. */
bool generation_must_kill(Generation *g, double now);
/* Returns how the generation ended. If no generation had workers before (`is_first`), an error of a
 * worker before the first step, or a start that failed on no particular machine, would happen
 * again: OUTCOME_NOT_BEGUN. */
Outcome generation_outcome(const Generation *g, bool is_first);

#endif
