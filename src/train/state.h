/* The model in training: weights, their moving average, optimizer state, and how an update is made.
 * Gradients are the world's. Depends on model, optim, pass, world.
 *
 * Arrays are flat, of params.padded elements, in the backend's memory unless noted. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "train/pass.h"
#include "train/world.h"

/* Who updates which weights; chosen once, at set-up. */
typedef enum {
  UPDATE_ON_DEVICE, /* one GPU alone: norm, clipping and update are queued behind backward, and the
                       host waits once a step */
  UPDATE_WHOLE,     /* every rank updates all weights, with the same result */
  UPDATE_SHARDED, /* each rank updates the pieces that it owns and sends them to the others */
  UPDATE_BY_WEIGHT, /* NovoGrad: every rank updates all weights, each by the norm of its gradient */
} UpdateKind;

typedef struct {
  Model *model;
  UpdateKind update;
  float *w, *e;      /* weights; their moving average, or NULL */
  void *low, *low_e; /* w and e in the backend's type; the same arrays where that is float */
  float *m, *v;   /* optimizer state, where it has any; UPDATE_SHARDED: of this rank's pieces */
  double *second; /* (params.count) host: NovoGrad's second moments, or NULL */
  double *square_sums;      /* (norm_units) of the gradient's units, in the backend's memory */
  double *square_sums_host; /* (norm_units) the same in host memory */
  Pass pass;                /* forward, backward and update as the backend does them */
} ModelState;

/* Allocates all arrays of the model, which has its memory already, and opens world->grads.
 * `micro_batches`: of a step. */
NODISCARD Err state_open(ModelState *st, World *w, const TrainSpec *spec,
                         uint32_t micro_batches);
void state_close(ModelState *st, const World *w); /* harmless when not open */

/* The weights that validation and translation use: the moving average where there is one. Queues
 * the copy in the backend's type. */
Weights state_eval_weights(const ModelState *st, const World *w);
/* UPDATE_SHARDED: sends the weights that this rank has updated to all ranks, and receives theirs.
 * Between GPUs only queued: state_is_gathering, until allreduce_wait. */
NODISCARD Err state_gather_weights(ModelState *st, World *w);
bool state_is_gathering(const World *w);

/* Between an array of this rank and one of rank 0 in host memory (`whole`, not used by the
 * others); every rank calls them. NULL as the rank's array does nothing. */

/* Rank 0's `whole` to every rank's array. */
void state_broadcast(const ModelState *st, World *w, const char *name, float *array,
                     const float *whole);
/* The same for m and v, of which a rank may hold its pieces only. */
void state_scatter_optimizer(const ModelState *st, World *w, float *array, const float *whole);
NODISCARD Err state_collect_optimizer(const ModelState *st, World *w, float *whole,
                                      const float *array);

#endif
