/* Element-wise sums of gradients in a given order, in fp32 or from bf16 (the upper half of a
 * float). Threads: any. Depends on nothing. */
#ifndef COMM_ADD_H
#define COMM_ADD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the numbers of a term are stored. */
typedef enum {
  TERM_FP32,    /* floats */
  TERM_BF16,    /* bf16 */
  TERM_ROUNDED, /* floats, rounded to bf16 before they are added */
} TermKind;

typedef struct {
  const void *x;
  TermKind kind;
} Term;

typedef struct {
  const float *before; /* added first; NULL: nothing */
  const Term *term;    /* then these, in their order */
  int terms;
  bool bf16;  /* round the sum to bf16, and store `copy` as bf16 */
  float *sum; /* may be `before` or the `x` of a term */
  void *copy; /* where the sum is stored a second time, as floats or bf16; NULL: nowhere */
} Addition;

/* Adds n elements. */
void add_terms(const Addition *a, size_t n);

/* Rounds to nearest, ties to even; NaN stays NaN. */
void bf16_of_floats(uint16_t *to, const float *from, size_t n);
void floats_of_bf16(float *to, const uint16_t *from, size_t n);

#endif
