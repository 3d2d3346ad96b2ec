/* Which ranks are alive, and where. Every rank sends every other a note several
 * times a second, so that one which dies, stops or hangs is missed within seconds,
 * whatever the others are waiting for. A deadlock, every rank waiting and none making progress,
 * ends the run too. Relies on comm_internal.h. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/progress.h"
#include "comm/comm_internal.h"

#define EVERY     0.2 /* seconds between notes */
#define OWN_PAUSE 2.0 /* this process was stopped itself: accuse nobody */
#define STUCK     10  /* times the silence that all ranks may wait at once */
#define ENDING    10  /* seconds this rank's end may take */

static void nap(double seconds) {
  long nanoseconds = (long)(seconds * 1e9);
  nanosleep(&(struct timespec){nanoseconds / 1000000000, nanoseconds % 1000000000}, NULL);
}

void comm_end_all(Comm *c) {
  alarm(ENDING); /* a device may not let go */
  pthread_mutex_lock(&c->at_loss);
  if (c->loss) c->loss(c->loss_context);
  c->carrier->abort(ERR_WORK);
  _exit(ERR_WORK); /* should the launcher not do it */
}

static void tell(Comm *c, int r, const Note *note) {
  Peer *p = &c->peer[r];
  bool over = false;
  if (p->sending && (c->carrier->test(&p->send, &over) || !over)) return;
  p->out = *note;
  op_fill_note(c, r, &p->out);
  p->sending = c->carrier->send(r, TAG_NOTE, &p->out, sizeof p->out, &p->send) == NULL;
}

/* That this rank fails, and says itself why. */
static void tell_all(Comm *c) {
  pthread_mutex_lock(&c->lock);
  Note note = c->here;
  pthread_mutex_unlock(&c->lock);
  note.kind = NOTE_FAILED;
  for (int turn = 0; turn < 20; turn++) { /* each send may wait for the one before */
    for (int r = 0; r < c->size; r++)
      if (r != c->rank) tell(c, r, &note);
    nap(0.01);
  }
}

void comm_die(Comm *c, const char *fmt, ...) {
  char text[1024];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  log_error("%s", text);
  tell_all(c);
  comm_end_all(c);
}

static void listen_to(Comm *c, int r) {
  Peer *p = &c->peer[r];
  const char *wrong = c->carrier->recv(r, TAG_NOTE, &p->in, sizeof p->in, &p->receive);
  if (wrong) comm_die(c, "no heartbeats can be received from rank %d: %s", r, wrong);
}

void watchdog_begin(Comm *c) {
  double now = progress_clock();
  c->looked = now;
  c->here.allowed = 15 * c->silence; /* until the work says where it is */
  snprintf(c->here.place, sizeof c->here.place, "its start");
  for (int r = 0; r < c->size; r++) {
    c->peer[r].heard = c->peer[r].moved = now;
    c->peer[r].note = c->here;
    if (r != c->rank) listen_to(c, r);
  }
}

static void hear(Comm *c, int r, double now) {
  Peer *p = &c->peer[r];
  bool over = false;
  while (!c->carrier->test(&p->receive, &over) && over) {
    if (p->in.kind == NOTE_FAILED) { /* it says itself why */
      nap(1.5);
      comm_end_all(c);
    }
    p->in.place[PLACE_MAX - 1] = '\0';
    if (p->in.ticks != p->note.ticks || p->in.waiting) p->moved = now;
    p->note = p->in;
    p->heard = now;
    listen_to(c, r);
    if (!c->gives_way) op_check_note(c, r, &p->note);
    over = false;
  }
}

/* Another rank may report for all. It must hear from this one meanwhile, as that may be how it
 * finds out. */
void comm_give_way(Comm *c) {
  c->gives_way = true;
  pthread_mutex_lock(&c->lock);
  Note note = c->here;
  pthread_mutex_unlock(&c->lock);
  for (int turn = 0; turn < 30; turn++) {
    for (int r = 0; r < c->size; r++) {
      if (r == c->rank) continue;
      tell(c, r, &note);
      hear(c, r, progress_clock());
    }
    nap(0.1);
  }
}

/* The lowest rank left speaks; the others give it time to, then do. */
static void lost(Comm *c, int r, const char *what) {
  const Peer *p = &c->peer[r];
  bool first = true;
  for (int q = 0; q < c->rank; q++) first = first && q == r;
  if (!first) comm_give_way(c);
  pthread_mutex_lock(&c->lock);
  const char *remedy = c->remedy;
  pthread_mutex_unlock(&c->lock);
  comm_die(c, "rank %d on %s %s; it was at %s. The run ends; %s", r,
           p->who.host[0] ? p->who.host : "an unknown host", what, p->note.place, remedy);
}

static bool is_gone(const Comm *c, const Peer *p) {
  const Identity *me = &c->peer[c->rank].who;
  return p->who.pid > 0 && p->who.pid_space && p->who.pid_space == me->pid_space &&
         comm_is_same_host(&p->who, me) && kill(p->who.pid, 0) != 0 && errno == ESRCH;
}

static void judge(Comm *c, int r, double now) {
  const Peer *p = &c->peer[r];
  char what[160];
  double allowed = p->note.allowed > c->silence ? p->note.allowed : c->silence;
  if (is_gone(c, p)) {
    snprintf(what, sizeof what, "has died (process %d)", (int)p->who.pid);
  } else if (now - p->heard > c->silence ||
             (now - p->moved > allowed && now - p->heard > 5 * EVERY)) {
    snprintf(what, sizeof what,
             "has sent no heartbeat for %.0f s: killed, stopped, or cut off from the network",
             now - p->heard);
  } else if (now - p->moved > allowed) {
    snprintf(what, sizeof what, "lives but has not moved for %.0f s", now - p->moved);
  } else {
    return;
  }
  lost(c, r, what);
}

/* "rank 0 in 'losses' (sum, 40 bytes), rank 1 at step 3" for the first few ranks. */
static void list_waits(const Comm *c, const Note *here, char *text, size_t size) {
  size_t len = 0;
  text[0] = '\0';
  for (int r = 0; r < c->size && r < 4 && len < size; r++) {
    const Note *n = r == c->rank ? here : &c->peer[r].note;
    const Op *op = &n->op[n->doing % HISTORY];
    char what[PLACE_MAX + 8];
    bool known = n->doing && op->seq == n->doing;
    snprintf(what, sizeof what, "at %s", n->place);
    if (known) {
      memcpy(what, "in ", 4);
      op_describe(what + 3, sizeof what - 3, op);
    }
    len += (size_t)snprintf(text + len, size - len, "%srank %d %s", r ? ", " : "", r, what);
  }
  if (c->size > 4 && len < size) snprintf(text + len, size - len, ", and %d more", c->size - 4);
}

/* Does every rank's work wait for others, and does nothing move between them? They wait for a
 * collective that not all of them run, or by ways that this thread does not see (NCCL). */
static void judge_all(Comm *c, Note *here, double now) {
  op_fill_note(c, c->rank, here);
  uint64_t moves = here->ticks + here->progress;
  bool all = here->waiting > 0;
  for (int r = 0; r < c->size && all; r++) {
    if (r == c->rank) continue;
    all = c->peer[r].note.waiting > 0;
    moves += c->peer[r].note.ticks + c->peer[r].note.progress;
  }
  if (!all || moves != c->moves) c->stuck = all ? now : 0;
  c->moves = all ? moves : 0;
  if (!all || now - c->stuck < STUCK * c->silence) return;
  if (c->rank) comm_give_way(c); /* to rank 0 */
  char waits[512];
  list_waits(c, here, waits, sizeof waits);
  pthread_mutex_lock(&c->lock);
  const char *remedy = c->remedy;
  pthread_mutex_unlock(&c->lock);
  comm_die(
      c,
      "every rank has been waiting for the others for %.0f s, at %s: %s. The run ends; %s, "
      "and if this comes again on GPUs, with --allreduce-transport host",
      now - c->stuck, here->place, waits, remedy);
}

void watchdog_look(Comm *c) {
  double now = progress_clock();
  if (now - c->beat < EVERY) return;
  bool paused = now - c->looked > OWN_PAUSE;
  c->looked = c->beat = now;
  pthread_mutex_lock(&c->lock);
  Note note = c->here;
  pthread_mutex_unlock(&c->lock);
  for (int r = 0; r < c->size; r++) {
    if (r == c->rank) continue;
    if (paused) c->peer[r].heard = c->peer[r].moved = now;
    hear(c, r, now);
    tell(c, r, &note);
    judge(c, r, now);
  }
  if (paused) c->stuck = now;
  judge_all(c, &note, now);
}

/* Does rank 0 fail as well, within half a second? Then it says why, for all. */
static bool chief_fails(Comm *c) {
  Peer *p = &c->peer[0];
  for (int turn = 0; c->rank > 0 && turn < 50; turn++) {
    bool over = false;
    while (!c->carrier->test(&p->receive, &over) && over) {
      if (p->in.kind == NOTE_FAILED) return true;
      listen_to(c, 0);
      over = false;
    }
    nap(0.01);
  }
  return false;
}

void watchdog_end(Comm *c) {
  if (c->failed) {
    if (chief_fails(c)) log_mute();
    tell_all(c);
    return;
  }
  double none = 0; /* nobody leaves before the last has come */
  comm_sum(c, "end", &none, 1);
  for (int r = 0; r < c->size; r++) {
    if (r == c->rank) continue;
    c->carrier->abandon(&c->peer[r].receive);
    if (c->peer[r].sending) c->carrier->abandon(&c->peer[r].send);
  }
}
