/* Measures training steps on this machine, for `plan --machine this`. Depends on data/order,
 * monitor/plan_machine. */
#ifndef CMD_PLAN_MEASURE_H
#define CMD_PLAN_MEASURE_H

#include "data/order.h"
#include "monitor/plan_machine.h"

typedef struct {
  const char *preset, *precision, *device;
  int vocab;
  uint32_t batch_tokens;
  uint64_t steps;
  bool has_texts;     /* the model reads texts instead of pairs of sentences */
  int ranks;          /* processes that run at the same time and share the cores */
  const Order *order; /* lengths of the sentences or texts; NULL: 32 tokens each */
} PlanMeasureSpec;

/* Runs `trireme bench train` in as many processes at once as there are ranks on a machine, and
 * averages their results. Blocks until all have ended. */
NODISCARD Err plan_measure(const PlanMeasureSpec *spec, PlanMeasurement *result);

#endif
