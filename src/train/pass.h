/* A training step in terms of the backend: gradients of micro-batches, then norm, clipping and
 * update, all in the backend's memory, so that the host waits for a device once a step. On a
 * device the work is captured as graphs. Knows nothing of ranks, files and schedules; `train` and
 * `bench train` share it. Depends on model, optim, graphs. */
#ifndef TRAIN_PASS_H
#define TRAIN_PASS_H

#include "model/model.h"
#include "train/graphs.h"
#include "train/optim.h"

/* The arrays belong to the caller and are in the backend's memory. Those of the update are needed
 * only where pass_update or pass_whole is called. */
typedef struct {
  const Backend *backend;
  Model *model;
  const OptimSpec *optim; /* not NovoGrad */
  float smoothing;        /* label smoothing */
  float ema;              /* decay of the moving average e */
  bool without_graphs;    /* queue every operation: for what must not be captured */
  float *w, *g, *e;       /* (padded) weights, gradients, moving average of w or NULL */
  void *low;              /* w in the backend's type; w itself where that is fp32 */
  float *m, *v;           /* optimizer state, where the optimizer has it */
  double *sums;           /* of squares, one for each unit of g; see NORM_UNIT */
  StepNumbers *now;       /* of the current step; pass_open allocates it */
  GraphCache graphs;
  uint64_t loaded; /* model->loads after pass_load; 0: nothing is loaded */
  bool is_first;   /* g holds nothing of this step yet */
  /* Arguments of the queued work: */
  float scale;
  GradReady ready;
  void *context;
} Pass;

/* Allocates what the pass itself needs; the caller has set the fields above. */
NODISCARD Err pass_open(Pass *p);
void pass_close(Pass *p); /* harmless when not open */

/* Loads the batch of the next pass_gradients or pass_whole ahead, so that it is copied to a device
 * while that is still busy. Optional; another model_load in between undoes it. */
void pass_load(Pass *p, const void *batch, StepKey key);

/* Seconds after which work on one batch counts as hung, on the slowest machine: for as long as no
 * step has been timed. */
double pass_limit(const Model *model);

/* A step: pass_begin, pass_gradients for each micro-batch, pass_update, pass_end. The gradients
 * are summed and multiplied by `scale`. The first micro-batch overwrites g, so that g need not be
 * cleared; key.first is set here. After pass_clear the first one adds as well. `ready`: see
 * ModelPass; work with it is not captured. */
void pass_begin(Pass *p);
void pass_clear(Pass *p);
NODISCARD Err pass_gradients(Pass *p, const void *batch, StepKey key, float scale,
                             GradReady ready, void *context);
NODISCARD Err pass_update(Pass *p, const StepNumbers *now);
/* All of these but pass_end, for a step of one micro-batch. */
NODISCARD Err pass_whole(Pass *p, const void *batch, StepKey key, float scale,
                         const StepNumbers *now);
/* Waits for the update and returns its numbers. Where now->grad_scale is not finite, the weights
 * are unchanged. */
NODISCARD Err pass_end(Pass *p, StepNumbers *now);

#endif
