/* The norm of a gradient from the sums of squares of its units, and what clipping makes
 * of it: in one order of additions, which a block of threads of a device follows too
 * (cuda/elements.cu), so that both come to the same bits. Relies on backend. */
#ifndef BACKEND_CLIP_H
#define BACKEND_CLIP_H

#include <math.h>

#include "backend/backend.h"

/* Sum i goes to lane i % CLIP_LANES; then the upper half of the lanes is added to the
 * lower, and so on. */
#define CLIP_LANES 256

static inline void clip_add(double lane[CLIP_LANES], const double *sums, size_t n) {
  for (size_t i = 0; i < n; i++) lane[i % CLIP_LANES] += sums[i];
}

static inline double clip_total(double lane[CLIP_LANES]) {
  for (size_t half = CLIP_LANES / 2; half; half /= 2) {
    for (size_t k = 0; k < half; k++) lane[k] += lane[k + half];
  }
  return lane[0];
}

/* What gradients are multiplied by; the norm is known. */
static inline double clip_scale(const StepNumbers *now) {
  double by = now->max_grad_norm > 0 && now->grad_norm > now->max_grad_norm
                  ? now->max_grad_norm / now->grad_norm
                  : 1;
  return by / now->grad_divisor;
}

/* total: of the squares. What is not finite is not to be used. */
static inline void clip_settle(StepNumbers *now, double total) {
  now->grad_norm = sqrt(total) / now->grad_divisor;
  bool sound = isfinite(now->grad_norm) && isfinite(now->loss[0]);
  now->grad_scale = sound ? (float)clip_scale(now) : NAN;
}

#endif
