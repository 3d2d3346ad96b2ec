/* cuBLASLt thinks in columns: a row-major (rows, n) array is its n x rows matrix.
 * Relies on cuBLASLt, plans, kernels. */
#include "backend/cuda/product.h"

#include <math.h>
#include <string.h>

#include "backend/cuda/kernels.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

#define CANDIDATES 16
#define RUNS       4 /* of which the fastest counts */
#define MOST_BIAS  ((size_t)1 << 16)
#define SAMPLE     64              /* rows that are compared */
#define MASK_UNIT  128             /* bits: the library wants rows of whole units */
#define POOL       ((size_t)65521) /* numbers that are drawn; a prime, so rows differ */

/* All that a call of cublasLtMatmul needs but the algorithm. */
typedef struct {
  cublasLtMatmulDescOpaque_t how;
  cublasLtMatrixLayoutOpaque_t a, b, c;
  const void *pa, *pb;
  void *pc;
  float beta;
} Call;

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

/* The bias on the way forward, or its gradient. */
static cublasStatus_t describe_bias(Call *c, cublasLtEpilogue_t epilogue, const void *bias,
                                    cudaDataType_t of) {
  int32_t type = (int32_t)of;
  cublasStatus_t s = set(c, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  return s;
}

/* A mask of whole columns, as the library sees them, one behind the other. */
static cublasStatus_t describe_mask(Call *c, const uint8_t *mask, size_t in) {
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DRELU;
  int64_t ld = (int64_t)in; /* bits */
  cublasStatus_t s = set(c, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &mask, sizeof mask);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof ld);
  return s;
}

/* What the product does beside multiplying. */
static cublasStatus_t describe_extra(const Products *p, const Product *x, bool fused, Call *c) {
  if (x->kind == PRODUCT_Y && x->bias)
    return describe_bias(c, CUBLASLT_EPILOGUE_BIAS, x->bias, data_type(p->type));
  if (fused && x->mask) return describe_mask(c, x->mask, x->in);
  if (fused) return describe_bias(c, CUBLASLT_EPILOGUE_BGRADB, p->bias, CUDA_R_32F);
  return CUBLAS_STATUS_SUCCESS;
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
              .beta = x->add || x->kind == PRODUCT_DW ? 1 : 0};
  cublasStatus_t s = cublasLtMatmulDescInit(&c->how, compute, CUDA_R_32F);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a);
  if (!s) s = set(c, CUBLASLT_MATMUL_DESC_TRANSB, &turn_b, sizeof turn_b);
  if (!s) s = describe_extra(p, x, fused, c);
  if (!s)
    s = cublasLtMatrixLayoutInit(&c->a, low, x->in, a_is_x ? x->rows : x->out, (int64_t)x->in);
  if (!s) s = cublasLtMatrixLayoutInit(&c->b, low, width, x->rows, (int64_t)width);
  if (!s) s = cublasLtMatrixLayoutInit(&c->c, wide, c_rows, c_cols, (int64_t)c_rows);
  return s;
}

/* What is left to do behind the product. */
static cudaError_t follow(const Products *p, const Product *x, bool fused) {
  if (x->mask && !fused)
    return kernel_activate_back(p->type, x->result, x->result, x->mask, x->rows * x->in,
                                ACT_RELU, (Dropout){0}, p->stream);
  if (x->dbias && fused) return kernel_add(x->dbias, p->bias, 1, x->out, p->stream);
  if (x->dbias)
    return kernel_column_sums(p->type, x->dbias, x->dy, x->rows, x->out, p->work, p->stream);
  return cudaSuccess;
}

static Err run(const Products *p, const Product *x, Call *c, bool fused,
               const cublasLtMatmulAlgo_t *algorithm) {
  float alpha = x->mask ? x->scale : 1;
  cublasStatus_t s =
      cublasLtMatmul(p->lt, &c->how, &alpha, c->pa, &c->a, c->pb, &c->b, &c->beta, c->pc, &c->c,
                     c->pc, &c->c, algorithm, p->work, PRODUCT_WORK, p->stream);
  if (s) return lt_error("the product", x, s);
  cudaError_t e = follow(p, x, fused);
  if (e) return err_set(ERR_WORK, "the GPU failed behind a product: %s", cudaGetErrorString(e));
  return ERR_OK;
}

static bool is_aligned(const void *pointer) {
  return (uintptr_t)pointer % 16 == 0;
}

/* Batches differ by a few rows: those of about the same size share a plan. */
static uint32_t round_rows(size_t rows) {
  size_t unit = 8;
  while (unit * 16 <= rows) unit *= 2;
  return (uint32_t)((rows + unit - 1) / unit * unit);
}

static PlanKey key_of(const Products *p, const Product *x) {
  return (PlanKey){.kind = (uint32_t)x->kind,
                   .type = (uint32_t)p->type,
                   .tf32 = p->tf32,
                   .extra = x->mask ? 2 : x->bias || x->dbias,
                   .add = x->add,
                   .aligned = is_aligned(x->result) && is_aligned(x->x) && is_aligned(x->w) &&
                              is_aligned(x->dy) && is_aligned(x->bias) && is_aligned(x->mask),
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

/* Milliseconds of the fastest of a few runs, or -1 where it does not run. */
static float time_of(const Products *p, const Product *x, Call *c, bool fused,
                     const cublasLtMatmulAlgo_t *algorithm) {
  cudaEvent_t from = NULL, to = NULL;
  float best = -1;
  if (cudaEventCreate(&from) || cudaEventCreate(&to)) goto done;
  for (int i = 0; i <= RUNS; i++) { /* the first warms up */
    float took;
    cudaEventRecord(from, p->stream);
    bool ran = run(p, x, c, fused, algorithm) == ERR_OK;
    cudaEventRecord(to, p->stream);
    if (cudaEventSynchronize(to) || !ran || cudaEventElapsedTime(&took, from, to)) {
      (void)cudaGetLastError(); /* so that nobody else is blamed for it */
      best = -1;
      break;
    }
    if (i && (best < 0 || took < best)) best = took;
  }
done:
  if (from) cudaEventDestroy(from);
  if (to) cudaEventDestroy(to);
  return best;
}

/* Rows of a result, fetched to see whether two ways to it agree. */
typedef struct {
  float *want, *got; /* (count, in) */
  char *low;
  size_t count;
} Sample;

/* Evenly spread, the first and the last row among them. */
static bool fetch(const Products *p, const Product *x, const Sample *s, float *to) {
  size_t bytes = x->in * type_size(p->type);
  for (size_t i = 0; i < s->count; i++) {
    size_t row = s->count > 1 ? i * (x->rows - 1) / (s->count - 1) : 0;
    const char *from = (const char *)x->result + row * bytes;
    if (cudaMemcpyAsync(s->low + i * bytes, from, bytes, cudaMemcpyDeviceToHost, p->stream))
      return false;
  }
  if (cudaStreamSynchronize(p->stream)) return false;
  type_widen(p->type, to, s->low, s->count * x->in);
  return true;
}

/* Do both hold the same numbers, but for the order of their sums and one rounding?
 * With a mask misread, half of them would differ by as much as they are. */
static bool agree(const Sample *s, size_t in) {
  double square = 0;
  for (size_t i = 0; i < s->count * in; i++) square += (double)s->want[i] * s->want[i];
  double room = 1e-3 * sqrt(square / (double)(s->count * in));
  if (!(square > 0)) return false; /* nothing but zeros would tell nothing */
  for (size_t i = 0; i < s->count * in; i++) {
    double off = fabs((double)s->got[i] - s->want[i]);
    if (!(off <= room + 0x1p-7 * fabs((double)s->want[i]))) return false;
  }
  return true;
}

/* Runs it over a result that was wiped out before, and compares. */
static bool is_right(const Products *p, const Product *x, Call *c, const Sample *s,
                     const cublasLtMatmulAlgo_t *algorithm) {
  size_t bytes = x->rows * x->in * type_size(p->type);
  if (cudaMemsetAsync(x->result, 0xff, bytes, p->stream)) return false; /* NaN */
  return run(p, x, c, true, algorithm) == ERR_OK && fetch(p, x, s, s->got) && agree(s, x->in);
}

/* Times the candidates of one way to do it; keeps the best in the plan. Where there
 * is a sample, only those count that agree with it. */
static void try_all(const Products *p, const Product *x, bool fused, const Sample *sample,
                    Plan *plan, float *best) {
  Call c;
  cublasLtMatmulHeuristicResult_t found[CANDIDATES];
  if (describe(p, x, fused, &c)) return;
  int n = ask(p, x, &c, CANDIDATES, found);
  for (int i = 0; i < n; i++) {
    if (found[i].state || found[i].workspaceSize > PRODUCT_WORK) continue;
    float took = time_of(p, x, &c, fused, &found[i].algo);
    if (took < 0 || (*best >= 0 && took >= *best)) continue;
    if (sample && !is_right(p, x, &c, sample, &found[i].algo)) continue;
    *best = took;
    plan->fused = fused;
    memcpy(plan->algorithm, &found[i].algo, sizeof plan->algorithm);
  }
}

/* The library can apply the mask itself, but how it reads the bits is only half
 * documented: it may where the result is the same as that of a pass of our own. */
static Err try_masked(const Products *p, const Product *x, Plan *plan, float *best) {
  Call c;
  cublasLtMatmulAlgo_t algorithm;
  Sample s = {.count = x->rows < SAMPLE ? x->rows : SAMPLE};
  Err err;
  TRY_DONE(mem_alloc(&s.want, s.count * x->in, sizeof *s.want));
  TRY_DONE(mem_alloc(&s.got, s.count * x->in, sizeof *s.got));
  TRY_DONE(mem_alloc(&s.low, s.count * x->in, type_size(p->type)));
  memcpy(&algorithm, plan->algorithm, sizeof algorithm);
  if (!describe(p, x, false, &c) && !run(p, x, &c, false, &algorithm) &&
      fetch(p, x, &s, s.want))
    try_all(p, x, true, &s, plan, best);
done:
  mem_free(s.want), mem_free(s.got), mem_free(s.low);
  return err;
}

static Err no_memory(size_t bytes, cudaError_t e) {
  return err_set(ERR_WORK,
                 "the GPU has no %zu bytes left to time a product: %s; lower --batch-tokens",
                 bytes, cudaGetErrorString(e));
}

/* dy and mask of our own, so that the choice does not hang on what a batch holds: a
 * gradient that overflowed would tell nothing. */
static Err draw_operands(const Products *p, Product *x, char **scratch) {
  Rng rng = {.key = 1};
  size_t n = x->rows * x->out, size = type_size(p->type), at = (n * size + 255) / 256 * 256;
  size_t bytes = (x->rows * x->in + 7) / 8;
  struct {
    float number[POOL];
    uint8_t bits[POOL];
  } * pool;
  TRY(mem_alloc(&pool, 1, sizeof *pool));
  for (size_t i = 0; i < POOL; i++) {
    uint64_t drawn = rng_next(&rng);
    pool->number[i] = (float)(drawn >> 40) * 0x1p-23f - 1;
    pool->bits[i] = (uint8_t)drawn;
  }
  cudaError_t e = cudaMalloc((void **)scratch, at + bytes);
  if (!e)
    e = cudaMemcpyAsync(p->work, pool->number, sizeof pool->number, cudaMemcpyHostToDevice,
                        p->stream);
  for (size_t i = 0; i < n && !e; i += POOL)
    e = kernel_cast_to(p->type, *scratch + i * size, p->work, n - i < POOL ? n - i : POOL,
                       p->stream);
  char *mask = *scratch + at;
  for (size_t i = 0; i < bytes && !e; i += POOL)
    e = cudaMemcpyAsync(mask + i, pool->bits, bytes - i < POOL ? bytes - i : POOL,
                        cudaMemcpyHostToDevice, p->stream);
  if (!e) e = cudaStreamSynchronize(p->stream);
  x->dy = *scratch, x->mask = (uint8_t *)mask;
  mem_free(pool);
  return e ? no_memory(at + bytes, e) : ERR_OK;
}

/* Where it would add to the result, it is timed on scratch memory. */
static Err draw_result(const Products *p, Product *x, char **scratch) {
  size_t size = x->kind == PRODUCT_DW ? sizeof(float) : type_size(p->type);
  size_t cells = x->kind == PRODUCT_DW ? x->in * x->out : x->rows * x->in;
  size_t bytes = (cells * size + 16 + 255) / 256 * 256;
  cudaError_t e = cudaMalloc((void **)scratch, bytes + x->out * sizeof(float));
  if (!e) e = cudaMemsetAsync(*scratch, 0, bytes + x->out * sizeof(float), p->stream);
  if (e) return no_memory(bytes, e);
  x->result = *scratch + (uintptr_t)x->result % 16; /* no better aligned */
  if (x->dbias) x->dbias = (float *)(void *)(*scratch + bytes);
  return ERR_OK;
}

static Err choose(Products *p, const Product *x, Plan *plan) {
  Product timed = *x;
  char *scratch = NULL;
  float best = -1;
  Err err = ERR_OK;
  *plan = (Plan){.key = key_of(p, x), .checked = x->rows};
  if (x->add || x->kind == PRODUCT_DW) err = draw_result(p, &timed, &scratch);
  if (x->mask) err = draw_operands(p, &timed, &scratch);
  if (!err) try_all(p, &timed, false, NULL, plan, &best);
  if (!err && x->dbias && x->out <= MOST_BIAS) try_all(p, &timed, true, NULL, plan, &best);
  if (!err && best >= 0 && x->mask && x->in % MASK_UNIT == 0 && is_aligned(x->mask))
    err = try_masked(p, &timed, plan, &best);
  cudaFree(scratch);
  if (err) return err;
  return best < 0 ? lt_error("a way to do it", x, CUBLAS_STATUS_NOT_SUPPORTED) : ERR_OK;
}

static Err add_plan(Products *p, const Product *x, Plan **out) {
  Plan plan;
  TRY(choose(p, x, &plan));
  TRY(plans_add(&p->plans, &plan));
  *out = plans_find(&p->plans, &plan.key);
  if (plans_save(&p->plans)) {
    log_warn("what was found about products is not kept: %s", err_message());
    p->plans.path[0] = '\0'; /* said once */
  }
  return ERR_OK;
}

/* Does the plan's algorithm fit these very rows? */
static bool fits(const Products *p, const Product *x, Plan *plan, Call *c) {
  cublasLtMatmulAlgo_t algorithm;
  cublasLtMatmulHeuristicResult_t result;
  if (plan->checked == x->rows) return true;
  memcpy(&algorithm, plan->algorithm, sizeof algorithm);
  if (cublasLtMatmulAlgoCheck(p->lt, &c->how, &c->a, &c->b, &c->c, &c->c, &algorithm,
                              &result) ||
      result.workspaceSize > PRODUCT_WORK)
    return false;
  plan->checked = x->rows;
  return true;
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

Err products_run(Products *p, const Product *x) {
  Call c;
  cublasLtMatmulAlgo_t algorithm;
  if (x->rows == 0) return ERR_OK;
  PlanKey key = key_of(p, x);
  Plan *plan = plans_find(&p->plans, &key);
  bool fitting = plan && !describe(p, x, plan->fused, &c) && fits(p, x, plan, &c);
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
  if (!err && cudaMalloc((void **)&p->bias, MOST_BIAS * sizeof(float)))
    err = err_set(ERR_WORK, "the GPU's memory is full; end what else runs on it");
  if (err) products_close(p);
  return err;
}

void products_close(Products *p) {
  if (p->lt) cublasLtDestroy(p->lt);
  cudaFree(p->bias);
  plans_free(&p->plans);
  *p = (Products){0};
}
