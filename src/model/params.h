/* Flat parameters: all weights of a model are in one array, so that gradients, optimizer state
 * and checkpoints are arrays of the same layout. Depends on base. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PARAM_NONE SIZE_MAX /* offset that marks a weight which the model does not have */

/* The distribution of initial values: constants, uniform in [-scale, scale], or normal with
 * standard deviation `scale`. */
typedef enum { INIT_ZERO, INIT_ONE, INIT_UNIFORM, INIT_NORMAL } ParamInit;

/* Whether --weight-decay applies in any case (matrices, embeddings), or only if biases decay too
 * (vectors: biases and gains of norms). */
typedef enum { PARAM_DECAY, PARAM_BIAS } ParamGroup;

typedef struct {
  char name[56];
  size_t offset, rows, cols; /* position in the flat array and shape; cols is 1 for vectors */
  ParamInit init;
  double scale;
  ParamGroup group; /* set by params_add: PARAM_BIAS for vectors */
  uint32_t depth;   /* Params.depth at the time of params_add */
  /* Forward or backward read it in fp32 (Weights.full), also if the backend computes in another
   * type. */
  bool is_full;
} Param;

typedef struct {
  Param *param;
  size_t count, cap;
  size_t total;  /* elements of all weights, without padding */
  size_t padded; /* elements of the array with padding; divisible by 1 to 10 ranks */
  /* Number of layers, for layer-wise learning rates and frozen layers; 0: the family does not
   * number them. */
  uint32_t layers;
  /* Where params_add appends: 0 embeddings, 1 … layers, layers + 1 what follows the last layer.
   * The family sets both. */
  uint32_t depth;
} Params;

/* Appends a weight and returns its offset. The first failure is stored in *err; later calls
 * then do nothing and return PARAM_NONE. */
size_t params_add(Params *p, Err *err, ParamInit init, double scale, size_t rows, size_t cols,
                  const char *fmt, ...) __attribute__((format(printf, 7, 8)));
/* params_add of a weight with Param.is_full. */
size_t params_add_full(Params *p, Err *err, ParamInit init, double scale, size_t rows,
                       size_t cols, const char *fmt, ...) __attribute__((format(printf, 7, 8)));
/* Returns the number of elements of the weights with Param.is_full. */
size_t params_count_full(const Params *p);
/* Pads the array. Call it after the last params_add. */
void params_finish(Params *p);
void params_free(Params *p);
/* Returns the limit of the Glorot (Xavier) uniform distribution for a matrix (rows, cols). */
double params_glorot(size_t rows, size_t cols);
/* Fills `w`, p->padded floats, with initial values, which depend only on the seed and the names
 * of the weights. */
void params_init(const Params *p, uint64_t seed, float *w);

#endif
