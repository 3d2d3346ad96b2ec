/* The CPU backend: selects the kernels for the instruction set of this machine and sets the table
 * of operations. Depends on gemm.h, head.h, fast/fast.h, host.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "backend/backend.h"
#include "backend/cpu/fast/fast.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/head.h"
#include "backend/cpu/packed.h"
#include "backend/host.h"
#include "base/parallel.h"
#include "base/thread.h"

static void linear(const Backend *b, void *y, const void *x, const void *w, const void *bias,
                   size_t rows, size_t in, size_t out) {
  gemm(&(Gemm){.m = rows,
               .n = out,
               .k = in,
               .a = x,
               .lda = in,
               .b = w,
               .ldb = in,
               .tb = true,
               .c = y,
               .ldc = out,
               .bias = bias,
               .bf16 = b->bf16,
               .few_rows = b->few_rows,
               .packed = packed_find(b->packed, w)});
}

static void linear_dx(const Backend *b, void *dx, const void *dy, const void *w, size_t rows,
                      size_t in, size_t out, bool accumulate) {
  gemm(&(Gemm){.m = rows,
               .n = in,
               .k = out,
               .a = dy,
               .lda = out,
               .b = w,
               .ldb = in,
               .c = dx,
               .ldc = in,
               .accumulate = accumulate,
               .bf16 = b->bf16,
               .few_rows = b->few_rows});
}

static void linear_dw(const Backend *b, float *dw, float *dbias, const void *dy, const void *x,
                      size_t rows, size_t in, size_t out, bool accumulate) {
  if (rows == 0 && !accumulate) memset(dw, 0, in * out * sizeof *dw);
  if (rows)
    gemm(&(Gemm){.m = out,
                 .n = in,
                 .k = rows,
                 .a = dy,
                 .lda = out,
                 .ta = true,
                 .b = x,
                 .ldb = in,
                 .c = dw,
                 .ldc = in,
                 .accumulate = accumulate,
                 .bf16 = b->bf16,
                 .few_rows = b->few_rows});
  if (dbias) cpu_column_sums(b, dbias, dy, rows, out, accumulate);
}

/* An instruction set, whether this machine supports it, and the functions that set its
 * kernels. */
typedef struct {
  const char *name;
  bool is_available;
  const GemmKernel *gemm;
  void (*rows)(Backend *);
  void (*attend)(Backend *);
  void (*step)(Backend *);
  double (*peak)(size_t rounds);
  const GemmKernel *few_rows; /* for few rows, or NULL to use `gemm` */
} Isa;

/* Selects the best instruction set of this machine, or the one that TRIREME_ISA names. */
static Err pick_isa(Isa *out) {
  const char *wanted = getenv("TRIREME_ISA");
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512cd");
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi2");
  const Isa list[] = {{"avx512+amx", v4 && gemm_amx_usable(), &gemm_amx_f32, fast_rows_v4,
                       fast_attend_v4, fast_step_v4, gemm_amx_f32_peak, &gemm_f32_v4},
                      {"avx512", v4, &gemm_f32_v4, fast_rows_v4, fast_attend_v4, fast_step_v4,
                       fast_peak_v4, NULL},
                      {"avx2", v3, &gemm_f32_v3, fast_rows_v3, fast_attend_v3, fast_step_v3,
                       fast_peak_v3, NULL},
                      {"sse2", true, &gemm_f32_base, fast_rows_base, fast_attend_base,
                       fast_step_base, fast_peak_base, NULL}};
#elif defined(__aarch64__)
  const Isa list[] = {{"neon", true, &gemm_f32_base, fast_rows_base, fast_attend_base,
                       fast_step_base, fast_peak_base, NULL}};
#else
  const Isa list[] = {{"plain", true, &gemm_f32_base, fast_rows_base, fast_attend_base,
                       fast_step_base, fast_peak_base, NULL}};
#endif
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (!list[i].is_available || (wanted && *wanted && strcmp(wanted, list[i].name) != 0))
      continue;
    *out = list[i];
    return ERR_OK;
  }
  return err_set(ERR_USAGE,
                 "TRIREME_ISA=%s: this machine does not have that instruction set; unset "
                 "TRIREME_ISA to use the best one",
                 wanted);
}

/* The GEMM kernel for bf16 matrix units, and its name. */
typedef struct {
  const GemmKernel *gemm; /* NULL: this machine has no bf16 matrix units */
  const char *name;
} Bf16Units;

static Bf16Units find_bf16_units(void) {
#if defined(__aarch64__) && defined(__linux__)
  if (getauxval(AT_HWCAP2) & HWCAP2_BF16) return (Bf16Units){&gemm_bfmmla, "bfmmla"};
#endif
  return gemm_amx_usable() ? (Bf16Units){&gemm_amx, "amx"} : (Bf16Units){0};
}

Err backend_cpu(Backend *b, int threads, bool bf16) {
  *b = (Backend){.name = "cpu", .threads = threads > 0 ? threads : thread_cores()};
#ifndef _OPENMP
  b->threads = 1; /* A build without OpenMP uses one thread; the log must say so. */
#endif
  Isa isa = {0};
  TRY(pick_isa(&isa));
  Bf16Units units = find_bf16_units();
  if (bf16 && !units.gemm)
    return err_set(
        ERR_USAGE,
        "--precision bf16 needs a CPU with BFMMLA (ARM) or AMX (x86), which this one "
        "lacks; use --precision fp32");
  b->bf16 = bf16;
  gemm_use((GemmKernels){.f32 = isa.gemm, .few_rows = isa.few_rows, .bf16 = units.gemm});
  TRY(gemm_reserve(b->threads));
  host_fill_table(b);
  isa.rows(b);
  isa.attend(b);
  isa.step(b);
  cpu_fill_head(b);
  b->pack = packed_add;
  b->unpack = packed_free;
  b->linear = linear;
  b->linear_dx = linear_dx;
  b->linear_dw = linear_dw;
  snprintf(b->about, sizeof b->about, "cpu: %s%s%s, %d %s", isa.name,
           bf16 ? " with bf16 GEMMs in " : "", bf16 ? units.name : "", b->threads,
           b->threads == 1 ? "thread" : "threads");
  return ERR_OK;
}

static double read_thread_time(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns the best of several measurements on the calling thread in FLOP/s: the one that other
 * processes disturbed least. Time in which the thread does not run does not count. */
static double measure_thread(const Isa *isa) {
  enum { MEASUREMENTS = 8, ROUNDS = 2000 };
  const double shortest = 0.4e-3; /* seconds of one measurement */
  double best = 0;
  for (int i = 0; i < MEASUREMENTS; i++) {
    double start = read_thread_time(), took = 0, flops = 0;
    while (took < shortest) {
      flops += isa->peak(ROUNDS);
      took = read_thread_time() - start;
    }
    if (flops / took > best) best = flops / took;
  }
  return best;
}

/* All threads measure at the same time, because hyperthreads share the units of their core. */
double backend_cpu_peak(int threads) {
  Isa isa = {0};
  double sum = 0;
  if (pick_isa(&isa)) return 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
  sum += measure_thread(&isa);
  return sum;
}
