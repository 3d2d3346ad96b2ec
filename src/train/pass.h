/* A training step as operations of the backend: gradients of micro-batches, then norm, clipping
 * and update. All arrays are in the backend's memory, so that the host waits for a device once
 * per step. On a device the operations are captured as CUDA graphs. Does not use ranks, files
 * or schedules; `train` and `bench train` share it. Depends on model, optim, graphs. */
#ifndef TRAIN_PASS_H
#define TRAIN_PASS_H

#include "backend/graphs.h"
#include "model/model.h"
#include "train/optim.h"

/* What ranks queue before and in the update, so that the host need not wait for their sums. The
 * functions queue collectives by graphs_act. */
typedef struct {
  /* Queues the sum of now->loss and now->count over all ranks. */
  void (*sum_totals)(void *context);
  /* Queues the sum of the gradients that `ready` has not sent, and makes work that is queued later wait
   * for all sums. */
  void (*finish)(void *context);
  /* With a sharded optimizer: queue the sum of Pass.sums over all ranks, and the all-gather of
   * the weights. Work that is queued later waits for it. */
  void (*sum_squares)(void *context);
  void (*gather_weights)(void *context);
} PassRanks;

/* A range [begin, end) of the flat arrays, which begins at a multiple of NORM_UNIT unless it is
 * empty. */
typedef struct {
  size_t begin, end;
} PassPiece;

/* The caller owns the arrays, which are in the backend's memory. pass_gradients needs w, g and
 * low; pass_update and pass_whole need all. */
typedef struct {
  const Backend *backend;
  Model *model;
  const OptimSpec *optim; /* must not be NovoGrad */
  /* Weight decay and learning rate of ranges; NULL: one group of all weights. */
  const OptimGroups *groups;
  float smoothing;     /* label smoothing */
  float ema;           /* decay of the moving average e */
  bool without_graphs; /* queue every operation instead of launching CUDA graphs */
  float *w, *g, *e;    /* (padded) weights; gradients; moving average of w, or NULL */
  void *low;           /* copy of w in the backend's type; w itself if that is fp32 */
  float *m, *v;        /* optimizer state; NULL if the optimizer does not have it */
  /* With a sharded optimizer: the ranges that this rank updates, with e; m and v hold these
   * ranges one after another. NULL: all weights. */
  const PassPiece *piece;
  size_t pieces;
  double *sums;           /* sums of squares of g, one per NORM_UNIT elements */
  const PassRanks *ranks; /* NULL: the update does not sum over ranks */
  void *ranks_context;
  /* Learning rate, norm and losses of the current step; allocated by pass_open. */
  StepNumbers *now;
  GraphCache graphs;
  uint64_t loaded; /* value of model->loads after pass_load; 0: no batch is loaded */
  bool is_first;   /* the next micro-batch is the first of the step and overwrites g */
  bool has_summed; /* ranks: the sum of the losses is queued */
  /* Arguments of the function that queues the work: */
  float scale;
  GradReady ready;
  void *context;
} Pass;

/* Allocates `now`. The caller must have set the fields above it. */
NODISCARD Err pass_open(Pass *p);
void pass_close(Pass *p); /* frees `now` and the CUDA graphs; does nothing if not open */

/* Copies the batch of the next pass_gradients or pass_whole to the device ahead of time, while
 * the device is still busy. Optional. A call of model_load in between cancels it. */
void pass_load(Pass *p, const void *batch, StepKey key);

/* Returns an upper limit, in seconds, of the time for one batch on a slow machine. Used as the
 * timeout until a step has been timed. */
double pass_limit(const Model *model);

/* A step consists of pass_begin, pass_gradients for each micro-batch, pass_update and pass_end.
 * g accumulates the gradients of scale * loss. The first micro-batch overwrites g, so g need
 * not be cleared; key.first is ignored. After pass_clear, which sets g to zero, the first one
 * adds too. `ready`: see ModelPass; if CUDA graphs are used, it must queue collectives by graphs_act and
 * have no other effect that counts, as it is not called when a graph is launched. */
void pass_begin(Pass *p);
void pass_clear(Pass *p);
NODISCARD Err pass_gradients(Pass *p, const void *batch, StepKey key, float scale,
                             GradReady ready, void *context);
NODISCARD Err pass_update(Pass *p, const StepNumbers *now);
/* Runs pass_gradients of the last micro-batch, then pass_update. A step of one micro-batch is pass_begin
 * and pass_whole. With `ranks`, now->count has the counts of this rank, including this micro-batch. */
NODISCARD Err pass_whole(Pass *p, const void *batch, StepKey key, float scale, GradReady ready,
                         void *context, const StepNumbers *now);
/* Blocks until the update is complete and returns its numbers. If now->grad_scale is not
 * finite, the update was skipped. */
NODISCARD Err pass_end(Pass *p, StepNumbers *now);

#endif
