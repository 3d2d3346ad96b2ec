/* Adds gradients. Each storage format (fp32, bf16) has a plain loop of its own, which the
 * compiler vectorizes. Depends on nothing. */
#include "comm/add.h"

#include <string.h>

#define TILE 2048 /* floats that are added at a time; 8 KB stay in the L1 cache */

static uint16_t round_to_bf16(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
  /* Set a mantissa bit that survives the cut to 16 bits, so that the result is a NaN too. */
  if (is_nan) return (uint16_t)(u >> 16 | 0x40u);
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static float widen_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

void bf16_of_floats(uint16_t *restrict to, const float *restrict from, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = round_to_bf16(from[i]);
}

void floats_of_bf16(float *restrict to, const uint16_t *restrict from, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = widen_bf16(from[i]);
}

static void add_floats(float *restrict acc, const float *restrict x, size_t n) {
  for (size_t i = 0; i < n; i++) acc[i] += x[i];
}

static void add_bf16(float *restrict acc, const uint16_t *restrict x, size_t n) {
  for (size_t i = 0; i < n; i++) acc[i] += widen_bf16(x[i]);
}

static void add_rounded(float *restrict acc, const float *restrict x, size_t n) {
  for (size_t i = 0; i < n; i++) acc[i] += widen_bf16(round_to_bf16(x[i]));
}

static void copy_rounded(float *restrict to, const float *restrict x, size_t n) {
  for (size_t i = 0; i < n; i++) to[i] = widen_bf16(round_to_bf16(x[i]));
}

static void add_and_copy(float *restrict acc, const float *restrict x, float *restrict copy,
                         size_t n) {
  for (size_t i = 0; i < n; i++) {
    acc[i] += x[i];
    copy[i] = acc[i];
  }
}

static void start_sum(float *acc, const Term *t, size_t at, size_t n) {
  switch (t->kind) {
    case TERM_FP32:
      memcpy(acc, (const float *)t->x + at, n * sizeof *acc);
      break;
    case TERM_BF16:
      floats_of_bf16(acc, (const uint16_t *)t->x + at, n);
      break;
    case TERM_ROUNDED:
      copy_rounded(acc, (const float *)t->x + at, n);
      break;
  }
}

static void add_term(float *acc, const Term *t, size_t at, size_t n) {
  switch (t->kind) {
    case TERM_FP32:
      add_floats(acc, (const float *)t->x + at, n);
      break;
    case TERM_BF16:
      add_bf16(acc, (const uint16_t *)t->x + at, n);
      break;
    case TERM_ROUNDED:
      add_rounded(acc, (const float *)t->x + at, n);
      break;
  }
}

/* Adds two fp32 terms if one of them is stored in a->sum already; returns false for any
 * other addition. Floating-point addition is commutative, so either term may be the
 * accumulator. */
static bool add_in_place(const Addition *a, size_t n) {
  if (a->terms != 2 || a->before || a->bf16) return false;
  if (a->term[0].kind != TERM_FP32 || a->term[1].kind != TERM_FP32) return false;
  const float *x = a->term[0].x, *y = a->term[1].x;
  if (x != a->sum && y != a->sum) return false;
  const float *other = x == a->sum ? y : x;
  if (a->copy)
    add_and_copy(a->sum, other, a->copy, n);
  else
    add_floats(a->sum, other, n);
  return true;
}

static void store_sum(const Addition *a, float *acc, size_t skip, size_t n) {
  if (a->bf16)
    copy_rounded(a->sum + skip, acc, n);
  else
    memcpy(a->sum + skip, acc, n * sizeof *acc);
  if (!a->copy) return;
  if (a->bf16)
    bf16_of_floats((uint16_t *)a->copy + skip, acc, n);
  else
    memcpy((float *)a->copy + skip, acc, n * sizeof *acc);
}

void add_terms(const Addition *a, size_t n) {
  float acc[TILE];
  if (add_in_place(a, n)) return;
  for (size_t skip = 0; skip < n; skip += TILE) {
    size_t m = n - skip < TILE ? n - skip : TILE;
    int next = 0;
    if (a->before)
      memcpy(acc, a->before + skip, m * sizeof *acc);
    else if (a->terms)
      start_sum(acc, &a->term[next++], skip, m);
    for (; next < a->terms; next++) add_term(acc, &a->term[next], skip, m);
    store_sum(a, acc, skip, m);
  }
}
