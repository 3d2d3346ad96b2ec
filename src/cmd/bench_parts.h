/* Time of each kind of work in a training step, compared with this machine's roofline. Depends on
 * backend/timed. */
#ifndef CMD_BENCH_PARTS_H
#define CMD_BENCH_PARTS_H

#include <jansson.h>

#include "backend/backend.h"

typedef struct {
  /* The backend pointer that `step` uses; bench_parts replaces it by a timing backend and restores
   * it. */
  const Backend **backend;
  /* Enqueues one step, one operation at a time: operations of a CUDA graph cannot be timed. */
  Err (*step)(void *context, uint64_t number);
  void *context;
  uint64_t first, steps; /* `step` is called with first … first + steps - 1 */
} BenchSteps;

/* Prints the table, or if `into` is not NULL adds it there as "parts". */
NODISCARD Err bench_parts(const BenchSteps *steps, json_t *into);

#endif
