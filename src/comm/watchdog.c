/* Which ranks are alive, and where. Every rank sends every other a note several
 * times a second, so that one which dies, stops or hangs is missed within seconds,
 * whatever the others are waiting for. Relies on comm_internal.h. */
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
  char text[768];
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
  if (wrong) comm_die(c, "no notes can be had from rank %d: %s", r, wrong);
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
    over = false;
  }
}

/* Time for another rank to speak for all. */
static void give_way(Comm *c) {
  nap(3);
  for (int r = 0; r < c->size; r++)
    if (r != c->rank) hear(c, r, progress_clock());
}

/* The lowest rank left speaks; the others give it time to, then do. */
static void lost(Comm *c, int r, const char *what) {
  const Peer *p = &c->peer[r];
  bool first = true;
  for (int q = 0; q < c->rank; q++) first = first && q == r;
  if (!first) give_way(c);
  pthread_mutex_lock(&c->lock);
  const char *remedy = c->remedy;
  pthread_mutex_unlock(&c->lock);
  comm_die(c, "rank %d on %s %s; it was at %s. The run ends; %s", r,
           p->who.host[0] ? p->who.host : "an unknown host", what, p->note.place, remedy);
}

static bool is_gone(const Comm *c, const Peer *p) {
  const Identity *me = &c->peer[c->rank].who;
  return p->who.pid > 0 && p->who.pid_space && p->who.pid_space == me->pid_space &&
         strcmp(p->who.host, me->host) == 0 && kill(p->who.pid, 0) != 0 && errno == ESRCH;
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
             "has not been heard of for %.0f s: killed, stopped, or cut off from the network",
             now - p->heard);
  } else if (now - p->moved > allowed) {
    snprintf(what, sizeof what, "lives but has not moved for %.0f s", now - p->moved);
  } else {
    return;
  }
  lost(c, r, what);
}

/* Ranks may wait for each other by ways that this thread does not see: then it has no
 * job, and when all wait and none moves, what they wait for does not come. */
static void judge_all(Comm *c, const Note *here, bool busy, double now) {
  uint64_t moves = here->ticks;
  bool all = here->waiting && !busy;
  for (int r = 0; r < c->size && all; r++) {
    if (r == c->rank) continue;
    all = c->peer[r].note.waiting > 0;
    moves += c->peer[r].note.ticks;
  }
  if (!all || moves != c->moves) c->stuck = all ? now : 0;
  c->moves = all ? moves : 0;
  if (!all || now - c->stuck < STUCK * c->silence) return;
  if (c->rank) give_way(c); /* to rank 0 */
  comm_die(c,
           "every rank has been waiting for the others for %.0f s, at %s. The run ends; "
           "continue it from the last checkpoint with --resume, and if this comes again with "
           "--collectives host",
           now - c->stuck, here->place);
}

void watchdog_look(Comm *c) {
  double now = progress_clock();
  if (now - c->beat < EVERY) return;
  bool paused = now - c->looked > OWN_PAUSE;
  c->looked = c->beat = now;
  pthread_mutex_lock(&c->lock);
  Note note = c->here;
  bool busy = c->doing || c->first;
  pthread_mutex_unlock(&c->lock);
  for (int r = 0; r < c->size; r++) {
    if (r == c->rank) continue;
    if (paused) c->peer[r].heard = c->peer[r].moved = now;
    hear(c, r, now);
    tell(c, r, &note);
    judge(c, r, now);
  }
  if (paused) c->stuck = now;
  judge_all(c, &note, busy, now);
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
