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

static size_t add_param(Params *p, Err *err, const Param *like, const char *fmt, va_list args) {
  if (*err) return PARAM_NONE;
  *err = mem_grow(&p->param, &p->cap, p->count + 1, sizeof *p->param);
  if (*err) return PARAM_NONE;
  Param *q = &p->param[p->count++];
  *q = *like;
  q->offset = p->padded;
  q->group = q->cols == 1 ? PARAM_BIAS : PARAM_DECAY;
  q->depth = p->depth;
  vsnprintf(q->name, sizeof q->name, fmt, args);
  p->total += q->rows * q->cols;
  p->padded += (q->rows * q->cols + ALIGN - 1) / ALIGN * ALIGN;
  return q->offset;
}

size_t params_add(Params *p, Err *err, ParamInit init, double scale, size_t rows, size_t cols,
                  const char *fmt, ...) {
  Param like = {.rows = rows, .cols = cols, .init = init, .scale = scale};
  va_list args;
  va_start(args, fmt);
  size_t offset = add_param(p, err, &like, fmt, args);
  va_end(args);
  return offset;
}

size_t params_add_full(Params *p, Err *err, ParamInit init, double scale, size_t rows,
                       size_t cols, const char *fmt, ...) {
  Param like = {.rows = rows, .cols = cols, .init = init, .scale = scale, .is_full = true};
  va_list args;
  va_start(args, fmt);
  size_t offset = add_param(p, err, &like, fmt, args);
  va_end(args);
  return offset;
}

size_t params_count_full(const Params *p) {
  size_t n = 0;
  for (size_t i = 0; i < p->count; i++)
    if (p->param[i].is_full) n += p->param[i].rows * p->param[i].cols;
  return n;
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
