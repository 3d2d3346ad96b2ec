/* Runs GEMMs with the algorithms of the cache, in which each new shape gets an entry. Depends on
 * cuBLASLt, matmul_call.h, matmul_time.h, algo_shared.h. */
#include "backend/cuda/matmul.h"

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cuda/matmul_call.h"
#include "backend/cuda/matmul_time.h"
#include "base/log.h"

/* AlgoKey.type of fp8 operands, plus Fp8Scales; other values are a Type */
#define FP8_TYPE 16

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
                   .aligned = matmul_has_aligned_arrays(x),
                   .rows = round_rows(x->rows),
                   .in = (uint32_t)x->in,
                   .out = (uint32_t)x->out,
                   .sms = (uint32_t)matmul_sm_target(p, x->kind)};
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
  MatmulChoice choice;
  TRY(matmul_choose(p, x, &choice));
  entry = (AlgoEntry){.key = make_key(p, x), .fused = choice.fused, .checked = x->rows};
  memcpy(entry.algorithm, &choice.algorithm, sizeof entry.algorithm);
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

/* A copy of an entry's choice: other streams may add entries to the cache, which moves them. */
typedef struct {
  MatmulChoice choice;
  bool supported; /* false: the algorithm is not usable for this number of rows */
} Found;

static void copy_entry(Found *out, const AlgoEntry *entry, bool supported) {
  memcpy(&out->choice.algorithm, entry->algorithm, sizeof out->choice.algorithm);
  out->choice.fused = supported && entry->fused;
  out->supported = supported;
}

/* Looks an algorithm up. Returns false if it must be timed: the shape is new, or its entry from
 * the cache file was never usable on this GPU. The caller holds the lock. */
static bool find_choice(const MatmulContext *p, const Matmul *x, Found *out) {
  AlgoKey key = make_key(p, x);
  AlgoEntry *entry = algo_cache_find(&p->shared->cache, &key);
  if (!entry) return false;
  copy_entry(out, entry, is_supported(p, x, entry));
  return out->supported || __atomic_load_n(&entry->checked, __ATOMIC_RELAXED);
}

/* Times the algorithms for a GEMM, unless another stream has done so in the meantime. */
static Err time_choice(MatmulContext *p, const Matmul *x, Found *out) {
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
  if (!s && (matmul_query_heuristic(p, x, &c, 1, &found) < 1 || found.state))
    s = CUBLAS_STATUS_NOT_SUPPORTED;
  if (s) return matmul_report_failure("find an algorithm for", x, s);
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

static Err run_choice(MatmulContext *p, const Matmul *x, Found *found) {
  MatmulChoice *choice = &found->choice;
  MatmulCall c;
  if (!found->supported) TRY(get_default_algo(p, x, &choice->algorithm));
  cublasStatus_t s = matmul_describe(p, x, choice->fused, &c);
  return s ? matmul_report_failure("describe", x, s)
           : matmul_enqueue(p, x, &c, choice->fused, &choice->algorithm);
}

/* Runs the GEMM if its algorithm is known, and sets *is_known. */
static Err run_known(MatmulContext *p, const Matmul *x, bool *is_known) {
  Found found;
  *is_known = find_choice(p, x, &found);
  return *is_known ? run_choice(p, x, &found) : ERR_OK;
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
  Found found;
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
  TRY(time_choice(p, x, &found));
  algo_shared_begin_use(p->shared); /* Another stream may be timing algorithms. */
  err = run_choice(p, x, &found);
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
  e = cudaMalloc((void **)&p->bias, MATMUL_MAX_BIAS * sizeof(float));
  if (!e) e = cudaMalloc((void **)&p->counters, MATMUL_COUNTERS * MATMUL_COUNTER_BYTES);
  if (e)
    return err_set(ERR_WORK,
                   "cannot allocate %zu bytes on the GPU: %s; end other programs on it",
                   MATMUL_MAX_BIAS * sizeof(float) + MATMUL_COUNTERS * MATMUL_COUNTER_BYTES,
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
         matmul_query_heuristic(p, &x, &c, 1, &found) > 0 && !found.state;
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
