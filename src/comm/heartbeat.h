/* Heartbeats: several times a second each rank reports to every other what its main thread does, how
 * long that may take, and which collectives it has begun. Also the end of a run that has failed. Threads: as said at each function. The runner is the one thread that at this moment runs
 * collectives (queue.h). Depends on group, sequence, transport. */
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
} Peer;

typedef struct {
  const Group *group;
  const Sequence *sequence;
  double rank_timeout; /* seconds without heartbeat after which a rank counts as lost */
  Peer *peer;          /* (size) */
  pthread_mutex_t lock;
  Heartbeat own;             /* under the lock; the sequence is filled in when it is sent */
  const char *remedy;        /* under the lock: what the user does when a rank is lost */
  pthread_mutex_t loss_lock; /* held while on_loss runs */
  void (*on_loss)(void *context);
  void *loss_context;
} Heartbeats;

/* Before the ranks are known: any thread may report its place from then on. */
void heartbeat_init(Heartbeats *h, double rank_timeout, const char *remedy);
/* Starts to receive. Runner; group and sequence stay in place until heartbeat_free. */
NODISCARD Err heartbeat_begin(Heartbeats *h, const Group *group, const Sequence *sequence);
void heartbeat_cancel(Heartbeats *h); /* what is still under way, at the end. Runner. */
void heartbeat_free(Heartbeats *h);

/* Any thread. */
void heartbeat_set_place(Heartbeats *h, double limit, const char *fmt, va_list args);
void heartbeat_begin_wait(Heartbeats *h); /* this thread waits for other ranks … */
void heartbeat_end_wait(Heartbeats *h);   /* … and no longer */
void heartbeat_set_remedy(Heartbeats *h, const char *remedy);
const char *heartbeat_remedy(Heartbeats *h);
/* Sets what aborts this rank's other transports (NCCL) when a rank is lost; NULL: nothing. */
void heartbeat_set_on_loss(Heartbeats *h, void (*act)(void *context), void *context);

/* Runner. */
Heartbeat heartbeat_own(Heartbeats *h);
/* Sends to rank r, unless the heartbeat before has not left yet. */
void heartbeat_send(Heartbeats *h, int r, const Heartbeat *beat);
/* True: one has arrived from rank r and is its `latest`. Does not return when r has failed: then
 * r has reported why, and this rank ends too. */
bool heartbeat_receive(Heartbeats *h, int r, double now);
/* Sends all ranks that this one has failed and has printed why. */
void heartbeat_send_failure(Heartbeats *h);
/* Does rank 0 fail as well, within half a second? Then it reports for all. */
bool heartbeat_rank0_fails(Heartbeats *h);

/* Ends the run: prints the error, sends it as a failure to all ranks, ends this one. Runner. */
void heartbeat_fail(Heartbeats *h, const char *fmt, ...) PRINTF_LIKE(2, 3)
    __attribute__((noreturn));
void sleep_seconds(double seconds);

#endif
