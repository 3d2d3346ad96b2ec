/* The learning rate of a step, by one of eight schedules. s is the step, from 0; u is the
 * number of steps since the end of the warm-up. Depends on nothing. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef enum {
  LR_NOAM, /* lr · d_model^-0.5 · min((s+1) · warmup^-1.5, (s+1)^-0.5) */
  LR_CONSTANT,
  LR_PIECEWISE,
  LR_EXPONENTIAL, /* max(min_lr, lr · rate^(u / decay)) */
  LR_POLYNOMIAL,  /* min_lr + (lr - min_lr) · (1 - u / decay)^power */
  LR_COSINE,
  LR_INVERSE_TIME, /* lr / (1 + c u)^power, with c such that min_lr is reached at u = decay */
  LR_INVERSE_SQRT, /* lr · min(1, sqrt(warmup / (s+1))), as fairseq's inverse_sqrt */
} LrPolicy;
extern const char *const lr_policy_names; /* "noam|constant|…", in the order of LrPolicy */

#define LR_MILESTONES 16

typedef struct {
  LrPolicy policy;
  double lr, min_lr, power, rate;
  uint64_t warmup; /* steps of linear warm-up; part of the formula with noam */
  /* Steps after the warm-up; not used by noam, constant, piecewise and inverse-sqrt. */
  uint64_t decay;
  int d_model; /* model size, used by the noam schedule */
  /* Used by piecewise: from step at[i] on, the learning rate is lr · factor[i]. */
  int milestones;
  uint64_t at[LR_MILESTONES];
  double factor[LR_MILESTONES];
} Schedule;

double schedule_lr(const Schedule *s, uint64_t step);
/* Parses --lr-milestones: "10k:0.5,20k:0.1" multiplies the learning rate by 0.5 from step 10,000 on
 * and by 0.1 from step 20,000 on. */
NODISCARD Err schedule_parse_milestones(Schedule *s, const char *text);

#endif
