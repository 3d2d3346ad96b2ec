/* Aligns the clocks of the ranks with that of rank 0, so that their spans can be compared.
 *
 * Ranks on one machine read the same clock. For the others rank 0 sends a message, the rank
 * answers with its time t, and rank 0 takes the times t0 before and t1 after. The rank's clock
 * showed t somewhere in [t0, t1] of rank 0's clock, so its offset is (t0 + t1) / 2 - t, with an
 * error of at most (t1 - t0) / 2. The shortest of several round trips counts (Cristian 1989).
 * Two such measurements, before and after the steps, also correct a clock that runs faster.
 * Depends on comm. */
#ifndef MONITOR_TRACE_CLOCK_H
#define MONITOR_TRACE_CLOCK_H

#include "comm/comm.h"

/* One measurement of a rank's clock: rank 0's clock = the rank's clock + offset, +- error. */
typedef struct {
  double at; /* the rank's time at which it was measured */
  double offset, error;
} ClockPoint;

/* Returns the seconds that this rank adds to all times before it sends them: 0, unless a test
 * simulates the clock of another machine (TRIREME_FAULT=trace-clock:N, microseconds). */
double trace_clock_shift(void);
/* Measures the clock of every rank. Every rank calls it; `points` has an entry per rank and is
 * valid on rank 0. */
NODISCARD Err trace_clock_measure(Comm *comm, ClockPoint *points);
/* Settles two measurements of one rank. Unless they differ by more than their errors, nothing
 * proves that the clocks run at different rates: both then take the offset with the smaller
 * error. */
void trace_clock_settle(ClockPoint *before, ClockPoint *after);
/* Returns the time of rank 0's clock when the rank's clock shows `time`: interpolates between
 * the two measurements. */
double trace_clock_align(const ClockPoint *before, const ClockPoint *after, double time);

#endif
