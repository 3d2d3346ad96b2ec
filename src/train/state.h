/* The model in training: weights, moving average, optimizer state, and the kind of update. The
 * gradients are in World. Depends on model, optim, pass, world.
 *
 * Arrays are flat, of params.padded elements, in the backend's memory unless noted. */
#ifndef TRAIN_STATE_H
#define TRAIN_STATE_H

#include "train/pass.h"
#include "train/pieces.h"
#include "train/world.h"

/* Which rank updates which weights; selected at set-up. */
typedef enum {
  /* One rank with a GPU, or ranks over NCCL: norm, clipping and update of all weights are queued
   * after backward and, with ranks, after the sums; the host waits once per step. */
  UPDATE_ON_DEVICE,
  UPDATE_WHOLE, /* every rank updates all weights, with the same result */
  /* Each rank updates the pieces that it owns; an all-gather follows. Over NCCL all of it is
   * queued, as with UPDATE_ON_DEVICE. */
  UPDATE_SHARDED,
  UPDATE_BY_WEIGHT, /* NovoGrad: every rank updates all weights, one weight after another */
} UpdateKind;

typedef struct {
  Model *model;
  UpdateKind update;
  float *w, *e; /* weights; moving average of w, or NULL */
  /* Copies of w and e in the backend's type; w and e themselves if that is fp32. */
  void *low, *low_e;
  float *m, *v;   /* optimizer state or NULL; with UPDATE_SHARDED only of this rank's pieces */
  double *second; /* (params.count) in host memory: NovoGrad's second moments, or NULL */
  /* (norm_units) sums of squares of the gradient, one per NORM_UNIT elements. */
  double *square_sums;
  double *square_sums_host; /* (norm_units) copy of square_sums in host memory */
  OptimGroups groups;       /* weight decay and learning rate of ranges; frozen ranges */
  Pass pass;                /* runs forward, backward and update */
  Pieces pieces;            /* UPDATE_SHARDED over NCCL; otherwise not open */
  /* Over NCCL a step gathers only what forward and backward read: w (unless low is w) and e
   * then have old values in the pieces of other ranks. */
  bool is_partial;
} ModelState;

/* Allocates all arrays except the model, which must be allocated, and opens world->grads.
 * `micro_batches`: micro-batches per step. */
NODISCARD Err state_open(ModelState *st, World *w, const TrainSpec *spec,
                         uint32_t micro_batches);
/* Adapts the pass to the buckets of w->grads after gradients_set_bucket, before the first step
 * of a run: a sharded optimizer state becomes 0. */
NODISCARD Err state_use_buckets(ModelState *st, World *w, const TrainSpec *spec);
/* Frees all arrays; does nothing if they are not allocated. */
void state_close(ModelState *st, const World *w);

/* Returns the weights for validation: the moving average if there is one. Queues the conversion
 * to the backend's type. */
Weights state_eval_weights(const ModelState *st, const World *w);
/* With UPDATE_SHARDED through the host: all-gathers the weights that each rank has updated. */
NODISCARD Err state_gather_weights(ModelState *st, World *w);
/* Makes w and e complete if they are partial. A collective; blocks. */
NODISCARD Err state_complete_weights(ModelState *st, World *w);

/* The functions below copy between an array of every rank and `whole`, an array of rank 0 in
 * host memory that is ignored on other ranks. Every rank calls them. They do nothing if `array`
 * is NULL. */

/* Copies `whole` to `array` on every rank. */
void state_broadcast(const ModelState *st, World *w, const char *name, float *array,
                     const float *whole);
/* Copy m or v from and to rank 0; if they are sharded, each rank has only its pieces. */
void state_scatter_optimizer(const ModelState *st, World *w, float *array, const float *whole);
NODISCARD Err state_collect_optimizer(const ModelState *st, World *w, float *whole,
                                      const float *array);

#endif
