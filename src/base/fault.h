/* Faults on purpose, for tests: TRIREME_FAULT=WHAT:STEP:RANK, several with commas.
 * Each happens once in a process; WHAT* happens whenever its step comes. Relies on
 * nothing. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

/* Is this fault due at this step on this rank? */
bool fault_now(const char *what, uint64_t step, int rank);

#endif
