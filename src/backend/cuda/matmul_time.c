/* Selects the algorithm of a GEMM by timing those that cuBLASLt's heuristic proposes, under the
 * conditions of a training step:
 *   cache    Between two runs of a GEMM a step accesses much more memory than fits into the L2
 *            cache. An algorithm that is the fastest with its operands in the cache need not be
 *            the fastest in a step, so the cache is flushed before each run.
 *   counter  cuBLASLt zeroes the tile counter of a GEMM with a memset, which a graph does not
 *            contain (MATMUL_COUNTERS). The time of the memset is subtracted.
 *   clock    The clock of the GPU falls when it is warm or at its power limit. The finalists are
 *            timed interleaved, so that the clock is about the same for all.
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
#define LONG_MS   4.0f /* milliseconds for which a finalist is timed per round, at most */
#define MAX_RUNS  24   /* maximum runs of a finalist per round */
/* A GEMM with fewer bytes than 1 / SMALL_PART of the L2 cache probably belongs to a model whose
 * step fits into the cache. It is timed without a flush. */
#define SMALL_PART 64
/* Memsets of a tile counter that are timed together, and memsets of the flush buffer before them,
 * which keep the GPU busy until all are enqueued. The shortest of several times counts, because
 * other processes may use the GPU too. */
#define COUNTER_MEMSETS 16
#define COUNTER_DELAYS  4
#define COUNTER_TIMES   5

typedef struct {
  MatmulChoice choice;
  float took; /* measured time in milliseconds */
} Candidate;

/* What is needed to time the algorithms of one GEMM. */
typedef struct {
  MatmulContext *p;
  const Matmul *x;
  /* temporary result and bias gradient of a GEMM that accumulates: every run would add to the
   * real ones */
  char *scratch;
  float *scratch_bias;
  /* buffer that is overwritten to flush the L2 cache: 1.5 times as large as the cache, or
   * MATMUL_WORK bytes if there is no memory for that */
  void *flush;
  size_t flush_bytes;
  bool is_small;    /* The cache is not flushed. */
  float counter_ms; /* time of the memset of a tile counter */
  cudaEvent_t from[MAX_RUNS], to[MAX_RUNS];
} Timer;

/* ---- preparation ---- */

/* Returns about the bytes of the operands and of the result. */
static size_t count_bytes(const MatmulContext *p, const Matmul *x) {
  size_t size = x->fp8 ? 1 : type_size(p->type);
  return (x->rows * x->in + x->rows * x->out + x->in * x->out) * size;
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
  if (e) {
    /* Clears CUDA's last error, so that the next check does not see it. */
    (void)cudaGetLastError();
    return err_set(ERR_WORK,
                   "cannot allocate %zu bytes on the GPU to time GEMM algorithms: %s; lower "
                   "--batch-tokens",
                   all, cudaGetErrorString(e));
  }
  t->scratch_bias = (float *)(void *)(t->scratch + bytes);
  return ERR_OK;
}

/* Sets the flush buffer: the workspace of cuBLASLt if it is large enough, or if there is no memory
 * for a larger one. */
static cudaError_t set_flush_buffer(Timer *t) {
  int device = 0, cache = 0;
  void *buffer;
  cudaError_t e = cudaGetDevice(&device);
  if (!e) e = cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device);
  size_t bytes = (size_t)cache * 3 / 2;
  t->is_small = count_bytes(t->p, t->x) < (size_t)cache / SMALL_PART;
  t->flush = t->p->work;
  t->flush_bytes = bytes < MATMUL_WORK ? bytes : MATMUL_WORK;
  if (e || t->is_small || bytes <= MATMUL_WORK) return e;
  if (cudaMalloc(&buffer, bytes)) {
    (void)cudaGetLastError();
    return cudaSuccess;
  }
  t->flush = buffer;
  t->flush_bytes = bytes;
  return cudaSuccess;
}

/* Measures the time that the memset of a tile counter adds to a GEMM. */
static cudaError_t time_counter_memset(Timer *t) {
  cudaStream_t stream = t->p->stream;
  cudaError_t e = cudaSuccess;
  for (int i = 0; i < COUNTER_TIMES && !e; i++) {
    float took = 0;
    for (int k = 0; k < COUNTER_DELAYS && !e; k++)
      e = cudaMemsetAsync(t->flush, 0, t->flush_bytes, stream);
    if (!e) e = cudaEventRecord(t->from[0], stream);
    for (int k = 0; k < COUNTER_MEMSETS && !e; k++)
      e = cudaMemsetAsync(t->p->work, 0, 4, stream);
    if (!e) e = cudaEventRecord(t->to[0], stream);
    if (!e) e = cudaEventSynchronize(t->to[0]);
    if (!e) e = cudaEventElapsedTime(&took, t->from[0], t->to[0]);
    took /= COUNTER_MEMSETS;
    if (i == 0 || took < t->counter_ms) t->counter_ms = took;
  }
  return e;
}

static Err report_gpu_failure(cudaError_t e) {
  return err_set(ERR_WORK,
                 "the GPU failed before GEMM algorithms were timed: %s; run again with "
                 "CUDA_LAUNCH_BLOCKING=1 to see where",
                 cudaGetErrorString(e));
}

static Err prepare_timer(Timer *t) {
  MatmulContext *p = t->p;
  cudaError_t e = algo_shared_wait(p->shared);
  for (int i = 0; i < MAX_RUNS && !e; i++) {
    e = cudaEventCreate(&t->from[i]);
    if (!e) e = cudaEventCreate(&t->to[i]);
  }
  if (e) return report_gpu_failure(e);
  /* NCCL kernels use SMs and bandwidth and would distort the times. */
  if (p->quiesce) TRY(p->quiesce(p->quiesce_context));
  if (t->x->accumulate) TRY(add_scratch(t));
  e = set_flush_buffer(t);
  if (!e) e = time_counter_memset(t);
  return e ? report_gpu_failure(e) : ERR_OK;
}

static Err open_timer(Timer *t, MatmulContext *p, const Matmul *x) {
  *t = (Timer){.p = p, .x = x};
  Err err = prepare_timer(t);
  if (err) close_timer(t);
  return err;
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
 * milliseconds without the memset of a tile counter, or -1 if the algorithm fails. Runs of a small
 * GEMM follow each other without a pause: returns their mean. */
static float time_algorithm(const Timer *t, const MatmulChoice *choice, int runs) {
  cudaStream_t stream = t->p->stream;
  const Matmul x = redirect_result(t);
  MatmulCall c;
  float took[MAX_RUNS];
  int intervals = t->is_small ? 1 : runs, runs_of_each = t->is_small ? runs : 1;
  bool ran = !matmul_describe(t->p, &x, choice->fused, &c);
  for (int i = 0; i < intervals && ran; i++) {
    if (!t->is_small) ran = !cudaMemsetAsync(t->flush, 0, t->flush_bytes, stream);
    ran = ran && !cudaEventRecord(t->from[i], stream);
    for (int r = 0; r < runs_of_each && ran; r++)
      ran = !matmul_enqueue(t->p, &x, &c, choice->fused, &choice->algorithm);
    ran = ran && !cudaEventRecord(t->to[i], stream);
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
  float counter = matmul_needs_counter(t->p, &c, &choice->algorithm) ? t->counter_ms : 0;
  return ms - (counter < ms / 2 ? counter : ms / 2);
}

/* Returns how often to run a GEMM that takes `ms` milliseconds in one round. */
static int count_runs(float ms) {
  float runs = LONG_MS / (ms + 1e-6f);
  if (runs < RUNS) return RUNS;
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
    Candidate candidate = {.choice = {.algorithm = of->algo, .fused = fused}};
    if (of->state || of->workspaceSize > MATMUL_WORK) continue;
    if (i % 2 && !toggle_cta_swizzle(t->p, &c, &candidate.choice.algorithm)) continue;
    /* a warm-up run, not timed */
    if (time_algorithm(t, &candidate.choice, 1) < 0) continue;
    candidate.took = time_algorithm(t, &candidate.choice, RUNS);
    if (candidate.took >= 0) list[n++] = candidate;
  }
  return n;
}

static int compare_times(const void *a, const void *b) {
  float x = ((const Candidate *)a)->took, y = ((const Candidate *)b)->took;
  return (x > y) - (x < y);
}

/* Times the finalists again, interleaved, and sorts them. */
static void time_finalists(const Timer *t, Candidate *list, int n) {
  float total[FINALISTS] = {0};
  for (int i = 0; i < n * ROUNDS; i++) {
    const Candidate *candidate = &list[i % n];
    float took = time_algorithm(t, &candidate->choice, count_runs(candidate->took));
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
  *out = list[0].choice;
  return ERR_OK;
}
