/* The learning rate of a step, by one of eight policies. Depends on nothing. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum {
  LR_NOAM, /* lr · d^-0.5 · min((s+1) · w^-1.5, (s+1)^-0.5) */
  LR_CONSTANT,
  LR_PIECEWISE,
  LR_EXPONENTIAL, /* lr · rate^(u / decay), with u the steps since the end of the warm-up */
  LR_POLYNOMIAL,  /* down to min_lr at u = decay, with a power */
  LR_COSINE,
  LR_INVERSE_TIME, /* lr / (1 + c u)^power, such that min_lr is reached at u = decay */
  LR_INVERSE_SQRT, /* lr · min(1, sqrt(warmup / (s+1))), as fairseq's inverse_sqrt */
} LrPolicy;
extern const char *const lr_policy_names; /* "noam|constant|…" in this order */

#define LR_MILESTONES 16

typedef struct {
  LrPolicy policy;
  double lr, min_lr, power, rate;
  uint64_t warmup; /* steps; linear for all policies but noam, whose formula contains it */
  uint64_t decay; /* steps after the warm-up; not for noam, constant, piecewise, inverse-sqrt */
  int d_model;    /* for noam */
  int milestones; /* for piecewise: from step at[i] of the run on, lr · factor[i] */
  uint64_t at[LR_MILESTONES];
  double factor[LR_MILESTONES];
} Schedule;

double schedule_lr(const Schedule *s, uint64_t step);
/* Parses --lr-milestones: "10k:0.5,20k:0.1" multiplies the learning rate by 0.5 from step 10,000 on
 * and by 0.1 from step 20,000 on. */
NODISCARD Err schedule_parse_milestones(Schedule *s, const char *text);

#endif
