/* The fast operations, compiled once for each instruction set; the Makefile sets
 * ISA and the compiler's flags, cpu.c picks one at start. Relies on backend. */
#ifndef BACKEND_CPU_FAST_H
#define BACKEND_CPU_FAST_H

#include "backend/backend.h"
#include "backend/cpu/gemm_internal.h"

#define FAST_PASTE_(name, isa) name##_##isa
#define FAST_PASTE(name, isa)  FAST_PASTE_(name, isa)
#define FAST(name)             FAST_PASTE(name, ISA)

#ifdef __AVX512F__
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float Lanes __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* One set of entries for each instruction set. */
#define FAST_DECLARE(isa)                   \
  void fast_rows_##isa(Backend *backend);   \
  void fast_attend_##isa(Backend *backend); \
  void fast_step_##isa(Backend *backend);   \
  extern const GemmKernel gemm_f32_##isa;
FAST_DECLARE(base)
#if defined(__x86_64__)
FAST_DECLARE(v3)
FAST_DECLARE(v4)
#endif

/* sum (cols) = the column sums of x, added when `add`; each is made by one thread in the
 * order of the rows. */
void cpu_column_sums(const Backend *b, float *sum, const float *x, size_t rows, size_t cols,
                     bool add);

/* exp(x) for x at most about 88, to 2 units of the last place; below -87 it is 0.
 * Plain arithmetic, so that loops around it become vectors. */
static inline float fast_exp(float x) {
  float n = x * 1.44269504f;
  n = n < -126 ? -126 : n;
  n = n + 12582912.0f; /* 1.5 * 2^23: rounds to a whole number in the low bits */
  int32_t bits;
  __builtin_memcpy(&bits, &n, 4);
  n -= 12582912.0f;
  float r = x - n * 0.693359375f;
  r -= n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1;
  int32_t power = (int32_t)((uint32_t)(bits + 127) << 23); /* 2^n */
  float two;
  __builtin_memcpy(&two, &power, 4);
  return x < -87 ? 0 : p * two;
}

/* Factors (0 or the scale) of `n` elements from `first` on, 64 at a time at most
 * into `factor`, which has room for n + 16. */
void FAST(fast_drop)(float *factor, Dropout drop, uint64_t first, size_t n);

#endif
