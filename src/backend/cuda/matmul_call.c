/* Describes a GEMM to cuBLASLt: operands, layouts, epilogue and scales. cuBLASLt is column-major:
 * a row-major array (rows, n) is its matrix n x rows. Depends on cuBLASLt, matmul.h. */
#include "backend/cuda/matmul_call.h"

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
