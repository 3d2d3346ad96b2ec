/* Sums of gradients, element by element, in a given order; and bf16, the upper half of a float.
 * Relies on nothing. */
#ifndef COMM_ADD_H
#define COMM_ADD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the numbers of a term are stored. */
typedef enum {
  TERM_FP32,    /* floats */
  TERM_BF16,    /* bf16 */
  TERM_ROUNDED, /* floats, to be rounded to bf16 as if they had been sent */
} TermKind;

typedef struct {
  const void *x;
  TermKind kind;
} Term;

typedef struct {
  const float *before; /* added first; NULL: nothing */
  const Term *term;    /* then these, in their order */
  int terms;
  bool bf16;  /* the sum is rounded to bf16, and `copy` is stored in it */
  float *sum; /* may be `before` or the `x` of a term */
  void *copy; /* a second place for the sum, of floats or bf16; NULL: none */
} Addition;

/* Adds n elements. */
void add_terms(const Addition *a, size_t n);

void bf16_of_floats(uint16_t *to, const float *from,
                    size_t n); /* ties to even, NaN stays NaN */
void floats_of_bf16(float *to, const uint16_t *from, size_t n);

#endif
