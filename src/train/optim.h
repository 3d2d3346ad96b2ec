/* The optimisers: what a step does to the weights, given the gradient of a global
 * batch. Nothing here knows of ranks. Relies on backend, params. */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include "backend/backend.h"
#include "model/params.h"

typedef enum { OPTIM_ADAM, OPTIM_ADAMW, OPTIM_SGD, OPTIM_NOVOGRAD } OptimKind;
extern const char *const optim_names; /* "adam|adamw|sgd|novograd", in this order */

typedef struct {
  OptimKind kind;
  float beta1, beta2, epsilon; /* SGD: beta1 is the momentum, the others unused */
  float decay;                 /* of weights: through the moments, but beside them in AdamW */
} OptimSpec;

/* Does the kind keep this flat array: 1, the mean (m); 2, the square (v)? NovoGrad's
 * second moment is one number for each weight, not an array. */
bool optim_has_moment(const OptimSpec *o, int which);

/* What step `step`, counted from 0, begins with; `times`, `most` and what clipping makes
 * of them are still 0. */
StepNumbers optim_numbers(const OptimSpec *o, uint64_t step, double lr);

/* One step on any piece of the flat arrays, for every kind but NovoGrad; pieces
 * give the same bits as the whole. `now` lies in the backend's memory; low, the piece's
 * copy in the backend's type, and moments the kind has not may be NULL. */
void optim_piece(const OptimSpec *o, const Backend *b, const StepNumbers *now, void *low,
                 float *w, float *m, float *v, const float *g, size_t n);

/* One step of NovoGrad on the whole arrays. second (params->count): the running
 * mean of each weight's squared gradient norm. 0: this weight has had no gradient yet, and
 * its first one starts the mean. */
void optim_layers(const OptimSpec *o, const Backend *b, const Params *params, float *w,
                  float *m, double *second, const float *g, double lr, double scale);

/* Norm and scale of `now`, whose losses are known, from the sums that square_sums gave: what
 * the backend's `clip` does, for sums that lie here. */
void optim_clip(StepNumbers *now, const double *sums, size_t n);
/* The norm from the sums that square_sums gave, added in the order of clip.h. */
double optim_norm(const double *sums, size_t n);
/* The squared norm of an array that lies here as a whole: the same sums in the
 * same order, with no room needed for them. */
double optim_norm2(const Backend *b, const float *x, size_t n);

#endif
