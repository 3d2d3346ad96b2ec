/* cuBLASLt thinks in columns: a row-major (rows, n) array is its n x rows matrix.
 * Depends on cuBLASLt, plans, kernels. */
#include "backend/cuda/product.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "base/log.h"

#define CANDIDATES 16
#define RUNS       4 /* of which the fastest counts */
#define FINALISTS  4 /* candidates that are timed once more, at length */
#define ROUNDS     2
#define LONG_MS    10.0f /* milliseconds of that for each round, … */
#define MOST_RUNS  32    /* … less where so many runs take less */
#define MOST_BIAS  ((size_t)1 << 16)
#define FP8_PLAN   16 /* in the place of a Type */

/* All that a call of cublasLtMatmul needs but the algorithm. */
typedef struct {
  cublasLtMatmulDescOpaque_t how;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  const void *pa, *pb;
  void *pc;
  float beta;
} Call;

typedef struct {
  cublasLtMatmulAlgo_t algorithm;
  bool fused;
  float took; /* milliseconds */
} Candidate;

static cudaDataType_t data_type(Type type) {
  return type == TYPE_F32 ? CUDA_R_32F : type == TYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static Err lt_error(const char *what, const Product *x, cublasStatus_t status) {
  static const char *const kind[] = {"y", "dx", "dw"};
  return err_set(ERR_WORK, "cuBLASLt: %s of %s with %zu rows, %zu in, %zu out: %s", what,
                 kind[x->kind], x->rows, x->in, x->out, cublasLtGetStatusString(status));
}

static cublasStatus_t set(Call *c, cublasLtMatmulDescAttributes_t what, const void *value,
                          size_t size) {
  return cublasLtMatmulDescSetAttribute(&c->how, what, value, size);
}

static bool is_aligned(const void *pointer) {
  return (uintptr_t)pointer % 16 == 0;
}

/* Where a fused product leaves the sums of dy's columns: it cannot add. */
static float *bias_sums(const Products *p, const Product *x) {
  return x->add || !is_aligned(x->dbias) ? p->bias : x->dbias;
}

/* The epilogue: the bias on the way forward; its gradient where it is fused. */
static cublasStatus_t describe_bias(const Products *p, const Product *x, bool fused, Call *c) {
  if (!x->dbias) fused = false; /* whatever a file says */
  cublasLtEpilogue_t epilogue = fused ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BIAS;
  const void *bias = fused ? bias_sums(p, x) : x->bias;
  int32_t type = (int32_t)(fused ? CUDA_R_32F : data_type(p->type));
  if (!bias || (x->kind != PRODUCT_Y && !fused)) return CUBLAS_STATUS_SUCCESS;
  cublasStatus_t s = set(c, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  return s;
}

/* The operands in place of those described: both lie along what is summed over, which is the
 * only way the library has. It has it on Hopper alone with a scale for each row, and only
 * summing fast, in registers that keep less than fp32, is it faster than bf16 by more than the
 * operands cost to make. */
static cublasStatus_t describe_fp8(const Product *x, size_t c_rows, Call *c) {
#if PRODUCT_FP8
  size_t inner = x->kind == PRODUCT_Y ? x->in : x->out;
  cublasOperation_t turn_a = CUBLAS_OP_T;
  int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  int8_t fast = 1;
  const struct {
    cublasLtMatmulDescAttributes_t what;
    const void *value;
    size_t size;
  } list[] = {
      {CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a},
      {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode},
      {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode},
      {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &x->fp8->w_scale, sizeof x->fp8->w_scale},
      {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x->fp8->x_scale, sizeof x->fp8->x_scale},
      {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast},
  };
  cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
  for (size_t i = 0; i < sizeof list / sizeof *list && !s; i++)
    s = set(c, list[i].what, list[i].value, list[i].size);
  if (!s) s = cublasLtMatrixLayoutInit(&c->a, CUDA_R_8F_E4M3, inner, c_rows, (int64_t)inner);
  if (!s) s = cublasLtMatrixLayoutInit(&c->b, CUDA_R_8F_E4M3, inner, x->rows, (int64_t)inner);
  c->pa = x->fp8->w, c->pb = x->fp8->x;
  return s;
#else
  (void)x, (void)c_rows, (void)c;
  return CUBLAS_STATUS_NOT_SUPPORTED;
#endif
}

static cublasStatus_t describe(const Products *p, const Product *x, bool fused, Call *c) {
  cublasComputeType_t compute = p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cudaDataType_t low = data_type(p->type), wide = x->kind == PRODUCT_DW ? CUDA_R_32F : low;
  cublasOperation_t turn_a = x->kind == PRODUCT_Y ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t turn_b = x->kind == PRODUCT_DW ? CUBLAS_OP_T : CUBLAS_OP_N;
  /* As stored: x in x rows, w in x out, dy out x rows. */
  bool a_is_x = x->kind == PRODUCT_DW, b_is_x = x->kind == PRODUCT_Y;
  size_t width = b_is_x ? x->in : x->out;
  size_t c_rows = x->kind == PRODUCT_Y ? x->out : x->in, c_cols = a_is_x ? x->out : x->rows;
  *c = (Call){.pa = a_is_x ? x->x : x->w,
              .pb = b_is_x ? x->x : x->dy,
              .pc = x->result,
              .beta = x->add ? 1 : 0};
  cublasStatus_t s = cublasLtMatmulDescInit(&c->how, compute, CUDA_R_32F);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_TRANSB, &turn_b, sizeof turn_b);
  if (!s) s = describe_bias(p, x, fused, c);
  if (!s)
    s = cublasLtMatrixLayoutInit(&c->a, low, x->in, a_is_x ? x->rows : x->out, (int64_t)x->in);
  if (!s) s = cublasLtMatrixLayoutInit(&c->b, low, width, x->rows, (int64_t)width);
  if (!s) s = cublasLtMatrixLayoutInit(&c->c, wide, c_rows, c_cols, (int64_t)c_rows);
  if (!s && x->fp8) s = describe_fp8(x, c_rows, c);
  return s;
}

/* The bias's gradient, or what is left of it to do behind a product that made it. */
static cudaError_t follow(const Products *p, const Product *x, bool fused) {
  if (!x->dbias) return cudaSuccess;
  if (!fused)
    return kernel_column_sums(p->type, x->dbias, x->dy, x->rows, x->out, x->add, p->work,
                              p->stream);
  if (x->add) return kernel_add(x->dbias, p->bias, 1, x->out, p->stream);
  if (bias_sums(p, x) == x->dbias) return cudaSuccess;
  return cudaMemcpyAsync(x->dbias, p->bias, x->out * sizeof(float), cudaMemcpyDeviceToDevice,
                         p->stream);
}

static Err run(const Products *p, const Product *x, Call *c, bool fused,
               const cublasLtMatmulAlgo_t *algorithm) {
  float alpha = 1;
  cublasStatus_t s =
      cublasLtMatmul(p->lt, &c->how, &alpha, c->pa, &c->a, c->pb, &c->b, &c->beta, c->pc, &c->c,
                     c->pc, &c->c, algorithm, p->work, PRODUCT_WORK, p->stream);
  if (s) return lt_error("the product", x, s);
  cudaError_t e = follow(p, x, fused);
  if (e)
    return err_set(ERR_WORK,
                   "the GPU failed in a bias's gradient: %s; run again with "
                   "CUDA_LAUNCH_BLOCKING=1 to see where",
                   cudaGetErrorString(e));
  return ERR_OK;
}

/* Batches differ by a few rows: those of about the same size share a plan. */
static uint32_t round_rows(size_t rows) {
  size_t unit = 8;
  while (unit * 16 <= rows) unit *= 2;
  return (uint32_t)((rows + unit - 1) / unit * unit);
}

static PlanKey key_of(const Products *p, const Product *x) {
  return (PlanKey){.kind = (uint32_t)x->kind,
                   .type = x->fp8 ? FP8_PLAN : (uint32_t)p->type,
                   .tf32 = p->tf32,
                   .bias = x->bias || x->dbias,
                   .add = x->add,
                   .aligned = is_aligned(x->result) && is_aligned(x->x) && is_aligned(x->w) &&
                              is_aligned(x->dy) && is_aligned(x->bias),
                   .rows = round_rows(x->rows),
                   .in = (uint32_t)x->in,
                   .out = (uint32_t)x->out};
}

/* Candidates, the heuristic's favourite first; none is no error. */
static int ask(const Products *p, const Product *x, Call *c, int most,
               cublasLtMatmulHeuristicResult_t *found) {
  cublasLtMatmulPreferenceOpaque_t want;
  size_t work = PRODUCT_WORK;
  uint32_t align = key_of(p, x).aligned ? 16 : (uint32_t)type_size(p->type);
  /* Partial sums of split products must not be rounded to the low type. */
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (x->kind == PRODUCT_DW) reduction |= CUBLASLT_REDUCTION_SCHEME_INPLACE;
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
                                                    &want, most, found, &n);
  return s ? 0 : n;
}

/* Milliseconds of one of `runs` in a row, or -1 where it does not run. */
static float time_of(const Products *p, const Product *x, const Candidate *way, int runs) {
  cudaEvent_t from = NULL, to = NULL;
  Call c;
  float took = -1;
  bool ran = !describe(p, x, way->fused, &c);
  if (cudaEventCreate(&from) || cudaEventCreate(&to)) goto done;
  cudaEventRecord(from, p->stream);
  for (int i = 0; i < runs && ran; i++) ran = !run(p, x, &c, way->fused, &way->algorithm);
  cudaEventRecord(to, p->stream);
  if (cudaEventSynchronize(to) || !ran || cudaEventElapsedTime(&took, from, to)) {
    (void)cudaGetLastError(); /* so that nobody else is blamed for it */
    took = -1;
  }
done:
  if (from) cudaEventDestroy(from);
  if (to) cudaEventDestroy(to);
  return took < 0 ? -1 : took / (float)runs;
}

/* The same algorithm with its blocks in another order, which the heuristic does not
 * propose by itself; false where there is none. */
static bool turn(const Products *p, Call *c, cublasLtMatmulAlgo_t *algorithm) {
  uint32_t order = 0;
  size_t size;
  cublasLtMatmulHeuristicResult_t result;
  if (cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
                                           &order, sizeof order, &size))
    return false;
  order = !order;
  return !cublasLtMatmulAlgoConfigSetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
                                               &order, sizeof order) &&
         !cublasLtMatmulAlgoCheck(p->lt, &c->how, &c->a, &c->b, &c->c, &c->c, algorithm,
                                  &result) &&
         !result.state && result.workspaceSize <= PRODUCT_WORK;
}

/* Adds what the heuristic proposes for one way to do it, each with the time of the
 * fastest of a few runs. Returns how many there are then. */
static int collect(const Products *p, const Product *x, bool fused, Candidate *list, int n) {
  Call c;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES];
  int asked = describe(p, x, fused, &c) ? 0 : ask(p, x, &c, CANDIDATES, found);
  for (int i = 0; i < 2 * asked; i++) {
    const cublasLtMatmulHeuristicResult_t *of = &found[i / 2];
    Candidate way = {.algorithm = of->algo, .fused = fused, .took = -1};
    if (of->state || of->workspaceSize > PRODUCT_WORK) continue;
    if (i % 2 && !turn(p, &c, &way.algorithm)) continue;
    if (time_of(p, x, &way, 1) < 0) continue; /* warms up */
    for (int run = 0; run < RUNS; run++) {
      float took = time_of(p, x, &way, 1);
      if (took >= 0 && (way.took < 0 || took < way.took)) way.took = took;
    }
    if (way.took >= 0) list[n++] = way;
  }
  return n;
}

static int by_time(const void *a, const void *b) {
  float x = ((const Candidate *)a)->took, y = ((const Candidate *)b)->took;
  return (x > y) - (x < y);
}

/* A training keeps the GPU at its limit of power, where its clock is lower and another
 * way may be the fastest than on a rested one: the best go a longer distance, in turns. */
static void run_final(const Products *p, const Product *x, Candidate *list, int n) {
  float total[FINALISTS] = {0};
  for (int i = 0; i < n * ROUNDS; i++) {
    const Candidate *way = &list[i % n];
    float runs = LONG_MS / (way->took + 1e-6f);
    float took = time_of(p, x, way, runs < 2 ? 2 : runs > MOST_RUNS ? MOST_RUNS : (int)runs);
    total[i % n] += took < 0 ? 1e30f : took;
  }
  for (int i = 0; i < n; i++) list[i].took = total[i];
  qsort(list, (size_t)n, sizeof *list, by_time);
}

/* Where it would add to the result, it is timed on scratch memory. */
static Err choose(Products *p, const Product *x, Plan *plan) {
  Product timed = *x;
  size_t size = x->kind == PRODUCT_DW ? sizeof(float) : type_size(p->type);
  size_t cells = x->kind == PRODUCT_DW ? x->in * x->out : x->rows * x->in;
  size_t bytes = (cells * size + 16 + 255) / 256 * 256;
  char *scratch = NULL;
  Candidate list[4 * CANDIDATES];
  cudaError_t e = cudaStreamSynchronize(p->stream);
  if (e)
    return err_set(ERR_WORK,
                   "the GPU failed before a product was timed: %s; run again with "
                   "CUDA_LAUNCH_BLOCKING=1 to see where",
                   cudaGetErrorString(e));
  /* NCCL's kernels take SMs and bandwidth: what is fastest beside them may not be without. */
  if (p->quiesce) TRY(p->quiesce(p->quiesce_context));
  if (x->add) {
    e = cudaMalloc((void **)&scratch, bytes + x->out * sizeof(float));
    if (!e) e = cudaMemsetAsync(scratch, 0, bytes + x->out * sizeof(float), p->stream);
    if (e) {
      cudaFree(scratch);
      return err_set(
          ERR_WORK, "the GPU has no %zu bytes left to time a product: %s; lower --batch-tokens",
          bytes, cudaGetErrorString(e));
    }
    timed.result = scratch + (uintptr_t)x->result % 16; /* no better aligned */
    if (x->dbias) timed.dbias = (float *)(void *)(scratch + bytes);
  }
  int n = collect(p, &timed, false, list, 0);
  if (x->dbias && x->out <= MOST_BIAS) n = collect(p, &timed, true, list, n);
  qsort(list, (size_t)n, sizeof *list, by_time);
  if (n > 1) run_final(p, &timed, list, n < FINALISTS ? n : FINALISTS);
  cudaFree(scratch);
  if (n == 0) return lt_error("a way to do it", x, CUBLAS_STATUS_NOT_SUPPORTED);
  *plan = (Plan){.key = key_of(p, x), .fused = list[0].fused, .checked = x->rows};
  memcpy(plan->algorithm, &list[0].algorithm, sizeof plan->algorithm);
  return ERR_OK;
}

/* Does the plan's algorithm fit these very rows? */
static bool fits(const Products *p, const Product *x, Plan *plan) {
  Call c;
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulHeuristicResult_t result;
  if (plan->checked == x->rows) return true;
  memcpy(&algorithm, plan->algorithm, sizeof algorithm);
  if (describe(p, x, plan->fused, &c) ||
      cublasLtMatmulAlgoCheck(p->lt, &c.how, &c.a, &c.b, &c.c, &c.c, &algorithm, &result) ||
      result.workspaceSize > PRODUCT_WORK)
    return false;
  plan->checked = x->rows;
  return true;
}

/* Ranks that begin together time together: the first one's choice is everybody's, so that
 * their bits are the same, and those of the next run. */
static Err add_plan(Products *p, const Product *x, Plan **out) {
  Plan plan;
  TRY(choose(p, x, &plan));
  bool known = plans_find(&p->plans, &plan.key) != NULL; /* and of no use */
  if (!known) TRY(plans_read(&p->plans));
  *out = plans_find(&p->plans, &plan.key);
  if (!known && *out && fits(p, x, *out)) return ERR_OK;
  TRY(plans_add(&p->plans, &plan));
  *out = plans_find(&p->plans, &plan.key);
  if (plans_save(&p->plans)) {
    log_warn("how matrix products are best done is not kept for next time: %s", err_message());
    p->plans.path[0] = '\0'; /* said once */
  }
  return ERR_OK;
}

/* The algorithm for a plan that does not fit these rows: the library's favourite. */
static Err favourite(const Products *p, const Product *x, cublasLtMatmulAlgo_t *algorithm) {
  Call c;
  cublasLtMatmulHeuristicResult_t found;
  cublasStatus_t s = describe(p, x, false, &c);
  if (!s && (ask(p, x, &c, 1, &found) < 1 || found.state)) s = CUBLAS_STATUS_NOT_SUPPORTED;
  if (s) return lt_error("a way to do it", x, s);
  *algorithm = found.algo;
  return ERR_OK;
}

/* The gradients of no rows are 0. */
static Err no_rows(const Products *p, const Product *x) {
  cudaError_t e = cudaSuccess;
  if (x->kind != PRODUCT_DW || x->add) return ERR_OK;
  e = cudaMemsetAsync(x->result, 0, x->in * x->out * sizeof(float), p->stream);
  if (!e && x->dbias) e = cudaMemsetAsync(x->dbias, 0, x->out * sizeof(float), p->stream);
  if (e) return err_set(ERR_WORK, "the GPU failed to clear: %s", cudaGetErrorString(e));
  return ERR_OK;
}

Err products_run(Products *p, const Product *x) {
  Call c;
  cublasLtMatmulAlgo_t algorithm;
  if (x->rows == 0) return no_rows(p, x);
  PlanKey key = key_of(p, x);
  Plan *plan = plans_find(&p->plans, &key);
  bool fitting = plan && fits(p, x, plan);
  /* New, or from a file that is of no use here. */
  if (!plan || (!fitting && !plan->checked)) {
    if (p->settled)
      return err_set(ERR_WORK,
                     "a product of %zu rows, %zu in, %zu out, which was never timed, was asked "
                     "for in the middle of a recording",
                     x->rows, x->in, x->out);
    TRY(add_plan(p, x, &plan));
    fitting = true;
  }
  bool fused = fitting && plan->fused;
  if (fitting)
    memcpy(&algorithm, plan->algorithm, sizeof algorithm);
  else
    TRY(favourite(p, x, &algorithm));
  cublasStatus_t s = describe(p, x, fused, &c);
  return s ? lt_error("the description", x, s) : run(p, x, &c, fused, &algorithm);
}

Err products_open(Products *p, cudaStream_t stream, Type type, bool tf32, void *work,
                  const char *gpu) {
  _Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof((Plan){0}.algorithm), "plans.h");
  *p = (Products){.stream = stream, .type = type, .tf32 = tf32, .work = work};
  cublasStatus_t s = cublasLtCreate(&p->lt);
  if (s) return err_set(ERR_WORK, "cuBLASLt does not start: %s", cublasLtGetStatusString(s));
  Err err = plans_open(&p->plans, gpu, cublasLtGetVersion());
  cudaError_t e = err ? cudaSuccess : cudaMalloc((void **)&p->bias, MOST_BIAS * sizeof(float));
  if (e)
    err = err_set(ERR_WORK, "the GPU gives no memory: %s; end what else runs on it",
                  cudaGetErrorString(e));
  if (err) products_close(p);
  return err;
}

void products_close(Products *p) {
  if (p->lt) cublasLtDestroy(p->lt);
  cudaFree(p->bias);
  plans_free(&p->plans);
  *p = (Products){0};
}
