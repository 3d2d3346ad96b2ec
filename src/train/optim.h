/* Optimizers: the update of the weights, given the gradient of a global batch. Independent of ranks.
 * Depends on backend, params. */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include "backend/backend.h"
#include "model/params.h"

typedef enum { OPTIM_ADAM, OPTIM_ADAMW, OPTIM_SGD, OPTIM_NOVOGRAD } OptimKind;
extern const char *const optim_names; /* "adam|adamw|sgd|novograd", in this order */

typedef struct {
  OptimKind kind;
  float beta1, beta2, epsilon; /* SGD: beta1 is the momentum, the others unused */
  float decay;                 /* weight decay: added to the gradient, but decoupled in AdamW */
} OptimSpec;

/* Does the optimizer keep this flat array: 1 for m, 2 for v? NovoGrad's second moment is one number
 * for each parameter, not a flat array. */
bool optim_has_moment(const OptimSpec *o, int which);

/* The numbers of step `step`, counted from 0, that depend on nothing but it: learning rate and bias
 * corrections. The others are 0. */
StepNumbers optim_numbers(const OptimSpec *o, uint64_t step, double lr);

/* Updates n elements of the flat arrays, for every optimizer but NovoGrad. Updating in pieces gives
 * the same bits as updating the whole. `now` is in the backend's memory; low, these weights in the
 * backend's type, and m and v that the optimizer does not keep may be NULL. */
void optim_piece(const OptimSpec *o, const Backend *b, const StepNumbers *now, void *low,
                 float *w, float *m, float *v, const float *g, size_t n);

/* One step of NovoGrad on the whole arrays. second (params->count): the running mean of each
 * parameter's squared gradient norm; 0 until its first gradient, which starts the mean. */
void optim_layers(const OptimSpec *o, const Backend *b, const Params *params, float *w,
                  float *m, double *second, const float *g, double lr, double scale);

/* Sets the norm and scale of `now`, whose losses are known, from sums of squares in host memory: what
 * the backend's `clip` does on the device. */
void optim_clip(StepNumbers *now, const double *sums, size_t n);
/* The norm from sums of squares, added in the order of clip.h. */
double optim_norm(const double *sums, size_t n);
/* The squared norm of an array in host memory: the same sums in the same order, without an array for
 * them. */
double optim_norm2(const Backend *b, const float *x, size_t n);

#endif
