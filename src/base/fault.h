/* Fault injection for tests: the environment variable TRIREME_FAULT is a comma-separated list.
 *   WHAT:STEP:RANK   a fault at a training step, once per process; with WHAT* every time the step
 *                    is run, also after a roll-back
 *   die:PLACE:N      kills the process (SIGKILL) at the Nth call of fault_point(PLACE)
 *   hang:PLACE:N     prints a line to standard error at that call and blocks until a stop signal
 *   WHAT:NUMBER      replaces a limit by a lower one, so that a test can reach it
 * N defaults to 1. Depends on base/stop. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Returns true if the fault `what` must be injected at this step on this rank. */
bool fault_now(const char *what, uint64_t step, int rank);
/* Returns NUMBER of the entry "WHAT:NUMBER", or `otherwise` if the list has no such entry. */
uint64_t fault_number(const char *what, uint64_t otherwise);
/* Marks a point in the code, named `place`, at which a test may kill or halt the process. Any
 * thread may call it. */
void fault_point(const char *place);

#endif
