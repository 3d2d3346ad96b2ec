/* Selects the algorithm of a GEMM by timing those that cuBLASLt's heuristic proposes. Depends on
 * cuBLASLt, matmul_call.h. */
#include "backend/cuda/matmul_time.h"

#include <stdlib.h>

#include "backend/backend.h"
#include "backend/cuda/matmul_call.h"

#define CANDIDATES 16 /* number of algorithms requested from the heuristic */
#define RUNS       4  /* timed runs of each candidate; the fastest counts */
/* number of fastest candidates, which are timed again for longer */
#define FINALISTS 4
#define ROUNDS    2     /* rounds of timing the finalists */
#define LONG_MS   10.0f /* milliseconds for which a finalist is timed per round */
#define MAX_RUNS  32    /* maximum runs of a finalist per round */

typedef struct {
  cublasLtMatmulAlgo_t algorithm;
  bool fused; /* the epilogue computes the bias gradient */
  float took; /* measured time in milliseconds */
} Candidate;

/* Returns the mean milliseconds of `runs` consecutive runs, or -1 if the algorithm fails. */
static float time_candidate(MatmulContext *p, const Matmul *x, const Candidate *candidate,
                            int runs) {
  cudaEvent_t from = NULL, to = NULL;
  MatmulCall c;
  float took = -1;
  bool ran = !matmul_describe(p, x, candidate->fused, &c);
  if (cudaEventCreate(&from) || cudaEventCreate(&to)) goto done;
  cudaEventRecord(from, p->stream);
  for (int i = 0; i < runs && ran; i++)
    ran = !matmul_enqueue(p, x, &c, candidate->fused, &candidate->algorithm);
  cudaEventRecord(to, p->stream);
  if (cudaEventSynchronize(to) || !ran || cudaEventElapsedTime(&took, from, to)) {
    /* Clears CUDA's last error, so that the next check does not see it. */
    (void)cudaGetLastError();
    took = -1;
  }
done:
  if (from) cudaEventDestroy(from);
  if (to) cudaEventDestroy(to);
  return took < 0 ? -1 : took / (float)runs;
}

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
 * with the fastest of RUNS times. Returns the new length. */
static int collect_candidates(MatmulContext *p, const Matmul *x, bool fused, Candidate *list,
                              int n) {
  MatmulCall c;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES];
  int asked = matmul_describe(p, x, fused, &c)
                  ? 0
                  : matmul_query_heuristic(p, x, &c, CANDIDATES, found);
  for (int i = 0; i < 2 * asked; i++) {
    const cublasLtMatmulHeuristicResult_t *of = &found[i / 2];
    Candidate candidate = {.algorithm = of->algo, .fused = fused, .took = -1};
    if (of->state || of->workspaceSize > MATMUL_WORK) continue;
    if (i % 2 && !toggle_cta_swizzle(p, &c, &candidate.algorithm)) continue;
    if (time_candidate(p, x, &candidate, 1) < 0) continue; /* a warm-up run, not timed */
    for (int r = 0; r < RUNS; r++) {
      float took = time_candidate(p, x, &candidate, 1);
      if (took >= 0 && (candidate.took < 0 || took < candidate.took)) candidate.took = took;
    }
    if (candidate.took >= 0) list[n++] = candidate;
  }
  return n;
}

static int compare_times(const void *a, const void *b) {
  float x = ((const Candidate *)a)->took, y = ((const Candidate *)b)->took;
  return (x > y) - (x < y);
}

/* During training the GPU runs at its power limit and a lower clock, so the ranking measured on
 * an idle GPU can be wrong. Times the FINALISTS again, interleaved, about LONG_MS per round, and
 * sorts them. */
static void time_finalists(MatmulContext *p, const Matmul *x, Candidate *list, int n) {
  float total[FINALISTS] = {0};
  for (int i = 0; i < n * ROUNDS; i++) {
    const Candidate *candidate = &list[i % n];
    float runs = LONG_MS / (candidate->took + 1e-6f);
    float took = time_candidate(p, x, candidate,
                                runs < 2          ? 2
                                : runs > MAX_RUNS ? MAX_RUNS
                                                  : (int)runs);
    total[i % n] += took < 0 ? 1e30f : took;
  }
  for (int i = 0; i < n; i++) list[i].took = total[i];
  qsort(list, (size_t)n, sizeof *list, compare_times);
}

/* A GEMM that accumulates is timed on a temporary result, because every run would add to the real
 * one. */
Err matmul_choose(MatmulContext *p, const Matmul *x, MatmulChoice *out) {
  Matmul timed = *x;
  size_t size = x->kind == MATMUL_WGRAD ? sizeof(float) : type_size(p->type);
  size_t cells = x->kind == MATMUL_WGRAD ? x->in * x->out : x->rows * x->in;
  size_t bytes = (cells * size + 16 + 255) / 256 * 256;
  char *scratch = NULL;
  Candidate list[4 * CANDIDATES];
  cudaError_t e = algo_shared_wait(p->shared);
  if (e)
    return err_set(ERR_WORK,
                   "the GPU failed before GEMM algorithms were timed: %s; run again with "
                   "CUDA_LAUNCH_BLOCKING=1 to see where",
                   cudaGetErrorString(e));
  /* NCCL kernels use SMs and bandwidth and would distort the times. */
  if (p->quiesce) TRY(p->quiesce(p->quiesce_context));
  if (x->accumulate) {
    e = cudaMalloc((void **)&scratch, bytes + x->out * sizeof(float));
    if (!e) e = cudaMemsetAsync(scratch, 0, bytes + x->out * sizeof(float), p->stream);
    if (e) {
      cudaFree(scratch);
      return err_set(ERR_WORK,
                     "cannot allocate %zu bytes on the GPU to time GEMM algorithms: %s; lower "
                     "--batch-tokens",
                     bytes, cudaGetErrorString(e));
    }
    /* The scratch result has the alignment of the real one. */
    timed.result = scratch + (uintptr_t)x->result % 16;
    if (x->dbias) timed.dbias = (float *)(void *)(scratch + bytes);
  }
  int n = collect_candidates(p, &timed, /*fused=*/false, list, 0);
  if (x->dbias && x->out <= MATMUL_MAX_BIAS)
    n = collect_candidates(p, &timed, /*fused=*/true, list, n);
  qsort(list, (size_t)n, sizeof *list, compare_times);
  if (n > 1) time_finalists(p, &timed, list, n < FINALISTS ? n : FINALISTS);
  cudaFree(scratch);
  if (n == 0)
    return matmul_report_failure("find an algorithm for", x, CUBLAS_STATUS_NOT_SUPPORTED);
  *out = (MatmulChoice){.algorithm = list[0].algorithm, .fused = list[0].fused};
  return ERR_OK;
}
