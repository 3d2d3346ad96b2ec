/* Times the algorithms of cuBLASLt for a GEMM and runs the fastest. Depends on cuBLASLt,
 * matmul_call.h, algo_shared.h, kernels.h. */
#include "backend/cuda/matmul.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/matmul_call.h"
#include "base/log.h"

#define CANDIDATES 16 /* number of algorithms requested from the heuristic */
#define RUNS       4  /* timed runs of each candidate; the fastest counts */
/* number of fastest candidates, which are timed again for longer */
#define FINALISTS 4
#define ROUNDS    2                 /* rounds of timing the finalists */
#define LONG_MS   10.0f             /* milliseconds for which a finalist is timed per round */
#define MAX_RUNS  32                /* maximum runs of a finalist per round */
#define MAX_BIAS  ((size_t)1 << 16) /* maximum width of a fused bias gradient */
/* AlgoKey.type of fp8 operands, plus Fp8Scales; other values are a Type */
#define FP8_TYPE 16

typedef struct {
  cublasLtMatmulAlgo_t algorithm;
  bool fused; /* the epilogue computes the bias gradient */
  float took; /* measured time in milliseconds */
} Candidate;

/* Returns the error of a failed cuBLASLt call; `what` names the action that failed. */
static Err report_failure(const char *what, const Matmul *x, cublasStatus_t status) {
  static const char *const kind[] = {"forward", "dgrad", "wgrad"};
  return err_set(
      ERR_WORK,
      "cuBLASLt cannot %s a %s GEMM with %zu tokens, %zu inputs and %zu outputs: %s; "
      "run again with CUBLASLT_LOG_LEVEL=2 to see why",
      what, kind[x->kind], x->rows, x->in, x->out, cublasLtGetStatusString(status));
}

/* Computes the bias gradient, or moves or adds the one that a fused GEMM has computed. */
static cudaError_t finish_bias_grad(const MatmulContext *p, const Matmul *x, bool fused) {
  if (!x->dbias) return cudaSuccess;
  if (!fused)
    return kernel_column_sums(p->type, x->dbias, x->dy, x->rows, x->out, x->accumulate, p->work,
                              p->stream);
  if (x->accumulate) return kernel_add(x->dbias, p->bias, 1, x->out, p->stream);
  if (matmul_bias_grad_target(p, x) == x->dbias) return cudaSuccess;
  return cudaMemcpyAsync(x->dbias, p->bias, x->out * sizeof(float), cudaMemcpyDeviceToDevice,
                         p->stream);
}

/* Memory that cuBLASLt may use during a GEMM. */
typedef struct {
  void *at;
  size_t bytes;
} Workspace;

/* Sets *out to the workspace of a GEMM: a counter of its own if it is captured and needs no other
 * workspace. The first such GEMM of a capture zeroes all counters. */
static cudaError_t take_workspace(MatmulContext *p, MatmulCall *c,
                                  const cublasLtMatmulAlgo_t *algorithm, Workspace *out) {
  cublasLtMatmulHeuristicResult_t need;
  *out = (Workspace){p->work, MATMUL_WORK};
  if (!p->is_capturing || p->counters_used == MATMUL_COUNTERS) return cudaSuccess;
  if (cublasLtMatmulAlgoCheck(p->lt, &c->how, &c->a, &c->b, &c->c, &c->c, algorithm, &need) ||
      need.state || need.workspaceSize == 0 || need.workspaceSize > MATMUL_COUNTER_BYTES)
    return cudaSuccess;
  *out = (Workspace){p->counters + p->counters_used++ * MATMUL_COUNTER_BYTES,
                     MATMUL_COUNTER_BYTES};
  if (p->counters_used > 1) return cudaSuccess;
  return cudaMemsetAsync(p->counters, 0, MATMUL_COUNTERS * MATMUL_COUNTER_BYTES, p->stream);
}

static Err run_algorithm(MatmulContext *p, const Matmul *x, MatmulCall *c, bool fused,
                         const cublasLtMatmulAlgo_t *algorithm) {
  float alpha = 1;
  Workspace work;
  cudaError_t e = take_workspace(p, c, algorithm, &work);
  if (e)
    return err_set(ERR_WORK, "the GPU failed to zero tile counters: %s; set TRIREME_GRAPH=0",
                   cudaGetErrorString(e));
  cublasStatus_t s =
      cublasLtMatmul(p->lt, &c->how, &alpha, c->pa, &c->a, c->pb, &c->b, &c->beta, c->pc, &c->c,
                     c->pc, &c->c, algorithm, work.at, work.bytes, p->stream);
  if (s) return report_failure("run", x, s);
  e = finish_bias_grad(p, x, fused);
  if (e)
    return err_set(ERR_WORK,
                   "the GPU failed in a bias gradient: %s; run again with "
                   "CUDA_LAUNCH_BLOCKING=1 to see where",
                   cudaGetErrorString(e));
  return ERR_OK;
}

/* Rounds up to a multiple of a power of two between 1/16 and 1/8 of `rows` (at least 8):
 * batches differ by a few tokens, and those of about the same size share an algorithm. */
static uint32_t round_rows(size_t rows) {
  size_t unit = 8;
  while (unit * 16 <= rows) unit *= 2;
  return (uint32_t)((rows + unit - 1) / unit * unit);
}

static AlgoKey make_key(const MatmulContext *p, const Matmul *x) {
  return (AlgoKey){.kind = (uint32_t)x->kind,
                   .type = x->fp8 ? FP8_TYPE + (uint32_t)p->scales : (uint32_t)p->type,
                   .tf32 = p->tf32,
                   .bias = (x->bias || x->dbias ? 1u : 0u) | (x->relu ? 2u : 0u),
                   .add = x->accumulate,
                   .aligned = matmul_is_aligned(x->result) && matmul_is_aligned(x->x) &&
                              matmul_is_aligned(x->w) && matmul_is_aligned(x->dy) &&
                              matmul_is_aligned(x->bias),
                   .rows = round_rows(x->rows),
                   .in = (uint32_t)x->in,
                   .out = (uint32_t)x->out,
                   .sms = (uint32_t)matmul_sm_target(p, x->kind)};
}

/* Requests up to `max` algorithms from the heuristic, the best guess first. Returns the number
 * found; 0 is not an error. */
static int query_heuristic(const MatmulContext *p, const Matmul *x, MatmulCall *c, int max,
                           cublasLtMatmulHeuristicResult_t *found) {
  cublasLtMatmulPreferenceOpaque_t want;
  size_t work = MATMUL_WORK;
  uint32_t align = make_key(p, x).aligned ? 16 : (uint32_t)type_size(p->type);
  /* Split-K: partial sums must stay in fp32 instead of being rounded to the output type. */
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (x->kind == MATMUL_WGRAD) reduction |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
  const struct {
    cublasLtMatmulPreferenceAttributes_t what;
    const void *value;
    size_t size;
  } list[] = {
      {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof work},
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof align},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof align},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof align},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof align},
  };
  int n = 0;
  if (cublasLtMatmulPreferenceInit(&want)) return 0;
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    if (cublasLtMatmulPreferenceSetAttribute(&want, list[i].what, list[i].value, list[i].size))
      return 0;
  }
  cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(p->lt, &c->how, &c->a, &c->b, &c->c, &c->c,
                                                    &want, max, found, &n);
  return s ? 0 : n;
}

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
    ran = !run_algorithm(p, x, &c, candidate->fused, &candidate->algorithm);
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
  int asked =
      matmul_describe(p, x, fused, &c) ? 0 : query_heuristic(p, x, &c, CANDIDATES, found);
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

/* Times the algorithms for x and returns the fastest in *entry. A GEMM that accumulates is timed
 * on a temporary result, because every run would add to the real one. */
static Err choose_algorithm(MatmulContext *p, const Matmul *x, AlgoEntry *entry) {
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
  if (x->dbias && x->out <= MAX_BIAS)
    n = collect_candidates(p, &timed, /*fused=*/true, list, n);
  qsort(list, (size_t)n, sizeof *list, compare_times);
  if (n > 1) time_finalists(p, &timed, list, n < FINALISTS ? n : FINALISTS);
  cudaFree(scratch);
  if (n == 0) return report_failure("find an algorithm for", x, CUBLAS_STATUS_NOT_SUPPORTED);
  *entry = (AlgoEntry){.key = make_key(p, x), .fused = list[0].fused, .checked = x->rows};
  memcpy(entry->algorithm, &list[0].algorithm, sizeof entry->algorithm);
  return ERR_OK;
}

/* Returns true if cuBLASLt accepts the entry's algorithm for exactly this number of rows.
 * Streams may share the entry, so `checked` is accessed atomically. */
static bool is_supported(const MatmulContext *p, const Matmul *x, AlgoEntry *entry) {
  MatmulCall c;
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulHeuristicResult_t result;
  if (__atomic_load_n(&entry->checked, __ATOMIC_RELAXED) == x->rows) return true;
  memcpy(&algorithm, entry->algorithm, sizeof algorithm);
  if (matmul_describe(p, x, entry->fused, &c) ||
      cublasLtMatmulAlgoCheck(p->lt, &c.how, &c.a, &c.b, &c.c, &c.c, &algorithm, &result) ||
      result.workspaceSize > MATMUL_WORK)
    return false;
  __atomic_store_n(&entry->checked, x->rows, __ATOMIC_RELAXED);
  return true;
}

/* Times the algorithms for the GEMM `x` and adds the fastest to the cache. Ranks of one machine
 * start together and time the same shapes. All of them use the algorithm that was saved first, so
 * that their results, and those of the next run, have the same bits. */
static Err add_entry(MatmulContext *p, const Matmul *x, AlgoEntry **out) {
  AlgoCache *cache = &p->shared->cache;
  AlgoEntry entry;
  TRY(choose_algorithm(p, x, &entry));
  /* True if the cache has an entry for this key that is not usable for this shape. */
  bool known = algo_cache_find(cache, &entry.key) != NULL;
  if (!known) TRY(algo_cache_read(cache));
  *out = algo_cache_find(cache, &entry.key);
  if (!known && *out && is_supported(p, x, *out)) return ERR_OK;
  TRY(algo_cache_add(cache, &entry));
  *out = algo_cache_find(cache, &entry.key);
  if (algo_cache_save(cache)) {
    log_warn(
        "cannot save the GEMM algorithm cache: %s; GEMMs will be timed again at the next "
        "start",
        err_message());
    cache->path[0] = '\0'; /* Disables saving, so that the warning is printed once. */
  }
  return ERR_OK;
}

/* A copy of an algorithm: other streams may add entries to the cache, which moves them. */
typedef struct {
  cublasLtMatmulAlgo_t algorithm;
  bool fused;
  bool supported; /* false: the algorithm is not usable for this number of rows */
} Choice;

static void copy_entry(Choice *out, const AlgoEntry *entry, bool supported) {
  memcpy(&out->algorithm, entry->algorithm, sizeof out->algorithm);
  out->fused = supported && entry->fused;
  out->supported = supported;
}

/* Looks an algorithm up. Returns false if it must be timed: the shape is new, or its entry from
 * the cache file was never usable on this GPU. The caller holds the lock. */
static bool find_choice(const MatmulContext *p, const Matmul *x, Choice *out) {
  AlgoKey key = make_key(p, x);
  AlgoEntry *entry = algo_cache_find(&p->shared->cache, &key);
  if (!entry) return false;
  copy_entry(out, entry, is_supported(p, x, entry));
  return out->supported || __atomic_load_n(&entry->checked, __ATOMIC_RELAXED);
}

/* Times the algorithms for a GEMM, unless another stream has done so in the meantime. */
static Err time_choice(MatmulContext *p, const Matmul *x, Choice *out) {
  AlgoEntry *entry;
  Err err = ERR_OK;
  algo_shared_begin_timing(p->shared);
  if (!find_choice(p, x, out)) {
    err = add_entry(p, x, &entry);
    if (!err) copy_entry(out, entry, /*supported=*/true);
  }
  algo_shared_end_timing(p->shared);
  return err;
}

/* Returns the heuristic's first choice, for a number of rows that the cached algorithm does not
 * support. */
static Err get_default_algo(const MatmulContext *p, const Matmul *x,
                            cublasLtMatmulAlgo_t *algorithm) {
  MatmulCall c;
  cublasLtMatmulHeuristicResult_t found;
  cublasStatus_t s = matmul_describe(p, x, false, &c);
  if (!s && (query_heuristic(p, x, &c, 1, &found) < 1 || found.state))
    s = CUBLAS_STATUS_NOT_SUPPORTED;
  if (s) return report_failure("find an algorithm for", x, s);
  *algorithm = found.algo;
  return ERR_OK;
}

/* Handles a GEMM without tokens: weight and bias gradients are 0. */
static Err run_empty(const MatmulContext *p, const Matmul *x) {
  cudaError_t e = cudaSuccess;
  if (x->kind != MATMUL_WGRAD || x->accumulate) return ERR_OK;
  e = cudaMemsetAsync(x->result, 0, x->in * x->out * sizeof(float), p->stream);
  if (!e && x->dbias) e = cudaMemsetAsync(x->dbias, 0, x->out * sizeof(float), p->stream);
  if (e)
    return err_set(ERR_WORK,
                   "the GPU failed to zero a gradient: %s; run again with "
                   "CUDA_LAUNCH_BLOCKING=1 to see where",
                   cudaGetErrorString(e));
  return ERR_OK;
}

static Err run_choice(MatmulContext *p, const Matmul *x, Choice *choice) {
  MatmulCall c;
  if (!choice->supported) TRY(get_default_algo(p, x, &choice->algorithm));
  cublasStatus_t s = matmul_describe(p, x, choice->fused, &c);
  return s ? report_failure("describe", x, s)
           : run_algorithm(p, x, &c, choice->fused, &choice->algorithm);
}

/* Runs the GEMM if its algorithm is known, and sets *is_known. */
static Err run_known(MatmulContext *p, const Matmul *x, bool *is_known) {
  Choice choice;
  *is_known = find_choice(p, x, &choice);
  return *is_known ? run_choice(p, x, &choice) : ERR_OK;
}

void matmul_begin_capture(MatmulContext *p) {
  p->is_capturing = true;
  p->counters_used = 0;
}

void matmul_end_capture(MatmulContext *p) {
  p->is_capturing = false;
}

size_t matmul_find_counter(const MatmulContext *p, const void *at, size_t bytes) {
  uintptr_t begin = (uintptr_t)p->counters, from = (uintptr_t)at;
  size_t counter = (from - begin) / MATMUL_COUNTER_BYTES;
  if (from < begin || counter >= MATMUL_COUNTERS) return MATMUL_COUNTERS;
  bool fits = (from - begin) % MATMUL_COUNTER_BYTES + bytes <= MATMUL_COUNTER_BYTES;
  return fits ? counter : MATMUL_COUNTERS;
}

Err matmul_run(MatmulContext *p, const Matmul *x) {
  Choice choice;
  bool is_known;
  if (x->rows == 0) return run_empty(p, x);
  /* A capture holds the lock from its begin to its end. */
  if (!p->is_capturing) algo_shared_begin_use(p->shared);
  Err err = run_known(p, x, &is_known);
  if (!p->is_capturing) algo_shared_end_use(p->shared);
  if (err || is_known) return err;
  if (p->is_capturing)
    return err_set(
        ERR_WORK,
        "bug: a GEMM of %zu tokens, %zu inputs and %zu outputs that never ran before "
        "was called while a CUDA graph was captured; set TRIREME_GRAPH=0 and report "
        "it",
        x->rows, x->in, x->out);
  TRY(time_choice(p, x, &choice));
  algo_shared_begin_use(p->shared); /* Another stream may be timing algorithms. */
  err = run_choice(p, x, &choice);
  algo_shared_end_use(p->shared);
  return err;
}

/* Opens cuBLASLt; p->shared is set. */
static Err start_cublas(MatmulContext *p) {
  cublasStatus_t s = cublasLtCreate(&p->lt);
  if (s)
    return err_set(ERR_WORK,
                   "cuBLASLt does not start: %s; check that the driver supports it, or "
                   "use --device cpu",
                   cublasLtGetStatusString(s));
  int device = 0;
  cudaError_t e = cudaGetDevice(&device);
  if (!e) e = cudaDeviceGetAttribute(&p->sms, cudaDevAttrMultiProcessorCount, device);
  if (e)
    return err_set(ERR_WORK, "cannot read the number of SMs: %s; check the GPU with nvidia-smi",
                   cudaGetErrorString(e));
  e = cudaMalloc((void **)&p->bias, MAX_BIAS * sizeof(float));
  if (!e) e = cudaMalloc((void **)&p->counters, MATMUL_COUNTERS * MATMUL_COUNTER_BYTES);
  if (e)
    return err_set(ERR_WORK,
                   "cannot allocate %zu bytes on the GPU: %s; end other programs on it",
                   MAX_BIAS * sizeof(float) + MATMUL_COUNTERS * MATMUL_COUNTER_BYTES,
                   cudaGetErrorString(e));
  return algo_shared_add_stream(p->shared, p->stream);
}

Err matmul_open(MatmulContext *p, cudaStream_t stream, Type type, bool tf32, void *work,
                const char *gpu) {
  _Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof((AlgoEntry){0}.algorithm),
                 "algo_cache.h");
  *p = (MatmulContext){.stream = stream, .type = type, .tf32 = tf32, .work = work};
  Err err = algo_shared_new(&p->shared, gpu, cublasLtGetVersion());
  p->owns_shared = true;
  if (!err) err = start_cublas(p);
  if (err) matmul_close(p);
  return err;
}

Err matmul_join(MatmulContext *p, const MatmulContext *first, cudaStream_t stream, void *work) {
  *p = (MatmulContext){.stream = stream,
                       .type = first->type,
                       .tf32 = first->tf32,
                       .scales = first->scales,
                       .work = work,
                       .shared = first->shared};
  Err err = start_cublas(p);
  if (err) matmul_close(p);
  return err;
}

/* Returns true if cuBLASLt has fp8 GEMMs of this kind with p->scales. The pointers matter for
 * their alignment only. */
static bool has_fp8(const MatmulContext *p, MatmulKind kind) {
  Fp8 fp8 = {.x = p->work, .w = p->work, .x_scale = p->work, .w_scale = p->work};
  Matmul x = {.kind = kind,
              .rows = FP8_MIN_TOKENS,
              .in = FP8_MIN_DIM,
              .out = FP8_MIN_DIM,
              .result = p->work,
              .bias = kind == MATMUL_FPROP ? p->work : NULL,
              .accumulate = kind == MATMUL_DGRAD,
              .fp8 = &fp8};
  MatmulCall c;
  cublasLtMatmulHeuristicResult_t found;
  return !matmul_describe(p, &x, /*fused=*/false, &c) &&
         query_heuristic(p, &x, &c, 1, &found) > 0 && !found.state;
}

/* Returns the number of values in wanted[2], those that TRIREME_FP8_SCALES allows, or 0 if it has
 * an unknown value. */
static size_t list_scales(Fp8Scales wanted[2]) {
  const char *only = getenv("TRIREME_FP8_SCALES");
  wanted[0] = FP8_ROW_SCALES;
  wanted[1] = FP8_TENSOR_SCALES;
  if (!only || strcmp(only, "") == 0) return 2;
  if (strcmp(only, "tensor") == 0) wanted[0] = FP8_TENSOR_SCALES;
  return strcmp(only, "row") == 0 || strcmp(only, "tensor") == 0;
}

Err matmul_choose_scales(MatmulContext *p, const char *gpu, int capability) {
  Fp8Scales wanted[2];
  size_t n = list_scales(wanted);
  if (n == 0)
    return err_set(ERR_USAGE, "TRIREME_FP8_SCALES is '%s'; valid values: row, tensor",
                   getenv("TRIREME_FP8_SCALES"));
  for (size_t i = 0; i < n; i++) {
    p->scales = wanted[i];
    if (has_fp8(p, MATMUL_FPROP) && has_fp8(p, MATMUL_DGRAD)) return ERR_OK;
  }
  return err_set(
      ERR_USAGE,
      "fp8 is not available: cuBLASLt %zu has no fp8 GEMMs with one scale per %s for "
      "%s (compute capability %d.%d); use --precision bf16",
      cublasLtGetVersion(),
      n == 2                        ? "row or tensor"
      : wanted[0] == FP8_ROW_SCALES ? "row"
                                    : "tensor",
      gpu, capability / 10, capability % 10);
}

void matmul_close(MatmulContext *p) {
  if (p->shared) algo_shared_remove_stream(p->shared, p->stream);
  if (p->lt) cublasLtDestroy(p->lt);
  cudaFree(p->bias);
  cudaFree(p->counters);
  if (p->owns_shared) algo_shared_free(p->shared);
  *p = (MatmulContext){0};
}
