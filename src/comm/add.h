/* Element-wise sums of gradients, added in a given order. Terms are fp32 or bf16 (the upper
 * half of a float). Threads: any. Depends on nothing. */
#ifndef COMM_ADD_H
#define COMM_ADD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The format in which the numbers of a term are stored. */
typedef enum {
  TERM_FP32,
  TERM_BF16,
  TERM_ROUNDED, /* stored as floats, but rounded to bf16 before the addition */
} TermKind;

typedef struct {
  const void *x;
  TermKind kind;
} Term;

typedef struct {
  const float *before; /* term that is added first; NULL: none */
  const Term *term;    /* terms that are added after `before`, in array order */
  int terms;
  bool bf16;  /* round the sum to bf16, and store `copy` as bf16 */
  float *sum; /* receives the sum; may be the same array as `before` or as the `x` of a term */
  void *copy; /* receives a second copy of the sum, as floats or bf16; NULL: no copy */
} Addition;

/* Computes a->sum[i] = a->before[i] + the terms' element i, for i < n. */
void add_terms(const Addition *a, size_t n);

/* Convert arrays of n elements. bf16_of_floats rounds to nearest, ties to even; NaN stays
 * NaN. */
void bf16_of_floats(uint16_t *to, const float *from, size_t n);
void floats_of_bf16(float *to, const uint16_t *from, size_t n);

#endif
