/* Describes a GEMM to cuBLASLt (operands, layouts, epilogue and scales), lists algorithms for it
 * and enqueues it. cuBLASLt is column-major: a row-major array (rows, n) is its matrix n x rows.
 * Depends on cuBLASLt, matmul.h, kernels.h. */
#include "backend/cuda/matmul_call.h"

#include "backend/backend.h"
#include "backend/cuda/kernels.h"

static cudaDataType_t data_type(Type type) {
  return type == TYPE_F32 ? CUDA_R_32F : type == TYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static cublasStatus_t set_attribute(MatmulCall *c, cublasLtMatmulDescAttributes_t what,
                                    const void *value, size_t size) {
  return cublasLtMatmulDescSetAttribute(&c->how, what, value, size);
}

float *matmul_bias_grad_target(const MatmulContext *p, const Matmul *x) {
  return x->accumulate || !matmul_is_aligned(x->dbias) ? p->bias : x->dbias;
}

/* Sets the epilogue: adds the bias and applies ReLU (forward) or, if `fused`, computes the bias
 * gradient. */
static cublasStatus_t describe_bias(const MatmulContext *p, const Matmul *x, bool fused,
                                    MatmulCall *c) {
  /* A damaged cache file may set `fused` without a bias gradient. */
  if (!x->dbias) fused = false;
  cublasLtEpilogue_t epilogue = fused ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BIAS;
  const void *bias = fused ? matmul_bias_grad_target(p, x) : x->bias;
  int32_t type = (int32_t)(fused ? CUDA_R_32F : data_type(p->type));
  if (x->relu) epilogue = bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (!(bias || x->relu) || (x->kind != MATMUL_FPROP && !fused)) return CUBLAS_STATUS_SUCCESS;
  cublasStatus_t s =
      set_attribute(c, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!bias) return s;
  if (!s) s = set_attribute(c, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  if (!s) s = set_attribute(c, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
  return s;
}

/* Sets the mode of both scales. One per tensor is cuBLASLt's default. */
static cublasStatus_t describe_scales(const MatmulContext *p, MatmulCall *c) {
  if (p->scales == FP8_TENSOR_SCALES) return CUBLAS_STATUS_SUCCESS;
#if MATMUL_HAS_ROW_SCALES
  int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  cublasStatus_t s = set_attribute(c, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode);
  if (!s) s = set_attribute(c, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode);
  return s;
#else
  (void)c;
  return CUBLAS_STATUS_NOT_SUPPORTED;
#endif
}

/* Replaces the operands by those in fp8. Both are contiguous along the summed dimension, the only
 * layout that cuBLASLt supports for fp8 except on compute capability 10.x. Fast accumulation
 * (fewer bits than fp32) is necessary: without it the gain over bf16 is less than the cost of
 * converting the operands. */
static cublasStatus_t describe_fp8(const MatmulContext *p, const Matmul *x, size_t c_rows,
                                   MatmulCall *c) {
  size_t inner = x->kind == MATMUL_FPROP ? x->in : x->out;
  cublasOperation_t transpose_a = CUBLAS_OP_T;
  int8_t fast = 1;
  /* kernel_fp8_tensor converts gradients to e5m2. */
  bool is_wide = p->scales == FP8_TENSOR_SCALES && x->kind == MATMUL_DGRAD;
  cudaDataType_t b_type = is_wide ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
  const struct {
    cublasLtMatmulDescAttributes_t what;
    const void *value;
    size_t size;
  } list[] = {
      {CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a, sizeof transpose_a},
      {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &x->fp8->w_scale, sizeof x->fp8->w_scale},
      {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &x->fp8->x_scale, sizeof x->fp8->x_scale},
      {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast},
  };
  cublasStatus_t s = describe_scales(p, c);
  for (size_t i = 0; i < sizeof list / sizeof *list && !s; i++)
    s = set_attribute(c, list[i].what, list[i].value, list[i].size);
  if (!s) s = cublasLtMatrixLayoutInit(&c->a, CUDA_R_8F_E4M3, inner, c_rows, (int64_t)inner);
  if (!s) s = cublasLtMatrixLayoutInit(&c->b, b_type, inner, x->rows, (int64_t)inner);
  c->pa = x->fp8->w;
  c->pb = x->fp8->x;
  return s;
}

cublasStatus_t matmul_describe(const MatmulContext *p, const Matmul *x, bool fused,
                               MatmulCall *c) {
  cublasComputeType_t compute = p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cudaDataType_t low = data_type(p->type), wide = x->kind == MATMUL_WGRAD ? CUDA_R_32F : low;
  cublasOperation_t transpose_a = x->kind == MATMUL_FPROP ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t transpose_b = x->kind == MATMUL_WGRAD ? CUBLAS_OP_T : CUBLAS_OP_N;
  /* As column-major matrices: x is in x rows, w is in x out, dy is out x rows. */
  bool a_is_x = x->kind == MATMUL_WGRAD, b_is_x = x->kind == MATMUL_FPROP;
  size_t width = b_is_x ? x->in : x->out;
  size_t c_rows = x->kind == MATMUL_FPROP ? x->out : x->in, c_cols = a_is_x ? x->out : x->rows;
  *c = (MatmulCall){.pa = a_is_x ? x->x : x->w,
                    .pb = b_is_x ? x->x : x->dy,
                    .pc = x->result,
                    .beta = x->accumulate ? 1 : 0};
  cublasStatus_t s = cublasLtMatmulDescInit(&c->how, compute, CUDA_R_32F);
  if (!s) s = set_attribute(c, CUBLASLT_MATMUL_DESC_TRANSA, &transpose_a, sizeof transpose_a);
  if (!s) s = set_attribute(c, CUBLASLT_MATMUL_DESC_TRANSB, &transpose_b, sizeof transpose_b);
  if (!s) s = describe_bias(p, x, fused, c);
  if (!s)
    s = cublasLtMatrixLayoutInit(&c->a, low, x->in, a_is_x ? x->rows : x->out, (int64_t)x->in);
  if (!s) s = cublasLtMatrixLayoutInit(&c->b, low, width, x->rows, (int64_t)width);
  if (!s) s = cublasLtMatrixLayoutInit(&c->c, wide, c_rows, c_cols, (int64_t)c_rows);
  if (!s && x->fp8) s = describe_fp8(p, x, c_rows, c);
  int32_t sms = matmul_sm_target(p, x->kind);
  if (!s && sms) s = set_attribute(c, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof sms);
  return s;
}

int matmul_query_heuristic(const MatmulContext *p, const Matmul *x, MatmulCall *c, int max,
                           cublasLtMatmulHeuristicResult_t *found) {
  cublasLtMatmulPreferenceOpaque_t want;
  size_t work = MATMUL_WORK;
  uint32_t align = matmul_has_aligned_arrays(x) ? 16 : (uint32_t)type_size(p->type);
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

Err matmul_report_failure(const char *what, const Matmul *x, cublasStatus_t status) {
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

bool matmul_needs_counter(const MatmulContext *p, MatmulCall *c,
                          const cublasLtMatmulAlgo_t *algorithm) {
  cublasLtMatmulHeuristicResult_t need;
  return !cublasLtMatmulAlgoCheck(p->lt, &c->how, &c->a, &c->b, &c->c, &c->c, algorithm,
                                  &need) &&
         !need.state && need.workspaceSize > 0 && need.workspaceSize <= MATMUL_COUNTER_BYTES;
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
  *out = (Workspace){p->work, MATMUL_WORK};
  if (!p->is_capturing || p->counters_used == MATMUL_COUNTERS) return cudaSuccess;
  if (!matmul_needs_counter(p, c, algorithm)) return cudaSuccess;
  *out = (Workspace){p->counters + p->counters_used++ * MATMUL_COUNTER_BYTES,
                     MATMUL_COUNTER_BYTES};
  if (p->counters_used > 1) return cudaSuccess;
  return cudaMemsetAsync(p->counters, 0, MATMUL_COUNTERS * MATMUL_COUNTER_BYTES, p->stream);
}

Err matmul_enqueue(MatmulContext *p, const Matmul *x, MatmulCall *c, bool fused,
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
  if (s) return matmul_report_failure("run", x, s);
  e = finish_bias_grad(p, x, fused);
  if (e)
    return err_set(ERR_WORK,
                   "the GPU failed in a bias gradient: %s; run again with "
                   "CUDA_LAUNCH_BLOCKING=1 to see where",
                   cudaGetErrorString(e));
  return ERR_OK;
}
