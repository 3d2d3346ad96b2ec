/* Selects the algorithm of a GEMM by timing those that cuBLASLt's heuristic proposes, under the
 * conditions of a training step:
 *   cache    Between two runs of a GEMM a step accesses much more memory than fits into the L2
 *            cache. An algorithm that is the fastest with its operands in the cache need not be
 *            the fastest in a step, so the cache is flushed before each run.
 *   counter  cuBLASLt zeroes the tile counter of a GEMM with a memset, which a graph does not
 *            contain (MATMUL_COUNTERS). The time of the memset is subtracted.
 *   clock    During training the GPU runs at its power limit and a lower clock. The finalists are
 *            timed interleaved, so that the clock is the same for all.
 * Depends on cuBLASLt, matmul_call.h. */
#include "backend/cuda/matmul_time.h"

#include <stdlib.h>

#include "backend/backend.h"
#include "backend/cuda/matmul_call.h"

#define CANDIDATES 16 /* number of algorithms requested from the heuristic */
#define RUNS       3  /* timed runs of each candidate; the median counts */
/* number of fastest candidates, which are timed again for longer */
#define FINALISTS 8
#define ROUNDS    2    /* rounds of timing the finalists */
#define LONG_MS   4.0f /* milliseconds for which a finalist is timed per round */
#define MAX_RUNS  24   /* maximum runs of a finalist per round */
/* A step with GEMMs of fewer bytes than this part of the L2 cache is assumed to fit into it. */
#define SMALL_PART 64
/* Memsets of a tile counter that are timed together, and memsets of the flush buffer before them,
 * which keep the GPU busy until all are enqueued. */
#define COUNTER_MEMSETS 16
#define COUNTER_DELAYS  4

typedef struct {
  MatmulChoice with;
  float took; /* measured time in milliseconds */
} Candidate;

/* What is needed to time the algorithms of one GEMM. */
typedef struct {
  MatmulContext *p;
  const Matmul *x;
  char *scratch; /* result of a GEMM that accumulates: every run would add to the real one */
  float *scratch_bias; /* and its bias gradient */
  void *flush;         /* buffer of flush_bytes, larger than the L2 cache */
  size_t flush_bytes;
  bool is_small;    /* The cache is not flushed. */
  float counter_ms; /* time of the memset of a tile counter */
  cudaEvent_t from[MAX_RUNS], to[MAX_RUNS];
} Timer;

/* ---- preparation ---- */

/* Returns the bytes of the operands and of the result. */
static size_t count_bytes(const MatmulContext *p, const Matmul *x) {
  size_t operand = x->fp8 ? 1 : type_size(p->type);
  size_t result = x->kind == MATMUL_WGRAD ? sizeof(float) : type_size(p->type);
  size_t rows_in = x->rows * x->in, rows_out = x->rows * x->out, weights = x->in * x->out;
  switch (x->kind) {
    case MATMUL_FPROP:
      return (rows_in + weights) * operand + rows_out * result;
    case MATMUL_DGRAD:
      return (rows_out + weights) * operand + rows_in * result;
    default:
      return (rows_in + rows_out) * operand + weights * result;
  }
}

static void close_timer(Timer *t) {
  for (int i = 0; i < MAX_RUNS; i++) {
    if (t->from[i]) cudaEventDestroy(t->from[i]);
    if (t->to[i]) cudaEventDestroy(t->to[i]);
  }
  if (t->flush != t->p->work) cudaFree(t->flush);
  cudaFree(t->scratch);
}

/* Allocates the temporary result of a GEMM that accumulates. */
static Err add_scratch(Timer *t) {
  const MatmulContext *p = t->p;
  const Matmul *x = t->x;
  size_t size = x->kind == MATMUL_WGRAD ? sizeof(float) : type_size(p->type);
  size_t cells = x->kind == MATMUL_WGRAD ? x->in * x->out : x->rows * x->in;
  size_t bytes = (cells * size + 16 + 255) / 256 * 256, all = bytes + x->out * sizeof(float);
  cudaError_t e = cudaMalloc((void **)&t->scratch, all);
  if (!e) e = cudaMemsetAsync(t->scratch, 0, all, p->stream);
  t->scratch_bias = (float *)(void *)(t->scratch + bytes);
  if (!e) return ERR_OK;
  return err_set(ERR_WORK,
                 "cannot allocate %zu bytes on the GPU to time GEMM algorithms: %s; lower "
                 "--batch-tokens",
                 all, cudaGetErrorString(e));
}

/* Sets the flush buffer: the workspace of cuBLASLt if it is large enough, or if there is no memory
 * for a larger one. */
static void set_flush_buffer(Timer *t) {
  int device = 0, cache = 0;
  void *buffer;
  if (!cudaGetDevice(&device)) cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device);
  size_t bytes = (size_t)cache * 3 / 2;
  t->is_small = count_bytes(t->p, t->x) < (size_t)cache / SMALL_PART;
  t->flush = t->p->work;
  t->flush_bytes = bytes < MATMUL_WORK ? bytes : MATMUL_WORK;
  if (t->is_small || bytes <= MATMUL_WORK) return;
  if (cudaMalloc(&buffer, bytes)) {
    (void)cudaGetLastError();
    return;
  }
  t->flush = buffer;
  t->flush_bytes = bytes;
}

/* Measures the time that the memset of a tile counter adds to a GEMM. */
static void time_counter_memset(Timer *t) {
  cudaStream_t stream = t->p->stream;
  float took = 0;
  for (int i = 0; i < COUNTER_DELAYS; i++) cudaMemsetAsync(t->flush, 0, t->flush_bytes, stream);
  cudaEventRecord(t->from[0], stream);
  for (int i = 0; i < COUNTER_MEMSETS; i++) cudaMemsetAsync(t->p->work, 0, 4, stream);
  cudaEventRecord(t->to[0], stream);
  if (cudaEventSynchronize(t->to[0]) || cudaEventElapsedTime(&took, t->from[0], t->to[0]))
    (void)cudaGetLastError();
  else
    t->counter_ms = took / COUNTER_MEMSETS;
}

static Err open_timer(Timer *t, MatmulContext *p, const Matmul *x) {
  *t = (Timer){.p = p, .x = x};
  cudaError_t e = algo_shared_wait(p->shared);
  for (int i = 0; i < MAX_RUNS && !e; i++) {
    e = cudaEventCreate(&t->from[i]);
    if (!e) e = cudaEventCreate(&t->to[i]);
  }
  Err err = ERR_OK;
  if (e)
    err = err_set(ERR_WORK,
                  "the GPU failed before GEMM algorithms were timed: %s; run again with "
                  "CUDA_LAUNCH_BLOCKING=1 to see where",
                  cudaGetErrorString(e));
  /* NCCL kernels use SMs and bandwidth and would distort the times. */
  if (!err && p->quiesce) err = p->quiesce(p->quiesce_context);
  if (!err && x->accumulate) err = add_scratch(t);
  if (err) {
    close_timer(t);
    return err;
  }
  set_flush_buffer(t);
  time_counter_memset(t);
  return ERR_OK;
}

/* ---- timing ---- */

/* Returns the GEMM with the temporary result, if there is one. */
static Matmul redirect_result(const Timer *t) {
  Matmul y = *t->x;
  if (!t->scratch) return y;
  /* The temporary result has the alignment of the real one. */
  y.result = t->scratch + (uintptr_t)y.result % 16;
  if (y.dbias) y.dbias = t->scratch_bias;
  return y;
}

static int compare_floats(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

/* Runs the GEMM `runs` times, each time after a flush of the cache. Returns the median in
 * milliseconds, or -1 if the algorithm fails. Runs of a small GEMM follow each other without a
 * pause: returns their mean. */
static float time_algorithm(const Timer *t, const MatmulChoice *with, int runs) {
  cudaStream_t stream = t->p->stream;
  const Matmul x = redirect_result(t);
  MatmulCall c;
  float took[MAX_RUNS];
  int intervals = t->is_small ? 1 : runs, runs_of_each = t->is_small ? runs : 1;
  bool ran = !matmul_describe(t->p, &x, with->fused, &c);
  for (int i = 0; i < intervals && ran; i++) {
    if (!t->is_small) cudaMemsetAsync(t->flush, 0, t->flush_bytes, stream);
    cudaEventRecord(t->from[i], stream);
    for (int r = 0; r < runs_of_each && ran; r++)
      ran = !matmul_enqueue(t->p, &x, &c, with->fused, &with->algorithm);
    cudaEventRecord(t->to[i], stream);
  }
  if (cudaStreamSynchronize(stream)) ran = false;
  for (int i = 0; i < intervals && ran; i++)
    ran = !cudaEventElapsedTime(&took[i], t->from[i], t->to[i]);
  if (!ran) {
    /* Clears CUDA's last error, so that the next check does not see it. */
    (void)cudaGetLastError();
    return -1;
  }
  qsort(took, (size_t)intervals, sizeof *took, compare_floats);
  float ms = took[(intervals - 1) / 2] / (float)runs_of_each;
  float counter = matmul_needs_counter(t->p, &c, &with->algorithm) ? t->counter_ms : 0;
  return ms - (counter < ms / 2 ? counter : ms / 2);
}

/* Returns how often to run a GEMM that takes `ms` milliseconds in one round. */
static int count_runs(float ms) {
  float runs = LONG_MS / (ms + 1e-6f);
  if (runs < 2) return 2;
  return runs > MAX_RUNS ? MAX_RUNS : (int)runs;
}

/* ---- candidates ---- */

/* Toggles CTA swizzling of an algorithm, which the heuristic does not propose itself. Returns
 * false if cuBLASLt does not support the result. */
static bool toggle_cta_swizzle(const MatmulContext *p, MatmulCall *c,
                               cublasLtMatmulAlgo_t *algorithm) {
  uint32_t swizzle = 0;
  size_t size;
  cublasLtMatmulHeuristicResult_t result;
  if (cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
                                           &swizzle, sizeof swizzle, &size))
    return false;
  swizzle = !swizzle;
  return !cublasLtMatmulAlgoConfigSetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
                                               &swizzle, sizeof swizzle) &&
         !cublasLtMatmulAlgoCheck(p->lt, &c->how, &c->a, &c->b, &c->c, &c->c, algorithm,
                                  &result) &&
         !result.state && result.workspaceSize <= MATMUL_WORK;
}

/* Appends the heuristic's algorithms, with and without swizzling, to `list` (n long so far), each
 * with its time. Returns the new length. */
static int collect_candidates(const Timer *t, bool fused, Candidate *list, int n) {
  const Matmul x = redirect_result(t);
  MatmulCall c;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES];
  int asked = matmul_describe(t->p, &x, fused, &c)
                  ? 0
                  : matmul_query_heuristic(t->p, &x, &c, CANDIDATES, found);
  for (int i = 0; i < 2 * asked; i++) {
    const cublasLtMatmulHeuristicResult_t *of = &found[i / 2];
    Candidate candidate = {.with = {.algorithm = of->algo, .fused = fused}};
    if (of->state || of->workspaceSize > MATMUL_WORK) continue;
    if (i % 2 && !toggle_cta_swizzle(t->p, &c, &candidate.with.algorithm)) continue;
    /* a warm-up run, not timed */
    if (time_algorithm(t, &candidate.with, 1) < 0) continue;
    candidate.took = time_algorithm(t, &candidate.with, RUNS);
    if (candidate.took >= 0) list[n++] = candidate;
  }
  return n;
}

static int compare_times(const void *a, const void *b) {
  float x = ((const Candidate *)a)->took, y = ((const Candidate *)b)->took;
  return (x > y) - (x < y);
}

/* Times the finalists again, interleaved, about LONG_MS per round, and sorts them. */
static void time_finalists(const Timer *t, Candidate *list, int n) {
  float total[FINALISTS] = {0};
  for (int i = 0; i < n * ROUNDS; i++) {
    const Candidate *candidate = &list[i % n];
    float took = time_algorithm(t, &candidate->with, count_runs(candidate->took));
    total[i % n] += took < 0 ? 1e30f : took;
  }
  for (int i = 0; i < n; i++) list[i].took = total[i];
  qsort(list, (size_t)n, sizeof *list, compare_times);
}

Err matmul_choose(MatmulContext *p, const Matmul *x, MatmulChoice *out) {
  Candidate list[4 * CANDIDATES];
  Timer t;
  TRY(open_timer(&t, p, x));
  int n = collect_candidates(&t, /*fused=*/false, list, 0);
  if (x->dbias && x->out <= MATMUL_MAX_BIAS)
    n = collect_candidates(&t, /*fused=*/true, list, n);
  qsort(list, (size_t)n, sizeof *list, compare_times);
  if (n > 1) time_finalists(&t, list, n < FINALISTS ? n : FINALISTS);
  close_timer(&t);
  if (n == 0)
    return matmul_report_failure("find an algorithm for", x, CUBLAS_STATUS_NOT_SUPPORTED);
  *out = list[0].with;
  return ERR_OK;
}
