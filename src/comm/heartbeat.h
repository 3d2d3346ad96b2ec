/* Heartbeats: several times a second each rank reports to every other rank what its main
 * thread does, how long that may take, and which collectives it has begun. Also ends a run
 * that has failed. Threads: some functions are for the "runner" only, the thread that
 * currently runs the queue of collectives (queue.h); any thread may call the others. Depends
 * on group, sequence, transport. */
#ifndef COMM_HEARTBEAT_H
#define COMM_HEARTBEAT_H

#include <pthread.h>
#include <stdarg.h>

#include "comm/group.h"
#include "comm/sequence.h"

#define PLACE_MAX 96

typedef enum { HEARTBEAT_ALIVE, HEARTBEAT_FAILED } HeartbeatKind;
typedef struct {
  int32_t kind;
  int32_t waiting; /* number of this rank's threads that wait for other ranks */
  uint64_t ticks;  /* incremented at each report of progress */
  double limit;    /* seconds after which the next tick is overdue */
  char place[PLACE_MAX];
  SequenceReport sequence;
} Heartbeat;

/* The state of another rank, as this rank knows it. */
typedef struct {
  Heartbeat latest;
  Heartbeat incoming, outgoing;
  TransportRequest receive, send;
  bool is_sending;
  bool has_failure;      /* the report of this rank's own failure was given to the transport */
  double last_heartbeat; /* time of arrival, by progress_clock() */
  /* Time of the last change of its ticks, or of the last heartbeat while it was waiting. */
  double last_progress;
  double last_tick; /* time of the last change of its ticks */
} Peer;

typedef struct {
  const Group *group;
  const Sequence *sequence;
  Peer *peer; /* (size) state of each rank */
  pthread_mutex_t lock;
  /* Seconds without a heartbeat after which a rank is lost; guarded by lock. */
  double rank_timeout;
  /* This rank's heartbeat; guarded by lock; `sequence` is filled in at sending. */
  Heartbeat own;
  double own_tick;    /* time of the last change of own.ticks; guarded by lock */
  const char *remedy; /* advice at the end of the error for a lost rank; guarded by lock */
  pthread_mutex_t loss_lock; /* held while on_loss runs */
  void (*on_loss)(void *context);
  void *loss_context;
} Heartbeats;

/* Initializes `h`. Call it before the ranks join. */
void heartbeat_init(Heartbeats *h, double rank_timeout, const char *remedy);
/* Starts to receive heartbeats. `group` and `sequence` must outlive `h`. heartbeat_begin and
 * heartbeat_cancel may be called only by the thread that runs the queue (comm/queue.h). */
NODISCARD Err heartbeat_begin(Heartbeats *h, const Group *group, const Sequence *sequence);
/* Cancels pending sends and receives at the end of a run. */
void heartbeat_cancel(Heartbeats *h);
void heartbeat_free(Heartbeats *h);

/* Sets the text that describes what this rank does next, and the seconds until its next
 * report is due. Counts as progress. */
void heartbeat_set_place(Heartbeats *h, double limit, const char *fmt, va_list args);
/* Mark the beginning and the end of a wait of the calling thread for other ranks. */
void heartbeat_begin_wait(Heartbeats *h);
void heartbeat_end_wait(Heartbeats *h);
void heartbeat_set_rank_timeout(Heartbeats *h, double seconds);
double heartbeat_rank_timeout(Heartbeats *h);
void heartbeat_set_remedy(Heartbeats *h, const char *remedy);
const char *heartbeat_remedy(Heartbeats *h);
/* Sets a function that aborts NCCL when a rank is lost; NULL: none. */
void heartbeat_set_on_loss(Heartbeats *h, void (*act)(void *context), void *context);

/* Only the runner may call the functions below, except sleep_seconds. */
Heartbeat heartbeat_own(Heartbeats *h);
/* Returns the time at which rank r last reported progress, by progress_clock() of this rank. */
double heartbeat_last_tick(Heartbeats *h, int r);
/* Sends a heartbeat to rank r, unless the previous one is still being sent. */
void heartbeat_send(Heartbeats *h, int r, const Heartbeat *beat);
/* Returns true if a heartbeat has arrived from rank r, and stores it as `latest`. If the
 * heartbeat reports that r has failed, this process exits without a message: r prints the
 * error. */
bool heartbeat_receive(Heartbeats *h, int r, double now);
/* Reports to all ranks that this rank has failed; it has printed the error, or prints it after
 * this call. Blocks for 0.2 s, and for up to 2 s while a rank that is not known to be lost has not
 * received the report. */
void heartbeat_send_failure(Heartbeats *h);
/* Waits up to half a second and returns true if rank 0 reports a failure too. Rank 0 then
 * prints the error for all ranks. */
bool heartbeat_rank0_fails(Heartbeats *h);

/* Prints the error, reports the failure to all ranks, and ends this process. */
void heartbeat_fail(Heartbeats *h, const char *fmt, ...) PRINTF_LIKE(2, 3)
    __attribute__((noreturn));
void sleep_seconds(double seconds);

#endif
