/* The fast operations, compiled once for each instruction set; the Makefile sets
 * ISA and the compiler's flags, cpu.c picks one at start. Relies on backend. */
#ifndef BACKEND_CPU_FAST_H
#define BACKEND_CPU_FAST_H

#include "backend/backend.h"
#include "backend/cpu/fast/lanes.h"
#include "backend/cpu/gemm_internal.h"

#define FAST_PASTE_(name, isa) name##_##isa
#define FAST_PASTE(name, isa)  FAST_PASTE_(name, isa)
#define FAST(name)             FAST_PASTE(name, ISA)

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

/* Factors (0 or the scale) of `n` elements from `first` on, 64 at a time at most
 * into `factor`, which has room for n + 16. */
void FAST(fast_drop)(float *factor, Dropout drop, uint64_t first, size_t n);

#endif
