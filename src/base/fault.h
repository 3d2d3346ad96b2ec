/* Fault injection for tests: the environment variable TRIREME_FAULT, a list with commas.
 *   WHAT:STEP:RANK   a fault at a training step, once per process; with WHAT* every time the step
 *                    is run, also after a roll-back
 *   die:PLACE:N      kills the process (SIGKILL) when it reaches PLACE for the Nth time
 *   hang:PLACE:N     prints a line to standard error there and waits for a signal to stop
 *   WHAT:NUMBER      a limit, lowered so that a test can reach it
 * N defaults to 1. Depends on base/stop. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Is the fault `what` to be injected at this step on this rank? */
bool fault_now(const char *what, uint64_t step, int rank);
/* The number of "WHAT:NUMBER" in the list, else `otherwise`. */
uint64_t fault_number(const char *what, uint64_t otherwise);
/* A place where a test may kill or halt the process. Any thread may call it. */
void fault_point(const char *place);

#endif
