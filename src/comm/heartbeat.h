/* Heartbeats: several times a second each rank reports to every other what its main thread does,
 * how long that may take, and which collectives it has begun. Also the end of a run that has
 * failed. Threads: "runner" marks functions for the one thread that runs collectives at this
 * moment (queue.h); any thread may call the others. Depends on group, sequence, transport. */
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
  int32_t waiting; /* threads that wait for other ranks */
  uint64_t ticks;  /* grows whenever the rank has finished something */
  double limit;    /* seconds until the next tick is overdue */
  char place[PLACE_MAX];
  SequenceReport sequence;
} Heartbeat;

/* Another rank, as seen by this one. */
typedef struct {
  Heartbeat latest;
  Heartbeat incoming, outgoing;
  TransportRequest receive, send;
  bool is_sending;
  double last_heartbeat; /* clock */
  double last_progress; /* clock: last change of its ticks, or last heartbeat while it waited */
  double last_tick;     /* clock: last change of its ticks */
} Peer;

typedef struct {
  const Group *group;
  const Sequence *sequence;
  Peer *peer; /* (size) */
  pthread_mutex_t lock;
  double rank_timeout;       /* seconds without heartbeat: the rank is lost; guarded by lock */
  Heartbeat own;             /* guarded by lock; `sequence` is filled in when it is sent */
  double own_tick;           /* clock: last change of own.ticks; guarded by lock */
  const char *remedy;        /* remedy in the error for a lost rank; guarded by lock */
  pthread_mutex_t loss_lock; /* held while on_loss runs */
  void (*on_loss)(void *context);
  void *loss_context;
} Heartbeats;

/* Initializes the struct; call it before the ranks have joined. */
void heartbeat_init(Heartbeats *h, double rank_timeout, const char *remedy);
/* Starts to receive heartbeats. `group` and `sequence` must outlive `h`. Call it and
 * heartbeat_cancel only on the thread that runs the queue (comm/queue.h). */
NODISCARD Err heartbeat_begin(Heartbeats *h, const Group *group, const Sequence *sequence);
void heartbeat_cancel(Heartbeats *h); /* at the end: cancels pending sends and receives */
void heartbeat_free(Heartbeats *h);

/* Sets what this rank does next and within how many seconds it reports again. Counts as progress. */
void heartbeat_set_place(Heartbeats *h, double limit, const char *fmt, va_list args);
/* The calling thread waits for other ranks from the first call to the second. */
void heartbeat_begin_wait(Heartbeats *h);
void heartbeat_end_wait(Heartbeats *h);
void heartbeat_set_rank_timeout(Heartbeats *h, double seconds);
double heartbeat_rank_timeout(Heartbeats *h);
void heartbeat_set_remedy(Heartbeats *h, const char *remedy);
const char *heartbeat_remedy(Heartbeats *h);
/* Sets what aborts this rank's other transports (NCCL) when a rank is lost; NULL: nothing. */
void heartbeat_set_on_loss(Heartbeats *h, void (*act)(void *context), void *context);

/* The rest is for the runner. */
Heartbeat heartbeat_own(Heartbeats *h);
/* The clock at which rank r, or this one, last reported progress, as far as is known here. */
double heartbeat_last_tick(Heartbeats *h, int r);
/* Sends a heartbeat to rank r, unless the previous one is still being sent. */
void heartbeat_send(Heartbeats *h, int r, const Heartbeat *beat);
/* Has a heartbeat arrived from rank r? It is then `latest`. If it says that r has failed, r has
 * printed why, and this rank ends without returning. */
bool heartbeat_receive(Heartbeats *h, int r, double now);
/* Tells all ranks that this rank has failed and has printed the reason. */
void heartbeat_send_failure(Heartbeats *h);
/* Does rank 0 fail as well, within half a second? Then it reports for all. */
bool heartbeat_rank0_fails(Heartbeats *h);

/* Ends the run: prints the error, sends it as a failure to all ranks, ends this one. */
void heartbeat_fail(Heartbeats *h, const char *fmt, ...) PRINTF_LIKE(2, 3)
    __attribute__((noreturn));
void sleep_seconds(double seconds);

#endif
