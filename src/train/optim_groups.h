/* Optimizer groups: ranges of the flat parameters with their own weight decay and learning rate,
 * and frozen ranges, which are not updated. Without options there is one group of all weights.
 * Depends on backend, params. */
#ifndef TRAIN_OPTIM_GROUPS_H
#define TRAIN_OPTIM_GROUPS_H

#include "backend/backend.h"
#include "model/params.h"

typedef struct {
  bool skips_biases; /* no weight decay for biases and for gains of norms */
  /* Factor of the learning rate from each layer to the one below it; the weights after the last
   * layer have factor 1. 0 or 1: none. */
  float layer_lr_decay;
  uint32_t freeze_layers; /* the embeddings and so many layers are frozen; 0: none */
} GroupSpec;

typedef AdamRange OptimGroup;

typedef struct {
  OptimGroup *group; /* in the order of the array; together they cover it, padding included */
  size_t count;
} OptimGroups;

/* Divides the parameters. Fails if the model does not number its layers or has fewer. */
NODISCARD Err groups_new(OptimGroups *groups, const Params *params, const GroupSpec *spec);
void groups_free(OptimGroups *groups);
/* Returns the group that contains element `at`. */
const OptimGroup *groups_find(const OptimGroups *groups, size_t at);
/* Sets the gradients of frozen groups to zero, so that they do not count in the norm. g is the
 * whole array, in the backend's memory. */
void groups_clear_frozen(const OptimGroups *groups, const Backend *b, float *g);
/* Returns the number of weights in params that are updated. */
size_t groups_count_updated(const OptimGroups *groups, const Params *params);

#endif
