/* The watchdog: ends the run with an error that names ranks and places when a rank dies, stops or
 * makes no progress, when ranks do not run the same collectives, or when all wait for each other.
 * Threads: the runner. Depends on heartbeat. */
#ifndef COMM_WATCHDOG_H
#define COMM_WATCHDOG_H

#include "comm/heartbeat.h"

typedef struct {
  Heartbeats *heartbeats;
  bool is_yielding; /* this rank has found an error and waits whether a lower rank reports it */
  double last_look; /* clock: heartbeats were sent and received */
  double
      stuck_since; /* clock: since when every rank waits without progress; 0 if not all wait */
  uint64_t stuck_progress; /* ticks and progress of all ranks at that time */
} Watchdog;

void watchdog_begin(Watchdog *w, Heartbeats *heartbeats);
/* To be called often; exchanges heartbeats and judges every rank five times a second. */
void watchdog_look(Watchdog *w);
/* Ends the run if rank r's collective of the same number is not this rank's. */
void watchdog_compare(Watchdog *w, int r, const Op *theirs);
/* Ends the run: in collective `seq`, rank `from` sends `sent` bytes to rank `to`, which expects
 * another number. */
void watchdog_fail_size(Watchdog *w, uint64_t seq, int from, uint64_t sent, int to,
                        uint64_t expected) __attribute__((noreturn));

#endif
