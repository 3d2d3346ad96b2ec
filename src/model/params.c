/* Offsets and initial values of the parameters in the flat array. Depends on base. */
#include "model/params.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

#define ALIGN ((size_t)16) /* floats; each weight begins at a 64-byte cache line */
/* Unit of the padded length in floats: 1 to 10 ranks can divide the array evenly. */
#define UNIT ((size_t)5040 * 16)

size_t params_add(Params *p, Err *err, ParamInit init, double scale, size_t rows, size_t cols,
                  const char *fmt, ...) {
  if (*err) return PARAM_NONE;
  *err = mem_grow(&p->param, &p->cap, p->count + 1, sizeof *p->param);
  if (*err) return PARAM_NONE;
  Param *q = &p->param[p->count++];
  *q = (Param){.offset = p->padded, .rows = rows, .cols = cols, .init = init, .scale = scale};
  q->group = cols == 1 ? PARAM_BIAS : PARAM_DECAY;
  q->depth = p->depth;
  va_list args;
  va_start(args, fmt);
  vsnprintf(q->name, sizeof q->name, fmt, args);
  va_end(args);
  p->total += rows * cols;
  p->padded += (rows * cols + ALIGN - 1) / ALIGN * ALIGN;
  return q->offset;
}

void params_finish(Params *p) {
  p->padded = (p->padded + UNIT - 1) / UNIT * UNIT;
}

void params_free(Params *p) {
  mem_free(p->param);
  *p = (Params){0};
}

double params_glorot(size_t rows, size_t cols) {
  return sqrt(6.0 / (double)(rows + cols));
}

static void init_param(const Param *q, uint64_t seed, float *w) {
  uint64_t key = rng_mix(seed, rng_hash(q->name, strlen(q->name), 0));
  for (size_t i = 0; i < q->rows * q->cols; i++) {
    uint32_t word[4];
    rng_philox(key, 0, i, word);
    double u = (word[0] + 0.5) / 4294967296.0;
    double v = (word[1] + 0.5) / 4294967296.0;
    if (q->init == INIT_UNIFORM)
      w[i] = (float)(q->scale * (2 * u - 1));
    else /* normal distribution by the Box-Muller transform */
      w[i] = (float)(q->scale * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
  }
}

void params_init(const Params *p, uint64_t seed, float *w) {
  memset(w, 0, p->padded * sizeof *w);
  for (size_t i = 0; i < p->count; i++) {
    const Param *q = &p->param[i];
    if (q->init == INIT_ONE)
      for (size_t e = 0; e < q->rows * q->cols; e++) w[q->offset + e] = 1;
    if (q->init == INIT_UNIFORM || q->init == INIT_NORMAL) init_param(q, seed, w + q->offset);
  }
}
