/* The watchdog ends the run when a rank dies, stops or makes no progress, when ranks run
 * different collectives, or when all wait for each other. The error names the ranks and what
 * they last reported. It also moves posts, because it is called regularly whatever the run does.
 * Threads: only the queue's current runner (queue.h). Depends on heartbeat, post. */
#ifndef COMM_WATCHDOG_H
#define COMM_WATCHDOG_H

#include "comm/heartbeat.h"
#include "comm/post.h"

typedef struct {
  Heartbeats *heartbeats;
  /* This rank has detected an error and waits for a lower rank to report it. */
  bool is_yielding;
  double last_look; /* time of the last watchdog_look that exchanged heartbeats */
  /* Time since which all ranks have been waiting without progress; 0: not all are waiting. */
  double stuck_since;
  uint64_t stuck_progress; /* value of the ranks' progress counters at `stuck_since` */
  _Atomic(Posts *) posts;  /* NULL: none were opened; any thread may set it once */
} Watchdog;

void watchdog_begin(Watchdog *w, Heartbeats *heartbeats);
/* Exchanges heartbeats, moves posts and checks every rank, at most five times a second; call it as often
 * as possible. */
void watchdog_look(Watchdog *w);
/* Ends the run if `theirs`, a collective of rank r, differs from this rank's collective of
 * the same number. */
void watchdog_compare(Watchdog *w, int r, const Op *theirs);
/* Ends the run because in collective `seq`, which this rank has stored, rank `from` sends `sent`
 * bytes to rank `to`, which expects `expected` bytes. */
void watchdog_fail_size(Watchdog *w, uint64_t seq, int from, uint64_t sent, int to,
                        uint64_t expected) __attribute__((noreturn));

#endif
