/* Times each kind of operation in a training step and compares it with the roofline of this
 * machine. Depends on backend/timed. */
#ifndef CMD_BENCH_PARTS_H
#define CMD_BENCH_PARTS_H

#include <jansson.h>

#include "backend/backend.h"

typedef struct {
  /* The backend pointer that `step` uses; bench_parts replaces it with a timing backend and
   * restores it. */
  const Backend **backend;
  /* Runs training step `number` without CUDA graphs: operations inside a graph cannot be
   * timed. */
  Err (*step)(void *context, uint64_t number);
  void *context;
  uint64_t first, steps; /* numbers of the steps: first … first + steps - 1 */
} BenchSteps;

/* Prints the table or, if `into` is not NULL, adds it to that JSON object as "parts". */
NODISCARD Err bench_parts(const BenchSteps *steps, json_t *into);

#endif
