/* Checks the other ranks by their heartbeats. Two checks find ranks that run different
 * collectives: the tag of a message depends on number, name and size of the collective
 * (sequence.h), so a wrong message is not received; and heartbeats carry the last
 * collectives, which are compared within EVERY seconds. Depends on heartbeat. */
#include "comm/watchdog.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/event.h"
#include "base/log.h"
#include "base/progress.h"

#define EVERY 0.2 /* seconds between heartbeats */
/* Seconds between two checks after which this process itself must have been stopped: it then
 * resets the timers of the other ranks. */
#define OWN_PAUSE 2.0
#define LATE      1.0 /* seconds after which a heartbeat is overdue */
/* Multiple of the rank timeout after which waiting of all ranks counts as a deadlock. */
#define STUCK 10

#define REMEDY                                                                               \
  "Start all ranks from the same build with the same options and data; if they are, report " \
  "this as a bug"

void watchdog_begin(Watchdog *w, Heartbeats *heartbeats) {
  *w = (Watchdog){.heartbeats = heartbeats, .last_look = progress_clock()};
}

static void compare_sequences(Watchdog *w, int r) {
  const SequenceReport *report = &w->heartbeats->peer[r].latest.sequence;
  const Group *g = w->heartbeats->group;
  uint64_t sent;
  for (size_t i = 0; i < SEQUENCE_HISTORY; i++) watchdog_compare(w, r, &report->op[i]);
  if (sequence_sent_wrong_size(w->heartbeats->sequence, r, report, &sent))
    watchdog_fail_size(w, report->expect_seq, g->rank, sent, r, report->expect_bytes);
}

static void receive_heartbeats(Watchdog *w, int r, double now) {
  while (heartbeat_receive(w->heartbeats, r, now))
    if (!w->is_yielding) compare_sequences(w, r);
}

/* Receives the heartbeats of all other ranks. Does not return if one of them reports a
 * failure. */
static void receive_all_heartbeats(Watchdog *w) {
  const Group *g = w->heartbeats->group;
  double now = progress_clock();
  for (int r = 0; r < g->size; r++)
    if (r != g->rank) receive_heartbeats(w, r, now);
}

/* Called when several ranks detect the same error. Waits three seconds for a lower rank to
 * report it; if it does, this process exits. Keeps sending heartbeats, which the lower rank
 * may need to detect the error. */
static void yield_to_lower_rank(Watchdog *w) {
  Heartbeats *h = w->heartbeats;
  Heartbeat own = heartbeat_own(h);
  w->is_yielding = true;
  for (int turn = 0; turn < 30; turn++) {
    for (int r = 0; r < h->group->size; r++)
      if (r != h->group->rank) heartbeat_send(h, r, &own);
    receive_all_heartbeats(w);
    sleep_seconds(0.1);
  }
}

void watchdog_compare(Watchdog *w, int r, const Op *theirs) {
  const Sequence *s = w->heartbeats->sequence;
  const Group *g = w->heartbeats->group;
  char a[96], b[96];
  if (!sequence_differs(s, theirs)) return;
  if (g->rank) yield_to_lower_rank(w);
  const Op *mine = sequence_find(s, theirs->seq);
  bool is_layout = mine->kind == theirs->kind && mine->bytes == theirs->bytes &&
                   strncmp(mine->name, theirs->name, OP_NAME) == 0;
  heartbeat_fail(
      w->heartbeats,
      "ranks disagree on collective %" PRIu64
      ": rank %d on %s runs %s, rank %d on %s runs %s%s. " REMEDY,
      theirs->seq, g->rank, group_host(g, g->rank), op_describe(a, sizeof a, mine), r,
      group_host(g, r), op_describe(b, sizeof b, theirs),
      is_layout ? ", with another layout (division among the ranks, round or dtype)" : "");
}

void watchdog_fail_size(Watchdog *w, uint64_t seq, int from, uint64_t sent, int to,
                        uint64_t expected) {
  const Group *g = w->heartbeats->group;
  char what[96];
  op_describe(what, sizeof what, sequence_find(w->heartbeats->sequence, seq));
  if (g->rank) yield_to_lower_rank(w);
  heartbeat_fail(w->heartbeats,
                 "ranks disagree on collective %" PRIu64 ", %s: rank %d on %s sends %" PRIu64
                 " bytes to rank %d on %s, which expects %" PRIu64 ". " REMEDY,
                 seq, what, from, group_host(g, from), sent, to, group_host(g, to), expected);
}

#define DOING_MAX (PLACE_MAX + OP_NAME + 64)

/* Writes what a rank last reported and the collective that it is running, if any: "step 840,
 * the update, in 'losses' (sum, 40 B)". */
static const char *describe_doing(char text[DOING_MAX], const Heartbeat *beat) {
  const SequenceReport *s = &beat->sequence;
  const Op *op = &s->op[s->running % SEQUENCE_HISTORY];
  int n = snprintf(text, DOING_MAX, "%s", beat->place);
  if (n < 0 || !s->running || op->seq != s->running) return text;
  n += snprintf(text + n, DOING_MAX - (size_t)n, ", in ");
  op_describe(text + n, DOING_MAX - (size_t)n, op);
  return text;
}

/* Prints what rank r is doing, for how many seconds, and whether it is alive. */
static void print_place(Heartbeats *h, int r, const Heartbeat *beat, double now) {
  char doing[DOING_MAX], state[48] = "working";
  double quiet = r == h->group->rank ? 0 : now - h->peer[r].last_heartbeat;
  if (quiet > LATE)
    snprintf(state, sizeof state, "no heartbeat for %.0f s", quiet);
  else if (beat->waiting > 0)
    snprintf(state, sizeof state, "waiting for other ranks");
  log_detail("place    rank %d on %s: %s, for %.0f s, %s", r, group_host(h->group, r),
             describe_doing(doing, beat), now - heartbeat_last_tick(h, r), state);
}

/* Prints what every rank is doing, before the run is ended. */
static void print_places(Heartbeats *h) {
  double now = progress_clock();
  Heartbeat own = heartbeat_own(h);
  sequence_report(h->sequence, h->group->rank, &own.sequence);
  for (int r = 0; r < h->group->size; r++)
    print_place(h, r, r == h->group->rank ? &own : &h->peer[r].latest, now);
}

typedef enum {
  LOSS_DEATH,
  LOSS_NO_HEARTBEAT,
  LOSS_STALL /* heartbeats arrive, but its main thread makes no progress */
} Loss;

/* Reports to `trireme launch` that rank r is the cause. Without the report launch would name
 * this rank, whose process exits first. */
static void report_to_launcher(const Heartbeats *h, int r, const char *what) {
  char doing[DOING_MAX], text[DOING_MAX + 256];
  snprintf(text, sizeof text, "rank %d on %s: %s; last reported: %s", r,
           group_host(h->group, r), what, describe_doing(doing, &h->peer[r].latest));
  event_lost(r, text);
}

/* Ends the run because rank r is lost. The lowest remaining rank prints the error. Rank r
 * counts as remaining while its heartbeats arrive: two ranks may each detect that the other
 * makes no progress, and only one of them must print the error. */
static void report_loss(Watchdog *w, int r, Loss loss, const char *what) {
  Heartbeats *h = w->heartbeats;
  bool has_lower = false;
  for (int q = 0; q < h->group->rank; q++) has_lower = has_lower || q != r;
  if (loss == LOSS_STALL && r < h->group->rank) yield_to_lower_rank(w);
  if (has_lower) yield_to_lower_rank(w);
  if (loss != LOSS_DEATH) print_places(h);
  char doing[DOING_MAX];
  report_to_launcher(h, r, what);
  heartbeat_fail(h, "rank %d on %s: %s; last reported: %s. Run stopped; %s", r,
                 group_host(h->group, r), what, describe_doing(doing, &h->peer[r].latest),
                 heartbeat_remedy(h));
}

/* Receives heartbeats that rank r sent before it died, and those of a rank that failed and
 * had r killed. If one of them reports a failure, this function does not return. */
static void receive_last_heartbeats(Watchdog *w) {
  /* A pending message may need several calls into MPI. */
  for (int turn = 0; turn < 20; turn++) {
    receive_all_heartbeats(w);
    sleep_seconds(0.01);
  }
}

static void judge_rank(Watchdog *w, int r, double now) {
  Heartbeats *h = w->heartbeats;
  const Peer *p = &h->peer[r];
  char what[160];
  Loss loss;
  double rank_timeout = heartbeat_rank_timeout(h);
  double limit = p->latest.limit > rank_timeout ? p->latest.limit : rank_timeout;
  double quiet = now - p->last_heartbeat, idle = now - p->last_progress;
  if (group_is_dead(h->group, r)) {
    receive_last_heartbeats(w);
    loss = LOSS_DEATH;
    snprintf(what, sizeof what, "process %d died", (int)h->group->identity[r].pid);
  } else if (quiet > rank_timeout || (idle > limit && quiet > LATE)) {
    loss = LOSS_NO_HEARTBEAT;
    snprintf(what, sizeof what, "no heartbeat for %.0f s (killed, stopped or network down)",
             quiet);
  } else if (idle > limit) {
    loss = LOSS_STALL;
    snprintf(what, sizeof what, "alive, but no progress for %.0f s (limit %.0f s)", idle,
             limit);
  } else {
    return;
  }
  report_loss(w, r, loss, what);
}

/* Writes, for the first four ranks: "rank 0 in 'losses' (sum, 40 B), rank 1 at step 3". */
static void list_waits(const Watchdog *w, const Heartbeat *own, char *text, size_t size) {
  const Group *g = w->heartbeats->group;
  size_t len = 0;
  text[0] = '\0';
  for (int r = 0; r < g->size && r < 4 && len < size; r++) {
    const Heartbeat *beat = r == g->rank ? own : &w->heartbeats->peer[r].latest;
    const SequenceReport *s = &beat->sequence;
    const Op *op = &s->op[s->running % SEQUENCE_HISTORY];
    char what[PLACE_MAX + 8];
    snprintf(what, sizeof what, "at %s", beat->place);
    if (s->running && op->seq == s->running) {
      memcpy(what, "in ", 4);
      op_describe(what + 3, sizeof what - 3, op);
    }
    len += (size_t)snprintf(text + len, size - len, "%srank %d %s", r ? ", " : "", r, what);
  }
  if (g->size > 4 && len < size) snprintf(text + len, size - len, ", and %d more", g->size - 4);
}

/* Returns true if every rank is waiting for others. *progress: sum of ticks and complete
 * messages over all ranks. */
static bool are_all_waiting(const Watchdog *w, const Heartbeat *own, uint64_t *progress) {
  const Heartbeats *h = w->heartbeats;
  bool all = own->waiting > 0;
  *progress = own->ticks + own->sequence.progress;
  for (int r = 0; r < h->group->size && all; r++) {
    const Heartbeat *beat = &h->peer[r].latest;
    if (r == h->group->rank) continue;
    all = beat->waiting > 0;
    *progress += beat->ticks + beat->sequence.progress;
  }
  return all;
}

/* Ends the run if all ranks wait and none makes progress: either not all of them have called
 * the same collective, or they hang in a transport that the watchdog cannot observe (NCCL). */
static void judge_deadlock(Watchdog *w, Heartbeat *own, double now) {
  Heartbeats *h = w->heartbeats;
  uint64_t progress;
  sequence_report(h->sequence, h->group->rank, &own->sequence);
  if (!are_all_waiting(w, own, &progress)) {
    w->stuck_since = 0;
    return;
  }
  if (w->stuck_since <= 0 || progress != w->stuck_progress) w->stuck_since = now;
  w->stuck_progress = progress;
  if (now - w->stuck_since < STUCK * heartbeat_rank_timeout(h)) return;
  if (h->group->rank) yield_to_lower_rank(w);
  char waits[512];
  list_waits(w, own, waits, sizeof waits);
  print_places(h);
  heartbeat_fail(
      h,
      "deadlock: every rank has been waiting for the others for %.0f s; rank %d last "
      "reported: %s; %s. Run stopped; %s; if it happens again on GPUs, use "
      "--allreduce-transport host",
      now - w->stuck_since, h->group->rank, own->place, waits, heartbeat_remedy(h));
}

void watchdog_look(Watchdog *w) {
  Heartbeats *h = w->heartbeats;
  double now = progress_clock();
  if (now - w->last_look < EVERY) return;
  bool was_paused = now - w->last_look > OWN_PAUSE;
  w->last_look = now;
  Heartbeat own = heartbeat_own(h);
  for (int r = 0; r < h->group->size; r++) {
    if (r == h->group->rank) continue;
    if (was_paused) {
      h->peer[r].last_heartbeat = now;
      h->peer[r].last_progress = now;
    }
    heartbeat_send(h, r, &own);
  }
  receive_all_heartbeats(w);
  Posts *posts = w->posts;
  if (posts) post_move(posts);
  for (int r = 0; r < h->group->size; r++)
    if (r != h->group->rank) judge_rank(w, r, now);
  if (was_paused) w->stuck_since = now;
  judge_deadlock(w, &own, now);
}
