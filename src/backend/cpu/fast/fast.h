/* The fast CPU operations. The files in this directory are compiled once per instruction set; the
 * Makefile sets ISA (the suffix of public names) and the compiler flags, and cpu.c selects one at
 * start-up. Depends on backend.h. */
#ifndef BACKEND_CPU_FAST_H
#define BACKEND_CPU_FAST_H

#include "backend/backend.h"
#include "backend/cpu/fast/lanes.h"
#include "backend/cpu/gemm_internal.h"

#define FAST_PASTE_(name, isa) name##_##isa
#define FAST_PASTE(name, isa)  FAST_PASTE_(name, isa)
#define FAST(name)             FAST_PASTE(name, ISA)

/* Declares the functions that set the operations of a Backend for one instruction set, and its
 * GEMM kernel. */
#define FAST_DECLARE(isa)                   \
  void fast_rows_##isa(Backend *backend);   \
  void fast_attend_##isa(Backend *backend); \
  void fast_step_##isa(Backend *backend);   \
  double fast_peak_##isa(size_t rounds);    \
  extern const GemmKernel gemm_f32_##isa;
FAST_DECLARE(base)
#if defined(__x86_64__)
FAST_DECLARE(v3)
FAST_DECLARE(v4)
#endif

/* sum (cols) = column sums of x (rows, cols), + sum if `accumulate`. Each column is summed by one
 * thread, in the order of the rows, so the bits do not depend on the number of threads. */
void cpu_column_sums(const Backend *b, float *sum, const float *x, size_t rows, size_t cols,
                     bool accumulate);

/* Executes multiply-adds on the calling thread and returns the number of FLOPs. */
double FAST(fast_peak)(size_t rounds);

/* Sets the activations of a Backend; fast_rows calls it. */
void FAST(fast_activations)(Backend *b);

/* Writes the dropout factors (0 or dropout_scale()) of n elements, beginning with element
 * `first`. `factor` must have room for n + 16 floats. */
void FAST(fast_drop)(float *factor, Dropout drop, uint64_t first, size_t n);

/* Returns the calling thread's part of the working memory that Backend.reserve allocated, which
 * must have at least `floats` elements. After `reserve` for sentences of n tokens it has more
 * than n elements. */
float *FAST(fast_thread_work)(size_t floats);

#endif
