/* A step as the backend does it: gradients of micro-batches, then norm, clipping and
 * update in its own memory, so that nobody waits in between; on a device recorded and
 * replayed. Knows nothing of ranks, files and schedules: `train` and `bench` share it.
 * Relies on model, optim, replay. */
#ifndef TRAIN_PASS_H
#define TRAIN_PASS_H

#include "model/model.h"
#include "train/optim.h"
#include "train/replay.h"

/* The arrays are the caller's, in the backend's memory; of the update's only where
 * pass_update or pass_whole is called. */
typedef struct {
  const Backend *backend;
  Model *model;
  const OptimSpec *optim; /* not NovoGrad */
  float smoothing;
  float ema;        /* what is kept of e */
  bool plain;       /* nothing is to be recorded */
  float *w, *g, *e; /* flat; e: mean of the weights, or NULL */
  void *low;        /* w in the backend's type; w itself where that is float */
  float *m, *v;     /* moments, where the optimiser has them */
  double *sums;     /* of squares, for each unit of g */
  StepNumbers *now; /* pass_open's */
  Replays replays;
  uint64_t loaded; /* the model's load that was pass_load's; 0: none */
  bool first;      /* nothing of the step is in g yet */
  /* Of the work at hand: */
  float scale;
  GradReady ready;
  void *context;
} Pass;

/* Takes what memory it needs itself; the fields above are set before. */
NODISCARD Err pass_open(Pass *p);
void pass_close(Pass *p); /* harmless when not open */

/* The batch and key of the next pass_gradients or pass_whole, so that they are on their way
 * to a device while it is still at work. Not needed, and undone by other uses of the model. */
void pass_load(Pass *p, const void *batch, StepKey key);

/* Seconds after which work on one batch, or a part of it, counts as hung on the slowest machine:
 * for what has not been measured yet. */
double pass_limit(const Model *model);

/* A step: one update uses the sum of the micro-batches' gradients, times `scale`. The
 * first micro-batch writes where the others add, so that g need not be cleared: `first`
 * of the key is set here. After pass_clear it adds as well. ready: see model_run;
 * work that tells is not recorded. */
void pass_begin(Pass *p);
void pass_clear(Pass *p);
NODISCARD Err pass_gradients(Pass *p, const void *batch, StepKey key, float scale,
                             GradReady ready, void *context);
NODISCARD Err pass_update(Pass *p, const StepNumbers *now);
/* All of it for a step of one micro-batch. */
NODISCARD Err pass_whole(Pass *p, const void *batch, StepKey key, float scale,
                         const StepNumbers *now);
/* What the update came to: waits for it. The weights are as they were where now->grad_scale is
 * not finite. */
NODISCARD Err pass_end(Pass *p, StepNumbers *now);

#endif
