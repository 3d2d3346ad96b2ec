/* Optimizers: update the weights, given the summed gradient of a step. Independent of ranks.
 * Depends on backend, params, optim_groups. */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include "backend/backend.h"
#include "model/params.h"
#include "train/optim_groups.h"

typedef enum { OPTIM_ADAM, OPTIM_ADAMW, OPTIM_SGD, OPTIM_NOVOGRAD } OptimKind;
extern const char *const optim_names; /* "adam|adamw|sgd|novograd", in the order of OptimKind */

typedef struct {
  OptimKind kind;
  /* Constants of Adam; with SGD beta1 is the momentum and the others are not used. */
  float beta1, beta2, epsilon;
  float decay; /* weight decay: decoupled with AdamW, otherwise added to the gradient */
} OptimSpec;

/* Returns true if the optimizer has the flat array m (which = 1) or v (which = 2). NovoGrad has
 * no v: its second moment is one number per weight. */
bool optim_has_moment(const OptimSpec *o, int which);

/* Returns learning rate and bias corrections of step `step`, which counts from 0. The other
 * members are 0. */
StepNumbers optim_numbers(const OptimSpec *o, uint64_t step, double lr);

/* A piece of the flat arrays: elements begin … begin + n - 1, which the pointers point to. */
typedef struct {
  size_t begin, n;
  void *low; /* copy of w in the backend's type, or NULL */
  float *w;
  float *m, *v; /* NULL if the optimizer does not have them */
  const float *g;
} OptimPiece;

/* Updates a piece, with any optimizer except NovoGrad. Updating in pieces gives the same bits as
 * updating all elements at once. `now` is in the backend's memory. `groups`: NULL: one group of
 * all weights. */
void optim_update(const OptimSpec *o, const OptimGroups *groups, const Backend *b,
                  const StepNumbers *now, const OptimPiece *piece);

/* Runs one step of NovoGrad on the whole arrays. second (params->count): running mean of the
 * squared gradient norm of each weight; 0 before the first update. */
void optim_layers(const OptimSpec *o, const OptimGroups *groups, const Backend *b,
                  const Params *params, float *w, float *m, double *second, const float *g,
                  double lr, double scale);

/* Computes grad_norm and grad_scale of `now` from n sums of squares in host memory, as
 * Backend.clip does on a device. Reads now->loss. */
void optim_clip(StepNumbers *now, const double *sums, size_t n);
/* Returns the norm, given n sums of squares; adds them in the order of clip.h. */
double optim_norm(const double *sums, size_t n);
/* Returns the squared norm of an array in the backend's memory, added in the same order as
 * optim_norm does. Blocks. */
double optim_norm2(const Backend *b, const float *x, size_t n);

#endif
