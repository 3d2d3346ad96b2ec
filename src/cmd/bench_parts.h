/* Where the time of a training step goes, and how far each part is from what this
 * machine could do. Relies on backend/timed. */
#ifndef CMD_BENCH_PARTS_H
#define CMD_BENCH_PARTS_H

#include <jansson.h>

#include "backend/backend.h"

typedef struct {
  const Backend **backend; /* where the steps find theirs; a clocked one, meanwhile */
  /* Queues one step, operation by operation: none of a captured graph. */
  Err (*step)(void *context, uint64_t number);
  void *context;
  uint64_t first, steps; /* their numbers: first … first + steps - 1 */
} BenchSteps;

/* The table on standard output, or under "parts" in `into`. */
NODISCARD Err bench_parts(const BenchSteps *steps, json_t *into);

#endif
