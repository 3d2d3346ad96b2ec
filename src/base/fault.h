/* Faults on purpose, for tests: the environment variable TRIREME_FAULT, several with commas.
 *   WHAT:STEP:RANK   a fault of training, once in a process; WHAT* whenever its step comes
 *   die:PLACE:N      kills the process (SIGKILL) when it comes to PLACE for the Nth time
 *   hang:PLACE:N     prints a line to standard error there and waits for a signal to stop
 *   WHAT:NUMBER      a limit, lowered so that a test can reach it
 * N is 1 when left out. Relies on base/stop. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Is this fault due at this step on this rank? */
bool fault_now(const char *what, uint64_t step, int rank);
/* The number of "WHAT:NUMBER" in the list, else `otherwise`. */
uint64_t fault_number(const char *what, uint64_t otherwise);
/* A place where a test may kill or halt the process. Any thread may call it. */
void fault_point(const char *place);

#endif
