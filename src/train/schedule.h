/* The learning rate of a step, by one of eight policies. Depends on nothing. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum {
  LR_TRANSFORMER, /* lr · d^-0.5 · min((s+1) · w^-1.5, (s+1)^-0.5) */
  LR_FIXED,
  LR_PIECEWISE,
  LR_EXPONENTIAL, /* lr · rate^(u / decay), with u the steps since the end of the warm-up */
  LR_POLYNOMIAL,  /* down to `least` at u = decay, with a power */
  LR_COSINE,
  LR_INVERSE,      /* lr / (1 + c u)^power, such that `least` is met at u = decay */
  LR_INVERSE_SQRT, /* lr · min(1, sqrt(warmup / (s+1))), as fairseq's inverse_sqrt */
} LrPolicy;
extern const char *const lr_policy_names; /* "noam|constant|…" in this order */

#define LR_PIECES 16

typedef struct {
  LrPolicy policy;
  double lr, least, power, rate;
  uint64_t warmup; /* steps; linear for all policies but transformer, which has its own */
  uint64_t
      decay;  /* steps after the warm-up; unused by noam, constant, piecewise, inverse-sqrt */
  int d;      /* width of the model */
  int pieces; /* piecewise: from step at[i] of the run on, lr · factor[i] */
  uint64_t at[LR_PIECES];
  double factor[LR_PIECES];
} Schedule;

double schedule_lr(const Schedule *s, uint64_t step);
/* Parses --lr-milestones: "10k:0.5,20k:0.1" multiplies the learning rate by 0.5 from step 10,000 on
 * and by 0.1 from step 20,000 on. */
NODISCARD Err schedule_pieces(Schedule *s, const char *text);

#endif
