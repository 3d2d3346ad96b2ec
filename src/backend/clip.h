/* Computes the gradient norm from the sums of squares of its units (NORM_UNIT), and the scale
 * that clips the gradient. The order of the additions is fixed and the same as in the CUDA kernel
 * (cuda/elements.cu), so both give the same bits. Depends on backend.h. */
#ifndef BACKEND_CLIP_H
#define BACKEND_CLIP_H

#include <math.h>

#include "backend/backend.h"

/* Number of lanes of the reduction. Sum i is added to lane i % CLIP_LANES; then the upper half of
 * the lanes is added to the lower half until one lane remains, like the tree reduction of a block
 * of CLIP_LANES threads. */
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

/* Sets the divisor of the gradients: predictions of all ranks * loss scale. A step without predictions
 * has a gradient of zeros. */
static inline void clip_set_divisor(StepNumbers *now) {
  double predictions = now->count[COUNT_PREDICTIONS];
  if (now->loss_scale > 0)
    now->grad_divisor = (predictions > 0 ? predictions : 1) * now->loss_scale;
}

/* Returns the factor of all gradients, given now->grad_norm: 1 / grad_divisor, smaller if the
 * gradient is clipped. */
static inline double clip_scale(const StepNumbers *now) {
  double by = now->max_grad_norm > 0 && now->grad_norm > now->max_grad_norm
                  ? now->max_grad_norm / now->grad_norm
                  : 1;
  return by / now->grad_divisor;
}

/* Sets grad_norm and grad_scale of `now`, and grad_divisor if that is asked for; total: the sum of all squares. If the norm or the loss
 * is not finite, grad_scale becomes NaN, which makes the optimizer skip the step. */
static inline void clip_finish(StepNumbers *now, double total) {
  clip_set_divisor(now);
  now->grad_norm = sqrt(total) / now->grad_divisor;
  bool sound = isfinite(now->grad_norm) && isfinite(now->loss[0]);
  now->grad_scale = sound ? (float)clip_scale(now) : NAN;
}

#endif
