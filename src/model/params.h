/* Flat parameters: every weight of a model is a stretch of one array, so that gradients,
 * optimizer state and checkpoints are arrays of the same layout. Depends on base. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PARAM_NONE SIZE_MAX /* the offset of a weight that the model does not have */

/* The distribution of initial values: constants, uniform in [-scale, scale], or normal with
 * standard deviation `scale`. */
typedef enum { INIT_ZERO, INIT_ONE, INIT_UNIFORM, INIT_NORMAL } ParamInit;

typedef struct {
  char name[56];
  size_t offset, rows, cols; /* cols 1 for vectors */
  ParamInit init;
  double scale;
} Param;

typedef struct {
  Param *param;
  size_t count, cap;
  size_t total;  /* elements used */
  size_t padded; /* elements of the array: divides among 1 to 10 ranks, and more */
} Params;

/* Adds a weight behind the others and returns its offset. After an error in *err, which the
 * first failure sets, it does nothing and returns PARAM_NONE. */
size_t params_add(Params *p, Err *err, ParamInit init, double scale, size_t rows, size_t cols,
                  const char *fmt, ...) __attribute__((format(printf, 7, 8)));
/* When all weights are added: pads the array. */
void params_finish(Params *p);
void params_free(Params *p);
/* Glorot's (Xavier's) uniform limit of a matrix (rows, cols). */
double params_glorot(size_t rows, size_t cols);
/* Initial values, a pure function of the seed and the names. `w` holds p->padded floats. */
void params_init(const Params *p, uint64_t seed, float *w);

#endif
