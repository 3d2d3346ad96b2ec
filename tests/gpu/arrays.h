/* Arrays on the GPU for tests of its operations. Include after cmocka.h. Depends on gpu.h and
 * ../unit/ops_cases.h. */
#ifndef TESTS_GPU_ARRAYS_H
#define TESTS_GPU_ARRAYS_H

#include "../unit/ops_cases.h"
#include "gpu.h"

static const char *const precisions[] = {"fp32", "bf16", "fp16"};
static const double rounding[] = {0x1p-24, 0x1p-9, 0x1p-12}; /* unit roundoff of each type */

static inline float widen(Type type, uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float value;
  if (type == TYPE_F16) {
    int exponent = half >> 10 & 31;
    value = ldexpf((float)(exponent ? half % 1024 + 1024 : half % 1024),
                   exponent ? exponent - 25 : -24);
    if (exponent == 31) value = half % 1024 ? NAN : INFINITY;
    return half >> 15 ? -value : value;
  }
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Copy floats to and from an array on the GPU. low: the array has the backend's type. */
static inline void *upload(const Backend *b, const float *x, size_t n, bool low) {
  float *full;
  void *there;
  ok(b->alloc(b, &full, n * sizeof *full));
  b->put(b, full, x, n * sizeof *full);
  if (!low || b->type == TYPE_F32) return full;
  ok(b->alloc(b, &there, n * type_size(b->type)));
  b->lower(b, there, full, n);
  b->release(b, full);
  return there;
}

static inline void download(const Backend *b, float *x, const void *there, size_t n, bool low) {
  if (!low || b->type == TYPE_F32) {
    ok(b->get(b, x, there, n * sizeof *x));
    return;
  }
  uint16_t *half;
  ok(mem_alloc(&half, n, sizeof *half));
  ok(b->get(b, half, there, n * sizeof *half));
  for (size_t i = 0; i < n; i++) x[i] = widen(b->type, half[i]);
  mem_free(half);
}

static inline void *upload_ints(const Backend *b, const int32_t *x, size_t n) {
  void *there;
  ok(b->alloc(b, &there, n * sizeof *x));
  b->put(b, there, x, n * sizeof *x);
  return there;
}

static inline const uint64_t *upload_key(const Backend *b, const uint64_t *key) {
  uint64_t *there;
  ok(b->alloc(b, &there, sizeof *there));
  b->put(b, there, key, sizeof *key);
  return there;
}

/* Returns the relative distance of a from b. */
static inline double apart(const float *a, const float *b, size_t n) {
  double error = 0, size = 0;
  for (size_t i = 0; i < n; i++) {
    error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    size += (double)b[i] * b[i];
  }
  return sqrt(error / (size + 1e-30));
}

/* Fills an array with random numbers of draw(), repeated, because draw() is slow. */
static inline float *draw_many(size_t n) {
  size_t few = 65521;
  float *some = draw(few), *x;
  ok(mem_alloc_aligned(&x, (n + 16) * sizeof *x));
  for (size_t i = 0; i < n; i++) x[i] = some[(i * 7 + i / few * 131) % few];
  mem_free(some);
  return x;
}

#endif
