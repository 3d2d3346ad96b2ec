/* Sends and receives heartbeats, and ends this process when a rank is lost. Depends on base. */
#include "comm/heartbeat.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/stop.h"

#define ENDING 10 /* seconds until SIGALRM kills a process that hangs while it exits */
/* Seconds for the report of a failure: the transport has at least FAILURE_MIN to deliver it. While
 * a rank has not received it, the report is continued until FAILURE_MAX. */
#define FAILURE_MIN 0.2
#define FAILURE_MAX 2.0
/* Seconds after which a rank that has received the report aborts all ranks: at least ABORT_MIN, and
 * ABORT_MAX while the failing rank is alive. ABORT_MAX is longer than FAILURE_MAX, because the
 * failing rank may print its error only after its reports (comm_close). */
#define ABORT_MIN 1.5
#define ABORT_MAX 4.0

void sleep_seconds(double seconds) {
  long nanoseconds = (long)(seconds * 1e9);
  nanosleep(&(struct timespec){nanoseconds / 1000000000, nanoseconds % 1000000000}, NULL);
}

void heartbeat_init(Heartbeats *h, double rank_timeout, const char *remedy) {
  *h = (Heartbeats){.rank_timeout = rank_timeout, .remedy = remedy};
  pthread_mutex_init(&h->lock, NULL);
  pthread_mutex_init(&h->loss_lock, NULL);
  h->own_tick = progress_clock();
  h->own.limit = 15 * rank_timeout; /* until comm_report is called for the first time */
  snprintf(h->own.place, sizeof h->own.place, "its start");
}

void heartbeat_free(Heartbeats *h) {
  mem_free(h->peer);
  pthread_mutex_destroy(&h->lock);
  pthread_mutex_destroy(&h->loss_lock);
}

/* Ends this process: aborts other transports (NCCL), asks MPI to kill all ranks, and exits. */
static void __attribute__((noreturn)) end_rank(Heartbeats *h) {
  alarm(ENDING); /* on_loss may hang in a GPU driver call */
  /* MPI_Abort sends SIGTERM; do not react to it by finishing and saving a step */
  stop_unwatch();
  pthread_mutex_lock(&h->loss_lock);
  if (h->on_loss) h->on_loss(h->loss_context);
  h->group->transport->abort(ERR_WORK);
  _exit(ERR_WORK); /* reached only if MPI_Abort returns */
}

static void start_receive(Heartbeats *h, int r) {
  Peer *p = &h->peer[r];
  const char *wrong = h->group->transport->recv(r, TAG_HEARTBEAT, &p->incoming,
                                                sizeof p->incoming, &p->receive);
  if (wrong)
    heartbeat_fail(h, "MPI cannot receive heartbeats from rank %d on %s: %s. Run stopped; %s",
                   r, group_host(h->group, r), wrong, heartbeat_remedy(h));
}

Err heartbeat_begin(Heartbeats *h, const Group *group, const Sequence *sequence) {
  double now = progress_clock();
  h->group = group;
  h->sequence = sequence;
  TRY(mem_alloc(&h->peer, (size_t)group->size, sizeof *h->peer));
  for (int r = 0; r < group->size; r++) {
    h->peer[r].last_heartbeat = now;
    h->peer[r].last_progress = now;
    h->peer[r].last_tick = now;
    h->peer[r].latest = heartbeat_own(h);
    if (r != group->rank) start_receive(h, r);
  }
  return ERR_OK;
}

void heartbeat_cancel(Heartbeats *h) {
  const Transport *transport = h->group->transport;
  for (int r = 0; r < h->group->size; r++) {
    if (r == h->group->rank) continue;
    transport->abandon(&h->peer[r].receive);
    if (h->peer[r].is_sending) transport->abandon(&h->peer[r].send);
  }
}

/* The caller holds h->lock. */
static void count_tick(Heartbeats *h) {
  h->own.ticks++;
  h->own_tick = progress_clock();
}

void heartbeat_set_place(Heartbeats *h, double limit, const char *fmt, va_list args) {
  pthread_mutex_lock(&h->lock);
  vsnprintf(h->own.place, sizeof h->own.place, fmt, args);
  h->own.limit = limit > h->rank_timeout ? limit : h->rank_timeout;
  count_tick(h);
  pthread_mutex_unlock(&h->lock);
}

void heartbeat_begin_wait(Heartbeats *h) {
  pthread_mutex_lock(&h->lock);
  h->own.waiting++;
  pthread_mutex_unlock(&h->lock);
}

void heartbeat_end_wait(Heartbeats *h) {
  pthread_mutex_lock(&h->lock);
  h->own.waiting--;
  count_tick(h);
  pthread_mutex_unlock(&h->lock);
}

void heartbeat_set_rank_timeout(Heartbeats *h, double seconds) {
  pthread_mutex_lock(&h->lock);
  h->rank_timeout = seconds;
  if (h->own.limit < seconds) h->own.limit = seconds;
  pthread_mutex_unlock(&h->lock);
}

double heartbeat_rank_timeout(Heartbeats *h) {
  pthread_mutex_lock(&h->lock);
  double seconds = h->rank_timeout;
  pthread_mutex_unlock(&h->lock);
  return seconds;
}

void heartbeat_set_remedy(Heartbeats *h, const char *remedy) {
  pthread_mutex_lock(&h->lock);
  h->remedy = remedy;
  pthread_mutex_unlock(&h->lock);
}

const char *heartbeat_remedy(Heartbeats *h) {
  pthread_mutex_lock(&h->lock);
  const char *remedy = h->remedy;
  pthread_mutex_unlock(&h->lock);
  return remedy;
}

void heartbeat_set_on_loss(Heartbeats *h, void (*act)(void *), void *context) {
  pthread_mutex_lock(&h->loss_lock);
  h->on_loss = act;
  h->loss_context = context;
  pthread_mutex_unlock(&h->loss_lock);
}

Heartbeat heartbeat_own(Heartbeats *h) {
  pthread_mutex_lock(&h->lock);
  Heartbeat own = h->own;
  pthread_mutex_unlock(&h->lock);
  return own;
}

double heartbeat_last_tick(Heartbeats *h, int r) {
  if (r != h->group->rank) return h->peer[r].last_tick;
  pthread_mutex_lock(&h->lock);
  double clock = h->own_tick;
  pthread_mutex_unlock(&h->lock);
  return clock;
}

void heartbeat_send(Heartbeats *h, int r, const Heartbeat *beat) {
  const Transport *transport = h->group->transport;
  Peer *p = &h->peer[r];
  bool done = false;
  if (p->is_sending && (transport->test(&p->send, &done) || !done)) return;
  p->outgoing = *beat;
  sequence_report(h->sequence, r, &p->outgoing.sequence);
  p->is_sending =
      transport->send(r, TAG_HEARTBEAT, &p->outgoing, sizeof p->outgoing, &p->send) == NULL;
}

/* Gives rank r, which has failed, the time to print its error and to abort all ranks. */
static void await_error(const Heartbeats *h, int r) {
  double start = progress_clock(), passed = 0;
  while (passed < ABORT_MIN || (passed < ABORT_MAX && !group_is_dead(h->group, r))) {
    sleep_seconds(0.05);
    passed = progress_clock() - start;
  }
}

bool heartbeat_receive(Heartbeats *h, int r, double now) {
  Peer *p = &h->peer[r];
  bool done = false;
  if (h->group->transport->test(&p->receive, &done) || !done) return false;
  if (p->incoming.kind == HEARTBEAT_FAILED) {
    /* The end of rank r makes mpirun send SIGTERM: no step is finished and saved. */
    stop_answer_nothing();
    await_error(h, r);
    end_rank(h);
  }
  p->incoming.place[PLACE_MAX - 1] = '\0';
  if (p->incoming.ticks != p->latest.ticks) p->last_tick = now;
  if (p->incoming.ticks != p->latest.ticks || p->incoming.waiting) p->last_progress = now;
  p->latest = p->incoming;
  p->last_heartbeat = now;
  start_receive(h, r);
  return true;
}

/* Returns true if rank r cannot receive any more, or is unlikely to: its process has died, or
 * its heartbeats have been missing for half of the time after which a rank is lost. */
static bool is_probably_lost(Heartbeats *h, int r) {
  double quiet = progress_clock() - h->peer[r].last_heartbeat;
  return group_is_dead(h->group, r) || quiet > heartbeat_rank_timeout(h) / 2;
}

/* Continues to send the report of this rank's failure to rank r. Returns true if it is sent, or
 * cannot be. An earlier heartbeat may still be pending: the report follows it. */
static bool continue_failure(Heartbeats *h, int r, const Heartbeat *beat) {
  Peer *p = &h->peer[r];
  bool done = false;
  if (p->is_sending) {
    if (h->group->transport->test(&p->send, &done)) return true;
    if (!done) return false;
    p->is_sending = false;
  }
  if (p->has_failure) return true;
  p->has_failure = true;
  heartbeat_send(h, r, beat);
  return !p->is_sending; /* true: the transport refused it */
}

void heartbeat_send_failure(Heartbeats *h) {
  Heartbeat beat = heartbeat_own(h);
  bool is_missing = true;
  double start = progress_clock(), passed = 0;
  beat.kind = HEARTBEAT_FAILED;
  while (passed < FAILURE_MIN || (is_missing && passed < FAILURE_MAX)) {
    is_missing = false;
    for (int r = 0; r < h->group->size; r++)
      if (r != h->group->rank && !continue_failure(h, r, &beat) && !is_probably_lost(h, r))
        is_missing = true;
    sleep_seconds(0.01);
    passed = progress_clock() - start;
  }
}

bool heartbeat_rank0_fails(Heartbeats *h) {
  Peer *p = &h->peer[0];
  for (int turn = 0; h->group->rank > 0 && turn < 50; turn++) {
    bool done = false;
    while (!h->group->transport->test(&p->receive, &done) && done) {
      if (p->incoming.kind == HEARTBEAT_FAILED) return true;
      start_receive(h, 0);
      done = false;
    }
    sleep_seconds(0.01);
  }
  return false;
}

void heartbeat_fail(Heartbeats *h, const char *fmt, ...) {
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  stop_answer_nothing();
  log_error("%s", text);
  heartbeat_send_failure(h);
  end_rank(h);
}
